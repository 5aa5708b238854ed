//! Load balancers in front of a fleet, configured by the files in `contrib/`, which send
//! each host to one node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use crate::kit::addresses::free_addresses;
use crate::kit::balancer::{Balancer, BalancerKind, NodeAddresses};
use crate::kit::client::Crawler;
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::ms;
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::redis::Redis;
use crate::kit::timed_origin::TimedOrigin;
use crate::kit::{run, until};

const NODES: usize = 3;
const HOSTS: usize = 60;
const CRAWLERS: usize = 200;

fn host(number: usize) -> String {
    format!("h{number}.test")
}

/// Three nodes behind a balancer. Each node resolves all hosts to its own origin, whose
/// pages contain the node's number.
struct Fleet {
    nodes: Vec<Option<Proxy>>,
    balancer: Balancer,
    origins: Vec<Origin>,
}

impl Fleet {
    async fn start(kind: BalancerKind) -> Self {
        Self::with(kind, |config, _| config).await
    }

    /// Starts a fleet whose nodes have the configuration that `further` returns for their
    /// number.
    async fn with(kind: BalancerKind, further: impl Fn(Config, usize) -> Config) -> Self {
        let addresses: [SocketAddr; 2 * NODES] = free_addresses();
        let pairs = addresses.chunks(2);
        let places: Vec<_> = pairs
            .map(|pair| NodeAddresses {
                listen: pair[0],
                admin: pair[1],
            })
            .collect();
        let (mut nodes, mut origins) = (Vec::new(), Vec::new());
        for (number, place) in places.iter().enumerate() {
            let mut script = Script::robots("");
            for path in ["/page", "/?x=/y"] {
                script = script.page(path, Page::text(&number.to_string()));
            }
            if number == 0 {
                script = script.page("/held", Page::text("late").after(&Gate::shut()));
            }
            for length in [90_000, 250_000] {
                let mut long = Page::text("long").field("x-long", &"x".repeat(length));
                for field in 0..240 {
                    long = long.field(&format!("x-{field}"), "x");
                }
                script = script.page(&format!("/{length}"), long);
            }
            let origin = script.start().await;
            let mut config = resolve("o.test", origin.address())
                .set(&format!("proxy.listen = [\"{}\"]", place.listen))
                .set(&format!("admin.listen = \"{}\"", place.admin))
                .set("proxy.proxy_protocol_from = [\"127.0.0.1\"]")
                .set("pace.origin = {}");
            for number in 0..HOSTS {
                config = config.resolve(&host(number), origin.address());
            }
            let config = further(config, number);
            nodes.push(Some(Place::with(&config).start().await));
            origins.push(origin);
        }
        let balancer = Balancer::start(kind, &places).await;
        let fleet = Self {
            nodes,
            balancer,
            origins,
        };
        for node in 0..NODES {
            fleet.balancer.sees_up(node).await;
        }
        fleet
    }

    /// Returns the node that fetches each host.
    async fn nodes_of_hosts(&self) -> BTreeMap<usize, usize> {
        let mut crawler = Crawler::to(self.balancer.address).await;
        let mut nodes = BTreeMap::new();
        for number in 0..HOSTS {
            let name = host(number);
            let reply = crawler.get(&format!("http://{name}/page"), &name).await;
            assert_eq!(reply.status(), 200, "{name}: {}", reply.text());
            nodes.insert(number, reply.text().parse().unwrap());
        }
        nodes
    }

    /// Returns a crawler whose request has reached the first node's origin, which never
    /// answers it. The other origins answer that request at once.
    async fn held_by_first_node(&self, name: &str) -> Crawler {
        let mut crawler = Crawler::to(self.balancer.address).await;
        let url = format!("http://{name}/held");
        crawler.start_get(&url, name).await;
        self.origins[0].arrival("/held").await;
        crawler
    }

    /// Returns crawlers with open connections, each of which has fetched a page of its
    /// host.
    async fn crawlers_with_connections(&self) -> Vec<Crawler> {
        let mut crawlers = Vec::new();
        for number in 0..CRAWLERS {
            let mut crawler = Crawler::to(self.balancer.address).await;
            let reply = ask_for_page(&mut crawler, &host(number % HOSTS)).await;
            assert_eq!(reply, Ok(()));
            crawlers.push(crawler);
        }
        crawlers
    }

