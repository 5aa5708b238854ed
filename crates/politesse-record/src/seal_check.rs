//! Check of the Merkle tree: that the entries have the roots stored in the tables,
//! and that the heads were signed for these entries, one after the other.
//!
//! Numbers come in ascending order, each with its leaf. The tree is built twice
//! from them: from leaves alone, and from the rows of `subtree` for completed
//! parts. A head is valid if it has either root. An altered row therefore does not
//! invalidate the heads after it, and the finding names its place.
//!
//! Does not know whether a leaf matches the contents of its entry.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _};
use thiserror::Error;

use super::columns::{TableRow as _, count, signed};
use super::head::RecordHead;
use super::leaf::LeafRun;
use super::merkle::{CompactRange, Subtree, TreeHead, leaf_hash};
use super::note::{NoteKey, SignedNote};
use super::order::all_below;
use super::pages::{SqlConditions, TableScan};
use super::parts::{PART_LEVEL, PART_NUMBERS, numbers_of, part_of, part_text};
use super::pruned::{PrunedEnd, PrunedSeal};
use super::remaining::remaining_digest;
use super::tree_rows::{SEALS, StoredSeal, TreeReader};
use politesse_decision::digest::Digest;

/// Maximum time that a head may be earlier than the head before it, because
/// clocks are corrected in small steps.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(1);

/// Maximum time from the newest entry to the head that covers it. A running proxy
/// writes an event every hour, and a head is made within a day
/// (`audit.seal_interval`).
const HEAD_LATENESS_MAX: SignedDuration = SignedDuration::from_hours(48);

/// Keys and heads from outside the record.
#[derive(Debug, Clone, Default)]
pub struct SealEvidence {
    /// Keys of which one must have signed each head; empty to accept any key.
    pub keys: Vec<NoteKey>,
    /// Exported heads.
    pub heads: Vec<OutsideHead>,
}

impl SealEvidence {
    /// Reports whether `key` may sign a removal of entries of the record that signs
    /// as `record`.
    pub fn may_remove(&self, record: &str, key: &NoteKey) -> bool {
        match self.keys.is_empty() {
            true => key.name() == record,
            false => self.keys.contains(key),
        }
    }
}

/// Exported head.
#[derive(Debug, Clone)]
pub struct OutsideHead {
    /// Name of the file.
    pub name: String,
    /// Signed note.
    pub note: SignedNote,
}

/// Finding about the tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum SealFinding {
    #[error("{}: these entries, or their row in the table subtree, are not as they were sealed", part_text(*.0))]
    Part(i64),
    #[error("{}: the table subtree has no root of these entries", part_text(*.0))]
    NoPart(i64),
    #[error(
        "{0}: these entries were removed, and no note of the key of the record, or of one of --key, says so"
    )]
    Pruned(u64),
    #[error(
        "{0}: the entries up to here that remain are not those that the note about the removal names"
    )]
    Remaining(u64),
    #[error(
        "the hashes beside the head of {0} entries in the table seal are not as they were written"
    )]
    Path(u64),
    #[error("the table subtree has roots of entries that are not there, or are not sealed")]
    Parts,
    #[error("{first} to {size}: these entries are not those of the head of {size} entries")]
    Root { first: u64, size: u64 },
    #[error("the head of {size} entries in the table seal {fault}")]
    Row { size: i64, fault: HeadFault },
    #[error("{name} (head of {size} entries): {fault}")]
    Outside {
        name: String,
        size: u64,
        fault: HeadFault,
    },
}

/// Fault of one head.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum HeadFault {
    #[error("is damaged")]
    Form,
    #[error("is that of another record, {0}")]
    Record(String),
    #[error("is not signed by its key")]
    Signature,
    #[error("is not signed by a key that --key names")]
    Key,
    #[error("is not chained to the head before it")]
    Chain,
    #[error("is dated {0}, earlier than the head before it")]
    Early(Timestamp),
    #[error("is dated {0}, more than two days after the newest of its entries")]
    Late(Timestamp),
    #[error(
        "the first {0} entries are not those that it was made for: something was changed, removed or inserted"
    )]
    Changed(u64),
    #[error("entries up to {0} are missing, so that it cannot be compared")]
    Missing(u64),
    #[error("the record ends at {0}: it was cut, or this is an older copy")]
    Cut(u64),
}

