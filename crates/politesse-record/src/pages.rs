//! Paged reads of a table.
//!
//! SQLite keeps the data visible to a read transaction from being overwritten, so
//! the WAL grows as long as one is open. A page is one transaction: it examines a
//! bounded number of rows, matching or not, and ends before the caller sees any of
//! them.
//!
//! Does not know what the rows contain.

use std::ops::Range;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use tokio::time::Instant;

use super::order::Direction;
use super::parts::PartFilter;
use politesse_base::clock;

/// Maximum number of rows examined in one transaction, matching or not.
const ROWS_SEEN_MAX: i64 = 4096;

/// Maximum number of rows in a page.
const ROWS_MAX: usize = 512;

/// Number of rows in the first page, and growth factor of the following pages. A
/// caller that wants a few rows does not wait for hundreds.
const FIRST_ROWS: usize = 64;
const GROWTH: usize = 2;

/// Maximum size of a page in bytes, without its last row: rows may have long URLs.
const BYTES_MAX: usize = 1 << 20;

/// Time after which a page ends. The limit is for slow disks; on others, the limits
/// above are reached within milliseconds.
const TIME_MAX: Duration = Duration::from_millis(200);

/// SQL conditions, each with the value for its `?`, if it has one.
#[derive(Debug, Default)]
pub(super) struct SqlConditions(Vec<(&'static str, Option<Value>)>);

impl SqlConditions {
    /// Adds the condition `sql`, if there is a value for it.
    pub(super) fn add(&mut self, sql: &'static str, value: Option<impl Into<Value>>) {
        self.0.extend(value.map(|value| (sql, Some(value.into()))));
    }

    /// Adds the condition `sql`, which needs no value.
    pub(super) fn add_plain(&mut self, sql: &'static str) {
        self.0.push((sql, None));
    }
}

/// Table that is read in the order of its numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberedTable {
    /// Name of the table.
    pub(super) name: &'static str,
    /// Query without conditions; its first column is the number.
    pub(super) select: &'static str,
    /// Column of the number, in the table.
    pub(super) key: &'static str,
    /// Column of the number, qualified for the query.
    pub(super) number: &'static str,
}

impl NumberedTable {
    /// Returns the number after that of the last row.
    pub(super) fn end(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let sql = format!("SELECT max({}) FROM {}", self.key, self.name);
        let mut statement = connection.prepare_cached(&sql)?;
        let last: Option<i64> = statement.query_row([], |row| row.get(0))?;
        Ok(last.unwrap_or_default().saturating_add(1))
    }
}

/// Scan of the rows that match all conditions and have a number in one of the
/// ranges.
#[derive(Debug)]
pub(super) struct TableScan<'a> {
    connection: &'a Connection,
    table: NumberedTable,
    conditions: SqlConditions,
    parts: PartFilter,
    direction: Direction,
    /// Maximum number of rows in the next page.
    rows_max: usize,
    /// Numbers still to be examined; the next range is last.
    ranges: Vec<Range<i64>>,
    /// Time after which pages are empty.
    deadline: Option<Instant>,
}

/// Rows found by one transaction.
struct ScanPage<T> {
    rows: Vec<T>,
    /// Number of the last row, if the window may have more rows.
    cut_at: Option<i64>,
}

impl<'a> TableScan<'a> {
    /// Creates a scan of `table`, the oldest rows first, in the given `ranges` of
    /// numbers, which must be in ascending order.
    pub(super) fn new(
        connection: &'a Connection,
        table: NumberedTable,
        conditions: SqlConditions,
        mut ranges: Vec<Range<i64>>,
    ) -> Self {
        ranges.reverse();
        Self {
            connection,
            table,
            conditions,
            parts: PartFilter::default(),
            direction: Direction::OldestFirst,
            rows_max: FIRST_ROWS,
            ranges,
            deadline: None,
        }
    }

    /// Restricts the scan to the ranges of `parts`.
    pub(super) fn within(self, parts: PartFilter) -> Self {
        Self { parts, ..self }
    }

    /// Sets the direction of the scan.
    pub(super) fn in_direction(mut self, direction: Direction) -> Self {
        if self.direction != direction {
            self.direction = direction;
            self.ranges.reverse();
        }
        self
    }

