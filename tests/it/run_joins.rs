//! Commands of `politesse run` that join a running proxy: `run` finds it by the lock on
//! the record, never by a port.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::kit::addresses::free_address;
use crate::kit::client::get;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::program::{Outcome, finish, politesse};
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, soon, until};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
const REPORT: &str = "enforcement.mode = \"report\"";

/// Starts an origin, and a proxy with these further lines.
async fn started(lines: &[&str]) -> (Origin, Proxy) {
    site(Script::robots(ROBOTS), lines).await
}

/// Starts an origin, and writes the configuration of a proxy for it.
async fn unstarted() -> (Origin, Place) {
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&to(&origin));
    (origin, place)
}

fn to(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
}

/// Returns a `run` whose command is a shell script.
fn shell(folder: &Path, script: &str) -> Command {
    let mut command = politesse(folder);
    command.args(["run", "--", "sh", "-c", script]);
    command
}

async fn run_shell(folder: &Path, script: &str) -> Outcome {
    finish(shell(folder, script), b"").await
}

/// Starts a `run` whose command is a shell script, with its stderr in the file `log`.
fn start_shell(folder: &Path, script: &str, log: &str) -> Child {
    let log = File::create(folder.join(log)).unwrap();
    let mut command = shell(folder, script);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log).spawn().unwrap()
}

async fn file_exists(folder: &Path, name: &str) {
    let path = folder.join(name);
    until("file", async || path.exists().then_some(())).await;
}

fn instance(place: &Place) -> Value {
    let text = std::fs::read_to_string(place.path("instance")).unwrap();
    serde_json::from_str(&text).unwrap()
}

// Ours.
#[tokio::test]
async fn a_proxy_of_another_record_on_the_same_ports_is_not_joined() {
    let listen = format!("proxy.listen = [\"{}\"]", free_address());
    let admin = format!("admin.listen = \"{}\"", free_address());
    let (origin, reporting) = started(&[&listen, &admin, REPORT]).await;
    let place = Place::with(&to(&origin).set(&listen).set(&admin));
    let outcome = run_shell(place.folder(), "curl -sSf http://o.test/private/a").await;
    outcome.assert_stderr(&["1 asked, 0 allowed, 1 refused;"]);
    outcome.assert_code(22);
    origin.assert_only_robots_fetched();
    assert!(reporting.place().rows().await.is_empty());
    assert_eq!(place.rows().await.len(), 1);
}

// Ours: a record does not mix decisions of two configurations.
#[tokio::test]
async fn run_fails_naming_both_if_the_record_is_held_with_another_configuration() {
    let (origin, reporting) = started(&[REPORT]).await;
    let place = reporting.place();
    let theirs = instance(place)["configuration"].clone();
    place.configure(&to(&origin));
    let outcome = run_shell(place.folder(), "curl -sS http://o.test/private/a").await;
    outcome.assert_stderr(&[
        theirs.as_str().unwrap(),
        &format!("politesse serve, process {}", reporting.pid()),
        &format!("on {}", reporting.address()),
        "here:  configuration ",
        "they differ in: enforcement.mode\n",
    ]);
    outcome.assert_code(2);
    assert!(origin.targets().is_empty());
}

// Ours: the requests of other crawlers through the same proxy do not count.
#[tokio::test]
async fn the_summary_of_a_joined_command_counts_only_its_own_requests() {
    let (_origin, proxy) = started(&[]).await;
    get(&proxy, "http://o.test/other").await;
    let script = format!(
        "curl -sS http://o.test/a http://o.test/private/b; \
             curl -sS -x http://{} http://o.test/other http://o.test/private/c; exit 7",
        proxy.address()
    );
    let outcome = run_shell(proxy.place().folder(), &script).await;
    outcome.assert_stderr(&[
        "2 asked, 1 allowed, 1 refused;",
        "refused 1 × Disallow: /private (line 2 of http://o.test/robots.txt)",
    ]);
    outcome.assert_code(7);
    assert_eq!(proxy.place().completed(5).await.len(), 5);
}

