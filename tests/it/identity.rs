//! Identification of crawlers with unusual or deceptive `User-Agent` values: a crawler
//! must not get a page by disguising a name that robots.txt refuses. The log of the
//! origin decides.

use serde_json::json;

use crate::kit::client::{Crawler, Reply, assert_metric, get_as, get_from};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::raw_origin::{Bytes, raw_site};
use crate::kit::{assert_contains, assert_members};
use crate::operator::assert_verified;

/// BadBot and a crawler with other characters than RFC 9309, section 2.2.1, allows in a
/// name may fetch nothing, every other crawler everything except /p.
const ROBOTS: &str = "User-agent: BadBot\nUser-agent: B\u{e4}dBot\nDisallow: /\n\n\
                      User-agent: *\nDisallow: /p\n";

/// Requests `path` with these bytes as the `User-Agent`.
async fn ask(proxy: &Proxy, path: &str, agent: &[u8]) -> Reply {
    try_ask(proxy, path, agent).await.expect("an answer")
}

/// Requests `path` with these bytes as the `User-Agent`; `None` if the proxy closes the
/// connection without an answer.
async fn try_ask(proxy: &Proxy, path: &str, agent: &[u8]) -> Option<Reply> {
    let mut crawler = Crawler::plain(proxy).await;
    let line = format!("GET http://o.test{path} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ");
    let head = [line.as_bytes(), agent, b"\r\n\r\n"].concat();
    // A head that is too long is answered before it is read whole.
    let _ = crawler.try_send(&head).await;
    crawler.try_reply_to("GET").await
}

/// Returns a `User-Agent` with BadBot's name after a text meant to hide it.
fn disguised(before: &str) -> Vec<u8> {
    format!("{before}BadBot/1.0").into_bytes()
}

#[tokio::test]
async fn a_name_is_found_in_any_product_or_crawler_comment() {
    let (origin, proxy) = raw_site(ROBOTS, Bytes::text("page")).await;
    let generic = "Mozilla/5.0 ".repeat(4_000);
    for agent in [
        disguised(""),
        disguised("Mozilla/5.0 "),
        disguised("Other/1 "),
        disguised("Other/1\t"),
        disguised("Other/1\t \t"),
        disguised("(a (nested (deeply) ) comment) "),
        disguised("Mozilla/5.0 (x; (y; (compatible; "),
        disguised("\\( "),
        disguised(&generic),
        disguised(&format!("Mozilla/5.0 ({}) ", "x".repeat(60_000))),
        disguised(&"A/1 ".repeat(63)),
        b"bADbOT".to_vec(),
        b"BadBot".to_vec(),
        b"* BadBot/1".to_vec(),
        b"/ BadBot/1".to_vec(),
        "B\u{e4}dBot/1".as_bytes().to_vec(),
        b"B\xE4dBot/1".to_vec(),
    ] {
        let reply = ask(&proxy, "/a", &agent).await;
        let shown = String::from_utf8_lossy(&agent[..agent.len().min(60)]).into_owned();
        assert_eq!(reply.status(), 403, "{shown}: {}", reply.text());
        assert_eq!(reply.json()["rule"]["line"], 3, "{shown}");
    }
    assert_eq!(origin.lines(), [""; 0]);
    assert_verified(proxy).await;
}

#[tokio::test]
async fn a_nameless_client_is_bound_by_the_group_for_everyone() {
    let (origin, proxy) = raw_site(ROBOTS, Bytes::text("page")).await;
    let agents: [&[u8]; 10] = [
        b"",
        b" \t ",
        b"*",
        b"*/1.0",
        b"/",
        b"//",
        b"()",
        b"((((",
        b"\xff\xfe/1",
        b"Nobody/1",
    ];
    for agent in agents {
        let refused = ask(&proxy, "/p", agent).await;
        assert_eq!(refused.status(), 403, "{agent:?}: {}", refused.text());
        assert_eq!(refused.json()["rule"]["group"][0], "*", "{agent:?}");
        assert_eq!(ask(&proxy, "/a", agent).await.status(), 200, "{agent:?}");
    }
    assert_eq!(origin.lines(), ["GET /a"; 10]);
}

// Ours: a name beyond the limits could be the one that robots.txt refuses.
#[tokio::test]
async fn a_user_agent_with_too_many_or_too_long_names_is_malformed() {
    let (origin, proxy) = raw_site(ROBOTS, Bytes::text("page")).await;
    let many: String = (0..300).map(|n| format!("Bot{n}/1 ")).collect();
    for agent in [
        disguised(&many),
        // Names of HTTP libraries identify no crawler, but count towards the limit.
        disguised(&"curl/8 ".repeat(64)),
        format!("Other/1 {}/1", "x".repeat(257)).into_bytes(),
        format!("{}/1", "x".repeat(60_000)).into_bytes(),
    ] {
        let reply = ask(&proxy, "/a", &agent).await;
        reply.assert_error(400, "http_request_error");
        assert!(reply.text().contains("[[crawler]]"), "{}", reply.text());
    }
    let longer_than_a_head =
        try_ask(&proxy, "/a", &disguised(&"Mozilla/5.0 ".repeat(25_000))).await;
    assert!(longer_than_a_head.is_none_or(|reply| reply.status() == 431));
    assert_eq!(origin.lines(), [""; 0]);
    assert_eq!(origin.robots_requests().len(), 0);
}

