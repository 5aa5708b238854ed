//! A crawl of a minute: memory does not grow, and no entry is lost.
//!
//! Only `tests/full.sh` runs it.

use std::time::Duration;

use crate::kit::client::Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::proxy::Proxy;
use crate::kit::{assert_contains, run_within};

const ROUNDS: usize = 30;
const CRAWLERS: usize = 8;
const REQUESTS: usize = 100;

async fn round(proxy: &Proxy, round: usize) {
    // Product tokens change, as with crawlers that make up names.
    let letter = char::from(b'A' + u8::try_from(round % 26).unwrap());
    let agent = &format!("User-Agent: Soak{letter}/1.0");
    for number in 0..CRAWLERS {
        let mut crawler = Crawler::plain(proxy).await;
        for request in 0..REQUESTS {
            let path = if request % 5 == 0 { "private" } else { "page" };
            let line = format!("GET http://o.test/{path}/{number}/{request} HTTP/1.1");
            let reply = crawler.ask(&[&line, "Host: o.test", agent]).await;
            assert_eq!(reply.status(), if path == "page" { 200 } else { 403 });
        }
    }
}

// Ours: memory grows by less than 20 MiB.
#[test]
#[ignore = "a minute long: tests/full.sh runs it"]
fn a_crawl_of_a_minute_keeps_memory_flat_and_the_record_complete() {
    // Takes a minute on an idle machine.
    run_within(Duration::from_secs(600), async {
        let script = Script::robots("User-agent: *\nDisallow: /private\n");
        let (origin, proxy) = site(script, &[]).await;
        for warm in 0..3 {
            round(&proxy, warm).await;
        }
        let before = proxy.rss_kib();
        for number in 0..ROUNDS {
            round(&proxy, number).await;
        }
        let after = proxy.rss_kib();
        let requests = ROUNDS * CRAWLERS * REQUESTS;
        println!("RSS {before} KiB before, {after} KiB after {requests} requests");
        assert!(after < before + 20 * 1024, "{before} to {after} KiB");
        let verified = proxy.place().run(&["audit", "verify"]).await;
        assert_contains(&verified.stdout, "0 mismatches, 0 missing");
        let targets = origin.targets();
        let mut pages = targets.iter();
        assert!(pages.all(|target| target.starts_with("/page")));
    });
}
