//! Limits on log lines that clients can cause at any rate.

use serde_json::Value;

use crate::kit::client::{Crawler, assert_metric};
use crate::kit::proxy::{Config, Proxy};
use crate::kit::until;

/// Returns the log lines whose message contains `text`.
fn lines(proxy: &Proxy, text: &str) -> Vec<Value> {
    let log = proxy.log();
    // The last line may be incomplete, so lines that do not parse are skipped.
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let holds = |line: &Value| line["message"].as_str().unwrap_or_default().contains(text);
    lines.filter(holds).collect()
}

/// Waits until `count` lines with `text` were written or reported as left out. Returns
/// how many were written.
async fn await_lines(proxy: &Proxy, text: &str, count: u64) -> usize {
    until("all lines to be counted", async || {
        let written = lines(proxy, text);
        let reports = lines(proxy, "more lines like this were left out");
        let alike = |report: &&Value| report["like"].as_str().unwrap().contains(text);
        let left_out = reports.iter().filter(alike);
        let left_out: u64 = left_out
            .map(|report| report["left_out"].as_u64().unwrap())
            .sum();
        (written.len() as u64 + left_out == count).then_some(written.len())
    })
    .await
}

// Ours: without a limit, clients that may not connect caused 17,066 lines in 5 s.
#[tokio::test]
async fn outsiders_cannot_flood_the_log() {
    let config = Config::default().set("proxy.clients = [\"192.0.2.0/24\"]");
    let proxy = config.start().await;
    for _ in 0..500 {
        assert!(Crawler::plain(&proxy).await.closes().await);
    }
    let written = await_lines(&proxy, "not in proxy.clients", 500).await;
    assert!((5..100).contains(&written), "{written}");
    let left_out = format!("politesse_log_lines_left_out_total {}\n", 500 - written);
    assert_metric(&proxy, &left_out).await;
}

// Ours: each kind of line has its own limit. Reports come while the proxy runs.
#[tokio::test]
async fn failed_handshakes_and_other_protocols_do_not_hide_each_other() {
    let proxy = Config::default().set("log.burst = 2").start().await;
    for _ in 0..20 {
        let mut crawler = Crawler::connect(&proxy, "o.test:22").await;
        crawler.send(b"SSH-2.0-A\r\n").await;
        assert!(crawler.closes().await);
        assert!(Crawler::tls(&proxy, "o.test:443", "p.test").await.is_err());
    }
    await_lines(&proxy, "another protocol inside CONNECT", 20).await;
    await_lines(&proxy, "the handshake asks for", 20).await;
}

// Ours: lines that only the operator can cause are not limited.
#[tokio::test]
async fn configuration_mistakes_are_all_logged() {
    let proxy = Config::default().start().await;
    let config = (0..20).fold(Config::default(), |config, number| {
        config.set(&format!("proxy.unknown{number} = 1"))
    });
    proxy.place().configure(&config);
    proxy.signal("HUP").await;
    until("the end of the mistakes", async || {
        lines(&proxy, "the configuration was not reloaded").pop()
    })
    .await;
    assert_eq!(lines(&proxy, "is not a key").len(), 20);
}
