//! Credentials: a crawler proves its name with a token, and no other client can use the
//! name. All ours; docs/clients.md. RFC 9110, section 11.7; RFC 7617.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::task::JoinSet;

use crate::dashboard::token;
use crate::kit::client::{Crawler, Reply, assert_metric, curl, get_admin, metrics, reload};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::{sha256, until};

/// FooBot may fetch everything except /f, BarBot everything except /b, NewBot nothing,
/// and other crawlers everything except /all.
const ROBOTS: &str = "User-agent: FooBot\nDisallow: /f\n\nUser-agent: BarBot\nDisallow: /b\n\n\
                      User-agent: NewBot\nDisallow: /\n\nUser-agent: *\nDisallow: /all\n";

const FOO: &str = "f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0";
const BAR: &str = "ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba4ba40";

/// Returns an entry of `crawler` for a name and its token.
fn entry(name: &str, token: &str) -> String {
    let digest = sha256(token.as_bytes());
    format!("{{ token = \"{name}\", credential = \"sha256:{digest}\" }}")
}

fn table() -> String {
    let entries = [entry("FooBot", FOO), entry("BarBot", BAR)];
    format!("crawler = [{}]", entries.join(", "))
}

fn basic(name: &str, token: &str) -> String {
    let pair = STANDARD.encode(format!("{name}:{token}"));
    format!("Proxy-Authorization: Basic {pair}")
}

async fn start(auth: &str) -> (Origin, Proxy) {
    let auth = format!("proxy.auth = \"{auth}\"");
    site(Script::robots(ROBOTS), &[&table(), &auth]).await
}

/// Requests `path` as `agent` over an open connection, with extra field lines.
async fn ask(crawler: &mut Crawler, path: &str, agent: &str, fields: &[&str]) -> Reply {
    let line = format!("GET http://o.test{path} HTTP/1.1");
    let agent = format!("User-Agent: {agent}");
    let lines = [&[&*line, "Host: o.test", &agent], fields].concat();
    crawler.ask(&lines).await
}

/// Asserts that `reply` is a 407 with challenges for both schemes.
fn assert_challenge(reply: &Reply) {
    reply.assert_error(407, "http_request_denied");
    let challenges = reply.head.values("proxy-authenticate");
    assert_eq!(challenges, ["Basic realm=\"politesse\"", "Bearer"]);
    assert_eq!(reply.json()["type"], "urn:politesse:credential");
}

#[tokio::test]
async fn a_credential_determines_the_crawler_name() {
    let (origin, proxy) = start("optional").await;
    let mut crawler = Crawler::plain(&proxy).await;
    let foo = basic("FooBot", FOO);
    let bearer = format!("proxy-authorization: Bearer {BAR}");
    // Each request on a connection may have another credential.
    for (path, field, status) in [
        ("/all", foo.as_str(), 200),
        ("/f", &foo, 403),
        ("/b", &foo, 200),
        ("/b", &bearer, 403),
        ("/f", &bearer, 200),
        ("/all", "X: y", 403),
        ("/f", "X: y", 200),
        ("/f", &foo, 403),
    ] {
        let reply = ask(&mut crawler, path, "client/1", &[field]).await;
        assert_eq!(reply.status(), status, "{path} {field} {}", reply.text());
    }
    assert_eq!(origin.targets().len(), 4);
    proxy.stop().await.assert_verified().await;
}

#[tokio::test]
async fn an_unlisted_name_in_the_user_agent_must_be_allowed_too() {
    let (origin, proxy) = start("optional").await;
    let mut crawler = Crawler::plain(&proxy).await;
    let foo = basic("FooBot", FOO);
    for (path, agent, status) in [
        ("/x", "NewBot/1", 403),
        ("/x", "Other/1", 200),
        ("/f", "Other/1", 403),
        ("/x", "FooBot/1", 200),
    ] {
        let reply = ask(&mut crawler, path, agent, &[&foo]).await;
        assert_eq!(reply.status(), status, "{path} {agent} {}", reply.text());
    }
    assert_eq!(origin.targets().len(), 2);
    let place = proxy.stop().await;
    let rows = place.completed(4).await;
    let shown = place.run(&["audit", "show", "3", "--json"]).await;
    let shown = &shown.json_lines()[0];
    assert_eq!(shown["credential"], "FooBot");
    assert_eq!(shown["candidates"], serde_json::json!(["FooBot"]));
    assert_eq!(shown["unlisted"], serde_json::json!(["NewBot"]));
    let text = place.run(&["audit", "show", "3"]).await.stdout;
    let client = "127.0.0.1, with the credential of FooBot";
    assert!(text.contains(client), "{text}");
    assert_eq!(rows[0]["group"], serde_json::json!(["newbot"]));
    place.assert_verified().await;
}

