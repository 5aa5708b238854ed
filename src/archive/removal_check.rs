//! Check of removals: which entries of a node are gone, by whose order, and whether the
//! rows that say so are as they were signed.
//!
//! That the newest of them fits the entries and heads that are left is found by verifying
//! the record (`audit::seal_check`). Does not know the entries.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::failure::ArchiveFailure;
use super::nodes::ArchiveNode;
use super::reader::NodeRecordsReader;
use crate::audit::head::key_name;
use crate::audit::note::{NoteKey, SignedNote};
use crate::audit::pruned::RemovalStatement;
use crate::audit::seal_check::SealEvidence;
use crate::decision::digest::Digest;

/// Keys of the newest heads of all nodes.
const KEYS: &str = "SELECT DISTINCT ON (log) log, vkey FROM seal ORDER BY log, size DESC";

const REMOVALS: &str = "
SELECT last, time_us, note, vkey FROM removal WHERE log = $1 ORDER BY last";

/// Key of a node of the archive.
#[derive(Debug, Clone)]
pub struct NodeSealKey {
    /// Name of the node.
    pub node: Arc<str>,
    /// The key, by which its newest head is signed.
    pub key: NoteKey,
}

/// Removal of entries of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedRange {
    /// Lowest number that was removed.
    pub first: i64,
    /// Highest number that was removed.
    pub last: i64,
    /// Time of the removal.
    pub time: Timestamp,
    /// Node whose key has signed it; its key, if that is of none.
    pub signer: String,
}

/// Removals of a node.
#[derive(Debug, Default)]
pub struct RemovalCheck {
    /// All of them, in order.
    pub ranges: Vec<RemovedRange>,
    /// Findings, a sentence each.
    pub findings: Vec<String>,
}

impl NodeRecordsReader {
    /// Reads the keys by which nodes sign.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], as of all functions here.
    pub async fn seal_keys(&self) -> Result<Vec<NodeSealKey>, ArchiveFailure> {
        let nodes = self.nodes_by_number().await?;
        let rows = self.session.query(KEYS, &[]).await?;
        let key = |row: &Row| {
            let node = nodes.get(&row.get(0))?;
            let key: NoteKey = row.get::<_, String>(1).parse().ok()?;
            (key.name() == key_name(&node.record)).then(|| NodeSealKey {
                node: Arc::clone(&node.label),
                key,
            })
        };
        Ok(rows.iter().filter_map(key).collect())
    }

    /// Checks the removals of a node, which the keys of nodes, or those of `evidence`,
    /// have signed.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn check_removals(
        &self,
        node: &ArchiveNode,
        keys: &[NodeSealKey],
        evidence: &SealEvidence,
    ) -> Result<RemovalCheck, ArchiveFailure> {
        let mut check = RemovalCheck::default();
        let record = key_name(&node.record);
        let mut previous = None;
        for row in self.session.query(REMOVALS, &[&node.log]).await? {
            let removal = StoredRemoval::read(&row);
            let signer = removal.key.as_ref().and_then(|key| {
                let known = keys.iter().find(|known| known.key == *key)?;
                Some(known.node.to_string())
            });
            let first = check.ranges.last().map_or(1, |before| before.last + 1);
            let is_known = |key: &NoteKey| evidence.may_remove(&record, key);
            if let Some(fault) = removal.fault(&record, previous, is_known) {
                let last = removal.last;
                check.findings.push(format!(
                    "the row of the table removal about entries {first} to {last} {fault}"
                ));
            }
            // Of the note as it stands: a fault is told of one row, not of all behind it.
            previous = Some(Digest::of(removal.note.as_bytes()));
            check.ranges.push(RemovedRange {
                first,
                last: removal.last,
                time: Timestamp::from_microsecond(removal.time_us).unwrap_or_default(),
                signer: signer.unwrap_or(removal.vkey),
            });
        }
        Ok(check)
    }
}

/// Row about a removal.
struct StoredRemoval {
    last: i64,
    time_us: i64,
    note: String,
    vkey: String,
    key: Option<NoteKey>,
}

impl StoredRemoval {
    fn read(row: &Row) -> Self {
        let vkey: String = row.get(3);
        Self {
            last: row.get(0),
            time_us: row.get(1),
            note: row.get(2),
            key: vkey.parse().ok(),
            vkey,
        }
    }

    /// Returns what is wrong with the row, if anything is.
    fn fault(
        &self,
        record: &str,
        previous: Option<Digest>,
        is_known: impl FnOnce(&NoteKey) -> bool,
    ) -> Option<&'static str> {
        let (Some(key), Ok(note)) = (&self.key, self.note.parse::<SignedNote>()) else {
            return Some("is damaged");
        };
        let Ok(statement) = note.text().parse::<RemovalStatement>() else {
            return Some("is damaged");
        };
        // The key beside the note may be anybody's.
        if note.verify(key).is_err() || !is_known(key) {
            return Some("is not signed by the key of a node, or by one of --key");
        }
        let is_same = statement.record == record
            && i64::try_from(statement.tree.size) == Ok(self.last)
            && statement.time.as_microsecond() == self.time_us;
        if !is_same {
            return Some("is not as it was signed");
        }
        // On a node there is one note, which names none before it.
        let is_of_node = key.name() == record && statement.previous.is_none();
        let is_chained = statement.previous == previous || is_of_node;
        (!is_chained).then_some("is not chained to the one before it")
    }
}
