//! What a response said about its own use, as it was written.
//!
//! The annotation says what follows for one crawler; this is what it follows
//! from, directives that nobody knows among it, for the record of the decision.

use http::{HeaderName, HeaderValue};
use serde::Serialize;

/// What one response said, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotations {
    said: Vec<Quotation>,
    bytes: usize,
}

/// One statement, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Quotation {
    /// The field's name, or `meta` and the element's name.
    by: String,
    /// Its value; invalid UTF-8 is replaced.
    said: String,
}

/// The fields that say something about the use of a response.
const FIELDS: [&str; 7] = [
    "robots-tag",
    "x-robots-tag",
    "content-usage",
    "content-signal",
    "tdm-reservation",
    "tdm-policy",
    "link",
];

/// Ends a text that was cut, and a list that goes on.
const CUT: &str = "…";

impl Quotations {
    /// Bytes kept of one response. A field of 32 KiB is an attack, or a
    /// mistake that its beginning shows as well.
    pub const BYTES_MAX: usize = 8 * 1024;

    /// Takes in a field line, if it is one that says something.
    pub(super) fn field(&mut self, name: &HeaderName, value: &HeaderValue) {
        let name = name.as_str();
        let says = FIELDS.contains(&name);
        // Most links are not about licences.
        if says && (name != "link" || holds_license(value.as_bytes())) {
            self.keep(name, value.as_bytes());
        }
    }

    /// Takes in a field in our name, which no origin may use.
    pub fn forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.keep(name.as_str(), value.as_bytes());
    }

    /// Takes in what an element says.
    pub(super) fn element(&mut self, name: &str, said: &str) {
        self.keep(name, said.as_bytes());
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.said.is_empty()
    }

    /// A JSON array of objects with `by` and `said`.
    pub fn json(&self) -> String {
        // Texts alone: nothing that JSON could not say.
        serde_json::to_string(&self.said).unwrap_or_default()
    }

    fn keep(&mut self, by: &str, said: &[u8]) {
        if Self::BYTES_MAX <= self.bytes {
            return;
        }
        let mut room = Self::BYTES_MAX - self.bytes;
        let by = cut(by.as_bytes(), room);
        room -= room.min(by.len());
        let said = cut(said, room);
        self.bytes += by.len() + said.len();
        self.said.push(Quotation { by, said });
    }
}

/// The first `room` bytes of a text, marked if that is not all.
fn cut(text: &[u8], room: usize) -> String {
    match text.get(..room) {
        Some(kept) if kept.len() < text.len() => String::from_utf8_lossy(kept).into_owned() + CUT,
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

fn holds_license(value: &[u8]) -> bool {
    let value = value.to_ascii_lowercase();
    memchr::memmem::find(&value, b"license").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(fields: &[(&'static str, &str)]) -> Quotations {
        let mut quotations = Quotations::default();
        for &(name, value) in fields {
            let value = HeaderValue::from_str(value).unwrap();
            quotations.field(&HeaderName::from_static(name), &value);
        }
        quotations
    }

    // Directives.md, 1.4.5: an unknown directive is kept in quotations.
    #[test]
    fn what_nobody_knows_is_kept_as_written() {
        let quotations = kept(&[
            ("x-robots-tag", "NoIndex, frobnicate"),
            ("server", "noindex"),
            ("link", "</style.css>; rel=preload"),
            ("link", "</l.xml>; rel=\"License\""),
        ]);
        assert_eq!(
            quotations.json(),
            r#"[{"by":"x-robots-tag","said":"NoIndex, frobnicate"},{"by":"link","said":"</l.xml>; rel=\"License\""}]"#
        );
    }

    // Ours.
    #[test]
    fn a_long_statement_is_cut_and_says_so() {
        let long = "é".repeat(Quotations::BYTES_MAX);
        let mut quotations = Quotations::default();
        quotations.element("meta robots", &long);
        quotations.element("meta robots", "noindex");
        assert_eq!(quotations.said.len(), 1);
        assert!(quotations.said[0].said.ends_with(CUT));
        assert!(quotations.bytes < Quotations::BYTES_MAX + 16);
    }
}
