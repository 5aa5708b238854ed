//! Connections and uploads survive a long wait for a turn.

use std::sync::Arc;

use crate::kit::client::{Crawler, get};
use crate::kit::h2::H2Crawler;
use crate::kit::paced::{assert_apart, delaying, ms, pages, standard, standard_site, verified};
use crate::kit::{sha256, stream_part};

// Ours: timeouts close idle connections; one that waits for a turn is not idle.
#[tokio::test]
async fn a_connection_that_waits_for_a_turn_does_not_time_out() {
    let origin = delaying("1.2").tls().start().await;
    let config = standard(&origin)
        .set("proxy.idle_timeout = \"150ms\"")
        .set("proxy.header_timeout = \"150ms\"")
        .set("upstream.first_byte_timeout = \"600ms\"")
        .set("upstream.idle_timeout = \"600ms\"");
    let proxy = Arc::new(config.start().await);
    assert_eq!(get(&proxy, "https://o.test/0").await.status(), 200);
    let mut streams = H2Crawler::inside(&proxy, "o.test:443").await;
    let opened = [1, 2].map(|number| streams.open(&format!("https://o.test/s/{number}")));
    let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(crawler.get("/p", "o.test").await.status(), 200);
    for stream in opened {
        assert_eq!(stream.await.unwrap(), 200);
    }
    assert_apart(&pages(&[&origin]), 4, ms(1200));
    drop((crawler, streams));
    verified(proxy, 4).await;
}

// RFC 9110, section 9.3.3: the origin gets the whole body after the wait.
#[tokio::test]
async fn an_upload_is_forwarded_whole_after_its_wait() {
    let (origin, proxy) = standard_site(delaying("1")).await;
    assert_eq!(get(&proxy, "http://o.test/0").await.status(), 200);
    let body = stream_part(0, 1 << 20);
    let mut crawler = Crawler::plain(&proxy).await;
    let length = body.len();
    let line = "POST http://o.test/up HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ExampleBot/1.0";
    let head = format!("{line}\r\nContent-Length: {length}\r\n\r\n");
    crawler.send(head.as_bytes()).await;
    crawler.send(&body).await;
    assert_eq!(crawler.reply_to("POST").await.status(), 200);
    let seen = origin.whole("/up").await;
    assert_eq!(seen.body, Some((length as u64, sha256(&body))));
    assert_apart(&pages(&[&origin]), 2, ms(1000));
    drop(crawler);
    verified(proxy, 2).await;
}
