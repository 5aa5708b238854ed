//! `politesse run` and the proxy that it finds: by the lock on the record,
//! never by a port.

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
use crate::kit::{soon, until};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
const REPORT: &str = "enforcement.mode = \"report\"";

async fn origin() -> Origin {
    Script::robots(ROBOTS).start().await
}

fn to(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
}

/// `run` with a shell for its command.
fn shell(folder: &Path, script: &str) -> Command {
    let mut command = politesse(folder);
    command.args(["run", "--", "sh", "-c", script]);
    command
}

async fn run_shell(folder: &Path, script: &str) -> Outcome {
    finish(shell(folder, script), b"").await
}

/// `run` with a shell, under way; what it tells goes to the file `log`.
fn start_shell(folder: &Path, script: &str, log: &str) -> Child {
    let log = File::create(folder.join(log)).unwrap();
    let mut command = shell(folder, script);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log).spawn().unwrap()
}

async fn file_is_there(folder: &Path, name: &str) {
    let path = folder.join(name);
    until("file", async || path.exists().then_some(())).await;
}

fn instance(place: &Place) -> Value {
    let text = std::fs::read_to_string(place.path("instance")).unwrap();
    serde_json::from_str(&text).unwrap()
}

// ours: the proxy of another configuration was gone through, because it
// answered on the admin port.
#[tokio::test]
async fn a_proxy_in_report_mode_on_the_same_ports_is_not_gone_through() {
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

// ours: decisions by one configuration do not go on the record of another.
#[tokio::test]
async fn a_record_held_with_another_configuration_ends_run_naming_both() {
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

// ours: another crawler uses the proxy at the same time.
#[tokio::test]
async fn the_summary_of_a_joined_command_counts_its_requests_alone() {
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

// ours: the first proxy is needed by the second command, and stays for it.
#[tokio::test]
async fn a_second_run_goes_through_the_proxy_of_the_first_until_it_ends() {
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
    file_is_there(folder, "first").await;
    let second = format!(
        "touch second; {}; curl -sS http://o.test/late",
        wait_for("grep -q 'the command is done' first.log")
    );
    let second = run_shell(folder, &second).await;
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.stderr.contains("1 asked, 1 allowed"), "{second:?}");
    let first = soon("end of the first", first.wait()).await.unwrap();
    assert_eq!(first.code(), Some(5));
    let told = std::fs::read_to_string(place.path("first.log")).unwrap();
    assert!(told.contains("0 asked"), "{told}");
    assert!(!place.path("instance").exists());
}

// ours: `xargs -P4 politesse run -- …`. The proxy of a command that ends stops
// as the next is about to join it.
#[tokio::test]
async fn commands_that_come_and_go_side_by_side_keep_their_proxy() {
    let origin = origin().await;
    let place = Place::with(&to(&origin));
    let folder = place.folder();
    let in_turn = async |row: u32| {
        for number in 0..6 {
            let script = format!("curl -sS http://o.test/{row}{number}");
            let outcome = run_shell(folder, &script).await;
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
            assert!(!outcome.stderr.contains("has stopped"), "{outcome:?}");
        }
    };
    tokio::join!(in_turn(1), in_turn(2), in_turn(3), in_turn(4));
}

/// Returns a command that runs through `proxy` until the file `gone` is there.
async fn start_until_gone(proxy: &Proxy) -> Child {
    let folder = proxy.place().folder();
    let script = "curl -sS http://o.test/a; touch started; \
                  until [ -e gone ]; do sleep 0.05; done; sleep 0.5; exit 3";
    let child = start_shell(folder, script, "run.log");
    file_is_there(folder, "started").await;
    child
}

async fn end_of(mut child: Child, place: &Place) -> String {
    File::create(place.path("gone")).unwrap();
    let status = soon("end of run", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(3));
    std::fs::read_to_string(place.path("run.log")).unwrap()
}

// ours: the command goes on, and its user must know why it fetches nothing.
#[tokio::test]
async fn the_death_of_the_proxy_is_told_by_the_command_that_joined_it() {
    let origin = origin().await;
    let proxy = to(&origin).start().await;
    let (child, pid) = (start_until_gone(&proxy).await, proxy.pid());
    let place = proxy.kill().await;
    let told = end_of(child, &place).await;
    assert!(
        told.contains(&format!("(process {pid}) has stopped")),
        "{told}"
    );
    assert!(told.contains("no counts"), "{told}");
}

// ours: a proxy that stops in order still says what it knows.
#[tokio::test]
async fn a_proxy_that_stops_tells_the_counts_so_far() {
    let origin = origin().await;
    let proxy = to(&origin).start().await;
    let child = start_until_gone(&proxy).await;
    let told = end_of(child, &proxy.stop().await).await;
    assert!(told.contains("has stopped"), "{told}");
    assert!(told.contains("1 asked, 1 allowed"), "{told}");
}

// ours: what SIGHUP put in force is what a command must have.
#[tokio::test]
async fn after_a_reload_a_command_joins_with_the_new_configuration() {
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
    until("the file to follow", async || changed()).await;
    let outcome = run_shell(proxy.place().folder(), ask).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
}

// ours: the holder of the lock may be a program that knows nothing of this.
#[tokio::test]
async fn a_lock_whose_holder_does_not_say_what_it_is_ends_run() {
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

// ours: `proxy.clients` is about the network; the command runs here.
#[tokio::test]
async fn a_command_may_connect_whoever_the_clients_are() {
    let origin = origin().await;
    let clients = "proxy.clients = [\"10.0.0.0/8\"]";
    let proxy = to(&origin).set(clients).start().await;
    let outcome = run_shell(proxy.place().folder(), "curl -sS http://o.test/a").await;
    assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
}

// ours: the bound of what joins.
#[tokio::test]
async fn more_commands_than_may_join_are_refused() {
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

// ours: nobody else may hand a listener to the proxy, or say what it is.
#[tokio::test]
async fn what_lies_beside_the_lock_is_for_its_owner_alone() {
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

// unix(7): the address of a Unix socket holds 108 bytes.
#[tokio::test]
async fn a_command_joins_in_a_folder_with_a_long_path() {
    let origin = origin().await;
    let folder = ["d"; 12].map(|letter| letter.repeat(20)).join("/");
    let store = format!("audit.store = \"sqlite:{folder}/audit.db\"");
    let proxy = to(&origin).set(&store).start().await;
    let outcome = run_shell(proxy.place().folder(), "curl -sS http://o.test/a").await;
    assert!(outcome.stderr.contains("1 asked, 1 allowed"), "{outcome:?}");
}

// ours: whoever reached the listener of its command through the proxy would
// send requests in a circle.
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

// nohup(1): a command that is started to ignore a signal goes on ignoring it.
#[tokio::test]
async fn a_signal_that_is_ignored_stays_ignored_for_the_command() {
    let place = Place::with(&Config::default());
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\""]);
    command.args([env!("CARGO_BIN_EXE_politesse"), "--here", "run", "--"]);
    command.args(["sh", "-c", "kill -HUP $$; kill -INT $$; exit 5"]);
    command.current_dir(place.folder());
    let outcome = finish(command, b"").await;
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
}
