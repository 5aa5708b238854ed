//! Shutdown: the proxy accepts no more connections, lets exchanges finish within a limit,
//! completes the record and exits with 0.

use serde_json::json;
use tokio::net::TcpStream;

use crate::kit::client::Crawler;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::program::politesse;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_members, until};

/// Starts a proxy with one exchange in flight, which ends when the gate opens.
async fn busy(config: Config) -> (Gate, Origin, Proxy, Crawler) {
    let gate = Gate::shut();
    let origin = Script::robots("")
        .page("/slow", Page::text("slow").after(&gate))
        .start()
        .await;
    let proxy = config.resolve("o.test", origin.address()).start().await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/slow", "o.test").await;
    origin.arrival("/slow").await;
    (gate, origin, proxy, crawler)
}

// Ours.
#[tokio::test]
async fn sigterm_and_sigint_let_an_exchange_finish_and_exit_0() {
    for signal in ["TERM", "INT"] {
        let (gate, _origin, mut proxy, mut crawler) = busy(Config::default()).await;
        let address = proxy.address();
        proxy.signal(signal).await;
        until("a closed listener", async || {
            TcpStream::connect(address).await.err()
        })
        .await;
        gate.open(1);
        assert_eq!(crawler.reply_to("GET").await.text(), "slow");
        assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
        let rows = proxy.place().rows().await;
        assert_members(&rows[0], &json!({"status": 200, "bytes": 4}));
    }
}

// Ours: `proxy.shutdown_timeout`.
#[tokio::test]
async fn an_exchange_beyond_the_shutdown_timeout_is_cut_off_and_recorded() {
    let config = Config::default().set("proxy.shutdown_timeout = \"300ms\"");
    let (_gate, _origin, mut proxy, mut crawler) = busy(config).await;
    proxy.signal("TERM").await;
    assert!(
        crawler
            .try_reply_to("GET")
            .await
            .is_none_or(|reply| reply.status() >= 500)
    );
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
    let rows = proxy.place().rows().await;
    assert_eq!(rows[0]["verdict"], "allow");
    assert_eq!(rows[0]["error"], "proxy_stopped", "{rows:?}");
}

// Ours: a second signal ends the wait, and the record is still completed.
#[tokio::test]
async fn a_second_signal_ends_the_proxy_at_once() {
    let config = Config::default().set("proxy.shutdown_timeout = \"10m\"");
    let (_gate, _origin, mut proxy, _crawler) = busy(config).await;
    let address = proxy.address();
    proxy.signal("TERM").await;
    until("a closed listener", async || {
        TcpStream::connect(address).await.err()
    })
    .await;
    proxy.signal("TERM").await;
    proxy.ended().await;
    assert_eq!(proxy.place().rows().await.len(), 1);
}

// Ours: only exchanges in flight delay the end.
#[tokio::test]
async fn idle_connections_do_not_delay_the_end() {
    let script = Script::robots("").tls();
    let (_origin, proxy) = site(script, &["proxy.shutdown_timeout = \"10m\""]).await;
    let _silent = Crawler::plain(&proxy).await;
    let _opened = Crawler::connect(&proxy, "o.test:443").await;
    let mut used = Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(used.get("/a", "o.test").await.status(), 200);
    proxy.stop().await;
}

// Ours: neither half a request to the admin listener nor half a handshake delays the end.
#[tokio::test]
async fn half_a_request_or_handshake_does_not_delay_the_end() {
    let proxy = Config::default()
        .set("proxy.shutdown_timeout = \"10m\"")
        .set("https.handshake_timeout = \"1m\"")
        .start()
        .await;
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
    let program = politesse(place.folder()).as_std().get_program().to_owned();
    let mut shell = tokio::process::Command::new("sh");
    shell
        .current_dir(place.folder())
        .env("POLITESSE_CONFIG", place.path("politesse.toml"))
        .kill_on_drop(true)
        .args(["-c", "exec \"$0\" serve 2>/dev/full"])
        .arg(program);
    let proxy = Proxy::start(place, shell).await;
    let reply = crate::kit::client::get(&proxy, "http://o.test/a").await;
    assert_eq!(reply.status(), 200);
    let place = proxy.stop().await;
    assert_eq!(place.rows().await[0]["status"], 200);
}
