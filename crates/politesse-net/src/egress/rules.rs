//! Rules of `egress.deny`, `egress.allow` and `egress.ports` for ports, names and
//! addresses.
//!
//! Does not know how names are resolved.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use thiserror::Error;

use crate::addresses::{ipv4_within, is_special, is_special_name, is_web_port};
use politesse_base::metrics::Metrics;
use politesse_decision::access::NoConnection;
use politesse_robots::origin::Host;

/// Entry of `egress.deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deny {
    /// Private and special addresses, and the names for them.
    Default,
    /// All addresses of a network.
    Net(IpNet),
}

/// Entry of `egress.allow`, which takes precedence over every [`Deny`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// All addresses of a network.
    Net(IpNet),
    /// A name, regardless of its addresses.
    Name(String),
}

/// Entry of `egress.ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressPorts {
    /// Ports 80 and 443, and those from 1024 up that are not used by well-known
    /// databases.
    Default,
    /// An inclusive range.
    Range(RangeInclusive<u16>),
}

/// Reason why an origin cannot be dialled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DialError {
    /// The origin must not be dialled: 502 with `destination_ip_prohibited`.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// The name has no address.
    #[error("{0}")]
    NoConnection(NoConnection),
    /// The name was not looked up: too many lookups are pending, and the client has used
    /// up its share of them (`upstream.dns_lookups`).
    #[error("too many names are being looked up")]
    Busy,
}

/// Allowed addresses of a name, or the reason why there are none.
pub(super) type ResolvedName = Result<Arc<[IpAddr]>, DialError>;

/// Reason why an origin must not be dialled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Denial {
    /// The port is not in `egress.ports`.
    #[error("port {0} is not in egress.ports")]
    Port(u16),
    /// The name stands for this machine or for the metadata service of a cloud.
    #[error("the name {0} is denied by egress.deny, and egress.allow does not have it")]
    Name(Box<str>),
    /// Every address of the origin is denied; this is the first one.
    #[error("the address {0} is denied by egress.deny, and egress.allow does not have it")]
    Address(IpAddr),
    /// The address belongs to this proxy.
    #[error("{0} is this proxy")]
    OwnListener(SocketAddr),
    /// The name is that of this proxy (`proxy.internal_name`).
    #[error("the name {0} is this proxy")]
    OwnName(Host),
}

/// Entries of `egress.deny`, `egress.allow` and `egress.ports`.
#[derive(Debug, Clone)]
pub(super) struct EgressLists {
    pub(super) deny: Vec<Deny>,
    pub(super) allow: Vec<Allow>,
    pub(super) ports: Vec<EgressPorts>,
}

/// Entries of the `egress.*` lists, in the form in which they are searched.
#[derive(Debug)]
pub(super) struct EgressRules {
    ports: Vec<EgressPorts>,
    /// Names of `egress.allow`, in lower case.
    allowed_names: HashSet<Box<str>>,
    /// Networks of `egress.allow`.
    allowed_nets: Vec<IpNet>,
    /// Networks of `egress.deny`.
    denied_nets: Vec<IpNet>,
    special: SpecialAddresses,
    pub(super) metrics: Arc<Metrics>,
}

/// Treatment of private and special addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpecialAddresses {
    Denied,
    Allowed,
}

impl EgressRules {
    pub(super) fn new(lists: EgressLists, metrics: Arc<Metrics>) -> Self {
        let special = if lists.deny.contains(&Deny::Default) {
            SpecialAddresses::Denied
        } else {
            SpecialAddresses::Allowed
        };
        let mut rules = Self {
            ports: lists.ports,
            special,
            ..Self::open(metrics)
        };
        for entry in lists.deny {
            match entry {
                Deny::Default => {}
                Deny::Net(net) => rules.denied_nets.push(canonical(net)),
            }
        }
        for entry in lists.allow {
            match entry {
                Allow::Net(net) => rules.allowed_nets.push(canonical(net)),
                Allow::Name(name) => {
                    rules.allowed_names.insert(name.to_ascii_lowercase().into());
                }
            }
        }
        rules
    }

    /// Creates rules that deny no name and no address.
    pub(super) fn open(metrics: Arc<Metrics>) -> Self {
        Self {
            ports: Vec::new(),
            allowed_names: HashSet::new(),
            allowed_nets: Vec::new(),
            denied_nets: Vec::new(),
            special: SpecialAddresses::Allowed,
            metrics,
        }
    }

    pub(super) fn judge_port(&self, port: u16) -> Result<(), Denial> {
        let fits = |ports: &EgressPorts| match ports {
            EgressPorts::Default => is_web_port(port),
            EgressPorts::Range(range) => range.contains(&port),
        };
        if self.ports.iter().any(fits) {
            Ok(())
        } else {
            Err(Denial::Port(port))
        }
    }

    /// Judges a lower-case name itself: some names stand for this machine, regardless of
    /// the resolver.
    pub(super) fn judge_name(&self, name: &str) -> Result<(), Denial> {
        if self.special == SpecialAddresses::Denied
            && is_special_name(name)
            && !self.allowed_names.contains(name)
        {
            return Err(Denial::Name(name.into()));
        }
        Ok(())
    }

    pub(super) fn judge_address(&self, address: IpAddr) -> Result<(), Denial> {
        if self.allows(address) {
            return Ok(());
        }
        self.metrics.egress_addresses_denied.inc();
        Err(Denial::Address(address))
    }

    /// Returns the addresses of `name` that may be dialled. Of a mixed answer, the
    /// allowed addresses remain.
    pub(super) fn allowed_of(&self, name: &str, found: &[IpAddr]) -> Result<Vec<IpAddr>, Denial> {
        if self.allowed_names.contains(name) {
            return Ok(found.to_vec());
        }
        let judged = found.iter().map(|&ip| self.judge_address(ip).map(|()| ip));
        let (allowed, denied): (Vec<_>, Vec<_>) = judged.partition(Result::is_ok);
        match denied.into_iter().next() {
            Some(Err(first)) if allowed.is_empty() => Err(first),
            _ => Ok(allowed.into_iter().flatten().collect()),
        }
    }

    /// Reports whether an address may be dialled. `egress.allow` takes precedence for the
    /// addresses that it lists. An address that embeds another one is denied if either of
    /// them is.
    fn allows(&self, address: IpAddr) -> bool {
        let may = |ip| any_contains(&self.allowed_nets, ip) || !self.denies(ip);
        let within = || ipv4_within(address).map(IpAddr::V4);
        any_contains(&self.allowed_nets, address) || (!self.denies(address) && within().all(may))
    }

    /// Reports whether `egress.deny` covers an address.
    fn denies(&self, address: IpAddr) -> bool {
        (self.special == SpecialAddresses::Denied && is_special(address))
            || any_contains(&self.denied_nets, address)
    }
}

/// Converts a network of IPv4-mapped addresses (RFC 4291, section 2.5.5.2) to the IPv4
/// network that it represents, because such addresses are judged as IPv4.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let within = |bits: u8| {
        let first = mapped.network().to_ipv4_mapped()?;
        Ipv4Net::new(first, bits).ok()
    };
    let found = mapped.prefix_len().checked_sub(96).and_then(within);
    found.map_or(network, IpNet::V4)
}

/// Reports whether any of `networks` contains an address.
fn any_contains(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}
