//! Faults of the store: foreign entries, missing rights, and failures. A fleet of real
//! processes with a real Redis keeps its pace through all of them.

use std::time::Duration;

use politesse_base::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::fleet_pace::{SeenPages, await_paced_pages};
use crate::kit::client::get;
use crate::kit::fleet::{Load, SECRET, all_are, node, quoted, ready_nodes, sharing, write_private};
use crate::kit::paced::{metric, metric_is, ms};
use crate::kit::proxy::{Place, Proxy};
use crate::kit::raw_origin::find;
use crate::kit::redis::Redis;
use crate::kit::server::Server;
use crate::kit::timed_origin::TimedOrigin;
use crate::kit::{assert_contains, until};

const ROBOTS: &str = "User-agent: *\nCrawl-delay: 0.2\n";

/// Waits until the log of one of the nodes contains `line`.
async fn await_log(nodes: &[Proxy], line: &str) {
    until(line, async || {
        let is_told = nodes.iter().any(|node| node.log().contains(line));
        is_told.then_some(())
    })
    .await;
}

/// Starts a host with a crawl delay.
async fn paced_host() -> TimedOrigin {
    TimedOrigin::start(ROBOTS, "x", ms(2)).await
}

// Ours: another program may write to the store.
#[tokio::test]
async fn invalid_store_entries_are_removed_and_logged_and_the_pace_is_kept() {
    let origin = paced_host().await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    let config = |number| sharing(number, &stores, origin.address());
    let nodes = ready_nodes((0..2).map(config)).await;
    let load: Vec<_> = nodes.iter().map(Load::on).collect();
    let from = clock::instant();
    await_paced_pages(&origin, from, 3).await;
    let names = "local call, key, host = redis.call, 'politesse:{fleet}:', 'politesse:{o.test}' \
                 local state, nodes, notes = key .. 'state', key .. 'nodes', key .. 'notes' \
                 local t = call('TIME') local now = t[1] * 1000000 + t[2]";
    let fields = "until wanted started ended robots adaptive delay back_off incidents \
                  remembered freed released told lease";
    let bad_fields = format!(
        "for field in ('{fields}'):gmatch('%S+') do call('HSET', host, field, '\\255') end"
    );
    let bad_names = "call('ZADD', nodes, now, 'a\\255', now, 'a b', now, ('x'):rep(65))";
    let bad_change = "call('XADD', key .. 'changes', '*', 'url', '\\255', 'token', '')";
    let bad_texts = "call('HSET', state, 'generation', '\\255', 'list', 'x')";
    let bad_number = "call('HSET', state, 'generation', '9999999999999999')";
    for (written, line) in [
        ("call('SET', state, 'x')", "\"politesse:{fleet}:state\""),
        ("call('SET', nodes, 'x')", "\"politesse:{fleet}:nodes\""),
        ("call('SET', notes, 'x')", "\"politesse:{fleet}:notes\""),
        (bad_names, "xff"),
        ("call('HSET', notes, '\\255', '\\255')", ""),
        (bad_change, ""),
        (bad_texts, "generation list"),
        ("call('HSET', state, 'born', '1e300')", "\"born\""),
        (bad_number, "\"generation\""),
        (&bad_fields, fields),
        (
            "call('DEL', host) call('SET', host, 'x')",
            "politesse:{o.test}",
        ),
    ] {
        let script = format!("{names} {written}");
        let answer = store.cli(&["eval", &script, "0"]).await;
        assert_eq!(answer.trim(), "", "{script}");
        await_log(&nodes, line).await;
        await_paced_pages(&origin, clock::instant(), 3).await;
    }
    await_paced_pages(&origin, from, 20).await;
    until("notes of two nodes", async || {
        let notes = store.cli(&["hkeys", "politesse:{fleet}:notes"]).await;
        (notes.lines().count() == 2).then_some(())
    })
    .await;
    for node in &nodes {
        assert_eq!(metric(node, "politesse_fleet_nodes").await, 2.0);
        let log = node.log();
        for line in [
            "the store of the fleet does not answer: this",
            "cannot be used",
        ] {
            assert!(!log.contains(line), "{log}");
        }
    }
    // Values with more digits are not read.
    let read = ["hget", "politesse:{fleet}:state", "generation"];
    let generation = store.cli(&read).await;
    assert!(generation.trim().len() <= 15, "{generation}");
    // Logged once, by the node that removed it.
    let logs = nodes[0].log() + &nodes[1].log();
    assert_eq!(logs.matches("xff").count(), 1, "{logs}");

    // A valid name counts as a missing node at all nodes.
    let script = format!("{names} call('ZADD', nodes, now, 'other')");
    store.cli(&["eval", &script, "0"]).await;
    for node in &nodes {
        metric_is(node, "politesse_fleet_nodes", 3.0).await;
    }
    drop(load);
}

