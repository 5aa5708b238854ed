//! Resolver: finds the addresses of names through the system and a cache.
//!
//! The system's resolver is getaddrinfo (RFC 3493, section 6.1). Each call, a *lookup*,
//! occupies a thread that cannot be stopped, so lookups are limited:
//!
//! - All requests for a name share one lookup. Each client that sends such requests has a
//!   *claim* ([`LookupClaim`]). The first claim that obtains both permits starts the
//!   lookup, and the other claims end. A claim that ends without permits leaves its
//!   requests to the claims of other clients; if none is left, they get `Busy`.
//! - A claim needs two *permits* ([`LookupPermits`]), and its lookup holds them until the
//!   thread is free. One limits the lookups of the client in the *zone* of the name, its
//!   registered domain ([`ZonePermits`], `upstream.dns_zone_lookups`). The other is a
//!   *share* of all lookups ([`Shares`], `upstream.dns_lookups`). A client gets another
//!   share only while more shares are free than it holds.
//!
//! A request waits no longer than `upstream.dns_timeout`, even if the thread hangs.

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

use super::pending::{JoinedLookup, LookupClaim, PendingLookups, ZonePermits};
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
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// Time after which a lookup counts as hanging, and IPv4 is looked up separately.
/// Recursive resolvers take less, unless name servers do not answer, or the network drops
/// queries for IPv6.
const HANGS_AFTER: Duration = Duration::from_millis(500);

/// Limits of a resolver (`upstream.dns_*`), except for the number of all lookups, which
/// [`ResolverParts::shares`] limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolverLimits {
    /// Time for which an answer is cached.
    pub(super) ttl: Duration,
    /// Longest time that a request waits for an answer.
    pub(super) timeout: Duration,
    /// Maximum number of concurrent lookups per client and zone.
    pub(super) zone_lookups: NonZeroUsize,
    /// Capacity of the cache, and of each queue: of waiting claims, and of claims that wait
    /// for a share.
    pub(super) names: NonZeroUsize,
}

/// Function that asks the system for the addresses of a name. Tests use another one.
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
    /// Shares of the lookups that may run at the same time.
    pub(super) shares: Arc<Shares>,
    /// Tasks in which lookups run.
    pub(super) tasks: Tasks,
}

/// Resolves names, and caches their addresses.
pub(super) struct Resolver(Arc<ResolverState>);

/// State shared between lookups and the requests that wait for them.
struct ResolverState {
    limits: ResolverLimits,
    ask_system: SystemLookup,
    rules: Arc<EgressRules>,
    cache: Cache<Box<str>, CachedName>,
    pending: Arc<PendingLookups>,
    zones: ZonePermits,
    shares: Arc<Shares>,
    /// The proxy itself, which is charged for lookups made without a client.
    own: Arc<Client>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
}

/// Result of a lookup, and the time for which it is used.
#[derive(Debug, Clone)]
struct CachedName {
    found: ResolvedName,
    /// Time at which the lookup ended.
    since: Stamp,
    ttl: Duration,
}

/// Permits that a lookup holds until its thread is free.
struct LookupPermits {
    /// Permit in the zone of the name. Absent for the separate lookup of IPv4 addresses:
    /// the first lookup of the name still holds one.
    _zone: Option<OwnedSemaphorePermit>,
    _share: Share,
}

impl Resolver {
    /// Creates a resolver that asks the system, like other programs.
    pub(super) fn new(limits: ResolverLimits, parts: ResolverParts) -> Self {
        Self::with_system(limits, parts, |name, family| {
            Box::pin(ask_system(name, family))
        })
    }

    fn with_system(limits: ResolverLimits, parts: ResolverParts, ask_system: SystemLookup) -> Self {
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
            ask_system,
            metrics: Arc::clone(&rules.metrics),
            rules,
            // The default policy (TinyLFU) might not keep the newest name.
            cache: Cache::builder()
                .max_capacity(names)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            pending: Arc::new(pending),
            zones: ZonePermits::new(limits.zone_lookups.get()),
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
        let JoinedLookup {
            mut answer,
            start,
            deadline,
            claim,
        } = state.pending.join(name, client.unwrap_or(&state.own))?;
        if let Some(claim) = claim {
            // A separate task, because other requests may still wait for the name when
            // this one ends.
            state.tasks.execute(Arc::clone(state).carry_out(claim));
        }
        let no_address = Err(DialError::NoConnection(NoConnection::Dns));
        match timeout_at(deadline, answer.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone().unwrap_or(no_address),
            // The sender is gone although the lookup had started: it panicked. A claim that
            // ends before that passes on `Busy`, if it is the last one.
            Ok(Err(_)) => no_address,
            // The system has not answered in time.
            Err(_) if start.is_given() => Err(DialError::NoConnection(NoConnection::DnsTimeout)),
            // No claim for the name has got its permits.
            Err(_) => Err(DialError::Busy),
        }
    }
}

