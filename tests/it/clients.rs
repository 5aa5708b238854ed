//! Real clients without changes: curl, Python requests and Scrapy.
//!
//! `tests/run` creates their Python environment.

use std::path::PathBuf;

use tokio::process::Command;

use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish, politesse};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::{assert_contains, client, run, sha256};

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
        script = script.page(&format!("/basket/{page}"), Page::html("never to be seen"));
        script = script.page(
            &format!("/page/{page}?sort=price"),
            Page::html("never to be seen"),
        );
    }
    script
}

/// Runs a Python program of `tests/clients` that uses the proxy.
pub(crate) async fn python(proxy: &Proxy, program: &str, arguments: &[&str]) -> Outcome {
    finish(python_command(proxy, program, arguments), b"").await
}

/// Returns the command that [`python`] runs.
pub(crate) fn python_command(proxy: &Proxy, program: &str, arguments: &[&str]) -> Command {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let interpreter = root.join("target/venv/bin/python");
    assert!(
        interpreter.exists(),
        "run tests/run: it makes {}",
        interpreter.display()
    );
    let mut command = Command::new(interpreter);
    command
        .arg(root.join("tests/clients").join(program))
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
        .env(
            "PYTHONPATH",
            concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/python"),
        )
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

async fn crawl(origin: &Origin, scheme: &str) {
    let proxy = resolve("shop.test", origin.address()).start().await;
    let outcome = python(
        &proxy,
        "spider.py",
        &[&format!("{scheme}://shop.test/page/0")],
    )
    .await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let counts: serde_json::Value =
        serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    // Scrapy requests its start URL again when it finds a link to it. The second extra
    // page is /basket/help.
    assert_eq!(counts["pages"], PAGES + 2, "{outcome:?}");
    assert_eq!(counts["annotated"], PAGES + 2);
    assert_eq!(counts["refused"], 2 * PAGES);
    assert_eq!(counts["unexplained"], 0);
    assert_polite(origin);
    assert_eq!(origin.robots_fetches(), 1);
    proxy.place().assert_verified().await;
}

// Ours: Scrapy with ROBOTSTXT_OBEY = False, over HTTP.
#[test]
fn a_scrapy_crawl_over_http_fetches_nothing_disallowed() {
    run(async { crawl(&shop().name("shop.test").start().await, "http").await });
}

// Ours: Scrapy with ROBOTSTXT_OBEY = False, over HTTPS.
#[test]
fn a_scrapy_crawl_over_https_fetches_nothing_disallowed() {
    run(async { crawl(&shop().name("shop.test").tls().start().await, "https").await });
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
    let counts: serde_json::Value =
        serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(counts["pages"], PAGES + 2, "{outcome:?}");
    assert_eq!(counts["refused"], 0, "{outcome:?}");
    // Each page links to a basket and to a sorted list; the start page is seen twice.
    assert_eq!(counts["dropped"], 2 * (PAGES + 1), "{outcome:?}");
    assert_polite(&origin);
    assert_eq!(origin.robots_fetches(), 1);
    let rows = proxy.place().completed(PAGES + 2).await;
    assert!(rows.iter().all(|row| row["verdict"] == "allow"));
}

// Ours: politesse.ask, which needs only Python.
#[tokio::test]
async fn politesse_ask_prints_urls_by_their_earliest_start() {
    let slow = Script::robots("User-agent: *\nCrawl-delay: 60\n")
        .start()
        .await;
    let free = Script::robots(ROBOTS).start().await;
    let config = resolve("slow.test", slow.address()).resolve("free.test", free.address());
    let proxy = config.start().await;
    client::get(&proxy, "http://slow.test/").await;
    let mut command = Command::new("python3");
    with_package(&mut command);
    command
        .args([
            "-m",
            "politesse.ask",
            "ExampleBot/1.0",
            "http://slow.test/2",
        ])
        .args(["http://free.test/basket", "http://free.test/1", "ftp://x"]);
    let outcome = run_with_admin_token(&proxy, command).await.assert_code(0);
    let lines: Vec<Vec<&str>> = outcome
        .stdout
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
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
    let script = Script::robots(ROBOTS).page(
        "/page",
        Page::html("<meta name=robots content=noindex>A page"),
    );
    let (plain, tls) = (
        script.clone().start().await,
        script.name("secure.test").tls().start().await,
    );
    let config = Config::default()
        .resolve("plain.test", plain.address())
        .resolve("secure.test", tls.address());
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
        assert_eq!(
            pair[0]["sha256"],
            sha256(b"<meta name=robots content=noindex>A page")
        );
        assert_eq!(
            pair[0]["directives"],
            "requestsbot=(noindex;src=m);state=complete"
        );
        assert_eq!(pair[1]["status"], 403);
        assert_eq!(pair[1]["problem"]["rule"]["line"], 2);
    }
    assert_polite(&plain);
    assert_polite(&tls);
}

