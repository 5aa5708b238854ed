//! History of a record, for a report: where the record begins, when the proxy was
//! not running, and which entries were removed, redacted or lost.
//!
//! Does not know how a report is laid out.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::columns::{TableRow as _, column, signed};
use super::error::AuditError;
use super::events::{EventRow, ProcessEventKind, RecordedConfiguration};
use super::filter::{DecisionFilter, EventFilter};
use super::order::Direction;
use super::reader::AuditReader;
use super::redaction::redacted_numbers;
use super::removals::RemovalNote;
use super::report::ReportFacts;

/// Finds the time of the first entry that is left.
const FIRST_ENTRY: &str = "
SELECT min(time_us) FROM (
  SELECT time_us FROM (SELECT time_us FROM decision ORDER BY seq LIMIT 1)
  UNION ALL SELECT time_us FROM (SELECT time_us FROM event ORDER BY seq LIMIT 1))";

/// Finds the time of the last decision before a number.
const LAST_DECISION: &str = "
SELECT time_us FROM decision WHERE seq < ? ORDER BY seq DESC LIMIT 1";

/// Counts the numbers noted as lost in a time range.
const LOST: &str = "
SELECT total(last - first + 1) FROM lost_range WHERE ? <= time_us AND time_us < ?";

/// History of a record in the time range of a report.
#[derive(Debug, Default)]
pub struct ReportHistory {
    /// Time of the first entry on record; `None` without an entry.
    pub first_entry: Option<Timestamp>,
    /// Times when the proxy was not running, the earliest first.
    pub absences: Vec<Absence>,
    /// Removals that may affect entries from the time range, the earliest first.
    pub removals: Vec<Removal>,
    /// Redactions of decisions of the report, the earliest first.
    pub redactions: Vec<RedactionNote>,
    /// Configurations that were in force in the time range, the earliest first.
    pub configurations: Vec<RecordedConfiguration>,
    /// Times in the range at which a backup replaced the record.
    pub restores: Vec<Timestamp>,
    /// Number of lost numbers noted in the time range; higher than the number of
    /// lost entries.
    pub lost: u64,
}

/// Time when the proxy was not running, or for which the record cannot tell.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// Time of the stop, or of the last entry before the proxy ended without one.
    pub since: Timestamp,
    /// Time of the next start, if there was one.
    pub until: Option<Timestamp>,
    /// Whether the proxy stopped cleanly, with every request on record.
    pub is_stopped: bool,
}

/// Removal of entries by age.
#[derive(Debug, Clone)]
pub struct Removal {
    /// Lowest number of the removed entries.
    pub first: u64,
    /// Highest number of the removed entries.
    pub last: u64,
    /// Note of the event.
    pub note: RemovalNote,
}

/// Redaction that affects decisions of the report.
#[derive(Debug, Clone)]
pub struct RedactionNote {
    /// Number of decisions in the report that were redacted.
    pub decisions: u64,
    /// Note of the event.
    pub note: RemovalNote,
}

/// Reads the history in the time range of `filter`, for a report with these
/// `facts`.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn report_history(
    reader: &AuditReader,
    filter: &DecisionFilter,
    facts: &ReportFacts,
) -> Result<ReportHistory, AuditError> {
    let mut history = ReportHistory {
        first_entry: first_entry(reader)?,
        lost: lost(reader, filter)?,
        ..ReportHistory::default()
    };
    let mut events = EventHistory {
        filter,
        facts,
        previous: None,
        removed_until: 0,
        history: &mut history,
    };
    // Events of the whole record are read, which are about one an hour: a start
    // tells about the time before it, and a redaction may be later than the
    // decisions.
    let mut scan = reader
        .event_scan(&EventFilter {
            host: Some(String::new()),
            ..EventFilter::default()
        })?
        .in_direction(Direction::OldestFirst);
    while let Some(page) = scan.next_page(EventRow::read)? {
        for event in page {
            events.add(reader, &event)?;
        }
    }
    events.end();
    Ok(history)
}

fn first_entry(reader: &AuditReader) -> rusqlite::Result<Option<Timestamp>> {
    let mut statement = reader.connection.prepare_cached(FIRST_ENTRY)?;
    statement.query_row([], |row| column(row, 0))
}

fn lost(reader: &AuditReader, filter: &DecisionFilter) -> rusqlite::Result<u64> {
    let from = filter.from.map_or(i64::MIN, Timestamp::as_microsecond);
    let until = filter.until.map_or(i64::MAX, Timestamp::as_microsecond);
    let mut statement = reader.connection.prepare_cached(LOST)?;
    // Read as a float, because the sum of altered values may exceed an integer.
    let lost: f64 = statement.query_row(params![from, until], |row| row.get(0))?;
    Ok(lost as u64)
}