/// Head to compare the entries with.
#[derive(Debug)]
struct ExpectedHead {
    tree: TreeHead,
    /// Name of the file of an exported head; `None` for a head of the table.
    name: Option<String>,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealSums {
    /// Heads in the table.
    pub heads: u64,
    /// Number of entries covered by the newest valid head.
    pub sealed: u64,
    /// Number of entries that have a number.
    pub entries: u64,
    /// Public key that signed the newest head in the table.
    pub signer: Option<String>,
    /// Exported heads that are valid.
    pub outside: u64,
}

/// State of a check.
pub(super) struct SealCheck<'a> {
    rows: TreeReader<'a>,
    /// Heads still to be compared, by size.
    heads: VecDeque<ExpectedHead>,
    /// Numbers processed so far.
    size: u64,
    /// Tree over the completed parts: from leaves, and from the table. `None` after
    /// a number without an entry.
    own: Option<CompactRange>,
    tabled: Option<CompactRange>,
    /// Leaves of the current part.
    open: Option<CompactRange>,
    /// Size of the newest head in the table when the check began.
    sealed: u64,
    /// Number of rows in `subtree` when the check began, and number of them seen.
    subtrees: u64,
    seen: u64,
    /// Whether a head of the table was found invalid; the heads after it are
    /// invalid too.
    is_changed: bool,
    sums: SealSums,
}

impl<'a> SealCheck<'a> {
    /// Reads the heads of the record that signs as `origin`, and reports heads that
    /// were altered.
    pub(super) fn new(
        connection: &'a Connection,
        origin: String,
        evidence: &SealEvidence,
        mut report: impl FnMut(SealFinding),
    ) -> rusqlite::Result<Self> {
        // Read by one statement, because a proxy may be writing.
        let sql = "SELECT (SELECT max(size) FROM seal), (SELECT count(*) FROM subtree)";
        let (sealed, subtrees): (Option<i64>, i64) =
            connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut check = Self {
            rows: TreeReader::new(connection),
            heads: VecDeque::new(),
            size: 0,
            own: Some(CompactRange::default()),
            tabled: Some(CompactRange::default()),
            open: Some(CompactRange::default()),
            sealed: count(sealed.unwrap_or_default()),
            subtrees: count(subtrees),
            seen: 0,
            is_changed: false,
            sums: SealSums::default(),
        };
        let end = sealed.unwrap_or(i64::MIN).saturating_add(1);
        let every = SqlConditions::default();
        let mut scan = TableScan::new(connection, SEALS, every, all_below(end));
        let mut rows = HeadChain::new(origin, HeadTimes::new(connection)?);
        while let Some(page) = scan.next_page(StoredSeal::read)? {
            for row in page {
                check.sums.heads += 1;
                let tree = rows.next(&row, &evidence.keys, |fault| {
                    let size = row.size;
                    report(SealFinding::Row { size, fault });
                })?;
                let head = tree.map(|tree| ExpectedHead { tree, name: None });
                check.heads.extend(head);
                check.sums.signer = Some(row.vkey);
            }
        }
        // Exported heads are few, so they are appended to those of the table and
        // then sorted.
        for head in &evidence.heads {
            check.expect(head, &rows.origin, &evidence.keys, &mut report);
        }
        let heads = check.heads.make_contiguous();
        heads.sort_by_key(|head| head.tree.size);
        check.pass_pruned(connection, &rows.origin, evidence, &mut report)?;
        Ok(check)
    }

