//! `audit verify`: decides every row again from the stored evidence and finds changed
//! rows (ARCHITECTURE.md, invariant 2).

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, politesse};
use crate::kit::proxy::{Place, resolve};

/// Returns the folder of a stopped proxy whose requests met a rule, no rule, an egress
/// refusal, a missing robots.txt and an unreachable one.
async fn crawled() -> Place {
    let first = Script::robots("User-agent: *\nDisallow: /private\n")
        .start()
        .await;
    let second = Script::robots_page(Page::status(404)).start().await;
    let third = Script::robots_page(Page::status(500)).start().await;
    let config = resolve("o.test", first.address())
        .resolve("p.test", second.address())
        .resolve("q.test", third.address());
    let proxy = config.start().await;
    for url in [
        "http://o.test/private",
        "http://o.test/a/../private",
        "http://o.test/open",
        "http://p.test/x",
        "http://q.test/x",
        "http://127.0.0.2/",
    ] {
        get_as(&proxy, "ExampleBot/1.0", url).await;
    }
    get(&proxy, "http://o.test/robots.txt").await;
    proxy.stop().await
}

async fn verify(place: &Place) -> Outcome {
    place.run(&["audit", "verify"]).await
}

/// Changes the record with SQL, as a user with write access to its file could.
fn change(place: &Place, sql: &str) {
    assert!(place.database().execute(sql, []).unwrap() > 0, "{sql}");
}

// Ours.
#[tokio::test]
async fn an_unchanged_record_verifies() {
    let place = crawled().await;
    let outcome = verify(&place).await.assert_code(0);
    assert!(
        outcome
            .stdout
            .contains("6 decided again, 1 checked for form, 0 mismatches"),
        "{}",
        outcome.stdout
    );
}

// Invariant 2 (ARCHITECTURE.md): rows decided with another level of readings, such as
// those of earlier versions, are decided again with that level.
#[tokio::test]
async fn rows_are_decided_again_with_the_readings_of_their_policy() {
    let origin = Script::robots("User-agent: *\nDisallow: /private\n")
        .start()
        .await;
    let levels = [("sent", 200), ("dots", 200), ("server", 403)];
    let config = |level: &str| {
        resolve("o.test", origin.address()).set(&format!("robots.readings = \"{level}\""))
    };
    let mut place = Place::with(&config("sent"));
    for (level, status) in levels {
        place.configure(&config(level));
        let proxy = place.start().await;
        for path in ["//private", "/a/..;/private"] {
            let reply = get(&proxy, &format!("http://o.test{path}")).await;
            assert_eq!(reply.status(), status, "{path} by {level}");
        }
        place = proxy.stop().await;
    }
    let policies: i64 = place
        .database()
        .query_row("SELECT count(*) FROM policy", (), |row| row.get(0))
        .unwrap();
    assert_eq!(policies, 3);
    let outcome = verify(&place).await.assert_code(0);
    assert!(outcome.stdout.contains("6 decided again"), "{outcome:?}");
}

// Ours: the finding names the row's number.
#[tokio::test]
async fn verify_finds_a_changed_verdict_by_its_number() {
    let place = crawled().await;
    let columns = "'allow', reason, effect, line, rule, groups, crawler, denials";
    place.refer_to_copy(1, "ruling", columns);
    let outcome = verify(&place).await.assert_code(1);
    assert!(
        outcome.stdout.lines().any(|line| line.starts_with("3: ")),
        "{}",
        outcome.stdout
    );
}

// Ours: the exit code does not depend on a reader that closes the pipe early.
#[tokio::test]
async fn the_exit_code_of_verify_holds_if_the_output_is_not_read() {
    let place = crawled().await;
    for (is_changed, code) in [(false, 0), (true, 1)] {
        if is_changed {
            let columns = "'allow', reason, effect, line, rule, groups, crawler, denials";
            place.refer_to_copy(1, "ruling", columns);
        }
        for form in [&[][..], &["--json"]] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = politesse(place.folder());
            command.args([&["audit", "verify"], form].concat());
            let status = command.stdout(writer).status().await.unwrap();
            assert_eq!(status.code(), Some(code));
        }
    }
}

// Ours: a change to any evidence of a verdict is found.
#[tokio::test]
async fn verify_finds_changed_evidence() {
    for sql in [
        "UPDATE ruling SET verdict = 'disallow' WHERE reason = 'no_rule'",
        "UPDATE decision SET path = '/open' WHERE seq = 3",
        "UPDATE ruling SET rule = 'Disallow: /' WHERE rule IS NOT NULL",
        "UPDATE ruling SET reason = 'no_rule' WHERE reason = 'rule'",
        "UPDATE ruling SET line = 7 WHERE line IS NOT NULL",
        "UPDATE decision SET ruling = (SELECT id FROM ruling WHERE reason = 'no_rule') WHERE seq = 3",
        "UPDATE ending SET status = 200 WHERE decision = 3",
        "UPDATE snapshot SET status = 200 WHERE status = 404",
        "UPDATE body SET body = x'00'",
        "UPDATE policy SET json = replace(json, '{', '{ ')",
    ] {
        let place = crawled().await;
        change(&place, sql);
        verify(&place).await.assert_code(1);
    }
}

// Ours: removed rows are counted.
#[tokio::test]
async fn verify_counts_missing_rows() {
    let place = crawled().await;
    let second = place.number(2);
    change(
        &place,
        &format!("DELETE FROM decision WHERE seq = {second}"),
    );
    let outcome = verify(&place).await;
    assert!(outcome.stdout.contains("1 missing"), "{}", outcome.stdout);
    assert_eq!(outcome.code, Some(1));
}

// Ours: `verify` works while the proxy runs.
#[tokio::test]
async fn a_record_in_use_can_be_verified() {
    let proxy = crawled().await.start().await;
    verify(proxy.place()).await.assert_code(0);
}

// Ours: a row that no version writes does not hide the others.
#[tokio::test]
async fn a_row_that_is_not_utf8_is_found_and_hides_no_other() {
    let place = crawled().await;
    let before = place.rows().await.len();
    place.refer_to_copy(1, "crawler", "candidates, CAST(x'ff' AS TEXT), label");
    let outcome = verify(&place).await.assert_code(1);
    assert!(outcome.stdout.starts_with("crawler 9999: "), "{outcome:?}");
    assert!(outcome.stdout.contains("\n3: "), "{outcome:?}");
    assert_eq!(place.rows().await.len(), before);
}

// Ours: the commit assigns the number, so a crash skips none.
#[tokio::test]
async fn a_crash_skips_no_number() {
    let script = Script::robots("User-agent: *\nDisallow: /private\n");
    let (_origin, mut proxy) = site(script, &[]).await;
    for _ in 0..3 {
        let refused = get(&proxy, "http://o.test/private").await.json();
        let told = refused["decision"].as_str().unwrap().to_owned();
        proxy = proxy.kill().await.start().await;
        proxy.place().run_ok(&["audit", "show", &told]).await;
        let outcome = verify(proxy.place()).await.assert_code(0);
        assert!(outcome.stdout.contains("0 missing"), "{outcome:?}");
        assert!(!outcome.stdout.contains("numbers skipped"), "{outcome:?}");
    }
}
