//! Judged requests one by one, in the forms of rows.
//!
//! Does not know how requests are judged.

use std::io;

use serde_json::{Map, Value, json};

use super::outcome::JudgedRequest;
use super::past_request::PastAgent;
use crate::cli::audit::rows::{RowForm, RowLayout, RowWriter};
use politesse_base::inert::inert;
use politesse_pages::explain::json::RulingJson;

/// Columns of CSV, as the members of the JSON.
const COLUMNS: [&str; 13] = [
    "time",
    "url",
    "verdict",
    "reason",
    "line",
    "rule",
    "token",
    "user_agent",
    "status",
    "robots.url",
    "robots.fetched_at",
    "file",
    "place",
];

/// Writer of judged requests.
pub(super) struct RequestRows<'a> {
    rows: RowWriter,
    /// Names of the files, by their numbers.
    files: &'a [String],
}

impl<'a> RequestRows<'a> {
    /// Begins with nothing written.
    pub(super) fn new(form: RowForm, files: &'a [String]) -> Self {
        let layout = RowLayout {
            header: fields(["TIME", "VERDICT", "REASON", "CRAWLER"]) + "URL (LINE: RULE)",
            columns: COLUMNS.to_vec(),
        };
        Self {
            rows: RowWriter::new(form, layout),
            files,
        }
    }

    /// Writes a request.
    pub(super) fn write(&mut self, judged: &JudgedRequest) -> io::Result<()> {
        let files = self.files;
        self.rows
            .row(|| row_json(judged, files), || row_text(judged))
    }

    /// Ends the rows.
    pub(super) fn end(self) -> io::Result<()> {
        self.rows.end()
    }
}

/// Makes the object of a request: the members that `check --batch` gives for it,
/// less the id, and where it comes from.
fn row_json(judged: &JudgedRequest, files: &[String]) -> Value {
    let request = &judged.request;
    let mut row = Map::new();
    row.insert(
        "time".to_owned(),
        json!(request.at.map(|at| at.to_string())),
    );
    row.insert("url".to_owned(), json!(request.url));
    // A request that could not be judged has these two members only.
    row.insert("verdict".to_owned(), json!(judged.verdict().as_str()));
    row.insert("reason".to_owned(), json!(judged.reason()));
    let ruling = judged.outcome.as_ref().ok().map(|judged| &judged.ruling);
    if let (Some(ruling), Some(crawler)) = (ruling, &judged.crawler) {
        // Cannot fail: the members are text and numbers.
        let members = serde_json::to_value(RulingJson::new(ruling, crawler)).unwrap_or_default();
        if let Value::Object(members) = members {
            row.extend(members);
        }
    }
    let user_agent = match &request.agent {
        PastAgent::Named(name) => Some(name),
        PastAgent::Untold | PastAgent::Silent => None,
    };
    row.insert("user_agent".to_owned(), json!(user_agent));
    row.insert("status".to_owned(), json!(request.status));
    row.insert("robots".to_owned(), robots(judged));
    let file = files.get(usize::try_from(request.file).unwrap_or(usize::MAX));
    row.insert("file".to_owned(), json!(file));
    row.insert("place".to_owned(), json!(request.place));
    Value::Object(row)
}

fn robots(judged: &JudgedRequest) -> Value {
    let Ok(judged) = &judged.outcome else {
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
    let ruling = judged.outcome.as_ref().ok().map(|judged| &judged.ruling);
    let crawler = judged.crawler.as_ref().map(|crawler| {
        let token = crawler.token();
        token.map_or_else(|| "*".to_owned(), ToString::to_string)
    });
    let start = fields([
        at.as_deref().unwrap_or("-"),
        judged.verdict().as_str(),
        judged.reason(),
        &inert(crawler.as_deref().unwrap_or("-")),
    ]);
    let cited = ruling.and_then(|ruling| ruling.rule.as_ref());
    let rule = cited.map(|rule| format!("  (line {}: {})", rule.line, inert(&rule.text)));
    format!(
        "{start}{}{}",
        inert(&judged.request.url),
        rule.unwrap_or_default()
    )
}

fn fields(values: [&str; 4]) -> String {
    let [time, verdict, reason, crawler] = values;
    format!("{time:<20} {verdict:<8} {reason:<12} {crawler:<12} ")
}
