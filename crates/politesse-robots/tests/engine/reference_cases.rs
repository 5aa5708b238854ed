//! Runs `cases/dialects.jsonl` and `cases/robots.jsonl` through the naive reference
//! (`tests/reference`), because the reference must itself follow the specifications.

use serde_json::Value;

use crate::cases::{body, cases, text};
use crate::reference::{Dialect, Verdict, decide, decide_at, google_path};

const DIALECTS: &str = include_str!("../../cases/dialects.jsonl");
const ROBOTS: &str = include_str!("../../cases/robots.jsonl");

/// Returns the path of a case's URL in the form that the dialect expects.
pub(crate) fn path(dialect: Dialect, url: &str) -> String {
    if dialect == Dialect::Google {
        return google_path(url);
    }
    let rest = url.strip_prefix("https://h.example").unwrap();
    rest.split('#').next().unwrap().to_owned()
}

fn verdict(dialect: Dialect, case: &Value) -> Verdict {
    let path = path(dialect, text(case, "url"));
    let (body, agent) = (body(case), text(case, "agent"));
    if dialect == Dialect::Rfc9309 {
        decide_at("https://h.example", &body, agent, &path)
    } else {
        decide(dialect, &body, agent, &path)
    }
}

/// Returns the ids of the cases for which `holds` is false.
fn broken(cases: &[Value], holds: impl Fn(&Value) -> bool) -> Vec<&str> {
    let broken = cases.iter().filter(|case| !holds(case));
    broken.map(|case| text(case, "id")).collect()
}

#[test]
fn every_dialect_case_holds() {
    let cases = cases(DIALECTS);
    let broken = broken(&cases, |case| {
        let dialect = Dialect::named(text(case, "dialect")).unwrap();
        let verdict = verdict(dialect, case);
        case["expect"] == verdict.allow && case["line"] == serde_json::json!(verdict.line)
    });
    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn every_dialect_has_a_case_that_allows_and_one_that_refuses() {
    let cases = cases(DIALECTS);
    for dialect in Dialect::ALL {
        for expect in [true, false] {
            let mut of_dialect = cases
                .iter()
                .filter(|case| case["dialect"] == dialect.name());
            assert!(of_dialect.any(|case| case["expect"] == expect));
        }
    }
}

#[test]
fn no_two_dialect_cases_have_the_same_id() {
    let cases = cases(DIALECTS);
    let mut ids: Vec<&str> = cases.iter().map(|case| text(case, "id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), cases.len());
}

#[test]
fn the_reference_meets_every_robots_case() {
    let cases = cases(ROBOTS);
    let broken = broken(&cases, |case| {
        case["expect"] == verdict(Dialect::Rfc9309, case).allow
    });
    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn the_reference_answers_every_robots_case_as_google_does() {
    let cases = cases(ROBOTS);
    let broken = broken(&cases, |case| {
        case["google"] == verdict(Dialect::Google, case).allow
    });
    assert!(broken.is_empty(), "{broken:?}");
}

// robots_test.cc, `TestGetPathParamsQuery`.
#[test]
fn the_path_of_google_follows_the_authority() {
    for (url, path) in [
        ("", "/"),
        ("http://www.example.com", "/"),
        ("http://www.example.com/", "/"),
        ("http://www.example.com/a", "/a"),
        ("http://www.example.com/a/", "/a/"),
        (
            "http://www.example.com/a/b?c=http://d.e/",
            "/a/b?c=http://d.e/",
        ),
        (
            "http://www.example.com/a/b?c=d&e=f#fragment",
            "/a/b?c=d&e=f",
        ),
        ("example.com", "/"),
        ("example.com/", "/"),
        ("example.com/a", "/a"),
        ("example.com/a/", "/a/"),
        ("example.com/a/b?c=d&e=f#fragment", "/a/b?c=d&e=f"),
        ("a", "/"),
        ("a/", "/"),
        ("/a", "/a"),
        ("a/b", "/b"),
        ("example.com?a", "/?a"),
        ("example.com/a;b#c", "/a;b"),
        ("//a/b/c", "/b/c"),
    ] {
        assert_eq!(google_path(url), path, "{url}");
    }
}
