//! Paged reads: no row is missed, and no transaction is held open.

use super::*;
use crate::filter::{RulePattern, UrlPattern};
use crate::reader::PageBounds;

/// Returns a log with `count` rows, of which every tenth is refused by line 2. All
/// except the first two are copied in SQL.
async fn many(count: u64) -> Kit {
    let kit = Kit::new(16);
    for path in ["/private/x", "/a"] {
        let (_, ending) = kit.log.record(record(path)).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    kit.sql(&format!(
        "CREATE TEMP TABLE columns AS SELECT * FROM decision;
         CREATE TEMP TABLE ends AS SELECT * FROM ending WHERE decision = 1;
         DELETE FROM decision; DELETE FROM ending;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO decision (seq, time_us, client, crawler, method, origin, path, ruling,
           wait_ms, policy, snapshot, salt, leaf)
         SELECT i, time_us, client, crawler, method, origin,
           path || CASE WHEN i < 3 THEN '' ELSE i END, ruling, wait_ms, policy, snapshot,
           salt, leaf
         FROM n JOIN columns ON seq = CASE WHEN i = 1 OR i % 10 = 0 THEN 1 ELSE 3 END
         ORDER BY i;
         INSERT INTO ending SELECT d.seq, 0, status, sent, directives, bytes, error, e.leaf
         FROM decision AS d JOIN ends AS e;"
    ));
    kit
}

/// Reports whether the whole WAL can be moved into the file, which an open read
/// would prevent.
fn can_checkpoint(kit: &Kit) -> bool {
    let writer = Connection::open(kit.path()).unwrap();
    writer
        .execute_batch("UPDATE ending SET bytes = 1 WHERE decision = 1")
        .unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy: i64 = writer.query_row(checkpoint, [], |row| row.get(0)).unwrap();
    busy == 0
}

// Ours: a page shown on an unattended terminal must not keep the WAL from being
// reused.
#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_is_open_while_the_caller_gets_rows() {
    let kit = many(3000).await;
    let reader = kit.reader();
    for filter in [
        DecisionFilter::default(),
        DecisionFilter {
            from: Some(now()),
            ..DecisionFilter::default()
        },
    ] {
        let mut seen = 0;
        let visit = |_| {
            seen += 1;
            if seen % 500 == 1 {
                assert!(can_checkpoint(&kit), "at row {seen}");
            }
            ControlFlow::Continue(())
        };
        reader
            .visit_decisions(&filter, Direction::NewestFirst, visit)
            .unwrap();
        assert_eq!(seen, 3000);
    }
    verify::verify(&reader, &DecisionFilter::default(), |_| {
        assert!(can_checkpoint(&kit));
    })
    .unwrap();
}

// Ours: pages join without a gap or a repetition, in both directions, even where
// many consecutive rows do not match.
#[tokio::test(flavor = "multi_thread")]
async fn every_matching_row_is_read_once() {
    let kit = many(12_000).await;
    kit.sql("DELETE FROM decision WHERE seq BETWEEN 2000 AND 8000");
    kit.sql("UPDATE decision SET path = '/rare' WHERE seq IN (11, 1999, 8001, 11999)");
    let reader = kit.reader();
    let rare = DecisionFilter {
        url: "http://o.test/rare".parse().ok(),
        ..DecisionFilter::default()
    };
    let rows = reader.list(&rare, 0).unwrap();
    let numbers: Vec<_> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(numbers, [11_999, 8001, 1999, 11]);
    assert_eq!(reader.count(&rare).unwrap(), 4);

    let rows = reader.list(&DecisionFilter::default(), 0).unwrap();
    let newest = rows.iter().map(|row| row.seq);
    assert!(newest.eq((8001..=12_000).rev().chain((1..2000).rev())));
    let mut oldest = Vec::new();
    let each = reader.visit_decisions(&DecisionFilter::default(), Direction::OldestFirst, |row| {
        oldest.push(row.seq);
        ControlFlow::Continue(())
    });
    each.unwrap();
    assert!(oldest.into_iter().eq((1..2000).chain(8001..=12_000)));
}

// Ours: a live view shows the newest decisions, and the number of the others.
#[tokio::test(flavor = "multi_thread")]
async fn newer_decisions_are_the_newest_that_match_the_filter() {
    let kit = many(3000).await;
    kit.sql("UPDATE decision SET path = '/rare' WHERE seq IN (11, 1999, 2001, 2999)");
    let reader = kit.reader();
    let rare = DecisionFilter {
        url: "http://o.test/rare".parse().ok(),
        ..DecisionFilter::default()
    };
    let all = DecisionFilter::default();
    for (filter, after, rows, expected, left_out) in [
        (&rare, 0, 9, vec![11, 1999, 2001, 2999], 0),
        (&rare, 11, 2, vec![2001, 2999], 1),
        (&rare, 2999, 2, vec![], 0),
        (&all, 2990, 20, (2991..=3000).collect(), 0),
        (&all, 0, 2, vec![2999, 3000], 2998),
        (&all, 4000, 2, vec![], 0),
    ] {
        let newer = reader.decisions_after(after, filter, rows).unwrap();
        let numbers: Vec<_> = newer.records.iter().map(|record| record.seq).collect();
        assert_eq!((numbers, newer.left_out), (expected, left_out), "{after}");
        assert_eq!(newer.last, after.max(3000));
    }
}

