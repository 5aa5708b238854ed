//! Features that packages need: completions, manual pages, the version with its commit,
//! the health check, and notifications to a service manager.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tokio::net::UnixDatagram;

use crate::kit::certificates::TestCa;
use crate::kit::checkout::root;
use crate::kit::client::reload;
use crate::kit::program::{Outcome, finish, isolated, politesse, run_in};
use crate::kit::proxy::{Config, Place, Proxy};
use crate::kit::{assert_contains, soon};

/// Some of the commands that `--help` lists.
const COMMANDS: [&str; 6] = ["serve", "run", "check", "audit", "doctor", "completions"];

/// Runs the program in an empty folder.
async fn run_alone(arguments: &[&str]) -> Outcome {
    run_in(TempDir::new().unwrap().path(), arguments).await
}

// Ours: bash itself loads the script and completes the words.
#[tokio::test]
async fn bash_completes_commands_and_their_options() {
    let folder = TempDir::new().unwrap();
    let script = run_alone(&["completions", "bash"]).await.stdout;
    std::fs::write(folder.path().join("politesse"), script).unwrap();
    let ask = "
            . ./politesse
            ask() { COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMPREPLY=()
                _politesse politesse \"${@: -1}\" \"${@: -2:1}\"; echo \"${COMPREPLY[@]}\"; }
            ask politesse se; ask politesse audit li; ask politesse audit list --verd";
    let mut bash = isolated("bash", folder.path());
    bash.args(["-c", ask]);
    let outcome = finish(bash, b"").await;
    assert_eq!(outcome.stdout, "serve\nlist\n--verdict\n", "{outcome:?}");
}

// Ours: zsh and fish are not installed, so their scripts are only searched.
#[tokio::test]
async fn each_supported_shell_completes_the_visible_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let outcome = run_alone(&["completions", shell]).await.assert_code(0);
        for command in COMMANDS {
            assert!(outcome.stdout.contains(command), "{shell}: {command}");
        }
    }
    assert_eq!(run_alone(&["completions", "csh"]).await.code, Some(2));
}

// Ours.
#[tokio::test]
async fn each_visible_command_has_a_manual_page() {
    let folder = TempDir::new().unwrap();
    run_in(folder.path(), &["man", "man1"]).await.assert_code(0);
    let page = |name: &str| std::fs::read_to_string(folder.path().join("man1").join(name));
    for command in COMMANDS {
        let text = page(&format!("politesse-{command}.1")).unwrap();
        assert!(text.contains(".TH politesse-"), "{text}");
    }
    let list = page("politesse-audit-list.1").unwrap();
    assert_contains(&list, "\\-\\-verdict");
    let whole = page("politesse.1").unwrap();
    assert!(page("politesse-reference.1").is_err() && !whole.contains("reference"));
    // Without a folder, `man` prints the page of the program itself.
    assert_eq!(run_alone(&["man"]).await.stdout, whole);
    let refused = run_alone(&["man", "/proc/none"]).await.assert_code(1);
    assert_contains(&refused.stderr, "cannot write manual pages to /proc/none");
}

/// Compiles and runs `build.rs` for `profile`, and returns its output.
fn build_script(folder: &Path, profile: &str) -> String {
    let program = folder.join("build");
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--edition=2024", "build.rs", "-o"])
        .arg(&program);
    rustc.env("CARGO_PKG_VERSION", "7.8.9").current_dir(root());
    assert!(rustc.status().unwrap().success());
    let mut build = Command::new(program);
    build.env("PROFILE", profile).current_dir(root());
    String::from_utf8(build.output().unwrap().stdout).unwrap()
}

// Ours: `--version` of a release names its commit, for fault reports.
#[test]
fn release_builds_state_their_commit_and_its_date() {
    let folder = TempDir::new().unwrap();
    let mut git = Command::new("git");
    git.args(["show", "--no-patch", "--format=%h %cs", "--abbrev=12"]);
    let commit = git.current_dir(root()).output().unwrap();
    let commit = String::from_utf8(commit.stdout).unwrap();
    let told = build_script(folder.path(), "release");
    assert_contains(
        &told,
        &format!("POLITESSE_VERSION=7.8.9 ({})\n", commit.trim()),
    );
    assert_contains(&told, "logs/HEAD");
    let told = build_script(folder.path(), "debug");
    assert_contains(&told, "POLITESSE_VERSION=7.8.9\n");
    assert!(!told.contains("HEAD"), "{told}");
}

/// Starts a proxy whose admin listener has a certificate for a name that no test uses:
/// commands trust the configured certificate itself.
async fn with_admin_tls() -> Proxy {
    let keys = "admin.tls_cert = \"admin.pem\"\nadmin.tls_key = \"admin.key\"";
    let place = Place::with(&Config::default().set(keys));
    write_admin_certificate(&place);
    place.start().await
}

/// Writes a new certificate and key for the admin listener.
fn write_admin_certificate(place: &Place) {
    let [cert, key] = TestCa::get().pair(&["polite.test"]);
    place.write("admin.pem", &cert, 0o644);
    place.write("admin.key", &key, 0o600);
}

// Ours: the health check of a container or a service.
#[tokio::test]
async fn health_exits_zero_only_while_the_proxy_is_ready() {
    for proxy in [Config::default().start().await, with_admin_tls().await] {
        // A container's health check works without the admin token.
        std::fs::remove_file(proxy.place().path("data/admin-token")).unwrap();
        let outcome = proxy.run_admin(&["health"]).await;
        outcome.assert_output(0, "ready\n");
        let listen = format!("admin.listen=\"{}\"", proxy.admin());
        let place = proxy.stop().await;
        let outcome = place.run_code(1, &["--set", &listen, "health"]).await;
        assert!(outcome.stderr.contains("nothing listens on"), "{outcome:?}");
    }
}

// Ours: after a change of the file, commands fail until the proxy reloads it.
#[tokio::test]
async fn commands_trust_only_the_configured_admin_certificate() {
    let proxy = with_admin_tls().await;
    proxy.run_admin(&["clients"]).await.assert_code(0);
    write_admin_certificate(proxy.place());
    let outcome = proxy.run_admin(&["clients"]).await.assert_code(1);
    let way_out = "After a change of that file the proxy needs SIGHUP";
    assert!(outcome.stderr.contains(way_out), "{outcome:?}");
    reload(&proxy).await;
    assert_eq!(proxy.run_admin(&["clients"]).await.code, Some(0));
}

// sd_notify(3): READY=1 after the start, STOPPING=1 at the beginning of the stop.
#[tokio::test]
async fn a_service_manager_is_notified_of_start_and_stop() {
    let place = Place::with(&Config::default());
    let socket = UnixDatagram::bind(place.path("notify.sock")).unwrap();
    let mut command = politesse(place.folder());
    command
        .arg("serve")
        .env("NOTIFY_SOCKET", place.path("notify.sock"));
    let proxy = Proxy::start(place, command).await;
    let message = async || {
        let mut bytes = [0; 64];
        let length = soon("a message", socket.recv(&mut bytes)).await.unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    assert_eq!(message().await, "READY=1\n");
    proxy.stop().await;
    assert_eq!(message().await, "STOPPING=1\n");
}
