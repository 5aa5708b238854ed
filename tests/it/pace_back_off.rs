//! Back-off: the pause that a host gets after it answered 429 or 503. RFC 9110,
//! section 10.2.3; RFC 6585, section 4.

use std::sync::Arc;

use jiff::ToSpan as _;

use crate::kit::client::{Reply, get};
use crate::kit::clock;
use crate::kit::origin::Script;
use crate::kit::paced::{
    asking_all, asking_for, asking_for_less, assert_later, column, metric, ms, queue, standard,
    urls, verified, when,
};
use crate::kit::page::Gate;

/// Asserts that `reply` is the origin's own answer, unchanged.
fn assert_own(reply: &Reply, status: u16) {
    assert_eq!((reply.status(), &*reply.text()), (status, "too much\n"));
    assert_eq!(reply.head.values("proxy-status"), [""; 0]);
}

#[tokio::test]
async fn a_429_or_503_is_passed_on_and_obeyed() {
    let then = clock::now().checked_add(300.seconds()).unwrap();
    let date = then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    for (status, retry_after) in [(429, &*date), (429, "300"), (503, "300")] {
        let busy = asking_for_less(status, Some(retry_after));
        let origin = Script::robots("").page("/1", busy).start().await;
        let other = Script::robots("").start().await;
        let config = standard(&origin).resolve("other.test", other.address());
        let proxy = Arc::new(config.start().await);
        let own = get(&proxy, "http://o.test/1").await;
        assert_own(&own, status);
        assert_eq!(own.head.value("retry-after"), retry_after);
        let seconds = assert_later(&get(&proxy, "http://o.test/2").await, "backoff");
        assert!((290..=300).contains(&seconds), "{retry_after}: {seconds}");
        assert_eq!(get(&proxy, "http://other.test/1").await.status(), 200);
        assert_eq!(origin.targets(), ["/1"]);
        assert_eq!(metric(&proxy, "politesse_pace_backoffs_total").await, 1.0);
        let later = "politesse_pace_later_total{reason=\"backoff\"}";
        assert_eq!(metric(&proxy, later).await, 1.0);
        let (_place, rows) = verified(proxy, 3).await;
        assert_eq!(column(&rows, "verdict"), ["allow", "later", "allow"]);
        let reasons = ["no_group", "backoff", "no_group"];
        assert_eq!(column(&rows, "reason"), reasons);
        assert_eq!(column(&rows, "status"), [status, 429, 200]);
    }
}

// Ours: waiting requests get a 429 at once if the back-off outlasts their patience.
#[tokio::test]
async fn waiting_requests_are_put_off_when_a_back_off_begins() {
    let gate = Gate::shut();
    let busy = asking_for_less(429, Some("300")).after(&gate);
    let origin = Script::robots("").page("/1", busy).start().await;
    let config = standard(&origin).set("pace.origin = { in_flight = 1 }");
    let proxy = Arc::new(config.start().await);
    let asking = asking_for(&proxy, "http://o.test/1");
    origin.arrival("/1").await;
    let waiting = asking_all(&proxy, &urls(5)[1..]);
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
        .set("pace.backoff = { first = \"500ms\", longest = \"24h\", forgive = \"1h\" }")
        .set("pace.profile = \"owned\"");
    let proxy = Arc::new(config.start().await);
    let asking = asking_all(&proxy, &urls(3));
    for target in ["/1", "/2", "/3"] {
        origin.arrival(target).await;
    }
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
