//! Retention: entries that are older than `audit.retention` are removed, and what
//! they alone referred to, a little at a time.
//!
//! Nobody waits for it: a step takes some milliseconds, and the writer takes one
//! after each of its batches, or soon after the last one if nothing comes. A crash
//! in between loses nothing, since the next search finds what is left to be done.
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

/// Rows of one table that are removed in a step.
const STEP_ROWS: i64 = 512;

/// Rows that are read in a step: decisions with their endings, or snapshots.
const STEP_READ: i64 = 4096;

/// Robots.txt that are looked at in a step, and removed if nothing refers to them.
const STEP_BODIES: i64 = 64;

/// Pages that are given back to the file system in a step.
const STEP_PAGES: i64 = 64;

/// Unused pages that stay in the file: what comes next is written to them.
const SPARE_PAGES: i64 = 1024;

/// Time between two searches for entries that are old enough.
const SEARCH_EVERY: Duration = Duration::from_secs(60 * 60);

/// Time by which the wall clock may be ahead of what was to be expected.
const AHEAD_MAX: Duration = SEARCH_EVERY;

/// Time to the next search after a step that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Time to the next search while entries stay until they have arrived in the archive.
const ARRIVED_AFTER: Duration = Duration::from_secs(5);

/// Time to the next step if nothing is to be written meanwhile.
const STEP_EVERY: Duration = Duration::from_millis(5);

/// Statements that remove entries up to a number, some rows at a time. What has a path
/// remains (`remaining`).
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
    // The last of them begins the run of what is left.
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

/// Stage of a removal: its next steps.
#[derive(Debug, Default)]
enum RemovalStage {
    /// Nothing before the next search.
    #[default]
    Idle,
    /// Entries up to a number, by the statement in this place.
    Entries { end: PrunedEnd, statement: usize },
    /// Nothing before it is known whether more entries are to be removed.
    MoreEntries,
    /// Dictionary rows that no entry refers to.
    Values(Box<UsedValues>),
    /// Robots.txt that nothing refers to.
    Bodies(UsedBodies),
    /// Pages that are not used.
    Space,
}

/// Number up to which all entries have arrived in the archive: no later one is removed.
///
/// Unknown after each start, until the archive has said it: nothing is removed before.
#[derive(Debug, Clone)]
pub(super) struct ArrivedNumber(Arc<AtomicI64>);

impl ArrivedNumber {
    /// Makes one that nothing has arrived by yet, or, without an archive, everything.
    pub(super) fn new(waits_for_archive: bool) -> Self {
        let number = if waits_for_archive { 0 } else { i64::MAX };
        Self(Arc::new(AtomicI64::new(number)))
    }

    /// Takes in that all entries up to `number` have arrived.
    pub(super) fn set(&self, number: i64) {
        self.0.store(number, Ordering::Release);
    }

    /// Returns the last number of the parts that have arrived as a whole.
    pub(super) fn last_of_parts(&self) -> i64 {
        match self.0.load(Ordering::Acquire) {
            i64::MAX => i64::MAX,
            number => numbers_of(part_of(number + 1)).start - 1,
        }
    }
}

/// State of the removal, for those who wait for its end.
#[derive(Debug, Clone)]
pub(super) enum RemovalState {
    /// Nothing is being removed.
    Settled,
    /// Old entries, or values that nothing refers to, are being removed.
    UnderWay,
    /// A step failed, and is tried again later.
    Failed(Arc<WriteError>),
}

/// Effect of a step, as far as others must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepEffect {
    /// Nothing that anybody remembers.
    Unseen,
    /// Dictionary rows are gone: what is remembered of them no longer holds.
    ValuesRemoved,
}

/// Wall clock by which entries are removed. What is removed cannot be had back, so a
/// clock that has jumped ahead, or is wrong at a start, counts once it has been so for an
/// hour.
#[derive(Debug)]
struct SteadyClock {
    /// Latest time that counts: what it showed, or that of the newest entry at a start.
    steady: ClockReading,
    /// The first time further ahead than it may be since then, or an earlier one.
    ahead: Option<ClockReading>,
}

/// Time that a wall clock shows at a moment.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    wall: Timestamp,
    at: Instant,
}

impl ClockReading {
    /// Returns the latest time that the clock may show at `at`.
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
    /// Makes one that shows `wall` at present.
    fn new(wall: Timestamp) -> Self {
        let at = clock::instant();
        Self {
            steady: ClockReading { wall, at },
            ahead: None,
        }
    }

    /// Reads the clock.
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
        // It may be further ahead than it was an hour ago.
        let wall = wall.min(ahead.latest(at));
        *self = Self::new(wall);
        wall
    }
}

/// Removal of entries that are older than the record is to be.
#[derive(Debug)]
pub(super) struct Retention {
    /// Age from which on entries go; `None`: they stay.
    age: Option<SignedDuration>,
    clock: SteadyClock,
    stage: RemovalStage,
    order: Option<RetentionOrder>,
    search_at: Instant,
    /// Time of the next step after one that failed.
    retry_at: Option<Instant>,
}

