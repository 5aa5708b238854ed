//! What a response said about its own use, as it was written.
//!
//! The annotation says what follows for one crawler; this is what it follows
//! from, directives that nobody knows among it, for the record of the decision.

use http::{HeaderName, HeaderValue};
use serde::Serialize;

use super::head::Meta;

/// The statements of one response, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    said: Vec<Statement>,
    octets: usize,
}

/// One statement, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Statement {
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

impl Evidence {
    /// Octets kept of one response. A field of 32 KiB is an attack, or a
    /// mistake that its beginning shows as well.
    pub const OCTETS_MAX: usize = 8 * 1024;

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

    /// Takes in a `<meta>` element.
    pub(super) fn meta(&mut self, meta: &Meta) {
        self.element(&format!("meta {}", meta.name), &meta.content);
    }

    /// Takes in what another element says.
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
        if Self::OCTETS_MAX <= self.octets {
            return;
        }
        let mut room = Self::OCTETS_MAX - self.octets;
        let by = cut(by.as_bytes(), room);
        room -= room.min(by.len());
        let said = cut(said, room);
        self.octets += by.len() + said.len();
        self.said.push(Statement { by, said });
    }
}

/// The first `room` octets of a text, marked if that is not all.
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

    fn kept(fields: &[(&'static str, &str)]) -> Evidence {
        let mut evidence = Evidence::default();
        for &(name, value) in fields {
            let value = HeaderValue::from_str(value).unwrap();
            evidence.field(&HeaderName::from_static(name), &value);
        }
        evidence
    }

    // Directives.md, 1.4.5: an unknown directive is kept in evidence.
    #[test]
    fn what_nobody_knows_is_kept_as_written() {
        let evidence = kept(&[
            ("x-robots-tag", "NoIndex, frobnicate"),
            ("server", "noindex"),
            ("link", "</style.css>; rel=preload"),
            ("link", "</l.xml>; rel=\"License\""),
        ]);
        assert_eq!(
            evidence.json(),
            r#"[{"by":"x-robots-tag","said":"NoIndex, frobnicate"},{"by":"link","said":"</l.xml>; rel=\"License\""}]"#
        );
    }

    // Ours.
    #[test]
    fn a_long_statement_is_cut_and_says_so() {
        let long = "é".repeat(Evidence::OCTETS_MAX);
        let mut evidence = Evidence::default();
        evidence.element("meta robots", &long);
        evidence.element("meta robots", "noindex");
        assert_eq!(evidence.said.len(), 1);
        assert!(evidence.said[0].said.ends_with(CUT));
        assert!(evidence.octets < Evidence::OCTETS_MAX + 16);
    }
}
