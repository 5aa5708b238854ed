//! Answers to requests that a decision refuses or delays, built from the evidence of that
//! decision.
//!
//! RFC 9110, sections 10.2.3, 15.5.4 and 15.6; RFC 6585, section 4. An origin's own 429
//! is forwarded unchanged, so clients recognise the proxy's 429 by its `Proxy-Status`.
//! Does not know the media type in which an answer is sent.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::problem_details::{ProblemDetails, sentence};
use politesse_decision::access::{Cause, NoConnection};
use politesse_decision::decide::{Evidence, Reason, Refusal, RuleCited, Ruling};
use politesse_decision::record::Effect;
use politesse_decision::snapshot::{AccessResult, Snapshot};
use politesse_directives::denials::PurposeDenial;

/// Error type of requests that are refused although the origin could be reached (RFC
/// 9209, section 2.3.9).
pub(super) const DENIED: &str = "http_request_denied";

/// Returns the error type of a refusal (RFC 9209, section 2.3).
pub(super) fn refused_error(evidence: &Evidence) -> &'static str {
    match (evidence.ruling.reason, no_connection(evidence)) {
        (Reason::Egress, _) => "destination_ip_prohibited",
        (_, Some(cause)) => cause.as_str(),
        _ => DENIED,
    }
}

/// Returns the answer to a refused request. `unreachable` is the status of refusals
/// because robots.txt is unreachable (`robots.unreachable_answer`).
pub(super) fn refused(
    refusal: &Refusal,
    now: Timestamp,
    unreachable: StatusCode,
) -> ProblemDetails {
    let evidence = &refusal.evidence;
    let reason = evidence.ruling.reason;
    let (status, kind, title) = match (reason, no_connection(evidence)) {
        (Reason::Egress, _) => (StatusCode::BAD_GATEWAY, "egress", reason.title()),
        (_, Some(cause)) => {
            let status = if cause.is_timeout() {
                StatusCode::GATEWAY_TIMEOUT
            } else {
                StatusCode::BAD_GATEWAY
            };
            (status, "upstream", "No connection to the origin")
        }
        (Reason::Unreachable, None) => (unreachable, "refused", reason.title()),
        _ => (StatusCode::FORBIDDEN, "refused", reason.title()),
    };
    ProblemDetails {
        status,
        error: refused_error(evidence),
        kind,
        title,
        detail: refused_detail(evidence) + &earlier_copy(evidence),
        retry_after: retry_after(evidence, now),
        close: false,
        members: members(refusal),
        evidence: Some(Arc::clone(evidence)),
    }
}

/// Returns the answer to a delayed request: 429, or 503 if the proxy itself is
/// overloaded.
pub(super) fn delayed(refusal: &Refusal) -> ProblemDetails {
    let evidence = &*refusal.evidence;
    let delay = evidence.delay.as_ref();
    let seconds = delay.map_or(1, |delay| whole_seconds(delay.retry_after()));
    let reason = evidence.ruling.reason;
    let title = reason.title();
    let stated = delay.map(|delay| delay.detail.trim_end_matches('.'));
    let mut members = members(refusal);
    members.insert("retry_after".to_owned(), seconds.into());
    ProblemDetails {
        status: if reason == Reason::Overload {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::TOO_MANY_REQUESTS
        },
        error: DENIED,
        kind: "later",
        title,
        detail: sentence(stated.filter(|stated| !stated.is_empty()).unwrap_or(title)),
        retry_after: Some(seconds),
        close: false,
        members,
        evidence: Some(Arc::clone(&refusal.evidence)),
    }
}

/// Rounds up to whole seconds, at least 1: `Retry-After` has no fractions, and a client
/// that retries too early is delayed again.
fn whole_seconds(wait: Duration) -> u64 {
    let part = u64::from(0 < wait.subsec_nanos());
    wait.as_secs().saturating_add(part).max(1)
}

/// Returns the value of the `details` parameter of `Proxy-Status` (RFC 9209, section
/// 2.1.5) for a response that is forwarded only because of report mode.
pub(super) fn would_be_refused(evidence: &Evidence) -> String {
    format!("would be refused: {}", refused_detail(evidence))
}

/// Returns why the origin cannot be connected to, if robots.txt is unreachable for that
/// reason.
fn no_connection(evidence: &Evidence) -> Option<NoConnection> {
    let snapshot = evidence.snapshot.as_deref();
    snapshot.and_then(Snapshot::no_connection)
}

