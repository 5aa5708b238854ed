//! Cases of `cases/directives.jsonl`: a response, its crawler, and the directives in
//! force.
#![allow(
    dead_code,
    reason = "shared by path with the black-box tests; neither asks everything"
)]

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Deserialize;

const CASES: &str = include_str!("../../cases/directives.jsonl");
const OURS: &str = include_str!("../../cases/directives-ours.jsonl");

/// A line of the file.
#[derive(Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_b64: Option<String>,
    content_type: Option<String>,
    pub(crate) agent: String,
    pub(crate) expect: Vec<String>,
    pub(crate) why: String,
    pub(crate) method: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) now: Option<String>,
    pub(crate) field_limit: Option<usize>,
    pub(crate) scan_limit: Option<usize>,
    pub(crate) state: Option<String>,
}

/// Returns the cases of `directives.jsonl`.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    read(CASES)
}

/// Returns the cases of `directives.jsonl` and those of `directives-ours.jsonl`.
pub(crate) fn all_cases() -> impl Iterator<Item = Case> {
    cases().chain(read(OURS))
}

fn read(text: &str) -> impl Iterator<Item = Case> + '_ {
    let lines = text.split('\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap())
}

impl Case {
    /// Returns the fields as bytes; in the file they are Latin-1 text.
    pub(crate) fn fields(&self) -> Vec<(&str, Vec<u8>)> {
        let content_type = self.content_type.iter();
        let content_type = content_type.map(|value| ("content-type", value.as_str()));
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        let fields = headers.chain(content_type).map(|(name, value)| {
            let bytes = value.chars().map(|letter| u8::try_from(letter).unwrap());
            (name, bytes.collect())
        });
        fields.collect()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        match (&self.body, &self.body_b64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(text)) => BASE64_STANDARD.decode(text).unwrap(),
            (None, None) => Vec::new(),
        }
    }

    /// Reports whether the case itself has a content coding.
    pub(crate) fn is_coded(&self) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))
    }
}
