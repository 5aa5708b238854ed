//! Settings of the operator, tested through the program: configured crawlers, candidate
//! names, and overrides.

use serde_json::{Value, json};

use crate::kit::addresses::free_address;
use crate::kit::client::{get, get_as};
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::{assert_contains, assert_members};

const ROBOTS: &str = "User-agent: FooBot\nDisallow: /\n\n\
                      User-agent: BarBot\nAllow: /\n\n\
                      User-agent: *\nDisallow: /private\n";

/// Returns a configuration line with one override.
fn override_line(keys: &str) -> String {
    format!("robots.override = [{{ origin = \"http://o.test\", {keys} }}]")
}

const LEAVE: &str = "path = \"/private/open\", action = \"allow\", reason = \"contract 114\", until = 2999-01-01T00:00:00Z";
const BAN: &str = "path = \"/closed\", action = \"deny\", reason = \"asked by mail, “please”\"";

/// Stops the proxy, and asserts that `audit verify` finds no fault in its record.
pub(crate) async fn assert_verified(proxy: Proxy) {
    proxy.stop().await.assert_verified().await;
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
    for agent in ["BarBot/1 (Legacy)", "Legacy/2"] {
        let refused = get_as(&proxy, agent, "http://o.test/a").await;
        refused.assert_error(403, "http_request_denied");
        assert_eq!(refused.json()["crawler"], "FooBot");
        assert_eq!(refused.json()["rule"]["line"], 2);
    }
    let allowed = get_as(&proxy, "BarBot/1", "http://o.test/a").await;
    assert_eq!(allowed.status(), 200, "{}", allowed.text());
    let rows = proxy.place().completed(3).await;
    let expected = json!({"crawler": "FooBot", "user_agent": "BarBot/1 (Legacy)"});
    assert_members(&rows[0], &expected);
    assert_eq!(rows[2]["crawler"], "BarBot");
    // A robots.txt is cached per token.
    assert_eq!(origin.robots_fetches(), 2, "one for each first token");
    assert_verified(proxy).await;
}

// Ours: `enforcement.candidates` says whether the first name decides, or all names.
#[tokio::test]
async fn with_candidates_all_every_name_must_be_allowed() {
    for (candidates, status, bound) in [("first", 200, "BarBot"), ("all", 403, "FooBot")] {
        let line = format!("enforcement.candidates = \"{candidates}\"");
        let (_origin, proxy) = site(Script::robots(ROBOTS), &[&line]).await;
        let reply = get_as(&proxy, "BarBot/1 FooBot/1", "http://o.test/a").await;
        assert_eq!(reply.status(), status, "{candidates}");
        let rows = proxy.place().completed(1).await;
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
    for beside in ["private/b", "private/open/../b"] {
        let reply = get(&proxy, &format!("http://o.test/{beside}")).await;
        reply.assert_error(403, "http_request_denied");
    }
    get(&proxy, "http://o.test/a").await;
    assert_eq!(origin.targets(), ["/private/open/a", "/a"]);
    let rows = proxy.place().completed(4).await;
    assert_eq!(rows[0]["rule"], "Disallow: /private");
    let summaries: Vec<_> = rows.iter().map(row_summary).collect();
    let wanted = [
        "allow rule overridden 8",
        "disallow rule enforced 8",
        "disallow rule enforced 8",
        "allow no_rule enforced null",
    ];
    assert_eq!(summaries, wanted);
    let place = proxy.stop().await;
    let list = place.run(&["audit", "list"]).await.stdout;
    assert_eq!(list.matches("  overridden").count(), 1, "{list}");
    place.assert_verified().await;
    // Invariant 2 (ARCHITECTURE.md): the time of a decision is part of its evidence, so
    // one after the end of the override is found.
    let year_3000 = 32_503_680_000_000_000_i64;
    let update = "UPDATE decision SET time_us = ? WHERE seq = 3";
    let changed = place.database().execute(update, [year_3000]).unwrap();
    assert_eq!(changed, 1);
    let outcome = place.run_code(1, &["audit", "verify"]).await;
    let fault = "3: the row says allow rule for ExampleBot (line 8, \"Disallow: /private\"), \
                 overridden, its evidence disallow rule";
    assert_contains(&outcome.stdout, fault);
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
        assert_contains(reply.head.value("proxy-status"), "asked by mail");
    }
    assert_eq!(get(&proxy, "http://o.test/robots.txt").await.status(), 200);
    origin.assert_only_robots_fetched();
    let rows = proxy.place().completed(3).await;
    assert_eq!(row_summary(&rows[0]), "disallow override enforced null");
    assert_eq!(rows[0]["group"], Value::Null);
    assert_verified(proxy).await;
}