/// Returns the seconds until an unreachable robots.txt is requested again.
fn retry_after(evidence: &Evidence, now: Timestamp) -> Option<u64> {
    let snapshot = evidence.snapshot.as_deref()?;
    let AccessResult::Unreachable(_) = snapshot.result else {
        return None;
    };
    let seconds = snapshot.expires_at.duration_since(now).as_secs();
    Some(u64::try_from(seconds + 1).unwrap_or(1))
}

/// Explains a refusal in one sentence.
fn refused_detail(evidence: &Evidence) -> String {
    let ruling = &evidence.ruling;
    let snapshot = evidence.snapshot.as_deref();
    let robots = snapshot.map_or("robots.txt", |snapshot| &snapshot.url);
    let origin = &evidence.inquiry.target.origin;
    let url = || match &ruling.reading {
        Some(path) => format!("the path, which servers take for {path}"),
        None => "this URL".to_owned(),
    };
    match (ruling.reason, &ruling.rule, no_connection(evidence)) {
        (Reason::Preference, ..) => format!(
            "{robots} allows {}, but its site denies what this crawler fetches it for: {}.",
            url(),
            denials_text(ruling),
        ),
        (
            _,
            Some(RuleCited {
                line: Some(line),
                text,
            }),
            _,
        ) => format!(
            "Line {line} of {robots}, \"{text}\" in the group of {}, disallows {}.",
            ruling.group.join(", "),
            url(),
        ),
        (Reason::Egress, ..) => {
            let known = evidence.denial.as_deref();
            let denial = known.unwrap_or("egress.deny denies it");
            format!("{origin} may not be dialled: {denial}.")
        }
        (Reason::Identity, ..) => {
            let name = evidence.denial.as_deref().unwrap_or("the name");
            format!(
                "{name} belongs to other clients: an entry of crawler in the configuration of \
                 this proxy pins it to their addresses, and to their User-Agent if it has one."
            )
        }
        (Reason::Override, ..) => format!(
            "The operator of this proxy denies {}: {}",
            url(),
            override_reason(ruling),
        ),
        (_, _, Some(cause)) => format!("{origin} cannot be connected to: {cause}."),
        (Reason::Undecided, ..) => format!(
            "To try the rules of {robots} on this URL would take too long, and what is not \
             decided is not allowed."
        ),
        (Reason::Restricted, ..) => format!(
            "{robots} was answered with {}, which counts as a refusal here.",
            status_text(snapshot)
        ),
        _ => format!(
            "{robots} could not be read ({}), and while it cannot, nothing is allowed.",
            unreachable_text(snapshot)
        ),
    }
}

/// Lists the denied purposes, each with the statement that denies it.
fn denials_text(ruling: &Ruling) -> String {
    let denials = ruling.denials.iter().map(PurposeDenial::to_string);
    denials.collect::<Vec<_>>().join("; ")
}

/// Returns an additional sentence if the rules come from a stale copy.
fn earlier_copy(evidence: &Evidence) -> String {
    let snapshot = evidence.snapshot.as_deref();
    match snapshot.and_then(|snapshot| Some((snapshot.stale?, snapshot.fetched_at))) {
        Some((cause, fetched_at)) => format!(
            " robots.txt cannot be asked for now ({cause}), so its copy of {fetched_at:.0} counts."
        ),
        None => String::new(),
    }
}

/// Returns the operator's reason for an override, worded as the end of a sentence.
fn override_reason(ruling: &Ruling) -> String {
    let overriding = ruling.overriding.as_ref();
    let reason = overriding.map_or("no reason is on record", |entry| &entry.reason);
    let is_sentence = reason.ends_with(['.', '!', '?']);
    format!("{reason}{}", if is_sentence { "" } else { "." })
}

fn status_text(snapshot: Option<&Snapshot>) -> String {
    let status = snapshot.and_then(|snapshot| snapshot.status);
    status.map_or_else(|| "no status".to_owned(), |status| status.to_string())
}

