//! Verification of a bundle, on any machine and without the record.
//!
//! Values are inserted into an empty record in memory, and decisions are read as
//! from any record: each leaf is computed from its values again, and each decision
//! is made again from its robots.txt. The bundle is untrusted, so lines, files and
//! numbers are bounded.
//!
//! Does not know which key to trust: the caller supplies the keys.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::BundleError;
use super::form::{
    BodyLine, BundleHeader, BundleLine, VERSION, ValueLine, dictionary, placed, values_of,
};
use super::lines::LineReader;
use crate::columns::read_digest;
use crate::decision_row::DecisionReader;
use crate::dictionary::SNAPSHOTS;
use crate::entry_rows::{DecisionEntry, DecisionRow};
use crate::head::{RecordHead, key_name};
use crate::merkle::PlacedLeaf;
use crate::note::{NoteKey, SignedNote};
use crate::reader::AuditReader;
use crate::schema;
use crate::verify::ruling_line;
use politesse_decision::again::{Again, EvidenceCache, Undecidable, decide_again};
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::record::StoredRecord;

/// Position of the SHA-256 of the body in the columns of a snapshot.
const BODY_AT: usize = 8;

/// Result of the verification of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleVerification {
    /// Counts of the decisions.
    pub sums: BundleSums,
    /// Number of findings.
    pub mismatches: u64,
    /// Number of robots.txt files.
    pub robots: u64,
    /// Head that the decisions were checked against.
    pub head: RecordHead,
    /// Key that the bundle names as its signer.
    pub signer: String,
    /// Whether one of the caller's keys has signed the head.
    pub is_signer_known: bool,
}

/// Decisions of a bundle, by the result of deciding them again.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct BundleSums {
    /// All decisions.
    pub decisions: u64,
    /// Decisions that were decided again, whether or not the result is the same.
    pub decided: u64,
    /// Decisions that rest on no robots.txt; only their form was checked.
    pub form_only: u64,
    /// Decisions that cannot be decided again because their query string is not
    /// stored.
    pub query_withheld: u64,
    /// Decisions whose client and URL were redacted. They are proved, but not
    /// decided again.
    pub redacted: u64,
    /// Decisions made by another revision of the engine that this revision decides
    /// differently.
    pub other_revision: u64,
}

/// Verifies the bundle in `file`, and that one of `keys` has signed it (not checked
/// if `keys` is empty). Each finding is passed to `report`.
///
/// # Errors
///
/// [`BundleError`] if the file cannot be read as a bundle.
pub fn verify_bundle(
    file: impl Read,
    keys: &[NoteKey],
    report: impl FnMut(String),
) -> Result<BundleVerification, BundleError> {
    let mut lines = LineReader::new(file);
    let header = match lines.next()? {
        Some(BundleLine::Bundle(header)) if header.version == VERSION => header,
        _ => return Err(lines.fault("it was written by a newer version of this program")),
    };
    // An in-memory record, so that a record on this machine cannot affect the
    // result.
    let record = AuditReader::in_memory(schema::open_in_memory()?, &header.record);
    let findings = Findings { report, count: 0 };
    let mut check = BundleCheck::new(&record, &header, findings)?;
    while let Some(line) = lines.next()? {
        check.number = lines.number();
        let BundleLine::Sha256(stated) = line else {
            check.add(line)?;
            continue;
        };
        if lines.sha256() != Some(stated) {
            let finding = "a line is not as it was: the last one has another SHA-256";
            check.findings.add(finding.to_owned());
        }
    }
    check.end(keys)
}

/// Reports findings and counts them.
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

/// Signed note of a head, and the head parsed from it.
struct SignedHead {
    note: SignedNote,
    head: RecordHead,
}

/// State of the check of one bundle.
struct BundleCheck<'a, F> {
    connection: &'a Connection,
    rows: DecisionReader<'a>,
    header: &'a BundleHeader,
    findings: Findings<F>,
    /// Number of the line being checked.
    number: u64,
    evidence: EvidenceCache,
    bytes: CanonicalBytes,
    sums: BundleSums,
    leaves: Vec<PlacedLeaf>,
    /// For each value, whether a row refers to it.
    used: Vec<bool>,
    /// Robots.txt files by their SHA-256.
    robots: HashMap<Digest, Bytes>,
    /// SHA-256 of each robots.txt file that a snapshot refers to.
    wanted: HashSet<Digest>,
    /// Number of the newest decision read.
    last: i64,
    proof: Vec<Digest>,
    head: Option<SignedHead>,
    key: Option<NoteKey>,
}

