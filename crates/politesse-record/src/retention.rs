//! Retention: removes entries older than `audit.retention`, and the values that
//! only those entries referred to, in small steps.
//!
//! No request waits for it. A step takes some milliseconds; the writer runs one
//! after each of its batches, or soon after the last batch if no other follows. A
//! crash in between does no harm, because the next search finds the work that is
//! left.
//!
//! Does not know what an entry says.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::time::Instant;

use super::columns::column;
use super::error::WriteError;
use super::parts::{numbers_of, part_of};
use super::pruned::PrunedEnd;
use super::removal_order::RetentionOrder;
use super::used_values::{UsedBodies, UsedValues};
use politesse_base::clock;

/// Maximum number of rows of one table removed in a step.
const STEP_ROWS: i64 = 512;

/// Maximum number of rows read in a step: decisions with their endings, or
/// snapshots.
const STEP_READ: i64 = 4096;

/// Maximum number of robots.txt files checked in a step, and removed if
/// unreferenced.
const STEP_BODIES: i64 = 64;

/// Pages returned to the file system in a step.
const STEP_PAGES: i64 = 64;

/// Unused pages kept in the file for new entries.
const SPARE_PAGES: i64 = 1024;

/// Time between two searches for old entries.
const SEARCH_EVERY: Duration = Duration::from_secs(60 * 60);

/// Maximum time that the wall clock may be ahead of the expected time.
const AHEAD_MAX: Duration = SEARCH_EVERY;

/// Time until the next search after a failed step.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Time until the next search while old entries wait for their arrival in the
/// archive.
const ARRIVED_AFTER: Duration = Duration::from_secs(5);

/// Time until the next step if nothing else is to be written.
const STEP_EVERY: Duration = Duration::from_millis(5);

/// Statements that remove entries up to a number, some rows at a time. Entries with
/// a path remain (`remaining`).
const REMOVE_BY_NUMBER: [&str; 5] = [
    "DELETE FROM ending WHERE decision IN (
       SELECT decision FROM ending WHERE decision <= ?1 AND seq <= ?1 ORDER BY decision LIMIT ?2)",
    "DELETE FROM decision WHERE seq IN (
       SELECT seq FROM decision WHERE seq <= ?1
         AND seq NOT IN (SELECT seq FROM leaf_path) ORDER BY seq LIMIT ?2)",
    "DELETE FROM event WHERE seq IN (
       SELECT seq FROM event WHERE seq <= ?1
         AND seq NOT IN (SELECT seq FROM leaf_path) ORDER BY seq LIMIT ?2)",
    "DELETE FROM lost_range WHERE first IN (
       SELECT first FROM lost_range WHERE last <= ?1 ORDER BY first LIMIT ?2)",
    // The newest of these steps stays, because it begins the run of the remaining
    // rows.
    "DELETE FROM clock_step WHERE seq IN (
       SELECT seq FROM clock_step
       WHERE seq < (SELECT max(seq) FROM clock_step WHERE seq <= ?1) LIMIT ?2)",
];

/// Statements that remove summaries up to a part.
const REMOVE_BY_PART: [&str; 3] = [
    "DELETE FROM rollup WHERE part IN (SELECT part FROM rollup WHERE part <= ?1 LIMIT ?2)",
    "DELETE FROM part WHERE (field, part, value) IN (
       SELECT field, part, value FROM part WHERE field = 1 AND part <= ?1 LIMIT ?2)",
    "DELETE FROM part WHERE (field, part, value) IN (
       SELECT field, part, value FROM part WHERE field = 2 AND part <= ?1 LIMIT ?2)",
];

/// Stage of a removal; decides what the next step does.
#[derive(Debug, Default)]
enum RemovalStage {
    /// Nothing to do before the next search.
    #[default]
    Idle,
    /// Remove entries up to a number; `statement` is the index of the current
    /// statement.
    Entries { end: PrunedEnd, statement: usize },
    /// Wait until it is known whether more entries must be removed.
    MoreEntries,
    /// Remove dictionary rows that no entry refers to.
    Values(Box<UsedValues>),
    /// Remove robots.txt files that nothing refers to.
    Bodies(UsedBodies),
    /// Return unused pages to the file system.
    Space,
}

/// Number up to which all entries have arrived in the archive. Later entries are
/// not removed.
///
/// Unknown after each start until the archive reports it; nothing is removed before
/// then.
#[derive(Debug, Clone)]
pub(super) struct ArrivedNumber(Arc<AtomicI64>);

impl ArrivedNumber {
    /// Creates the number: 0 with an archive, and the maximum without one.
    pub(super) fn new(waits_for_archive: bool) -> Self {
        let number = if waits_for_archive { 0 } else { i64::MAX };
        Self(Arc::new(AtomicI64::new(number)))
    }

    /// Notes that all entries up to `number` have arrived.
    pub(super) fn set(&self, number: i64) {
        self.0.store(number, Ordering::Release);
    }

    /// Returns the last number of the parts that have arrived completely.
    pub(super) fn last_of_parts(&self) -> i64 {
        match self.0.load(Ordering::Acquire) {
            i64::MAX => i64::MAX,
            number => numbers_of(part_of(number + 1)).start - 1,
        }
    }
}

