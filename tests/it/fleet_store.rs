//! A store that somebody else writes into, that refuses commands, or that is in trouble
//! while a real fleet keeps its pace: real processes, with a real Redis.

use std::net::SocketAddr;
use std::time::Duration;

use politesse_base::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::fleet_pace::{SeenPages, paced_pages};
use crate::kit::client::get;
use crate::kit::fleet::{
    Load, SECRET, all_are, node, quoted, sharing, start_with_key, write_private,
};
use crate::kit::paced::{metric, ms};
use crate::kit::proxy::{Place, Proxy};
use crate::kit::redis::Redis;
use crate::kit::timed_origin::TimedOrigin;
use crate::kit::until;

const ROBOTS: &str = "User-agent: *\nCrawl-delay: 0.2\n";

/// Waits for a line in the log of any of the nodes.
async fn told(nodes: &[Proxy], line: &str) {
    until(line, async || {
        let is_told = nodes.iter().any(|node| node.log().contains(line));
        is_told.then_some(())
    })
    .await;
}

// Ours: whoever can write to the store cannot stop heartbeats, leases or changes of files,
// nor have a host asked sooner, by what no node can have written.
#[tokio::test]
async fn what_somebody_else_wrote_is_removed_and_told_and_the_pace_stays() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let store = Redis::start(&[]).await;
    let mut nodes = Vec::new();
    for number in 0..2 {
        let config = sharing(number, &quoted(&[&store]), origin.address());
        nodes.push(start_with_key(&config, SECRET).await);
    }
    all_are(&nodes, "ready").await;
    let load: Vec<_> = nodes.iter().map(Load::on).collect();
    let from = clock::instant();
    paced_pages(&origin, from, 3).await;
    let times = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] ";
    let fields = "until wanted started ended robots adaptive delay back_off incidents \
                      remembered freed released told lease";
    let all = format!(
        "for field in ('{fields}'):gmatch('%S+') do \
             redis.call('HSET', 'politesse:{{o.test}}', field, '\\255') end"
    );
    let no_hash = "redis.call('SET', 'politesse:{fleet}:state', 'x')";
    let no_nodes = "redis.call('SET', 'politesse:{fleet}:nodes', 'x')";
    let no_notes = "redis.call('SET', 'politesse:{fleet}:notes', 'x')";
    for (written, line) in [
        (no_hash, "\"politesse:{fleet}:state\""),
        (no_nodes, "\"politesse:{fleet}:nodes\""),
        (no_notes, "\"politesse:{fleet}:notes\""),
        (
            "redis.call('ZADD', 'politesse:{fleet}:nodes', now, 'a\\255', now, 'a b') \
                 redis.call('ZADD', 'politesse:{fleet}:nodes', now, ('x'):rep(65))",
            "xff",
        ),
        (
            "redis.call('HSET', 'politesse:{fleet}:notes', '\\255', '\\255')",
            "",
        ),
        (
            "redis.call('XADD', 'politesse:{fleet}:changes', '*', 'url', '\\255', 'token', '')",
            "",
        ),
        (
            "redis.call('HSET', 'politesse:{fleet}:state', 'generation', '\\255', 'list', 'x')",
            "generation list",
        ),
        (
            "redis.call('HSET', 'politesse:{fleet}:state', 'born', '1e300')",
            "\"born\"",
        ),
        (
            "redis.call('HSET', 'politesse:{fleet}:state', 'generation', '9999999999999999')",
            "\"generation\"",
        ),
        (&all, fields),
        (
            "redis.call('DEL', 'politesse:{o.test}') redis.call('SET', 'politesse:{o.test}', 'x')",
            "politesse:{o.test}",
        ),
    ] {
        let script = format!("{times} {written}");
        let answer = store.cli(&["eval", &script, "0"]).await;
        assert_eq!(answer.trim(), "", "{script}");
        told(&nodes, line).await;
        paced_pages(&origin, clock::instant(), 3).await;
    }
    paced_pages(&origin, from, 20).await;
    until("notes of two nodes", async || {
        let notes = store.cli(&["hkeys", "politesse:{fleet}:notes"]).await;
        (notes.lines().count() == 2).then_some(())
    })
    .await;
    for node in &nodes {
        assert_eq!(metric(node, "politesse_fleet_nodes").await, 2.0);
        let log = node.log();
        assert!(
            !log.contains("the store of the fleet does not answer: this"),
            "{log}"
        );
        assert!(!log.contains("cannot be used"), "{log}");
    }
    // One more of these has more digits than are read.
    let generation = store
        .cli(&["hget", "politesse:{fleet}:state", "generation"])
        .await;
    assert!(generation.trim().len() <= 15, "{generation}");
    // Told once, by whichever node removed it.
    let logs = nodes[0].log() + &nodes[1].log();
    assert_eq!(logs.matches("xff").count(), 1, "{logs}");

    // A name as nodes have them counts as a node that is missing, by all of them.
    let script = format!("{times} redis.call('ZADD', 'politesse:{{fleet}}:nodes', now, 'other')");
    store.cli(&["eval", &script, "0"]).await;
    for node in &nodes {
        until("a third node", async || {
            (metric(node, "politesse_fleet_nodes").await == 3.0).then_some(())
        })
        .await;
    }
    drop(load);
}

