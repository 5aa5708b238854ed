//! Column values: how they are written, read and hashed.
//!
//! Each row carries a digest of the values that were fixed when it was written.
//! Deciding again shows whether an answer follows from its evidence, but not
//! whether a URL was replaced by another one with the same answer. A change of both
//! a row and its digest is not detected here.
//!
//! A table whose rows have a struct is defined once, by [`table!`]: the statement
//! that creates it, the one that inserts a row and the reader of a row are
//! generated from the fields. Does not know which columns a table has.

use jiff::Timestamp;
use rusqlite::types::{FromSql as _, FromSqlResult, ToSqlOutput, Type, Value, ValueRef};
use rusqlite::{Connection, Row, Statement, params_from_iter};

use serde::Serialize;

use politesse_decision::digest::Digest;

/// Initial capacity for the encoding of a row; enough for most.
const ROW_BYTES: usize = 1024;

/// Computes the digest of a list of values.
pub(super) fn digest_of<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> Digest {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    for value in values {
        encode(value, &mut bytes);
    }
    Digest::of(&bytes)
}

/// Reports whether a column holds `digest`.
pub(super) fn is_digest(column: ValueRef<'_>, digest: Digest) -> bool {
    column.as_blob().ok() == Some(digest.as_bytes().as_slice())
}

/// Appends the type, the length and the bytes of a value, so that no two lists
/// of values have the same encoding.
fn encode(value: ValueRef<'_>, bytes: &mut Vec<u8>) {
    let number;
    let (kind, content): (u8, &[u8]) = match value {
        ValueRef::Null => (b'0', &[]),
        ValueRef::Integer(value) => {
            number = value.to_be_bytes();
            (b'i', &number)
        }
        ValueRef::Real(value) => {
            number = value.to_be_bytes();
            (b'r', &number)
        }
        ValueRef::Text(text) => (b't', text),
        ValueRef::Blob(blob) => (b'b', blob),
    };
    bytes.push(kind);
    bytes.extend_from_slice(&content.len().to_be_bytes());
    bytes.extend_from_slice(content);
}

/// Returns the column value of a digest.
pub(super) fn blob(digest: Digest) -> Value {
    Value::Blob(digest.as_bytes().to_vec())
}

/// Reads a digest; `None` unless there are exactly 32 bytes.
pub(super) fn read_digest(bytes: &[u8]) -> Option<Digest> {
    <[u8; 32]>::try_from(bytes).ok().map(Digest::from)
}

/// Converts a count to a column value. SQLite's integers are signed; a larger count
/// becomes the maximum.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts a column value to a count. Negative values, which are never written,
/// become 0.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Reads the column `at` of a row.
pub(super) fn column<T: ColumnValue>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    ColumnReader { row, next: at }.field()
}

/// Encodes a list of texts as a JSON column.
pub(super) fn json_list<T: Serialize>(list: impl IntoIterator<Item = T>) -> String {
    let list: Vec<_> = list.into_iter().collect();
    // Every text can be represented in JSON.
    serde_json::to_string(&list).unwrap_or_default()
}

/// Returns the bytes of a text or blob, valid UTF-8 or not; `None` for other types.
pub(super) fn text_bytes(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    }
}

/// Error: a value is missing or was altered.
#[derive(Debug)]
pub(super) struct Altered;

/// Column value as a field of a struct.
///
/// Values that are never written (a negative count, a blob in place of a text) are
/// read as closely as possible, because an altered record must stay readable.
/// [`TableRow::is_exact`] detects the change.
pub(super) trait ColumnValue: Sized {
    /// Reads the column.
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self>;

    /// Returns the column value to write.
    fn value(&self) -> ValueRef<'_>;
}

impl ColumnValue for i64 {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::column_result(value)
    }

    fn value(&self) -> ValueRef<'_> {
        ValueRef::Integer(*self)
    }
}

impl ColumnValue for u64 {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(count)
    }

    fn value(&self) -> ValueRef<'_> {
        ValueRef::Integer(signed(*self))
    }
}

