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
use crate::kit::origin::{Origin, Script};
use crate::kit::program::{Outcome, finish, politesse};
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, soon, until};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
const REPORT: &str = "enforcement.mode = \"report\"";

async fn origin() -> Origin {
    Script::robots(ROBOTS).start().await
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

// Ours: a proxy with another record is not joined, even if it listens on the configured
// ports.
#[tokio::test]
async fn a_proxy_of_another_record_on_the_same_ports_is_not_joined() {
    let origin = origin().await;
    let listen = format!("proxy.listen = [\"{}\"]", free_address());
    let admin = format!("admin.listen = \"{}\"", free_address());
    let on_the_ports = |config: Config| config.set(&listen).set(&admin);
    let reporting = on_the_ports(to(&origin).set(REPORT)).start().await;
    let place = Place::with(&on_the_ports(to(&origin)));
    let outcome = run_shell(place.folder(), "curl -sSf http://o.test/private/a").await;
    assert_eq!(outcome.code, Some(22), "{outcome:?}");
    let told = "1 asked, 0 allowed, 1 refused;";
    assert!(outcome.stderr.contains(told), "{outcome:?}");
    origin.assert_only_robots_fetched();
    assert!(reporting.place().rows().await.is_empty());
    assert_eq!(place.rows().await.len(), 1);
}

// Ours: a record does not mix decisions of two configurations.
#[tokio::test]
async fn run_fails_naming_both_if_the_record_is_held_with_another_configuration() {
    let origin = origin().await;
    let reporting = to(&origin).set(REPORT).start().await;
    let place = reporting.place();
    let theirs = instance(place)["configuration"].clone();
    place.configure(&to(&origin));
    let outcome = run_shell(place.folder(), "curl -sS http://o.test/private/a").await;
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    for told in [
        theirs.as_str().unwrap(),
        &format!("politesse serve, process {}", reporting.pid()),
        &format!("on {}", reporting.address()),
        "here:  configuration ",
        "they differ in: enforcement.mode\n",
    ] {
        assert!(outcome.stderr.contains(told), "{told}: {outcome:?}");
    }
    assert!(origin.targets().is_empty());
}

// Ours: the requests of other crawlers through the same proxy do not count.
#[tokio::test]
async fn the_summary_of_a_joined_command_counts_only_its_own_requests() {
    let origin = origin().await;
    let proxy = to(&origin).start().await;
    get(&proxy, "http://o.test/other").await;
    let script = format!(
        "curl -sS http://o.test/a http://o.test/private/b; \
             curl -sS -x http://{} http://o.test/other http://o.test/private/c; exit 7",
        proxy.address()
    );
    let outcome = run_shell(proxy.place().folder(), &script).await;
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    for told in [
        "2 asked, 1 allowed, 1 refused;",
        "refused 1 × Disallow: /private (line 2 of http://o.test/robots.txt)",
    ] {
        assert!(outcome.stderr.contains(told), "{told}: {outcome:?}");
    }
    assert_eq!(proxy.place().completed(5).await.len(), 5);
}

// Ours: the proxy of the first command stays until the second has ended.
#[tokio::test]
async fn a_second_run_uses_the_proxy_of_the_first_until_it_ends() {
    let origin = origin().await;
    let place = Place::with(&to(&origin));
    let folder = place.folder();
    let wait_for = |what: &str| format!("until {what}; do sleep 0.05; done");
    let first = wait_for("[ -e second ]");
    let mut first = start_shell(
        folder,
        &format!("touch first; {first}; exit 5"),
        "first.log",
    );
    file_exists(folder, "first").await;
    let second = format!(
        "touch second; {}; curl -sS http://o.test/late",
        wait_for("grep -q 'the command is done' first.log")
    );
    let second = run_shell(folder, &second).await.assert_code(0);
    assert!(second.stderr.contains("1 asked, 1 allowed"), "{second:?}");
    let first = soon("end of the first", first.wait()).await.unwrap();
    assert_eq!(first.code(), Some(5));
    let told = std::fs::read_to_string(place.path("first.log")).unwrap();
    assert!(told.contains("0 asked"), "{told}");
    assert!(!place.path("instance").exists());
}

// Ours: `xargs -P4 politesse run -- …`. A proxy may be about to stop just as the next
// command joins it.
#[tokio::test]
async fn parallel_runs_never_lose_their_proxy() {
    let origin = origin().await;
    let place = Place::with(&to(&origin));
    let folder = place.folder();
    let in_turn = async |row: u32| {
        for number in 0..6 {
            let script = format!("curl -sS http://o.test/{row}{number}");
            let outcome = run_shell(folder, &script).await.assert_code(0);
            assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
            assert!(!outcome.stderr.contains("has stopped"), "{outcome:?}");
        }
    };
    tokio::join!(in_turn(1), in_turn(2), in_turn(3), in_turn(4));
}

/// Starts a command that joins `proxy`, fetches a page and runs until the file `gone`
/// exists.
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
    let origin = origin().await;
    let proxy = to(&origin).start().await;
    let (child, pid) = (start_until_gone(&proxy).await, proxy.pid());
    let place = proxy.kill().await;
    let told = end_of(child, &place).await;
    assert_contains(&told, &format!("(process {pid}) has stopped"));
    assert!(told.contains("no counts"), "{told}");
}

