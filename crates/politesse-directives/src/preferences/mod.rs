//! Preferences about uses of the content other than fetching it (`train-ai=n`,
//! `tdm-reservation: 1`, the URL of a licence).
//!
//! Four vocabularies, from the robots.txt, the TDM file of an origin, the fields of
//! a response and the head of a page:
//!
//! - AIPREF (draft-ietf-aipref-vocab-08, draft-ietf-aipref-attach-05):
//!   `Content-Usage`;
//! - Content Signals (contentsignals.org): `Content-Signal`;
//! - TDMRep (W3C Community Group Final Report of 10 May 2024):
//!   `tdm-reservation`, `tdm-policy`;
//! - RSL 1.0 (rslstandard.org): the URLs of licences.
//!
//! If several statements concern a use, the strictest counts, from any vocabulary.
//! Nothing is enforced, fetched or paid for here. Does not know `noai`, which is a
//! directive.

mod license;
mod link;
mod mining;
mod preference;
mod rule;
mod tdm_file;
mod uses;

use http::header::LINK;
use http::{HeaderMap, HeaderName, HeaderValue};

use self::license::Licenses;
use self::mining::MiningDeclarations;
use self::uses::{StatementPlace, UseStatements};
use politesse_robots::crawler::Crawler;
use politesse_robots::{CanonicalPath, RobotsTxt, UsageKind};

pub use preference::{Carrier, Preference, PreferenceValue};
pub use tdm_file::{TdmFile, TdmNote, TdmProblem, TdmRule};

static CONTENT_USAGE: HeaderName = HeaderName::from_static("content-usage");
static CONTENT_SIGNAL: HeaderName = HeaderName::from_static("content-signal");
static TDM_RESERVATION: HeaderName = HeaderName::from_static("tdm-reservation");
static TDM_POLICY: HeaderName = HeaderName::from_static("tdm-policy");

/// Statements about uses of the content by one response, its robots.txt and its
/// origin's TDM file.
///
/// ```
/// use politesse_robots::crawler::Crawler;
/// use politesse_directives::preferences::Preferences;
/// use politesse_robots::RobotsTxt;
///
/// let robots = RobotsTxt::parse(b"User-agent: *\nContent-Usage: train-ai=n\n");
/// let mut preferences = Preferences::default();
/// preferences.add_robots(&robots, &Crawler::parse("ExampleBot/1.0"), "/page");
/// preferences.add_tdm_reservation("1");
/// let settled = preferences.settle();
/// let texts: Vec<_> = settled.iter().map(ToString::to_string).collect();
/// assert_eq!(texts, ["tdm-reservation:1", "train-ai:n"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    uses: UseStatements,
    mining: MiningDeclarations,
    licenses: Licenses,
}

impl Preferences {
    /// Maximum number of lines of a field that are read. A response with more is
    /// broken, or made to be costly.
    pub const LINES_MAX: usize = 64;

    /// Adds the fields of a response: `Content-Usage`, `Content-Signal`,
    /// `tdm-reservation`, `tdm-policy` and `Link`.
    pub fn add_fields(&mut self, fields: &HeaderMap) {
        // Content-Usage is one dictionary over all its lines; in the other fields each
        // line stands alone.
        let usage = uses::joined(lines(fields, &CONTENT_USAGE));
        self.uses.add_usage(&usage, StatementPlace::FIELD);
        for line in lines(fields, &CONTENT_SIGNAL) {
            self.uses.add_signals(line, StatementPlace::FIELD);
        }
        for line in lines(fields, &TDM_RESERVATION) {
            self.mining.field.add_reservation(line);
        }
        for line in lines(fields, &TDM_POLICY) {
            self.mining.field.add_policy(line);
        }
        for target in lines(fields, &LINK).flat_map(link::license_targets) {
            self.licenses.add_reference(target, Carrier::Field);
        }
    }

    /// Adds the preferences that `robots` states for `path` (with its query, as sent)
    /// and `crawler`, in the groups that decide whether the path may be fetched.
    ///
    /// A path that may not be fetched has no preferences (draft-ietf-aipref-attach-05,
    /// section 3.1), so call this only for allowed paths.
    pub fn add_robots(&mut self, robots: &RobotsTxt, crawler: &Crawler, path: &str) {
        let bound = robots.usage_lines(crawler);
        if bound.is_empty() {
            return;
        }
        let path = CanonicalPath::new(path);
        for rule in rule::most_specific(&bound, UsageKind::ContentUsage, &path) {
            let place = StatementPlace::robots_line(rule.line);
            self.uses.add_usage(rule.statement, place);
        }
        for rule in rule::most_specific(&bound, UsageKind::ContentSignal, &path) {
            let place = StatementPlace::robots_line(rule.line);
            self.uses.add_signals(rule.statement, place);
        }
        self.licenses.add_lines(&bound);
    }

    /// Adds the rule of the origin's TDM file that binds the path
    /// ([`TdmFile::binding`]).
    pub fn add_tdm_rule(&mut self, rule: &TdmRule) {
        self.mining.file = rule.declaration.clone();
    }

    /// Adds the content of `<meta name="tdm-reservation">`.
    pub fn add_tdm_reservation(&mut self, content: &str) {
        self.mining.page.add_reservation(content.as_bytes());
    }

    /// Adds the content of `<meta name="tdm-policy">`.
    pub fn add_tdm_policy(&mut self, content: &str) {
        self.mining.page.add_policy(content.as_bytes());
    }

    /// Adds the target of `<link rel="license" type="application/rsl+xml">`, with
    /// character references decoded. A relative URL stays as written: it is relative to
    /// the page.
    pub fn add_license(&mut self, href: &str) {
        let href = href.as_bytes();
        self.licenses.add_reference(href, Carrier::Page);
    }

    /// Returns the bytes of memory beyond the size of the type, taken by URLs.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.licenses.bytes() + self.mining.bytes()
    }

    fn is_empty(&self) -> bool {
        self.uses.is_empty()
            && self.licenses.is_empty()
            && self.mining == MiningDeclarations::default()
    }

    /// Returns the strictest preferences, sorted by name, licences by URL.
    #[must_use]
    pub fn settle(self) -> Vec<Preference> {
        // Most responses have no preferences, and this runs for every response.
        if self.is_empty() {
            return Vec::new();
        }
        let mut settled: Vec<Preference> = self.uses.settle().collect();
        settled.extend(self.mining.settle());
        settled.extend(self.licenses.settle());
        settled.sort_by(|one, other| (one.name, &one.value).cmp(&(other.name, &other.value)));
        settled
    }
}

/// Returns the lines of a field, up to the number that is read.
fn lines<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = fields.get_all(name).into_iter();
    values
        .take(Preferences::LINES_MAX)
        .map(HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests;
