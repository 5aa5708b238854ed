//! The proxy as a separate process, with a CA, an audit record and a configuration in a
//! temporary folder.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::certificates::TestCa;
use super::program::{Outcome, politesse, run_in, send_signal};
use super::{soon, until};

/// The folder of a proxy: its configuration and the files that it writes. Outlives the
/// process, so that a test can start another proxy on the same record.
pub(crate) struct Place {
    folder: TempDir,
}

/// Configuration lines, as `section.key = value`.
#[derive(Default)]
pub(crate) struct Config(Vec<String>);

impl Config {
    /// Adds a line, which replaces an earlier line for the same `section.key`.
    pub(crate) fn set(mut self, line: &str) -> Self {
        if key(line).contains('.') {
            self.0.retain(|other| key(other) != key(line));
        }
        self.0.push(line.to_owned());
        self
    }

    /// Resolves `name` (or `name:port`) to `address`, which is then exempt from
    /// egress.deny.
    pub(crate) fn resolve(self, name: &str, address: SocketAddr) -> Self {
        self.set(&format!("upstream.resolve.\"{name}\" = \"{address}\""))
    }

    /// Starts a proxy with these lines in a new folder.
    pub(crate) async fn start(self) -> Proxy {
        Place::with(&self).start().await
    }
}

/// Returns a configuration that resolves `name` to `address` on every port.
pub(crate) fn resolve(name: &str, address: SocketAddr) -> Config {
    Config::default().resolve(name, address)
}

fn key(line: &str) -> &str {
    line.split(" = ").next().unwrap_or(line)
}

impl Place {
    pub(crate) fn with(config: &Config) -> Self {
        let mut builder = tempfile::Builder::new();
        builder.prefix("politesse-test-");
        // The proxy refuses a record in a folder that others may write to, which a umask
        // of 002 would allow.
        builder.permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir().unwrap();
        let place = Self { folder };
        std::fs::write(place.path("roots.pem"), TestCa::get().pem()).unwrap();
        place.configure(config);
        place
    }

    /// Replaces the configuration. A line in `config` replaces the default line for the
    /// same key.
    pub(crate) fn configure(&self, config: &Config) {
        let usual = [
            "proxy.listen = [\"127.0.0.1:0\"]",
            "admin.listen = \"127.0.0.1:0\"",
            "https.ca_cert = \"certs/ca.pem\"",
            "https.ca_key = \"certs/ca.key\"",
            "https.upstream_roots = \"roots.pem\"",
            "audit.store = \"sqlite:audit.db\"",
            // Only tests of pacing should wait.
            "pace.profile = \"owned\"",
            "pace.origin = { in_flight = 1000 }",
            "pace.retry = 0",
            "pace.backoff = { first = \"1ms\", longest = \"1ms\", forgive = \"1ms\" }",
        ];
        let own: Vec<_> = config.0.iter().map(|line| key(line)).collect();
        let mut text = String::new();
        let kept = usual.into_iter().filter(|line| !own.contains(&key(line)));
        for line in kept.chain(config.0.iter().map(String::as_str)) {
            text.push_str(line);
            text.push('\n');
        }
        std::fs::write(self.path("politesse.toml"), text).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the file `name`, with the permissions `mode`.
    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Deletes the record, as an operator does to start a new one.
    pub(crate) fn remove_record(&self) {
        for name in ["audit.db", "audit.db-wal", "audit.db-shm", "record"] {
            let _ = std::fs::remove_file(self.path(name));
        }
    }

    /// Copies the folder, as when a machine is cloned.
    pub(crate) fn copied(&self) -> Self {
        let place = Self::with(&Config::default());
        let mut copy = std::process::Command::new("cp");
        copy.arg("-a").arg(self.path(".")).arg(place.folder());
        assert!(copy.status().unwrap().success());
        place
    }

    /// Runs a subcommand in this folder, with its configuration.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Outcome {
        run_in(self.folder.path(), arguments).await
    }

