//! Back-offs that begin with a 429 or 503 for the robots.txt itself.

use jiff::ToSpan as _;
use serde_json::json;

use crate::kit::client::{Reply, get};
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, assert_later, gaps, ms, standard};
use crate::kit::page::Page;
use crate::kit::proxy::Proxy;
use crate::kit::{assert_members, clock, until};

async fn page(proxy: &Proxy, number: u32) -> Reply {
    get(proxy, &format!("http://o.test/{number}")).await
}

/// Asserts that `reply` is a refusal as `unreachable` with a Retry-After of about five
/// minutes.
fn assert_unreachable(reply: &Reply, status: u16) {
    reply.assert_error(status, "http_request_denied");
    assert_eq!(reply.json()["reason"], "unreachable");
    let seconds: u64 = reply.head.value("retry-after").parse().unwrap();
    assert!((200..=300).contains(&seconds), "{seconds}");
}

// RFC 9110, section 10.2.3; RFC 6585, section 4. Ours: the back-off is on record, the next
// process keeps it, and 429 rather than 403 puts off requests whose robots.txt is unknown.
#[tokio::test]
async fn a_429_or_503_for_robots_txt_starts_a_back_off() {
    let then = clock::now().checked_add(300.seconds()).unwrap();
    let date = then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    for (status, retry_after) in [(429, "300"), (503, &*date)] {
        let busy = asking_for_less(status, Some(retry_after));
        let origin = Script::robots_page(busy).start().await;
        let other = Script::robots("").start().await;
        let config = |answer| {
            let config = standard(&origin).resolve("o.test:8081", other.address());
            config.set(&format!("robots.unreachable_answer = {answer}"))
        };
        let proxy = config(403).start().await;
        for number in 1..=2 {
            assert_unreachable(&page(&proxy, number).await, 403);
        }
        // Another port of the host, whose robots.txt was not asked for yet.
        let elsewhere = get(&proxy, "http://o.test:8081/1").await;
        let seconds = assert_later(&elsewhere, "backoff");
        assert!((200..=300).contains(&seconds), "{status}: {seconds}");
        let place = proxy.stop().await;
        place.configure(&config(503));
        let proxy = place.start().await;
        assert_unreachable(&page(&proxy, 3).await, 503);
        let place = proxy.stop().await;
        let listed = ["audit", "events", "--host", "o.test", "--json"];
        let events = place.run(&listed).await.json_lines();
        assert_eq!(events.len(), 1, "{events:?}");
        let expected = json!({"kind": "backoff_entered", "status": status, "host": "o.test"});
        assert_members(&events[0], &expected);
        place.assert_verified().await;
        origin.assert_only_robots_fetched();
        assert_eq!((origin.robots_fetches(), other.connections()), (1, 0));
    }
}

// Ours: until then it counts as unreachable.
#[tokio::test]
async fn a_robots_txt_is_fetched_again_after_its_retry_after() {
    let busy = Page::status(429).field("Retry-After", "2");
    let origin = Script::robots_page(busy).start().await;
    let proxy = standard(&origin)
        .set("robots.retry = [\"1ms\", \"1ms\"]")
        .start()
        .await;
    until("a second request for robots.txt", async || {
        assert_eq!(page(&proxy, 1).await.json()["reason"], "unreachable");
        (origin.robots_fetches() == 2).then_some(())
    })
    .await;
    let gap = gaps(&origin.log())[0];
    assert!((ms(2000)..ms(6000)).contains(&gap), "{gap:?}");
    origin.assert_only_robots_fetched();
}
