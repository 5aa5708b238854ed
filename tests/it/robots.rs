//! Fetches of robots.txt: one for all waiting requests, within limits, and in the
//! crawler's name.

use std::sync::Arc;

use serde_json::json;

use crate::kit::client::{Crawler, get, get_as, metrics};
use crate::kit::codings::{CODINGS, coded, named};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::{assert_contains, assert_members, until};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
/// Simultaneous requests in the tests of many that wait for one robots.txt.
const ASKERS: usize = 1_000;

/// Returns a connection that has sent request `n`; every tenth request is for a
/// disallowed page.
async fn asker(proxy: &Proxy, n: usize) -> Crawler {
    let path = if n.is_multiple_of(10) {
        "private"
    } else {
        "open"
    };
    let mut crawler = Crawler::plain(proxy).await;
    let request = format!(
        "GET http://o.test/{path}/{n} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ExampleBot/1.0\r\n\r\n"
    );
    crawler.send(request.as_bytes()).await;
    crawler
}

/// Asserts that request `n` got the status that the rule demands.
async fn assert_answered(mut crawler: Crawler, n: usize) {
    let reply = crawler.reply_to("GET").await;
    let wanted = if n.is_multiple_of(10) { 403 } else { 200 };
    assert_eq!(reply.status(), wanted, "asker {n}: {}", reply.text());
}

/// Asserts that `origin` got no request for a disallowed page.
fn assert_only_open(origin: &Origin) {
    let targets = origin.targets();
    let mut pages = targets.iter();
    assert!(
        pages.all(|target| target.starts_with("/open/")),
        "{targets:?}"
    );
}

// Ours.
#[tokio::test]
async fn a_thousand_first_requests_make_one_fetch() {
    let gate = Gate::shut();
    let (origin, proxy) = site(Script::robots_page(Page::text(ROBOTS).after(&gate)), &[]).await;
    let mut askers = Vec::new();
    for n in 0..ASKERS {
        askers.push(asker(&proxy, n).await);
    }
    origin.arrival("/robots.txt").await;
    gate.open(1);
    for (n, crawler) in askers.into_iter().enumerate() {
        assert_answered(crawler, n).await;
    }
    assert_eq!(origin.robots_fetches(), 1);
    assert_eq!(origin.targets().len(), ASKERS - ASKERS / 10);
    assert_only_open(&origin);
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
    staying.retain(|(n, _)| !n.is_multiple_of(2));
    gate.open(1);
    for (n, crawler) in staying {
        assert_answered(crawler, n).await;
    }
    assert_eq!(origin.robots_fetches(), 1);
    assert_only_open(&origin);
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
    for n in 0..20 {
        assert_eq!(
            get(&proxy, &format!("http://quick.test/{n}"))
                .await
                .status(),
            200
        );
    }
    slow.assert_only_robots_fetched();
}

// Ours: a hang-up does not cancel the fetch.
#[tokio::test]
async fn a_fetch_continues_after_its_only_client_hangs_up() {
    let gate = Gate::shut();
    let (origin, proxy) = site(Script::robots_page(Page::text(ROBOTS).after(&gate)), &[]).await;
    let first = asker(&proxy, 1).await;
    origin.arrival("/robots.txt").await;
    drop(first);
    gate.open(1);
    assert_eq!(get(&proxy, "http://o.test/open").await.status(), 200);
    assert_eq!(origin.robots_fetches(), 1);
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
    assert_eq!(
        seen.values("user-agent"),
        ["ExampleBot/1.0 (+http://example.test/)"]
    );
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

// Ours: the cached copy is marked by Age (RFC 9111, section 5.1).
#[tokio::test]
async fn a_crawlers_own_request_for_robots_txt_is_answered_from_the_cache() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    for _ in 0..3 {
        let reply = get(&proxy, "http://o.test/robots.txt").await;
        assert_eq!((reply.status(), reply.text().as_str()), (200, ROBOTS));
        assert!(reply.head.value("age").parse::<u32>().is_ok());
    }
    assert_eq!(origin.robots_fetches(), 1);
    let rows = proxy.place().completed(3).await;
    assert!(
        rows.iter()
            .all(|row| row["effect"] == "cached" && row["reason"] == "robots_txt"),
        "{rows:?}"
    );
}

