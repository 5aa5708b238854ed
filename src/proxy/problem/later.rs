//! The answer to what has to come later: 429, or 503 where it is the proxy that
//! has too much to do (RFC 6585, section 4; RFC 9110, sections 10.2.3 and
//! 15.6.4).
//!
//! An origin's own 429 is passed through as it came, so who sees one of ours
//! can tell it by its `Proxy-Status`.

use std::time::Duration;

use http::StatusCode;

use super::{refused_members, sentence};
use crate::decision::decide::{Evidence, Reason, Refusal};
use crate::proxy::answer::{Close, ProblemDetails};

/// What the crawler is told of a request that is put off.
pub(super) fn later(refusal: &Refusal) -> ProblemDetails {
    let evidence = &*refusal.evidence;
    let seconds = evidence
        .delay
        .as_ref()
        .map_or(1, |delay| whole_seconds(delay.retry_after()));
    let mut members = refused_members(refusal);
    members.insert("retry_after".to_owned(), seconds.into());
    ProblemDetails {
        status: status(evidence.ruling.reason),
        error: "http_request_denied",
        kind: "later",
        title: title(evidence.ruling.reason),
        detail: detail(evidence),
        retry_after: Some(seconds),
        close: Close::No,
        members,
    }
}

/// At least 1, and never too soon: `Retry-After` has no fractions.
fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(0 < wait.subsec_nanos());
    wait.as_secs().saturating_add(begun).max(1)
}

fn status(reason: Reason) -> StatusCode {
    if reason == Reason::Overload {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::TOO_MANY_REQUESTS
    }
}

fn title(reason: Reason) -> &'static str {
    match reason {
        Reason::CrawlDelay | Reason::RequestRate => "Not so fast: the site asks for pauses",
        Reason::VisitTime => "Not at this time of the day",
        Reason::BackOff => "The site is left alone for a while",
        Reason::Ceiling => "Not so fast: the operator sets a limit",
        Reason::QueueFull => "Too many requests wait already",
        Reason::Overload => "The proxy has too much to do",
        Reason::Rule
        | Reason::NoRule
        | Reason::NoGroup
        | Reason::RobotsTxt
        | Reason::Unavailable
        | Reason::Restricted
        | Reason::Unreachable
        | Reason::Undecided
        | Reason::Override
        | Reason::Egress => "Not now",
    }
}

fn detail(evidence: &Evidence) -> String {
    let delay = evidence.delay.as_ref();
    let explanation = delay.map(|delay| &*delay.detail);
    match explanation.filter(|detail| !detail.is_empty()) {
        Some(detail) => sentence(detail.trim_end_matches('.')),
        None => sentence(title(evidence.ruling.reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;
    use http::header::{ACCEPT, HeaderValue, RETRY_AFTER};
    use http_body_util::BodyExt as _;
    use jiff::Timestamp;

    use super::*;
    use crate::decision::access::{AccessResult, RobotsFile, Snapshot};
    use crate::decision::decide::{Decision, Inquiry, NoPermit, Policy, Unauthorized, decide};
    use crate::decision::delay::{Delay, DelayEnd};
    use crate::proxy::answer::ProxyIdentity;
    use crate::proxy::problem::Problem;
    use politesse_robots::crawler::Crawler;

    fn decision() -> Decision {
        let inquiry = Arc::new(Inquiry {
            crawler: Crawler::parse("FooBot/1"),
            target: "http://h.test/a".parse().unwrap(),
            method: "GET".to_owned(),
        });
        let copy = RobotsFile::new("User-agent: *\nAllow: /a\nCrawl-delay: 10\n".into());
        let snapshot = Arc::new(Snapshot {
            origin: inquiry.target.origin.clone(),
            token: None,
            url: "http://h.test/robots.txt".to_owned(),
            hops: Vec::new(),
            status: Some(200),
            fetched_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::UNIX_EPOCH,
            result: AccessResult::Successful(Arc::new(copy)),
            stale: None,
        });
        let policy = Arc::new(Policy::new(Unauthorized::Allow));
        decide(&inquiry, &snapshot, (&policy, Timestamp::UNIX_EPOCH))
    }

    fn problem(reason: Reason, retry_after: Duration) -> Problem {
        let delay = Delay::of_host(reason, DelayEnd::After(retry_after));
        let detail = "the site asks for 10 s between requests, and 14 wait";
        let decision = decision().later(delay.explained(detail));
        let evidence = Arc::clone(decision.evidence());
        NoPermit::Later(Refusal { seq: 7, evidence }).into()
    }

    fn answer(problem: &Problem) -> ProblemDetails {
        problem.answer((Timestamp::UNIX_EPOCH, StatusCode::FORBIDDEN))
    }

    // Contract, section 3: 429, and 503 of the proxy's own load.
    #[test]
    fn status_says_whose_limit_it_is() {
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

    // RFC 9110, section 10.2.3: whole seconds; to come too soon is no use.
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

    // Contract, section 3; RFC 9457, RFC 9209.
    #[tokio::test]
    async fn all_three_kinds_of_body_say_what_it_waits_for() {
        let problem = problem(Reason::BackOff, Duration::from_millis(59_500));
        let wanted = [
            (
                "application/problem+json",
                "\"type\":\"urn:politesse:later\"",
            ),
            (
                "text/html",
                "<dt>Come again</dt><dd>in 60 seconds, at 1970-01-01 00:01:00 UTC</dd>",
            ),
            ("text/plain", "(backoff)\n"),
        ];
        for (kind, part) in wanted {
            let asked = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(kind))]);
            let speaker = ProxyIdentity {
                name: "politesse",
                contact: None,
            };
            let response = answer(&problem).response(&asked, &speaker, Timestamp::UNIX_EPOCH);
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

    // Invariant 2: the rule by which it may come stays on record.
    #[test]
    fn the_rule_that_allowed_is_told() {
        let members = answer(&problem(Reason::CrawlDelay, Duration::ZERO)).members;
        assert_eq!(members["rule"]["line"], 2);
        assert_eq!(members["robots"]["url"], "http://h.test/robots.txt");
        assert_eq!(members["decision"], "7");
    }
}
