//! Real clients without changes: curl, Python requests and Scrapy.
//!
//! `tests/run` creates their Python environment.

use serde_json::json;
use tokio::process::Command;

use crate::kit::checkout::root;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::delaying;
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::{assert_contains, assert_members, client, run, sha256};

const PAGES: usize = 220;
const ROBOTS: &str = "User-agent: *\nDisallow: /basket\nDisallow: /*?sort=\nAllow: /basket/help\n";

/// Returns a shop with `PAGES` pages. Each links to three others, to a basket and to a
/// sorted list; basket and list are disallowed.
fn shop() -> Script {
    let mut script = Script::robots(ROBOTS).page("/basket/help", Page::html("<p>help"));
    for page in 0..PAGES {
        let links: String = (1..=3)
            .map(|step| format!("<a href=/page/{}>next</a>", (page * 2 + step) % PAGES))
            .collect();
        let body = format!(
            "<title>{page}</title><meta name=robots content=noarchive>{links}\
             <a href=/basket/{page}>buy</a><a href='/page/{page}?sort=price'>sort</a><a href=/basket/help>help</a>"
        );
        script = script.page(&format!("/page/{page}"), Page::html(&body));
        let disallowed = Page::html("never to be seen");
        script = script.page(&format!("/basket/{page}"), disallowed.clone());
        script = script.page(&format!("/page/{page}?sort=price"), disallowed);
    }
    script
}

/// Runs a Python program of `tests/clients` that uses the proxy.
pub(crate) async fn python(proxy: &Proxy, program: &str, arguments: &[&str]) -> Outcome {
    finish(python_command(proxy, program, arguments), b"").await
}

/// Returns the command that [`python`] runs.
pub(crate) fn python_command(proxy: &Proxy, program: &str, arguments: &[&str]) -> Command {
    let interpreter = root().join("target/venv/bin/python");
    assert!(interpreter.exists(), "tests/run makes {interpreter:?}");
    let mut command = Command::new(interpreter);
    command
        .arg(root().join("tests/clients").join(program))
        .args(arguments);
    point_at(proxy, &mut command);
    with_package(&mut command);
    let bundle = proxy.place().path("certs/ca.pem");
    command
        .env("REQUESTS_CA_BUNDLE", &bundle)
        .env("SSL_CERT_FILE", &bundle)
        .env_remove("CURL_CA_BUNDLE");
    command
}

/// Lets a Python program import the package of `contrib/python`.
pub(crate) fn with_package(command: &mut Command) {
    command
        .env("PYTHONPATH", root().join("contrib/python"))
        // Write no bytecode beside the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1");
}

/// Points the environment variables of `command` at the proxy.
pub(crate) fn point_at(proxy: &Proxy, command: &mut Command) {
    let address = format!("http://{}", proxy.address());
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        command.env(name, &address);
    }
    command.env_remove("no_proxy").env_remove("NO_PROXY");
}

fn assert_polite(origin: &Origin) {
    for target in origin.targets() {
        let disallowed =
            target.contains("?sort=") || target.starts_with("/basket") && target != "/basket/help";
        assert!(!disallowed, "the origin saw {target}");
    }
}

/// Returns the numbers that the spider prints last.
fn spider_counts(outcome: &Outcome) -> serde_json::Value {
    serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap()
}

// Ours: Scrapy with ROBOTSTXT_OBEY = False.
#[test]
fn a_scrapy_crawl_over_http_or_https_fetches_nothing_disallowed() {
    run(async {
        for (scheme, script) in [("http", shop()), ("https", shop().tls())] {
            let (origin, proxy) = site(script.name("shop.test"), &[]).await;
            let start = format!("{scheme}://shop.test/page/0");
            let outcome = python(&proxy, "spider.py", &[&start]).await.assert_code(0);
            // Scrapy requests its start URL again when it finds a link to it. The second
            // extra page is /basket/help.
            let expected = json!({
                "pages": PAGES + 2, "annotated": PAGES + 2, "refused": 2 * PAGES,
                "unexplained": 0,
            });
            assert_members(&spider_counts(&outcome), &expected);
            assert_polite(&origin);
            assert_eq!(origin.robots_fetches(), 1, "{scheme}");
            proxy.place().assert_verified().await;
        }
    });
}

/// Runs a Python program with access to the check API.
async fn run_with_admin_token(proxy: &Proxy, mut command: Command) -> Outcome {
    let token = proxy.place().run(&["admin", "token"]).await.stdout;
    command
        .env("POLITESSE_ADMIN", format!("http://{}", proxy.admin()))
        .env("POLITESSE_TOKEN", token.trim());
    finish(command, b"").await
}

