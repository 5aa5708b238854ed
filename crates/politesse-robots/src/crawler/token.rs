//! Product token: one name of a crawler, compared as RFC 9309, section 2.2.1, requires.
//!
//! Does not know where tokens occur in a User-Agent.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

use super::name_text::{is_identifier, leading_run};
use crate::origin::carried_hash;

/// Product token. Equality, hashing and ordering ignore ASCII case (RFC 9309, section
/// 2.2.1); `Display` shows the token as written.
///
/// Accepts more than the RFC's `[A-Za-z_-]`, because crawlers and robots.txt files use
/// names such as `MJ12bot` and `archive.org_bot`, and names of several words. Stores its
/// hash, because each request looks it up in several tables.
#[derive(Clone)]
pub struct ProductToken {
    text: Arc<str>,
    /// The text in lower case.
    folded: Arc<str>,
    hash: u64,
}

/// Reason why a text is not a product token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// The text is empty.
    #[error("a product token is empty")]
    Empty,
    /// The text is `*`, which stands for every crawler.
    #[error("`*` names every crawler, a product token names one")]
    Everyone,
    /// The text has a control character, or a space at an end, so that no line of a
    /// robots.txt could contain it.
    #[error("{0:?} has a control character, or a blank at an end")]
    Blank(String),
    /// The text is longer than [`ProductToken::BYTES_MAX`].
    #[error(
        "a product token has {bytes} bytes, at most {} are taken",
        ProductToken::BYTES_MAX
    )]
    TooLong {
        /// The length of the text, in bytes.
        bytes: usize,
    },
}

impl ProductToken {
    /// Maximum length of a token, in bytes.
    pub const BYTES_MAX: usize = 256;

    /// Creates a token from `text`, unchanged.
    ///
    /// # Errors
    ///
    /// [`InvalidToken`] if `text` is empty, `*` or too long, contains a control character,
    /// or has whitespace at an end.
    pub fn new(text: &str) -> Result<Self, InvalidToken> {
        let bytes = text.len();
        if text.is_empty() {
            Err(InvalidToken::Empty)
        } else if text == "*" {
            Err(InvalidToken::Everyone)
        } else if Self::BYTES_MAX < bytes {
            Err(InvalidToken::TooLong { bytes })
        } else if text.trim() != text || text.contains(char::is_control) {
            Err(InvalidToken::Blank(text.to_owned()))
        } else {
            let written: Arc<str> = text.into();
            let lower = text.to_ascii_lowercase();
            let folded = if lower == text {
                Arc::clone(&written)
            } else {
                lower.into()
            };
            Ok(Self {
                hash: carried_hash(&folded),
                text: written,
                folded,
            })
        }
    }

    /// Returns the token as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the token in lower case, which is equal for all spellings of a name. Does
    /// not copy the text.
    #[must_use]
    pub fn folded(&self) -> Arc<str> {
        Arc::clone(&self.folded)
    }

    /// Reports whether the value of an agent line names this token (RFC 9309, section
    /// 2.2.1).
    ///
    /// The value must equal the token, ignoring case, or begin with it, followed by a
    /// character that cannot be part of a name. `ExampleBot/2.0`, `ExampleBot*` and
    /// `ExampleBot (compatible)` name `ExampleBot`. `ExampleBot-News` and `ExampleBotä` do
    /// not: letters beyond those of the RFC are part of a name, too.
    #[must_use]
    pub fn is_named_by(&self, value: &str) -> bool {
        let names =
            |name: Option<&str>| name.is_some_and(|name| name.eq_ignore_ascii_case(&self.text));
        names(Some(value))
            || names(leading_run(value, is_identifier))
            || names(value.split(['/', ' ', '\t', '*']).next())
    }
}

impl PartialEq for ProductToken {
    fn eq(&self, other: &Self) -> bool {
        self.folded == other.folded
    }
}

impl Eq for ProductToken {}

impl Hash for ProductToken {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for ProductToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProductToken").field(&self.text).finish()
    }
}

impl Ord for ProductToken {
    fn cmp(&self, other: &Self) -> Ordering {
        self.folded.cmp(&other.folded)
    }
}

impl PartialOrd for ProductToken {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ProductToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9309, section 2.2.1.
    #[test]
    fn tokens_are_compared_without_case() {
        use std::collections::{BTreeSet, HashSet};
        let tokens = ["FooBot", "foobot", "FOOBOT"].map(|text| ProductToken::new(text).unwrap());
        assert_eq!(tokens[0].to_string(), "FooBot");
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 1);
        assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 1);
        assert!(tokens.iter().all(|token| &*token.folded() == "foobot"));
    }

    // RFC 9309, section 2.2.1; ours beyond its alphabet.
    #[test]
    fn a_value_names_the_token_if_no_name_character_follows() {
        let named = |token, value| ProductToken::new(token).unwrap().is_named_by(value);
        for value in [
            "foo", "Foo/2.0", "Foo*", "Foo (x)", "Foo, Bar", "Foo2", "Foo”",
        ] {
            assert!(named("Foo", value), "{value}");
        }
        let others = [
            "",
            "*",
            "Foo-News",
            "\"Foo\"",
            "*Foo",
            "Fo",
            "Bar, Foo",
            "Fooä",
            "Foo\u{301}",
        ];
        for value in others {
            assert!(!named("Foo", value), "{value}");
        }
        assert!(named("MJ12bot", "mj12bot/v1.4"));
        assert!(named("Foo Bar", "foo bar"));
    }

    // Ours.
    #[test]
    fn an_invalid_token_is_refused() {
        assert_eq!(ProductToken::new(""), Err(InvalidToken::Empty));
        assert_eq!(ProductToken::new("*"), Err(InvalidToken::Everyone));
        for text in [" a", "a ", "a\tb", "a\0"] {
            assert_eq!(
                ProductToken::new(text),
                Err(InvalidToken::Blank(text.to_owned()))
            );
        }
        let bytes = ProductToken::BYTES_MAX + 1;
        assert_eq!(
            ProductToken::new(&"a".repeat(bytes)),
            Err(InvalidToken::TooLong { bytes })
        );
    }
}
