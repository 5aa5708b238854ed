//! The record: written before a request is forwarded, and completed after it
//! ends. Kills of the process are in `record_kill.rs`.

use serde_json::json;

use crate::kit::assert_members;
use crate::kit::client::{Crawler, get, get_as};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::proxy::Config;
use crate::kit::sha256;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

// Ours: the members of a row.
#[tokio::test]
async fn a_row_names_client_request_verdict_and_reason() {
    let (_origin, proxy) = site(Script::robots(ROBOTS).page("/a", Page::text("four")), &[]).await;
    get_as(&proxy, "ExampleBot/1.0", "http://o.test/a?q").await;
    get_as(&proxy, "ExampleBot/1.0", "http://o.test/a").await;
    get_as(&proxy, "ExampleBot/1.0", "http://o.test/private").await;
    let rows = proxy.place().completed(3).await;
    let (allowed, refused) = (&rows[1], &rows[2]);
    assert_eq!(rows[0]["url"], "http://o.test/a?q");
    let expected = json!({
        "client": "127.0.0.1", "crawler": "ExampleBot", "user_agent": "ExampleBot/1.0",
        "method": "GET", "url": "http://o.test/a", "verdict": "allow", "reason": "no_rule",
        "effect": "enforced", "status": 200, "bytes": 4, "error": null,
    });
    assert_members(allowed, &expected);
    assert_eq!(allowed["robots"]["sha256"], sha256(ROBOTS.as_bytes()));
    let expected = json!({
        "verdict": "disallow", "reason": "rule", "status": 403, "line": 2,
        "rule": "Disallow: /private", "group": ["*"],
    });
    assert_members(refused, &expected);
}

// ARCHITECTURE.md, invariant 3: recorded before anything is sent to the origin.
#[tokio::test]
async fn the_row_is_written_before_the_origin_gets_the_request() {
    let gate = Gate::shut();
    let script = Script::robots("").page("/a", Page::text("x").after(&gate));
    let (origin, proxy) = site(script, &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    origin.arrival("/a").await;
    let rows = proxy.place().rows().await;
    assert_eq!(rows.len(), 1);
    assert_members(&rows[0], &json!({"verdict": "allow", "status": null}));
    gate.open(1);
    assert_eq!(crawler.reply_to("GET").await.status(), 200);
    assert_eq!(proxy.place().completed(1).await[0]["status"], 200);
}

// Ours: a row is completed even if the crawler hangs up first.
#[tokio::test]
async fn a_crawler_that_hangs_up_leaves_a_completed_row() {
    let never = Gate::shut();
    let script = Script::robots("")
        .page("/late", Page::text("x").after(&never))
        .page("/long", Page::stream(1 << 40, Length::Announced));
    let (origin, proxy) = site(script, &[]).await;
    let mut waiting = Crawler::abrupt(&proxy).await;
    waiting.start_get("http://o.test/late", "o.test").await;
    origin.arrival("/late").await;
    drop(waiting);
    let rows = proxy.place().completed(1).await;
    let expected = json!({"verdict": "allow", "error": "client_gone"});
    assert_members(&rows[0], &expected);
    let mut reading = Crawler::plain(&proxy).await;
    reading.start_get("http://o.test/long", "o.test").await;
    assert_eq!(reading.head().await.unwrap().status, 200);
    drop(reading);
    let rows = proxy.place().completed(2).await;
    assert_members(&rows[1], &json!({"status": 200, "error": "client_gone"}));
}

// RFC 9110, section 9.3.2; RFC 9112, section 6.3. Over HTTP/2 the end of a response
// without a body may be a separate frame, which no client waits for.
#[tokio::test]
async fn a_response_without_a_body_is_complete_after_its_head() {
    let ended_later = |status| Page::status(status).in_chunks::<&[u8]>(&[]);
    for alpn in ["h2", "http/1.1"] {
        let script = Script::robots("")
            .alpn(&[alpn])
            .page("/head", ended_later(200).field("Content-Length", "10"))
            .page("/204", ended_later(204))
            .page("/304", ended_later(304));
        let (_origin, proxy) = site(script.tls(), &[]).await;
        let mut old = Crawler::inside(&proxy, "o.test:443").await;
        let mut new = H2Crawler::inside(&proxy, "o.test:443").await;
        for (method, path) in [("HEAD", "/head"), ("GET", "/204"), ("GET", "/304")] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: o.test\r\n\r\n");
            old.send(request.as_bytes()).await;
            old.reply_to("HEAD").await;
            let url = format!("https://o.test{path}");
            let request = http::Request::builder().method(method).uri(url);
            new.ask(request).await.unwrap();
        }
        let rows = proxy.place().completed(6).await;
        let errors = rows.iter().filter(|row| !row["error"].is_null());
        assert_eq!(errors.count(), 0, "{alpn}: {rows:?}");
    }
}

