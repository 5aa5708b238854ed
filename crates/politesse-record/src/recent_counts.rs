//! Decisions counted in memory as they are committed: in total since the process
//! started, and by minute for the last hour.
//!
//! Pages that are updated every second read these counts instead of querying the
//! database. Does not know which pages there are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::class_counts::ClassCounts;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::Direction;
use super::queue::{CountedPlace, WriterEntry, WriterTask};
use super::reader::AuditReader;
use super::rollup::{COUNTED, CountedDecision};
use super::rollup_row::EntrySums;
use super::stats::{DecisionSums, KeyTexts};
use politesse_base::clock;
use politesse_decision::outcome::EndingClass;
use politesse_decision::record::{ExchangeEnd, Record, StoredRuling};

/// Seconds of a minute.
const MINUTE_SECONDS: i64 = 60;

/// Number of minutes kept: the current one, those of the hour before, and one more
/// for a page requested just before a minute ended.
const MINUTES: i64 = 62;

/// Maximum number of rows read from the previous process: some tenths of a second.
const ROWS_READ_MAX: usize = 100_000;

/// Returns the minute of `at`, counted from 1970.
pub fn minute_of(at: Timestamp) -> i64 {
    at.as_second().div_euclid(MINUTE_SECONDS)
}

/// Counts of recently committed decisions.
#[derive(Debug)]
pub struct RecentCounts {
    /// Time at which counting started.
    since: Timestamp,
    /// Highest number written by the previous process.
    last_before: i64,
    state: Mutex<RecentState>,
}

#[derive(Debug, Default)]
struct RecentState {
    /// Decisions by class since the process started.
    totals: ClassCounts,
    minutes: BTreeMap<i64, DecisionSums>,
    /// First minute for which every decision is counted; `None` until the entries
    /// of the previous process are read.
    complete_from: Option<i64>,
    /// Rulings of decisions, reduced to what affects the counts. There are at most
    /// some dozens, and most decisions have one that is here already.
    rulings: Vec<Arc<StoredRuling>>,
}

/// Counts at a given time.
#[derive(Debug, Clone)]
pub struct RecentSums {
    /// Decisions by class since the process started.
    pub totals: ClassCounts,
    /// First minute, counted from 1970, for which every decision is counted.
    pub complete_from: i64,
    minutes: BTreeMap<i64, DecisionSums>,
}

impl RecentSums {
    /// Returns the sums of each minute in `minutes`, counted from 1970.
    pub fn minutes(&self, minutes: Range<i64>) -> impl Iterator<Item = DecisionSums> {
        minutes.map(|minute| self.minutes.get(&minute).copied().unwrap_or_default())
    }
}

impl RecentCounts {
    /// Creates empty counts. `last_before` is the highest number already on record.
    pub(super) fn new(last_before: i64) -> Self {
        Self {
            since: clock::now(),
            last_before,
            state: Mutex::default(),
        }
    }

    /// Returns the time at which counting started, which also identifies the
    /// process.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns the number of decisions in each class since the process started.
    pub fn totals(&self) -> ClassCounts {
        self.lock().totals
    }

