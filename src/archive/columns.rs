//! Columns of the archive: their types, and values on their way from the record.
//!
//! SQLite and PostgreSQL have the same three types here: whole numbers, texts, bytes. A
//! text that may hold a zero byte, which PostgreSQL has in no text, is `bytea` there.

use std::collections::HashMap;
use std::error::Error;

use bytes::BytesMut;
use rusqlite::types::Value;
use tokio_postgres::Client;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::failure::ArchiveFailure;
use crate::audit::entry_tables::{ENTRY_TABLES, RecordTable, value_tables};
use crate::audit::entry_window::NewValue;

/// Value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell(pub(super) Value);

impl ToSql for Cell {
    fn to_sql(
        &self,
        column: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (&self.0, column) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Integer(number), &Type::INT8) => number.to_sql(column, out),
            (Value::Integer(number), &Type::INT4) => i32::try_from(*number)?.to_sql(column, out),
            (Value::Text(text), &Type::TEXT) => text.to_sql(column, out),
            // On the wire both are their bytes.
            (Value::Text(text), &Type::BYTEA) => text.as_bytes().to_sql(column, out),
            (Value::Blob(bytes), &Type::BYTEA) => bytes.to_sql(column, out),
            (other, column) => {
                let found = other.data_type();
                Err(format!("a {found} is no {column}: the record is damaged").into())
            }
        }
    }

    fn accepts(column: &Type) -> bool {
        [Type::INT4, Type::INT8, Type::TEXT, Type::BYTEA].contains(column)
    }

    to_sql_checked!();
}

/// Columns of all tables that are written to, with their types as the database has them:
/// looked up once for each connection.
#[derive(Debug, Default)]
pub(super) struct ColumnTypes(HashMap<&'static str, Vec<Type>>);

impl ColumnTypes {
    /// Looks them up.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub(super) async fn read(client: &Client) -> Result<Self, ArchiveFailure> {
        let entries = ENTRY_TABLES.map(|table| (table.name, entry_columns(table)));
        let values = value_tables().map(|table| (table.name, table.columns.join(", ")));
        let mut types = HashMap::new();
        for (table, columns) in entries.into_iter().chain(values) {
            let select = format!("SELECT {columns} FROM {table}");
            let statement = client.prepare(&select).await?;
            let columns = statement.columns().iter();
            let of_table = columns.map(|column| column.type_().clone()).collect();
            types.insert(table, of_table);
        }
        Ok(Self(types))
    }

    /// Returns the types of the columns that are written of a table.
    pub(super) fn of(&self, table: &str) -> &[Type] {
        self.0.get(table).map_or(&[], Vec::as_slice)
    }
}

/// Returns the columns of a table of entries, that of the node first.
pub(super) fn entry_columns(table: &RecordTable) -> String {
    let names = table.columns.iter().map(|column| column.name);
    ["log"]
        .into_iter()
        .chain(names)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns values in the order of their digests, which is that of all nodes: two that
/// write the same values then wait for each other in turn, not crosswise.
pub(super) fn in_common_order(values: &[NewValue]) -> Vec<&NewValue> {
    let mut sorted: Vec<&NewValue> = values.iter().collect();
    sorted.sort_by(|one, other| digest(one).cmp(digest(other)));
    sorted
}

fn digest(value: &NewValue) -> &[u8] {
    match value.columns.last() {
        Some(Value::Blob(sha256)) => sha256,
        _ => &[],
    }
}
