//! Fleets of real processes, with a real Redis: what nodes know of each other and of their
//! store, and what an operator is told. What a host sees of them is in `fleet_pace.rs`.

use std::time::Duration;

use serde_json::Value;

use crate::kit::addresses::free_addresses;
use crate::kit::certificates::TestCa;
use crate::kit::client::{Crawler, ask, get};
use crate::kit::fleet::{
    SECRET, all_are, node, quoted, readyz, sharing, start_with_key, write_private,
};
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, assert_later, held, metric};
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::redis::Redis;
use crate::kit::until;

// Issue: `fleet.on_loss = "closed"`; "`/readyz` says degraded, the record has the event".
#[tokio::test]
async fn a_closed_fleet_sends_nothing_without_its_store() {
    let origin = Script::robots("").start().await;
    let mut store = Redis::start(&[]).await;
    let config = node(0, &quoted(&[&store]), origin.address());
    let proxy = config.set("fleet.on_loss = \"closed\"").start().await;
    let nodes = [proxy];
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    store.kill().await;
    all_are(&nodes, "closed").await;
    assert_eq!(readyz(&nodes[0]).await.0, 503);
    let reply = get(&nodes[0], "http://o.test/2").await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    assert!(
        reply.text().contains("The store of the fleet"),
        "{}",
        reply.text()
    );
    assert!(!reply.head.value("retry-after").is_empty());
    assert_eq!(origin.targets(), ["/1"]);
    store.restart().await;
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/3").await.status(), 200);
    let [proxy] = nodes;
    let place = proxy.stop().await;
    let sql = "SELECT detail FROM event WHERE kind = 'fleet' ORDER BY rowid";
    let database = place.database();
    let mut statement = database.prepare(sql).unwrap();
    let rows = statement
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    let details: Vec<String> = rows.map(Result::unwrap).collect();
    let modes: Vec<Value> = details
        .iter()
        .map(|detail| serde_json::from_str::<Value>(detail).unwrap()["mode"].clone())
        .collect();
    assert!(
        modes.ends_with(&["joined".into(), "closed".into(), "joined".into()]),
        "{modes:?}"
    );
}

// Ours: who waits for no turn (`pace.max_wait = "0s"`) waits for the lease all the same.
#[tokio::test]
async fn a_crawler_without_patience_gets_a_lease() {
    let origin = Script::robots("").start().await;
    let store = Redis::start(&[]).await;
    let config = node(0, &quoted(&[&store]), origin.address());
    let nodes = [config.set("pace.max_wait = \"0s\"").start().await];
    all_are(&nodes, "ready").await;
    let reply = get(&nodes[0], "http://o.test/1").await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
}

// The same for a request that prefers not to wait (RFC 7240, section 4.3).
#[tokio::test]
async fn a_request_without_patience_gets_a_lease() {
    let origin = Script::robots("").start().await;
    let store = Redis::start(&[]).await;
    let nodes = [node(0, &quoted(&[&store]), origin.address()).start().await];
    all_are(&nodes, "ready").await;
    let reply = ask(&nodes[0], "GET", "http://o.test/1", &["Prefer: wait=0"]).await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
}

// Issue: "back-off and Retry-After known to all".
#[tokio::test]
async fn a_back_off_is_known_to_all_nodes() {
    let page = asking_for_less(429, Some("3600"));
    let origin = Script::robots("").page("/bad", page).start().await;
    let store = Redis::start(&[]).await;
    let mut nodes = Vec::new();
    for number in 0..2 {
        let config = node(number, &quoted(&[&store]), origin.address());
        let config = config.set("pace.backoff = {}");
        nodes.push(config.start().await);
    }
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/bad").await.status(), 429);
    let seconds = assert_later(&get(&nodes[1], "http://o.test/1").await, "backoff");
    assert!((3590..=3600).contains(&seconds), "{seconds}");
    assert_eq!(origin.targets(), ["/bad"]);
}

