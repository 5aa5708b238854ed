//! A turn that was granted: leave to send one request to one host now.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Response;

use super::back_off::{BackOffUpdate, ThrottleResponse, asks_for_less};
use super::context::BackOffReport;
use super::host::EndedTurn;
use super::queue::HostQueue;
use super::request::{Embedding, Grant, TurnOwner};
use super::schedule::{Kind, Outcome};
use super::turn_activity::TurnActivity;
use politesse_base::clock;
use politesse_net::retry_after::retry_after;
use politesse_robots::origin::Host;

/// Status of a turn before anything was sent.
const UNUSED: u16 = 0;
/// Status of a turn whose request was sent, and not answered.
const SENT: u16 = 1;

/// Leave to send one request now.
///
/// The request ends when this is dropped, and the host's delay counts from
/// there; dropped before anything was sent, the turn is given back.
#[derive(Debug)]
pub struct Turn {
    queue: Arc<HostQueue>,
    /// Boxed, since a turn is handed on from future to future.
    grant: Box<Grant>,
    /// [`UNUSED`], [`SENT`], or the status of the response.
    status: AtomicU16,
    /// Microseconds of uptime when a new connection was there for the request; 0
    /// without one. The time of a response does not hold that of connecting.
    connected: AtomicU64,
    /// Activity of the client, made when it is first waited for.
    activity: OnceLock<Arc<TurnActivity>>,
}

impl Turn {
    /// Makes the turn of a grant.
    pub(super) fn new(queue: Arc<HostQueue>, host: &Host, mut grant: Grant) -> Self {
        let metrics = &queue.context.metrics;
        metrics.pace_in_flight.inc();
        metrics.pace_overruns.inc_by(grant.overruns.into());
        metrics.pace_stalls.inc_by(grant.stalls.into());
        if grant.start.kind == Kind::Requisite {
            metrics.pace_requisites.inc();
        }
        if grant.arrival.is_some() {
            let waited = grant.waited.as_secs_f64();
            metrics.pace_wait_seconds.observe(waited);
        }
        // Reported once, also if the turn is given back.
        if let Some(back_off) = grant.ended_back_off.take() {
            queue.context.report(host, &back_off, BackOffReport::Left);
        }
        Self {
            queue,
            grant: Box::new(grant),
            status: AtomicU16::new(UNUSED),
            connected: AtomicU64::new(0),
            activity: OnceLock::new(),
        }
    }

    /// Returns the request's number of arrival, if it waited. A request that
    /// gives its turn back and asks again with it has its place again.
    pub fn arrival(&self) -> Option<u64> {
        self.grant.arrival
    }

    /// Returns how long the request waited.
    pub fn waited(&self) -> Duration {
        self.grant.waited
    }

    /// Returns the least time until the next start at the host.
    pub fn pause(&self) -> Duration {
        self.grant.pause
    }

    /// Returns the activity of the turn, by which bodies state that they wait for
    /// the client: it loses the turn if that takes too long (`pace.max_stall`)
    /// and another request waits for the host.
    pub fn activity(&self) -> &Arc<TurnActivity> {
        self.activity.get_or_init(|| {
            let epoch = self.queue.context.epoch;
            let client = self.grant.client.clone();
            let activity = Arc::new(TurnActivity::new(self.grant.start, client, epoch));
            self.queue.with_host(|host| host.watch(&activity));
            activity
        })
    }

    /// States that the origin is waited for, not the client.
    pub fn wait_for_origin(&self) {
        if let Some(activity) = self.activity.get() {
            activity.wait_for_origin();
        }
    }

    /// Returns whether the request may still be sent. A node of a fleet that stood still
    /// since the turn was granted may have lost the lease of the host, and one that was
    /// alone then may need a lease now. So this is asked just before the request is
    /// handed to a connection.
    pub fn holds(&self) -> bool {
        // Without a call of any clock where there is no fleet.
        if self.queue.context.fleet.get().is_none() {
            return true;
        }
        let now = self.queue.context.now();
        self.queue.with_host(|host| host.holds(&self.grant, &now))
    }

