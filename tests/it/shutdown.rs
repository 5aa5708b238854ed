//! Shutdown: the proxy accepts no more connections, lets exchanges finish within a limit,
//! completes the record and exits with 0.

use serde_json::json;
use tokio::net::TcpStream;

use crate::kit::client::{Crawler, assert_statuses};
use crate::kit::fleet::readyz;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::program::isolated;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::{assert_members, until};

/// Starts a proxy with one exchange in flight, which ends when the gate opens.
async fn busy(lines: &[&str]) -> (Gate, Origin, Proxy, Crawler) {
    let gate = Gate::shut();
    let page = Page::text("slow").after(&gate);
    let (origin, proxy) = site(Script::robots("").page("/slow", page), lines).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/slow", "o.test").await;
    origin.arrival("/slow").await;
    (gate, origin, proxy, crawler)
}

// Ours: /readyz reports 503 from the signal on.
#[tokio::test]
async fn sigterm_and_sigint_let_an_exchange_finish_and_exit_0() {
    for signal in ["TERM", "INT"] {
        let (gate, _origin, mut proxy, mut crawler) = busy(&[]).await;
        proxy.signal(signal).await;
        listener_closed(&proxy).await;
        until("/readyz of 503", async || {
            (readyz(&proxy).await.0 == 503).then_some(())
        })
        .await;
        gate.open(1);
        assert_eq!(crawler.reply_to("GET").await.text(), "slow");
        assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
        let rows = proxy.place().rows().await;
        assert_members(&rows[0], &json!({"status": 200, "bytes": 4}));
    }
}

async fn listener_closed(proxy: &Proxy) {
    until("a closed listener", async || {
        TcpStream::connect(proxy.address()).await.err()
    })
    .await;
}

// Ours: `proxy.shutdown_timeout`.
#[tokio::test]
async fn an_exchange_beyond_the_shutdown_timeout_is_cut_off_and_recorded() {
    let lines = ["proxy.shutdown_timeout = \"300ms\""];
    let (_gate, _origin, mut proxy, mut crawler) = busy(&lines).await;
    proxy.signal("TERM").await;
    let reply = crawler.try_reply_to("GET").await;
    assert!(reply.is_none_or(|reply| reply.status() >= 500));
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
    let rows = proxy.place().rows().await;
    let expected = json!({"verdict": "allow", "error": "proxy_stopped"});
    assert_members(&rows[0], &expected);
}

// Ours: a second signal ends the wait, and the record is still completed.
#[tokio::test]
async fn a_second_signal_ends_the_proxy_at_once() {
    let lines = ["proxy.shutdown_timeout = \"10m\""];
    let (_gate, _origin, mut proxy, _crawler) = busy(&lines).await;
    proxy.signal("TERM").await;
    listener_closed(&proxy).await;
    proxy.signal("TERM").await;
    proxy.ended().await;
    assert_eq!(proxy.place().rows().await.len(), 1);
}

// Ours: not even with half a request to the admin listener, or half a handshake.
#[tokio::test]
async fn idle_connections_do_not_delay_the_end() {
    let lines = [
        "proxy.shutdown_timeout = \"10m\"",
        "https.handshake_timeout = \"1m\"",
    ];
    let (_origin, proxy) = site(Script::robots("").tls(), &lines).await;
    let _silent = Crawler::plain(&proxy).await;
    let _opened = Crawler::connect(&proxy, "o.test:443").await;
    let mut used = Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(used.get("/a", "o.test").await.status(), 200);
    let mut admin = Crawler::to(proxy.admin()).await;
    admin.send(b"GET /metr").await;
    let mut inside = Crawler::connect(&proxy, "o.test:443").await;
    inside.send(&[0x16, 3, 1]).await;
    proxy.stop().await;
}

// Ours: exchanges continue if stderr is full.
#[tokio::test]
async fn an_unwritable_log_stops_no_exchange() {
    let origin = Script::robots("").start().await;
    let place = Place::with(&resolve("o.test", origin.address()));
    let mut shell = isolated("sh", place.folder());
    let program = env!("CARGO_BIN_EXE_politesse");
    shell.args(["-c", "exec \"$0\" serve 2>/dev/full", program]);
    let proxy = Proxy::start(place, shell).await;
    assert_statuses(&proxy, &[("http://o.test/a", 200)]).await;
    let place = proxy.stop().await;
    assert_eq!(place.rows().await[0]["status"], 200);
}
