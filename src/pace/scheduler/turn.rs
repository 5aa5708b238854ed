//! A turn that was granted: one start at one host, and its place among those
//! under way there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use http::Response;

use super::desk::SchedulerCore;
use super::gate::HostQueue;
use super::pace::Started;
use crate::clock;
use crate::pace::back_off::{BackOffUpdate, ThrottleAnswer};
use crate::pace::schedule::Outcome;
use crate::upstream::retry_after::retry_after;
use politesse_robots::origin::Host;

/// Nothing was sent yet.
const UNUSED: u16 = 0;
/// Something was, and no status came.
const SENT: u16 = 1;

/// Leave to send one request now. Its end is its drop, from which the host's
/// delay counts; dropped before anything was sent it is given back.
#[derive(Debug)]
pub struct Turn {
    desk: Arc<SchedulerCore>,
    gate: Arc<HostQueue>,
    started: Option<Started>,
    waited: Duration,
    number: Option<u64>,
    status: AtomicU16,
}

impl Turn {
    pub(super) fn new(desk: Arc<SchedulerCore>, gate: Arc<HostQueue>, started: Started) -> Self {
        desk.metrics.pace_in_flight.inc();
        Self {
            desk,
            gate,
            started: Some(started),
            waited: Duration::ZERO,
            number: None,
            status: AtomicU16::new(UNUSED),
        }
    }

    /// The same, after a wait in this place.
    pub(super) fn after(mut self, waited: Duration, number: Option<u64>) -> Self {
        let waits = &self.desk.metrics.pace_wait_seconds;
        waits.observe(waited.as_secs_f64());
        (self.waited, self.number) = (waited, number);
        self
    }

    /// Its place in the order of arrival, if it waited in line: whoever gives
    /// it back, and asks again, has it again.
    pub fn arrival(&self) -> Option<u64> {
        self.number
    }

    /// How long it was waited for.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How far the next start at the host lies off, at least.
    pub fn pause(&self) -> Duration {
        let started = self.started.as_ref();
        started.map_or(Duration::ZERO, |started| started.pause)
    }

    /// The request goes out: from here on the host may have seen something.
    pub fn mark_sent(&self) {
        // A status is never taken back.
        let (sent, unused) = (SENT, UNUSED);
        let order = Ordering::Relaxed;
        let _ = self.status.compare_exchange(unused, sent, order, order);
    }

    /// The same as [`Turn::record_status`], of a response of `host`; who keeps the
    /// record is told.
    pub fn record_response<B>(&self, host: &Host, response: &Response<B>) {
        let status = response.status().as_u16();
        let pause = retry_after(response.headers(), clock::now());
        if self.record_status(status, pause) == BackOffUpdate::None {
            return;
        }
        if let Some(left_alone) = self.gate.left_alone(self.desk.moment()) {
            self.desk.tell_entered(host, left_alone, status);
        }
    }

    /// The head of the response came, with this status and the time that its
    /// `Retry-After` names (RFC 9110, section 10.2.3). After a 429 or 503 the
    /// host is left alone for a while; the answer says whether that began, or
    /// grew longer.
    pub fn record_status(&self, status: u16, retry_after: Option<Duration>) -> BackOffUpdate {
        self.status.store(status.max(SENT), Ordering::Relaxed);
        let mut answered = ThrottleAnswer {
            status,
            retry_after,
            chance: 0.0,
        };
        if !answered.asks_for_less() {
            return BackOffUpdate::None;
        }
        answered.chance = chance();
        let in_force = self.desk.in_force.load();
        let change = self.gate.observe(answered, &self.desk.now(&in_force));
        if change == BackOffUpdate::Entered {
            self.desk.metrics.pace_backoffs.inc();
        }
        change
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(mut started) = self.started.take() else {
            return;
        };
        self.desk.metrics.pace_in_flight.dec();
        drop(started.held.take());
        let outcome = match self.status.load(Ordering::Relaxed) {
            UNUSED => return self.gate.give_back(&started),
            SENT | 400.. => Outcome::Failed,
            _ => Outcome::Served,
        };
        let now = self.desk.moment();
        let took = now.saturating_sub(started.at);
        self.gate.end(started.start, now, (took, outcome));
    }
}

/// A number from 0 to 1 that nobody can tell before.
fn chance() -> f64 {
    let bits = RandomState::new().hash_one(()) >> 32;
    u32::try_from(bits).map_or(0.0, |bits| f64::from(bits) / f64::from(u32::MAX))
}
