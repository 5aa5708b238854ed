//! Rows that another revision of the engine decided.

use super::*;
use politesse_decision::decide::{Evidence, Reason, Verdict};

/// A policy without a revision: written before there were any.
const FIRST: &str = r#"{"unauthorized":"allow","readings":"server"}"#;

/// Returns the record of a decision on `/private/x` by `policy` that an engine
/// made which allowed it: this one disallows it.
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

/// Returns a log with one row of this revision, and one that `policy` allowed.
async fn kit(policy: &str) -> Kit {
    let kit = Kit::new(16);
    for record in [record("/a"), allowed_by(policy)] {
        let (_, ending) = kit.log.record(record).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    kit
}

/// Returns the policy of this revision that says what [`FIRST`] says.
fn current() -> String {
    policy().json().to_owned()
}

#[tokio::test]
async fn what_an_earlier_revision_decided_otherwise_is_told_and_is_no_mismatch() {
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

// A log that was taken along by an older program.
#[tokio::test]
async fn what_a_later_revision_decided_otherwise_is_told_and_is_no_mismatch() {
    let later = current().replace(r#""revision":4"#, r#""revision":99"#);
    let (verification, found) = verify(&kit(&later).await);
    assert!(
        found[0].starts_with("3: decided by revision 99: "),
        "{found:?}"
    );
    assert_eq!(verification.mismatches, 0);
}

#[tokio::test]
async fn what_this_revision_does_not_decide_is_a_mismatch() {
    let (verification, found) = verify(&kit(&current()).await);
    assert!(found[0].starts_with("3: the row says allow"), "{found:?}");
    let sums = (verification.other_revision, verification.mismatches);
    assert_eq!(sums, (0, 1));
}

#[tokio::test]
async fn a_row_of_an_earlier_revision_that_decides_the_same_is_not_told() {
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

/// One test a row: what somebody did to the row of revision 1, and what is
/// found. None of it passes for the answer of another revision.
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