    /// Processes the parts whose entries were removed. The table has their roots.
    fn pass_pruned(
        &mut self,
        connection: &Connection,
        origin: &str,
        evidence: &SealEvidence,
        report: &mut impl FnMut(SealFinding),
    ) -> rusqlite::Result<()> {
        let pruned = PrunedEnd::read(connection)?;
        // Heads of existing entries, or of whole parts, must have no path, because
        // no check would compare it.
        let sql = "SELECT size FROM seal WHERE path IS NOT NULL AND (?1 < size OR size % ?2 = 0)
                   ORDER BY size";
        let mut statement = connection.prepare(sql)?;
        for size in statement.query_map([pruned.last, PART_NUMBERS], |row| row.get(0))? {
            report(SealFinding::Path(count(size?)));
        }
        for part in 0..=pruned.part() {
            let root = self.rows.subtree(part)?;
            self.seen += u64::from(root.is_some());
            if root.is_none() {
                report(SealFinding::NoPart(part));
                let last = count(numbers_of(pruned.part()).end - 1);
                if self.is_beyond_rows(last) {
                    self.skip_to(last);
                    break;
                }
            }
            let end = count(numbers_of(part).end - 1);
            while let Some(head) = self.heads.pop_front_if(|head| head.tree.size < end) {
                // The leaves are gone; only the path to the root of the part is left.
                let stored = self.rows.seal_path(head.tree.size)?;
                let path = stored.filter(|path| Some(path.root) == root);
                // Reported, because without a path a head of the table would count
                // as not comparable.
                if path.is_none() && head.name.is_none() {
                    report(SealFinding::Path(head.tree.size));
                }
                self.open = path.map(|path| path.covered);
                self.size = head.tree.size;
                self.compare(head, report);
            }
            self.open = Some(CompactRange::default());
            push_part(&mut self.own, root);
            push_part(&mut self.tabled, root);
            self.size = end;
            while let Some(head) = self.heads.pop_front_if(|head| head.tree.size == end) {
                self.compare(head, report);
            }
        }
        let size = self.size;
        while let Some(head) = self.heads.pop_front_if(|head| head.tree.size <= size) {
            self.compare(head, report);
        }
        // The note is required, or else anyone with write access to the tables
        // could remove sealed entries.
        if let Some(note) = PrunedSeal::read(connection)? {
            let root = self.own.as_ref().map(CompactRange::root);
            let tree = root.map(|root| TreeHead {
                size: self.size,
                root,
            });
            let is_known = |key: &NoteKey| evidence.may_remove(origin, key);
            let remaining = tree.and_then(|tree| note.remaining(&tree, origin, is_known));
            let is_same = count(pruned.last) == self.size;
            match remaining.filter(|_| is_same) {
                None => report(SealFinding::Pruned(count(pruned.last))),
                Some(digest) if digest != remaining_digest(connection)? => {
                    report(SealFinding::Remaining(count(pruned.last)));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Adds an exported head to the heads to compare.
    fn expect(
        &mut self,
        outside: &OutsideHead,
        origin: &str,
        keys: &[NoteKey],
        report: &mut impl FnMut(SealFinding),
    ) {
        let parsed: Option<RecordHead> = outside.note.text().parse().ok();
        let size = parsed.as_ref().map_or(0, |head| head.tree.size);
        let is_signed = keys.is_empty() || keys.iter().any(|key| outside.note.verify(key).is_ok());
        let fault = match &parsed {
            None => Some(HeadFault::Form),
            Some(head) if head.origin != origin => Some(HeadFault::Record(head.origin.clone())),
            Some(_) => (!is_signed).then_some(HeadFault::Key),
        };
        match (fault, parsed) {
            (None, Some(head)) => self.heads.push_back(ExpectedHead {
                tree: head.tree,
                name: Some(outside.name.clone()),
            }),
            (fault, _) => report(SealFinding::Outside {
                name: outside.name.clone(),
                size,
                fault: fault.unwrap_or(HeadFault::Form),
            }),
        }
    }

    /// Returns the highest number that a head covers. Each number up to it must
    /// have an entry.
    pub(super) fn last(&self) -> u64 {
        let heads = self.heads.back().map_or(0, |head| head.tree.size);
        heads.max(self.sealed)
    }

    /// Adds the next numbers with their leaf. Numbers skipped since the last call
    /// have no entry.
    pub(super) fn add(
        &mut self,
        run: &LeafRun,
        mut report: impl FnMut(SealFinding),
    ) -> rusqlite::Result<()> {
        let before = count(run.first.saturating_sub(1));
        self.fill(before, None, &mut report)?;
        self.fill(count(run.last), Some(run.leaf), &mut report)
    }

    /// Ends the check after the last number of the record, `last`.
    pub(super) fn end(
        mut self,
        last: u64,
        mut report: impl FnMut(SealFinding),
    ) -> rusqlite::Result<SealSums> {
        self.sums.entries = last;
        // The table may have lost rows of parts together with the entries.
        let cut: Vec<_> = {
            let is_beyond = |head: &ExpectedHead| last < head.tree.size;
            let place = self.heads.iter().position(is_beyond);
            self.heads
                .drain(place.unwrap_or(self.heads.len())..)
                .collect()
        };
        self.fill(self.sealed.max(last), None, &mut report)?;
        for head in cut {
            let size = head.tree.size;
            if let Some(name) = head.name {
                let fault = HeadFault::Cut(last);
                report(SealFinding::Outside { name, size, fault });
            }
        }
        if self.seen != self.subtrees {
            report(SealFinding::Parts);
        }
        Ok(self.sums)
    }

    /// Advances to the number `until`. The numbers up to there have the leaf
    /// `leaf`, or no entry.
    fn fill(
        &mut self,
        until: u64,
        leaf: Option<Digest>,
        report: &mut impl FnMut(SealFinding),
    ) -> rusqlite::Result<()> {
        // Numbers after the last head cannot be compared with anything.
        let until = until.min(self.last().max(self.sealed));
        let hash = leaf.map(|leaf| leaf_hash(leaf.as_bytes()));
        while self.size < until {
            let part = part_of(signed(self.size + 1));
            let end = count(numbers_of(part).end - 1);
            let next_head = self.heads.front().map_or(until, |head| head.tree.size);
            let next = until.min(end).min(next_head.max(self.size + 1));
            match (hash, &mut self.open) {
                (Some(hash), Some(open)) => open.push_repeated(hash, next - self.size),
                (None, open) => *open = None,
                (Some(_), None) => {}
            }
            self.size = next;
            let is_comparable = next != end || self.end_part(part, report)?;
            // Parts after the last head of the table have no row.
            let has_row = leaf.is_none() || self.size <= self.sealed;
            if !is_comparable && has_row && self.is_beyond_rows(until) {
                self.skip_to(until);
            }
            let size = self.size;
            while let Some(head) = self.heads.pop_front_if(|head| head.tree.size <= size) {
                self.compare(head, report);
            }
        }
        Ok(())
    }

    /// Reports whether the table cannot have the roots of all parts up to `until`.
    /// Someone may have written any number, and looking up each part might never
    /// end.
    fn is_beyond_rows(&self, until: u64) -> bool {
        self.subtrees < until.saturating_sub(self.size) / count(PART_NUMBERS)
    }

    /// Skips to the number `until`; nothing is known about the numbers before it.
    fn skip_to(&mut self, until: u64) {
        self.own = None;
        self.tabled = None;
        let is_between_parts = signed(until) % PART_NUMBERS == 0;
        self.open = is_between_parts.then(CompactRange::default);
        self.size = until;
    }

    /// Compares the root of a completed part with the one in the table. Returns
    /// whether the table has one.
    fn end_part(
        &mut self,
        part: i64,
        report: &mut impl FnMut(SealFinding),
    ) -> rusqlite::Result<bool> {
        let leaves = self.open.replace(CompactRange::default());
        let own = leaves.map(|leaves| leaves.root());
        let is_sealed = self.size <= self.sealed;
        let tabled = match is_sealed {
            true => self.rows.subtree(part)?,
            false => None,
        };
        self.seen += u64::from(tabled.is_some());
        match (own, tabled) {
            (Some(own), Some(tabled)) if own != tabled => report(SealFinding::Part(part)),
            (_, None) if is_sealed => report(SealFinding::NoPart(part)),
            _ => {}
        }
        // If entries are missing, the tree continues from the table; if the table
        // lacks a row, from the leaves.
        push_part(&mut self.own, own);
        push_part(&mut self.tabled, tabled.or(own));
        Ok(tabled.is_some())
    }

    /// Compares a head with the entries that it covers.
    fn compare(&mut self, head: ExpectedHead, report: &mut impl FnMut(SealFinding)) {
        let size = head.tree.size;
        let roots = [&self.own, &self.tabled].map(|parts| {
            let parts = parts.as_ref()?;
            Some(parts.joined(self.open.as_ref()?).root())
        });
        let holds = size == self.size && roots.contains(&Some(head.tree.root));
        // An exported head must match the entries themselves, not only the table.
        let is_proved = size == self.size && roots[0] == Some(head.tree.root);
        match head.name {
            None if holds => self.sums.sealed = size,
            // Missing entries are reported elsewhere, with their numbers.
            None if self.is_changed || roots == [None, None] => {}
            None => {
                self.is_changed = true;
                let first = self.sums.sealed + 1;
                report(SealFinding::Root { first, size });
            }
            Some(_) if is_proved => self.sums.outside += 1,
            Some(name) => {
                let fault = match roots[0] {
                    Some(_) => HeadFault::Changed(size),
                    None => HeadFault::Missing(size),
                };
                report(SealFinding::Outside { name, size, fault });
            }
        }
    }
}

/// Appends the root of a part. Without a root, no tree is known from there on.
fn push_part(parts: &mut Option<CompactRange>, root: Option<Digest>) {
    match (parts.as_mut(), root) {
        (Some(parts), Some(root)) => parts.push_subtree(Subtree {
            level: PART_LEVEL,
            root,
        }),
        _ => *parts = None,
    }
}

/// Chain of the heads in the table.
struct HeadChain<'a> {
    origin: String,
    /// SHA-256 of the previous note.
    previous: Option<Digest>,
    times: HeadTimes<'a>,
}

impl<'a> HeadChain<'a> {
    fn new(origin: String, times: HeadTimes<'a>) -> Self {
        Self {
            origin,
            previous: None,
            times,
        }
    }

    /// Checks the next row by itself, and reports its faults. Returns the size and
    /// root that its head states, if it can be parsed.
    fn next(
        &mut self,
        row: &StoredSeal,
        keys: &[NoteKey],
        mut report: impl FnMut(HeadFault),
    ) -> rusqlite::Result<Option<TreeHead>> {
        let previous = self.previous.replace(Digest::of(row.note.as_bytes()));
        let note: Result<SignedNote, _> = row.note.parse();
        let parsed = note.ok().and_then(|note| {
            let head: RecordHead = note.text().parse().ok()?;
            (signed(head.tree.size) == row.size && 0 < row.size).then_some((note, head))
        });
        let Some((note, head)) = parsed else {
            report(HeadFault::Form);
            return Ok(None);
        };
        if head.origin != self.origin {
            report(HeadFault::Record(head.origin));
            return Ok(None);
        }
        let key: Option<NoteKey> = row.vkey.parse().ok();
        let own_key = |key: &NoteKey| key.name() == head.origin && note.verify(key).is_ok();
        match key.filter(own_key) {
            None => report(HeadFault::Signature),
            Some(key) if !keys.is_empty() && !keys.contains(&key) => report(HeadFault::Key),
            Some(_) => {}
        }
        if head.previous != previous {
            report(HeadFault::Chain);
        }
        if let Some(fault) = self.times.fault(&head)? {
            report(fault);
        }
        Ok(Some(head.tree))
    }
}

/// Check of the times of heads against the times of their entries.
struct HeadTimes<'a> {
    connection: &'a Connection,
    /// Highest number removed; the times of these entries are gone.
    pruned: i64,
    /// Size and time of the previous head.
    previous: Option<(i64, Timestamp)>,
}

impl<'a> HeadTimes<'a> {
    fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            pruned: PrunedEnd::read(connection)?.last,
            previous: None,
        })
    }

    /// Compares the time of `head` with that of the previous head, and with the
    /// newest entries that it covers: the newest decision, and the newest event
    /// with a count, which a running proxy writes every hour.
    fn fault(&mut self, head: &RecordHead) -> rusqlite::Result<Option<HeadFault>> {
        let size = signed(head.tree.size);
        let (since, before) = self
            .previous
            .replace((size, head.time))
            .unwrap_or((0, Timestamp::MIN));
        if size <= self.pruned {
            return Ok(None);
        }
        if CLOCK_SLACK < before.duration_since(head.time) && !self.is_set_back(since)? {
            return Ok(Some(HeadFault::Early(head.time)));
        }
        let counted = self.newest(
            "SELECT time_us FROM event WHERE seq <= ? AND sent IS NOT NULL
             ORDER BY seq DESC LIMIT 1",
            size,
        )?;
        let decision = self.newest(
            "SELECT time_us FROM decision WHERE seq <= ? ORDER BY seq DESC LIMIT 1",
            size,
        )?;
        // A clock that was wrong at startup is usually right by the first decision.
        let is_late = counted.is_some_and(|counted| {
            let newest = decision.map_or(counted, |decision| decision.max(counted));
            HEAD_LATENESS_MAX < head.time.duration_since(newest)
        });
        Ok(is_late.then_some(HeadFault::Late(head.time)))
    }

    /// Returns the time of the newest entry up to `size`, found by `sql`.
    fn newest(&self, sql: &str, size: i64) -> rusqlite::Result<Option<Timestamp>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let time_us: Option<i64> = statement.query_row([size], |row| row.get(0)).optional()?;
        Ok(time_us.and_then(|time_us| Timestamp::from_microsecond(time_us).ok()))
    }

    /// Reports whether the clock was set back after entry `since`. The first row of
    /// the table is ignored, because it belongs to the first decision.
    fn is_set_back(&self, since: i64) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM clock_step
                                  WHERE ? < seq AND (SELECT min(seq) FROM clock_step) < seq)";
        self.connection.query_row(sql, [since], |row| row.get(0))
    }
}
