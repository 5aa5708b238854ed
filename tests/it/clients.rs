//! Real crawlers, unchanged, through the proxy (issue, Must hold 6). `tests/run`
//! installs the ones that are Python packages.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::kit::client::curl;
use crate::kit::origin::{Origin, Script};
use crate::kit::page::{Length, Page};
use crate::kit::program::{Outcome, finish};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::site::{DISALLOWED, OPEN, is_disallowed, site};
use crate::kit::{run, stream_digest};

/// The Python that has the clients' packages.
fn python() -> PathBuf {
    let named = std::env::var_os("CLIENTS_PYTHON").map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = named.unwrap_or_else(|| root.join("target/venv/bin/python"));
    assert!(
        python.exists(),
        "{} is missing: tests/run installs it",
        python.display()
    );
    python
}

/// Runs a script of tests/clients with nothing but the usual environment to
/// tell it of the proxy.
async fn script(proxy: &Proxy, name: &str, arguments: &[&str]) -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = tokio::process::Command::new(python());
    command
        .arg(root.join("tests/clients").join(name))
        .args(arguments);
    command
        .current_dir(proxy.place().folder())
        .kill_on_drop(true);
    for name in ["no_proxy", "NO_PROXY"] {
        command.env_remove(name);
    }
    for name in ["http_proxy", "https_proxy"] {
        command.env(name, format!("http://{}", proxy.address()));
    }
    for name in ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"] {
        command.env(name, proxy.place().path("certs/ca.pem"));
    }
    finish(command, b"").await
}

async fn start(origin: &Origin) -> Proxy {
    resolve("o.test", origin.address()).start().await
}

/// Crawls the site from its first page, and holds that all that may be had was
/// had and nothing else was asked for.
async fn crawl(origin: Origin, url: &str) {
    let proxy = start(&origin).await;
    let outcome = script(&proxy, "crawl.py", &[url]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let statuses: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(
        (&statuses["200"], &statuses["403"]),
        (&(OPEN + 1).into(), &DISALLOWED.into()),
        "{outcome:?}"
    );
    let targets = origin.targets();
    assert_eq!(targets.iter().find(|target| is_disallowed(target)), None);
    assert_eq!((targets.len(), origin.robots_fetches()), (OPEN + 1, 1));
    let rows = proxy.place().completed(OPEN + 1 + DISALLOWED).await;
    let refused = rows.iter().filter(|row| row["verdict"] == "disallow");
    assert_eq!(refused.count(), DISALLOWED);
    assert_eq!(proxy.place().run(&["audit", "verify"]).await.code, Some(0));
}

#[test]
fn scrapy_over_http_fetches_nothing_disallowed() {
    run(async { crawl(site().start().await, "http://o.test/").await });
}

#[test]
fn scrapy_over_https_fetches_nothing_disallowed() {
    run(async { crawl(site().start_tls().await, "https://o.test/").await });
}

/// A page of some size, a page that says noindex, and a disallowed one.
fn three_pages() -> Script {
    Script::robots("User-agent: *\nDisallow: /private\n")
        .page("/large", Page::stream(1_000_000, Length::Chunked))
        .page(
            "/marked",
            Page::html("<meta name=robots content=noindex><body>"),
        )
}

#[test]
fn requests_gets_pages_and_refusals_it_can_read() {
    run(async {
        for (scheme, origin) in [
            ("http", three_pages().start().await),
            ("https", three_pages().start_tls().await),
        ] {
            let proxy = start(&origin).await;
            let urls =
                ["large", "marked", "private"].map(|page| format!("{scheme}://o.test/{page}"));
            let outcome = script(&proxy, "fetch.py", &urls.each_ref().map(String::as_str)).await;
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            let told = outcome.json_lines();
            assert_eq!(
                (&told[0]["status"], &told[0]["sha256"]),
                (&200.into(), &stream_digest(1_000_000).into())
            );
            assert_eq!(
                told[1]["directives"],
                "examplebot=(noindex;src=m);state=complete"
            );
            assert_eq!(
                (&told[2]["status"], &told[2]["rule"]),
                (&403.into(), &"Disallow: /private".into())
            );
            assert_eq!(origin.targets(), ["/large", "/marked"]);
        }
    });
}

#[test]
fn curl_uploads_and_reads_the_refusal_as_text() {
    run(async {
        let origin = three_pages().start_tls().await;
        let proxy = start(&origin).await;
        let file = proxy.place().path("upload");
        std::fs::write(&file, crate::kit::stream_part(0, 3_000_000)).unwrap();
        let upload = curl(&proxy, &["-T", file.to_str().unwrap(), "https://o.test/up"]).await;
        assert_eq!(upload.code, Some(0), "{upload:?}");
        assert_eq!(
            origin.whole("/up").await.body,
            Some((3_000_000, stream_digest(3_000_000)))
        );
        let refused = curl(
            &proxy,
            &["-H", "Accept: text/plain", "https://o.test/private"],
        )
        .await;
        assert!(
            refused
                .stdout
                .contains("Line 2 of https://o.test/robots.txt"),
            "{refused:?}"
        );
        assert_eq!(origin.targets(), ["/up"]);
    });
}
