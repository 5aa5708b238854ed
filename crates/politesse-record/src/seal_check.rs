//! Check of the tree over the sequence: that the entries are those whose roots the
//! tables have, and that the heads were signed for them, one after the other.
//!
//! Numbers come in ascending order, each with its leaf. The tree is made twice from
//! them: from leaves alone, and from the rows of `subtree` where a part is over. A
//! head holds if it has either root. So a row that was changed spoils neither the
//! heads behind it nor the place of the finding.
//!
//! Does not know whether a leaf belongs to what its entry says.

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

/// Time by which a head may be earlier than the one before it: clocks are corrected in
/// small steps.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(1);

/// Longest time from the newest entry to the head that covers it. A proxy that runs
/// writes an event an hour, and a head waits a day at most (`audit.seal_interval`).
const HEAD_LATENESS_MAX: SignedDuration = SignedDuration::from_hours(48);

/// Keys and heads from outside the record.
#[derive(Debug, Clone, Default)]
pub struct SealEvidence {
    /// Keys, one of which has signed each head; any key may have if there are none.
    pub keys: Vec<NoteKey>,
    /// Heads that were exported.
    pub heads: Vec<OutsideHead>,
}

impl SealEvidence {
    /// Reports whether a removal of entries of the record that signs as `record` may be
    /// signed by `key`.
    pub fn may_remove(&self, record: &str, key: &NoteKey) -> bool {
        match self.keys.is_empty() {
            true => key.name() == record,
            false => self.keys.contains(key),
        }
    }
}

/// A head that was exported.
#[derive(Debug, Clone)]
pub struct OutsideHead {
    /// Name of its file.
    pub name: String,
    /// The signed note.
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

/// A head that entries are compared with.
#[derive(Debug)]
struct ExpectedHead {
    tree: TreeHead,
    /// Name of its file; `None` for one of the table.
    name: Option<String>,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealSums {
    /// Heads in the table.
    pub heads: u64,
    /// Number of entries that the newest head covers which holds.
    pub sealed: u64,
    /// Number of entries that were given a number.
    pub entries: u64,
    /// Public key for which the newest head in the table was signed.
    pub signer: Option<String>,
    /// Heads from outside that hold.
    pub outside: u64,
}

/// A check under way.
pub(super) struct SealCheck<'a> {
    rows: TreeReader<'a>,
    /// Heads that are still to be compared, by size.
    heads: VecDeque<ExpectedHead>,
    /// Numbers that were looked at.
    size: u64,
    /// Tree over the parts that are over: from leaves, and from the table. `None`
    /// behind a number without an entry.
    own: Option<CompactRange>,
    tabled: Option<CompactRange>,
    /// Leaves of the part that is not over.
    open: Option<CompactRange>,
    /// Number of entries of the newest head in the table when the check began.
    sealed: u64,
    /// Rows of `subtree` then, and those among them that were looked at.
    subtrees: u64,
    seen: u64,
    /// Whether a head of the table was found not to hold: none behind it will.
    is_changed: bool,
    sums: SealSums,
}

impl<'a> SealCheck<'a> {
    /// Reads the heads of the record that signs as `origin`, and reports those that are not as
    /// they were signed.
    pub(super) fn new(
        connection: &'a Connection,
        origin: String,
        evidence: &SealEvidence,
        mut report: impl FnMut(SealFinding),
    ) -> rusqlite::Result<Self> {
        // By one statement: a proxy may be writing.
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
        // Behind those of the table, and then sorted: there are few from outside.
        for head in &evidence.heads {
            check.expect(head, &rows.origin, &evidence.keys, &mut report);
        }
        let heads = check.heads.make_contiguous();
        heads.sort_by_key(|head| head.tree.size);
        check.pass_pruned(connection, &rows.origin, evidence, &mut report)?;
        Ok(check)
    }