// RFC 9309, section 2.3.1.2: at least five redirects, here exactly five.
#[tokio::test]
async fn five_redirects_are_followed_and_a_sixth_is_not() {
    for (hops, status) in [(5, 200), (6, 403)] {
        let mut script = Script::robots_page(Page::redirect("/hop1"));
        for hop in 1..hops {
            script = script.page(
                &format!("/hop{hop}"),
                Page::redirect(&format!("hop{}", hop + 1)),
            );
        }
        let script = script.page(&format!("/hop{hops}"), Page::text(""));
        let (_origin, proxy) = site(script, &[]).await;
        let reply = get(&proxy, "http://o.test/page").await;
        assert_eq!(reply.status(), status, "{hops} hops: {}", reply.text());
        if status == 403 {
            assert_eq!(reply.json()["reason"], "unreachable");
        }
    }
}

// Ours: the rules found at another origin apply to the origin that redirected there.
#[tokio::test]
async fn a_redirected_robots_txt_applies_to_the_origin_that_was_asked() {
    let second = Script::robots("User-agent: *\nDisallow: /x\n")
        .start()
        .await;
    let first = Script::robots_page(Page::redirect("http://p.test/robots.txt"))
        .start()
        .await;
    let proxy = resolve("o.test", first.address())
        .resolve("p.test", second.address())
        .start()
        .await;
    get(&proxy, "http://o.test/x")
        .await
        .assert_error(403, "http_request_denied");
    assert_eq!(get(&proxy, "http://o.test/y").await.status(), 200);
    assert_eq!(first.targets(), ["/y"]);
    second.assert_only_robots_fetched();
}

// Ours: a redirect to another origin is followed only if that origin's robots.txt allows
// the target.
#[tokio::test]
async fn a_redirect_to_a_disallowed_page_of_another_origin_is_not_followed() {
    let second = Script::robots(ROBOTS)
        .page("/open", Page::text(""))
        .start()
        .await;
    for (location, status) in [
        ("http://p.test/private?delete=1", 403),
        ("http://p.test/open", 200),
    ] {
        let first = Script::robots_page(Page::redirect(location)).start().await;
        let config = resolve("o.test", first.address()).resolve("p.test", second.address());
        let proxy = config.start().await;
        assert_eq!(
            get(&proxy, "http://o.test/a").await.status(),
            status,
            "{location}"
        );
    }
    assert_eq!(second.targets(), ["/open"]);
}

// RFC 9309, section 2.3.1.3: a 4xx allows everything; 401 and 403 are configurable.
#[tokio::test]
async fn without_a_robots_txt_everything_is_allowed() {
    for status in [400, 401, 403, 404, 410, 451] {
        let (_origin, proxy) = site(Script::robots_page(Page::status(status)), &[]).await;
        assert_eq!(
            get(&proxy, "http://o.test/a").await.status(),
            200,
            "{status}"
        );
        let rows = proxy.place().completed(1).await;
        let expected = json!({"verdict": "allow", "reason": "unavailable"});
        assert_members(&rows[0], &expected);
    }
}

// Ours: robots.status.unauthorized = "refuse".
#[tokio::test]
async fn a_401_or_403_for_robots_txt_refuses_everything_if_configured() {
    for status in [401, 403] {
        let refuse = "robots.status.unauthorized = \"refuse\"";
        let (origin, proxy) = site(Script::robots_page(Page::status(status)), &[refuse]).await;
        let reply = get(&proxy, "http://o.test/a").await;
        reply.assert_error(403, "http_request_denied");
        assert_eq!(reply.json()["reason"], "restricted");
        origin.assert_only_robots_fetched();
    }
}