/// Starts a node whose user of the store has the rights of the book.
async fn start_with_rights(store: &Redis, origin: &TimedOrigin, config: &str) -> Proxy {
    let mut user = vec!["acl", "setuser", "fleet", "on", ">secret", "~politesse:*"];
    user.extend(rights());
    // The database has a number here.
    user.push("+select");
    assert_eq!(store.cli(&user).await.trim(), "OK");
    let database = format!("\"{}/1\"", store.url());
    let config = sharing(0, &database, origin.address())
        .set("fleet.store_auth = \"auth\"")
        .set(config);
    let place = Place::with(&config);
    write_private(&place, "fleet.key", SECRET);
    write_private(&place, "auth", "fleet:secret\n");
    place.start().await
}

/// Gives the user of [`start_with_rights`] a right, or takes it away: a rule of an ACL.
async fn set_right(store: &Redis, rule: &str) {
    store.cli(&["acl", "setuser", "fleet", rule]).await;
}

/// Returns the commands that the book has a user run.
fn rights() -> Vec<&'static str> {
    let book = include_str!("../../docs/fleet.md");
    let user = book
        .lines()
        .find_map(|line| line.strip_prefix("user politesse on "));
    let words = user.unwrap().split(' ');
    words.filter(|word| word.starts_with('+')).collect()
}

// Ours: each command that the book lists is needed, and named where it is missing.
#[tokio::test]
async fn each_right_that_is_missing_is_named() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let store = Redis::start(&[]).await;
    let nodes = [start_with_rights(&store, &origin, "fleet.lease = \"500ms\"").await];
    all_are(&nodes, "ready").await;
    let load = Load::on(&nodes[0]);
    let from = clock::instant();
    for right in rights().into_iter().chain(["~politesse:*", "+select"]) {
        let (less, again) = match right.strip_prefix('+') {
            Some(command) => (format!("-{command}"), right),
            None => ("resetkeys".to_owned(), right),
        };
        set_right(&store, &less).await;
        // Some are used seldom.
        store.cli(&["client", "kill", "type", "normal"]).await;
        let named = match right {
            "+info" => "'info' command",
            "+select" => "'select' command",
            "~politesse:*" => "its user lacks ~politesse:* (",
            right => &format!("its user lacks {right} ("),
        };
        told(&nodes, named).await;
        set_right(&store, again).await;
    }
    all_are(&nodes, "ready").await;
    // Keys of hosts begin otherwise than those of the fleet, and of files otherwise again.
    for keys in ["~politesse:{fleet}*", "~politesse:{*"] {
        let named = nodes[0].log().matches("lacks ~politesse:* (").count();
        store
            .cli(&["acl", "setuser", "fleet", "resetkeys", keys])
            .await;
        store.cli(&["client", "kill", "type", "normal"]).await;
        until("a right to keys that is missing", async || {
            let log = nodes[0].log();
            (named < log.matches("lacks ~politesse:* (").count()).then_some(())
        })
        .await;
        all_are(&nodes, "degraded").await;
        set_right(&store, "~politesse:*").await;
        all_are(&nodes, "ready").await;
    }
    // One node alone is the whole fleet: it keeps the delay throughout.
    paced_pages(&origin, from, 10).await;
    drop(load);
}

