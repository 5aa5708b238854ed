//! Judged requests as individual rows.
//!
//! Does not know how requests are judged.

use std::io;

use serde_json::{Map, Value, json};

use super::outcome::JudgedRequest;
use super::past_request::PastAgent;
use crate::cli::audit::rows::{RowForm, RowLayout, RowWriter};
use politesse_base::inert::inert;
use politesse_directives::PurposeSet;
use politesse_pages::explain::json::RulingJson;

/// CSV columns, named like the JSON members.
const COLUMNS: [&str; 16] = [
    "time",
    "url",
    "verdict",
    "reason",
    "line",
    "rule",
    "token",
    "crawler",
    "user_agent",
    "status",
    "denied",
    "denials",
    "robots.url",
    "robots.fetched_at",
    "file",
    "place",
];

/// Writer of judged requests.
pub(super) struct RequestRows<'a> {
    rows: RowWriter,
    /// Names of the files, by file number.
    files: &'a [String],
    /// Purposes to report denials of.
    purposes: PurposeSet,
}

impl<'a> RequestRows<'a> {
    /// Makes a writer that has written nothing yet.
    pub(super) fn new(form: RowForm, files: &'a [String], purposes: PurposeSet) -> Self {
        let layout = RowLayout {
            header: fields(["TIME", "VERDICT", "REASON", "CRAWLER"]) + "URL (LINE: RULE)",
            columns: COLUMNS.to_vec(),
        };
        Self {
            rows: RowWriter::new(form, layout),
            files,
            purposes,
        }
    }

    /// Writes a request.
    pub(super) fn write(&mut self, judged: &JudgedRequest) -> io::Result<()> {
        let Self {
            files, purposes, ..
        } = *self;
        self.rows
            .row(|| row_json(judged, files, purposes), || row_text(judged))
    }

    /// Ends the rows.
    pub(super) fn end(self) -> io::Result<()> {
        self.rows.end()
    }
}

/// Builds the object of a request: the members that `check --batch` prints for it,
/// except the id, and the request's place in the files.
fn row_json(judged: &JudgedRequest, files: &[String], purposes: PurposeSet) -> Value {
    let request = &judged.request;
    let mut row = Map::new();
    row.insert(
        "time".to_owned(),
        json!(request.at.map(|at| at.to_string())),
    );
    row.insert("url".to_owned(), json!(request.url));
    // Of the members of a ruling, a request that could not be judged has only these two.
    row.insert("verdict".to_owned(), json!(judged.verdict().as_str()));
    let decisive = &judged.decisive;
    row.insert("reason".to_owned(), json!(decisive.reason()));
    if let (Some(ruling), Some(crawler)) = (decisive.ruling(), &decisive.crawler) {
        // Cannot fail: the members are text and numbers.
        let members = serde_json::to_value(RulingJson::new(ruling, crawler)).unwrap_or_default();
        if let Value::Object(members) = members {
            row.extend(members);
        }
    }
    // All crawlers with the verdict; `token` belongs to the first.
    let crawlers = judged.crawlers().join(", ");
    row.insert("crawler".to_owned(), json!(crawlers));
    let user_agent = match &request.agent {
        PastAgent::Named(name) => Some(name),
        PastAgent::Untold | PastAgent::Silent => None,
    };
    row.insert("user_agent".to_owned(), json!(user_agent));
    row.insert("status".to_owned(), json!(request.status));
    if !purposes.is_empty() {
        row.insert("denied".to_owned(), json!(judged.is_denied(purposes)));
        row.insert("denials".to_owned(), json!(denials(judged)));
    }
    row.insert("robots".to_owned(), robots(judged));
    let file = files.get(usize::try_from(request.file).unwrap_or(usize::MAX));
    row.insert("file".to_owned(), json!(file));
    row.insert("place".to_owned(), json!(request.place));
    Value::Object(row)
}

/// Returns the denials of the purposes, separated by commas.
fn denials(judged: &JudgedRequest) -> String {
    let denials = judged.denials().into_iter();
    denials
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Describes the robots.txt that the request was judged by; null if it is unknown.
fn robots(judged: &JudgedRequest) -> Value {
    let Ok(judged) = &judged.decisive.result else {
        return Value::Null;
    };
    let snapshot = &judged.snapshot;
    json!({
        "url": snapshot.url,
        "hops": snapshot.hops,
        "status": snapshot.status,
        "sha256": snapshot.file().map(|file| file.digest.to_string()),
        "fetched_at": judged.robots_at.map(|at| at.to_string()),
    })
}

fn row_text(judged: &JudgedRequest) -> String {
    let at = judged.request.at.map(|at| format!("{at:.0}"));
    let crawlers = judged.crawlers().join(", ");
    let start = fields([
        at.as_deref().unwrap_or("-"),
        judged.verdict().as_str(),
        judged.decisive.reason(),
        if crawlers.is_empty() { "-" } else { &crawlers },
    ]);
    let cited = judged
        .decisive
        .ruling()
        .and_then(|ruling| ruling.rule.as_ref());
    let line = cited.and_then(|rule| Some((rule.line?, inert(&rule.text))));
    let rule = line.map(|(line, text)| format!("  (line {line}: {text})"));
    let denials = match denials(judged) {
        none if none.is_empty() => none,
        some => format!("  denied: {some}"),
    };
    format!(
        "{start}{}{}{denials}",
        inert(&judged.request.url),
        rule.unwrap_or_default()
    )
}

/// Joins the first values of a row, in columns of fixed width.
fn fields(values: [&str; 4]) -> String {
    let [time, verdict, reason, crawler] = values.map(inert);
    format!("{time:<20} {verdict:<8} {reason:<12} {crawler:<12} ")
}