#[tokio::test]
async fn a_protected_name_requires_its_own_credential() {
    let (origin, proxy) = start("optional").await;
    let mut crawler = Crawler::plain(&proxy).await;
    let bar = basic("BarBot", BAR);
    for (agent, fields) in [
        ("FooBot/1", &[][..]),
        ("foobot", &[]),
        ("Mozilla/5.0 (compatible; Other/1; FooBot)", &[]),
        ("FooBot/1", &[bar.as_str()]),
        ("Other/1 FooBot/1", &[&bar]),
    ] {
        assert_challenge(&ask(&mut crawler, "/x", agent, fields).await);
    }
    let allowed = ask(&mut crawler, "/x", "FooBot-News/1", &[]).await;
    assert_eq!(allowed.status(), 200);
    assert_eq!(origin.targets(), ["/x"]);
    let line = "politesse_credentials_refused_total{reason=\"protected\"} 5\n";
    assert_metric(&proxy, line).await;
    // A 407 is not recorded as a decision.
    assert_eq!(proxy.stop().await.completed(1).await.len(), 1);
}

#[tokio::test]
async fn a_wrong_credential_gets_407_in_both_modes() {
    for auth in ["optional", "required"] {
        let (origin, proxy) = start(auth).await;
        let mut crawler = Crawler::plain(&proxy).await;
        for field in [
            basic("FooBot", BAR),
            basic("Foo", FOO),
            basic("FooBot", ""),
            "Proxy-Authorization: Bearer x".to_owned(),
            "Proxy-Authorization: Digest x".to_owned(),
            format!("Proxy-Authorization: Bearer {FOO}\r\nProxy-Authorization: Bearer {FOO}"),
        ] {
            assert_challenge(&ask(&mut crawler, "/x", "client/1", &[&field]).await);
            let mut tunnel = Crawler::plain(&proxy).await;
            let head = tunnel.ask_to_connect("o.test:443", &[&field]).await;
            assert_eq!(head.status, 407, "{field}");
        }
        assert_eq!(origin.log().len(), 0);
        let right = ask(&mut crawler, "/x", "client/1", &[&basic("FooBot", FOO)]).await;
        assert_eq!(right.status(), 200, "{}", right.text());
    }
}

#[tokio::test]
async fn a_client_without_a_required_credential_gets_407() {
    let (origin, proxy) = start("required").await;
    let mut crawler = Crawler::plain(&proxy).await;
    assert_challenge(&ask(&mut crawler, "/x", "client/1", &[]).await);
    let mut tunnel = Crawler::plain(&proxy).await;
    let refused = tunnel.ask_to_connect("o.test:443", &[]).await;
    assert_eq!(refused.status, 407);
    assert_eq!(refused.values("proxy-authenticate").len(), 2);
    assert_eq!(origin.log().len(), 0);
    // Both connections can be used again; this request has a credential.
    let foo = basic("FooBot", FOO);
    let served = ask(&mut crawler, "/x", "client/1", &[&foo]).await;
    assert_eq!(served.status(), 200, "{}", served.text());
    let length = refused.value("content-length").parse().unwrap();
    tunnel.peek(length).await;
    let line = "politesse_credentials_refused_total{reason=\"missing\"} 2\n";
    assert_metric(&proxy, line).await;
}

#[tokio::test]
async fn the_credential_of_a_connect_covers_every_request_inside() {
    let table = table();
    let lines = [&*table, "proxy.auth = \"required\""];
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &lines).await;
    let mut tunnel = Crawler::plain(&proxy).await;
    let foo = basic("FooBot", FOO);
    let opened = tunnel.ask_to_connect("o.test:443", &[&foo]).await;
    assert_eq!(opened.status, 200);
    let inside = tunnel.secured(&proxy, "o.test:443", Some("o.test")).await;
    let mut inside = inside.unwrap();
    for (path, status) in [("/all", 200), ("/f", 403), ("/b", 200)] {
        let line = format!("GET {path} HTTP/1.1");
        // A credential inside the tunnel is removed and ignored.
        let other = basic("BarBot", "wrong");
        let reply = inside.ask(&[&line, "Host: o.test", &other]).await;
        assert_eq!(reply.status(), status, "{path} {}", reply.text());
    }
    let reply = inside
        .ask(&["GET /x HTTP/1.1", "Host: o.test", "User-Agent: BarBot/1"])
        .await;
    assert_challenge(&reply);
    for request in origin.log() {
        let text = format!("{request:?}").to_ascii_lowercase();
        assert!(!text.contains("proxy-authorization"), "{text}");
    }
}

