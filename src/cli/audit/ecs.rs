//! Decisions in the names of the Elastic Common Schema (ECS), which security
//! information systems read.
//!
//! Names and values are those of ECS 8.11 (elastic.co/guide/en/ecs), which are the same
//! in 9.4. What it has no name for stands in an object of our own, `politesse`, as its
//! guidelines say.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::decision::again::WITHHELD;
use crate::decision::record::StoredRecord;
use politesse_robots::origin::Target;

/// Version of the schema.
const ECS_VERSION: &str = "8.11.0";

/// Makes the object of a decision of the record `record`.
pub(super) fn ecs_json(decision: &StoredRecord, record: &str) -> Value {
    let members = [
        ("@timestamp", json!(decision.at.to_string())),
        ("ecs", json!({ "version": ECS_VERSION })),
        ("message", json!(message(decision))),
        ("event", event(decision, record)),
        ("rule", rule(decision)),
        ("url", url(&decision.url)),
        ("http", http(decision)),
        ("user_agent", user_agent(decision)),
        ("client", client(&decision.client.address)),
        ("observer", observer(decision)),
        (
            "error",
            object([("type", json!(decision.error.as_deref()))]),
        ),
        ("politesse", own(decision)),
    ];
    object(members)
}

/// Makes an object of the members that have a value: in ECS what is not known is
/// left out.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let is_known = |(_, value): &(&str, Value)| match value {
        Value::Null => false,
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => true,
    };
    let known = members.into_iter().filter(is_known);
    let named = known.map(|(name, value)| (name.to_owned(), value));
    Value::Object(named.collect::<Map<_, _>>())
}

/// Reports whether the request was refused or put off.
fn is_denied(decision: &StoredRecord) -> bool {
    let ruling = &decision.ruling;
    ruling.verdict != "allow" && ruling.exception().is_none()
}

fn message(decision: &StoredRecord) -> String {
    let ruling = &decision.ruling;
    let crawler = ruling.crawler.as_deref().unwrap_or("*");
    let (method, url) = (&decision.method, &decision.url);
    let mut text = format!("{} {method} {url} for {crawler}", ruling.verdict);
    if let (Some(line), Some(rule)) = (ruling.line, &ruling.rule) {
        text.push_str(&format!(" (line {line}: {rule})"));
    }
    text
}

fn event(decision: &StoredRecord, record: &str) -> Value {
    let outcome = match (decision.status, &decision.error) {
        _ if is_denied(decision) => "failure",
        (_, Some(_)) => "failure",
        (Some(_), None) => "success",
        (None, None) => "unknown",
    };
    let kind = if is_denied(decision) {
        "denied"
    } else {
        "allowed"
    };
    object([
        ("kind", json!("event")),
        ("category", json!(["web", "network"])),
        ("type", json!(["access", kind])),
        ("outcome", json!(outcome)),
        ("action", json!(decision.ruling.verdict)),
        ("reason", json!(decision.ruling.reason)),
        ("id", json!(format!("{record}:{}", decision.seq))),
        ("sequence", json!(decision.seq)),
        ("module", json!("politesse")),
        ("dataset", json!("politesse.decision")),
    ])
}

fn rule(decision: &StoredRecord) -> Value {
    let ruling = &decision.ruling;
    let snapshot = decision.snapshot.as_deref();
    let sha256 = snapshot.and_then(|snapshot| snapshot.sha256);
    // A line means something in one file alone.
    let id = sha256.zip(ruling.line);
    let group = (!ruling.group.is_empty()).then(|| ruling.group.join(", "));
    object([
        ("name", json!(ruling.rule)),
        (
            "id",
            json!(id.map(|(sha256, line)| format!("{sha256}:{line}"))),
        ),
        ("ruleset", json!(group)),
        ("reference", json!(snapshot.map(|snapshot| &snapshot.url))),
    ])
}

fn url(text: &str) -> Value {
    // Somebody who changed the row may have left no URL.
    let Ok(target) = text.parse::<Target>() else {
        return json!({ "original": text });
    };
    let path_and_query = target.path_and_query();
    let parts = path_and_query.split_once('?');
    let (path, query) = parts.map_or((path_and_query, None), |(path, query)| (path, Some(query)));
    // An empty query says that there was none behind the `?`, which is not known here.
    let query = query.filter(|_| !text.contains(WITHHELD));
    let origin = &target.origin;
    object([
        ("original", json!(text)),
        ("full", json!(text)),
        ("scheme", json!(origin.scheme().as_str())),
        ("domain", json!(origin.host().to_string())),
        ("port", json!(origin.port())),
        ("path", json!(path)),
        ("query", json!(query)),
    ])
}

fn http(decision: &StoredRecord) -> Value {
    let body = object([("bytes", json!(decision.bytes))]);
    let response = object([("status_code", json!(decision.status)), ("body", body)]);
    json!({ "request": { "method": &*decision.method }, "response": response })
}

fn user_agent(decision: &StoredRecord) -> Value {
    object([
        ("original", json!(decision.crawler.user_agent)),
        ("name", json!(decision.ruling.crawler)),
    ])
}

fn client(address: &str) -> Value {
    // Addresses may be kept shortened or as a keyed hash, which are none.
    let ip = address.parse::<IpAddr>().ok();
    object([("address", json!(address)), ("ip", json!(ip))])
}

fn observer(decision: &StoredRecord) -> Value {
    object([("name", json!(decision.node.as_deref()))])
}

fn own(decision: &StoredRecord) -> Value {
    let snapshot = decision.snapshot.as_deref();
    let sha256 = snapshot.and_then(|snapshot| snapshot.sha256);
    object([
        ("effect", json!(decision.ruling.effect)),
        ("reading", json!(decision.reading)),
        ("wait_ms", json!(decision.wait_ms)),
        ("sent", json!(decision.sent)),
        ("credential", json!(decision.client.credential)),
        ("policy", json!(decision.policy.sha256.to_string())),
        (
            "robots_sha256",
            json!(sha256.map(|digest| digest.to_string())),
        ),
        (
            "robots_result",
            json!(snapshot.map(|snapshot| &snapshot.result)),
        ),
    ])
}
