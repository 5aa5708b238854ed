//! Events of the proxy itself in the record, and the count of sent requests that some of
//! them state.

use serde_json::{Value, json};

use crate::kit::client::get;
use crate::kit::origin::{Script, site};
use crate::kit::paced::column;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::{assert_contains, assert_contains_each, assert_members, until};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

const OVERRIDE: &str = "robots.override = [{ origin = \"http://o.test\", path = \"/held\", \
                        action = \"deny\", reason = \"asked by mail\" }]";

/// Returns the events in the record, oldest first.
async fn events(place: &Place) -> Vec<Value> {
    let list = "events --json --limit 0";
    let mut events = place.audit(list).await.json_lines();
    events.reverse();
    events
}

/// Sends SIGHUP, and waits until the record has `count` events.
async fn reload(proxy: &Proxy, count: usize) -> Vec<Value> {
    proxy.signal("HUP").await;
    until("events of the reload", async || {
        Some(events(proxy.place()).await).filter(|events| events.len() == count)
    })
    .await
}

/// Returns the report of `audit verify`.
async fn verified(place: &Place) -> Value {
    let outcome = place.run(&["audit", "verify", "--json"]).await;
    outcome.json_lines().remove(0)
}

// Ours: events and decisions share one sequence of numbers.
#[tokio::test]
async fn starts_reloads_and_stops_are_recorded_among_the_decisions() {
    let origin = Script::robots(ROBOTS).start().await;
    let named = || {
        resolve("o.test", origin.address())
            .set("audit.operator = \"Example Library\"")
            .set("proxy.contact = \"https://u:p@a.test/\"")
    };
    let proxy = named().start().await;
    for path in ["/a", "/private", "/b"] {
        get(&proxy, &format!("http://o.test{path}")).await;
    }
    // Reloads with a changed value, without a change, and with a changed value that needs
    // a restart.
    let changed = named().set(OVERRIDE);
    proxy.place().configure(&changed);
    reload(&proxy, 4).await;
    reload(&proxy, 5).await;
    proxy.place().configure(&changed.set("proxy.backlog = 77"));
    reload(&proxy, 6).await;
    let place = proxy.stop().await;
    let events = events(&place).await;
    let kinds = [
        "started",
        "configuration",
        "reloaded",
        "configuration",
        "reloaded",
        "reloaded",
        "stopped",
    ];
    assert_eq!(column(&events, "kind"), kinds);
    let detail = json!({ "version": env!("CARGO_PKG_VERSION") });
    let expected = json!({"seq": 1, "sent": 0, "detail": detail});
    assert_members(&events[0], &expected);
    let (before, after) = (&events[1]["detail"], &events[3]["detail"]);
    assert_ne!(before["sha256"], after["sha256"]);
    assert_eq!(before["operator"], "Example Library");
    let text = before["text"].as_str().unwrap();
    let contact = "contact = \"https://…@a.test/\"\n";
    assert_contains_each(text, &["[pace]\n", "[egress]\n", contact]);
    let shown = place.audit("show 2").await.stdout;
    assert_contains(&shown, "\noperator = \"Example Library\"\n");
    let listed = place.audit("events").await.stdout;
    assert!(!listed.contains("[egress]"), "{listed}");
    assert_eq!(before["overrides"], Value::Null);
    assert_eq!(after["overrides"]["count"], 1);
    assert_eq!(after["overrides"]["sha256"].as_array().unwrap().len(), 1);
    // The decisions name the policy of the configuration event.
    let rows = place.rows().await;
    assert!(rows.iter().all(|row| row["policy"] == before["policy"]));
    assert_eq!(column(&rows, "sent"), [1, 0, 1]);
    let reloads = [2, 4, 5].map(|at: usize| events[at]["detail"].clone());
    let wanted = [
        json!({ "result": "successful", "changed": ["robots.override"] }),
        json!({ "result": "successful", "changed": [] }),
        json!({ "result": "failed" }),
    ];
    assert_eq!(reloads, wanted);
    assert_eq!(events[6]["sent"], 2);
    assert_eq!(verified(&place).await["findings"], json!([]));
}

// Ours: the count matches neither its leaf nor the number of entries.
#[tokio::test]
async fn verify_finds_a_changed_count_of_sent_requests() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    get(&proxy, "http://o.test/a").await;
    let place = proxy.stop().await;
    assert_eq!(verified(&place).await["findings"], json!([]));
    let sql = "UPDATE event SET sent = 3 WHERE kind = 'stopped'";
    assert_eq!(place.database().execute(sql, []).unwrap(), 1);
    let last = events(&place).await.pop().unwrap()["seq"].clone();
    let findings = [
        format!("event {last}: the row is not as it was written"),
        format!("1 to {last}: requests sent and not on record: 2"),
    ];
    let expected = json!({"unrecorded": 2, "mismatches": 2, "findings": findings});
    assert_members(&verified(&place).await, &expected);
    let text = place.audit_code(1, "verify").await;
    assert_contains(&text.stdout, ", 2 sent and not on record");
}

// Ours: after a crash the count is unknown. `verify` reports that without failing.
#[tokio::test]
async fn verify_reports_a_killed_process_without_failing() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    get(&proxy, "http://o.test/a").await;
    proxy.place().completed(1).await;
    let proxy = proxy.kill().await.start().await;
    get(&proxy, "http://o.test/b").await;
    let place = proxy.stop().await;
    let sums = verified(&place).await;
    assert_members(&sums, &json!({"unknown_ends": 1, "mismatches": 0}));
    let [finding] = &sums["findings"].as_array().unwrap()[..] else {
        panic!("{sums}");
    };
    let told = "after 1: the process ended without a word";
    assert!(finding.as_str().unwrap().starts_with(told), "{sums}");
    place.assert_verified().await;
}