// Ours: a right that is taken away while leases are held costs no request more than the
// time until the store counts as lost, and no delay.
#[tokio::test]
async fn without_a_right_the_store_counts_as_lost_and_requests_go_on() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let store = Redis::start(&[]).await;
    let nodes = [start_with_rights(&store, &origin, "fleet.lease = \"500ms\"").await];
    all_are(&nodes, "ready").await;
    let load = Load::on(&nodes[0]);
    let from = clock::instant();
    paced_pages(&origin, from, 3).await;
    // Of leases, of heartbeats, of notes, of scripts.
    for command in ["pexpire", "hmget", "zcount", "hgetall", "evalsha"] {
        set_right(&store, &format!("-{command}")).await;
        told(&nodes, &format!("its user lacks +{command} (")).await;
        all_are(&nodes, "degraded").await;
        paced_pages(&origin, clock::instant(), 3).await;
        set_right(&store, &format!("+{command}")).await;
        all_are(&nodes, "ready").await;
    }
    paced_pages(&origin, from, 10).await;
    drop(load);
}

// Issue: `fleet.on_loss = "closed"`; the same store that answers heartbeats gives no lease.
#[tokio::test]
async fn without_a_right_a_closed_fleet_sends_nothing() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let store = Redis::start(&[]).await;
    let config = "fleet.on_loss = \"closed\"";
    let nodes = [start_with_rights(&store, &origin, config).await];
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    set_right(&store, "-pexpire").await;
    // Without a request it is missed at the next connection.
    store.cli(&["client", "kill", "type", "normal"]).await;
    all_are(&nodes, "closed").await;
    assert_eq!(get(&nodes[0], "http://o.test/2").await.status(), 503);
    set_right(&store, "+pexpire").await;
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/3").await.status(), 200);
}

// Ours: a node that started on an empty store has begun an earlier generation than others
// know. Those would never be back, if theirs did not count.
#[tokio::test]
async fn nodes_that_know_a_later_generation_than_the_store_are_back() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let store = Redis::start(&[]).await;
    let mut nodes = Vec::new();
    for (number, on_loss) in ["closed", "degrade"].into_iter().enumerate() {
        let config = node(number, &quoted(&[&store]), origin.address());
        let config = config
            .set(&format!("fleet.on_loss = {on_loss:?}"))
            .resolve("fleet", origin.address());
        nodes.push(config.start().await);
    }
    all_are(&nodes, "ready").await;
    let key = "politesse:{fleet}:state";
    let load: Vec<_> = nodes.iter().map(Load::on).collect();
    paced_pages(&origin, clock::instant(), 3).await;
    let run = "redis.call('HGET', 'politesse:{fleet}:state', 'run')";
    let start = "redis.call('HSET', 'politesse:{fleet}:state', 'run', run, 'generation', generation, \
                     'born', t[1] * 1000000 + t[2])";
    let script = |generation: &str| {
        format!(
            "local t, run, generation = redis.call('TIME'), {run}, '{generation}' \
                 redis.call('FLUSHALL') {start}"
        )
    };
    // As of a new node, beside nodes that know a few more, or the last that is read: the
    // next one is of too many digits, and the time begins instead.
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
        // Whoever empties a store has taken leases away: not every gap is kept.
        let before = origin.pages().len();
        until("pages", async || {
            (before + 3 < origin.pages().len()).then_some(())
        })
        .await;
    }
    drop(load);
    // A host of this name has another key, which ends.
    assert_eq!(get(&nodes[0], "http://fleet/1").await.status(), 200);
    assert_eq!(store.cli(&["pttl", key]).await.trim(), "-1");
}

