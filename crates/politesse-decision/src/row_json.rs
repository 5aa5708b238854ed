//! JSON form of a decision record, as commands and pages show and export it.
//!
//! Does not know where a record is read from.

use serde_json::{Value as Json, json};

use super::record::{RecordedSnapshot, Seen, StoredRecord};

/// Columns of the CSV export, named by the members of the JSON. A dot stands for a
/// nested member (`robots.url`).
pub const ROW_COLUMNS: [&str; 23] = [
    "seq",
    "time",
    "client",
    "crawler",
    "user_agent",
    "label",
    "method",
    "url",
    "verdict",
    "reason",
    "effect",
    "line",
    "rule",
    "reading",
    "wait_ms",
    "status",
    "bytes",
    "error",
    "directives.value",
    "denials",
    "robots.url",
    "robots.sha256",
    "policy",
];

/// Builds the JSON of a decision record, as printed by `audit list` and other commands.
pub fn row_json(record: &StoredRecord) -> Json {
    let ruling = &record.ruling;
    let mut row = json!({
        "seq": record.seq,
        "time": record.at.to_string(),
        "client": record.client.address,
        "crawler": ruling.crawler,
        "user_agent": record.crawler.user_agent,
        "label": record.crawler.label,
        "method": &*record.method,
        "url": record.url,
        "verdict": ruling.verdict,
        "reason": ruling.reason,
        "effect": ruling.effect,
        "line": ruling.line,
        "rule": ruling.rule,
        "group": (!ruling.group.is_empty()).then_some(&ruling.group),
        "reading": record.reading,
        "robots": record.snapshot.as_deref().map(robots_json),
        "policy": record.policy.sha256.to_string(),
        "wait_ms": record.wait_ms,
        "status": record.status,
        "sent": record.sent,
        "directives": record.directives.as_deref().map(directives_json),
        "purposes": record.policy.preferences.map(|preferences| preferences.purposes),
        "denials": record.denials(),
        "bytes": record.bytes,
        "error": record.error.as_deref(),
    });
    // Only if the records of several nodes are read together. Otherwise every row
    // would have the same node.
    if let Some(node) = &record.node {
        row["node"] = json!(&**node);
    }
    row
}

fn directives_json(seen: &Seen) -> Json {
    json!({
        "value": seen.directives,
        "said": seen.said.as_deref().map_or_else(|| json!([]), said_json),
    })
}

fn robots_json(snapshot: &RecordedSnapshot) -> Json {
    let mut members = json!({
        "url": snapshot.url,
        "status": snapshot.status,
        "sha256": snapshot.sha256.map(|digest| digest.to_string()),
    });
    if !snapshot.hops.is_empty() {
        members["hops"] = json!(snapshot.hops);
    }
    if let Some(charset) = &snapshot.charset {
        members["charset"] = json!(charset);
    }
    if let Some(tdm) = &snapshot.tdm {
        members["tdm"] = said_json(tdm);
    }
    members
}

fn said_json(text: &str) -> Json {
    // The text is no JSON if the row was tampered with.
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}
