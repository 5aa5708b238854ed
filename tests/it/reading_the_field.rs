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

use crate::kit::program::finish;

#[path = "../../crates/politesse-directives/examples/read_field.rs"]
#[expect(dead_code, reason = "an example has a main of its own")]
mod example;

const CHAPTER: &str = include_str!("../../docs/annotation.md");
const EXAMPLE: &str = include_str!("../../crates/politesse-directives/examples/read_field.rs");

/// A field, the crawler that reads it, and whether the crawler may index the page.
struct Row {
    field: Option<String>,
    crawler: &'static str,
    answer: &'static str,
}

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
    let row = |field: Option<String>, crawler, answer| Row {
        field,
        crawler,
        answer,
    };
    let sent = |content: &str, look| Some(field(Some("FooBot"), content, look));
    let everyone = |content: &str| field(None, content, Look::Whole);
    let others = |content: &str| field(Some("OtherBot"), content, Look::Whole);
    let own = field(Some("FooBot"), "", Look::Whole);
    let all = "noimageindex, max-snippet:20, max-image-preview:none, \
               unavailable_after: 2100-01-01, nofollow";
    let mut rows = vec![
        row(sent("", Look::Whole), "foobot", "yes"),
        row(sent("noindex", Look::Whole), "foobot", "no"),
        row(sent("none", Look::Whole), "foobot", "no"),
        row(sent(all, Look::Whole), "foobot", "yes"),
        row(
            sent(&format!("{all}, noindex"), Look::Whole),
            "foobot",
            "no",
        ),
        row(
            sent("unavailable_after: 1969-01-01", Look::Whole),
            "foobot",
            "no",
        ),
        row(sent("nofollow", Look::Cut), "foobot", "not known"),
        row(sent("noindex", Look::Cut), "foobot", "no"),
        row(sent("", Look::Failed), "foobot", "not known"),
        row(sent("noindex", Look::Failed), "foobot", "no"),
        row(Some(everyone("")), "foobot", "yes"),
        row(Some(everyone("noindex")), "foobot", "no"),
        row(Some(others("")), "foobot", "not known"),
        row(
            Some(format!(
                "{}, {own}, {}",
                others("noindex"),
                everyone("noindex")
            )),
            "foobot",
            "yes",
        ),
        row(
            Some(format!("{own}, {}", others("noindex"))),
            "otherbot",
            "no",
        ),
        row(
            Some(format!("{own}, {}", everyone("noindex"))),
            "thirdbot",
            "no",
        ),
        row(
            Some(format!("{own}, {}", everyone("noindex"))),
            "constructor",
            "no",
        ),
        row(None, "foobot", "not known"),
    ];
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
    rows.extend(malformed.map(|field| row(Some(field.to_owned()), "foobot", "not known")));
    rows
}

/// Returns the chapter's program in `language`.
fn block(language: &str) -> &'static str {
    let start = CHAPTER.split(&format!("\n```{language}\n")).nth(1).unwrap();
    start
        .split_inclusive("\n```\n")
        .next()
        .unwrap()
        .trim_end_matches("```\n")
}

/// Gives the rows to a program as JSON, and asserts that it prints the right answer for
/// each, one per line.
async fn assert_answers(command: Command) {
    let rows = rows();
    let questions: Vec<_> = rows
        .iter()
        .map(|row| json!([row.field, row.crawler]))
        .collect();
    let outcome = finish(command, json!(questions).to_string().as_bytes()).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.lines().count(), rows.len(), "{outcome:?}");
    for (row, answer) in rows.iter().zip(outcome.stdout.lines()) {
        assert_eq!(answer, row.answer, "{} of {:?}", row.crawler, row.field);
    }
}

/// Returns the path of a file or folder that `tests/run` installs.
fn installed(path: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
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
    command.args([
        "--input-type=module",
        "-e",
        &format!("{}\n{ask}", block("js")),
    ]);
    assert_answers(command).await;
}

#[test]
fn the_documented_rust_program_reads_the_field() {
    for row in rows() {
        let answer = match example::may_index(row.field.as_deref(), row.crawler) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        };
        assert_eq!(answer, row.answer, "{} of {:?}", row.crawler, row.field);
    }
    let example = EXAMPLE.replace("pub(crate) ", "");
    assert!(
        example.contains(block("rust")),
        "docs/annotation.md differs from the example"
    );
}
