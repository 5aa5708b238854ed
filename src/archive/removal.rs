//! Removal of months, worked out: up to which number the entries of each node go, and
//! the proofs that stay.
//!
//! Entries go as on a node (`audit::pruned`): by whole parts that are sealed, but for
//! decisions that ended later. So what is left is verified as a record is from which old
//! entries were removed. All that goes is held to the sealed root of its part first: no
//! removal hides that something was changed or missing. Does not know how months are
//! taken away ([`drop`](super::month_drop)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_postgres::Row;

use super::failure::ArchiveFailure;
use super::month::Month;
use super::nodes::ArchiveNode;
use super::reader::NodeRecordsReader;
use crate::audit::head::key_name;
use crate::audit::merkle::{CompactRange, Subtree, TreeHead};
use crate::audit::note::NoteSigner;
use crate::audit::parts::{PART_LEVEL, numbers_of, part_of};
use crate::audit::pruned::{RemovalStatement, remaining_numbers_digest};
use crate::audit::removal_proof::{RemovedPart, StoredPath};
use crate::audit::tree_rows::PartLeaves;
use crate::audit::{read_digest, redacted_numbers};
use crate::clock;
use crate::decision::digest::Digest;

const MONTHS: &str = "
SELECT substr(c.relname, length('decision_') + 1) FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'decision'::regclass AND starts_with(c.relname, 'decision_')";

/// First number of a node that stays: by its decisions, by its events, and the part behind
/// the last that is sealed; and the last that is gone already.
const BOUNDS: &str = "
SELECT (SELECT min(seq) FROM decision WHERE log = $1 AND $2 <= time_us),
       (SELECT min(seq) FROM event WHERE log = $1 AND $2 <= time_us),
       coalesce((SELECT max(part) + 1 FROM subtree WHERE log = $1), 0),
       coalesce((SELECT max(last) FROM removal WHERE log = $1), 0)";

/// Decisions of earlier processes, which end no more, are up to this number.
const BEGUN_AFTER: &str = "
SELECT coalesce(max(seq), 0) FROM event WHERE log = $1 AND host = '' AND kind = 'started'";

/// Decisions that remained when those before them went, with their endings.
const REMAINED: &str = "
SELECT d.seq, e.seq, e.leaf FROM decision AS d
LEFT JOIN ending AS e ON e.log = d.log AND e.decision = d.seq AND e.time_us = d.time_us
WHERE d.log = $1 AND d.seq <= $2";

const DECISIONS: &str = "
SELECT seq, leaf FROM decision WHERE log = $1 AND $2 <= seq AND seq < $3";

const ENDINGS: &str = "
SELECT seq, leaf, decision FROM ending WHERE log = $1 AND $2 <= decision AND decision < $3";

const EVENTS: &str = "
SELECT seq, leaf, CASE WHEN host = '' AND kind = 'redacted' THEN detail END FROM event
WHERE log = $1 AND $2 <= seq AND seq < $3";

const LOST: &str = "
SELECT first, last, digest FROM lost_range WHERE log = $1 AND $2 <= last AND first < $3";

const HEADS: &str = "SELECT size FROM seal WHERE log = $1 AND $2 <= size AND size < $3";

const ROOTS: &str = "SELECT hash FROM subtree WHERE log = $1 AND part <= $2 ORDER BY part";

const NEWEST_NOTE: &str = "
SELECT note FROM removal WHERE log = $1 ORDER BY last DESC LIMIT 1";

/// Entries of a node that may go.
#[derive(Debug, Clone)]
pub struct RemovableEntries {
    /// The node.
    pub node: ArchiveNode,
    /// Lowest number that goes.
    pub first: i64,
    /// Highest number that goes; below the lowest if none does.
    pub last: i64,
}

impl RemovableEntries {
    /// Reports whether nothing goes.
    pub fn is_empty(&self) -> bool {
        self.last < self.first
    }
}

/// Removal of entries of a node, with what stays to prove the others.
#[derive(Debug)]
pub struct NodeRemoval {
    /// The entries.
    pub end: RemovableEntries,
    /// Time of the removal, in microseconds since 1970.
    pub(super) time_us: i64,
    /// Numbers up to the last that remain.
    pub(super) remaining: Vec<i64>,
    /// Paths of those that remain from now on.
    pub(super) entries: Vec<StoredPath>,
    /// Paths of the heads up to the last number.
    pub(super) heads: Vec<StoredPath>,
    /// Signed statement about the removal.
    pub(super) note: String,
}

impl NodeRecordsReader {
    /// Finds the months whose entries the archive has, in their order.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], as of all functions here.
    pub async fn months(&self) -> Result<BTreeSet<Month>, ArchiveFailure> {
        let rows = self.session.query(MONTHS, &[]).await?;
        let names = rows.iter().map(|row| row.get::<_, String>(0));
        Ok(names.filter_map(|name| Month::named(&name)).collect())
    }

