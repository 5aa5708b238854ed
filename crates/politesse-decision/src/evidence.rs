//! Evidence: the complete input of a decision, and its result.
//!
//! A decision record contains the evidence, so that the decision can be repeated. Does
//! not know how evidence is stored.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::access::Cause;
use super::delay::Delay;
use super::digest::{CanonicalBytes, Digest};
use super::inquiry::Inquiry;
use super::policy::{EnforcementMode, Policy};
use super::preferences::PreferenceMode;
use super::ruling::{Reason, Ruling, Verdict};
use super::snapshot::{AccessResult, Snapshot};

/// Input and result of a decision.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Inquiry that was decided.
    pub inquiry: Arc<Inquiry>,
    /// Snapshot of the origin; absent if the decision did not need robots.txt.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Detail of a decision without a snapshot: why `egress` prohibits the connection, or
    /// the name that is reserved for other clients (`identity`).
    pub denial: Option<String>,
    /// Delay, if the request may be sent but not yet.
    pub delay: Option<Delay>,
    /// Policy of the operator.
    pub policy: Arc<Policy>,
    /// Time of the decision in whole microseconds, the precision of the store.
    pub at: Timestamp,
    /// Result of the decision.
    pub ruling: Ruling,
}

impl Evidence {
    /// Reports whether the request may be sent: the ruling allows it, or the refusal is
    /// only reported.
    pub fn lets_through(&self) -> bool {
        self.ruling.verdict == Verdict::Allow || self.is_reported()
    }

    /// Reports whether the decision disallows only because robots.txt could not be
    /// fetched yet, which says nothing about the page.
    pub fn lacks_an_answer_for_now(&self) -> bool {
        let result = self.snapshot.as_deref().map(|snapshot| &snapshot.result);
        let was_busy = matches!(result, Some(AccessResult::Unreachable(Cause::Busy)));
        was_busy && self.ruling.reason == Reason::Unreachable
    }

    /// Returns the time from `now` until the snapshot expires; zero without a snapshot.
    pub fn holds_for(&self, now: Timestamp) -> Duration {
        let until = self.snapshot.as_ref().map(|snapshot| snapshot.expires_at);
        let left = until.and_then(|until| until.duration_since(now).try_into().ok());
        left.unwrap_or_default()
    }

    /// Reports whether the TDM file of the origin must be fetched first: robots.txt allows
    /// the page, and the TDM file could deny it.
    pub fn lacks_tdm_file(&self) -> bool {
        let Some(snapshot) = &self.snapshot else {
            return false;
        };
        let ruling = &self.ruling;
        let is_open = ruling.verdict == Verdict::Allow
            && ruling.reason != Reason::RobotsTxt
            && ruling.overriding.is_none();
        let terms = self.policy.terms().preferences;
        is_open
            && snapshot.tdm.is_none()
            && terms.is_some_and(|terms| terms.want_tdm_file(&self.inquiry.target))
    }

    /// Reports whether the decision rests on an expired robots.txt that could not be
    /// refetched because the origin was not asked. A page that it allowed may be
    /// disallowed by now. If the origin was asked and did not answer, the expired file
    /// stays in use (RFC 9309, section 2.4).
    pub fn is_out_of_date(&self) -> bool {
        let stale = self.snapshot.as_deref().and_then(|snapshot| snapshot.stale);
        let by_its_rules = matches!(
            self.ruling.reason,
            Reason::Rule | Reason::NoRule | Reason::NoGroup | Reason::Preference
        );
        // An override applies regardless of the rules, so it needs no new file.
        let was_not_asked = stale.is_some_and(|cause| !cause.was_asked());
        was_not_asked && by_its_rules && self.ruling.overriding.is_none()
    }

    /// Reports whether the decision disallows a request that is forwarded anyway, because
    /// the policy only reports.
    ///
    /// Report mode sets aside refusals of a page by robots.txt and by the operator. It
    /// does not apply if `egress` prohibits the connection or none could be made, since
    /// there is no page to fetch. It also does not apply to `identity`: a reserved name
    /// stays reserved. Refusals for the purposes of a crawler can also be reported by
    /// `preferences.enforce` alone.
    pub fn is_reported(&self) -> bool {
        let can_be_had = match (self.ruling.reason, self.snapshot.as_deref()) {
            (Reason::Egress | Reason::Identity, _) | (_, None) => false,
            (_, Some(snapshot)) => snapshot.no_connection().is_none(),
        };
        let terms = self.policy.terms();
        let preferences = terms.preferences.map(|preferences| preferences.enforce);
        let reports_denials = preferences == Some(PreferenceMode::Report);
        let reports = terms.mode == EnforcementMode::Report
            || self.ruling.reason == Reason::Preference && reports_denials;
        reports && can_be_had && self.ruling.verdict == Verdict::Disallow
    }

    /// Returns the digest of all values that distinguish one decision from another.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(self.canonical_bytes().as_bytes())
    }

    /// Encodes all values that distinguish one decision from another
    /// (docs/decisions/021-decision-digest.md).
    fn canonical_bytes(&self) -> CanonicalBytes {
        let (inquiry, ruling) = (&self.inquiry, &self.ruling);
        let snapshot = self.snapshot.as_deref();
        let mut bytes = CanonicalBytes::new();
        bytes.text(&inquiry.method);
        bytes.text(&inquiry.target);
        bytes.optional(inquiry.crawler.token(), CanonicalBytes::text);
        bytes.text(ruling.verdict.as_str());
        bytes.text(ruling.reason.as_str());
        // The line number is enough: together with the digest of the file, it
        // determines the text.
        let line = ruling.rule.as_ref().and_then(|rule| rule.line);
        bytes.optional(line, |bytes, line| bytes.number(line.into()));
        bytes.optional(snapshot.map(|from| from.fetched_at), CanonicalBytes::time);
        let file = snapshot.and_then(Snapshot::file);
        bytes.optional(file.map(|file| file.digest), CanonicalBytes::digest);
        bytes.digest(self.policy.digest());
        bytes.time(self.at);
        // Appended only if present, so that the digests of earlier decisions do not
        // change.
        if let Some(tdm) = snapshot.and_then(|snapshot| snapshot.tdm.as_ref()) {
            bytes.text(tdm.json());
        }
        bytes
    }
}