// RFC 9309, section 2.5: 500 KiB must be parsed. Ours: the rest is ignored.
#[tokio::test]
async fn rules_within_the_size_limit_apply_and_later_ones_do_not() {
    let filler = "#".repeat(99) + "\n";
    let limit = 500 * 1024;
    let mut robots = "User-agent: *\nDisallow: /early\n".to_owned();
    while robots.len() + filler.len() + 30 < limit {
        robots.push_str(&filler);
    }
    robots.push_str("Disallow: /last-inside\n");
    while robots.len() < limit + 2_000 {
        robots.push_str(&filler);
    }
    robots.push_str("Disallow: /behind\n");
    let (_origin, proxy) = site(Script::robots(&robots), &[]).await;
    for (path, status) in [("early", 403), ("last-inside", 403), ("behind", 200)] {
        assert_eq!(
            get(&proxy, &format!("http://o.test/{path}")).await.status(),
            status,
            "{path}"
        );
    }
}

// Invariant 6 (ARCHITECTURE.md): one copy in force decides all simultaneous requests.
// RFC 9309, section 2.3: each scheme and port has its own file.
#[tokio::test]
async fn http_and_https_origins_have_separate_fetches() {
    let plain = Script::robots(ROBOTS).start().await;
    let tls = Script::robots(ROBOTS).tls().start().await;
    let config = resolve("o.test:80", plain.address()).resolve("o.test:443", tls.address());
    let proxy = Arc::new(config.start().await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..40 {
        let proxy = Arc::clone(&proxy);
        let scheme = if n % 2 == 0 { "http" } else { "https" };
        tasks.spawn(async move {
            get(&proxy, &format!("{scheme}://o.test/open/{n}"))
                .await
                .status()
        });
    }
    assert!(
        tasks
            .join_all()
            .await
            .into_iter()
            .all(|status| status == 200)
    );
    assert_eq!((plain.robots_fetches(), tls.robots_fetches()), (1, 1));
}

/// Returns a configuration in which every robots.txt expires after a second.
fn short_lived(name: &str, address: std::net::SocketAddr) -> Config {
    resolve(name, address)
        .set("robots.ttl = \"1s\"")
        .set("robots.retry = [\"1s\", \"1s\"]")
}

/// Requests `url` until `fetched` returns true, and asserts that each answer has `status`.
async fn ask_until(proxy: &Proxy, url: &str, status: u16, fetched: impl Fn() -> bool) {
    until("robots.txt is asked for again", async || {
        assert_eq!(get(proxy, url).await.status(), status);
        fetched().then_some(())
    })
    .await;
}

// Ours: an expired copy is revalidated with its own ETag and Last-Modified, never with
// the crawler's conditions.
#[tokio::test]
async fn an_expired_copy_is_revalidated_with_its_own_validators() {
    let origin = RawOrigin::start(|target| match target {
        "/robots.txt" => Bytes::of(
            b"HTTP/1.1 200 OK\r\nETag: \"one\"\r\nLast-Modified: Sun, 06 Nov 1994 \
                  08:49:37 GMT\r\nContent-Length: 34\r\n\r\nUser-agent: *\nDisallow: /private\n\n\n",
        ),
        _ => Bytes::text("page"),
    })
    .await;
    let proxy = short_lived("o.test", origin.address()).start().await;
    let mut crawler = Crawler::plain(&proxy).await;
    let lines = [
        "GET http://o.test/private HTTP/1.1",
        "Host: o.test",
        "User-Agent: ExampleBot/1.0",
        "If-None-Match: \"theirs\"",
    ];
    crawler.ask(&lines).await;
    let fetched = || 2 <= origin.robots_requests().len();
    ask_until(&proxy, "http://o.test/private", 403, fetched).await;
    let requests = origin.robots_requests();
    let text = |at: usize| String::from_utf8_lossy(&requests[at]).into_owned();
    assert!(!text(0).contains("If-"), "{}", text(0));
    let end = "If-None-Match: \"one\"\r\n\
                   If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
    assert!(text(1).ends_with(end), "{}", text(1));
}

// RFC 9110, section 15.4.5; RFC 9309, section 2.4: a 304 keeps the rules in force. The
// metrics count it.
#[tokio::test]
async fn a_304_leaves_the_rules_in_force() {
    let page = Page::text(ROBOTS).field("ETag", "\"one\"");
    let origin = Script::robots_page(page)
        .robots_if_conditional(Page::status(304))
        .start()
        .await;
    let proxy = short_lived("o.test", origin.address()).start().await;
    let fetched = || 3 <= origin.robots_fetches();
    ask_until(&proxy, "http://o.test/private", 403, fetched).await;
    origin.assert_only_robots_fetched();
    let told = metrics(&proxy).await;
    let confirmed = "politesse_robots_fetches_total{result=\"confirmed\"} ";
    assert!(told.contains(confirmed), "{told}");
}

// Ours: while robots.txt is unreachable, the last copy decides.
#[tokio::test]
async fn the_last_copy_decides_while_robots_txt_is_unreachable() {
    let origin = Script::robots_page(Page::text(ROBOTS).field("ETag", "\"one\""))
        .robots_if_conditional(Page::status(503))
        .start()
        .await;
    let proxy = short_lived("o.test", origin.address()).start().await;
    let fetched = || 3 <= origin.robots_fetches();
    ask_until(&proxy, "http://o.test/open", 200, fetched).await;
    let reply = get(&proxy, "http://o.test/private").await;
    reply.assert_error(403, "http_request_denied");
    let told = reply.json();
    assert_eq!(told["reason"], "rule");
    let detail = told["detail"].as_str().unwrap();
    assert_contains(detail, "cannot be asked for now (status)");
    assert!(origin.targets().iter().all(|target| target == "/open"));
}

// Ours: some servers compress although the request asks for identity.
#[tokio::test]
async fn a_compressed_robots_txt_is_decoded() {
    for codings in CODINGS {
        let body = coded(codings, ROBOTS.as_bytes().to_vec());
        let page = Page::untyped(&body).field("Content-Encoding", &named(codings));
        assert_rules_apply(page, codings).await;
    }
}

/// Asserts that the rules of [`ROBOTS`] apply at an origin that serves `robots`. Failures
/// name the `coding`.
async fn assert_rules_apply(robots: Page, coding: &str) {
    let (origin, proxy) = site(Script::robots_page(robots), &[]).await;
    for (path, status) in [("private", 403), ("open", 200)] {
        let reply = get(&proxy, &format!("http://o.test/{path}")).await;
        assert_eq!(reply.status(), status, "{coding}: {}", reply.text());
    }
    assert_eq!(origin.targets(), ["/open"], "{coding}");
}

// Ours: a file stored in gzip, sent without Content-Encoding or compressed once more.
#[tokio::test]
async fn undeclared_gzip_is_decoded() {
    let once = coded("gzip", ROBOTS.as_bytes().to_vec());
    let twice = Page::untyped(&coded("gzip", once.clone()));
    assert_rules_apply(Page::untyped(&once), "undeclared gzip").await;
    let twice = twice.field("Content-Encoding", "gzip");
    assert_rules_apply(twice, "gzip twice").await;
}

// Ours: decoding stops at the size limit of a robots.txt. The rules up to there apply, as
// in any file that is too long.
#[tokio::test]
async fn a_decompression_bomb_is_decoded_only_up_to_the_size_limit() {
    let mut bomb = ROBOTS.as_bytes().to_vec();
    bomb.extend(b"#\n".repeat(32 << 20));
    let page = || Page::untyped(&coded("gzip", bomb.clone()));
    let declared = page().field("Content-Encoding", "gzip");
    assert_rules_apply(declared, "gzip").await;
    assert_rules_apply(page(), "undeclared gzip").await;
}
