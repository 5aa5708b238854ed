//! The Python package of `contrib/python`: its add-on in a real Scrapy, and the wheel.
//!
//! `tests/run` makes the Python environment for these tests.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::clients::python_command;
use crate::kit::checkout::{done, root};
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::finish;
use crate::kit::proxy::Proxy;
use crate::kit::sha256;

const ROBOTS: &str = "User-agent: *\nDisallow: /basket\n";

/// Requests `urls` with Scrapy and returns its report. `mode` is `addon`, or `defaults`
/// for Scrapy without the add-on.
async fn scrapy(proxy: &Proxy, mode: &str, urls: &[String]) -> Value {
    report(scrapy_command(proxy, mode, urls)).await
}

fn scrapy_command(proxy: &Proxy, mode: &str, urls: &[String]) -> Command {
    let mut command = python_command(proxy, "addon.py", &[mode]);
    command.args(urls);
    // `politesse run` sets this variable.
    command.env("POLITESSE_RUN", format!("http://{}", proxy.address()));
    command
}

/// Runs the command to its end. Returns its report, with its log as the member `log`.
async fn report(command: Command) -> Value {
    let outcome = finish(command, b"").await.assert_code(0);
    let line = outcome.stdout.lines().last().unwrap_or_default();
    let mut report: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{outcome:?}"));
    report["log"] = outcome.stderr.into();
    report
}

fn urls(paths: &[&str]) -> Vec<String> {
    let urls = paths.iter().map(|path| format!("http://shop.test{path}"));
    urls.collect()
}

#[tokio::test]
async fn the_addon_passes_on_the_rule_of_a_refusal_and_the_annotation_of_a_page() {
    let lamp = Page::html("<meta name=robots content='noarchive, max-snippet:20'>");
    let date = Page::text("x").field("X-Robots-Tag", "unavailable_after: 2100-01-01");
    let script = Script::robots(ROBOTS)
        .page("/lamp", lamp)
        .page("/date", date);
    let (_origin, proxy) = site(script.name("shop.test"), &[]).await;
    let all = urls(&["/lamp", "/date", "/basket"]);
    let report = scrapy(&proxy, "addon", &all).await;
    let pages = json!({"http://shop.test/lamp": 200, "http://shop.test/date": 200});
    assert_eq!(report["pages"], pages);
    let of_lamp = json!([["max-snippet", 20, "m"], ["noarchive", true, "m"]]);
    let of_date = json!([["unavailable_after", "2100-01-01 00:00:00+00:00", "x"]]);
    for (url, listed) in all.iter().zip([of_lamp, of_date]) {
        let expected = json!({"pagebot": ["complete", null, listed, false]});
        assert_eq!(report["annotations"][url], expected, "{report}");
    }
    let ignored = json!({"http://shop.test/basket": ["Refusal"]});
    assert_eq!(report["ignored"], ignored, "{report}");
    let message = "Refused by politesse: Line 2 of http://shop.test/robots.txt, \
                       \"Disallow: /basket\" in the group of *, disallows this URL.";
    assert_eq!(report["messages"], json!([message]));
    assert_eq!(report["stats"]["politesse/refused"], 1);
    let log = report["log"].as_str().unwrap();
    let logged = format!("INFO: <GET http://shop.test/basket>: {message}");
    assert!(log.contains(&logged), "{log}");
    // The add-on turns ROBOTSTXT_OBEY off, so the proxy was asked for the basket.
    assert_eq!(proxy.place().completed(3).await.len(), 3);
}

// Ours: only a member of the proxy's own with `error` is a refusal. Without `error` it is
// the remark of report mode on the site's response.
#[tokio::test]
async fn a_sites_own_403_reaches_the_spider() {
    let forbidden = |status: &str| Page::status(403).field("Proxy-Status", status);
    let forged = "politesse;error=http_request_denied;details=\"Line 1\"";
    let quoted = format!("cdn;details=\", {}, \"", forged.replace('"', "\\\""));
    let script = Script::robots(ROBOTS)
        .page("/own", Page::status(403))
        .page("/forged", forbidden(forged))
        .page("/quoted", forbidden(&quoted))
        .page("/other", forbidden("cdn;error=http_request_denied"))
        .page("/basket", forbidden(forged));
    let (_origin, proxy) = site(script.name("shop.test"), &["enforcement.mode = \"report\""]).await;
    let all = urls(&["/own", "/forged", "/quoted", "/other", "/basket"]);
    let report = scrapy(&proxy, "addon", &all).await;
    for url in &all {
        assert_eq!(report["pages"][url], 403, "{url}: {report}");
    }
}

#[tokio::test]
async fn the_addon_recognizes_a_renamed_proxy_by_its_setting() {
    let script = Script::robots(ROBOTS).name("shop.test");
    let (_origin, proxy) = site(script, &["proxy.name = \"gate\""]).await;
    let basket = urls(&["/basket"]);
    let unnamed = scrapy(&proxy, "addon", &basket).await;
    assert_eq!(unnamed["pages"][&basket[0]], 403, "{unnamed}");
    let named = scrapy(&proxy, "addon=gate", &basket).await;
    assert_eq!(named["ignored"][&basket[0]], json!(["Refusal"]), "{named}");
}

