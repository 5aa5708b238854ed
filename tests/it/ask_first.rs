//! `POST /api/v1/check`: what the proxy would decide, and when a request could start,
//! without sending one.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kit::client::{Crawler, Reply, get, get_admin, get_as};
use crate::kit::origin::{Script, site};
use crate::kit::paced::{asking_for_less, delaying, metric, standard};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::{assert_members, clock, until};

/// Posts `body` to the check API with these field lines.
async fn post(proxy: &Proxy, body: &[u8], fields: &[&str]) -> Reply {
    let mut client = Crawler::to(proxy.admin()).await;
    let host = format!("Host: {}", proxy.admin());
    let length = format!("Content-Length: {}", body.len());
    let lines = [&["POST /api/v1/check HTTP/1.1", &*host, &*length], fields].concat();
    let head = format!("{}\r\n\r\n", lines.join("\r\n"));
    client.send(head.as_bytes()).await;
    // The proxy may answer a body that is too long before it has read all of it.
    let _ = client.try_send(body).await;
    client.reply_to("POST").await
}

async fn bearer(proxy: &Proxy) -> String {
    let token = proxy.place().run(&["admin", "token"]).await.stdout;
    format!("Authorization: Bearer {}", token.trim())
}

const JSON: &str = "Content-Type: application/json";

/// Returns the answers for ExampleBot, in the order of `urls`.
async fn answers(proxy: &Proxy, urls: &[&str], fetch: bool) -> Vec<Value> {
    let question = json!({ "agent": "ExampleBot/1.0", "urls": urls, "fetch": fetch });
    let body = question.to_string();
    let reply = post(proxy, body.as_bytes(), &[&bearer(proxy).await, JSON]).await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    reply.json()["answers"].as_array().unwrap().clone()
}

async fn answer(proxy: &Proxy, url: &str) -> Value {
    answers(proxy, &[url], true).await.remove(0)
}

fn wait(answer: &Value) -> f64 {
    answer["wait_seconds"].as_f64().unwrap_or(f64::NAN)
}

const ROBOTS: &str = "User-agent: *\nDisallow: /private\nAllow: /private/open\n";

// Ours: the answer is the proxy's decision, in the terms of the record.
#[tokio::test]
async fn each_url_is_answered_as_the_proxy_later_decides() {
    let origin = Script::robots(ROBOTS).start().await;
    let gone = Script::robots_page(Page::status(503)).start().await;
    let proxy = resolve("o.test", origin.address())
        .resolve("gone.test", gone.address())
        .start()
        .await;
    let urls = [
        "http://o.test/",
        "http://o.test/private/1",
        "http://o.test//private",
        "http://o.test/private/open",
        "http://o.test/robots.txt",
        "http://gone.test/",
        "http://127.0.0.1/",
    ];
    let told = answers(&proxy, &urls, true).await;
    assert_eq!(origin.targets(), Vec::<String>::new());
    assert_eq!(origin.robots_fetches(), 1);
    assert_eq!(proxy.place().rows().await, Vec::<Value>::new());
    for url in urls {
        get(&proxy, url).await;
    }
    let rows = proxy.place().completed(urls.len()).await;
    for (told, row) in told.iter().zip(&rows) {
        for member in "url verdict reason effect line rule group".split(' ') {
            assert_eq!(told[member], row[member], "{member}: {told} {row}");
        }
        let starts = told["verdict"] == "allow" || told["reason"] == "unreachable";
        assert_eq!(told["starts_at"].is_string(), starts, "{told}");
    }
    // The first retry, according to `robots.retry`, follows after 30 s.
    assert!((20.0..=30.0).contains(&wait(&told[5])), "{}", told[5]);
    let checked = "politesse_checked_urls_total{result=\"disallow\"}";
    assert_eq!(metric(&proxy, checked).await, 4.0);
}

// Ours: no request is sent.
#[tokio::test]
async fn with_fetch_off_a_url_is_unknown_until_its_robots_txt_is_cached() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let url = "http://o.test/private";
    let unknown = answers(&proxy, &[url], false).await.remove(0);
    assert_members(&unknown, &json!({"verdict": "unknown", "reason": null}));
    assert_eq!(wait(&unknown), 0.0);
    assert_eq!((origin.robots_fetches(), origin.connections()), (0, 0));
    get(&proxy, "http://o.test/").await;
    let known = answers(&proxy, &[url], false).await.remove(0);
    assert_eq!(known["verdict"], "disallow");
    assert_eq!(origin.robots_fetches(), 1);
}

