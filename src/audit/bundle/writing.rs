//! Writing of a bundle: chosen decisions of the record, with the proof that they are
//! entries of it.
//!
//! Rows are read a page at a time; a hash of each stays in memory. An altered row is an
//! error, as is a proof that does not lead to the signed head: a bundle that was written
//! can be verified.

use std::collections::{BTreeSet, HashMap};
use std::io::{Seek, Write};

use rusqlite::{OptionalExtension, Row};

use super::error::{BundleError, DECISIONS_MAX};
use super::form::{
    BundleHeader, DecisionLine, EndingLine, HEAD, KEY, PROOF, README, REPORT, ROBOTS, ROWS,
    VERSION, ValueLine, append_line, columns_of, hex, placed,
};
use super::summary::{BundleSummary, INSTRUCTIONS, ReportMaker};
use super::zip::ZipWriter;
use crate::audit::columns::{count, signed, text_bytes};
use crate::audit::decision_row::{CheckedRecord, DECISIONS};
use crate::audit::dictionary::{
    CLIENTS, CRAWLERS, DIRECTIVES, DictionaryTable, ORIGINS, POLICIES, RULINGS, SNAPSHOTS, TERMS,
};
use crate::audit::filter::DecisionFilter;
use crate::audit::head::RecordHead;
use crate::audit::leaf::LeafRun;
use crate::audit::merkle::{PlacedLeaf, chosen_ranges};
use crate::audit::note::SignedNote;
use crate::audit::reader::AuditReader;
use crate::audit::tree_rows::StoredSeal;
use crate::decision::digest::Digest;
use crate::decision::record::StoredRecord;

/// Counts of a bundle that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Number of decisions in the bundle.
    pub decisions: u64,
    /// Number of decisions that were left out because no signed head covers them yet.
    pub unsealed: u64,
    /// Number of entries that the signed head covers.
    pub size: u64,
    /// Number of hashes in the proof.
    pub hashes: usize,
    /// Number of robots.txt files.
    pub robots: usize,
}

/// Writes a bundle to `out`: the decisions that meet `filter`, their proof, and the
/// report that `make_report` makes of them.
///
/// # Errors
///
/// [`BundleError`].
pub fn write_bundle(
    reader: &AuditReader,
    filter: &DecisionFilter,
    make_report: ReportMaker<'_>,
    out: impl Write + Seek,
) -> Result<Bundle, BundleError> {
    let seal = reader.tree().newest_seal()?.ok_or(BundleError::Unsealed)?;
    let head = head_of(&seal).ok_or(BundleError::Unproved)?;
    let header = BundleHeader {
        bundle: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        record: reader.record_id()?,
        from: filter.from.map(|at| at.to_string()),
        until: filter.until.map(|at| at.to_string()),
        host: filter.host.clone(),
    };
    let mut zip = ZipWriter::new(out);
    // The first file, so that people open it first.
    zip.add(README, INSTRUCTIONS.as_bytes())?;
    let rows = {
        let mut file = zip.begin(ROWS)?;
        let mut rows = RowsWriter::new(reader, head.tree.size, &mut file)?;
        rows.write_all(&header, filter)?;
        let gathered = rows.gathered;
        file.end()?;
        gathered
    };
    if rows.leaves.is_empty() {
        return Err(BundleError::Empty(head.tree.size));
    }
    let report = make_report(&rows.summary.report(&header, &head));
    zip.add(REPORT, report.as_bytes())?;
    // Each body is read when it is written: all of them may not fit in memory.
    for sha256 in &rows.robots {
        let body = reader
            .body(*sha256)?
            .ok_or_else(|| BundleError::NoRobots(sha256.to_string()))?;
        zip.add(&format!("{ROBOTS}{sha256}"), &body)?;
    }
    let proof = rows.prove(reader, &head)?;
    let lines: Vec<_> = proof.iter().map(|hash| format!("{hash}\n")).collect();
    zip.add(PROOF, lines.concat().as_bytes())?;
    zip.add(HEAD, seal.note.as_bytes())?;
    zip.add(KEY, format!("{}\n", seal.vkey).as_bytes())?;
    zip.end()?;
    Ok(Bundle {
        decisions: rows.summary.decisions,
        unsealed: rows.unsealed,
        size: head.tree.size,
        hashes: proof.len(),
        robots: rows.robots.len(),
    })
}

