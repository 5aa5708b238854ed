//! Readers of `Robots-Directives` in three languages: the programs of
//! `docs/annotation.md`, unchanged, run on fields that the library wrote.
//!
//! `tests/run` installs the packages that they import.

use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use politesse_directives::{
    AnnotationContext, DirectiveLimits, FieldFormat, PageReader, ResponseHead,
};
use serde_json::json;
use tokio::process::Command;

use crate::kit::assert_contains;
use crate::kit::checkout::root;
use crate::kit::program::finish;

#[path = "../../crates/politesse-directives/examples/read_field.rs"]
#[expect(dead_code, reason = "an example has a main of its own")]
mod example;

const CHAPTER: &str = include_str!("../../docs/annotation.md");
const EXAMPLE: &str = include_str!("../../crates/politesse-directives/examples/read_field.rs");

/// A field, the crawler that reads it, and whether the crawler may index the page.
type Row = (Option<String>, &'static str, &'static str);

/// How much of a page the reader saw.
#[derive(Clone, Copy)]
enum Look {
    Whole,
    /// The page ended within its head.
    Cut,
    /// The reader itself failed.
    Failed,
}

/// Returns the field for an HTML page whose `X-Robots-Tag` says `content` to all
/// crawlers. Without `token` the field addresses all crawlers, too.
fn field(token: Option<&str>, content: &str, look: Look) -> String {
    let mut fields = HeaderMap::new();
    for (name, value) in [("content-type", "text/html"), ("x-robots-tag", content)] {
        let name = HeaderName::from_static(name);
        fields.append(name, HeaderValue::from_str(value).unwrap());
    }
    let reading = AnnotationContext {
        tokens: token.as_slice(),
        now: Timestamp::UNIX_EPOCH,
        robots: None,
        limits: DirectiveLimits::default(),
    };
    let response = ResponseHead {
        method: &Method::GET,
        status: StatusCode::OK,
        fields: &fields,
        known: None,
    };
    let mut page = PageReader::new(reading, response);
    page.push(b"<title>");
    match look {
        Look::Whole => page.push(b"</title><body>"),
        Look::Cut => {}
        Look::Failed => page.fail(),
    }
    page.annotation().header_value(&FieldFormat::default())
}

/// Returns the rows: fields as the proxy sends them, several fields combined, malformed
/// fields, and a missing one.
fn rows() -> Vec<Row> {
    let all = "noimageindex, max-snippet:20, max-image-preview:none, \
               unavailable_after: 2100-01-01, nofollow";
    let all_and_noindex = format!("{all}, noindex");
    let sent = [
        ("", Look::Whole, "yes"),
        ("noindex", Look::Whole, "no"),
        ("none", Look::Whole, "no"),
        (all, Look::Whole, "yes"),
        (&all_and_noindex, Look::Whole, "no"),
        ("unavailable_after: 1969-01-01", Look::Whole, "no"),
        ("nofollow", Look::Cut, "not known"),
        ("noindex", Look::Cut, "no"),
        ("", Look::Failed, "not known"),
        ("noindex", Look::Failed, "no"),
    ];
    let sent = sent.map(|(content, look, answer)| {
        let field = field(Some("FooBot"), content, look);
        (Some(field), "foobot", answer)
    });
    let own = field(Some("FooBot"), "", Look::Whole);
    let others = field(Some("OtherBot"), "", Look::Whole);
    let others_shut = field(Some("OtherBot"), "noindex", Look::Whole);
    let everyone = field(None, "", Look::Whole);
    let all_shut = field(None, "noindex", Look::Whole);
    let combined = [
        (everyone, "foobot", "yes"),
        (all_shut.clone(), "foobot", "no"),
        (others, "foobot", "not known"),
        (format!("{others_shut}, {own}, {all_shut}"), "foobot", "yes"),
        (format!("{own}, {others_shut}"), "otherbot", "no"),
        (format!("{own}, {all_shut}"), "thirdbot", "no"),
        (format!("{own}, {all_shut}"), "constructor", "no"),
    ];
    let combined = combined.map(|(field, crawler, answer)| (Some(field), crawler, answer));
    let malformed = [
        "",
        "nonsense",
        "foobot",
        "foobot=()",
        "foobot=();state",
        "foobot=();state=partial",
        "foobot=();state=complete,",
        "foobot=();state=complete;",
        "foobot=(;state=complete",
        "foobot=(noindex",
        "foobot=(noindex);state=complete, X=1",
        "foobot=1;state=complete",
        "foobot=\"\";state=complete",
        "foobot=::;state=complete",
        "foobot=?1;state=complete, *=();state=complete",
        "foobot=();state=complete \u{e9}",
    ];
    let malformed = malformed.map(|field| (Some(field.to_owned()), "foobot", "not known"));
    let missing = (None, "foobot", "not known");
    let rows = sent.into_iter().chain(combined).chain(malformed);
    rows.chain([missing]).collect()
}

