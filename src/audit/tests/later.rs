//! Rows of what was put off: verdict `later`.

use super::*;
use crate::decision::decide::{EnforcementMode, Reason};
use crate::decision::delay::{Delay, DelayEnd};

fn later(decision: Decision, reason: Reason) -> Record {
    let delay = Delay::of_host(reason, DelayEnd::After(Duration::from_secs(9)));
    record_of(&decision.later(delay.explained("it asks for pauses")))
}

/// Returns what was allowed, what was only reported, and what was put off of
/// each.
async fn put_off() -> Kit {
    let kit = Kit::new(Durability::Commit, 16);
    let reporting = policy()
        .as_ref()
        .clone()
        .with(|terms| terms.mode = EnforcementMode::Report);
    let reported = decide(
        &inquiry("/private/x"),
        &robots(),
        &Arc::new(reporting),
        now(),
    );
    for record in [
        record("/a"),
        later(decision("/a"), Reason::CrawlDelay),
        later(reported, Reason::BackOff),
    ] {
        let (_, ending) = kit.log.record(record).await.unwrap();
        ending.complete(done(429));
    }
    kit.log.probe().await.unwrap();
    kit
}

#[tokio::test]
async fn what_was_put_off_is_found_by_its_verdict() {
    let kit = put_off().await;
    let filter = DecisionFilter {
        verdict: Some("later".to_owned()),
        ..DecisionFilter::default()
    };
    let rows = kit.reader().list(&filter, 0).unwrap();
    let said: Vec<_> = rows
        .iter()
        .map(|row| (row.seq, &*row.ruling.reason, &*row.effect, row.ruling.line))
        .collect();
    assert_eq!(
        said,
        [
            (3, "backoff", "enforced", Some(2)),
            (2, "crawl_delay", "enforced", None)
        ]
    );
    let json = row_json(&rows[0]);
    assert_eq!(
        (&json["verdict"], &json["reason"]),
        (&"later".into(), &"backoff".into())
    );
    assert_eq!(json["wait_ms"], 7);
}

// Invariant 2 (ARCHITECTURE.md): that it was let through, and by which rule,
// follows again.
#[tokio::test]
async fn what_was_put_off_is_decided_again() {
    let (verification, found) = verify(&put_off().await);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!((verification.decided, verification.form_only), (3, 0));
}

/// One test a row: what somebody did to [`put_off`], and what is found.
macro_rules! tampering {
    ($($name:ident: $sql:literal => $found:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let kit = put_off().await;
            kit.sql($sql);
            let (verification, found) = verify(&kit);
            assert_eq!((found.len(), verification.mismatches), (1, 1), "{found:?}");
            assert!(found[0].starts_with($found), "{found:?}");
        }
    )*};
}

// Ours: what `audit verify` says of each change.
tampering! {
    what_is_disallowed_cannot_have_been_put_off: "UPDATE decision SET url = 'http://o.test/private/y' WHERE seq = 2"
        => "2: the row says later crawl_delay for FooBot, its evidence disallow rule";
    what_was_put_off_was_not_allowed: "UPDATE decision SET verdict = 'allow' WHERE seq = 2"
        => "2: the row says allow crawl_delay for FooBot, its evidence allow no_rule";
    what_was_allowed_was_not_put_off: "UPDATE decision SET verdict = 'later' WHERE seq = 1"
        => "1: cannot be decided again: its reason is \"no_rule\"";
    nothing_is_put_off_by_a_rule: "UPDATE decision SET reason = 'rule' WHERE seq = 2"
        => "2: cannot be decided again: its reason is \"rule\"";
    another_reason_of_pace_is_found: "UPDATE decision SET reason = 'ceiling' WHERE seq = 2"
        => "2: the row is not as it was written";
    what_was_put_off_was_not_reported: "UPDATE decision SET effect = 'reported' WHERE seq = 3"
        => "3: the row says later backoff";
    another_line_is_found: "UPDATE decision SET line = 1 WHERE seq = 3" => "3: the row says later backoff";
    what_rests_on_no_robots_txt_was_not_put_off: "PRAGMA foreign_keys = OFF; UPDATE decision SET snapshot = NULL WHERE seq = 2"
        => "2: cannot be decided again: its reason is \"crawl_delay\"";
}