impl<'a, F: FnMut(String)> BundleCheck<'a, F> {
    fn new(
        record: &'a AuditReader,
        header: &'a BundleHeader,
        findings: Findings<F>,
    ) -> Result<Self, BundleError> {
        // A single transaction takes a fraction of the time of one per row.
        record.connection.execute_batch("BEGIN")?;
        Ok(Self {
            connection: &record.connection,
            rows: record.decision_reader(),
            header,
            findings,
            number: 1,
            evidence: EvidenceCache::default(),
            bytes: CanonicalBytes::default(),
            sums: BundleSums::default(),
            leaves: Vec::new(),
            used: Vec::new(),
            robots: HashMap::new(),
            wanted: HashSet::new(),
            last: 0,
            proof: Vec::new(),
            head: None,
            key: None,
        })
    }

    /// Makes an error about the line being checked.
    fn fault(&self, cause: &'static str) -> BundleError {
        BundleError::Line {
            number: self.number,
            cause,
        }
    }

    /// Adds a line other than the first and the last.
    fn add(&mut self, line: BundleLine) -> Result<(), BundleError> {
        match line {
            BundleLine::Value(value) => self.add_value(&value)?,
            BundleLine::Robots(robots) => self.add_robots(&robots)?,
            BundleLine::Decision(entry) => self.add_decision(*entry)?,
            BundleLine::Hash(hash) => self.proof.push(hash),
            BundleLine::Head(text) => {
                let head = signed_head(&text);
                self.head = Some(head.ok_or_else(|| self.fault("it is not a head of a record"))?);
            }
            BundleLine::Key(text) => {
                let key = text.parse().ok();
                self.key = Some(key.ok_or_else(|| self.fault("it is not a public key"))?);
            }
            BundleLine::Bundle(_) | BundleLine::Sha256(_) => {}
        }
        Ok(())
    }

