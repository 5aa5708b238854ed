//! Answers to requests whose response is withheld: it was fetched, but its statements
//! about its own use deny the purposes of the crawler.
//!
//! Does not know what denies a purpose; `politesse_decision::withholding` does.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::problem_details::ProblemDetails;
use super::refusal::{DENIED, members};
use politesse_decision::decide::{Evidence, Refusal};
use politesse_decision::record::StoredDenial;
use politesse_decision::withholding::Withholding;
use politesse_directives::denials::PurposeDenial;

/// Response that is withheld from its client.
#[derive(Debug)]
pub struct WithheldResponse {
    /// Sequence number of the decision to fetch it.
    pub seq: u64,
    /// Evidence of that decision.
    pub evidence: Arc<Evidence>,
    /// Status of the response.
    pub status: StatusCode,
    /// Reason to withhold it.
    pub withholding: Withholding,
}

impl WithheldResponse {
    /// Returns the answer that replaces the response. It contains the origin's status and
    /// the statements that deny the purposes.
    pub(super) fn details(&self) -> ProblemDetails {
        let mut members = members(&Refusal {
            seq: self.seq,
            evidence: Arc::clone(&self.evidence),
        });
        let denials = self.withholding.denials.iter().map(StoredDenial::from);
        // The rule of robots.txt allowed the request, so it is not a reason.
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
                stated_text(&self.withholding),
            ),
            retry_after: None,
            close: false,
            members,
            evidence: Some(Arc::clone(&self.evidence)),
        }
    }
}

/// Returns the `details` of `Proxy-Status` for a response that would be withheld if
/// preferences were enforced.
pub(super) fn would_be_withheld(withholding: &Withholding) -> String {
    format!("would be withheld: {}", stated_text(withholding))
}

fn stated_text(withholding: &Withholding) -> String {
    match &withholding.unread {
        Some(why) => format!(
            "what it states about its use could not be read whole ({why}), which counts as a \
             denial here (preferences.unknown)"
        ),
        None => {
            let denials = withholding.denials.iter().map(PurposeDenial::to_string);
            let listed = denials.collect::<Vec<_>>().join("; ");
            format!("the site denies what this crawler fetches it for: {listed}")
        }
    }
}