/// Reads the head from its signed note; `None` if the stored text is damaged.
fn head_of(seal: &StoredSeal) -> Option<RecordHead> {
    let note: SignedNote = seal.note.parse().ok()?;
    note.text().parse().ok()
}

/// Data of the written rows that the other files of the bundle are made from.
#[derive(Debug, Default)]
struct GatheredRows {
    /// Leaf of each decision and of each ending.
    leaves: Vec<PlacedLeaf>,
    /// Robots.txt files that the decisions rest on.
    robots: BTreeSet<Digest>,
    summary: BundleSummary,
    /// Number of decisions that the head does not cover.
    unsealed: u64,
}

impl GatheredRows {
    /// Makes the proof that all leaves are entries that `head` covers.
    fn prove(&self, reader: &AuditReader, head: &RecordHead) -> Result<Vec<Digest>, BundleError> {
        let mut leaves = self.leaves.clone();
        // The ending of a decision has a later number, after the numbers of other
        // decisions that began meanwhile.
        leaves.sort_unstable_by_key(|leaf| leaf.index);
        let chosen: Vec<_> = leaves.iter().map(|leaf| leaf.index).collect();
        let ranges = chosen_ranges(&chosen, head.tree.size);
        let roots = reader.tree().roots(&ranges)?;
        let proof = roots.ok_or(BundleError::Unproved)?;
        // Verified as the receiver of the bundle will.
        match head.tree.includes_all(&leaves, &proof) {
            true => Ok(proof),
            false => Err(BundleError::Unproved),
        }
    }
}

/// Row of a dictionary: the name of the table, and the number in it.
type ValueKey = (&'static str, i64);

/// Writer of decisions, and of the dictionary values that they refer to.
struct RowsWriter<'a, W> {
    reader: &'a AuditReader,
    /// Number of entries that the head covers.
    size: u64,
    /// Highest number whose entry was removed because it was old; 0 if none was.
    pruned: u64,
    out: &'a mut W,
    /// Numbers of the values that were written.
    values: HashMap<ValueKey, i64>,
    line: Vec<u8>,
    gathered: GatheredRows,
}

impl<'a, W: Write> RowsWriter<'a, W> {
    fn new(reader: &'a AuditReader, size: u64, out: &'a mut W) -> Result<Self, BundleError> {
        let pruned = reader.pruned_until()?;
        Ok(Self {
            reader,
            size,
            pruned,
            out,
            values: HashMap::new(),
            line: Vec::new(),
            gathered: GatheredRows::default(),
        })
    }

    fn write_all(
        &mut self,
        header: &BundleHeader,
        filter: &DecisionFilter,
    ) -> Result<(), BundleError> {
        append_line(&mut self.line, header).map_err(std::io::Error::from)?;
        self.write_line()?;
        let reader = self.reader;
        let mut rows = reader.decision_reader();
        let mut scan = reader.narrow_scan(DECISIONS, filter)?;
        while let Some(page) = scan.next_page(|row| Ok((rows.checked(row)?, read_line(row)?)))? {
            for (checked, line) in page {
                if self.size < checked.record.seq {
                    self.gathered.unsealed += 1;
                } else if self.remains(checked.record.seq)? {
                    self.write_decision(&checked, line)?;
                }
            }
        }
        Ok(())
    }

    /// Reports whether a decision is not just being removed.
    fn remains(&self, seq: u64) -> Result<bool, BundleError> {
        let is_path_wanted = seq <= self.pruned;
        let tree = self.reader.tree();
        Ok(!is_path_wanted || tree.leaf_path(signed(seq))?.is_some())
    }

