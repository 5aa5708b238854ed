//! Verification of a bundle, on any machine and without the record.
//!
//! The rows are put into an empty record in memory, some at a time, and read as
//! those of any record: so each leaf is made again from the values, and each
//! decision from its robots.txt. What comes from a bundle may come from anybody:
//! lines, files and numbers are bounded.
//!
//! Does not know whose the key is: that comes from outside.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::mem;

use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::error::{BundleError, DECISIONS_MAX};
use super::form::{
    BundleHeader, BundleLine, DecisionLine, HEAD, KEY, PROOF, README, REPORT, ROBOTS, ROWS,
    VERSION, ValueLine, bytes_of, dictionary, parse_line, placed, values_of,
};
use super::summary::{BundleSummary, INSTRUCTIONS, ReportMaker};
use super::zip::{ZipError, ZipReader};
use crate::audit::columns::read_digest;
use crate::audit::decision_row::{DECISIONS, DecisionReader};
use crate::audit::dictionary::SNAPSHOTS;
use crate::audit::head::{RecordHead, key_name};
use crate::audit::merkle::PlacedLeaf;
use crate::audit::note::{NoteKey, SignedNote};
use crate::audit::reader::AuditReader;
use crate::audit::schema;
use crate::audit::verify::ruling_line;
use crate::decision::again::{Again, EvidenceCache, Undecidable, decide_again};
use crate::decision::digest::{CanonicalBytes, Digest};
use crate::decision::record::StoredRecord;

/// Longest line of the rows: a policy may name thousands of hosts.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Bytes of the lines of all values, which stay in memory.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// Longest robots.txt that is read: twice what the proxy may be told to keep.
const ROBOTS_BYTES_MAX: u64 = 128 << 20;

/// Hashes of a proof at most.
const HASHES_MAX: u64 = 8 << 20;

/// Longest text of the other files.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Decisions in memory at a time, and the bytes of their lines from which on there
/// are fewer.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 8 << 20;

/// Position of the index of the body in the columns of a snapshot.
const BODY_AT: usize = 8;

/// Result of the verification of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleVerification {
    /// Decisions in it.
    pub decisions: u64,
    /// Decisions among them that were decided again, whatever the result.
    pub decided: u64,
    /// Decisions that rest on no robots.txt and were checked for form.
    pub form_only: u64,
    /// Decisions that cannot be decided again, because their query is not kept.
    pub query_withheld: u64,
    /// Rows whose client and URL were redacted. They are proved, and not decided again.
    pub redacted: u64,
    /// Decisions that another revision of the engine made, and that this one makes
    /// otherwise.
    pub other_revision: u64,
    /// Findings.
    pub mismatches: u64,
    /// Files of robots.txt.
    pub robots: u64,
    /// Head that the rows were compared with.
    pub head: RecordHead,
    /// Key that the bundle says it is signed by.
    pub signer: String,
    /// Whether one of the keys from outside has signed the head.
    pub is_signer_known: bool,
}

