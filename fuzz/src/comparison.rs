//! The engine's answer to a question, held against the reference's.

use politesse_robots::crawler::Crawler;
use politesse_robots::{Binding, Judgement, RobotsTxt};

use crate::question::Question;
use crate::reference::{self, Dialect, Verdict};

/// Below this product of the bytes of the file and of the path, the engine
/// decides every question. Above it, it may refuse as undecided: the file is
/// made to be slow.
pub const UNDECIDED_MIN: usize = 1 << 20;

/// Asks both in `dialect`.
///
/// # Panics
///
/// If they disagree, or if the engine gives up on what it has to decide.
pub fn compare(dialect: Dialect, question: &Question) {
    let Question { body, path, .. } = question;
    let path = as_taken(dialect, path);
    let token = question.token();
    let robots = RobotsTxt::in_dialect(body.clone(), of_engine(dialect));
    let binding = robots.binding(&Crawler::restore(token.iter().cloned().collect(), None));
    let judgement = binding.judge(&path);
    if judgement == Judgement::Undecided {
        let size = body.len() * path.len();
        assert!(UNDECIDED_MIN <= size, "undecided: {question:?}");
        return;
    }
    let found = Verdict {
        allow: judgement.allows(),
        line: judgement.rule().map(|rule| rule.line()),
        bound: binding.is_bound(),
    };
    let agent = token.as_ref().map_or("", |token| token.as_str());
    let wanted = reference::decide(dialect, body, agent, &path);
    let wanted = as_told(dialect, &found, &path, wanted);
    assert_eq!(
        found,
        wanted,
        "engine and reference in {dialect:?}\n{question:?}\n{}",
        String::from_utf8_lossy(body)
    );
    if dialect == Dialect::Rfc9309 {
        compare_as_served(&binding, question, &path);
    }
    let competing = binding.competing(&path);
    match &judgement {
        Judgement::Rule(rule) => assert_eq!(Some(rule), competing.first(), "{question:?}"),
        Judgement::NoRule | Judgement::NoGroup => {
            assert!(competing.is_empty(), "{competing:?} compete: {question:?}");
        }
        Judgement::RobotsTxt | Judgement::Undecided => {}
    }
}

/// Compares the two where a Disallow is tried as servers read paths.
fn compare_as_served(binding: &Binding, question: &Question, path: &str) {
    let binding = binding.clone().as_served();
    let judgement = binding.judge(path);
    if judgement == Judgement::Undecided {
        return;
    }
    let token = question.token();
    let agent = token.as_ref().map_or("", |token| token.as_str());
    let wanted = reference::decide_as_served(&question.body, agent, path);
    let found = (judgement.allows(), judgement.rule().map(|rule| rule.line()));
    assert_eq!(
        found,
        (wanted.allow, wanted.line),
        "as served: {question:?}"
    );
}

/// Returns the engine's name for a dialect of the reference.
fn of_engine(dialect: Dialect) -> politesse_robots::Dialect {
    let name = dialect.name();
    name.parse()
        .unwrap_or_else(|error| panic!("the engine has no such dialect: {error}"))
}

/// Returns the path as a crawler has it: without a NUL, and it lacks its slash
/// only where it is empty (`https://site.example?query`). google/robotstxt gets
/// a slash even then.
fn as_taken(dialect: Dialect, path: &str) -> String {
    let path = path.replace('\0', "");
    let is_empty = path.is_empty() || path.starts_with('?');
    if path.starts_with('/') || (is_empty && dialect != Dialect::Google) {
        path
    } else {
        format!("/{path}")
    }
}

/// Returns what the reference says, in the engine's words. An empty path in a
/// rule decides nothing in either, but google/robotstxt names its line all the
/// same.
fn as_told(dialect: Dialect, found: &Verdict, path: &str, wanted: Verdict) -> Verdict {
    let names_empty = dialect == Dialect::Google && wanted.allow && found.line.is_none();
    if names_empty || path == "/robots.txt" {
        return Verdict {
            line: found.line,
            ..wanted
        };
    }
    wanted
}
