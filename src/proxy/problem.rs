//! Every way an exchange ends without the origin's response, and what the
//! crawler is told. The contract, section 3, has the statuses.

mod later;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use thiserror::Error;

use self::later::later;
use super::answer::{Close, ProblemDetails};
use crate::audit::AuditError;
use crate::decision::access::{AccessResult, Cause, NoConnection, Snapshot};
use crate::decision::decide::{Evidence, NoPermit, Reason, Refusal, Ruling};
use crate::decision::record::Effect;
use crate::upstream::client::UpstreamError;
use politesse_robots::origin::InvalidTarget;

/// A request that says nothing certain: it has no row in the audit.
#[derive(Debug, Error)]
pub enum MalformedRequest {
    /// The target names no URL.
    #[error("{0}")]
    Target(#[from] InvalidTarget),
    /// A request for a path, as to an origin server.
    #[error("this is a proxy: the request target must be an absolute URL")]
    NotAbsolute,
    /// CONNECT where none can stand, or with a body.
    #[error("CONNECT wants a host and a port, no body, and cannot stand inside another CONNECT")]
    Connect,
    /// No `Host`, two, or one that is none (RFC 9112, section 3.2).
    #[error("there must be one Host field, with a host")]
    Host,
    /// Two `User-Agent` fields. It is a single value (RFC 9110, section 5.3), and
    /// which of the two an origin goes by when it hands out its robots.txt cannot
    /// be told, so neither can what binds.
    #[error("there must not be two User-Agent fields")]
    UserAgent,
    /// A `User-Agent` whose names are not all looked at: the rules that bind it
    /// cannot be told.
    #[error(
        "the User-Agent names more crawlers than can be judged, or one by a name too long: \
         an entry under [[crawler]] of the proxy's configuration can say who it is"
    )]
    Names,
    /// `Max-Forwards` that is no number, or there twice, where it counts.
    #[error("Max-Forwards must be one number")]
    MaxForwards,
    /// TRACE with content, or with a transfer coding, which announces some. It
    /// would be sent back to whoever asked, and is never needed for that (RFC
    /// 9110, section 9.3.8).
    #[error("TRACE cannot have content")]
    TraceContent,
    /// A framing that readers disagree on.
    #[error("the request can be framed in two ways: {0}")]
    Framing(&'static str),
    /// `Expect` with anything but `100-continue` (RFC 9110, section 10.1.1).
    #[error("only 100-continue can be expected")]
    Expectation,
    /// Inside CONNECT, a request for somewhere else (RFC 9110, 15.5.20).
    #[error("this connection was opened for {opened_for}, not for {asked_for}")]
    Misdirected {
        /// The origin of the CONNECT.
        opened_for: String,
        /// What the request names.
        asked_for: String,
    },
}

