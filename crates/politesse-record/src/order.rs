//! Order of decision numbers and decision times: finds a time among numbers without
//! an index.
//!
//! A decision gets its number when it is queued for writing, and its time when it
//! is made. Requests run concurrently and the wall clock may be set back, so a
//! higher number does not always have a later time. The writer therefore keeps a
//! table, `clock_step`, with the numbers that begin a new *run*. Within a run, no
//! time is more than [`SLACK_US`] earlier than any time before it, so that a binary
//! search with that margin misses no row.
//!
//! The first row begins a run. If there are rows before the first run, someone
//! deleted its entry: their order is unknown, and each of them is read.

use std::iter;
use std::ops::Range;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};

/// Maximum time in microseconds that a row may be earlier than a row before it
/// in the same run. Concurrent requests differ by far less, because each waits at
/// most a second for its place in the queue that gives the numbers.
pub(super) const SLACK_US: i64 = 10_000_000;

/// Inserts the number of a row that begins a run.
pub(super) const BEGIN_RUN: &str = "INSERT OR REPLACE INTO clock_step (seq) VALUES (?)";

/// Detection of rows that begin a new run, for the writer.
#[derive(Debug, Default)]
pub(super) struct ClockOrder {
    /// Upper bound of all times in the run so far, in microseconds; `None` until it
    /// is read from the database.
    latest_us: Option<i64>,
}

impl ClockOrder {
    /// Adds the time `at` of the decision that is written next. Returns whether it
    /// begins a new run; the caller must then execute [`BEGIN_RUN`] with its
    /// number.
    pub(super) fn begins_run(
        &mut self,
        connection: &Connection,
        at: Timestamp,
    ) -> rusqlite::Result<bool> {
        let time_us = at.as_microsecond();
        let latest_us = match self.latest_us {
            Some(latest_us) => latest_us,
            None => latest_in(connection)?,
        };
        let begins = time_us < latest_us.saturating_sub(SLACK_US);
        self.latest_us = Some(if begins {
            time_us
        } else {
            latest_us.max(time_us)
        });
        Ok(begins)
    }
}

/// Returns an upper bound of the times in the last run of the database. Without a
/// run, or without a row in it, returns the maximum, so that the next row begins a
/// run.
fn latest_in(connection: &Connection) -> rusqlite::Result<i64> {
    let last: Option<i64> = connection
        .prepare_cached(
            "SELECT time_us FROM decision WHERE (SELECT max(seq) FROM clock_step) <= seq
             ORDER BY seq DESC LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()?;
    // No time of the run is later than this, or the last row would have begun a new
    // run.
    Ok(last.map_or(i64::MAX, |last| last.saturating_add(SLACK_US)))
}

/// Check that times are ordered the way [`ranges`] assumes. If someone deleted a
/// row of `clock_step`, a search could miss rows.
#[derive(Debug)]
pub(super) struct OrderCheck {
    /// Numbers that begin the runs still to come; the next one is last.
    starts: Vec<i64>,
    /// Latest time of the run so far; `None` before the first run.
    latest_us: Option<i64>,
}

impl OrderCheck {
    /// Starts the check at the first row of the database.
    pub(super) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        let mut starts = run_starts(connection)?;
        starts.reverse();
        Ok(Self {
            starts,
            latest_us: None,
        })
    }

    /// Reports whether a search would find the row with this number and time. Rows
    /// must be passed in the order of their numbers.
    pub(super) fn holds(&mut self, seq: u64, at: Timestamp) -> bool {
        let begins = |start: &mut i64| i64::try_from(seq).is_ok_and(|seq| *start <= seq);
        while self.starts.pop_if(begins).is_some() {
            self.latest_us = Some(i64::MIN);
        }
        let Some(latest_us) = self.latest_us else {
            return true;
        };
        let time_us = at.as_microsecond();
        self.latest_us = Some(latest_us.max(time_us));
        latest_us.saturating_sub(SLACK_US) <= time_us
    }
}

/// Order in which rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// By ascending numbers.
    OldestFirst,
    /// By descending numbers.
    NewestFirst,
}

/// Time range of decisions: `from` is inclusive, `until` exclusive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeRange {
    pub(super) from: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

/// Returns a single range with all numbers below `end`.
pub(super) fn all_below(end: i64) -> Vec<Range<i64>> {
    iter::once(i64::MIN..end).collect()
}

/// Returns ranges of numbers, in ascending order, that contain every decision made
/// within `times` with a number below `end`. They contain other decisions too, so
/// the time of each row must still be compared.
pub(super) fn ranges(
    connection: &Connection,
    times: TimeRange,
    end: i64,
) -> rusqlite::Result<Vec<Range<i64>>> {
    if times.from.is_none() && times.until.is_none() {
        return Ok(all_below(end));
    }
    let starts = run_starts(connection)?;
    // The order of rows before the first run is unknown, so all of them are
    // included.
    let unordered = i64::MIN..starts.first().map_or(end, |start| *start).min(end);
    let mut ranges = vec![unordered];
    for (at, start) in starts.iter().enumerate() {
        let next = starts.get(at + 1).map_or(end, |next| *next).min(end);
        let range = range_in_run(connection, times, *start..next)?;
        match ranges.last_mut() {
            // Merged, because a clock that is set back repeatedly makes many short
            // runs.
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges.retain(|range| range.start < range.end);
    Ok(ranges)
}

/// Reads the numbers that begin a run, in order. There are few, because a clock is
/// seldom set back.
fn run_starts(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached("SELECT seq FROM clock_step ORDER BY seq")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Returns the part of `run` that contains every row with a time within `times`.
fn range_in_run(
    connection: &Connection,
    times: TimeRange,
    run: Range<i64>,
) -> rusqlite::Result<Range<i64>> {
    let mut found = run;
    if let Some(from) = times.from {
        // A row before the result is at most SLACK_US later than a row that is
        // earlier than `from_us`, and therefore earlier than `from`.
        let from_us = from.as_microsecond().saturating_sub(SLACK_US);
        found.start = first_not_before(connection, found.clone(), from_us)?;
    }
    if let Some(until) = times.until {
        // Every row after the result is at most SLACK_US earlier than the row
        // there.
        let until_us = until.as_microsecond().saturating_add(SLACK_US);
        found.end = first_not_before(connection, found.clone(), until_us)?;
    }
    Ok(found)
}

/// Finds a number in `range` such that the row before it, if there is one, is
/// earlier than `time_us`, and the first row from it on is not.
fn first_not_before(
    connection: &Connection,
    range: Range<i64>,
    time_us: i64,
) -> rusqlite::Result<i64> {
    let sql = "SELECT seq, time_us FROM decision WHERE ? <= seq AND seq < ? ORDER BY seq LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        // `midpoint` rounds towards zero, so for negative numbers it could return
        // `high`.
        let middle = low.midpoint(high).min(high - 1);
        let row = statement
            .query_row([middle, high], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match row {
            Some((seq, time)) if i64::lt(&time, &time_us) => low = i64::saturating_add(seq, 1),
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}