// Ours: a client that `crawler` in the configuration identifies needs no `User-Agent`.
#[tokio::test]
async fn a_configured_crawler_may_send_any_user_agent() {
    let table = "crawler = [{ token = \"GoodBot\", client = \"127.0.0.1\" }]";
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[table]).await;
    let agent: String = (0..300).map(|n| format!("Bot{n}/1 ")).collect();
    assert_eq!(ask(&proxy, "/a", agent.as_bytes()).await.status(), 200);
}

// RFC 9110, section 5.3: with two values it is unknown which one an origin uses.
#[tokio::test]
async fn two_user_agent_fields_are_malformed_in_either_protocol() {
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &[]).await;
    for (first, second) in [("Good/1", "BadBot/1"), ("A/1", "A/1"), ("", "BadBot/1")] {
        let mut one = Crawler::inside(&proxy, "o.test:443").await;
        let lines = [
            "GET /a HTTP/1.1",
            "Host: o.test",
            &format!("User-Agent: {first}"),
            &format!("USER-AGENT: {second}"),
        ];
        one.ask(&lines)
            .await
            .assert_error(400, "http_request_error");
        let mut two = H2Crawler::inside(&proxy, "o.test:443").await;
        let request = http::Request::get("https://o.test/a")
            .header("user-agent", first)
            .header("user-agent", second);
        assert_eq!(two.ask(request).await.unwrap().status(), 400);
    }
    assert_eq!(origin.log().len(), 0);
}

// Ours: a client that invents names cannot make the proxy fetch robots.txt without limit.
#[tokio::test]
async fn invented_names_cause_at_most_max_names_robots_txt_fetches() {
    let origin = Script::robots(ROBOTS).start().await;
    let other = Script::robots(ROBOTS).start().await;
    let proxy = resolve("o.test", origin.address())
        .resolve("p.test", other.address())
        .set("robots.max_names = 8")
        .start()
        .await;
    for n in 0..40 {
        let reply = get_as(&proxy, &format!("Bot{n}/1"), "http://o.test/a").await;
        if n < 8 {
            assert_eq!(reply.status(), 200, "{n}: {}", reply.text());
            continue;
        }
        reply.assert_error(403, "http_request_denied");
        assert_eq!(reply.json()["reason"], "unreachable");
        assert_contains(&reply.text(), "too many crawlers by name");
        let seconds: u64 = reply.head.value("retry-after").parse().unwrap();
        assert!((1..=3_601).contains(&seconds), "{seconds}");
    }
    assert_eq!(origin.robots_fetches(), 8);
    assert_eq!(origin.targets().len(), 8);
    let known = get_as(&proxy, "bot3/2", "http://o.test/b").await;
    assert_eq!(known.status(), 200, "{}", known.text());
    let nameless = get_as(&proxy, "*", "http://o.test/c").await;
    assert_eq!(nameless.status(), 200, "{}", nameless.text());
    let elsewhere = get_as(&proxy, "Bot39/1", "http://p.test/a").await;
    assert_eq!(elsewhere.status(), 200, "{}", elsewhere.text());
    assert_metric(&proxy, "politesse_robots_max_names_total 32\n").await;
    proxy.place().completed(43).await;
    assert_verified(proxy).await;
}

// Ours: with `robots.user_agent` all names share one robots.txt, so they cost nothing.
#[tokio::test]
async fn names_are_not_counted_with_a_fixed_robots_user_agent() {
    let lines = ["robots.max_names = 1", "robots.user_agent = \"Ours/1\""];
    let (origin, proxy) = site(Script::robots(ROBOTS), &lines).await;
    for n in 0..4 {
        let reply = get_as(&proxy, &format!("Bot{n}/1"), "http://o.test/a").await;
        assert_eq!(reply.status(), 200, "{n}");
    }
    assert_eq!(origin.robots_fetches(), 1);
}

const PINNED: &str = "crawler = [{ token = \"GoodBot\", client = [\"127.0.0.3\"] }]";

// Ours: docs/clients.md. Otherwise any client could borrow the name of a known crawler.
#[tokio::test]
async fn a_name_pinned_to_clients_is_refused_to_other_clients() {
    let script = Script::robots("User-agent: *\nDisallow: /p\n");
    let (origin, proxy) = site(script, &[PINNED, "enforcement.mode = \"report\""]).await;
    for agent in [
        "GoodBot/1",
        "goodbot/2 evil",
        "Other/1 GoodBot/1",
        "Mozilla/5.0 (compatible; Other/1; GoodBot)",
    ] {
        for path in ["/a", "/robots.txt"] {
            let url = format!("http://o.test{path}");
            let reply = get_from(&proxy, 2, &url, agent).await;
            reply.assert_error(403, "http_request_denied");
            let told = reply.json();
            assert_eq!(told["type"], "urn:politesse:refused", "{agent}");
            assert_eq!(told["reason"], "identity", "{agent}");
            assert_eq!(told["effect"], "enforced", "{agent}");
            let detail = told["detail"].as_str().unwrap();
            assert!(detail.starts_with("GoodBot belongs"), "{detail}");
            assert!(!reply.text().contains("127.0.0.3"), "{}", reply.text());
        }
    }
    // Not even robots.txt was fetched, since that request would use the name.
    assert_eq!(origin.targets(), [""; 0]);
    for (last, agent) in [(2, "GoodBot-News/1"), (3, "GoodBot/1"), (3, "Other/1")] {
        let reply = get_from(&proxy, last, "http://o.test/a", agent).await;
        assert_eq!(reply.status(), 200, "{agent}");
    }
    let place = proxy.stop().await;
    let rows = place.completed(11).await;
    let expected = json!({"verdict": "disallow", "reason": "identity", "status": 403});
    assert_members(&rows[0], &expected);
    place.assert_verified().await;
}