// Ours: politesse.scrapy.AskFirst drops links that would be refused.
#[tokio::test]
async fn a_spider_that_checks_first_gets_no_refusal() {
    let (origin, proxy) = site(shop().name("shop.test"), &[]).await;
    let spider = python_command(&proxy, "spider.py", &["http://shop.test/page/0", "first"]);
    let outcome = run_with_admin_token(&proxy, spider).await.assert_code(0);
    // Each page links to a basket and to a sorted list; the start page is seen twice.
    let expected = json!({"pages": PAGES + 2, "refused": 0, "dropped": 2 * (PAGES + 1)});
    assert_members(&spider_counts(&outcome), &expected);
    assert_polite(&origin);
    assert_eq!(origin.robots_fetches(), 1);
    let rows = proxy.place().completed(PAGES + 2).await;
    assert!(rows.iter().all(|row| row["verdict"] == "allow"));
}

// Ours: politesse.ask, which needs only Python.
#[tokio::test]
async fn politesse_ask_prints_urls_by_their_earliest_start() {
    let slow = delaying("60").start().await;
    let free = Script::robots(ROBOTS).start().await;
    let config = resolve("slow.test", slow.address()).resolve("free.test", free.address());
    let proxy = config.start().await;
    client::get(&proxy, "http://slow.test/").await;
    let mut command = Command::new("python3");
    with_package(&mut command);
    command
        .args(["-m", "politesse.ask", "ExampleBot/1.0"])
        .args(["http://slow.test/2", "http://free.test/basket"])
        .args(["http://free.test/1", "ftp://x"]);
    let outcome = run_with_admin_token(&proxy, command).await.assert_code(0);
    let lines = outcome.stdout.lines().map(|line| line.split(' ').collect());
    let lines: Vec<Vec<&str>> = lines.collect();
    let verdicts: Vec<_> = lines.iter().map(|line| (line[0], line[2])).collect();
    let expected = [
        ("disallow", "http://free.test/basket"),
        ("allow", "http://free.test/1"),
        ("error", "ftp://x"),
        ("allow", "http://slow.test/2"),
    ];
    assert_eq!(verdicts, expected);
    assert_eq!((lines[0][1], lines[2][1]), ("-", "-"));
    assert!(lines[1][1] < lines[3][1], "{lines:?}");
    assert_eq!(slow.targets(), ["/"]);
}

// Ours: pages arrive byte for byte, and refusals cite the rule.
#[tokio::test]
async fn python_requests_gets_pages_and_explained_refusals() {
    let page = "<meta name=robots content=noindex>A page";
    let script = Script::robots(ROBOTS).page("/page", Page::html(page));
    let plain = script.clone().start().await;
    let tls = script.name("secure.test").tls().start().await;
    let config = resolve("plain.test", plain.address()).resolve("secure.test", tls.address());
    let proxy = config.start().await;
    let urls = [
        "http://plain.test/page",
        "http://plain.test/basket",
        "https://secure.test/page",
        "https://secure.test/basket",
    ];
    let outcome = python(&proxy, "fetch.py", &urls).await.assert_code(0);
    for pair in outcome.json_lines().chunks(2) {
        assert_eq!(pair[0]["status"], 200);
        assert_eq!(pair[0]["sha256"], sha256(page.as_bytes()));
        let directives = "requestsbot=(noindex;src=m);state=complete";
        assert_eq!(pair[0]["directives"], directives);
        assert_eq!(pair[1]["status"], 403);
        assert_eq!(pair[1]["problem"]["rule"]["line"], 2);
    }
    assert_polite(&plain);
    assert_polite(&tls);
}

// Ours: the summary counts URLs that the command did not get.
#[tokio::test]
async fn run_reports_how_many_urls_ended_in_429() {
    let lines = ["pace.max_wait = \"0s\""];
    let (_origin, proxy) = site(delaying("60").name("shop.test"), &lines).await;
    let urls = "http://shop.test/page/[0-2] http://shop.test/page/1";
    let command = ["run", "--", "sh", "-c", &format!("curl -sS {urls}")];
    let outcome = proxy.place().run_ok(&command).await;
    let told = "warning: 2 URLs ended in 429 (Too Many Requests)";
    assert!(outcome.stderr.contains(told), "{outcome:?}");
}

// Ours: over HTTPS, a joined command trusts the CA of the running proxy.
#[tokio::test]
async fn run_points_a_command_at_the_running_proxy() {
    let (origin, proxy) = site(shop().name("shop.test").tls(), &[]).await;
    let urls = "https://shop.test/page/1 https://shop.test/basket/1";
    let command = ["run", "--", "sh", "-c", &format!("curl -sS {urls}; exit 7")];
    let outcome = proxy.place().run_code(7, &command).await;
    assert_contains(&outcome.stdout, "<title>1</title>");
    assert_contains(&outcome.stderr, "2 asked, 1 allowed, 1 refused");
    let rule = "Disallow: /basket (line 2 of https://shop.test/robots.txt)";
    assert_contains(&outcome.stderr, rule);
    assert_polite(&origin);
}
