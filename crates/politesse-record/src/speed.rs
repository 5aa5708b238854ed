//! Speed at which hosts were asked: requests sent, the busiest minute, the usual
//! pause, and how often a host asked for less.
//!
//! The times are those of decisions; a request is sent within milliseconds of its
//! decision. Does not know how speeds are shown.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Row;

use super::columns::{column, count};
use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::filter::{DecisionFilter, EventFilter};
use super::pages::NumberedTable;
use super::reader::AuditReader;
use super::stats::KeyTexts;

/// Microseconds of a minute.
const MINUTE_US: i64 = 60_000_000;

/// Maximum number of hosts and crawlers with separate speeds, of about a kilobyte
/// each.
pub(super) const SPEEDS_MAX: usize = 1 << 17;

/// Kind of the event that a host asked for less.
pub(super) const ENTERED: &str = "backoff_entered";

/// Times, origins and rulings of decisions, and the number of times their requests
/// were sent.
pub(super) const SENT: NumberedTable = NumberedTable {
    select: "
SELECT d.seq, d.time_us, d.origin, d.ruling, e.sent
FROM decision AS d LEFT JOIN ending AS e ON e.decision = d.seq",
    ..DECISIONS
};

/// Property that speeds are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedKey {
    /// Each crawler at each host.
    CrawlerHost,
    /// Each crawler, over all hosts.
    Crawler,
    /// Each host, over all crawlers.
    Host,
}

/// Speed of a crawler, or at a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrawlSpeed {
    /// Token that was applied; `None` for crawlers without one, or if speeds are
    /// grouped by host.
    pub crawler: Option<Arc<str>>,
    /// Host; `None` if speeds are grouped by crawler.
    pub host: Option<Arc<str>>,
    /// Requests that were sent, repeats included.
    pub sent: u64,
    /// Maximum number of requests in a clock minute.
    pub busiest_minute: u64,
    /// Median pause in microseconds, exact to an eighth; `None` for a single
    /// request.
    pub usual_pause_us: Option<u64>,
    /// Back-offs of the host that began in the time range, caused by any crawler.
    pub back_offs: HostBackOffs,
}

/// Back-offs of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostBackOffs {
    /// Number of back-offs that began.
    pub begun: u64,
    /// Status that caused the last back-off.
    pub status: Option<u16>,
    /// Time at which the last back-off was to end.
    pub until: Option<Timestamp>,
}

/// Computes the speeds in the time range of `filter`, at its host if it has one,
/// those with the busiest minute first. Includes hosts that asked for less even if
/// no request was sent to them.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn crawl_speeds(
    reader: &AuditReader,
    filter: &DecisionFilter,
    key: SpeedKey,
) -> Result<Vec<CrawlSpeed>, AuditError> {
    let pauses = pauses(reader, filter, key)?;
    let mut back_offs = match key {
        // A back-off belongs to a host and applies to all crawlers.
        SpeedKey::Crawler => HashMap::new(),
        SpeedKey::CrawlerHost | SpeedKey::Host => back_offs(reader, filter)?,
    };
    let mut speeds: Vec<_> = pauses
        .into_iter()
        .map(|(subject, pauses)| CrawlSpeed {
            back_offs: subject
                .host
                .as_ref()
                .and_then(|host| back_offs.get(host))
                .cloned()
                .unwrap_or_default(),
            crawler: subject.crawler,
            host: subject.host,
            sent: pauses.sent,
            busiest_minute: pauses.busiest_minute,
            usual_pause_us: pauses.median_us(),
        })
        .collect();
    for speed in &speeds {
        speed.host.as_ref().map(|host| back_offs.remove(host));
    }
    speeds.extend(back_offs.into_iter().map(|(host, back_offs)| CrawlSpeed {
        crawler: None,
        host: Some(host),
        sent: 0,
        busiest_minute: 0,
        usual_pause_us: None,
        back_offs,
    }));
    // Equal speeds are sorted by name, so that equal queries have equal answers.
    speeds.sort_by(|one, other| {
        let rank = |speed: &CrawlSpeed| (speed.busiest_minute, speed.sent);
        let by_speed = rank(other).cmp(&rank(one));
        by_speed.then_with(|| (&one.crawler, &one.host).cmp(&(&other.crawler, &other.host)))
    });
    Ok(speeds)
}

/// Crawler and host whose requests are measured together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SpeedSubject {
    crawler: Option<Arc<str>>,
    host: Option<Arc<str>>,
}

