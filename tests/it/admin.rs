//! The admin listener: health, readiness and metrics, and the Host values it accepts.

use crate::kit::assert_contains;
use crate::kit::client::{Crawler, get, get_admin};
use crate::kit::origin::{Script, site};
use crate::kit::proxy::Config;

// Ours: no metric contains a host, a URL or a crawler name.
#[tokio::test]
async fn metrics_count_decisions_without_naming_hosts_or_crawlers() {
    let (_origin, proxy) = site(Script::robots("User-agent: *\nDisallow: /private\n"), &[]).await;
    get(&proxy, "http://o.test/open").await;
    get(&proxy, "http://o.test/private").await;
    let metrics = get_admin(proxy.admin(), "/metrics", &[]).await;
    let media_type = metrics.head.value("content-type");
    assert!(media_type.starts_with("application/openmetrics-text"));
    let text = metrics.text();
    for line in [
        "politesse_decisions_total{verdict=\"allow\",reason=\"no_rule\"} 1",
        "politesse_decisions_total{verdict=\"disallow\",reason=\"rule\"} 1",
        "politesse_robots_fetches_total{result=\"successful\"} 1",
    ] {
        assert_contains(&text, line);
    }
    assert!(text.ends_with("# EOF\n"));
    for word in ["o.test", "private", "ExampleBot", "examplebot"] {
        assert!(!text.contains(word), "{word}");
    }
}

// Ours: a running proxy is healthy and ready. If the record cannot be written, requests get
// 503 and /readyz says why; ARCHITECTURE.md, invariant 3.
#[tokio::test]
async fn requests_get_503_while_the_record_cannot_be_written() {
    let (origin, proxy) = site(Script::robots(""), &[]).await;
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/nothing", 404)] {
        let reply = get_admin(proxy.admin(), path, &[]).await;
        assert_eq!(reply.status(), status, "{path}");
    }
    assert_eq!(get(&proxy, "http://o.test/before").await.status(), 200);
    proxy.place().completed(1).await;
    let drop = "DROP VIEW audit_log; DROP TABLE decision;";
    proxy.place().database().execute_batch(drop).unwrap();
    let reply = get(&proxy, "http://o.test/after").await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    assert!(reply.head.value("proxy-status").starts_with("politesse;"));
    assert!(!reply.head.value("retry-after").is_empty());
    let ready = get_admin(proxy.admin(), "/readyz", &[]).await;
    assert_eq!(ready.status(), 503);
    assert_contains(&ready.text(), "audit");
    let health = get_admin(proxy.admin(), "/healthz", &[]).await;
    assert_eq!(health.status(), 200);
    assert_eq!(origin.targets(), ["/before"]);
}

// Ours, against DNS rebinding; RFC 9112, sections 3.2 and 3.2.2.
#[tokio::test]
async fn the_admin_listener_answers_only_for_its_own_host_names() {
    let proxy = Config::default().start().await;
    let own = proxy.admin().to_string();
    for (target, hosts, status) in [
        ("/metrics", &[&*own][..], 200),
        ("/metrics", &["localhost"], 200),
        ("/metrics", &["evil.test"], 421),
        ("/metrics", &[], 400),
        ("/metrics", &[&own, "evil.test"], 400),
        ("http://localhost/metrics", &[&own], 200),
        ("http://evil.test/metrics", &[&own], 421),
    ] {
        let hosts = hosts.iter().map(|host| format!("Host: {host}"));
        let lines = [vec![format!("GET {target} HTTP/1.1")], hosts.collect()].concat();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let reply = Crawler::to(proxy.admin()).await.ask(&lines).await;
        assert_eq!(reply.status(), status, "{lines:?}");
    }
}
