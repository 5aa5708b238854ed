//! Facts of an answer that the proxy gives itself, before they take a form.
//!
//! RFC 9457 (problem details), RFC 9209 (`Proxy-Status`). Does not know what led
//! to the answer, nor in which media type it is sent.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value};

use politesse_decision::decide::Evidence;

/// An answer of our own: every form of it is made from these facts.
#[derive(Debug)]
pub struct ProblemDetails {
    /// The status.
    pub status: StatusCode,
    /// The error type of RFC 9209, section 2.3.
    pub error: &'static str,
    /// The last part of the problem type `urn:politesse:…`.
    pub kind: &'static str,
    /// The problem type in words.
    pub title: &'static str,
    /// Explanation of this case in one sentence.
    pub detail: String,
    /// Seconds after which the client may ask again.
    pub retry_after: Option<u64>,
    /// Whether the connection must not be used again, because it is not known
    /// where the next request on it begins.
    pub close: bool,
    /// Further facts, by name.
    pub members: Map<String, Value>,
    /// Evidence of the decision that led to it, if one did.
    pub evidence: Option<Arc<Evidence>>,
}

impl ProblemDetails {
    /// Returns the body of type `application/problem+json`.
    pub(super) fn json(&self) -> String {
        let mut object = Map::new();
        object.insert("type".into(), format!("urn:politesse:{}", self.kind).into());
        object.insert("title".into(), self.title.into());
        object.insert("status".into(), self.status.as_u16().into());
        object.insert("detail".into(), self.detail.as_str().into());
        object.extend(self.members.clone());
        format!("{}\n", Value::Object(object))
    }
}

/// Makes a sentence: a capital letter first, and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let capital = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", capital.unwrap_or_default(), letters.as_str())
}