// Ours: after a long pause, only the end of the record is read.
#[tokio::test(flavor = "multi_thread")]
async fn newer_decisions_are_not_looked_for_far_back() {
    let kit = many(100).await;
    kit.sql("UPDATE decision SET seq = seq + 1000000 WHERE 50 < seq");
    let all = DecisionFilter::default();
    let newer = kit.reader().decisions_after(0, &all, 90).unwrap();
    let numbers: Vec<_> = newer.records.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, Vec::from_iter(1_000_051..=1_000_100));
    assert_eq!((newer.left_out, newer.last), (1, 1_000_100));
}

// Ours: a count that takes too long has no result.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_ends_at_its_deadline() {
    let kit = many(12_000).await;
    let reader = kit.reader();
    let all = DecisionFilter::default();
    let late = Some(clock::instant());
    assert_eq!(reader.count_until(&all, late).unwrap(), None);
    assert_eq!(reader.count_until(&all, None).unwrap(), Some(12_000));
}

// Ours: a search that its deadline ended continues from there, and finishes.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_was_cut_can_be_continued_until_all_is_searched() {
    let kit = many(12_000).await;
    kit.sql("UPDATE decision SET path = '/rare' WHERE seq IN (11, 4000, 11999)");
    let reader = kit.reader();
    let walk = |path: &str| {
        let filter = DecisionFilter {
            url: format!("http://o.test{path}").parse().ok(),
            ..DecisionFilter::default()
        };
        let mut bounds = PageBounds {
            before: None,
            rows: 50,
            // The deadline has already passed, so that each page reads as little as
            // possible.
            deadline: clock::instant(),
        };
        let (mut found, mut cuts) = (Vec::new(), 0);
        loop {
            let page = reader.decision_page(&filter, &bounds).unwrap();
            found.extend(page.records.iter().map(|record| record.seq));
            let Some(next) = page.next else {
                assert!(!page.is_cut);
                return (found, cuts);
            };
            assert!(page.is_cut);
            assert!(bounds.before.is_none_or(|before| next < before), "{next}");
            (bounds.before, cuts) = (Some(next), cuts + 1);
        }
    };
    let (found, cuts) = walk("/rare");
    assert_eq!(found, [11_999, 4000, 11]);
    assert!(1 < cuts, "{cuts}");
    let (found, cuts) = walk("/never");
    assert!(found.is_empty() && 1 < cuts, "{found:?} {cuts}");
}

// Ours: filters by URL and rule.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_url_and_rule() {
    let kit = many(30).await;
    let reader = kit.reader();
    let count = |url: Option<&str>, rule: Option<&str>| {
        let filter = DecisionFilter {
            url: url.map(|url| url.parse().unwrap()),
            rule: rule.map(|rule| rule.parse::<RulePattern>().unwrap()),
            ..DecisionFilter::default()
        };
        reader.list(&filter, 0).unwrap().len()
    };
    assert_eq!(count(Some("http://o.test/private/x"), None), 1);
    assert_eq!(count(Some("HTTP://O.test:80/private/x10"), None), 1);
    assert_eq!(count(Some("http://o.test/private/*"), None), 4);
    assert_eq!(count(Some("http://o.test/priv"), None), 0);
    assert_eq!(count(Some("http://o.t*"), None), 30);
    assert_eq!(count(Some("http://o.te/*"), None), 0);
    // Longer than the patterns that SQLite supports.
    let long = format!("http://o.test/{}", "*".repeat(60_000));
    kit.sql(&format!(
        "UPDATE decision SET path = '{}' WHERE seq = 20",
        &long["http://o.test".len()..]
    ));
    for text in [long.clone() + "*", long[..50_100].to_owned() + "*"] {
        assert_eq!(count(Some(&text), None), 1);
    }
    let exact = DecisionFilter {
        url: Some(UrlPattern::exact(&long.parse().unwrap())),
        ..DecisionFilter::default()
    };
    assert_eq!(reader.count(&exact).unwrap(), 1);
    assert_eq!(count(None, Some("disallow:/private")), 4);
    assert_eq!(count(None, Some("/private")), 4);
    assert_eq!(count(None, Some("/priv")), 0);
    assert_eq!(count(None, Some("Allow: /private")), 0);
    assert_eq!(count(Some("http://o.test/a*"), Some("/private")), 0);
}

// Ours: a page can start after a key that is not valid UTF-8.
#[tokio::test(flavor = "multi_thread")]
async fn tables_with_text_keys_are_read_to_their_end() {
    let kit = many(2).await;
    kit.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
         INSERT INTO back_off (host, until_us, incidents, since_us, digest)
         SELECT CAST(CASE i % 3 WHEN 0 THEN x'ff' ELSE '' END || i AS TEXT), 0, 1, 0, x''
         FROM n UNION ALL SELECT '', 0, 1, 0, x'';",
    );
    let sums = verify::verify(&kit.reader(), &DecisionFilter::default(), |_| {}).unwrap();
    assert_eq!(sums.back_offs, 1501);
}
