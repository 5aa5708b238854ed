//! Dictionaries: tables of values that many entries share, each stored once under
//! its SHA-256.
//!
//! An entry refers to a value by the id of its row. Ids are short, but valid in one
//! file only, so leaves contain the SHA-256 of the value instead. Does not know
//! which entries refer to a value, or what the value means.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::columns::{place, text_bytes};
use politesse_decision::digest::{CanonicalBytes, Digest};

use ColumnKind::{Integer, OptionalBlob, OptionalInteger, OptionalText, Text};

/// Maximum number of values in each half of a [`BoundedMap`].
const HALF_MAX: usize = 16_384;

/// Maximum total size of the values in a half.
const HALF_BYTES_MAX: usize = 8 << 20;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Text,
    OptionalText,
    Integer,
    OptionalInteger,
    OptionalBlob,
}

/// Dictionary table: `id`, its columns, `sha256`.
#[derive(Debug)]
pub(super) struct DictionaryTable {
    pub(super) name: &'static str,
    /// First byte of a value's encoding; `None` if the digest is that of the text
    /// in the only column.
    kind: Option<u8>,
    columns: &'static [ColumnKind],
    /// Statement that creates the table.
    pub(super) create: &'static str,
    /// Query for rows: the columns, the digest, the id. Conditions can be appended.
    pub(super) select: &'static str,
    /// Query for the id of the row with a given digest.
    pub(super) find: &'static str,
    /// Statement that inserts the columns and the digest.
    pub(super) insert: &'static str,
}

/// Returns the SQL type of a column.
macro_rules! sql_type {
    (Text) => {
        " TEXT NOT NULL"
    };
    (OptionalText) => {
        " TEXT"
    };
    (Integer) => {
        " INTEGER NOT NULL"
    };
    (OptionalInteger) => {
        " INTEGER"
    };
    (OptionalBlob) => {
        " BLOB"
    };
}

/// Defines a dictionary. Its statements are constants, because they are used too
/// often to be formatted each time.
macro_rules! dictionary {
    ($name:literal, $kind:expr, $($column:literal: $type:ident),+) => {
        DictionaryTable {
            name: $name,
            kind: $kind,
            columns: &[$($type),+],
            create: concat!(
                "CREATE TABLE ", $name, " (\n  id INTEGER PRIMARY KEY AUTOINCREMENT,\n",
                $("  ", $column, sql_type!($type), ",\n",)+
                "  sha256 BLOB NOT NULL UNIQUE\n) STRICT;\n"
            ),
            select: concat!("SELECT ", $($column, ", ",)+ "sha256, id FROM ", $name),
            find: concat!("SELECT id FROM ", $name, " WHERE sha256 = ?"),
            insert: concat!(
                "INSERT INTO ", $name, " (", $($column, ", ",)+ "sha256) VALUES (?",
                $(place!($column),)+ ")"
            ),
        }
    };
}

/// Addresses of clients, with the name that the client has proved with a
/// credential.
pub(super) const CLIENTS: DictionaryTable =
    dictionary!("client", Some(b'c'), "address": Text, "credential": OptionalText);

/// Crawlers: candidate tokens (a JSON list), User-Agent, and the label of the crawl.
pub(super) const CRAWLERS: DictionaryTable = dictionary!(
    "crawler",
    Some(b'a'),
    "candidates": Text,
    "user_agent": OptionalText,
    "label": OptionalText
);

/// Origins, with the host separately, for searches by host.
pub(super) const ORIGINS: DictionaryTable =
    dictionary!("origin", Some(b'o'), "origin": Text, "host": Text);

/// Rulings, without the reading of a path. The groups are a JSON list; the denials
/// of purposes are a JSON list, or null if there are none.
pub(super) const RULINGS: DictionaryTable = dictionary!(
    "ruling",
    Some(b'r'),
    "verdict": Text,
    "reason": Text,
    "effect": Text,
    "line": OptionalInteger,
    "rule": OptionalText,
    "groups": Text,
    "crawler": OptionalText,
    "denials": OptionalText
);

/// Sets of directives, with the statements that they follow from (JSON), and the
/// purposes of the crawler that they deny.
pub(super) const DIRECTIVES: DictionaryTable = dictionary!(
    "directives",
    Some(b'd'),
    "value": Text,
    "said": OptionalText,
    "denials": OptionalText
);

/// Methods, and errors that ended an exchange.
pub(super) const TERMS: DictionaryTable = dictionary!("term", Some(b't'), "text": Text);

/// Policies. The digest is the SHA-256 of the JSON, as it is outside the record.
pub(super) const POLICIES: DictionaryTable = dictionary!("policy", None, "json": Text);

/// Snapshots. The hops are a JSON list, or null if there are none; the answer about
/// the TDM file is a JSON object.
pub(super) const SNAPSHOTS: DictionaryTable = dictionary!(
    "snapshot",
    Some(b's'),
    "origin": Text,
    "token": OptionalText,
    "url": Text,
    "status": OptionalInteger,
    "fetched_us": Integer,
    "expires_us": Integer,
    "result": Text,
    "cause": OptionalText,
    "body": OptionalBlob,
    "hops": OptionalText,
    "charset": OptionalText,
    "tdm": OptionalText
);

