//! Egress: the ports, names and addresses that may be dialled, and the addresses
//! of names.
//!
//! A crawler, or a redirect or DNS answer of an origin, could otherwise make
//! the proxy speak to machines that only it can reach. The address that was
//! checked is the one that is dialled, so a name that answers differently the
//! second time (DNS rebinding) gains nothing.
//!
//! Does not know what goes over a connection.

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
    /// Addresses that may not be dialled (`egress.deny`).
    pub deny: Vec<Deny>,
    /// Addresses and names that may be dialled all the same (`egress.allow`).
    pub allow: Vec<Allow>,
    /// Ports that may be dialled (`egress.ports`).
    pub ports: Vec<EgressPorts>,
    /// Names with an address of the operator's choice (`upstream.resolve`);
    /// exempt from `deny`, and from `ports` where they name one.
    pub resolve: Vec<Resolve>,
    /// Parent proxy for all other names (`upstream.parent`).
    pub parent: Option<Parent>,
    /// Time for which the addresses of a name are used.
    pub dns_ttl: Duration,
    /// Longest wait for the addresses of a name.
    pub dns_timeout: Duration,
    /// Names that are resolved at a time: the limit of the shares that an
    /// [`Egress`] is given.
    pub dns_lookups: NonZeroUsize,
    /// Names of one zone that are resolved at a time for one client.
    pub dns_zone_lookups: NonZeroUsize,
    /// Names that are remembered.
    pub dns_cache: NonZeroUsize,
    /// Name of the proxy itself (`proxy.internal_name`), which is neither resolved nor
    /// passed to a parent, whatever the rest says.
    pub own_name: Option<Host>,
}

/// Entry of `upstream.resolve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// Host of the URL.
    pub name: String,
    /// Port of the URL; absent if any. An entry with a port wins over one without.
    pub port: Option<u16>,
    /// Address to connect to.
    pub address: IpAddr,
    /// Port to connect to; absent if that of the URL.
    pub to_port: Option<u16>,
}

impl Resolve {
    fn leads_to(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, self.to_port.unwrap_or(port))
    }
}

/// Addresses to dial for an origin, every one checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialTarget {
    /// Server that is found there.
    pub hop: NextHop,
    /// Addresses, to be tried in this order.
    pub addresses: Addresses,
}

impl DialTarget {
    /// Returns the address of the origin, if it is dialled itself.
    pub fn address(&self) -> Option<IpAddr> {
        let first = self.addresses.first()?;
        (self.hop == NextHop::Origin).then(|| first.ip())
    }
}

/// Addresses with ports.
pub type Addresses = Vec<SocketAddr>;

/// Server that a connection leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// The origin itself.
    Origin,
    /// `upstream.parent`, which connects to the origin.
    Parent,
}

/// Egress of the configuration in force; empty before the first reload.
pub type LatestEgress = ArcSwapOption<Egress>;

/// Rules on what may be dialled, and the addresses of names as last resolved.
#[derive(Debug)]
pub struct Egress {
    rules: Arc<EgressRules>,
    resolve: HashMap<Box<str>, Vec<Resolve>>,
    resolver: Resolver,
    parent: Option<Parent>,
    own: OwnListeners,
    own_name: Option<Host>,
    /// Cell of the egress in force.
    latest: OnceLock<Weak<LatestEgress>>,
}

impl Egress {
    /// Makes the shares of look-ups that `options` allow.
    pub fn lookups(options: &Options, metrics: Arc<Metrics>) -> Arc<Shares> {
        Shares::new(
            Resource::Lookups,
            options.dns_lookups.get(),
            // Nothing stops the thread of a look-up.
            DisplacementOrder::Never,
            metrics,
        )
    }

    /// Creates an egress that resolves names in tasks of `tasks`, each with one of
    /// the shares `lookups`.
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
        // With a parent no other name than its own is resolved here, and that
        // one the operator has set.
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

    /// Has requests not be sent where the egress in `cell`, that of a later configuration,
    /// denies it. They are led where this one leads. Only the first call counts.
    pub fn yield_to(&self, cell: &Arc<LatestEgress>) {
        let _ = self.latest.set(Arc::downgrade(cell));
    }

    /// Sets the addresses of our own listeners, which are denied under any name,
    /// whatever `egress.allow` and `upstream.resolve` say. Only the first call
    /// counts; later listeners are added to the list that was given.
    ///
    /// # Errors
    ///
    /// [`Denial::OwnListener`] if one of them is the parent by its address.
    pub fn listeners(&self, own: impl Into<OwnAddresses>) -> Result<(), Denial> {
        self.own.set(own.into());
        let parent = self.parent.as_ref();
        let address = parent.and_then(|parent| self.fixed(&parent.0));
        self.without_own(address).map(drop)
    }

