//! Redaction: takes client and URL away from decisions, and leaves the commitment
//! to them, so that their leaves, and all proofs, hold.
//!
//! The commitment stands in the place of the salt, without which nobody can try out
//! what it was made from. An event in the same transaction names the decisions, why
//! and by whose order: it is sealed, so a row that somebody else redacted has none.
//! Sums by which rows are searched and counted are made again.
//!
//! Does not know which decisions are wanted, nor when their values leave the
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

/// Decisions that are redacted in one transaction: requests wait meanwhile.
pub(super) const STEP_ROWS: usize = 256;

/// Numbers that one step looks at: a second of reading at most.
const STEP_NUMBERS: i64 = 128 * PART_NUMBERS;

/// Parts that one step touches, beside those of the endings: their sums are made
/// again from all their rows, some milliseconds for each.
const STEP_PARTS: i64 = 2;

/// Redacts a decision. Its origin stays where it is that of its snapshot, which stays as
/// well: so sums and searches by host are what they were.
const REDACT: &str = "
UPDATE decision SET salt = ?, client = 0, path = '', reading = NULL,
  origin = CASE (SELECT origin FROM snapshot WHERE id = decision.snapshot)
    WHEN (SELECT origin FROM origin WHERE id = decision.origin) THEN origin ELSE 0 END
WHERE seq = ?";

/// Decisions that are not redacted: in place of its salt, a redacted one has 32 bytes.
const CHOSEN: &str = "
SELECT d.seq FROM decision AS d
WHERE ? < d.seq AND d.seq <= ? AND length(d.salt) != 32";

/// Request to redact decisions: those that meet every condition given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactionRequest {
    /// URL; with a `*` at its end, the beginning of one.
    pub url: Option<String>,
    /// Address of the client, as it is on record.
    pub client: Option<String>,
    /// Numbers of decisions; all if there are none.
    pub numbers: Vec<u64>,
    /// Earliest time, and the time before which decisions were made, in
    /// microseconds since 1970.
    pub from_us: Option<i64>,
    /// End of the times.
    pub until_us: Option<i64>,
    /// Reason, for the record.
    #[serde(flatten)]
    pub reason: OrderReason,
    /// Number behind which the step begins.
    pub after: u64,
    /// Whether decisions are only counted.
    pub is_trial: bool,
}

/// Result of one step of a redaction, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactionStep {
    /// Decisions that were redacted, or would be.
    pub count: u64,
    /// Decisions that were chosen, and stay, since their rows are not as they were
    /// written.
    #[serde(default)]
    pub damaged: u64,
    /// Number behind which the next step begins; `None` behind the last.
    pub after: Option<u64>,
}

impl RedactionStep {
    /// Adds what the next step has done.
    pub fn add(&mut self, next: Self) {
        self.count += next.count;
        self.damaged += next.damaged;
        self.after = next.after;
    }
}

/// Decisions that a step has found.
#[derive(Debug, Default)]
pub(super) struct ChosenDecisions {
    pub(super) numbers: Vec<i64>,
    /// Number behind which the next step begins; `None` behind the last.
    pub(super) after: Option<u64>,
}

impl RedactionRequest {
    /// Reports whether any condition is given: all of a record is never redacted by
    /// an option that was forgotten.
    pub fn has_condition(&self) -> bool {
        !self.conditions().is_empty()
    }

    /// Names the conditions that are given. Their values are what is to be redacted.
    fn conditions(&self) -> Vec<&'static str> {
        let conditions = [
            ("url", self.url.is_some()),
            ("client", self.client.is_some()),
            ("seq", !self.numbers.is_empty()),
        ];
        let given = conditions.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(name, _)| name).collect()
    }

    /// Finds the decisions of the next step.
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
            // A URL that is none chooses nothing, rather than everything.
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
    /// Their numbers, in ascending order.
    pub(super) numbers: Vec<i64>,
    /// Name of the channel that the order came from.
    pub(super) by: String,
    /// Request that the order is a step of.
    pub(super) request: RedactionRequest,
}

impl RedactionOrder {
    /// Makes the event that names the decisions which were redacted. `connection` has
    /// them.
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

/// Redacts those of `numbers` that are as they were written. Returns them.
/// `connection` is in a transaction.
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
        // Its sums are in the part of its own number, and in that of its ending.
        parts.extend([Some(*seq), ending].into_iter().flatten().map(part_of));
        redacted.push(*seq);
    }
    // In the same transaction: a crash may come before they are looked for.
    connection.execute("INSERT OR IGNORE INTO unused_value (id) VALUES (1)", [])?;
    for part in parts {
        remake_part(connection, part)?;
        remake_rollup(connection, part)?;
    }
    Ok(redacted)
}

/// Counts those of `numbers` that are there and not redacted.
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

/// Reports whether anything was ever redacted, or removed by its age.
pub(super) fn has_removals(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pruned)
                 OR EXISTS (SELECT 1 FROM event WHERE host = '' AND kind = ?)";
    let kind = ProcessEventKind::Redacted.as_str();
    connection.query_row(sql, [kind], |row| row.get(0))
}

/// Finds the events up to `last` that say of one of `decisions` that it was redacted.
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

/// Reads the ranges of numbers that an event says were redacted from its detail.
pub(super) fn redacted_numbers(detail: &str) -> Vec<[i64; 2]> {
    let detail: Json = serde_json::from_str(detail).unwrap_or_default();
    // What is no list of ranges names nothing.
    serde_json::from_value(detail["numbers"].clone()).unwrap_or_default()
}

/// Numbers that were redacted by order, as the events have them.
#[derive(Debug, Default)]
pub(super) struct RedactedNumbers {
    /// Last number of each range, by the first.
    ranges: BTreeMap<i64, i64>,
    /// Last event that was read.
    read_until: i64,
}

impl RedactedNumbers {
    /// Reports whether an event names the decision `seq`.
    pub(super) fn has(&mut self, connection: &Connection, seq: i64) -> rusqlite::Result<bool> {
        if self.is_known(seq) {
            return Ok(true);
        }
        // A proxy may be writing: the event may have come with the row.
        self.read_on(connection)?;
        Ok(self.is_known(seq))
    }

    fn is_known(&self, seq: i64) -> bool {
        let range = self.ranges.range(..=seq).next_back();
        range.is_some_and(|(_, last)| seq <= *last)
    }

    fn read_on(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // An event that is being removed, or was added where all were, names nothing.
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
