//! Robots.txt fetches at paced origins: they take turns like pages, and do not starve the
//! pages.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::kit::client::{Crawler, ask, get, get_as};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{
    all, asking_for, assert_apart, assert_later, at_once, column, delaying, metric, ms, pages,
    standard, statuses, urls, verified,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::tenant::{GOOD, bad};
use crate::kit::{clock, until};

/// Returns a robots.txt with a `Crawl-delay` of `seconds` that expires after one second.
fn short_lived(seconds: &str) -> Page {
    let text = format!("User-agent: *\nCrawl-delay: {seconds}\n");
    Page::text(&text).field("Cache-Control", "max-age=1")
}

fn proxy(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).set("robots.ttl_min = \"1s\"")
}

/// Waits until `count` robots.txt files are queued or fetched.
async fn await_robots(proxy: &Proxy, origin: &Origin, count: usize) {
    until("robots.txt fetches", async || {
        let waiting = metric(proxy, "politesse_robots_waiting").await;
        (count as f64 <= waiting + origin.robots_fetches() as f64).then_some(())
    })
    .await;
}

// Ours: redirects on the same host share one turn. With a pause longer than
// `robots.timeout` between them, the robots.txt would be unreachable.
#[tokio::test]
async fn a_redirected_robots_txt_does_not_time_out_during_a_crawl_delay() {
    let origin = Script::robots_page(Page::redirect("/rules"))
        .page("/rules", short_lived("2"))
        .start()
        .await;
    let proxy = proxy(&origin).set("robots.timeout = \"1s\"").start().await;
    for page in 0..4 {
        let reply = get(&proxy, &format!("http://o.test/{page}")).await;
        assert_eq!(reply.status(), 200, "{page}: {}", reply.text());
    }
    let targets = origin.targets();
    let hops = targets.iter().filter(|target| *target == "/rules").count();
    assert!(2 <= hops, "{targets:?}");
    assert_eq!(origin.robots_fetches(), hops, "{targets:?}");
}

// Ours: each robots.txt has expired when the next turn comes.
#[tokio::test]
async fn a_robots_txt_that_expires_within_the_crawl_delay_starves_no_page() {
    let origin = Script::robots_page(short_lived("1.2")).start().await;
    let proxy = Arc::new(proxy(&origin).start().await);
    let replies = timeout(Duration::from_secs(15), all(&proxy, &urls(4))).await;
    assert_eq!(statuses(&replies.unwrap()), [200; 4]);
    assert_apart(&pages(&[&origin]), 4, ms(1200));
    assert!(3 <= origin.robots_fetches(), "{:?}", origin.log());
    verified(proxy, 4).await;
}

// Ours: although the robots.txt has expired again.
#[tokio::test]
async fn a_crawler_that_retries_after_retry_after_gets_its_page() {
    let origin = Script::robots_page(short_lived("2")).start().await;
    let proxy = proxy(&origin).set("pace.max_wait = \"1s\"").start().await;
    let mut put_off = 0;
    for page in 0..3 {
        let url = format!("http://o.test/{page}");
        let mut reply = get(&proxy, &url).await;
        if reply.status() == 429 {
            put_off += 1;
            let pause = assert_later(&reply, "crawl_delay");
            // Time under test: the Retry-After.
            sleep(Duration::from_secs(pause)).await;
            reply = get(&proxy, &url).await;
        }
        assert_eq!(reply.status(), 200, "{page}: {}", reply.text());
    }
    assert_eq!(put_off, 2);
    assert_apart(&pages(&[&origin]), 3, ms(2000));
}