/// Starts a host, a store, and a node whose store user has the rights listed in the book.
/// Waits until the node is ready.
async fn start_with_rights(line: &str) -> (TimedOrigin, Redis, [Proxy; 1]) {
    let origin = paced_host().await;
    let store = Redis::start(&[]).await;
    let mut user = vec!["acl", "setuser", "fleet", "on", ">secret"];
    user.extend(documented_rights());
    // The store URL has a database number, which needs SELECT.
    user.push("+select");
    assert_eq!(store.cli(&user).await.trim(), "OK");
    let database = format!("\"{}/1\"", store.url());
    let config = sharing(0, &database, origin.address())
        .set("fleet.store_auth = \"auth\"")
        .set(line);
    let place = Place::with(&config);
    write_private(&place, "fleet.key", SECRET);
    write_private(&place, "auth", "fleet:secret\n");
    let nodes = [place.start().await];
    all_are(&nodes, "ready").await;
    (origin, store, nodes)
}

/// Applies an ACL rule to the user of [`start_with_rights`].
async fn set_right(store: &Redis, rule: &str) {
    store.cli(&["acl", "setuser", "fleet", rule]).await;
}

/// Returns the rights that the book lists for the store user.
pub(crate) fn documented_rights() -> Vec<&'static str> {
    let mut lines = include_str!("../../docs/fleet.md").lines();
    let rights = lines.find_map(|line| line.strip_prefix("user politesse on >PASSWORD "));
    rights.unwrap().split(' ').collect()
}

// Ours: each right that the book lists is needed; without it the delay is kept.
#[tokio::test]
async fn each_missing_right_is_named_and_requests_continue() {
    let (origin, store, nodes) = start_with_rights("fleet.lease = \"500ms\"").await;
    let load = Load::on(&nodes[0]);
    let from = clock::instant();
    await_paced_pages(&origin, from, 3).await;
    // Commands used by leases, heartbeats, notes and scripts.
    let needed = ["+pexpire", "+hmget", "+zcount", "+hgetall", "+evalsha"];
    for right in documented_rights().into_iter().chain(["+select"]) {
        let command = right.strip_prefix('+');
        let less = command.map_or("resetkeys".to_owned(), |command| format!("-{command}"));
        set_right(&store, &less).await;
        if !needed.contains(&right) {
            // Other commands are used rarely, such as on a new connection.
            store.cli(&["client", "kill", "type", "normal"]).await;
        }
        let named = match right {
            "+info" => "'info' command",
            "+select" => "'select' command",
            "~politesse:*" => "its user lacks ~politesse:* (",
            right => &format!("its user lacks {right} ("),
        };
        await_log(&nodes, named).await;
        if needed.contains(&right) {
            all_are(&nodes, "degraded").await;
            await_paced_pages(&origin, clock::instant(), 3).await;
        }
        set_right(&store, right).await;
        all_are(&nodes, "ready").await;
    }
    // Keys of the fleet, of hosts and of files have different prefixes.
    let told = "lacks ~politesse:* (";
    for keys in ["~politesse:{fleet}*", "~politesse:{*"] {
        let named = nodes[0].log().matches(told).count();
        set_right(&store, "resetkeys").await;
        set_right(&store, keys).await;
        store.cli(&["client", "kill", "type", "normal"]).await;
        nodes[0].logged_times(told, named + 1).await;
        all_are(&nodes, "degraded").await;
        set_right(&store, "~politesse:*").await;
        all_are(&nodes, "ready").await;
    }
    // A single node keeps the delay even without the store.
    await_paced_pages(&origin, from, 10).await;
    drop(load);
}

