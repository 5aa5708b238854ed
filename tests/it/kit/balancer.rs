//! Load balancers configured by the files in `contrib/`: HAProxy from Debian, and Envoy
//! from PyPI.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};

use super::addresses::free_addresses;
use super::client::Crawler;
use super::until;

const HAPROXY: &str = include_str!("../../../contrib/haproxy/politesse.cfg");
const ENVOY: &str = include_str!("../../../contrib/envoy/politesse.yaml");

/// Load balancer program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BalancerKind {
    HaProxy,
    Envoy,
}

/// Addresses of a proxy node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeAddresses {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// A running load balancer.
pub(crate) struct Balancer {
    pub(crate) kind: BalancerKind,
    pub(crate) address: SocketAddr,
    /// Address of Envoy's admin interface.
    admin: SocketAddr,
    nodes: Vec<NodeAddresses>,
    folder: TempDir,
    _process: Child,
}

impl Balancer {
    /// Starts a balancer with its file from `contrib/`, in which only addresses and check
    /// intervals are changed.
    pub(crate) async fn start(kind: BalancerKind, nodes: &[NodeAddresses]) -> Self {
        let [address, admin] = free_addresses();
        let folder = TempDir::with_prefix("politesse-balancer-").unwrap();
        let file = folder.path().join("politesse.yaml");
        let socket = folder.path().join("socket").display().to_string();
        let (text, mut command) = match kind {
            BalancerKind::HaProxy => {
                let mut command = Command::new("/usr/sbin/haproxy");
                command.arg("-db").arg("-f").arg(&file);
                (haproxy_file(address, &socket, nodes), command)
            }
            BalancerKind::Envoy => {
                let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
                let mut command = Command::new(root.join("target/venv/bin/envoy"));
                command.args(["--concurrency", "1", "--use-dynamic-base-id"]);
                command.args(["--log-level", "error", "-c"]).arg(&file);
                (envoy_file(address, admin, nodes), command)
            }
        };
        std::fs::write(&file, text).unwrap();
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .expect("a balancer is missing; tests/run installs it");
        let balancer = Self {
            kind,
            address,
            admin,
            nodes: nodes.to_vec(),
            folder,
            _process: process,
        };
        until("a balancer", async || {
            TcpStream::connect(address).await.ok()
        })
        .await;
        // The balancer may accept crawlers before it answers health queries.
        until("health of a balancer's nodes", async || {
            balancer.is_up(0).await
        })
        .await;
        balancer
    }

    /// Waits until the balancer considers a node healthy.
    pub(crate) async fn sees_up(&self, node: usize) {
        until("a node that is up", async || {
            self.is_up(node).await?.then_some(())
        })
        .await;
    }

    /// Waits until the balancer considers a node unhealthy.
    pub(crate) async fn sees_down(&self, node: usize) {
        until("a node that is down", async || {
            (!self.is_up(node).await?).then_some(())
        })
        .await;
    }

    /// Reports whether the balancer considers a node healthy. `None` if it does not list
    /// the node, or does not answer admin queries yet.
    async fn is_up(&self, node: usize) -> Option<bool> {
        match self.kind {
            BalancerKind::HaProxy => self.is_up_for_haproxy(node).await,
            BalancerKind::Envoy => self.is_up_for_envoy(node).await,
        }
    }

    /// Queries HAProxy's stats socket.
    async fn is_up_for_haproxy(&self, node: usize) -> Option<bool> {
        let path = self.folder.path().join("socket");
        let mut socket = UnixStream::connect(path).await.ok()?;
        socket.write_all(b"show stat\n").await.ok()?;
        let mut table = String::new();
        socket.read_to_string(&mut table).await.ok()?;
        let wanted = format!("politesse,node{},", node + 1);
        let line = table.lines().find(|line| line.starts_with(&wanted))?;
        Some(line.split(',').nth(17)?.starts_with("UP"))
    }

    async fn is_up_for_envoy(&self, node: usize) -> Option<bool> {
        TcpStream::connect(self.admin).await.ok()?;
        let mut operator = Crawler::to(self.admin).await;
        let table = operator.get("/clusters", "localhost").await.text();
        let wanted = format!("politesse::{}::health_flags::", self.nodes[node].listen);
        let line = table.lines().find(|line| line.starts_with(&wanted))?;
        Some(line.ends_with("::healthy"))
    }
}

fn haproxy_file(address: SocketAddr, socket: &str, nodes: &[NodeAddresses]) -> String {
    let mut text = changed(HAPROXY, "10.0.0.5:3128", &address.to_string());
    let operator = format!("{socket} mode");
    text = changed(&text, "/run/haproxy-politesse.sock mode", &operator);
    text = changed(&text, "inter 1s", "inter 200ms");
    for (number, node) in nodes.iter().enumerate() {
        let (listen, admin) = (node.listen, node.admin.port());
        let line = format!("server node{} ", number + 1);
        let example = format!("{line}10.0.0.1{}:3128", number + 1);
        text = changed(&text, &example, &format!("{line}{listen} port {admin}"));
    }
    text
}

fn envoy_file(address: SocketAddr, admin: SocketAddr, nodes: &[NodeAddresses]) -> String {
    let written = |host: &str, port: u16| format!("address: {host}, port_value: {port} }}");
    let own = |address: SocketAddr| written("127.0.0.1", address.port());
    let mut text = changed(ENVOY, &written("127.0.0.1", 9901), &own(admin));
    text = changed(&text, &written("10.0.0.5", 3128), &own(address));
    for name in ["no_traffic_interval", "interval"] {
        text = changed(&text, &format!("{name}: 1s"), &format!("{name}: 0.2s"));
    }
    for (number, node) in nodes.iter().enumerate() {
        let example = written(&format!("10.0.0.1{}", number + 1), 3128);
        text = changed(&text, &example, &own(node.listen));
        let check = |port: u16| format!("health_check_config: {{ port_value: {port} }}");
        text = changed(&text, &check(3129), &check(node.admin.port()));
    }
    text
}

/// Replaces the first occurrence of `example`, which the file must contain.
fn changed(text: &str, example: &str, value: &str) -> String {
    assert!(text.contains(example), "{example}");
    text.replacen(example, value, 1)
}
