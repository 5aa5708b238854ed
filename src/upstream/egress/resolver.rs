//! Resolver: the addresses of names, from the system and from a cache.
//!
//! The system's resolver is getaddrinfo (RFC 3493, section 6.1), on a thread that
//! nothing can stop. So one lookup at a time runs for each name, and few in all;
//! and a request waits no longer than `upstream.dns_timeout`, whatever the thread
//! does.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::rt::Executor;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::rules::{DialError, EgressRules};
use crate::clock::{self, Stamp};
use crate::decision::access::NoConnection;
use crate::metrics::{Metrics, ResultLabel};
use crate::tasks::Tasks;

/// Addresses of one name that are tried.
// The time to connect is divided among them: with more, each part would be too
// short to connect in.
const ADDRESSES_MAX: usize = 16;

/// Time for which "no address" is cached: long enough for the requests of one
/// page, short enough for a resolver that had a bad moment.
const NONE_TTL: Duration = Duration::from_secs(5);

/// Limits of a resolver (`upstream.dns_*`).
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolverLimits {
    /// Time for which an answer is cached.
    pub(super) ttl: Duration,
    /// Longest wait of a request for an answer.
    pub(super) timeout: Duration,
    /// Lookups that run at a time.
    pub(super) lookups: NonZeroUsize,
    /// Names that are cached, and names that may wait.
    pub(super) names: NonZeroUsize,
}

/// Allowed addresses of a name, or the error by which there is none.
type ResolvedName = Result<Arc<[IpAddr]>, DialError>;

/// Function that asks the system; another one in tests.
type SystemLookup = fn(Box<str>) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names, and caches their addresses.
pub(super) struct Resolver(Arc<ResolverState>);

/// State that lookups share with the requests that wait for them.
struct ResolverState {
    limits: ResolverLimits,
    lookup: SystemLookup,
    rules: Arc<EgressRules>,
    cache: Cache<Box<str>, CachedName>,
    waiting: Mutex<HashMap<Box<str>, PendingLookup>>,
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
}

#[derive(Debug, Clone)]
struct CachedName {
    found: ResolvedName,
    since: Stamp,
    ttl: Duration,
}

/// Lookup that runs. Its time counts from the first request, so that a name that
/// hangs holds up no request twice.
#[derive(Debug, Clone)]
struct PendingLookup {
    deadline: Instant,
    answer: watch::Receiver<Option<ResolvedName>>,
}

impl Resolver {
    pub(super) fn new(
        limits: ResolverLimits,
        rules: Arc<EgressRules>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Self {
        let names = u64::try_from(limits.names.get()).unwrap_or(u64::MAX);
        Self(Arc::new(ResolverState {
            limits,
            lookup: |name| Box::pin(ask_system(name)),
            rules,
            // The other policy may turn the newest name away.
            cache: Cache::builder()
                .max_capacity(names)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            waiting: Mutex::default(),
            places: Arc::new(Semaphore::new(limits.lookups.get())),
            metrics,
            tasks,
        }))
    }

    /// Returns the allowed addresses of `name`, from the cache or the system.
    pub(super) async fn addresses(&self, name: &str) -> ResolvedName {
        // RFC 6761, section 6.4: such a name never has an address.
        if name == "invalid" || name.ends_with(".invalid") {
            return Err(DialError::NoConnection(NoConnection::Dns));
        }
        if let Some(found) = self.0.cached(name) {
            return found;
        }
        let PendingLookup {
            deadline,
            mut answer,
        } = self.ask(name)?;
        let none = Err(DialError::NoConnection(NoConnection::Dns));
        match timeout_at(deadline, answer.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone().unwrap_or(none),
            // The task ended without an answer: the lookup panicked.
            Ok(Err(_)) => none,
            Err(_) => Err(DialError::NoConnection(NoConnection::DnsTimeout)),
        }
    }

    /// Joins the lookup of `name`, or starts it.
    fn ask(&self, name: &str) -> Result<PendingLookup, DialError> {
        let state = &self.0;
        let mut waiting = state.waiting();
        if let Some(under_way) = waiting.get(name) {
            return Ok(under_way.clone());
        }
        // So many lookups wait that this one would not begin in time. To refuse
        // it now keeps the list of waiting names bounded.
        if state.limits.names.get() <= waiting.len() {
            return Err(DialError::NoConnection(NoConnection::DnsTimeout));
        }
        let (sender, answer) = watch::channel(None);
        let deadline = clock::instant() + state.limits.timeout;
        let own = PendingLookup { deadline, answer };
        waiting.insert(name.into(), own.clone());
        drop(waiting);
        let lookup = Arc::clone(state).look_up(name.into(), deadline, sender);
        state.tasks.execute(lookup);
        Ok(own)
    }
}

impl ResolverState {
    /// Runs one lookup, from its place in the queue to its answer. It goes on when
    /// its time is up: the thread is taken until it comes back, and its answer
    /// serves the next request.
    async fn look_up(
        self: Arc<Self>,
        name: Box<str>,
        deadline: Instant,
        answer: watch::Sender<Option<ResolvedName>>,
    ) {
        let found = match timeout_at(deadline, self.places.acquire()).await {
            Ok(Ok(_place)) => {
                self.metrics.upstream_dns_lookups.inc();
                let found = (self.lookup)(name.clone()).await;
                self.metrics.upstream_dns_lookups.dec();
                let found = self.allowed(&name, found);
                self.cache_name(&name, &found);
                found
            }
            Ok(Err(_)) | Err(_) => Err(DialError::NoConnection(NoConnection::DnsTimeout)),
        };
        let result = match &found {
            Ok(_) => "found",
            Err(DialError::Denied(_)) => "denied",
            Err(DialError::NoConnection(cause)) => cause.as_str(),
        };
        let label = ResultLabel { result };
        self.metrics
            .upstream_dns_answers
            .get_or_create(&label)
            .inc();
        self.waiting().remove(&name);
        answer.send_replace(Some(found));
    }

    fn allowed(&self, name: &str, found: io::Result<Vec<IpAddr>>) -> ResolvedName {
        // The error of the system is dropped. Its codes differ between
        // libraries, and no address follows from any of them.
        let mut found = found.unwrap_or_default();
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
            Err(DialError::NoConnection(_)) => self.limits.ttl.min(NONE_TTL),
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

    fn waiting(&self) -> MutexGuard<'_, HashMap<Box<str>, PendingLookup>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the system as other programs do: /etc/hosts and nsswitch.conf count.
async fn ask_system(name: Box<str>) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((&*name, 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
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
