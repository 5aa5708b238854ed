//! SHA-256 values, by which robots.txt bodies, policies and decisions are named.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;

/// A SHA-256 value; written and read as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut value = [0; 32];
        value.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(value)
    }

    /// Returns the 32 bytes, as the audit store keeps them.
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

/// Error: the text is not 64 hexadecimal digits.
#[derive(Debug, Error)]
#[error("a SHA-256 value has 64 hexadecimal digits")]
pub struct InvalidDigest;

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        // `from_str_radix` takes a sign, too: `+f` would be a byte.
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

    // FIPS 180-4, the example of the empty message.
    #[test]
    fn a_digest_is_written_and_read_as_hexadecimal() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), Digest::of(b""));
    }

    #[test]
    fn anything_but_64_digits_is_no_digest() {
        assert!("e3b0".parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }
}
