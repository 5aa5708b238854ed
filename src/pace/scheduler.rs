//! When a request may go to its host: one pace for a host name, on all ports
//! and by both schemes.
//!
//! What the site asks for ([`PaceRecords`]), what the operator lays down
//! (`terms`), back-off and what is under way meet in a gate per host. Whether a
//! request may go at all is not known here, nor is anything sent.
//!
//! Invariant 8: who waits is bounded by number (`pace.queue`) and by time, and
//! so is the number of hosts (`pace.max_hosts`).

mod desk;

mod waiting;

mod robots;

mod later;

mod told;

mod turn;

mod hosts;

mod gate;

mod waiter;

mod pace;

mod line;

mod ceilings;

mod places;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::ceilings::{Ceilings, Ticks};
use self::desk::{ActivePace, Postponed, SchedulerCore};
use self::places::Place;
pub use self::told::BackOffListener;
pub use self::turn::Turn;
use crate::clock;
use crate::decision::reason::Reason;
use crate::metrics::Metrics;
use crate::pace::host_pace::HostPace;
use crate::pace::options::Options;
use crate::pace::schedule::Moment;
use crate::tasks::Tasks;
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// What a request asks of the scheduler.
#[derive(Debug, Clone)]
pub struct TurnRequest<'a> {
    /// The host it goes to.
    pub host: &'a Host,
    /// Who asks: a product token, else a client's address.
    pub crawler: &'a str,
    /// Where the host is, if that is known; for `pace.address`.
    pub address: Option<IpAddr>,
    /// What the site asks of this crawler.
    pub pace_records: Option<Arc<PaceRecords>>,
    /// How long it may wait.
    pub max_wait: Duration,
    /// When its origin's robots.txt came. If that was before this process
    /// began, a page may have been asked for until then.
    pub robots_fetched_at: Option<Timestamp>,
    /// Whether its robots.txt had to be asked for first.
    pub robots_fetch: RobotsFetch,
    /// The place in the order of arrival that it was given before
    /// ([`Turn::arrival`]).
    pub arrival: Option<u64>,
}

/// Whether a robots.txt had to be asked for before a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RobotsFetch {
    /// What is held did.
    #[default]
    No,
    /// Since the request came. It waits for its turn behind that, unless that
    /// takes longer than it may: or its crawler, which comes again, would find
    /// that the robots.txt has to be asked for again.
    Once,
    /// Since its turn came: it does not hold for as long as the pause, so that
    /// the page follows at once.
    Again,
}

/// A request that is not to be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Later {
    /// What it would have waited for.
    pub reason: Reason,
    /// When it is worth request again.
    pub retry_after: Duration,
    /// The same for people.
    pub detail: String,
}

