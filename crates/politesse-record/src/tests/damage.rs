//! Random damage to a record: every change to the results of a query must be found.
//!
//! A record with entries of every kind is damaged at random in three ways: without
//! further changes, with all hashes computed again, and with all heads also signed
//! again with the record's own key. `verify` alone finds the first two; the last
//! needs a head that was exported before. That head also reveals entries deleted
//! from the end together with their heads, the highest number and the marker.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, params};

use super::events::{entered, left};
use super::seals::{head, heads_of, outside, sealed_every};
use super::stats::{Draws, drawn};
use super::*;
use crate::columns::{TableRow as _, signed};
use crate::decision_row::DecisionReader;
use crate::dictionary::DICTIONARIES;
use crate::entry_rows::{DECISIONS, DecisionEntry};
use crate::events::EVENTS;
use crate::head::RecordHead;
use crate::leaf::RecordId;
use crate::merkle::TreeHead;
use crate::note::NoteSigner;
use crate::record_id::read_id;
use crate::seal_check::SealEvidence;
use crate::seal_key::read_key;
use crate::sequence::{LostRange, write_last};
use crate::tree_rows::TreeReader;
use politesse_decision::digest::CanonicalBytes;

/// Cases per test, of some milliseconds each.
const CASES: u64 = 150;

/// Tables of evidence. Saved state is not evidence, but has a digest.
const EVIDENCE: [&str; 13] = [
    "decision",
    "ending",
    "event",
    "lost_range",
    "body",
    "policy",
    "snapshot",
    "client",
    "crawler",
    "origin",
    "ruling",
    "directives",
    "term",
];
const OTHERS: [&str; 4] = ["record", "sequence", "seal", "back_off"];

/// Abilities of an attacker with write access to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skill {
    /// Changes only rows.
    Plain,
    /// Also computes all hashes again.
    Hashes,
    /// Also signs all heads again, with the private key.
    Heads,
}

/// Intact record, as files, with its newest head.
struct Original {
    folder: TempDir,
    bytes: Vec<u8>,
    dump: String,
    evidence: SealEvidence,
}

impl Original {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = sealed_every(folder.path(), 8);
        let kit = Kit::with(folder, &options);
        let mut draws = Draws(1);
        for number in 0..24 {
            let record = drawn(&mut draws, now());
            let (_, ending) = kit.log.record(record).await.unwrap();
            let error = (number % 5 == 0).then_some("incomplete");
            ending.complete(ExchangeEnd { error, ..done(200) });
            kit.log.probe().await.unwrap();
            if number % 6 == 0 {
                kit.log.record_event(entered("o.test", 90 + number));
            } else if number % 6 == 3 {
                kit.log.record_event(left("o.test", 90 + number));
            }
        }
        kit.log.probe().await.unwrap();
        let folder = kit.closed().await;
        let path = file(folder.path());
        add_lost_range(&path, 3);
        // The range is sealed at the next stop.
        let kit = Kit::with(folder, &options);
        let (_, ending) = kit.log.record(record("/private/end")).await.unwrap();
        drop(ending);
        let folder = kit.closed().await;
        let connection = Connection::open(&path).unwrap();
        let heads = heads_of(&connection);
        assert!(5 < heads.len(), "{heads:?}");
        Self {
            bytes: fs::read(&path).unwrap(),
            dump: dump(&connection).unwrap(),
            evidence: outside(heads.last().unwrap()),
            folder,
        }
    }

    /// Copies the database without the files beside it.
    fn copy(&self) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.db");
        fs::write(&path, &self.bytes).unwrap();
        (folder, path)
    }

    /// Returns the findings about the database at `path`. If it cannot be read,
    /// that is a finding too.
    fn found(&self, path: &Path, evidence: &SealEvidence) -> Vec<String> {
        let mut found = Vec::new();
        let verified = AuditReader::open(path).and_then(|reader| {
            let all = DecisionFilter::default();
            verify::verify_with(&reader, &all, evidence, |finding| found.push(finding))
        });
        match verified {
            Ok(sums) => {
                let count = sums.mismatches + sums.missing;
                // Findings that are neither mismatches nor missing entries do not
                // count.
                if count == 0 {
                    found.clear();
                }
            }
            Err(error) => found.push(error.to_string()),
        }
        found
    }

    fn signer(&self, connection: &Connection) -> NoteSigner {
        let name = format!("politesse/{}", read_id(connection).unwrap().unwrap());
        read_key(&self.folder.path().join("data/seal.key"), &name).unwrap()
    }
}