// Ours: an override ends at `until`. It is no error afterwards, but it has no effect.
#[tokio::test]
async fn an_expired_override_is_logged_at_start_and_ignored() {
    let script = Script::robots(ROBOTS);
    let (origin, proxy) = site(script, &[&override_line(&LEAVE.replace("2999", "2020"))]).await;
    let reply = get(&proxy, "http://o.test/private/open/a").await;
    reply.assert_error(403, "http_request_denied");
    origin.assert_only_robots_fetched();
    let log = proxy.logged("has ended").await;
    let mut told = log.lines().filter(|line| line.contains("has ended"));
    assert_contains(told.next().unwrap(), "contract 114");
    assert_eq!(told.next(), None);
    let checked = proxy.place().run_ok(&["config", "check"]).await;
    let told = "the allow of robots.override for http://o.test ended at 2020-01-01T00:00:00Z";
    assert_contains(&checked.stdout, told);
}

// Ours: an override sets aside robots.txt alone.
#[tokio::test]
async fn an_override_allows_despite_unreachable_robots_txt_but_not_denied_egress() {
    let origin = Script::robots_page(Page::status(503)).start().await;
    let entries = ["http://o.test", "http://p.test", "http://127.0.0.2"].map(|origin| {
        let terms = "action = \"allow\", reason = \"x\", until = \"2999-01-01T00:00:00Z\"";
        format!("{{ origin = \"{origin}\", {terms} }}")
    });
    let config = resolve("o.test", origin.address())
        .resolve("p.test", free_address())
        .set(&format!("robots.override = [{}]", entries.join(", ")));
    let proxy = config.start().await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    let refused = get(&proxy, "http://p.test/a").await;
    refused.assert_error(502, "connection_refused");
    let denied = get(&proxy, "http://127.0.0.2/a").await;
    denied.assert_error(502, "destination_ip_prohibited");
    let rows = proxy.place().completed(3).await;
    for row in &rows[..2] {
        assert_eq!(row_summary(row), "allow unreachable overridden null");
    }
    assert_eq!(rows[1]["error"], "connection_refused");
    assert_eq!(row_summary(&rows[2]), "disallow egress enforced null");
    assert_verified(proxy).await;
}

// Ours: `check` applies overrides as the proxy does.
#[tokio::test]
async fn check_shows_the_deciding_override_with_reason_and_end() {
    let origin = Script::robots(ROBOTS).start().await;
    let both = format!("{LEAVE} }}, {{ origin = \"http://o.test\", {BAN}");
    let place = Place::with(&resolve("o.test", origin.address()).set(&override_line(&both)));
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
    let urls = ["http://o.test/private/open", "http://o.test/a"];
    let json = place.run(&[&["check", "--json"], &urls[..]].concat()).await;
    let json = json.json_lines();
    let leave = json!({
        "action": "allow", "reason": "contract 114", "until": "2999-01-01T00:00:00Z",
    });
    assert_members(&json[0]["override"], &leave);
    assert_members(&json[0], &json!({"reason": "rule", "line": 8}));
    assert_eq!(json[1]["override"], Value::Null);
    origin.assert_only_robots_fetched();
}

// Ours; `check --help`: with `--robots`, only a configuration named by `--config` applies.
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
        let row = &outcome.json_lines()[0];
        assert_eq!(row["token"], token, "{options:?} {agent}");
    }
}
