//! `audit robots --history`, `audit replay` and `audit show`: how a robots.txt changed,
//! what another configuration would change, and why a decision was made.

use serde_json::json;

use crate::kit::client::get_as;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::program::Outcome;
use crate::kit::proxy::{Place, resolve};
use crate::kit::{assert_contains, assert_members, sha256};

const FIRST: &str = "# \u{1b}[2J\nUser-agent: *\nDisallow: /private\nDisallow: /shop/*.pdf\n";
const SECOND: &str = "User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /late\n";

/// Returns a record with two versions of a robots.txt. Three decisions rest on the first
/// version and four came after the second.
pub(crate) async fn recorded() -> (Origin, Place) {
    let (_origin, proxy) = site(Script::robots(FIRST), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/y").await;
    proxy.place().completed(3).await;
    let place = proxy.stop().await;
    // Make the next process fetch the file again.
    place.database().execute("DELETE FROM kept", []).unwrap();
    let origin = Script::robots(SECOND).start().await;
    place.configure(&resolve("o.test", origin.address()));
    let proxy = place.start().await;
    get_as(&proxy, "FooBot/1", "http://o.test/late").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/open").await;
    get_as(&proxy, "FooBot/1", "http://10.0.0.1/").await;
    proxy.place().completed(7).await;
    (origin, proxy.stop().await)
}

// Ours; docs/asking.md.
#[tokio::test]
async fn history_lists_versions_with_their_changes_and_decisions() {
    let (_origin, place) = recorded().await;
    let text = place.audit("robots o.test --history").await;
    let (length, digest) = (FIRST.len(), sha256(FIRST.as_bytes()));
    let first = format!("  answer     status 200, successful, {length} bytes, sha256 {digest}\n");
    for wanted in [
        "http://o.test/robots.txt, fetched as FooBot: version 1\n  seen       20",
        ", fetches: 1\n",
        &first,
        "  decided    3 requests\n           2  disallow  line 3: Disallow: /private\n           1  allow     no_rule\n",
        "http://o.test/robots.txt, fetched as FooBot: version 2\n",
        "  changed    2 lines removed, 2 added\n",
        "    @@ -1,4 +1,4 @@\n    -# \\u{1b}[2J\n     User-agent: *\n     Disallow: /private\n    -Disallow: /shop/*.pdf\n    +Allow: /private/open\n    +Disallow: /late\n",
    ] {
        assert_contains(&text.stdout, wanted);
    }
    let json = place.audit("robots o.test --history --json").await;
    let json = json.json_lines();
    assert_eq!(json.len(), 2);
    assert_members(&json[0], &json!({"version": 1, "diff": null}));
    assert_eq!(json[1]["sha256"], sha256(SECOND.as_bytes()));
    assert_members(&json[1], &json!({"added": 2, "removed": 2}));
    assert_eq!(
        json[0]["decided"],
        json!([
            { "verdict": "disallow", "reason": "rule", "effect": "enforced", "line": 3, "rule": "Disallow: /private", "requests": 2 },
            { "verdict": "allow", "reason": "no_rule", "effect": "enforced", "line": null, "rule": null, "requests": 1 },
        ])
    );
    let csv = place.audit("robots o.test --history --csv").await.stdout;
    assert!(csv.starts_with("version,origin,token,first_seen,"), "{csv}");
    // Below the header: two rulings of the first version, and three of the second.
    assert_eq!(csv.lines().count(), 6, "{csv}");
    assert_contains(&csv, ",disallow,rule,enforced,3,Disallow: /private,2\r\n");
    let none = place.audit_code(1, "robots p.test --history").await;
    assert_eq!(none.stdout, "");
    place.audit_code(2, "robots o.test --json").await;
}

// Ours; docs/asking.md.
#[tokio::test]
async fn replay_shows_which_decisions_another_configuration_changes() {
    let (origin, place) = recorded().await;
    place.assert_verified().await;
    // One request was refused because of its address, so there is no robots.txt.
    let same = place.audit_code(3, "replay").await;
    assert_eq!(
        same.stdout,
        "6 stay as they are; 0 would be refused, 0 would be sent, 0 have another reason; 1 \
             cannot be decided again\n\
             not decided again: 1 refused by address or port, without a robots.txt\n"
    );
    place.audit("replay --host o.test").await;

    let other = resolve("o.test", origin.address()).set(
        "robots.override = [{ origin = \"http://o.test\", path = \"/private/x\", action = \
                 \"allow\", until = 2099-01-01T00:00:00Z, reason = \"agreed\" }, { origin = \
                 \"http://o.test\", path = \"/a\", action = \"deny\", reason = \"load\" }]",
    );
    let place_of_other = Place::with(&other);
    let file = place_of_other.path("politesse.toml");
    let replay = format!("replay --host o.test --with {}", file.display());
    let json = place.audit_code(1, &format!("{replay} --json")).await;
    let json = json.json_lines().remove(0);
    let counts = json!({"same": 3, "refused": 1, "sent": 2, "reason": 0});
    assert_members(&json, &counts);
    let change = &json["changes"][0];
    let wanted = json!({"host": "o.test", "change": "sent", "requests": 2});
    assert_members(change, &wanted);
    assert_eq!(change["before"]["rule"], "Disallow: /private");
    assert_eq!(change["after"]["effect"], "overridden");
    assert_eq!(change["samples"][0]["url"], "http://o.test/private/x");
    let text = place.audit_code(1, &replay).await.stdout;
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("REQUESTS  HOST    WAS"), "{text}");
    let first = "2         o.test  disallow Disallow: /private";
    assert!(lines[1].starts_with(first), "{text}");
    assert_contains(&text, "disallow override");
    let cut = format!("{replay} --csv --limit 1");
    let csv = place.audit_code(1, &cut).await;
    assert_eq!(csv.stdout.lines().count(), 2, "{csv:?}");
    assert_contains(&csv.stderr, "left out: 1 changes with 1 requests");
}

