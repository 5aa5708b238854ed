//! Debian's PostgreSQL, with its own port and a database in a temporary folder, stopped
//! when the test ends.
//!
//! The server refuses to run as root. If the tests run as root, the server runs as
//! Debian's user `postgres`. The role `politesse` owns the database `politesse` and needs
//! no password; every other role except the superuser needs one. Clients may connect with
//! TLS; the certificate is issued by [`TestCa`] for `localhost`.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::addresses::free_addresses;
use super::certificates::TestCa;
use super::disk::Disk;
use super::until;

/// Name of the tests' role and of its database.
const ROLE: &str = "politesse";

/// Longest wait for an orderly stop before the server is killed.
const END: Duration = Duration::from_secs(5);

/// Interval between checks whether the server has stopped.
const STEP: Duration = Duration::from_millis(5);

/// Access rules (`pg_hba.conf`). The tests themselves connect as the superuser.
const ACCESS: &str = "
host all postgres,politesse 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
";

/// A running PostgreSQL server.
pub(crate) struct Postgres {
    folder: TempDir,
    address: SocketAddr,
    settings: Vec<String>,
    process: Child,
}

impl Postgres {
    /// Starts a server that does not sync writes to the disk.
    pub(crate) async fn start() -> Self {
        Self::with(&["fsync=off"]).await
    }