/// Notes `count` numbers as lost, like a start after damage.
pub(super) fn add_lost_range(path: &Path, count: i64) {
    let connection = Connection::open(path).unwrap();
    let id = RecordId::parse(&read_id(&connection).unwrap().unwrap());
    let last = last_number(&connection).unwrap().unwrap();
    let lost = LostRange {
        first: last + 1,
        last: last + count,
        time_us: 7,
        ..LostRange::default()
    };
    lost.write(&connection, id).unwrap();
    write_last(&connection, id, lost.last).unwrap();
}

/// Changed rows, in the terms of findings.
#[derive(Debug, Default)]
struct ChangedPlaces {
    /// Numbers of entries.
    numbers: BTreeSet<i64>,
    /// Texts by which other findings name a change.
    texts: Vec<String>,
}

impl ChangedPlaces {
    /// Compares the results of all queries before and after. `connection` is to the
    /// original record.
    fn new(connection: &Connection, was: &str, now: &str) -> Self {
        let lines = |dump: &str| -> BTreeSet<String> { dump.lines().map(str::to_owned).collect() };
        let (was, now) = (lines(was), lines(now));
        let mut places = Self::default();
        for line in was.symmetric_difference(&now) {
            let (table, row) = line.split_once(' ').unwrap();
            places.add(connection, table, row);
        }
        places
    }

