//! `audit stats`, `audit top`, `audit why`, `audit speed` and `audit tail`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::program::politesse;
use crate::kit::proxy::Place;
use crate::kit::{assert_contains, assert_members};

const ROBOTS: &str = "# \u{1b}[2J\nUser-agent: *\nDisallow: /private\nDisallow: /=1\n";

/// Returns a record of five decisions: two allowed and two refused at one host, and one
/// allowed at another.
async fn recorded() -> (Origin, Place) {
    let (origin, proxy) = site(Script::robots(ROBOTS).names(["o.test", "p.test"]), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    get_as(&proxy, "BarBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/b").await;
    get(&proxy, "http://p.test/a").await;
    proxy.place().completed(5).await;
    (origin, proxy.stop().await)
}

// Ours; docs/asking.md.
#[tokio::test]
async fn stats_groups_decisions_by_keys_in_the_given_order() {
    let (_origin, place) = recorded().await;
    let stats = ["audit", "stats", "--by", "crawler,host,rule", "--json"];
    let rows = place.run(&stats).await.json_lines();
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            let row = row.as_object().unwrap();
            let keys: Vec<_> = row.keys().take(4).map(String::as_str).collect();
            assert_eq!(keys, ["crawler", "host", "rule", "requests"]);
            json!([
                row["crawler"],
                row["host"],
                row["rule"],
                row["requests"],
                row["refusals"]
            ])
        })
        .collect();
    assert_eq!(
        seen,
        [
            json!(["FooBot", "o.test", null, 2, 0]),
            json!(["BarBot", "o.test", "Disallow: /private", 1, 1]),
            json!(["ExampleBot", "p.test", null, 1, 0]),
            json!(["FooBot", "o.test", "Disallow: /private", 1, 1]),
        ]
    );
    let text = place.run(&["audit", "stats", "--by", "host"]).await;
    let lines: Vec<Vec<_>> = text
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let titles = [
        "HOST",
        "REQUESTS",
        "REFUSALS",
        "REPORTED",
        "LATER",
        "WAITS",
        "BYTES",
        "ERRORS",
        "WITHHELD",
        "REFUSED_BY_SITE",
        "PUT_OFF_BY_SITE",
    ];
    assert_eq!(lines[0], titles);
    assert_eq!(lines[1][..3], ["o.test", "4", "2"]);
    assert_eq!(lines[2][..3], ["p.test", "1", "0"]);
    let all = place
        .run(&["audit", "stats", "--host", "o.test", "--csv"])
        .await;
    assert!(
        all.stdout.starts_with(
            "requests,refusals,reported,later,wait_ms,bytes,errors,withheld,refused_by_site,put_off_by_site\r\n4,2,0,0,"
        ),
        "{all:?}"
    );
}

// Ours: the message says how many rows were left out.
#[tokio::test]
async fn a_limited_output_says_what_it_leaves_out() {
    let (_origin, place) = recorded().await;
    let cut = [
        "audit",
        "stats",
        "--by",
        "host,rule",
        "--limit",
        "1",
        "--json",
    ];
    let cut = place.run(&cut).await;
    assert_eq!(cut.json_lines().len(), 1);
    assert_eq!(
        cut.stderr,
        "politesse: left out: 2 rows with 3 requests, 2 refusals; --limit 0 shows all\n"
    );
    let none = [
        "audit", "stats", "--by", "host", "--host", "q.test", "--csv",
    ];
    let none = place.run(&none).await;
    assert!(none.stdout.starts_with("host,requests,"), "{none:?}");
    assert_eq!((none.code, none.stdout.lines().count()), (Some(0), 1));
    for (arguments, told) in [
        (
            ["stats", "--by", "day"],
            "host, url, crawler, label, preference, purpose, rule, reason, hour",
        ),
        (["stats", "--by", "host,host"], "host twice"),
        (["tail", "--until", "1h"], "audit list"),
        (["why", "--agent", "FooBot"], "URL"),
    ] {
        let outcome = place
            .run_code(2, &["audit", arguments[0], arguments[1], arguments[2]])
            .await;
        assert!(outcome.stderr.contains(told), "{outcome:?}");
    }
}

// Ours: one table shows the refused URLs, the rules, the counts and the crawlers.
#[tokio::test]
async fn stats_by_url_counts_each_url_separately() {
    let (_origin, place) = recorded().await;
    let refused = [
        "audit",
        "stats",
        "--by",
        "url,rule,crawler",
        "--verdict",
        "disallow",
        "--csv",
    ];
    let table = place.run(&refused).await.stdout;
    let row = "http://o.test/private/x,Disallow: /private,FooBot,1,1,0,0,";
    assert!(table.contains(row), "{table}");
    assert_eq!(table.lines().count(), 3, "{table}");
    let hosts = ["audit", "stats", "--by", "url,host,hour", "--json"];
    let rows = place.run(&hosts).await.json_lines();
    let requests: Vec<_> = rows
        .iter()
        .map(|row| json!([row["url"], row["host"], row["requests"]]))
        .collect();
    assert_eq!(
        requests,
        [
            json!(["http://o.test/private/x", "o.test", 2]),
            json!(["http://o.test/a", "o.test", 1]),
            json!(["http://o.test/b", "o.test", 1]),
            json!(["http://p.test/a", "p.test", 1]),
        ]
    );
}

