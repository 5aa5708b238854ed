//! Facts about a robots.txt that its text does not contain: its origin, and the charset
//! that its response declares.
//!
//! RFC 9309, section 2.3, requires UTF-8. Ours (docs/decisions/007-doubt-refuses.md): a
//! Disallow may also be an absolute URL of the origin, or a path in the declared charset.
//! Does not know how the file was fetched.

use std::fmt;
use std::str::FromStr;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use crate::origin::Origin;

/// Origin and declared charset of a robots.txt, which its text does not contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSource {
    /// Origin that the file is for.
    pub origin: Option<Origin>,
    /// Charset that its response declares, if it is not UTF-8.
    pub charset: Option<Charset>,
}

impl FileSource {
    /// Creates the facts about a file of `origin` that was sent with this Content-Type.
    #[must_use]
    pub fn new(origin: &Origin, content_type: Option<&str>) -> Self {
        Self {
            origin: Some(origin.clone()),
            charset: content_type.and_then(Charset::of_content_type),
        }
    }
}

/// Character encoding other than UTF-8 and UTF-16.
///
/// Parses from any label of the WHATWG Encoding Standard, ignoring case; displays as the
/// standard's name of the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charset(&'static Encoding);

/// Error: the label names UTF-8, UTF-16 or no known encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the label of an encoding other than UTF-8 and UTF-16")]
pub struct UnknownCharset;

impl Charset {
    /// Returns the parameter `charset` of a Content-Type, if it names an encoding other
    /// than UTF-8 and UTF-16 (RFC 9110, section 8.3.2).
    fn of_content_type(content_type: &str) -> Option<Self> {
        let parameters = content_type.split(';').skip(1);
        let mut named = parameters.filter_map(|parameter| parameter.split_once('='));
        let (_, label) = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
        label.trim_matches([' ', '\t', '"', '\'']).parse().ok()
    }

    /// Decodes `bytes`. Bytes that are invalid in the encoding become U+FFFD.
    pub(crate) fn decode(self, bytes: &[u8]) -> String {
        let (text, _) = self.0.decode_without_bom_handling(bytes);
        text.into_owned()
    }
}

impl FromStr for Charset {
    type Err = UnknownCharset;

    fn from_str(label: &str) -> Result<Self, UnknownCharset> {
        let encoding = Encoding::for_label_no_replacement(label.as_bytes());
        // UTF-16 is detected from the bytes of the file, regardless of the declaration.
        let other = encoding.filter(|encoding| ![UTF_8, UTF_16LE, UTF_16BE].contains(encoding));
        other.map(Self).ok_or(UnknownCharset)
    }
}

impl fmt::Display for Charset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9110, section 8.3.2: parameters and their values ignore case here.
    #[test]
    fn a_charset_other_than_utf_8_is_read_from_the_content_type() {
        for (content_type, name) in [
            ("text/plain; charset=windows-1251", Some("windows-1251")),
            ("text/plain;CHARSET=\"CP1251\"", Some("windows-1251")),
            ("text/plain; x=y; charset = latin1 ", Some("windows-1252")),
            ("text/plain; charset=utf-8", None),
            ("text/plain; charset=UTF-16LE", None),
            ("text/plain; charset=none", None),
            ("text/plain; charset=iso-2022-cn", None),
            ("text/plain", None),
            ("charset=windows-1251", None),
        ] {
            let charset = Charset::of_content_type(content_type);
            let found = charset.map(|charset| charset.to_string());
            assert_eq!(found.as_deref(), name, "{content_type}");
        }
    }
}
