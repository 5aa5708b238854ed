//! The archive, a real PostgreSQL: it gets every entry of a node exactly once, and
//! follows redactions and removals. All ours; docs/archive.md. Faults of the archive and
//! of shipping are in `archive_faults.rs`.

use politesse_base::clock;

use crate::archive_faults::assert_archived;
use crate::kit::addresses::free_address;
use crate::kit::archived::{ArchivedNode, shipping};
use crate::kit::client::{Crawler, assert_statuses, get};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{asking_for_less, assert_later, metric, metric_is};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::postgres::Postgres;
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::{assert_contains, until};
use crate::retention::{REQUESTS, fill_part};

/// Part of a path that occurs in no other request.
const SECRET: &str = "secret-of-somebody";

/// A robots.txt with bytes that PostgreSQL cannot store as text.
const ROBOTS: &[u8] = b"User-agent: *\nDisallow: /no\nDisallow: /z\0ro\nDisallow: /\xff\n";

async fn origin() -> Origin {
    Script::robots_page(Page::typed("text/plain", ROBOTS))
        .page("/less", asking_for_less(429, Some("3600")))
        .page("/long", Page::stream(50_000_000, Length::Announced))
        .page("/meta", Page::html("x").field("X-Robots-Tag", "noindex"))
        .start()
        .await
}

fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
        .resolve("p.test", origin.address())
        .set("fleet.node = \"north\"")
        .set("pace.backoff = {}")
        .set("audit.seal_entries = 500")
}

/// Makes the proxy record decisions of every kind, their endings, and events.
async fn crawl(proxy: &Proxy) {
    let expected = [
        ("http://o.test/open?a=1", 200),
        ("http://o.test/meta", 200),
        ("http://o.test/no", 403),
        ("http://o.test/a/../no", 403),
        ("http://o.test/z%00ro", 403),
        ("http://o.test/%FF", 403),
        ("http://127.0.0.2/denied", 502),
        ("http://p.test/open", 200),
    ];
    assert_statuses(proxy, &expected).await;
    // Nothing listens at this address.
    let reply = get(proxy, "http://gone.test/x").await;
    assert_ne!(reply.status(), 200, "{}", reply.text());
    // This client hangs up before the end of the page.
    let mut abrupt = Crawler::abrupt(proxy).await;
    let request = b"GET http://o.test/long HTTP/1.1\r\nHost: o.test\r\n\r\n";
    abrupt.send(request).await;
    abrupt.peek(100).await;
    drop(abrupt);
    // A 429 puts the host into back-off, which is recorded as an event.
    assert_eq!(get(proxy, "http://o.test/less").await.status(), 429);
    assert_later(&get(proxy, "http://o.test/later").await, "backoff");
}

#[tokio::test]
async fn every_entry_is_in_the_archive_once_after_shipping() {
    let origin = origin().await;
    let config = config(&origin).resolve("gone.test", free_address());
    let proxy = config.start().await;
    crawl(&proxy).await;
    proxy.place().rows_when(|rows| rows.len() == 12).await;
    let proxy = proxy.kill().await.start().await;
    assert_eq!(get(&proxy, "http://p.test/no").await.status(), 403);
    let place = proxy.stop().await;
    let postgres = Postgres::start().await;
    let ship = format!("ship --once --to {}", postgres.url());
    let said = place.audit(&ship).await.stdout;
    assert!(said.starts_with("entries up to "), "{said}");
    let node = ArchivedNode::of(&postgres, &place).await;
    node.assert_whole().await;
    // Check that every kind of entry occurs, or the comparison above would prove little.
    for (table, condition) in [
        ("decision", "reading IS NOT NULL"),
        ("decision", "robots_url IS NULL"),
        ("decision", "directives IS NOT NULL"),
        ("decision", "error IS NOT NULL"),
        ("decision", "rule LIKE '%\u{2400}%'"),
        ("event", "kind = 'started'"),
        ("event", "host = 'o.test'"),
    ] {
        let count = format!("SELECT count(*) FROM {table} WHERE {condition}");
        assert_ne!(postgres.number(&count).await, 0, "{table}: {condition}");
    }
    assert_eq!(postgres.sql("SELECT name FROM node").await, ["north"]);
    let again = place.audit(&ship).await.stdout;
    assert!(again.starts_with("all entries have arrived"), "{again}");
    node.assert_whole().await;
    // The view audit_log has one row per decision.
    let view = postgres.number("SELECT count(*) FROM audit_log").await;
    assert_eq!(view, postgres.number("SELECT count(*) FROM decision").await);
    let refused = "SELECT count(*) FROM audit_log WHERE url = 'http://o.test/no'
                   AND verdict = 'disallow' AND rule = 'Disallow: /no'";
    assert_ne!(postgres.number(refused).await, 0);
}