    /// Starts a server with `settings` in addition to the common ones.
    pub(crate) async fn with(settings: &[&str]) -> Self {
        let [address] = free_addresses();
        let folder = TempDir::with_prefix("politesse-postgres-").unwrap();
        let data = folder.path().join("data");
        copy(template().await, &data);
        let [certificate, key] = TestCa::get().pair(&["localhost"]);
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            write_own(&data.join(name), &text);
        }
        give_away(folder.path());
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
        let process = spawn(&data, address, &settings);
        let postgres = Self {
            folder,
            address,
            settings,
            process,
        };
        postgres.answers().await;
        postgres
    }

    /// Returns the URL of its database for `audit.archive`, without TLS.
    pub(crate) fn url(&self) -> String {
        self.url_of(ROLE)
    }

    /// Returns the URL of another database on this server.
    pub(crate) fn url_of(&self, database: &str) -> String {
        format!("postgres://{}/{database}?sslmode=disable", self.address)
    }

    /// Returns the URL of its database with TLS.
    pub(crate) fn tls_url(&self) -> String {
        format!("postgres://localhost:{}/{ROLE}", self.address.port())
    }

    /// Runs `sql` as the superuser. Returns the lines of the result, with columns
    /// separated by `|`.
    pub(crate) async fn sql(&self, sql: &str) -> Vec<String> {
        match self.try_sql(sql).await {
            Ok(lines) => lines,
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    /// Runs `sql` as [`Postgres::sql`] does, and returns its error if it fails.
    pub(crate) async fn try_sql(&self, sql: &str) -> Result<Vec<String>, String> {
        self.try_sql_in(ROLE, sql).await
    }

    /// Copies the database as `name`, and runs `sql` there. Returns the URL of the copy.
    pub(crate) async fn changed(&self, name: &str, sql: &str) -> String {
        self.sql(&format!(
            "CREATE DATABASE {name} TEMPLATE {ROLE} OWNER {ROLE}"
        ))
        .await;
        match self.try_sql_in(name, sql).await {
            Ok(_) => self.url_of(name),
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    async fn try_sql_in(&self, database: &str, sql: &str) -> Result<Vec<String>, String> {
        let output = self.psql(database, sql).output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout).lines().map(str::to_owned).collect()),
            false => Err(text(&output.stderr)),
        }
    }

    fn psql(&self, database: &str, sql: &str) -> tokio::process::Command {
        let mut psql = tokio::process::Command::new(program("psql"));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres"])
            .args(["-h", "127.0.0.1", "-p", &self.address.port().to_string()])
            .args(["-d", database, "-c", sql])
            .env("PGCONNECT_TIMEOUT", "5")
            .kill_on_drop(true);
        psql
    }

    /// Runs `sql`, and returns its result, a single number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.sql(sql).await.concat().parse().unwrap()
    }

    /// Waits until `sql` selects the number `value`.
    pub(crate) async fn number_is(&self, sql: &str, value: i64) {
        until(sql, async || {
            (self.number(sql).await == value).then_some(())
        })
        .await;
    }

    /// Kills the server and the processes of its connections (SIGKILL).
    pub(crate) fn kill(&mut self) {
        // A stopped server cannot start another process before it is killed.
        signal("STOP", &[self.process.id()]);
        let children = children(self.process.id());
        signal("KILL", &[&[self.process.id()][..], &children].concat());
        self.process.wait().unwrap();
        // As long as one of them lives it holds the shared memory, and no new server
        // starts.
        let runs = |id: &u32| fs::read_link(format!("/proc/{id}/exe")).is_ok();
        wait_until(|| !children.iter().any(runs));
    }

    /// Starts the server again after [`Postgres::kill`], at the same address.
    pub(crate) async fn restart(&mut self) {
        let data = self.folder.path().join("data");
        self.process = spawn(&data, self.address, &self.settings);
        self.answers().await;
    }

    /// Suspends (`STOP`) or resumes (`CONT`) the server with all its processes.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id();
        signal(name, &[&[id][..], &children(id)].concat());
    }

    /// Closes all connections of the role `politesse`, and returns their number.
    pub(crate) async fn cut(&self) -> i64 {
        let cut = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE usename = '{ROLE}'"
        );
        self.number(&cut).await
    }

    /// Moves the database to a disk of `bytes` bytes; the write-ahead log stays where it
    /// is. Works only within [`inside`](super::namespace::inside).
    pub(crate) async fn move_to_disk(&self, bytes: u64) -> Disk {
        let folder = self.folder.path().join("disk");
        let disk = Disk::mount(folder.clone(), bytes);
        give_away(&folder);
        let make = format!("CREATE TABLESPACE small LOCATION '{}'", folder.display());
        let make_default = format!("ALTER DATABASE {ROLE} SET TABLESPACE small");
        for sql in [make, make_default] {
            if let Err(error) = self.try_sql_in("postgres", &sql).await {
                panic!("{sql}: {error}");
            }
        }
        disk
    }

    /// Starts a smart shutdown (SIGTERM): the server accepts no new connections, and
    /// stops when the last client disconnects.
    pub(crate) fn begin_stop(&self) {
        signal("TERM", &[self.process.id()]);
    }

    /// Opens a transaction as the superuser, runs `sql` in it, and keeps it open until
    /// the session is dropped.
    pub(crate) fn session(&self, sql: &str) -> OpenSession<'_> {
        let held = format!("SET application_name = 'held'; BEGIN; {sql}; SELECT pg_sleep(600)");
        let mut psql = self.psql(ROLE, &held);
        OpenSession {
            postgres: self,
            _process: psql
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        }
    }

    async fn answers(&self) {
        until("PostgreSQL", async || self.try_sql("SELECT 1").await.ok()).await;
    }
}

/// A transaction that is open until this is dropped.
pub(crate) struct OpenSession<'a> {
    postgres: &'a Postgres,
    _process: tokio::process::Child,
}

impl OpenSession<'_> {
    /// Waits until the session's statements have run.
    pub(crate) async fn begun(&self) {
        let sleeps = "SELECT count(*) FROM pg_stat_activity
                      WHERE application_name = 'held' AND wait_event = 'PgSleep'";
        self.postgres.number_is(sleeps, 1).await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(Some(_))) {
            return;
        }
        // A suspended server must resume to handle SIGQUIT. Its processes then end on their
        // own, and free the shared memory.
        self.signal("CONT");
        signal("QUIT", &[self.process.id()]);
        if !wait_until(|| matches!(self.process.try_wait(), Ok(Some(_)))) {
            self.kill();
        }
    }
}

/// Polls `is_done` until it is true or [`END`] has passed, and returns its last value.
/// Blocks the thread, because a destructor cannot await [`until`].
fn wait_until(mut is_done: impl FnMut() -> bool) -> bool {
    for _ in 0..END.as_millis() / STEP.as_millis() {
        if is_done() {
            return true;
        }
        std::thread::sleep(STEP);
    }
    false
}

/// Account under which the server runs if the tests run as root.
struct ServerUser {
    uid: u32,
    gid: u32,
}