    /// Returns the current counts. The first call also reads the decisions of the
    /// last hour that the previous process wrote.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn read(&self, reader: &AuditReader) -> Result<RecentSums, AuditError> {
        let is_read = self.lock().complete_from.is_some();
        if !is_read {
            let earlier = EarlierSums::read(reader, self)?;
            let mut state = self.lock();
            // Another page may have read them meanwhile.
            if state.complete_from.is_none() {
                state.complete_from = Some(earlier.complete_from);
                for (minute, sums) in &earlier.minutes {
                    state.minutes.entry(*minute).or_default().add(sums);
                }
            }
        }
        let state = self.lock();
        Ok(RecentSums {
            totals: state.totals,
            complete_from: state.complete_from.unwrap_or(i64::MAX),
            minutes: state.minutes.clone(),
        })
    }

    /// Counts the entries of `batch`, which is committed. Each decision is given
    /// the minute and ruling under which its ending will be counted.
    pub(super) fn note(&self, batch: &mut [WriterEntry]) {
        let mut state = self.lock();
        for entry in batch {
            match &mut entry.task {
                WriterTask::Record(pending) => {
                    pending.place = Some(state.add_decision(&pending.record));
                }
                WriterTask::Complete {
                    place: Some(place),
                    outcome,
                    ..
                } => state.add_ending(place, outcome),
                WriterTask::Complete { place: None, .. }
                | WriterTask::SaveSnapshot(_)
                | WriterTask::Event(_)
                | WriterTask::Process(_)
                | WriterTask::Prune(_)
                | WriterTask::Redact { .. }
                | WriterTask::Probe { .. } => {}
            }
        }
        let now = minute_of(clock::now());
        // Future minutes come from a clock that was set back since, and are
        // dropped.
        let is_recent = |minute: &i64| now - MINUTES < *minute && *minute <= now + 1;
        state.minutes.retain(|minute, _| is_recent(minute));
    }

    fn lock(&self) -> MutexGuard<'_, RecentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentState {
    fn add_decision(&mut self, record: &Record) -> CountedPlace {
        let place = CountedPlace {
            minute: minute_of(record.evidence.at),
            ruling: self.ruling(record),
        };
        let entry = EntrySums {
            requests: 1,
            wait_ms: u64::try_from(record.waited.as_millis()).unwrap_or(u64::MAX),
            ..EntrySums::default()
        };
        let sums = DecisionSums::ruled(&entry, &place.ruling);
        self.totals.add(&sums.classes);
        self.minutes.entry(place.minute).or_default().add(&sums);
        place
    }

    fn add_ending(&mut self, place: &CountedPlace, outcome: &ExchangeEnd) {
        let class = EndingClass::of(outcome.status, outcome.error, outcome.sent.into());
        let ending = EntrySums::of_ending(class, outcome.bytes);
        // The decision was counted in the class it has without an ending, so the
        // class is replaced.
        let classes = |ending: EntrySums| {
            let requests = 1;
            DecisionSums::ruled(&EntrySums { requests, ..ending }, &place.ruling).classes
        };
        let (before, after) = (classes(EntrySums::default()), classes(ending));
        self.totals.replace(&before, &after);
        if let Some(sums) = self.minutes.get_mut(&place.minute) {
            sums.add(&DecisionSums::ruled(&ending, &place.ruling));
            sums.classes.replace(&before, &after);
        }
    }

    /// Returns the ruling of `record`, reduced to what affects the counts.
    fn ruling(&mut self, record: &Record) -> Arc<StoredRuling> {
        let ruling = &record.evidence.ruling;
        let (verdict, reason) = (ruling.verdict.as_str(), ruling.reason.as_str());
        let effect = record.effect.as_str();
        let is_same = |known: &&Arc<StoredRuling>| {
            known.verdict == verdict && known.reason == reason && known.effect == effect
        };
        if let Some(known) = self.rulings.iter().find(is_same) {
            return Arc::clone(known);
        }
        let new = Arc::new(StoredRuling {
            verdict: verdict.to_owned(),
            reason: reason.to_owned(),
            effect: effect.to_owned(),
            ..StoredRuling::default()
        });
        self.rulings.push(Arc::clone(&new));
        new
    }
}

/// Counts of decisions written by the previous process.
struct EarlierSums {
    minutes: BTreeMap<i64, DecisionSums>,
    complete_from: i64,
}

impl EarlierSums {
    /// Reads the decisions of the last hour that the previous process wrote, the
    /// newest first, up to a limit.
    fn read(reader: &AuditReader, counts: &RecentCounts) -> Result<Self, AuditError> {
        let first = minute_of(clock::now()) - MINUTES;
        let from = Timestamp::from_second(first.saturating_mul(MINUTE_SECONDS)).ok();
        let filter = DecisionFilter {
            from,
            ..DecisionFilter::default()
        };
        let mut texts = KeyTexts::new(&reader.connection);
        let mut minutes: BTreeMap<i64, DecisionSums> = BTreeMap::new();
        let mut seen = 0;
        let all = reader.narrow_scan(COUNTED, &filter)?;
        let mut scan = all.in_direction(Direction::NewestFirst);
        while let Some(page) = scan.next_page(CountedDecision::read)? {
            seen += page.len();
            let mut earliest = i64::MAX;
            for counted in page {
                let at = Timestamp::from_microsecond(counted.time_us).unwrap_or_default();
                earliest = minute_of(at);
                if counts.last_before < counted.seq {
                    continue;
                }
                let mut sums = counted.decision_sums();
                sums.add(&counted.ending_sums());
                let ruling = texts.ruling(counted.ruling)?;
                let sums = DecisionSums::ruled(&sums, &ruling);
                minutes.entry(earliest).or_default().add(&sums);
            }
            if ROWS_READ_MAX < seen {
                let begun = minute_of(counts.since) + 1;
                let complete_from = begun.min(earliest.saturating_add(1));
                // Partly read minutes are dropped, because their counts would be
                // too low.
                minutes.retain(|minute, _| complete_from <= *minute);
                return Ok(Self {
                    minutes,
                    complete_from,
                });
            }
        }
        Ok(Self {
            minutes,
            complete_from: i64::MIN,
        })
    }
}
