//! `audit verify`: decides every row again from the stored evidence and finds changed
//! rows (ARCHITECTURE.md, invariant 2).

use crate::kit::assert_contains;
use crate::kit::client::{assert_statuses, get};
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::politesse;
use crate::kit::proxy::{Place, resolve};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Returns the folder of a stopped proxy whose requests met a rule, no rule, an egress
/// refusal, a missing robots.txt and an unreachable one.
async fn crawled() -> Place {
    let first = Script::robots(ROBOTS).start().await;
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
        "http://o.test/robots.txt",
    ] {
        get(&proxy, url).await;
    }
    proxy.stop().await
}

/// Verifies the record, asserts the exit code, and returns the report.
async fn verify(place: &Place, code: i32) -> String {
    place.run_code(code, &["audit", "verify"]).await.stdout
}

/// Changes the verdict of the first decision.
fn forge_verdict(place: &Place) {
    let columns = "'allow', reason, effect, line, rule, groups, crawler, denials";
    place.refer_to_copy(1, "ruling", columns);
}

// Ours: a finding names the row's number, and removed rows are counted.
#[tokio::test]
async fn verify_finds_changed_and_missing_rows() {
    let place = crawled().await;
    let decided = "6 decided again, 1 checked for form, 0 mismatches";
    assert_contains(&verify(&place, 0).await, decided);
    let changed = place.copied();
    forge_verdict(&changed);
    let report = verify(&changed, 1).await;
    let mut lines = report.lines();
    assert!(lines.any(|line| line.starts_with("3: ")), "{report}");
    let delete = format!("DELETE FROM decision WHERE seq = {}", place.number(2));
    assert_eq!(place.database().execute(&delete, []), Ok(1));
    assert_contains(&verify(&place, 1).await, "1 missing");
}

// Invariant 2 (ARCHITECTURE.md): rows decided with another level of readings, such as
// those of earlier versions, are decided again with that level.
#[tokio::test]
async fn rows_are_decided_again_with_the_readings_of_their_policy() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let mut place = proxy.stop().await;
    for (level, status) in [("sent", 200), ("dots", 200), ("server", 403)] {
        let readings = format!("robots.readings = \"{level}\"");
        place.configure(&resolve("o.test", origin.address()).set(&readings));
        let proxy = place.start().await;
        let expected = [
            ("http://o.test//private", status),
            ("http://o.test/a/..;/private", status),
        ];
        assert_statuses(&proxy, &expected).await;
        place = proxy.stop().await;
    }
    let count = "SELECT count(DISTINCT policy) FROM decision";
    let policies = place.database().query_row(count, (), |row| row.get(0));
    assert_eq!(policies, Ok(3));
    assert_contains(&verify(&place, 0).await, "6 decided again");
}

// Ours: the exit code does not depend on a reader that closes the pipe early.
#[tokio::test]
async fn the_exit_code_of_verify_holds_if_the_output_is_not_read() {
    let place = crawled().await;
    for (is_changed, code) in [(false, 0), (true, 1)] {
        if is_changed {
            forge_verdict(&place);
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

// Ours: a row that no version writes does not hide the others.
#[tokio::test]
async fn a_row_that_is_not_utf8_is_found_and_hides_no_other() {
    let place = crawled().await;
    let before = place.rows().await.len();
    place.refer_to_copy(1, "crawler", "candidates, CAST(x'ff' AS TEXT), label");
    let report = verify(&place, 1).await;
    assert!(report.starts_with("crawler 9999: "), "{report}");
    assert_contains(&report, "\n3: ");
    assert_eq!(place.rows().await.len(), before);
}

// Ours: the commit assigns the number, so a crash skips none. `verify` works while the
// proxy runs.
#[tokio::test]
async fn a_crash_skips_no_number() {
    let (_origin, mut proxy) = site(Script::robots(ROBOTS), &[]).await;
    for _ in 0..3 {
        let refused = get(&proxy, "http://o.test/private").await.json();
        let told = refused["decision"].as_str().unwrap().to_owned();
        proxy = proxy.kill().await.start().await;
        proxy.place().run_ok(&["audit", "show", &told]).await;
        let report = verify(proxy.place(), 0).await;
        assert_contains(&report, "0 missing");
        assert!(!report.contains("numbers skipped"), "{report}");
    }
}
