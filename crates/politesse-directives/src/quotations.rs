//! Quotations: the statements of a response about its own use, as written.
//!
//! From these statements the proxy derives the annotation, the field that tells a crawler
//! the directives in force ([`Annotation`](super::Annotation)). The decision record keeps
//! the quotations as evidence for it. They include directives that the annotation leaves
//! out because they are unknown. Does not know what a statement means.

use http::{HeaderName, HeaderValue};
use serde::Serialize;

/// Statements of one response, in order, up to [`BYTES_MAX`](Self::BYTES_MAX).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotations {
    list: Vec<Quotation>,
    /// Bytes of the texts in `list`.
    bytes: usize,
}

/// Statement, as written. The names of these fields are the keys in the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Quotation {
    /// Source: the name of a field, in lower case, or an element of the page with the
    /// value of its attribute `name` or `rel` (`meta robots`, `link license`).
    by: String,
    /// Value of the field or element. Invalid UTF-8 is replaced.
    said: String,
}

/// Fields that may state something about the use of a response, or about its price, in
/// lower case.
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

/// Reports whether a field with this name may hold a statement: whether it is one of
/// [`FIELDS`].
pub(super) fn may_hold_statement(name: &HeaderName) -> bool {
    FIELDS.contains(&name.as_str())
}

/// Reports whether a field line is kept as a statement about the use of its response: one
/// of [`FIELDS`], but of the `Link` lines only those that may name a licence.
pub(super) fn is_statement(name: &HeaderName, value: &HeaderValue) -> bool {
    may_hold_statement(name) && (name != "link" || may_name_license(value.as_bytes()))
}

impl Quotations {
    /// Maximum number of bytes kept of all statements of one response together, with
    /// their sources.
    ///
    /// The text that exceeds it is cut and ends in `…`. Later statements are dropped,
    /// which nothing marks. The bytes are counted before invalid UTF-8 is replaced, which
    /// can triple the length of the last statement.
    ///
    /// The record keeps less than is read for directives, which is 32 KiB of fields and
    /// more: statements of that length are an attack, or a mistake that their beginning
    /// shows just as well.
    pub const BYTES_MAX: usize = 8 * 1024;

    /// Adds a field line, if [`is_statement`].
    pub(super) fn add_field(&mut self, name: &HeaderName, value: &HeaderValue) {
        if is_statement(name, value) {
            self.add(name.as_str(), value.as_bytes());
        }
    }

    /// Adds a field that the origin sent under the name of the annotation field
    /// (`directives.header`). Only the proxy may send that field, so the origin's is a
    /// forgery: the proxy removes it, and the quotation is the only trace of it.
    pub fn add_forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.add(name.as_str(), value.as_bytes());
    }

    /// Adds an element of the page. `by` is the element with the value of its attribute
    /// `name` or `rel`, such as `meta robots`. `said` is its value, with character
    /// references decoded.
    pub(super) fn add_element(&mut self, by: &str, said: &str) {
        self.add(by, said.as_bytes());
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

    /// Adds a statement, cut to the bytes that are left.
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

/// Returns the first `room` bytes of a text, with [`CUT`] after them if it is longer.
fn cut(text: &[u8], room: usize) -> String {
    match text.get(..room) {
        Some(kept) if kept.len() < text.len() => String::from_utf8_lossy(kept).into_owned() + CUT,
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Reports whether a `Link` value may name a licence (`rel=license`): whether it contains
/// `license`, in any case.
///
/// That also accepts links whose URL contains the word. Reading the parameters would cost
/// more than a quotation too many.
fn may_name_license(value: &[u8]) -> bool {
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
            quotations.add_field(&HeaderName::from_static(name), &value);
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
        quotations.add_element("meta robots", &long);
        quotations.add_element("meta robots", "noindex");
        assert_eq!(quotations.list.len(), 1);
        assert!(quotations.list[0].said.ends_with(CUT));
        assert!(quotations.bytes < Quotations::BYTES_MAX + 16);
    }
}
