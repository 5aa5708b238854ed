//! Copy of a record that is made from rows which come from elsewhere: of some of them
//! in memory, or of all of them in a file.
//!
//! What a record says of itself (its order by time, its summaries, its highest
//! number) is made again from the rows, so that every reader reads a copy as the
//! record it is of. Does not know where the rows are from, nor whether they are as
//! they were written: `verify` finds that in a copy as in the record.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::backup::make_private;
use super::columns::signed;
use super::decision_row::CheckedRecord;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::leaf::RecordId;
use super::order::mark_runs;
use super::parts::sum_up_all;
use super::pruned::PrunedEnd;
use super::reader::AuditReader;
use super::rollup::roll_up_all;
use super::schema::{self, open_error};
use super::sequence::Sequence;

/// Rows of one table of a record.
#[derive(Debug, Clone)]
pub struct TableRows {
    /// Name of the table.
    pub table: &'static str,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// Values of each row, in the order of the columns.
    pub rows: Vec<Vec<Value>>,
}

/// Record that is made from rows.
#[derive(Debug)]
pub struct RecordCopy {
    reader: AuditReader,
}

impl RecordCopy {
    /// Makes an empty one in memory, as of the record `record`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn in_memory(record: &str) -> Result<Self, AuditError> {
        let connection = schema::open_in_memory()?;
        Ok(Self {
            reader: AuditReader::in_memory(connection, record),
        })
    }

    /// Makes an empty one in the file `path`, for its owner alone, as of the record
    /// `record`. A file that is there is overwritten.
    ///
    /// # Errors
    ///
    /// [`AuditError::Create`], [`AuditError::Open`].
    pub fn in_file(path: &Path, record: &str) -> Result<Self, AuditError> {
        make_private(path).map_err(|error| AuditError::Create(path.to_owned(), error))?;
        let connection = schema::open(path)?;
        // Half a copy is made anew: nothing of it has to outlast a power failure.
        connection
            .execute_batch("PRAGMA synchronous = OFF;")
            .map_err(open_error(path))?;
        Ok(Self {
            reader: AuditReader::in_memory(connection, record),
        })
    }

    /// Adds rows. A row that is there gives way to the one with its key.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn add(&self, added: &TableRows) -> Result<(), AuditError> {
        let transaction = self.reader.connection.unchecked_transaction()?;
        let texts = text_columns(&transaction, added.table)?;
        // Elsewhere a text may be kept as its bytes: with a zero byte in it, say.
        let places = added
            .columns
            .iter()
            .map(|column| match texts.contains(*column) {
                true => "CAST(? AS TEXT)",
                false => "?",
            });
        let sql = format!(
            "REPLACE INTO {} ({}) VALUES ({})",
            added.table,
            added.columns.join(", "),
            places.collect::<Vec<_>>().join(", "),
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        for row in &added.rows {
            statement.execute(params_from_iter(row))?;
        }
        drop(statement);
        Ok(transaction.commit()?)
    }

    /// Makes what a record says of itself: its order, its summaries, and that `last` is
    /// its highest number. After the last row.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn finish(&self, record: &str, last: u64) -> Result<(), AuditError> {
        let transaction = self.reader.connection.unchecked_transaction()?;
        let first_part = PrunedEnd::read(&transaction)?.part() + 1;
        mark_runs(&transaction)?;
        sum_up_all(&transaction, first_part)?;
        roll_up_all(&transaction, first_part)?;
        let sequence = Sequence {
            last: signed(last),
            reserved: signed(last),
        };
        sequence.write(&transaction, RecordId::parse(record))?;
        Ok(transaction.commit()?)
    }

    /// Returns the reader of the copy.
    pub fn reader(&self) -> &AuditReader {
        &self.reader
    }

    /// Reads all decisions, by ascending numbers. Of a copy of some rows.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn decisions(&self) -> Result<Vec<CheckedRecord>, AuditError> {
        let mut rows = self.reader.decision_reader();
        let mut scan = self.reader.whole_scan(&DecisionFilter::default())?;
        let mut all = Vec::new();
        while let Some(page) = scan.next_page(|row| rows.checked(row))? {
            all.extend(page);
        }
        Ok(all)
    }

    /// Takes all decisions and endings away, and leaves the values that they share.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn clear_decisions(&self) -> Result<(), AuditError> {
        let sql = "DELETE FROM ending; DELETE FROM decision;";
        Ok(self.reader.connection.execute_batch(sql)?)
    }

    /// Closes a copy in a file, which has everything then, and nothing lies beside it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn close(self) -> Result<(), AuditError> {
        let sql = "PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE);";
        self.reader.connection.execute_batch(sql)?;
        let closed: Result<(), (Connection, rusqlite::Error)> = self.reader.connection.close();
        closed.map_err(|(_, error)| AuditError::Read(error))
    }
}

/// Finds the columns of a table that hold texts.
fn text_columns(connection: &Connection, table: &str) -> rusqlite::Result<BTreeSet<String>> {
    let sql = "SELECT name FROM pragma_table_info(?) WHERE type = 'TEXT'";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([table], |row| row.get(0))?.collect()
}
