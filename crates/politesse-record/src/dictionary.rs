//! Dictionaries: tables of values that many entries share, each kept once under
//! its SHA-256.
//!
//! An entry refers to a value by the number of its row. Numbers are short, and
//! mean something in one file alone: leaves have the SHA-256 of the value in
//! their place. Does not know which entries refer to a value, nor what it means.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::columns::{place, text_bytes};
use politesse_decision::digest::{CanonicalBytes, Digest};

use ColumnKind::{Integer, OptionalBlob, OptionalInteger, OptionalText, Text};

/// Values that a [`BoundedMap`] remembers, counted in each of its halves.
const HALF_MAX: usize = 16_384;

/// Bytes that they may have.
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

/// A dictionary: `id`, its columns, `sha256`.
#[derive(Debug)]
pub(super) struct DictionaryTable {
    pub(super) name: &'static str,
    /// First byte of a value's encoding; `None` if the digest is that of the text
    /// in the only column.
    kind: Option<u8>,
    columns: &'static [ColumnKind],
    /// Statement that creates the table.
    pub(super) create: &'static str,
    /// Query for rows: the columns, the digest, the number. Conditions are to be
    /// appended.
    pub(super) select: &'static str,
    /// Query for the number of the row with a digest.
    pub(super) find: &'static str,
    /// Statement that inserts the columns and the digest.
    pub(super) insert: &'static str,
}

/// Makes the definition of a column's type.
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

/// Makes a dictionary with its statements, which are used too often to be made
/// each time.
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

/// Addresses of clients, with the name that each has proved by a credential.
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

/// Origins, with the host alone, by which decisions are searched.
pub(super) const ORIGINS: DictionaryTable =
    dictionary!("origin", Some(b'o'), "origin": Text, "host": Text);

/// Rulings but for the reading of a path. The groups are a JSON list, and so are the
/// denials of purposes, which are absent where there are none.
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

/// Sets of directives, with the statements that they follow from (JSON), and the purposes
/// of the crawler that they deny.
pub(super) const DIRECTIVES: DictionaryTable = dictionary!(
    "directives",
    Some(b'd'),
    "value": Text,
    "said": OptionalText,
    "denials": OptionalText
);

/// Methods, and errors that ended an exchange.
pub(super) const TERMS: DictionaryTable = dictionary!("term", Some(b't'), "text": Text);

/// Policies. A policy is known by the SHA-256 of its JSON outside the record, too.
pub(super) const POLICIES: DictionaryTable = dictionary!("policy", None, "json": Text);

/// Snapshots. The hops are a JSON list, and absent where there are none; the answer about
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

/// Every dictionary.
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

/// Row of a dictionary, as entries refer to it.
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

    /// Makes the statement that inserts the columns, the digest and the number.
    pub(super) fn insert_with_id(&self) -> String {
        let names = self.select.trim_start_matches("SELECT ");
        let (names, _) = names.split_once(" FROM ").unwrap_or_default();
        let places = vec!["?"; self.width() + 2].join(", ");
        format!("INSERT INTO {} ({names}) VALUES ({places})", self.name)
    }

    /// Returns how many columns a value has. Behind them stands the digest.
    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Computes the digest of the value in a row of [`DictionaryTable::select`].
    /// `bytes` is room for the encoding.
    pub(super) fn digest(
        &self,
        row: &Row<'_>,
        bytes: &mut CanonicalBytes,
    ) -> rusqlite::Result<Digest> {
        let columns = (0..self.width()).map(|at| row.get_ref(at));
        let values: Vec<_> = columns.collect::<rusqlite::Result<_>>()?;
        Ok(self.digest_of(values, bytes))
    }

    /// Computes the digest of a value by its columns.
    pub(super) fn digest_of<'a>(
        &self,
        values: impl IntoIterator<Item = impl Into<ValueRef<'a>>>,
        bytes: &mut CanonicalBytes,
    ) -> Digest {
        self.encode(values, bytes);
        Digest::of(bytes.as_bytes())
    }

    /// Encodes a value by its columns, in place of what is in `bytes`.
    pub(super) fn encode<'a>(
        &self,
        values: impl IntoIterator<Item = impl Into<ValueRef<'a>>>,
        bytes: &mut CanonicalBytes,
    ) {
        bytes.begin(self.kind.as_slice());
        for (column, value) in self.columns.iter().zip(values) {
            match self.kind {
                Some(_) => column.encode(value.into(), bytes),
                // Answers and logs name a policy by the digest of its JSON, so the record
                // does as well.
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

/// Map that forgets what was not used for the longest time, roughly: it has two
/// halves, and the older one is dropped when the younger one is full.
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
    /// Finds the value of `key`.
    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(found) = self.young.get(key) {
            return Some(found.value.clone());
        }
        // Moved to the younger half: what is in use outlasts the older one.
        let (key, found) = self.old.remove_entry(key)?;
        let value = found.value.clone();
        self.put(key, found);
        Some(value)
    }

    /// Remembers `value`, which takes about `bytes` with its key.
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
    fn a_map_forgets_what_was_not_used_and_keeps_what_was() {
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
