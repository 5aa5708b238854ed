//! Labels of crawls: the name that the record gives to the requests of one crawl.
//!
//! A label never affects a decision. Does not know how a request carries it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use politesse_directives::PurposeSet;

/// Label of a crawl: `shop-2026-11`.
///
/// 1 to 64 ASCII letters, digits, `.`, `_` and `-`, so that it needs no escaping in a
/// header field, a URL or a CSV column. Case-sensitive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CrawlLabel(Arc<str>);

/// Error: the text is not a valid label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a label has 1 to 64 letters, digits, dots, dashes and underscores, as in shop-2026-11")]
pub struct InvalidLabel;

/// Options that describe the crawl of a command (`run --label`, `run --purpose`).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CrawlOptions {
    /// Label to record with its requests.
    pub label: Option<CrawlLabel>,
    /// Purposes of its requests, which replace those of the entry of `crawler`.
    pub purposes: PurposeSet,
}

impl CrawlLabel {
    /// Maximum length of a label, in bytes. Clients choose labels, and the record stores
    /// each of them.
    pub const BYTES_MAX: usize = 64;

    /// Parses a label.
    ///
    /// # Errors
    ///
    /// [`InvalidLabel`] if the length is out of range or a character is not allowed.
    pub fn new(text: &str) -> Result<Self, InvalidLabel> {
        let is_known =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let has_length = (1..=Self::BYTES_MAX).contains(&text.len());
        if has_length && text.bytes().all(is_known) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidLabel)
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CrawlLabel {
    type Err = InvalidLabel;

    fn from_str(text: &str) -> Result<Self, InvalidLabel> {
        Self::new(text)
    }
}

impl TryFrom<String> for CrawlLabel {
    type Error = InvalidLabel;

    fn try_from(text: String) -> Result<Self, InvalidLabel> {
        Self::new(&text)
    }
}

impl From<CrawlLabel> for String {
    fn from(label: CrawlLabel) -> Self {
        label.0.as_ref().to_owned()
    }
}

impl fmt::Display for CrawlLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a label needs no escaping in a header field, a URL or CSV.
    #[test]
    fn a_label_is_a_short_word_without_delimiters() {
        let longest = "a".repeat(CrawlLabel::BYTES_MAX);
        for text in ["a", "shop-2026-11", "A.b_c", longest.as_str()] {
            assert_eq!(CrawlLabel::new(text).unwrap().as_str(), text);
        }
        let too_long = "a".repeat(CrawlLabel::BYTES_MAX + 1);
        for text in ["", "a b", "a,b", "a/b", "ä", "=1", "a\n", too_long.as_str()] {
            assert_eq!(CrawlLabel::new(text), Err(InvalidLabel), "{text:?}");
        }
    }
}
