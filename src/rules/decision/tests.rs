//! Data in, verdict out.

use bytes::Bytes;
use jiff::Timestamp;

use super::*;
use crate::rules::robots::access::Cause;

fn inquiry(agent: &str, url: &str) -> Arc<Inquiry> {
    Arc::new(Inquiry {
        crawler: Crawler::parse(agent),
        target: url.parse().unwrap(),
        method: "GET".into(),
    })
}

fn snapshot(status: u16, result: AccessResult) -> Arc<Snapshot> {
    let origin: Target = "http://h.test/".parse().unwrap();
    Arc::new(Snapshot {
        url: origin.origin.robots_txt().to_string(),
        origin: origin.origin,
        token: None,
        status: Some(status),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result,
    })
}

fn file(text: &'static str) -> Arc<Snapshot> {
    let copy = Copy::new(Bytes::from_static(text.as_bytes()));
    snapshot(200, AccessResult::Successful(Box::new(copy)))
}

fn decided(snapshot: &Arc<Snapshot>, path: &str) -> Decision {
    let policy = Arc::new(Policy::new(Unauthorized::Allow));
    let url = format!("http://h.test{path}");
    decide(&inquiry("FooBot/2.1", &url), snapshot, &policy)
}

fn said(decision: &Decision) -> (Verdict, Reason) {
    (decision.ruling().verdict, decision.ruling().reason)
}

// RFC 9309, section 2.2.2.
#[test]
fn the_rule_and_its_line_are_named() {
    let snapshot = file("User-agent: foobot\nAllow: /a\nDisallow: /a/b # no\n");
    let decision = decided(&snapshot, "/a/b/c");
    let ruling = decision.ruling();
    assert_eq!(said(&decision), (Verdict::Disallow, Reason::Rule));
    let rule = ruling.rule.as_ref().unwrap();
    assert_eq!((rule.line, rule.text.as_str()), (3, "Disallow: /a/b"));
    assert_eq!(ruling.group, ["foobot"]);
    assert_eq!(ruling.token.as_ref().unwrap().as_str(), "FooBot");
}

// RFC 9309, sections 2.2.1 and 2.2.2.
#[test]
fn without_a_rule_the_reason_says_which_is_missing() {
    assert_eq!(
        said(&decided(&file("User-agent: *\nDisallow: /x\n"), "/a")),
        (Verdict::Allow, Reason::NoRule)
    );
    assert_eq!(
        said(&decided(&file("User-agent: o\nDisallow: /\n"), "/a")),
        (Verdict::Allow, Reason::NoGroup)
    );
}

// RFC 9309, section 2.2.2: "The /robots.txt URI is implicitly allowed"; these
// octets and no others.
#[test]
fn robots_txt_itself_is_allowed_and_nothing_that_looks_like_it() {
    let snapshot = file("User-agent: *\nDisallow: /\n");
    assert_eq!(
        said(&decided(&snapshot, "/robots.txt")),
        (Verdict::Allow, Reason::RobotsTxt)
    );
    for path in [
        "/robots.txt?x",
        "//robots.txt",
        "/ROBOTS.TXT",
        "/robots.txt/../private",
        "/a/../robots.txt",
    ] {
        assert_eq!(
            said(&decided(&snapshot, path)),
            (Verdict::Disallow, Reason::Rule),
            "{path}"
        );
    }
}

// RFC 9309, sections 2.3.1.3 and 2.3.1.4. Invariant 4.
#[test]
fn not_knowing_means_no_and_no_file_means_yes() {
    let unreachable = snapshot(503, AccessResult::Unreachable(Cause::Status));
    assert_eq!(
        said(&decided(&unreachable, "/a")),
        (Verdict::Disallow, Reason::Unreachable)
    );
    let unavailable = snapshot(404, AccessResult::Unavailable);
    assert_eq!(
        said(&decided(&unavailable, "/a")),
        (Verdict::Allow, Reason::Unavailable)
    );
}

// The draft of 1996, section 3.1, where the operator asks for it.
#[test]
fn a_401_or_403_refuses_where_configured() {
    let policy = Arc::new(Policy::new(Unauthorized::Refuse));
    for (status, verdict) in [
        (401, Verdict::Disallow),
        (403, Verdict::Disallow),
        (404, Verdict::Allow),
    ] {
        let snapshot = snapshot(status, AccessResult::Unavailable);
        let decision = decide(&inquiry("FooBot", "http://h.test/a"), &snapshot, &policy);
        assert_eq!(decision.ruling().verdict, verdict, "{status}");
    }
}

// RFC 3986, section 5.2.4: what servers serve as /private is /private.
#[test]
fn a_disallowed_reading_refuses_and_is_named() {
    let snapshot = file("User-agent: *\nDisallow: /private\n");
    let decision = decided(&snapshot, "/a/%2e%2e/private?x");
    assert_eq!(said(&decision), (Verdict::Disallow, Reason::Rule));
    assert_eq!(decision.ruling().reading.as_deref(), Some("/private?x"));
    let sent = Arc::new(Policy::new(Unauthorized::Allow).as_sent());
    let asked = inquiry("FooBot", "http://h.test/a/%2e%2e/private");
    assert_eq!(
        said(&decide(&asked, &snapshot, &sent)),
        (Verdict::Allow, Reason::NoRule)
    );
}

// Invariants 1 and 3.
#[test]
fn a_permit_wants_the_receipt_for_its_own_decision() {
    let snapshot = file("User-agent: *\nDisallow: /private\n");
    let allowed = decided(&snapshot, "/a");
    let foreign = Receipt::issue(7, decided(&snapshot, "/b").digest());
    assert!(matches!(
        allowed.into_permit(&foreign),
        Err(NoPermit::ForeignReceipt)
    ));
    let allowed = decided(&snapshot, "/a");
    let receipt = Receipt::issue(7, allowed.digest());
    assert_eq!(
        allowed
            .into_permit(&receipt)
            .unwrap()
            .target()
            .path_and_query(),
        "/a"
    );
    let refused = decided(&snapshot, "/private");
    let receipt = Receipt::issue(8, refused.digest());
    assert!(matches!(
        refused.into_permit(&receipt),
        Err(NoPermit::Refused(Refusal { seq: 8, .. }))
    ));
}

#[test]
fn only_a_whole_copy_that_came_as_a_200_answers_for_the_origin() {
    let whole = decided(&file("User-agent: *\n"), "/robots.txt");
    assert!(whole.own_copy().is_some());
    assert!(decided(&file("User-agent: *\n"), "/a").own_copy().is_none());
    let mut copy = Copy::new(Bytes::from_static(b"User-agent: *\n"));
    copy.whole = false;
    let cut = snapshot(200, AccessResult::Successful(Box::new(copy)));
    assert!(decided(&cut, "/robots.txt").own_copy().is_none());
    let missing = snapshot(404, AccessResult::Unavailable);
    assert!(decided(&missing, "/robots.txt").own_copy().is_none());
}

#[test]
fn a_policy_is_restored_from_its_json() {
    let policy = Policy::new(Unauthorized::Refuse);
    assert_eq!(
        Policy::restore(policy.json()).unwrap().digest(),
        policy.digest()
    );
    assert_ne!(policy.as_sent().digest(), policy.digest());
    assert!(Policy::restore("{}").is_err());
}