    /// Runs a subcommand as [`Self::run`] does, and asserts that it succeeds.
    pub(crate) async fn run_ok(&self, arguments: &[&str]) -> Outcome {
        self.run_code(0, arguments).await
    }

    /// Runs a subcommand as [`Self::run`] does, and asserts that it exits with `code`.
    pub(crate) async fn run_code(&self, code: i32, arguments: &[&str]) -> Outcome {
        let outcome = self.run(arguments).await;
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {outcome:?}");
        outcome
    }

    /// Runs `politesse audit` with the arguments in `words`, and asserts that it succeeds.
    /// Spaces separate arguments, except between single quotes.
    pub(crate) async fn audit(&self, words: &str) -> Outcome {
        self.audit_code(0, words).await
    }

    /// Runs `politesse audit` as [`Self::audit`] does, and asserts that it exits with
    /// `code`.
    pub(crate) async fn audit_code(&self, code: i32, words: &str) -> Outcome {
        let mut arguments = vec!["audit"];
        for (place, part) in words.split('\'').enumerate() {
            match place % 2 {
                0 => arguments.extend(part.split_whitespace()),
                _ => arguments.push(part),
            }
        }
        self.run_code(code, &arguments).await
    }

    /// Returns all rows of `audit list`, oldest first.
    pub(crate) async fn rows(&self) -> Vec<Value> {
        let list = ["audit", "list", "--json", "--limit", "0"];
        let outcome = self.run_ok(&list).await;
        let mut rows = outcome.json_lines();
        rows.reverse();
        rows
    }

    /// Asserts that `audit verify` accepts the record.
    pub(crate) async fn assert_verified(&self) {
        let verified = self.run(&["audit", "verify"]).await;
        assert_eq!(verified.code, Some(0), "{}", verified.stdout);
    }

    /// Waits until the rows of the record satisfy `wanted`, and returns them.
    pub(crate) async fn rows_when(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        until("audit as wanted", async || {
            Some(self.rows().await).filter(|rows| wanted(rows))
        })
        .await
    }

    /// Waits until exactly `count` rows are completed, and returns all rows.
    pub(crate) async fn completed(&self, count: usize) -> Vec<Value> {
        let ended = |row: &&Value| !row["status"].is_null() || !row["error"].is_null();
        self.rows_when(|rows| rows.iter().filter(ended).count() == count)
            .await
    }

    /// Returns the sequence number of the `nth` decision, counted from 1. Decisions are
    /// not numbered consecutively, because endings take numbers too.
    pub(crate) fn number(&self, nth: usize) -> u64 {
        let sql = "SELECT seq FROM decision ORDER BY seq LIMIT 1 OFFSET ?";
        let row = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let number = self.database().query_row(sql, [nth as i64 - 1], row);
        number.unwrap().try_into().unwrap()
    }

    /// Makes the `nth` decision refer to a copy of its row in the dictionary `table`, as
    /// a forger would who knows the tables. `columns` are the values of the copy; its
    /// digest is wrong.
    pub(crate) fn refer_to_copy(&self, nth: usize, table: &str, columns: &str) {
        let seq = self.number(nth);
        let sql = format!(
            "INSERT INTO {table} SELECT 9999, {columns}, x'00' FROM {table}
             WHERE id = (SELECT {table} FROM decision WHERE seq = {seq});
             UPDATE decision SET {table} = 9999 WHERE seq = {seq};"
        );
        self.database().execute_batch(&sql).unwrap();
    }

    /// Opens the record's database directly, without the proxy's program.
    pub(crate) fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path("audit.db")).unwrap()
    }

    /// Starts the proxy, and reads its addresses from its output.
    pub(crate) async fn start(self) -> Proxy {
        let mut command = politesse(self.folder.path());
        command.arg("serve");
        Proxy::start(self, command).await
    }
}

