//! `politesse run --sealed`: a command whose only network is the proxy.
//!
//! Tests of leaks have a network of their own in which 192.0.2.1 belongs to this machine,
//! so that a leak reaches the test and not the outside.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use crate::kit::namespace::{Addresses, inside};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::program::{Outcome, finish, politesse, send_signal};
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::{assert_members, soon, until};

/// Addresses that can be reached without a seal and not with one.
const OUTSIDE: Addresses = Addresses::These(&["192.0.2.1/32", "2001:db8::1/128"]);
const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Starts an origin, and writes the configuration of a proxy for it.
async fn unstarted() -> (Origin, Place) {
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&resolve("o.test", origin.address()));
    (origin, place)
}

/// Returns a `run --sealed` whose command is a shell script.
fn sealed(place: &Place, script: &str) -> Command {
    let mut command = politesse(place.folder());
    command.args(["run", "--sealed", "--", "sh", "-c", script]);
    command
}

async fn run_sealed(place: &Place, script: &str) -> Outcome {
    finish(sealed(place, script), b"").await
}

// Ours: without a seal, such a client fetches disallowed pages unnoticed.
#[test]
fn a_sealed_client_that_ignores_the_proxy_reaches_nothing_and_is_counted() {
    let name = "run_sealed::a_sealed_client_that_ignores_the_proxy_reaches_nothing_and_is_counted";
    inside(name, OUTSIDE, async {
        let (origin, place) = unstarted().await;
        let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await.unwrap();
        let free = "curl -sS --noproxy '*' -o /dev/null";
        let script = format!(
            "curl -sS http://o.test/a && {free} http://192.0.2.1:8080/; \
             {free} 'http://[2001:db8::1]:8080/'; \
             {free} http://{}/private/b; exit 7",
            origin.address()
        );
        let outcome = run_sealed(&place, &script).await;
        outcome.assert_output(7, "this is /a\n");
        outcome.assert_stderr(&[
            "1 asked, 1 allowed, 0 refused;",
            "2 attempts to connect or look up a name went round the proxy, and reached nothing",
        ]);
        assert!(!outcome.stderr.contains("warning"), "{outcome:?}");
        assert_eq!(origin.targets(), ["/a"]);
        let came = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
        assert!(came.is_err(), "a connection bypassed the proxy");
    });
}

// Ours. The name server of this test is on loopback, like systemd-resolved.
#[test]
fn a_name_lookup_under_a_seal_is_counted() {
    let name = "run_sealed::a_name_lookup_under_a_seal_is_counted";
    inside(name, OUTSIDE, async {
        let place = Place::with(&Config::default());
        let outcome = run_sealed(&place, "getent hosts somewhere.test").await;
        let told = outcome.stderr.lines().last().unwrap();
        assert!(told.contains("to connect or look up a name"), "{outcome:?}");
        assert!(!told.contains(" 0 attempts"), "{outcome:?}");
        outcome.assert_code(2);
    });
}

// Ours: also over HTTPS.
#[tokio::test]
async fn a_sealed_command_joins_the_proxy_that_holds_the_record() {
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &[]).await;
    let script = "curl -sS https://o.test/a; curl -sS https://o.test/private/b";
    let outcome = run_sealed(proxy.place(), script).await.assert_code(0);
    outcome.assert_stderr(&[
        "2 asked, 1 allowed, 1 refused;",
        "refused 1 × Disallow: /private (line 2 of https://o.test/robots.txt)",
        "0 attempts to connect",
    ]);
    assert_eq!(origin.targets(), ["/a"]);
}

// Ours: a seal changes neither user, working folder nor input.
#[tokio::test]
async fn a_sealed_command_keeps_its_user_folder_and_input() {
    let place = Place::with(&Config::default());
    let script = "id -u; id -g; pwd; cat; echo made > made";
    let outcome = finish(sealed(&place, script), b"the input\n").await;
    let own = std::fs::metadata("/proc/self").unwrap();
    let folder = place.folder().canonicalize().unwrap();
    let (uid, gid) = (own.uid(), own.gid());
    let wanted = format!("{uid}\n{gid}\n{}\nthe input\n", folder.display());
    assert_eq!(outcome.stdout, wanted, "{outcome:?}");
    let made = std::fs::metadata(place.path("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (uid, gid));
}

// user_namespaces(7): root in a namespace that maps no other user has no power over the
// files of other users.
#[tokio::test]
async fn root_keeps_its_power_over_other_users_files_under_a_seal() {
    let place = Place::with(&Config::default());
    let path = place.path("of-another");
    std::fs::write(&path, "read").unwrap();
    if chown(&path, Some(1234), Some(1234)).is_err() {
        eprintln!("skipped: only root can change the owner of a file");
        return;
    }
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let script = "cat of-another; setpriv --reuid 1234 --clear-groups id -u";
    let outcome = run_sealed(&place, script).await;
    assert_eq!(outcome.stdout, "read1234\n", "{outcome:?}");
}

// Ours: signals and exit codes pass through the seal.
#[tokio::test]
async fn a_signal_reaches_a_sealed_command() {
    let place = Place::with(&Config::default());
    let script = "trap 'exit 9' TERM; touch started; while :; do sleep 0.05; done";
    let mut command = sealed(&place, script);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let started = place.path("started");
    until("start", async || started.exists().then_some(())).await;
    send_signal("TERM", child.id().unwrap()).await;
    let status = soon("end of run", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(9));
}

// Ours: the message is the same without a seal.
#[tokio::test]
async fn a_missing_command_is_reported_with_and_without_a_seal() {
    let place = Place::with(&Config::default());
    for seal in [&["--sealed"][..], &[], &["--sealed"]] {
        let command = [&["run"], seal, &["--", "./nowhere"]].concat();
        let outcome = place.run_code(2, &command).await;
        outcome.assert_stderr(&["politesse: ./nowhere: no such command"]);
    }
    // Each of the three proxies recorded its end.
    let verified = place.audit("verify --json").await;
    let expected = json!({"unknown_ends": 0, "events": 9});
    assert_members(&verified.json_lines()[0], &expected);
}

// Ours: `run` never falls back to an unsealed command. The limit on namespaces applies
// only inside the user namespace of this test.
#[tokio::test]
async fn without_namespaces_a_sealed_command_is_not_started() {
    let place = Place::with(&Config::default());
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "sh", "-c"]);
    unshare.arg("echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"");
    unshare.arg(env!("CARGO_BIN_EXE_politesse"));
    unshare.args(["run", "--sealed", "--", "touch", "never"]);
    unshare.current_dir(place.folder());
    unshare.env("POLITESSE_CONFIG", place.path("politesse.toml"));
    let outcome = finish(unshare, b"").await;
    if !outcome.stderr.contains("politesse") {
        eprintln!("skipped: no user namespace to forbid others in: {outcome:?}");
        return;
    }
    outcome.assert_stderr(&[
        "--sealed is not possible here, and the command was not started",
        "user.max_user_namespaces is 0",
        "sysctl user.max_user_namespaces=",
    ]);
    outcome.assert_code(1);
    assert!(!place.path("never").exists());
}

// Ours: a client that ignores the variables gives no hint, so `run` warns.
#[tokio::test]
async fn run_warns_and_suggests_a_seal_if_nothing_came_through_the_proxy() {
    let (origin, place) = unstarted().await;
    let script = format!("curl -sS --noproxy '*' http://{}/a", origin.address());
    let outcome = place.run_ok(&["run", "--", "sh", "-c", &script]).await;
    outcome.assert_stderr(&["warning: nothing came through the proxy", "--sealed"]);
}
