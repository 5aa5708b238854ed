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

/// Returns a message for each answer that differs from its row.
fn misses(rows: &[Value], answers: impl IntoIterator<Item = String>) -> Vec<String> {
    let answered = rows.iter().zip(answers);
    let missed = answered.filter_map(|(row, found)| {
        let (id, theirs) = (text(row, "id"), text(row, "expect"));
        match row["ours"].as_str() {
            None if found == theirs => None,
            None => Some(format!(
                "{id}: {found} in place of {theirs}, without a reason"
            )),
            Some(ours) if found == ours => None,
            Some(_) if found == theirs => Some(format!(
                "{id}: {theirs}, as the suite wants; its `ours` and `reason` can go"
            )),
            Some(ours) => Some(format!("{id}: {found} in place of our {ours}")),
        }
    });
    missed.collect()
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
    let answers = told.iter().map(|answer| {
        let verdict = answer["verdict"].as_str();
        verdict.unwrap_or("error").to_owned()
    });
    let missed = misses(&rows, answers);
    assert!(missed.is_empty(), "{missed:#?}");
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

// The check of the check: each way in which a row can be wrong is reported.
#[test]
fn a_wrong_row_is_reported_with_and_without_a_reason() {
    let agreed = serde_json::json!({"id": "a", "expect": "allow"});
    let differing = serde_json::json!({"id": "b", "expect": "allow", "ours": "disallow"});
    let misses_of = |found: &str| {
        let rows = [agreed.clone(), differing.clone()];
        misses(&rows, [found.to_owned(), found.to_owned()])
    };
    assert_eq!(
        misses_of("allow"),
        ["b: allow, as the suite wants; its `ours` and `reason` can go"]
    );
    assert_eq!(
        misses_of("disallow"),
        ["a: disallow in place of allow, without a reason"]
    );
    assert_eq!(misses_of("error").len(), 2);
}
