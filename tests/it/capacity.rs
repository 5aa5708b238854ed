//! Limits of the system: the accept queue of a listener, and file descriptors. All of it
//! is ours.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::kit::client::{Crawler, metrics};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::{Gate, Page};
use crate::kit::program::isolated;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::tenant::take_descriptors;
use crate::kit::{assert_contains, soon, until};

/// Number of connections opened at the same time.
const BURST: usize = 1000;
/// Longest wait for a connection. If the system drops its SYN, the client's kernel
/// retries after 1, 3 and 7 seconds; otherwise it is established at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the longest accept queue that this system allows.
fn somaxconn() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    text.trim().parse().unwrap()
}

/// Opens `count` connections to `address` at the same time, and returns those established
/// within [`PATIENCE`].
async fn burst(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut attempts = JoinSet::new();
    for _ in 0..count {
        attempts.spawn(timeout(PATIENCE, TcpStream::connect(address)));
    }
    let outcomes = attempts.join_all().await;
    outcomes.into_iter().flatten().flatten().collect()
}

/// Starts a proxy in `place` with at most `limit` file descriptors.
async fn start_with_descriptors(place: Place, limit: u32) -> Proxy {
    let mut command = isolated("sh", place.folder());
    let script = format!("ulimit -n {limit} && exec \"$0\" serve");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_politesse")]);
    Proxy::start(place, command).await
}

