//! Withholding: whether a fetched response is kept from its crawler, because the response
//! denies the purposes of that crawler.
//!
//! Header fields and `<meta>` elements are known only once the origin has answered. The
//! decision to fetch stays unchanged; the end of the exchange records that the response
//! was withheld. The input is the annotation exactly as it is recorded, so that `verify`
//! reaches the same answer. Does not know how a response is read.

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

/// Returns the denials of the crawler's purposes that a response states. `annotation` is
/// the value of the annotation field, including all preferences. Returns no denials for a
/// crawler without declared purposes.
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
    /// Denials of the purposes, from every statement of the site about the page.
    pub denials: Vec<PurposeDenial>,
    /// Word for why the response was not read completely, if that alone is the reason to
    /// withhold it.
    pub unread_cause: Option<String>,
    /// Whether the client gets the response anyway, with only a report of the reason.
    pub is_reported: bool,
}

impl Withholding {
    /// Error word recorded for an exchange whose response was withheld.
    pub const ERROR: &str = "withheld";

    /// Returns the reason to withhold a response from the crawler of a decision. `status`
    /// is the status of the response, and `stated` the denials that it states.
    ///
    /// Returns `None` if the crawler gets the response. That is always so for a crawler
    /// without declared purposes, and for a redirect, which has no content to use. An
    /// override that allows the URL takes precedence over the statements of the response.
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
        let AnnotationDenials {
            denials,
            unread_cause,
        } = stated;
        let is_denied = preferences.disallows(&denials);
        // The part that was not read may contain a denial. HEAD has no content to read.
        let may_hide_denial = preferences.unknown == UnknownPreferences::Refuse
            && !is_denied
            && evidence.inquiry.method != "HEAD";
        let unread_cause = unread_cause.filter(|_| may_hide_denial);
        if !is_denied && unread_cause.is_none() || is_allowed_by_override(evidence) {
            return None;
        }
        let is_reported =
            preferences.enforce == PreferenceMode::Report || terms.mode == EnforcementMode::Report;
        Some(Self {
            denials,
            unread_cause,
            is_reported,
        })
    }

    /// Returns the word of the reason: `directive` if all denials come from directives,
    /// otherwise `preference`.
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

/// Reports whether an override allows the URL of a decision. Every reading of the URL
/// counts as disallowed here, so the allow must cover all of them.
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