/// Implements column values for integers narrower than 64 bits.
macro_rules! narrow_values {
    ($($Type:ty),+) => {$(
        impl ColumnValue for $Type {
            fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
                // An out-of-range number was never written, and `is_exact` detects
                // it.
                Ok(Self::try_from(i64::column_result(value)?).unwrap_or_default())
            }

            fn value(&self) -> ValueRef<'_> {
                ValueRef::Integer((*self).into())
            }
        }
    )+};
}

narrow_values!(u16, u32);

impl ColumnValue for bool {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::column_result(value)
    }

    fn value(&self) -> ValueRef<'_> {
        ValueRef::Integer((*self).into())
    }
}

/// Time in microseconds since 1970.
impl ColumnValue for Timestamp {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self::from_microsecond(value.as_i64()?).unwrap_or_default())
    }

    fn value(&self) -> ValueRef<'_> {
        ValueRef::Integer(self.as_microsecond())
    }
}

impl ColumnValue for String {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = text_bytes(value).unwrap_or_default();
        // Someone may have put invalid UTF-8 into a text; SQLite stores it as is.
        Ok(Self::from_utf8_lossy(bytes).into_owned())
    }

    fn value(&self) -> ValueRef<'_> {
        ValueRef::Text(self.as_bytes())
    }
}

impl ColumnValue for Vec<u8> {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(text_bytes(value).unwrap_or_default().to_vec())
    }

    fn value(&self) -> ValueRef<'_> {
        ValueRef::Blob(self)
    }
}

impl ColumnValue for Digest {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = text_bytes(value).unwrap_or_default();
        Ok(read_digest(bytes).unwrap_or_default())
    }

    fn value(&self) -> ValueRef<'_> {
        ValueRef::Blob(self.as_bytes())
    }
}

impl<T: ColumnValue> ColumnValue for Option<T> {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        if value == ValueRef::Null {
            return Ok(None);
        }
        T::read(value).map(Some)
    }

    fn value(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, T::value)
    }
}

/// Row of a table defined by [`table!`].
pub(super) trait TableRow: Sized {
    /// Number of columns.
    const WIDTH: usize;
    /// Statement that creates the table.
    const CREATE: &'static str;
    /// Statement that inserts a row.
    const INSERT: &'static str;

    /// Reads all columns of the row, starting at the next one of `columns`.
    fn read_columns(columns: &mut ColumnReader<'_>) -> rusqlite::Result<Self>;

    /// Returns the columns in their order.
    fn values(&self) -> impl Iterator<Item = ValueRef<'_>>;

    /// Reads a row of `SELECT *`.
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Self::read_columns(&mut ColumnReader::new(row))
    }

    /// Reports whether the columns of `row` from `first` on contain exactly the
    /// values of `self`, bit by bit. A value of another type or out of range does
    /// not match.
    fn is_exact(&self, row: &Row<'_>, first: usize) -> bool {
        // Types are compared too, because SQL considers 1, 1.0 and '1' equal.
        let mut places = self.values().zip(first..);
        places.all(|(value, at)| row.get_ref(at) == Ok(value))
    }

    /// Computes the digest of all columns except the last, which stores it in some
    /// tables.
    fn digest_of_columns(&self) -> Digest {
        digest_of(self.values().take(Self::WIDTH - 1))
    }

    /// Reports whether `row`, from which `self` was read, has the digest of its
    /// values in the last column.
    fn is_as_written(&self, row: &Row<'_>) -> bool {
        let digest = self.digest_of_columns();
        let stored = self.values().last();
        self.is_exact(row, 0) && stored.is_some_and(|stored| is_digest(stored, digest))
    }

    /// Executes the statement [`TableRow::INSERT`].
    fn insert_by(&self, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
        let values = self.values().map(ToSqlOutput::Borrowed);
        statement.execute(params_from_iter(values)).map(drop)
    }

    /// Inserts the row.
    fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.insert_by(&mut *connection.prepare_cached(Self::INSERT)?)
    }
}

