//! Values of columns: how they are written, read and put under a digest.
//!
//! Each row carries a digest of the values that were fixed when it was written.
//! Deciding again shows that an answer does not follow from its evidence; it
//! cannot show that a URL was changed into another one with the same answer.
//! Whoever changes a row and its digest too is not found.
//!
//! Does not know which columns a table has.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, Value, ValueRef};

use politesse_decision::digest::Digest;

/// Bytes of most rows, as they are put under a digest.
const ROW_BYTES: usize = 1024;

/// Computes the digest of a list of values.
pub(super) fn digest_of<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> Digest {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    for value in values {
        encode(value, &mut bytes);
    }
    Digest::of(&bytes)
}

/// Appends the digest of `values` to them.
pub(super) fn with_digest(mut values: Vec<Value>) -> Vec<Value> {
    let digest = digest_of(values.iter().map(Into::into));
    values.push(blob(digest));
    values
}

/// Reports whether the first `columns` values of a row have the digest that
/// stands after them.
pub(super) fn is_as_written(row: &Row<'_>, columns: usize) -> rusqlite::Result<bool> {
    let values = (0..columns).map(|column| row.get_ref(column));
    let digest = digest_of(values.collect::<rusqlite::Result<Vec<_>>>()?);
    Ok(is_digest(row.get_ref(columns)?, digest))
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

/// Makes the column of a digest.
pub(super) fn blob(digest: Digest) -> Value {
    Value::Blob(digest.as_bytes().to_vec())
}

/// Reads a digest; `None` if there are not 32 bytes.
pub(super) fn read_digest(bytes: &[u8]) -> Option<Digest> {
    <[u8; 32]>::try_from(bytes).ok().map(Digest::from)
}

/// Reads the leaf in a column. One that is no digest, which is never written, is
/// that of nothing: it is the leaf of no entry.
pub(super) fn read_leaf(row: &Row<'_>, column: usize) -> rusqlite::Result<Digest> {
    let bytes = row.get_ref(column)?.as_bytes().unwrap_or_default();
    Ok(read_digest(bytes).unwrap_or(Digest::from([0; 32])))
}

/// Makes the number of a column. SQLite's integers are signed; a greater count is
/// written as the greatest of them.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Reads a count: a negative one, which is never written, is 0.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Makes the column of a list of texts: JSON.
pub(super) fn json_list(list: &[String]) -> String {
    // There is no text that JSON cannot hold.
    serde_json::to_string(list).unwrap_or_default()
}

/// Returns the bytes of a text, UTF-8 or not, or of what became of it.
pub(super) fn text_bytes(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    }
}

/// A value is gone, or is not as it was written.
#[derive(Debug)]
pub(super) struct Altered;

/// Returns the bytes of a text as it was written, or nothing for null; [`Altered`] for
/// a value of another type. One bit of the file makes a blob of the same bytes from a
/// text.
pub(super) fn written_text(value: ValueRef<'_>) -> Result<Option<&[u8]>, Altered> {
    match value {
        ValueRef::Text(bytes) => Ok(Some(bytes)),
        ValueRef::Null => Ok(None),
        ValueRef::Blob(_) | ValueRef::Integer(_) | ValueRef::Real(_) => Err(Altered),
    }
}

/// Reads the columns of a row from left to right.
///
/// Values that are never written (a list that is no JSON, a negative count) are
/// read as near as may be: a record must be readable after somebody changed it,
/// and the digest of the row tells that it was.
pub(super) struct ColumnReader<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> ColumnReader<'a> {
    /// Begins with the first column of `row`.
    pub(super) fn new(row: &'a Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    /// Reads a text, or null.
    pub(super) fn text(&mut self) -> rusqlite::Result<Option<String>> {
        let bytes = text_bytes(self.value()?);
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// Reads a text that is never null.
    pub(super) fn word(&mut self) -> rusqlite::Result<String> {
        Ok(self.text()?.unwrap_or_default())
    }

    /// Reads a count.
    pub(super) fn count(&mut self) -> rusqlite::Result<u64> {
        self.take().map(count)
    }

    /// Reads a number that has a narrower type outside the record, or null.
    pub(super) fn number<T: TryFrom<i64>>(&mut self) -> rusqlite::Result<Option<T>> {
        let number: Option<i64> = self.take()?;
        Ok(number.and_then(|number| T::try_from(number).ok()))
    }

    /// Reads a time in microseconds.
    pub(super) fn time(&mut self) -> rusqlite::Result<Timestamp> {
        let time_us: Option<i64> = self.take()?;
        let time = time_us.map(Timestamp::from_microsecond);
        Ok(time.and_then(Result::ok).unwrap_or_default())
    }

    /// Reads a list of texts; null is an empty one.
    pub(super) fn list(&mut self) -> rusqlite::Result<Vec<String>> {
        let parse = |text: String| serde_json::from_str(&text).unwrap_or_else(|_| vec![text]);
        Ok(self.text()?.map(parse).unwrap_or_default())
    }

    /// Reads a digest, or null.
    pub(super) fn digest(&mut self) -> rusqlite::Result<Option<Digest>> {
        let bytes: Option<Vec<u8>> = self.take()?;
        Ok(bytes.as_deref().and_then(read_digest))
    }

    /// Passes over a column.
    pub(super) fn skip(&mut self) {
        self.next += 1;
    }

    fn value(&mut self) -> rusqlite::Result<ValueRef<'a>> {
        self.next += 1;
        self.row.get_ref(self.next - 1)
    }

    fn take<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }
}
