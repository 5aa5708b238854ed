//! What a site asks of a crawler in robots.txt: `Crawl-delay`, `Request-rate`
//! and `Visit-time`.
//!
//! RFC 9309 does not define them; section 2.2.4 leaves such records to the
//! crawler. Like rules, they bind only the crawlers of their group.
//!
//! Invariant: they say when, never whether. `decision` does not look at them.

use std::time::Duration;

use jiff::Timestamp;

use super::request_rate::RequestRate;
use super::visit_time::{VisitTime, minute_of_day};
use crate::rules::reason::Reason;

/// What the groups that bind a crawler ask for, as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The longest pause that a `Crawl-delay` names, as written.
    pub crawl_delay: Option<Duration>,
    /// The rates, each for its time of the day.
    pub rates: Vec<RequestRate>,
    /// When the site may be visited: in any of them; if there are none, always.
    pub visits: Vec<VisitTime>,
}

impl Asked {
    /// No pause is longer, whatever is asked for: one careless line must not
    /// hold a crawl for a year.
    pub const DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// How many rates and times are looked at; a day has hardly as many parts.
    pub const LINES_MAX: usize = 16;

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The longest pause asked for at `now`, and which record asks for it. At
    /// most [`Asked::DELAY_MAX`].
    ///
    /// A rate for a time of the day counts in place of those without one, as
    /// Conner has it; of several that count, the slowest.
    #[must_use]
    pub fn delay(&self, now: Timestamp) -> Option<(Duration, Reason)> {
        let delay = self.crawl_delay.unwrap_or_default();
        let rate = self.rate_at(minute_of_day(now));
        let rate = rate.map(|rate| rate.pause()).unwrap_or_default();
        let (pause, reason) = if delay < rate {
            (rate, Reason::RequestRate)
        } else {
            (delay, Reason::CrawlDelay)
        };
        let pause = pause.min(Self::DELAY_MAX);
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

    /// The rate that counts at `minute`.
    fn rate_at(&self, minute: u16) -> Option<RequestRate> {
        let holds = |rate: &&RequestRate| rate.during.is_some_and(|time| time.contains(minute));
        let slowest = |rates: &mut dyn Iterator<Item = &RequestRate>| {
            rates.copied().max_by_key(RequestRate::pause)
        };
        slowest(&mut self.rates.iter().filter(holds))
            .or_else(|| slowest(&mut self.rates.iter().filter(|rate| rate.during.is_none())))
    }
}
