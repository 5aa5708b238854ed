//! Runs `crates/politesse-robots/cases/foreign`, the test suites of other engines, through
//! the library and through `check --batch`.
//!
//! Where we deviate, the row has our answer and the reason. A row without a reason must
//! get the answer of its suite, and a row with one must get ours.

use std::fmt;

use politesse_decision::access::{StatusMeaning, status_meaning};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use politesse_robots::{Dialect, FileSource, RobotsTxt};
use serde_json::Value;

use crate::cases::{body, cases, text};
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

/// An answer that differs from the one its row expects from us.
struct Miss {
    id: String,
    /// Verdict that the suite expects.
    theirs: String,
    /// Our own verdict according to the row, if it deviates.
    ours: Option<String>,
    found: String,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, theirs, .. } = self;
        match &self.ours {
            None => write!(
                f,
                "{id}: {} in place of {theirs}, without a reason",
                self.found
            ),
            Some(_) if self.found == *theirs => write!(
                f,
                "{id}: {theirs}, as the suite wants; its `ours` and `reason` can go"
            ),
            Some(ours) => write!(f, "{id}: {} in place of our {ours}", self.found),
        }
    }
}

/// Returns a message for each answer that differs from its row.
fn misses(rows: &[Value], answers: impl IntoIterator<Item = String>) -> Vec<String> {
    let answered = rows.iter().zip(answers);
    let missed = answered.filter_map(|(row, found)| {
        let theirs = text(row, "expect").to_owned();
        let ours = row["ours"].as_str().map(str::to_owned);
        let id = text(row, "id").to_owned();
        let is_met = *ours.as_ref().unwrap_or(&theirs) == found;
        (!is_met).then(|| {
            Miss {
                id,
                theirs,
                ours,
                found,
            }
            .to_string()
        })
    });
    missed.collect()
}

/// Returns the verdict of the library; `error` if the URL is invalid.
fn verdict(row: &Value) -> &'static str {
    let Ok(target) = text(row, "url").parse::<Target>() else {
        return "error";
    };
    let status = row["status"].as_u64().unwrap_or(200);
    let allows = match status_meaning(u16::try_from(status).unwrap()) {
        StatusMeaning::Parse => is_allowed(row, &target),
        StatusMeaning::Unavailable => true,
        StatusMeaning::Redirect | StatusMeaning::Unreachable => false,
    };
    if allows { "allow" } else { "disallow" }
}

fn is_allowed(row: &Value, target: &Target) -> bool {
    let dialect: Dialect = text(row, "dialect").parse().unwrap();
    let robots = RobotsTxt::from_source(body(row), dialect, FileSource::new(&target.origin, None));
    let binding = robots.binding(&Crawler::parse(text(row, "agent")));
    binding.judge(target.path_and_query()).allows()
}

#[test]
fn the_library_agrees_with_other_suites_unless_a_row_gives_a_reason() {
    let rows = rows();
    let answers = rows.iter().map(|row| verdict(row).to_owned());
    let missed = misses(&rows, answers);
    assert!(missed.is_empty(), "{missed:#?}");
}

#[tokio::test]
async fn check_agrees_with_other_suites_unless_a_row_gives_a_reason() {
    let rows = rows();
    let folder = tempfile::tempdir().unwrap();
    let mut command = politesse(folder.path());
    command.args(["check", "--batch", "-"]);
    let lines = rows.iter().map(|row| format!("{row}\n"));
    let outcome = ended(command, lines.collect::<String>().as_bytes()).await;
    let told = outcome.stdout.split('\n').filter(|line| !line.is_empty());
    let told: Vec<Value> = told
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
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
