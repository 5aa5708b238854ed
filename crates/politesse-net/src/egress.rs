//! Egress: the ports, names and addresses that may be dialled, and the addresses of
//! names.
//!
//! Without these rules, a crawler, or a redirect or DNS answer from an origin, could make
//! the proxy contact machines that only the proxy can reach. The address that was checked
//! is the one that is dialled, so a name that resolves differently the second time (DNS
//! rebinding) gains nothing.
//!
//! Does not know the traffic on a connection.

mod own;
mod pending;
mod resolver;
mod rules;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;

pub use self::own::OwnAddresses;
use self::own::OwnListeners;
use self::resolver::{Resolver, ResolverLimits, ResolverParts};
pub use self::rules::{Allow, Denial, Deny, DialError, EgressPorts};
use self::rules::{EgressLists, EgressRules};
use super::parent::Parent;
use politesse_base::clients::client::{Client, Resource};
use politesse_base::clients::shares::{DisplacementOrder, Shares};
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_decision::access::NoConnection;
use politesse_robots::origin::{Host, Origin};

/// Settings (`egress.*`, `upstream.resolve`, `upstream.dns_*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses that must not be dialled (`egress.deny`).
    pub deny: Vec<Deny>,
    /// Addresses and names that are exempt from `deny` (`egress.allow`).
    pub allow: Vec<Allow>,
    /// Ports that may be dialled (`egress.ports`).
    pub ports: Vec<EgressPorts>,
    /// Names with addresses set by the operator (`upstream.resolve`). They are exempt
    /// from `deny`, and if they specify a port, from `ports`.
    pub resolve: Vec<Resolve>,
    /// Parent proxy for all other names (`upstream.parent`).
    pub parent: Option<Parent>,
    /// Time for which the addresses of a name are cached.
    pub dns_ttl: Duration,
    /// Longest wait for the addresses of a name.
    pub dns_timeout: Duration,
    /// Maximum number of concurrent lookups: the limit of the shares given to an
    /// [`Egress`].
    pub dns_lookups: NonZeroUsize,
    /// Maximum number of concurrent lookups per client and zone.
    pub dns_zone_lookups: NonZeroUsize,
    /// Maximum number of cached names, and of names that wait to be looked up.
    pub dns_cache: NonZeroUsize,
    /// Name of the proxy itself (`proxy.internal_name`). It is never resolved or passed
    /// to a parent, regardless of all other settings.
    pub own_name: Option<Host>,
}

/// Entry of `upstream.resolve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// Host of the URL.
    pub name: String,
    /// Port of the URL; absent for any port. An entry with a port takes precedence over
    /// one without.
    pub port: Option<u16>,
    /// Address to connect to.
    pub address: IpAddr,
    /// Port to connect to; absent for the port of the URL.
    pub to_port: Option<u16>,
}

impl Resolve {
    /// Returns the address to connect to for a URL with `port`.
    fn leads_to(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, self.to_port.unwrap_or(port))
    }
}

/// Checked addresses to dial for an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialTarget {
    /// Server at these addresses.
    pub hop: NextHop,
    /// Addresses in the order in which they are tried.
    pub addresses: Addresses,
}

impl DialTarget {
    /// Returns the address of the origin; `None` if a parent is dialled instead.
    pub fn address(&self) -> Option<IpAddr> {
        let first = self.addresses.first()?;
        (self.hop == NextHop::Origin).then(|| first.ip())
    }
}

/// Socket addresses.
pub type Addresses = Vec<SocketAddr>;

/// Server at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// The origin itself.
    Origin,
    /// `upstream.parent`, which connects to the origin.
    Parent,
}

/// Egress of the configuration in force; empty before the first reload.
pub type LatestEgress = ArcSwapOption<Egress>;

/// Rules for the destinations that may be dialled, and the cached addresses of names.
#[derive(Debug)]
pub struct Egress {
    rules: Arc<EgressRules>,
    /// Entries of `upstream.resolve` by name; those with a port come first.
    resolve: HashMap<Box<str>, Vec<Resolve>>,
    resolver: Resolver,
    parent: Option<Parent>,
    /// Addresses of the proxy's own listeners.
    own: OwnListeners,
    /// Name of the proxy itself.
    own_name: Option<Host>,
    /// Cell that holds the egress in force.
    latest: OnceLock<Weak<LatestEgress>>,
}

impl Egress {
    /// Creates the lookup shares that `options` allow.
    pub fn lookups(options: &Options, metrics: Arc<Metrics>) -> Arc<Shares> {
        Shares::new(
            Resource::Lookups,
            options.dns_lookups.get(),
            // The thread of a lookup cannot be stopped.
            DisplacementOrder::Never,
            metrics,
        )
    }

