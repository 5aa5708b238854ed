//! Rows of the tables `decision` and `ending`, and the leaf of each.
//!
//! A new column takes one line in [`DecisionRow`] or [`EndingRow`] (the table, the
//! writer's statement, all readers and the lines of a bundle are generated from
//! it), one line in the leaf below it, and one in each place that shows it
//! (docs/decisions/020-thin-record.md).
//!
//! Does not know the values that a row refers to.

use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::{Deserialize, Serialize};

use super::columns::{ColumnReader, TableRow, hex_bytes, read_digest, table};
use super::dictionary::{
    CLIENTS, CRAWLERS, DIRECTIVES, DictionaryTable, ORIGINS, POLICIES, RULINGS, SNAPSHOTS, TERMS,
};
use super::leaf::{DECISION, ENDING, LeafRun};
use super::pages::NumberedTable;
use politesse_decision::digest::{CanonicalBytes, Digest};

/// All decisions with their endings, read by [`DecisionEntry`].
pub(super) const DECISIONS: NumberedTable = NumberedTable {
    name: "decision",
    select: "SELECT d.*, e.* FROM decision AS d LEFT JOIN ending AS e ON e.decision = d.seq",
    key: "seq",
    number: "d.seq",
};

table! {
    /// Decision. References to dictionaries are row ids, or in a bundle numbers of
    /// values.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub(super) struct DecisionRow in "decision" {
        pub(super) seq: i64 = "seq INTEGER PRIMARY KEY",
        pub(super) time_us: i64 = "time_us INTEGER NOT NULL",
        pub(super) client: i64 = "client INTEGER NOT NULL",
        pub(super) crawler: i64 = "crawler INTEGER NOT NULL",
        pub(super) method: i64 = "method INTEGER NOT NULL",
        pub(super) origin: i64 = "origin INTEGER NOT NULL",
        /// Path with its query string.
        pub(super) path: String = "path TEXT NOT NULL",
        pub(super) ruling: i64 = "ruling INTEGER NOT NULL",
        /// Refused reading of the path, if it differs from the path.
        pub(super) reading: Option<String> = "reading TEXT",
        pub(super) wait_ms: i64 = "wait_ms INTEGER NOT NULL",
        pub(super) policy: i64 = "policy INTEGER NOT NULL",
        pub(super) snapshot: Option<i64> = "snapshot INTEGER",
        /// Salt of the commitment to client and URL; in a redacted row, the
        /// commitment itself.
        #[serde(with = "hex_bytes")]
        pub(super) salt: Vec<u8> = "salt BLOB NOT NULL",
        #[serde(skip)]
        pub(super) leaf: Digest = "leaf BLOB NOT NULL",
    }
}

table! {
    /// End of the exchange of a decision.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub(super) struct EndingRow in "ending" {
        #[serde(skip)]
        pub(super) decision: i64 = "decision INTEGER PRIMARY KEY",
        pub(super) seq: i64 = "seq INTEGER NOT NULL",
        pub(super) status: Option<i64> = "status INTEGER",
        pub(super) sent: i64 = "sent INTEGER NOT NULL",
        pub(super) directives: Option<i64> = "directives INTEGER",
        pub(super) bytes: i64 = "bytes INTEGER NOT NULL",
        pub(super) error: Option<i64> = "error INTEGER",
        #[serde(skip)]
        pub(super) leaf: Digest = "leaf BLOB NOT NULL",
    }
}

/// Digests that replace columns in the leaf of a decision.
#[derive(Debug)]
pub(super) struct DecisionDigests {
    /// Commitment to client and URL.
    pub(super) commitment: Digest,
    /// Digest of the values that many decisions share.
    pub(super) context: Digest,
    pub(super) snapshot: Option<Digest>,
}

