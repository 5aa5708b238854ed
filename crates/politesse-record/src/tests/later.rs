//! Rows of requests that were put off: verdict `later`.

use super::*;
use politesse_decision::decide::{EnforcementMode, Reason};
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::row_json::row_json;

fn later(decision: Decision, reason: Reason) -> Record {
    let delay = Delay::of_host(reason, DelayEnd::After(Duration::from_secs(9)));
    record_of(&decision.later(delay.explained("it asks for pauses")))
}

/// Returns a log with an allowed decision, an allowed one that was put off, and a
/// reported one that was put off.
async fn put_off() -> Kit {
    let kit = Kit::new(16);
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
async fn a_request_that_was_put_off_is_found_by_its_verdict() {
    let kit = put_off().await;
    let filter = DecisionFilter {
        verdict: Some("later".to_owned()),
        ..DecisionFilter::default()
    };
    let rows = kit.reader().list(&filter, 0).unwrap();
    let said: Vec<_> = rows
        .iter()
        .map(|row| &*row.ruling)
        .map(|ruling| (&*ruling.reason, &*ruling.effect, ruling.line))
        .collect();
    assert_eq!(
        said,
        [
            ("backoff", "enforced", Some(2)),
            ("crawl_delay", "enforced", None)
        ]
    );
    let json = row_json(&rows[0]);
    assert_eq!(
        (&json["verdict"], &json["reason"]),
        (&"later".into(), &"backoff".into())
    );
    assert_eq!(json["wait_ms"], 7);
}

// Invariant 2 (ARCHITECTURE.md): the evidence also shows that the request was
// allowed, and by which rule.
#[tokio::test]
async fn a_request_that_was_put_off_is_decided_again() {
    let (verification, found) = verify(&put_off().await);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!((verification.decided, verification.form_only), (3, 0));
}

/// Defines one test per row: a change to [`put_off`], and the finding.
macro_rules! tampering {
    ($($name:ident: $sql:literal => $found:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let kit = put_off().await;
            kit.sql($sql);
            let (verification, found) = verify(&kit);
            // The finding about the row comes last, after one about the dictionary
            // if that was changed.
            let (last, rest) = found.split_last().unwrap();
            assert!(last.starts_with($found), "{found:?}");
            assert!(rest.iter().all(|found| found.starts_with("ruling ")), "{found:?}");
            assert_eq!(verification.mismatches, found.len() as u64);
        }
    )*};
}

// Ours: findings of `audit verify` for each change.
tampering! {
    a_disallowed_url_cannot_have_been_put_off: "UPDATE decision SET path = '/private/y' WHERE seq = 3"
        => "3: the row says later crawl_delay for FooBot, its evidence disallow rule";
    a_request_that_was_put_off_was_not_allowed: "UPDATE ruling SET verdict = 'allow' WHERE id = 2"
        => "3: the row says allow crawl_delay for FooBot, its evidence allow no_rule";
    an_allowed_request_was_not_put_off: "UPDATE ruling SET verdict = 'later' WHERE id = 1"
        => "1: cannot be decided again: its reason is \"no_rule\"";
    a_rule_does_not_put_requests_off: "UPDATE ruling SET reason = 'rule' WHERE id = 2"
        => "3: cannot be decided again: its reason is \"rule\"";
    another_pace_reason_is_found: "UPDATE ruling SET reason = 'ceiling' WHERE id = 2"
        => "3: the row is not as it was written";
    an_enforced_delay_was_not_only_reported: "UPDATE ruling SET effect = 'reported' WHERE id = 3"
        => "5: the row says later backoff";
    another_line_is_found: "UPDATE ruling SET line = 1 WHERE id = 3" => "5: the row says later backoff";
    a_request_without_robots_txt_was_not_put_off: "UPDATE decision SET snapshot = NULL WHERE seq = 3"
        => "3: cannot be decided again: its reason is \"crawl_delay\"";
}