// Ours: the printed line works when pasted.
#[tokio::test]
async fn curl_works_with_the_line_that_serve_prints() {
    let (origin, proxy) = site(shop().name("example.com").tls(), &[]).await;
    let line = proxy
        .banner()
        .iter()
        .find_map(|line| line.strip_prefix("try: "))
        .unwrap()
        .to_owned();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        &format!("{line} -s -o /dev/null -w '%{{http_code}} %{{ssl_verify_result}}'"),
    ]);
    let outcome = finish(shell, b"").await;
    outcome.assert_output(0, "200 0");
    let refused = client::curl(&proxy, &["-i", "https://example.com/basket/1"]).await;
    assert_contains(&refused.stdout, "403");
    assert_contains(&refused.stdout, "\"line\":2");
    assert_polite(&origin);
}

// Ours: the summary counts URLs that the command did not get.
#[tokio::test]
async fn run_reports_how_many_urls_ended_in_429() {
    let script = Script::robots("User-agent: *\nCrawl-delay: 60\n");
    let (_origin, proxy) = site(script.name("shop.test"), &["pace.max_wait = \"0s\""]).await;
    let urls = "http://shop.test/page/[0-2] http://shop.test/page/1";
    let command = ["run", "--", "sh", "-c", &format!("curl -sS {urls}")];
    let outcome = proxy.place().run_ok(&command).await;
    let told = "warning: 2 URLs ended in 429 (Too Many Requests)";
    assert!(outcome.stderr.contains(told), "{outcome:?}");
}

// Ours: `run -- CMD` points a client at the proxy, and prints a summary.
#[tokio::test]
async fn run_points_a_command_at_the_running_proxy() {
    let (origin, proxy) = site(shop().name("shop.test").tls(), &[]).await;
    let mut command = politesse(proxy.place().folder());
    let urls = "https://shop.test/page/1 https://shop.test/basket/1";
    command.args(["run", "--", "sh", "-c", &format!("curl -sS {urls}; exit 7")]);
    let outcome = finish(command, b"").await.assert_code(7);
    assert!(outcome.stdout.contains("<title>1</title>"), "{outcome:?}");
    assert_contains(&outcome.stderr, "2 asked, 1 allowed, 1 refused");
    assert!(
        outcome
            .stderr
            .contains("Disallow: /basket (line 2 of https://shop.test/robots.txt)"),
        "{outcome:?}"
    );
    assert_polite(&origin);
}

// Ours: if no proxy answers, `run` starts one.
#[tokio::test]
async fn run_starts_a_proxy_of_its_own() {
    let origin = shop().name("shop.test").start().await;
    let place = crate::kit::proxy::Place::with(&resolve("shop.test", origin.address()));
    let outcome = place
        .run_ok(&["run", "--", "curl", "-sS", "http://shop.test/basket/1"])
        .await;
    assert!(outcome.stdout.contains("\"line\":2"), "{outcome:?}");
    assert_contains(&outcome.stderr, "1 asked, 0 allowed, 1 refused");
    origin.assert_only_robots_fetched();
}
