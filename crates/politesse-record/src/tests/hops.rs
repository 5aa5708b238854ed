//! Redirects that led to a robots.txt, as evidence: each hop is in the audit
//! record.

use super::*;
use politesse_decision::row_json::row_json;

const FIRST: &str = "http://o.test/robots.txt";
const SECOND: &str = "http://p.test/robots.txt?\"";

/// Returns a robots.txt that was found after the redirects `hops`.
fn behind(hops: &[&str]) -> Arc<Snapshot> {
    let copy = RobotsFile::new(Bytes::from_static(ROBOTS.as_bytes()));
    let found = snapshot(AccessResult::Successful(Arc::new(copy)), Some(200));
    let mut found = Arc::into_inner(found).unwrap();
    found.hops = hops.iter().map(|&url| url.to_owned()).collect();
    Arc::new(found)
}

fn behind_record(hops: &[&str]) -> Record {
    record_of(&decide(&inquiry("/a"), &behind(hops), &policy(), now()))
}

/// Returns a log of two decisions: one by a robots.txt found after two redirects,
/// one without redirects.
async fn redirected() -> Kit {
    let kit = Kit::new(16);
    for hops in [&[FIRST, SECOND][..], &[]] {
        let (_, ending) = kit.log.record(behind_record(hops)).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    kit
}

#[tokio::test]
async fn hops_are_read_back_in_order() {
    let kit = redirected().await;
    let rows = kit.rows();
    let hops = |row: &StoredRecord| row.snapshot.as_ref().unwrap().hops.clone();
    assert_eq!(hops(&rows[1]), [FIRST, SECOND]);
    assert_eq!(hops(&rows[0]), [""; 0]);
    assert_eq!(
        row_json(&rows[1])["robots"]["hops"],
        serde_json::json!([FIRST, SECOND])
    );
    let (verification, found) = verify(&kit);
    assert_eq!((verification.decided, found.len()), (2, 0), "{found:?}");
}

#[tokio::test]
async fn snapshots_that_differ_only_in_hops_are_distinct() {
    let kit = Kit::new(16);
    // Each is a separate value in memory, so that only the contents count.
    for hops in [&[FIRST][..], &[FIRST], &[], &[], &[SECOND]] {
        let (_, ending) = kit.log.record(behind_record(hops)).await.unwrap();
        ending.complete(done(200));
    }
    let connection = Connection::open(kit.path()).unwrap();
    let count = "SELECT count(*) FROM snapshot";
    let count: i64 = connection.query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 3);
}

#[tokio::test]
async fn changed_hops_are_found() {
    for (changed, row) in [
        ("hops = NULL WHERE hops IS NOT NULL", 1),
        ("hops = '[]' WHERE hops IS NOT NULL", 1),
        ("hops = replace(hops, 'p.test', 'q.test')", 1),
        ("hops = CAST(x'ff' AS TEXT) WHERE hops IS NOT NULL", 1),
        ("hops = '' WHERE hops IS NULL", 3),
        ("hops = '[]' WHERE hops IS NULL", 3),
        ("hops = '[\"http://q.test/\"]' WHERE hops IS NULL", 3),
    ] {
        let kit = redirected().await;
        kit.sql(&format!("UPDATE snapshot SET {changed}"));
        let (verification, found) = verify(&kit);
        assert_eq!((verification.decided, kit.rows().len()), (2, 2));
        assert_eq!(found.len(), 2, "{changed}");
        assert!(found[0].starts_with("snapshot "), "{found:?}");
        assert_eq!(found[1], format!("{row}: the row is not as it was written"));
    }
}
