//! Debian's Redis, with its own port and a temporary folder. Stores nothing on disk, and
//! is stopped when the test ends.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::addresses::free_addresses;
use super::program::send_signal;
use super::until;

/// A running Redis server.
pub(crate) struct Redis {
    folder: TempDir,
    address: SocketAddr,
    arguments: Vec<String>,
    process: Child,
}

impl Redis {
    /// Starts a server with `arguments` in addition to the common ones.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let [address] = free_addresses();
        Self::at(address, arguments).await
    }

    /// Starts a server at `address`, which comes from [`free_addresses`].
    pub(crate) async fn at(address: SocketAddr, arguments: &[&str]) -> Self {
        let folder = TempDir::with_prefix("politesse-redis-").unwrap();
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let process = spawn(folder.path(), address, &arguments);
        let redis = Self {
            folder,
            address,
            arguments,
            process,
        };
        redis.answers().await;
        redis
    }

    /// Starts a replica of `leader`.
    pub(crate) async fn copy_of(leader: &Self) -> Self {
        let port = leader.address.port().to_string();
        let redis = Self::start(&["--replicaof", "127.0.0.1", &port]).await;
        redis.is_copy().await;
        redis
    }

    /// Starts a server in cluster mode, which has no slots yet.
    pub(crate) async fn shard() -> Self {
        // The second address is for the cluster bus, on which cluster servers talk.
        let [address, bus] = free_addresses();
        let port = bus.port().to_string();
        Self::at(
            address,
            &["--cluster-enabled", "yes", "--cluster-port", &port],
        )
        .await
    }

    /// Assigns the slots `first` to `last` to this cluster server.
    pub(crate) async fn take_slots(&self, first: &str, last: &str) {
        let answer = self.cli(&["cluster", "addslotsrange", first, last]).await;
        assert_eq!(answer.trim(), "OK");
    }

    /// Joins this server to the cluster of `other`, and waits until both have slots.
    pub(crate) async fn join(&self, other: &Self) {
        let port = other.address.port().to_string();
        let bus = other.arguments.last().unwrap();
        self.cli(&["cluster", "meet", "127.0.0.1", &port, bus])
            .await;
        until("cluster", async || {
            let facts = other.cli(&["cluster", "info"]).await;
            facts.contains("cluster_size:2").then_some(())
        })
        .await;
    }

    /// Starts a Sentinel that monitors nothing.
    pub(crate) async fn sentinel() -> Self {
        let folder = TempDir::with_prefix("politesse-sentinel-").unwrap();
        let [address] = free_addresses();
        let file = folder.path().join("sentinel.conf");
        let port = format!("port {}\nbind 127.0.0.1\n", address.port());
        std::fs::write(&file, port).unwrap();
        let mut server = Command::new("redis-server");
        server
            .arg(&file)
            .arg("--sentinel")
            .current_dir(folder.path());
        let process = server
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let redis = Self {
            folder,
            address,
            arguments: Vec::new(),
            process,
        };
        redis.answers().await;
        redis
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL for `fleet.store`.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Promotes a replica to a leader, permanently.
    pub(crate) async fn promote(&mut self) {
        self.arguments.clear();
        self.cli(&["replicaof", "no", "one"]).await;
    }

    /// Starts the server again after [`Redis::kill`], as a replica of `leader`.
    pub(crate) async fn restart_as_copy(&mut self, leader: &Self) {
        let port = leader.address.port().to_string();
        self.arguments = ["--replicaof", "127.0.0.1", &port]
            .map(str::to_owned)
            .into();
        self.restart().await;
        self.is_copy().await;
    }

    /// Kills the server (SIGKILL), which loses its data.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Starts the server again after [`Redis::kill`], at the same address.
    pub(crate) async fn restart(&mut self) {
        self.process = spawn(self.folder.path(), self.address, &self.arguments);
        self.answers().await;
    }

    /// Suspends (`STOP`) or resumes (`CONT`) the server.
    pub(crate) async fn signal(&self, name: &str) {
        send_signal(name, self.process.id().unwrap()).await;
    }

    /// Runs a command with `redis-cli`, and returns its output.
    pub(crate) async fn cli(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &self.address.port().to_string()])
            .args(words)
            .kill_on_drop(true);
        let output = cli.output().await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn is_copy(&self) {
        until("copy of the store", async || {
            let facts = self.cli(&["info", "replication"]).await;
            facts.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    async fn answers(&self) {
        until("store", async || {
            let answer = self.cli(&["ping"]).await;
            // NOAUTH also means that the server is up: it requires a password.
            (answer.contains("PONG") || answer.contains("NOAUTH")).then_some(())
        })
        .await;
    }
}

fn spawn(folder: &Path, address: SocketAddr, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &address.port().to_string()])
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        // By default a leader waits five seconds for more replicas before the first
        // transfer.
        .args(["--repl-diskless-sync-delay", "0"])
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("redis-server is missing; tests/run installs it")
}
