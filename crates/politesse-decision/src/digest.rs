//! SHA-256 digests, which name robots.txt bodies, policies and decisions, and the
//! canonical encoding of the values that a digest covers.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A SHA-256 value, written as 64 lower-case hexadecimal digits. The default, 32 zero
/// bytes, is a placeholder and the digest of no input.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut value = [0; 32];
        value.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(value)
    }

    /// Returns the 32 bytes, the form in the audit store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Digest {
    fn from(value: [u8; 32]) -> Self {
        Self(value)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Values in the canonical encoding: two different lists of values never have the same
/// bytes.
///
/// The values follow one another in the order of the calls
/// (docs/decisions/021-decision-digest.md): a number or a time as 8 bytes, big-endian;
/// a text as its length in 4 bytes, big-endian, and its bytes; a digest as its 32 bytes;
/// an optional value as the byte 0, or as the byte 1 and the value.
#[derive(Debug)]
pub struct CanonicalBytes(Vec<u8>);

impl CanonicalBytes {
    /// Initial capacity: most lists of values are shorter.
    const USUAL_BYTES: usize = 256;

    /// Begins a list of values.
    pub fn new() -> Self {
        Self(Vec::with_capacity(Self::USUAL_BYTES))
    }

    /// Begins a new list of values in the same memory. The list starts with the bytes
    /// `kind`, which distinguish lists of different kinds.
    pub fn begin(&mut self, kind: &[u8]) {
        self.0.clear();
        self.raw(kind);
    }

    /// Appends bytes without a length. The kind of value must fix their length.
    pub fn raw(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
    }

    /// Appends a signed number.
    pub fn integer(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends a signed number as a byte count followed by the shortest two's-complement
    /// form, big-endian.
    pub fn short_integer(&mut self, value: i64) {
        // Leading bits that equal the sign bit. The encoding must keep one of them.
        let sign_bits = (value ^ (value >> 63)).leading_zeros();
        let count = 8 - (sign_bits as usize - 1) / 8;
        self.0.push(count as u8);
        self.0.extend_from_slice(&value.to_be_bytes()[8 - count..]);
    }

    /// Appends bytes in the form of a text: their length, then the bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.0.extend_from_slice(&length(value.len()));
        self.0.extend_from_slice(value);
    }

    /// Appends the text that `write` produces.
    pub fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        write(&mut self.0);
        let bytes = length(self.0.len() - start - 4);
        self.0[start..start + 4].copy_from_slice(&bytes);
    }

    /// Appends a number.
    pub fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends a time, in microseconds since 1970.
    pub fn time(&mut self, at: Timestamp) {
        self.0.extend_from_slice(&at.as_microsecond().to_be_bytes());
    }

    /// Appends a text.
    pub fn text(&mut self, value: impl fmt::Display) {
        // Writing to a vector cannot fail.
        self.written(|text| write!(text, "{value}").unwrap_or_default());
    }

    /// Appends a digest.
    pub fn digest(&mut self, value: Digest) {
        self.0.extend_from_slice(&value.0);
    }

    /// Appends an optional value. Calls `append` with the value if there is one.
    pub fn optional<T>(&mut self, value: Option<T>, append: impl FnOnce(&mut Self, T)) {
        self.0.push(value.is_some().into());
        if let Some(value) = value {
            append(self, value);
        }
    }

    /// Returns the encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Encodes the length of a text.
fn length(bytes: usize) -> [u8; 4] {
    // The length always fits: a text is at most as long as a request head, and a
    // row of the store is at most 1 GB.
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

impl Default for CanonicalBytes {
    fn default() -> Self {
        Self::new()
    }
}

/// Error: the text is not 64 hexadecimal digits.
#[derive(Debug, Error)]
#[error("a SHA-256 value has 64 hexadecimal digits")]
pub struct InvalidDigest;

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        // `from_str_radix` also accepts a sign: `+f` would pass as a byte.
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidDigest);
        }
        let mut value = [0; 32];
        for (byte, pair) in value.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(pair).map_err(|_| InvalidDigest)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: docs/decisions/020-thin-record.md.
    #[test]
    fn a_short_integer_has_the_fewest_bytes_that_hold_it() {
        let rows: [(i64, &[u8]); 10] = [
            (0, &[1, 0]),
            (-1, &[1, 0xff]),
            (127, &[1, 0x7f]),
            (128, &[2, 0, 0x80]),
            (-128, &[1, 0x80]),
            (-129, &[2, 0xff, 0x7f]),
            (32_768, &[3, 0, 0x80, 0]),
            (1 << 40, &[6, 1, 0, 0, 0, 0, 0]),
            (i64::MAX, &[8, 0x7f, 255, 255, 255, 255, 255, 255, 255]),
            (i64::MIN, &[8, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (value, expected) in rows {
            let mut bytes = CanonicalBytes::default();
            bytes.short_integer(value);
            assert_eq!(bytes.as_bytes(), expected, "{value}");
        }
    }

    // FIPS 180-4, the example of the empty message.
    #[test]
    fn a_digest_is_written_and_read_as_hexadecimal() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), Digest::of(b""));
    }

    #[test]
    fn text_other_than_64_hexadecimal_digits_is_rejected() {
        assert!("e3b0".parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }
}