/// Returns the kinds of the clients for which certificates are being signed, from the
/// clients API.
async fn signed_for(proxy: &Proxy) -> Vec<String> {
    let token = format!("Authorization: Bearer {}", token(proxy));
    let reply = get_admin(proxy.admin(), "/api/v1/clients", &[&token]).await;
    let shown = reply.json();
    let clients = shown["clients"].as_array().unwrap().iter();
    let signed = clients.filter(|client| !client["shares"]["leaves"].is_null());
    signed
        .map(|client| client["kind"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_certificate_is_charged_to_the_credential_of_its_connect() {
    let (_origin, proxy) = start("required").await;
    let foo = basic("FooBot", FOO);
    // Each host needs its own certificate. A signature takes so little time that only one
    // of many is visible in the API.
    let proxy = Arc::new(proxy);
    let mut clients = JoinSet::new();
    for first in 0..16 {
        let (proxy, foo) = (Arc::clone(&proxy), foo.clone());
        clients.spawn(async move {
            for number in (first..).step_by(16) {
                let authority = format!("h{number}.test:443");
                let mut tunnel = Crawler::plain(&proxy).await;
                let opened = tunnel.ask_to_connect(&authority, &[&foo]).await;
                assert_eq!(opened.status, 200);
                tunnel.secured(&proxy, &authority, None).await.unwrap();
            }
        });
    }
    let shown = until("a signature", async || {
        Some(signed_for(&proxy).await).filter(|kinds| !kinds.is_empty())
    });
    tokio::select! {
        ended = clients.join_next() => panic!("a client has ended: {ended:?}"),
        kinds = shown => assert_eq!(kinds, ["crawler"]),
    }
}

#[tokio::test]
async fn a_reload_revokes_a_credential_on_open_connections() {
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &[&table()]).await;
    let mut tunnel = Crawler::plain(&proxy).await;
    let foo = basic("FooBot", FOO);
    let opened = tunnel.ask_to_connect("o.test:443", &[&foo]).await;
    assert_eq!(opened.status, 200);
    let inside = tunnel.secured(&proxy, "o.test:443", Some("o.test")).await;
    let mut inside = inside.unwrap();
    let request = ["GET /x HTTP/1.1", "Host: o.test"];
    assert_eq!(inside.ask(&request).await.status(), 200);
    let without = format!("crawler = [{}]", entry("BarBot", BAR));
    let config = resolve("o.test", origin.address()).set(&without);
    proxy.place().configure(&config);
    reload(&proxy).await;
    assert_challenge(&inside.ask(&request).await);
    let agent = ["GET /f HTTP/1.1", "Host: o.test", "User-Agent: FooBot/1"];
    let mut anew = Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(anew.ask(&agent).await.status(), 403);
}

#[tokio::test]
async fn an_override_for_a_name_applies_to_its_credential() {
    let rules = "robots.override = [\
            { origin = \"http://o.test\", agent = \"FooBot\", path = \"/f\", action = \"allow\", \
              reason = \"ours\", until = 2100-01-01T00:00:00Z }, \
            { origin = \"http://o.test\", agent = \"Other\", path = \"/o\", action = \"deny\", \
              reason = \"ours\" }, \
            { origin = \"http://o.test\", agent = \"Other\", path = \"/f\", action = \"allow\", \
              reason = \"ours\", until = 2100-01-01T00:00:00Z }]";
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[&table(), rules]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    let (foo, bar) = (basic("FooBot", FOO), basic("BarBot", BAR));
    for (path, agent, field, status) in [
        ("/f", "client/1", &foo, 200),
        ("/o", "Other/1", &foo, 403),
        ("/b", "Other/1", &bar, 403),
    ] {
        let reply = ask(&mut crawler, path, agent, &[field]).await;
        assert_eq!(reply.status(), status, "{path} {agent} {}", reply.text());
    }
    proxy.stop().await.assert_verified().await;
}

// `run` opens a listener of its own, which only this machine can reach.
#[tokio::test]
async fn a_command_of_run_needs_a_credential_only_for_a_protected_name() {
    let (_origin, proxy) = start("required").await;
    let script = "for agent in Other/1 FooBot/1; do \
                      curl -s -o /dev/null -w '%{http_code} ' -A $agent http://o.test/x; done";
    let outcome = proxy.place().run(&["run", "--", "sh", "-c", script]).await;
    assert_eq!(outcome.stdout, "200 407 ", "{outcome:?}");
}

// Checking a wrong token costs one digest, and does not delay other clients.
#[tokio::test]
async fn many_wrong_tokens_do_not_delay_a_good_client() {
    let (_origin, proxy) = start("required").await;
    let mut good = Crawler::plain(&proxy).await;
    let foo = basic("FooBot", FOO);
    assert_eq!(ask(&mut good, "/x", "a/1", &[&foo]).await.status(), 200);
    let mut bad = Crawler::plain(&proxy).await;
    for number in 0..2_000 {
        let field = format!("Proxy-Authorization: Bearer {number:064x}");
        let reply = ask(&mut bad, "/x", "a/1", &[&field]).await;
        assert_eq!(reply.status(), 407);
    }
    assert_eq!(ask(&mut good, "/x", "a/1", &[&foo]).await.status(), 200);
    let log = proxy.logged("407").await;
    let lines = log.lines().filter(|line| line.contains("407")).count();
    assert!((1..50).contains(&lines), "{lines}");
}

/// Returns the answers to requests with `field` that fail: malformed requests, a CONNECT,
/// and bytes inside a tunnel that are no request, or an incomplete one.
async fn answers_to_broken_heads(proxy: &Proxy, field: &str) -> String {
    let token = field.rsplit(' ').next().unwrap();
    let mut answers = String::new();
    for head in [
        format!("GET /f HTTP/1.1\r\nHost: o.test\r\n{field}\r\n\r\n"),
        format!("GET http://o.test/f HTTP/1.1\r\nHost: {token}\r\n{field}\r\n\r\n"),
        format!("GET http://o.test/f HTTP/1.1\r\nHost: o.test\r\n{field}\x01\r\n\r\n"),
        format!("GET http://o.test/f HTTP/7.7\r\nHost: o.test\r\n{field}\r\n\r\n"),
    ] {
        let mut crawler = Crawler::plain(proxy).await;
        crawler.send(head.as_bytes()).await;
        let reply = crawler.try_reply_to("GET").await;
        answers += &format!("{:?}", reply.map(|reply| (reply.text(), reply.head)));
    }
    let mut refused = Crawler::plain(proxy).await;
    let head = refused.ask_to_connect("o.test:443", &[field]).await;
    assert_eq!(head.status, 407);
    for begin in [
        format!("{field}\r\n\r\n"),
        format!("GET /f HTTP/1.1\r\n{field}\r\n"),
    ] {
        let mut inside = Crawler::connect(proxy, "o.test:80").await;
        inside.send(begin.as_bytes()).await;
        inside.finish_sending().await;
        let reply = inside.try_reply_to("GET").await;
        answers += &format!("{:?}", reply.map(|reply| (reply.text(), reply.head)));
    }
    answers + &format!("{head:?}")
}

#[tokio::test]
async fn no_token_appears_in_answers_logs_or_files() {
    let table = table();
    let lines = [&*table, "log.level = \"trace\""];
    let (_origin, proxy) = site(Script::robots(ROBOTS), &lines).await;
    let mut crawler = Crawler::plain(&proxy).await;
    let wrong = "0123456789".repeat(6);
    let (right, other) = (basic("FooBot", FOO), basic("FooBot", &wrong));
    let bearer = format!("Proxy-Authorization: Bearer {wrong}");
    let mut answers = String::new();
    for fields in [
        &[right.as_str()][..],
        &[&other],
        &[&bearer],
        &[&right, &right],
    ] {
        let reply = ask(&mut crawler, "/f", "a/1", fields).await;
        answers += &format!("{:?} {}", reply.head, reply.text());
    }
    answers += &answers_to_broken_heads(&proxy, &other).await;
    answers += &metrics(&proxy).await;
    answers += &proxy.log();
    let place = proxy.stop().await;
    answers += &format!("{:?}", place.run(&["audit", "show", "3"]).await);
    answers += &format!("{:?}", place.run(&["config", "show"]).await);
    for entry in std::fs::read_dir(place.folder()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        answers += &String::from_utf8_lossy(&bytes);
    }
    let encoded = |field: &str| field.rsplit(' ').next().unwrap().to_owned();
    for secret in [FOO.to_owned(), wrong, encoded(&right), encoded(&other)] {
        assert!(!answers.contains(&secret), "{secret}");
    }
}

#[tokio::test]
async fn curl_sends_a_credential_from_user_option_proxy_url_or_challenge() {
    let origin = Script::robots(ROBOTS).tls().start().await;
    let plain = Script::robots(ROBOTS).start().await;
    let proxy = resolve("o.test:443", origin.address())
        .resolve("o.test:80", plain.address())
        .set(&table())
        .set("proxy.auth = \"required\"")
        .start()
        .await;
    let user = format!("FooBot:{FOO}");
    let address = format!("http://{user}@{}", proxy.address());
    let status = ["-o", "/dev/null", "-w", "%{http_code}"];
    for url in ["http://o.test/all", "https://o.test/all"] {
        for way in [
            &["--proxy-user", &user][..],
            &["--proxy", &address],
            &["--proxy-anyauth", "--proxy-user", &user],
        ] {
            let arguments: Vec<_> = way.iter().copied().chain(status).chain([url]).collect();
            let outcome = curl(&proxy, &arguments).await;
            assert_eq!(outcome.stdout, "200", "{way:?} {url} {outcome:?}");
        }
    }
}
