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
pub(crate) async fn recorded() -> (Origin, Place) {
    let (origin, proxy) = site(Script::robots(ROBOTS).names(["o.test", "p.test"]), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    get_as(&proxy, "BarBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/b").await;
    get(&proxy, "http://p.test/a").await;
    proxy.place().completed(5).await;
    (origin, proxy.stop().await)
}

/// Returns the values of the members `names` of each row.
fn columns(rows: &[Value], names: &[&str]) -> Vec<Value> {
    let values = |row: &Value| names.iter().map(|name| row[*name].clone()).collect();
    rows.iter().map(values).collect()
}

// Ours; docs/asking.md.
#[tokio::test]
async fn stats_groups_decisions_by_keys_in_the_given_order() {
    let (_origin, place) = recorded().await;
    let stats = "stats --by crawler,host,rule --json";
    let rows = place.audit(stats).await.json_lines();
    let keys = rows[0].as_object().unwrap().keys().take(4);
    let keys: Vec<_> = keys.map(String::as_str).collect();
    assert_eq!(keys, ["crawler", "host", "rule", "requests"]);
    let names = ["crawler", "host", "rule", "requests", "refusals"];
    assert_eq!(
        columns(&rows, &names),
        [
            json!(["FooBot", "o.test", null, 2, 0]),
            json!(["BarBot", "o.test", "Disallow: /private", 1, 1]),
            json!(["ExampleBot", "p.test", null, 1, 0]),
            json!(["FooBot", "o.test", "Disallow: /private", 1, 1]),
        ]
    );
    let text = place.audit("stats --by host").await.stdout;
    let lines = text.lines().map(|line| line.split_whitespace().collect());
    let lines: Vec<Vec<_>> = lines.collect();
    let titles = "HOST REQUESTS REFUSALS REPORTED LATER WAITS BYTES ERRORS WITHHELD \
                  REFUSED_BY_SITE PUT_OFF_BY_SITE";
    assert_eq!(lines[0].join(" "), titles);
    assert_eq!(lines[1][..3], ["o.test", "4", "2"]);
    assert_eq!(lines[2][..3], ["p.test", "1", "0"]);
    let all = place.audit("stats --host o.test --csv").await.stdout;
    let start = "requests,refusals,reported,later,wait_ms,bytes,errors,withheld,\
                 refused_by_site,put_off_by_site\r\n4,2,0,0,";
    assert!(all.starts_with(start), "{all:?}");
    // One table shows the refused URLs, the rules, the counts and the crawlers.
    let refused = "stats --by url,rule,crawler --verdict disallow --csv";
    let table = place.audit(refused).await.stdout;
    let row = "http://o.test/private/x,Disallow: /private,FooBot,1,1,0,0,";
    assert_contains(&table, row);
    assert_eq!(table.lines().count(), 3, "{table}");
}

// Ours: the message says how many rows were left out.
#[tokio::test]
async fn a_limited_output_says_what_it_leaves_out() {
    let (_origin, place) = recorded().await;
    let cut = place.audit("stats --by host,rule --limit 1 --json").await;
    assert_eq!(cut.json_lines().len(), 1);
    let left = "politesse: left out: 2 rows with 3 requests, 2 refusals; --limit 0 shows all\n";
    assert_eq!(cut.stderr, left);
    let none = place.audit("stats --by host --host q.test --csv").await;
    assert!(none.stdout.starts_with("host,requests,"), "{none:?}");
    assert_eq!(none.stdout.lines().count(), 1);
    let keys = "host, url, crawler, label, preference, purpose, rule, reason, hour";
    for (words, told) in [
        ("stats --by day", keys),
        ("stats --by host,host", "host twice"),
        ("tail --until 1h", "audit list"),
        ("why --agent FooBot", "URL"),
    ] {
        let outcome = place.audit_code(2, words).await;
        assert!(outcome.stderr.contains(told), "{words}: {outcome:?}");
    }
}

// Ours; RFC 9110, section 10.2.3, for Retry-After.
#[tokio::test]
async fn speed_counts_sent_requests_and_names_hosts_that_asked_for_less() {
    let busy = Page::status(429).field("Retry-After", "3600");
    let script = Script::robots(ROBOTS).page("/busy", busy);
    let (_origin, proxy) = site(script.names(["o.test", "p.test"]), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/b").await;
    get_as(&proxy, "BarBot/1", "http://p.test/busy").await;
    proxy.place().completed(4).await;
    let place = proxy.stop().await;
    let speeds = async |by: &str| {
        let speed = format!("speed --by {by} --json");
        place.audit(&speed).await.json_lines()
    };
    let rows = speeds("crawler,host").await;
    let names = ["crawler", "host", "sent", "back_offs", "back_off_status"];
    // Refused requests were not sent, so they do not count.
    assert_eq!(
        columns(&rows, &names),
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
    let cut = place.audit("speed --limit 1").await;
    assert_contains(&cut.stdout, "BUSIEST MINUTE");
    let told = "left out: 1 slower rows, 1 of them of hosts that asked for less";
    assert_contains(&cut.stderr, told);
    let csv = place.audit("speed --host p.test --csv").await.stdout;
    assert_contains(&csv, "\r\nBarBot,p.test,1,1,,1,429,");
}

// Ours; docs/asking.md.
#[tokio::test]
async fn top_ranks_by_refusals() {
    let (_origin, place) = recorded().await;
    for (subject, key, wanted) in [
        ("rules", "rule", &["Disallow: /private"][..]),
        ("hosts", "host", &["o.test", "p.test"]),
        ("crawlers", "crawler", &["FooBot", "BarBot", "ExampleBot"]),
    ] {
        let top = format!("top {subject} --json");
        let rows = place.audit(&top).await.json_lines();
        let values: Vec<_> = rows.iter().map(|row| row[key].as_str().unwrap()).collect();
        assert_eq!(values, wanted);
    }
    let foo = "top rules --crawler foobot --json";
    assert_eq!(place.audit(foo).await.json_lines()[0]["refusals"], 1);
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
    let by_bar = format!("why {url} --agent BarBot/7 --json");
    let json = place.audit(&by_bar).await.json_lines().remove(0);
    let line = json!({ "line": 3, "text": "Disallow: /private" });
    assert_members(&json, &json!({"asked": true, "user_agent": "BarBot/1"}));
    assert_eq!(json["lines"][2], line);
    // A decision can be found by its time as printed.
    let time = json["time"].as_str().unwrap();
    let at = format!("why {url} --at {time} --csv");
    let at = place.audit(&at).await.stdout;
    assert_contains(&at, "\r\nuser_agent,BarBot/1\r\n");
    assert_contains(&at, "\r\nrobots.txt line 3,Disallow: /private\r\n");
}

// Ours: for a URL without a decision, the rules on record are applied.
#[tokio::test]
async fn why_shows_the_decision_for_a_url_never_requested() {
    let (_origin, place) = recorded().await;
    let why = "why http://o.test/private/never";
    let text = place.audit_code(1, &format!("{why} --agent FooBot")).await;
    for wanted in [
        "http://o.test/private/never: never asked for by FooBot\n",
        "robots.txt on record: http://o.test/robots.txt, fetched as FooBot, status 200: successful, fetched 20",
        "http://o.test/private/never: refused for FooBot: line 3, Disallow: /private\n",
    ] {
        assert_contains(&text.stdout, wanted);
    }
    let json = place.audit_code(1, &format!("{why} --json")).await;
    let json = json.json_lines().remove(0);
    assert_eq!(json["asked"], false);
    assert_eq!(json["check"]["line"], 3);
    // Decisions for another crawler, and after the given time.
    let others = "why http://o.test/b --agent BarBot";
    let others = place.audit_code(1, others).await.stdout;
    assert_contains(&others, "(1 other decisions about it: ");
    let before = "why http://o.test/b --at 2020-01-01";
    let before = place.audit_code(1, before).await.stdout;
    assert_contains(&before, "no robots.txt of its origin");
}

// Ours: text from sites and crawlers controls neither a terminal nor a spreadsheet.
#[tokio::test]
async fn hostile_values_are_inert_in_every_form() {
    let (_origin, place) = recorded().await;
    let second = place.number(2);
    let evil = "'/' || char(27) || '[2J' || char(8238) || char(155)";
    let evil = format!("UPDATE decision SET path = {evil} WHERE seq = {second}");
    place.database().execute_batch(&evil).unwrap();
    let columns = "verdict, reason, effect, line, '=cmd|' || char(13) || char(10) || '\"x,', \
                       groups, '@' || CAST(x'ff9b' AS TEXT), denials";
    place.refer_to_copy(2, "ruling", columns);
    let csv = place.audit("stats --by rule,crawler --csv").await.stdout;
    let row = "\r\n\"'=cmd|\\u{d}\\u{a}\"\"x,\",'@\u{fffd}\u{fffd},1,1,";
    assert_contains(&csv, row);
    let forms = ["", "--json", "--csv"];
    for (code, command, forms) in [
        (0, "stats --by host,crawler,rule,reason,hour", &forms[..]),
        (0, "top rules", &forms),
        (0, "top crawlers", &forms),
        (0, "why http://o.test/private/x", &forms),
        (1, "why http://o.test/never", &forms),
        (0, "list", &forms),
        (0, &format!("show {second}"), &forms[..2]),
        (1, "verify", &forms[..2]),
    ] {
        for form in forms {
            let words = format!("{command} {form}");
            let text = place.audit_code(code, &words).await.stdout;
            assert_ne!(text, "", "{words}");
            let text = text.replace("\r\n", "\n");
            let is_told =
                |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
            assert!(!text.contains(is_told), "{words} {text:?}");
            // Only CSV is opened in spreadsheets.
            let mut lines = text.lines().filter(|_| *form == "--csv");
            let begins_formula = lines.any(|line| line.starts_with(['=', '+', '@']));
            assert!(!begins_formula, "{words} {text:?}");
        }
    }
    // A JSON parser restores the original value.
    let rows = place.rows().await;
    assert_eq!(rows[1]["url"], "http://o.test/\u{1b}[2J\u{202e}\u{9b}");
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
    let words = "audit tail --verdict disallow --limit 1 --json";
    command.args(words.split(' '));
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