// Ours: the proxy of the first command stays until the second has ended.
#[tokio::test]
async fn a_second_run_uses_the_proxy_of_the_first_until_it_ends() {
    let (_origin, place) = unstarted().await;
    let folder = place.folder();
    let first = "touch first; until [ -e second ]; do sleep 0.05; done; exit 5";
    let mut first = start_shell(folder, first, "first.log");
    file_exists(folder, "first").await;
    let second = "touch second; until grep -q 'the command is done' first.log; \
                  do sleep 0.05; done; curl -sS http://o.test/late";
    let second = run_shell(folder, second).await.assert_code(0);
    second.assert_stderr(&["1 asked, 1 allowed"]);
    let first = soon("end of the first", first.wait()).await.unwrap();
    assert_eq!(first.code(), Some(5));
    let told = std::fs::read_to_string(place.path("first.log")).unwrap();
    assert_contains(&told, "0 asked");
    assert!(!place.path("instance").exists());
}

// Ours: `xargs -P4 politesse run -- …`. A proxy may stop just as a command joins it.
#[tokio::test]
async fn parallel_runs_never_lose_their_proxy() {
    let (_origin, place) = unstarted().await;
    let folder = place.folder();
    let in_turn = async |row: u32| {
        for number in 0..6 {
            let script = format!("curl -sS http://o.test/{row}{number}");
            let outcome = run_shell(folder, &script).await.assert_code(0);
            outcome.assert_stderr(&["1 asked, 1 allowed"]);
            assert!(!outcome.stderr.contains("has stopped"), "{outcome:?}");
        }
    };
    tokio::join!(in_turn(1), in_turn(2), in_turn(3), in_turn(4));
}

/// Starts a command that joins `proxy`, fetches a page and runs until `gone` exists.
async fn start_until_gone(proxy: &Proxy) -> Child {
    let folder = proxy.place().folder();
    let script = "curl -sS http://o.test/a; touch started; \
                  until [ -e gone ]; do sleep 0.05; done; sleep 0.5; exit 3";
    let child = start_shell(folder, script, "run.log");
    file_exists(folder, "started").await;
    child
}

async fn end_of(mut child: Child, place: &Place) -> String {
    File::create(place.path("gone")).unwrap();
    let status = soon("end of run", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(3));
    std::fs::read_to_string(place.path("run.log")).unwrap()
}

// Ours: the command continues, and its user must learn why it fetches nothing.
#[tokio::test]
async fn a_joined_run_reports_that_its_proxy_was_killed() {
    let (_origin, proxy) = started(&[]).await;
    let (child, pid) = (start_until_gone(&proxy).await, proxy.pid());
    let told = end_of(child, &proxy.kill().await).await;
    assert_contains(&told, &format!("(process {pid}) has stopped"));
    assert_contains(&told, "no counts");
}

// Ours: a proxy that stops cleanly sends its counts first.
#[tokio::test]
async fn a_joined_run_reports_the_counts_of_a_proxy_that_stops() {
    let (_origin, proxy) = started(&[]).await;
    let child = start_until_gone(&proxy).await;
    let told = end_of(child, &proxy.stop().await).await;
    assert_contains(&told, "has stopped");
    assert_contains(&told, "1 asked, 1 allowed");
}

// Ours: a command joins only with the configuration in force.
#[tokio::test]
async fn after_a_reload_only_the_new_configuration_can_join() {
    let (origin, proxy) = started(&[]).await;
    let place = proxy.place();
    let before = instance(place)["configuration"].clone();
    place.configure(&to(&origin).set("robots.ttl = \"1h\""));
    let ask = "curl -sS http://o.test/a";
    run_shell(place.folder(), ask).await.assert_code(2);
    proxy.signal("HUP").await;
    until("the new instance file", async || {
        (instance(place)["configuration"] != before).then_some(())
    })
    .await;
    let outcome = run_shell(place.folder(), ask).await.assert_code(0);
    outcome.assert_stderr(&["1 asked, 1 allowed"]);
}

