//! Names to addresses, by the system's resolver.
//!
//! It is getaddrinfo (RFC 3493, section 6.1), on a thread that nothing can
//! stop. So a name has one lookup at a time, whoever asks for it; few names
//! have one at a time in all; and whoever asks waits no longer than
//! `upstream.dns_timeout`, whatever the thread does.

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

use super::NotAdmitted;
use super::ranges::Ranges;
use crate::clock::{self, Stamp};
use crate::decision::access::NoConnection;
use crate::metrics::{Metrics, ResultLabel};
use crate::tasks::Tasks;

/// More addresses than this of one name are not tried.
const ADDRESSES_MAX: usize = 16;

/// How long "there is none" holds: long enough for one page's worth of
/// requests, short enough for a resolver that had a bad moment.
const NONE_TTL: Duration = Duration::from_secs(5);

/// The bounds of a resolver (`upstream.dns_*`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long an answer holds.
    pub(super) ttl: Duration,
    /// How long whoever asks waits for one.
    pub(super) timeout: Duration,
    /// How many lookups are under way at a time.
    pub(super) lookups: NonZeroUsize,
    /// How many names are kept, and how many may wait.
    pub(super) names: NonZeroUsize,
}

/// The allowed addresses of a name, or why there is none.
type Found = Result<Arc<[IpAddr]>, NotAdmitted>;

/// What asks the system; another one in tests.
type Lookup = fn(Box<str>) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names, and keeps what it found.
pub(super) struct Resolver(Arc<Desk>);

/// What lookups and those who wait for them share.
struct Desk {
    limits: Limits,
    lookup: Lookup,
    ranges: Arc<Ranges>,
    kept: Cache<Box<str>, Kept>,
    waiting: Mutex<HashMap<Box<str>, Waiting>>,
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
}

#[derive(Debug, Clone)]
struct Kept {
    found: Found,
    since: Stamp,
    ttl: Duration,
}

/// A lookup under way. Its time runs from the first who asked, so that a name
/// that hangs holds up nobody twice.
#[derive(Debug, Clone)]
struct Waiting {
    deadline: Instant,
    answer: watch::Receiver<Option<Found>>,
}

impl Resolver {
    pub(super) fn new(
        limits: Limits,
        ranges: Arc<Ranges>,
        (metrics, tasks): (Arc<Metrics>, Tasks),
    ) -> Self {
        let names = u64::try_from(limits.names.get()).unwrap_or(u64::MAX);
        Self(Arc::new(Desk {
            limits,
            lookup: |name| Box::pin(ask_system(name)),
            ranges,
            // The other policy may turn the newest name away.
            kept: Cache::builder()
                .max_capacity(names)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            waiting: Mutex::default(),
            places: Arc::new(Semaphore::new(limits.lookups.get())),
            metrics,
            tasks,
        }))
    }

    /// The allowed addresses of `name`, as kept or from the system.
    pub(super) async fn addresses(&self, name: &str) -> Found {
        // RFC 6761, section 6.4: such a name never has an address.
        if name == "invalid" || name.ends_with(".invalid") {
            return Err(NotAdmitted::NoConnection(NoConnection::Dns));
        }
        if let Some(found) = self.0.kept(name) {
            return found;
        }
        let Waiting {
            deadline,
            mut answer,
        } = self.ask(name)?;
        let answered = timeout_at(deadline, answer.wait_for(Option::is_some)).await;
        let answered = answered.map_err(|_| NotAdmitted::NoConnection(NoConnection::DnsTimeout))?;
        let none = Err(NotAdmitted::NoConnection(NoConnection::Dns));
        answered
            .ok()
            .and_then(|found| found.clone())
            .unwrap_or(none)
    }

    /// Joins the lookup of `name`, or starts it.
    fn ask(&self, name: &str) -> Result<Waiting, NotAdmitted> {
        let desk = &self.0;
        let mut waiting = desk.waiting();
        if let Some(under_way) = waiting.get(name) {
            return Ok(under_way.clone());
        }
        if desk.limits.names.get() <= waiting.len() {
            return Err(NotAdmitted::NoConnection(NoConnection::DnsTimeout));
        }
        let (sender, answer) = watch::channel(None);
        let deadline = clock::instant() + desk.limits.timeout;
        let own = Waiting { deadline, answer };
        waiting.insert(name.into(), own.clone());
        drop(waiting);
        let lookup = Arc::clone(desk).look_up(name.into(), (deadline, sender));
        desk.tasks.execute(lookup);
        Ok(own)
    }
}

impl Desk {
    /// One lookup from its place in the queue to its answer. It goes on when
    /// its time is up: the thread is taken until it comes back, and what it
    /// brings serves the next who asks.
    async fn look_up(
        self: Arc<Self>,
        name: Box<str>,
        (deadline, answer): (Instant, watch::Sender<Option<Found>>),
    ) {
        let found = match timeout_at(deadline, self.places.acquire()).await {
            Ok(Ok(_place)) => {
                self.metrics.upstream_dns_lookups.inc();
                let found = (self.lookup)(name.clone()).await;
                self.metrics.upstream_dns_lookups.dec();
                let found = self.allowed(&name, found);
                self.keep(&name, &found);
                found
            }
            Ok(Err(_)) | Err(_) => Err(NotAdmitted::NoConnection(NoConnection::DnsTimeout)),
        };
        let result = match &found {
            Ok(_) => "found",
            Err(NotAdmitted::Denied(_)) => "denied",
            Err(NotAdmitted::NoConnection(cause)) => cause.as_str(),
        };
        let label = ResultLabel { result };
        self.metrics
            .upstream_dns_answers
            .get_or_create(&label)
            .inc();
        self.waiting().remove(&name);
        answer.send_replace(Some(found));
    }

    fn allowed(&self, name: &str, found: io::Result<Vec<IpAddr>>) -> Found {
        let mut found = found.unwrap_or_default();
        found.dedup();
        if found.is_empty() {
            return Err(NotAdmitted::NoConnection(NoConnection::Dns));
        }
        let mut allowed = self.ranges.allowed_of(name, &found)?;
        allowed.truncate(ADDRESSES_MAX);
        Ok(allowed.into())
    }

    fn kept(&self, name: &str) -> Option<Found> {
        let kept = self.kept.get(name)?;
        (kept.since.age() < kept.ttl).then_some(kept.found)
    }

    fn keep(&self, name: &str, found: &Found) {
        let ttl = match found {
            Err(NotAdmitted::NoConnection(_)) => self.limits.ttl.min(NONE_TTL),
            Ok(_) | Err(NotAdmitted::Denied(_)) => self.limits.ttl,
        };
        let kept = Kept {
            found: found.clone(),
            since: Stamp::now(),
            ttl,
        };
        self.kept.insert(name.into(), kept);
        let names = i64::try_from(self.kept.entry_count()).unwrap_or(i64::MAX);
        self.metrics.upstream_dns_cache.set(names);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Box<str>, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks as every other program here does: /etc/hosts and nsswitch.conf count.
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
