//! Resolver: finds the addresses of names through the system and a cache.
//!
//! The system's resolver is getaddrinfo (RFC 3493, section 6.1), which runs on a thread
//! that cannot be stopped. So there is at most one lookup per name, a few per client and
//! zone, and a client never takes more places than it leaves free. A request waits no
//! longer than `upstream.dns_timeout`, even if the thread hangs.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use dns_lookup::{AddrFamily, AddrInfoHints, SockType, getaddrinfo};
use hyper::rt::Executor;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{timeout, timeout_at};

use super::pending::{Joined, LookupClaim, PendingLookups, ZonePlaces};
use super::rules::{DialError, EgressRules, ResolvedName};
use politesse_base::clients::client::Client;
use politesse_base::clients::shares::{Share, Shares};
use politesse_base::clock::Stamp;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::tasks::Tasks;
use politesse_decision::access::NoConnection;

/// Maximum number of addresses of a name that are tried.
// The connect timeout is divided among them: with more addresses, each part would be too
// short to connect.
const ADDRESSES_MAX: usize = 16;

/// Time for which a failed lookup is cached: long enough for the requests of one page,
/// short enough to recover after a temporary failure of the resolver.
const NONE_TTL: Duration = Duration::from_secs(5);

/// Time after which a lookup counts as hanging, and IPv4 is looked up separately.
/// Recursive resolvers take less, unless name servers do not answer, or the network drops
/// queries for IPv6.
const HANGS_AFTER: Duration = Duration::from_millis(500);

/// Limits of a resolver (`upstream.dns_*`), except for the number of lookups.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolverLimits {
    /// Time for which an answer is cached.
    pub(super) ttl: Duration,
    /// Longest time that a request waits for an answer.
    pub(super) timeout: Duration,
    /// Maximum number of concurrent lookups per client and zone.
    pub(super) zone_lookups: NonZeroUsize,
    /// Maximum number of cached names, and of waiting claims.
    pub(super) names: NonZeroUsize,
}

/// Function that asks the system. Tests use another one.
type SystemLookup = fn(Box<str>, AddressFamily) -> SystemAnswer;

/// Future of the system's answer.
type SystemAnswer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Address family to request from the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressFamily {
    /// IPv4 and IPv6.
    Any,
    /// IPv4 only.
    V4,
}

/// Components that a resolver shares with others.
pub(super) struct ResolverParts {
    /// Rules that decide which addresses are allowed.
    pub(super) rules: Arc<EgressRules>,
    /// Shares for running lookups.
    pub(super) shares: Arc<Shares>,
    /// Tasks in which lookups run.
    pub(super) tasks: Tasks,
}

/// Resolves names, and caches their addresses.
pub(super) struct Resolver(Arc<ResolverState>);

/// State shared between lookups and the requests that wait for them.
struct ResolverState {
    limits: ResolverLimits,
    lookup: SystemLookup,
    rules: Arc<EgressRules>,
    cache: Cache<Box<str>, CachedName>,
    pending: Arc<PendingLookups>,
    zones: ZonePlaces,
    shares: Arc<Shares>,
    /// The proxy itself, which is charged for lookups made without a client.
    own: Arc<Client>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
}

#[derive(Debug, Clone)]
struct CachedName {
    found: ResolvedName,
    since: Stamp,
    ttl: Duration,
}

/// Permits held by a running lookup.
struct LookupPlace {
    /// Absent for a second lookup of the same name.
    _zone: Option<OwnedSemaphorePermit>,
    _share: Share,
}

impl Resolver {
    /// Creates a resolver that asks the system, like other programs.
    pub(super) fn new(limits: ResolverLimits, parts: ResolverParts) -> Self {
        Self::with_lookup(limits, parts, |name, family| {
            Box::pin(ask_system(name, family))
        })
    }