// Ours: of several shards each has the leases of some hosts, and requests to the others
// would wait in vain.
#[tokio::test]
async fn a_cluster_is_used_if_it_is_one_shard_and_named_if_it_is_more() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let [whole, part, rest] = [
        Redis::shard().await,
        Redis::shard().await,
        Redis::shard().await,
    ];
    whole.take_slots("0", "16383").await;
    part.take_slots("0", "14745").await;
    rest.take_slots("14746", "16383").await;
    rest.join(&part).await;
    let alone = node(0, &quoted(&[&part]), origin.address()).start().await;
    told(&[alone], "one of several shards of a cluster").await;
    let nodes = [node(0, &quoted(&[&whole]), origin.address()).start().await];
    all_are(&nodes, "ready").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
    // While it runs, too.
    whole
        .cli(&["config", "set", "cluster-require-full-coverage", "no"])
        .await;
    whole.cli(&["cluster", "delslotsrange", "0", "16382"]).await;
    whole.cli(&["client", "kill", "type", "normal"]).await;
    told(&nodes, "it does not have all keys").await;
}

// Ours: a full, slow or read-only store, or one that forgets a host, costs no delay.
#[tokio::test]
async fn a_store_in_trouble_costs_no_delay() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let store = Redis::start(&["--enable-debug-command", "yes"]).await;
    let stores = quoted(&[&store]);
    let config = node(0, &stores, origin.address()).set("fleet.lease = \"500ms\"");
    let nodes = [config.start().await];
    all_are(&nodes, "ready").await;
    let load = Load::on(&nodes[0]);
    let from = clock::instant();
    paced_pages(&origin, from, 3).await;
    let copy = ["replicaof", "127.0.0.1", "1"];
    for (trouble, over, line) in [
        (
            &["config", "set", "maxmemory", "1"][..],
            &["config", "set", "maxmemory", "0"][..],
            "raise its maxmemory",
        ),
        (
            &copy,
            &["replicaof", "no", "one"],
            "it takes no orders: it is a slave",
        ),
        (
            &["debug", "sleep", "1"],
            &["ping"],
            "no answer within 125ms",
        ),
        (
            &["client", "pause", "700", "write"],
            &["client", "unpause"],
            "",
        ),
        (&["client", "kill", "type", "normal"], &["ping"], ""),
        (&["del", "politesse:{o.test}"], &["ping"], ""),
    ] {
        store.cli(trouble).await;
        told(&nodes, line).await;
        paced_pages(&origin, clock::instant(), 3).await;
        store.cli(over).await;
        all_are(&nodes, "ready").await;
        paced_pages(&origin, clock::instant(), 2).await;
    }
    paced_pages(&origin, from, 20).await;
    // Though each heartbeat met it: in two lines of its script.
    let log = nodes[0].log();
    let is_about_it = |line: &&str| line.contains("cannot be used") && line.contains("OOM");
    assert!(log.lines().filter(is_about_it).count() <= 2, "{log}");
    // It speaks as Redis does, though it has ended connections.
    assert!(!log.contains("it does not speak"), "{log}");
    drop(load);
}

// Issue: "breaker outside the request path". Ours: stores that take connections and say
// nothing keep a node no longer than one that is gone.
#[tokio::test]
async fn stores_that_are_silent_stop_no_node() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let first = Redis::start(&[]).await;
    let second = Redis::copy_of(&first).await;
    // More than a lease allows.
    let config = node(0, &quoted(&[&first, &second]), origin.address());
    let nodes = [config.set("fleet.timeout = \"1s\"").start().await];
    all_are(&nodes, "ready").await;
    let load = Load::on(&nodes[0]);
    paced_pages(&origin, clock::instant(), 3).await;
    first.signal("STOP").await;
    second.signal("STOP").await;
    all_are(&nodes, "degraded").await;
    // It ends the silence before the node was alone.
    paced_pages(&origin, clock::instant(), 1).await;
    let from = clock::instant();
    paced_pages(&origin, from, 20).await;
    let seen = SeenPages::between(&origin, from, clock::instant());
    assert!(seen.longest < ms(900), "{seen:?}");
    // Its address was right.
    let log = nodes[0].logged("no answer within 250ms").await;
    assert!(!log.contains("fleet.store has its address"), "{log}");
    first.signal("CONT").await;
    all_are(&nodes, "ready").await;
    drop(load);
}

