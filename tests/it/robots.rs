//! Fetches of robots.txt: one for all waiting requests, within limits, and in the
//! crawler's name.

use crate::kit::client::{Crawler, ask, assert_metric, assert_statuses, get, get_as};
use crate::kit::codings::{CODINGS, coded, named};
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::{assert_contains, until};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
/// Simultaneous requests that wait for one robots.txt.
const ASKERS: usize = 1_000;

/// Returns a connection that has sent request `n`; every tenth request is for a
/// disallowed page.
async fn asker(proxy: &Proxy, n: usize) -> Crawler {
    let path = ["open", "private"][usize::from(n.is_multiple_of(10))];
    let mut crawler = Crawler::plain(proxy).await;
    let url = format!("http://o.test/{path}/{n}");
    crawler.start_get(&url, "o.test").await;
    crawler
}

// Ours: a fetch continues when half of the clients hang up, the first among them.
#[tokio::test]
async fn one_fetch_serves_the_clients_that_stay_when_half_hang_up() {
    let gate = Gate::shut();
    let (origin, proxy) = site(Script::robots_page(Page::text(ROBOTS).after(&gate)), &[]).await;
    let mut askers = vec![asker(&proxy, 0).await];
    origin.arrival("/robots.txt").await;
    for n in 1..ASKERS {
        askers.push(asker(&proxy, n).await);
    }
    let mut staying: Vec<_> = askers.into_iter().enumerate().collect();
    staying.retain(|(n, _)| matches!(n % 4, 1 | 2));
    gate.open(1);
    for (n, mut crawler) in staying {
        let reply = crawler.reply_to("GET").await;
        let wanted = if n.is_multiple_of(10) { 403 } else { 200 };
        assert_eq!(reply.status(), wanted, "asker {n}: {}", reply.text());
    }
    assert_eq!(origin.robots_fetches(), 1);
    let targets = origin.targets();
    let mut pages = targets.iter();
    let only_open = pages.all(|target| target.starts_with("/open/"));
    assert!(only_open, "{targets:?}");
}

// Ours: fetches of different origins are independent.
#[tokio::test]
async fn a_robots_txt_that_hangs_delays_no_other_origin() {
    let never = Gate::shut();
    let slow = Script::robots_page(Page::text("").after(&never))
        .start()
        .await;
    let quick = Script::robots("").start().await;
    let config = resolve("slow.test", slow.address()).resolve("quick.test", quick.address());
    let proxy = config.start().await;
    let mut waiting = Crawler::plain(&proxy).await;
    waiting.start_get("http://slow.test/a", "slow.test").await;
    slow.arrival("/robots.txt").await;
    assert_statuses(&proxy, &[("http://quick.test/a", 200)]).await;
    slow.assert_only_robots_fetched();
}