/// State of the removal, for callers that wait for its end.
#[derive(Debug, Clone)]
pub(super) enum RemovalState {
    /// Nothing is being removed.
    Settled,
    /// Old entries, or unreferenced values, are being removed.
    UnderWay,
    /// A step failed, and will be retried.
    Failed(Arc<WriteError>),
}

/// Effect of a step on the writer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepEffect {
    /// Nothing that the memory holds has changed.
    Unseen,
    /// Dictionary rows were removed: what the memory holds about them is no longer
    /// valid.
    ValuesRemoved,
}

/// Wall clock that decides which entries are old. Removal is irreversible, so a
/// clock that has jumped ahead, or is wrong at startup, is trusted only after it
/// has been ahead for an hour.
#[derive(Debug)]
struct SteadyClock {
    /// Latest trusted reading: what the clock showed, or at startup the time of the
    /// newest entry.
    steady: ClockReading,
    /// First reading since then that was too far ahead, with the lowest time shown
    /// since.
    ahead: Option<ClockReading>,
}

/// Wall-clock time shown at a given instant.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    wall: Timestamp,
    at: Instant,
}

impl ClockReading {
    /// Returns the latest time that the clock may plausibly show at `at`.
    fn latest(&self, at: Instant) -> Timestamp {
        let passed = at.saturating_duration_since(self.at);
        let latest = self.wall.checked_add(passed.saturating_add(AHEAD_MAX));
        latest.unwrap_or(Timestamp::MAX)
    }

    fn is_old(&self, at: Instant) -> bool {
        SEARCH_EVERY <= at.saturating_duration_since(self.at)
    }
}

impl SteadyClock {
    /// Creates a clock that shows `wall` now.
    fn new(wall: Timestamp) -> Self {
        let at = clock::instant();
        Self {
            steady: ClockReading { wall, at },
            ahead: None,
        }
    }

    /// Returns the trusted time.
    fn now(&mut self) -> Timestamp {
        let (wall, at) = (clock::now(), clock::instant());
        let latest = self.steady.latest(at);
        if wall <= latest {
            self.ahead = None;
            if self.steady.is_old(at) {
                self.steady = ClockReading { wall, at };
            }
            return wall;
        }
        let ahead = self.ahead.get_or_insert(ClockReading { wall, at });
        ahead.wall = ahead.wall.min(wall);
        if !ahead.is_old(at) {
            return latest;
        }
        // The clock may be further ahead than it was an hour ago.
        let wall = wall.min(ahead.latest(at));
        *self = Self::new(wall);
        wall
    }
}

/// Removal of entries that have reached the maximum age.
#[derive(Debug)]
pub(super) struct Retention {
    /// Age at which entries are removed; `None` keeps them.
    age: Option<SignedDuration>,
    clock: SteadyClock,
    stage: RemovalStage,
    order: Option<RetentionOrder>,
    search_at: Instant,
    /// Time at which a failed step is retried.
    retry_at: Option<Instant>,
}

impl Retention {
    /// Creates a removal that starts with a search. `newest` is the time of the
    /// newest entry.
    pub(super) fn new(age: Option<SignedDuration>, newest: Timestamp) -> Self {
        Self {
            age,
            clock: SteadyClock::new(newest),
            stage: RemovalStage::Idle,
            order: None,
            search_at: clock::instant(),
            retry_at: None,
        }
    }