/// Leads to a store that says by this digit which process it is, and takes a while to: so
/// does a proxy that asks another one of several servers for each node.
async fn of_another_run(store: &Redis, digit: u8, late: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, server) = (listener.local_addr().unwrap(), store.address());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(server).await else {
                continue;
            };
            let (mut questions, mut to_client) = client.into_split();
            let (mut answers, mut to_server) = server.into_split();
            tokio::spawn(async move { copy(&mut questions, &mut to_server).await });
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = answers.read(&mut bytes).await {
                    let (name, part) = (b"run_id:", &mut bytes[..count]);
                    let found = part.windows(name.len()).position(|window| window == name);
                    if let Some(at) = found {
                        part[at + name.len()] = digit;
                    }
                    sleep(late).await;
                    if to_client.write_all(part).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

// Ours: nodes that are told of different servers begin the fleet again and again, and not
// in turn, since one of them asks less often.
#[tokio::test]
async fn nodes_that_reach_several_servers_say_so() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let store = Redis::start(&[]).await;
    let mut nodes = Vec::new();
    for (number, (digit, late)) in [(b'a', ms(0)), (b'b', ms(40))].into_iter().enumerate() {
        let address = of_another_run(&store, digit, late).await;
        let config = node(number, &format!("\"redis://{address}\""), origin.address());
        nodes.push(config.start().await);
    }
    let line = "degraded: the store of the fleet begins it again and again";
    all_are(&nodes, line).await;
    for each in nodes.chunks(1) {
        told(each, "its address leads to several servers").await;
        let shown = each[0].run_admin(&["fleet", "status"]).await.stdout;
        assert!(
            shown.contains("begins the fleet again and again"),
            "{shown}"
        );
    }
    // With one of them all is well.
    nodes.pop().unwrap().stop().await;
    all_are(&nodes, "ready").await;
}

// Ours: of several servers that say they are the primary, one that takes no orders is not
// used, whatever its place in the list.
#[tokio::test]
async fn a_primary_that_refuses_writes_gives_way_to_the_next() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let first = Redis::start(&["--min-replicas-to-write", "1"]).await;
    let second = Redis::start(&[]).await;
    let config = node(0, &quoted(&[&first, &second]), origin.address());
    let nodes = [config.start().await];
    all_are(&nodes, "ready").await;
    told(&nodes, "it has lost its replicas (min-replicas-to-write)").await;
    assert_eq!(get(&nodes[0], "http://o.test/1").await.status(), 200);
}

// Ours: while another store takes orders, nothing is lost.
#[tokio::test]
async fn a_standby_store_that_is_down_is_no_warning() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let (store, mut standby) = (Redis::start(&[]).await, Redis::start(&[]).await);
    let stores = quoted(&[&standby, &store]);
    standby.kill().await;
    let nodes = [node(0, &stores, origin.address()).start().await];
    all_are(&nodes, "ready").await;
    told(&nodes, "a store of the fleet stands by and cannot be used").await;
    let log = nodes[0].log();
    let is_about_it = |line: &&str| line.contains("cannot be used");
    for line in log.lines().filter(is_about_it) {
        assert!(line.contains("\"INFO\""), "{line}");
    }
}

// Ours: an entry that is removed is a delay that is not kept.
#[tokio::test]
async fn a_store_that_removes_entries_is_named() {
    let origin = TimedOrigin::start(ROBOTS, "x", ms(2)).await;
    let line = "set its maxmemory-policy to noeviction";
    for (memory, policy, is_named) in [
        ("100mb", "allkeys-lru", true),
        ("100mb", "volatile-ttl", true),
        ("100mb", "noeviction", false),
        ("0", "allkeys-lru", false),
    ] {
        let store = Redis::start(&["--maxmemory", memory, "--maxmemory-policy", policy]).await;
        let config = node(0, &quoted(&[&store]), origin.address());
        let nodes = [config.start().await];
        all_are(&nodes, "ready").await;
        let id = |line: &str| line.split(' ').next().unwrap().to_owned();
        let before = store.cli(&["client", "list"]).await;
        // Once, though it connects again.
        store.cli(&["client", "kill", "type", "normal"]).await;
        all_are(&nodes, "ready").await;
        until("another connection", async || {
            let clients = store.cli(&["client", "list"]).await;
            let mut of_nodes = clients.lines().filter(|line| !line.contains("cmd=client"));
            of_nodes
                .any(|line| !before.contains(&id(line)))
                .then_some(())
        })
        .await;
        let log = nodes[0].logged_times(line, usize::from(is_named)).await;
        let count = log.matches(line).count();
        assert_eq!(count, usize::from(is_named), "{policy}");
    }
}