// Ours: the fetch carries the crawler's User-Agent and From, and none of its other fields.
#[tokio::test]
async fn robots_txt_is_fetched_in_the_crawlers_name() {
    let (origin, proxy) = site(Script::robots(""), &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    let lines = [
        "GET http://o.test/a HTTP/1.1",
        "Host: o.test",
        "User-Agent: ExampleBot/1.0 (+http://example.test/)",
        "From: crawl@example.test",
        "Cookie: a=1",
        "Authorization: Basic c2VjcmV0",
        "X-Other: 1",
    ];
    crawler.ask(&lines).await;
    let seen = origin.arrival("/robots.txt").await;
    assert_eq!(seen.method, "GET");
    let agent = "ExampleBot/1.0 (+http://example.test/)";
    assert_eq!(seen.values("user-agent"), [agent]);
    assert_eq!(seen.values("from"), ["crawl@example.test"]);
    for gone in ["cookie", "authorization", "x-other"] {
        assert_eq!(seen.values(gone), [""; 0], "{gone}");
    }
}

// Ours: one fetch per product token; with a fixed `robots.user_agent`, one per origin.
#[tokio::test]
async fn each_product_token_has_its_own_fetch_unless_the_user_agent_is_fixed() {
    for (line, fetches) in [
        ("robots.user_agent = \"crawler\"", 2),
        ("robots.user_agent = \"Fixed/1.0\"", 1),
    ] {
        let (origin, proxy) = site(Script::robots(""), &[line]).await;
        for agent in ["FooBot/1", "BarBot/1", "FooBot/2"] {
            get_as(&proxy, agent, "http://o.test/a").await;
        }
        assert_eq!(origin.robots_fetches(), fetches, "{line}");
        let sent = origin.arrival("/robots.txt").await;
        assert_eq!(sent.values("user-agent")[0] == "Fixed/1.0", fetches == 1);
    }
}

// RFC 9309, section 2.5: 500 KiB must be parsed. Ours: the rest is ignored.
#[tokio::test]
async fn rules_within_the_size_limit_apply_and_later_ones_do_not() {
    let filler = |bytes: usize| format!("{}\n", "#".repeat(99)).repeat(bytes / 100);
    let robots = [
        "User-agent: *\nDisallow: /early\n",
        &filler(500 * 1024 - 100),
        "Disallow: /last-inside\n",
        &filler(2_000),
        "Disallow: /behind\n",
    ];
    let (_origin, proxy) = site(Script::robots(&robots.concat()), &[]).await;
    let expected = [
        ("http://o.test/early", 403),
        ("http://o.test/last-inside", 403),
        ("http://o.test/behind", 200),
    ];
    assert_statuses(&proxy, &expected).await;
}

/// Configuration in which every robots.txt expires after a second.
const SHORT_LIVED: [&str; 2] = ["robots.ttl = \"1s\"", "robots.retry = [\"1s\", \"1s\"]"];

/// Requests `url` until `fetched` returns true, and asserts that each answer has `status`.
async fn ask_until(proxy: &Proxy, url: &str, status: u16, fetched: impl Fn() -> bool) {
    until("robots.txt is asked for again", async || {
        assert_eq!(get(proxy, url).await.status(), status);
        fetched().then_some(())
    })
    .await;
}

// Ours: never with the crawler's conditions. RFC 9110, section 15.4.5; RFC 9309, section
// 2.4: a 304 keeps the rules in force.
#[tokio::test]
async fn an_expired_copy_is_revalidated_with_its_own_validators() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let page = Page::text(ROBOTS).field("ETag", "\"one\"");
    let script = Script::robots_page(page.field("Last-Modified", date));
    let script = script.robots_if_conditional(Page::status(304));
    let (origin, proxy) = site(script, &SHORT_LIVED).await;
    let fields = ["User-Agent: ExampleBot/1.0", "If-None-Match: \"theirs\""];
    ask(&proxy, "GET", "http://o.test/private", &fields).await;
    let fetched = || 3 <= origin.robots_fetches();
    ask_until(&proxy, "http://o.test/private", 403, fetched).await;
    origin.assert_only_robots_fetched();
    let [first, second, ..] = &origin.log()[..] else {
        unreachable!("robots.txt was fetched three times");
    };
    for name in ["if-none-match", "if-modified-since"] {
        assert_eq!(first.values(name), [""; 0], "{name}");
    }
    assert_eq!(second.values("if-none-match"), ["\"one\""]);
    assert_eq!(second.values("if-modified-since"), [date]);
    assert_metric(
        &proxy,
        "politesse_robots_fetches_total{result=\"confirmed\"} ",
    )
    .await;
}

// Ours: while robots.txt is unreachable, the last copy decides.
#[tokio::test]
async fn the_last_copy_decides_while_robots_txt_is_unreachable() {
    let script = Script::robots_page(Page::text(ROBOTS).field("ETag", "\"one\""));
    let script = script.robots_if_conditional(Page::status(503));
    let (origin, proxy) = site(script, &SHORT_LIVED).await;
    let fetched = || 3 <= origin.robots_fetches();
    ask_until(&proxy, "http://o.test/open", 200, fetched).await;
    let reply = get(&proxy, "http://o.test/private").await;
    reply.assert_error(403, "http_request_denied");
    let told = reply.json();
    assert_eq!(told["reason"], "rule");
    assert_contains(&told.to_string(), "cannot be asked for now (status)");
    assert!(origin.targets().iter().all(|target| target == "/open"));
}

// Ours: some servers compress although the request asks for identity, or serve a file that
// is stored in gzip, without Content-Encoding or compressed once more.
#[tokio::test]
async fn a_compressed_robots_txt_is_decoded() {
    for codings in CODINGS {
        let body = coded(codings, ROBOTS.as_bytes().to_vec());
        let page = Page::untyped(&body).field("Content-Encoding", &named(codings));
        assert_rules_apply(page, codings).await;
    }
    let once = coded("gzip", ROBOTS.as_bytes().to_vec());
    assert_rules_apply(Page::untyped(&once), "undeclared gzip").await;
    let twice = Page::untyped(&coded("gzip", once)).field("Content-Encoding", "gzip");
    assert_rules_apply(twice, "gzip twice").await;
}

/// Asserts that the rules of [`ROBOTS`] apply at an origin that serves it in a `coding`.
async fn assert_rules_apply(robots: Page, coding: &str) {
    let (origin, proxy) = site(Script::robots_page(robots), &[]).await;
    for (path, status) in [("private", 403), ("open", 200)] {
        let reply = get(&proxy, &format!("http://o.test/{path}")).await;
        assert_eq!(reply.status(), status, "{coding}: {}", reply.text());
    }
    assert_eq!(origin.targets(), ["/open"], "{coding}");
}

// Ours: the rules up to the limit apply, as in any file that is too long.
#[tokio::test]
async fn a_decompression_bomb_is_decoded_only_up_to_the_size_limit() {
    let mut rules = ROBOTS.as_bytes().to_vec();
    rules.extend(b"#\n".repeat(32 << 20));
    let bomb = Page::untyped(&coded("gzip", rules));
    let declared = bomb.clone().field("Content-Encoding", "gzip");
    assert_rules_apply(declared, "gzip").await;
    assert_rules_apply(bomb, "undeclared gzip").await;
}
