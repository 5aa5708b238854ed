//! Pace that the operator configures: rules, limits per crawler and in total, profiles.

use std::sync::Arc;

use jiff::ToSpan as _;

use crate::kit::client::get;
use crate::kit::clock;
use crate::kit::origin::Script;
use crate::kit::paced::{
    all, assert_apart, assert_later, at_once, delaying, held, ms, pages, queue, span, standard,
    statuses, urls, verified, when,
};

// Ours: the first matching rule applies; other hosts keep the general rate.
#[tokio::test]
async fn a_pace_rule_applies_only_to_its_hosts() {
    let origin = Script::robots("").start().await;
    let rules = "pace.rule = [\
            { origin = \"quick.museum.test\", profile = \"owned\", reason = \"ours\" }, \
            { origin = \"*.museum.test\", rate = \"2/s\", reason = \"asked by its owner\" }]";
    let config = standard(&origin)
        .resolve("a.museum.test", origin.address())
        .resolve("quick.museum.test", origin.address())
        .set(rules);
    let proxy = Arc::new(config.start().await);
    let asked = |host: &str| -> Vec<_> {
        let numbers = 1..=4;
        numbers
            .map(|number| format!("http://{host}/{number}"))
            .collect()
    };
    let spans = [
        ("a.museum.test", 1500 - 150, 4000),
        ("quick.museum.test", 0, 400),
        ("o.test", 600 - 150, 1400),
    ];
    for (host, shortest, longest) in spans {
        assert_eq!(statuses(&all(&proxy, &asked(host)).await), [200; 4]);
        let mut seen = pages(&[&origin]);
        seen.retain(|seen| seen.authority == host);
        let span = span(&seen);
        assert!(
            (ms(shortest)..ms(longest)).contains(&span),
            "{host}: {span:?}"
        );
    }
    verified(proxy, 12).await;
}

// Ours: `hours` is in UTC.
#[tokio::test]
async fn requests_outside_the_hours_of_a_rule_are_put_off() {
    let origin = Script::robots("").start().await;
    let now = clock::now();
    let time_of_day = |hours: i32| {
        let then = now.checked_add(hours.hours()).unwrap();
        then.strftime("%H:%M").to_string()
    };
    let rule = |host: &str, from: i32, to: i32| {
        let hours = format!("{}-{}", time_of_day(from), time_of_day(to));
        format!("{{ origin = \"{host}\", hours = \"{hours}\", reason = \"by night\" }}")
    };
    let rules = [rule("o.test", 1, 2), rule("open.test", -1, 1)].join(", ");
    let config = standard(&origin)
        .resolve("open.test", origin.address())
        .set(&format!("pace.rule = [{rules}]"));
    let proxy = Arc::new(config.start().await);
    let reply = get(&proxy, "http://o.test/1").await;
    let seconds = assert_later(&reply, "visit_time");
    let opening = now.as_second() / 60 * 60 + 60 * 60;
    let told = clock::now().as_second() + i64::try_from(seconds).unwrap();
    assert!(
        (opening..opening + 5).contains(&told),
        "{told} for {opening}"
    );
    assert_eq!(get(&proxy, "http://open.test/1").await.status(), 200);
    let authorities: Vec<_> = pages(&[&origin])
        .into_iter()
        .map(|seen| seen.authority)
        .collect();
    assert_eq!(authorities, ["open.test"]);
    verified(proxy, 2).await;
}

// Ours: a site's own delay applies in full, beside the operator's rules.
#[tokio::test]
async fn a_pace_rule_does_not_shorten_a_sites_crawl_delay() {
    let origin = delaying("0.5").start().await;
    let config = standard(&origin)
        .set("pace.profile = \"owned\"")
        .set("pace.rule = [{ origin = \"o.test\", rate = \"100/s\", reason = \"fast\" }]");
    let proxy = Arc::new(config.start().await);
    assert_eq!(statuses(&all(&proxy, &urls(4)).await), [200; 4]);
    assert_apart(&pages(&[&origin]), 4, ms(500));
    verified(proxy, 4).await;
}

// Ours: `pace.crawler` counts over all hosts.
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

#[tokio::test]
async fn a_crawlers_in_flight_limit_counts_over_all_hosts() {
    let (gate, origin) = held("/1").await;
    let config = standard(&origin)
        .resolve("other.test", origin.address())
        .set("pace.crawler = { in_flight = 1 }");
    let proxy = Arc::new(config.start().await);
    let first = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { at_once(&proxy, &[("FooBot", "http://o.test/1")]).await }
    });
    origin.arrival("/1").await;
    let second = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { at_once(&proxy, &[("FooBot", "http://other.test/2")]).await }
    });
    let other = at_once(&proxy, &[("BarBot", "http://other.test/3")]).await;
    assert_eq!(statuses(&other), [200]);
    queue(&proxy, 1).await;
    // Proof of absence: the standard rate alone would send /2 after 200 ms.
    tokio::time::sleep(ms(300)).await;
    assert_eq!(origin.targets(), ["/1", "/3"]);
    gate.open(1);
    assert_eq!(statuses(&first.await.unwrap()), [200]);
    assert_eq!(statuses(&second.await.unwrap()), [200]);
    verified(proxy, 3).await;
}

// Ours: `pace.total`, `pace.domain` and `pace.address`.
#[tokio::test]
async fn hosts_of_one_domain_or_address_share_a_rate() {
    for key in ["total", "domain", "address"] {
        let origin = Script::robots("").start().await;
        let mut config = standard(&origin)
            .set("pace.profile = \"owned\"")
            .set(&format!("pace.{key} = {{ rate = \"4/s\" }}"));
        let mut requests = Vec::new();
        for host in 0..5 {
            let name = format!("h{host}.site.test");
            config = config.resolve(&name, origin.address());
            requests.push((format!("Bot{key}"), format!("http://{name}/1")));
        }
        let proxy = Arc::new(config.start().await);
        let requests: Vec<_> = requests
            .iter()
            .map(|(agent, url)| (&**agent, &**url))
            .collect();
        assert_eq!(statuses(&at_once(&proxy, &requests).await), [200; 5]);
        let span = span(&pages(&[&origin]));
        assert!(
            (ms(1000 - 150)..ms(4000)).contains(&span),
            "{key}: {span:?}"
        );
        verified(proxy, 5).await;
    }
}

// Ours: one request in flight, and a pause of five times the response time, at least
// 3 s.
#[tokio::test]
async fn the_archive_profile_pauses_five_times_the_response_time() {
    let (gate, origin) = held("/1").await;
    let config = standard(&origin).set("pace.profile = \"archive\"");
    let proxy = Arc::new(config.start().await);
    let first = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { get(&proxy, "http://o.test/1").await }
    });
    let begun = origin.arrival("/1").await.at;
    let rest = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { all(&proxy, &urls(3)[1..]).await }
    });
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