// Ours: an operator's order holds for all nodes, whoever holds the lease.
#[tokio::test]
async fn a_back_off_that_an_operator_ended_is_over_at_all_nodes() {
    let page = asking_for_less(429, Some("3600"));
    let origin = Script::robots("").page("/bad", page).start().await;
    let store = Redis::start(&[]).await;
    let mut nodes = Vec::new();
    for number in 0..2 {
        let config = node(number, &quoted(&[&store]), origin.address());
        nodes.push(config.set("pace.backoff = {}").start().await);
    }
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[1], "http://o.test/bad").await.status(), 429);
    assert_later(&get(&nodes[0], "http://o.test/1").await, "backoff");
    let admin = format!("admin.listen=\"{}\"", nodes[0].admin());
    let order = [
        "pace",
        "release",
        "o.test",
        "--reason=asked",
        "--set",
        &admin,
    ];
    let done = nodes[0].place().run(&order).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    until("a request that is not put off", async || {
        let status = get(&nodes[1], "http://o.test/2").await.status();
        (status == 200).then_some(())
    })
    .await;
    assert_eq!(origin.targets(), ["/bad", "/2"]);
    // Nor does a node that was started again, and kept it.
    let place = nodes.remove(1).stop().await;
    let again = place.start().await;
    says(&again, "ready").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(get(&nodes[0], "http://o.test/3").await.status(), 200);
}