/// Calls of the script of leases, as nodes make them.
struct LeaseCalls<'a>(&'a Redis);

impl LeaseCalls<'_> {
    /// Makes a call of `node` with a lease of so many seconds, and tells of a back-off that
    /// ends so many seconds from now, and of how long ago it began. Returns the words of
    /// the answer.
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

    /// Returns the end of the back-off that a claim or a renewal tells of, in seconds from
    /// now, rounded.
    fn end(answer: &[String]) -> Option<i64> {
        assert_eq!(answer[0], "1", "{answer:?}");
        let micros: i64 = answer.get(9)?.parse().ok()?;
        Some((micros + 500_000).div_euclid(1_000_000))
    }
}

const NOTHING: [&str; 2] = ["", "-1"];

// Ours: a 429 that one node gets counts for all, also where it has lost the lease meanwhile.
#[tokio::test]
async fn a_back_off_that_is_told_without_the_lease_reaches_its_holder() {
    let store = Redis::start(&[]).await;
    let calls = LeaseCalls(&store);
    let told = |order, node, back_off| calls.call(order, node, 60, back_off);
    told("claim", "b", NOTHING).await;
    assert_eq!(told("renew", "b", NOTHING).await.len(), 2);
    assert_eq!(told("release", "a", ["3600", "1"]).await, ["2"]);
    // The holder knows of an earlier one, that is over, and takes nothing back.
    let renewed = told("renew", "b", ["-600", "700"]).await;
    assert_eq!(LeaseCalls::end(&renewed), Some(3600));
    assert_eq!(told("renew", "b", ["3600", "700"]).await.len(), 2);
    // What is earlier is no news.
    assert_eq!(told("release", "a", ["1800", "900"]).await, ["2"]);
    assert_eq!(told("renew", "b", ["3600", "700"]).await.len(), 2);
    // An operator ends it: what is from before that is not told again.
    assert_eq!(told("end_back_off", "c", NOTHING).await, ["3"]);
    assert_eq!(told("release", "a", ["3600", "5"]).await, ["2"]);
    assert_eq!(told("release", "a", ["3600", "-1"]).await, ["2"]);
    assert_eq!(LeaseCalls::end(&told("renew", "b", NOTHING).await), Some(0));
    // What has come since is.
    assert_eq!(told("release", "a", ["7200", "0"]).await, ["2"]);
    assert_eq!(
        LeaseCalls::end(&told("renew", "b", NOTHING).await),
        Some(7200)
    );
    // The holder's own, if it is from after that.
    assert_eq!(told("end_back_off", "c", NOTHING).await, ["3"]);
    assert_eq!(told("renew", "b", ["60", "0"]).await.len(), 2);
    let claimed = told("claim", "b", NOTHING).await;
    assert_eq!(LeaseCalls::end(&claimed), Some(60));
    // Nor does a new one bring back what is from before.
    assert_eq!(told("release", "a", ["90000", "30"]).await, ["2"]);
    assert_eq!(told("renew", "b", ["60", "0"]).await.len(), 2);
}

// Ours: nodes are started again one after the other with another `fleet.lease`.
#[tokio::test]
async fn a_node_with_a_shorter_lease_does_not_cut_that_of_another() {
    let store = Redis::start(&[]).await;
    let calls = LeaseCalls(&store);
    assert_eq!(calls.call("claim", "a", 60, NOTHING).await[0], "1");
    let refused = calls.call("claim", "b", 1, NOTHING).await;
    assert_eq!(refused[0], "0");
    let left: i64 = refused[1].parse().unwrap();
    assert!((50_000_000..=60_000_000).contains(&left), "{left}");
    // A time that no node can have written is not waited for.
    store.cli(&["hset", "h", "until", "9000000000000000"]).await;
    let refused = calls.call("claim", "b", 1, NOTHING).await;
    assert_eq!(refused[1], "60000000");
    store.cli(&["hset", "h", "lease", "9000000000000000"]).await;
    store.cli(&["hset", "h", "until", "9000000000000000"]).await;
    let refused = calls.call("claim", "b", 1, NOTHING).await;
    assert_eq!(refused[1], "60000000");
}
