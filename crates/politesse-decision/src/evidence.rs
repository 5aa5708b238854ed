//! Evidence: everything that a decision was made from, and what it says.
//!
//! A decision record keeps it, so that the decision can be made again. Does not
//! know how it is stored.

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
    /// Snapshot of the origin; absent if it was not asked.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Reason why the origin may not be dialled (`egress`), or the name that belongs to
    /// other clients (`identity`), if that is why the origin was not asked.
    pub denial: Option<String>,
    /// Delay, if the request may be sent but not now.
    pub delay: Option<Delay>,
    /// Policy of the operator.
    pub policy: Arc<Policy>,
    /// Time of the decision, in whole microseconds, as exactly as it is stored.
    pub at: Timestamp,
    /// Result.
    pub ruling: Ruling,
}

impl Evidence {
    /// Reports whether the request may be sent: the ruling allows, or is only
    /// reported.
    pub fn lets_through(&self) -> bool {
        self.ruling.verdict == Verdict::Allow || self.is_reported()
    }

    /// Reports whether it disallows only because the robots.txt could not be
    /// fetched yet, which says nothing about the page.
    pub fn lacks_an_answer_for_now(&self) -> bool {
        let result = self.snapshot.as_deref().map(|snapshot| &snapshot.result);
        let was_busy = matches!(result, Some(AccessResult::Unreachable(Cause::Busy)));
        was_busy && self.ruling.reason == Reason::Unreachable
    }

    /// Returns the time for which its snapshot is still in force at `now`.
    pub fn holds_for(&self, now: Timestamp) -> Duration {
        let until = self.snapshot.as_ref().map(|snapshot| snapshot.expires_at);
        let left = until.and_then(|until| until.duration_since(now).try_into().ok());
        left.unwrap_or_default()
    }

    /// Reports whether the TDM file of the origin is to be asked for first: robots.txt
    /// allows the page, and the file could deny it.
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

    /// Reports whether it rests on an expired robots.txt that could not be
    /// fetched yet: what that allowed may be disallowed by now. An origin that
    /// does not answer is another matter (RFC 9309, section 2.4).
    pub fn is_out_of_date(&self) -> bool {
        let stale = self.snapshot.as_deref().and_then(|snapshot| snapshot.stale);
        let by_its_rules = matches!(
            self.ruling.reason,
            Reason::Rule | Reason::NoRule | Reason::NoGroup | Reason::Preference
        );
        // An override counts whatever the rules say, so it needs no new file.
        let was_not_asked = stale.is_some_and(|cause| !cause.was_asked());
        was_not_asked && by_its_rules && self.ruling.overriding.is_none()
    }

    /// Reports whether it disallows a request that is forwarded all the same,
    /// because the policy reports and does not enforce.
    ///
    /// Report mode sets aside what robots.txt and the operator say of a page.
    /// Where nothing may be dialled (`egress`), or no connection was made, there
    /// is no page to report about; and a name is not lent to other clients
    /// (`identity`). What is denied to the purposes of a crawler has a mode of its own.
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

    /// Returns the digest of all that tells one decision from another.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(self.canonical_bytes().as_bytes())
    }

    /// Encodes all that tells one decision from another
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
        // The line stands for its text: the digest of the file is part of this,
        // too.
        let line = ruling.rule.as_ref().and_then(|rule| rule.line);
        bytes.optional(line, |bytes, line| bytes.number(line.into()));
        bytes.optional(snapshot.map(|from| from.fetched_at), CanonicalBytes::time);
        let file = snapshot.and_then(Snapshot::file);
        bytes.optional(file.map(|file| file.digest), CanonicalBytes::digest);
        bytes.digest(self.policy.digest());
        bytes.time(self.at);
        // At the end, so that the digest of a decision without it is what it was.
        if let Some(tdm) = snapshot.and_then(|snapshot| snapshot.tdm.as_ref()) {
            bytes.text(tdm.json());
        }
        bytes
    }
}