    /// Marks the request as sent: from here on the host may have seen something.
    pub fn mark_sent(&self) {
        // A status is never taken back.
        let order = Ordering::Relaxed;
        let _ = self.status.compare_exchange(UNUSED, SENT, order, order);
    }

    /// Notes that a connection was made for the request: before now the host could not
    /// answer.
    pub fn note_connected(&self) {
        let uptime_us = self.queue.context.uptime().as_micros();
        let connected = u64::try_from(uptime_us).unwrap_or(u64::MAX);
        self.connected.store(connected, Ordering::Relaxed);
    }

    /// Records that the page of `embedding` was given to its crawler: requisites of it
    /// need no turns of their own for a while (`pace.requisites`).
    pub fn give_page(&self, owner: &TurnOwner, embedding: &Embedding) {
        let now = self.queue.context.now();
        self.queue
            .with_host(|host| host.give_page(owner, embedding, &now));
    }

    /// Records a response of `host`, as [`Turn::record_status`] does, and
    /// reports a back-off to the listener.
    ///
    /// Returns how long the host is left alone, if the response asks for less and says for
    /// how long.
    pub fn record_response<B>(&self, host: &Host, response: &Response<B>) -> Option<Duration> {
        let status = response.status().as_u16();
        // Only such a status starts a pause; most responses need no look at a clock.
        let retry_after = asks_for_less(status)
            .then(|| retry_after(response.headers(), clock::now()))
            .flatten();
        let update = self.record_status(status, retry_after);
        if !asks_for_less(status) {
            return None;
        }
        let back_off = self.queue.with_host(|host| host.back_off.clone());
        if update != BackOffUpdate::None {
            let report = BackOffReport::Entered(status);
            self.queue.context.report(host, &back_off, report);
        }
        // To try again after a pause of ours doubles the next one, for all requests that wait.
        retry_after.filter(|pause| !pause.is_zero())?;
        let now = self.queue.context.uptime();
        back_off.until(now).map(|end| end.saturating_sub(now))
    }

    /// Records the status of a response and its `Retry-After` (RFC 9110, section
    /// 10.2.3). After a 429 or 503 the host is left alone for a while. Returns what
    /// changed.
    pub fn record_status(&self, status: u16, retry_after: Option<Duration>) -> BackOffUpdate {
        // A 0 would mean that the turn was not used.
        self.status.store(status.max(SENT), Ordering::Relaxed);
        if !asks_for_less(status) {
            return BackOffUpdate::None;
        }
        let update = self.queue.record_throttle(&ThrottleResponse {
            retry_after,
            chance: chance(),
        });
        if update == BackOffUpdate::Entered {
            self.queue.context.metrics.pace_backoffs.inc();
        }
        update
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.context.metrics.pace_in_flight.dec();
        // Before the host's driver is woken, or it would find the ceiling full.
        drop(self.grant.ceilings.take());
        let outcome = match self.status.load(Ordering::Relaxed) {
            // A body is passed on in turns alone that were used.
            UNUSED if self.activity.get().is_none() => {
                return self.queue.update(|host| host.give_back(&self.grant));
            }
            UNUSED | SENT | 400.. => Outcome::Failed,
            _ => Outcome::Served,
        };
        let now = self.queue.context.uptime();
        let activity = self.activity.get();
        let uploaded = activity.map_or(Duration::ZERO, |activity| activity.uploaded());
        let connected = Duration::from_micros(self.connected.load(Ordering::Relaxed));
        let asked_at = self.grant.at.max(connected).max(uploaded);
        let ended = EndedTurn {
            grant: &self.grant,
            outcome,
            response_time: now.saturating_sub(asked_at),
            activity,
        };
        self.queue.update(|host| host.end(&ended, now));
    }
}

/// Returns an unpredictable number from 0 to 1.
fn chance() -> f64 {
    // Each `RandomState` has keys of its own.
    let bits = RandomState::new().hash_one(()) >> 32;
    u32::try_from(bits).map_or(0.0, |bits| f64::from(bits) / f64::from(u32::MAX))
}