/// Verifies the bundle in `file`, and that one of `keys` has signed it, unless there
/// are none. Hands each finding to `report`. The report of the bundle is to be the one
/// that `make_report` makes.
///
/// # Errors
///
/// [`BundleError`], if it cannot be read as a bundle.
pub fn verify_bundle(
    file: File,
    keys: &[NoteKey],
    make_report: ReportMaker<'_>,
    report: impl FnMut(String),
) -> Result<BundleVerification, BundleError> {
    let zip = ZipReader::open(file)?;
    let mut findings = Findings { report, count: 0 };
    let signed = SignedHead::read(&zip, keys, &mut findings)?;
    let mut lines = LineReader::new(&zip)?;
    let first = lines.next()?.and_then(|line| parse_line(&line));
    let wrong = || BundleError::of_line(1, "it is not the first line of a bundle");
    let header: BundleHeader = first.ok_or_else(wrong)?;
    if header.bundle != VERSION {
        let cause = "a version of this program that is newer reads it";
        return Err(BundleError::of_line(1, cause));
    }
    if key_name(&header.record) != signed.head.origin {
        findings.add(format!("{ROWS}: the record is another than that of {HEAD}"));
    }
    // Not the record of this machine, if there is one.
    let record = AuditReader::in_memory(schema::open_in_memory()?, &header.record);
    let mut rows = RowsCheck::new(&record, &zip, &mut findings);
    while let Some(line) = lines.next()? {
        rows.add(&line, lines.number)?;
    }
    rows.flush()?;
    let checked = rows.sums;
    checked.check_values(&mut findings);
    checked.check_proof(&zip, &signed.head, &mut findings)?;
    let robots = checked.check_files(&zip, &mut findings)?;
    let counted = make_report(&checked.summary.report(&header, &signed.head));
    for (name, text) in [(REPORT, counted.as_str()), (README, INSTRUCTIONS)] {
        if zip.read(name, TEXT_BYTES_MAX)? != text.as_bytes() {
            findings.add(format!(
                "{name}: the text is another than that of these rows"
            ));
        }
    }
    Ok(BundleVerification {
        decisions: checked.summary.decisions,
        decided: checked.decided,
        form_only: checked.form_only,
        query_withheld: checked.query_withheld,
        redacted: checked.redacted,
        other_revision: checked.other_revision,
        mismatches: findings.count,
        robots,
        signer: signed.signer,
        is_signer_known: signed.is_signer_known,
        head: signed.head,
    })
}

/// Findings, as they are handed on.
struct Findings<F> {
    report: F,
    count: u64,
}

impl<F: FnMut(String)> Findings<F> {
    fn add(&mut self, finding: String) {
        self.count += 1;
        (self.report)(finding);
    }
}

/// Head of a bundle, and who has signed it.
struct SignedHead {
    head: RecordHead,
    signer: String,
    is_signer_known: bool,
}

impl SignedHead {
    fn read<F: FnMut(String)>(
        zip: &ZipReader,
        keys: &[NoteKey],
        findings: &mut Findings<F>,
    ) -> Result<Self, BundleError> {
        let form = |file: &str, cause| BundleError::Form {
            file: file.to_owned(),
            cause,
        };
        let text = text_of(zip, HEAD)?;
        let note: SignedNote = text
            .parse()
            .map_err(|_| form(HEAD, "it is no signed note"))?;
        let parsed = note.text().parse();
        let head: RecordHead = parsed.map_err(|_| form(HEAD, "it is no head of a record"))?;
        let line = text_of(zip, KEY)?;
        let signer = line.strip_suffix('\n').unwrap_or(&line).to_owned();
        let key: NoteKey = signer
            .parse()
            .map_err(|_| form(KEY, "it is no public key"))?;
        if note.verify(&key).is_err() || note.to_string() != text {
            findings.add(format!("{HEAD}: it is not signed by the key of {KEY}"));
        }
        // The key in the bundle proves nothing: whoever forged the one forged the other.
        let is_signer_known = keys.iter().any(|key| note.verify(key).is_ok());
        if !keys.is_empty() && !is_signer_known {
            findings.add(format!("{HEAD}: it is not signed by a key of --key"));
        }
        Ok(Self {
            head,
            signer,
            is_signer_known,
        })
    }
}

fn text_of(zip: &ZipReader, name: &str) -> Result<String, BundleError> {
    let bytes = zip.read(name, TEXT_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|_| BundleError::Form {
        file: name.to_owned(),
        cause: "it is no text",
    })
}

/// Reader of the lines of the rows.
struct LineReader<'a> {
    content: BufReader<super::zip::ZipContent<'a>>,
    /// Number of the last line.
    number: u64,
}

