//! `judge --log`: checks the requests in logs of servers, proxies and crawlers against
//! saved robots.txt files.

use serde_json::json;
use tempfile::TempDir;

use crate::kit::program::{Outcome, finish, politesse, run_in};
use crate::kit::{assert_contains, assert_members, run};

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

// Apache, mod_log_config; ours where a format lacks the crawler or the origin.
#[test]
fn a_server_log_is_judged_against_the_given_origin() {
    let log = format!(
        "c - - {TIME} \"GET /foo?a=b HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"GET /foo HTTP/1.1\" 200 1 \"-\" \"BarBot/2\"\n\
         c - - {TIME} \"GET /star HTTP/1.1\" 200 1 \"-\" \"-\"\n\
         c - - {TIME} \"GET /foo HTTP/1.1\" 200 1\n\
         c - - {TIME} \"GET /robots.txt HTTP/1.1\" 200 1\n"
    );
    run(async {
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
        assert!(outcome.stderr.contains("a.log, line 1: "), "{outcome:?}");
        assert!(outcome.stderr.contains("--origin"), "{outcome:?}");
        let outcome = run_judge(&log, &["--origin", "https://h.test/a"]).await;
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
    });
}

// Ours: the log of a forward proxy has whole URLs, except for requests inside tunnels.
#[test]
fn a_proxy_log_is_judged_except_for_tunnels() {
    let log = format!(
        "c - - {TIME} \"GET http://h.test/foo HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"CONNECT h.test:443 HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         h.test:443 c - - {TIME} \"GET /foo HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"GET http://other.test/ HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n\
         c - - {TIME} \"GET http://u@h.test/ HTTP/1.1\" 200 1 \"-\" \"FooBot/2\"\n"
    );
    run(async {
        let wanted = [
            "1 http://h.test/foo disallow rule",
            "2 https://h.test:443/ unknown tunnel",
            "3 https://h.test/foo disallow rule",
            "4 http://other.test/ unknown no_robots",
            "5 http://u@h.test/ unknown no_url",
        ];
        assert_eq!(verdicts(&log, &[]).await, wanted);
    });
}

// Scrapy 2.13 and Heritrix 3.
#[test]
fn crawler_logs_are_judged_under_the_name_they_contain() {
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
    run(async {
        let robots = "5 https://h.test/robots.txt allow robots_txt";
        let wanted = [robots, "6 https://h.test/foo disallow rule"];
        assert_eq!(verdicts(scrapy, &[]).await, wanted);
        let agent = ["--agent", "FooBot"];
        assert_eq!(
            verdicts(heritrix, &agent).await,
            ["2 https://h.test/foo disallow rule"]
        );
        assert_eq!(
            verdicts(heritrix, &[]).await,
            ["2 https://h.test/foo unknown no_agent"]
        );
        assert_eq!(run_judge(heritrix, &[]).await.code, Some(3));
    });
}

// Ours: lines that match no format are counted and reported by number.
#[test]
fn an_unparsable_log_line_is_counted_and_the_rest_is_judged() {
    let good = format!("c - - {TIME} \"GET http://h.test/ HTTP/1.1\" 200 1 \"-\" \"FooBot\"\n");
    let long = format!("{}\n", "x".repeat(70_000));
    let log = format!("{good}no line of a log \u{1b}[2J\n{long}{good}");
    run(async {
        let outcome = run_judge(&log, &["--json"]).await;
        let report = outcome.json_lines().remove(0);
        assert_members(&report, &json!({"requests": 2, "unread": 2}));
        assert_eq!(report["unread_parts"][0]["place"], 2, "{report}");
        assert_eq!(report["unread_parts"][1]["place"], 3, "{report}");
        assert_eq!(outcome.code, Some(3));

        // An unparsable first line is counted, too, once the format is known.
        let log = format!("GET /foo HTTP/1.1\" 200 1\n\n{good}");
        let outcome = run_judge(&log, &["--json"]).await;
        let report = outcome.json_lines().remove(0);
        assert_members(&report, &json!({"requests": 1, "unread": 1}));
        assert_eq!(report["unread_parts"][0]["place"], 1, "{report}");
        assert_eq!(outcome.code, Some(3));
        let outcome = run_judge(&log, &["--csv"]).await;
        let told = "parts of the files that were not read: 1";
        assert!(outcome.stderr.contains(told), "{outcome:?}");

        let outcome = run_judge("no log\nat all\n", &[]).await.assert_code(2);
        assert!(outcome.stderr.contains("--format"), "{outcome:?}");
        let outcome = run_judge("no log\nat all\n", &["--format", "heritrix"]).await;
        assert_eq!(outcome.code, Some(3), "{outcome:?}");
        let outcome = run_judge(&good, &["--format", "squid"]).await;
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
    });
}

// Ours: an override of the operator does not hide in any output format that robots.txt
// disallowed the request.
#[test]
fn requests_allowed_by_an_override_are_reported_separately() {
    let log = format!("c - - {TIME} \"GET http://h.test/foo HTTP/1.1\" 200 1 \"-\" \"FooBot\"\n");
    let leave = "robots.override = [{ origin = \"http://h.test\", action = \"allow\", \
                 reason = \"contract\", until = 2099-01-01T00:00:00Z }]";
    run(async {
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
        assert!(csv.contains("allowed by robots.override: 1"), "{csv}");
        told(&["--html", "page.html"]).await;
        let page = std::fs::read_to_string(place.path().join("page.html")).unwrap();
        assert_contains(&page, "the operator allows (robots.override)");
    });
}

// Ours: `--log` takes several files; `-` is standard input.
#[test]
fn several_logs_and_standard_input_can_be_read_at_once() {
    let line = |path: &str| {
        format!("c - - {TIME} \"GET http://h.test{path} HTTP/1.1\" 200 1 \"-\" \"FooBot\"\n")
    };
    run(async {
        let folder = folder(&line("/foo"));
        let mut command = politesse(folder.path());
        command.args([
            "judge", "--robots", "saved", "--json", "--log", "a.log", "-",
        ]);
        let many = line("/b").repeat(20_000);
        let report = finish(command, many.as_bytes())
            .await
            .json_lines()
            .remove(0);
        let expected = json!({"files": 2, "requests": 20_001, "disallowed": 1});
        assert_members(&report, &expected);
        assert_eq!(report["samples"][0]["url"], "http://h.test/foo");
    });
}