impl DecisionRow {
    /// Computes the leaf. `bytes` is a buffer for the encoding.
    pub(super) fn leaf_over(
        &self,
        digests: &DecisionDigests,
        bytes: &mut CanonicalBytes,
    ) -> Digest {
        bytes.begin(&[DECISION]);
        // Short integers keep the encoding within two blocks of SHA-256, at most
        // 119 bytes.
        bytes.short_integer(self.seq);
        bytes.short_integer(self.time_us);
        bytes.short_integer(self.wait_ms);
        bytes.digest(digests.commitment);
        bytes.digest(digests.context);
        bytes.optional(digests.snapshot, CanonicalBytes::digest);
        Digest::of(bytes.as_bytes())
    }

    /// Returns the commitment left in a redacted row; `None` if the row is not
    /// redacted.
    pub(super) fn redacted(&self) -> Option<Digest> {
        read_digest(&self.salt)
    }
}

impl EndingRow {
    /// Computes the leaf over `outcome`, the digest of the values that many endings
    /// share. The leaf includes the number of the decision, so that an ending
    /// cannot be moved to another decision.
    pub(super) fn leaf_over(&self, outcome: Digest, bytes: &mut CanonicalBytes) -> Digest {
        bytes.begin(&[ENDING]);
        // Short integers keep the encoding within one block of SHA-256, at most 55
        // bytes.
        bytes.short_integer(self.decision);
        bytes.short_integer(self.seq);
        bytes.short_integer(self.bytes);
        bytes.digest(outcome);
        Digest::of(bytes.as_bytes())
    }
}

/// Decision with its ending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DecisionEntry {
    #[serde(flatten)]
    pub(super) decision: DecisionRow,
    pub(super) ending: Option<EndingRow>,
}

/// Leaves of a decision and of its ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryLeaves {
    pub(super) decision: LeafRun,
    pub(super) ending: Option<LeafRun>,
}

impl DecisionEntry {
    /// Reads a row of [`DECISIONS`].
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let mut columns = ColumnReader::new(row);
        let decision = DecisionRow::read_columns(&mut columns)?;
        // The key of an ending is never null.
        let has_ending = row.get_ref(DecisionRow::WIDTH)? != ValueRef::Null;
        let ending = has_ending.then(|| EndingRow::read_columns(&mut columns));
        Ok(Self {
            decision,
            ending: ending.transpose()?,
        })
    }

    /// Reports whether the columns of `row`, from which this was read, contain
    /// exactly its values.
    pub(super) fn is_exact(&self, row: &Row<'_>) -> bool {
        let mut ending = self.ending.iter();
        self.decision.is_exact(row, 0)
            && ending.all(|ending| ending.is_exact(row, DecisionRow::WIDTH))
    }

    /// Returns the leaves as stored in the rows.
    pub(super) fn leaves(&self) -> EntryLeaves {
        let ending = self.ending.as_ref();
        EntryLeaves {
            decision: LeafRun::of_entry(self.decision.seq, self.decision.leaf),
            ending: ending.map(|ending| LeafRun::of_entry(ending.seq, ending.leaf)),
        }
    }

    /// Returns the references to values, each with its dictionary.
    pub(super) fn references(
        &mut self,
    ) -> impl Iterator<Item = (&mut i64, &'static DictionaryTable)> {
        let (directives, error) = match &mut self.ending {
            Some(ending) => (ending.directives.as_mut(), ending.error.as_mut()),
            None => (None, None),
        };
        let row = &mut self.decision;
        let references = [
            (Some(&mut row.client), &CLIENTS),
            (Some(&mut row.origin), &ORIGINS),
            (Some(&mut row.crawler), &CRAWLERS),
            (Some(&mut row.method), &TERMS),
            (Some(&mut row.ruling), &RULINGS),
            (Some(&mut row.policy), &POLICIES),
            (row.snapshot.as_mut(), &SNAPSHOTS),
            (directives, &DIRECTIVES),
            (error, &TERMS),
        ];
        let present = references.into_iter();
        present.filter_map(|(number, table)| Some((number?, table)))
    }
}
