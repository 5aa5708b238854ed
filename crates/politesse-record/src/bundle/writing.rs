//! Writing a bundle: selected decisions of the record, with a proof that the record
//! contains them.
//!
//! Rows are read a page at a time; only a hash of each stays in memory. An altered
//! row, or a proof that does not lead to the signed head, is an error. Every bundle
//! that is written can therefore be verified.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::OptionalExtension;

use super::BundleError;
use super::form::{BodyLine, BundleHeader, BundleLine, VERSION, ValueLine, columns_of, placed};
use super::lines::LineWriter;
use crate::columns::{count, signed};
use crate::decision_row::CheckedRecord;
use crate::dictionary::DictionaryTable;
use crate::entry_rows::{DECISIONS, DecisionEntry};
use crate::filter::{DecisionFilter, normal_host};
use crate::head::RecordHead;
use crate::leaf::LeafRun;
use crate::merkle::{PlacedLeaf, chosen_ranges};
use crate::reader::AuditReader;
use politesse_base::clock;
use politesse_decision::digest::Digest;

/// Counts of a written bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Number of decisions in the bundle.
    pub decisions: u64,
    /// Number of decisions that were left out because no signed head covers them yet.
    pub unsealed: u64,
    /// Number of entries that the head covers.
    pub size: u64,
    /// Number of hashes in the proof.
    pub hashes: usize,
    /// Number of robots.txt files.
    pub robots: usize,
}

/// Writes a bundle to `out`: the decisions that match `filter`, and their proof.
///
/// # Errors
///
/// [`BundleError`].
pub fn write_bundle(
    reader: &AuditReader,
    filter: &DecisionFilter,
    out: impl Write,
) -> Result<Bundle, BundleError> {
    let seal = reader.tree().newest_seal()?.ok_or(BundleError::Unsealed)?;
    let head = seal.head().ok_or(BundleError::Unproved)?;
    let mut writer = BundleWriter {
        reader,
        size: head.tree.size,
        pruned: reader.pruned_until()?,
        lines: LineWriter::new(out),
        values: HashMap::new(),
        robots: HashSet::new(),
        leaves: Vec::new(),
        decisions: 0,
        unsealed: 0,
    };
    writer.write_header(filter)?;
    writer.write_decisions(filter)?;
    if writer.leaves.is_empty() {
        return Err(BundleError::Empty(head.tree.size));
    }
    let proof = writer.prove(&head)?;
    let mut lines = writer.lines;
    for hash in &proof {
        lines.write(&BundleLine::Hash(*hash))?;
    }
    lines.write(&BundleLine::Head(seal.note))?;
    lines.write(&BundleLine::Key(seal.vkey))?;
    lines.end()?;
    Ok(Bundle {
        decisions: writer.decisions,
        unsealed: writer.unsealed,
        size: head.tree.size,
        hashes: proof.len(),
        robots: writer.robots.len(),
    })
}

/// Key of a dictionary row: the name of the table and the row's id.
type ValueKey = (&'static str, i64);

/// Writer of decisions, and of the values and robots.txt files that they refer to.
struct BundleWriter<'a, W: Write> {
    reader: &'a AuditReader,
    /// Number of entries that the head covers.
    size: u64,
    /// Highest number that retention has removed; 0 if none.
    pruned: u64,
    lines: LineWriter<W>,
    /// Numbers in the bundle of the values already written.
    values: HashMap<ValueKey, i64>,
    /// Robots.txt files already written.
    robots: HashSet<Digest>,
    /// Leaf of each decision and of each ending.
    leaves: Vec<PlacedLeaf>,
    /// Number of decisions written.
    decisions: u64,
    /// Number of decisions that the head does not cover.
    unsealed: u64,
}