impl Retention {
    /// Makes a removal that begins with a search. `newest` is the time of the newest
    /// entry.
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

    /// Reports whether entries are being removed.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.stage, RemovalStage::Idle)
    }

    /// Reports whether a step failed, and is not to be tried again yet.
    pub(super) fn is_paused(&self) -> bool {
        self.retry_at
            .is_some_and(|retry_at| clock::instant() < retry_at)
    }

    /// Returns the time to the next step; `None` if none will come.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let left = |time: Instant| time.saturating_duration_since(clock::instant());
        if self.is_active() {
            return Some(self.retry_at.map_or(STEP_EVERY, left).max(STEP_EVERY));
        }
        self.age.map(|_| left(self.search_at))
    }

    /// Returns an order for the entries that are old enough, if a search is due.
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

    /// Looks for values that nothing refers to any more, since entries were redacted.
    pub(super) fn look_for_unused(&mut self) {
        // Where entries are being removed, their values come later in any case.
        if !matches!(self.stage, RemovalStage::Entries { .. }) {
            self.stage = RemovalStage::MoreEntries;
        }
    }

    /// Has the next search, or step, be due at once.
    pub(super) fn search_now(&mut self) {
        self.search_at = clock::instant();
        self.retry_at = None;
    }

    /// Has the next search be due soon: what is old enough has not arrived in the archive.
    pub(super) fn wait_for_arrival(&mut self) {
        self.search_at = clock::instant() + ARRIVED_AFTER;
    }

    /// Takes the order of which a part was done, if it is to be looked at for more.
    pub(super) fn take_rest(&mut self) -> Option<RetentionOrder> {
        let is_between = matches!(self.stage, RemovalStage::MoreEntries);
        self.order.take_if(|_| is_between)
    }

    /// Keeps an order of which a part is done. Of two, the one that goes further.
    pub(super) fn keep_order(&mut self, order: RetentionOrder) {
        if !matches!(&self.order, Some(other) if order.before < other.before) {
            self.order = Some(order);
        }
    }

    /// Begins to remove the entries up to `end`, which is on record by now.
    pub(super) fn begin(&mut self, end: PrunedEnd) {
        self.stage = RemovalStage::Entries { end, statement: 0 };
        self.retry_at = None;
    }

    /// Takes in that a search or a step failed: it is tried again later.
    pub(super) fn fail(&mut self) {
        let retry_at = clock::instant() + AGAIN_AFTER;
        self.retry_at = Some(retry_at);
        self.search_at = retry_at;
    }

    /// Takes in that nothing of the last step is in the file. It may have noted that it
    /// was done.
    pub(super) fn rewind(&mut self) {
        match &mut self.stage {
            RemovalStage::Entries { statement, .. } => *statement = 0,
            // The last step of all ends in `Idle`.
            stage @ (RemovalStage::Idle
            | RemovalStage::MoreEntries
            | RemovalStage::Values(_)
            | RemovalStage::Bodies(_)
            | RemovalStage::Space) => *stage = RemovalStage::MoreEntries,
        }
    }

    /// Takes a step. `connection` is in a transaction.
    pub(super) fn step(&mut self, connection: &Connection) -> rusqlite::Result<StepEffect> {
        // Values that were removed; `None` at the end of a stage.
        let mut removed = Some(0);
        let next = match &mut self.stage {
            RemovalStage::Idle => return Ok(StepEffect::Unseen),
            RemovalStage::MoreEntries => {
                let used = Box::new(UsedValues::new(connection)?);
                self.stage = RemovalStage::Values(used);
                return Ok(StepEffect::Unseen);
            }
            RemovalStage::Entries { end, statement } => {
                // In this order: no ending is seen whose decision is gone.
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

/// Returns the time of the newest entry, if there is one.
pub(super) fn newest_time(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let sql = "SELECT time_us FROM (
                 SELECT * FROM (SELECT seq, time_us FROM decision ORDER BY seq DESC LIMIT 1)
                 UNION ALL
                 SELECT * FROM (SELECT seq, time_us FROM event ORDER BY seq DESC LIMIT 1))
               ORDER BY seq DESC LIMIT 1";
    let newest = connection.query_row(sql, [], |row| column(row, 0));
    newest.optional()
}

/// Gives some unused pages back to the file system. Returns whether there are more.
fn give_pages_back(connection: &Connection) -> rusqlite::Result<bool> {
    let unused: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    if unused <= SPARE_PAGES {
        return Ok(false);
    }
    let sql = format!("PRAGMA incremental_vacuum({STEP_PAGES})");
    let mut statement = connection.prepare(&sql)?;
    let mut pages = statement.query([])?;
    // A row for each page: it is given back when the next row is asked for.
    while pages.next()?.is_some() {}
    Ok(true)
}