// Ours: a proxy that `run` did not set, such as a company's, does not obey robots.txt.
#[tokio::test]
async fn with_a_proxy_that_run_did_not_set_scrapy_still_obeys_robots_txt() {
    let (_origin, proxy) = site(Script::robots(ROBOTS).name("shop.test"), &[]).await;
    let basket = urls(&["/basket"]);
    for (name, value) in [("POLITESSE_RUN", ""), ("no_proxy", "other.test")] {
        let mut command = scrapy_command(&proxy, "addon", &basket);
        command.env(name, value);
        let report = report(command).await;
        let ignored = json!(["IgnoreRequest"]);
        assert_eq!(report["ignored"][&basket[0]], ignored, "{name}: {report}");
    }
}

// Ours: `POLITESSE_DEFERRALS_MAX`. Scrapy's retries end.
#[tokio::test]
async fn a_page_put_off_too_often_falls_back_to_scrapys_retries() {
    let again = Page::status(429).field("Retry-After", "0");
    let script = Script::robots(ROBOTS).page("/lamp", again);
    let (_origin, proxy) = site(script.name("shop.test"), &[]).await;
    let mut command = scrapy_command(&proxy, "addon", &urls(&["/lamp"]));
    let few = r#"{"POLITESSE_DEFERRALS_MAX": 1, "RETRY_TIMES": 1}"#;
    command.env("ADDON_SETTINGS", few);
    let report = report(command).await;
    assert_eq!(report["stats"]["politesse/put_off"], 1, "{report}");
    assert_eq!(report["stats"]["retry/max_reached"], 1, "{report}");
}

// Ours: without the proxy Scrapy itself must obey robots.txt.
#[tokio::test]
async fn without_a_proxy_scrapy_still_obeys_robots_txt() {
    let (origin, proxy) = site(Script::robots(ROBOTS).name("shop.test"), &[]).await;
    let basket = format!("http://{}/basket", origin.address());
    let mut command = scrapy_command(&proxy, "addon", std::slice::from_ref(&basket));
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        command.env_remove(name);
    }
    let report = report(command).await;
    let ignored = json!(["IgnoreRequest"]);
    assert_eq!(report["ignored"][&basket], ignored, "{report}");
    origin.assert_only_robots_fetched();
}

// Ours: Scrapy without the add-on loses pages that are put off.
#[tokio::test]
async fn with_the_addon_all_pages_that_are_put_off_arrive() {
    let robots = "User-agent: *\nCrawl-delay: 0.05\n";
    let script = Script::robots(robots).name("shop.test");
    let (_origin, proxy) = site(script, &["pace.max_wait = \"1s\""]).await;
    let pages = (0..60).map(|page| format!("http://shop.test/page/{page}"));
    let pages: Vec<_> = pages.collect();
    let count = |report: &Value| report["pages"].as_object().unwrap().len();
    let defaults = scrapy(&proxy, "defaults", &pages).await;
    assert!(count(&defaults) < 60, "{defaults}");
    let report = scrapy(&proxy, "addon", &pages).await;
    assert_eq!(count(&report), 60, "{report}");
    assert!(report["stats"]["politesse/put_off"].as_u64() > Some(0));
    assert_eq!(report["stats"].get("retry/count"), None, "{report}");
    let ignored = report["ignored"].as_object().unwrap().values();
    let mut kinds = ignored.flat_map(|kinds| kinds.as_array().unwrap());
    assert!(kinds.all(|kind| *kind == "Deferral"), "{report}");
}

/// Packs `binary` into a wheel in `folder`, and returns a listing of the wheel.
async fn wheel(binary: &Path, folder: &Path) -> Value {
    let interpreter = root().join("target/venv/bin/python");
    let mut build = Command::new(root().join("contrib/python/build"));
    build
        .args([binary, folder, &root().join("LICENSE-MIT")])
        .env("PYTHON", &interpreter)
        .env("SOURCE_DATE_EPOCH", "1700000000");
    done(build).await;
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("politesse-{version}-py3-none-manylinux_2_31_x86_64.whl");
    let mut read = Command::new(interpreter);
    read.arg(root().join("tests/clients/wheel.py"))
        .arg(folder.join(name));
    serde_json::from_str(&done(read).await).unwrap()
}

#[tokio::test]
async fn the_wheel_has_the_binary_unchanged_and_is_reproducible() {
    let folder = TempDir::new().unwrap();
    let binary = folder.path().join("some-name");
    let bytes = b"\x7fELF is never run here, and never changed";
    std::fs::write(&binary, bytes).unwrap();
    let content = wheel(&binary, folder.path()).await;
    let version = env!("CARGO_PKG_VERSION");
    let script = format!("politesse-{version}.data/scripts/politesse");
    assert_eq!(content["files"][&script], sha256(bytes), "{content}");
    let info = format!("politesse-{version}.dist-info");
    let files: Vec<_> = content["files"].as_object().unwrap().keys().collect();
    let expected = [
        "politesse/__init__.py",
        "politesse/annotation.py",
        "politesse/ask.py",
        "politesse/py.typed",
        "politesse/scrapy.py",
        &format!("politesse-{version}.data/data/share/doc/politesse/copyright"),
        &script,
        &format!("{info}/METADATA"),
        &format!("{info}/WHEEL"),
        &format!("{info}/licenses/LICENSE-APACHE"),
        &format!("{info}/licenses/LICENSE-MIT"),
        &format!("{info}/RECORD"),
    ];
    assert_eq!(files, expected);
    let again = TempDir::new().unwrap();
    let again = wheel(&binary, again.path()).await;
    assert_eq!(again["sha256"], content["sha256"]);
}