/// Event which shows that the proxy ran, or stopped.
#[derive(Debug, Clone, Copy)]
struct Sign {
    at: Timestamp,
    is_stop: bool,
}

/// Reading of the proxy's own events, the oldest first.
struct EventHistory<'a> {
    filter: &'a DecisionFilter,
    facts: &'a ReportFacts,
    previous: Option<Sign>,
    /// Highest number removed so far.
    removed_until: u64,
    history: &'a mut ReportHistory,
}

impl EventHistory<'_> {
    fn add(&mut self, reader: &AuditReader, event: &EventRow) -> Result<(), AuditError> {
        self.add_configuration(event);
        if event.is(ProcessEventKind::Started) {
            self.add_start(reader, event)?;
        } else if event.is(ProcessEventKind::Heartbeat)
            || event.is(ProcessEventKind::Configuration)
            || event.is(ProcessEventKind::Stopped)
        {
            self.previous = Some(Sign {
                at: event.at,
                is_stop: event.is(ProcessEventKind::Stopped),
            });
        } else if event.is(ProcessEventKind::Pruned) {
            self.add_removal(event);
        } else if event.is(ProcessEventKind::Redacted) {
            self.add_redaction(event);
        } else if event.is(ProcessEventKind::Restored) && self.is_within(event.at) {
            self.history.restores.push(event.at);
        }
        Ok(())
    }

    fn is_within(&self, at: Timestamp) -> bool {
        self.filter.from.is_none_or(|from| from <= at)
            && self.filter.until.is_none_or(|until| at < until)
    }

    fn add_start(&mut self, reader: &AuditReader, event: &EventRow) -> Result<(), AuditError> {
        let before = self.previous.replace(Sign {
            at: event.at,
            is_stop: false,
        });
        let Some(before) = before else {
            return Ok(());
        };
        let since = match before.is_stop {
            true => before.at,
            false => last_decision(reader, event.seq)?.map_or(before.at, |at| at.max(before.at)),
        };
        self.add_absence(Absence {
            since,
            until: Some(event.at),
            is_stopped: before.is_stop,
        });
        Ok(())
    }

    /// Ends after the last event. If the last event is no stop, the proxy may still
    /// run or have been killed; the record does not say.
    fn end(mut self) {
        if let Some(last) = self.previous.filter(|last| last.is_stop) {
            self.add_absence(Absence {
                since: last.at,
                until: None,
                is_stopped: true,
            });
        }
    }

    fn add_absence(&mut self, absence: Absence) {
        let is_after = self
            .filter
            .until
            .is_some_and(|until| until <= absence.since);
        let is_before = match (self.filter.from, absence.until) {
            (Some(from), Some(until)) => until < from,
            _ => false,
        };
        if !is_after && !is_before {
            self.history.absences.push(absence);
        }
    }

    fn add_configuration(&mut self, event: &EventRow) {
        let is_later = self.filter.until.is_some_and(|until| until <= event.at);
        let Some(configuration) = event.configuration().filter(|_| !is_later) else {
            return;
        };
        let configurations = &mut self.history.configurations;
        // Only the last configuration before the range was still in force.
        if self.filter.from.is_some_and(|from| event.at <= from) {
            configurations.clear();
        }
        configurations.push(configuration);
    }

    fn add_removal(&mut self, event: &EventRow) {
        // The pruning of saved state has the same kind of event, but removes no
        // entries.
        let Some(note) = RemovalNote::of(event) else {
            return;
        };
        let last = note.entries_until();
        let first = self.removed_until.saturating_add(1);
        self.removed_until = last;
        let may_concern = match (self.filter.from, note.before()) {
            (Some(from), Some(before)) => from < before,
            _ => true,
        };
        if may_concern {
            let removal = Removal { first, last, note };
            self.history.removals.push(removal);
        }
    }

    fn add_redaction(&mut self, event: &EventRow) {
        let text = event.detail.as_deref().unwrap_or_default();
        let redacted = &self.facts.redacted;
        let within = |[first, last]: [i64; 2]| {
            let begin = redacted.partition_point(|seq| *seq < first);
            let end = redacted.partition_point(|seq| *seq <= last);
            end.saturating_sub(begin) as u64
        };
        let decisions = redacted_numbers(text).into_iter().map(within).sum();
        if let Some(note) = RemovalNote::of(event).filter(|_| 0 < decisions) {
            let redaction = RedactionNote { decisions, note };
            self.history.redactions.push(redaction);
        }
    }
}

fn last_decision(reader: &AuditReader, before: u64) -> rusqlite::Result<Option<Timestamp>> {
    let mut statement = reader.connection.prepare_cached(LAST_DECISION)?;
    let last = statement.query_row([signed(before)], |row| column(row, 0));
    last.optional()
}
