//! `check`: its explanations for people and programs, and the three ways to provide a
//! robots.txt. All tests without another source are ours.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::origin::Script;
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish, politesse, run_in};
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::{assert_contains, assert_members};

const URL: &str = "https://o.test/shop/basket";
const AGENT: &str = "Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.test/) Foo/1";

/// A file that allows [`URL`], except in the dialects in which the first match counts.
const BASKET: &str = "User-agent: *\nDisallow: /shop\nAllow: /shop/basket\n";

/// Members of a verdict in the output of `check --batch`, `check --urls` and `judge`.
pub(crate) const VERDICT_MEMBERS: [&str; 8] = [
    "verdict",
    "reason",
    "line",
    "rule",
    "group",
    "token",
    "candidates",
    "crawl_delay",
];

/// Returns a folder with one robots.txt in it.
fn folder_with_robots_txt(robots: impl AsRef<[u8]>) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("robots.txt"), robots).unwrap();
    folder
}

/// Runs `check` with that robots.txt.
async fn check(robots: impl AsRef<[u8]>, arguments: &[&str]) -> Outcome {
    let folder = folder_with_robots_txt(robots);
    let arguments = [&["check", "--robots", "robots.txt"], arguments].concat();
    run_in(folder.path(), &arguments).await
}

/// Returns the object that `check --json` prints for one URL.
async fn check_json(robots: impl AsRef<[u8]>, arguments: &[&str]) -> Value {
    let outcome = check(robots, &[&["--json"], arguments].concat()).await;
    let mut objects = outcome.json_lines();
    assert_eq!(objects.len(), 1, "{outcome:?}");
    objects.remove(0)
}

/// Returns the names of an object's members, in order.
fn members(object: &Value) -> Vec<&str> {
    let members = object.as_object().unwrap();
    members.keys().map(String::as_str).collect()
}

/// Returns the line and kind of each note in the output of `check --json`.
fn notes(object: &Value) -> Vec<(u64, &str)> {
    let notes = object["notes"].as_array().unwrap().iter();
    let pairs = notes.map(|note| (note["line"].as_u64(), note["kind"].as_str()));
    pairs
        .map(|(line, kind)| (line.unwrap(), kind.unwrap()))
        .collect()
}

/// Runs `check --batch` with one line for each question.
pub(crate) async fn check_batch(questions: &[Value]) -> Outcome {
    let mut command = politesse(std::env::temp_dir().as_path());
    command.args(["check", "--batch", "-"]);
    let lines = questions.iter().map(|line| format!("{line}\n"));
    finish(command, lines.collect::<String>().as_bytes()).await
}

/// Runs `check --robots-dir . --urls -` in `folder`.
async fn check_list(folder: impl AsRef<Path>, arguments: &[&str], urls: &[u8]) -> Outcome {
    let mut command = politesse(folder.as_ref());
    command.args(["check", "--robots-dir", ".", "--urls", "-"]);
    command.args(arguments);
    finish(command, urls).await
}

#[track_caller]
fn assert_prints(outcome: &Outcome, lines: &[&str]) {
    // Names are padded to a column, so compare words only.
    let told: Vec<Vec<&str>> = outcome
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for line in lines {
        let is_told = told.contains(&line.split_whitespace().collect());
        assert!(is_told, "{line:?} is not in {}", outcome.stdout);
    }
}

const SHOP: &str = "\
User-agent: *
Disallow:

User-agent: Foo # both
User-agent: FooBot/1.0
Disallow: /shop/ # not the front
Disallow: /shop/basket
Allow: /shop/basket/help
Allow: /
Crawl-delay: 2.5
Disalow: /old
Walrus: yes
who knows what this is
Noindex: /x
";

