//! Settings of the operator, tested through the program: configured crawlers, candidate
//! names, and overrides.

use serde_json::{Value, json};

use crate::kit::addresses::free_address;
use crate::kit::client::{get, get_as};
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_members, until};

const ROBOTS: &str = "User-agent: FooBot\nDisallow: /\n\n\
                      User-agent: BarBot\nAllow: /\n\n\
                      User-agent: *\nDisallow: /private\n";

/// Returns a configuration line with one override.
fn override_line(keys: &str) -> String {
    format!("robots.override = [{{ origin = \"http://o.test\", {keys} }}]")
}

const LEAVE: &str = "path = \"/private/open\", action = \"allow\", reason = \"contract 114\", until = 2999-01-01T00:00:00Z";
const BAN: &str = "path = \"/closed\", action = \"deny\", reason = \"asked by mail, “please”\"";

async fn verify(place: &Place) -> Outcome {
    place.run(&["audit", "verify"]).await
}

/// Stops the proxy, and asserts that `audit verify` finds no fault in its record.
pub(crate) async fn assert_verified(proxy: Proxy) {
    verify(&proxy.stop().await).await.assert_code(0);
}

/// Returns verdict, reason, effect and line of a row, separated by blanks.
fn row_summary(row: &Value) -> String {
    let word = |key: &str| row[key].as_str().unwrap();
    let words = ["verdict", "reason", "effect"].map(word).join(" ");
    format!("{words} {}", row["line"])
}

// Ours: the table replaces the names in the `User-Agent`; its first matching entry counts.
#[tokio::test]
async fn a_configured_crawler_is_bound_only_by_its_tokens() {
    let table = "crawler = [\
            { token = \"FooBot\", user_agent = \"LEGACY\", client = \"203.0.113.0/24\" }, \
            { token = [\"FooBot\", \"Foo\"], user_agent = \"legacy\", client = [\"loopback\"] }]";
    let (origin, proxy) = site(Script::robots(ROBOTS), &[table]).await;
    let refused = get_as(&proxy, "BarBot/1 (Legacy)", "http://o.test/a").await;
    refused.assert_error(403, "http_request_denied");
    assert_eq!(refused.json()["crawler"], "FooBot");
    assert_eq!(refused.json()["rule"]["line"], 2);
    let allowed = get_as(&proxy, "BarBot/1", "http://o.test/a").await;
    assert_eq!(allowed.status(), 200, "{}", allowed.text());
    let rows = proxy.place().completed(2).await;
    let expected = json!({"crawler": "FooBot", "user_agent": "BarBot/1 (Legacy)"});
    assert_members(&rows[0], &expected);
    assert_eq!(rows[1]["crawler"], "BarBot");
    assert_eq!(origin.robots_fetches(), 2, "one for each first token");
    assert_verified(proxy).await;
}

// Ours: a robots.txt is cached per token.
#[tokio::test]
async fn crawlers_of_one_configured_token_share_a_robots_txt() {
    let script = Script::robots(ROBOTS);
    let (origin, proxy) = site(script, &["crawler = [{ token = \"FooBot\" }]"]).await;
    for agent in ["A/1", "B/1", "C/1"] {
        let reply = get_as(&proxy, agent, "http://o.test/a").await;
        reply.assert_error(403, "http_request_denied");
    }
    assert_eq!(origin.robots_fetches(), 1);
}

// Ours: `enforcement.candidates` says whether the first name decides, or all names.
#[tokio::test]
async fn with_candidates_all_every_name_must_be_allowed() {
    let origin = Script::robots(ROBOTS).start().await;
    let agent = "BarBot/1 FooBot/1";
    for (candidates, status) in [("first", 200), ("all", 403)] {
        let proxy = resolve("o.test", origin.address())
            .set(&format!("enforcement.candidates = \"{candidates}\""))
            .start()
            .await;
        let reply = get_as(&proxy, agent, "http://o.test/a").await;
        assert_eq!(reply.status(), status, "{candidates}");
        let rows = proxy.place().completed(1).await;
        let bound = if status == 200 { "BarBot" } else { "FooBot" };
        assert_eq!(rows[0]["crawler"], bound);
        assert_verified(proxy).await;
    }
}

