//! Cost of a request to the nodes of a fleet and to their store. Guards that each node
//! adds the capacity of a single proxy, and that the nodes rarely call the store.
//!
//! `TOKIO_WORKER_THREADS=1 cargo bench --bench fleet`, with redis-server installed.
//! Each node is a process; the clients and the origin run in this one. They all share
//! the processors of one machine, so elapsed time does not show how fast several
//! machines would be. The bench reports CPU time instead: a node that spends 100 µs of
//! CPU time on a request can serve 10,000 requests a second on a processor of its own.

#![expect(clippy::print_stdout, reason = "its output is its result")]

#[path = "dashboard/proxy.rs"]
mod proxy;

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use proxy::Proxy;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Hosts of the crawl. With [`Way::ByHost`], a client requests the hosts of one node
/// only.
const HOSTS: usize = 256;
/// Clients of each node, each with one open connection to every node.
const CLIENTS: usize = 16;
/// Requests of each client, after a warm-up.
const REQUESTS: usize = 1500;

/// Choice of the node that receives a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The node of the request's host, as a load balancer in front chooses it.
    ByHost,
    /// Each node in turn.
    InTurn,
}

/// Fleet to measure.
#[derive(Clone, Copy)]
struct Row {
    nodes: usize,
    /// Whether the nodes share a store. A node without one is a single proxy.
    has_store: bool,
    way: Way,
}

const ALONE: Row = Row {
    nodes: 1,
    has_store: false,
    way: Way::ByHost,
};

const FLEET: Row = Row {
    has_store: true,
    ..ALONE
};

const ROWS: [Row; 6] = [
    ALONE,
    FLEET,
    Row { nodes: 2, ..FLEET },
    Row { nodes: 4, ..FLEET },
    Row { nodes: 8, ..FLEET },
    Row {
        nodes: 4,
        way: Way::InTurn,
        ..FLEET
    },
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let origin = serve_origin().await?;
    println!("| nodes | requests come | CPU of nodes | of the store | calls |");
    println!("|---|---|---|---|---|");
    for row in ROWS {
        let cost = measure(row, origin).await?;
        let way = match (row.has_store, row.way) {
            (false, _) => "no fleet",
            (true, Way::ByHost) => "by host",
            (true, Way::InTurn) => "in turn",
        };
        println!(
            "| {} | {way} | {:.1} µs | {:.2} µs | {:.4} |",
            row.nodes, cost.nodes_us, cost.store_us, cost.calls
        );
    }
    Ok(())
}

/// Cost of one request.
struct RequestCost {
    nodes_us: f64,
    store_us: f64,
    /// Calls to the store.
    calls: f64,
}

async fn measure(row: Row, origin: SocketAddr) -> anyhow::Result<RequestCost> {
    let store = Store::start()?;
    let nodes = (0..row.nodes)
        .map(|number| Node::start(number, row, &store, origin))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let addresses: Vec<_> = nodes.iter().map(|node| node.proxy.address).collect();
    crawl(row, &addresses, HOSTS).await?;
    let before = Sum::read(&nodes, &store)?;
    crawl(row, &addresses, REQUESTS).await?;
    let after = Sum::read(&nodes, &store)?;
    let requests = (row.nodes * CLIENTS * REQUESTS) as f64;
    Ok(RequestCost {
        nodes_us: (after.nodes_cpu - before.nodes_cpu) * 1e6 / requests,
        store_us: (after.store_cpu - before.store_cpu) * 1e6 / requests,
        calls: (after.calls - before.calls) / requests,
    })
}

/// CPU time and calls since the processes started.
struct Sum {
    nodes_cpu: f64,
    store_cpu: f64,
    calls: f64,
}

impl Sum {
    fn read(nodes: &[Node], store: &Store) -> anyhow::Result<Self> {
        let facts = store.facts()?;
        let fact = |name: &str| -> anyhow::Result<f64> {
            let line = facts.lines().find_map(|line| line.strip_prefix(name));
            let value = line.context("a fact of the store")?;
            Ok(value.split(',').next().unwrap_or(value).parse()?)
        };
        let mut nodes_cpu = 0.0;
        for node in nodes {
            nodes_cpu += node.proxy.cpu()?;
        }
        Ok(Self {
            nodes_cpu,
            store_cpu: fact("used_cpu_user:")? + fact("used_cpu_sys:")?,
            // Redis lists no calls before the first one.
            calls: fact("cmdstat_evalsha:calls=").unwrap_or_default(),
        })
    }
}

/// Redis server that keeps nothing on disk. Killed on drop.
struct Store {
    process: Child,
    address: SocketAddr,
}