impl<'a> LineReader<'a> {
    fn new(zip: &'a ZipReader) -> Result<Self, BundleError> {
        let content = zip.content(ROWS, u64::from(u32::MAX))?;
        Ok(Self {
            content: BufReader::new(content),
            number: 0,
        })
    }

    /// Reads the next line, without its end; `None` behind the last.
    fn next(&mut self) -> Result<Option<Vec<u8>>, BundleError> {
        let mut line = Vec::new();
        let mut limited = Read::take(&mut self.content, LINE_BYTES_MAX);
        self.number += 1;
        match limited.read_until(b'\n', &mut line)? {
            0 => Ok(None),
            _ if line.pop() == Some(b'\n') => Ok(Some(line)),
            _ => Err(BundleError::of_line(
                self.number,
                "it is too long, or has no end",
            )),
        }
    }
}

/// Counts of the rows of a bundle, and what their proof needs.
#[derive(Default)]
struct RowSums {
    decided: u64,
    form_only: u64,
    query_withheld: u64,
    redacted: u64,
    other_revision: u64,
    summary: BundleSummary,
    leaves: Vec<PlacedLeaf>,
    /// For each value, whether a row refers to it.
    used: Vec<bool>,
    /// Files that snapshots rest on.
    bodies: HashSet<Digest>,
}

/// Check of rows under way.
struct RowsCheck<'a, F> {
    connection: &'a Connection,
    rows: DecisionReader<'a>,
    zip: &'a ZipReader,
    findings: &'a mut Findings<F>,
    evidence: EvidenceCache,
    batch: Vec<DecisionLine>,
    /// Bytes of the lines of the batch.
    batch_bytes: usize,
    /// Bytes of the lines of values.
    value_bytes: usize,
    bytes: CanonicalBytes,
    sums: RowSums,
    /// Number of the last decision.
    last: i64,
}

impl<'a, F: FnMut(String)> RowsCheck<'a, F> {
    fn new(record: &'a AuditReader, zip: &'a ZipReader, findings: &'a mut Findings<F>) -> Self {
        Self {
            connection: &record.connection,
            rows: record.decision_reader(),
            zip,
            findings,
            evidence: EvidenceCache::default(),
            batch: Vec::new(),
            batch_bytes: 0,
            value_bytes: 0,
            bytes: CanonicalBytes::default(),
            sums: RowSums::default(),
            last: 0,
        }
    }

    /// Takes in a line, which has this number.
    fn add(&mut self, line: &[u8], number: u64) -> Result<(), BundleError> {
        let wrong = |cause| BundleError::of_line(number, cause);
        match BundleLine::parse(line).ok_or_else(|| wrong("it is not as it was written"))? {
            BundleLine::Value(value) => {
                self.value_bytes += line.len();
                if VALUE_BYTES_MAX < self.value_bytes {
                    return Err(wrong("there are more values than are read"));
                }
                let added = self.add_value(&value)?;
                added.ok_or_else(|| wrong("the value is none that is written"))
            }
            BundleLine::Decision(decision) => {
                if self.sums.leaves.len() >= 2 * DECISIONS_MAX {
                    return Err(wrong("there are more decisions than are read"));
                }
                // One order, so that rows have one form, and no number comes twice.
                if decision.seq <= self.last {
                    return Err(wrong("it is not behind the row before it"));
                }
                self.last = decision.seq;
                self.mark_used(&decision);
                self.batch.push(*decision);
                self.batch_bytes += line.len();
                if self.batch.len() < BATCH && self.batch_bytes < BATCH_BYTES {
                    return Ok(());
                }
                self.flush()
            }
        }
    }

