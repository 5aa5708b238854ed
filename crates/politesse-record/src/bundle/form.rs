//! Format of the lines of a bundle.
//!
//! Each line is a JSON object with one member, whose name is the kind of the line.
//! Values and decisions have the columns of the record's tables
//! (docs/decisions/020-thin-record.md). A value that several decisions share has a
//! line of its own, before the first decision that refers to it by number. All
//! lines are ASCII, so that text sent by a crawler cannot control a terminal or an
//! editor.
//!
//! Does not know which decisions are selected.

use std::io;

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::ser::{Formatter, Serializer};

use crate::columns::{count, hex_bytes};
use crate::dictionary::{ColumnKind, DICTIONARIES, DictionaryTable};
use crate::entry_rows::DecisionEntry;
use crate::leaf::LeafRun;
use crate::merkle::{PlacedLeaf, leaf_hash};
use politesse_decision::digest::Digest;

/// Version of the format.
pub(super) const VERSION: u32 = 1;

/// Line of a bundle. The kinds appear in this order, except that values, robots.txt
/// files and decisions alternate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BundleLine {
    /// First line.
    Bundle(BundleHeader),
    Value(ValueLine),
    Robots(BodyLine),
    Decision(Box<DecisionEntry>),
    /// One hash of the proof that leads from the decisions to the head.
    Hash(Digest),
    /// Signed head.
    Head(String),
    /// Public key.
    Key(String),
    /// Last line: the SHA-256 of all bytes before it.
    Sha256(Digest),
}

/// Format, record, and the filter that selected the decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BundleHeader {
    pub(super) version: u32,
    pub(super) made_at: Timestamp,
    /// Id of the record.
    pub(super) record: String,
    /// Earliest time of a decision, inclusive.
    pub(super) from: Option<Timestamp>,
    /// Latest time of a decision, exclusive.
    pub(super) until: Option<Timestamp>,
    /// Host of the URLs.
    pub(super) host: Option<String>,
}

/// Value that decisions refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueLine {
    /// Number of the value: 1, 2, 3 and so on.
    pub(super) number: i64,
    /// Name of the dictionary.
    pub(super) kind: String,
    pub(super) columns: Vec<Json>,
}

/// A robots.txt that decisions rest on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BodyLine {
    /// SHA-256 of the body.
    pub(super) sha256: Digest,
    /// Body in Base64, because it may contain any bytes.
    pub(super) body: String,
}

impl BundleLine {
    /// Reads a line without its end; `None` if it is malformed, or differs from what
    /// [`BundleLine::append`] writes for the same content.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let parsed: Self = serde_json::from_slice(line).ok()?;
        // Equal content has exactly one encoding, so that nothing can be hidden in
        // whitespace or in duplicate names.
        let mut again = Vec::with_capacity(line.len() + 1);
        parsed.append(&mut again).ok()?;
        (again.strip_suffix(b"\n") == Some(line)).then_some(parsed)
    }

    /// Appends the line and its newline to `bytes`.
    pub(super) fn append(&self, bytes: &mut Vec<u8>) -> serde_json::Result<()> {
        self.serialize(&mut Serializer::with_formatter(&mut *bytes, AsciiFormatter))?;
        bytes.push(b'\n');
        Ok(())
    }

    /// Returns the part of the bundle that the line belongs to.
    pub(super) fn part(&self) -> BundlePart {
        match self {
            Self::Bundle(_) => BundlePart::Header,
            Self::Value(_) | Self::Robots(_) | Self::Decision(_) => BundlePart::Content,
            Self::Hash(_) => BundlePart::Proof,
            Self::Head(_) => BundlePart::Head,
            Self::Key(_) => BundlePart::Key,
            Self::Sha256(_) => BundlePart::End,
        }
    }
}

/// Part of a bundle. Content and proof may have several lines, the other parts have
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BundlePart {
    Header,
    Content,
    Proof,
    Head,
    Key,
    End,
}

impl BundlePart {
    /// Reports whether a line of this part may come after one of `before`, or first
    /// if `before` is `None`.
    pub(super) fn may_follow(self, before: Option<Self>) -> bool {
        use BundlePart::{Content, End, Head, Header, Key, Proof};
        matches!(
            (before, self),
            (None, Header)
                | (Some(Header | Content), Content)
                | (Some(Content | Proof), Proof | Head)
                | (Some(Head), Key)
                | (Some(Key), End)
        )
    }
}