    fn write_decision(
        &mut self,
        checked: &CheckedRecord,
        mut line: DecisionLine,
    ) -> Result<(), BundleError> {
        let record = &checked.record;
        if !checked.is_as_written {
            return Err(BundleError::Altered(record.seq));
        }
        // The verifier takes no more: it holds them in memory.
        if self.gathered.summary.decisions as usize == DECISIONS_MAX {
            return Err(BundleError::TooMany);
        }
        self.gathered.leaves.push(placed(checked.leaf));
        // An ending that the head does not cover cannot be proved: its decision is
        // written without it.
        let is_sealed = |ending: &LeafRun| count(ending.last) <= self.size;
        match checked.ending.filter(is_sealed) {
            Some(ending) => {
                self.gathered.leaves.push(placed(ending));
                self.gathered.summary.add(record);
            }
            None => {
                line.ending = None;
                self.gathered.summary.add(&StoredRecord {
                    error: None,
                    ..record.clone()
                });
            }
        }
        let sha256 = record
            .snapshot
            .as_ref()
            .and_then(|snapshot| snapshot.sha256);
        self.gathered.robots.extend(sha256);
        self.number_values(&mut line)?;
        append_line(&mut self.line, &line).map_err(std::io::Error::from)?;
        self.write_line()
    }

    /// Puts the numbers of values in the place of rows of dictionaries, and writes
    /// those that were not written yet.
    fn number_values(&mut self, line: &mut DecisionLine) -> Result<(), BundleError> {
        for (id, table) in [
            (&mut line.client, &CLIENTS),
            (&mut line.origin, &ORIGINS),
            (&mut line.crawler, &CRAWLERS),
            (&mut line.method, &TERMS),
            (&mut line.ruling, &RULINGS),
            (&mut line.policy, &POLICIES),
        ] {
            *id = self.number(table, *id)?;
        }
        let ending = line.ending.as_mut();
        let (directives, error) = match ending {
            Some(ending) => (ending.directives.as_mut(), ending.error.as_mut()),
            None => (None, None),
        };
        for (id, table) in [
            (line.snapshot.as_mut(), &SNAPSHOTS),
            (directives, &DIRECTIVES),
            (error, &TERMS),
        ] {
            if let Some(id) = id {
                *id = self.number(table, *id)?;
            }
        }
        Ok(())
    }

    /// Returns the number of a value, which is written if it was not.
    fn number(&mut self, table: &'static DictionaryTable, id: i64) -> Result<i64, BundleError> {
        let key = (table.name, id);
        if let Some(known) = self.values.get(&key) {
            return Ok(*known);
        }
        // Redacted rows refer to none.
        if id == 0 {
            return Ok(0);
        }
        let connection = &self.reader.connection;
        let sql = format!("{} WHERE id = ?", table.select);
        let mut statement = connection.prepare_cached(&sql)?;
        let columns = statement.query_row([id], |row| columns_of(table, row));
        let number = self.values.len() as i64 + 1;
        let line = ValueLine {
            value: number,
            kind: table.name.to_owned(),
            // Always there: the check of the decision has read this row.
            columns: columns.optional()?.flatten().ok_or(BundleError::Unproved)?,
        };
        append_line(&mut self.line, &line).map_err(std::io::Error::from)?;
        self.write_line()?;
        self.values.insert(key, number);
        Ok(number)
    }

    fn write_line(&mut self) -> Result<(), BundleError> {
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

/// Reads the line of a row of [`DECISIONS`], with numbers of rows where a line has
/// those of values.
fn read_line(row: &Row<'_>) -> rusqlite::Result<DecisionLine> {
    let text = |at| -> rusqlite::Result<_> {
        let bytes = text_bytes(row.get_ref(at)?);
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let ending_seq: Option<i64> = row.get(14)?;
    let read_ending = |seq| -> rusqlite::Result<_> {
        Ok(EndingLine {
            seq,
            status: row.get(15)?,
            sent: row.get(19)?,
            directives: row.get(16)?,
            bytes: row.get(17)?,
            error: row.get(18)?,
        })
    };
    Ok(DecisionLine {
        seq: row.get(0)?,
        time_us: row.get(1)?,
        wait_ms: row.get(9)?,
        salt: hex(row.get_ref(12)?.as_bytes().unwrap_or_default()),
        client: row.get(2)?,
        origin: row.get(5)?,
        path: text(6)?.unwrap_or_default(),
        reading: text(8)?,
        crawler: row.get(3)?,
        method: row.get(4)?,
        ruling: row.get(7)?,
        policy: row.get(10)?,
        snapshot: row.get(11)?,
        ending: ending_seq.map(read_ending).transpose()?,
    })
}
