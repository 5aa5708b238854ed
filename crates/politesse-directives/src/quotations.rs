//! Quotations: the statements of a response about its own use, as written.
//!
//! They go into the decision record as evidence for the annotation, and include unknown
//! directives. Does not know what they mean.

use http::{HeaderName, HeaderValue};
use serde::Serialize;

/// Statements of one response, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotations {
    list: Vec<Quotation>,
    bytes: usize,
}

/// Statement, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Quotation {
    /// Name of the field, or `meta` and the name of the element.
    by: String,
    /// Value; invalid UTF-8 is replaced.
    said: String,
}

/// Fields about the use of a response, or about its price.
const FIELDS: [&str; 8] = [
    "robots-tag",
    "x-robots-tag",
    "content-usage",
    "content-signal",
    "tdm-reservation",
    "tdm-policy",
    "crawler-price",
    "link",
];

/// Mark at the end of a text that was cut.
const CUT: &str = "…";

/// Reports whether fields of this name are read, for directives or for preferences
/// about uses of the content.
pub(super) fn is_read(name: &HeaderName) -> bool {
    FIELDS.contains(&name.as_str())
}

/// Reports whether a field line may state something about the use of its response.
pub(super) fn is_statement(name: &HeaderName, value: &HeaderValue) -> bool {
    // Most links do not name a licence.
    is_read(name) && (name != "link" || holds_license(value.as_bytes()))
}

impl Quotations {
    /// Maximum number of bytes kept of one response. A field of 32 KiB is an attack, or
    /// a mistake that its beginning shows just as well.
    pub const BYTES_MAX: usize = 8 * 1024;

    /// Adds a field line, if it is one of [`FIELDS`].
    pub(super) fn field(&mut self, name: &HeaderName, value: &HeaderValue) {
        if is_statement(name, value) {
            self.add(name.as_str(), value.as_bytes());
        }
    }

    /// Adds a field with the name of the annotation field, which no origin may use.
    pub fn forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.add(name.as_str(), value.as_bytes());
    }

    /// Adds the value of an element.
    pub(super) fn element(&mut self, name: &str, said: &str) {
        self.add(name, said.as_bytes());
    }

    /// Reports whether there are no statements.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns a JSON array of objects with `by` and `said`.
    pub fn json(&self) -> String {
        // The list contains only strings, so serialization cannot fail.
        serde_json::to_string(&self.list).unwrap_or_default()
    }

    fn add(&mut self, by: &str, said: &[u8]) {
        if Self::BYTES_MAX <= self.bytes {
            return;
        }
        let mut room = Self::BYTES_MAX - self.bytes;
        let by = cut(by.as_bytes(), room);
        room -= room.min(by.len());
        let said = cut(said, room);
        self.bytes += by.len() + said.len();
        self.list.push(Quotation { by, said });
    }
}

/// Returns the first `room` bytes of a text, with a mark if it was cut.
fn cut(text: &[u8], room: usize) -> String {
    match text.get(..room) {
        Some(kept) if kept.len() < text.len() => String::from_utf8_lossy(kept).into_owned() + CUT,
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Reports whether a `Link` value mentions a licence (`rel=license`).
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

    // Ours: unknown directives are evidence.
    #[test]
    fn unknown_directives_are_kept_as_written() {
        let quotations = kept(&[
            ("x-robots-tag", "NoIndex, frobnicate"),
            ("server", "noindex"),
            ("crawler-price", "USD 0.01"),
            ("link", "</style.css>; rel=preload"),
            ("link", "</l.xml>; rel=\"License\""),
        ]);
        assert_eq!(
            quotations.json(),
            r#"[{"by":"x-robots-tag","said":"NoIndex, frobnicate"},{"by":"crawler-price","said":"USD 0.01"},{"by":"link","said":"</l.xml>; rel=\"License\""}]"#
        );
    }

    // Ours.
    #[test]
    fn a_long_statement_is_cut_and_says_so() {
        let long = "é".repeat(Quotations::BYTES_MAX);
        let mut quotations = Quotations::default();
        quotations.element("meta robots", &long);
        quotations.element("meta robots", "noindex");
        assert_eq!(quotations.list.len(), 1);
        assert!(quotations.list[0].said.ends_with(CUT));
        assert!(quotations.bytes < Quotations::BYTES_MAX + 16);
    }
}
