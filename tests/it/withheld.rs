//! Responses withheld because their fields or `<meta>` deny the crawler's purposes
//! (`preferences`): over both protocols, under load, and by a proxy that is killed.
//! docs/preferences.md.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::kit::client::{Reply, assert_metric, get_as};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy};
use crate::kit::{assert_contains, assert_members, run_within};

/// Text that every page contains.
const CONTENT: &str = "the content of the page";

const NOAI: &str = "<meta name=robots content=noai>";
const REFUSE: &str = "preferences.enforce = \"refuse\"";

/// Purposes: TrainBot trains, FindBot searches, BothBot does both. AnyBot is not listed
/// and has no declared purpose.
pub(crate) const CRAWLERS: &str = "crawler = [\
    { token = \"TrainBot\", user_agent = \"trainbot\", purpose = \"train-ai\" }, \
    { token = \"FindBot\", user_agent = \"findbot\", purpose = [\"search\"] }, \
    { token = \"BothBot\", user_agent = \"bothbot\", purpose = [\"train-ai\", \"search\"] }]";

fn page(meta: &str) -> Page {
    Page::html(&format!(
        "<head>{meta}<title>t</title></head><body>{CONTENT}</body>"
    ))
}

/// Returns a site with a page for each way to deny training.
fn script() -> Script {
    let robots = "User-agent: *\nAllow: /\nContent-Usage: /both search=n\n";
    Script::robots(robots)
        .page("/.well-known/tdmrep.json", Page::status(404))
        .page("/open", page(""))
        .page("/meta", page(NOAI))
        .page("/field", page("").field("Content-Usage", "train-ai=n"))
        .page("/both", page(NOAI))
        .page("/reserved", page("").field("TDM-Reservation", "1"))
        .page("/moved", noai(Page::redirect("/open")))
        .page("/gone", noai(page("").with_status(404)))
        .page("/late", page(&format!("{}{NOAI}", " ".repeat(9000))))
}

fn noai(page: Page) -> Page {
    page.field("X-Robots-Tag", "noai")
}

async fn start(settings: &[&str]) -> (Origin, Proxy) {
    site(script(), &[&[CRAWLERS], settings].concat()).await
}

/// Requests a path of `o.test` as `agent`.
pub(crate) async fn ask(proxy: &Proxy, agent: &str, path: &str) -> Reply {
    get_as(proxy, agent, &format!("http://o.test{path}")).await
}

/// Waits until `count` pages are completed, and returns their rows, without the row of the
/// site's TDM file.
async fn page_rows(proxy: &Proxy, count: usize) -> Vec<Value> {
    let is_page = |row: &&Value| !row["url"].as_str().unwrap().contains("tdmrep");
    let is_ended = |row: &&Value| !row["status"].is_null() || !row["error"].is_null();
    let rows = proxy.place().rows_when(|rows| {
        let pages = rows.iter().filter(is_page);
        pages.filter(is_ended).count() == count
    });
    rows.await.into_iter().filter(|row| is_page(&row)).collect()
}