// Ours: the page could get a turn in time, but the fetch before it could not.
#[tokio::test]
async fn an_expired_robots_txt_that_must_wait_for_its_turn_allows_nothing() {
    let page = |text: &str| Page::text(&format!("User-agent: *\nCrawl-delay: 2\n{text}"));
    let first = page("").field("Cache-Control", "max-age=1");
    let script = Script::robots_page(first.field("ETag", "\"1\""))
        .robots_if_conditional(page("Disallow: /\n"))
        .robots_for("OtherBot", page("Disallow: /\n"));
    let origin = script.start().await;
    let proxy = proxy(&origin).set("pace.max_wait = \"1s\"").start().await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    // Time under test: the crawl delay, in which the robots.txt also expires.
    sleep(ms(2100)).await;
    let other = get_as(&proxy, "OtherBot/1.0", "http://o.test/2").await;
    assert_eq!(other.status(), 403, "{}", other.text());
    let late = get(&proxy, "http://o.test/2").await;
    let pause = assert_later(&late, "crawl_delay");
    // Time under test: the Retry-After.
    sleep(Duration::from_secs(pause)).await;
    assert_eq!(get(&proxy, "http://o.test/2").await.status(), 403);
    assert_eq!((pages(&[&origin]).len(), origin.robots_fetches()), (1, 3));
    verified(Arc::new(proxy), 4).await;
}

// Ours: nor is the host asked again that redirects there.
#[tokio::test]
async fn a_robots_txt_on_a_host_in_back_off_is_not_retried_before_its_end() {
    let page = Page::status(503).field("Retry-After", "300");
    let other = Script::robots("").page("/1", page).start().await;
    let to = Page::redirect("http://p.test/robots.txt");
    let origin = Script::robots_page(to).start().await;
    let config = standard(&origin).resolve("p.test", other.address());
    let proxy = config.start().await;
    assert_eq!(get(&proxy, "http://p.test/1").await.status(), 503);
    for wait in [ms(0), ms(1200)] {
        // Proof of absence: without the back-off, the fetch is retried after a second.
        sleep(wait).await;
        let reply = get_as(&proxy, "OtherBot/1.0", "http://o.test/1").await;
        assert!([429, 503].contains(&reply.status()), "{}", reply.text());
        let pause: u64 = reply.head.value("retry-after").parse().unwrap();
        assert!((250..=300).contains(&pause), "{pause}");
    }
    assert_eq!(origin.robots_fetches(), 1, "{:?}", origin.log());
    origin.assert_only_robots_fetched();
}

// Ours: not as overload, although the end of the response is unknown.
#[tokio::test]
async fn a_robots_txt_fetch_held_up_by_a_long_response_is_put_off_as_crawl_delay() {
    let gate = Gate::shut();
    let page = Page::stepped(&["a", "b"], &gate);
    let origin = delaying("0.5").page("/1", page).start().await;
    let config = standard(&origin).set("pace.max_wait = \"1s\"");
    let proxy = Arc::new(config.start().await);
    let long = asking_for(&proxy, "http://o.test/1");
    origin.arrival("/1").await;
    for _ in 0..2 {
        let reply = get_as(&proxy, "OtherBot/1.0", "http://o.test/2").await;
        assert_later(&reply, "crawl_delay");
    }
    gate.open(1);
    assert_eq!(long.await.unwrap().status(), 200);
    verified(proxy, 3).await;
}

// RFC 7240, section 4.3 (`Prefer: wait`), and ours (`crawler.max_wait`).
#[tokio::test]
async fn prefer_and_max_wait_bound_the_wait_for_a_robots_txt() {
    let first = delaying("8").start().await;
    let other = delaying("8").start().await;
    let hasty = "crawler = [{ token = \"HastyBot\", user_agent = \"hasty\", max_wait = \"1s\" }]";
    let config = resolve("o.test", first.address()).resolve("o.test:8081", other.address());
    let proxy = Arc::new(config.set(hasty).start().await);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    for fields in [
        &["User-Agent: ExampleBot/1.0", "Prefer: wait=0"][..],
        &["User-Agent: ExampleBot/1.0", "Prefer: wait=1"],
        &["User-Agent: hasty/1.0"],
    ] {
        let begun = clock::instant();
        let reply = ask(&proxy, "GET", "http://o.test:8081/1", fields).await;
        let took = clock::since(begun);
        let pause = assert_later(&reply, "crawl_delay");
        assert!((3..=9).contains(&pause), "{fields:?}: {pause}");
        assert!(took < ms(2000), "{fields:?}: {took:?}");
    }
    assert_eq!(other.log().len(), 0, "{:?}", other.log());
    let (_, rows) = verified(proxy, 4).await;
    assert_eq!(column(&rows[1..], "verdict"), ["later"; 3]);
}

