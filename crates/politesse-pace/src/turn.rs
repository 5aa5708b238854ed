//! Granted turn: permission to send one request to one host now.

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
/// Status of a turn whose request was sent and is not answered yet.
const SENT: u16 = 1;

/// Permission to send one request now.
///
/// Dropping the turn ends the request, and the host's delay counts from then. If
/// nothing was sent, dropping it gives the turn back.
#[derive(Debug)]
pub struct Turn {
    /// Queue of the host, in which the turn is ended or given back.
    queue: Arc<HostQueue>,
    /// Start that was granted. Boxed, because a turn is moved from future to future.
    grant: Box<Grant>,
    /// [`UNUSED`], [`SENT`], or the status of the response.
    status: AtomicU16,
    /// Microseconds of uptime at which a new connection for the request was ready; 0
    /// without one. The response time excludes the time for connecting.
    connected: AtomicU64,
    /// Activity of the client, created on first use.
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
        // Reported once, even if the turn is given back.
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

    /// Returns the request's arrival number, if it waited. A request that gives its
    /// turn back and asks again with this number regains its place.
    pub fn arrival(&self) -> Option<u64> {
        self.grant.arrival
    }

    /// Returns how long the request waited.
    pub fn waited(&self) -> Duration {
        self.grant.waited
    }

    /// Returns the minimum time until the next start at the host.
    pub fn pause(&self) -> Duration {
        self.grant.pause
    }

    /// Returns the activity of the turn, on which bodies record that they wait for the
    /// client. The client loses the turn if it stalls for too long (`pace.max_stall`)
    /// while another request waits for the host.
    pub fn activity(&self) -> &Arc<TurnActivity> {
        self.activity.get_or_init(|| {
            let epoch = self.queue.context.epoch;
            let client = self.grant.client.clone();
            let activity = Arc::new(TurnActivity::new(self.grant.start, client, epoch));
            self.queue.with_host(|host| host.watch(&activity));
            activity
        })
    }

    /// Records that the proxy waits for the origin, not for the client.
    pub fn wait_for_origin(&self) {
        if let Some(activity) = self.activity.get() {
            activity.wait_for_origin();
        }
    }

    /// Returns whether the request may still be sent. Called just before the request is
    /// handed to a connection.
    ///
    /// A fleet node that was suspended since the turn was granted may have lost the
    /// lease of the host. A node that had no store when the turn was granted may need a
    /// lease by now.
    pub fn holds(&self) -> bool {
        // Outside a fleet, no clock is read.
        if self.queue.context.fleet.get().is_none() {
            return true;
        }
        let now = self.queue.context.now();
        self.queue.with_host(|host| host.holds(&self.grant, &now))
    }

    /// Marks the request as sent: from now on the host may have received part of it.
    pub fn mark_sent(&self) {
        // A status that is already set stays.
        let order = Ordering::Relaxed;
        let _ = self.status.compare_exchange(UNUSED, SENT, order, order);
    }

    /// Records that a connection was made for the request: the host could not answer
    /// earlier.
    pub fn note_connected(&self) {
        let uptime_us = self.queue.context.uptime().as_micros();
        let connected = u64::try_from(uptime_us).unwrap_or(u64::MAX);
        self.connected.store(connected, Ordering::Relaxed);
    }

    /// Records that the page of `embedding` was passed to its crawler. For a while, its
    /// requisites need no turns of their own (`pace.requisites`).
    pub fn give_page(&self, owner: &TurnOwner, embedding: &Embedding) {
        let now = self.queue.context.now();
        self.queue
            .with_host(|host| host.give_page(owner, embedding, &now));
    }

    /// Records a response of `host`, as [`Turn::record_status`] does, and reports a
    /// back-off to the listener.
    ///
    /// Returns how long the host is left alone, if the response is a 429 or 503 with a
    /// `Retry-After` that is not zero.
    pub fn record_response<B>(&self, host: &Host, response: &Response<B>) -> Option<Duration> {
        let status = response.status().as_u16();
        // Only such a status starts a back-off; most responses need no look at a clock.
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
        // Without a time from the host there is no retry: another 429 would double our
        // own pause, for all waiting requests.
        retry_after.filter(|pause| !pause.is_zero())?;
        let now = self.queue.context.uptime();
        back_off.until(now).map(|end| end.saturating_sub(now))
    }

    /// Records the status of a response and its `Retry-After` (RFC 9110, section
    /// 10.2.3). After a 429 or 503 the host is left alone for a while. Returns what
    /// changed.
    pub fn record_status(&self, status: u16, retry_after: Option<Duration>) -> BackOffUpdate {
        // A 0 would mark the turn as unused.
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
        // Before the host's driver is woken, which would otherwise find the ceiling
        // full.
        drop(self.grant.ceilings.take());
        let outcome = match self.status.load(Ordering::Relaxed) {
            // A turn with an activity passed on a body, so it was used.
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
    // Each `RandomState` has its own keys.
    let bits = RandomState::new().hash_one(()) >> 32;
    u32::try_from(bits).map_or(0.0, |bits| f64::from(bits) / f64::from(u32::MAX))
}