impl ServerUser {
    fn find() -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = users.lines().find(|line| line.starts_with("postgres:"));
        let fields: Vec<_> = line.expect("no user postgres").split(':').collect();
        Some(Self {
            uid: fields[2].parse().unwrap(),
            gid: fields[3].parse().unwrap(),
        })
    }
}

/// Returns the path of a program of the newest installed PostgreSQL.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let numbers = versions.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let newest = numbers.max();
    let newest = newest.expect("PostgreSQL is missing; tests/run installs it");
    PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin/{name}"))
}

/// Returns a PostgreSQL command that runs as the server's user.
fn as_server(name: &str) -> Command {
    let mut command = Command::new(program(name));
    command
        .current_dir("/")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(user) = ServerUser::find() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// Returns the data folder that each test copies; creating one takes a second.
async fn template() -> &'static Path {
    static TEMPLATE: OnceCell<PathBuf> = OnceCell::const_new();
    TEMPLATE.get_or_init(async || make_template()).await
}

fn make_template() -> PathBuf {
    let uid = fs::metadata("/proc/self").unwrap().uid();
    let version = program("postgres").display().to_string().replace('/', "-");
    let kept = format!("{}/{version}-{uid}", env!("CARGO_TARGET_TMPDIR"));
    let kept = PathBuf::from(kept);
    if kept.exists() {
        return kept;
    }
    // The server's user may have no access to the build folder.
    let folder = TempDir::with_prefix("politesse-postgres-").unwrap();
    let data = folder.path().join("data");
    give_away(folder.path());
    let made = as_server("initdb")
        .args(["--no-sync", "--auth=trust", "-U", "postgres"])
        .args(["--encoding=UTF8", "--locale=C", "--wal-segsize=1", "-D"])
        .arg(&data)
        .status();
    assert!(made.unwrap().success(), "initdb failed");
    let mut single = as_server("postgres");
    single
        .args(["--single", "-F", "-D"])
        .arg(&data)
        .arg("postgres");
    let mut single = single.stdin(Stdio::piped()).spawn().unwrap();
    let orders = format!("CREATE ROLE {ROLE} LOGIN;\nCREATE DATABASE {ROLE} OWNER {ROLE};\n");
    let mut input = single.stdin.take().unwrap();
    input.write_all(orders.as_bytes()).unwrap();
    drop(input);
    assert!(single.wait().unwrap().success(), "the role was not created");
    write_own(&data.join("pg_hba.conf"), ACCESS);
    // Another test process may do this at the same time, so rename only a complete copy.
    let copied = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    copy(&data, &copied.path().join("data"));
    let renamed = fs::rename(copied.path().join("data"), &kept);
    assert!(renamed.is_ok() || kept.exists(), "{renamed:?}");
    kept
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(
        copied.unwrap().success(),
        "{} was not copied",
        from.display()
    );
}

/// Writes a file that only the server's user may read.
fn write_own(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    give_away(file);
}

fn give_away(path: &Path) {
    if let Some(user) = ServerUser::find() {
        chown(path, Some(user.uid), Some(user.gid)).unwrap();
    }
}

fn spawn(data: &Path, address: SocketAddr, settings: &[String]) -> Child {
    let common = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "ssl=on",
        "shared_buffers=32MB",
    ];
    let settings = common
        .into_iter()
        .chain(settings.iter().map(String::as_str));
    as_server("postgres")
        .arg("-D")
        .arg(data)
        .args(["-p", &address.port().to_string()])
        .args(settings.flat_map(|setting| ["-c", setting]))
        .spawn()
        .unwrap()
}

/// Returns the child processes of `id`.
fn children(id: u32) -> Vec<u32> {
    let list = format!("/proc/{id}/task/{id}/children");
    let list = fs::read_to_string(list).unwrap_or_default();
    list.split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect()
}

fn signal(name: &str, ids: &[u32]) {
    let mut arguments = format!("-{name}");
    for id in ids {
        write!(arguments, " {id}").unwrap();
    }
    // Some of the processes may have ended meanwhile.
    let _ = Command::new("kill")
        .args(arguments.split(' '))
        .stderr(Stdio::null())
        .status();
}
