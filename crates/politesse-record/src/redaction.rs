//! Redaction: removes client and URL from decisions but keeps the commitment to
//! them, so that leaves and proofs stay valid.
//!
//! The commitment replaces the salt, without which candidate values cannot be
//! tested against it. An event in the same transaction names the decisions, the
//! reason and the orderer. The event is sealed, so a row that someone else redacted
//! has none. The summaries for searches and counts are computed again.
//!
//! Does not know how decisions are selected, or when their values leave the
//! dictionaries (`retention`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::columns::{column, count, signed};
use super::decision_row::DecisionReader;
use super::entry_rows::{DECISIONS, DecisionEntry};
use super::events::{ProcessEvent, ProcessEventKind};
use super::filter::UrlPattern;
use super::leaf::RecordId;
use super::parts::{PART_NUMBERS, part_of, remake_part};
use super::removal_order::OrderReason;
use super::rollup::remake_rollup;

/// Maximum number of decisions redacted in one transaction, because requests wait
/// meanwhile.
pub(super) const STEP_ROWS: usize = 256;

/// Maximum range of numbers searched in one step: at most a second of reading.
const STEP_NUMBERS: i64 = 128 * PART_NUMBERS;

/// Maximum number of parts changed in one step, apart from those of endings. Their
/// summaries are computed again from all their rows, which takes some milliseconds
/// each.
const STEP_PARTS: i64 = 2;

/// Redacts a decision. The origin is kept if the snapshot has the same one, because
/// the snapshot stays anyway; summaries and searches by host then still include the
/// row.
const REDACT: &str = "
UPDATE decision SET salt = ?, client = 0, path = '', reading = NULL,
  origin = CASE (SELECT origin FROM snapshot WHERE id = decision.snapshot)
    WHEN (SELECT origin FROM origin WHERE id = decision.origin) THEN origin ELSE 0 END
WHERE seq = ?";

/// Selects decisions that are not redacted. A redacted one has 32 bytes in place of
/// its salt.
const CHOSEN: &str = "
SELECT d.seq FROM decision AS d
WHERE ? < d.seq AND d.seq <= ? AND length(d.salt) != 32";

/// Request to redact the decisions that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactionRequest {
    /// URL; a final `*` makes it a prefix.
    pub url: Option<String>,
    /// Address of the client, in the form that is on record.
    pub client: Option<String>,
    /// Numbers of decisions; empty for all.
    pub numbers: Vec<u64>,
    /// Earliest time, inclusive, in microseconds since 1970.
    pub from_us: Option<i64>,
    /// Latest time, exclusive, in microseconds since 1970.
    pub until_us: Option<i64>,
    /// Reason, for the record.
    #[serde(flatten)]
    pub reason: OrderReason,
    /// Number after which the step starts.
    pub after: u64,
    /// Whether to count the decisions without redacting them.
    pub is_trial: bool,
}

/// Result of one or more steps of a redaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactionStep {
    /// Decisions that were redacted, or would be.
    pub count: u64,
    /// Selected decisions that were left as they are because their rows were
    /// altered.
    #[serde(default)]
    pub damaged: u64,
    /// Number after which the next step starts; `None` after the last step.
    pub after: Option<u64>,
}

impl RedactionStep {
    /// Adds the result of the next step.
    pub fn add(&mut self, next: Self) {
        self.count += next.count;
        self.damaged += next.damaged;
        self.after = next.after;
    }
}

/// Decisions selected by one step.
#[derive(Debug, Default)]
pub(super) struct ChosenDecisions {
    pub(super) numbers: Vec<i64>,
    /// Number after which the next step starts; `None` after the last step.
    pub(super) after: Option<u64>,
}

impl RedactionRequest {
    /// Reports whether a condition is given. Without one the request is invalid, so
    /// that a forgotten option never redacts the whole record.
    pub fn has_condition(&self) -> bool {
        !self.conditions().is_empty()
    }