// Ours: a stopped process accepts nothing, so all connections wait in the queue.
#[tokio::test]
async fn a_thousand_connections_at_once_wait_to_be_accepted() {
    take_descriptors();
    let config = Config::default().set("proxy.header_timeout = \"1h\"");
    let proxy = config.start().await;
    if somaxconn() < BURST {
        assert!(proxy.log().contains("net.core.somaxconn is"));
        return;
    }
    proxy.signal("STOP").await;
    let made = burst(proxy.address(), BURST).await;
    let admin = burst(proxy.admin(), 200).await;
    proxy.signal("CONT").await;
    assert_eq!((made.len(), admin.len()), (BURST, 200));
    drop(admin);
    until("all accepted", async || {
        let mut admin = Crawler::to(proxy.admin()).await;
        let host = proxy.admin().to_string();
        admin.start_get("/metrics", &host).await;
        // The admin listener closes it until the connections dropped above have ended.
        let metrics = admin.try_reply_to("GET").await?.text();
        let open = format!("politesse_connections {BURST}\n");
        metrics.contains(&open).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_backlog_over_the_system_limit_is_logged_at_the_start() {
    let config = Config::default().set("proxy.backlog = 1000000");
    let proxy = config.start().await;
    let wanted = format!(
        "net.core.somaxconn is {}, less than proxy.backlog, 1000000",
        somaxconn()
    );
    proxy.logged(&wanted).await;
    let shown = metrics(&proxy).await;
    assert_contains(&shown, &format!("politesse_backlog {}\n", somaxconn()));
}

#[tokio::test]
async fn descriptors_are_reserved_for_the_admin_listener() {
    let origin = Script::robots("").start().await;
    let config = resolve("o.test", origin.address()).set("proxy.header_timeout = \"1h\"");
    let place = Place::with(&config.set("proxy.max_connections = 1000"));
    let proxy = start_with_descriptors(place, 120).await;
    let told = "the hard limit of descriptors is 120, and this configuration wants 4753: \
                    they suffice for 45 connections";
    proxy.logged(told).await;
    let mut held = burst(proxy.address(), 200).await;
    held.push(TcpStream::connect(proxy.address()).await.unwrap());
    let shown = until("connections refused", async || {
        let shown = metrics(&proxy).await;
        shown
            .contains("connections_refused_total{result=\"descriptors\"}")
            .then_some(shown)
    })
    .await;
    assert_contains(&shown, "politesse_descriptors_limit 120\n");
    assert_contains(&shown, "politesse_descriptors_wanted 4753\n");
    let mut others = Vec::new();
    for _ in 0..8 {
        others.push(Crawler::to(proxy.admin()).await);
    }
    for admin in &mut others {
        let reply = admin.get("/readyz", &proxy.admin().to_string()).await;
        assert_eq!((reply.status(), reply.text().as_str()), (200, "ready\n"));
    }
    assert!(!proxy.log().contains("cannot accept"), "{}", proxy.log());
    drop(held);
    until("a page again", async || {
        let mut crawler = Crawler::plain(&proxy).await;
        crawler.start_get("http://o.test/a", "o.test").await;
        // The proxy closes it until it has noticed the dropped connections.
        let reply = crawler.try_reply_to("GET").await?;
        (reply.status() == 200).then_some(())
    })
    .await;
}

/// A proxy with few descriptors, all of which are in use.
struct Exhausted {
    proxy: Proxy,
    /// Connections that crawlers opened before.
    crawlers: [Crawler; 2],
    _held: Vec<TcpStream>,
}

impl Exhausted {
    async fn start(origins: &[(&str, &Origin)]) -> Self {
        let known = Script::robots("User-agent: *\nDisallow: /\n").start().await;
        let mut config = resolve("known.test", known.address())
            .set("proxy.header_timeout = \"1h\"")
            .set("proxy.max_connections = 1000");
        for (name, origin) in origins {
            config = config.resolve(name, origin.address());
        }
        let proxy = start_with_descriptors(Place::with(&config), 120).await;
        let mut crawlers = [
            Crawler::from(&proxy, 2).await,
            Crawler::from(&proxy, 2).await,
        ];
        for crawler in &mut crawlers {
            let reply = crawler.get("http://known.test/", "known.test").await;
            assert_eq!(reply.status(), 403);
        }
        // These come from another client, which has more connections than the crawlers,
        // so none of them displaces a crawler.
        let held = burst(proxy.address(), 200).await;
        // The proxy handles connections in order: once the last is refused, none is
        // pending.
        let mut last = TcpStream::connect(proxy.address()).await.unwrap();
        let mut answer = Vec::new();
        let _ = soon("end of the last connection", last.read_to_end(&mut answer)).await;
        Self {
            proxy,
            crawlers,
            _held: held,
        }
    }
}

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";

// Ours: a new host's robots.txt is fetched, even after a redirect.
#[tokio::test]
async fn a_descriptor_is_reserved_for_robots_txt() {
    let origin = Script::robots(ROBOTS).start().await;
    let moved = Page::redirect("http://o.test/robots.txt");
    let moved = Script::robots_page(moved).start().await;
    let origins = [("o.test", &origin), ("p.test", &origin), ("q.test", &moved)];
    let mut exhausted = Exhausted::start(&origins).await;
    let [crawler, _] = &mut exhausted.crawlers;
    for (host, _) in origins {
        // The 403 shows that robots.txt was read. An allowed page could not be checked
        // so: it fails only if the proxy has not just freed a descriptor.
        let reply = crawler.get(&format!("http://{host}/no"), host).await;
        assert_eq!(reply.status(), 403, "{host}: {}", reply.text());
    }
    assert_eq!((origin.robots_fetches(), moved.robots_fetches()), (3, 1));
    origin.assert_only_robots_fetched();
    moved.assert_only_robots_fetched();
}

// Ours: an origin whose fetch gets no descriptor is not remembered as unreachable.
#[tokio::test]
async fn one_robots_txt_at_a_time_uses_the_reserved_descriptor() {
    let gate = Gate::shut();
    let late = Page::text(ROBOTS).after(&gate);
    let slow = Script::robots_page(late).start().await;
    let origin = Script::robots(ROBOTS).start().await;
    let origins = [("slow.test", &slow), ("o.test", &origin)];
    let mut exhausted = Exhausted::start(&origins).await;
    let [first, second] = &mut exhausted.crawlers;
    first.start_get("http://slow.test/no", "slow.test").await;
    slow.arrival("/robots.txt").await;
    let refused = second.get("http://o.test/no", "o.test").await;
    assert_eq!(refused.status(), 502, "{}", refused.text());
    assert_eq!(origin.robots_fetches(), 0);
    // The descriptor is free when the connection has closed, slightly after the answer.
    gate.open(1);
    assert_eq!(first.reply_to("GET").await.status(), 403);
    until("the other robots.txt", async || {
        let reply = second.get("http://o.test/no", "o.test").await;
        (reply.status() == 403).then_some(())
    })
    .await;
    assert!(!exhausted.proxy.log().contains("cannot accept"));
}