    /// Puts a value into its dictionary; `None` if there is no such value.
    fn add_value(&mut self, line: &ValueLine) -> Result<Option<()>, BundleError> {
        let next = self.sums.used.len() as i64 + 1;
        // In one order, so that a number says how many values came before.
        let found = dictionary(&line.kind).filter(|_| line.value == next);
        let Some(table) = found else {
            return Ok(None);
        };
        let Some(mut values) = values_of(table, &line.columns) else {
            return Ok(None);
        };
        if table.name == SNAPSHOTS.name
            && let Some(Value::Blob(bytes)) = values.get(BODY_AT)
        {
            self.sums.bodies.extend(read_digest(bytes));
        }
        let sha256 = table.digest_of(&values, &mut self.bytes);
        values.push(Value::Blob(sha256.as_bytes().to_vec()));
        values.push(line.value.into());
        let sql = table.insert_with_id();
        let mut statement = self.connection.prepare_cached(&sql)?;
        // Two values of one kind that are the same do not go into one table.
        let inserted = statement.execute(params_from_iter(values));
        self.sums.used.push(false);
        Ok(inserted.is_ok().then_some(()))
    }

    fn mark_used(&mut self, line: &DecisionLine) {
        let ending = line.ending.as_ref();
        let optional = [
            line.snapshot,
            ending.and_then(|ending| ending.directives),
            ending.and_then(|ending| ending.error),
        ];
        let always = [
            line.client,
            line.origin,
            line.crawler,
            line.method,
            line.ruling,
            line.policy,
        ];
        for number in always.into_iter().chain(optional.into_iter().flatten()) {
            // A number may be any: somebody wrote it.
            let place = number.checked_sub(1).map(usize::try_from);
            if let Some(Ok(place)) = place
                && let Some(used) = self.sums.used.get_mut(place)
            {
                *used = true;
            }
        }
    }

    /// Checks the decisions that have come in.
    fn flush(&mut self) -> Result<(), BundleError> {
        let batch = mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let connection = self.connection;
        // In one transaction, which takes a fraction of the time of many.
        let transaction = connection.unchecked_transaction()?;
        batch.iter().try_for_each(|line| insert(connection, line))?;
        let sql = format!("{} ORDER BY d.seq", DECISIONS.select);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let record = self.rows.record(row)?;
            match self.rows.leaves(row)? {
                Some(leaves) => self.sums.leaves.extend(leaves.into_iter().map(placed)),
                None => {
                    let seq = record.seq;
                    self.findings
                        .add(format!("{seq}: the row refers to what is not there"));
                }
            }
            self.sums.summary.add(&record);
            self.decide(&record)?;
        }
        drop(found);
        // The values stay, the rows go: memory does not grow with them.
        connection.execute_batch("DELETE FROM decision; DELETE FROM ending;")?;
        Ok(transaction.commit()?)
    }

    /// Decides a decision again.
    fn decide(&mut self, record: &StoredRecord) -> Result<(), BundleError> {
        let seq = record.seq;
        let body = match self.evidence.wanted_body(record) {
            Some(wanted) => match self
                .zip
                .read(&format!("{ROBOTS}{wanted}"), ROBOTS_BYTES_MAX)
            {
                Ok(body) => Some(Bytes::from(body)),
                // Found again as a decision that cannot be made.
                Err(ZipError::Missing(_)) => None,
                Err(error) => return Err(error.into()),
            },
            None => None,
        };
        match decide_again(record, body, &mut self.evidence) {
            Ok(Again::Same) => self.sums.decided += 1,
            Ok(Again::FormOnly) => self.sums.form_only += 1,
            Ok(Again::QueryWithheld) => self.sums.query_withheld += 1,
            Ok(Again::OfRevision { .. }) => {
                self.sums.decided += 1;
                self.sums.other_revision += 1;
            }
            Ok(Again::Differs(again)) => {
                self.sums.decided += 1;
                let (found, again) = (ruling_line(&record.ruling), ruling_line(&again));
                self.findings
                    .add(format!("{seq}: the row says {found}, its evidence {again}"));
            }
            Err(Undecidable::Redacted) => self.sums.redacted += 1,
            Err(why) => self
                .findings
                .add(format!("{seq}: cannot be decided again: {why}")),
        }
        Ok(())
    }
}

