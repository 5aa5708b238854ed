//! Fetching robots.txt: once for all who ask, with bounds, and on the
//! crawler's behalf.

use std::sync::Arc;

use crate::kit::client::{Crawler, get, get_as, metrics};
use crate::kit::codings::{CODINGS, coded, named};
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::until;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
/// Crawlers that ask at once in the tests of many that want one robots.txt.
const ASKERS: usize = 1_000;

/// Returns a connection with its request sent: every tenth one asks for what is
/// disallowed.
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

/// Holds that asker `n` was answered as the rule says.
async fn assert_answered(mut crawler: Crawler, n: usize) {
    let reply = crawler.reply_to("GET").await;
    let wanted = if n.is_multiple_of(10) { 403 } else { 200 };
    assert_eq!(reply.status(), wanted, "asker {n}: {}", reply.text());
}

// Ours.
#[tokio::test]
async fn a_thousand_first_askers_make_one_fetch() {
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
    assert!(
        origin
            .targets()
            .iter()
            .all(|target| target.starts_with("/open/"))
    );
}

// Ours: the same with half of the askers hanging up, the first among them.
#[tokio::test]
async fn half_the_askers_hang_up_and_the_others_are_served_by_one_fetch() {
    let gate = Gate::shut();
    let (origin, proxy) = site(Script::robots_page(Page::text(ROBOTS).after(&gate)), &[]).await;
    let mut askers = vec![asker(&proxy, 0).await];
    origin.arrival("/robots.txt").await;
    for n in 1..ASKERS {
        askers.push(asker(&proxy, n).await);
    }
    let mut staying = Vec::new();
    for (n, crawler) in askers.into_iter().enumerate() {
        if !n.is_multiple_of(2) {
            staying.push((n, crawler));
        }
    }
    gate.open(1);
    for (n, crawler) in staying {
        assert_answered(crawler, n).await;
    }
    assert_eq!(origin.robots_fetches(), 1);
    assert!(
        origin
            .targets()
            .iter()
            .all(|target| target.starts_with("/open/"))
    );
}

// Ours: a robots.txt that hangs delays no other origin.
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
    waiting
        .send(b"GET http://slow.test/a HTTP/1.1\r\nHost: slow.test\r\n\r\n")
        .await;
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

// Ours: the fetch survives a crawler that hangs up.
#[tokio::test]
async fn the_fetch_outlives_the_crawler_that_asked_first() {
    let gate = Gate::shut();
    let (origin, proxy) = site(Script::robots_page(Page::text(ROBOTS).after(&gate)), &[]).await;
    let first = asker(&proxy, 1).await;
    origin.arrival("/robots.txt").await;
    drop(first);
    gate.open(1);
    assert_eq!(get(&proxy, "http://o.test/open").await.status(), 200);
    assert_eq!(origin.robots_fetches(), 1);
}

// Ours: User-Agent and From, nothing else of theirs.
#[tokio::test]
async fn robots_txt_is_asked_for_in_the_crawlers_name() {
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

// Ours: one fetch per snapshot, and a snapshot per product token; one per
// origin with a fixed robots.user_agent.
#[tokio::test]
async fn each_token_has_a_fetch_of_its_own_unless_the_user_agent_is_fixed() {
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

// Ours: answered from our copy, marked by Age (RFC 9111, section 5.1).
#[tokio::test]
async fn a_crawlers_own_request_for_robots_txt_is_answered_from_our_copy() {
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
        let origin = script
            .page(&format!("/hop{hops}"), Page::text(""))
            .start()
            .await;
        let proxy = resolve("o.test", origin.address()).start().await;
        let reply = get(&proxy, "http://o.test/page").await;
        assert_eq!(reply.status(), status, "{hops} hops: {}", reply.text());
        if status == 403 {
            assert_eq!(reply.json()["reason"], "unreachable");
        }
    }
}

// Ours: also to another origin, whose rules are then those of the first.
#[tokio::test]
async fn a_redirected_robots_txt_binds_the_origin_that_was_asked() {
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

// Ours: a hop to another origin's page is judged by that origin's rules, and
// not sent if they disallow it.
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

// RFC 9309, section 2.3.1.3: 4xx allows, 401 and 403 by configuration.
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
        assert_eq!(
            (&rows[0]["verdict"], &rows[0]["reason"]),
            (&"allow".into(), &"unavailable".into())
        );
    }
}

