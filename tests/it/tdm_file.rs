//! TDM files (`/.well-known/tdmrep.json`): fetched if they could deny a purpose of the
//! crawler, cached, applied and recorded. TDMRep (W3C Community Group Final Report of
//! 10 May 2024); docs/preferences.md.

use std::sync::Arc;

use serde_json::json;
use tokio::process::Command;

use crate::kit::checkout::root;
use crate::kit::client::assert_metric;
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::at_once;
use crate::kit::page::{Gate, Page};
use crate::kit::program::finish;
use crate::kit::proxy::{Config, resolve};
use crate::kit::{assert_contains, assert_members, run};
use crate::withheld::{CRAWLERS, ask};

const PATH: &str = "/.well-known/tdmrep.json";

/// TDM file that reserves `/a`, but not `/a/free`.
const FILE: &str = r#"[{"location": "/a/free", "tdm-reservation": 0},
                       {"location": "/a", "tdm-reservation": 1}]"#;

fn config(origin: &Origin, enforce: &str) -> Config {
    resolve("o.test", origin.address())
        .set(CRAWLERS)
        .set(&format!("preferences.enforce = \"{enforce}\""))
}

/// Starts an origin that serves `page` as its TDM file.
async fn origin_with(page: Page) -> Origin {
    Script::robots("").page(PATH, page).start().await
}

/// Returns how often the origin was asked for its TDM file.
fn fetches(origin: &Origin) -> usize {
    let targets = origin.targets();
    targets.iter().filter(|target| *target == PATH).count()
}

#[tokio::test]
async fn a_reserved_page_is_refused_before_its_origin_is_asked() {
    let origin = origin_with(Page::text(FILE)).await;
    let proxy = config(&origin, "refuse").start().await;
    for (agent, path, status) in [
        ("TrainBot/1", "/a/1", 403),
        ("TrainBot/1", "/a/free", 200),
        ("TrainBot/1", "/b", 200),
        // Only one of BothBot's two purposes is denied.
        ("BothBot/1", "/a/2", 200),
        ("AnyBot/1", "/a/3", 200),
        // Only robots.txt decides about the file itself.
        ("TrainBot/1", PATH, 200),
    ] {
        let got = ask(&proxy, agent, path).await.status();
        assert_eq!(got, status, "{agent} {path}");
    }
    let body = ask(&proxy, "TrainBot/1", "/a/1").await.json();
    assert_eq!(body["reason"], "preference");
    let rule = "tdm-reservation=1 for /a (tdmrep.json)";
    let expected = json!({"line": null, "text": rule});
    assert_members(&body["rule"], &expected);
    let why = ["audit", "why", "http://o.test/a/1"];
    let why = proxy.place().run(&why).await.stdout;
    assert_contains(&why, rule);
    let denied = "denied       train-ai (tdm-reservation=1, tdmrep.json)";
    assert_contains(&why, denied);
    assert!(!origin.targets().contains(&"/a/1".to_owned()));
    // One fetch for each of two crawlers, and the request for the file itself.
    assert_eq!(fetches(&origin), 3);
    proxy.place().assert_verified().await;
}

// Invariants 1 and 3 (ARCHITECTURE.md): the fetch of the file is a request like others.
#[tokio::test]
async fn the_fetch_of_the_file_has_its_own_row_in_the_crawlers_name() {
    let origin = origin_with(Page::typed("application/json", FILE.as_bytes())).await;
    let proxy = config(&origin, "refuse").start().await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/a/1").await.status(), 403);
    let rows = proxy.place().completed(2).await;
    let expected = json!({
        "url": format!("http://o.test{PATH}"), "crawler": "TrainBot", "verdict": "allow",
        "status": 200, "bytes": FILE.len(),
    });
    assert_members(&rows[0], &expected);
    assert_eq!(rows[1]["reason"], "preference");
    assert_eq!(rows[1]["robots"]["tdm"]["result"]["file"], FILE);
    let seen = origin.arrival(PATH).await;
    assert_eq!(seen.values("user-agent"), ["TrainBot/1"]);
    let place = proxy.stop().await;
    place.assert_verified().await;
    place.audit("bundle -o b.jsonl.gz").await;
    // Code 3: the signer is unknown without a key.
    let verified = place.audit_code(3, "verify b.jsonl.gz").await;
    assert_contains(&verified.stdout, "0 mismatches");
    let mut python = Command::new("python3");
    python.arg(root().join("docs/verify_bundle.py"));
    python.arg(place.path("b.jsonl.gz"));
    finish(python, b"").await.assert_code(3);
    for sql in [
        "UPDATE snapshot SET tdm = replace(tdm, '/a', '/c')",
        "UPDATE ruling SET rule = 'x' WHERE reason = 'preference'",
    ] {
        let changed = place.copied();
        assert!(0 < changed.database().execute(sql, []).unwrap(), "{sql}");
        changed.audit_code(1, "verify").await;
    }
}