impl<W: Write> BundleWriter<'_, W> {
    fn write_header(&mut self, filter: &DecisionFilter) -> Result<(), BundleError> {
        self.lines.write(&BundleLine::Bundle(BundleHeader {
            version: VERSION,
            made_at: clock::now(),
            record: self.reader.record_id()?,
            from: filter.from,
            until: filter.until,
            host: filter.host.as_deref().map(normal_host),
        }))
    }

    fn write_decisions(&mut self, filter: &DecisionFilter) -> Result<(), BundleError> {
        let reader = self.reader;
        let mut rows = reader.decision_reader();
        let mut scan = reader.narrow_scan(DECISIONS, filter)?;
        while let Some(page) =
            scan.next_page(|row| Ok((rows.checked(row)?, DecisionEntry::read(row)?)))?
        {
            for (checked, entry) in page {
                if self.size < checked.record.seq {
                    self.unsealed += 1;
                } else if self.remains(checked.record.seq)? {
                    self.write_decision(&checked, entry)?;
                }
            }
        }
        Ok(())
    }

    /// Reports whether a decision stays on record: it is not among the entries
    /// being removed.
    fn remains(&self, seq: u64) -> Result<bool, BundleError> {
        let is_path_wanted = seq <= self.pruned;
        let tree = self.reader.tree();
        Ok(!is_path_wanted || tree.leaf_path(signed(seq))?.is_some())
    }

    fn write_decision(
        &mut self,
        checked: &CheckedRecord,
        mut entry: DecisionEntry,
    ) -> Result<(), BundleError> {
        let record = &checked.record;
        if !checked.is_as_written {
            return Err(BundleError::Altered(record.seq));
        }
        self.leaves.push(placed(checked.leaf));
        // An ending that the head does not cover cannot be proved, so its decision
        // is written without it.
        let is_sealed = |ending: &LeafRun| count(ending.last) <= self.size;
        match checked.ending.filter(is_sealed) {
            Some(ending) => self.leaves.push(placed(ending)),
            None => entry.ending = None,
        }
        let snapshot = record.snapshot.as_ref();
        if let Some(sha256) = snapshot.and_then(|snapshot| snapshot.sha256) {
            self.write_robots(sha256)?;
        }
        // In a bundle, a value is referred to by its number there, not by its row.
        for (number, table) in entry.references() {
            *number = self.number(table, *number)?;
        }
        self.decisions += 1;
        self.lines.write(&BundleLine::Decision(Box::new(entry)))
    }

    /// Writes a robots.txt, unless the bundle has it already.
    fn write_robots(&mut self, sha256: Digest) -> Result<(), BundleError> {
        if !self.robots.insert(sha256) {
            return Ok(());
        }
        let Some(bytes) = self.reader.body(sha256)? else {
            return Err(BundleError::NoRobots(sha256.to_string()));
        };
        self.lines.write(&BundleLine::Robots(BodyLine {
            sha256,
            body: STANDARD.encode(bytes),
        }))
    }

    /// Makes the proof that `head` covers all leaves of the bundle.
    fn prove(&mut self, head: &RecordHead) -> Result<Vec<Digest>, BundleError> {
        // The number of an ending is higher than that of its decision, and other
        // decisions may have begun in between.
        self.leaves.sort_unstable_by_key(|leaf| leaf.index);
        let chosen: Vec<_> = self.leaves.iter().map(|leaf| leaf.index).collect();
        let ranges = chosen_ranges(&chosen, head.tree.size);
        let roots = self.reader.tree().roots(&ranges)?;
        let proof = roots.ok_or(BundleError::Unproved)?;
        // The same check that the recipient of the bundle makes.
        match head.tree.includes_all(&self.leaves, &proof) {
            true => Ok(proof),
            false => Err(BundleError::Unproved),
        }
    }

    /// Returns the number of a value in the bundle, writing the value first if
    /// needed.
    fn number(&mut self, table: &'static DictionaryTable, id: i64) -> Result<i64, BundleError> {
        let key = (table.name, id);
        if let Some(known) = self.values.get(&key) {
            return Ok(*known);
        }
        // Redacted rows have 0 instead of a reference.
        if id == 0 {
            return Ok(0);
        }
        let connection = &self.reader.connection;
        let sql = format!("{} WHERE id = ?", table.select);
        let mut statement = connection.prepare_cached(&sql)?;
        let columns = statement.query_row([id], |row| columns_of(table, row));
        let number = self.values.len() as i64 + 1;
        self.lines.write(&BundleLine::Value(ValueLine {
            number,
            kind: table.name.to_owned(),
            // The row exists, because the check of the decision has read it.
            columns: columns.optional()?.flatten().ok_or(BundleError::Unproved)?,
        }))?;
        self.values.insert(key, number);
        Ok(number)
    }
}
