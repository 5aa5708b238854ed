//! Cache of dictionary values for readers: each is read and checked once, and
//! shared by the records that refer to it.
//!
//! An altered value or a missing row must not prevent a record from being read: the
//! record is shown with the values that are left, and reported as altered.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::columns::{ColumnReader, is_digest};
use super::dictionary::{
    BoundedMap, CLIENTS, CRAWLERS, DIRECTIVES, DictionaryTable, ORIGINS, POLICIES, RULINGS,
    SNAPSHOTS, TERMS,
};
use super::snapshot_row::read_snapshot;
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::record::{
    RecordedSnapshot, Seen, StoredClient, StoredCrawler, StoredDenial, StoredPolicy, StoredRuling,
};

/// Value, and whether its row is unaltered.
#[derive(Debug)]
pub(super) struct DictionaryValue<T: ?Sized> {
    pub(super) value: Arc<T>,
    /// Digest of the value as read, for use in leaves. Differs from the stored
    /// digest if the value was altered.
    pub(super) sha256: Digest,
    /// Whether the stored digest is equal.
    pub(super) is_whole: bool,
}

impl<T: ?Sized> Clone for DictionaryValue<T> {
    fn clone(&self) -> Self {
        Self {
            value: Arc::clone(&self.value),
            ..*self
        }
    }
}

/// Values of one dictionary, by row id.
#[derive(Debug)]
pub(super) struct DictionaryCache<T: ?Sized> {
    table: &'static DictionaryTable,
    /// Query for the row with a given id.
    query: String,
    read: fn(&mut ColumnReader<'_>) -> rusqlite::Result<Arc<T>>,
    values: BoundedMap<i64, DictionaryValue<T>>,
}

impl<T: ?Sized> DictionaryCache<T> {
    fn new(
        table: &'static DictionaryTable,
        read: fn(&mut ColumnReader<'_>) -> rusqlite::Result<Arc<T>>,
    ) -> Self {
        Self {
            table,
            query: format!("{} WHERE id = ?", table.select),
            read,
            values: BoundedMap::default(),
        }
    }

    /// Returns the value in row `id`; `None` if there is no such row.
    pub(super) fn get(
        &mut self,
        connection: &Connection,
        id: i64,
    ) -> rusqlite::Result<Option<DictionaryValue<T>>> {
        match self.values.get(&id) {
            Some(found) => Ok(Some(found)),
            None => self.read_row(connection, id),
        }
    }

    fn read_row(
        &mut self,
        connection: &Connection,
        id: i64,
    ) -> rusqlite::Result<Option<DictionaryValue<T>>> {
        let mut bytes = CanonicalBytes::default();
        let found = connection
            .prepare_cached(&self.query)?
            .query_row([id], |row| {
                let sha256 = self.table.digest(row, &mut bytes)?;
                Ok(DictionaryValue {
                    is_whole: is_digest(row.get_ref(self.table.width())?, sha256),
                    value: (self.read)(&mut ColumnReader::new(row))?,
                    sha256,
                })
            })
            .optional()?;
        if let Some(found) = &found {
            // The size of the encoding approximates that of the value.
            let size = bytes.as_bytes().len();
            self.values.insert(id, found.clone(), size);
        }
        Ok(found)
    }
}

/// Values of all dictionaries.
#[derive(Debug)]
pub(super) struct DictionaryValues {
    pub(super) clients: DictionaryCache<StoredClient>,
    pub(super) crawlers: DictionaryCache<StoredCrawler>,
    pub(super) origins: DictionaryCache<str>,
    pub(super) rulings: DictionaryCache<StoredRuling>,
    pub(super) directives: DictionaryCache<Seen>,
    /// Methods and errors.
    pub(super) terms: DictionaryCache<str>,
    pub(super) policies: DictionaryCache<StoredPolicy>,
    pub(super) snapshots: DictionaryCache<RecordedSnapshot>,
}

impl Default for DictionaryValues {
    fn default() -> Self {
        let first_text = |columns: &mut ColumnReader<'_>| Ok(columns.field::<String>()?.into());
        Self {
            clients: DictionaryCache::new(&CLIENTS, |columns| {
                Ok(Arc::new(StoredClient {
                    address: columns.field()?,
                    credential: columns.field()?,
                }))
            }),
            crawlers: DictionaryCache::new(&CRAWLERS, |columns| {
                let names = columns.list()?;
                let crawler = StoredCrawler::new(names, columns.field()?);
                let label = columns.field()?;
                Ok(Arc::new(StoredCrawler { label, ..crawler }))
            }),
            origins: DictionaryCache::new(&ORIGINS, first_text),
            rulings: DictionaryCache::new(&RULINGS, |columns| read_ruling(columns).map(Arc::new)),
            directives: DictionaryCache::new(&DIRECTIVES, |columns| {
                Ok(Arc::new(Seen {
                    directives: columns.field()?,
                    said: columns.field()?,
                    denials: read_denials(columns)?,
                }))
            }),
            terms: DictionaryCache::new(&TERMS, first_text),
            policies: DictionaryCache::new(&POLICIES, |columns| {
                Ok(Arc::new(StoredPolicy::new(&columns.field::<String>()?)))
            }),
            snapshots: DictionaryCache::new(&SNAPSHOTS, |columns| {
                read_snapshot(columns).map(Arc::new)
            }),
        }
    }
}

fn read_ruling(columns: &mut ColumnReader<'_>) -> rusqlite::Result<StoredRuling> {
    Ok(StoredRuling {
        verdict: columns.field()?,
        reason: columns.field()?,
        effect: columns.field()?,
        line: columns.field()?,
        rule: columns.field()?,
        group: columns.list()?,
        crawler: columns.field()?,
        denials: read_denials(columns)?,
    })
}

/// Reads the denials of purposes. Text that is not a list of denials becomes a
/// single denial with that text, which no decision has.
fn read_denials(columns: &mut ColumnReader<'_>) -> rusqlite::Result<Vec<StoredDenial>> {
    let text: Option<String> = columns.field()?;
    let parse = |text: String| {
        serde_json::from_str(&text).unwrap_or_else(|_| {
            vec![StoredDenial {
                statement: text,
                ..StoredDenial::default()
            }]
        })
    };
    Ok(text.map(parse).unwrap_or_default())
}