    fn add(&mut self, connection: &Connection, table: &str, row: &str) {
        let number = |word: usize| -> Option<i64> {
            let word = row.split(' ').nth(word)?;
            word.strip_prefix("Integer(")?
                .strip_suffix(')')?
                .parse()
                .ok()
        };
        let refer = |sql: &str| -> Vec<i64> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([number(0)], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        match table {
            "decision" | "event" => self.numbers.extend(number(0)),
            // A decision and its ending are listed together.
            "ending" => self
                .numbers
                .extend([number(0), number(1)].into_iter().flatten()),
            "lost_range" => {
                let first = number(0).unwrap_or_default();
                let last = number(1).unwrap_or_default();
                // A changed number may give a range of any length.
                self.numbers
                    .extend(first..=last.min(first.saturating_add(100)));
            }
            "record" => self.texts.push("the record's id".to_owned()),
            "sequence" => self.texts.push("the record's highest number".to_owned()),
            // The next head reveals a missing head, because it is chained to it.
            "seal" => self.texts.push("in the table seal".to_owned()),
            "back_off" => self.texts.push("the back-off kept".to_owned()),
            // Found by its key, or through decisions that cannot be made again.
            "body" => {
                self.texts.push("robots.txt ".to_owned());
                self.numbers.extend(refer(
                    "SELECT seq FROM decision WHERE snapshot IS NOT NULL AND ?1 IS NULL",
                ));
            }
            dictionary => {
                let id = number(0);
                self.texts.push(format!("{dictionary} {}:", id.unwrap()));
                let column = if dictionary == "term" {
                    "method"
                } else {
                    dictionary
                };
                self.numbers.extend(match dictionary {
                    "directives" => refer("SELECT decision FROM ending WHERE directives = ?"),
                    _ => refer(&format!("SELECT seq FROM decision WHERE {column} = ?")),
                });
                if dictionary == "term" {
                    self.numbers
                        .extend(refer("SELECT decision FROM ending WHERE error = ?"));
                }
            }
        }
    }

    /// Reports whether `finding` names one of the changes, a range that includes
    /// one, or the exported head.
    fn are_named(&self, finding: &str) -> bool {
        if finding.starts_with("head (head of")
            || self.texts.iter().any(|text| finding.contains(text))
        {
            return true;
        }
        let place = finding.split(':').next().unwrap_or_default();
        let place = place.strip_prefix("event ").unwrap_or(place);
        let (first, last) = place.split_once(" to ").unwrap_or((place, place));
        match (first.parse::<i64>(), last.parse::<i64>()) {
            (Ok(first), Ok(last)) if first <= last => {
                self.numbers.range(first..=last).next().is_some()
            }
            _ => false,
        }
    }
}

/// Writes the results of all queries, each row after the name of its table.
fn dump(connection: &Connection) -> rusqlite::Result<String> {
    let mut text = String::new();
    for table in EVIDENCE
        .iter()
        .chain(&OTHERS)
        .chain(&["clock_step", "subtree", "kept"])
    {
        let mut statement = connection
            .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))
            .or_else(|_| connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1")))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            write!(text, "{table} ").unwrap();
            for column in 0..columns {
                write!(text, "{:?} ", row.get_ref(column)?).unwrap();
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// Returns the columns of a table: name and declared type.
fn columns(connection: &Connection, table: &str) -> Vec<[String; 2]> {
    let mut statement = connection
        .prepare(&format!("PRAGMA table_info({table})"))
        .unwrap();
    let read = |row: &Row<'_>| Ok([row.get(1)?, row.get(2)?]);
    statement
        .query_map([], read)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// Picks a random row of `table`. Returns an SQL condition for it.
fn drawn_row(connection: &Connection, table: &str, draws: &mut Draws) -> String {
    let count = format!("SELECT count(*) FROM {table}");
    let count: i64 = connection.query_row(&count, [], |row| row.get(0)).unwrap();
    assert!(0 < count, "{table}");
    if ["record", "back_off"].contains(&table) {
        return "true".to_owned();
    }
    let at = draws.below(count.unsigned_abs());
    format!("rowid = (SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET {at})")
}

/// Changes one value of one row. Returns the statement; `None` if it had no effect.
fn flip(connection: &Connection, table: &str, draws: &mut Draws) -> Option<String> {
    let columns = columns(connection, table);
    let [name, kind] = &columns[draws.below(columns.len() as u64) as usize];
    // There is a single row, and no query reads this column.
    if table == "sequence" && name == "id" {
        return None;
    }
    let row = drawn_row(connection, table, draws);
    let select = format!("SELECT {name} FROM {table} WHERE {row}");
    let old: Value = connection
        .query_row(&select, [], |row| row.get::<_, RawValue>(0))
        .unwrap()
        .0;
    let mut flipped = |mut bytes: Vec<u8>| {
        let bit = 1 << draws.below(7);
        match draws.below(bytes.len().max(1) as u64) as usize {
            at if at < bytes.len() => bytes[at] ^= bit,
            _ => bytes.push(bit),
        }
        bytes
    };
    let (value, cast) = match (old, kind.as_str()) {
        (Value::Integer(number), _) => (Value::Integer(number ^ (1 << draws.below(20))), "?1"),
        (Value::Text(text), _) => (Value::Blob(flipped(text.into_bytes())), "CAST(?1 AS TEXT)"),
        (Value::Blob(bytes), _) => (Value::Blob(flipped(bytes)), "?1"),
        (_, "INTEGER") => (Value::Integer(1), "?1"),
        (_, "TEXT") => (Value::Text("x".to_owned()), "?1"),
        _ => (Value::Blob(vec![1; 32]), "?1"),
    };
    let sql = format!("UPDATE {table} SET {name} = {cast} WHERE {row}");
    connection
        .execute(&sql, [value])
        .ok()
        .filter(|count| 0 < *count)?;
    Some(sql)
}

/// Value of a column whose text may not be valid UTF-8.
struct RawValue(Value);

impl rusqlite::types::FromSql for RawValue {
    fn column_result(value: ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
        Ok(Self(match value {
            ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Integer(number),
            ValueRef::Real(number) => Value::Real(number),
            ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        }))
    }
}

/// Damages rows at random. Returns the statement.
fn damage(connection: &Connection, tables: &[&str], draws: &mut Draws) -> Option<String> {
    let table = tables[draws.below(tables.len() as u64) as usize];
    let run = |sql: String| connection.execute_batch(&sql).ok().map(|()| sql);
    match draws.below(6) {
        0 => {
            let every = 1 + draws.below(5);
            let rest = draws.below(every);
            let key = match table {
                "record" | "back_off" => "true".to_owned(),
                _ => format!("rowid % {every} = {rest}"),
            };
            run(format!("DELETE FROM {table} WHERE {key}"))
        }
        1 => {
            let [one, other] = [0; 2].map(|_| drawn_row(connection, "decision", draws));
            // Swaps all values of two rows except their numbers.
            run(format!(
                "CREATE TEMP TABLE pair AS SELECT seq FROM decision WHERE {one} OR {other};
                 UPDATE decision SET seq = -seq WHERE seq IN (SELECT seq FROM pair);
                 UPDATE decision SET seq = (SELECT p.seq FROM pair AS p WHERE p.seq != -decision.seq)
                 WHERE seq < 0; DROP TABLE pair"
            ))
        }
        2 => {
            let row = drawn_row(connection, "body", draws);
            run(format!("UPDATE body SET body = x'0a' || body WHERE {row}"))
        }
        _ => flip(connection, table, draws),
    }
}

/// Computes all hashes again from the rows.
fn make_hashes(connection: &Connection) -> rusqlite::Result<()> {
    let mut bodies = connection.prepare("SELECT rowid, sha256, body FROM body")?;
    let read = |row: &Row<'_>| {
        let body = row.get_ref(2)?.as_bytes().unwrap_or_default();
        let digest = Digest::of(body).as_bytes().to_vec();
        Ok((row.get(0)?, row.get(1)?, digest))
    };
    let changed: Vec<(i64, Vec<u8>, Vec<u8>)> =
        bodies.query_map([], read)?.collect::<Result<_, _>>()?;
    for (row, old, new) in changed {
        connection.execute(
            "UPDATE body SET sha256 = ? WHERE rowid = ?",
            params![new, row],
        )?;
        connection.execute(
            "UPDATE snapshot SET body = ? WHERE body = ?",
            params![new, old],
        )?;
    }
    let mut room = CanonicalBytes::default();
    for table in DICTIONARIES {
        let mut statement = connection.prepare(table.select)?;
        let read = |row: &Row<'_>| {
            let id: i64 = row.get(table.width() + 1)?;
            Ok((id, table.digest(row, &mut room)?.as_bytes().to_vec()))
        };
        let digests: Vec<_> = statement.query_map([], read)?.collect::<Result<_, _>>()?;
        for (id, digest) in digests {
            let sql = format!("UPDATE {} SET sha256 = ? WHERE id = ?", table.name);
            connection.execute(&sql, params![digest, id])?;
        }
    }
    let id = RecordId::parse(&read_id(connection)?.unwrap_or_default());
    let mut rows = DecisionReader::new(connection, id);
    let mut statement = connection.prepare(DECISIONS.select)?;
    let read = |row: &Row<'_>| {
        Ok((
            row.get::<_, i64>(0)?,
            rows.with_leaves(DecisionEntry::read(row)?)?.1,
        ))
    };
    let leaves: Vec<_> = statement.query_map([], read)?.collect::<Result<_, _>>()?;
    for (seq, leaves) in leaves {
        // Leaf of the decision, and leaf of its ending.
        let tables = [
            "UPDATE decision SET leaf = ? WHERE seq = ?",
            "UPDATE ending SET leaf = ? WHERE decision = ?",
        ];
        for (run, sql) in leaves
            .iter()
            .flat_map(|leaves| [Some(leaves.decision), leaves.ending])
            .flatten()
            .zip(tables)
        {
            connection.execute(sql, params![run.leaf.as_bytes().as_slice(), seq])?;
        }
    }
    let mut statement = connection.prepare(EVENTS.select)?;
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, EventRow::read(row)?.leaf_in(id)));
    let leaves: Vec<_> = statement.query_map([], read)?.collect::<Result<_, _>>()?;
    for (seq, leaf) in leaves {
        let values = params![leaf.as_bytes().as_slice(), seq];
        connection.execute("UPDATE event SET leaf = ? WHERE seq = ?", values)?;
    }
    let mut statement = connection.prepare("SELECT * FROM lost_range")?;
    let ranges = statement.query_map([], LostRange::read)?;
    let ranges: Vec<LostRange> = ranges.collect::<Result<_, _>>()?;
    for range in ranges {
        let digest = range.digest_in(id);
        let values = params![digest.as_bytes().as_slice(), range.first];
        connection.execute("UPDATE lost_range SET digest = ? WHERE first = ?", values)?;
    }
    write_last(connection, id, last_number(connection)?.unwrap_or_default())
}

