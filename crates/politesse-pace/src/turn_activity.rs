//! Activity of a turn: how long the proxy waited for its client.
//!
//! A client that reads a response slowly, or sends an upload slowly, keeps its turn
//! from other requests in the meantime. The bodies of the turn record whether they wait
//! for the client or the origin. The state of the host gives the turn up when the
//! client has used up its time and another request waits. Does not know hosts or
//! bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::schedule::{Start, Uptime};
use politesse_base::clients::client::Client;
use politesse_base::clock;

/// Bytes that offset one second of waiting. A client that reads a long response at a
/// moderate speed keeps its turn; a client that reads a byte now and then loses it.
const BYTES_PER_SECOND: u64 = 16 * 1024;

/// Shortest time until the next check of a turn that is not waiting for its client.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Activity of one turn, shared by the turn, its bodies, and the state of its host.
#[derive(Debug)]
pub struct TurnActivity {
    /// Start of the turn in the schedule of its host.
    pub(super) start: Start,
    /// Client that has the turn.
    pub(super) client: Option<Arc<Client>>,
    /// Moment from which [`Uptime`] counts.
    epoch: Instant,
    /// Microseconds of uptime at which the current wait for the client began, at least
    /// 1; 0 while there is no such wait.
    since: AtomicU64,
    /// Microseconds of earlier waits for the client, less the time that its bytes have
    /// offset.
    waited: AtomicU64,
    /// Microseconds of uptime at which the upload ended; 0 before that, and without an
    /// upload.
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

    /// Records that the turn waits for the client from now on, unless it already does.
    pub fn wait_for_client(&self) {
        // Relaxed everywhere: only one task writes, and a slightly old value makes the
        // reader give up the turn only slightly later.
        if self.since.load(Ordering::Relaxed) == 0 {
            self.since.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// Records that the turn no longer waits for the client.
    pub fn wait_for_origin(&self) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since != 0 {
            let waited = self.now().saturating_sub(since);
            self.waited.fetch_add(waited, Ordering::Relaxed);
        }
    }

    /// Records that the upload has ended: the response time counts from now.
    pub fn end_upload(&self) {
        self.uploaded.store(self.now(), Ordering::Relaxed);
    }

    /// Returns the uptime at which the upload ended; zero before that, and without an
    /// upload.
    pub(super) fn uploaded(&self) -> Uptime {
        Duration::from_micros(self.uploaded.load(Ordering::Relaxed))
    }

    /// Counts bytes that the client read or sent. They offset past waiting, never
    /// future waiting: the buffers of a connection accept megabytes at once for a
    /// client that then reads nothing more.
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

    /// Returns when to check the turn. If that time has come, the turn is given up. The
    /// waits for the client may last `max_stall` in total, less the time that its bytes
    /// have offset.
    pub(super) fn look_at(&self, max_stall: Duration, now: Uptime) -> Uptime {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed));
        let left = max_stall.saturating_sub(waited);
        match self.since.load(Ordering::Relaxed) {
            0 => now.saturating_add(left.max(LOOK_AGAIN)),
            since => Duration::from_micros(since).saturating_add(left),
        }
    }

    /// Returns how long the turn waited for the client, less the time that its bytes
    /// have offset.
    pub(super) fn stalled(&self, now: Uptime) -> Duration {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed));
        match self.since.load(Ordering::Relaxed) {
            0 => waited,
            since => waited + now.saturating_sub(Duration::from_micros(since)),
        }
    }

    /// Marks the turn as given up. The caller must hold the lock of the host.
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