    fn is_envoy(&self) -> bool {
        self.balancer.kind == BalancerKind::Envoy
    }

    fn node(&self, number: usize) -> &Proxy {
        self.nodes[number].as_ref().unwrap()
    }
}

// Ours: docs/balancer.md.
#[test]
fn haproxy_forwards_the_requests_for_each_host_to_one_node() {
    a_balancer_forwards_requests(BalancerKind::HaProxy);
}

#[test]
fn envoy_forwards_the_requests_for_each_host_to_one_node() {
    a_balancer_forwards_requests(BalancerKind::Envoy);
}

fn a_balancer_forwards_requests(kind: BalancerKind) {
    run(async {
        let fleet = Fleet::start(kind).await;
        assert_request_is_unchanged(&fleet).await;
        assert_each_host_has_one_node(&fleet).await;
        assert_record_has_address_of_client(&fleet).await;
        assert_large_messages_are_accepted(&fleet).await;
        assert_answers_to_odd_requests(&fleet).await;
    });
}

/// Asserts that a site cannot tell that there is a balancer.
async fn assert_request_is_unchanged(fleet: &Fleet) {
    let mut crawler = Crawler::to(fleet.balancer.address).await;
    let request = [
        "GET http://o.test/?x=/y HTTP/1.1",
        "Host: o.test",
        "User-Agent: ExampleBot/1.0",
        "X-Forwarded-For: 192.0.2.1",
    ];
    let reply = crawler.ask(&request).await;
    let node: usize = reply.text().parse().unwrap();
    let seen = fleet.origins[node].arrival("/?x=/y").await;
    let names: Vec<_> = seen.fields.iter().map(|(name, _)| name.as_str()).collect();
    // The proxy adds the last one.
    let expected = ["host", "user-agent", "x-forwarded-for", "via"];
    assert_eq!(names, expected);
    assert_eq!(seen.values("x-forwarded-for"), ["192.0.2.1"]);
}

/// Asserts that CONNECT and requests in absolute form are hashed by host.
async fn assert_each_host_has_one_node(fleet: &Fleet) {
    let nodes = fleet.nodes_of_hosts().await;
    for node in 0..NODES {
        let share = nodes.values().filter(|other| **other == node).count();
        assert!(HOSTS / NODES / 4 < share, "{nodes:?}");
    }
    assert_eq!(nodes, fleet.nodes_of_hosts().await);
    for (&number, &node) in &nodes {
        // Other spellings of the same host, and another port.
        let name = host(number);
        let spellings = [
            format!("http://{name}:80/page"),
            format!("http://{name}/?x=/y"),
            format!("HTTP://{}/page", name.to_uppercase()),
        ];
        // Envoy compares hosts case-sensitively.
        let known = if fleet.is_envoy() { 2 } else { 3 };
        for target in &spellings[..known] {
            let mut crawler = Crawler::to(fleet.balancer.address).await;
            let reply = crawler.get(target, &name).await;
            assert_eq!(reply.text(), node.to_string(), "{target}");
        }
        let mut crawler = Crawler::to(fleet.balancer.address).await;
        let authority = format!("{name}:443");
        let opened = crawler.ask_to_connect(&authority, &[]).await;
        assert_eq!(opened.status, 200);
        // In this test each node has a CA of its own.
        let node = fleet.node(node);
        let inside = crawler.secured(node, &authority, Some(&name)).await;
        assert!(inside.is_ok(), "{name}: {:?}", inside.err());
    }
}

/// Asserts that the record has the client's address, not the balancer's.
async fn assert_record_has_address_of_client(fleet: &Fleet) {
    let balancer = fleet.balancer.address;
    let crawler = Crawler::between([127, 0, 0, 9].into(), balancer).await;
    let request = [
        "GET http://o.test/page HTTP/1.1",
        "Host: o.test",
        // This field from a client must not change its address.
        "X-Forwarded-For: 192.0.2.1",
    ];
    let reply = crawler.unwrap().ask(&request).await;
    let node: usize = reply.text().parse().unwrap();
    let known = until("a row of the client", async || {
        let rows = fleet.node(node).place().rows().await;
        rows.into_iter()
            .find(|row| row["url"] == "http://o.test/page")
    });
    assert_eq!(known.await["client"], "127.0.0.9");
}