// Ours: `crawler.max_wait` replaces `pace.max_wait`.
#[tokio::test]
async fn a_crawler_with_a_longer_max_wait_waits_for_its_robots_txt() {
    let patient =
        "crawler = [{ token = \"PatientBot\", user_agent = \"patient\", max_wait = \"20s\" }]";
    let lines = [patient, "pace.max_wait = \"1s\""];
    let (origin, proxy) = site(delaying("2"), &lines).await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    let patient = get_as(&proxy, "patient/1.0", "http://o.test/2");
    let hasty = async {
        await_robots(&proxy, &origin, 2).await;
        get_as(&proxy, "HastyBot/1.0", "http://o.test/3").await
    };
    let (patient, hasty) = tokio::join!(patient, hasty);
    assert_eq!(patient.status(), 200, "{}", patient.text());
    assert_later(&hasty, "crawl_delay");
}

// Ours: by one turn at most, even if each name needs its own robots.txt.
#[tokio::test]
async fn made_up_names_do_not_delay_another_crawler() {
    let origin = delaying("0.5").start().await;
    let proxy = Arc::new(resolve("o.test", origin.address()).start().await);
    assert_eq!(get(&proxy, "http://o.test/0").await.status(), 200);
    let names: [_; 12] = std::array::from_fn(|name| format!("Made{}Up", "x".repeat(name)));
    let requests = names.each_ref().map(|name| (&**name, "http://o.test/x"));
    let flood = at_once(&proxy, &requests);
    let other = async {
        await_robots(&proxy, &origin, 1 + names.len()).await;
        let begun = clock::instant();
        let reply = get_as(&proxy, "ExampleBot/1.0", "http://o.test/1").await;
        (reply.status(), clock::since(begun))
    };
    let (flood, (status, took)) = tokio::join!(flood, other);
    assert_eq!(status, 200);
    // The turn granted before it came, one robots.txt of the flood, and its own.
    assert!(took < ms(2500), "{took:?}");
    assert_eq!(statuses(&flood), [200; 12]);
    let log = origin.log();
    assert_apart(&log[1..], 26, ms(500));
}

/// Number of product tokens that one client uses at once.
const NAMES: usize = 60;

// Ours: robots.txt fetches go round by client. One that several clients wait for is made in
// the earliest share of any of them.
#[tokio::test]
async fn many_names_of_one_client_do_not_delay_the_first_page_of_another() {
    let last_of_the_flood = format!("Bad{}", "x".repeat(NAMES - 1));
    for name in ["GoodBot/1", &last_of_the_flood] {
        let origin = Script::robots("").start().await;
        let proxy = standard(&origin).start().await;
        let mut flood = Vec::new();
        for number in 0..NAMES {
            let mut crawler = Crawler::at(bad(1), &proxy).await.unwrap();
            let name = "x".repeat(number);
            let line = format!("GET http://o.test/{number} HTTP/1.1\r\nHost: o.test");
            let request = format!("{line}\r\nUser-Agent: Bad{name}\r\n\r\n");
            crawler.send(request.as_bytes()).await;
            flood.push(crawler);
        }
        await_robots(&proxy, &origin, NAMES).await;
        let begun = clock::instant();
        let mut crawler = Crawler::at(GOOD, &proxy).await.unwrap();
        let agent = format!("User-Agent: {name}");
        let lines = [
            "GET http://o.test/good HTTP/1.1",
            "Host: o.test",
            &agent,
            "Prefer: wait=3",
        ];
        let reply = crawler.ask(&lines).await;
        assert_eq!(reply.status(), 200, "{name}: {}", reply.text());
        let took = clock::since(begun);
        assert!(took < ms(4000), "{name}: {took:?}");
        assert!(origin.robots_fetches() < NAMES / 2, "{:?}", origin.log());
    }
}
