//! Copies of a record that are made from its rows.

use rusqlite::types::Value;

use super::stats::drawn_record;
use super::*;
use crate::audit::columns::signed;
use crate::audit::record_copy::{RecordCopy, TableRows};

/// Tables whose rows a copy is made from.
const TABLES: [(&str, &[&str]); 17] = [
    (
        "record",
        &["id", "begun_us", "before", "before_last", "digest"],
    ),
    ("body", &["sha256", "body"]),
    ("policy", &["id", "json", "sha256"]),
    (
        "snapshot",
        &[
            "id",
            "origin",
            "token",
            "url",
            "status",
            "fetched_us",
            "expires_us",
            "result",
            "cause",
            "body",
            "hops",
            "sha256",
        ],
    ),
    ("client", &["id", "address", "credential", "sha256"]),
    ("crawler", &["id", "candidates", "user_agent", "sha256"]),
    ("origin", &["id", "origin", "host", "sha256"]),
    (
        "ruling",
        &[
            "id", "verdict", "reason", "effect", "line", "rule", "groups", "crawler", "sha256",
        ],
    ),
    ("directives", &["id", "value", "said", "sha256"]),
    ("term", &["id", "text", "sha256"]),
    (
        "decision",
        &[
            "seq", "time_us", "client", "crawler", "method", "origin", "path", "ruling", "reading",
            "wait_ms", "policy", "snapshot", "salt", "leaf",
        ],
    ),
    (
        "ending",
        &[
            "decision",
            "seq",
            "status",
            "sent",
            "directives",
            "bytes",
            "error",
            "leaf",
        ],
    ),
    (
        "event",
        &[
            "seq",
            "time_us",
            "host",
            "kind",
            "status",
            "until_us",
            "incidents",
            "actor",
            "reason",
            "sent",
            "detail",
            "leaf",
        ],
    ),
    ("lost_range", &["first", "last", "time_us", "digest"]),
    ("seal", &["size", "note", "vkey", "path"]),
    ("subtree", &["part", "hash"]),
    ("leaf_path", &["seq", "path"]),
];

fn rows_of(connection: &Connection, table: &'static str, columns: &'static [&str]) -> TableRows {
    let sql = format!("SELECT {} FROM {table}", columns.join(", "));
    let mut statement = connection.prepare(&sql).unwrap();
    let read = |row: &rusqlite::Row<'_>| {
        let values = (0..columns.len()).map(|at| row.get::<_, Value>(at));
        values.collect::<rusqlite::Result<Vec<_>>>()
    };
    let rows = statement.query_map([], read).unwrap();
    TableRows {
        table,
        columns: columns.to_vec(),
        rows: rows.map(Result::unwrap).collect(),
    }
}

/// Makes the copy of the record of `kit`, but for the rows that `keep` does not want.
fn copy_of(kit: &Kit, path: &Path, keep: impl Fn(&str, i64) -> bool) {
    let connection = Connection::open(kit.path()).unwrap();
    let id = kit.reader().record_id().unwrap();
    let copy = RecordCopy::in_file(path, &id).unwrap();
    for (table, columns) in TABLES {
        let mut rows = rows_of(&connection, table, columns);
        rows.rows.retain(|row| match row.first() {
            Some(Value::Integer(key)) => keep(table, *key),
            _ => true,
        });
        copy.add(&rows).unwrap();
    }
    let last = "SELECT last FROM sequence";
    let last: i64 = connection.query_row(last, [], |row| row.get(0)).unwrap();
    copy.finish(&id, count(last)).unwrap();
    copy.close().unwrap();
}

fn verified(path: &Path) -> (Verification, Vec<String>) {
    let reader = AuditReader::open(path).unwrap();
    let mut found = Vec::new();
    let sums = verify::verify(&reader, &DecisionFilter::default(), |finding| {
        found.push(finding);
    });
    (sums.unwrap(), found)
}

// Ours: docs/archive.md. A record that is made again from its rows is as good.
#[tokio::test]
async fn a_copy_verifies_and_answers_as_its_record() {
    let kit = drawn_record().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.db");
    copy_of(&kit, &path, |_, _| true);
    let (sums, found) = verified(&path);
    assert_eq!(found, Vec::<String>::new());
    let (own, _) = verify(&kit);
    assert_eq!(
        Verification {
            kept: own.kept,
            back_offs: own.back_offs,
            ..sums
        },
        own
    );
    let reader = AuditReader::open(&path).unwrap();
    for filter in [
        DecisionFilter::default(),
        DecisionFilter {
            host: Some("b.test".to_owned()),
            from: Some(now() + jiff::SignedDuration::from_hours(1)),
            ..DecisionFilter::default()
        },
        DecisionFilter {
            verdict: Some("later".to_owned()),
            crawler: Some("foobot".to_owned()),
            ..DecisionFilter::default()
        },
    ] {
        let rows = |reader: &AuditReader| -> Vec<_> {
            let rows = reader.list(&filter, usize::MAX).unwrap();
            rows.iter().map(row_json).collect()
        };
        assert_eq!(rows(&reader), rows(&kit.reader()));
        assert!(!rows(&reader).is_empty());
        let keys = [crate::audit::stats::StatKey::Host];
        let order = crate::audit::stats::StatOrder::Requests;
        let sums = |reader: &AuditReader| {
            crate::audit::stats::stats(reader, &filter, &keys, order).unwrap()
        };
        assert_eq!(sums(&reader), sums(&kit.reader()));
    }
}

// Ours: what is not among the rows is not made up.
#[tokio::test]
async fn a_row_that_a_copy_lacks_is_found() {
    let kit = drawn_record().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.db");
    let rows = kit.rows();
    let missing = signed(rows[rows.len() / 2].seq);
    copy_of(&kit, &path, |table, key| {
        table != "ending" && table != "decision" || key != missing
    });
    let (sums, found) = verified(&path);
    assert_eq!(sums.missing, 2, "{found:?}");
    assert!(
        found
            .iter()
            .any(|finding| finding.starts_with(&format!("{missing}: no such row")))
    );
}