#[tokio::test]
async fn check_explains_a_verdict_to_people() {
    let outcome = check(SHOP, &["--agent", AGENT, URL]).await.assert_code(1);
    assert_prints(
        &outcome,
        &[
            "https://o.test/shop/basket: refused for FooBot: line 7, Disallow: /shop/basket",
            "crawler FooBot; its User-Agent gives FooBot, Foo",
            "reason rule: a rule of robots.txt matched",
            "group foo, foobot/1.0, by line 5: User-agent: FooBot/1.0",
            "length 12 bytes",
            "also matches line 6, \"Disallow: /shop/\", 6 bytes: shorter",
            "also matches line 9, \"Allow: /\", 1 byte: shorter",
            "crawl delay 2.5 s",
            "note line 11, \"Disalow: /old\": a misspelt record, understood all the same",
            "note line 12, \"Walrus: yes\": a record that means nothing here",
            "note line 14, \"Noindex: /x\": noindex in robots.txt is not in force",
        ],
    );
    assert!(outcome.stdout.contains("note         line 13, \"who knows"));
    assert!(!outcome.stdout.contains("line 8"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("dialect"), "{}", outcome.stdout);
}

#[tokio::test]
async fn check_shows_the_pace_that_a_site_asks_for() {
    const PACED: &str = "User-agent: foobot\nDisallow: /x\nCrawl-delay: 0.5\n\
        Request-rate: 1/10m\nRequest-rate: 1/5 0600-0845\nVisit-time: 2200-0600\n";
    let url = "http://shop.test/";
    let shown = check(PACED, &["--agent", AGENT, url]).await;
    assert_prints(
        &shown,
        &[
            "crawl delay 0.5 s",
            "request rate 1/600s, 1/5s 0600-0845",
            "visit time 2200-0600 (UTC)",
        ],
    );
    let object = check_json(PACED, &["--agent", AGENT, url]).await;
    assert_eq!(object["crawl_delay"], 0.5);
    assert_eq!(object["request_rate"], json!(["1/600s", "1/5s 0600-0845"]));
    assert_eq!(object["visit_time"], json!(["2200-0600"]));
    let nothing = "User-agent: *\nDisallow: /x\n";
    let object = check_json(nothing, &["--agent", AGENT, url]).await;
    let expected = json!({"crawl_delay": null, "request_rate": [], "visit_time": []});
    assert_members(&object, &expected);
    let shown = check(nothing, &["--agent", AGENT, url]).await;
    assert!(!shown.stdout.contains("rate"), "{}", shown.stdout);
}

// Ours: servers treat a reserved byte in a path and its escape alike.
#[tokio::test]
async fn a_rule_that_only_the_proxy_would_apply_is_shown() {
    const ESCAPED: &str = "User-agent: *\nDisallow: /Special%3ARandom\n";
    let url = "https://o.test/Special:Random";
    let told = check(ESCAPED, &[url]).await.assert_code(0);
    let line = "proxy would refuse it by line 2, \"Disallow: /Special%3ARandom\": servers \
                take the path there for this one";
    let reading = "proxy would refuse it: servers take the path for /Special%3ARandom";
    assert_prints(&told, &["verdict allow", line, reading]);
    let object = check_json(ESCAPED, &[url]).await;
    assert_eq!(object["refused_by_line"], 2);
    assert_eq!(object["refused_reading"], "/Special%3ARandom");
    let as_proxy = check(ESCAPED, &["--as-proxy", url]).await.assert_code(1);
    let reading = "reading /Special%3ARandom: the path as a server may read it";
    assert_prints(&as_proxy, &["length 17 bytes", reading]);
    assert!(!as_proxy.stdout.contains("would refuse"), "{as_proxy:?}");
}

// Ours: the author of a file cannot see such characters.
#[tokio::test]
async fn a_path_that_ends_invisibly_is_noted() {
    let robots = "User-agent: *\nDisallow: /shop/\u{200b}\nDisallow: /a\u{a0}\n";
    let told = check(robots, &[URL]).await.assert_code(1);
    let note = "a path that ends in an invisible mark; a Disallow is also tried without it";
    assert_eq!(told.stdout.matches(note).count(), 2, "{}", told.stdout);
    let object = check_json(robots, &[URL]).await;
    assert_eq!(object["line"], 2);
    assert_eq!(notes(&object)[0].1, "ends_invisibly");
}

// Ours: the author of a damaged line learns how it was read.
#[tokio::test]
async fn damaged_lines_are_noted_with_their_repair() {
    const DAMAGED: &[u8] = b"User-agent: *.*\nUser\xE2\x80\x91agent: Foo\xE2\x80\x91Bot\n\
        Disallow: /a\xE2\x80\x8Bb\nDisallow: /caf\xE9\nDisallow: http://shop.test/c\n\
        Crawl-delay: 10s\n\nUser-agent: BarBot Disallow: /d\n\
        User-agent: Mozilla/5.0 (compatible; BazBot/1)\nDisallow: http://other.test/c\n\
        \xEF\xBB\xBFDisallow: /e\n";
    let object = check_json(DAMAGED, &["http://shop.test/x"]).await;
    let expected = [
        (1, "everyone_in_punctuation"),
        (2, "marked_name"),
        (3, "holds_marks"),
        (4, "other_charset"),
        (5, "url_of_site"),
        (6, "delay_as_meant"),
        (8, "rule_on_agent_line"),
        (9, "whole_user_agent"),
        (10, "never_matches"),
        (11, "marked_name"),
    ];
    assert_eq!(notes(&object), expected);
}

// Ours: a pace record applies to the agents directly above it.
#[tokio::test]
async fn binding_pace_records_are_shown_with_their_agents() {
    const JOINED: &str = "User-agent: spbot\nCrawl-delay: 2000\nVisit-time: 0100-0200\n\n\
        User-agent: *\nCrawl-delay: 20\nDisallow: /x\nRequest-rate: 1/3s\n";
    let url = "http://shop.test/x";
    let shown = check(JOINED, &["--agent", AGENT, url]).await;
    assert_prints(
        &shown,
        &[
            "crawl delay 20 s",
            "pace record line 6, \"Crawl-delay: 20\": for line 5, \"User-agent: *\"",
            "pace record line 8, \"Request-rate: 1/3s\": for all of its group, below whose \
             rules it stands",
        ],
    );
    assert!(!shown.stdout.contains("for line 1,"), "{}", shown.stdout);
    let note = "The pace records of lines 2 to 3 are for the agents above alone.";
    assert!(shown.stdout.contains(note), "{}", shown.stdout);
    let object = check_json(JOINED, &["--agent", "spbot", url]).await;
    assert_eq!(object["crawl_delay"], 2000.0);
    let expected = json!([
        {"line": 2, "agent_line": 1},
        {"line": 3, "agent_line": 1},
        {"line": 8, "agent_line": null},
    ]);
    assert_eq!(object["pace_records"], expected);
}

#[tokio::test]
async fn check_explains_a_verdict_to_programs() {
    let object = check_json(SHOP, &["--agent", AGENT, URL]).await;
    let expected = json!({
        "url": URL,
        "verdict": "disallow",
        "reason": "rule",
        "line": 7,
        "rule": "Disallow: /shop/basket",
        "group": ["foo", "foobot/1.0"],
        "token": "FooBot",
        "candidates": ["FooBot", "Foo"],
        "crawl_delay": 2.5,
        "user_agent": AGENT,
        "bound": "FooBot",
        "agent_line": 5,
        "agent_text": "User-agent: FooBot/1.0",
        "length": 12,
        "request_rate": [],
        "visit_time": [],
        "competing": [
            {"line": 6, "rule": "Disallow: /shop/", "length": 6, "why": "shorter"},
            {"line": 9, "rule": "Allow: /", "length": 1, "why": "shorter"},
        ],
        "reading": null,
        "refused_reading": null,
        "override": null,
        "egress": null,
        "dialect": "rfc9309",
        "joins": [],
    });
    assert_members(&object, &expected);
    let expected = [
        (11, "misspelt"),
        (12, "unknown_record"),
        (13, "not_a_record"),
        (14, "noindex"),
    ];
    assert_eq!(notes(&object), expected);
    let expected = json!({"status": 200, "result": "successful", "fetched_at": null});
    assert_members(&object["robots"], &expected);
}

// Ours: `bound` is the matching candidate, `*`, or null.
#[tokio::test]
async fn candidate_names_are_shown_with_the_one_that_binds() {
    for (robots, agent, crawler, bound) in [
        (
            "User-agent: Foo\nDisallow: /",
            AGENT,
            "Foo; its User-Agent gives FooBot, Foo",
            json!("Foo"),
        ),
        (
            "User-agent: *\nDisallow: /",
            AGENT,
            "FooBot; its User-Agent gives FooBot, Foo",
            json!("*"),
        ),
        (
            "User-agent: Bar\nDisallow: /",
            "Foo",
            "Foo, as its User-Agent says",
            Value::Null,
        ),
        (
            "User-agent: *\nDisallow: /",
            "Mozilla/5.0",
            "none: no name that a group could have",
            json!("*"),
        ),
    ] {
        let told = check(robots, &["--agent", agent, URL]).await;
        assert_prints(&told, &[&format!("crawler {crawler}")]);
        let object = check_json(robots, &["--agent", agent, URL]).await;
        assert_eq!(object["bound"], bound, "{robots}");
    }
}

// RFC 9309, section 2.2.4.
#[tokio::test]
async fn an_accidentally_joined_group_is_noted() {
    let robots = "User-agent: *\nCrawl-delay: 5\n\nUser-agent: BadBot\nDisallow: /\n";
    let outcome = check(robots, &["--agent", "GoodBot", URL]).await;
    let note = "note line 4, \"User-agent: BadBot\" joins the group above: no rule stands \
                    between it and line 1, \"User-agent: *\", so the rules below bind both. An \
                    empty \"Disallow:\" above line 4 keeps them apart. The pace record of line 2, \
                    \"Crawl-delay: 5\" is for the agents above it alone.";
    assert_prints(&outcome, &[note]);
    assert_eq!(outcome.stdout.matches("  note ").count(), 1, "{outcome:?}");
    let object = check_json(robots, &["--agent", "GoodBot", URL]).await;
    assert_eq!(object["joins"], json!([{"line": 4, "above": 1}]));
    assert_eq!(object["notes"][0]["kind"], "joins_group");
    let parted = robots.replace("5\n\n", "5\nDisallow:\n\n");
    let outcome = check(parted, &["--agent", "GoodBot", URL]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[tokio::test]
async fn long_lists_are_cut_for_people_and_complete_in_json() {
    let odd = "Walrus: 1\n".repeat(25);
    let rules = "Disallow: /shop\n".repeat(25);
    let robots = format!("User-agent: *\n{rules}{odd}");
    let outcome = check(&robots, &[URL]).await;
    assert_prints(
        &outcome,
        &[
            "note and 15 more, which --json has",
            "also matches and 14 more, which --json has",
            "also matches line 3, \"Disallow: /shop\", 5 bytes: as long, but further down",
        ],
    );
    assert_eq!(outcome.stdout.matches("  note         line").count(), 10);
    let object = check_json(&robots, &[URL]).await;
    assert_eq!(object["notes"].as_array().unwrap().len(), 25);
    assert_eq!(object["competing"].as_array().unwrap().len(), 24);
}

// RFC 9309, section 2.5: that note comes first, however many others there are.
#[tokio::test]
async fn a_file_over_the_size_limit_is_noted_first() {
    let mut robots = "User-agent: *\nDisallow: /a\n".to_owned();
    robots.push_str(&"Walrus: 1\n".repeat(60_000));
    let outcome = check(&robots, &[URL]).await;
    let cut = "the file is longer than is read: from here on nothing counts";
    let told = outcome.stdout.lines().find(|line| line.contains("  note "));
    assert!(told.unwrap().ends_with(cut), "{told:?}");
}

#[tokio::test]
async fn a_verdict_without_a_rule_is_explained() {
    for (robots, url, line) in [
        (
            SHOP,
            "https://o.test/",
            "https://o.test/: allowed for Bar: no rule for this crawler matched",
        ),
        (
            "User-agent: x\nDisallow: /",
            URL,
            "reason no_group: robots.txt has no group for this crawler, nor for everyone",
        ),
        (
            "User-agent: *\nDisallow: /",
            "https://o.test/robots.txt",
            "reason robots_txt: /robots.txt itself is always allowed",
        ),
    ] {
        let outcome = check(robots, &["--agent", "Bar", url]).await.assert_code(0);
        assert_prints(&outcome, &[line]);
    }
}

// Ours: a file designed to be slow gets the verdict `undecided`, which refuses.
#[tokio::test]
async fn an_undecided_verdict_is_explained() {
    let rule = format!("Disallow: /{}b$\n", "*a".repeat(60));
    let robots = format!("User-agent: *\n{}", rule.repeat(4000));
    let url = format!("https://o.test/{}", "a".repeat(2000));
    let object = check_json(&robots, &["--dialect", "conner-2.0", &url]).await;
    assert_eq!(object["reason"], "undecided", "{}", object["reason"]);
    assert_members(&object, &json!({"verdict": "disallow", "competing": []}));
    let outcome = check(&robots, &["--dialect", "conner-2.0", &url]).await;
    assert_eq!(outcome.code, Some(1));
    assert_contains(&outcome.stdout, "matching would take too long");
}

#[tokio::test]
async fn a_fetched_file_is_shown_with_status_and_redirects() {
    let real = Script::robots(SHOP).start().await;
    let moved = format!("http://r.test:{}/robots.txt", real.address().port());
    let origin = Script::robots_page(Page::redirect(&moved)).start().await;
    let gone = Script::robots_page(Page::status(404)).start().await;
    let down = Script::robots_page(Page::status(500)).start().await;
    let place = Place::with(
        &resolve("o.test", origin.address())
            .resolve("r.test", real.address())
            .resolve("p.test", gone.address())
            .resolve("q.test", down.address()),
    );
    let check = async |url: &str| place.run(&["check", "--agent", "FooBot", url]).await;
    let told = check("http://o.test/shop/basket").await.assert_code(1);
    let line = format!("robots {moved}, status 200, successful");
    assert_prints(&told, &[&line, "hop http://o.test/robots.txt redirected"]);
    let told = check("http://p.test/").await.assert_code(0);
    let line = "robots http://p.test/robots.txt, status 404, unavailable";
    assert_prints(&told, &[line]);
    let told = check("http://q.test/").await.assert_code(3);
    let line = "robots http://q.test/robots.txt, status 500, unreachable: status";
    assert_prints(&told, &[line]);
    let json = place
        .run(&["check", "--json", "http://o.test/", "http://q.test/"])
        .await;
    let [robots, down] = [0, 1].map(|at| json.json_lines()[at]["robots"].clone());
    let expected = json!({"url": moved, "redirects": 1, "hops": ["http://o.test/robots.txt"]});
    assert_members(&robots, &expected);
    assert_eq!((&down["redirects"], &down["hops"]), (&json!(0), &json!([])));
    assert!(robots["age"].is_u64(), "{robots}");
    assert!(robots["fetched_at"].is_string(), "{robots}");
    assert_members(&down, &json!({"result": "unreachable", "cause": "status"}));
    for origin in [real, origin, gone] {
        origin.assert_only_robots_fetched();
    }
}

#[tokio::test]
async fn a_denied_address_is_explained() {
    let place = Place::with(&Config::default());
    let told = place
        .run_code(3, &["check", "--agent", "A", "http://10.0.0.1/"])
        .await;
    assert!(told.stdout.contains("  egress       "), "{told:?}");
    let json = place
        .run(&["check", "--json", "http://10.0.0.1/"])
        .await
        .json_lines();
    assert_members(&json[0], &json!({"reason": "egress", "robots": null}));
    assert!(json[0]["egress"].is_string(), "{}", json[0]);
}

#[tokio::test]
async fn check_applies_the_configured_level_of_readings() {
    let robots = "User-agent: *\nDisallow: /private";
    let folder = TempDir::new().unwrap();
    let own = folder.path().join("own.toml");
    for (at, level) in ["sent", "dots", "server"].into_iter().enumerate() {
        std::fs::write(&own, format!("robots.readings = \"{level}\"\n")).unwrap();
        for (path, readings) in [
            ("/a/../private", [None, Some("/private"), Some("/private")]),
            ("//private/x?y", [None, None, Some("/private/x?y")]),
            ("/a/..%2fprivate", [None, None, Some("/private")]),
            ("/a/..;/private", [None, None, Some("/private")]),
            ("/%2570rivate", [None; 3]),
            ("/private/..", [None; 3]),
        ] {
            let reading = readings[at];
            let url = format!("https://o.test{path}");
            let arguments = ["--config", own.to_str().unwrap(), &url, "--as-proxy"];
            let told = check_json(robots, &arguments[..3]).await;
            let is_disallowed = path.starts_with("/private");
            let verdict = |refused: bool| if refused { "disallow" } else { "allow" };
            let expected = json!({"refused_reading": reading, "verdict": verdict(is_disallowed)});
            assert_members(&told, &expected);
            let proxy = check_json(robots, &arguments).await;
            let verdict = verdict(is_disallowed || reading.is_some());
            let expected = json!({"reading": reading, "refused_reading": null, "verdict": verdict});
            assert_members(&proxy, &expected);
        }
    }
    let people = check(robots, &["https://o.test/a/..;/private"]).await;
    let line = "proxy would refuse it: servers take the path for /private";
    assert_prints(&people, &[line]);
    let people = check(robots, &["--as-proxy", "https://o.test//private"]).await;
    let line = "reading /private: the path as a server may read it";
    assert_prints(&people, &["rule line 2: Disallow: /private", line]);
}

// Ours: in the older dialects an Allow further down does not count.
#[tokio::test]
async fn check_applies_and_shows_the_chosen_dialect() {
    for (dialect, code) in [
        ("rfc9309", 0),
        ("draft-2019", 0),
        ("google", 0),
        ("1996", 1),
        ("1994", 1),
        ("conner-2.0", 0),
    ] {
        let outcome = check(BASKET, &["--dialect", dialect, URL]).await;
        assert_eq!(outcome.code, Some(code), "{dialect}: {outcome:?}");
        let line = format!("  dialect      {dialect}");
        let is_told = outcome.stdout.contains(&line);
        assert_eq!(is_told, dialect != "rfc9309", "{outcome:?}");
    }
    let told = check(BASKET, &["--dialect", "1996", URL]).await;
    assert_prints(
        &told,
        &[
            "also matches line 3, \"Allow: /shop/basket\", 12 bytes: further down, and the first that matches counts",
        ],
    );
    let refused = check(BASKET, &["--dialect", "1995", URL]).await;
    refused.assert_output(2, "");
}

#[tokio::test]
async fn the_configured_dialect_applies_if_the_configuration_is_read() {
    let origin = Script::robots(BASKET).start().await;
    let config = resolve("o.test", origin.address()).set("robots.dialect = \"1996\"");
    let place = Place::with(&config);
    std::fs::write(place.path("robots.txt"), BASKET).unwrap();
    for (options, dialect, verdict) in [
        ("", "1996", "disallow"),
        ("--dialect rfc9309", "rfc9309", "allow"),
        ("--robots robots.txt", "rfc9309", "allow"),
        (
            "--robots robots.txt --config politesse.toml",
            "1996",
            "disallow",
        ),
        (
            "--robots robots.txt --config politesse.toml --dialect rfc9309",
            "rfc9309",
            "allow",
        ),
    ] {
        let arguments = ["check", "--json", "http://o.test/shop/basket"];
        let options: Vec<_> = options.split_whitespace().collect();
        let outcome = place.run(&[&arguments[..], &options].concat()).await;
        let told = outcome.json_lines().remove(0);
        assert_eq!(told["dialect"], dialect, "{options:?}");
        assert_eq!(told["verdict"], verdict, "{options:?}");
    }
}

#[tokio::test]
async fn a_batch_line_can_name_its_dialect() {
    let question = |dialect: Value, status: u16| json!({"id": 1, "robots": BASKET, "agent": "a", "url": URL, "status": status, "dialect": dialect});
    let outcome = check_batch(&[
        question(Value::Null, 200),
        question(json!("1996"), 200),
        question(json!("1996"), 403),
        question(json!("draft-2019"), 403),
        question(json!("1995"), 200),
    ])
    .await;
    let told = outcome.json_lines();
    for (line, (verdict, reason)) in told.iter().zip([
        ("allow", "rule"),
        ("disallow", "rule"),
        ("disallow", "restricted"),
        ("allow", "unavailable"),
    ]) {
        assert_members(line, &json!({"verdict": verdict, "reason": reason}));
    }
    assert_contains(told[4]["error"].as_str().unwrap(), "1995");
    assert_eq!((&told[4]["line"], outcome.code), (&json!(5), Some(1)));
}

#[tokio::test]
async fn the_dialect_of_a_batch_line_wins_over_the_option() {
    let mut command = politesse(std::env::temp_dir().as_path());
    command.args(["check", "--batch", "-", "--dialect", "1996"]);
    let line = json!({"robots": "User-agent: *\nDisallow: /\nAllow: /s", "url": URL});
    let mut other = line.clone();
    other["dialect"] = json!("rfc9309");
    let told = finish(command, format!("{line}\n{other}").as_bytes())
        .await
        .json_lines();
    assert_eq!((&told[0]["line"], &told[1]["line"]), (&json!(2), &json!(3)));
    assert_eq!(members(&told[0]), [&["id"], &VERDICT_MEMBERS[..]].concat());
}

/// Returns a folder with saved files, each of which disallows its own name.
fn folder_with_files(names: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in names {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("User-agent: *\nDisallow: /{name}\n")).unwrap();
    }
    folder
}

// Ours: `check --help`.
#[tokio::test]
async fn saved_files_are_found_by_host_and_port() {
    let folder = folder_with_files(&["a.test", "c.test/robots.txt", "b.test_8080.txt"]);
    let urls = [
        ("https://A.test:443/a.test", Some("/a.test")),
        (
            "http://c.test./c.test/robots.txt",
            Some("/c.test/robots.txt"),
        ),
        (
            "http://b.test:8080/b.test_8080.txt",
            Some("/b.test_8080.txt"),
        ),
        ("http://a.test/", None),
    ];
    let lines: String = urls.map(|(url, _)| format!("{url}\n")).concat();
    let outcome = check_list(&folder, &["--agent", "FooBot/1"], lines.as_bytes()).await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let told = outcome.json_lines();
    assert_eq!(told.len(), urls.len());
    for (told, (url, rule)) in told.iter().zip(urls) {
        let rule = rule.map(|path| format!("Disallow: {path}"));
        assert_members(told, &json!({"url": url, "rule": rule, "token": "FooBot"}));
    }
    assert_eq!(members(&told[0]), [&["url"], &VERDICT_MEMBERS[..]].concat());
}

// Ours: an unknown URL is neither allowed nor refused.
#[tokio::test]
async fn a_list_continues_after_bad_lines_and_missing_files() {
    let folder = folder_with_files(&["a.test"]);
    let lines = b"\n  http://a.test/x \r\nnonsense\nhttp://b.test:81/\n\xFF\nhttp://a.test/y";
    let outcome = check_list(&folder, &[], lines).await.assert_code(3);
    let told = outcome.json_lines();
    assert_eq!(told[0]["url"], "http://a.test/x");
    assert_members(&told[1], &json!({"line": 3, "url": null}));
    assert!(told[1]["error"].as_str().unwrap().contains("nonsense"));
    let missing = json!({
        "line": 4, "url": "http://b.test:81/", "error": "no saved robots.txt for b.test:81",
    });
    assert_eq!(told[2], missing);
    assert_eq!(told[3]["line"], 5);
    assert_eq!(told[4]["url"], "http://a.test/y");
    assert_eq!(told.len(), 5);
    let long = format!("http://a.test/{}\nhttp://a.test/z", "a".repeat(70_000));
    let outcome = check_list(&folder, &[], long.as_bytes()).await;
    let told = outcome.json_lines();
    assert_eq!(told[0]["line"], 1);
    assert_eq!(told[1]["url"], "http://a.test/z");
    assert_eq!((outcome.code, told.len()), (Some(1), 2), "{outcome:?}");
}

#[tokio::test]
async fn a_list_exits_with_the_code_of_its_worst_line() {
    let folder = folder_with_files(&["a.test"]);
    for (urls, code) in [("", 0), ("http://a.test/", 0), ("http://a.test/a.test", 1)] {
        let outcome = check_list(&folder, &[], urls.as_bytes()).await;
        assert_eq!(outcome.code, Some(code), "{urls}");
    }
    for command in [
        "check --robots-dir absent --urls -",
        "check --robots-dir . --urls absent",
        "check --robots-dir .",
        "check --urls -",
        "check --robots-dir . --urls - http://a.test/",
    ] {
        let arguments: Vec<_> = command.split(' ').collect();
        let outcome = run_in(folder.path(), &arguments).await;
        outcome.assert_output(2, "");
    }
}

// Ours: no URL can name anything but a regular file in the folder.
#[tokio::test]
async fn a_list_reads_only_files_in_the_folder() {
    let outer = folder_with_files(&["secret", "secret.txt", "inner/a.test", "inner/b.test/x"]);
    let urls = [
        "http://../secret",
        "http://..%2fsecret/",
        "http://..\\secret/",
        "http://%2e%2e/secret",
        "http://a.test/../../secret",
        "http://b.test/",
        "http://secret/",
    ];
    let inner = outer.path().join("inner");
    let outcome = check_list(inner, &[], urls.join("\n").as_bytes()).await;
    let told = outcome.json_lines();
    for line in told.iter().filter(|line| line["url"] != urls[4]) {
        assert!(line["error"].is_string(), "{line}");
    }
    assert_eq!(told[4]["verdict"], "allow", "{}", told[4]);
}

// Ours: the output keeps the order of the list, however the work is divided.
#[tokio::test]
async fn a_long_list_keeps_its_order() {
    let names: Vec<String> = (0..50).map(|host| format!("h{host}.test")).collect();
    let folder = folder_with_files(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let urls: Vec<String> = (0..20_000)
        .map(|n| format!("http://h{}.test/{n}", n * 7 % 61))
        .collect();
    let outcome = check_list(&folder, &[], urls.join("\n").as_bytes()).await;
    let told = outcome.json_lines();
    assert_eq!(told.len(), urls.len());
    for (number, (told, url)) in (1..).zip(told.iter().zip(&urls)) {
        assert_eq!(told["url"], **url);
        let is_missing = told["line"] == number && told["error"].is_string();
        assert!(is_missing || told["verdict"] == "allow", "{told}");
    }
}

#[tokio::test]
async fn a_list_is_judged_by_the_chosen_dialect_and_readings() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("o.test"), BASKET).unwrap();
    let verdict = async |arguments: &[&str], url: &str| {
        let told = check_list(&folder, arguments, url.as_bytes())
            .await
            .json_lines();
        told[0]["verdict"].clone()
    };
    assert_eq!(verdict(&[], URL).await, "allow");
    assert_eq!(verdict(&["--dialect", "1996"], URL).await, "disallow");
    let dots = "https://o.test/a/../shop";
    assert_eq!(verdict(&[], dots).await, "allow");
    assert_eq!(verdict(&["--as-proxy"], dots).await, "disallow");
}

// Ours: text from a robots.txt or a URL must not control a terminal.
#[tokio::test]
async fn printed_text_contains_no_control_characters() {
    let robots =
        "User-agent: *\nDisallow: /shop*\u{1b}[2J\u{9b}\u{202e}\nDisallow: /\u{7f}\n\u{9b}1m\n";
    let url = "https://o.test/shop\u{1b}[2J\u{9b}\u{202e}\u{7f}";
    let is_steering = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    let people = check(robots, &[url]).await.assert_code(1);
    let programs = check(robots, &["--json", url]).await;
    let bad = check(robots, &["nonsense\u{1b}[2J"]).await;
    let folder = folder_with_robots_txt("");
    std::fs::write(folder.path().join("o.test"), robots).unwrap();
    let list = check_list(&folder, &[], format!("{url}\nfoo\u{9b}").as_bytes()).await;
    let batch = check_batch(&[json!({"id": "\u{9b}", "robots": robots, "url": url})]).await;
    for outcome in [&people, &programs, &bad, &list, &batch] {
        let printed = [&outcome.stdout, &outcome.stderr];
        assert!(
            !printed.into_iter().any(|text| text.contains(is_steering)),
            "{outcome:?}"
        );
    }
    let rule = "Disallow: /shop*\u{1b}[2J\u{9b}\u{202e}";
    for outcome in [&programs, &list, &batch] {
        assert_eq!(outcome.json_lines()[0]["rule"], rule);
    }
    assert_eq!(batch.json_lines()[0]["id"], "\u{9b}");
}