// Ours: the row has the effect `overridden` and the rule that would have refused.
#[tokio::test]
async fn an_allow_override_is_recorded_with_the_rule_it_overrides() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[&override_line(LEAVE)]).await;
    let reply = get(&proxy, "http://o.test/private/open/a").await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    assert_eq!(reply.head.values("proxy-status"), [""; 0]);
    let closed = get(&proxy, "http://o.test/private/b").await;
    closed.assert_error(403, "http_request_denied");
    let beside = get(&proxy, "http://o.test/private/open/../b").await;
    beside.assert_error(403, "http_request_denied");
    get(&proxy, "http://o.test/a").await;
    assert_eq!(origin.targets(), ["/private/open/a", "/a"]);
    let rows = proxy.place().completed(4).await;
    assert_eq!(row_summary(&rows[0]), "allow rule overridden 8");
    assert_eq!(rows[0]["rule"], "Disallow: /private");
    assert_eq!(row_summary(&rows[1]), "disallow rule enforced 8");
    assert_eq!(row_summary(&rows[2]), "disallow rule enforced 8");
    assert_eq!(row_summary(&rows[3]), "allow no_rule enforced null");
    let place = proxy.stop().await;
    let list = place.run(&["audit", "list"]).await.stdout;
    assert_eq!(list.matches("  overridden").count(), 1, "{list}");
    verify(&place).await.assert_code(0);
}

// Invariant 2 (ARCHITECTURE.md): the time of a decision is part of its evidence.
#[tokio::test]
async fn verify_finds_a_row_dated_after_the_end_of_its_override() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[&override_line(LEAVE)]).await;
    get(&proxy, "http://o.test/private/open/a").await;
    proxy.place().completed(1).await;
    let place = proxy.stop().await;
    let year_3000 = 32_503_680_000_000_000_i64;
    let changed = place
        .database()
        .execute("UPDATE decision SET time_us = ?", [year_3000])
        .unwrap();
    assert_eq!(changed, 1);
    let outcome = verify(&place).await.assert_code(1);
    assert!(
        outcome.stdout.contains(
            "3: the row says allow rule for ExampleBot (line 8, \"Disallow: /private\"), \
                 overridden, its evidence disallow rule"
        ),
        "{}",
        outcome.stdout
    );
}

// Ours: the reason is `override`, and the text of the operator is passed on.
#[tokio::test]
async fn a_deny_override_refuses_with_the_reason_of_the_operator() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[&override_line(BAN)]).await;
    for path in ["/closed/a", "/x/../closed"] {
        let reply = get(&proxy, &format!("http://o.test{path}")).await;
        reply.assert_error(403, "http_request_denied");
        let told = reply.json();
        let expected = json!({
            "type": "urn:politesse:refused", "title": "Refused by the operator",
            "reason": "override", "effect": "enforced", "rule": null,
        });
        assert_members(&told, &expected);
        let detail = told["detail"].as_str().unwrap();
        assert!(detail.ends_with(": asked by mail, “please”."), "{detail}");
        assert_eq!(detail.contains("take for /closed:"), path != "/closed/a");
        let status = reply.head.value("proxy-status");
        assert!(status.contains("asked by mail"), "{status}");
    }
    assert_eq!(get(&proxy, "http://o.test/robots.txt").await.status(), 200);
    origin.assert_only_robots_fetched();
    let rows = proxy.place().completed(3).await;
    assert_eq!(row_summary(&rows[0]), "disallow override enforced null");
    assert_eq!(rows[0]["group"], Value::Null);
    assert_verified(proxy).await;
}

// Ours: an override ends at `until`.
#[tokio::test]
async fn an_expired_override_is_logged_at_start_and_ignored() {
    let script = Script::robots(ROBOTS);
    let (origin, proxy) = site(script, &[&override_line(&LEAVE.replace("2999", "2020"))]).await;
    let reply = get(&proxy, "http://o.test/private/open/a").await;
    reply.assert_error(403, "http_request_denied");
    origin.assert_only_robots_fetched();
    let told = |log: &str| {
        let lines = log.lines().filter(|line| line.contains("has ended"));
        lines.filter(|line| line.contains("contract 114")).count()
    };
    until("warning", async || (told(&proxy.log()) == 1).then_some(())).await;
}

// Ours: an override also applies while robots.txt is unreachable, but never lifts a denial
// by egress.
#[tokio::test]
async fn an_override_allows_despite_unreachable_robots_txt_but_not_denied_egress() {
    let origin = Script::robots_page(Page::status(503)).start().await;
    let down = free_address();
    let entry = |origin: &str| {
        format!(
            "{{ origin = \"{origin}\", action = \"allow\", reason = \"x\", \
                 until = \"2999-01-01T00:00:00Z\" }}"
        )
    };
    let entries = ["http://o.test", "http://p.test", "http://127.0.0.2"].map(entry);
    let proxy = resolve("o.test", origin.address())
        .resolve("p.test", down)
        .set(&format!("robots.override = [{}]", entries.join(", ")))
        .start()
        .await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    let refused = get(&proxy, "http://p.test/a").await;
    refused.assert_error(502, "connection_refused");
    let denied = get(&proxy, "http://127.0.0.2/a").await;
    denied.assert_error(502, "destination_ip_prohibited");
    let rows = proxy.place().completed(3).await;
    assert_eq!(row_summary(&rows[0]), "allow unreachable overridden null");
    assert_eq!(row_summary(&rows[1]), "allow unreachable overridden null");
    assert_eq!(rows[1]["error"], "connection_refused");
    assert_eq!(row_summary(&rows[2]), "disallow egress enforced null");
    assert_verified(proxy).await;
}

