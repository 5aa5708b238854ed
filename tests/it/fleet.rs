//! Fleets of real processes with a real Redis: what nodes know about each other and
//! their store, and what they report to an operator. `fleet_pace.rs` tests the pace that
//! a host sees.

use std::time::Duration;

use serde_json::Value;

use super::fleet_store::documented_rights;
use crate::kit::addresses::free_addresses;
use crate::kit::certificates::TestCa;
use crate::kit::client::{Crawler, ask, get, get_admin};
use crate::kit::fleet::{
    SECRET, all_are, node, quoted, ready_nodes, readyz, sharing, start_with_key, write_private,
};
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, assert_later, held, metric};
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::redis::Redis;
use crate::kit::{assert_contains, assert_contains_each, until};

// Ours: `fleet.on_loss`; `/readyz` and the record show the loss.
#[tokio::test]
async fn a_closed_fleet_sends_nothing_without_its_store() {
    let origin = Script::robots("").start().await;
    let mut store = Redis::start(&[]).await;
    let config = node(0, &quoted(&[&store]), origin.address());
    let mut nodes = ready_nodes([config.set("fleet.on_loss = \"closed\"")]).await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    store.kill().await;
    all_are(&nodes, "closed").await;
    assert_eq!(readyz(&nodes[0]).await.0, 503);
    let reply = get(&nodes[0], "http://o.test/2").await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    assert_contains(&reply.text(), "The store of the fleet");
    assert!(!reply.head.value("retry-after").is_empty());
    assert_eq!(origin.targets(), ["/1"]);
    store.restart().await;
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/3").await.status(), 200);
    let place = nodes.remove(0).stop().await;
    let events = place.audit("events --kind fleet --json").await.json_lines();
    let modes = events.iter().map(|event| event["detail"]["mode"].clone());
    let modes: Vec<_> = modes.collect();
    let wanted = ["joined", "closed", "joined"].map(Value::from);
    assert!(modes.ends_with(&wanted), "{modes:?}");
}

// Ours: `pace.max_wait`; RFC 7240, section 4.3, for `Prefer`.
#[tokio::test]
async fn a_request_that_does_not_wait_for_a_turn_waits_for_the_lease() {
    let agent = "User-Agent: ExampleBot/1.0";
    for (lines, field) in [
        (&["pace.max_wait = \"0s\""][..], agent),
        (&[], "Prefer: wait=0"),
    ] {
        let origin = Script::robots("").start().await;
        let store = Redis::start(&[]).await;
        let node = node(0, &quoted(&[&store]), origin.address());
        let config = lines.iter().fold(node, |config, line| config.set(line));
        let nodes = ready_nodes([config]).await;
        let reply = ask(&nodes[0], "GET", "http://o.test/1", &[field]).await;
        assert_eq!(reply.status(), 200, "{field}: {}", reply.text());
    }
}

// Ours: `pace release` works at any node, even if another one holds the lease.
#[tokio::test]
async fn a_back_off_applies_at_all_nodes_until_an_operator_ends_it_at_one() {
    let page = asking_for_less(429, Some("3600"));
    let origin = Script::robots("").page("/bad", page).start().await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    let config = |number| node(number, &stores, origin.address()).set("pace.backoff = {}");
    let mut nodes = ready_nodes((0..2).map(config)).await;
    assert_eq!(get(&nodes[1], "http://o.test/bad").await.status(), 429);
    let seconds = assert_later(&get(&nodes[0], "http://o.test/1").await, "backoff");
    assert!((3590..=3600).contains(&seconds), "{seconds}");
    assert_eq!(origin.targets(), ["/bad"]);
    let order = ["pace", "release", "o.test", "--reason=asked"];
    nodes[0].run_admin(&order).await.assert_code(0);
    until("a request that is not put off", async || {
        let status = get(&nodes[1], "http://o.test/2").await.status();
        (status == 200).then_some(())
    })
    .await;
    assert_eq!(origin.targets(), ["/bad", "/2"]);
    // A restarted node, which restores its saved back-offs, does not bring it back.
    let again = nodes.remove(1).stop().await.start().await;
    await_readyz(&again, "ready").await;
    // Proof of absence: longer than a lease, in which its holder asks the store again.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(get(&nodes[0], "http://o.test/3").await.status(), 200);
}

