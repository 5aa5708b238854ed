//! `judge --log`: checks the requests in logs of servers, proxies and crawlers against
//! saved robots.txt files.

use serde_json::json;
use tempfile::TempDir;

use crate::kit::program::{Outcome, finish, politesse, run_in};
use crate::kit::{assert_contains, assert_members};

const ROBOTS: &str = "User-agent: FooBot\nDisallow: /foo\n\nUser-agent: *\nDisallow: /star\n";

/// Creates a folder with the log `a.log`, and the robots.txt of `h.test` in `saved`.
fn folder(log: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("a.log"), log).unwrap();
    std::fs::create_dir(folder.path().join("saved")).unwrap();
    std::fs::write(folder.path().join("saved/h.test"), ROBOTS).unwrap();
    folder
}

/// Runs `judge --log a.log --robots saved` with further arguments.
async fn run_judge(log: &str, arguments: &[&str]) -> Outcome {
    let judge = ["judge", "--log", "a.log", "--robots", "saved"];
    run_in(folder(log).path(), &[&judge[..], arguments].concat()).await
}

/// Returns line, URL, verdict and reason of each request.
async fn verdicts(log: &str, arguments: &[&str]) -> Vec<String> {
    let arguments = [&["--requests", "--json"], arguments].concat();
    let rows = run_judge(log, &arguments).await.json_lines().into_iter();
    rows.map(|row| {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let (url, verdict, reason) = (text("url"), text("verdict"), text("reason"));
        format!("{} {url} {verdict} {reason}", row["place"])
    })
    .collect()
}

const TIME: &str = "[02/Jan/2026:10:00:05 +0000]";

/// Returns a line of a server log about a GET by `agent`.
fn line(target: &str, agent: &str) -> String {
    format!("c - - {TIME} \"GET {target} HTTP/1.1\" 200 1 \"-\" \"{agent}\"\n")
}

// Apache, mod_log_config; ours where a format lacks the crawler or the origin.
#[tokio::test]
async fn a_server_log_is_judged_against_the_given_origin() {
    let log = format!(
        "c - - {TIME} \"GET /foo?a=b HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"GET /foo HTTP/1.1\" 200 1 \"-\" \"BarBot/2\"\n\
         c - - {TIME} \"GET /star HTTP/1.1\" 200 1 \"-\" \"-\"\n\
         c - - {TIME} \"GET /foo HTTP/1.1\" 200 1\n\
         c - - {TIME} \"GET /robots.txt HTTP/1.1\" 200 1\n"
    );
    let site = ["--origin", "https://h.test"];
    let mut wanted = [
        "1 https://h.test/foo?a=b disallow rule",
        "2 https://h.test/foo allow no_rule",
        "3 https://h.test/star disallow rule",
        "4 https://h.test/foo unknown no_agent",
        "5 https://h.test/robots.txt allow robots_txt",
    ];
    assert_eq!(verdicts(&log, &site).await, wanted);
    wanted[3] = "4 https://h.test/foo disallow rule";
    let named = [&site[..], &["--agent", "FooBot"]].concat();
    assert_eq!(verdicts(&log, &named).await, wanted);

    let outcome = run_judge(&log, &[]).await.assert_code(2);
    assert_contains(&outcome.stderr, "a.log, line 1: ");
    assert_contains(&outcome.stderr, "--origin");
    let with_path = ["--origin", "https://h.test/a"];
    run_judge(&log, &with_path).await.assert_code(2);
}

// Ours: the log of a forward proxy has whole URLs, except for requests inside tunnels.
#[tokio::test]
async fn a_proxy_log_is_judged_except_for_tunnels() {
    let log = format!(
        "c - - {TIME} \"GET http://h.test/foo HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"CONNECT h.test:443 HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         h.test:443 c - - {TIME} \"GET /foo HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"GET http://other.test/ HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"GET http://u@h.test/ HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n"
    );
    let wanted = [
        "1 http://h.test/foo disallow rule",
        "2 https://h.test:443/ unknown tunnel",
        "3 https://h.test/foo disallow rule",
        "4 http://other.test/ unknown no_robots",
        "5 http://u@h.test/ unknown no_url",
    ];
    assert_eq!(verdicts(&log, &[]).await, wanted);
}

// Scrapy 2.13 and Heritrix 3.
#[tokio::test]
async fn crawler_logs_are_judged_under_the_name_they_contain() {
    let scrapy = "\
2026-01-02 10:00:00 [scrapy.utils.log] INFO: Scrapy 2.13 started (bot: shop)
2026-01-02 10:00:00 [scrapy.crawler] INFO: Overridden settings:
{'BOT_NAME': 'shop', 'USER_AGENT': 'other'}
 'USER_AGENT': 'FooBot (+https://foo.test)'}
