//! Where we may connect to: which ports, names and addresses.
//!
//! A crawler, or a redirect or DNS answer of an origin, could otherwise make
//! the proxy speak to machines that only it can reach. The address that was
//! checked is the one that is dialled, so a name that answers differently the
//! second time (DNS rebinding) gains nothing.
//!
//! What goes over a connection is not known here.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipnet::IpNet;
use moka::sync::Cache;
use thiserror::Error;
use tokio::time::timeout;

use super::addresses::{ipv4_within, is_special, is_special_name, is_web_port};
use crate::rules::origin::{Host, Origin};
use crate::rules::robots::access::NoConnection;

/// More addresses than this of one name are not tried.
const ADDRESSES_MAX: usize = 16;

/// What the operator laid down (`egress.*`, `upstream.resolve`).
#[derive(Debug, Clone)]
pub struct Options {
    /// What may not be dialled (`egress.deny`).
    pub deny: Vec<Deny>,
    /// What may be dialled all the same (`egress.allow`).
    pub allow: Vec<Allow>,
    /// Which ports may be asked for (`egress.ports`).
    pub ports: Vec<Ports>,
    /// Names with an address of the operator's choice (`upstream.resolve`);
    /// exempt from `deny` and `ports`.
    pub resolve: Vec<Resolve>,
    /// How long the addresses of a name are used.
    pub dns_ttl: Duration,
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

/// The operator's word on where connections may go, and the addresses of
/// names as last resolved.
#[derive(Debug)]
pub struct Egress {
    options: Options,
    resolve_timeout: Duration,
    own: OnceLock<Vec<SocketAddr>>,
    resolved: Cache<(Host, u16), Arc<[SocketAddr]>>,
}

impl Egress {
    /// An egress that gives up on a resolver after `resolve_timeout`.
    pub fn new(mut options: Options, resolve_timeout: Duration) -> Self {
        for entry in &mut options.resolve {
            entry.name.make_ascii_lowercase();
        }
        // The more exact entries first, so that the first that fits counts.
        options.resolve.sort_by_key(|entry| entry.port.is_none());
        let names = u64::try_from(options.dns_cache.get()).unwrap_or(u64::MAX);
        Self {
            resolved: Cache::builder()
                .max_capacity(names)
                .time_to_live(options.dns_ttl)
                .build(),
            own: OnceLock::new(),
            options,
            resolve_timeout,
        }
    }

    /// Our own bound addresses, which are denied under any name, whatever
    /// `egress.allow` and `upstream.resolve` say. They are known once.
    pub fn listeners(&self, own: Vec<SocketAddr>) {
        self.own.get_or_init(|| own);
    }

    /// The addresses at which `origin` may be dialled, every one checked.
    ///
    /// # Errors
    ///
    /// [`NotAdmitted::Denied`] if it may not be dialled,
    /// [`NotAdmitted::NoConnection`] if its name leads nowhere.
    pub async fn admits(&self, origin: &Origin) -> Result<Arc<[SocketAddr]>, NotAdmitted> {
        let (host, port) = (origin.host(), origin.port().get());
        let addresses = match self.overridden(host, port) {
            Some(address) => Arc::from([address]),
            None => self.checked(host, port).await?,
        };
        Ok(self.without_own(addresses)?)
    }

    /// Where `upstream.resolve` sends a host.
    fn overridden(&self, host: &Host, port: u16) -> Option<SocketAddr> {
        if self.options.resolve.is_empty() {
            return None;
        }
        let name = host.to_string();
        let fits = |entry: &&Resolve| entry.name == name && entry.port.is_none_or(|p| p == port);
        let entry = self.options.resolve.iter().find(fits)?;
        Some(SocketAddr::new(
            entry.address,
            entry.to_port.unwrap_or(port),
        ))
    }

    /// The addresses of a host, as far as ports, names and networks allow.
    async fn checked(&self, host: &Host, port: u16) -> Result<Arc<[SocketAddr]>, NotAdmitted> {
        if !self.options.ports.iter().any(|ports| ports.contains(port)) {
            return Err(Denial::Port(port).into());
        }
        let name = match host {
            Host::Address(address) => {
                let literal = SocketAddr::new(*address, port);
                return Ok(self.admitted(host, vec![literal])?);
            }
            Host::Name(name) => name,
        };
        if self.denies_by_default() && is_special_name(name) && !self.allows_name(name) {
            return Err(Denial::Name(name.clone()).into());
        }
        let key = (host.clone(), port);
        if let Some(addresses) = self.resolved.get(&key) {
            return Ok(addresses);
        }
        let found = self
            .resolve(name, port)
            .await
            .map_err(NotAdmitted::NoConnection)?;
        let addresses = self.admitted(host, found)?;
        self.resolved.insert(key, Arc::clone(&addresses));
        Ok(addresses)
    }

