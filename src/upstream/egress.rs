//! Where we may connect to: which ports, names and addresses.
//!
//! A crawler, or a redirect or DNS answer of an origin, could otherwise make
//! the proxy speak to machines that only it can reach. The address that was
//! checked is the one that is dialled, so a name that answers differently the
//! second time (DNS rebinding) gains nothing.
//!
//! What goes over a connection is not known here.

mod own;
mod ranges;
mod resolver;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use smallvec::SmallVec;
use thiserror::Error;

pub use self::own::OwnAddresses;
use self::own::OwnListeners;
use self::ranges::Ranges;
use self::resolver::Resolver;
use super::parent::Parent;
use crate::decision::access::NoConnection;
use crate::metrics::Metrics;
use crate::tasks::Tasks;
use politesse_robots::origin::{Host, Origin};

/// What the operator laid down (`egress.*`, `upstream.resolve`, `upstream.dns_*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// What may not be dialled (`egress.deny`).
    pub deny: Vec<Deny>,
    /// What may be dialled all the same (`egress.allow`).
    pub allow: Vec<Allow>,
    /// Which ports may be asked for (`egress.ports`).
    pub ports: Vec<Ports>,
    /// Names with an address of the operator's choice (`upstream.resolve`);
    /// exempt from `deny`, and from `ports` where they name one.
    pub resolve: Vec<Resolve>,
    /// The proxy that everything else goes through (`upstream.parent`).
    pub parent: Option<Parent>,
    /// How long the addresses of a name are used.
    pub dns_ttl: Duration,
    /// How long a name may take to be resolved.
    pub dns_timeout: Duration,
    /// How many names are resolved at a time.
    pub dns_lookups: NonZeroUsize,
    /// How many names are remembered.
    pub dns_cache: NonZeroUsize,
}

/// One entry of `egress.deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deny {
    /// Private and special addresses, and the names that mean them.
    Default,
    /// The addresses of a network.
    Net(IpNet),
}

/// One entry of `egress.allow`; it wins over every [`Deny`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// The addresses of a network.
    Net(IpNet),
    /// A name, wherever it leads.
    Name(String),
}

/// One entry of `egress.ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// 80, 443, and those from 1024 on which no well-known database listens.
    Default,
    /// A range, its ends included.
    Range(RangeInclusive<u16>),
}

/// One entry of `upstream.resolve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// The host as asked for.
    pub name: String,
    /// Its port; absent: any. An entry with a port wins over one without.
    pub port: Option<u16>,
    /// Where to connect to instead.
    pub address: IpAddr,
    /// The port there; absent: the one asked for.
    pub to_port: Option<u16>,
}

impl Resolve {
    fn leads_to(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, self.to_port.unwrap_or(port))
    }
}

/// Why an origin may not, or cannot, be dialled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotAdmitted {
    /// It may not: 502 with `destination_ip_prohibited`.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Its name leads to no address.
    #[error("{0}")]
    NoConnection(NoConnection),
}

/// What forbids an origin to be dialled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Denial {
    /// `egress.ports` does not have its port.
    #[error("port {0} is not one that may be asked for")]
    Port(u16),
    /// Its name means this machine or a cloud's metadata.
    #[error("the name {0} is denied")]
    Name(Box<str>),
    /// Every address it has is denied; this is the first.
    #[error("the address {0} is denied")]
    Address(IpAddr),
    /// It would lead back to this proxy.
    #[error("{0} is this proxy")]
    OwnListener(SocketAddr),
}

/// Where to connect to for an origin: checked addresses, and no others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Who is found there.
    pub hop: NextHop,
    /// At which addresses, to be tried in this order.
    pub addresses: Addresses,
}

impl Admitted {
    /// Where the origin is, if it is dialled itself.
    pub fn address(&self) -> Option<IpAddr> {
        let first = self.addresses.first()?;
        (self.hop == NextHop::Origin).then(|| first.ip())
    }
}

/// A few addresses with ports; more than four are rare.
pub type Addresses = SmallVec<[SocketAddr; 4]>;

/// Who a connection leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// The origin itself.
    Origin,
    /// `upstream.parent`, which connects to the origin.
    Parent,
}

/// The operator's word on where connections may go, and the addresses of
/// names as last resolved.
#[derive(Debug)]
pub struct Egress {
    ranges: Arc<Ranges>,
    resolve: HashMap<Box<str>, Vec<Resolve>>,
    resolver: Resolver,
    parent: Option<Parent>,
    own: OwnListeners,
}

impl Egress {
    /// An egress that resolves in tasks of `tasks`.
    pub fn new(options: Options, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        let ranges = Arc::new(Ranges::new(&options, Arc::clone(&metrics)));
        // With a parent no other name than its own is resolved here, and that
        // is the operator's word.
        let judging = match &options.parent {
            Some(_) => Arc::new(Ranges::open(Arc::clone(&metrics))),
            None => Arc::clone(&ranges),
        };
        let limits = resolver::Limits {
            ttl: options.dns_ttl,
            timeout: options.dns_timeout,
            lookups: options.dns_lookups,
            names: options.dns_cache,
        };
        Self {
            ranges,
            resolve: by_name(options.resolve),
            resolver: Resolver::new(limits, judging, (metrics, tasks)),
            parent: options.parent,
            own: OwnListeners::default(),
        }
    }