/// Makes all heads again, as far as there are entries, signed by `signer`.
fn make_heads(connection: &Connection, signer: &NoteSigner) -> rusqlite::Result<()> {
    let mut previous = None;
    for mut seal in heads_of(connection) {
        let size = seal.size.unsigned_abs();
        let all = 0..size;
        let roots = TreeReader::new(connection).roots(std::slice::from_ref(&all))?;
        let Some(root) = roots.and_then(|roots| roots.first().copied()) else {
            let sql = "DELETE FROM seal WHERE ? <= size";
            return connection.execute(sql, [seal.size]).map(drop);
        };
        let anew = RecordHead {
            tree: TreeHead { size, root },
            previous,
            ..head(&seal)
        };
        seal.note = signer.sign(&anew.text()).to_string();
        previous = Some(Digest::of(seal.note.as_bytes()));
        let values = params![seal.note, seal.size];
        connection.execute("UPDATE seal SET note = ? WHERE size = ?", values)?;
    }
    Ok(())
}

/// Damages rows at random with `skill`, and asserts that every change is found.
async fn damaged_rows_are_found(skill: Skill, tables: &[&str]) {
    let original = Original::new().await;
    let (_kept, path) = original.copy();
    assert_eq!(
        original.found(&path, &original.evidence),
        Vec::<String>::new()
    );
    let mut cases = 0;
    for seed in 0..CASES {
        let mut draws = Draws(seed);
        let (_folder, path) = original.copy();
        let connection = Connection::open(&path).unwrap();
        let loose = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;
                     PRAGMA synchronous = OFF";
        connection.execute_batch(loose).unwrap();
        let Some(done) = damage(&connection, tables, &mut draws) else {
            continue;
        };
        // Values that became equal have the same hash, which the table rejects.
        if skill != Skill::Plain && make_hashes(&connection).is_err() {
            continue;
        }
        if skill == Skill::Heads {
            make_heads(&connection, &original.signer(&connection)).unwrap();
        }
        let dump = dump(&connection).unwrap();
        // The statement had no effect, or `make_hashes` undid it.
        if dump == original.dump {
            continue;
        }
        drop(connection);
        let (_kept, whole) = original.copy();
        let whole = Connection::open(&whole).unwrap();
        let places = ChangedPlaces::new(&whole, &original.dump, &dump);
        cases += 1;
        let evidence = match skill {
            Skill::Plain | Skill::Hashes => &SealEvidence::default(),
            Skill::Heads => &original.evidence,
        };
        let found = original.found(&path, evidence);
        assert!(
            found.iter().any(|finding| places.are_named(finding)),
            "seed {seed}: {done}: {places:?}: {found:#?}"
        );
    }
    assert!(CASES / 2 < cases, "{cases}");
}