// Ours; RFC 9110, section 10.2.3, for Retry-After.
#[tokio::test]
async fn speed_counts_sent_requests_and_names_hosts_that_asked_for_less() {
    let (_origin, proxy) = site(
        Script::robots(ROBOTS)
            .page("/busy", Page::status(429).field("Retry-After", "3600"))
            .names(["o.test", "p.test"]),
        &[],
    )
    .await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/b").await;
    get_as(&proxy, "BarBot/1", "http://p.test/busy").await;
    proxy.place().completed(4).await;
    let place = proxy.stop().await;
    let speeds = |by: &'static str| {
        let place = &place;
        async move {
            let asked = ["audit", "speed", "--by", by, "--json"];
            place.run(&asked).await.json_lines()
        }
    };
    let rows = speeds("crawler,host").await;
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            json!([
                row["crawler"],
                row["host"],
                row["sent"],
                row["back_offs"],
                row["back_off_status"]
            ])
        })
        .collect();
    // Refused requests were not sent, so they do not count.
    assert_eq!(
        told,
        [
            json!(["FooBot", "o.test", 2, 0, null]),
            json!(["BarBot", "p.test", 1, 1, 429]),
        ]
    );
    assert!(rows[0]["usual_pause_ms"].is_u64(), "{rows:?}");
    assert!(rows[1]["usual_pause_ms"].is_null(), "{rows:?}");
    let crawlers = speeds("crawler").await;
    assert_eq!(crawlers[0]["crawler"], "FooBot");
    assert_eq!(crawlers[0].get("back_offs"), None);
    assert_eq!(speeds("host").await[1]["host"], "p.test");
    let cut = place.run(&["audit", "speed", "--limit", "1"]).await;
    assert!(cut.stdout.contains("BUSIEST MINUTE"), "{cut:?}");
    let told = "left out: 1 slower rows, 1 of them of hosts that asked for less";
    assert!(cut.stderr.contains(told), "{cut:?}");
    let csv = place
        .run(&["audit", "speed", "--host", "p.test", "--csv"])
        .await;
    assert_contains(&csv.stdout, "\r\nBarBot,p.test,1,1,,1,429,");
}

// Ours; docs/asking.md.
#[tokio::test]
async fn top_ranks_by_refusals() {
    let (_origin, place) = recorded().await;
    for (subject, key, wanted) in [
        ("rules", "rule", vec![json!("Disallow: /private")]),
        ("hosts", "host", vec![json!("o.test"), json!("p.test")]),
        (
            "crawlers",
            "crawler",
            vec![json!("FooBot"), json!("BarBot"), json!("ExampleBot")],
        ),
    ] {
        let rows = place
            .run(&["audit", "top", subject, "--json"])
            .await
            .json_lines();
        let values: Vec<_> = rows.iter().map(|row| row[key].clone()).collect();
        assert_eq!(values, wanted);
    }
    let foo = ["audit", "top", "rules", "--crawler", "foobot", "--json"];
    assert_eq!(place.run(&foo).await.json_lines()[0]["refusals"], 1);
}

// Ours: the answer names the rule, and shows the lines around it.
#[tokio::test]
async fn why_shows_the_latest_decision_for_a_url() {
    let (_origin, place) = recorded().await;
    let url = "http://o.test/private/x";
    let text = place.run_ok(&["audit", "why", url]).await;
    for wanted in [
        "http://o.test/private/x: refused for FooBot: line 3, Disallow: /private\n",
        "user_agent   FooBot/1\n",
        "  fetched    20",
        "wait         0 ms\n",
        "robots.txt around line 3:\n      1 | # \\u{1b}[2J\n      2 | User-agent: *\n>     3 | Disallow: /private\n      4 | Disallow: /=1\n",
    ] {
        assert!(text.stdout.contains(wanted), "{wanted}: {text:?}");
    }
    let by_bar = ["audit", "why", url, "--agent", "BarBot/7", "--json"];
    let json = place.run(&by_bar).await.json_lines().remove(0);
    assert_members(&json, &json!({"asked": true, "user_agent": "BarBot/1"}));
    assert_eq!(
        json["lines"][2],
        json!({ "line": 3, "text": "Disallow: /private" })
    );
    // A decision can be found by its time as printed.
    let time = json["time"].as_str().unwrap();
    let at = place
        .run(&["audit", "why", url, "--at", time, "--csv"])
        .await;
    assert!(at.stdout.contains("\r\nuser_agent,BarBot/1\r\n"), "{at:?}");
    assert_contains(&at.stdout, "\r\nrobots.txt line 3,Disallow: /private\r\n");
}

