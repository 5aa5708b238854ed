//! Pace that the operator configures: rules, limits per crawler and in total, profiles.

use std::sync::Arc;

use crate::kit::client::get_as;
use crate::kit::clock;
use crate::kit::origin::Script;
use crate::kit::paced::{
    all, asking, asking_for, assert_apart, at_once, delaying, held, ms, pages, queue, span,
    standard, statuses, verified, when,
};

// Ours: the first matching rule applies, and a site's own delay applies in full beside it.
#[tokio::test]
async fn a_pace_rule_applies_only_to_its_hosts() {
    let origin = Script::robots("").start().await;
    let rules = "pace.rule = [\
            { origin = \"quick.museum.test\", profile = \"owned\", reason = \"ours\" }, \
            { origin = \"slow.museum.test\", rate = \"100/s\", reason = \"fast\" }, \
            { origin = \"*.museum.test\", rate = \"2/s\", reason = \"asked by its owner\" }]";
    let slow = delaying("0.5").start().await;
    let config = standard(&origin)
        .resolve("slow.museum.test", slow.address())
        .resolve("a.museum.test", origin.address())
        .resolve("quick.museum.test", origin.address())
        .set(rules);
    let proxy = Arc::new(config.start().await);
    let spans = [
        ("a.museum.test", 1500 - 150, 4000),
        ("quick.museum.test", 0, 400),
        ("o.test", 600 - 150, 1400),
        ("slow.museum.test", 1500, 4000),
    ];
    for (host, shortest, longest) in spans {
        let urls = [1, 2, 3, 4].map(|number| format!("http://{host}/{number}"));
        assert_eq!(statuses(&all(&proxy, &urls).await), [200; 4]);
        let mut seen = pages(&[&origin, &slow]);
        seen.retain(|seen| seen.authority == host);
        let span = span(&seen);
        assert!(
            (ms(shortest)..ms(longest)).contains(&span),
            "{host}: {span:?}"
        );
    }
    assert_apart(&pages(&[&slow]), 4, ms(500));
    verified(proxy, 16).await;
}

// Ours: `pace.crawler`.
#[tokio::test]
async fn a_crawlers_in_flight_limit_counts_over_all_hosts() {
    let (gate, origin) = held("/1").await;
    let config = standard(&origin)
        .resolve("other.test", origin.address())
        .set("pace.crawler = { in_flight = 1 }");
    let proxy = Arc::new(config.start().await);
    let first = asking_for(&proxy, "http://o.test/1");
    origin.arrival("/1").await;
    let second = asking_for(&proxy, "http://other.test/2");
    let other = get_as(&proxy, "BarBot/1.0", "http://other.test/3").await;
    assert_eq!(other.status(), 200);
    queue(&proxy, 1).await;
    // Proof of absence: the standard rate alone would send /2 after 200 ms.
    tokio::time::sleep(ms(300)).await;
    assert_eq!(origin.targets(), ["/1", "/3"]);
    gate.open(1);
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(second.await.unwrap().status(), 200);
    verified(proxy, 3).await;
}

// Ours: `pace.crawler` counts over all hosts, and for each crawler by itself.
#[tokio::test]
async fn a_crawlers_rate_counts_over_all_hosts() {
    let origin = Script::robots("").start().await;
    let config = standard(&origin)
        .resolve("other.test", origin.address())
        .set("pace.profile = \"owned\"")
        .set("pace.crawler = { rate = \"2/s\" }");
    let proxy = Arc::new(config.start().await);
    let requests = [
        ("FooBot", "http://o.test/1"),
        ("FooBot", "http://other.test/2"),
        ("FooBot", "http://o.test/3"),
        ("FooBot", "http://other.test/4"),
        ("BarBot", "http://o.test/5"),
    ];
    let replies = at_once(&proxy, &requests).await;
    assert_eq!(statuses(&replies), [200; 5]);
    let mut seen = pages(&[&origin]);
    let bar = when(&origin, "/5").duration_since(seen[0].at);
    assert!(bar < ms(1000), "{bar:?}");
    seen.retain(|seen| seen.target != "/5");
    let span = span(&seen);
    assert!((ms(1500 - 150)..ms(4000)).contains(&span), "{span:?}");
    verified(proxy, 5).await;
}

// Ours: `pace.total`, `pace.domain` and `pace.address`.
#[tokio::test]
async fn hosts_share_the_rate_of_their_domain_or_address() {
    for key in ["total", "domain", "address"] {
        let origin = Script::robots("").start().await;
        let mut config = standard(&origin)
            .set("pace.profile = \"owned\"")
            .set(&format!("pace.{key} = {{ rate = \"4/s\" }}"));
        let mut urls = Vec::new();
        for host in 0..5 {
            let name = format!("h{host}.site.test");
            config = config.resolve(&name, origin.address());
            urls.push(format!("http://{name}/1"));
        }
        let proxy = Arc::new(config.start().await);
        assert_eq!(statuses(&all(&proxy, &urls).await), [200; 5], "{key}");
        let span = span(&pages(&[&origin]));
        assert!(
            (ms(1000 - 150)..ms(4000)).contains(&span),
            "{key}: {span:?}"
        );
        verified(proxy, 5).await;
    }
}

// Ours: one request in flight, and a pause of at least 3 s.
#[tokio::test]
async fn the_archive_profile_pauses_five_times_the_response_time() {
    let (gate, origin) = held("/1").await;
    let config = standard(&origin).set("pace.profile = \"archive\"");
    let proxy = Arc::new(config.start().await);
    let first = asking_for(&proxy, "http://o.test/1");
    let begun = origin.arrival("/1").await.at;
    let rest = asking(&proxy, "ExampleBot", &["/2", "/3"]);
    queue(&proxy, 2).await;
    // Time under test: five times the response time must exceed the minimum of 3 s.
    tokio::time::sleep(ms(700).saturating_sub(clock::since(begun))).await;
    let (took, opened) = (clock::since(begun), clock::instant());
    gate.open(1);
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(statuses(&rest.await.unwrap()), [200; 2]);
    let seen = pages(&[&origin]);
    let pause = seen[1].at.duration_since(opened);
    assert!(
        took * 5 <= pause && pause < took * 5 + ms(2500),
        "{took:?} {pause:?}"
    );
    let pause = seen[2].at.duration_since(seen[1].at);
    assert!((ms(3000)..ms(5500)).contains(&pause), "{pause:?}");
    verified(proxy, 3).await;
}
