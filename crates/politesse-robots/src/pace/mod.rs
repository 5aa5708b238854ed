//! What a site asks of a crawler in robots.txt: `Crawl-delay`, `Request-rate`
//! and `Visit-time`.
//!
//! RFC 9309 does not define them; section 2.2.4 leaves such records to the
//! crawler. `engine/pace_records.rs` finds those that bind a
//! crawler.
//!
//! They say when a request may start, never whether. The decision does not look
//! at them.

mod request_rate;
mod visit_time;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use self::request_rate::RequestRate;
pub use self::visit_time::VisitTime;
use self::visit_time::{DAY, minute_of_day};

/// The record that asks for the longest pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseRecord {
    /// `Crawl-delay`.
    CrawlDelay,
    /// `Request-rate`.
    RequestRate,
}

/// Pace that the groups which bind a crawler ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaceRecords {
    /// The pause that a `Crawl-delay` names, as written; the longest, if several
    /// bind.
    pub crawl_delay: Option<Duration>,
    /// The rates, each for its time of the day.
    pub rates: Vec<RequestRate>,
    /// When the site may be visited: in any of them; if there are none, always.
    pub visits: Vec<VisitTime>,
}

impl PaceRecords {
    /// No pause is longer, whatever is asked for: one careless line must not
    /// hold a crawl for a year.
    pub const DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Most rates and times that are looked at; a day has hardly as many parts.
    pub const LINES_MAX: usize = 16;

    /// Reports whether nothing is asked for.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the longest pause asked for at `now`, and which record asks for
    /// it. At most [`PaceRecords::DELAY_MAX`].
    ///
    /// A rate for a time of the day counts in place of those without one, as
    /// Conner has it; of several that count, the slowest.
    #[must_use]
    pub fn delay(&self, now: Timestamp) -> Option<(Duration, PauseRecord)> {
        let delay = self.crawl_delay.unwrap_or_default();
        let rate = self
            .rate_at(minute_of_day(now))
            .map(|rate| rate.pause())
            .unwrap_or_default();
        let (pause, reason) = if delay < rate {
            (rate, PauseRecord::RequestRate)
        } else {
            (delay, PauseRecord::CrawlDelay)
        };
        let pause = pause.min(Self::DELAY_MAX);
        // `Crawl-delay: 0` asks for no pause, and is no reason for one.
        (!pause.is_zero()).then_some((pause, reason))
    }

    /// When the site may be visited next; `None` if it may be at `now`.
    #[must_use]
    pub fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        let mut soonest = None;
        for visit in &self.visits {
            let opens = visit.opens(now)?;
            soonest = soonest.into_iter().chain([opens]).min();
        }
        soonest
    }

    /// Takes in what a `Crawl-delay` line says, in seconds. What is longer than
    /// a [`Duration`] counts as the longest.
    pub(crate) fn take_delay(&mut self, seconds: f64) {
        let pause = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.crawl_delay = self.crawl_delay.max(Some(pause));
    }

    /// Takes in the value of a `Request-rate` line, if it is one.
    pub(crate) fn take_rate(&mut self, value: &str) {
        let rate = RequestRate::parse(value).filter(|rate| !self.rates.contains(rate));
        // Bounded: each request looks through all of them.
        if self.rates.len() < Self::LINES_MAX {
            self.rates.extend(rate);
        }
    }

    /// Takes in the value of a `Visit-time` line, if it is one.
    pub(crate) fn take_visit(&mut self, value: &str) {
        let visit = VisitTime::parse(value).filter(|visit| !self.visits.contains(visit));
        if self.visits.len() < Self::LINES_MAX {
            self.visits.extend(visit);
        }
    }

    /// Combines the paces of several bindings that all hold: the longest pause,
    /// and the times that suit each of them.
    pub fn all<'a>(several: impl Iterator<Item = &'a Arc<Self>>) -> Option<Arc<Self>> {
        several.cloned().reduce(|one, other| {
            if one == other {
                one
            } else {
                Arc::new(one.and(&other))
            }
        })
    }

    fn and(&self, other: &Self) -> Self {
        Self {
            crawl_delay: self.crawl_delay.max(other.crawl_delay),
            rates: self.slower_rates(other),
            visits: self.common_visits(other),
        }
    }

    /// Returns the rate that counts at `minute`.
    fn rate_at(&self, minute: u16) -> Option<RequestRate> {
        let holds = |rate: &&RequestRate| rate.during.is_some_and(|time| time.contains(minute));
        let slowest = |rates: &mut dyn Iterator<Item = &RequestRate>| {
            rates.copied().max_by_key(RequestRate::pause)
        };
        slowest(&mut self.rates.iter().filter(holds))
            .or_else(|| slowest(&mut self.rates.iter().filter(|rate| rate.during.is_none())))
    }

    fn slower_rates(&self, other: &Self) -> Vec<RequestRate> {
        let all = || self.rates.iter().chain(&other.rates);
        if all().all(|rate| rate.during.is_none()) {
            return all().copied().collect();
        }
        let parts = parts(all().filter_map(|rate| rate.during));
        let rate = |during: VisitTime| {
            let rates = [self, other].map(|asked| asked.rate_at(during.from));
            let slowest = rates.into_iter().flatten().max_by_key(RequestRate::pause);
            slowest.map(|rate| RequestRate {
                during: Some(during),
                ..rate
            })
        };
        parts.into_iter().filter_map(rate).collect()
    }

    /// Intersects the visit times. Where none suits both, those of `self` hold:
    /// visit times delay a crawler, they do not refuse it.
    fn common_visits(&self, other: &Self) -> Vec<VisitTime> {
        let (ours, theirs) = (&self.visits, &other.visits);
        let suits = |visits: &[VisitTime], minute| {
            visits.is_empty() || visits.iter().any(|visit| visit.contains(minute))
        };
        let mut parts = parts(ours.iter().chain(theirs).copied());
        parts.retain(|part| suits(ours, part.from) && suits(theirs, part.from));
        if parts.is_empty() || theirs.is_empty() {
            ours.clone()
        } else if ours.is_empty() {
            theirs.clone()
        } else {
            parts
        }
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.rates) + size_of_val(&*self.visits)
    }
}

/// Returns the day, cut wherever one of the times begins or ends.
fn parts(times: impl Iterator<Item = VisitTime>) -> Vec<VisitTime> {
    let mut cuts: Vec<u16> = times.flat_map(|time| [time.from, time.to]).collect();
    cuts.extend([0, DAY]);
    cuts.sort_unstable();
    cuts.dedup();
    let pairs = std::iter::zip(&cuts, cuts.iter().skip(1));
    pairs.map(|(&from, &to)| VisitTime { from, to }).collect()
}

#[cfg(test)]
mod tests;