// Ours: robots.status.unauthorized = "refuse".
#[tokio::test]
async fn a_guarded_robots_txt_refuses_where_configured_so() {
    for status in [401, 403] {
        let origin = Script::robots_page(Page::status(status)).start().await;
        let config =
            resolve("o.test", origin.address()).set("robots.status.unauthorized = \"refuse\"");
        let proxy = config.start().await;
        let reply = get(&proxy, "http://o.test/a").await;
        reply.assert_error(403, "http_request_denied");
        assert_eq!(reply.json()["reason"], "restricted");
        origin.assert_only_robots_fetched();
    }
}

// RFC 9309, section 2.5: at least 500 KiB are parsed; what comes after is not.
#[tokio::test]
async fn rules_within_the_size_limit_hold_and_those_behind_it_do_not() {
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

// Invariant 6 (ARCHITECTURE.md): the copy in force decides, for all who ask at
// once over TLS too. RFC 9309, section 2.3: scheme and port have files of their
// own.
#[tokio::test]
async fn askers_over_http_and_https_share_nothing_but_the_proxy() {
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

/// Returns a configuration in which every copy expires after a second.
fn short_lived(name: &str, address: std::net::SocketAddr) -> Config {
    resolve(name, address)
        .set("robots.ttl = \"1s\"")
        .set("robots.retry = [\"1s\", \"1s\"]")
}

/// Asks for `url`, which is answered with `status`, until robots.txt is
/// `fetched`.
async fn ask_until(proxy: &Proxy, url: &str, status: u16, fetched: impl Fn() -> bool) {
    until("robots.txt is asked for again", async || {
        assert_eq!(get(proxy, url).await.status(), status);
        fetched().then_some(())
    })
    .await;
}

// Ours: revalidated with ETag and Last-Modified, on the wire; a 304 confirms
// the copy. The crawler's own conditions never go there.
#[tokio::test]
async fn a_copy_is_revalidated_on_the_wire() {
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

// RFC 9110, section 15.4.5; RFC 9309, section 2.4: what a 304 confirms stays in
// force, and is told in the metrics.
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

// Ours: an earlier copy is used while its origin is unreachable: what it
// disallows is refused by its rule, what it allows goes on.
#[tokio::test]
async fn a_copy_outlives_an_origin_that_falls_over() {
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
    assert!(
        detail.contains("cannot be asked for now (status)"),
        "{detail}"
    );
    assert!(origin.targets().iter().all(|target| target == "/open"));
}

// Ours: coded although identity was asked for.
#[tokio::test]
async fn a_coded_robots_txt_is_decoded() {
    for codings in CODINGS {
        let body = coded(codings, ROBOTS.as_bytes().to_vec());
        let page = Page::untyped(&body).field("Content-Encoding", &named(codings));
        let (origin, proxy) = site(Script::robots_page(page), &[]).await;
        for (path, status) in [("private", 403), ("open", 200)] {
            let reply = get(&proxy, &format!("http://o.test/{path}")).await;
            assert_eq!(reply.status(), status, "{codings}: {}", reply.text());
        }
        assert_eq!(origin.targets(), ["/open"], "{codings}");
    }
}

/// Asks for a page of each kind at an origin that answers with `robots`.
async fn assert_rules_hold(robots: Page) {
    let (origin, proxy) = site(Script::robots_page(robots), &[]).await;
    for (path, status) in [("private", 403), ("open", 200)] {
        let reply = get(&proxy, &format!("http://o.test/{path}")).await;
        assert_eq!(reply.status(), status, "{}", reply.text());
    }
    assert_eq!(origin.targets(), ["/open"]);
}

// Ours: a file that was in gzip before, and is sent without saying so or once more in
// gzip.
#[tokio::test]
async fn gzip_that_was_not_declared_is_decoded() {
    let once = coded("gzip", ROBOTS.as_bytes().to_vec());
    let twice = Page::untyped(&coded("gzip", once.clone()));
    for page in [
        Page::untyped(&once),
        twice.field("Content-Encoding", "gzip"),
    ] {
        assert_rules_hold(page).await;
    }
}

// Ours: a bomb is decoded as far as a file is read; the rules so far hold, as
// of any file that is too long.
#[tokio::test]
async fn a_bomb_costs_no_more_than_a_long_file() {
    let mut bomb = ROBOTS.as_bytes().to_vec();
    bomb.extend(b"#\n".repeat(32 << 20));
    let page = || Page::untyped(&coded("gzip", bomb.clone()));
    for page in [page().field("Content-Encoding", "gzip"), page()] {
        assert_rules_hold(page).await;
    }
}
