//! Draining before a stop (`proxy.drain_time`): load balancers see it in `/readyz`,
//! crawlers lose no request.

use crate::kit::client::{Crawler, Reply, get, get_admin};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::Script;
use crate::kit::paced::{delaying, metric, queue, standard};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::until;

/// Waits until `/readyz` reports that the proxy is draining.
async fn await_drain(proxy: &Proxy) {
    until("drain", async || {
        let reply = get_admin(proxy.admin(), "/readyz", &[]).await;
        ((reply.status(), &*reply.text()) == (503, "draining\n")).then_some(())
    })
    .await;
}

fn connection(reply: &Reply) -> Vec<&str> {
    reply.head.values("connection")
}

// Ours: a rolling restart refuses no request. RFC 9112, section 9.6, and RFC 9113,
// section 6.8: a client is notified before its connection ends.
#[tokio::test]
async fn a_draining_proxy_serves_requests_and_closes_their_connections() {
    let origin = Script::robots("").tls().start().await;
    let plain = Script::robots("").start().await;
    let mut proxy = resolve("o.test", origin.address())
        .resolve("p.test", plain.address())
        .set("proxy.drain_time = \"1h\"")
        .start()
        .await;
    let mut kept = Crawler::plain(&proxy).await;
    assert_eq!(kept.get("http://p.test/1", "p.test").await.status(), 200);
    let mut inside = Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(connection(&inside.get("/1", "o.test").await), [""; 0]);
    let mut streams = H2Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(streams.get("https://o.test/1").await.status(), 200);

    proxy.signal("TERM").await;
    await_drain(&proxy).await;
    assert_eq!(metric(&proxy, "politesse_draining").await, 1.0);
    // Connections opened before the drain, and new ones.
    for mut crawler in [kept, Crawler::plain(&proxy).await] {
        let reply = crawler.get("http://p.test/2", "p.test").await;
        assert_eq!((reply.status(), connection(&reply)), (200, vec!["close"]));
        assert!(crawler.closes().await);
    }
    for mut crawler in [inside, Crawler::inside(&proxy, "o.test:443").await] {
        let reply = crawler.get("/2", "o.test").await;
        assert_eq!((reply.status(), connection(&reply)), (200, vec!["close"]));
        assert!(crawler.closes().await);
    }
    for mut streams in [streams, H2Crawler::inside(&proxy, "o.test:443").await] {
        assert_eq!(streams.get("https://o.test/2").await.status(), 200);
        until("GOAWAY", async || {
            let one_more = streams.open("https://o.test/3");
            one_more.await.is_err().then_some(())
        })
        .await;
    }
    // The second signal ends the drain; the exit code is that of a normal stop.
    proxy.signal("TERM").await;
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
}

// Ours: a queued request is served if its turn comes before `proxy.shutdown_timeout`.
#[tokio::test]
async fn queued_requests_are_served_if_their_turn_precedes_the_shutdown_timeout() {
    let soon = delaying("0.5").start().await;
    let late = delaying("300").start().await;
    let mut proxy = standard(&soon)
        .resolve("late.test", late.address())
        .set("pace.max_wait = \"1h\"")
        .set("proxy.drain_time = \"1ms\"")
        .set("proxy.shutdown_timeout = \"1m\"")
        .start()
        .await;
    for host in ["o.test", "late.test"] {
        let url = format!("http://{host}/0");
        assert_eq!(get(&proxy, &url).await.status(), 200);
    }
    let mut crawlers = Vec::new();
    for (host, status) in [("o.test", 200), ("late.test", 503), ("o.test", 200)] {
        let mut crawler = Crawler::plain(&proxy).await;
        let url = format!("http://{host}/{}", crawlers.len());
        crawler.start_get(&url, host).await;
        crawlers.push((crawler, status));
    }
    queue(&proxy, 3).await;
    proxy.signal("TERM").await;
    for (mut crawler, status) in crawlers {
        let reply = crawler.reply_to("GET").await;
        assert_eq!(reply.status(), status, "{}", reply.text());
    }
    // The exit is well before the minute is over: the request whose turn would come
    // later was answered with 503 at once.
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
    assert_eq!(late.targets(), ["/0"]);
}