/// Returns the chapter's program in `language`.
fn block(language: &str) -> &'static str {
    let start = format!("\n```{language}\n");
    let (_, rest) = CHAPTER.split_once(&start).unwrap();
    let end = rest.find("```\n").unwrap();
    &rest[..end]
}

/// Gives the rows to a program as JSON, and asserts that it prints the right answer for
/// each, one per line.
async fn assert_answers(command: Command) {
    let rows = rows();
    let questions = rows
        .iter()
        .map(|(field, crawler, _)| json!([field, crawler]));
    let questions = json!(questions.collect::<Vec<_>>()).to_string();
    let outcome = finish(command, questions.as_bytes()).await.assert_code(0);
    assert_eq!(outcome.stdout.lines().count(), rows.len(), "{outcome:?}");
    for ((field, crawler, wanted), answer) in rows.iter().zip(outcome.stdout.lines()) {
        assert_eq!(answer, *wanted, "{crawler} of {field:?}");
    }
}

/// Returns the path of a file or folder that `tests/run` installs.
fn installed(path: &str) -> PathBuf {
    let path = root().join(path);
    assert!(path.exists(), "run tests/run: it makes {}", path.display());
    path
}

#[tokio::test]
async fn the_documented_python_program_reads_the_field() {
    let mut command = Command::new(installed("target/venv/bin/python"));
    let ask = "import json, sys\n\
                   for question in json.load(sys.stdin): print(may_index(*question))";
    command.args(["-c", &format!("{}\n{ask}", block("python"))]);
    assert_answers(command).await;
}

// Ours: politesse.annotation.
#[tokio::test]
async fn the_python_package_reads_the_field() {
    let mut command = Command::new("python3");
    crate::clients::with_package(&mut command);
    let ask = "import json, sys\n\
                   from politesse.annotation import parse\n\
                   answers = {True: 'no', False: 'yes', None: 'not known'}\n\
                   for field, crawler in json.load(sys.stdin):\n    \
                       said = parse(field or '')\n    \
                       annotation = said.get(crawler, said.get('*'))\n    \
                       print(answers[annotation and annotation.has('noindex')])";
    command.args(["-c", ask]);
    assert_answers(command).await;
}

#[tokio::test]
async fn the_documented_javascript_program_reads_the_field() {
    let mut command = Command::new("node");
    let ask = "import { readFileSync } from 'node:fs';\n\
                   for (const question of JSON.parse(readFileSync(0))) console.log(mayIndex(...question));";
    // Node looks for imports from the working folder.
    command.current_dir(installed("target/node"));
    let program = format!("{}\n{ask}", block("js"));
    command.args(["--input-type=module", "-e", &program]);
    assert_answers(command).await;
}

#[test]
fn the_documented_rust_program_reads_the_field() {
    for (field, crawler, wanted) in rows() {
        let answer = match example::may_index(field.as_deref(), crawler) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        };
        assert_eq!(answer, wanted, "{crawler} of {field:?}");
    }
    // docs/annotation.md shows the example.
    assert_contains(&EXAMPLE.replace("pub(crate) ", ""), block("rust"));
}