/// Puts a decision and its ending into the record in memory.
fn insert(connection: &Connection, line: &DecisionLine) -> rusqlite::Result<()> {
    let sql = "
INSERT INTO decision (seq, time_us, client, crawler, method, origin, path, ruling,
  reading, wait_ms, policy, snapshot, salt, leaf)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, x'')";
    let salt = bytes_of(&line.salt).unwrap_or_default();
    connection.prepare_cached(sql)?.execute(params![
        line.seq,
        line.time_us,
        line.client,
        line.crawler,
        line.method,
        line.origin,
        line.path,
        line.ruling,
        line.reading,
        line.wait_ms,
        line.policy,
        line.snapshot,
        salt,
    ])?;
    let Some(ending) = &line.ending else {
        return Ok(());
    };
    let sql = "
INSERT INTO ending (decision, seq, status, sent, directives, bytes, error, leaf)
VALUES (?, ?, ?, ?, ?, ?, ?, x'')";
    connection.prepare_cached(sql)?.execute(params![
        line.seq,
        ending.seq,
        ending.status,
        ending.sent,
        ending.directives,
        ending.bytes,
        ending.error,
    ])?;
    Ok(())
}

impl RowSums {
    /// Looks for values that nothing refers to: no leaf is over them.
    fn check_values<F: FnMut(String)>(&self, findings: &mut Findings<F>) {
        let unused = self.used.iter().filter(|used| !**used).count();
        if 0 < unused {
            findings.add(format!(
                "{ROWS}: no decision refers to {unused} of the values"
            ));
        }
    }

    /// Checks that the proof leads from all leaves to the root of `head`.
    fn check_proof<F: FnMut(String)>(
        &self,
        zip: &ZipReader,
        head: &RecordHead,
        findings: &mut Findings<F>,
    ) -> Result<(), BundleError> {
        let mut leaves = self.leaves.clone();
        leaves.sort_unstable_by_key(|leaf| leaf.index);
        let mut proof = Vec::new();
        // A hash in hexadecimal, and the end of its line.
        let mut lines = BufReader::new(zip.content(PROOF, HASHES_MAX * 65)?);
        let mut line = Vec::new();
        while Read::take(&mut lines, 65).read_until(b'\n', &mut line)? != 0 {
            let text = line.strip_suffix(b"\n").map(String::from_utf8_lossy);
            let hash = text.and_then(|text| read_digest(&bytes_of(&text)?));
            proof.push(hash.ok_or_else(|| BundleError::Form {
                file: PROOF.to_owned(),
                cause: "a line is no hash",
            })?);
            line.clear();
        }
        if leaves.is_empty() || !head.tree.includes_all(&leaves, &proof) {
            findings.add(format!(
                "{ROWS}: a row, a value or {PROOF} is not as it was: the hashes do not lead to \
                 the root of {HEAD}"
            ));
        }
        Ok(())
    }

    /// Checks that the files are those that belong into a bundle, and each
    /// robots.txt the one that its name says. Returns how many there are.
    fn check_files<F: FnMut(String)>(
        &self,
        zip: &ZipReader,
        findings: &mut Findings<F>,
    ) -> Result<u64, BundleError> {
        let own = [README, REPORT, ROWS, PROOF, HEAD, KEY];
        let mut robots = 0;
        for name in zip.names().filter(|name| !own.contains(name)) {
            let sha256 = name
                .strip_prefix(ROBOTS)
                .and_then(|text| read_digest(&bytes_of(text)?));
            match sha256.filter(|sha256| self.bodies.contains(sha256)) {
                None => findings.add(format!("{name}: no decision rests on this file")),
                Some(sha256) => {
                    robots += 1;
                    if Digest::of(&zip.read(name, ROBOTS_BYTES_MAX)?) != sha256 {
                        findings.add(format!("{name}: the file has another SHA-256"));
                    }
                }
            }
        }
        Ok(robots)
    }
}
