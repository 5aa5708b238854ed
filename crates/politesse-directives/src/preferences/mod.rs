//! What an origin says about uses of its content, beside fetching it
//! (`train-ai=n`, `tdm-reservation: 1`, the URL of a license).
//!
//! Four vocabularies, from the robots.txt, the fields of a response and the
//! head of a page:
//!
//! - AIPREF (draft-ietf-aipref-vocab-08, draft-ietf-aipref-attach-05):
//!   `Content-Usage`;
//! - Content Signals (contentsignals.org): `Content-Signal`;
//! - TDMRep (W3C Community Group Final Report of 10 May 2024):
//!   `tdm-reservation`, `tdm-policy`;
//! - RSL 1.0 (rslstandard.org): the URLs of licenses.
//!
//! Of several statements on a use the strictest counts, whichever vocabulary
//! it is from. Nothing is enforced, fetched or paid for here, and `noai` is a
//! directive. In reading order, and a module uses only those below it:

mod rule;

mod mining;

mod license;

mod link;

mod address;

mod signal;

mod usage;

mod uses;

use std::collections::BTreeSet;
use std::fmt;

use http::header::LINK;
use http::{HeaderMap, HeaderName};
use sfv::{TokenRef, token_ref};

use self::license::Licenses;
use self::mining::Mining;
use self::uses::Uses;
use politesse_robots::crawler::Crawler;
use politesse_robots::{CanonicalPath, RobotsTxt, UsageKind};

static CONTENT_USAGE: HeaderName = HeaderName::from_static("content-usage");
static CONTENT_SIGNAL: HeaderName = HeaderName::from_static("content-signal");
static TDM_RESERVATION: HeaderName = HeaderName::from_static("tdm-reservation");
static TDM_POLICY: HeaderName = HeaderName::from_static("tdm-policy");

/// What one response and its robots.txt say about uses of the content.
///
/// ```
/// use politesse_robots::crawler::Crawler;
/// use politesse_directives::preferences::Preferences;
/// use politesse_robots::RobotsTxt;
///
/// let robots = RobotsTxt::parse(b"User-agent: *\nContent-Usage: train-ai=n\n");
/// let mut preferences = Preferences::default();
/// preferences.of_robots(&robots, &Crawler::parse("ExampleBot/1.0"), "/page");
/// preferences.tdm_reservation("1");
/// let settled = preferences.settle();
/// let said: Vec<_> = settled.iter().map(ToString::to_string).collect();
/// assert_eq!(said, ["tdm-reservation:1", "train-ai:n"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    uses: Uses,
    mining: Mining,
    licenses: Licenses,
}

/// Where a preference was stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carrier {
    /// The robots.txt that was current when the response was fetched.
    RobotsTxt,
    /// A field of the response.
    Field,
    /// The head of the page.
    Page,
}

/// One preference, as strictly as it is stated, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// Its name in the annotation (`train-ai`).
    pub name: &'static TokenRef,
    /// What is preferred.
    pub value: Value,
    /// Who states it as strictly as this.
    pub carriers: BTreeSet<Carrier>,
}

/// What is preferred.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A word: `y` and `n`, or how far a use may go.
    Token(&'static TokenRef),
    /// The number of TDMRep, 0 or 1.
    Integer(u8),
    /// A URL, absolute or as written, in visible ASCII.
    Text(String),
}

impl Preferences {
    /// How many lines of a field are read.
    pub const LINES_MAX: usize = 64;

    /// Takes in the fields of a response: `Content-Usage`, `Content-Signal`,
    /// `tdm-reservation`, `tdm-policy` and `Link`.
    pub fn of_fields(&mut self, fields: &HeaderMap) {
        let usage = usage::joined(lines(fields, &CONTENT_USAGE));
        self.uses.add(usage::statements(&usage), Carrier::Field);
        for line in lines(fields, &CONTENT_SIGNAL) {
            self.uses.add(signal::statements(line), Carrier::Field);
        }
        for line in lines(fields, &TDM_RESERVATION) {
            self.mining.reserve(line, Carrier::Field);
        }
        for line in lines(fields, &TDM_POLICY) {
            self.mining.name_policy(line, Carrier::Field);
        }
        for target in lines(fields, &LINK).flat_map(link::licenses) {
            self.licenses.add_reference(target, Carrier::Field);
        }
    }

    /// Takes in what `robots` says of `path` (with its query, as sent) to
    /// `crawler`, in the groups that decide whether it may be fetched.
    ///
    /// A path that may not be fetched has no preferences
    /// (draft-ietf-aipref-attach-05, section 3.1): do not ask.
    pub fn of_robots(&mut self, robots: &RobotsTxt, crawler: &Crawler, path: &str) {
        let bound = robots.usage_lines(crawler);
        if bound.is_empty() {
            return;
        }
        let path = CanonicalPath::new(path);
        for said in rule::most_specific(&bound, UsageKind::ContentUsage, &path) {
            self.uses.add(usage::statements(said), Carrier::RobotsTxt);
        }
        for said in rule::most_specific(&bound, UsageKind::ContentSignal, &path) {
            self.uses.add(signal::statements(said), Carrier::RobotsTxt);
        }
        self.licenses.add_lines(&bound);
    }

    /// Takes in the content of `<meta name="tdm-reservation">`.
    pub fn tdm_reservation(&mut self, content: &str) {
        self.mining.reserve(content.as_bytes(), Carrier::Page);
    }

    /// Takes in the content of `<meta name="tdm-policy">`.
    pub fn tdm_policy(&mut self, content: &str) {
        self.mining.name_policy(content.as_bytes(), Carrier::Page);
    }

    /// Takes in the target of `<link rel="license" type="application/rsl+xml">`,
    /// character references decoded. A relative one stays as it is: it is
    /// relative to the page.
    pub fn license(&mut self, href: &str) {
        self.licenses.add_reference(href.as_bytes(), Carrier::Page);
    }

    /// Bytes of the URLs in it: what it takes beyond its own size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.licenses.bytes() + self.mining.bytes()
    }

    /// What is preferred, sorted by name, licenses by URL.
    #[must_use]
    pub fn settle(self) -> Vec<Preference> {
        let mut settled: Vec<Preference> = self.uses.settle().collect();
        settled.extend(self.mining.settle());
        settled.extend(self.licenses.settle());
        settled.sort_by(|one, other| (one.name, &one.value).cmp(&(other.name, &other.value)));
        settled
    }
}

/// The lines of a field, as many as are read.
fn lines<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = fields.get_all(name).into_iter();
    values
        .take(Preferences::LINES_MAX)
        .map(http::HeaderValue::as_bytes)
}

impl Carrier {
    /// The letter for it in the annotation.
    #[must_use]
    pub fn letter(self) -> &'static TokenRef {
        match self {
            Self::RobotsTxt => const { token_ref("u") },
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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(word) => f.write_str(word.as_str()),
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests;
