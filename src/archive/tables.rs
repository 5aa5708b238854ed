//! Tables of the archive as a reader knows them: which columns are read, and how rows
//! become those of a record.
//!
//! Does not know which rows are read.

use rusqlite::types::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::audit::entry_tables::{ENDING_ENTRIES, RecordTable, value_tables};
use crate::audit::record_copy::TableRows;

/// Column of endings that a record does not have: the time of the decision.
const ENDING_TIME: &str = "time_us";

/// Table of which rows are copied into a record.
#[derive(Debug, Clone)]
pub(super) struct CopiedTable {
    pub(super) name: &'static str,
    pub(super) columns: Vec<&'static str>,
}

impl CopiedTable {
    /// Makes the table of entries, without their node.
    pub(super) fn entries(table: &RecordTable) -> Self {
        let is_own = |column: &&str| table.name != ENDING_ENTRIES.name || *column != ENDING_TIME;
        let columns = table.columns.iter().map(|column| column.name);
        Self {
            name: table.name,
            columns: columns.filter(is_own).collect(),
        }
    }

    /// Makes the dictionary `name`, with the numbers that the archive gave.
    pub(super) fn values(name: &'static str) -> Self {
        let tables = value_tables().filter(|table| table.name == name);
        let columns = tables.flat_map(|table| table.columns);
        Self {
            name,
            columns: ["id"].into_iter().chain(columns.copied()).collect(),
        }
    }

    /// Writes the columns for a query that calls the table `alias`.
    pub(super) fn select(&self, alias: &str) -> String {
        let names = self.columns.iter();
        let columns: Vec<_> = names.map(|column| format!("{alias}.{column}")).collect();
        columns.join(", ")
    }

    /// Makes the rows of a record from `rows`, in which the columns begin at `from`.
    pub(super) fn rows(&self, rows: &[Row], from: usize) -> TableRows {
        let values = |row: &Row| {
            let columns = from..from + self.columns.len();
            columns.map(|column| value(row, column)).collect()
        };
        TableRows {
            table: self.name,
            columns: self.columns.clone(),
            rows: rows.iter().map(values).collect(),
        }
    }
}

/// Reads the value of a column.
pub(super) fn value(row: &Row, column: usize) -> Value {
    let kind = row
        .columns()
        .get(column)
        .map(|column| column.type_().clone());
    let found = match kind {
        Some(Type::INT8) => row.try_get::<_, Option<i64>>(column).map(Value::from),
        Some(Type::INT4) => row.try_get::<_, Option<i32>>(column).map(Value::from),
        Some(Type::BYTEA) => row.try_get::<_, Option<Vec<u8>>>(column).map(Value::from),
        _ => row.try_get::<_, Option<String>>(column).map(Value::from),
    };
    // A column of another type is in no archive that this program has made.
    found.unwrap_or(Value::Null)
}