/// Asserts that requests up to 64 KiB with 256 fields pass, and responses up to 256 KiB.
async fn assert_large_messages_are_accepted(fleet: &Fleet) {
    // HAProxy's buffer is limited to 95 KiB.
    let length = if fleet.is_envoy() { 250_000 } else { 90_000 };
    let cookie = format!("Cookie: {}", "x".repeat(62_000));
    let line = format!("GET http://o.test/{length} HTTP/1.1");
    let mut request = vec![&line, "Host: o.test", &cookie];
    request.extend(["X-Field: x"; 250]);
    let mut crawler = Crawler::to(fleet.balancer.address).await;
    let reply = crawler.ask(&request).await;
    assert_eq!((reply.status(), reply.text().as_str()), (200, "long"));
    assert_eq!(reply.head.value("x-long").len(), length);
    assert_eq!(reply.head.value("x-239"), "x");
}

/// Asserts that HAProxy forwards every odd request, and that Envoy rejects only those that
/// `docs/balancer.md` lists. A node accepts all of them.
async fn assert_answers_to_odd_requests(fleet: &Fleet) {
    for (request, haproxy, envoy) in [
        ("GET http://o.test/page HTTP/1.0", 200, 200),
        ("CONNECT o.test:443 HTTP/1.0", 200, 200),
        ("GET http://o.test HTTP/1.1", 200, 200),
        ("GET http://o.test/?x=/y HTTP/1.1", 200, 200),
        // This 502 is the node's: the origin does not speak TLS.
        ("GET https://o.test/page HTTP/1.1", 502, 502),
        ("GET http://o.test?x=/y HTTP/1.1", 200, 404),
        ("GET http://o.test/\u{e4} HTTP/1.1", 200, 400),
        ("GET http://o.test/page#part HTTP/1.1", 200, 400),
        ("UNHEARD http://o.test/page HTTP/1.1", 200, 400),
    ] {
        let mut crawler = Crawler::to(fleet.balancer.address).await;
        let has_host = request.ends_with("/1.1");
        let host = if has_host { "Host: o.test\r\n" } else { "" };
        let lines = format!("{request}\r\n{host}\r\n");
        crawler.send(lines.as_bytes()).await;
        let head = crawler.head().await.expect("an answer");
        let expected = if fleet.is_envoy() { envoy } else { haproxy };
        assert_eq!(head.status, expected, "{request}");
        let is_of_node = !head.values("proxy-status").is_empty();
        assert_eq!(is_of_node, expected == 502, "{request}");
    }
}

/// Crawlers that send requests through a balancer until they are stopped, and then return
/// their failures.
struct Load {
    stop: Arc<AtomicBool>,
    crawlers: JoinSet<Vec<String>>,
}

impl Load {
    /// Starts a crawler for each list of hosts, which requests the hosts' pages in turn.
    fn on(balancer: SocketAddr, hosts_of_crawlers: [Vec<String>; 3]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut crawlers = JoinSet::new();
        for hosts in hosts_of_crawlers {
            let stop = Arc::clone(&stop);
            crawlers.spawn(async move {
                let (mut hosts, mut failures) = (hosts.iter().cycle(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    // Each connection carries a few requests.
                    let hosts: Vec<_> = hosts.by_ref().take(5).collect();
                    failures.extend(crawl(balancer, &hosts).await.err());
                }
                failures
            });
        }
        Self { stop, crawlers }
    }

    /// Stops the crawlers, and returns all failures.
    async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.crawlers.join_all().await.concat()
    }
}

async fn crawl(balancer: SocketAddr, hosts: &[&String]) -> Result<(), String> {
    let mut crawler = Crawler::to(balancer).await;
    for name in hosts {
        ask_for_page(&mut crawler, name).await?;
    }
    Ok(())
}

async fn ask_for_page(crawler: &mut Crawler, name: &str) -> Result<(), String> {
    let request = format!("GET http://{name}/page HTTP/1.1\r\nHost: {name}\r\n\r\n");
    let sent = crawler.try_send(request.as_bytes()).await;
    sent.map_err(|error| format!("{name}: {error}"))?;
    let reply = crawler.try_reply_to("GET").await;
    let reply = reply.ok_or(format!("{name}: no answer"))?;
    if reply.status() != 200 {
        return Err(format!("{name}: {} {}", reply.status(), reply.text()));
    }
    Ok(())
}