/// The place of a request that waits for its robots.txt.
#[derive(Debug)]
pub struct Seat(#[expect(dead_code, reason = "it counts until it is dropped")] Place);

/// Grants turns.
#[derive(Debug)]
pub struct Scheduler {
    desk: Arc<SchedulerCore>,
}

impl Scheduler {
    /// A scheduler that knows no host yet.
    pub fn new(options: Options, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        let desk = Arc::new(SchedulerCore::new(options, metrics, tasks));
        Self { desk }
    }

    /// Lets other options hold from now on, for those who wait too. What was
    /// started stays as it is.
    pub fn set_options(&self, options: Options) {
        let before = self.desk.in_force.load_full();
        let same = before.ceilings.are_of(&options);
        let ceilings = if same {
            Arc::clone(&before.ceilings)
        } else {
            let ticks = Ticks::since(self.desk.epoch);
            Ceilings::new(&options, &ticks, Some(&before.ceilings))
        };
        let in_force = Arc::new(ActivePace {
            options,
            ceilings,
            generation: before.generation.wrapping_add(1),
        });
        self.desk.in_force.store(Arc::clone(&in_force));
        let now = self.desk.now(&in_force);
        let new = (!same).then_some(&*in_force.ceilings);
        self.desk
            .hosts
            .each(|host, gate| gate.set_options(host, &now, new));
    }

    /// Keeps nobody waiting from now on, since the process ends: who cannot
    /// start at once is put off ([`Reason::Overload`]).
    pub fn close(&self) {
        self.desk.close();
    }

    /// A turn, once it comes.
    ///
    /// # Errors
    ///
    /// [`Later`]: at once where the wait would be longer than the longest, and
    /// when that is over at the latest.
    pub async fn turn(&self, request: TurnRequest<'_>) -> Result<Turn, Later> {
        let desk = &self.desk;
        let (waiting, begun) = match desk.ask(&request) {
            Ok(turn) => return Ok(turn),
            Err(Postponed::Later(later)) => return Err(later),
            Err(Postponed::Waiting(waiting, begun)) => (waiting, begun),
        };
        let (gate, number) = (Arc::clone(&waiting.gate), waiting.number);
        let deadline = begun.saturating_add(request.max_wait);
        let answer = waiting.turn(desk, deadline).await;
        let waited = desk.moment().saturating_sub(begun);
        match answer {
            Ok(started) => {
                let turn = desk.granted(request.host, gate, started);
                Ok(turn.after(waited, Some(number)))
            }
            Err(in_vain) => Err(desk.later_in_vain(&request, &gate, in_vain)),
        }
    }

    /// A turn for a robots.txt, before all pages that wait.
    ///
    /// Nothing if that would take longer than anyone may wait. The first page
    /// behind it need not wait.
    pub async fn robots_turn(&self, host: &Host) -> Option<Turn> {
        let longest = self.desk.in_force.load().options.max_wait;
        self.desk.robots_turn(host, longest).await
    }

    /// Lets what a robots.txt asks for bind its host from now on, as the request
    /// for a page does.
    pub fn record_crawl_delay(&self, host: &Host, asked: &Arc<PaceRecords>) {
        self.desk.record_crawl_delay(host, asked);
    }

    /// About how long that would be waited for now.
    pub fn robots_wait(&self, host: &Host) -> Duration {
        let (_, wait) = self.desk.robots_delayed(host);
        wait
    }

    /// What keeps a robots.txt of `host` from being asked for now, if anything
    /// does.
    pub fn robots_later(&self, host: &Host) -> Option<Later> {
        let is_kept = self.desk.keeps_robots(host);
        is_kept.then(|| {
            let (reason, wait) = self.desk.robots_delayed(host);
            self.desk.later_of(host, reason, wait)
        })
    }

    /// The same for one that would have had to wait so much longer, or to whom no
    /// [`Scheduler::seat`] is left.
    pub fn robots_later_by(&self, host: &Host, (wait, crawler): (Duration, &str)) -> Later {
        let (reason, _) = self.desk.robots_delayed(host);
        let is_full = self.desk.seat(crawler).is_none();
        let reason = if is_full { Reason::QueueFull } else { reason };
        self.desk.later_of(host, reason, wait)
    }

    /// Every host of which something is known, as it is now.
    pub fn snapshot(&self) -> Vec<HostPace> {
        let in_force = self.desk.in_force.load();
        let mut now = self.desk.now(&in_force);
        let wall = clock::now();
        now.wall = Some(wall);
        let at = |moment: Moment| wall.checked_add(moment.saturating_sub(now.moment)).ok();
        let mut all = Vec::new();
        self.desk.hosts.each(|host, gate| {
            let seen = gate.seen(&now);
            all.push(HostPace {
                host: host.to_string(),
                in_flight: seen.in_flight,
                queued: u32::try_from(seen.queued).unwrap_or(u32::MAX),
                next_start: seen.next.and_then(|next| next.until).and_then(at),
                cause: seen.next.map(|next| next.reason.as_str().into()),
                backoff_until: seen.back_off.and_then(at),
            });
        });
        all
    }

    /// A place for a request that waits for its robots.txt, counted with those
    /// that wait in line; nothing if too many do (`pace.queue`).
    pub fn seat(&self, crawler: &str) -> Option<Seat> {
        self.desk.seat(crawler).map(Seat)
    }

    /// Forgets all hosts of which nothing has to be remembered, as is done each
    /// minute in which a turn is asked for.
    pub async fn sweep(&self) {
        self.desk.sweep().await;
    }
}