fn pauses(
    reader: &AuditReader,
    filter: &DecisionFilter,
    key: SpeedKey,
) -> Result<HashMap<SpeedSubject, PauseCounts>, AuditError> {
    let mut texts = KeyTexts::new(&reader.connection);
    let mut pauses: HashMap<_, PauseCounts> = HashMap::new();
    let mut scan = reader.narrow_scan(SENT, filter)?;
    while let Some(page) = scan.next_page(SentRow::read)? {
        for row in page.into_iter().filter(|row| 0 < row.sent) {
            let crawler = match key {
                SpeedKey::Host => None,
                SpeedKey::Crawler | SpeedKey::CrawlerHost => {
                    let ruling = texts.ruling(row.ruling)?;
                    ruling.crawler.as_deref().map(Arc::from)
                }
            };
            let host = match key {
                SpeedKey::Crawler => None,
                SpeedKey::Host | SpeedKey::CrawlerHost => Some(texts.host(row.origin)?),
            };
            let subject = SpeedSubject { crawler, host };
            pauses.entry(subject).or_default().add(row.at, row.sent);
        }
        if SPEEDS_MAX < pauses.len() {
            return Err(AuditError::TooManySums(SPEEDS_MAX));
        }
    }
    Ok(pauses)
}

/// Row of [`SENT`].
pub(super) struct SentRow {
    pub(super) at: i64,
    pub(super) origin: i64,
    ruling: i64,
    pub(super) sent: u64,
}

impl SentRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            at: row.get(1)?,
            origin: row.get(2)?,
            ruling: row.get(3)?,
            sent: column::<Option<_>>(row, 4)?.unwrap_or_default(),
        })
    }
}

fn back_offs(
    reader: &AuditReader,
    filter: &DecisionFilter,
) -> Result<HashMap<Arc<str>, HostBackOffs>, AuditError> {
    let filter = EventFilter {
        from: filter.from,
        until: filter.until,
        host: filter.host.clone(),
        kind: Some(ENTERED.to_owned()),
    };
    let mut hosts: HashMap<Arc<str>, HostBackOffs> = HashMap::new();
    reader.visit_events(&filter, |event| {
        // The newest events come first, so the first one of a host is its last.
        let found = hosts
            .entry(event.host.as_str().into())
            .or_insert(HostBackOffs {
                begun: 0,
                status: event.status,
                until: Some(event.until),
            });
        found.begun += 1;
        ControlFlow::Continue(())
    })?;
    Ok(hosts)
}

/// Histogram of the pauses between requests that are measured together.
#[derive(Debug, Default)]
pub(super) struct PauseCounts {
    pub(super) sent: u64,
    last_us: Option<i64>,
    /// Counts by [`pause_class`].
    counts: Vec<u32>,
    minute: i64,
    in_minute: u64,
    pub(super) busiest_minute: u64,
}

impl PauseCounts {
    /// Adds the requests of one exchange, which was decided at `at`, in
    /// microseconds.
    pub(super) fn add(&mut self, at: i64, sent: u64) {
        self.sent = self.sent.saturating_add(sent);
        let minute = at.div_euclid(MINUTE_US);
        // Concurrent requests are not strictly in chronological order. A request
        // from an earlier minute is counted in the current one.
        if self.minute < minute {
            (self.minute, self.in_minute) = (minute, 0);
        }
        self.in_minute = self.in_minute.saturating_add(sent);
        self.busiest_minute = self.busiest_minute.max(self.in_minute);
        if let Some(last) = self.last_us {
            let class = pause_class(count(at.saturating_sub(last).max(0)));
            if self.counts.len() <= class {
                self.counts.resize(class + 1, 0);
            }
            if let Some(found) = self.counts.get_mut(class) {
                *found = found.saturating_add(1);
            }
        }
        self.last_us = self.last_us.max(Some(at));
    }

    /// Returns the median pause.
    pub(super) fn median_us(&self) -> Option<u64> {
        let all: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let mut left = all.div_ceil(2);
        for (class, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if 0 < count && left <= count {
                return Some(pause_of(class));
            }
            left -= count.min(left);
        }
        None
    }
}

/// Returns the class of a pause: there are eight for each power of two.
fn pause_class(pause_us: u64) -> usize {
    let pause = pause_us.max(8);
    let power = pause.ilog2();
    let eighth = (pause >> (power - 3)) & 7;
    8 * power as usize + eighth as usize
}

/// Returns the middle of the range of pauses in a class.
fn pause_of(class: usize) -> u64 {
    let (power, eighth) = (class / 8, class as u64 % 8);
    let begin = (8 + eighth) << power;
    // A class spans an eighth of its power of two.
    (begin + (1 << power) / 2) >> 3
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a pause is exact to an eighth.
    #[test]
    fn a_pause_is_kept_to_within_an_eighth() {
        for pause in [8, 100, 999, 1_000_000, 5_000_000, 3_600_000_000_u64] {
            let told = pause_of(pause_class(pause));
            assert!(pause.abs_diff(told) <= pause / 16 + 1, "{pause}: {told}");
        }
    }

    // Ours.
    #[test]
    fn the_usual_pause_is_the_median() {
        let mut pauses = PauseCounts::default();
        assert_eq!(pauses.median_us(), None);
        let mut at = 0;
        for pause in [0, 1, 1, 1, 60, 60] {
            at += pause * 1_000_000;
            pauses.add(at, 1);
        }
        let usual = pauses.median_us().unwrap();
        assert!((940_000..1_070_000).contains(&usual), "{usual}");
        assert_eq!((pauses.sent, pauses.busiest_minute), (6, 4));
    }
}
