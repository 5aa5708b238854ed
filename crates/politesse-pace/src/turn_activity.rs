//! Activity of a turn: for how long its client was waited for.
//!
//! A client that takes a response slowly, or sends an upload slowly, keeps its
//! turn from others for as long as that lasts. The bodies that are passed on
//! state what they wait for; the state of the host gives the turn up when the
//! client has used up its time and another request waits. Does not know hosts,
//! nor bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::schedule::{Start, Uptime};
use politesse_base::clients::client::Client;
use politesse_base::clock;

/// Bytes that make up for a second of waiting, so that a turn is kept by a client
/// that takes a long response at a moderate speed, and not by one that takes a
/// byte now and then.
const BYTES_PER_SECOND: u64 = 16 * 1024;

/// Shortest time until a turn is looked at again whose client is not waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Activity of one turn, shared by the turn, the bodies that are passed on in it,
/// and the state of its host.
#[derive(Debug)]
pub struct TurnActivity {
    /// Start of the turn in the schedule of its host.
    pub(super) start: Start,
    /// Client that has the turn.
    pub(super) client: Option<Arc<Client>>,
    /// Moment from which [`Uptime`] counts.
    epoch: Instant,
    /// Microseconds of uptime since when the client is waited for, at least 1;
    /// 0 while it is not.
    since: AtomicU64,
    /// Microseconds for which the client was waited for before that, without those
    /// that it made up for.
    waited: AtomicU64,
    /// Microseconds of uptime when the upload had ended; 0 before, and without one.
    uploaded: AtomicU64,
    /// Whether the turn was given up. Written under the lock of the host.
    is_given_up: AtomicBool,
}

impl TurnActivity {
    pub(super) fn new(start: Start, client: Option<Arc<Client>>, epoch: Instant) -> Self {
        Self {
            start,
            client,
            epoch,
            since: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            uploaded: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// States that the client is waited for from now on, unless that was so
    /// before.
    pub fn wait_for_client(&self) {
        // Relaxed everywhere: one task writes, and who reads a value that is a
        // moment old gives the turn up a moment later.
        if self.since.load(Ordering::Relaxed) == 0 {
            self.since.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// States that the client is not waited for any more.
    pub fn wait_for_origin(&self) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since != 0 {
            let waited = self.now().saturating_sub(since);
            self.waited.fetch_add(waited, Ordering::Relaxed);
        }
    }

    /// States that the upload has ended: the response takes its time from now on.
    pub fn end_upload(&self) {
        self.uploaded.store(self.now(), Ordering::Relaxed);
    }

    /// Returns the uptime at which the upload had ended; zero before, and without one.
    pub(super) fn uploaded(&self) -> Uptime {
        Duration::from_micros(self.uploaded.load(Ordering::Relaxed))
    }

    /// Counts bytes that the client took or sent: they make up for time for which
    /// it was waited for, and for none to come. The buffers of a connection take
    /// megabytes at once for a client that then takes nothing more.
    pub fn add_client_bytes(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let earned = bytes.saturating_mul(1_000_000) / BYTES_PER_SECOND;
        let waited = self.waited.load(Ordering::Relaxed);
        self.waited
            .store(waited.saturating_sub(earned), Ordering::Relaxed);
        let since = self.since.load(Ordering::Relaxed);
        let left = earned.saturating_sub(waited);
        if since != 0 && left != 0 {
            let since = since.saturating_add(left).min(self.now().max(1));
            self.since.store(since, Ordering::Relaxed);
        }
    }

    /// Returns when to look at the turn: it is given up if that is now or over.
    /// A client may be waited for in all for `max_stall`, without the time that it
    /// made up for.
    pub(super) fn look_at(&self, max_stall: Duration, now: Uptime) -> Uptime {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed));
        let left = max_stall.saturating_sub(waited);
        match self.since.load(Ordering::Relaxed) {
            0 => now.saturating_add(left.max(LOOK_AGAIN)),
            since => Duration::from_micros(since).saturating_add(left),
        }
    }

    /// Returns for how long the client was waited for, without what it made up for.
    pub(super) fn stalled(&self, now: Uptime) -> Duration {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed));
        match self.since.load(Ordering::Relaxed) {
            0 => waited,
            since => waited + now.saturating_sub(Duration::from_micros(since)),
        }
    }

    /// Marks the turn as given up. To be called under the lock of its host.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Returns whether the turn was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        let uptime = clock::instant().saturating_duration_since(self.epoch);
        u64::try_from(uptime.as_micros()).unwrap_or(u64::MAX)
    }
}