/// Returns the cause of an unreachable robots.txt, for the parentheses in a sentence.
fn unreachable_text(snapshot: Option<&Snapshot>) -> Cow<'static, str> {
    let text = match snapshot.map(|snapshot| &snapshot.result) {
        Some(AccessResult::Unreachable(Cause::Status)) => {
            return format!("status {}", status_text(snapshot)).into();
        }
        Some(AccessResult::Unreachable(Cause::Timeout)) => "no whole answer in time",
        Some(AccessResult::Unreachable(Cause::Redirects)) => "too many redirects",
        Some(AccessResult::Unreachable(Cause::RedirectTarget)) => "a redirect that leads nowhere",
        Some(AccessResult::Unreachable(Cause::RedirectDisallowed)) => {
            "a redirect to a page that its own robots.txt disallows"
        }
        Some(AccessResult::Unreachable(Cause::Names)) => {
            "it was not asked for: too many crawlers by name came from one address"
        }
        Some(AccessResult::Unreachable(Cause::Busy)) => {
            "it was not asked for: too many others were waited for"
        }
        Some(AccessResult::Unreachable(Cause::NotText)) => "its body is no text",
        Some(AccessResult::Unreachable(Cause::Challenge)) => "a bot challenge in place of it",
        Some(AccessResult::Unreachable(cause)) => cause.as_str(),
        Some(AccessResult::Successful(_) | AccessResult::Unavailable) | None => "no answer",
    };
    text.into()
}

/// Returns the members of an answer that describe the request and its decision.
pub(super) fn members(refusal: &Refusal) -> Map<String, Value> {
    let Evidence {
        inquiry,
        snapshot,
        ruling,
        ..
    } = &*refusal.evidence;
    let token = ruling.token.as_ref().or_else(|| inquiry.crawler.token());
    let rule = ruling
        .rule
        .as_ref()
        .map(|rule| json!({"line": rule.line, "text": rule.text, "group": ruling.group}));
    let members = [
        ("url", inquiry.target.to_string().into()),
        ("crawler", token.map(ToString::to_string).into()),
        ("reason", ruling.reason.as_str().into()),
        ("effect", Effect::Enforced.as_str().into()),
        ("rule", rule.into()),
        ("robots", snapshot.as_deref().map(robots_member).into()),
        ("decision", refusal.seq.to_string().into()),
    ];
    Map::from_iter(members.map(|(name, value)| (name.to_owned(), value)))
}