/// A running proxy.
pub(crate) struct Proxy {
    child: Child,
    place: Place,
    address: SocketAddr,
    admin: SocketAddr,
    banner: Vec<String>,
    log: Arc<Mutex<String>>,
}

impl Proxy {
    /// Starts `command`, which runs `serve` in the folder `place`.
    pub(crate) async fn start(place: Place, mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let mut stderr = child.stderr.take().unwrap();
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            let mut buffer = [0; 4_096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
                let text = String::from_utf8_lossy(&buffer[..length]);
                kept.lock().unwrap().push_str(&text);
            }
        });
        let banner = soon("banner", banner(&mut child)).await;
        let has_started = banner.last().is_some_and(|line| line.starts_with("try: "));
        assert!(has_started, "not started: {}", log.lock().unwrap());
        let mut lines = banner.iter();
        let admin = lines.find(|line| line.starts_with("dashboard, health and metrics"));
        Self {
            child,
            place,
            address: address_in(&banner[0]),
            admin: address_in(admin.unwrap()),
            banner,
            log,
        }
    }

    /// Returns the address for crawlers.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the admin listener (`/healthz`, `/metrics`).
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the lines that the proxy printed at its start.
    pub(crate) fn banner(&self) -> &[String] {
        &self.banner
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Runs a subcommand that talks to this proxy's admin listener.
    pub(crate) async fn run_admin(&self, arguments: &[&str]) -> Outcome {
        let listen = format!("admin.listen=\"{}\"", self.admin());
        let arguments = [&["--set", listen.as_str()], arguments].concat();
        self.place.run(&arguments).await
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log contains `text`, and returns the log. A line can arrive later
    /// than the response to the request that caused it, because it comes through a pipe.
    pub(crate) async fn logged(&self, text: &str) -> String {
        self.logged_times(text, 1).await
    }

    /// Waits until the log contains `text` at least `count` times, and returns the log.
    pub(crate) async fn logged_times(&self, text: &str, count: usize) -> String {
        until(&format!("{text:?} in the log"), async || {
            Some(self.log()).filter(|log| count <= log.matches(text).count())
        })
        .await
    }

    /// Returns the proxy's CA certificate.
    pub(crate) fn ca(&self) -> String {
        std::fs::read_to_string(self.place.path("certs/ca.pem")).unwrap()
    }

    /// Returns the resident memory in KiB.
    pub(crate) fn rss_kib(&self) -> u64 {
        self.memory_kib("VmRSS")
    }

    /// Returns the value of `name` in the process's `/proc/PID/status`, in KiB.
    pub(crate) fn memory_kib(&self, name: &str) -> u64 {
        memory_kib(self.pid(), name)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Sends the signal `name`.
    pub(crate) async fn signal(&self, name: &str) {
        send_signal(name, self.pid()).await;
    }

    /// Waits until the process ends.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        soon("end of the proxy", self.child.wait()).await.unwrap()
    }

    /// Stops the proxy with SIGTERM, asserts exit code 0, and returns the folder.
    pub(crate) async fn stop(mut self) -> Place {
        self.signal("TERM").await;
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{}", self.log());
        self.place
    }

    /// Kills the proxy with SIGKILL, and returns the folder.
    pub(crate) async fn kill(mut self) -> Place {
        self.child.kill().await.unwrap();
        self.place
    }
}

/// Returns the value of `name` in the `/proc/PID/status` of a process, in KiB.
pub(crate) fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = value.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

/// Returns the lines that a proxy prints once it listens; fewer if it ends early.
async fn banner(child: &mut Child) -> Vec<String> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut banner = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let is_last = line.starts_with("try: ");
        banner.push(line);
        if is_last {
            break;
        }
    }
    banner
}

pub(crate) fn address_in(line: &str) -> SocketAddr {
    let (_, address) = line.rsplit_once("://").unwrap();
    address.parse().unwrap()
}