    fn with_lookup(limits: ResolverLimits, parts: ResolverParts, lookup: SystemLookup) -> Self {
        let ResolverParts {
            rules,
            shares,
            tasks,
        } = parts;
        let names = u64::try_from(limits.names.get()).unwrap_or(u64::MAX);
        shares.set_waiting_limit(limits.names.get());
        let pending = PendingLookups::new(limits.names.get(), limits.timeout);
        Self(Arc::new(ResolverState {
            limits,
            lookup,
            metrics: Arc::clone(&rules.metrics),
            rules,
            // The default policy might reject the newest name.
            cache: Cache::builder()
                .max_capacity(names)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            pending: Arc::new(pending),
            zones: ZonePlaces::new(limits.zone_lookups.get()),
            shares,
            own: Client::proxy(),
            tasks,
        }))
    }

    /// Returns the allowed addresses of `name`, from the cache or the system. A lookup is
    /// charged to `client`.
    pub(super) async fn addresses(&self, name: &str, client: Option<&Arc<Client>>) -> ResolvedName {
        if let Some(found) = self.0.cached(name) {
            return found;
        }
        // Boxed: most requests do not get here, and their futures are moved.
        let found = Box::pin(self.look_up(name, client)).await;
        if found == Err(DialError::Busy) {
            self.0.count_answer("busy");
        }
        found
    }

    /// Joins or starts the lookup of `name`, and waits for its answer.
    async fn look_up(&self, name: &str, client: Option<&Arc<Client>>) -> ResolvedName {
        let state = &self.0;
        let Joined {
            mut answer,
            begun,
            deadline,
            claim,
        } = state.pending.join(name, client.unwrap_or(&state.own))?;
        if let Some(claim) = claim {
            // A separate task, because other requests may still wait for the name when
            // this one ends.
            state.tasks.execute(Arc::clone(state).follow(claim));
        }
        let none = Err(DialError::NoConnection(NoConnection::Dns));
        match timeout_at(deadline, answer.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone().unwrap_or(none),
            // The task ended without an answer: the lookup panicked.
            Ok(Err(_)) => none,
            Err(_) if begun.is_cancelled() => {
                Err(DialError::NoConnection(NoConnection::DnsTimeout))
            }
            Err(_) => Err(DialError::Busy),
        }
    }
}

impl ResolverState {
    /// Follows a claim from waiting for a place to the answer. Continues after the
    /// timeout: the thread stays busy until the system returns, and the answer serves the
    /// next request.
    async fn follow(self: Arc<Self>, mut claim: LookupClaim) {
        let Some(place) = self.place(&mut claim).await else {
            return;
        };
        if !claim.begin() {
            return;
        }
        let addresses = self.ask_system(&claim, place).await;
        let found = self.allowed(&claim.name, addresses);
        self.cache_name(&claim.name, &found);
        self.count_answer(match &found {
            Ok(_) => "found",
            Err(DialError::Denied(_)) => "denied",
            Err(DialError::NoConnection(cause)) => cause.as_str(),
            Err(DialError::Busy) => "busy",
        });
        claim.finish(found);
    }

    /// Waits for the permits of a claim, first in its zone, because a name that waits for
    /// others of its zone must not keep a share from other names.
    async fn place(&self, claim: &mut LookupClaim) -> Option<LookupPlace> {
        let (client, name, deadline) = (
            Arc::clone(&claim.client),
            claim.name.clone(),
            claim.deadline,
        );
        let place = async {
            Some(LookupPlace {
                _zone: self.zones.take(&client, &name).await,
                _share: self.shares.take(&client).await.ok()?,
            })
        };
        tokio::select! {
            biased;
            // Polled first, so that a claim overtaken by another takes no permit.
            () = claim.becomes_void() => None,
            place = timeout_at(deadline, place) => place.ok().flatten(),
        }
    }