/// Describes the robots.txt of a decision.
fn robots_member(snapshot: &Snapshot) -> Value {
    let mut members = json!({
        "url": snapshot.url,
        "status": snapshot.status,
        "fetched_at": snapshot.fetched_at.to_string(),
        "sha256": snapshot.file().map(|file| file.digest.to_string()),
    });
    if !snapshot.hops.is_empty() {
        members["hops"] = json!(snapshot.hops);
    }
    members
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::{ACCEPT, RETRY_AFTER};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::answer::{AnswerForm, ProxyIdentity};
    use crate::body::ProxyBody;
    use crate::problem::Problem;
    use politesse_decision::decide::{Decision, Inquiry, NoPermit, Policy, Unauthorized, decide};
    use politesse_decision::delay::{Delay, DelayEnd};
    use politesse_decision::preferences::{PreferenceMode, PreferenceTerms, UnknownPreferences};
    use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
    use politesse_directives::PurposeSet;
    use politesse_directives::denials::DenialRule;
    use politesse_robots::crawler::Crawler;

    fn decision() -> Decision {
        decision_by(
            "User-agent: *\nAllow: /a\nCrawl-delay: 10\n",
            Policy::new(Unauthorized::Allow),
        )
    }

    fn decision_by(robots: &'static str, policy: Policy) -> Decision {
        let inquiry = Arc::new(Inquiry {
            crawler: Crawler::parse("FooBot/1"),
            target: "http://h.test/a".parse().unwrap(),
            method: "GET".to_owned(),
        });
        let copy = RobotsFile::new(robots.into());
        let snapshot = Arc::new(Snapshot {
            key: CacheKey::new(inquiry.target.origin.clone(), None),
            url: "http://h.test/robots.txt".to_owned(),
            hops: Vec::new(),
            status: Some(200),
            fetched_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::UNIX_EPOCH,
            result: AccessResult::Successful(Arc::new(copy)),
            stale: None,
            tdm: None,
        });
        decide(
            &inquiry,
            &snapshot,
            &Arc::new(policy),
            Timestamp::UNIX_EPOCH,
        )
    }

    fn problem(reason: Reason, retry_after: Duration) -> Problem {
        let delay = Delay::of_host(reason, DelayEnd::After(retry_after));
        let detail = "the site asks for 10 s between requests, and 14 wait";
        let decision = decision().later(delay.explained(detail));
        let evidence = Arc::clone(decision.evidence());
        NoPermit::Later(Refusal { seq: 7, evidence }).into()
    }

    fn answer(problem: &Problem) -> ProblemDetails {
        problem.details(Timestamp::UNIX_EPOCH, StatusCode::FORBIDDEN)
    }

    // RFC 6585, section 4: 429, or 503 if the proxy itself is overloaded.
    #[test]
    fn the_status_tells_a_site_limit_from_overload() {
        for reason in Reason::OF_PACE {
            let problem = problem(reason, Duration::from_secs(1));
            let status = if reason == Reason::Overload { 503 } else { 429 };
            let answer = answer(&problem);
            assert_eq!(answer.status.as_u16(), status, "{reason}");
            assert_eq!(answer.members["reason"], reason.as_str());
            assert_eq!(problem.error(), "http_request_denied");
            assert_eq!(problem.failure(), None);
        }
    }

    // RFC 9110, section 10.2.3: whole seconds. A retry that comes too early is useless.
    #[test]
    fn retry_after_is_rounded_up() {
        for (ms, seconds) in [
            (0, 1),
            (1, 1),
            (1000, 1),
            (1001, 2),
            (59_999, 60),
            (60_000, 60),
        ] {
            let problem = problem(Reason::CrawlDelay, Duration::from_millis(ms));
            assert_eq!(answer(&problem).retry_after, Some(seconds), "{ms}");
        }
        let problem = problem(Reason::CrawlDelay, Duration::MAX);
        assert_eq!(answer(&problem).retry_after, Some(u64::MAX));
    }

    // RFC 9457, RFC 9209.
    #[tokio::test]
    async fn every_body_format_states_the_reason_and_retry_time() {
        let problem = problem(Reason::BackOff, Duration::from_millis(59_500));
        let wanted = [
            (
                "application/problem+json",
                "\"type\":\"urn:politesse:later\"",
            ),
            (
                "text/html",
                "<dt>come again</dt><dd><bdi>in 60 seconds, at 1970-01-01 00:01:00 UTC</bdi></dd>",
            ),
            ("text/plain", "reason       backoff: "),
        ];
        for (kind, part) in wanted {
            let request = Request::builder().header(ACCEPT, kind);
            let form = AnswerForm::of(&request.body(ProxyBody::whole("")).unwrap());
            let speaker = ProxyIdentity {
                name: "politesse",
                contact: None,
            };
            let response = form.answer(&answer(&problem), &speaker, Timestamp::UNIX_EPOCH);
            assert_eq!(response.headers()[RETRY_AFTER], "60");
            assert_eq!(
                response.headers()["proxy-status"],
                "politesse;error=http_request_denied;\
                 details=\"The site asks for 10 s between requests, and 14 wait.\""
            );
            let body = response.into_body().collect().await;
            let body = body.ok().map(|body| body.to_bytes()).unwrap();
            let body = String::from_utf8_lossy(&body);
            assert!(body.contains(part), "{kind}: {body}");
            assert!(body.contains("The site is left alone"), "{kind}: {body}");
        }
    }

    // Invariant 2 (ARCHITECTURE.md): the rule that will allow the request stays on
    // record.
    #[test]
    fn a_delayed_answer_names_the_rule_that_allows_it() {
        let members = answer(&problem(Reason::CrawlDelay, Duration::ZERO)).members;
        assert_eq!(members["rule"]["line"], 2);
        assert_eq!(members["robots"]["url"], "http://h.test/robots.txt");
        assert_eq!(members["decision"], "7");
    }

    // Ours: a crawler with several purposes learns about each of them.
    #[test]
    fn a_refusal_by_preferences_names_each_purpose() {
        let terms = PreferenceTerms {
            purposes: PurposeSet::ALL,
            enforce: PreferenceMode::Refuse,
            rule: DenialRule::Any,
            unknown: UnknownPreferences::Pass,
        };
        let policy = Policy::new(Unauthorized::Allow).for_purposes(terms);
        let robots = "User-agent: *\nAllow: /\nContent-Usage: train-ai=n, search=n\n";
        let decision = decision_by(robots, policy);
        let evidence = Arc::clone(decision.evidence());
        let problem = NoPermit::Refused(Refusal { seq: 7, evidence }).into();
        let answer = answer(&problem);
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert_eq!(answer.members["reason"], "preference");
        assert_eq!(
            answer.members["rule"]["text"],
            "Content-Usage: train-ai=n, search=n"
        );
        assert_eq!(
            answer.detail,
            "http://h.test/robots.txt allows this URL, but its site denies what this crawler fetches it \
             for: search (search=n, line 3); train-ai (train-ai=n, line 3)."
        );
    }
}
