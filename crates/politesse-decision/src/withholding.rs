//! Withholding: whether a response that was fetched is kept from its crawler, because of
//! what it states about its own use.
//!
//! Fields and `<meta>` are known only once the origin has answered. The decision to fetch
//! stays as it was; the ending of the exchange says that the response was withheld. What
//! decides is the annotation as it is recorded, so that `verify` comes to the same answer.
//! Does not know how a response is read.

use std::iter;

use politesse_directives::denials::{self, AnnotationDenials, PurposeDenial, StatementKind};

use super::evidence::Evidence;
use super::overrides::{self, Action, JudgedPath, OverrideQuery};
use super::policy::EnforcementMode;
use super::preferences::{PreferenceMode, UnknownPreferences};
use super::reason::Reason;
use super::record::StoredCrawler;
use super::ruling::other_readings;
use politesse_robots::CanonicalPath;

/// Reads what a response states about the purposes of its crawler from the value of the
/// annotation field, with all preferences. Without a purpose nothing is denied.
pub fn stated_denials(evidence: &Evidence, annotation: &str) -> AnnotationDenials {
    let Some(preferences) = &evidence.policy.terms().preferences else {
        return AnnotationDenials::default();
    };
    let crawler = &evidence.inquiry.crawler;
    let is_agent = |agent: &str| {
        let mut names = StoredCrawler::names_of(crawler);
        names.any(|name| name.eq_ignore_ascii_case(agent))
    };
    denials::by_annotation(annotation, preferences.purposes, is_agent)
}

/// Reason to keep a response from its crawler.
#[derive(Debug, Clone, PartialEq)]
pub struct Withholding {
    /// Denials of the purposes, by all that the site states about the page.
    pub denials: Vec<PurposeDenial>,
    /// Word for why the response was not read whole, if that alone is the reason.
    pub unread: Option<String>,
    /// Whether the response is given all the same, and the client only told.
    pub is_reported: bool,
}

impl Withholding {
    /// Error of an ending whose response was withheld.
    pub const ERROR: &str = "withheld";

    /// Returns the reason to withhold a response with this status, which states `stated`,
    /// from the crawler of a decision; `None` if it is given, as every response is to a
    /// crawler without a purpose.
    ///
    /// A redirect has no content that could be used, and is given. An override that
    /// allows the URL counts before what the response states.
    pub fn of(evidence: &Evidence, status: u16, stated: AnnotationDenials) -> Option<Self> {
        let terms = evidence.policy.terms();
        let preferences = terms.preferences.as_ref()?;
        // A crawler that may not read the rules cannot obey them (RFC 9309, section 2.2.2).
        if evidence.ruling.reason == Reason::RobotsTxt {
            return None;
        }
        let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
        if preferences.enforce == PreferenceMode::Off || is_redirect {
            return None;
        }
        let AnnotationDenials { denials, unread } = stated;
        let is_denied = preferences.disallows(&denials);
        // HEAD has no content that could be read.
        let may_hide = preferences.unknown == UnknownPreferences::Refuse
            && !is_denied
            && evidence.inquiry.method != "HEAD";
        let unread = unread.filter(|_| may_hide);
        if !is_denied && unread.is_none() || is_allowed_by_override(evidence) {
            return None;
        }
        let is_reported =
            preferences.enforce == PreferenceMode::Report || terms.mode == EnforcementMode::Report;
        Some(Self {
            denials,
            unread,
            is_reported,
        })
    }

    /// Returns the word of the reason: `directive` if nothing else denies, else
    /// `preference`.
    pub fn reason(&self) -> &'static str {
        let kinds = self.denials.iter().map(|denial| denial.statement.kind);
        let mut others = kinds.filter(|kind| *kind != StatementKind::Directive);
        if self.denials.is_empty() || others.next().is_some() {
            "preference"
        } else {
            "directive"
        }
    }
}

/// Reports whether an override of the operator allows every reading of the URL of a
/// decision, whatever is stated about it.
fn is_allowed_by_override(evidence: &Evidence) -> bool {
    let terms = evidence.policy.terms();
    let target = &evidence.inquiry.target;
    let sent = target.path_and_query();
    let others = other_readings(sent, terms.readings);
    let judged = |path: &str| JudgedPath {
        path: CanonicalPath::new(path),
        disallowed: true,
    };
    let readings = iter::once(sent).chain(others.iter().map(String::as_str));
    let query = OverrideQuery {
        origin: &target.origin,
        crawler: &evidence.inquiry.crawler,
        readings: readings.map(judged).collect(),
        at: evidence.at,
    };
    let found = overrides::first(&terms.overrides, &query);
    found.is_some_and(|(entry, _)| matches!(entry.action, Action::Allow { .. }))
}
