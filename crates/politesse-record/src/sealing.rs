//! Sealing: the Merkle tree over all committed entries, and its signed heads.
//!
//! The leaves of a commit enter the tree once the senders that waited for the
//! commit have their answers. A head is due after a number of entries
//! (`audit.seal_entries`), after a time since the first entry that no head covers
//! (`audit.seal_interval`), and at a clean stop. With a head, the roots of the
//! completed parts are written (`subtree`), from which the next start rebuilds the
//! tree.
//!
//! If an entry is missing or the last head does not match, sealing stops: another
//! head would vouch for entries that are missing or altered.
//!
//! Does not know how transactions are made, or where heads are sent.

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

/// Time after which a head that could not be written is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Key and frequency of the heads of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealOptions {
    /// File of the key (`audit.seal_key`); `None` for the default file in the
    /// folder of the record.
    pub key: Option<PathBuf>,
    /// Number of entries after which a head is made (`audit.seal_entries`).
    pub entries: NonZeroUsize,
    /// Maximum time until a head covers an entry (`audit.seal_interval`).
    pub interval: Duration,
    /// Targets that heads are exported to (`audit.seal_to`).
    pub to: Vec<SealTarget>,
}

/// Target that heads are exported to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealTarget {
    /// File that heads are appended to.
    File(PathBuf),
    /// Shell command that gets a head on its standard input.
    Command(String),
    /// URL that heads are posted to.
    Url(Target),
}

impl SealTarget {
    /// Returns the word for this kind of target.
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

/// Reason why sealing stopped.
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
    /// Returns the commands that explain the fault and end it.
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
    /// Root of the tree; `None` before the first head.
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

/// Head to be written, with the roots of completed parts.
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

    /// Returns the entry of this head in the marker.
    pub(super) fn mark(&self) -> MarkedHead {
        MarkedHead::from(&self.row)
    }

    /// Returns the note.
    pub(super) fn note(&self) -> &str {
        &self.row.note
    }
}

/// Tree over a record that is open for writing.
#[derive(Debug)]
pub(super) struct Sealer {
    signer: NoteSigner,
    options: SealOptions,
    /// Tree over the committed entries, or the fault that stopped sealing.
    tree: Result<SequenceTree, SealFault>,
    /// Copy of the reason in `tree`, shared with callers that ask whether the
    /// record is sealed.
    fault: Arc<OnceLock<SealFault>>,
    /// Committed leaves that are not in the tree yet.
    fresh: Vec<LeafRun>,
    /// Completed parts that are not in the table yet.
    parts: Vec<PartRoot>,
    newest: NewestHead,
    /// Time at which the first entry was added that no head covers.
    unsealed_since: Option<Instant>,
    /// Earliest time at which a head that could not be written is retried.
    retry_at: Option<Instant>,
}

impl Sealer {
    /// Builds the tree over the record in `connection`, which has the numbers up to
    /// `last`. `signer` signs its heads.
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

    /// Builds the tree over the numbers up to `last` from the rows of the database.
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
                // Completed parts are added by their roots, so that a start reads
                // single leaves only for the last part.
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
        // The head covers entries that are missing: rows were deleted at the end.
        let is_cut = tree.size() < newest.size;
        Ok(if is_cut {
            Err(SealFault::Missing(last.saturating_add(1)))
        } else {
            Ok(tree)
        })
    }

    fn take_tree(&mut self, tree: SequenceTree) {
        // Entries that an earlier process left unsealed start the interval for the
        // next head now.
        if self.newest.size < tree.size() {
            self.unsealed_since = Some(clock::instant());
        }
        self.tree = Ok(tree);
    }

    /// Returns the cell that holds the reason once sealing stops.
    pub(super) fn fault(&self) -> Arc<OnceLock<SealFault>> {
        Arc::clone(&self.fault)
    }

    /// Stops sealing.
    pub(super) fn give_up(&mut self, fault: SealFault) {
        tracing::error!(
            %fault,
            "the record is not sealed any further: {}",
            fault.way_out()
        );
        // Only the first fault is kept, because it is the cause of any later one.
        let _ = self.fault.set(fault);
        self.tree = Err(fault);
        self.unsealed_since = None;
        // Roots without a head are dropped, because no head would cover them.
        self.parts.clear();
    }

    /// Collects the leaves of a commit. [`Sealer::grow`] adds them to the tree.
    pub(super) fn note_committed(&mut self, leaves: &mut Vec<LeafRun>) {
        self.fresh.append(leaves);
    }

    /// Adds the collected leaves to the tree. Must be called when no sender waits.
    pub(super) fn grow(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        // Within a commit, lost numbers are written before numbers that were given
        // earlier. Commits themselves are consecutive, so sorting restores the
        // order.
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

    /// Returns the number of entries that the newest head covers.
    pub(super) fn sealed(&self) -> u64 {
        self.newest.size
    }

    /// Returns the number of entries in the tree that no head covers.
    fn unsealed(&self) -> u64 {
        let size = self.tree.as_ref().map_or(0, SequenceTree::size);
        size.saturating_sub(self.newest.size)
    }

    /// Returns the time until a head is due; `None` if there is nothing to seal.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let now = clock::instant();
        let since = self.unsealed_since?;
        let due = match self.unsealed() < self.options.entries.get() as u64 {
            true => since + self.options.interval,
            false => now,
        };
        // A head that failed waits for `retry_at`, so that a full disk is not tried
        // at each batch.
        let at = self.retry_at.map_or(due, |retry_at| due.max(retry_at));
        Some(at.saturating_duration_since(now))
    }

    /// Makes a head of the whole tree at time `now`; `None` if the newest head
    /// covers it already.
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

    /// Signs a statement of time `now` that the entries under `tree` were removed,
    /// except for remaining ones, whose digest is `remaining`.
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

    /// Notes that `seal` was written.
    pub(super) fn note_written(&mut self, seal: &NewSeal) {
        self.newest = NewestHead {
            size: seal.head.size,
            note: Some(Digest::of(seal.note().as_bytes())),
            root: Some(seal.head.root),
        };
        self.unsealed_since = None;
        self.retry_at = None;
    }

    /// Notes that it is unknown whether `seal` was written. The database is asked;
    /// if it does not have the head, the head is made again.
    pub(super) fn note_failed(&mut self, connection: &Connection, seal: NewSeal) {
        self.retry_at = Some(clock::instant() + RETRY);
        match NewestHead::read(TreeReader::new(connection)) {
            Ok(Ok(newest)) if newest.size == seal.head.size => self.note_written(&seal),
            Ok(Ok(_)) | Err(_) => self.parts.splice(..0, seal.parts).for_each(drop),
            Ok(Err(fault)) => self.give_up(fault),
        }
    }
}