// Ours: docs/running-a-fleet.md. Drained nodes hand on their leases.
#[test]
fn nodes_behind_haproxy_restart_without_a_failed_request() {
    nodes_restart_without_a_failed_request(BalancerKind::HaProxy);
}

#[test]
fn nodes_behind_envoy_restart_without_a_failed_request() {
    nodes_restart_without_a_failed_request(BalancerKind::Envoy);
}

fn nodes_restart_without_a_failed_request(kind: BalancerKind) {
    run(async {
        let origin = TimedOrigin::start("User-agent: *\nCrawl-delay: 0.2\n", "x", ms(2)).await;
        let store = Redis::start(&[]).await;
        let mut fleet = Fleet::with(kind, |config, number| {
            config
                .resolve("paced.test", origin.address())
                .set(&format!("fleet.store = [{:?}]", store.url()))
                .set(&format!("fleet.node = \"node-{number}\""))
                // Longer than the longest pause allowed below, so no host may wait for a
                // lease to expire.
                .set("fleet.lease = \"4s\"")
                .set("proxy.drain_time = \"1s\"")
        })
        .await;
        let paced = vec!["paced.test".to_owned()];
        let others = (0..HOSTS).map(host).collect();
        let load = Load::on(fleet.balancer.address, [paced.clone(), paced, others]);
        until("pages", async || (5 < origin.pages().len()).then_some(())).await;
        for node in 0..NODES {
            let place = fleet.nodes[node].take().unwrap().stop().await;
            fleet.balancer.sees_down(node).await;
            fleet.nodes[node] = Some(place.start().await);
            fleet.balancer.sees_up(node).await;
        }
        assert_eq!(load.stop().await, [""; 0]);
        let mut pauses = origin.pauses();
        pauses.sort();
        assert!(ms(200) <= pauses[0], "{pauses:?}");
        // A host returns to its node within a quarter of a lease; the rest is slack.
        let longest = *pauses.last().unwrap();
        assert!(longest < ms(3000), "{longest:?}");
    });
}

// Ours: the balancer notices a dead node, and sends its hosts to the others.
#[test]
fn haproxy_survives_a_killed_node_without_a_failed_request() {
    a_killed_node_loses_only_requests_in_flight(BalancerKind::HaProxy);
}

#[test]
fn envoy_loses_only_the_requests_in_flight_at_a_killed_node() {
    a_killed_node_loses_only_requests_in_flight(BalancerKind::Envoy);
}

fn a_killed_node_loses_only_requests_in_flight(kind: BalancerKind) {
    run(async {
        let mut fleet = Fleet::start(kind).await;
        let nodes = fleet.nodes_of_hosts().await;
        let (first, _) = nodes.iter().find(|(_, node)| **node == 0).unwrap();
        let mut under_way = fleet.held_by_first_node(&host(*first)).await;
        let crawlers = fleet.crawlers_with_connections().await;
        let place = fleet.nodes[0].take().unwrap().kill().await;
        // Many requests at the same time, before a health check has failed.
        let mut requests = JoinSet::new();
        for (number, mut crawler) in crawlers.into_iter().enumerate() {
            requests.spawn(async move { ask_for_page(&mut crawler, &host(number % HOSTS)).await });
        }
        let replies = requests.join_all().await.into_iter();
        let failures: Vec<_> = replies.filter_map(Result::err).collect();
        assert_eq!(failures, [""; 0]);
        // Only HAProxy retries a request that a node had already received.
        let expected = if fleet.is_envoy() { 503 } else { 200 };
        assert_eq!(under_way.reply_to("GET").await.status(), expected);
        let hosts = fleet.nodes_of_hosts().await;
        assert!(hosts.values().all(|node| *node != 0), "{hosts:?}");
        let others = hosts.iter().filter(|(host, _)| nodes[host] != 0);
        let moved = others.filter(|(host, node)| nodes[host] != **node).count();
        // Envoy gives all slots of its ring to the remaining nodes, so some other hosts
        // move too.
        let most = if fleet.is_envoy() { HOSTS / 4 } else { 0 };
        assert!(moved <= most, "{nodes:?}, {hosts:?}");
        fleet.balancer.sees_down(0).await;
        fleet.nodes[0] = Some(place.start().await);
        fleet.balancer.sees_up(0).await;
        assert_eq!(nodes, fleet.nodes_of_hosts().await);
    });
}
