//! Problems: the ways in which an exchange ends without the origin's response, each with
//! its status and error type.
//!
//! RFC 9209, section 2.3; `docs/answers.md` lists the statuses. `refusal` builds the
//! answers that follow from a decision.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Map;
use thiserror::Error;

use super::credentials::CredentialError;
use super::problem_details::{ProblemDetails, sentence};
use super::refusal::{DENIED, delayed, refused, refused_error};
use super::withheld::WithheldResponse;
use politesse_base::clients::shares::ShareRefusal;
use politesse_decision::decide::NoPermit;
use politesse_decision::label::InvalidLabel;
use politesse_decision::withholding::Withholding;
use politesse_net::client::UpstreamError;
use politesse_record::AuditError;
use politesse_robots::origin::{Host, InvalidTarget};

/// Reason why a request cannot be read unambiguously. Such a request has no row in the
/// audit record.
#[derive(Debug, Error)]
pub enum MalformedRequest {
    /// The target is not a valid URL.
    #[error("{0}")]
    Target(#[from] InvalidTarget),
    /// The target is a path, as in a request to an origin server.
    #[error("this is a proxy: the request target must be an absolute URL")]
    NotAbsolute,
    /// A CONNECT is inside another CONNECT, or has a body.
    #[error("CONNECT wants a host and a port, no body, and cannot stand inside another CONNECT")]
    Connect,
    /// `Host` is missing, repeated, or not a valid host (RFC 9112, section 3.2).
    #[error("there must be one Host field, with a host")]
    Host,
    /// `User-Agent` occurs twice. It has a single value (RFC 9110, section 5.3), and it
    /// is unknown which of the two an origin would use to choose the robots.txt that it
    /// sends.
    #[error("there must not be two User-Agent fields")]
    UserAgent,
    /// `User-Agent` names more crawlers than are considered, so the rules for one of them
    /// could be missed.
    #[error(
        "the User-Agent names more crawlers than can be judged, or one by a name too long: \
         an entry under [[crawler]] of the proxy's configuration can say who it is"
    )]
    Names,
    /// `Max-Forwards` is not a single number, on a method for which it applies.
    #[error("Max-Forwards must be one number")]
    MaxForwards,
    /// `Politesse-Crawl` occurs twice or is not a valid label.
    #[error("there must not be two Politesse-Crawl fields, and {0}")]
    Label(#[from] InvalidLabel),
    /// TRACE has content, or a transfer coding, which announces content (RFC 9110,
    /// section 9.3.8).
    #[error("TRACE cannot have content")]
    TraceContent,
    /// Two parsers could frame the message differently.
    #[error("the request can be framed in two ways: {0}")]
    Framing(&'static str),
    /// Part of the head arrived, but the rest did not arrive in time (RFC 9110, section
    /// 15.5.9).
    #[error("the head of the request was not whole within proxy.header_timeout")]
    HeadTimeout,
    /// `Expect` has a value other than `100-continue` (RFC 9110, section 10.1.1).
    #[error("only 100-continue can be expected")]
    Expectation,
    /// The request names the proxy itself but not one of its pages
    /// (`proxy.internal_name`).
    #[error(
        "{0} is this proxy, which answers GET and HEAD of http://{0}/ with its pages for clients, \
         and nothing else under that name"
    )]
    OwnName(Host),
    /// A request inside a CONNECT names another origin (RFC 9110, section
    /// 15.5.20).
    #[error("this connection was opened for {opened_for}, not for {asked_for}")]
    Misdirected {
        /// Origin of the CONNECT.
        opened_for: String,
        /// Origin that the request names.
        asked_for: String,
    },
}

impl MalformedRequest {
    fn status(&self) -> StatusCode {
        if matches!(self, Self::Misdirected { .. } | Self::OwnName(_)) {
            StatusCode::MISDIRECTED_REQUEST
        } else if matches!(self, Self::Expectation) {
            StatusCode::EXPECTATION_FAILED
        } else if matches!(self, Self::HeadTimeout) {
            StatusCode::REQUEST_TIMEOUT
        } else {
            StatusCode::BAD_REQUEST
        }
    }
}