// Ours: differences between record and current configuration are not counted.
#[tokio::test]
async fn replay_compares_with_the_current_configuration() {
    let (origin, place) = recorded().await;
    let settings = |overrides: &str| {
        let config = resolve("o.test", origin.address());
        config.set(&format!("robots.override = [{overrides}]"))
    };
    let deny =
        "{ origin = \"http://o.test\", path = \"/a\", action = \"deny\", reason = \"load\" }";
    let allow = "{ origin = \"http://o.test\", path = \"/late\", action = \"allow\", until = \
                     2099-01-01T00:00:00Z, reason = \"agreed\" }";
    // This override was added after the decisions.
    place.configure(&settings(deny));
    let place_of_other = Place::with(&settings(&format!("{deny}, {allow}")));
    let file = place_of_other.path("politesse.toml");
    let counts = |outcome: &Outcome| {
        let json = outcome.json_lines().remove(0);
        ["same", "refused", "sent"].map(|name| json[name].as_u64().unwrap())
    };
    let replay = "replay --host o.test --json";
    let with = format!("{replay} --with {}", file.display());
    let now = place.audit_code(1, &with).await;
    assert_eq!(counts(&now), [5, 0, 1], "{now:?}");
    let record = place.path("audit.db").display().to_string();
    assert_contains(&now.stderr, &format!("the record {record}: "));
    assert_contains(&now.stderr, " against the configuration of now");
    assert_eq!(now.json_lines()[0]["record"], record);
    let recorded = format!("{with} --against recorded");
    let recorded = place.audit_code(1, &recorded).await;
    assert_eq!(counts(&recorded), [4, 1, 1], "{recorded:?}");
    // Without another configuration, the current one is compared with the record.
    let bare = place.audit_code(1, replay).await;
    assert_eq!(counts(&bare), [5, 1, 0], "{bare:?}");
    assert_contains(&bare.stderr, "against the decisions as recorded");
    // A value that only chooses the record does not count as another configuration.
    let chosen = format!("{replay} --set audit.store=sqlite:{record}");
    let chosen = place.audit_code(1, &chosen).await;
    assert_eq!(counts(&chosen), [5, 1, 0], "{chosen:?}");
    // `--config` also chooses the record, and this configuration has none.
    let elsewhere = format!("replay --config {}", file.display());
    let none = place.audit_code(1, &elsewhere).await;
    let absent = place_of_other.path("audit.db");
    assert_contains(&none.stderr, absent.to_str().unwrap());
}

// Ours: crawlers are identified by the other configuration.
#[tokio::test]
async fn replay_identifies_crawlers_by_the_other_configuration() {
    let robots = "User-agent: BarBot\nDisallow: /\n\nUser-agent: *\nDisallow:\n";
    let (_origin, proxy) = site(Script::robots(robots), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    proxy.place().completed(1).await;
    let place = proxy.stop().await;
    let named = "crawler=[{ token = \"BarBot\", user_agent = \"foo\" }]";
    let replay = format!("replay --set '{named}'");
    let replay = place.audit_code(1, &replay).await;
    for wanted in [
        "disallow Disallow: /",
        "1 would be refused",
        "1 of these are under another name",
    ] {
        assert_contains(&replay.stdout, wanted);
    }
    // The record has only a network, which is too little to match an address.
    let network = "UPDATE client SET address = '127.0.0.0/24'";
    place.database().execute(network, []).unwrap();
    let by_address = "crawler=[{ token = \"BarBot\", client = \"127.0.0.0/8\" }]";
    let replay = format!("replay --set '{by_address}'");
    let replay = place.audit_code(3, &replay).await;
    assert_contains(&replay.stdout, "not decided again: 1 whose requests");
}

// Ours: the site has another robots.txt now, and `show` sends no request.
#[tokio::test]
async fn show_explains_a_decision_by_the_robots_txt_of_that_time() {
    let (origin, place) = recorded().await;
    let fetches = origin.robots_fetches();
    let seq = place.number(2).to_string();
    let text = place.audit(&format!("show {seq}")).await;
    for wanted in [
        "rule         line 3: Disallow: /private\n",
        "length       8 bytes\n",
        "robots       http://o.test/robots.txt, status 200, successful\n",
        "and deciding again gives the same\n",
    ] {
        assert_contains(&text.stdout, wanted);
    }
    let show = format!("show {seq} --json");
    let json = place.audit(&show).await.json_lines().remove(0);
    assert_members(&json, &json!({"bound": "*", "length": 8}));
    assert_eq!(origin.robots_fetches(), fetches);
    // After a change of the row, the rules lead to another verdict and explain nothing.
    let changed = "'allow', 'no_rule', effect, NULL, NULL, groups, crawler, denials";
    place.refer_to_copy(2, "ruling", changed);
    let altered = place.audit(&show).await.json_lines().remove(0);
    let expected = json!({
        "verdict": "allow", "length": null, "decided_again": "deciding again gives disallow rule",
    });
    assert_members(&altered, &expected);
}