    /// Asks the system for both families. If that hangs and a share is free, also asks
    /// for IPv4 separately: the combined answer arrives only with the later of the two
    /// families.
    async fn ask_system(self: &Arc<Self>, claim: &LookupClaim, place: LookupPlace) -> Vec<IpAddr> {
        let asked = |family, place| {
            let answer = (self.lookup)(claim.name.clone(), family);
            self.on_thread(answer, place)
        };
        let mut both = asked(AddressFamily::Any, place);
        if let Ok(addresses) = timeout(HANGS_AFTER, &mut both).await {
            return addresses.unwrap_or_default();
        }
        let share = self.shares.take_free(&claim.client);
        let Some(_share) = share else {
            return both.await.unwrap_or_default();
        };
        let mut v4 = asked(
            AddressFamily::V4,
            LookupPlace {
                _zone: None,
                _share,
            },
        );
        tokio::select! {
            addresses = &mut both => return addresses.unwrap_or_default(),
            Ok(addresses) = &mut v4 => if !addresses.is_empty() { return addresses },
        }
        both.await.unwrap_or_default()
    }

    /// Runs a lookup on its thread to the end, and holds its permits meanwhile.
    fn on_thread(
        self: &Arc<Self>,
        answer: SystemAnswer,
        place: LookupPlace,
    ) -> oneshot::Receiver<Vec<IpAddr>> {
        let (found, addresses) = oneshot::channel();
        let state = Arc::clone(self);
        self.tasks.execute(async move {
            // The system's error is dropped: its codes differ between libraries, and none
            // of them leads to an address.
            let answered = state.counted(answer).await.unwrap_or_default();
            drop(place);
            // The receiver is gone if IPv4 was enough.
            let _ = found.send(answered);
        });
        addresses
    }

    /// Counts a lookup as running, and later as hanging.
    async fn counted<T>(&self, lookup: impl Future<Output = T>) -> T {
        let _running = Counted::one(&self.metrics.upstream_dns_lookups);
        let mut lookup = pin!(lookup);
        if let Ok(answer) = timeout(HANGS_AFTER, &mut lookup).await {
            return answer;
        }
        let _hanging = Counted::one(&self.metrics.upstream_dns_hanging);
        lookup.await
    }

    fn count_answer(&self, result: &'static str) {
        let answers = &self.metrics.upstream_dns_answers;
        answers.get_or_create(&ResultLabel { result }).inc();
    }

    fn allowed(&self, name: &str, mut found: Vec<IpAddr>) -> ResolvedName {
        found.dedup();
        if found.is_empty() {
            return Err(DialError::NoConnection(NoConnection::Dns));
        }
        let mut allowed = self.rules.allowed_of(name, &found)?;
        allowed.truncate(ADDRESSES_MAX);
        Ok(allowed.into())
    }

    fn cached(&self, name: &str) -> Option<ResolvedName> {
        let cached = self.cache.get(name)?;
        (cached.since.age() < cached.ttl).then_some(cached.found)
    }

    fn cache_name(&self, name: &str, found: &ResolvedName) {
        // A denial is as reliable as an address. Only a failed lookup is repeated soon.
        let ttl = match found {
            Err(DialError::NoConnection(_) | DialError::Busy) => NONE_TTL.min(self.limits.ttl),
            Ok(_) | Err(DialError::Denied(_)) => self.limits.ttl,
        };
        let cached = CachedName {
            found: found.clone(),
            since: Stamp::now(),
            ttl,
        };
        self.cache.insert(name.into(), cached);
        let names = i64::try_from(self.cache.entry_count()).unwrap_or(i64::MAX);
        self.metrics.upstream_dns_cache.set(names);
    }
}

/// Counts one in a gauge until dropped.
struct Counted<'a>(&'a Gauge);

impl<'a> Counted<'a> {
    fn one(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Asks the system like other programs do, so that /etc/hosts and nsswitch.conf apply.
async fn ask_system(name: Box<str>, family: AddressFamily) -> io::Result<Vec<IpAddr>> {
    if family == AddressFamily::Any {
        let found = tokio::net::lookup_host((&*name, 0)).await?;
        return Ok(found.map(|address| address.ip()).collect());
    }
    let hints = AddrInfoHints {
        address: AddrFamily::Inet.into(),
        socktype: SockType::Stream.into(),
        ..AddrInfoHints::default()
    };
    spawn_blocking(move || {
        let found = getaddrinfo(Some(&name), None, Some(hints))?;
        found.map(|found| Ok(found?.sockaddr.ip())).collect()
    })
    .await?
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