/// All dictionaries.
pub(super) const DICTIONARIES: [&DictionaryTable; 8] = [
    &CLIENTS,
    &CRAWLERS,
    &ORIGINS,
    &RULINGS,
    &DIRECTIVES,
    &TERMS,
    &POLICIES,
    &SNAPSHOTS,
];

/// Row of a dictionary that an entry refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DictionaryRef {
    pub(super) id: i64,
    pub(super) sha256: Digest,
}

impl DictionaryTable {
    /// Returns the types of the columns.
    pub(super) fn columns(&self) -> &'static [ColumnKind] {
        self.columns
    }

    /// Returns a statement that inserts the columns, the digest and the id.
    pub(super) fn insert_with_id(&self) -> String {
        let names = self.select.trim_start_matches("SELECT ");
        let (names, _) = names.split_once(" FROM ").unwrap_or_default();
        let places = vec!["?"; self.width() + 2].join(", ");
        format!("INSERT INTO {} ({names}) VALUES ({places})", self.name)
    }

    /// Returns the number of columns of a value. In a row the digest follows them.
    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Computes the digest of the value in a row of [`DictionaryTable::select`].
    /// `bytes` is a buffer for the encoding.
    pub(super) fn digest(
        &self,
        row: &Row<'_>,
        bytes: &mut CanonicalBytes,
    ) -> rusqlite::Result<Digest> {
        let columns = (0..self.width()).map(|at| row.get_ref(at));
        let values: Vec<_> = columns.collect::<rusqlite::Result<_>>()?;
        Ok(self.digest_of(values, bytes))
    }

    /// Computes the digest of a value from its columns.
    pub(super) fn digest_of<'a>(
        &self,
        values: impl IntoIterator<Item = impl Into<ValueRef<'a>>>,
        bytes: &mut CanonicalBytes,
    ) -> Digest {
        self.encode(values, bytes);
        Digest::of(bytes.as_bytes())
    }

    /// Encodes a value from its columns into `bytes`, replacing what is there.
    pub(super) fn encode<'a>(
        &self,
        values: impl IntoIterator<Item = impl Into<ValueRef<'a>>>,
        bytes: &mut CanonicalBytes,
    ) {
        bytes.begin(self.kind.as_slice());
        for (column, value) in self.columns.iter().zip(values) {
            match self.kind {
                Some(_) => column.encode(value.into(), bytes),
                // Answers and logs identify a policy by the digest of its JSON, and
                // so does the record.
                None => bytes.raw(text_bytes(value.into()).unwrap_or_default()),
            }
        }
    }
}

impl ColumnKind {
    fn encode(self, value: ValueRef<'_>, bytes: &mut CanonicalBytes) {
        match self {
            Text => bytes.bytes(text_bytes(value).unwrap_or_default()),
            OptionalText | OptionalBlob => {
                bytes.optional(text_bytes(value), CanonicalBytes::bytes);
            }
            Integer => bytes.integer(value.as_i64().unwrap_or_default()),
            OptionalInteger => {
                let number = value.as_i64_or_null().unwrap_or_default();
                bytes.optional(number, CanonicalBytes::integer);
            }
        }
    }
}

/// Bounded map that forgets entries roughly by least recent use. It has two halves;
/// when the young one is full, the old one is dropped.
#[derive(Debug)]
pub(super) struct BoundedMap<K, V> {
    young: HashMap<K, BoundedEntry<V>>,
    old: HashMap<K, BoundedEntry<V>>,
    young_bytes: usize,
}

#[derive(Debug)]
struct BoundedEntry<V> {
    value: V,
    bytes: usize,
}

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            young_bytes: 0,
        }
    }
}

impl<K: Eq + Hash, V: Clone> BoundedMap<K, V> {
    /// Returns the value of `key`.
    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(found) = self.young.get(key) {
            return Some(found.value.clone());
        }
        // Moved to the young half, so that entries in use survive.
        let (key, found) = self.old.remove_entry(key)?;
        let value = found.value.clone();
        self.put(key, found);
        Some(value)
    }

    /// Adds `value`, which takes about `bytes` including its key.
    pub(super) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.put(key, BoundedEntry { value, bytes });
    }

    fn put(&mut self, key: K, entry: BoundedEntry<V>) {
        if HALF_MAX <= self.young.len() || HALF_BYTES_MAX <= self.young_bytes {
            self.old = mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += entry.bytes;
        self.young.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant 8.
    #[test]
    fn a_map_forgets_unused_entries_and_keeps_used_ones() {
        let mut map = BoundedMap::default();
        map.insert(0, "used", 1);
        map.insert(1, "left", 1);
        for key in 2..4 * HALF_MAX {
            map.insert(key, "other", 1);
            assert_eq!(map.get(&0), Some("used"));
        }
        assert_eq!(map.get(&1), None);
        assert!(map.young.len() + map.old.len() <= 2 * HALF_MAX);
        map.insert(1, "large", HALF_BYTES_MAX);
        map.insert(2, "next", 1);
        assert_eq!((map.young.len(), map.get(&1)), (1, Some("large")));
    }
}
