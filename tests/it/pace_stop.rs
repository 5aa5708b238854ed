//! A stop while requests wait for their turns. Issue 6, Deliver 4; README,
//! "Stopping".

use crate::kit::client::{Crawler, get};
use crate::kit::h2::H2Crawler;
use crate::kit::paced::{delaying, ms, queue, standard};
use crate::kit::{clock, run};

const EACH: u32 = 10;

// Over HTTP/1.1 and HTTP/2: nobody is sent whose turn comes after the end, and
// nobody is left without one.
#[test]
fn whoever_waits_at_a_stop_gets_an_end() {
    run(async {
        let origin = delaying("60").start_tls().await;
        let config = standard(&origin)
            .set("pace.max_wait = \"1h\"")
            .set("proxy.shutdown_timeout = \"1s\"");
        let mut proxy = config.start().await;
        assert_eq!(get(&proxy, "https://o.test/0").await.status(), 200);
        let mut streams = H2Crawler::inside(&proxy, "o.test:443").await;
        let mut opened = Vec::new();
        let mut crawlers = Vec::new();
        for number in 0..EACH {
            opened.push(streams.open(&format!("https://o.test/s/{number}")));
            let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
            let line = format!("GET /p/{number} HTTP/1.1\r\n");
            crawler
                .send((line + "Host: o.test\r\nUser-Agent: ExampleBot/1.0\r\n\r\n").as_bytes())
                .await;
            crawlers.push(crawler);
        }
        queue(&proxy, 2 * EACH).await;
        let begun = clock::instant();
        proxy.signal("TERM").await;
        for mut crawler in crawlers {
            let reply = crawler.try_reply_to("GET").await;
            assert!(reply.is_none_or(|reply| reply.status() == 503));
        }
        for stream in opened {
            assert!(!stream.await.is_ok_and(|status| status != 503));
        }
        let status = proxy.ended().await;
        assert_eq!(status.code(), Some(0), "{}", proxy.log());
        let took = clock::since(begun);
        assert!(took < ms(8000), "{took:?}");
        assert_eq!(origin.targets(), ["/0"]);
        let verified = proxy.place().run(&["audit", "verify"]).await;
        assert_eq!(verified.code, Some(0), "{verified:?}");
    });
}
