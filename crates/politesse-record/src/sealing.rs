//! Sealing: the tree over all that is committed, and its signed heads.
//!
//! The leaves of a commit enter the tree after it, when whoever waited for the
//! commit has its answer. A head is due after so many entries, so long after the
//! first entry that none covers, and at a clean stop. With it are written the roots
//! of the parts that are over (`subtree`), from which a start makes the tree again.
//!
//! A record that misses an entry, or in which the last head does not hold, is not
//! sealed any further: a head would vouch for what is not there.
//!
//! Does not know how transactions are made, nor where heads are sent.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;
use thiserror::Error;
use tokio::time::Instant;

use super::columns::{TableRow as _, count, signed};
use super::head::RecordHead;
use super::leaf::LeafRun;
use super::merkle::TreeHead;
use super::note::NoteSigner;
use super::part_tree::{PartRoot, SequenceTree};
use super::parts::{numbers_of, part_of};
use super::pruned::{PrunedSeal, RemovalStatement};
use super::record_id::{LostHeads, MarkedHead};
use super::tree_rows::{StoredSeal, TreeReader};
use politesse_base::clock;
use politesse_decision::digest::Digest;
use politesse_robots::origin::Target;

/// Time after which a head that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Heads of the record: by which key, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealOptions {
    /// File of the key (`audit.seal_key`); `None` for the one in the folder of the
    /// record.
    pub key: Option<PathBuf>,
    /// Entries after which a head is made (`audit.seal_entries`).
    pub entries: NonZeroUsize,
    /// Time after which an entry is covered by a head (`audit.seal_interval`).
    pub interval: Duration,
    /// Where heads are exported to (`audit.seal_to`).
    pub to: Vec<SealTarget>,
}

/// Target of an export of heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealTarget {
    /// Heads are appended to this file.
    File(PathBuf),
    /// A shell runs this command with a head on its standard input.
    Command(String),
    /// A head is posted to this URL.
    Url(Target),
}

impl SealTarget {
    /// Returns the word for what it is.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Command(_) => "command",
            Self::Url(_) => "URL",
        }
    }
}

impl Default for SealOptions {
    fn default() -> Self {
        Self {
            key: None,
            entries: NonZeroUsize::MIN.saturating_add(65_535),
            interval: Duration::from_secs(10 * 60),
            to: Vec::new(),
        }
    }
}

/// Reason why a record is not sealed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum SealFault {
    #[error("entry {0} is gone")]
    Missing(i64),
    #[error("the entries are not those of the newest head, of {0} entries")]
    Changed(u64),
    #[error("the newest head is damaged")]
    Damaged,
    #[error("numbers were written out of order")]
    Order,
    #[error("its newest head was of {} entries, and the newest that is left is of {}", .0.known, .0.found)]
    LostHeads(LostHeads),
}

impl SealFault {
    /// Returns the commands that say more, and that end the fault.
    fn way_out(self) -> &'static str {
        match self {
            Self::LostHeads(_) => {
                "heads were removed: `politesse audit verify --head` tells with an exported one \
                 what else was changed; `politesse serve --accept-lost-heads` seals what is there, \
                 on record"
            }
            Self::Missing(_) | Self::Changed(_) | Self::Damaged | Self::Order => {
                "`politesse audit verify` tells what is missing or was changed; `politesse serve \
                 --new-record` begins one that is sealed"
            }
        }
    }
}

/// Newest head of the record.
#[derive(Debug, Clone, Copy, Default)]
struct NewestHead {
    /// Number of entries; 0 before the first head.
    size: u64,
    /// SHA-256 of the note.
    note: Option<Digest>,
    /// Root of the tree; meaningless before the first head.
    root: Option<Digest>,
}

impl NewestHead {
    fn read(rows: TreeReader<'_>) -> rusqlite::Result<Result<Self, SealFault>> {
        let Some(row) = rows.newest_seal()? else {
            return Ok(Ok(Self::default()));
        };
        let newest = |head: RecordHead| Self {
            size: head.tree.size,
            note: Some(Digest::of(row.note.as_bytes())),
            root: Some(head.tree.root),
        };
        Ok(row.head().map(newest).ok_or(SealFault::Damaged))
    }
}

/// A head that is to be written, with the roots of parts that are over.
#[derive(Debug)]
pub(super) struct NewSeal {
    parts: Vec<PartRoot>,
    row: StoredSeal,
    head: TreeHead,
}

