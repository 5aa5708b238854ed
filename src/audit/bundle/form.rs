//! Form of a bundle: the names of its files, and the lines of its rows.
//!
//! A line has what the tables have (docs/decisions/020-thin-record.md), so that a
//! row is read as the record's own rows are. Values that rows share are lines of
//! their own, each before the first row that refers to it by its number. All of it
//! is ASCII: whatever a crawler wrote, no terminal and no editor acts on it.
//!
//! Does not know which rows are chosen.

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

/// Version of the form.
pub(super) const VERSION: u32 = 1;

/// First line: what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BundleHeader {
    /// Version of the form.
    pub(super) bundle: u32,
    /// Version of the program that made it.
    pub(super) program: String,
    /// Id of the record.
    pub(super) record: String,
    /// Times and host that were asked for, as RFC 3339 and as a name.
    pub(super) from: Option<String>,
    pub(super) until: Option<String>,
    pub(super) host: Option<String>,
}

/// Line of a value that rows share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueLine {
    /// Number of the value: 1, 2, 3 and so on.
    pub(super) value: i64,
    /// Name of its table.
    pub(super) kind: String,
    pub(super) columns: Vec<Json>,
}

/// Line of a decision. References are numbers of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionLine {
    pub(super) seq: i64,
    pub(super) time_us: i64,
    pub(super) wait_ms: i64,
    /// Salt of its commitment, in hexadecimal.
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

/// Line of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BundleLine {
    Value(ValueLine),
    Decision(Box<DecisionLine>),
}

impl BundleLine {
    /// Reads a line; `None` if it is none, or is written in another way than
    /// [`append_line`] writes it.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        // By its first name: to try both kinds would take twice as long.
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
    // One value has one form: nothing can be hidden in blanks or in names that
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

/// Makes the leaf of an entry, with its place. A number that is none is behind all
/// others.
pub(super) fn placed(entry: LeafRun) -> PlacedLeaf {
    let index = count(entry.first).checked_sub(1);
    PlacedLeaf {
        index: index.unwrap_or(u64::MAX),
        hash: leaf_hash(entry.leaf.as_bytes()),
    }
}

/// Finds the dictionary with this name.
pub(super) fn dictionary(kind: &str) -> Option<&'static DictionaryTable> {
    DICTIONARIES.into_iter().find(|table| table.name == kind)
}

/// Makes the columns of a value of `table` from its row; `None` if the row holds
/// what is never written.
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

/// Makes the columns of a row of `table` from those of a line; `None` if they are
/// of other types.
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

/// Reads bytes in hexadecimal, of lower case.
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

    // Ours: one value has one form, which is ASCII.
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
