//! A stop while requests wait for their turns.

use crate::kit::client::{Crawler, get};
use crate::kit::h2::H2Crawler;
use crate::kit::paced::{delaying, queue, standard};

/// Requests that wait over each protocol.
const EACH: u32 = 10;

// Ours: waiting requests over HTTP/1.1 and HTTP/2 get 503 at once, and are on record.
#[tokio::test]
async fn a_stop_puts_waiting_requests_off() {
    let origin = delaying("60").tls().start().await;
    let config = standard(&origin)
        .set("pace.max_wait = \"1h\"")
        .set("proxy.shutdown_timeout = \"10m\"");
    let mut proxy = config.start().await;
    assert_eq!(get(&proxy, "https://o.test/0").await.status(), 200);
    let mut streams = H2Crawler::inside(&proxy, "o.test:443").await;
    let mut opened = Vec::new();
    let mut crawlers = Vec::new();
    for number in 0..EACH {
        opened.push(streams.open(&format!("https://o.test/s/{number}")));
        let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
        crawler.start_get(&format!("/p/{number}"), "o.test").await;
        crawlers.push(crawler);
    }
    queue(&proxy, 2 * EACH).await;
    proxy.signal("TERM").await;
    for mut crawler in crawlers {
        let reply = crawler.reply_to("GET").await;
        reply.assert_error(503, "http_request_denied");
        assert_eq!(reply.json()["reason"], "overload");
        assert_eq!(reply.head.value("retry-after"), "1");
    }
    for stream in opened {
        assert_eq!(stream.await.unwrap(), 503);
    }
    drop(streams);
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
    assert_eq!(origin.targets(), ["/0"]);
    let rows = proxy.place().rows().await;
    let put_off = rows
        .iter()
        .filter(|row| (&row["verdict"], &row["status"]) == (&"later".into(), &503.into()));
    assert_eq!(put_off.count(), 20, "{rows:?}");
    proxy.place().assert_verified().await;
}
