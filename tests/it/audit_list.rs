//! `audit list`: filters, output, and the memory that a long list takes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::audit_stats::recorded;
use crate::kit::assert_contains;
use crate::kit::program::politesse;
use crate::kit::proxy::{Place, memory_kib};

// Ours: filters; docs/asking.md.
#[tokio::test]
async fn rows_are_found_by_url_rule_crawler_and_time() {
    let (_origin, place) = recorded().await;
    for (filter, count) in [
        ("--url http://o.test/a", 1),
        ("--url HTTP://O.test:80/*", 4),
        ("--url http://*", 5),
        ("--host o.test", 4),
        ("--host o.test --verdict allow", 2),
        ("--host p.test --from 90s --verdict allow", 1),
        ("--verdict disallow", 2),
        ("--verdict later", 0),
        ("--reason no_rule", 3),
        ("--effect enforced --reason rule", 2),
        ("--rule 'Disallow: /private'", 2),
        ("--rule /private", 2),
        ("--rule /priv", 0),
        ("--crawler foobot", 3),
        ("--from 1h", 5),
        ("--until 1h", 0),
        ("--from 2020-01-01", 5),
        ("--until 2020-01-01", 0),
        ("--until 2020-01-01T00:00:00Z", 0),
        ("--from 2020-01-01 --until 2020-01-02T10:00", 0),
        ("--limit 1", 1),
    ] {
        let rows = place.audit(&format!("list --json {filter}")).await;
        assert_eq!(rows.json_lines().len(), count, "{filter}");
    }
}

// Ours: an empty list reports `0 rows`, and a limited list says how to show all.
#[tokio::test]
async fn an_empty_list_and_a_cut_list_say_so() {
    let (_origin, place) = recorded().await;
    let none = "list --host q.test";
    assert_eq!(place.audit(none).await.stdout, "0 rows\n");
    let none = place.audit(&format!("{none} --json")).await;
    assert_eq!(none.stdout, "");
    assert_contains(&none.stderr, "0 rows");
    let cut = place.audit("list --limit 3 --json").await;
    assert_eq!(cut.json_lines().len(), 3);
    assert_contains(&cut.stderr, "--limit 0");
    let whole = place.audit("list --limit 5").await;
    assert_eq!(whole.stderr, "");
}

// Ours: a malformed filter, which could never match, is an error.
#[tokio::test]
async fn a_malformed_filter_exits_with_2_and_shows_the_right_form() {
    let (_origin, place) = recorded().await;
    for (filter, told) in [
        ("--host https://o.test", "--url 'https://o.test/*'"),
        ("--host *.test", "patterns are not taken"),
        ("--host o.test:8080", "without a port"),
        ("--url o.test/a", "https://site.example/a"),
        ("--url ftp://o.test/a", "http and https"),
        ("--from yesterday", "1h"),
        ("--rule private", "Disallow: /private"),
        ("--reason because", "unreachable"),
        ("--from 1h --until 2h", "is not after --from"),
    ] {
        for command in ["list", "verify"] {
            let outcome = place.audit_code(2, &format!("{command} {filter}")).await;
            assert_eq!(outcome.stdout, "", "{filter}");
            assert!(outcome.stderr.contains(told), "{filter}: {outcome:?}");
        }
    }
    place.audit_code(2, "events --host https://o.test").await;
}

/// Replaces all rows by `count` copies of the first, a second apart.
fn multiply(place: &Place, count: u32) {
    let sql = format!(
        "CREATE TEMP TABLE one AS SELECT * FROM decision ORDER BY seq LIMIT 1;
         CREATE TEMP TABLE its_end AS SELECT * FROM ending ORDER BY decision LIMIT 1;
         DELETE FROM decision; DELETE FROM ending;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO decision (seq, time_us, client, crawler, method, origin, path, ruling,
           wait_ms, policy, snapshot, salt, leaf)
         SELECT i, time_us + i * 1000000, client, crawler, method, origin, '/' || i, ruling,
           wait_ms, policy, snapshot, salt, leaf
         FROM n JOIN one;
         INSERT INTO ending SELECT d.seq, d.seq + {count}, 200, sent, directives, bytes, error, e.leaf
         FROM decision AS d JOIN its_end AS e;
         UPDATE sequence SET last = 2 * {count} + (SELECT count(*) FROM event);"
    );
    place.database().execute_batch(&sql).unwrap();
}

// Ours: memory does not depend on the length of the record.
#[tokio::test]
async fn listing_fifty_thousand_rows_takes_the_memory_of_five_thousand() {
    let (_origin, place) = recorded().await;
    multiply(&place, 50_000);
    for form in [&["--json"][..], &[], &["--json", "--from", "2020-01-01"]] {
        let mut command = politesse(place.folder()).into_std();
        let arguments = ["audit", "list", "--limit", "0"];
        command.args(arguments).args(form).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The pipe cannot hold the remaining rows, so the process is still running.
        lines.nth(5_000).unwrap().unwrap();
        let early = memory_kib(child.id(), "VmHWM");
        lines.nth(40_000).unwrap().unwrap();
        let late = memory_kib(child.id(), "VmHWM");
        let growth = late - early;
        assert!(growth < 4096, "{form:?}: {early} KiB and {growth} KiB");
        assert!(lines.count() > 4_000);
        assert!(child.wait().unwrap().success());
    }
}