    /// Passes over the parts whose entries were removed: the table has their roots.
    fn pass_pruned(
        &mut self,
        connection: &Connection,
        origin: &str,
        evidence: &SealEvidence,
        report: &mut impl FnMut(SealFinding),
    ) -> rusqlite::Result<()> {
        let pruned = PrunedEnd::read(connection)?;
        // Heads of entries that are there, or of whole parts, have none: nothing would
        // compare them.
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
                // The leaves are gone; what is left is the way to the root of the part.
                let stored = self.rows.seal_path(head.tree.size)?;
                let path = stored.filter(|path| Some(path.root) == root);
                // Without it a head of the table would pass for one that is not comparable.
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
        // Without a note whoever can write to the tables could remove what is sealed.
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

    /// Takes in a head from outside.
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

    /// Returns the highest number that a head covers: there must be an entry for
    /// each up to it.
    pub(super) fn last(&self) -> u64 {
        let heads = self.heads.back().map_or(0, |head| head.tree.size);
        heads.max(self.sealed)
    }

    /// Takes in the next numbers with their leaf. Those that were left out since the
    /// last ones have no entry.
    pub(super) fn add(
        &mut self,
        run: &LeafRun,
        mut report: impl FnMut(SealFinding),
    ) -> rusqlite::Result<()> {
        let before = count(run.first.saturating_sub(1));
        self.fill(before, None, &mut report)?;
        self.fill(count(run.last), Some(run.leaf), &mut report)
    }

    /// Ends behind the last number of the record, `last`.
    pub(super) fn end(
        mut self,
        last: u64,
        mut report: impl FnMut(SealFinding),
    ) -> rusqlite::Result<SealSums> {
        self.sums.entries = last;
        // Parts may have been taken away with all that followed.
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

    /// Goes on to the number `until`. The numbers up to there have the leaf `leaf`,
    /// or no entry.
    fn fill(
        &mut self,
        until: u64,
        leaf: Option<Digest>,
        report: &mut impl FnMut(SealFinding),
    ) -> rusqlite::Result<()> {
        // Behind the last head there is nothing to compare.
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
            // Behind the last head of the table no part has a row.
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

    /// Reports whether the table cannot have the roots of the parts up to `until`.
    /// Somebody may have written any number, and to look for each of them might never
    /// end.
    fn is_beyond_rows(&self, until: u64) -> bool {
        self.subtrees < until.saturating_sub(self.size) / count(PART_NUMBERS)
    }

    /// Goes on to the number `until`, up to which nothing is known.
    fn skip_to(&mut self, until: u64) {
        self.own = None;
        self.tabled = None;
        let is_between_parts = signed(until) % PART_NUMBERS == 0;
        self.open = is_between_parts.then(CompactRange::default);
        self.size = until;
    }

    /// Compares the root of a part that is over with the one in the table. Returns
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
        // Where entries are missing, the table goes on alone; where the table has no
        // row, the leaves do.
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
        // An exported head proves what is there, not what the table makes of it.
        let is_proved = size == self.size && roots[0] == Some(head.tree.root);
        match head.name {
            None if holds => self.sums.sealed = size,
            // What is missing is reported with its numbers.
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

/// Appends the root of a part; without one there is no tree behind it.
fn push_part(parts: &mut Option<CompactRange>, root: Option<Digest>) {
    match (parts.as_mut(), root) {
        (Some(parts), Some(root)) => parts.push_subtree(Subtree {
            level: PART_LEVEL,
            root,
        }),
        _ => *parts = None,
    }
}

/// Heads of the table, one after the other.
struct HeadChain<'a> {
    origin: String,
    /// SHA-256 of the note before.
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

    /// Checks the next row by itself, and reports its faults. Returns what it is a
    /// head of, if that can be read.
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

/// Check of when heads were signed against when their entries were written.
struct HeadTimes<'a> {
    connection: &'a Connection,
    /// Last number of the entries that were removed: their times are gone.
    pruned: i64,
    /// Number of entries and time of the head before.
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

    /// Compares the time of `head` with that of the head before, and of the newest
    /// entries that it covers: the process's own event, of which a proxy that runs writes
    /// one an hour, and the decision.
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
        // A clock that was wrong at the start is right by the first decision, as a rule.
        let is_late = counted.is_some_and(|counted| {
            let newest = decision.map_or(counted, |decision| decision.max(counted));
            HEAD_LATENESS_MAX < head.time.duration_since(newest)
        });
        Ok(is_late.then_some(HeadFault::Late(head.time)))
    }

    /// Returns the time that `sql` finds for the newest entry up to `size`.
    fn newest(&self, sql: &str, size: i64) -> rusqlite::Result<Option<Timestamp>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let time_us: Option<i64> = statement.query_row([size], |row| row.get(0)).optional()?;
        Ok(time_us.and_then(|time_us| Timestamp::from_microsecond(time_us).ok()))
    }

    /// Reports whether the clock was set back after the entry `since`. The first row of
    /// the table is that of the first decision.
    fn is_set_back(&self, since: i64) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM clock_step
                                  WHERE ? < seq AND (SELECT min(seq) FROM clock_step) < seq)";
        self.connection.query_row(sql, [since], |row| row.get(0))
    }
}