    /// Makes pages after `deadline` empty, even if there are more rows.
    pub(super) fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Reports whether the deadline has passed.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|end| end <= clock::instant())
    }

    /// Returns the range of numbers that is examined next, if there is one.
    pub(super) fn ahead(&self) -> Option<&Range<i64>> {
        self.ranges.iter().rfind(|range| !range.is_empty())
    }

    /// Reads the next page of rows; `None` after the last page. No transaction is
    /// open when this returns.
    pub(super) fn next_page<T>(
        &mut self,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<Vec<T>>> {
        while let Some(rest) = self.ranges.pop() {
            let (parts, deadline) = (&self.parts, self.deadline);
            let next = parts.next(self.connection, &rest, self.direction, deadline)?;
            let Some(stretch) = next else {
                continue;
            };
            let Some(window) = self.next_window(&stretch)? else {
                self.ranges.push(self.rest(rest, &stretch, None));
                if self.is_late() {
                    return Ok(Some(Vec::new()));
                }
                continue;
            };
            let page = self.page(&window, &mut read)?;
            self.ranges.push(self.rest(rest, &window, page.cut_at));
            self.rows_max = ROWS_MAX.min(self.rows_max * GROWTH);
            if !page.rows.is_empty() || self.is_late() {
                return Ok(Some(page.rows));
            }
        }
        Ok(None)
    }

    /// Returns the next numbers to examine, starting with one that has a row. A gap
    /// of any size is therefore skipped at once.
    fn next_window(&self, rest: &Range<i64>) -> rusqlite::Result<Option<Range<i64>>> {
        let order = self.order();
        let NumberedTable { name, key, .. } = self.table;
        let sql = format!(
            "SELECT {key} FROM {name} WHERE ? <= {key} AND {key} < ? ORDER BY {key} {order} LIMIT 1"
        );
        let next: Option<i64> = self
            .connection
            .prepare_cached(&sql)?
            .query_row([rest.start, rest.end], |row| row.get(0))
            .optional()?;
        Ok(next.map(|next| match self.direction {
            Direction::OldestFirst => next..next.saturating_add(ROWS_SEEN_MAX).min(rest.end),
            Direction::NewestFirst => {
                let start = next.saturating_sub(ROWS_SEEN_MAX - 1);
                start.max(rest.start)..next.saturating_add(1)
            }
        }))
    }

    /// Returns the part of `rest` after `window`, or after its row `cut_at`.
    fn rest(&self, rest: Range<i64>, window: &Range<i64>, cut_at: Option<i64>) -> Range<i64> {
        match self.direction {
            Direction::OldestFirst => {
                let start = cut_at.map_or(window.end, |last| last.saturating_add(1));
                start..rest.end
            }
            Direction::NewestFirst => rest.start..cut_at.unwrap_or(window.start),
        }
    }

    fn order(&self) -> &'static str {
        match self.direction {
            Direction::OldestFirst => "ASC",
            Direction::NewestFirst => "DESC",
        }
    }

    fn page<T>(
        &self,
        window: &Range<i64>,
        read: &mut impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<ScanPage<T>> {
        let (sql, values) = self.query(window);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(values))?;
        let began = clock::instant();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.next()? {
            bytes += row_bytes(row)?;
            rows.push(read(row)?);
            let is_full = self.rows_max <= rows.len()
                || BYTES_MAX <= bytes
                || TIME_MAX <= clock::instant().duration_since(began);
            if is_full {
                let cut_at = Some(row.get(0)?);
                return Ok(ScanPage { rows, cut_at });
            }
        }
        Ok(ScanPage { rows, cut_at: None })
    }

    fn query(&self, window: &Range<i64>) -> (String, Vec<Value>) {
        let NumberedTable { select, number, .. } = self.table;
        let mut sql = format!("{select}\nWHERE ? <= {number} AND {number} < ?");
        let mut values = vec![window.start.into(), window.end.into()];
        for (condition, value) in &self.conditions.0 {
            sql.push_str(" AND ");
            sql.push_str(condition);
            values.extend(value.clone());
        }
        sql.push_str(&format!(" ORDER BY {number} {}", self.order()));
        (sql, values)
    }
}

/// Returns the size of the texts in a row. Values in dictionaries are shared by
/// many rows, and not counted.
fn row_bytes(row: &Row<'_>) -> rusqlite::Result<usize> {
    let mut bytes = 0;
    for column in 0..row.as_ref().column_count() {
        if let ValueRef::Text(text) = row.get_ref(column)? {
            bytes += text.len();
        }
    }
    Ok(bytes)
}

/// Table with a text key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyedTable {
    /// Query without conditions; the columns of the key come first.
    pub(super) select: &'static str,
    /// Columns of the key.
    pub(super) key: &'static [&'static str],
}

/// Scan of a table in the order of its key.
#[derive(Debug)]
pub(super) struct KeyScan<'a> {
    connection: &'a Connection,
    table: KeyedTable,
    /// Key of the last row read, as bytes: an altered key may not be valid UTF-8,
    /// and the next page must still start after it.
    last: Option<Vec<Vec<u8>>>,
}

impl<'a> KeyScan<'a> {
    /// Starts at the first row of `table`.
    pub(super) fn new(connection: &'a Connection, table: KeyedTable) -> Self {
        Self {
            connection,
            table,
            last: None,
        }
    }

    /// Reads the next page of rows; `None` after the last page. No transaction is
    /// open when this returns.
    pub(super) fn next_page<T>(
        &mut self,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<Vec<T>>> {
        let mut statement = self.connection.prepare_cached(&self.query())?;
        let after = self.last.take().unwrap_or_default();
        let values = after
            .iter()
            .map(|bytes| ToSqlOutput::Borrowed(ValueRef::Text(bytes)));
        let mut found = statement.query(params_from_iter(values))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            rows.push(read(row)?);
            let column = |at| Ok(row.get_ref(at)?.as_bytes().unwrap_or_default().to_vec());
            let key = (0..self.table.key.len()).map(column);
            self.last = Some(key.collect::<rusqlite::Result<_>>()?);
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn query(&self) -> String {
        let KeyedTable { select, key } = self.table;
        let columns = key.join(", ");
        let after = if self.last.is_some() {
            let values = vec!["?"; key.len()].join(", ");
            format!("WHERE ({columns}) > ({values})")
        } else {
            String::new()
        };
        format!("{select} {after} ORDER BY {columns} LIMIT {ROWS_MAX}")
    }
}