#[tokio::test]
async fn a_running_proxy_ships_its_record() {
    let gate = Gate::shut();
    let late = Page::html("x").field("X-Robots-Tag", "noai").after(&gate);
    let origin = Script::robots_page(Page::typed("text/plain", ROBOTS));
    let origin = origin.page("/late", late).start().await;
    let postgres = Postgres::start().await;
    let crawler = "{ token = \"TrainBot\", user_agent = \"trainbot\", purpose = \"train-ai\" }";
    let config = config(&origin).set(&format!("crawler = [{crawler}]"));
    let config = shipping(config, &postgres.url());
    let proxy = config.start().await;
    for path in ["/no", "/a", "/b"] {
        get(&proxy, &format!("http://o.test{path}")).await;
    }
    let node = ArchivedNode::of(&postgres, proxy.place()).await;
    node.arrival().await;
    let last = node.last().await as f64;
    metric_is(&proxy, "politesse_archive_shipped_total", last).await;
    metric_is(&proxy, "politesse_archive_lag_entries", 0.0).await;
    assert_eq!(metric(&proxy, "politesse_archive_lag_seconds").await, 0.0);
    assert_eq!(metric(&proxy, "politesse_archive_errors_total").await, 0.0);
    // Partitions are named after the month of their decisions.
    let month = clock::now().strftime("decision_%Y_%m").to_string();
    let count = format!("SELECT count(*) FROM {month}");
    assert_eq!(postgres.number(&count).await, 3);
    get(&proxy, "http://o.test/c").await;
    // The decision is shipped before its response arrives, whose noai denies the purpose.
    let mut client = Crawler::plain(&proxy).await;
    let request = "GET http://o.test/late HTTP/1.1\r\nHost: o.test\r\nUser-Agent: TrainBot\r\n\r\n";
    client.send(request.as_bytes()).await;
    let shipped = "SELECT count(*) FROM decision WHERE url = 'http://o.test/late'";
    postgres.number_is(shipped, 1).await;
    gate.open(1);
    assert_eq!(client.reply_to("GET").await.status(), 200);
    let ended = "SELECT count(*) FROM decision WHERE sent IS NULL";
    postgres.number_is(ended, 0).await;
    let denied = format!("{shipped} AND denials @> '[{{\"statement\": \"noai\"}}]'");
    assert_eq!(postgres.number(&denied).await, 1);
    // A stop ships the last entries, including the event of the stop itself.
    let place = proxy.stop().await;
    assert_archived(&postgres, &place).await;
    let stops = "SELECT count(*) FROM event WHERE kind = 'stopped'";
    assert_eq!(postgres.number(stops).await, 1);
}

/// Returns the tables and views of the archive that contain `text` in any row.
async fn tables_with(postgres: &Postgres, text: &str) -> Vec<String> {
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'";
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut found = Vec::new();
    for table in postgres.sql(tables).await {
        let sql = format!(
            "SELECT count(*) FROM {table} AS t WHERE t::text LIKE '%{text}%' OR t::text LIKE '%{hex}%'"
        );
        if postgres.number(&sql).await != 0 {
            found.push(table);
        }
    }
    found
}

// Ours: docs/keeping.md, on redaction.
#[tokio::test]
async fn a_redaction_on_the_node_removes_the_data_from_the_archive() {
    let origin = origin().await;
    let postgres = Postgres::start().await;
    let proxy = shipping(config(&origin), &postgres.url()).start().await;
    let mut somebody = Crawler::from(&proxy, 77).await;
    for path in ["no", "open"] {
        let url = format!("http://o.test/{path}/{SECRET}?a=1");
        somebody.get(&url, "o.test").await;
        get(&proxy, &format!("http://o.test/{path}")).await;
    }
    let node = ArchivedNode::of(&postgres, proxy.place()).await;
    node.arrival().await;
    assert!(!tables_with(&postgres, SECRET).await.is_empty());
    assert!(!tables_with(&postgres, "127.0.0.77").await.is_empty());
    let admin = format!("admin.listen=\"{}\"", proxy.admin());
    let redact = "redact --client 127.0.0.77 --why 'asked for' --yes --set";
    let redact = format!("{redact} {admin}");
    let said = proxy.place().audit(&redact).await.stdout;
    assert_eq!(said, "decisions redacted: 2\n");
    node.arrival().await;
    for text in [SECRET, "127.0.0.77"] {
        assert_eq!(tables_with(&postgres, text).await, [""; 0], "{text}");
    }
    // New entries are shipped after a redaction, even those of the same client.
    somebody.get("http://o.test/no/more", "o.test").await;
    let place = proxy.stop().await;
    assert_archived(&postgres, &place).await;
    let redacted = "SELECT count(*) FROM decision WHERE client IS NULL AND url IS NULL";
    assert_eq!(postgres.number(redacted).await, 2);
    assert!(!tables_with(&postgres, "127.0.0.77").await.is_empty());
}

// Ours: a node removes only entries that are in the archive.
#[tokio::test]
async fn entries_are_removed_from_the_node_only_after_they_arrive() {
    let origin = origin().await;
    let mut postgres = Postgres::start().await;
    let url = postgres.url();
    postgres.kill();
    let proxy = shipping(config(&origin), &url).start().await;
    fill_part(&proxy).await;
    let first = proxy.place().number(1);
    let admin = format!("admin.listen=\"{}\"", proxy.admin());
    let prune = format!("prune --before 1s --why test --yes --set {admin}");
    let said = proxy.place().audit(&prune).await.stdout;
    assert_contains(&said, "audit.archive");
    let place = proxy.stop().await;
    let refused = place.audit_code(1, &prune).await.stderr;
    assert_contains(&refused, "audit.archive");
    let aging = config(&origin).set("audit.retention = \"1s\"");
    place.configure(&shipping(aging, &url));
    let proxy = place.start().await;
    let line = "stay until they have arrived in the archive";
    proxy.logged(line).await;
    assert_eq!(proxy.place().number(1), first);
    postgres.restart().await;
    let node = ArchivedNode::of(&postgres, proxy.place()).await;
    node.arrival().await;
    until("removal", async || {
        (8192 < proxy.place().number(1)).then_some(())
    })
    .await;
    let place = proxy.stop().await;
    place.assert_verified().await;
    // The archive still has the removed decisions, because it has its own retention.
    let decisions = postgres.number("SELECT count(*) FROM decision").await;
    assert_eq!(decisions, REQUESTS as i64);
    let node = ArchivedNode::of(&postgres, &place).await;
    assert_eq!(node.last().await, node.record_last());
}