    /// Adds a value to its dictionary.
    fn add_value(&mut self, line: &ValueLine) -> Result<(), BundleError> {
        let next = self.used.len() as i64 + 1;
        // Numbers are consecutive: a bundle has one form, and `used` can be a list.
        let table = dictionary(&line.kind).filter(|_| line.number == next);
        let found = table.and_then(|table| Some((table, values_of(table, &line.columns)?)));
        let Some((table, mut values)) = found else {
            return Err(self.fault("the record writes no such value"));
        };
        if table.name == SNAPSHOTS.name
            && let Some(Value::Blob(bytes)) = values.get(BODY_AT)
        {
            self.wanted.extend(read_digest(bytes));
        }
        let sha256 = table.digest_of(&values, &mut self.bytes);
        values.push(Value::Blob(sha256.as_bytes().to_vec()));
        values.push(line.number.into());
        let sql = table.insert_with_id();
        let mut statement = self.connection.prepare_cached(&sql)?;
        self.used.push(false);
        // A table rejects a value that it already has.
        match statement.execute(params_from_iter(values)) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.fault("the value occurs twice")),
        }
    }

    fn add_robots(&mut self, line: &BodyLine) -> Result<(), BundleError> {
        let Ok(body) = STANDARD.decode(&line.body) else {
            return Err(self.fault("the body is not in Base64"));
        };
        if Digest::of(&body) != line.sha256 {
            let finding = format!("robots.txt {}: the body has another SHA-256", line.sha256);
            self.findings.add(finding);
        }
        match self.robots.insert(line.sha256, body.into()) {
            None => Ok(()),
            Some(_) => Err(self.fault("the robots.txt occurs twice")),
        }
    }

    fn add_decision(&mut self, mut entry: DecisionEntry) -> Result<(), BundleError> {
        // Ascending order, so that a bundle has one form and no number occurs
        // twice.
        let seq = entry.decision.seq;
        if seq <= self.last {
            return Err(self.fault("it is not after the decision before it"));
        }
        self.last = seq;
        if let Some(ending) = &mut entry.ending {
            ending.decision = seq;
        }
        self.mark_used(&mut entry);
        self.check_conditions(&entry.decision)?;
        let (record, leaves) = self.rows.with_leaves(entry)?;
        match leaves {
            Some(leaves) => {
                let leaves = [Some(leaves.decision), leaves.ending];
                self.leaves.extend(leaves.into_iter().flatten().map(placed));
            }
            None => {
                let finding = format!("{seq}: the row refers to what is not there");
                self.findings.add(finding);
            }
        }
        self.decide(&record);
        Ok(())
    }

    /// Checks that a decision matches the filter in the first line.
    fn check_conditions(&mut self, row: &DecisionRow) -> Result<(), BundleError> {
        let BundleHeader { from, until, .. } = self.header;
        let is_late_enough = from.is_none_or(|from| from.as_microsecond() <= row.time_us);
        let is_early_enough = until.is_none_or(|until| row.time_us < until.as_microsecond());
        let is_at_host = match &self.header.host {
            // A redacted row keeps its origin only if its snapshot has the same
            // one.
            Some(host) if row.origin != 0 => {
                let sql = "SELECT 1 FROM origin WHERE id = ? AND host = ?";
                let mut statement = self.connection.prepare_cached(sql)?;
                statement.exists(params![row.origin, host])?
            }
            _ => true,
        };
        if !(is_late_enough && is_early_enough && is_at_host) {
            let finding = "it does not meet the conditions of the first line";
            self.findings.add(format!("{}: {finding}", row.seq));
        }
        Ok(())
    }

    /// Marks the values that a decision refers to as used.
    fn mark_used(&mut self, entry: &mut DecisionEntry) {
        for (number, _) in entry.references() {
            let place = number.checked_sub(1).map(usize::try_from);
            if let Some(Ok(place)) = place
                && let Some(used) = self.used.get_mut(place)
            {
                *used = true;
            }
        }
    }

    /// Decides a decision again, and reports any difference.
    fn decide(&mut self, record: &StoredRecord) {
        let seq = record.seq;
        let wanted = self.evidence.wanted_body(record);
        // A missing body makes the decision undecidable, which is reported below.
        let body = wanted.and_then(|sha256| self.robots.get(&sha256).cloned());
        let sums = &mut self.sums;
        sums.decisions += 1;
        match decide_again(record, body, &mut self.evidence) {
            Ok(Again::Same) => sums.decided += 1,
            Ok(Again::FormOnly) => sums.form_only += 1,
            Ok(Again::QueryWithheld) => sums.query_withheld += 1,
            Ok(Again::OfRevision { .. }) => {
                sums.decided += 1;
                sums.other_revision += 1;
            }
            Ok(Again::Differs(again)) => {
                sums.decided += 1;
                let (found, again) = (ruling_line(&record.ruling), ruling_line(&again));
                self.findings
                    .add(format!("{seq}: the row says {found}, its evidence {again}"));
            }
            Ok(Again::OtherEnding(finding)) => {
                sums.decided += 1;
                self.findings.add(format!("{seq}: {finding}"));
            }
            Err(Undecidable::Redacted) => sums.redacted += 1,
            Err(why) => self
                .findings
                .add(format!("{seq}: cannot be decided again: {why}")),
        }
    }

    /// Runs the checks that need all lines: signatures, the proof, and references.
    fn end(mut self, keys: &[NoteKey]) -> Result<BundleVerification, BundleError> {
        let (Some(signed), Some(key)) = (self.head.take(), self.key.take()) else {
            return Err(self.fault("there is no head, or no key"));
        };
        let SignedHead { note, head } = signed;
        if key_name(&self.header.record) != head.origin {
            self.findings
                .add("the head is that of another record".to_owned());
        }
        if note.verify(&key).is_err() {
            self.findings
                .add("the head is not signed by the key in the bundle".to_owned());
        }
        // The bundle's own key proves nothing, because a forger would include
        // another one.
        let is_signer_known = keys.iter().any(|key| note.verify(key).is_ok());
        if !keys.is_empty() && !is_signer_known {
            self.findings
                .add("the head is not signed by a key of --key".to_owned());
        }
        self.check_proof(&head);
        self.check_references();
        Ok(BundleVerification {
            sums: self.sums,
            mismatches: self.findings.count,
            robots: self.robots.len() as u64,
            head,
            signer: key.to_string(),
            is_signer_known,
        })
    }

    /// Checks that the proof leads from all leaves to the root of `head`.
    fn check_proof(&mut self, head: &RecordHead) {
        self.leaves.sort_unstable_by_key(|leaf| leaf.index);
        if self.leaves.is_empty() || !head.tree.includes_all(&self.leaves, &self.proof) {
            let finding = "a row, a value or the proof is not as it was: the hashes do not lead \
                           to the root of the head";
            self.findings.add(finding.to_owned());
        }
    }

    /// Reports values and files that no decision refers to, because no leaf covers
    /// them, and files that are missing. A redacted decision is not decided again,
    /// so its missing file would otherwise go unnoticed.
    fn check_references(&mut self) {
        let unused = self.used.iter().filter(|used| !**used).count();
        if 0 < unused {
            self.findings
                .add(format!("no decision refers to {unused} of the values"));
        }
        for sha256 in &self.wanted {
            if !self.robots.contains_key(sha256) {
                self.findings
                    .add(format!("robots.txt {sha256}: it is not in the bundle"));
            }
        }
        for sha256 in self.robots.keys() {
            if !self.wanted.contains(sha256) {
                self.findings
                    .add(format!("robots.txt {sha256}: no decision rests on it"));
            }
        }
    }
}

/// Parses a head; `None` if it is malformed.
fn signed_head(text: &str) -> Option<SignedHead> {
    let note: SignedNote = text.parse().ok()?;
    let head = note.text().parse().ok()?;
    // Only one form is accepted, so that nothing can be added beside the
    // signatures.
    (note.to_string() == text).then_some(SignedHead { note, head })
}
