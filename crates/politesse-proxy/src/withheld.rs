//! Withheld responses: the 403 that a crawler gets in place of a response that the proxy
//! has fetched, because the response denies the purposes of the crawler.
//!
//! A response denies a purpose by a statement about its own use, in its header fields or
//! in `<meta>`. Does not know which statements do; `politesse_decision::withholding` does.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::problem_details::ProblemDetails;
use super::refusal::{DENIED, members};
use politesse_decision::decide::{Evidence, Refusal};
use politesse_decision::record::StoredDenial;
use politesse_decision::withholding::Withholding;
use politesse_directives::denials::PurposeDenial;

/// Response that is withheld from the crawler that requested it.
#[derive(Debug)]
pub struct WithheldResponse {
    /// Sequence number of the decision to fetch it.
    pub seq: u64,
    /// Evidence of that decision.
    pub evidence: Arc<Evidence>,
    /// Status of the response that is withheld.
    pub status: StatusCode,
    /// Reason to withhold it.
    pub withholding: Withholding,
}

impl WithheldResponse {
    /// Returns the 403 that replaces the response. It contains the origin's status and the
    /// statements that deny the purposes.
    pub(super) fn problem_details(&self) -> ProblemDetails {
        let mut members = members(&Refusal {
            seq: self.seq,
            evidence: Arc::clone(&self.evidence),
        });
        let denials = self.withholding.denials.iter().map(StoredDenial::from);
        // The rule of robots.txt, if any, allowed the request, so it is not a reason for
        // the 403.
        members.remove("rule");
        for (name, value) in [
            ("reason", json!(self.withholding.reason())),
            ("origin_status", json!(self.status.as_u16())),
            ("denials", json!(denials.collect::<Vec<_>>())),
        ] {
            members.insert(name.to_owned(), value);
        }
        ProblemDetails {
            status: StatusCode::FORBIDDEN,
            error: DENIED,
            kind: "withheld",
            title: "Withheld for the purpose of the crawler",
            detail: format!(
                "The origin answered with {}, and {}. Nothing of it is passed on.",
                self.status.as_u16(),
                reason_text(&self.withholding),
            ),
            retry_after: None,
            close: false,
            members,
            evidence: Some(Arc::clone(&self.evidence)),
        }
    }
}

/// Returns the value of the `details` parameter of `Proxy-Status` (RFC 9209, section
/// 2.1.5) for a response that the crawler gets, but that would be withheld if preferences
/// were enforced.
pub(super) fn would_be_withheld(withholding: &Withholding) -> String {
    format!("would be withheld: {}", reason_text(withholding))
}

/// Returns the reason to withhold a response, as a clause for people.
fn reason_text(withholding: &Withholding) -> String {
    match &withholding.unread_cause {
        Some(cause) => format!(
            "what it states about its use could not be read whole ({cause}), which counts as a \
             denial here (preferences.unknown)"
        ),
        None => {
            let denials = withholding.denials.iter().map(PurposeDenial::to_string);
            let listed = denials.collect::<Vec<_>>().join("; ");
            format!("the site denies what this crawler fetches it for: {listed}")
        }
    }
}