// Ours: any program may hold the lock, with no instance file.
#[tokio::test]
async fn run_fails_if_the_holder_of_the_lock_is_unknown() {
    let (origin, place) = unstarted().await;
    let lock = File::open(place.folder()).unwrap();
    lock.lock().unwrap();
    let outcome = run_shell(place.folder(), "curl -sS http://o.test/a").await;
    let folder = place.folder().display().to_string();
    outcome.assert_stderr(&["does not say what it is", &folder]);
    outcome.assert_code(1);
    assert!(origin.targets().is_empty());
}

// Ours: `proxy.clients` concerns the network; the command runs on this machine.
// unix(7): a socket's path has at most 108 bytes.
#[tokio::test]
async fn a_command_joins_despite_proxy_clients_and_a_long_path() {
    let folder = ["d"; 12].map(|letter| letter.repeat(20)).join("/");
    let store = format!("audit.store = \"sqlite:{folder}/audit.db\"");
    for line in ["proxy.clients = [\"10.0.0.0/8\"]", &store] {
        let (_origin, proxy) = started(&[line]).await;
        let outcome = run_shell(proxy.place().folder(), "curl -sS http://o.test/a").await;
        outcome.assert_stderr(&["1 asked, 1 allowed"]);
    }
}

// Ours: `proxy.max_commands`.
#[tokio::test]
async fn commands_beyond_max_commands_are_refused() {
    let (_origin, proxy) = started(&["proxy.max_commands = 1"]).await;
    let child = start_until_gone(&proxy).await;
    assert_no_command_starts(&proxy, "proxy.max_commands").await;
    let told = end_of(child, proxy.place()).await;
    assert_contains(&told, "1 asked, 1 allowed");
    let after = run_shell(proxy.place().folder(), "exit 4").await;
    after.assert_code(4);
}

/// Asserts that `run` fails with a message that contains `told`, and starts no command.
async fn assert_no_command_starts(proxy: &Proxy, told: &str) {
    let outcome = run_shell(proxy.place().folder(), "touch never").await;
    outcome.assert_stderr(&[told]);
    outcome.assert_code(1);
    assert!(!proxy.place().path("never").exists());
}

// Ours: no other user may join the proxy or forge its instance file.
#[tokio::test]
async fn the_instance_files_are_private_and_untrusted_otherwise() {
    let (_origin, proxy) = started(&[]).await;
    for name in ["instance", "instance.sock"] {
        let found = std::fs::metadata(proxy.place().path(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let path = proxy.place().path("instance");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    assert_no_command_starts(&proxy, "cannot be trusted").await;
    let place = proxy.stop().await;
    assert!(!place.path("instance").exists());
    assert!(!place.path("instance.sock").exists());
}

// Ours: its requests would go in a circle.
#[tokio::test]
async fn a_command_does_not_reach_its_own_listener_through_the_proxy() {
    let (_origin, proxy) = started(&["egress.allow = [\"127.0.0.0/8\"]"]).await;
    let script = "curl -sS \"$http_proxy/a\"";
    let outcome = run_shell(proxy.place().folder(), script).await;
    outcome.assert_stderr(&["1 asked, 0 allowed", "refused 1 × egress"]);
}

// nohup(1): a command started with an ignored signal keeps ignoring it.
#[tokio::test]
async fn an_ignored_signal_stays_ignored_for_the_command() {
    let place = Place::with(&Config::default());
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\""]);
    command.args([env!("CARGO_BIN_EXE_politesse"), "--here", "run", "--"]);
    command.args(["sh", "-c", "kill -HUP $$; kill -INT $$; exit 5"]);
    command.current_dir(place.folder());
    finish(command, b"").await.assert_code(5);
}