// Ours: without any head, each change by hand is found, with its place.
#[tokio::test]
async fn any_damage_to_rows_is_found() {
    let tables = [&EVIDENCE[..], &OTHERS].concat();
    damaged_rows_are_found(Skill::Plain, &tables).await;
}

// Ours: the heads in the table reveal the change unless the attacker has their key.
#[tokio::test]
async fn any_damage_to_evidence_with_recomputed_hashes_is_found() {
    damaged_rows_are_found(Skill::Hashes, &EVIDENCE).await;
}

// Ours: against an attacker who has the key, an exported head is needed.
#[tokio::test]
async fn any_damage_to_evidence_with_new_heads_is_found_by_an_exported_head() {
    damaged_rows_are_found(Skill::Heads, &EVIDENCE).await;
}

// Ours: people read the record through its view, and a trigger could change what is
// written.
#[tokio::test]
async fn an_added_or_changed_schema_object_is_found() {
    let original = Original::new().await;
    for (change, name) in [
        (
            "DROP VIEW audit_log; CREATE VIEW audit_log AS SELECT 1",
            "view audit_log",
        ),
        ("DROP VIEW audit_log", "view audit_log"),
        (
            "CREATE TRIGGER quiet AFTER INSERT ON decision BEGIN
             UPDATE decision SET path = '/' WHERE seq = new.seq; END",
            "trigger quiet",
        ),
        ("DROP INDEX origin_host", "index origin_host"),
        ("CREATE TABLE other (id INTEGER)", "table other"),
    ] {
        let (_folder, path) = original.copy();
        Connection::open(&path)
            .unwrap()
            .execute_batch(change)
            .unwrap();
        let found = original.found(&path, &SealEvidence::default());
        let wanted = format!("{name}: the schema of the database is another here");
        assert_eq!(found, [wanted], "{change}");
    }
}