/// Returns the node of a name in what a node says of its fleet.
async fn node_in_status(proxy: &Proxy, name: &str) -> Value {
    let shown = proxy.run_admin(&["fleet", "status", "--json"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let answer: Value = serde_json::from_str(&shown.stdout).unwrap();
    let nodes = answer["fleet"]["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|node| node["node"] == name);
    found.cloned().unwrap_or_default()
}

async fn says(proxy: &Proxy, wanted: &str) {
    until(wanted, async || {
        (readyz(proxy).await == (200, format!("{wanted}\n"))).then_some(())
    })
    .await;
}

// Issue: "one configuration for all by digest (a node with another says so)".
#[tokio::test]
async fn nodes_that_have_not_one_configuration_say_so_and_in_what() {
    let origin = Script::robots("").start().await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    // Addresses, names and what the machine can hold are each node's own affair.
    let config = |number: usize| {
        node(number, &stores, origin.address())
            .set("https.mode = \"refuse\"")
            .set(&format!("robots.max_snapshots = {}", 100 + number))
    };
    let odd = config(1).set("pace.max_wait = \"7s\"");
    let nodes = [config(0).start().await, odd.start().await];
    let differ = "ready, but the configuration is not that of all nodes: pace";
    for node in &nodes {
        says(node, differ).await;
        let differing = metric(node, "politesse_fleet_differing_nodes").await;
        assert_eq!(differing, 1.0);
    }
    let shown = nodes[0].run_admin(&["fleet", "status"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let wanted = "configuration: another at node-1 (pace)\n";
    assert!(shown.stdout.contains(wanted), "{shown:?}");
    let page = signed_in_page(&nodes[0], "/fleet").await;
    assert!(
        page.contains("Not all nodes have the same configuration"),
        "{page}"
    );
    // The menu of a node has its fleet.
    assert!(page.contains("aria-current=\"page\">Fleet"), "{page}");

    // Another policy is another part, and a reload mends both.
    let other = "robots.readings = \"dots\"";
    nodes[1].place().configure(&config(1).set(other));
    nodes[1].signal("HUP").await;
    says(
        &nodes[0],
        "ready, but the configuration is not that of all nodes: policy",
    )
    .await;
    nodes[1].place().configure(&config(1));
    nodes[1].signal("HUP").await;
    for node in &nodes {
        says(node, "ready").await;
    }
    let line = "other nodes of the fleet have another configuration than this one";
    // Once for each difference, however often the notes are read.
    let log = nodes[0].logged_times(line, 2).await;
    assert_eq!(log.matches(line).count(), 2, "{log}");
    let events = ["audit", "events", "--kind", "fleet", "--json"];
    for wanted in [
        "\"differs\"",
        "\"alike\"",
        "\"node-1\"",
        "\"pace\"",
        "\"policy\"",
    ] {
        // They are committed behind the log.
        until(wanted, async || {
            let found = nodes[0].place().run(&events).await.stdout;
            found.contains(wanted).then_some(())
        })
        .await;
    }
}

/// Returns a page of the dashboard.
// Ours: machines that were cloned have one name.
#[tokio::test]
async fn two_processes_with_one_name_say_so_and_send_nothing_without_the_store() {
    let origin = Script::robots("").start().await;
    let mut store = Redis::start(&[]).await;
    let config = || node(0, &quoted(&[&store]), origin.address());
    let nodes = [config().start().await, config().start().await];
    let told = "ready, but another process has the name of this node (fleet.node)";
    for node in &nodes {
        says(node, told).await;
        let shown = node.run_admin(&["fleet", "status"]).await;
        assert!(shown.stdout.contains("change fleet.node"), "{shown:?}");
        let page = signed_in_page(node, "/fleet").await;
        assert!(page.contains("Another process has the name"), "{page}");
        node.logged("give each one of its own (fleet.node)").await;
    }
    store.kill().await;
    for node in &nodes {
        until("silence", async || {
            (readyz(node).await.0 == 503).then_some(())
        })
        .await;
    }
    store.restart().await;
    let [node, namesake] = nodes;
    namesake.stop().await;
    // Until it was away for some notes.
    says(&node, "ready").await;
    // One that starts again is no namesake of the process before.
    let node = node.stop().await.start().await;
    says(&node, "ready").await;
    assert!(!node.log().contains("has the name of this node"));
    node.stop().await;
}

async fn signed_in_page(proxy: &Proxy, path: &str) -> String {
    let token = proxy.place().run(&["admin", "token"]).await.stdout;
    let mut client = Crawler::to(proxy.admin()).await;
    let (line, host) = (
        format!("GET {path} HTTP/1.1"),
        format!("Host: {}", proxy.admin()),
    );
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let reply = client.ask(&[&line, &host, &bearer]).await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    reply.text()
}

// Issue: "node and fleet metrics and dashboard page, `politesse fleet status`".
#[tokio::test]
async fn a_node_shows_the_others_with_their_states_and_hosts() {
    let (gate, origin) = held("/slow").await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    let config =
        |number: usize| node(number, &stores, origin.address()).set("proxy.drain_time = \"1h\"");
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(config(number).start().await);
    }
    all_are(&nodes, "ready").await;
    let mut crawler = Crawler::plain(&nodes[1]).await;
    crawler
        .send(b"GET http://o.test/slow HTTP/1.1\r\nHost: o.test\r\n\r\n")
        .await;
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
    assert!(page.contains("No heartbeat from"), "{page}");
    assert!(page.contains("draining"), "{page}");
    // Whoever stops is in no list any more.
    nodes[1].signal("TERM").await;
    until("a node that is gone", async || {
        let shown = node_in_status(&nodes[0], "node-1").await;
        shown.is_null().then_some(())
    })
    .await;
    let notes = store.cli(&["hkeys", "politesse:{fleet}:notes"]).await;
    assert!(!notes.contains("node-1"), "{notes}");

    let single = resolve("o.test", origin.address()).start().await;
    let shown = single.run_admin(&["fleet", "status"]).await;
    let none = "this proxy is in no fleet (fleet.store)\n";
    assert_eq!((shown.code, &*shown.stdout), (Some(0), none));
}

// Issue: "ACL user"; a store that does not let this node in is named.
#[tokio::test]
async fn a_store_lets_in_who_has_the_right_password() {
    let origin = Script::robots("").start().await;
    // With no more rights than the book gives it.
    let book = include_str!("../../docs/fleet.md");
    let rights = book
        .lines()
        .find_map(|line| line.strip_prefix("user politesse on >PASSWORD "));
    let rights: Vec<_> = rights.unwrap().split(' ').collect();
    let user = ["--requirepass", "other", "--user", "fleet", "on", ">secret"];
    let arguments = [&user[..], &rights].concat();
    let store = Redis::start(&arguments).await;
    let config = || sharing(0, &quoted(&[&store]), origin.address());
    let nobody = start_with_key(&config(), SECRET).await;
    assert_eq!(readyz(&nobody).await.0, 503);
    until("a line about the store", async || {
        let log = nobody.log();
        (log.contains("NOAUTH") && log.contains("fleet.store_auth")).then_some(())
    })
    .await;
    nobody.stop().await;

    let place = Place::with(&config().set("fleet.store_auth = \"auth\""));
    // Each is named that is missing.
    for (name, text) in [("fleet.key", SECRET), ("auth", "fleet:secret\n")] {
        let outcome = place.run(&["serve"]).await;
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains(name), "{outcome:?}");
        write_private(&place, name, text);
    }
    let nodes = [place.start().await];
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    let keys = store.cli(&["--pass", "other", "keys", "*"]).await;
    for key in [
        "politesse:{o.test}",
        "politesse:robots:http://o.test",
        "politesse:body:",
    ] {
        assert!(keys.contains(key), "{keys}");
    }
    assert!(
        keys.lines().all(|key| key.starts_with("politesse:")),
        "{keys}"
    );
    let failed = "politesse_fleet_robots_total{result=\"failed\"}";
    assert_eq!(metric(&nodes[0], failed).await, 0.0);
    // One right less, and files are not shared any more.
    let less = ["--pass", "other", "acl", "setuser", "fleet", "-xrange"];
    store.cli(&less).await;
    until("a line about the rights", async || {
        let log = nodes[0].log();
        (log.contains("robots.txt files are not shared") && log.contains("lacks a command"))
            .then_some(())
    })
    .await;
}

// Ours: a store that is full, was emptied of scripts, cuts connections or takes rights
// away does no harm that lasts, and the log says what it said.
#[tokio::test]
async fn a_store_in_trouble_is_named_and_used_again() {
    let origin = Script::robots("").start().await;
    let store = Redis::start(&[]).await;
    let config = node(0, &quoted(&[&store]), origin.address());
    let nodes = [config.start().await];
    all_are(&nodes, "ready").await;
    let mut number = 0;
    let mut asked = async || {
        number += 1;
        let reply = get(&nodes[0], &format!("http://o.test/{number}")).await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
    };
    asked().await;
    store.cli(&["script", "flush"]).await;
    store.cli(&["client", "kill", "type", "normal"]).await;
    asked().await;
    for (trouble, over, says) in [
        (
            &["config", "set", "maxmemory", "1"][..],
            &["config", "set", "maxmemory", "0"][..],
            "OOM",
        ),
        (
            &["acl", "setuser", "default", "-evalsha"],
            &["acl", "setuser", "default", "+evalsha"],
            "its user lacks +evalsha",
        ),
    ] {
        store.cli(trouble).await;
        all_are(&nodes, "degraded").await;
        nodes[0].logged(says).await;
        asked().await;
        store.cli(over).await;
        all_are(&nodes, "ready").await;
        asked().await;
    }
}

// Ours: what operators name in place of the store.
#[tokio::test]
async fn a_server_that_is_no_store_is_named_as_what_it_is() {
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

// Issue: "TLS". A certificate that is not trusted is as good as no store.
#[tokio::test]
async fn a_store_is_reached_over_tls() {
    let origin = Script::robots("").start().await;
    let files = tempfile::tempdir().unwrap();
    let [certificate, key] = TestCa::get().pair(&["localhost"]);
    for (name, text) in [
        ("cert", &*certificate),
        ("key", &key),
        ("ca", TestCa::get().pem()),
    ] {
        std::fs::write(files.path().join(name), text).unwrap();
    }
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key, ca) = (path("cert"), path("key"), path("ca"));
    let [plain, encrypted] = free_addresses();
    let port = encrypted.port().to_string();
    let arguments = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ];
    let store = Redis::at(plain, &arguments).await;
    let url = format!("\"rediss://localhost:{port}\"");
    let trusting = node(0, &url, origin.address()).set("fleet.store_ca = \"roots.pem\"");
    let nodes = [trusting.start().await];
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    let doubtful = node(1, &url, origin.address()).start().await;
    doubtful.logged("fleet.store_ca").await;
    assert_eq!(readyz(&doubtful).await.0, 503);
    let empty = node(2, &url, origin.address()).set("fleet.store_ca = \"empty\"");
    let empty = Place::with(&empty);
    std::fs::write(empty.path("empty"), "no certificate\n").unwrap();
    let outcome = empty.run(&["serve"]).await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("fleet.store_ca"), "{outcome:?}");
    drop(store);
}