impl Store {
    fn start() -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server; on Debian: apt-get install redis-server")?;
        let store = Self { process, address };
        for _ in 0..100 {
            if store.facts().is_ok() {
                return Ok(store);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the store does not start")
    }

    /// Returns the store's own statistics.
    fn facts(&self) -> anyhow::Result<String> {
        let mut stream = std::net::TcpStream::connect(self.address)?;
        stream.write_all(b"INFO everything\r\nQUIT\r\n")?;
        let mut facts = String::new();
        stream.read_to_string(&mut facts)?;
        Ok(facts)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Node and its folder.
struct Node {
    proxy: Proxy,
    _folder: TempDir,
}

impl Node {
    fn start(number: usize, row: Row, store: &Store, origin: SocketAddr) -> anyhow::Result<Self> {
        let mut builder = tempfile::Builder::new();
        // The record refuses a folder that other users may write to.
        builder.permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir()?;
        let addresses = (0..HOSTS).map(|host| format!("\"h{host}.test:80\"=\"{origin}\""));
        let addresses = addresses.collect::<Vec<_>>().join(",");
        let mut settings = vec![
            // Pacing would dominate the measurement.
            "pace.profile=\"owned\"".to_owned(),
            "pace.origin={in_flight=1000}".to_owned(),
            format!("upstream.resolve={{{addresses}}}"),
        ];
        if row.has_store {
            settings.push(format!("fleet.store=[\"redis://{}\"]", store.address));
            settings.push(format!("fleet.node=\"node{number}\""));
        }
        let proxy = Proxy::start(folder.path(), &settings)?;
        let node = Self {
            proxy,
            _folder: folder,
        };
        if row.has_store {
            node.joins()?;
        }
        Ok(node)
    }

    fn joins(&self) -> anyhow::Result<()> {
        for _ in 0..200 {
            if self.proxy.get("/readyz")?.starts_with(b"HTTP/1.1 200") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("a node does not join")
    }
}

/// Sends `requests` requests from every client of every node.
async fn crawl(row: Row, nodes: &[SocketAddr], requests: usize) -> anyhow::Result<()> {
    let mut clients = JoinSet::new();
    for client in 0..row.nodes * CLIENTS {
        let nodes = nodes.to_vec();
        clients.spawn(async move {
            let mut streams = Vec::new();
            for node in &nodes {
                let stream = TcpStream::connect(node).await?;
                stream.set_nodelay(true)?;
                streams.push(stream);
            }
            for number in 0..requests {
                // Clients of a node start at different hosts.
                let begin = client / nodes.len() * (HOSTS / CLIENTS);
                let (host, node) = match row.way {
                    Way::ByHost => {
                        let node = client % nodes.len();
                        ((number + begin) * nodes.len() + node, node)
                    }
                    Way::InTurn => (number + begin, (client + number) % nodes.len()),
                };
                let page = format!("h{}.test/{client}/{number}", host % HOSTS);
                exchange(&mut streams[node], &page).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(outcome) = clients.join_next().await {
        outcome??;
    }
    Ok(())
}

/// Requests a page, given as a URL without its scheme.
async fn exchange(stream: &mut TcpStream, page: &str) -> anyhow::Result<()> {
    let (host, _) = page.split_once('/').context("a path")?;
    let request = format!(
        "GET http://{page} HTTP/1.1\r\nHost: {host}\r\n\
         User-Agent: ExampleBot/1.0 (+http://bench.test/bot)\r\nAccept: text/html\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::with_capacity(4096);
    while !response.ends_with(PAGE_END) {
        ensure!(stream.read_buf(&mut response).await? > 0, "it was cut");
    }
    let head = String::from_utf8_lossy(&response);
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    Ok(())
}

/// End of every page, which shows a client that the response is complete.
const PAGE_END: &[u8] = b"</html>\n";

/// Serves a robots.txt and pages of 1 KiB until the process ends.
async fn serve_origin() -> anyhow::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let page = format!("{}{}", "x".repeat(1016), str::from_utf8(PAGE_END)?);
    let page = response("application/octet-stream", &page);
    let robots = response("text/plain", "User-agent: *\nDisallow: /private/\n");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (page, robots) = (page.clone(), robots.clone());
            // If a connection breaks, its client reports the error.
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let mut head = Vec::with_capacity(4096);
                while stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let is_robots = head.starts_with(b"GET /robots.txt");
                    let answer = if is_robots { &robots } else { &page };
                    stream.write_all(answer.as_bytes()).await?;
                    head.clear();
                }
                std::io::Result::Ok(())
            });
        }
    });
    Ok(address)
}

fn response(media_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nETag: \"5f3c\"\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