#[tokio::test]
async fn a_response_that_denies_every_purpose_is_withheld() {
    let (origin, proxy) = start(&[REFUSE]).await;
    for (agent, path, status) in [
        ("TrainBot/1", "/open", 200),
        ("TrainBot/1", "/meta", 403),
        ("TrainBot/1", "/field", 403),
        ("TrainBot/1", "/reserved", 403),
        ("TrainBot/1", "/gone", 403),
        ("TrainBot/1", "/moved", 302),
        ("FindBot/1", "/meta", 200),
        ("BothBot/1", "/meta", 200),
        // robots.txt denies one of its purposes, the page the other.
        ("BothBot/1", "/both", 403),
        ("AnyBot/1", "/meta", 200),
    ] {
        let reply = ask(&proxy, agent, path).await;
        assert_eq!(reply.status(), status, "{agent} {path}");
        let has_content = reply.text().contains(CONTENT);
        assert_eq!(has_content, status == 200, "{agent} {path}");
    }
    assert!(origin.targets().contains(&"/meta".to_owned()));
    assert_metric(&proxy, "politesse_withheld_total{reason=\"directive\"} 2").await;
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn the_answer_and_the_record_name_the_denying_statement() {
    let (_origin, proxy) = start(&[REFUSE]).await;
    let withheld = ask(&proxy, "TrainBot/1", "/meta").await;
    withheld.assert_error(403, "http_request_denied");
    let body = withheld.json();
    let expected = json!({
        "type": "urn:politesse:withheld", "reason": "directive", "origin_status": 200,
    });
    assert_members(&body, &expected);
    let expected = json!({"statement": "noai", "src": "m"});
    assert_members(&body["denials"][0], &expected);
    let detail = body["detail"].as_str().unwrap();
    assert_contains(detail, "answered with 200");
    assert_contains(detail, "noai");
    let withheld = ask(&proxy, "TrainBot/1", "/field").await.json();
    assert_eq!(withheld["reason"], "preference");
    let rows = page_rows(&proxy, 2).await;
    let row = &rows[0];
    let expected = json!({
        "verdict": "allow", "reason": "rule", "status": 403, "error": "withheld", "sent": 1,
        "bytes": 0, "purposes": ["train-ai"],
    });
    assert_members(row, &expected);
    assert_eq!(row["denials"][0]["purpose"], "train-ai");
    let place = proxy.place();
    let list = ["audit", "list", "--preference", "noai", "--json"];
    assert_eq!(place.run(&list).await.json_lines().len(), 1);
    let by = ["audit", "stats", "--by", "preference,purpose", "--json"];
    let groups = place.run(&by).await.json_lines();
    for statement in ["noai", "train-ai=n"] {
        let mut groups = groups.iter();
        let group = groups.find(|group| group["preference"] == statement);
        assert_eq!(group.unwrap()["requests"], 1, "{statement}");
    }
    let shown = place.run(&["audit", "show", &row["seq"].to_string()]).await;
    assert_contains(&shown.stdout, "noai");
    let why = place.run(&["audit", "why", "http://o.test/meta"]).await;
    assert_contains(&why.stdout, "and withheld from the client");
}

#[tokio::test]
async fn report_mode_forwards_the_page_and_says_that_it_would_be_withheld() {
    let (_origin, proxy) = start(&["preferences.enforce = \"report\""]).await;
    let given = ask(&proxy, "TrainBot/1", "/meta").await;
    assert_eq!(given.status(), 200);
    assert!(given.text().contains(CONTENT));
    let told = given.head.value("proxy-status");
    assert_contains(told, "would be withheld");
    assert_contains(told, "noai");
    let rows = page_rows(&proxy, 1).await;
    assert_eq!(rows[0]["denials"][0]["statement"], "noai");
    assert_eq!(rows[0]["error"], Value::Null);
    let place = proxy.place();
    let why = place.run(&["audit", "why", "http://o.test/meta"]).await;
    assert_contains(&why.stdout, "would be withheld");
    place.assert_verified().await;
}

#[tokio::test]
async fn denials_are_recorded_even_if_not_enforced() {
    let (_origin, proxy) = start(&[]).await;
    let given = ask(&proxy, "TrainBot/1", "/meta").await;
    assert_eq!(given.status(), 200);
    assert!(given.head.values("proxy-status").is_empty());
    let rows = page_rows(&proxy, 1).await;
    assert_eq!(rows[0]["denials"][0]["statement"], "noai");
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn a_page_beyond_the_scan_limit_is_treated_as_configured() {
    let small = "directives.scan_limit = \"4KiB\"";
    for (unknown, status) in [("pass", 200), ("refuse", 403)] {
        let unknown = format!("preferences.unknown = \"{unknown}\"");
        let settings = [REFUSE, small, &unknown];
        let (_origin, proxy) = start(&settings).await;
        let reply = ask(&proxy, "TrainBot/1", "/late").await;
        assert_eq!(reply.status(), status, "{unknown}");
        assert_eq!(ask(&proxy, "TrainBot/1", "/open").await.status(), 200);
        assert_eq!(ask(&proxy, "AnyBot/1", "/late").await.status(), 200);
        if status == 403 {
            assert_contains(&reply.text(), "head-limit");
        }
        proxy.place().assert_verified().await;
    }
}

#[tokio::test]
async fn no_part_of_a_withheld_page_reaches_a_client_over_http2() {
    let (_origin, proxy) = site(script().tls(), &[CRAWLERS, REFUSE]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    for (method, path, status) in [
        ("GET", "/meta", 403),
        ("GET", "/field", 403),
        ("HEAD", "/field", 403),
        ("POST", "/meta", 403),
        ("GET", "/open", 200),
    ] {
        let url = format!("https://o.test{path}");
        let request = Request::builder().method(method).uri(url);
        let request = request.header("user-agent", "TrainBot/1");
        let reply = crawler.ask(request).await.unwrap();
        assert_eq!(reply.status(), status, "{method} {path}");
        let body = String::from_utf8_lossy(reply.body());
        assert_eq!(body.contains(CONTENT), status == 200, "{method} {path}");
    }
    proxy.place().assert_verified().await;
}

// Ours: an override must cover every path that a server may read in the URL.
#[tokio::test]
async fn an_override_exempts_only_its_own_pages() {
    let others = [
        "/field",
        "/meta/%2e%2e/field",
        "/meta/../field",
        "/meta/..;/field",
    ];
    let script = others
        .into_iter()
        .fold(script(), |script, path| script.page(path, noai(page(""))));
    let open = "robots.override = [{ origin = \"http://o.test\", path = \"/meta\", \
                    action = \"allow\", reason = \"contract\", until = 2100-01-01T00:00:00Z }]";
    let (_origin, proxy) = site(script, &[CRAWLERS, open, REFUSE]).await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/meta").await.status(), 200);
    for path in others {
        let reply = ask(&proxy, "TrainBot/1", path).await;
        assert_eq!(reply.status(), 403, "{path}");
    }
    proxy.place().assert_verified().await;
}

// Ours: without the query string, `verify` cannot tell whether the override matched.
#[tokio::test]
async fn an_unrecorded_query_string_causes_no_finding() {
    let open = "robots.override = [{ origin = \"http://o.test\", path = \"/meta?free\", \
                    action = \"allow\", reason = \"contract\", until = 2100-01-01T00:00:00Z }]";
    let omitted = "audit.query_strings = \"omitted\"";
    let script = script().page("/meta?free", page(NOAI));
    let (_origin, proxy) = site(script, &[CRAWLERS, REFUSE, open, omitted]).await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/meta?free").await.status(), 200);
    proxy.place().assert_verified().await;
}

// RFC 9309, section 2.2.2: /robots.txt is always allowed.
#[tokio::test]
async fn robots_txt_is_never_withheld() {
    let robots = noai(Page::text("User-agent: *\nAllow: /\n"));
    let lines = [CRAWLERS, REFUSE, "robots.serve_cached = false"];
    let (_origin, proxy) = site(Script::robots_page(robots), &lines).await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/robots.txt").await.status(), 200);
    proxy.place().assert_verified().await;
}

/// Statements, each with the purposes that it denies.
const STATEMENTS: [(&str, &[&str]); 10] = [
    ("", &[]),
    ("robots: Content-Usage: train-ai=n", &["train-ai"]),
    ("robots: Content-Signal: search=no", &["search"]),
    ("field: Content-Usage: train-ai=n", &["train-ai"]),
    ("field: Content-Usage: search=n", &["search"]),
    ("field: X-Robots-Tag: noindex", &["search"]),
    ("field: TDM-Reservation: 1", &["train-ai"]),
    ("meta: noai", &["train-ai"]),
    ("meta: noindex, noml", &["search", "train-ai"]),
    ("meta: nofollow", &[]),
];

const AGENTS: [(&str, &[&str]); 3] = [
    ("TrainBot", &["train-ai"]),
    ("FindBot", &["search"]),
    ("BothBot", &["train-ai", "search"]),
];

/// Returns the site with number `number`, which makes two of [`STATEMENTS`].
fn denying(number: usize) -> Script {
    let (mut robots, mut metas) = ("User-agent: *\nAllow: /\n".to_owned(), String::new());
    let mut fields = Vec::new();
    for (text, _) in statements_of(number) {
        match text.split_once(": ") {
            Some(("robots", line)) => robots += &format!("{line}\n"),
            Some(("meta", words)) => metas += &format!("<meta name=robots content='{words}'>"),
            Some((_, field)) => fields.extend(field.split_once(": ")),
            None => {}
        }
    }
    let stated = fields.into_iter();
    let page = stated.fold(page(&metas), |page, (name, value)| page.field(name, value));
    Script::robots(&robots).page("/page", page)
}

fn statements_of(number: usize) -> [(&'static str, &'static [&'static str]); 2] {
    [STATEMENTS[number / 10], STATEMENTS[number % 10]]
}

/// Reports whether the site's statements deny every one of `purposes`.
fn is_denied(number: usize, purposes: &[&str]) -> bool {
    let mut purposes = purposes.iter();
    purposes.all(|purpose| {
        let mut statements = statements_of(number).into_iter();
        statements.any(|(_, denied)| denied.contains(purpose))
    })
}

/// Requests a page and returns all bytes received until the connection ends.
async fn bytes_of(proxy: SocketAddr, site: usize, agent: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(proxy).await?;
    let request = format!(
        "GET http://s{site}.test/page HTTP/1.1\r\nHost: s{site}.test\r\n\
         User-Agent: {agent}/1\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut received = Vec::new();
    // A killed proxy ends the connection early.
    let _ = stream.read_to_end(&mut received).await;
    Ok(received)
}

/// Returns each site with each agent and its purposes.
fn visits() -> impl Iterator<Item = (usize, (&'static str, &'static [&'static str]))> {
    (0..100).flat_map(|site| AGENTS.map(|agent| (site, agent)))
}

/// Crawls every site as every agent, and returns the number of pages received. Asserts
/// that no denied page is among them.
async fn crawl(proxy: SocketAddr) -> usize {
    let (mut crawlers, slots) = (JoinSet::new(), Arc::new(Semaphore::new(16)));
    for (site, (agent, purposes)) in visits() {
        let slots = Arc::clone(&slots);
        crawlers.spawn(async move {
            let _slot = slots.acquire().await;
            let received = bytes_of(proxy, site, agent).await.unwrap_or_default();
            let has_content = String::from_utf8_lossy(&received).contains(CONTENT);
            let is_wrong = has_content && is_denied(site, purposes);
            assert!(!is_wrong, "site {site} for {agent}");
            usize::from(has_content)
        });
    }
    crawlers.join_all().await.into_iter().sum()
}

// Ours: a hundred sites with two statements each, and crawlers with one or two purposes.
#[test]
fn no_denied_page_reaches_a_client_under_load_or_from_a_killed_proxy() {
    run_within(Duration::from_mins(3), async {
        let mut origins = Vec::new();
        let mut config = Config::default().set(CRAWLERS);
        for number in 0..100 {
            let origin = denying(number).start().await;
            config = config.resolve(&format!("s{number}.test"), origin.address());
            origins.push(origin);
        }
        let proxy = config.set(REFUSE).start().await;
        let open = visits().filter(|(site, (_, purposes))| !is_denied(*site, purposes));
        assert_eq!(crawl(proxy.address()).await, open.count());
        proxy.place().assert_verified().await;
        let crawling = tokio::spawn(crawl(proxy.address()));
        proxy.place().rows_when(|rows| 400 <= rows.len()).await;
        let place = proxy.kill().await;
        crawling.await.unwrap();
        let proxy = place.start().await;
        crawl(proxy.address()).await;
        proxy.place().assert_verified().await;
    });
}