/// Defines a table: the struct of its rows, with a column definition after each
/// field. A table `keyed by` columns has no other key, and a row replaces the one
/// with the same key.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Row:ident in $table:literal $(keyed by $key:literal)? {
            $(#[$first_meta:meta])*
            $first_vis:vis $first:ident: $First:ty = $first_sql:literal,
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $Type:ty = $sql:literal,)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $Row {
            $(#[$first_meta])*
            $first_vis $first: $First,
            $($(#[$field_meta])* $field_vis $field: $Type,)*
        }

        impl $crate::columns::TableRow for $Row {
            const WIDTH: usize = [$first_sql, $($sql,)*].len();
            const CREATE: &'static str = concat!(
                "CREATE TABLE ", $table, " (\n  ", $first_sql, $(",\n  ", $sql,)*
                $(",\n  PRIMARY KEY (", $key, ")",)? "\n) STRICT",
                $($crate::columns::keyed!(kind $key),)? ";\n"
            );
            const INSERT: &'static str = concat!(
                "INSERT ", $($crate::columns::keyed!(verb $key),)? "INTO ", $table,
                " VALUES (?", $($crate::columns::place!($sql),)* ")"
            );

            fn read_columns(
                columns: &mut $crate::columns::ColumnReader<'_>,
            ) -> rusqlite::Result<Self> {
                Ok(Self {
                    $first: columns.field()?,
                    $($field: columns.field()?,)*
                })
            }

            fn values(&self) -> impl Iterator<Item = rusqlite::types::ValueRef<'_>> {
                use $crate::columns::ColumnValue as _;
                [self.$first.value(), $(self.$field.value(),)*].into_iter()
            }
        }
    };
}

/// Returns the placeholder for a further column in a statement.
macro_rules! place {
    ($column:literal) => {
        ", ?"
    };
}

/// Returns the parts of statements that only tables with their own key have.
macro_rules! keyed {
    (kind $key:literal) => {
        ", WITHOUT ROWID"
    };
    (verb $key:literal) => {
        "OR REPLACE "
    };
}

pub(super) use {keyed, place, table};

/// Reads the columns of a row from left to right.
///
/// Values that are never written (a list that is not JSON, a negative count) are
/// read as closely as possible, because an altered record must stay readable. The
/// digest of the row reveals the change.
pub(super) struct ColumnReader<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> ColumnReader<'a> {
    /// Starts at the first column of `row`.
    pub(super) fn new(row: &'a Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    /// Reads a list of texts; null is an empty list.
    pub(super) fn list(&mut self) -> rusqlite::Result<Vec<String>> {
        let parse = |text: String| serde_json::from_str(&text).unwrap_or_else(|_| vec![text]);
        let text: Option<String> = self.field()?;
        Ok(text.map(parse).unwrap_or_default())
    }

    /// Reads a field of a [`TableRow`].
    pub(super) fn field<T: ColumnValue>(&mut self) -> rusqlite::Result<T> {
        let at = self.next;
        let error = |error| {
            let kind = self.row.get_ref(at).map(|value| value.data_type());
            rusqlite::Error::FromSqlConversionFailure(
                at,
                kind.unwrap_or(Type::Null),
                Box::new(error),
            )
        };
        T::read(self.value()?).map_err(error)
    }

    fn value(&mut self) -> rusqlite::Result<ValueRef<'a>> {
        self.next += 1;
        self.row.get_ref(self.next - 1)
    }
}

/// Bytes as hexadecimal digits, in JSON.
pub(super) mod hex_bytes {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de};

    /// Writes the digits.
    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        text(bytes).serialize(serializer)
    }

    /// Reads the digits.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom("pairs of hexadecimal digits are wanted"))
    }

    /// Formats bytes in hexadecimal.
    pub(crate) fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses bytes in lower-case hexadecimal.
    pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
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
}

#[cfg(test)]
mod tests {
    use super::hex_bytes;

    #[test]
    fn bytes_are_read_as_they_were_written() {
        assert_eq!(
            hex_bytes::parse(&hex_bytes::text(&[0, 9, 0x7f, 255])),
            Some(vec![0, 9, 0x7f, 255])
        );
        for wrong in ["0", "0g", "0F", "+1"] {
            assert_eq!(hex_bytes::parse(wrong), None, "{wrong}");
        }
    }
}