/// Compact JSON in which every character beyond printable ASCII is escaped.
struct AsciiFormatter;

impl Formatter for AsciiFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_plain = |letter: char| matches!(letter, ' '..='~');
        // Nearly all text is printable ASCII, which is much faster to write in one
        // piece.
        let mut rest = fragment;
        while let Some(at) = rest.find(|letter| !is_plain(letter)) {
            let (before, after) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let mut letters = after.chars();
            // RFC 8259, section 7: a character beyond U+FFFF is two escapes.
            for unit in letters.next().iter().flat_map(|letter| {
                let mut units = [0; 2];
                letter.encode_utf16(&mut units).to_vec()
            }) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = letters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Makes the leaf of an entry, with its index in the tree. A number below 1 gets an
/// index that no tree has.
pub(super) fn placed(entry: LeafRun) -> PlacedLeaf {
    let index = count(entry.first).checked_sub(1);
    PlacedLeaf {
        index: index.unwrap_or(u64::MAX),
        hash: leaf_hash(entry.leaf.as_bytes()),
    }
}

/// Finds the dictionary named `kind`.
pub(super) fn dictionary(kind: &str) -> Option<&'static DictionaryTable> {
    DICTIONARIES.into_iter().find(|table| table.name == kind)
}

/// Makes the columns of a line from a row of `table`; `None` if a column has a type
/// that the record never uses.
pub(super) fn columns_of(
    table: &DictionaryTable,
    row: &Row<'_>,
) -> rusqlite::Result<Option<Vec<Json>>> {
    let columns = (0..table.width()).map(|at| Ok(column_json(row.get_ref(at)?)));
    columns.collect()
}

fn column_json(value: ValueRef<'_>) -> Option<Json> {
    Some(match value {
        ValueRef::Null => Json::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Text(text) => str::from_utf8(text).ok()?.into(),
        ValueRef::Blob(bytes) => hex_bytes::text(bytes).into(),
        ValueRef::Real(_) => return None,
    })
}

/// Makes a row of `table` from the columns of a line; `None` if their number or
/// types are not those of the table.
pub(super) fn values_of(table: &DictionaryTable, columns: &[Json]) -> Option<Vec<Value>> {
    if columns.len() != table.width() {
        return None;
    }
    let kinds = table.columns().iter();
    kinds
        .zip(columns)
        .map(|(kind, json)| column_value(*kind, json))
        .collect()
}

fn column_value(kind: ColumnKind, json: &Json) -> Option<Value> {
    use ColumnKind::{Integer, OptionalBlob, OptionalInteger, OptionalText, Text};
    Some(match (kind, json) {
        (OptionalText | OptionalInteger | OptionalBlob, Json::Null) => Value::Null,
        (Text | OptionalText, Json::String(text)) => Value::Text(text.clone()),
        (Integer | OptionalInteger, Json::Number(number)) => Value::Integer(number.as_i64()?),
        (OptionalBlob, Json::String(text)) => Value::Blob(hex_bytes::parse(text)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_line_is_ascii_and_has_one_form() {
        let value = BundleLine::Value(ValueLine {
            number: 1,
            kind: "crawler".to_owned(),
            columns: vec!["[\"a\"]\u{1b}\u{202e}\u{1f577}\u{7f}\n".into(), Json::Null],
        });
        let mut line = Vec::new();
        value.append(&mut line).unwrap();
        let expected = br#"{"value":{"number":1,"kind":"crawler","columns":["[\"a\"]\u001b\u202e\ud83d\udd77\u007f\n",null]}}"#;
        assert_eq!(line.strip_suffix(b"\n"), Some(&expected[..]));
        assert_eq!(BundleLine::parse(expected), Some(value));
        let text = str::from_utf8(expected).unwrap();
        for other in [
            text.replace(",\"kind\"", ", \"kind\""),
            text.replace("\\u001b", "\\u001B"),
            text.replace("\\u202e", "\u{202e}"),
            text.replace("null]}", "null],\"more\":1}"),
            text.replace("{\"number\":1,", "{\"number\":1,\"number\":1,"),
            text.replace("null]}}", "null]},\"key\":\"\"}"),
        ] {
            assert_ne!(other, text);
            assert_eq!(BundleLine::parse(other.as_bytes()), None, "{other}");
        }
    }
}