/// A way for an exchange to end without the origin's response.
#[derive(Debug, Error)]
pub enum Problem {
    /// It cannot be read.
    #[error(transparent)]
    Malformed(#[from] MalformedRequest),
    /// It has come through this proxy already (RFC 9110, section 7.6.3).
    #[error("the request has come through {0} already")]
    Loop(String),
    /// Its client may not use this proxy any more (`proxy.clients`).
    #[error("your address may not use this proxy any more")]
    Client,
    /// `https.mode` is `refuse`.
    #[error("CONNECT is refused here: https.mode is \"refuse\"")]
    ConnectRefused,
    /// The log did not take the record, so nothing may go out.
    #[error("the audit log cannot be written")]
    Audit(#[from] AuditError),
    /// The decision refuses, or has no receipt.
    #[error(transparent)]
    NoPermit(#[from] NoPermit),
    /// The origin gave no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

impl Problem {
    /// The error type of RFC 9209, section 2.3, for metrics and records.
    pub fn error(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "http_request_error",
            Self::Loop(_) => "proxy_loop_detected",
            Self::Client | Self::ConnectRefused | Self::NoPermit(NoPermit::Later(_)) => {
                "http_request_denied"
            }
            Self::Audit(_) | Self::NoPermit(NoPermit::ForeignReceipt) => "proxy_internal_error",
            Self::NoPermit(NoPermit::Refused(refusal)) => refused_error(&refusal.evidence),
            Self::Upstream(error) => error.as_str(),
        }
    }

    /// What went wrong, for the record. A refusal by rule is no failure, nor is
    /// to put a request off.
    pub fn failure(&self) -> Option<&'static str> {
        let refused = matches!(
            self,
            Self::NoPermit(NoPermit::Refused(_) | NoPermit::Later(_))
        );
        Some(self.error()).filter(|error| !(refused && *error == "http_request_denied"))
    }

    /// What the crawler is told, at `now`; with the status `unreachable` of what
    /// is refused while robots.txt is.
    pub fn answer(&self, (now, unreachable): (Timestamp, StatusCode)) -> ProblemDetails {
        let answer = ProblemDetails {
            status: StatusCode::BAD_GATEWAY,
            error: self.error(),
            kind: "upstream",
            title: "No response from the origin",
            detail: outside(self),
            retry_after: None,
            close: Close::No,
            members: Map::new(),
        };
        match self {
            Self::Malformed(malformed) => ProblemDetails {
                status: malformed.status(),
                kind: "malformed",
                title: "The request cannot be read",
                close: Close::Yes,
                ..answer
            },
            Self::Loop(_) => ProblemDetails {
                kind: "loop",
                title: "The request runs in a circle",
                ..answer
            },
            Self::Client => ProblemDetails {
                status: StatusCode::FORBIDDEN,
                kind: "client",
                title: "Not for your address",
                close: Close::Yes,
                ..answer
            },
            Self::ConnectRefused => ProblemDetails {
                status: StatusCode::FORBIDDEN,
                kind: "connect",
                title: "CONNECT is refused",
                ..answer
            },
            Self::Audit(_) => ProblemDetails {
                status: StatusCode::SERVICE_UNAVAILABLE,
                kind: "audit",
                title: "Nothing goes out unrecorded",
                retry_after: Some(AUDIT_RETRY_SECONDS),
                ..answer
            },
            Self::NoPermit(NoPermit::ForeignReceipt) => ProblemDetails {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                kind: "internal",
                title: "An error of the proxy",
                ..answer
            },
            Self::NoPermit(NoPermit::Refused(refusal)) => ProblemDetails {
                status: refused_status(&refusal.evidence, unreachable),
                ..refused(refusal, now)
            },
            Self::NoPermit(NoPermit::Later(refusal)) => later(refusal),
            Self::Upstream(error) => ProblemDetails {
                status: upstream_status(error),
                ..answer
            },
        }
    }
}

/// A log that failed is tried again by whoever asks next; soon is soon enough.
const AUDIT_RETRY_SECONDS: u64 = 10;

impl MalformedRequest {
    fn status(&self) -> StatusCode {
        match self {
            Self::Misdirected { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Target(_)
            | Self::NotAbsolute
            | Self::Connect
            | Self::Host
            | Self::UserAgent
            | Self::Names
            | Self::MaxForwards
            | Self::TraceContent
            | Self::Framing(_) => StatusCode::BAD_REQUEST,
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

/// A sentence of the error and its causes.
fn outside(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    sentence(&text)
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

fn no_connection(evidence: &Evidence) -> Option<NoConnection> {
    evidence
        .snapshot
        .as_deref()
        .and_then(Snapshot::no_connection)
}

fn refused_error(evidence: &Evidence) -> &'static str {
    match (evidence.ruling.reason, no_connection(evidence)) {
        (Reason::Egress, _) => "destination_ip_prohibited",
        (_, Some(cause)) => cause.as_str(),
        _ => "http_request_denied",
    }
}

fn refused_status(evidence: &Evidence, unreachable: StatusCode) -> StatusCode {
    match (evidence.ruling.reason, no_connection(evidence)) {
        (Reason::Egress, _) => StatusCode::BAD_GATEWAY,
        (_, Some(cause)) if cause.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
        (_, Some(_)) => StatusCode::BAD_GATEWAY,
        (Reason::Unreachable, None) => unreachable,
        _ => StatusCode::FORBIDDEN,
    }
}

fn refused(refusal: &Refusal, now: Timestamp) -> ProblemDetails {
    let evidence = &refusal.evidence;
    let (kind, title) = match (evidence.ruling.reason, no_connection(evidence)) {
        (Reason::Egress, _) => ("egress", "The address may not be dialled"),
        (_, Some(_)) => ("upstream", "No connection to the origin"),
        (Reason::Unreachable, None) => ("refused", "Refused while robots.txt is unreachable"),
        (Reason::Override, None) => ("refused", "Refused by the operator"),
        (Reason::Undecided, None) => (
            "refused",
            "Refused, since its robots.txt takes too long to judge",
        ),
        _ => ("refused", "Refused by robots.txt"),
    };
    ProblemDetails {
        status: StatusCode::FORBIDDEN,
        error: refused_error(evidence),
        kind,
        title,
        detail: refused_detail(evidence) + &earlier_copy(evidence),
        retry_after: retry_after(evidence, now),
        close: Close::No,
        members: refused_members(refusal),
    }
}

/// For what is unreachable, when it is asked for again.
fn retry_after(evidence: &Evidence, now: Timestamp) -> Option<u64> {
    let snapshot = evidence.snapshot.as_deref()?;
    let AccessResult::Unreachable(_) = snapshot.result else {
        return None;
    };
    let seconds = snapshot.expires_at.duration_since(now).as_secs();
    Some(u64::try_from(seconds + 1).unwrap_or(1))
}

/// What report mode tells of a request that it forwards, for `Proxy-Status`.
pub fn would_be_refused(evidence: &Evidence) -> String {
    format!("would be refused: {}", refused_detail(evidence))
}

fn refused_detail(evidence: &Evidence) -> String {
    let ruling = &evidence.ruling;
    let url = evidence
        .snapshot
        .as_deref()
        .map(|snapshot| snapshot.url.as_str());
    let robots = url.unwrap_or("robots.txt");
    let origin = &evidence.inquiry.target.origin;
    let reading = ruling.reading.as_deref();
    match (ruling.reason, &ruling.rule, no_connection(evidence)) {
        (_, Some(rule), _) => format!(
            "Line {} of {robots}, \"{}\" in the group of {}, disallows {}.",
            rule.line,
            rule.text,
            ruling.group.join(", "),
            reading.map_or("this URL".to_owned(), |path| format!(
                "the path, which servers read as {path}"
            ))
        ),
        (Reason::Egress, ..) => format!(
            "{origin} may not be dialled: {}.",
            evidence
                .denial
                .as_deref()
                .unwrap_or("egress.deny denies it")
        ),
        (Reason::Override, ..) => format!(
            "The operator of this proxy denies {}: {}",
            reading.map_or("this URL".to_owned(), |path| format!(
                "the path, which servers read as {path}"
            )),
            stated(ruling),
        ),
        (_, _, Some(cause)) => format!("{origin} cannot be connected to: {cause}."),
        (Reason::Undecided, ..) => format!(
            "To try the rules of {robots} on this URL would take too long, and what is not \
             decided is not allowed."
        ),
        (Reason::Restricted, ..) => format!(
            "{robots} was answered with {}, which counts as a refusal here.",
            status_text(evidence)
        ),
        _ => format!(
            "{robots} could not be read ({}), and while it cannot, nothing is allowed.",
            unreachable_text(evidence)
        ),
    }
}

/// What is to be known where the rules are those of an earlier copy.
fn earlier_copy(evidence: &Evidence) -> String {
    let snapshot = evidence.snapshot.as_deref();
    match snapshot.and_then(|snapshot| Some((snapshot.stale?, snapshot))) {
        Some((cause, Snapshot { fetched_at, .. })) => format!(
            " robots.txt cannot be asked for now ({cause}), so its copy of {fetched_at:.0} counts."
        ),
        None => String::new(),
    }
}

/// The operator's reason, as the end of a sentence.
fn stated(ruling: &Ruling) -> String {
    let reason = ruling.overriding.as_ref().map(|entry| &*entry.reason);
    let reason = reason.unwrap_or("no reason is on record");
    let stop = if reason.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    format!("{reason}{stop}")
}

fn status_text(evidence: &Evidence) -> String {
    let status = evidence
        .snapshot
        .as_deref()
        .and_then(|snapshot| snapshot.status);
    status.map_or_else(|| "no status".to_owned(), |status| status.to_string())
}

fn unreachable_text(evidence: &Evidence) -> String {
    match evidence
        .snapshot
        .as_deref()
        .map(|snapshot| &snapshot.result)
    {
        Some(AccessResult::Unreachable(Cause::Status)) => {
            format!("status {}", status_text(evidence))
        }
        Some(AccessResult::Unreachable(Cause::Timeout)) => "no whole answer in time".to_owned(),
        Some(AccessResult::Unreachable(Cause::Redirects)) => "too many redirects".to_owned(),
        Some(AccessResult::Unreachable(Cause::RedirectTarget)) => {
            "a redirect that leads nowhere".to_owned()
        }
        Some(AccessResult::Unreachable(Cause::RedirectDisallowed)) => {
            "a redirect to a page that its own robots.txt disallows".to_owned()
        }
        Some(AccessResult::Unreachable(Cause::Names)) => {
            "it was not asked for: too many crawlers by name came from one address".to_owned()
        }
        Some(AccessResult::Unreachable(Cause::Busy)) => {
            "it was not asked for: too many others were waited for".to_owned()
        }
        Some(AccessResult::Unreachable(cause)) => cause.as_str().to_owned(),
        Some(AccessResult::Successful(_) | AccessResult::Unavailable) | None => {
            "no answer".to_owned()
        }
    }
}

fn refused_members(refusal: &Refusal) -> Map<String, Value> {
    let Evidence {
        inquiry,
        snapshot,
        ruling,
        ..
    } = &*refusal.evidence;
    let token = ruling.token.as_ref().or_else(|| inquiry.crawler.token());
    let mut members = Map::new();
    members.insert("url".into(), inquiry.target.to_string().into());
    members.insert("crawler".into(), token.map(ToString::to_string).into());
    members.insert("reason".into(), ruling.reason.as_str().into());
    members.insert("effect".into(), Effect::Enforced.as_str().into());
    members.insert("rule".into(), rule_member(ruling));
    members.insert(
        "robots".into(),
        snapshot.as_deref().map_or(Value::Null, robots_member),
    );
    members.insert("decision".into(), refusal.seq.to_string().into());
    members
}

fn rule_member(ruling: &Ruling) -> Value {
    ruling.rule.as_ref().map_or(
        Value::Null,
        |rule| json!({"line": rule.line, "text": rule.text, "group": ruling.group}),
    )
}

fn robots_member(snapshot: &Snapshot) -> Value {
    let mut members = json!({
        "url": snapshot.url,
        "status": snapshot.status,
        "fetched_at": snapshot.fetched_at.to_string(),
        "sha256": snapshot.file().map(|copy| copy.digest.to_string()),
    });
    if !snapshot.hops.is_empty() {
        members["hops"] = json!(snapshot.hops);
    }
    members
}
