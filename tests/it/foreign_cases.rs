//! Runs `crates/politesse-robots/cases/foreign`, the test suites of other engines, through
//! `check --batch`.
//!
//! Where we deviate, the row has our answer and the reason. A row without a reason must
//! get the answer of its suite, and a row with one must get ours.

use serde_json::Value;

use crate::cases::{cases, text};
use crate::kit::program::{ended, politesse};

const SUITES: [&str; 8] = [
    include_str!("../../crates/politesse-robots/cases/foreign/cpython.jsonl"),
    include_str!("../../crates/politesse-robots/cases/foreign/crawler-commons.jsonl"),
    include_str!("../../crates/politesse-robots/cases/foreign/google-robotstxt.jsonl"),
    include_str!("../../crates/politesse-robots/cases/foreign/google-spec-test.jsonl"),
    include_str!("../../crates/politesse-robots/cases/foreign/protego.jsonl"),
    include_str!("../../crates/politesse-robots/cases/foreign/robots-parser.jsonl"),
    include_str!("../../crates/politesse-robots/cases/foreign/temoto.jsonl"),
    include_str!("../../crates/politesse-robots/cases/foreign/www-robotrules.jsonl"),
];

/// Number of rows in all suites.
const ROWS: usize = 2141;

fn rows() -> Vec<Value> {
    let rows: Vec<Value> = SUITES.into_iter().flat_map(cases).collect();
    assert_eq!(rows.len(), ROWS);
    rows
}

#[tokio::test]
async fn check_agrees_with_other_suites_unless_a_row_gives_a_reason() {
    let rows = rows();
    let folder = tempfile::tempdir().unwrap();
    let mut command = politesse(folder.path());
    command.args(["check", "--batch", "-"]);
    let lines = rows.iter().map(|row| format!("{row}\n"));
    let outcome = ended(command, lines.collect::<String>().as_bytes()).await;
    let told = outcome.json_lines();
    assert_eq!(told.len(), rows.len(), "{}", outcome.stderr);
    let missed = rows.iter().zip(&told).filter_map(|(row, answer)| {
        let wanted = row["ours"].as_str().unwrap_or(text(row, "expect"));
        let found = answer["verdict"].as_str().unwrap_or("error");
        let id = text(row, "id");
        (found != wanted).then(|| format!("{id}: {found} in place of {wanted}"))
    });
    assert_eq!(missed.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_deviation_has_a_reason_and_every_row_a_unique_id() {
    let rows = rows();
    for row in &rows {
        let ours = row["ours"].as_str();
        assert_eq!(ours.is_some(), row["reason"].is_string(), "{row}");
        assert_ne!(ours, row["expect"].as_str(), "{row}");
    }
    let mut ids: Vec<&str> = rows.iter().map(|row| text(row, "id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), ROWS);
}