    /// Asks the system's resolver.
    async fn resolve(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, NoConnection> {
        // RFC 6761, section 6.4: such a name never has an address.
        if name == "invalid" || name.ends_with(".invalid") {
            return Err(NoConnection::Dns);
        }
        let answer = timeout(self.resolve_timeout, tokio::net::lookup_host((name, port))).await;
        let found = answer
            .map_err(|_| NoConnection::DnsTimeout)?
            .map_err(|_| NoConnection::Dns)?;
        let mut found: Vec<SocketAddr> = found.collect();
        found.dedup();
        if found.is_empty() {
            return Err(NoConnection::Dns);
        }
        Ok(found)
    }

    /// Those of `found` that may be dialled; a mixed answer keeps the others.
    fn admitted(&self, host: &Host, found: Vec<SocketAddr>) -> Result<Arc<[SocketAddr]>, Denial> {
        let any = matches!(host, Host::Name(name) if self.allows_name(name));
        let first = found.first().map(SocketAddr::ip);
        let admitted: Arc<[SocketAddr]> = found
            .into_iter()
            .filter(|address| any || self.allows(address.ip()))
            .take(ADDRESSES_MAX)
            .collect();
        match first {
            Some(first) if admitted.is_empty() => Err(Denial::Address(first)),
            Some(_) | None => Ok(admitted),
        }
    }

    fn denies_by_default(&self) -> bool {
        self.options.deny.contains(&Deny::Default)
    }

    fn allows_name(&self, name: &str) -> bool {
        self.options.allow.iter().any(|allow| match allow {
            Allow::Name(allowed) => allowed.eq_ignore_ascii_case(name),
            Allow::Net(_) => false,
        })
    }

    fn allows(&self, address: IpAddr) -> bool {
        let inner = ipv4_within(address).map(IpAddr::V4);
        let within =
            |net: &IpNet| net.contains(&address) || inner.is_some_and(|ip| net.contains(&ip));
        let allowed = self.options.allow.iter().any(|allow| match allow {
            Allow::Net(net) => within(net),
            Allow::Name(_) => false,
        });
        let denied = || {
            self.options.deny.iter().any(|deny| match deny {
                Deny::Default => is_special(address),
                Deny::Net(net) => within(net),
            })
        };
        allowed || !denied()
    }

    /// `addresses` without those that lead back to us.
    fn without_own(&self, addresses: Arc<[SocketAddr]>) -> Result<Arc<[SocketAddr]>, Denial> {
        let own = self.own.get().map_or(&[][..], Vec::as_slice);
        let is_own = |address: &SocketAddr| own.iter().any(|listener| reaches(*address, *listener));
        let Some(first) = addresses.iter().copied().find(is_own) else {
            return Ok(addresses);
        };
        let others: Arc<[SocketAddr]> = addresses.iter().copied().filter(|a| !is_own(a)).collect();
        if others.is_empty() {
            return Err(Denial::OwnListener(first));
        }
        Ok(others)
    }
}

impl Ports {
    fn contains(&self, port: u16) -> bool {
        match self {
            Self::Default => is_web_port(port),
            Self::Range(range) => range.contains(&port),
        }
    }
}

/// Whether a connection to `address` may end at `listener`.
///
/// Loopback and unspecified addresses of that port count whatever address it
/// is bound to: several of them lead to the same socket.
fn reaches(address: SocketAddr, listener: SocketAddr) -> bool {
    let ip = ipv4_within(address.ip()).map_or(address.ip(), IpAddr::V4);
    let bound = listener.ip().to_canonical();
    address.port() == listener.port()
        && (ip == bound
            || ip.is_loopback()
            || ip.is_unspecified()
            || (bound.is_unspecified() && is_local(ip)))
}

/// Whether an address is one of this machine: only those can be bound to.
/// Nothing is sent.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests;