// Ours: the store answers heartbeats, but cannot grant leases.
#[tokio::test]
async fn a_closed_fleet_with_a_missing_right_sends_nothing() {
    let (_origin, store, nodes) = start_with_rights("fleet.on_loss = \"closed\"").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    set_right(&store, "-pexpire").await;
    // Without requests, a missing right is noticed only on a new connection.
    store.cli(&["client", "kill", "type", "normal"]).await;
    all_are(&nodes, "closed").await;
    assert_eq!(get(&nodes[0], "http://o.test/2").await.status(), 503);
    set_right(&store, "+pexpire").await;
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/3").await.status(), 200);
}

// Ours: a node that starts on an emptied store begins a low generation.
#[tokio::test]
async fn nodes_rejoin_a_store_with_an_earlier_generation() {
    let origin = paced_host().await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    let nodes = ["closed", "degrade"].into_iter().enumerate();
    let nodes = nodes.map(|(number, on_loss)| {
        node(number, &stores, origin.address())
            .set(&format!("fleet.on_loss = {on_loss:?}"))
            .resolve("fleet", origin.address())
    });
    let nodes = ready_nodes(nodes).await;
    let key = "politesse:{fleet}:state";
    let load: Vec<_> = nodes.iter().map(Load::on).collect();
    await_paced_pages(&origin, clock::instant(), 3).await;
    let script = |generation: &str| {
        format!(
            "local t, key = redis.call('TIME'), '{key}' local run = redis.call('HGET', key, 'run') \
             redis.call('FLUSHALL') redis.call('HSET', key, 'run', run, \
             'generation', '{generation}', 'born', t[1] * 1000000 + t[2])"
        )
    };
    // The nodes know generation 9, or the highest one that is read. The next number would
    // have too many digits, so a generation from the clock replaces it.
    for (known, digits) in [("9", 2), ("999999999999999", 13)] {
        store.cli(&["eval", &script(known), "0"]).await;
        until("the generation at both nodes", async || {
            let nodes = store.cli(&["zcard", "politesse:{fleet}:nodes"]).await;
            (nodes.trim() == "2").then_some(())
        })
        .await;
        store.cli(&["eval", &script("1"), "0"]).await;
        until("a later generation", async || {
            let generation = store.cli(&["hget", key, "generation"]).await;
            (generation.trim().len() == digits).then_some(())
        })
        .await;
        all_are(&nodes, "ready").await;
        // Emptying the store removes leases, so gaps are not checked here.
        let before = origin.pages().len();
        until("pages", async || {
            (before + 3 < origin.pages().len()).then_some(())
        })
        .await;
    }
    drop(load);
    // The host named "fleet" has its own key, which expires; the fleet's key does not.
    assert_eq!(get(&nodes[0], "http://fleet/1").await.status(), 200);
    assert_eq!(store.cli(&["pttl", key]).await.trim(), "-1");
}

// Ours: one of several shards holds the leases of some hosts only.
#[tokio::test]
async fn a_cluster_is_used_only_if_it_has_a_single_shard() {
    let origin = paced_host().await;
    let (whole, part) = (Redis::shard().await, Redis::shard().await);
    let rest = Redis::shard().await;
    whole.take_slots("0", "16383").await;
    part.take_slots("0", "14745").await;
    rest.take_slots("14746", "16383").await;
    rest.join(&part).await;
    let alone = node(0, &quoted(&[&part]), origin.address()).start().await;
    await_log(&[alone], "one of several shards of a cluster").await;
    let nodes = ready_nodes([node(0, &quoted(&[&whole]), origin.address())]).await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    // Losing slots at run time is noticed, too.
    let partial = ["config", "set", "cluster-require-full-coverage", "no"];
    whole.cli(&partial).await;
    whole.cli(&["cluster", "delslotsrange", "0", "16382"]).await;
    whole.cli(&["client", "kill", "type", "normal"]).await;
    await_log(&nodes, "it does not have all keys").await;
}

