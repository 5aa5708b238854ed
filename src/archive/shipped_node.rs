//! Node of the archive: how far its record has arrived, and what is known of the archive
//! without asking again.
//!
//! Each connection finds the node anew.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::columns::ColumnTypes;
use super::failure::ArchiveFailure;
use super::month::Month;
use crate::audit::copy_end::{CopiedEntry, CopyEnd};
use crate::audit::entry_window::{CopyPosition, KnownValues, RecordDescription};

/// Dictionary values that are remembered: with more, all are looked up anew.
const KNOWN_MAX: usize = 200_000;

const ADD_NODE: &str = "
INSERT INTO node (id, name, begun_us, before, before_last, digest, last, shipped_at)
VALUES ($1, $2, $3, $4, $5, $6, 0, now())
ON CONFLICT (id) DO NOTHING";

const NAME_NODE: &str = "UPDATE node SET name = $2 WHERE log = $1 AND name <> $2";

/// Newest decision or event of a node.
const NEWEST_ENTRY: &str = "
SELECT seq, leaf FROM (
  (SELECT seq, leaf FROM decision WHERE log = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1)
  UNION ALL
  (SELECT seq, leaf FROM event WHERE log = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1)
) AS newest ORDER BY seq DESC LIMIT 1";

const FIND_NODE: &str = "
SELECT n.log, n.last, (SELECT removals FROM archive),
       coalesce((SELECT max(size) FROM seal AS s WHERE s.log = n.log), 0),
       coalesce((SELECT max(part) FROM subtree AS t WHERE t.log = n.log), -1)
FROM node AS n WHERE n.id = $1";

/// Node of the archive, and how far its record is there.
#[derive(Debug)]
pub(super) struct ShippedNode {
    /// Number of the node.
    pub(super) log: i32,
    /// Position up to which the record has arrived.
    pub(super) position: CopyPosition,
    /// Numbers that dictionary values have in the archive.
    pub(super) known: Arc<KnownValues>,
    /// Count of removals of values: at another one, nothing is known.
    pub(super) removals: i64,
    /// Months whose partitions are there.
    pub(super) months: HashSet<Month>,
    /// Types of the columns.
    pub(super) types: Arc<ColumnTypes>,
}

/// Result of a window that was shipped.
#[derive(Debug)]
pub(super) struct WindowArrival {
    /// Position up to which the record has arrived now.
    pub(super) position: CopyPosition,
    /// Months whose partitions were made.
    pub(super) months: BTreeSet<Month>,
    /// Numbers of the values that came with the window, by dictionary and by number in
    /// the record.
    pub(super) values: BTreeMap<(&'static str, i64), i64>,
    /// Whether something was redacted.
    pub(super) is_redacted: bool,
}

impl ShippedNode {
    /// Finds the node of a record, or adds it under `name`. One that is there keeps its
    /// name until [`ShippedNode::set_name`].
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], as of all functions here.
    pub(super) async fn find(
        client: &Client,
        record: &RecordDescription,
        name: &str,
    ) -> Result<Self, ArchiveFailure> {
        let RecordDescription {
            id,
            begun_us,
            before,
            before_last,
            digest,
        } = record;
        let is_known = client.query_opt(FIND_NODE, &[id]).await?;
        if is_known.is_none() {
            // Only then: each try takes a number of the nodes.
            let values: [&(dyn ToSql + Sync); 6] =
                [id, &name, begun_us, before, before_last, digest];
            client.execute(ADD_NODE, &values).await?;
        }
        let row = client.query_one(FIND_NODE, &[id]).await?;
        Ok(Self {
            log: row.get(0),
            position: CopyPosition {
                last: row.get(1),
                seal: row.get(3),
                part: row.get(4),
            },
            removals: row.get(2),
            known: Arc::default(),
            months: HashSet::new(),
            types: Arc::new(ColumnTypes::read(client).await?),
        })
    }

    /// Reads the end of what has arrived.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub(super) async fn end(&self, client: &Client) -> Result<CopyEnd, ArchiveFailure> {
        let last = self.position.last;
        let newest = client.query_opt(NEWEST_ENTRY, &[&self.log, &last]).await?;
        Ok(CopyEnd {
            last,
            newest: newest.map(|row| CopiedEntry {
                seq: row.get(0),
                leaf: row.get(1),
            }),
        })
    }

    /// Gives the node its name of today.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub(super) async fn set_name(&self, client: &Client, name: &str) -> Result<(), ArchiveFailure> {
        client.execute(NAME_NODE, &[&self.log, &name]).await?;
        Ok(())
    }

    /// Takes note of what has arrived.
    pub(super) fn note_arrival(&mut self, arrival: WindowArrival) {
        self.position = arrival.position;
        self.months.extend(arrival.months);
        let known = Arc::make_mut(&mut self.known);
        if KNOWN_MAX < known.len() || arrival.is_redacted {
            known.clear();
        }
        // With a redaction values may be gone, also of those that came with the window.
        if arrival.is_redacted {
            self.removals += 1;
        } else {
            known.extend(arrival.values);
        }
    }
}
