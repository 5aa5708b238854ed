//! One preference about a use of the content: its name, value and carriers.
//!
//! Its text appears in the annotation, which is ASCII (RFC 9651, section 3.3.3). RSL
//! 1.0 requires no escaping in robots.txt, so URLs are escaped here as in RFC 3987,
//! section 3.1. Nothing is resolved or looked up. Does not know how statements add up.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use sfv::{TokenRef, token_ref};

/// Part of a response, or of its site, that states a preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carrier {
    /// The robots.txt that was current when the response was fetched.
    RobotsTxt,
    /// The TDM file of the origin (`/.well-known/tdmrep.json`).
    TdmFile,
    /// A field of the response.
    Field,
    /// The head of the page.
    Page,
}

/// One preference, in the strictest form that was stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// Name in the annotation (`train-ai`).
    pub name: &'static TokenRef,
    /// Value of the preference.
    pub value: PreferenceValue,
    /// Carriers that state the preference in this form.
    pub carriers: BTreeSet<Carrier>,
    /// First `Content-Usage` or `Content-Signal` line of robots.txt, counted from 1,
    /// that states the preference in this form.
    pub line: Option<u32>,
}

/// Value of a preference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreferenceValue {
    /// A word: `y`, `n`, or the extent of a use.
    Token(&'static TokenRef),
    /// The number used by TDMRep, 0 or 1.
    Integer(u8),
    /// A URL, absolute or as written, in visible ASCII.
    Text(String),
}

/// Length of the longest URL that is kept, in bytes. Longer ones are dropped, not cut,
/// because a truncated URL is a different URL.
pub(super) const URL_BYTES_MAX: usize = 2048;

/// Returns a URL reference, absolute or relative, in visible ASCII. `None` if it is
/// empty, too long, or contains a control character.
pub(super) fn reference(written: &[u8]) -> Option<String> {
    let written = written.trim_ascii();
    if written.is_empty() || URL_BYTES_MAX < written.len() {
        return None;
    }
    let mut url = String::with_capacity(written.len());
    for &byte in written {
        match byte {
            b'!'..=b'~' => url.push(char::from(byte)),
            b' ' | 0x80.. => write!(url, "%{byte:02X}").ok()?,
            0..b' ' | 0x7F => return None,
        }
    }
    (url.len() <= URL_BYTES_MAX).then_some(url)
}

/// Returns an `http` or `https` URL with a host, in visible ASCII. `None` if the text
/// is not an absolute URL.
pub(super) fn absolute(written: &[u8]) -> Option<String> {
    let url = reference(written)?;
    let (scheme, rest) = url.split_once("://")?;
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let has_host = !rest.starts_with(['/', '?', '#']) && !rest.is_empty();
    (is_web && has_host).then_some(url)
}

impl Carrier {
    /// Returns the letter that names the carrier in the annotation.
    #[must_use]
    pub fn letter(self) -> &'static TokenRef {
        match self {
            Self::RobotsTxt => const { token_ref("u") },
            Self::TdmFile => const { token_ref("f") },
            Self::Field => const { token_ref("h") },
            Self::Page => const { token_ref("m") },
        }
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name.as_str(), self.value)
    }
}

impl fmt::Display for PreferenceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(word) => f.write_str(word.as_str()),
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}