    /// Finds up to which number the entries of each node go if all months up to `month`
    /// do.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn ends_of(&self, month: Month) -> Result<Vec<RemovableEntries>, ArchiveFailure> {
        let mut ends = Vec::new();
        for node in self.nodes().await? {
            let until_us = month.end_us();
            let bounds: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&node.log, &until_us];
            let rows = self.session.query(BOUNDS, &bounds).await?;
            let Some(row) = rows.first() else {
                continue;
            };
            // Behind it nothing is proved yet, nor need the part be over.
            let sealed: i64 = row.get(2);
            let stays = [row.get::<_, Option<i64>>(0), row.get(1)]
                .into_iter()
                .flatten();
            let part = stays.map(part_of).chain([sealed]).min().unwrap_or_default();
            let gone: i64 = row.get(3);
            ends.push(RemovableEntries {
                node,
                first: gone + 1,
                last: gone.max(numbers_of(part).start - 1),
            });
        }
        Ok(ends)
    }

    /// Makes the proofs of a removal, signed by `signer`.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure::Unproved`] if what is to go is not as it was sealed.
    pub async fn removal(
        &self,
        end: &RemovableEntries,
        signer: &NoteSigner,
    ) -> Result<NodeRemoval, ArchiveFailure> {
        let mut work = RemovalWork::begin(self, end).await?;
        for part in part_of(end.first)..=part_of(end.last) {
            work.add_part(part).await?;
        }
        let remaining = work.remaining();
        // Paths were made of all events that may remain: which do is known at the end.
        let is_new = |path: &StoredPath| remaining.binary_search(&path.number).is_ok();
        work.entries.retain(is_new);
        let before = self.session.query(NEWEST_NOTE, &[&end.node.log]).await?;
        let previous = before.first().map(|row| row.get::<_, String>(0));
        let time = clock::now();
        let statement = RemovalStatement {
            record: key_name(&end.node.record),
            tree: work.tree()?,
            time,
            previous: previous.map(|note| Digest::of(note.as_bytes())),
            remaining: remaining_numbers_digest(&remaining),
        };
        Ok(NodeRemoval {
            end: end.clone(),
            time_us: time.as_microsecond(),
            remaining,
            entries: work.entries,
            heads: work.heads,
            note: signer.sign(&statement.text()).to_string(),
        })
    }
}

/// Removal whose parts are looked at, one after the other.
struct RemovalWork<'a> {
    reader: &'a NodeRecordsReader,
    end: &'a RemovableEntries,
    /// Highest number of processes that have ended.
    begun_after: i64,
    /// Roots of all parts up to the last.
    roots: Vec<Digest>,
    /// Leaves of endings behind the part, of decisions before.
    ahead: BTreeMap<i64, Digest>,
    /// Decisions that remain.
    decisions: BTreeSet<i64>,
    /// Numbers that events say were redacted, by the number of the event.
    redacted: BTreeMap<i64, Vec<[i64; 2]>>,
    /// Paths of decisions that remain, and of events that may.
    entries: Vec<StoredPath>,
    heads: Vec<StoredPath>,
}