/// Returns the entry for the node `name` in `fleet status` of `proxy`, or null.
async fn node_in_status(proxy: &Proxy, name: &str) -> Value {
    let shown = proxy.run_admin(&["fleet", "status", "--json"]).await;
    let answer: Value = serde_json::from_str(&shown.assert_code(0).stdout).unwrap();
    let nodes = answer["fleet"]["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|node| node["node"] == name);
    found.cloned().unwrap_or_default()
}

/// Waits until `/readyz` answers 200 with the text `wanted`.
async fn await_readyz(proxy: &Proxy, wanted: &str) {
    until(wanted, async || {
        (readyz(proxy).await == (200, format!("{wanted}\n"))).then_some(())
    })
    .await;
}

// Ours: nodes compare digests of their configurations.
#[tokio::test]
async fn nodes_with_different_configurations_name_the_differing_part() {
    let origin = Script::robots("").start().await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    // Addresses, names and limits of the machine may differ between nodes.
    let config = |number: usize| {
        node(number, &stores, origin.address())
            .set("https.mode = \"refuse\"")
            .set(&format!("robots.max_snapshots = {}", 100 + number))
    };
    let odd = config(1).set("pace.max_wait = \"7s\"");
    let nodes = [config(0).start().await, odd.start().await];
    let differ = "ready, but the configuration is not that of all nodes: pace";
    for node in &nodes {
        await_readyz(node, differ).await;
        let differing = metric(node, "politesse_fleet_differing_nodes").await;
        assert_eq!(differing, 1.0);
    }
    let shown = nodes[0]
        .run_admin(&["fleet", "status"])
        .await
        .assert_code(0);
    assert_contains(&shown.stdout, "configuration: another at node-1 (pace)\n");
    let page = signed_in_page(&nodes[0], "/fleet").await;
    assert_contains(&page, "Not all nodes have the same configuration");
    // The menu of the dashboard lists the fleet page.
    assert_contains(&page, "aria-current=\"page\">Fleet");

    // A difference in the policy is reported as such; a reload removes each difference.
    let other = "robots.readings = \"dots\"";
    nodes[1].place().configure(&config(1).set(other));
    nodes[1].signal("HUP").await;
    let differ = "ready, but the configuration is not that of all nodes: policy";
    await_readyz(&nodes[0], differ).await;
    nodes[1].place().configure(&config(1));
    nodes[1].signal("HUP").await;
    for node in &nodes {
        await_readyz(node, "ready").await;
    }
    let line = "other nodes of the fleet have another configuration than this one";
    // Logged once for each difference, although the notes are read repeatedly.
    let log = nodes[0].logged_times(line, 2).await;
    assert_eq!(log.matches(line).count(), 2, "{log}");
    let wanted = ["differs", "alike", "node-1", "pace", "policy"].map(|word| format!("{word:?}"));
    // The events reach the record a little later than the log.
    until("both differences on record", async || {
        let events = nodes[0].place().audit("events --kind fleet --json").await;
        let found = events.stdout;
        wanted.iter().all(|word| found.contains(word)).then_some(())
    })
    .await;
}

// Ours: cloned machines may share a `fleet.node` by mistake.
#[tokio::test]
async fn two_nodes_of_one_name_report_it_and_send_nothing_without_the_store() {
    let origin = Script::robots("").start().await;
    let mut store = Redis::start(&[]).await;
    let config = || node(0, &quoted(&[&store]), origin.address());
    let nodes = [config().start().await, config().start().await];
    let told = "ready, but another process has the name of this node (fleet.node)";
    for node in &nodes {
        await_readyz(node, told).await;
        let shown = node.run_admin(&["fleet", "status"]).await;
        assert_contains(&shown.stdout, "change fleet.node");
        let page = signed_in_page(node, "/fleet").await;
        assert_contains(&page, "Another process has the name");
        node.logged("give each one of its own (fleet.node)").await;
    }
    store.kill().await;
    for node in &nodes {
        until("a refusal to send", async || {
            (readyz(node).await.0 == 503).then_some(())
        })
        .await;
    }
    store.restart().await;
    let [node, namesake] = nodes;
    namesake.stop().await;
    // The warning ends after the other process has missed a few notes.
    await_readyz(&node, "ready").await;
    // A restarted node is not taken for a second process of its name.
    let node = node.stop().await.start().await;
    await_readyz(&node, "ready").await;
    assert!(!node.log().contains("has the name of this node"));
    node.stop().await;
}

/// Returns a page of the dashboard of `proxy`.
async fn signed_in_page(proxy: &Proxy, path: &str) -> String {
    let token = proxy.place().run(&["admin", "token"]).await.stdout;
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let reply = get_admin(proxy.admin(), path, &[&bearer]).await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    reply.text()
}

// Ours: `fleet status`, metrics and dashboard show each node.
#[tokio::test]
async fn a_node_shows_the_state_and_hosts_of_the_others() {
    let (gate, origin) = held("/slow").await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    let drain = "proxy.drain_time = \"1h\"";
    let config = |number| node(number, &stores, origin.address()).set(drain);
    let mut nodes = ready_nodes((0..3).map(config)).await;
    let mut crawler = Crawler::plain(&nodes[1]).await;
    crawler.start_get("http://o.test/slow", "o.test").await;
    origin.arrival("/slow").await;
    let shown = until("a leased host", async || {
        let shown = node_in_status(&nodes[0], "node-1").await;
        (shown["hosts"] == 1).then_some(shown)
    })
    .await;
    assert_eq!(shown["state"], "live");
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    assert!(shown["heartbeat_ms"].as_u64().unwrap() < 10_000, "{shown}");
    assert_eq!(metric(&nodes[1], "politesse_fleet_leased_hosts").await, 1.0);
    gate.open(1);
    assert_eq!(crawler.reply_to("GET").await.status(), 200);
    assert!(0.0 < metric(&nodes[0], "politesse_fleet_store_seconds_count").await);

    nodes[1].signal("TERM").await;
    nodes.remove(2).kill().await;
    for (name, state) in [("node-1", "draining"), ("node-2", "missing")] {
        until(state, async || {
            let shown = node_in_status(&nodes[0], name).await;
            (shown["state"] == state).then_some(())
        })
        .await;
    }
    let page = signed_in_page(&nodes[0], "/fleet").await;
    assert_contains_each(&page, &["No heartbeat from", "draining"]);
    // A stopped node leaves every list.
    nodes[1].signal("TERM").await;
    until("the node to leave the list", async || {
        let shown = node_in_status(&nodes[0], "node-1").await;
        shown.is_null().then_some(())
    })
    .await;
    let notes = store.cli(&["hkeys", "politesse:{fleet}:notes"]).await;
    assert!(!notes.contains("node-1"), "{notes}");

    let single = resolve("o.test", origin.address()).start().await;
    let shown = single.run_admin(&["fleet", "status"]).await;
    shown.assert_output(0, "this proxy is in no fleet (fleet.store)\n");
}

// Ours: docs/fleet.md lists the rights.
#[tokio::test]
async fn a_store_requires_the_password_and_only_the_documented_rights() {
    let origin = Script::robots("").start().await;
    let user = ["--requirepass", "other", "--user", "fleet", "on", ">secret"];
    let arguments = [&user[..], &documented_rights()].concat();
    let store = Redis::start(&arguments).await;
    let config = || sharing(0, &quoted(&[&store]), origin.address());
    let anonymous = start_with_key(&config(), SECRET).await;
    assert_eq!(readyz(&anonymous).await.0, 503);
    let log = anonymous.logged("fleet.store_auth").await;
    assert_contains(&log, "NOAUTH");
    anonymous.stop().await;

    let place = Place::with(&config().set("fleet.store_auth = \"auth\""));
    // Each missing file is named.
    for (name, text) in [("fleet.key", SECRET), ("auth", "fleet:secret\n")] {
        assert_contains(&place.run_code(1, &["serve"]).await.stderr, name);
        write_private(&place, name, text);
    }
    let nodes = [place.start().await];
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    let keys = store.cli(&["--pass", "other", "keys", "*"]).await;
    for kind in ["{o.test}", "robots:http://o.test", "body:"] {
        assert_contains(&keys, &format!("politesse:{kind}"));
    }
    let is_ours = |key: &str| key.starts_with("politesse:");
    assert!(keys.lines().all(is_ours), "{keys}");
    let failed = "politesse_fleet_robots_total{result=\"failed\"}";
    assert_eq!(metric(&nodes[0], failed).await, 0.0);
    // Without the right to XRANGE, robots.txt files are no longer shared.
    let less = ["--pass", "other", "acl", "setuser", "fleet", "-xrange"];
    store.cli(&less).await;
    until("a line about the rights", async || {
        let log = nodes[0].log();
        (log.contains("robots.txt files are not shared") && log.contains("lacks a command"))
            .then_some(())
    })
    .await;
}

// Ours: servers that operators configure by mistake in place of the store.
#[tokio::test]
async fn a_server_that_cannot_be_a_store_is_identified_in_the_log() {
    let origin = Script::robots("").start().await;
    let sentinel = Redis::sentinel().await;
    let web = format!("\"redis://{}\"", origin.address());
    for (store, says) in [
        (quoted(&[&sentinel]), "it is a sentinel"),
        (web, "it does not speak as Redis does"),
    ] {
        let lost = node(0, &store, origin.address()).start().await;
        lost.logged(says).await;
        assert_eq!(readyz(&lost).await.0, 503);
    }
}

// Ours: TLS to the store. A store with an untrusted certificate counts as lost.
#[tokio::test]
async fn a_store_can_be_reached_over_trusted_tls() {
    let origin = Script::robots("").start().await;
    let files = tempfile::tempdir().unwrap();
    let [certificate, key] = TestCa::get().pair(&["localhost"]);
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certificate = file("cert", &certificate);
    let (key, ca) = (file("key", &key), file("ca", TestCa::get().pem()));
    let [plain, encrypted] = free_addresses();
    let port = encrypted.port().to_string();
    let arguments = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &ca],
        ["--tls-auth-clients", "no"],
    ];
    let store = Redis::at(plain, &arguments.concat()).await;
    let url = format!("\"rediss://localhost:{port}\"");
    let trusting = node(0, &url, origin.address()).set("fleet.store_ca = \"roots.pem\"");
    let nodes = ready_nodes([trusting]).await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    let doubtful = node(1, &url, origin.address()).start().await;
    doubtful.logged("fleet.store_ca").await;
    assert_eq!(readyz(&doubtful).await.0, 503);
    let empty = node(2, &url, origin.address()).set("fleet.store_ca = \"empty\"");
    let empty = Place::with(&empty);
    std::fs::write(empty.path("empty"), "no certificate\n").unwrap();
    let outcome = empty.run_code(1, &["serve"]).await;
    assert_contains(&outcome.stderr, "fleet.store_ca");
    drop(store);
}