    /// Returns the addresses at which `origin` may be dialled. A look-up of its
    /// name is counted for `client`; without one, for the proxy itself.
    ///
    /// # Errors
    ///
    /// [`DialError::Denied`] if it may not be dialled,
    /// [`DialError::NoConnection`] if its name has no address,
    /// [`DialError::Busy`] if the client has its share of look-ups.
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

    /// Does what [`admits`](Self::admits) does, by this configuration alone.
    async fn admits_by_itself(
        &self,
        origin: &Origin,
        client: Option<&Arc<Client>>,
    ) -> Result<DialTarget, DialError> {
        // Before `upstream.resolve`: a robots.txt may redirect there.
        self.judge_own_name(origin)?;
        if let Host::Name(name) = origin.host()
            && let Some(entry) = self.entry(name, origin.port().get())
        {
            let port = origin.port().get();
            // An entry that names a port is exempt from `egress.ports`.
            if entry.port.is_none() {
                self.rules.judge_port(port)?;
            }
            return self.admitted(NextHop::Origin, [entry.leads_to(port)]);
        }
        // With a parent, too. It resolves the name, so ports, names and
        // literals are all that can be judged here.
        self.judge(origin)?;
        if let Host::Name(name) = origin.host()
            && has_no_address(name)
        {
            return Err(DialError::NoConnection(NoConnection::Dns));
        }
        let (hop, place) = match &self.parent {
            Some(parent) => (NextHop::Parent, &parent.0),
            None => (NextHop::Origin, origin),
        };
        self.admitted(hop, self.found(place, client).await?)
    }

    /// Returns `target`, which was found for `origin` by an earlier configuration, with
    /// those addresses that may be dialled by this one.
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

    /// Checks all that can be checked without a resolver.
    fn judge(&self, origin: &Origin) -> Result<(), Denial> {
        let port = origin.port().get();
        self.rules.judge_port(port)?;
        match origin.host() {
            // Our own listeners are looked for once the name is resolved.
            Host::Name(name) => self.rules.judge_name(name),
            Host::Address(address) => {
                self.rules.judge_address(*address)?;
                self.without_own([SocketAddr::new(*address, port)])
                    .map(drop)
            }
        }
    }

    /// Returns the addresses of `place`, from its literal, the settings or the
    /// resolver.
    async fn found(
        &self,
        place: &Origin,
        client: Option<&Arc<Client>>,
    ) -> Result<Addresses, DialError> {
        if let Some(address) = self.fixed(place) {
            return Ok(vec![address]);
        }
        // `fixed` has answered for every literal.
        let Host::Name(name) = place.host() else {
            return Err(DialError::NoConnection(NoConnection::Dns));
        };
        let port = place.port().get();
        let found = self.resolver.addresses(name, client).await?;
        let with_port = found.iter().map(|&ip| SocketAddr::new(ip, port));
        Ok(with_port.collect())
    }

    /// Returns the address that the settings have in place of that of `origin`:
    /// from `upstream.resolve`, else that of the parent.
    pub fn led_to(&self, origin: &Origin) -> Option<String> {
        let resolved = match origin.host() {
            Host::Address(_) => None,
            Host::Name(name) => self.resolved_by_operator(name, origin.port().get()),
        };
        let parent = || self.parent.as_ref().map(|parent| parent.0.to_string());
        resolved.map(|address| address.to_string()).or_else(parent)
    }

    /// Returns the address of `place` if no resolver is needed for it.
    fn fixed(&self, place: &Origin) -> Option<SocketAddr> {
        let port = place.port().get();
        match place.host() {
            Host::Address(address) => Some(SocketAddr::new(*address, port)),
            Host::Name(name) => self.resolved_by_operator(name, port),
        }
    }

    /// Returns the address that `upstream.resolve` has for a name.
    fn resolved_by_operator(&self, name: &str, port: u16) -> Option<SocketAddr> {
        Some(self.entry(name, port)?.leads_to(port))
    }

    /// Returns the entry of `upstream.resolve` for a name.
    fn entry(&self, name: &str, port: u16) -> Option<&Resolve> {
        let fits = |entry: &&Resolve| entry.port.is_none_or(|own| own == port);
        self.resolve.get(name)?.iter().find(fits)
    }

    fn admitted(
        &self,
        hop: NextHop,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<DialTarget, DialError> {
        let addresses = self.without_own(addresses)?;
        Ok(DialTarget { hop, addresses })
    }

    /// Removes the addresses of our own listeners.
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

/// Reports whether a name never has an address, so that neither a resolver nor a parent is
/// asked (RFC 6761, section 6.4).
fn has_no_address(name: &str) -> bool {
    name == "invalid" || name.ends_with(".invalid")
}

/// Sorts entries by name, those with a port first: the more exact one counts.
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