// Ours: a proxy that stops cleanly sends its counts first.
#[tokio::test]
async fn a_joined_run_reports_the_counts_of_a_proxy_that_stops() {
    let origin = origin().await;
    let proxy = to(&origin).start().await;
    let child = start_until_gone(&proxy).await;
    let told = end_of(child, &proxy.stop().await).await;
    assert!(told.contains("has stopped"), "{told}");
    assert!(told.contains("1 asked, 1 allowed"), "{told}");
}

// Ours: a command joins only with the configuration in force.
#[tokio::test]
async fn after_a_reload_only_the_new_configuration_can_join() {
    let origin = origin().await;
    let proxy = to(&origin).start().await;
    let before = instance(proxy.place())["configuration"].clone();
    proxy
        .place()
        .configure(&to(&origin).set("robots.ttl = \"1h\""));
    let ask = "curl -sS http://o.test/a";
    assert_eq!(run_shell(proxy.place().folder(), ask).await.code, Some(2));
    proxy.signal("HUP").await;
    let changed = || (instance(proxy.place())["configuration"] != before).then_some(());
    until("the new instance file", async || changed()).await;
    let outcome = run_shell(proxy.place().folder(), ask).await.assert_code(0);
    assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
}

// Ours: any program may hold the lock, with no instance file.
#[tokio::test]
async fn run_fails_if_the_holder_of_the_lock_is_unknown() {
    let origin = origin().await;
    let place = Place::with(&to(&origin));
    let lock = File::open(place.folder()).unwrap();
    lock.lock().unwrap();
    let outcome = run_shell(place.folder(), "curl -sS http://o.test/a").await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let told = "does not say what it is";
    assert!(outcome.stderr.contains(told), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains(&place.folder().display().to_string())
    );
    assert!(origin.targets().is_empty());
}

// Ours: `proxy.clients` concerns the network; the command runs on this machine.
#[tokio::test]
async fn a_joined_command_is_admitted_despite_proxy_clients() {
    let origin = origin().await;
    let clients = "proxy.clients = [\"10.0.0.0/8\"]";
    let proxy = to(&origin).set(clients).start().await;
    let outcome = run_shell(proxy.place().folder(), "curl -sS http://o.test/a").await;
    assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
}

// Ours: `proxy.max_commands`.
#[tokio::test]
async fn commands_beyond_max_commands_are_refused() {
    let most = "proxy.max_commands = 1";
    let origin = origin().await;
    let proxy = to(&origin).set(most).start().await;
    let child = start_until_gone(&proxy).await;
    let outcome = run_shell(proxy.place().folder(), "touch never").await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("proxy.max_commands"), "{outcome:?}");
    assert!(!proxy.place().path("never").exists());
    let told = end_of(child, proxy.place()).await;
    assert!(told.contains("1 asked, 1 allowed"), "{told}");
    let after = run_shell(proxy.place().folder(), "exit 4").await;
    assert_eq!(after.code, Some(4), "{after:?}");
}

// Ours: no other user may join the proxy or forge its instance file.
#[tokio::test]
async fn the_instance_files_are_private_and_untrusted_otherwise() {
    let origin = origin().await;
    let proxy = to(&origin).start().await;
    for name in ["instance", "instance.sock"] {
        let found = std::fs::metadata(proxy.place().path(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let path = proxy.place().path("instance");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let outcome = run_shell(proxy.place().folder(), "touch never").await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("cannot be trusted"), "{outcome:?}");
    assert!(!proxy.place().path("never").exists());
    let place = proxy.stop().await;
    assert!(!place.path("instance").exists());
    assert!(!place.path("instance.sock").exists());
}

// unix(7): a socket's path has at most 108 bytes.
#[tokio::test]
async fn a_command_joins_although_the_folders_path_is_long() {
    let origin = origin().await;
    let folder = ["d"; 12].map(|letter| letter.repeat(20)).join("/");
    let store = format!("audit.store = \"sqlite:{folder}/audit.db\"");
    let proxy = to(&origin).set(&store).start().await;
    let outcome = run_shell(proxy.place().folder(), "curl -sS http://o.test/a").await;
    assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
}

// Ours: a command that reached its own listener through the proxy would send requests in
// a circle.
#[tokio::test]
async fn a_command_does_not_reach_its_own_listener_through_the_proxy() {
    let open = "egress.allow = [\"127.0.0.0/8\"]";
    let origin = origin().await;
    let proxy = to(&origin).set(open).start().await;
    let script = "curl -sS \"$http_proxy/a\"";
    let outcome = run_shell(proxy.place().folder(), script).await;
    assert!(outcome.stderr.contains("1 asked, 0 allowed"), "{outcome:?}");
    assert!(outcome.stderr.contains("refused 1 × egress"), "{outcome:?}");
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