// Ours: `check` applies overrides as the proxy does.
#[tokio::test]
async fn check_shows_the_deciding_override_with_reason_and_end() {
    let origin = Script::robots(ROBOTS).start().await;
    let entries = [LEAVE, BAN].map(|keys| {
        let line = override_line(keys);
        line["robots.override = [".len()..line.len() - 1].to_owned()
    });
    let config = resolve("o.test", origin.address())
        .set(&format!("robots.override = [{}]", entries.join(", ")));
    let place = Place::with(&config);
    let check = async |url: &str| place.run(&["check", "--agent", "Any", url]).await;
    let opened = check("http://o.test/private/open/a").await.assert_code(0);
    for line in [
        "http://o.test/private/open/a: allowed by an override of the operator that sets aside \
             for Any: line 8, Disallow: /private",
        "  override     the operator allows it until 2999-01-01T00:00:00Z: contract 114",
    ] {
        assert!(opened.stdout.lines().any(|told| told == line), "{opened:?}");
    }
    let closed = check("http://o.test/closed").await.assert_code(1);
    let line = "  override     the operator denies it: asked by mail, “please”";
    assert!(closed.stdout.lines().any(|told| told == line), "{closed:?}");
    let json = place
        .run(&[
            "check",
            "--json",
            "http://o.test/private/open",
            "http://o.test/a",
        ])
        .await
        .json_lines();
    assert_eq!(json[0]["override"]["action"], "allow");
    assert_eq!(json[0]["override"]["reason"], "contract 114");
    assert_eq!(json[0]["override"]["until"], "2999-01-01T00:00:00Z");
    assert_members(&json[0], &json!({"reason": "rule", "line": 8}));
    assert_eq!(json[1]["override"], Value::Null);
    origin.assert_only_robots_fetched();
}

// Ours: as in `check --help`: with `--robots`, only a configuration named by `--config`
// applies.
#[tokio::test]
async fn check_identifies_crawlers_by_the_effective_configuration() {
    let origin = Script::robots(ROBOTS).start().await;
    let table = "crawler = [{ token = \"BarBot\", client = \"127.0.0.1\" }, \
                     { token = \"FooBot\", user_agent = \"legacy/\" }]";
    let place = Place::with(&resolve("o.test", origin.address()).set(table));
    std::fs::write(place.path("robots.txt"), ROBOTS).unwrap();
    let saved = ["--robots", "robots.txt"];
    let named = ["--config", "politesse.toml"];
    let neither: &[&str] = &[];
    for (options, agent, token) in [
        (neither, "Legacy/1", "FooBot"),
        (neither, "Other/1", "Other"),
        (&saved, "Legacy/1", "Legacy"),
        (&[saved, named].concat(), "Legacy/1", "FooBot"),
    ] {
        let arguments = ["check", "--json", "--agent", agent, "http://o.test/a"];
        let outcome = place.run(&[&arguments[..], options].concat()).await;
        assert_eq!(
            outcome.json_lines()[0]["token"],
            token,
            "{options:?} {agent}"
        );
    }
}

// Ours: all mistakes are reported at once.
#[tokio::test]
async fn all_mistakes_in_tables_are_reported_and_prevent_a_start() {
    let config = Config::default()
        .set("crawler = [{ token = \"a/b\", username = \"x\" }]")
        .set("robots.override = [{ origin = \"o.test\", action = \"allow\", reason = \"\" }]");
    let place = Place::with(&config);
    for command in [&["serve"][..], &["config", "check"]] {
        let outcome = place.run_code(2, command).await;
        for told in [
            "line 11: token of entry 1 of crawler is \"a/b\"",
            "line 11: crawler.username is not a key",
            "line 12: origin of entry 1 of robots.override is \"o.test\"",
            "line 12: reason of entry 1 of robots.override is \"\"",
            "line 12: entry 1 of robots.override is {",
        ] {
            assert!(outcome.stderr.contains(told), "{told}: {}", outcome.stderr);
        }
    }
}

// Ours: an expired override is no error, but it has no effect.
#[tokio::test]
async fn config_check_reports_an_expired_override() {
    let ended = LEAVE.replace("2999", "2001");
    let place = Place::with(&Config::default().set(&override_line(&ended)));
    let outcome = place.run_ok(&["config", "check"]).await;
    let told = "the allow of robots.override for http://o.test ended at 2001-01-01T00:00:00Z";
    assert!(outcome.stdout.contains(told), "{outcome:?}");
}