/// Reason why an exchange ends without the origin's response.
#[derive(Debug, Error)]
pub enum Problem {
    /// The request cannot be read.
    #[error(transparent)]
    Malformed(#[from] MalformedRequest),
    /// The request has already passed through the proxy of this name (RFC 9110, section
    /// 7.6.3).
    #[error("the request has come through {0} already")]
    Loop(String),
    /// The client was removed from `proxy.clients` after it had connected.
    #[error("your address may not use this proxy any more")]
    Client,
    /// The client did not prove that it may use the proxy or the name.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// `https.mode` is `refuse`.
    #[error("CONNECT is refused here: https.mode is \"refuse\"")]
    ConnectRefused,
    /// All shares are in use, and the client already holds its part of them.
    #[error("this proxy is at its limit {key}: {refusal}")]
    Overload {
        /// Configuration key of the limit.
        key: &'static str,
        /// Reason why the client gets no share.
        refusal: ShareRefusal,
    },
    /// The decision could not be recorded, so the request is not sent.
    #[error("the audit log cannot be written")]
    Audit(#[from] AuditError),
    /// The decision does not permit sending the request.
    #[error(transparent)]
    NoPermit(#[from] NoPermit),
    /// The response denies the purposes of the crawler.
    #[error("withheld: {}", .0.withholding.reason())]
    Withheld(Box<WithheldResponse>),
    /// The origin sent no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// `Retry-After` in seconds after a failure of the audit log. The next request tries to
/// write it again.
const AUDIT_RETRY_SECONDS: u64 = 10;
/// `Retry-After` in seconds if a limit is reached.
const OVERLOAD_RETRY_SECONDS: u64 = 5;

impl Problem {
    /// Returns the error type of RFC 9209, section 2.3, for metrics and `Proxy-Status`.
    pub fn error(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "http_request_error",
            Self::Loop(_) => "proxy_loop_detected",
            Self::Client
            | Self::Credential(_)
            | Self::ConnectRefused
            | Self::Overload { .. }
            | Self::Withheld(_)
            | Self::NoPermit(NoPermit::Later(_)) => DENIED,
            Self::Audit(_) | Self::NoPermit(NoPermit::ForeignReceipt { .. }) => {
                "proxy_internal_error"
            }
            Self::NoPermit(NoPermit::Refused(refusal)) => refused_error(&refusal.evidence),
            Self::Upstream(error) => error.as_str(),
        }
    }

    /// Returns the error type for the record; `None` if the decision refused or delayed
    /// the request, because that is not a failure.
    pub fn failure(&self) -> Option<&'static str> {
        if matches!(self, Self::Withheld(_)) {
            return Some(Withholding::ERROR);
        }
        let is_by_decision = matches!(
            self,
            Self::NoPermit(NoPermit::Refused(_) | NoPermit::Later(_))
        );
        Some(self.error()).filter(|error| !(is_by_decision && *error == DENIED))
    }

    /// Returns `Retry-After` in seconds for problems that do not follow from a decision.
    fn retry_after(&self) -> Option<u64> {
        let of_overload = matches!(self, Self::Overload { .. }).then_some(OVERLOAD_RETRY_SECONDS);
        let of_audit = matches!(self, Self::Audit(_)).then_some(AUDIT_RETRY_SECONDS);
        of_overload.or(of_audit)
    }

    /// Returns the details of the answer. `unreachable` is the status of refusals because
    /// robots.txt is unreachable (`robots.unreachable_answer`).
    pub fn details(&self, now: Timestamp, unreachable: StatusCode) -> ProblemDetails {
        let (status, kind, title) = match self {
            Self::Malformed(malformed) => (
                malformed.status(),
                "malformed",
                "The request cannot be read",
            ),
            Self::Loop(_) => (
                StatusCode::BAD_GATEWAY,
                "loop",
                "The request runs in a circle",
            ),
            Self::Client => (StatusCode::FORBIDDEN, "client", "Not for your address"),
            Self::Credential(_) => (
                StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                "credential",
                "A credential is wanted",
            ),
            Self::ConnectRefused => (StatusCode::FORBIDDEN, "connect", "CONNECT is refused"),
            Self::Overload { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "overload",
                "The proxy has too much to do",
            ),
            Self::Audit(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "audit",
                "Nothing goes out unrecorded",
            ),
            Self::NoPermit(NoPermit::ForeignReceipt { .. }) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "An error of the proxy",
            ),
            Self::NoPermit(NoPermit::Refused(refusal)) => {
                return refused(refusal, now, unreachable);
            }
            Self::NoPermit(NoPermit::Later(refusal)) => return delayed(refusal),
            Self::Withheld(withheld) => return withheld.problem_details(),
            Self::Upstream(error) => (
                upstream_status(error),
                "upstream",
                "No response from the origin",
            ),
        };
        ProblemDetails {
            status,
            error: self.error(),
            kind,
            title,
            detail: with_causes(self),
            retry_after: self.retry_after(),
            // Kept open otherwise: for example, the next request may have a credential.
            close: matches!(
                self,
                Self::Malformed(_) | Self::Client | Self::ConnectRefused
            ),
            members: Map::new(),
            evidence: None,
        }
    }
}

fn upstream_status(error: &UpstreamError) -> StatusCode {
    if error.is_timeout() {
        StatusCode::GATEWAY_TIMEOUT
    } else if matches!(error, UpstreamError::RequestBody | UpstreamError::Target) {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::BAD_GATEWAY
    }
}

/// Joins the error and its causes into one sentence.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        // A transparent error has the same text as its cause.
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    sentence(&text)
}