// Ours: the scheduler answers; RFC 9110, section 10.2.3.
#[tokio::test]
async fn the_earliest_start_follows_crawl_delay_and_back_off() {
    let slow = delaying("60").start().await;
    let less = asking_for_less(503, Some("300"));
    let busy = Script::robots("").page("/1", less).start().await;
    let config = standard(&slow).resolve("busy.test", busy.address());
    let proxy = config.start().await;
    let first = answer(&proxy, "http://o.test/1").await;
    assert_eq!((wait(&first), &first["wait_reason"]), (0.0, &Value::Null));
    assert_eq!(first["pause_seconds"], 60.0);
    get(&proxy, "http://o.test/1").await;
    get(&proxy, "http://busy.test/1").await;
    let told = answers(&proxy, &["http://o.test/2", "http://busy.test/2"], true).await;
    assert!((50.0..=60.0).contains(&wait(&told[0])), "{}", told[0]);
    assert_eq!(told[0]["wait_reason"], "crawl_delay");
    assert!((290.0..=300.0).contains(&wait(&told[1])), "{}", told[1]);
    assert_eq!(told[1]["wait_reason"], "backoff");
    let starts: Timestamp = told[1]["starts_at"].as_str().unwrap().parse().unwrap();
    let ahead: Duration = starts.duration_since(clock::now()).try_into().unwrap();
    assert!((280..=300).contains(&ahead.as_secs()), "{ahead:?}");
    assert_eq!(slow.targets(), ["/1"]);
}

// Ours: the request in flight ends now at the earliest.
#[tokio::test]
async fn a_request_in_flight_delays_the_start_by_the_crawl_delay() {
    let gate = Gate::shut();
    let page = Page::text("x").after(&gate);
    let origin = delaying("40").page("/1", page).start().await;
    let proxy = standard(&origin).start().await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/1", "o.test").await;
    origin.arrival("/1").await;
    let told = answer(&proxy, "http://o.test/2").await;
    let wanted = json!({"wait_seconds": 40.0, "wait_reason": "crawl_delay"});
    assert_members(&told, &wanted);
    gate.open(1);
    assert_eq!(crawler.reply_to("GET").await.status(), 200);
}

// Ours.
#[tokio::test]
async fn in_report_mode_a_disallowed_url_is_answered_as_reported() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &["enforcement.mode = \"report\""]).await;
    let told = answer(&proxy, "http://o.test/private").await;
    assert_members(&told, &json!({"verdict": "disallow", "effect": "reported"}));
    assert_eq!(wait(&told), 0.0);
}

// Ours: `[[crawler]]` identifies the crawler, by the address of the client too.
#[tokio::test]
async fn a_crawler_is_identified_by_the_address_in_the_configuration() {
    let robots = "User-agent: a\nDisallow: /\n\nUser-agent: *\nAllow: /\n";
    let known = "crawler = [{ token = \"A\", client = [\"127.0.0.0/8\"] }]";
    let (_origin, proxy) = site(Script::robots(robots), &[known]).await;
    let told = answer(&proxy, "http://o.test/").await;
    assert_members(&told, &json!({"verdict": "disallow", "token": "A"}));
}

// Ours: docs/clients.md.
#[tokio::test]
async fn a_crawler_name_reserved_for_another_client_is_refused() {
    let pinned = "crawler = [{ token = \"ExampleBot\", client = [\"127.0.0.3\"] }]";
    let (origin, proxy) = site(Script::robots(ROBOTS), &[pinned]).await;
    let told = answer(&proxy, "http://o.test/").await;
    assert_members(&told, &json!({"verdict": "disallow", "reason": "identity"}));
    assert_eq!(origin.targets(), [""; 0]);
}

// Ours: one bad URL does not affect the others.
#[tokio::test]
async fn an_invalid_url_gets_an_error_in_its_place() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let (allowed, disallowed) = ("http://o.test/", "http://o.test/private");
    let urls = ["ftp://o.test/", allowed, "", disallowed];
    let told = answers(&proxy, &urls, true).await;
    let verdicts: Vec<_> = told.iter().map(|told| told["verdict"].as_str()).collect();
    assert_eq!(verdicts, [None, Some("allow"), None, Some("disallow")]);
    assert_eq!(told[2]["url"], "");
    assert!(told[0]["error"].is_string(), "{}", told[0]);
}