impl NewSeal {
    /// Writes the rows.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        for part in &self.parts {
            part.insert(connection)?;
        }
        self.row.insert(connection)
    }

    /// Returns the head as the marker names it.
    pub(super) fn mark(&self) -> MarkedHead {
        MarkedHead::from(&self.row)
    }

    /// Returns the note.
    pub(super) fn note(&self) -> &str {
        &self.row.note
    }
}

/// Tree over the record that is open for writing.
#[derive(Debug)]
pub(super) struct Sealer {
    signer: NoteSigner,
    options: SealOptions,
    /// Tree over all that was committed; why there is none.
    tree: Result<SequenceTree, SealFault>,
    /// That reason, for those who ask whether the record is sealed.
    fault: Arc<OnceLock<SealFault>>,
    /// Leaves that were committed and are not in the tree yet.
    fresh: Vec<LeafRun>,
    /// Parts that are over and not in the table yet.
    parts: Vec<PartRoot>,
    newest: NewestHead,
    /// Time at which the first entry came that no head covers.
    unsealed_since: Option<Instant>,
    /// Time before which a head that could not be written is not tried again.
    retry_at: Option<Instant>,
}

impl Sealer {
    /// Makes the tree over the record in `connection`, which has the numbers up to
    /// `last`. Heads are signed by `signer`.
    pub(super) fn new(
        connection: &Connection,
        last: i64,
        signer: NoteSigner,
        options: SealOptions,
    ) -> rusqlite::Result<Self> {
        let mut sealer = Self {
            signer,
            options,
            tree: Ok(SequenceTree::default()),
            fault: Arc::default(),
            fresh: Vec::new(),
            parts: Vec::new(),
            newest: NewestHead::default(),
            unsealed_since: None,
            retry_at: None,
        };
        match NewestHead::read(TreeReader::new(connection))? {
            Ok(newest) => sealer.newest = newest,
            Err(fault) => sealer.give_up(fault),
        }
        if sealer.tree.is_ok() {
            match sealer.rebuilt(TreeReader::new(connection), last)? {
                Ok(tree) => sealer.take_tree(tree),
                Err(fault) => sealer.give_up(fault),
            }
        }
        Ok(sealer)
    }

    /// Makes the tree over the numbers up to `last` from what the file has.
    fn rebuilt(
        &mut self,
        rows: TreeReader<'_>,
        last: i64,
    ) -> rusqlite::Result<Result<SequenceTree, SealFault>> {
        let newest = self.newest;
        let sealed = signed(newest.size);
        let holds = |tree: &SequenceTree| {
            tree.size() != newest.size || newest.root.is_none_or(|root| root == tree.root())
        };
        let mut tree = SequenceTree::default();
        for part in 0..=part_of(last) {
            let numbers = numbers_of(part);
            if numbers.end - 1 <= sealed
                && let Some(root) = rows.subtree(part)?
            {
                // A start reads a root for each part, and leaves of the last one alone.
                tree.push_part(root);
                if !holds(&tree) {
                    return Ok(Err(SealFault::Changed(newest.size)));
                }
                continue;
            }
            let leaves = rows.part(part)?;
            for number in numbers.start..numbers.end.min(last.saturating_add(1)) {
                let Some(leaf) = leaves.get(number) else {
                    return Ok(Err(SealFault::Missing(number)));
                };
                tree.push(leaf, 1, |part| self.parts.push(part));
                if !holds(&tree) {
                    return Ok(Err(SealFault::Changed(newest.size)));
                }
            }
        }
        // A head covers what is not there: rows were taken off the end.
        let is_cut = tree.size() < newest.size;
        Ok(if is_cut {
            Err(SealFault::Missing(last.saturating_add(1)))
        } else {
            Ok(tree)
        })
    }

    fn take_tree(&mut self, tree: SequenceTree) {
        // What an earlier process has left is covered as soon as what comes next.
        if self.newest.size < tree.size() {
            self.unsealed_since = Some(clock::instant());
        }
        self.tree = Ok(tree);
    }

    /// Returns where the reason appears for which the record is not sealed any further.
    pub(super) fn fault(&self) -> Arc<OnceLock<SealFault>> {
        Arc::clone(&self.fault)
    }