    /// Reports whether a removal is in progress.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.stage, RemovalStage::Idle)
    }

    /// Reports whether a step has failed and must not be retried yet.
    pub(super) fn is_paused(&self) -> bool {
        self.retry_at
            .is_some_and(|retry_at| clock::instant() < retry_at)
    }

    /// Returns the time until the next step; `None` if there will be none.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let left = |time: Instant| time.saturating_duration_since(clock::instant());
        if self.is_active() {
            return Some(self.retry_at.map_or(STEP_EVERY, left).max(STEP_EVERY));
        }
        self.age.map(|_| left(self.search_at))
    }

    /// Returns an order to remove the old entries, if a search is due.
    pub(super) fn search(&mut self) -> Option<RetentionOrder> {
        let now = clock::instant();
        let age = self
            .age
            .filter(|_| !self.is_active() && self.search_at <= now)?;
        self.search_at = now + SEARCH_EVERY;
        Some(RetentionOrder {
            before: self.clock.now().checked_sub(age).unwrap_or(Timestamp::MIN),
            by: "audit.retention".to_owned(),
            reason: None,
            retention: age.try_into().ok(),
        })
    }

    /// Starts a search for unreferenced values, because entries were redacted.
    pub(super) fn look_for_unused(&mut self) {
        // While entries are being removed, their values are searched for afterwards
        // anyway.
        if !matches!(self.stage, RemovalStage::Entries { .. }) {
            self.stage = RemovalStage::MoreEntries;
        }
    }

    /// Makes the next search, or the retry of a step, due immediately.
    pub(super) fn search_now(&mut self) {
        self.search_at = clock::instant();
        self.retry_at = None;
    }

    /// Makes the next search due soon, because old entries have not arrived in the
    /// archive yet.
    pub(super) fn wait_for_arrival(&mut self) {
        self.search_at = clock::instant() + ARRIVED_AFTER;
    }

    /// Takes a partly executed order, if it is time to check whether entries are
    /// left.
    pub(super) fn take_rest(&mut self) -> Option<RetentionOrder> {
        let is_between = matches!(self.stage, RemovalStage::MoreEntries);
        self.order.take_if(|_| is_between)
    }

    /// Keeps a partly executed order. Of two orders, keeps the one that removes
    /// more.
    pub(super) fn keep_order(&mut self, order: RetentionOrder) {
        if !matches!(&self.order, Some(other) if order.before < other.before) {
            self.order = Some(order);
        }
    }

    /// Starts removing the entries up to `end`, which is already on record.
    pub(super) fn begin(&mut self, end: PrunedEnd) {
        self.stage = RemovalStage::Entries { end, statement: 0 };
        self.retry_at = None;
    }

    /// Notes that a search or a step failed and must be retried later.
    pub(super) fn fail(&mut self) {
        let retry_at = clock::instant() + AGAIN_AFTER;
        self.retry_at = Some(retry_at);
        self.search_at = retry_at;
    }

    /// Notes that the last step was rolled back. The stage may have advanced with
    /// it.
    pub(super) fn rewind(&mut self) {
        match &mut self.stage {
            RemovalStage::Entries { statement, .. } => *statement = 0,
            // `Idle` is included, because the very last step ends in it.
            stage @ (RemovalStage::Idle
            | RemovalStage::MoreEntries
            | RemovalStage::Values(_)
            | RemovalStage::Bodies(_)
            | RemovalStage::Space) => *stage = RemovalStage::MoreEntries,
        }
    }

    /// Runs one step. `connection` is in a transaction.
    pub(super) fn step(&mut self, connection: &Connection) -> rusqlite::Result<StepEffect> {
        // Number of values removed; `None` at the end of a stage.
        let mut removed = Some(0);
        let next = match &mut self.stage {
            RemovalStage::Idle => return Ok(StepEffect::Unseen),
            RemovalStage::MoreEntries => {
                let used = Box::new(UsedValues::new(connection)?);
                self.stage = RemovalStage::Values(used);
                return Ok(StepEffect::Unseen);
            }
            RemovalStage::Entries { end, statement } => {
                // The order matters: a reader never sees an ending whose decision
                // is gone.
                let by_number = REMOVE_BY_NUMBER.iter().map(|sql| (sql, end.last));
                let by_part = REMOVE_BY_PART.iter().map(|sql| (sql, end.part()));
                let Some((sql, until)) = by_number.chain(by_part).nth(*statement) else {
                    self.stage = RemovalStage::MoreEntries;
                    return Ok(StepEffect::Unseen);
                };
                let rows = connection
                    .prepare_cached(sql)?
                    .execute(params![until, STEP_ROWS])?;
                if rows == 0 {
                    *statement += 1;
                }
                RemovalStage::Idle
            }
            RemovalStage::Values(used) => {
                if used.read(connection, STEP_READ)? {
                    removed = used.remove_unused(connection)?;
                }
                RemovalStage::Bodies(UsedBodies::default())
            }
            RemovalStage::Bodies(used) => {
                if used.read(connection, STEP_READ)? {
                    removed = used.remove_unused(connection, STEP_BODIES)?;
                }
                RemovalStage::Space
            }
            RemovalStage::Space => {
                if !give_pages_back(connection)? {
                    removed = None;
                    connection.execute_batch(
                        "UPDATE pruned SET is_removed = 1; DELETE FROM unused_value;",
                    )?;
                }
                RemovalStage::Idle
            }
        };
        Ok(match removed {
            Some(0) => StepEffect::Unseen,
            Some(_) => StepEffect::ValuesRemoved,
            None => {
                self.stage = next;
                StepEffect::Unseen
            }
        })
    }
}

/// Returns the time of the newest entry; `None` if there are no entries.
pub(super) fn newest_time(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let sql = "SELECT time_us FROM (
                 SELECT * FROM (SELECT seq, time_us FROM decision ORDER BY seq DESC LIMIT 1)
                 UNION ALL
                 SELECT * FROM (SELECT seq, time_us FROM event ORDER BY seq DESC LIMIT 1))
               ORDER BY seq DESC LIMIT 1";
    let newest = connection.query_row(sql, [], |row| column(row, 0));
    newest.optional()
}

/// Returns some unused pages to the file system. Reports whether there may be more.
fn give_pages_back(connection: &Connection) -> rusqlite::Result<bool> {
    let unused: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    if unused <= SPARE_PAGES {
        return Ok(false);
    }
    let sql = format!("PRAGMA incremental_vacuum({STEP_PAGES})");
    let mut statement = connection.prepare(&sql)?;
    let mut pages = statement.query([])?;
    // The statement yields a row for each page and frees the page when stepped
    // again.
    while pages.next()?.is_some() {}
    Ok(true)
}