    /// Our own bound addresses, which are denied under any name, whatever
    /// `egress.allow` and `upstream.resolve` say. Only the first call counts;
    /// later listeners are added to the list that was given.
    ///
    /// # Errors
    ///
    /// [`Denial::OwnListener`] if one of them is the parent by its address.
    pub fn listeners(&self, own: impl Into<OwnAddresses>) -> Result<(), Denial> {
        self.own.set(own.into());
        match self
            .parent
            .as_ref()
            .and_then(|parent| self.fixed(&parent.0))
        {
            Some(address) => self.without_own([address]).map(drop),
            None => Ok(()),
        }
    }

    /// The addresses at which `origin` may be dialled, every one checked.
    ///
    /// # Errors
    ///
    /// [`NotAdmitted::Denied`] if it may not be dialled,
    /// [`NotAdmitted::NoConnection`] if its name leads nowhere.
    pub async fn admits(&self, origin: &Origin) -> Result<Admitted, NotAdmitted> {
        if let Host::Name(name) = origin.host()
            && let Some(entry) = self.entry(name, origin.port().get())
        {
            let port = origin.port().get();
            // Who names a port means it.
            if entry.port.is_none() {
                self.ranges.judge_port(port)?;
            }
            return self.admitted(NextHop::Origin, [entry.leads_to(port)]);
        }
        self.judge(origin)?;
        match &self.parent {
            Some(parent) => {
                let addresses = self.found(&parent.0).await?;
                self.admitted(NextHop::Parent, addresses)
            }
            None => {
                let addresses = self.found(origin).await?;
                self.admitted(NextHop::Origin, addresses)
            }
        }
    }

    /// Judges what can be judged without a resolver.
    fn judge(&self, origin: &Origin) -> Result<(), Denial> {
        let port = origin.port().get();
        self.ranges.judge_port(port)?;
        match origin.host() {
            Host::Name(name) => self.ranges.judge_name(name),
            Host::Address(address) => {
                self.ranges.judge_address(*address)?;
                self.without_own([SocketAddr::new(*address, port)])
                    .map(drop)
            }
        }
    }

    /// Where `place` is, from its literal, the operator or the resolver.
    async fn found(&self, place: &Origin) -> Result<Addresses, NotAdmitted> {
        if let Some(address) = self.fixed(place) {
            return Ok(Addresses::from_iter([address]));
        }
        let Host::Name(name) = place.host() else {
            return Err(NotAdmitted::NoConnection(NoConnection::Dns));
        };
        let port = place.port().get();
        let found = self.resolver.addresses(name).await?;
        let with_port = found.iter().map(|&ip| SocketAddr::new(ip, port));
        Ok(with_port.collect())
    }

    /// Where the operator's word leads instead of the address of `origin`: what
    /// `upstream.resolve` has for its name, else the parent.
    pub fn led_to(&self, origin: &Origin) -> Option<String> {
        let resolved = match origin.host() {
            Host::Address(_) => None,
            Host::Name(name) => self.resolved_by_operator(name, origin.port().get()),
        };
        let parent = || self.parent.as_ref().map(|parent| parent.0.to_string());
        resolved.map(|address| address.to_string()).or_else(parent)
    }

    /// The address of `place` that no resolver is needed for.
    fn fixed(&self, place: &Origin) -> Option<SocketAddr> {
        let port = place.port().get();
        match place.host() {
            Host::Address(address) => Some(SocketAddr::new(*address, port)),
            Host::Name(name) => self.resolved_by_operator(name, port),
        }
    }

    /// Where `upstream.resolve` sends a name.
    fn resolved_by_operator(&self, name: &str, port: u16) -> Option<SocketAddr> {
        Some(self.entry(name, port)?.leads_to(port))
    }

    /// What `upstream.resolve` has for a name.
    fn entry(&self, name: &str, port: u16) -> Option<&Resolve> {
        let fits = |entry: &&Resolve| entry.port.is_none_or(|own| own == port);
        self.resolve.get(name)?.iter().find(fits)
    }

    fn admitted(
        &self,
        hop: NextHop,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Admitted, NotAdmitted> {
        let addresses = self.without_own(addresses)?;
        Ok(Admitted { hop, addresses })
    }

    /// `addresses` without those that lead back to us.
    fn without_own(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Addresses, Denial> {
        let mut denied = None;
        let others = addresses.into_iter().filter(|&address| {
            let is_own = self.own.are_reached_at(address);
            if is_own {
                denied.get_or_insert(address);
            }
            !is_own
        });
        let others: Addresses = others.collect();
        match denied {
            Some(first) if others.is_empty() => Err(Denial::OwnListener(first)),
            Some(_) | None => Ok(others),
        }
    }
}

/// Entries by name, those with a port first: the more exact one counts.
fn by_name(resolve: Vec<Resolve>) -> HashMap<Box<str>, Vec<Resolve>> {
    let mut named: HashMap<Box<str>, Vec<Resolve>> = HashMap::with_capacity(resolve.len());
    for entry in resolve {
        let name = entry.name.to_ascii_lowercase().into_boxed_str();
        named.entry(name).or_default().push(entry);
    }
    for entries in named.values_mut() {
        entries.sort_by_key(|entry| entry.port.is_none());
    }
    named
}

#[cfg(test)]
mod tests;