// Ours: for a URL without a decision, the rules on record are applied.
#[tokio::test]
async fn why_shows_the_decision_for_a_url_never_requested() {
    let (_origin, place) = recorded().await;
    let url = "http://o.test/private/never";
    let text = place
        .run_code(1, &["audit", "why", url, "--agent", "FooBot"])
        .await;
    for wanted in [
        "http://o.test/private/never: never asked for by FooBot\n",
        "robots.txt on record: http://o.test/robots.txt, fetched as FooBot, status 200: successful, fetched 20",
        "http://o.test/private/never: refused for FooBot: line 3, Disallow: /private\n",
    ] {
        assert!(text.stdout.contains(wanted), "{wanted}: {text:?}");
    }
    let json = place
        .run(&["audit", "why", url, "--json"])
        .await
        .json_lines()
        .remove(0);
    assert_eq!(
        (&json["asked"], &json["check"]["line"]),
        (&json!(false), &json!(3))
    );
    // Decisions for another crawler, and after the given time.
    let asked = "http://o.test/b";
    let others = ["audit", "why", asked, "--agent", "BarBot"];
    let others = place.run(&others).await;
    assert_contains(&others.stdout, "(1 other decisions about it: ");
    let before = ["audit", "why", asked, "--at", "2020-01-01"];
    let before = place.run_code(1, &before).await;
    assert_contains(&before.stdout, "no robots.txt of its origin");
}

// Ours: text from sites and crawlers controls neither a terminal nor a spreadsheet.
#[tokio::test]
async fn hostile_values_are_inert_in_every_form() {
    let (_origin, place) = recorded().await;
    let second = place.number(2);
    let evil = format!(
        "UPDATE decision SET path = '/' || char(27) || '[2J' || char(8238) WHERE seq = {second}"
    );
    place.database().execute_batch(&evil).unwrap();
    let columns = "verdict, reason, effect, line, '=cmd|' || char(13) || char(10) || '\"x,', \
                       groups, '@' || CAST(x'ff9b' AS TEXT), denials";
    place.refer_to_copy(2, "ruling", columns);
    let csv = ["audit", "stats", "--by", "rule,crawler", "--csv"];
    let csv = place.run(&csv).await.stdout;
    assert!(
        csv.contains("\r\n\"'=cmd|\\u{d}\\u{a}\"\"x,\",'@\u{fffd}\u{fffd},1,1,"),
        "{csv:?}"
    );
    for command in [
        &["audit", "stats", "--by", "host,crawler,rule,reason,hour"][..],
        &["audit", "top", "rules"],
        &["audit", "top", "crawlers"],
        &["audit", "why", "http://o.test/private/x"],
        &["audit", "why", "http://o.test/never"],
        &["audit", "list"],
    ] {
        for form in [None, Some("--json"), Some("--csv")] {
            let arguments: Vec<_> = command.iter().copied().chain(form).collect();
            let outcome = place.run(&arguments).await;
            let text = outcome.stdout.replace("\r\n", "\n");
            let is_told =
                |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
            assert!(!text.contains(is_told), "{arguments:?} {outcome:?}");
            // Only CSV is opened in spreadsheets.
            let mut lines = text.lines().filter(|_| form == Some("--csv"));
            let begins_formula = lines.any(|line| line.starts_with(['=', '+', '@']));
            assert!(!begins_formula, "{arguments:?} {outcome:?}");
            assert_ne!(outcome.stdout, "", "{arguments:?}");
        }
    }
}

// Ours: decisions are shown while the proxy runs.
#[tokio::test]
async fn tail_shows_decisions_as_they_are_made() {
    let (_origin, proxy) = site(Script::robots(ROBOTS).names(["o.test", "p.test"]), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/1").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/2").await;
    let place = proxy.place();
    let mut command = politesse(place.folder()).into_std();
    command.args([
        "audit",
        "tail",
        "--verdict",
        "disallow",
        "--limit",
        "1",
        "--json",
    ]);
    let mut tail = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["url"], "http://o.test/private/2");
    get_as(&proxy, "FooBot/1", "http://o.test/b").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/3").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/4").await;
    assert_eq!(next()["url"], "http://o.test/private/3");
    assert_eq!(next()["url"], "http://o.test/private/4");
    tail.kill().unwrap();
    tail.wait().unwrap();
}