// Ours: after each trouble the store is used again.
#[tokio::test]
async fn the_crawl_delay_is_kept_while_the_store_is_in_trouble() {
    let origin = paced_host().await;
    let store = Redis::start(&["--enable-debug-command", "yes"]).await;
    let config = node(0, &quoted(&[&store]), origin.address());
    let nodes = ready_nodes([config.set("fleet.lease = \"500ms\"")]).await;
    let load = Load::on(&nodes[0]);
    let from = clock::instant();
    await_paced_pages(&origin, from, 3).await;
    let order = async |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        store.cli(&words).await
    };
    let (full, empty) = ("config set maxmemory 1", "config set maxmemory 0");
    let (copy, leader) = ("replicaof 127.0.0.1 1", "replicaof no one");
    for (trouble, over, line) in [
        (full, empty, "raise its maxmemory"),
        (copy, leader, "it takes no orders: it is a slave"),
        ("debug sleep 1", "ping", "no answer within 125ms"),
        ("client pause 700 write", "client unpause", ""),
        ("client kill type normal", "ping", ""),
        ("script flush", "ping", ""),
        ("del politesse:{o.test}", "ping", ""),
    ] {
        order(trouble).await;
        await_log(&nodes, line).await;
        await_paced_pages(&origin, clock::instant(), 3).await;
        order(over).await;
        all_are(&nodes, "ready").await;
        await_paced_pages(&origin, clock::instant(), 2).await;
    }
    await_paced_pages(&origin, from, 20).await;
    // One or two lines, although every heartbeat failed.
    let log = nodes[0].log();
    let is_about_it = |line: &&str| line.contains("cannot be used") && line.contains("OOM");
    let lines = log.lines().filter(is_about_it).count();
    assert!((1..=2).contains(&lines), "{log}");
    // Closed connections do not make the log say that the server is no Redis.
    assert!(!log.contains("it does not speak"), "{log}");
    drop(load);
}

// Ours: they delay a node no longer than stores that are down.
#[tokio::test]
async fn silent_stores_do_not_stop_a_node() {
    let origin = paced_host().await;
    let first = Redis::start(&[]).await;
    let second = Redis::copy_of(&first).await;
    // Longer than the lease allows, so it is capped.
    let config = node(0, &quoted(&[&first, &second]), origin.address());
    let nodes = ready_nodes([config.set("fleet.timeout = \"1s\"")]).await;
    let load = Load::on(&nodes[0]);
    await_paced_pages(&origin, clock::instant(), 3).await;
    first.signal("STOP").await;
    second.signal("STOP").await;
    all_are(&nodes, "degraded").await;
    // The first page ends the gap that began before the node acted alone.
    await_paced_pages(&origin, clock::instant(), 1).await;
    let from = clock::instant();
    await_paced_pages(&origin, from, 20).await;
    let seen = SeenPages::between(&origin, from, clock::instant());
    assert!(seen.longest < ms(900), "{seen:?}");
    // The log does not blame the address, which is right.
    let log = nodes[0].logged("no answer within 250ms").await;
    assert!(!log.contains("fleet.store has its address"), "{log}");
    first.signal("CONT").await;
    all_are(&nodes, "ready").await;
    drop(load);
}

/// Forwards to `store`, replaces the first digit of its `run_id`, and delays each answer
/// by `late`. A load balancer in front of several servers looks like this to nodes.
async fn proxy_with_run_id(store: &Redis, digit: u8, late: Duration) -> Server {
    let server = store.address();
    Server::start(move |client| async move {
        let server = TcpStream::connect(server).await.unwrap();
        let (mut questions, mut to_client) = client.into_split();
        let (mut answers, mut to_server) = server.into_split();
        tokio::spawn(async move { copy(&mut questions, &mut to_server).await });
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = answers.read(&mut bytes).await {
            let part = &mut bytes[..count];
            if let Some(at) = find(part, b"run_id:") {
                part[at + b"run_id:".len()] = digit;
            }
            // Scripted load: a slow store.
            sleep(late).await;
            if to_client.write_all(part).await.is_err() {
                break;
            }
        }
    })
    .await
}

