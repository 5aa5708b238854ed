//! A store that somebody else writes into while a real fleet keeps its pace: real
//! processes, with a real Redis.

use politesse::clock;

use super::fleet_pace::paced_pages;
use crate::kit::fleet::{Load, SECRET, all_are, quoted, sharing, start_with_key};
use crate::kit::paced::{metric, ms};
use crate::kit::proxy::Proxy;
use crate::kit::redis::Redis;
use crate::kit::timed_origin::TimedOrigin;
use crate::kit::{run, until};

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
#[test]
fn what_somebody_else_wrote_is_removed_and_told_and_the_pace_stays() {
    run(async {
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
                      remembered freed";
        let all = format!(
            "for field in ('{fields}'):gmatch('%S+') do \
             redis.call('HSET', 'politesse:{{o.test}}', field, '\\255') end"
        );
        for (written, line) in [
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
                "redis.call('HSET', 'politesse:{fleet}', 'generation', '\\255', 'list', 'x')",
                "generation list",
            ),
            (
                "redis.call('HSET', 'politesse:{fleet}', 'born', '1e300')",
                "born",
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
        // Told once, by whichever node removed it.
        let logs = nodes[0].log() + &nodes[1].log();
        assert_eq!(logs.matches("xff").count(), 1, "{logs}");

        // A name as nodes have them counts as a node that is missing, by all of them.
        let script =
            format!("{times} redis.call('ZADD', 'politesse:{{fleet}}:nodes', now, 'other')");
        store.cli(&["eval", &script, "0"]).await;
        for node in &nodes {
            until("a third node", async || {
                (metric(node, "politesse_fleet_nodes").await == 3.0).then_some(())
            })
            .await;
        }
        drop(load);
    });
}