#[tokio::test]
async fn entries_cut_off_with_all_their_traces_are_found_by_an_exported_head() {
    let original = Original::new().await;
    let mut draws = Draws(3);
    for _ in 0..20 {
        let (_folder, path) = original.copy();
        let connection = Connection::open(&path).unwrap();
        let last = last_number(&connection).unwrap().unwrap();
        let cut = signed(draws.below(last.unsigned_abs()));
        connection
            .execute_batch(&format!(
                "PRAGMA foreign_keys = OFF; DELETE FROM decision WHERE {cut} < seq;
                 DELETE FROM ending WHERE {cut} < seq; DELETE FROM event WHERE {cut} < seq;
                 DELETE FROM lost_range WHERE {cut} < last; DELETE FROM seal WHERE {cut} < size;
                 UPDATE sequence SET last = {cut}"
            ))
            .unwrap();
        make_hashes(&connection).unwrap();
        drop(connection);
        let found = original.found(&path, &original.evidence);
        let said = format!("to {last}: no such row");
        let one = format!("{last}: no such row");
        let is_named = |finding: &String| finding.contains(&said) || finding.starts_with(&one);
        assert!(found.iter().any(is_named), "{cut}: {found:?}");
        let ends = |finding: &String| finding.contains("the record ends at");
        assert!(found.iter().any(ends), "{cut}: {found:?}");
    }
}

