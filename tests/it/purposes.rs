//! Purposes of crawlers, and the preferences of robots.txt that deny them
//! (`crawler.purpose`, `run --purpose`, `preferences`). draft-ietf-aipref-attach-05,
//! section 3.1; contentsignals.org; docs/preferences.md.

use serde_json::json;

use crate::kit::client::{Reply, get_as, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::column;
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::{assert_contains, assert_members};

/// Denies training below `/a`, search below `/b`, and disallows `/private`.
const ROBOTS: &str = "User-agent: *\nContent-Usage: /a train-ai=n\nContent-Usage: /b search=n\n\
                      Disallow: /private\n";

/// Purposes: TrainBot trains, FindBot searches, BothBot does both. AnyBot is not listed
/// and has no declared purpose.
const CRAWLERS: &str = "crawler = [\
    { token = \"TrainBot\", user_agent = \"trainbot\", purpose = \"train-ai\" }, \
    { token = \"FindBot\", user_agent = \"findbot\", purpose = [\"search\"] }, \
    { token = \"BothBot\", user_agent = \"bothbot\", purpose = [\"train-ai\", \"search\"] }]";

async fn origin() -> Origin {
    Script::robots(ROBOTS).start().await
}

fn config(origin: &Origin, enforce: &str) -> Config {
    resolve("o.test", origin.address())
        .set(CRAWLERS)
        .set(&format!("preferences.enforce = \"{enforce}\""))
}

async fn ask(proxy: &Proxy, agent: &str, path: &str) -> Reply {
    get_as(proxy, agent, &format!("http://o.test{path}")).await
}

#[tokio::test]
async fn a_page_denied_for_every_purpose_is_refused_with_its_line() {
    let origin = origin().await;
    let proxy = config(&origin, "refuse").start().await;
    for (agent, path, status) in [
        ("TrainBot/1", "/a/1", 403),
        ("TrainBot/1", "/b/1", 200),
        ("FindBot/1", "/a/2", 200),
        ("FindBot/1", "/b/2", 403),
        // Only one of BothBot's two purposes is denied.
        ("BothBot/1", "/a/3", 200),
        ("BothBot/1", "/b/3", 200),
        ("AnyBot/1", "/a/4", 200),
        ("AnyBot/1", "/b/4", 200),
        ("TrainBot/1", "/robots.txt", 200),
    ] {
        let reply = ask(&proxy, agent, path).await;
        assert_eq!(reply.status(), status, "{agent} {path}");
    }
    let refused = ask(&proxy, "TrainBot/1", "/a/5").await;
    refused.assert_error(403, "http_request_denied");
    let body = refused.json();
    assert_eq!(body["reason"], "preference");
    let expected = json!({"line": 2, "text": "Content-Usage: /a train-ai=n"});
    assert_members(&body["rule"], &expected);
    assert_contains(body["detail"].as_str().unwrap(), "train-ai");
    let why = proxy.place().audit("why http://o.test/a/5").await.stdout;
    assert_contains(&why, "denied       train-ai (train-ai=n, line 2)");
    assert_contains(&why, "purposes   train-ai");
    // A `Disallow` rule applies to every purpose.
    let by_rule = ask(&proxy, "FindBot/1", "/private").await.json();
    assert_eq!(by_rule["reason"], "rule");
    let mut seen = origin.targets();
    seen.retain(|target| !target.starts_with("/.well-known/"));
    assert_eq!(seen, ["/b/1", "/a/2", "/a/3", "/b/3", "/a/4", "/b/4"]);
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn with_preferences_any_one_denied_purpose_refuses_a_page() {
    let origin = origin().await;
    let any = config(&origin, "refuse").set("preferences.any = true");
    let proxy = any.start().await;
    for (agent, path, status) in [
        ("BothBot/1", "/a/1", 403),
        ("BothBot/1", "/b/1", 403),
        ("BothBot/1", "/c/1", 200),
        ("AnyBot/1", "/a/1", 200),
    ] {
        let reply = ask(&proxy, agent, path).await;
        assert_eq!(reply.status(), status, "{agent} {path}");
    }
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn report_mode_forwards_and_a_crawler_may_override_it() {
    let origin = origin().await;
    let own = "crawler = [\
            { token = \"TrainBot\", user_agent = \"trainbot\", purpose = \"train-ai\" }, \
            { token = \"HardBot\", user_agent = \"hardbot\", purpose = \"train-ai\", \
              preferences = \"refuse\" }]";
    let config = resolve("o.test", origin.address()).set(own);
    let proxy = config.set("preferences.enforce = \"report\"").start().await;
    let forwarded = ask(&proxy, "TrainBot/1", "/a/1").await;
    assert_eq!(forwarded.status(), 200);
    assert_contains(forwarded.head.value("proxy-status"), "would be refused");
    assert_eq!(ask(&proxy, "TrainBot/1", "/private").await.status(), 403);
    let rows = proxy.place().completed(2).await;
    let expected = json!({"reason": "preference", "effect": "reported"});
    assert_members(&rows[0], &expected);
    assert_eq!(ask(&proxy, "HardBot/1", "/a/2").await.status(), 403);
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn a_crawler_without_a_purpose_has_the_unchanged_policy() {
    let origin = origin().await;
    let policies = async |config: Config| {
        let proxy = config.start().await;
        ask(&proxy, "AnyBot/1", "/a/1").await;
        column(&proxy.place().completed(1).await, "policy")
    };
    let without = policies(resolve("o.test", origin.address())).await;
    let with = policies(config(&origin, "refuse")).await;
    assert_eq!(without, with);
}

#[tokio::test]
async fn reload_and_run_purpose_change_the_refusals() {
    let origin = origin().await;
    let proxy = config(&origin, "off").start().await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/a/1").await.status(), 200);
    proxy.place().configure(&config(&origin, "refuse"));
    reload(&proxy).await;
    assert_eq!(ask(&proxy, "TrainBot/1", "/a/2").await.status(), 403);
    let fetch = |purpose| {
        let curl = "curl -s -o /dev/null -w %{http_code} http://o.test/a/3";
        let curl: Vec<_> = curl.split(' ').collect();
        [&["run", "--purpose", purpose, "--"], &curl[..]].concat()
    };
    let place = proxy.place();
    assert_eq!(place.run(&fetch("train-ai")).await.stdout, "403");
    assert_eq!(place.run(&fetch("search,images")).await.stdout, "200");
    let wrong = place.run_code(2, &fetch("profit")).await;
    assert!(wrong.stderr.contains("train-ai, search"), "{wrong:?}");
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn check_and_replay_apply_preferences_like_the_proxy() {
    let origin = origin().await;
    let proxy = config(&origin, "off").start().await;
    for agent in ["TrainBot/1", "FindBot/1"] {
        assert_eq!(ask(&proxy, agent, "/a/1").await.status(), 200, "{agent}");
    }
    let place = proxy.stop().await;
    let refusing = async |arguments: &[&str]| {
        let set = ["--set", "preferences.enforce=refuse"];
        place.run_code(1, &[&set, arguments].concat()).await
    };
    let check = ["check", "--agent=TrainBot/1", "--json", "http://o.test/a/1"];
    let checked = refusing(&check).await;
    assert_eq!(checked.json_lines()[0]["reason"], "preference");
    place.run_ok(&check).await;
    let replayed = refusing(&["audit", "replay", "--json"]).await;
    assert_contains(&replayed.stdout, "preference");
    place.audit("replay --against recorded").await;
}

// contentsignals.org: a `Content-Signal` line of the crawler's group.
#[tokio::test]
async fn a_content_signal_denies_a_purpose() {
    let robots = "User-agent: *\nContent-Signal: ai-train=no, search=yes\nAllow: /\n";
    let origin = Script::robots(robots).start().await;
    let proxy = config(&origin, "refuse").start().await;
    let refused = ask(&proxy, "TrainBot/1", "/a").await;
    assert_eq!(refused.status(), 403);
    assert_eq!(refused.json()["rule"]["line"], 2);
    assert_eq!(ask(&proxy, "FindBot/1", "/a").await.status(), 200);
    proxy.place().assert_verified().await;
}
