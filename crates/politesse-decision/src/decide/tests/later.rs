//! Delayed decisions: the URL may be fetched, but not yet.

use std::time::Duration;

use politesse_robots::PauseRecord;

use super::*;
use crate::delay::{Delay, DelayEnd};

fn delay(reason: Reason) -> Delay {
    let delay = Delay::of_host(reason, DelayEnd::After(Duration::from_millis(1500)));
    delay.explained("1 is under way")
}

fn reporting(snapshot: &Arc<Snapshot>, path: &str) -> Decision {
    let policy =
        Policy::new(Unauthorized::Allow).with(|terms| terms.mode = EnforcementMode::Report);
    let asked = inquiry("FooBot/2.1", &format!("http://h.test{path}"));
    decide(&asked, snapshot, &Arc::new(policy), now())
}

const ROBOTS: &str = "User-agent: foobot\nAllow: /a\nDisallow: /\nCrawl-delay: 10\n";

// Ours: a delay keeps the evidence that allows the request.
#[test]
fn a_delayed_decision_keeps_the_rule_that_allowed() {
    let allowed = decided(&file(ROBOTS), "/a");
    let ruling = allowed.ruling().clone();
    let digest = allowed.digest();
    let later = allowed.later(delay(Reason::CrawlDelay));
    assert_eq!(said(&later), (Verdict::Later, Reason::CrawlDelay));
    assert_eq!(later.ruling().rule, ruling.rule);
    assert_eq!(later.ruling().group, ["foobot"]);
    assert_eq!(later.ruling().token, ruling.token);
    assert_eq!(later.ruling().pace_records, ruling.pace_records);
    assert_ne!(later.digest(), digest);
    let evidence = later.evidence();
    assert_eq!(Effect::of(evidence), Effect::Enforced);
    let told = evidence.delay.as_ref().unwrap();
    assert_eq!(told, &delay(Reason::CrawlDelay));
}

// Invariant 1 (ARCHITECTURE.md): nothing is sent.
#[test]
fn a_delayed_decision_yields_no_permit() {
    let later = decided(&file(ROBOTS), "/a").later(delay(Reason::BackOff));
    let receipt = Receipt::issue(3, later.evidence());
    let NoPermit::Later(refusal) = later.into_permit(&receipt).unwrap_err() else {
        panic!("refused");
    };
    assert_eq!(refusal.seq, 3);
    assert_eq!(refusal.evidence.ruling.reason, Reason::BackOff);
}

// Invariant 3 (ARCHITECTURE.md): the receipt for an allowing decision does not fit the
// delayed one.
#[test]
fn a_receipt_from_before_the_delay_is_foreign() {
    let allowed = decided(&file(ROBOTS), "/a");
    let receipt = Receipt::issue(3, allowed.evidence());
    let later = allowed.later(delay(Reason::BackOff));
    assert!(matches!(
        later.into_permit(&receipt),
        Err(NoPermit::ForeignReceipt { .. })
    ));
}

// Ours: waiting does not help a refused request.
#[test]
fn a_refusal_is_not_delayed() {
    let refused = decided(&file(ROBOTS), "/x");
    let (before, digest) = (said(&refused), refused.digest());
    let later = refused.later(delay(Reason::CrawlDelay));
    assert_eq!((said(&later), later.digest()), (before, digest));
    assert_eq!(later.evidence().delay, None);
    let later = later.later(delay(Reason::Ceiling));
    assert_eq!(said(&later), before);
}

// Ours: requests forwarded in report mode take their turn as well. A delayed request was
// not forwarded, so its effect is not `reported`.
#[test]
fn a_reported_decision_can_be_delayed() {
    let later = reporting(&file(ROBOTS), "/x").later(delay(Reason::QueueFull));
    assert_eq!(said(&later), (Verdict::Later, Reason::QueueFull));
    assert_eq!(later.ruling().rule.as_ref().unwrap().line, Some(3));
    assert_eq!(reported(later), (false, Effect::Enforced));
}

// Ours: a delayed request does not have the effect `overridden`.
#[test]
fn an_overridden_decision_can_be_delayed() {
    let policy = laid_down(Candidates::First, &[ANYTHING]);
    let asked = inquiry("FooBot/2.1", "http://h.test/x");
    let decision = decide(&asked, &file(ROBOTS), &policy, now());
    assert!(decision.ruling().is_overridden());
    let later = decision.later(delay(Reason::VisitTime));
    assert_eq!(said(&later), (Verdict::Later, Reason::VisitTime));
    assert_eq!(reported(later), (false, Effect::Enforced));
}

// Ours: the ruling has the pace records of the groups, whatever the verdict, and none
// if the groups have none.
#[test]
fn pace_records_are_part_of_the_ruling() {
    for path in ["/a", "/x", "/a/../x"] {
        let decision = decided(&file(ROBOTS), path);
        let asked = decision.ruling().pace_records.clone().unwrap();
        let pause = (Duration::from_secs(10), PauseRecord::CrawlDelay);
        assert_eq!(asked.delay(now()), Some(pause), "{path}");
    }
    let decision = decided(&file("User-agent: *\nAllow: /\n"), "/a");
    assert_eq!(decision.ruling().pace_records, None);
    let unavailable = snapshot(404, AccessResult::Unavailable);
    assert_eq!(decided(&unavailable, "/a").ruling().pace_records, None);
}

// Ours: with several binding candidates, the pace records of each apply.
#[test]
fn the_pace_records_of_all_candidates_apply() {
    let robots = file(
        "User-agent: FooBot-News\nRequest-rate: 1/9\nVisit-time: 0000-1200\nDisallow: /z\n\
         User-agent: FooBot\nCrawl-delay: 4\nVisit-time: 0600-1800\n",
    );
    let asked = inquiry("FooBot-News/1 (FooBot; +http://f.test)", "http://h.test/x");
    for (candidates, opens) in [
        (Candidates::First, None),
        (Candidates::All, "2027-01-01T06:00:00Z".parse().ok()),
    ] {
        let decision = decide(&asked, &robots, &laid_down(candidates, &[]), now());
        let asked = decision.ruling().pace_records.clone().unwrap();
        let pause = (Duration::from_secs(9), PauseRecord::RequestRate);
        assert_eq!(asked.delay(now()), Some(pause));
        assert_eq!(asked.opens(now()), opens);
    }
}

// Ours: `unreachable` is the reason if the origin answers badly or not at all. With
// `Cause::Busy` the origin was never asked.
#[test]
fn an_unreachable_robots_txt_is_delayed_only_if_the_origin_was_not_asked() {
    let reasons = |cause: Cause| {
        let snapshot = snapshot(503, AccessResult::Unreachable(cause));
        let later = decided(&snapshot, "/a").later(delay(Reason::BackOff));
        said(&later)
    };
    let disallowed = (Verdict::Disallow, Reason::Unreachable);
    assert_eq!(reasons(Cause::Busy), (Verdict::Later, Reason::BackOff));
    for cause in [Cause::Status, Cause::Timeout, Cause::Names] {
        assert_eq!(reasons(cause), disallowed, "{cause:?}");
    }
}
