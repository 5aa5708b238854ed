//! Pace records of a robots.txt: `Crawl-delay`, `Request-rate` and `Visit-time`.
//!
//! RFC 9309 does not define them; section 2.2.4 leaves such records to the crawler.
//! `engine/pace_records.rs` finds the records that bind a crawler.
//!
//! Pace records say when a request may start, never whether: verdicts do not depend on
//! them. Does not know requests.

mod request_rate;
mod visit_time;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use self::request_rate::RequestRate;
pub use self::visit_time::VisitTime;
use self::visit_time::{DAY, minute_of_day};

/// Kind of record that asks for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseRecord {
    /// `Crawl-delay`.
    CrawlDelay,
    /// `Request-rate`.
    RequestRate,
}

/// Pace records of the groups that bind a crawler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaceRecords {
    /// Pause of the `Crawl-delay`, as written; if several bind, the longest.
    pub crawl_delay: Option<Duration>,
    /// Rates, each with its time of day.
    pub rates: Vec<RequestRate>,
    /// Times of day at which the site may be visited; if empty, always.
    pub visits: Vec<VisitTime>,
}

impl PaceRecords {
    /// Longest pause. A longer one counts as this, because one careless line must not hold
    /// a crawl for a year.
    pub const DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Maximum number of rates, and of visit times, that are kept. Real files divide the
    /// day into fewer parts.
    pub const LINES_MAX: usize = 16;

    /// Reports whether there are no pace records.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the longest pause that applies at `now`, and the record that asks for it.
    /// The pause is at most [`PaceRecords::DELAY_MAX`].
    ///
    /// A rate for this time of day replaces the rates without a time, as Conner specifies.
    /// If several rates apply, the slowest counts.
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
        // `Crawl-delay: 0` asks for no pause.
        (!pause.is_zero()).then_some((pause, reason))
    }

    /// Returns the next time at which the site may be visited; `None` if it may be visited
    /// at `now`.
    #[must_use]
    pub fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        let mut soonest = None;
        for visit in &self.visits {
            let opens = visit.opens(now)?;
            soonest = soonest.into_iter().chain([opens]).min();
        }
        soonest
    }

    /// Adds the value of a `Crawl-delay` line, in seconds. A value that is too large becomes
    /// [`Duration::MAX`].
    pub(crate) fn take_delay(&mut self, seconds: f64) {
        let pause = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.crawl_delay = self.crawl_delay.max(Some(pause));
    }

    /// Adds the value of a `Request-rate` line if it is valid.
    pub(crate) fn take_rate(&mut self, value: &str) {
        let rate = RequestRate::parse(value).filter(|rate| !self.rates.contains(rate));
        // Bounded, because each request searches the whole list.
        if self.rates.len() < Self::LINES_MAX {
            self.rates.extend(rate);
        }
    }

    /// Adds the value of a `Visit-time` line if it is valid.
    pub(crate) fn take_visit(&mut self, value: &str) {
        let visit = VisitTime::parse(value).filter(|visit| !self.visits.contains(visit));
        if self.visits.len() < Self::LINES_MAX {
            self.visits.extend(visit);
        }
    }

    /// Combines the pace records of several bindings: the longest pause, and the visit
    /// times that all of them allow.
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

    /// Returns the rate that applies at `minute` of the day.
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

    /// Intersects the visit times. If the intersection is empty, the times of `self` apply:
    /// visit times may delay a crawler, but never exclude it.
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

    /// Returns the memory that the records use, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.rates) + size_of_val(&*self.visits)
    }
}

/// Divides the day at each beginning and end of `times`.
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