// Ours: only malformed requests have no row.
#[tokio::test]
async fn malformed_requests_have_no_row() {
    let (_origin, proxy) = site(Script::robots(""), &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    let malformed = crawler.ask(&["GET /a HTTP/1.1", "Host: o.test"]).await;
    assert_eq!(malformed.status(), 400);
    get(&proxy, "http://o.test/a").await;
    assert_eq!(proxy.place().completed(1).await.len(), 1);
}

// Ours: the lock is on the folder, not on the files in it.
#[tokio::test]
async fn a_second_proxy_does_not_start_in_the_folder_of_a_record_in_use() {
    let (_origin, proxy) = site(Script::robots(""), &[]).await;
    let folder = proxy.place().folder();
    let in_use = folder.canonicalize().unwrap();
    let in_use = format!("the record in {} is in use", in_use.display());
    let assert_in_use = async |file: &str| {
        let store = format!("audit.store=sqlite:{file}");
        let outcome = proxy.place().run_code(1, &["--set", &store, "serve"]).await;
        assert_eq!(outcome.stdout, "");
        assert!(outcome.stderr.contains(&in_use), "{file}: {outcome:?}");
    };
    assert_in_use("audit.db").await;
    // The first proxy still works.
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    std::os::unix::fs::symlink(folder.join("audit.db"), folder.join("link.db")).unwrap();
    assert_in_use("link.db").await;
    for name in ["audit.db", "audit.db-wal", "audit.db-shm"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    for file in ["audit.db", "other.db"] {
        assert_in_use(file).await;
    }
}

// Ours: the message about an unreadable record names the command or key that helps.
#[tokio::test]
async fn an_unreadable_record_is_reported_with_a_remedy() {
    let place = Config::default().start().await.stop().await;
    let list = async || place.audit_code(1, "list").await.stderr;
    let file = place.path("audit.db");
    let whole = std::fs::read(&file).unwrap();
    // Remove the WAL file, from which SQLite could repair the database.
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(place.path(&format!("audit.db{end}")));
    }
    let other = b"no database at all, but of the length of one".repeat(99);
    for bytes in [&whole[..20_000], &other] {
        std::fs::write(&file, bytes).unwrap();
        let said = list().await;
        assert!(said.contains("politesse audit restore FILE"), "{said}");
    }
    std::fs::remove_file(&file).unwrap();
    let said = list().await;
    assert!(said.contains("--config FILE, audit.store"), "{said}");
}

// Ours: an older version is refused as a newer one is.
#[tokio::test]
async fn a_record_of_an_unknown_version_is_refused_with_both_versions() {
    let place = Config::default().start().await.stop().await;
    let version = "PRAGMA user_version";
    let known = place.database().query_row(version, [], |row| row.get(0));
    let known: u32 = known.unwrap();
    for version in [known + 1, 9] {
        let said = format!("has schema {version}, this version knows {known}");
        let set = format!("PRAGMA user_version = {version}");
        place.database().execute_batch(&set).unwrap();
        for arguments in [&["serve"][..], &["audit", "verify"], &["audit", "list"]] {
            let outcome = place.run_code(1, arguments).await;
            assert!(outcome.stderr.contains(&said), "{outcome:?}");
        }
    }
}