// Ours: nodes that reach different servers each restart the fleet repeatedly.
#[tokio::test]
async fn an_address_that_leads_to_several_servers_is_reported() {
    let origin = paced_host().await;
    let store = Redis::start(&[]).await;
    let servers = [
        proxy_with_run_id(&store, b'a', ms(0)).await,
        proxy_with_run_id(&store, b'b', ms(40)).await,
    ];
    let mut nodes = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        let url = format!("\"redis://{}\"", server.address());
        nodes.push(node(number, &url, origin.address()).start().await);
    }
    let line = "degraded: the store of the fleet begins it again and again";
    all_are(&nodes, line).await;
    for node in &nodes {
        node.logged("its address leads to several servers").await;
        let shown = node.run_admin(&["fleet", "status"]).await.stdout;
        assert_contains(&shown, "begins the fleet again and again");
    }
    // A single node reaches a single server and is ready.
    nodes.pop().unwrap().stop().await;
    all_are(&nodes, "ready").await;
}

// Ours: even if it is first in the list.
#[tokio::test]
async fn a_primary_that_refuses_writes_is_passed_over() {
    let origin = paced_host().await;
    let first = Redis::start(&["--min-replicas-to-write", "1"]).await;
    let second = Redis::start(&[]).await;
    let nodes = ready_nodes([node(0, &quoted(&[&first, &second]), origin.address())]).await;
    await_log(&nodes, "it has lost its replicas (min-replicas-to-write)").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
}

// Ours: while another store accepts writes, a standby that is down loses nothing.
#[tokio::test]
async fn a_standby_store_that_is_down_is_logged_as_info() {
    let origin = paced_host().await;
    let (store, mut standby) = (Redis::start(&[]).await, Redis::start(&[]).await);
    let stores = quoted(&[&standby, &store]);
    standby.kill().await;
    let nodes = ready_nodes([node(0, &stores, origin.address())]).await;
    await_log(&nodes, "a store of the fleet stands by and cannot be used").await;
    let log = nodes[0].log();
    for line in log.lines().filter(|line| line.contains("cannot be used")) {
        assert_contains(line, "\"INFO\"");
    }
}

// Ours: if Redis evicts an entry, the delay of its host is lost.
#[tokio::test]
async fn a_store_that_may_evict_entries_is_logged_once() {
    let origin = paced_host().await;
    let line = "set its maxmemory-policy to noeviction";
    for (memory, policy, is_named) in [
        ("100mb", "allkeys-lru", true),
        ("100mb", "volatile-ttl", true),
        ("100mb", "noeviction", false),
        ("0", "allkeys-lru", false),
    ] {
        let store = Redis::start(&["--maxmemory", memory, "--maxmemory-policy", policy]).await;
        let nodes = ready_nodes([node(0, &quoted(&[&store]), origin.address())]).await;
        let id = |line: &str| line.split(' ').next().unwrap().to_owned();
        let before = store.cli(&["client", "list"]).await;
        // Logged once, even after a reconnect.
        store.cli(&["client", "kill", "type", "normal"]).await;
        all_are(&nodes, "ready").await;
        until("another connection", async || {
            let clients = store.cli(&["client", "list"]).await;
            let mut of_nodes = clients.lines().filter(|line| !line.contains("cmd=client"));
            let is_new = |line| !before.contains(&id(line));
            of_nodes.any(is_new).then_some(())
        })
        .await;
        let wanted = usize::from(is_named);
        let log = nodes[0].logged_times(line, wanted).await;
        assert_eq!(log.matches(line).count(), wanted, "{memory} {policy}");
    }
}

/// Calls the lease script as nodes do.
struct LeaseCalls<'a>(&'a Redis);

