//! The reports page: reports and bundles made from the record, for download. Every
//! test here is ours.

use serde_json::json;
use tempfile::TempDir;

use crate::dashboard::Browser;
use crate::kit::client::Reply;
use crate::kit::program::run_in;
use crate::kit::proxy::Config;
use crate::kit::{assert_contains, assert_contains_each, assert_members, until};

/// A fixed period, so that two reports about it are equal.
const TIMES: &str = "from=2026-01-01&until=2999-01-01";

/// Starts a proxy that seals its decisions every second, and signs in.
async fn browser() -> Browser {
    Browser::new(Config::default().set("audit.seal_interval = \"1s\"")).await
}

fn assert_file(reply: &Reply, name: &str) {
    assert_eq!(reply.status(), 200, "{}", reply.text());
    let disposition = reply.head.value("content-disposition");
    assert_eq!(disposition, format!("attachment; filename=\"{name}\""));
}

/// Removes the time at which a report was made.
fn without_time(report: &str) -> String {
    let (before, rest) = report.split_once(" on 20").unwrap();
    let (_, after) = rest.split_once(" from ").unwrap();
    format!("{before}{after}")
}

#[tokio::test]
async fn a_downloaded_report_equals_that_of_the_command_line() {
    let browser = browser().await;
    let place = browser.proxy.place();
    let times = ["--from", "2026-01-01", "--until", "2999-01-01"];
    let (host, address) = (["--host", "o.test"], ["--host", "::1"]);
    let site = ["--for-site", "o.test"];
    for (path, arguments, name) in [
        ("report?host=", &[][..], "report.html"),
        ("report?host=O.test.", &host, "report-o.test.html"),
        ("site?host=o.test", &site, "site-o.test.html"),
        ("report?host=[::1]", &address, "report----1-.html"),
    ] {
        // Retry if a new head was sealed between the two reports.
        until("the same report", async || {
            let reply = browser.get(&format!("/reports/{path}&{TIMES}")).await;
            assert_file(&reply, name);
            let command = [&["audit", "report"][..], &times, arguments].concat();
            let page = place.run(&command).await.stdout;
            (without_time(&reply.text()) == without_time(&page)).then_some(())
        })
        .await;
    }
    let json = browser.json(&format!("/api/v1/report?{TIMES}")).await;
    let expected = json!({"requests": 4, "refused": 3, "mismatches": 0, "verified": 4});
    assert_members(&json, &expected);
    let command = [&["audit", "report", "--digest"][..], &times].concat();
    let digest = place.run(&command).await.stdout;
    assert_eq!(json["sha256"].as_str(), Some(digest.trim()));
}

#[tokio::test]
async fn a_downloaded_bundle_verifies_with_its_key() {
    let browser = browser().await;
    let path = format!("/reports/bundle?host=o.test&{TIMES}");
    let bundle = until("head", async || {
        let reply = browser.get(&path).await;
        if reply.status() == 200 {
            return Some(reply);
        }
        // Until a head is sealed, the page says so and keeps the form.
        assert_eq!(reply.status(), 422, "{}", reply.text());
        assert!(reply.text().contains("sealed yet") || reply.text().contains("no head"));
        assert!(reply.text().contains("value=\"o.test\""));
        None
    })
    .await;
    assert_file(&bundle, "bundle-o.test.jsonl.gz");
    let key = browser.proxy.place().run(&["audit", "key"]).await.stdout;
    let path = format!("/api/v1/bundle?host=o.test&{TIMES}");
    let api = browser.get(&path).await;
    let elsewhere = TempDir::new().unwrap();
    let verify = ["audit", "verify", "b.jsonl.gz", "--key", key.trim_end()];
    for reply in [&bundle, &api] {
        std::fs::write(elsewhere.path().join("b.jsonl.gz"), &reply.body).unwrap();
        let proved = run_in(elsewhere.path(), &verify).await.assert_code(0);
        assert_contains(&proved.stdout, "4 decisions");
    }
}

#[tokio::test]
async fn an_invalid_report_request_is_explained_beside_the_form() {
    let browser = browser().await;
    for (path, status, wanted) in [
        ("/reports/report?from=yesterday", 400, "a time is wanted"),
        ("/reports/report?host=%3Cscript%3E", 400, "host: "),
        (
            "/reports/site?from=24h",
            400,
            "the owner of a site needs one",
        ),
        ("/reports/bundle?crawler=FooBot", 400, "only the conditions"),
        ("/reports/bundle?host=never.test", 422, "sealed yet"),
    ] {
        let reply = browser.get(path).await;
        assert_eq!(reply.status(), status, "{path}");
        let page = reply.text();
        assert_contains_each(&page, &["role=\"alert\"", "<form"]);
        let is_explained = page.contains(wanted) || page.contains("has no head");
        assert!(is_explained, "{path}: {page}");
        assert!(!page.contains("<script>"), "{page}");
    }
    let api = browser.get("/api/v1/report?verdict=allow").await;
    assert_eq!(api.status(), 400);
    assert!(api.text().ends_with("from, until and host\n"));
}

#[tokio::test]
async fn only_one_report_is_made_at_a_time() {
    let browser = browser().await;
    let ask = || browser.get("/reports/report");
    let busy = until("two at once", async || {
        let replies: [Reply; 4] = tokio::join!(ask(), ask(), ask(), ask()).into();
        replies.into_iter().find(|reply| reply.status() == 503)
    })
    .await;
    assert_eq!(busy.head.value("retry-after"), "10");
    assert_contains(&busy.text(), "another report is being made");
    // Afterwards the next report can be made.
    until("a further report", async || {
        (ask().await.status() == 200).then_some(())
    })
    .await;
}