    /// Creates an egress that resolves names in tasks of `tasks`. Each lookup takes one
    /// of the shares `lookups`.
    pub fn new(
        options: Options,
        lookups: Arc<Shares>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Self {
        let lists = EgressLists {
            deny: options.deny,
            allow: options.allow,
            ports: options.ports,
        };
        let rules = Arc::new(EgressRules::new(lists, Arc::clone(&metrics)));
        // With a parent, the only name resolved here is the parent's own, and the
        // operator has chosen that.
        let resolved_rules = match &options.parent {
            Some(_) => Arc::new(EgressRules::open(metrics)),
            None => Arc::clone(&rules),
        };
        let limits = ResolverLimits {
            ttl: options.dns_ttl,
            timeout: options.dns_timeout,
            zone_lookups: options.dns_zone_lookups,
            names: options.dns_cache,
        };
        let resolver_parts = ResolverParts {
            rules: resolved_rules,
            shares: lookups,
            tasks,
        };
        Self {
            rules,
            resolve: by_name(options.resolve),
            resolver: Resolver::new(limits, resolver_parts),
            parent: options.parent,
            own: OwnListeners::default(),
            own_name: options.own_name,
            latest: OnceLock::new(),
        }
    }

    /// Also denies the origins that the egress in `cell`, that of a later configuration,
    /// denies. Other requests still go to the addresses found by this egress. Only the
    /// first call has an effect.
    pub fn yield_to(&self, cell: &Arc<LatestEgress>) {
        let _ = self.latest.set(Arc::downgrade(cell));
    }

    /// Sets the addresses of the proxy's own listeners. They are denied under any name,
    /// regardless of `egress.allow` and `upstream.resolve`. Only the first call has an
    /// effect; later listeners are added to the given list.
    ///
    /// # Errors
    ///
    /// [`Denial::OwnListener`] if the parent's address is one of the listeners.
    pub fn listeners(&self, own: impl Into<OwnAddresses>) -> Result<(), Denial> {
        self.own.set(own.into());
        let parent = self.parent.as_ref();
        let address = parent.and_then(|parent| self.fixed_address(&parent.0));
        self.without_own(address).map(drop)
    }

    /// Returns the addresses at which `origin` may be dialled. A lookup of its name is
    /// charged to `client`, or to the proxy itself.
    ///
    /// # Errors
    ///
    /// [`DialError::Denied`] if it must not be dialled, [`DialError::NoConnection`] if
    /// its name has no address, [`DialError::Busy`] if the client has used up its share
    /// of lookups.
    pub async fn admits(
        &self,
        origin: &Origin,
        client: Option<&Arc<Client>>,
    ) -> Result<DialTarget, DialError> {
        let admitted = self.admits_by_itself(origin, client).await?;
        let cell = self.latest.get().and_then(Weak::upgrade);
        match cell.and_then(|cell| cell.load_full()) {
            Some(latest) if !std::ptr::eq(&*latest, self) => {
                Ok(latest.remaining(origin, admitted)?)
            }
            Some(_) | None => Ok(admitted),
        }
    }

    /// Like [`admits`](Self::admits), but considers only this configuration.
    async fn admits_by_itself(
        &self,
        origin: &Origin,
        client: Option<&Arc<Client>>,
    ) -> Result<DialTarget, DialError> {
        // Checked before `upstream.resolve`, because a robots.txt may redirect there.
        self.judge_own_name(origin)?;
        if let Host::Name(name) = origin.host()
            && let Some(entry) = self.entry(name, origin.port().get())
        {
            let port = origin.port().get();
            // An entry with a port is exempt from `egress.ports`.
            if entry.port.is_none() {
                self.rules.judge_port(port)?;
            }
            return self.admitted(NextHop::Origin, [entry.leads_to(port)]);
        }
        // Also checked if there is a parent. The parent resolves names, so only ports,
        // names and literals can be judged here.
        self.judge(origin)?;
        if let Host::Name(name) = origin.host()
            && has_no_address(name)
        {
            return Err(DialError::NoConnection(NoConnection::Dns));
        }
        let (hop, server) = match &self.parent {
            Some(parent) => (NextHop::Parent, &parent.0),
            None => (NextHop::Origin, origin),
        };
        self.admitted(hop, self.addresses(server, client).await?)
    }

    /// Returns `target`, which an earlier configuration found for `origin`, without the
    /// addresses that this configuration denies.
    fn remaining(&self, origin: &Origin, mut target: DialTarget) -> Result<DialTarget, Denial> {
        self.judge_own_name(origin)?;
        let Host::Name(name) = origin.host() else {
            self.judge(origin)?;
            return Ok(target);
        };
        let port = origin.port().get();
        let entry = self.entry(name, port);
        if entry.is_none_or(|entry| entry.port.is_none()) {
            self.rules.judge_port(port)?;
        }
        if entry.is_some_and(|entry| target.addresses == [entry.leads_to(port)]) {
            return Ok(target);
        }
        self.rules.judge_name(name)?;
        if target.hop == NextHop::Parent {
            return Ok(target);
        }
        let found: Vec<IpAddr> = target.addresses.iter().map(SocketAddr::ip).collect();
        let allowed = self.rules.allowed_of(name, &found)?;
        let is_allowed = |address: &SocketAddr| allowed.contains(&address.ip());
        target.addresses.retain(is_allowed);
        Ok(target)
    }

    fn judge_own_name(&self, origin: &Origin) -> Result<(), Denial> {
        match self.own_name.as_ref().filter(|own| *own == origin.host()) {
            Some(own) => Err(Denial::OwnName(own.clone())),
            None => Ok(()),
        }
    }

    /// Checks everything that needs no resolver.
    fn judge(&self, origin: &Origin) -> Result<(), Denial> {
        let port = origin.port().get();
        self.rules.judge_port(port)?;
        match origin.host() {
            // Whether the name leads to one of our own listeners is checked after
            // resolving it.
            Host::Name(name) => self.rules.judge_name(name),
            Host::Address(address) => {
                self.rules.judge_address(*address)?;
                self.without_own([SocketAddr::new(*address, port)])
                    .map(drop)
            }
        }
    }

    /// Returns the addresses of `server`, an origin or the parent: from its literal, the
    /// settings, or the resolver.
    async fn addresses(
        &self,
        server: &Origin,
        client: Option<&Arc<Client>>,
    ) -> Result<Addresses, DialError> {
        if let Some(address) = self.fixed_address(server) {
            return Ok(vec![address]);
        }
        // `fixed_address` has already handled all literals.
        let Host::Name(name) = server.host() else {
            return Err(DialError::NoConnection(NoConnection::Dns));
        };
        let port = server.port().get();
        let found = self.resolver.addresses(name, client).await?;
        let with_port = found.iter().map(|&ip| SocketAddr::new(ip, port));
        Ok(with_port.collect())
    }

    /// Returns the address configured in place of that of `origin`: from
    /// `upstream.resolve`, or else that of the parent; `None` if there is neither.
    pub fn led_to(&self, origin: &Origin) -> Option<String> {
        let resolved = match origin.host() {
            Host::Address(_) => None,
            Host::Name(name) => self.resolved_by_operator(name, origin.port().get()),
        };
        let parent = || self.parent.as_ref().map(|parent| parent.0.to_string());
        resolved.map(|address| address.to_string()).or_else(parent)
    }

    /// Returns the address of `server` if it is known without a resolver: from its literal,
    /// or from `upstream.resolve`.
    fn fixed_address(&self, server: &Origin) -> Option<SocketAddr> {
        let port = server.port().get();
        match server.host() {
            Host::Address(address) => Some(SocketAddr::new(*address, port)),
            Host::Name(name) => self.resolved_by_operator(name, port),
        }
    }

    /// Returns the address in `upstream.resolve` for a name.
    fn resolved_by_operator(&self, name: &str, port: u16) -> Option<SocketAddr> {
        Some(self.entry(name, port)?.leads_to(port))
    }

    /// Returns the matching entry of `upstream.resolve` for a name.
    fn entry(&self, name: &str, port: u16) -> Option<&Resolve> {
        let fits = |entry: &&Resolve| entry.port.is_none_or(|own| own == port);
        self.resolve.get(name)?.iter().find(fits)
    }

    /// Returns the target with these addresses, except those of the proxy's own listeners.
    fn admitted(
        &self,
        hop: NextHop,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<DialTarget, DialError> {
        let addresses = self.without_own(addresses)?;
        Ok(DialTarget { hop, addresses })
    }

    /// Removes the addresses of the proxy's own listeners. An error if none remain.
    fn without_own(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Addresses, Denial> {
        let mut denied = None;
        let mut others = Addresses::new();
        for address in addresses {
            if self.own.are_reached_at(address) {
                denied.get_or_insert(address);
            } else {
                others.push(address);
            }
        }
        match denied {
            Some(first) if others.is_empty() => Err(Denial::OwnListener(first)),
            Some(_) | None => Ok(others),
        }
    }
}

/// Reports whether a name can never have an address, so that neither a resolver nor a
/// parent is asked (RFC 6761, section 6.4).
fn has_no_address(name: &str) -> bool {
    name == "invalid" || name.ends_with(".invalid")
}

/// Groups the entries by name. Entries with a port come first, because they are more
/// specific.
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