impl LeaseCalls<'_> {
    /// Runs `order` as `node` with a lease of `lease` seconds. `back_off` is the end of a
    /// reported back-off in seconds from now, and its start in seconds ago. Returns the
    /// fields of the answer.
    async fn call(&self, order: &str, node: &str, lease: i64, back_off: [&str; 2]) -> Vec<String> {
        let us = |seconds: &str| match seconds {
            "" | "-1" => seconds.to_owned(),
            seconds => format!("{seconds}000000"),
        };
        let [end, since] = back_off.map(us);
        let lease = us(&lease.to_string());
        let script = include_str!("../../crates/politesse-fleet/src/lease.lua");
        let head = ["eval", script, "1", "h", order, node, "1", "1", "0", &lease];
        let told = ["-1", "-1", "-1", "0", "0", &end, "0", "600000000", &since];
        let answer = self.0.cli(&[&head[..], &told].concat()).await;
        answer.lines().map(str::to_owned).collect()
    }

    /// Returns the end of the back-off in the answer to a claim or renewal, in seconds from
    /// now, rounded.
    fn end(answer: &[String]) -> Option<i64> {
        assert_eq!(answer[0], "1", "{answer:?}");
        let micros: i64 = answer.get(9)?.parse().ok()?;
        Some((micros + 500_000).div_euclid(1_000_000))
    }
}

/// Reports no back-off.
const NOTHING: [&str; 2] = ["", "-1"];

// Ours: a 429 that one node gets applies to all, even if that node has lost the lease.
#[tokio::test]
async fn a_back_off_reported_without_the_lease_reaches_the_holder() {
    let store = Redis::start(&[]).await;
    let calls = LeaseCalls(&store);
    let told = |order, node, back_off| calls.call(order, node, 60, back_off);
    told("claim", "b", NOTHING).await;
    assert_eq!(told("renew", "b", NOTHING).await.len(), 2);
    assert_eq!(told("release", "a", ["3600", "1"]).await, ["2"]);
    // The holder reports an earlier back-off that is over; the later one stays.
    let renewed = told("renew", "b", ["-600", "700"]).await;
    assert_eq!(LeaseCalls::end(&renewed), Some(3600));
    assert_eq!(told("renew", "b", ["3600", "700"]).await.len(), 2);
    // A back-off that ends earlier changes nothing.
    assert_eq!(told("release", "a", ["1800", "900"]).await, ["2"]);
    assert_eq!(told("renew", "b", ["3600", "700"]).await.len(), 2);
    // An operator ends it: back-offs from before that are ignored.
    assert_eq!(told("end_back_off", "c", NOTHING).await, ["3"]);
    assert_eq!(told("release", "a", ["3600", "5"]).await, ["2"]);
    assert_eq!(told("release", "a", ["3600", "-1"]).await, ["2"]);
    assert_eq!(LeaseCalls::end(&told("renew", "b", NOTHING).await), Some(0));
    // A back-off that began afterwards counts.
    assert_eq!(told("release", "a", ["7200", "0"]).await, ["2"]);
    let renewed = told("renew", "b", NOTHING).await;
    assert_eq!(LeaseCalls::end(&renewed), Some(7200));
    // So does the holder's own, if it began after the operator's order.
    assert_eq!(told("end_back_off", "c", NOTHING).await, ["3"]);
    assert_eq!(told("renew", "b", ["60", "0"]).await.len(), 2);
    let claimed = told("claim", "b", NOTHING).await;
    assert_eq!(LeaseCalls::end(&claimed), Some(60));
    // A new back-off does not revive older ones.
    assert_eq!(told("release", "a", ["90000", "30"]).await, ["2"]);
    assert_eq!(told("renew", "b", ["60", "0"]).await.len(), 2);
}

// Ours: during a rolling restart with another `fleet.lease`, nodes have different leases.
#[tokio::test]
async fn a_shorter_lease_time_does_not_shorten_the_lease_of_another_node() {
    let store = Redis::start(&[]).await;
    let calls = LeaseCalls(&store);
    assert_eq!(calls.call("claim", "a", 60, NOTHING).await[0], "1");
    let refused = calls.call("claim", "b", 1, NOTHING).await;
    assert_eq!(refused[0], "0");
    let left: i64 = refused[1].parse().unwrap();
    assert!((50_000_000..=60_000_000).contains(&left), "{left}");
    // A lease end that no node can have written is capped.
    let late = "9000000000000000";
    for fields in [&["until", late][..], &["lease", late, "until", late]] {
        store.cli(&[&["hset", "h"], fields].concat()).await;
        let refused = calls.call("claim", "b", 1, NOTHING).await;
        assert_eq!(refused[1], "60000000", "{fields:?}");
    }
}