    /// Seals nothing any more.
    pub(super) fn give_up(&mut self, fault: SealFault) {
        tracing::error!(
            %fault,
            "the record is not sealed any further: {}",
            fault.way_out()
        );
        // The first one is the cause.
        let _ = self.fault.set(fault);
        self.tree = Err(fault);
        self.unsealed_since = None;
        // No roots without a head: they would not be covered by one.
        self.parts.clear();
    }

    /// Takes in the leaves of a commit. They enter the tree by [`Sealer::grow`].
    pub(super) fn note_committed(&mut self, leaves: &mut Vec<LeafRun>) {
        self.fresh.append(leaves);
    }

    /// Puts into the tree what was committed. To be called when nobody waits.
    pub(super) fn grow(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        // Numbers that were lost are written before those that were given earlier, but
        // a commit always goes on where the one before has ended.
        self.fresh.sort_unstable();
        let Ok(tree) = &mut self.tree else {
            self.fresh.clear();
            return;
        };
        let parts = &mut self.parts;
        let mut is_in_order = true;
        for run in self.fresh.drain(..) {
            is_in_order &= run.first == signed(tree.size()) + 1;
            tree.push(run.leaf, count(run.last - run.first + 1), |part| {
                parts.push(part);
            });
        }
        if !is_in_order {
            return self.give_up(SealFault::Order);
        }
        self.unsealed_since.get_or_insert_with(clock::instant);
    }

    /// Returns how many entries the newest head covers.
    pub(super) fn sealed(&self) -> u64 {
        self.newest.size
    }

    /// Returns how many entries of the tree no head covers.
    fn unsealed(&self) -> u64 {
        let size = self.tree.as_ref().map_or(0, SequenceTree::size);
        size.saturating_sub(self.newest.size)
    }

    /// Returns the time until a head is due; `None` if none will be.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let now = clock::instant();
        let since = self.unsealed_since?;
        let due = match self.unsealed() < self.options.entries.get() as u64 {
            true => since + self.options.interval,
            false => now,
        };
        // A disk that is full is not tried at each batch.
        let at = self.retry_at.map_or(due, |retry_at| due.max(retry_at));
        Some(at.saturating_duration_since(now))
    }

    /// Makes a head of all that is in the tree, at `now`; `None` if one covers it
    /// already.
    pub(super) fn make(&mut self, now: Timestamp) -> Option<NewSeal> {
        self.grow();
        let tree = self.tree.as_ref().ok()?;
        if tree.size() <= self.newest.size {
            return None;
        }
        let head = RecordHead {
            origin: self.signer.key().name().to_owned(),
            tree: TreeHead {
                size: tree.size(),
                root: tree.root(),
            },
            time: now,
            previous: self.newest.note,
        };
        let note = self.signer.sign(&head.text());
        Some(NewSeal {
            parts: std::mem::take(&mut self.parts),
            row: StoredSeal {
                size: signed(head.tree.size),
                note: note.to_string(),
                vkey: self.signer.key().to_string(),
                path: None,
            },
            head: head.tree,
        })
    }

    /// Signs at `now` that the entries which `tree` is over were removed, but for those
    /// with the digest `remaining`.
    pub(super) fn sign_pruned(
        &self,
        tree: TreeHead,
        remaining: Digest,
        now: Timestamp,
    ) -> PrunedSeal {
        let statement = RemovalStatement {
            record: self.signer.key().name().to_owned(),
            tree,
            time: now,
            remaining,
        };
        PrunedSeal {
            note: self.signer.sign(&statement.text()).to_string(),
            vkey: self.signer.key().to_string(),
        }
    }

    /// Notes that `seal` is on disk.
    pub(super) fn note_written(&mut self, seal: &NewSeal) {
        self.newest = NewestHead {
            size: seal.head.size,
            note: Some(Digest::of(seal.note().as_bytes())),
            root: Some(seal.head.root),
        };
        self.unsealed_since = None;
        self.retry_at = None;
    }

    /// Notes that it is not known whether `seal` is in the file. It is asked, and
    /// the head is made again if it is not.
    pub(super) fn note_failed(&mut self, connection: &Connection, seal: NewSeal) {
        self.retry_at = Some(clock::instant() + RETRY);
        match NewestHead::read(TreeReader::new(connection)) {
            Ok(Ok(newest)) if newest.size == seal.head.size => self.note_written(&seal),
            Ok(Ok(_)) | Err(_) => self.parts.splice(..0, seal.parts).for_each(drop),
            Ok(Err(fault)) => self.give_up(fault),
        }
    }
}