impl ResolverState {
    /// Carries out a claim: waits for its permits, looks up the name, and caches the
    /// answer. Continues after the requests have timed out: the thread stays busy until
    /// the system returns, and the answer serves the next request.
    async fn carry_out(self: Arc<Self>, mut claim: LookupClaim) {
        let Some(permits) = self.permits(&mut claim).await else {
            return;
        };
        // Another claim may have started the lookup meanwhile.
        if !claim.begin() {
            return;
        }
        let addresses = self.system_addresses(&claim, permits).await;
        let found = self.allowed_addresses(&claim.name, addresses);
        self.cache_name(&claim.name, &found);
        self.count_answer(match &found {
            Ok(_) => "found",
            Err(DialError::Denied(_)) => "denied",
            Err(DialError::NoConnection(cause)) => cause.as_str(),
            // Not reached: only a request whose lookup never started is `Busy`, and
            // `addresses` counts it.
            Err(DialError::Busy) => "busy",
        });
        claim.finish(found);
    }

    /// Waits for the permits of a claim. Returns `None` if the claim is no longer needed,
    /// if it got no permits by its deadline, or if too many claims wait for a share. The
    /// permit of the zone comes first: a name that waits for others of its zone must not
    /// keep a share from other names.
    async fn permits(&self, claim: &mut LookupClaim) -> Option<LookupPermits> {
        let (client, name, deadline) = (
            Arc::clone(&claim.client),
            claim.name.clone(),
            claim.deadline,
        );
        let permits = async {
            Some(LookupPermits {
                _zone: self.zones.acquire(&client, &name).await,
                _share: self.shares.take(&client).await.ok()?,
            })
        };
        tokio::select! {
            biased;
            // Polled first, so that a claim overtaken by another takes no permit.
            () = claim.until_unneeded() => None,
            permits = timeout_at(deadline, permits) => permits.ok().flatten(),
        }
    }

    /// Returns the addresses that the system has for the name of a claim; none if the
    /// lookup fails.
    ///
    /// Asks for both families at once. If that hangs and a share is free, also asks for
    /// IPv4 alone: the combined answer arrives only with the later of the two families.
    async fn system_addresses(
        self: &Arc<Self>,
        claim: &LookupClaim,
        permits: LookupPermits,
    ) -> Vec<IpAddr> {
        let ask = |family, permits| {
            let answer = (self.ask_system)(claim.name.clone(), family);
            self.spawn_lookup(answer, permits)
        };
        let mut both = ask(AddressFamily::Any, permits);
        if let Ok(addresses) = timeout(HANGS_AFTER, &mut both).await {
            return addresses.unwrap_or_default();
        }
        let Some(share) = self.shares.take_free(&claim.client) else {
            return both.await.unwrap_or_default();
        };
        let permits = LookupPermits {
            _zone: None,
            _share: share,
        };
        let mut v4 = ask(AddressFamily::V4, permits);
        tokio::select! {
            addresses = &mut both => return addresses.unwrap_or_default(),
            Ok(addresses) = &mut v4 => if !addresses.is_empty() { return addresses },
        }
        both.await.unwrap_or_default()
    }

    /// Spawns a task that waits for the system's answer, even if the receiver is dropped,
    /// and holds the permits meanwhile.
    fn spawn_lookup(
        self: &Arc<Self>,
        answer: SystemAnswer,
        permits: LookupPermits,
    ) -> oneshot::Receiver<Vec<IpAddr>> {
        let (sender, receiver) = oneshot::channel();
        let state = Arc::clone(self);
        self.tasks.execute(async move {
            // The system's error is dropped: its codes differ between libraries, and none
            // of them leads to an address.
            let addresses = state.count_while(answer).await.unwrap_or_default();
            drop(permits);
            // The receiver is gone if IPv4 was enough.
            let _ = sender.send(addresses);
        });
        receiver
    }

    /// Counts a lookup in the metrics as running, and after [`HANGS_AFTER`] also as
    /// hanging, until it ends.
    async fn count_while<T>(&self, lookup: impl Future<Output = T>) -> T {
        let _running = CountedGauge::inc(&self.metrics.upstream_dns_lookups);
        let mut lookup = pin!(lookup);
        if let Ok(answer) = timeout(HANGS_AFTER, &mut lookup).await {
            return answer;
        }
        let _hanging = CountedGauge::inc(&self.metrics.upstream_dns_hanging);
        lookup.await
    }

    fn count_answer(&self, result: &'static str) {
        let answers = &self.metrics.upstream_dns_answers;
        answers.get_or_create(&ResultLabel { result }).inc();
    }

    /// Returns the addresses in `found` that the rules allow, [`ADDRESSES_MAX`] at most.
    fn allowed_addresses(&self, name: &str, mut found: Vec<IpAddr>) -> ResolvedName {
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
        // `Busy` is not reached: the lookup of a cached name has run.
        let ttl = match found {
            Err(DialError::NoConnection(_) | DialError::Busy) => FAILURE_TTL.min(self.limits.ttl),
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

/// Gauge that is one higher until this guard is dropped.
struct CountedGauge<'a>(&'a Gauge);

impl<'a> CountedGauge<'a> {
    fn inc(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for CountedGauge<'_> {
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