2026-01-02 10:00:01 [scrapy.core.engine] DEBUG: Crawled (200) <GET https://h.test/robots.txt> (referer: None)
2026-01-02 10:00:01 [scrapy.core.engine] DEBUG: Crawled (200) <GET https://h.test/foo> (referer: None)
2026-01-02 10:00:02 [scrapy.downloadermiddlewares.robotstxt] DEBUG: Forbidden by robots.txt: <GET https://h.test/star>
";
    let heritrix = "\
2026-01-02T10:00:06.000Z     1     52 dns:h.test P https://h.test/ text/dns #001 20260102100005678+10 sha1:A - -
2026-01-02T10:00:06.000Z   200   1234 https://h.test/foo L https://h.test/ text/html #001 20260102100005678+10 sha1:A - -
2026-01-02T10:00:06.000Z -9998      - https://h.test/star L https://h.test/ unknown #001 - - - -
";
    let robots = "5 https://h.test/robots.txt allow robots_txt";
    let wanted = [robots, "6 https://h.test/foo disallow rule"];
    assert_eq!(verdicts(scrapy, &[]).await, wanted);
    let named = verdicts(heritrix, &["--agent", "FooBot"]).await;
    assert_eq!(named, ["2 https://h.test/foo disallow rule"]);
    let unnamed = verdicts(heritrix, &[]).await;
    assert_eq!(unnamed, ["2 https://h.test/foo unknown no_agent"]);
    run_judge(heritrix, &[]).await.assert_code(3);
}

// Ours: lines that match no format are counted and reported by number.
#[tokio::test]
async fn an_unparsable_log_line_is_counted_and_the_rest_is_judged() {
    let good = line("http://h.test/", "FooBot");
    let long = format!("{}\n", "x".repeat(70_000));
    let log = format!("{good}no line of a log \u{1b}[2J\n{long}{good}");
    // An unparsable first line is counted, too, once the format is known.
    let first = format!("GET /foo HTTP/1.1\" 200 1\n\n{good}");
    for (log, requests, unread) in [(&log, 2, &[2, 3][..]), (&first, 1, &[1])] {
        let outcome = run_judge(log, &["--json"]).await.assert_code(3);
        let report = outcome.json_lines().remove(0);
        let counts = json!({"requests": requests, "unread": unread.len()});
        assert_members(&report, &counts);
        for (part, place) in unread.iter().enumerate() {
            assert_eq!(report["unread_parts"][part]["place"], *place, "{report}");
        }
    }
    let outcome = run_judge(&first, &["--csv"]).await;
    let told = "parts of the files that were not read: 1";
    assert_contains(&outcome.stderr, told);

    let no_log = "no log\nat all\n";
    let outcome = run_judge(no_log, &[]).await.assert_code(2);
    assert_contains(&outcome.stderr, "--format");
    for (log, format, code) in [(no_log, "heritrix", 3), (&good, "squid", 2)] {
        let outcome = run_judge(log, &["--format", format]).await;
        assert_eq!(outcome.code, Some(code), "{format}: {outcome:?}");
    }
}

// Ours: in every output format.
#[tokio::test]
async fn requests_allowed_by_an_override_are_reported_separately() {
    let log = line("http://h.test/foo", "FooBot");
    let leave = "robots.override = [{ origin = \"http://h.test\", action = \"allow\", \
                 reason = \"contract\", until = 2099-01-01T00:00:00Z }]";
    let place = folder(&log);
    std::fs::write(place.path().join("c.toml"), leave).unwrap();
    let judge = ["judge", "--log", "a.log", "--robots", "saved"];
    let told = async |form: &[&str]| {
        let arguments = [&["--config", "c.toml"], &judge[..], form].concat();
        run_in(place.path(), &arguments).await
    };
    let report = told(&["--json"]).await.json_lines().remove(0);
    assert_members(&report, &json!({"allowed": 1, "overridden": 1}));
    let text = told(&[]).await.stdout;
    assert_contains(&text, "1 of the allowed requests were disallowed");
    let csv = told(&["--csv"]).await.stderr;
    assert_contains(&csv, "allowed by robots.override: 1");
    told(&["--html", "page.html"]).await;
    let page = std::fs::read_to_string(place.path().join("page.html")).unwrap();
    assert_contains(&page, "the operator allows (robots.override)");
}

// Ours: `--log` takes several files; `-` is standard input.
#[tokio::test]
async fn several_logs_and_standard_input_can_be_read_at_once() {
    let folder = folder(&line("http://h.test/foo", "FooBot"));
    let mut command = politesse(folder.path());
    command.args(["judge", "--robots", "saved", "--json"]);
    command.args(["--log", "a.log", "-"]);
    let many = line("http://h.test/b", "FooBot").repeat(20_000);
    let outcome = finish(command, many.as_bytes()).await;
    let report = outcome.json_lines().remove(0);
    let expected = json!({"files": 2, "requests": 20_001, "disallowed": 1});
    assert_members(&report, &expected);
    assert_eq!(report["samples"][0]["url"], "http://h.test/foo");
}
