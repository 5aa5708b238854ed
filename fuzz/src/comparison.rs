//! Comparison of the engine's answer to a question with the reference's.

use politesse_robots::crawler::Crawler;
use politesse_robots::{Binding, Judgement, RobotsTxt};

use crate::question::Question;
use crate::reference::{self, Dialect, Verdict};

/// Smallest product of the bytes of the file and of the path for which the engine may
/// leave a question undecided, because the file is made to be slow. Below it, the
/// engine decides every question.
pub const UNDECIDED_MIN: usize = 1 << 20;

/// Asks the engine and the reference in `dialect`, and compares their answers.
///
/// # Panics
///
/// If the answers differ, or if the engine leaves a question undecided that it has to
/// decide.
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

/// Compares the answers for Disallow rules that match paths the way servers read them.
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

/// Returns the path as a crawler has it: without NUL, and with a leading slash unless
/// it is empty (`https://site.example?query`). For google/robotstxt, an empty path gets
/// the slash too.
fn as_taken(dialect: Dialect, path: &str) -> String {
    let path = path.replace('\0', "");
    let is_empty = path.is_empty() || path.starts_with('?');
    if path.starts_with('/') || (is_empty && dialect != Dialect::Google) {
        path
    } else {
        format!("/{path}")
    }
}

/// Returns the reference's verdict in the form in which the engine gives it. The line
/// is not compared for `/robots.txt`, nor where an empty path in a rule decides
/// nothing: google/robotstxt names its line, the engine does not.
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