impl<'a> RemovalWork<'a> {
    async fn begin(
        reader: &'a NodeRecordsReader,
        end: &'a RemovableEntries,
    ) -> Result<Self, ArchiveFailure> {
        let log = end.node.log;
        let begun = reader.session.query(BEGUN_AFTER, &[&log]).await?;
        let last_part = part_of(end.last);
        let roots = reader.session.query(ROOTS, &[&log, &last_part]).await?;
        let mut work = Self {
            reader,
            end,
            begun_after: begun.first().map_or(0, |row| row.get(0)),
            roots: roots.iter().filter_map(|row| digest(row, 0)).collect(),
            ahead: BTreeMap::new(),
            decisions: BTreeSet::new(),
            redacted: BTreeMap::new(),
            entries: Vec::new(),
            heads: Vec::new(),
        };
        // Those that have ended since go now.
        let before = end.first - 1;
        for row in reader.session.query(REMAINED, &[&log, &before]).await? {
            let ending: Option<i64> = row.get(1);
            work.add_decision(row.get(0), ending);
            if let (Some(number), Some(leaf)) = (ending, digest(&row, 2)) {
                work.ahead.insert(number, leaf);
            }
        }
        // Of events before, those alone are left that have a path.
        let bounds: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&log, &0_i64, &end.first];
        work.add_events(&reader.session.query(EVENTS, &bounds).await?);
        Ok(work)
    }

    fn add_decision(&mut self, number: i64, ending: Option<i64>) {
        let remains = match ending {
            Some(ending) => self.end.last < ending,
            None => self.begun_after < number,
        };
        if remains {
            self.decisions.insert(number);
        }
    }

    fn add_events(&mut self, rows: &[Row]) {
        for row in rows {
            let detail: Option<String> = row.get(2);
            let ranges = detail.map(|detail| redacted_numbers(&detail));
            self.redacted
                .extend(ranges.map(|ranges| (row.get(0), ranges)));
        }
    }

    /// Takes in a part, and makes the proofs of what is in it.
    async fn add_part(&mut self, part: i64) -> Result<(), ArchiveFailure> {
        let numbers = numbers_of(part);
        let session = &self.reader.session;
        let bounds: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&self.end.node.log, &numbers.start, &numbers.end];
        let decisions = session.query(DECISIONS, &bounds).await?;
        let endings = session.query(ENDINGS, &bounds).await?;
        let events = session.query(EVENTS, &bounds).await?;
        let lost = session.query(LOST, &bounds).await?;
        let heads = session.query(HEADS, &bounds).await?;
        let mut leaves = PartLeaves::unknown(part);
        for row in decisions.iter().chain(&events) {
            leaves.set(row.get(0), digest(row, 1));
        }
        let ended: BTreeMap<i64, i64> =
            endings.iter().map(|row| (row.get(2), row.get(0))).collect();
        let leaf_of = |row: &Row| Some((row.get(0), digest(row, 1)?));
        self.ahead.extend(endings.iter().filter_map(leaf_of));
        // Those behind the part belong to a later one, or remain with their decision.
        let behind = self.ahead.split_off(&numbers.end);
        for (number, leaf) in std::mem::replace(&mut self.ahead, behind) {
            leaves.set(number, Some(leaf));
        }
        let mut lost_numbers = BTreeSet::new();
        // Last: what had arrived before it was lost is none of the record any more.
        for row in &lost {
            let (first, last): (i64, i64) = (row.get(0), row.get(1));
            let own = first.max(numbers.start)..numbers.end.min(last.saturating_add(1));
            for number in own {
                leaves.set(number, digest(row, 2));
                lost_numbers.insert(number);
            }
        }
        for row in &decisions {
            let number: i64 = row.get(0);
            if lost_numbers.contains(&number) {
                continue;
            }
            self.add_decision(number, ended.get(&number).copied());
        }
        self.add_events(&events);
        let remaining = self.decisions.range(numbers.clone());
        let removed = RemovedPart {
            part,
            leaves,
            heads: heads.iter().map(|row| row.get(0)).collect(),
            entries: remaining
                .chain(self.redacted.range(numbers).map(|(number, _)| number))
                .copied()
                .collect(),
        };
        self.prove(&removed)
    }

    fn prove(&mut self, removed: &RemovedPart) -> Result<(), ArchiveFailure> {
        let place = usize::try_from(removed.part).ok();
        let root = place.and_then(|part| self.roots.get(part).copied());
        // What was changed or is missing must stay: with it the finding would go.
        let sealed = removed.proofs().filter(|proofs| Some(proofs.root) == root);
        let proofs = sealed.ok_or_else(|| self.unproved(removed.part))?;
        self.entries.extend(proofs.entries);
        self.heads.extend(proofs.heads);
        Ok(())
    }

    fn unproved(&self, part: i64) -> ArchiveFailure {
        let numbers = numbers_of(part);
        ArchiveFailure::Unproved {
            node: Arc::clone(&self.end.node.label),
            first: numbers.start,
            last: numbers.end - 1,
        }
    }

    /// Finds the numbers that remain: decisions, and the events by which any of these was
    /// redacted.
    fn remaining(&self) -> Vec<i64> {
        let is_of_one = |ranges: &&Vec<[i64; 2]>| {
            ranges.iter().any(|[first, last]| {
                first <= last && self.decisions.range(first..=last).next().is_some()
            })
        };
        let events = self.redacted.iter().filter(|(_, ranges)| is_of_one(ranges));
        let mut all = self.decisions.clone();
        all.extend(events.map(|(number, _)| *number));
        all.into_iter().collect()
    }

    /// Computes the root over all numbers up to the last.
    fn tree(&self) -> Result<TreeHead, ArchiveFailure> {
        let mut range = CompactRange::default();
        for root in &self.roots {
            range.push_subtree(Subtree {
                level: PART_LEVEL,
                root: *root,
            });
        }
        let tree = TreeHead {
            size: range.size(),
            root: range.root(),
        };
        match i64::try_from(tree.size) == Ok(self.end.last) {
            true => Ok(tree),
            // A part without its root: the parts behind it are not where they were.
            false => Err(self.unproved(part_of(self.end.last))),
        }
    }
}

/// Reads a digest; `None` if there is none, or it is none.
fn digest(row: &Row, column: usize) -> Option<Digest> {
    row.get::<_, Option<&[u8]>>(column).and_then(read_digest)
}