/// Defines one test per row: the answer for the file and the site's robots.txt; then the
/// status of a page with `preferences.unknown` at `pass` and at `refuse`, and the number
/// of requests for the file.
macro_rules! answers {
    ($($name:ident: $page:expr, robots $robots:literal passes $pass:literal refuses $refuse:literal asked $asked:literal;)*) => {$(
        #[test]
        fn $name() {
            run(async {
                for (unknown, status) in [("pass", $pass), ("refuse", $refuse)] {
                    let origin = Script::robots($robots).page(PATH, $page).start().await;
                    let proxy = config(&origin, "refuse")
                        .set(&format!("preferences.unknown = \"{unknown}\""))
                        .start()
                        .await;
                    for path in ["/a/1", "/a/2"] {
                        let got = ask(&proxy, "TrainBot/1", path).await;
                        assert_eq!(got.status(), status, "{unknown}: {}", got.text());
                    }
                    assert_eq!(fetches(&origin), $asked);
                    proxy.place().assert_verified().await;
                }
            });
        }
    )*};
}

// docs/preferences.md: an unknown file denies nothing, unless `preferences.unknown` is
// `refuse`.
answers! {
    a_missing_file_denies_nothing: Page::status(404), robots "" passes 200 refuses 200 asked 1;
    a_410_for_the_file_denies_nothing: Page::status(410), robots "" passes 200 refuses 200 asked 1;
    a_500_for_the_file_is_unknown: Page::status(500), robots "" passes 200 refuses 403 asked 1;
    a_redirect_of_the_file_is_unknown: Page::redirect("/x"), robots "" passes 200 refuses 403 asked 1;
    an_html_page_in_place_of_the_file_is_unknown: Page::html("<p>not found"), robots "" passes 200 refuses 403 asked 1;
    an_oversized_file_is_unknown: Page::text(&"[".repeat(70_000)), robots "" passes 200 refuses 403 asked 1;
    a_disallowed_file_is_unknown_and_not_fetched: Page::text(FILE), robots "User-agent: *\nDisallow: /.well-known\n" passes 200 refuses 403 asked 0;
    a_file_with_another_media_type_is_read: Page::text(FILE), robots "" passes 403 refuses 403 asked 1;
}

#[tokio::test]
async fn a_file_applies_without_a_robots_txt() {
    let script = Script::robots_page(Page::status(404)).page(PATH, Page::text(FILE));
    let origin = script.start().await;
    let proxy = config(&origin, "refuse").start().await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/a/1").await.status(), 403);
    assert_eq!(ask(&proxy, "TrainBot/1", "/b").await.status(), 200);
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn simultaneous_pages_share_one_fetch_of_the_file() {
    let gate = Gate::shut();
    let origin = origin_with(Page::text(FILE).after(&gate)).await;
    let proxy = Arc::new(config(&origin, "refuse").start().await);
    let urls: Vec<_> = (0..20).map(|at| format!("http://o.test/a/{at}")).collect();
    let requests: Vec<_> = urls.iter().map(|url| ("TrainBot", &**url)).collect();
    let (replies, ()) = tokio::join!(at_once(&proxy, &requests), async {
        origin.arrival(PATH).await;
        gate.open(1);
    });
    assert!(replies.iter().all(|reply| reply.status() == 403));
    assert_eq!(origin.targets(), [PATH]);
    assert_metric(&proxy, "politesse_tdm_fetches_total{result=\"file\"} 1").await;
    assert_metric(&proxy, "politesse_tdm_files 1\n").await;
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn the_file_is_fetched_only_if_it_could_deny_a_purpose() {
    let origin = origin_with(Page::text(FILE)).await;
    let off = config(&origin, "off").start().await;
    assert_eq!(ask(&off, "TrainBot/1", "/a/1").await.status(), 200);
    let on = config(&origin, "refuse").start().await;
    for agent in ["FindBot/1", "AnyBot/1"] {
        assert_eq!(ask(&on, agent, "/a/1").await.status(), 200);
    }
    assert_eq!(ask(&on, "TrainBot/1", "/robots.txt").await.status(), 200);
    assert_eq!(fetches(&origin), 0);
}

#[tokio::test]
async fn report_mode_forwards_a_reserved_page() {
    let origin = origin_with(Page::text(FILE)).await;
    let proxy = config(&origin, "report").start().await;
    let forwarded = ask(&proxy, "TrainBot/1", "/a/1").await;
    assert_eq!(forwarded.status(), 200);
    assert_contains(forwarded.head.value("proxy-status"), "tdmrep.json");
    let rows = proxy.place().completed(2).await;
    assert_eq!(rows[1]["effect"], "reported");
    let stated = rows[1]["directives"]["value"].as_str().unwrap();
    assert_contains(stated, "tdm-reservation;value=1;src=f");
    proxy.place().assert_verified().await;
}

// docs/pace.md: the pace also applies between the file and the page.
#[tokio::test]
async fn the_fetch_of_the_file_takes_a_turn() {
    let origin = origin_with(Page::status(404)).await;
    let paced = config(&origin, "refuse").set("pace.origin = { rate = \"1/s\" }");
    let proxy = paced.start().await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/a").await.status(), 200);
    let (file, page) = (origin.arrival(PATH).await, origin.arrival("/a").await);
    assert!(page.at.duration_since(file.at).as_millis() >= 900);
}