    /// Returns the names of the given conditions. Their values are omitted, because
    /// they are the data to be redacted.
    fn conditions(&self) -> Vec<&'static str> {
        let conditions = [
            ("url", self.url.is_some()),
            ("client", self.client.is_some()),
            ("seq", !self.numbers.is_empty()),
        ];
        let given = conditions.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(name, _)| name).collect()
    }

    /// Selects the decisions of the next step.
    pub(super) fn find(&self, connection: &Connection) -> rusqlite::Result<ChosenDecisions> {
        let sql = "SELECT coalesce(max(seq), 0) FROM decision";
        let last: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        let after = signed(self.after);
        let end = last.min(after.saturating_add(STEP_NUMBERS));
        let (sql, values) = self.query(after, end);
        let mut statement = connection.prepare(&sql)?;
        let rows = statement.query_map(params_from_iter(values), |row| row.get(0))?;
        let found: Vec<i64> = rows.collect::<rusqlite::Result<_>>()?;
        let first_part = found.first().copied().map(part_of).unwrap_or_default();
        let is_near = |seq: &i64| part_of(*seq) < first_part + STEP_PARTS;
        let numbers: Vec<i64> = found.iter().copied().filter(is_near).collect();
        let is_cut = found.len() == STEP_ROWS || numbers.len() < found.len();
        let behind = match numbers.last() {
            Some(number) if is_cut => *number,
            _ => end,
        };
        Ok(ChosenDecisions {
            numbers,
            after: (behind < last).then_some(count(behind)),
        })
    }

    fn query(&self, after: i64, end: i64) -> (String, Vec<Value>) {
        let mut sql = CHOSEN.to_owned();
        let mut values: Vec<Value> = vec![after.into(), end.into()];
        let mut add = |condition: &str, value: Option<Value>| {
            if let Some(value) = value {
                sql.push_str(condition);
                values.push(value);
            }
        };
        let pattern = self.url.as_deref().map(str::parse::<UrlPattern>);
        match &pattern {
            Some(Ok(url)) => add(
                &format!(" AND {}", url.condition()),
                Some(url.text().to_owned().into()),
            ),
            // An invalid URL selects nothing rather than everything.
            Some(Err(_)) => add(" AND d.seq < ?", Some(i64::MIN.into())),
            None => {}
        }
        add(
            " AND d.client IN (SELECT id FROM client WHERE address = ?)",
            self.client.clone().map(Value::from),
        );
        let list = (!self.numbers.is_empty()).then(|| json!(self.numbers).to_string().into());
        add(" AND d.seq IN (SELECT value FROM json_each(?))", list);
        add(" AND ? <= d.time_us", self.from_us.map(Value::from));
        add(" AND d.time_us < ?", self.until_us.map(Value::from));
        sql.push_str(" ORDER BY d.seq LIMIT ");
        sql.push_str(&STEP_ROWS.to_string());
        (sql, values)
    }
}

/// Order to redact the decisions of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedactionOrder {
    /// Numbers of the decisions, in ascending order.
    pub(super) numbers: Vec<i64>,
    /// Name of the channel that the order came from.
    pub(super) by: String,
    /// Request that the order is a step of.
    pub(super) request: RedactionRequest,
}

impl RedactionOrder {
    /// Makes the event that names the redacted decisions, which `connection` still
    /// has.
    pub(super) fn event(
        &self,
        connection: &Connection,
        redacted: &[i64],
    ) -> rusqlite::Result<ProcessEvent> {
        let sql = "SELECT min(time_us), max(time_us) FROM decision
                   WHERE seq IN (SELECT value FROM json_each(?))";
        let span = connection.query_row(sql, [json!(redacted).to_string()], |row| {
            Ok([row.get(0)?, row.get(1)?].map(time_text))
        });
        let [oldest, youngest] = span?;
        let runs = redacted.chunk_by(|one, next| *one + 1 == *next);
        let ranges: Vec<_> = runs
            .filter_map(|run| Some([run.first()?, run.last()?]))
            .collect();
        let detail = json!({
            "decisions": redacted.len(),
            "numbers": ranges,
            "oldest": oldest,
            "youngest": youngest,
            "chosen_by": self.request.conditions(),
            "from": time_text(self.request.from_us),
            "until": time_text(self.request.until_us),
            "by": self.by,
            "user": self.request.reason.user,
            "why": self.request.reason.why,
        });
        Ok(ProcessEvent::now(ProcessEventKind::Redacted, detail))
    }
}

fn time_text(time_us: Option<i64>) -> Option<String> {
    let time = Timestamp::from_microsecond(time_us?).ok()?;
    Some(time.to_string())
}