// Ours: limits, and access only with the admin token.
#[tokio::test]
async fn a_check_requires_a_token_and_json_of_limited_size() {
    let proxy = Config::default().start().await;
    let right = bearer(&proxy).await;
    let question = |count: usize| {
        let urls = vec!["http://127.0.0.1/"; count];
        json!({ "agent": "A", "urls": urls }).to_string()
    };
    let misspelt = "{\"agent\":\"A\",\"urls\":[],\"fecth\":false}";
    let long = format!("{{\"agent\":\"{}\"}}", "a".repeat(1 << 20));
    for (body, fields, status) in [
        (&*question(1), &[&*right, JSON][..], 200),
        (&question(0), &[&right, JSON], 200),
        (&question(1000), &[&right, JSON], 200),
        (&question(1001), &[&right, JSON], 413),
        (&long, &[&right, JSON], 413),
        (&question(1), &[JSON], 401),
        (&question(1), &[&right], 415),
        (&question(1), &[&right, "Content-Type: text/plain"], 415),
        ("", &[&right, JSON], 400),
        ("{}", &[&right, JSON], 400),
        (misspelt, &[&right, JSON], 400),
        ("{\"agent\":\"a\\nb\",\"urls\":[]}", &[&right, JSON], 400),
    ] {
        let reply = post(&proxy, body.as_bytes(), fields).await;
        assert_eq!(reply.status(), status, "{body:.60}: {}", reply.text());
    }
    let got = get_admin(proxy.admin(), "/api/v1/check", &[&right]).await;
    assert_eq!(got.status(), 405);
}

// Ours: a late robots.txt leaves its URLs unknown; the next check uses it.
#[tokio::test]
async fn a_check_fetches_from_eight_origins_at_a_time_for_a_limited_time() {
    let gate = Gate::shut();
    let hosts: Vec<_> = (0..12).map(|number| format!("o{number}.test")).collect();
    let script = Script::robots_page(Page::text("").after(&gate));
    let (origin, proxy) = site(script.names(&hosts), &[]).await;
    let urls: Vec<_> = hosts.iter().map(|host| format!("http://{host}/")).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let asked = answers(&proxy, &urls, true);
    let watched = async {
        until("eight fetches", async || {
            (origin.robots_fetches() == 8).then_some(())
        })
        .await;
        // Fetches start together, so a ninth would already be waiting too.
        assert_eq!(metric(&proxy, "politesse_robots_waiting").await, 8.0);
    };
    let (told, ()) = tokio::join!(asked, watched);
    let is_unknown = |told: &Value| told["verdict"] == "unknown" && told["starts_at"].is_null();
    assert!(told.iter().all(is_unknown), "{told:?}");
    assert_eq!(origin.robots_fetches(), 8);
    gate.open(12);
    let again = answers(&proxy, &urls, true).await;
    let is_allowed = |told: &Value| told["verdict"] == "allow";
    assert!(again.iter().all(is_allowed), "{again:?}");
    assert_eq!(origin.robots_fetches(), 12);
}

// Ours: `robots.max_names`. Checks do not use up the names of crawlers.
#[tokio::test]
async fn checks_do_not_count_against_max_names_of_crawlers() {
    let (origin, proxy) = site(Script::robots(""), &["robots.max_names = 2"]).await;
    let token = bearer(&proxy).await;
    let ask = async |agent: &str, fetch: bool| {
        let question = json!({ "agent": agent, "urls": ["http://o.test/"], "fetch": fetch });
        let reply = post(&proxy, question.to_string().as_bytes(), &[&token, JSON]).await;
        reply.json()["answers"][0]["verdict"].clone()
    };
    for (agent, verdict) in [("A", "allow"), ("B", "allow"), ("C", "disallow")] {
        assert_eq!(ask(agent, true).await, verdict, "{agent}");
    }
    for (agent, status) in [("D", 200), ("E", 200), ("F", 403)] {
        let reply = get_as(&proxy, agent, "http://o.test/").await;
        assert_eq!(reply.status(), status, "{agent}");
    }
    assert_eq!(ask("E", false).await, "allow");
    assert_eq!(ask("C", false).await, "unknown");
    assert_eq!(origin.robots_fetches(), 4);
}
