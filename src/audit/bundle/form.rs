//! Format of a bundle: the names of its files, and the lines of `rows.jsonl`.
//!
//! A line has the columns of the record's tables (docs/decisions/020-thin-record.md), so
//! that it is read as a row of the record. A value that several decisions share has a
//! line of its own, before the first decision that refers to it by its number. All lines
//! are ASCII: text of a crawler must not control a terminal or an editor.
//!
//! Does not know which decisions are chosen.

use std::io;

use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::ser::{Formatter, Serializer};

use crate::audit::columns::count;
use crate::audit::dictionary::{ColumnKind, DICTIONARIES, DictionaryTable};
use crate::audit::leaf::LeafRun;
use crate::audit::merkle::{PlacedLeaf, leaf_hash};

/// Names of the files of a bundle.
pub(super) const README: &str = "README.txt";
pub(super) const REPORT: &str = "report.html";
pub(super) const ROWS: &str = "rows.jsonl";
pub(super) const PROOF: &str = "proof.txt";
pub(super) const HEAD: &str = "head.txt";
pub(super) const KEY: &str = "key.txt";

/// Folder of the robots.txt files, each under its SHA-256.
pub(super) const ROBOTS: &str = "robots/";

/// Version of the format.
pub(super) const VERSION: u32 = 1;

/// First line: version, record, and the conditions by which decisions were chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BundleHeader {
    /// Version of the format.
    pub(super) bundle: u32,
    /// Version of the program that made it.
    pub(super) program: String,
    /// Id of the record.
    pub(super) record: String,
    /// Earliest time of a decision, as RFC 3339.
    pub(super) from: Option<String>,
    /// Time before which decisions were made, as RFC 3339.
    pub(super) until: Option<String>,
    /// Host of the URLs.
    pub(super) host: Option<String>,
}

/// Line of a value that decisions share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueLine {
    /// Number of the value: 1, 2, 3 and so on.
    pub(super) value: i64,
    /// Name of the dictionary.
    pub(super) kind: String,
    pub(super) columns: Vec<Json>,
}

/// Line of a decision. References to dictionaries are numbers of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionLine {
    pub(super) seq: i64,
    pub(super) time_us: i64,
    pub(super) wait_ms: i64,
    /// Salt of the commitment to client and URL, in hexadecimal.
    pub(super) salt: String,
    pub(super) client: i64,
    pub(super) origin: i64,
    pub(super) path: String,
    pub(super) reading: Option<String>,
    pub(super) crawler: i64,
    pub(super) method: i64,
    pub(super) ruling: i64,
    pub(super) policy: i64,
    pub(super) snapshot: Option<i64>,
    pub(super) ending: Option<EndingLine>,
}

/// End of the exchange of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndingLine {
    pub(super) seq: i64,
    pub(super) status: Option<i64>,
    pub(super) sent: i64,
    pub(super) directives: Option<i64>,
    pub(super) bytes: i64,
    pub(super) error: Option<i64>,
}

/// Line of `rows.jsonl` after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BundleLine {
    Value(ValueLine),
    Decision(Box<DecisionLine>),
}

impl BundleLine {
    /// Reads a line; `None` if it is malformed, or differs from what [`append_line`]
    /// writes for the same values.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        // The first name tells the kind: trying both takes twice as long.
        if line.starts_with(b"{\"value\":") {
            return parse_line(line).map(Self::Value);
        }
        let decision = parse_line(line)?;
        Some(Self::Decision(Box::new(decision)))
    }
}

/// Reads a line of one kind, as [`BundleLine::parse`] does.
pub(super) fn parse_line<T: DeserializeOwned + Serialize>(line: &[u8]) -> Option<T> {
    let parsed = serde_json::from_slice(line).ok()?;
    // Equal values have equal lines: nothing can be hidden in blanks or in names that
    // occur twice.
    let mut again = Vec::with_capacity(line.len());
    append_line(&mut again, &parsed).ok()?;
    (again.strip_suffix(b"\n") == Some(line)).then_some(parsed)
}

/// Appends `value` as a line of JSON in ASCII.
pub(super) fn append_line(line: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *line, AsciiFormatter))?;
    line.push(b'\n');
    Ok(())
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
        // Nearly all text is plain, and is written much faster in one piece.
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

/// Makes the leaf of an entry, with its place in the tree. An invalid number gives a
/// place that no tree has.
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

/// Makes the columns of a line from a row of `table`; `None` if the row holds a type
/// that the record never has.
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
        ValueRef::Blob(bytes) => hex(bytes).into(),
        ValueRef::Real(_) => return None,
    })
}

/// Makes a row of `table` from the columns of a line; `None` if their types are not
/// those of the table.
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
        (OptionalBlob, Json::String(text)) => Value::Blob(bytes_of(text)?),
        _ => return None,
    })
}

/// Writes bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads bytes in lower-case hexadecimal.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_line_is_ascii_and_has_one_form() {
        let value = ValueLine {
            value: 1,
            kind: "crawler".to_owned(),
            columns: vec!["[\"a\"]\u{1b}\u{202e}\u{1f577}\u{7f}\n".into(), Json::Null],
        };
        let mut line = Vec::new();
        append_line(&mut line, &value).unwrap();
        let expected = br#"{"value":1,"kind":"crawler","columns":["[\"a\"]\u001b\u202e\ud83d\udd77\u007f\n",null]}"#;
        assert_eq!(line.strip_suffix(b"\n"), Some(&expected[..]));
        assert_eq!(BundleLine::parse(expected), Some(BundleLine::Value(value)));
        let text = str::from_utf8(expected).unwrap();
        for other in [
            text.replace(",\"kind\"", ", \"kind\""),
            text.replace("\\u001b", "\\u001B"),
            text.replace("\\u202e", "\u{202e}"),
            text.replace("null]}", "null],\"more\":1}"),
            text.replace("{\"value\":1,", "{\"value\":1,\"value\":1,"),
        ] {
            assert_ne!(other, text);
            assert_eq!(BundleLine::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn bytes_are_read_as_they_were_written() {
        assert_eq!(
            bytes_of(&hex(&[0, 9, 0x7f, 255])),
            Some(vec![0, 9, 0x7f, 255])
        );
        for wrong in ["0", "0g", "0F", "+1"] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }
}