/// Redacts the decisions `numbers` whose rows are unaltered, and returns their
/// numbers. `connection` is in a transaction.
pub(super) fn redact_rows(
    connection: &Connection,
    record: RecordId,
    numbers: &[i64],
) -> rusqlite::Result<Vec<i64>> {
    let mut reader = DecisionReader::new(connection, record);
    let sql = format!("{} WHERE d.seq = ?", DECISIONS.select);
    let mut select = connection.prepare_cached(&sql)?;
    let mut update = connection.prepare_cached(REDACT)?;
    let mut redacted = Vec::new();
    let mut parts = BTreeSet::new();
    for seq in numbers {
        let read = |row: &Row<'_>| {
            let ending = DecisionEntry::read(row)?.ending.map(|ending| ending.seq);
            Ok((reader.commitment_to_keep(row)?, ending))
        };
        let found = select.query_row([seq], read).optional()?;
        let Some((Some(commitment), ending)) = found else {
            continue;
        };
        update.execute(params![commitment.as_bytes().as_slice(), seq])?;
        // A decision is summed in the part of its own number, and its ending in
        // that of the ending.
        parts.extend([Some(*seq), ending].into_iter().flatten().map(part_of));
        redacted.push(*seq);
    }
    // In the same transaction, because a crash may come before the search for
    // unused values.
    connection.execute("INSERT OR IGNORE INTO unused_value (id) VALUES (1)", [])?;
    for part in parts {
        remake_part(connection, part)?;
        remake_rollup(connection, part)?;
    }
    Ok(redacted)
}

/// Counts the decisions among `numbers` that exist and are not redacted.
pub(super) fn count_unredacted(connection: &Connection, numbers: &[i64]) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM decision
               WHERE seq IN (SELECT value FROM json_each(?)) AND length(salt) != 32";
    let list = json!(numbers).to_string();
    connection.query_row(sql, [list], |row| row.get(0).map(count))
}

/// Reports whether there may be values that only redacted decisions referred to.
pub(super) fn may_have_unused_values(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM unused_value)";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Reports whether entries were ever redacted, or removed by age.
pub(super) fn has_removals(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pruned)
                 OR EXISTS (SELECT 1 FROM event WHERE host = '' AND kind = ?)";
    let kind = ProcessEventKind::Redacted.as_str();
    connection.query_row(sql, [kind], |row| row.get(0))
}

/// Returns the events up to `last` which state that one of `decisions` was
/// redacted.
pub(super) fn redacting_events(
    connection: &Connection,
    last: i64,
    decisions: &BTreeSet<i64>,
) -> rusqlite::Result<Vec<i64>> {
    let sql = "SELECT seq, detail FROM event
               WHERE host = '' AND kind = ? AND seq <= ? ORDER BY seq";
    let mut statement = connection.prepare_cached(sql)?;
    let kind = ProcessEventKind::Redacted.as_str();
    let mut rows = statement.query(params![kind, last])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let ranges = redacted_numbers(&column::<String>(row, 1)?);
        let is_near = |[first, last]: &[i64; 2]| {
            first <= last && decisions.range(first..=last).next().is_some()
        };
        if ranges.iter().any(is_near) {
            found.push(row.get(0)?);
        }
    }
    Ok(found)
}

/// Reads the ranges of redacted numbers from the detail of an event.
pub(super) fn redacted_numbers(detail: &str) -> Vec<[i64; 2]> {
    let detail: Json = serde_json::from_str(detail).unwrap_or_default();
    // A malformed list names no decisions.
    serde_json::from_value(detail["numbers"].clone()).unwrap_or_default()
}

/// Numbers of decisions whose redaction an event states.
#[derive(Debug, Default)]
pub(super) struct RedactedNumbers {
    /// Last number of each range, by its first number.
    ranges: BTreeMap<i64, i64>,
    /// Number of the last event read.
    read_until: i64,
}

impl RedactedNumbers {
    /// Reports whether an event names the decision `seq`.
    pub(super) fn has(&mut self, connection: &Connection, seq: i64) -> rusqlite::Result<bool> {
        if self.is_known(seq) {
            return Ok(true);
        }
        // A running proxy may have written the row and its event since the last
        // read.
        self.read_on(connection)?;
        Ok(self.is_known(seq))
    }

    fn is_known(&self, seq: i64) -> bool {
        let range = self.ranges.range(..=seq).next_back();
        range.is_some_and(|(_, last)| seq <= *last)
    }

    fn read_on(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // Ignores events that are being removed, or that were added to a range
        // already removed.
        let sql = "SELECT seq, detail FROM event
                   WHERE host = '' AND kind = ? AND ? < seq
                 AND (coalesce((SELECT last FROM pruned), 0) < seq
                   OR seq IN (SELECT seq FROM leaf_path))
               ORDER BY seq";
        let mut statement = connection.prepare_cached(sql)?;
        let kind = ProcessEventKind::Redacted.as_str();
        let mut rows = statement.query(params![kind, self.read_until])?;
        while let Some(row) = rows.next()? {
            self.read_until = row.get(0)?;
            let ranges = redacted_numbers(&column::<String>(row, 1)?);
            self.ranges
                .extend(ranges.into_iter().map(<(i64, i64)>::from));
        }
        Ok(())
    }
}
