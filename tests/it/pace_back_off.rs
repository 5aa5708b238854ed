//! Back-off: the pause that a host gets after it answered 429 or 503. RFC 9110,
//! section 10.2.3; RFC 6585, section 4.

use std::sync::Arc;

use jiff::ToSpan as _;

use crate::kit::client::{Reply, get};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{
    all, asking_for_less, assert_later, gaps, metric, ms, pages, queue, standard, urls, verified,
    when,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::Config;
use crate::kit::{clock, run};

const SHORT_BACK_OFF: &str =
    "pace.backoff = { first = \"500ms\", longest = \"24h\", forgive = \"1h\" }";

async fn origin(first: Page) -> Origin {
    Script::robots("").page("/1", first).start().await
}

/// Asserts that `reply` is the origin's own answer, unchanged.
fn assert_own(reply: &Reply, status: u16) {
    assert_eq!((reply.status(), &*reply.text()), (status, "too much\n"));
    assert_eq!(reply.head.values("proxy-status"), [""; 0]);
}

/// Asserts that an answer with this status and `Retry-After` puts the host in back-off
/// for about five minutes.
async fn assert_backed_off(status: u16, retry_after: &str) {
    let origin = origin(asking_for_less(status, Some(retry_after))).await;
    let other = Script::robots("").start().await;
    let config = standard(&origin).resolve("other.test", other.address());
    let proxy = Arc::new(config.start().await);
    let own = get(&proxy, "http://o.test/1").await;
    assert_own(&own, status);
    assert_eq!(own.head.value("retry-after"), retry_after);
    let seconds = assert_later(&get(&proxy, "http://o.test/2").await, "backoff");
    assert!((290..=300).contains(&seconds), "{seconds}");
    assert_eq!(get(&proxy, "http://other.test/1").await.status(), 200);
    assert_eq!(origin.targets(), ["/1"]);
    assert_eq!(metric(&proxy, "politesse_pace_backoffs_total").await, 1.0);
    let later = "politesse_pace_later_total{reason=\"backoff\"}";
    assert_eq!(metric(&proxy, later).await, 1.0);
    let (_place, rows) = verified(proxy, 3).await;
    let said = |key| rows.iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    assert_eq!(said("verdict"), ["allow", "later", "allow"]);
    assert_eq!(said("reason"), ["no_group", "backoff", "no_group"]);
    assert_eq!(said("status"), [status, 429, 200]);
}

#[test]
fn a_429_is_passed_on_and_obeyed() {
    run(assert_backed_off(429, "300"));
}

#[test]
fn a_503_is_passed_on_and_obeyed() {
    run(assert_backed_off(503, "300"));
}

#[tokio::test]
async fn a_date_in_retry_after_is_obeyed() {
    let then = clock::now().checked_add(300.seconds()).unwrap();
    let date = then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    assert_backed_off(429, &date).await;
}

// Ours: plain HTTP, TLS and all ports are one host.
#[tokio::test]
async fn a_back_off_covers_all_ports_of_a_host() {
    let plain = origin(asking_for_less(429, Some("300"))).await;
    let tls = Script::robots("").tls().start().await;
    let config = standard(&plain).resolve("o.test:443", tls.address());
    let proxy = Arc::new(config.start().await);
    // Fetches the robots.txt now: during the back-off it could not be fetched, and
    // nothing would be allowed.
    assert_eq!(get(&proxy, "https://o.test/1").await.status(), 200);
    assert_own(&get(&proxy, "http://o.test/1").await, 429);
    assert_later(&get(&proxy, "https://o.test/2").await, "backoff");
    assert_eq!(tls.targets(), ["/1"]);
    verified(proxy, 3).await;
}

// RFC 9110, section 10.2.3.
#[tokio::test]
async fn requests_resume_after_retry_after() {
    let origin = origin(asking_for_less(503, Some("1"))).await;
    let proxy = Arc::new(standard(&origin).start().await);
    assert_own(&get(&proxy, "http://o.test/1").await, 503);
    assert_eq!(get(&proxy, "http://o.test/2").await.status(), 200);
    let gap = gaps(&pages(&[&origin]))[0];
    assert!((ms(1000)..ms(4000)).contains(&gap), "{gap:?}");
    verified(proxy, 2).await;
}

// Ours: pauses double, and jitter only lengthens them.
#[tokio::test]
async fn without_retry_after_the_back_off_doubles() {
    let mut script = Script::robots("");
    for (target, status) in [("/1", 429), ("/2", 503), ("/3", 429)] {
        script = script.page(target, asking_for_less(status, None));
    }
    let origin = script.start().await;
    let proxy = Arc::new(standard(&origin).set(SHORT_BACK_OFF).start().await);
    for (url, status) in urls(4).iter().zip([429, 503, 429, 200]) {
        assert_eq!(get(&proxy, url).await.status(), status, "{url}");
    }
    let gaps = gaps(&pages(&[&origin]));
    for (gap, pause) in gaps.iter().zip([500, 1000, 2000]) {
        let longest = ms(pause) + ms(pause / 10) + ms(400);
        assert!(ms(pause) <= *gap && *gap < longest, "{gaps:?}");
    }
    assert_eq!(metric(&proxy, "politesse_pace_backoffs_total").await, 3.0);
    verified(proxy, 4).await;
}

// Ours: `pace.backoff.longest`.
#[tokio::test]
async fn a_back_off_never_exceeds_the_configured_longest() {
    let origin = origin(asking_for_less(429, Some("86400"))).await;
    let longest = "pace.backoff = { first = \"1s\", longest = \"1s\", forgive = \"1h\" }";
    let proxy = Arc::new(standard(&origin).set(longest).start().await);
    assert_own(&get(&proxy, "http://o.test/1").await, 429);
    assert_eq!(get(&proxy, "http://o.test/2").await.status(), 200);
    let gap = gaps(&pages(&[&origin]))[0];
    assert!((ms(1000)..ms(4000)).contains(&gap), "{gap:?}");
    verified(proxy, 2).await;
}

// Ours: other statuses say nothing about the time of the next request.
#[tokio::test]
async fn retry_after_on_other_statuses_starts_no_back_off() {
    let mut script = Script::robots("");
    for (target, status) in [("/1", 403), ("/2", 404), ("/3", 500), ("/4", 502)] {
        script = script.page(target, asking_for_less(status, Some("300")));
    }
    let origin = script.start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    for (url, status) in urls(5).iter().zip([403, 404, 500, 502, 200]) {
        assert_eq!(get(&proxy, url).await.status(), status, "{url}");
    }
    verified(proxy, 5).await;
}

// Ours: waiting requests get a 429 at once if the back-off outlasts their patience.
#[tokio::test]
async fn waiting_requests_are_put_off_when_a_back_off_begins() {
    let gate = Gate::shut();
    let origin = origin(asking_for_less(429, Some("300")).after(&gate)).await;
    let config: Config = standard(&origin).set("pace.origin = { in_flight = 1 }");
    let proxy = Arc::new(config.start().await);
    let asking = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { get(&proxy, "http://o.test/1").await }
    });
    origin.arrival("/1").await;
    let waiting = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { all(&proxy, &urls(5)[1..]).await }
    });
    queue(&proxy, 4).await;
    gate.open(1);
    assert_own(&asking.await.unwrap(), 429);
    for reply in waiting.await.unwrap() {
        assert_later(&reply, "backoff");
    }
    assert_eq!(origin.targets(), ["/1"]);
    verified(proxy, 5).await;
}

// Ours: several 429s for requests that were in flight together are one incident.
#[tokio::test]
async fn a_429_of_each_request_in_flight_counts_as_one_incident() {
    let gate = Gate::shut();
    let mut script = Script::robots("");
    for target in ["/1", "/2", "/3"] {
        script = script.page(target, asking_for_less(429, None).after(&gate));
    }
    let origin = script.start().await;
    let config = standard(&origin)
        .set(SHORT_BACK_OFF)
        .set("pace.profile = \"owned\"");
    let proxy = Arc::new(config.start().await);
    let asking = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { all(&proxy, &urls(3)).await }
    });
    origin.arrival("/1").await;
    origin.arrival("/2").await;
    origin.arrival("/3").await;
    let opened = clock::instant();
    gate.open(3);
    for reply in asking.await.unwrap() {
        assert_own(&reply, 429);
    }
    assert_eq!(get(&proxy, "http://o.test/4").await.status(), 200);
    let pause = when(&origin, "/4").duration_since(opened);
    // The pause would be 2 s if each 429 had counted.
    assert!((ms(500)..ms(1500)).contains(&pause), "{pause:?}");
    assert_eq!(metric(&proxy, "politesse_pace_backoffs_total").await, 1.0);
    verified(proxy, 4).await;
}
