//! Resolver: the addresses of names, from the system and from a cache.
//!
//! The system's resolver is getaddrinfo (RFC 3493, section 6.1), on a thread that
//! nothing can stop. So one look-up at a time runs for each name, few for each
//! client in each zone, and no client has more of them than it leaves free; and a
//! request waits no longer than `upstream.dns_timeout`, whatever the thread does.

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

/// Addresses of one name that are tried.
// The time to connect is divided among them: with more, each part would be too
// short to connect in.
const ADDRESSES_MAX: usize = 16;

/// Time for which "no address" is cached: long enough for the requests of one page,
/// short enough for a resolver that had a bad moment.
const NONE_TTL: Duration = Duration::from_secs(5);

/// Time after which a look-up counts as one that hangs. Recursive resolvers need
/// less, but for name servers that do not answer, and networks that drop what is asked
/// about IPv6: then IPv4 is asked for by itself.
const HANGS_AFTER: Duration = Duration::from_millis(500);

/// Limits of a resolver (`upstream.dns_*`), but for the number of look-ups.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolverLimits {
    /// Time for which an answer is cached.
    pub(super) ttl: Duration,
    /// Longest wait of a request for an answer.
    pub(super) timeout: Duration,
    /// Look-ups of one client in one zone that run at a time.
    pub(super) zone_lookups: NonZeroUsize,
    /// Names that are cached, and names that may wait.
    pub(super) names: NonZeroUsize,
}

/// Function that asks the system; another one in tests.
type SystemLookup = fn(Box<str>, AddressFamily) -> SystemAnswer;

/// Answer of the system, once it has one.
type SystemAnswer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Family of the addresses that the system is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressFamily {
    /// Both.
    Any,
    /// IPv4 alone.
    V4,
}

/// Parts that a resolver shares with others.
pub(super) struct ResolverParts {
    /// Rules by which addresses are allowed.
    pub(super) rules: Arc<EgressRules>,
    /// Shares of the look-ups that run.
    pub(super) shares: Arc<Shares>,
    /// Tasks in which they run.
    pub(super) tasks: Tasks,
}

/// Resolves names, and caches their addresses.
pub(super) struct Resolver(Arc<ResolverState>);

/// State that look-ups share with the requests that wait for them.
struct ResolverState {
    limits: ResolverLimits,
    lookup: SystemLookup,
    rules: Arc<EgressRules>,
    cache: Cache<Box<str>, CachedName>,
    pending: Arc<PendingLookups>,
    zones: ZonePlaces,
    shares: Arc<Shares>,
    /// Client for whom names are looked up that no client asks for.
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

/// Place of a look-up that runs.
struct LookupPlace {
    /// Absent for a second look-up of one name.
    _zone: Option<OwnedSemaphorePermit>,
    _share: Share,
}

impl Resolver {
    /// Makes a resolver that asks the system, as other programs do.
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
            // The other policy may turn the newest name away.
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

    /// Returns the allowed addresses of `name`, from the cache or the system.
    /// What it takes to look the name up is counted for `client`.
    pub(super) async fn addresses(&self, name: &str, client: Option<&Arc<Client>>) -> ResolvedName {
        if let Some(found) = self.0.cached(name) {
            return found;
        }
        // Boxed: most requests go no further, and their futures are moved.
        let found = Box::pin(self.look_up(name, client)).await;
        if found == Err(DialError::Busy) {
            self.0.count_answer("busy");
        }
        found
    }

    /// Joins the look-up of `name`, or starts it, and waits for its answer.
    async fn look_up(&self, name: &str, client: Option<&Arc<Client>>) -> ResolvedName {
        let state = &self.0;
        let Joined {
            mut answer,
            begun,
            deadline,
            claim,
        } = state.pending.join(name, client.unwrap_or(&state.own))?;
        if let Some(claim) = claim {
            // A task of its own: other requests may wait for the name when this
            // one goes.
            state.tasks.execute(Arc::clone(state).follow(claim));
        }
        let none = Err(DialError::NoConnection(NoConnection::Dns));
        match timeout_at(deadline, answer.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone().unwrap_or(none),
            // The task ended without an answer: the look-up panicked.
            Ok(Err(_)) => none,
            Err(_) if begun.is_cancelled() => {
                Err(DialError::NoConnection(NoConnection::DnsTimeout))
            }
            Err(_) => Err(DialError::Busy),
        }
    }
}

impl ResolverState {
    /// Follows a claim, from the wait for a place to the answer. It goes on when
    /// its time is up: the thread is taken until it comes back, and its answer
    /// serves the next request.
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

    /// Waits for the place of a claim, in its zone first: a name that waits for
    /// others of its zone must not keep a place from other names.
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
            // First: a claim that another one has overtaken takes nothing.
            () = claim.becomes_void() => None,
            place = timeout_at(deadline, place) => place.ok().flatten(),
        }
    }

    /// Asks the system, and for IPv4 by itself if that hangs and a place is free: its
    /// answer is for both families, and comes with the later one.
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

    /// Follows a look-up on its thread to the end, with the place that it takes.
    fn on_thread(
        self: &Arc<Self>,
        answer: SystemAnswer,
        place: LookupPlace,
    ) -> oneshot::Receiver<Vec<IpAddr>> {
        let (found, addresses) = oneshot::channel();
        let state = Arc::clone(self);
        self.tasks.execute(async move {
            // The error of the system is dropped. Its codes differ between libraries,
            // and no address follows from any of them.
            let answered = state.counted(answer).await.unwrap_or_default();
            drop(place);
            // Nobody waits any more where IPv4 was enough.
            let _ = found.send(answered);
        });
        addresses
    }

    /// Counts a look-up among those that run, and then among those that hang.
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
        // A denial is as firm as an address. Only a resolver that failed is
        // asked again soon.
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

/// One thing that a gauge counts, until it is dropped.
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

/// Asks the system as other programs do: /etc/hosts and nsswitch.conf count.
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
