//! Tables of a record that a copy has as well: entries, what stands for some, and the
//! dictionaries they refer to, with the columns of each.
//!
//! Does not know which rows are copied, nor where to.

use super::dictionary::DICTIONARIES;

/// Table of entries, or of what stands for some.
#[derive(Debug)]
pub struct RecordTable {
    /// Name of the table.
    pub name: &'static str,
    /// Columns in their order.
    pub columns: &'static [EntryColumn],
}

/// Column of an [`RecordTable`].
#[derive(Debug, Clone, Copy)]
pub struct EntryColumn {
    /// Name of the column.
    pub name: &'static str,
    /// Name of the dictionary of which it holds a number, if it does.
    pub dictionary: Option<&'static str>,
}

/// Makes a table of the names of its columns, some with the name of a dictionary.
macro_rules! entry_table {
    ($name:literal: $($column:literal $(=> $dictionary:literal)?),+ $(,)?) => {
        RecordTable {
            name: $name,
            columns: &[$(EntryColumn {
                name: $column,
                dictionary: entry_table!(@ $($dictionary)?),
            }),+],
        }
    };
    (@) => { None };
    (@ $dictionary:literal) => { Some($dictionary) };
}

/// Decisions.
pub const DECISION_ENTRIES: RecordTable = entry_table!("decision":
    "seq", "time_us", "client" => "client", "crawler" => "crawler", "method" => "term",
    "origin" => "origin", "path", "ruling" => "ruling", "reading", "wait_ms",
    "policy" => "policy", "snapshot" => "snapshot", "salt", "leaf",
);

/// Endings, each with the time of its decision.
pub const ENDING_ENTRIES: RecordTable = entry_table!("ending":
    "decision", "seq", "time_us", "status", "sent", "directives" => "directives", "bytes",
    "error" => "term", "leaf",
);

/// Events.
pub const EVENT_ENTRIES: RecordTable = entry_table!("event":
    "seq", "time_us", "host", "kind", "status", "until_us", "incidents", "actor", "reason",
    "sent", "detail", "leaf",
);

/// Numbers that have no entry, because the process that gave them ended.
pub const LOST_ENTRIES: RecordTable = entry_table!("lost_range":
    "first", "last", "time_us", "digest",
);

/// Signed heads.
pub const SEAL_ENTRIES: RecordTable = entry_table!("seal": "size", "note", "vkey", "path");

/// Roots of parts that are sealed.
pub const SUBTREE_ENTRIES: RecordTable = entry_table!("subtree": "part", "hash");

/// Paths of entries that remain where others were removed.
pub const PATH_ENTRIES: RecordTable = entry_table!("leaf_path": "seq", "path");

/// Every table of entries.
pub const ENTRY_TABLES: [&RecordTable; 7] = [
    &DECISION_ENTRIES,
    &ENDING_ENTRIES,
    &EVENT_ENTRIES,
    &LOST_ENTRIES,
    &SEAL_ENTRIES,
    &SUBTREE_ENTRIES,
    &PATH_ENTRIES,
];

/// A dictionary: its name, and its columns with the digest at the end.
#[derive(Debug, Clone, Copy)]
pub struct ValueTable {
    /// Name of the table.
    pub name: &'static str,
    /// Columns.
    pub columns: &'static [&'static str],
}

/// Returns every dictionary of a record.
pub fn value_tables() -> impl Iterator<Item = ValueTable> {
    DICTIONARIES.iter().map(|table| ValueTable {
        name: table.name,
        columns: table.names,
    })
}
