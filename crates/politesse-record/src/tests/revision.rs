//! Rows decided by another revision of the engine.

use super::*;
use politesse_decision::decide::{Evidence, Reason, Verdict};

/// Policy without a revision, from before there were any.
const FIRST: &str = r#"{"unauthorized":"allow","readings":"server"}"#;

/// Returns the record of a decision on `/private/x` with `policy` by an engine that
/// allowed it; this revision disallows it.
fn allowed_by(policy: &str) -> Record {
    let policy = Arc::new(Policy::restore(policy).unwrap());
    let decision = decide(&inquiry("/private/x"), &robots(), &policy, now());
    let evidence = decision.evidence();
    let mut ruling = evidence.ruling.clone();
    (ruling.verdict, ruling.reason) = (Verdict::Allow, Reason::NoRule);
    (ruling.rule, ruling.agent_line) = (None, None);
    Record {
        evidence: Arc::new(Evidence {
            inquiry: Arc::clone(&evidence.inquiry),
            snapshot: evidence.snapshot.clone(),
            denial: None,
            delay: None,
            policy,
            at: evidence.at,
            ruling,
        }),
        ..record_of(&decision)
    }
}

/// Returns a log with one row of this revision, and one that an engine with
/// `policy` allowed.
async fn kit(policy: &str) -> Kit {
    let kit = Kit::new(16);
    for record in [record("/a"), allowed_by(policy)] {
        let (_, ending) = kit.log.record(record).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    kit
}

/// Returns the policy of this revision that is equivalent to [`FIRST`].
fn current() -> String {
    policy().json().to_owned()
}

#[tokio::test]
async fn a_different_decision_by_an_earlier_revision_is_reported_but_no_mismatch() {
    let kit = kit(FIRST).await;
    let (verification, found) = verify(&kit);
    assert_eq!(
        found,
        [
            "3: decided by revision 1: allow no_rule for FooBot; revision 4 says disallow rule \
             for FooBot (line 2, \"Disallow: /private\")"
        ]
    );
    let (sums, expected) = (&verification, (2, 1, 0));
    assert_eq!(
        (sums.decided, sums.other_revision, sums.mismatches),
        expected
    );
}

// A log that is verified by an older program.
#[tokio::test]
async fn a_different_decision_by_a_later_revision_is_reported_but_no_mismatch() {
    let later = current().replace(r#""revision":4"#, r#""revision":99"#);
    let (verification, found) = verify(&kit(&later).await);
    assert!(
        found[0].starts_with("3: decided by revision 99: "),
        "{found:?}"
    );
    assert_eq!(verification.mismatches, 0);
}

#[tokio::test]
async fn a_different_decision_by_this_revision_is_a_mismatch() {
    let (verification, found) = verify(&kit(&current()).await);
    assert!(found[0].starts_with("3: the row says allow"), "{found:?}");
    let sums = (verification.other_revision, verification.mismatches);
    assert_eq!(sums, (0, 1));
}

#[tokio::test]
async fn an_equal_decision_by_an_earlier_revision_is_not_reported() {
    let kit = Kit::new(16);
    let policy = Arc::new(Policy::restore(FIRST).unwrap());
    let decision = decide(&inquiry("/private/x"), &robots(), &policy, now());
    let (_, ending) = kit.log.record(record_of(&decision)).await.unwrap();
    ending.complete(done(200));
    kit.log.probe().await.unwrap();
    let (verification, found) = verify(&kit);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!((verification.decided, verification.other_revision), (1, 0));
}

/// Defines one test per row: a change to the row of revision 1, and the finding. No
/// change may pass for a different decision by another revision.
macro_rules! tampering {
    ($($name:ident: $sql:literal => $found:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let kit = kit(FIRST).await;
            kit.sql(concat!("PRAGMA foreign_keys = OFF;", $sql));
            let (verification, found) = verify(&kit);
            let is_found = found.iter().any(|found| found.starts_with($found));
            assert!(is_found, "{found:?}");
            assert!(0 < verification.mismatches);
        }
    )*};
}

tampering! {
    a_changed_verdict_of_revision_1_is_found: "INSERT INTO ruling SELECT 9, 'later', 'crawl_delay', effect, line, rule, groups, crawler, denials, x'00' FROM ruling;
            UPDATE decision SET ruling = 9 WHERE seq = 3"
        => "3: the row is not as it was written";
    a_changed_url_of_revision_1_is_found: "UPDATE decision SET path = '/private/y' WHERE seq = 3"
        => "3: the row is not as it was written";
    a_changed_body_of_revision_1_is_found: "UPDATE body SET body = x'00'"
        => "3: cannot be decided again: the body kept as";
    a_revision_taken_out_of_a_policy_is_found: "UPDATE policy SET json = replace(json, '\"revision\":4,', '')"
        => "policy ";
    a_revision_put_into_a_policy_is_found: "UPDATE policy SET json = replace(json, '{\"una', '{\"revision\":9,\"una')"
        => "policy ";
}
