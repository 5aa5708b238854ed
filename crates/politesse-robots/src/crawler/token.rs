//! Product tokens: one name of a crawler, as RFC 9309, section 2.2.1, compares it.
//!
//! Does not know where in a User-Agent a token stands.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

use super::name_text::{is_identifier, leading_run};
use crate::origin::carried_hash;

/// A product token; equality, hashing and ordering ignore ASCII case (RFC 9309,
/// section 2.2.1), `Display` gives it as written.
///
/// Wider than the RFC's `[A-Za-z_-]`: names such as `MJ12bot` and
/// `archive.org_bot` are used by crawlers and in robots.txt, and so are names
/// of several words. It carries its hash, as an origin does.
#[derive(Clone)]
pub struct ProductToken {
    text: Arc<str>,
    /// The text in lower case.
    folded: Arc<str>,
    hash: u64,
}

/// Why a text is no product token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// The text is empty.
    #[error("a product token is empty")]
    Empty,
    /// The text is `*`, which stands for every crawler.
    #[error("`*` names every crawler, a product token names one")]
    Everyone,
    /// No line of a robots.txt could name it.
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
    /// The longest token, in bytes.
    pub const BYTES_MAX: usize = 256;

    /// Takes `text` as a token, as it is.
    ///
    /// # Errors
    ///
    /// [`InvalidToken`] if it is empty, `*` or too long, holds a control
    /// character, or has a blank at an end.
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

    /// Returns the token in lower case, without a copy of it: the same for all spellings
    /// of a name.
    #[must_use]
    pub fn folded(&self) -> Arc<str> {
        Arc::clone(&self.folded)
    }

    /// Reports whether the value of an agent line means this token (RFC 9309,
    /// section 2.2.1).
    ///
    /// It does if it equals the token, ignoring case, or begins with it and goes
    /// on with what cannot belong to a name: `ExampleBot/2.0`, `ExampleBot*`
    /// and `ExampleBot (compatible)` mean `ExampleBot`; `ExampleBot-News` does
    /// not, nor does `ExampleBotä`: other letters than the RFC's belong to names
    /// as well.
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
    fn tokens_are_equal_whatever_their_case() {
        use std::collections::{BTreeSet, HashSet};
        let tokens = ["FooBot", "foobot", "FOOBOT"].map(|text| ProductToken::new(text).unwrap());
        assert_eq!(tokens[0].to_string(), "FooBot");
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 1);
        assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 1);
        assert!(tokens.iter().all(|token| &*token.folded() == "foobot"));
    }

    // RFC 9309, section 2.2.1; beyond its alphabet, ours.
    #[test]
    fn value_that_goes_on_with_no_name_means_the_token() {
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
    fn text_that_is_no_token_is_refused() {
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
