//! Changes of robots.txt: answers that differ from the previous one for the same
//! origin and product token.
//!
//! An outage is not a change: the earlier answer stays in force for a while, and
//! usually returns. Does not know which decisions a change affects.

use std::ops::Range;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};
use tokio::time::Instant;

use super::columns::ColumnReader;
use super::error::AuditError;
use super::reader::AuditReader;
use super::robots_versions::is_same_answer;
use super::snapshot_row::read_snapshot;
use politesse_base::clock;
use politesse_decision::record::RecordedSnapshot;

/// Range of snapshot ids examined in one transaction.
const WINDOW: i64 = 512;

/// Range of snapshot ids examined for one list. Most fetches bring no change.
const NUMBERS_MAX: i64 = 40 * WINDOW;

/// Pairs each snapshot with the answer before it. CROSS JOIN fixes the join order:
/// in the other order, SQLite would search the later snapshots of every snapshot.
const CHANGES: &str = "
SELECT p.origin, p.token, p.url, p.status, p.fetched_us, p.expires_us, p.result, p.cause,
       p.body, p.hops, p.charset, p.tdm,
       s.origin, s.token, s.url, s.status, s.fetched_us, s.expires_us, s.result, s.cause,
       s.body, s.hops, s.charset, s.tdm, s.id
FROM snapshot AS s CROSS JOIN snapshot AS p ON p.id = (
  SELECT e.id FROM snapshot AS e
  WHERE e.origin = s.origin AND e.token IS s.token COLLATE NOCASE
  AND e.result <> 'unreachable' AND (e.fetched_us, e.id) < (s.fetched_us, s.id)
  ORDER BY e.fetched_us DESC, e.id DESC LIMIT 1)
WHERE s.result <> 'unreachable'
AND (p.body IS NOT s.body OR p.result <> s.result OR p.status IS NOT s.status
     OR p.charset IS NOT s.charset)";

/// Change of the robots.txt of an origin, for one product token or for all
/// crawlers.
#[derive(Debug, Clone)]
pub struct RobotsChange {
    /// Id of the snapshot with the new answer.
    pub number: u64,
    /// Previous answer.
    pub before: RecordedSnapshot,
    /// New answer, as of its first fetch.
    pub after: RecordedSnapshot,
}

/// Limits of a list of changes.
#[derive(Debug, Clone, Copy)]
pub struct ChangeBounds {
    /// Id below which changes are wanted; `None` for all.
    pub before: Option<u64>,
    /// Earliest fetch of a new answer; `None` for any.
    pub from: Option<Timestamp>,
    /// Maximum number of changes.
    pub rows: usize,
    /// Time at which the search stops and returns its results so far.
    pub deadline: Instant,
}

/// Changes of robots.txt, the newest first.
#[derive(Debug, Default)]
pub struct ChangeList {
    /// The changes.
    pub changes: Vec<RobotsChange>,
    /// Id below which the next page starts; `None` after the last page.
    pub next: Option<u64>,
    /// Whether the search stopped before it had found the wanted number of changes.
    pub is_cut: bool,
}

impl AuditReader {
    /// Lists changes of robots.txt, the newest first, within `bounds`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn robots_changes(&self, bounds: &ChangeBounds) -> Result<ChangeList, AuditError> {
        let before = bounds.before.and_then(|before| i64::try_from(before).ok());
        let mut list = ChangeList::default();
        let Some(all) = snapshot_numbers(&self.connection, before)? else {
            return Ok(list);
        };
        let seen = all.start.max(all.end.saturating_sub(NUMBERS_MAX));
        let mut end = all.end;
        while all.start < end {
            if end <= seen || bounds.deadline <= clock::instant() {
                list.is_cut = true;
                break;
            }
            // One transaction per window, because a long one would keep the WAL
            // from being reused (docs/decisions/012-reading-the-record.md).
            let window = end.saturating_sub(WINDOW).max(seen)..end;
            end = window.start;
            let found = changes_in(&self.connection, &window)?;
            let is_recent = |change: &RobotsChange| {
                let fetched = change.after.fetched_at;
                bounds.from.is_none_or(|from| from <= fetched)
            };
            list.changes.extend(found.into_iter().filter(is_recent));
            // One change more than wanted, so there is a further page.
            if bounds.rows < list.changes.len() {
                list.changes.truncate(bounds.rows);
                list.next = list.changes.last().map(|change| change.number);
                return Ok(list);
            }
            if let Some(from) = bounds.from
                && had_expired(&self.connection, &window, from)?
            {
                return Ok(list);
            }
        }
        list.next = list.is_cut.then_some(end.cast_unsigned());
        Ok(list)
    }

    /// Returns the change that the snapshot `number` brought, if it is one.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn robots_change(&self, number: u64) -> Result<Option<RobotsChange>, AuditError> {
        let Ok(number) = i64::try_from(number) else {
            return Ok(None);
        };
        let window = number..number.saturating_add(1);
        Ok(changes_in(&self.connection, &window)?.pop())
    }
}

/// Returns the range of snapshot ids, limited to those below `before` if given.
fn snapshot_numbers(
    connection: &Connection,
    before: Option<i64>,
) -> rusqlite::Result<Option<Range<i64>>> {
    // Two queries, because SQLite finds one end through the key, but reads every
    // row if asked for both at once.
    let find = |sql| connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
    let first = find("SELECT min(id) FROM snapshot")?;
    let last = find("SELECT max(id) FROM snapshot")?;
    Ok(first.zip(last).map(|(first, last)| {
        let end = last.saturating_add(1);
        first..before.map_or(end, |before| before.min(end))
    }))
}

fn changes_in(connection: &Connection, window: &Range<i64>) -> rusqlite::Result<Vec<RobotsChange>> {
    let sql = format!("{CHANGES} AND ? <= s.id AND s.id < ? ORDER BY s.id DESC");
    let mut statement = connection.prepare_cached(&sql)?;
    let read = |row: &Row<'_>| {
        let mut columns = ColumnReader::new(row);
        Ok(RobotsChange {
            before: read_snapshot(&mut columns)?,
            after: read_snapshot(&mut columns)?,
            number: columns.field()?,
        })
    };
    let found = statement.query_map([window.start, window.end], read)?;
    let mut changes = found.collect::<rusqlite::Result<Vec<_>>>()?;
    // Answers without a file may differ only in columns that do not matter.
    changes.retain(|change| !is_same_answer(&change.before, &change.after));
    Ok(changes)
}

/// Reports whether the first snapshot of `window` had expired by `from`. A snapshot
/// is recorded with the first decision that rests on it, so this one and those with
/// lower ids were fetched earlier.
fn had_expired(
    connection: &Connection,
    window: &Range<i64>,
    from: Timestamp,
) -> rusqlite::Result<bool> {
    let sql = "SELECT expires_us FROM snapshot WHERE ? <= id ORDER BY id LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let expires: Option<i64> = statement
        .query_row([window.start], |row| row.get(0))
        .optional()?;
    Ok(expires.is_some_and(|expires| expires < from.as_microsecond()))
}