#[tokio::test]
async fn a_truncated_file_or_a_changed_byte_is_found() {
    let original = Original::new().await;
    let mut draws = Draws(5);
    let mut cases = 0;
    for seed in 0..2 * CASES {
        let (_folder, path) = original.copy();
        let mut bytes = original.bytes.clone();
        let at = draws.below(bytes.len() as u64) as usize;
        match seed % 8 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << draws.below(8),
        }
        fs::write(&path, &bytes).unwrap();
        let after = Connection::open(&path).and_then(|connection| dump(&connection));
        // No query reads this byte.
        if after.as_ref().is_ok_and(|dump| *dump == original.dump) {
            continue;
        }
        cases += 1;
        let found = original.found(&path, &original.evidence);
        let differs = after.map(|dump| {
            let mut lines = dump.lines().zip(original.dump.lines());
            lines.find_map(|(now, was)| (now != was).then(|| format!("{now}, was {was}")))
        });
        assert!(!found.is_empty(), "{seed}: byte {at}: {differs:?}");
    }
    // Most bytes of the file are zeros, or in unused pages.
    assert!(CASES / 4 < cases, "{cases}");
}

// Ours: one bit of the file turns a text into a blob with the same bytes.
#[tokio::test]
async fn a_text_that_became_a_blob_is_found() {
    let original = Original::new().await;
    for (table, column) in [("decision", "path"), ("event", "host"), ("event", "kind")] {
        let (_folder, path) = original.copy();
        let schema = |from: &str, to: &str| {
            let connection = Connection::open(&path).unwrap();
            connection
                .execute_batch(&format!(
                    "PRAGMA writable_schema = ON;
                     UPDATE sqlite_schema SET sql = replace(sql, '{from}', '{to}')
                     WHERE name = '{table}'"
                ))
                .unwrap();
        };
        // A strict table does not accept a blob in a text column.
        schema(") STRICT", ") /**/");
        let update = format!(
            "UPDATE {table} SET {column} = CAST({column} AS BLOB) WHERE {column} IS NOT NULL"
        );
        let changed = Connection::open(&path).unwrap().execute(&update, []);
        assert!(0 < changed.unwrap());
        schema(") /**/", ") STRICT");
        let found = original.found(&path, &SealEvidence::default());
        let is_named = |finding: &String| finding.contains("not as it was written");
        assert!(found.iter().any(is_named), "{table}.{column}: {found:?}");
    }
}

// Ours: a flipped verdict is found by deciding again, even if all hashes and heads
// match.
#[tokio::test]
async fn a_flipped_verdict_is_found_even_if_all_hashes_match() {
    let original = Original::new().await;
    let (_folder, path) = original.copy();
    let connection = Connection::open(&path).unwrap();
    let seq = "(SELECT max(seq) FROM decision)";
    connection
        .execute_batch(&format!(
            "INSERT INTO ruling SELECT 99, 'allow', reason, effect, line, rule, groups, crawler, denials, x'00'
             FROM ruling WHERE id = (SELECT ruling FROM decision WHERE seq = {seq});
             UPDATE decision SET ruling = 99 WHERE seq = {seq}"
        ))
        .unwrap();
    make_hashes(&connection).unwrap();
    make_heads(&connection, &original.signer(&connection)).unwrap();
    let last: i64 = connection
        .query_row(&format!("SELECT {seq}"), [], |row| row.get(0))
        .unwrap();
    drop(connection);
    let found = original.found(&path, &SealEvidence::default());
    let wanted = format!("{last}: the row says allow");
    assert!(found[0].starts_with(&wanted), "{found:?}");
    assert_eq!(found.len(), 1);
}

// Ours: impossibly high numbers must not keep `verify` from finishing.
#[tokio::test]
async fn verify_finishes_even_with_impossible_numbers() {
    for change in [
        "INSERT INTO seal (size, note, vkey) VALUES (9000000000000000000, '', '')",
        "INSERT INTO pruned VALUES (1, 9223372036854775807, 0, 1, '', '')",
        "INSERT INTO seal (size, note, vkey) VALUES (9000000000000000000, '', '');
         INSERT INTO lost_range VALUES (8000000000000000000, 8999999999999999999, 0, x'')",
    ] {
        let kit = one_of_each().await;
        kit.sql(change);
        let found = verify(&kit).1;
        assert!(found.len() < 100, "{change}: {}", found.len());
    }
}
