//! The environment that `politesse run` gives its command, tried with real clients.
//!
//! `tests/clients/table/run` tries more clients.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish, politesse, send_signal};
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::until;

const ROBOTS: &str = "User-agent: *\nDisallow: /basket\n";

async fn shop(name: &str) -> Origin {
    let script = Script::robots(ROBOTS).page("/page", Page::html("A page"));
    script.name(name).tls().start().await
}

/// Returns a folder for `run`, with a home folder and one for temporary files.
fn place(config: &Config) -> Place {
    let place = Place::with(config);
    fs::create_dir(place.path("tmp")).unwrap();
    fs::create_dir(place.path("home")).unwrap();
    place
}

/// Returns the command `politesse run -- COMMAND`.
fn through_run(place: &Place, command: &[&str]) -> Command {
    through(place, "run --", command)
}

/// Returns the command `politesse RUN COMMAND`.
fn through(place: &Place, run: &str, command: &[&str]) -> Command {
    let mut program = politesse(place.folder());
    program
        .env("TMPDIR", place.path("tmp"))
        .env("HOME", place.path("home"))
        .args(run.split(' '))
        .args(command);
    program
}

fn temporary_files(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path("tmp")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the variables that the command of `run` sees with another value than this
/// process.
async fn changed_variables(place: &Place) -> HashMap<String, String> {
    let outcome = finish(through_run(place, &["env", "-0"]), b"").await;
    let stdout = outcome.assert_code(0).stdout;
    let pairs = stdout.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(name, value)| std::env::var(name).as_deref() != Ok(value))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

// Ours: a client that replaces its roots trusts only the proxy's CA.
#[tokio::test]
async fn every_variable_for_roots_names_a_file_with_only_our_ca() {
    let place = place(&Config::default());
    let variables = changed_variables(&place).await;
    let file = &variables["SSL_CERT_FILE"];
    for name in [
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "PERL_LWP_SSL_CA_FILE",
        "NODE_EXTRA_CA_CERTS",
        "DENO_CERT",
        "AWS_CA_BUNDLE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "npm_config_cafile",
    ] {
        assert_eq!(variables.get(name), Some(file), "{name}");
    }
    let show = "cat \"$SSL_CERT_FILE\"; ls -A \"$SSL_CERT_DIR\"";
    let shown = finish(through_run(&place, &["sh", "-c", show]), b"").await;
    let authority = fs::read_to_string(place.path("certs/ca.pem")).unwrap();
    assert_eq!(shown.stdout, authority, "{shown:?}");
}

// Ours: without interception there is no CA to trust.
#[tokio::test]
async fn without_interception_the_users_roots_stay() {
    let place = place(&Config::default().set("https.mode = \"refuse\""));
    let variables = changed_variables(&place).await;
    assert!(variables.contains_key("https_proxy"), "{variables:?}");
    assert!(!variables.contains_key("SSL_CERT_FILE"), "{variables:?}");
    assert!(temporary_files(&place).is_empty());
}

/// Runs `command`, and asserts that it fetched one page through the proxy, that a
/// disallowed one was refused, and that no temporary file is left.
async fn assert_proxied(place: &Place, origin: &Origin, command: Command) -> Outcome {
    let outcome = finish(command, b"").await;
    outcome.assert_stderr(&["2 asked, 1 allowed, 1 refused"]);
    assert_eq!(origin.targets(), ["/page"]);
    assert!(temporary_files(place).is_empty());
    outcome
}

#[tokio::test]
async fn curl_and_requests_trust_the_ca_also_under_a_seal() {
    let root = env!("CARGO_MANIFEST_DIR");
    let python = format!("{root}/target/venv/bin/python {root}/tests/clients/fetch.py");
    let urls = ["https://shop.test/page", "https://shop.test/basket"];
    for run in ["run --", "run --sealed --"] {
        for client in ["curl -sS", &python] {
            let origin = shop("shop.test").await;
            let place = place(&resolve("shop.test", origin.address()));
            let command: Vec<&str> = client.split(' ').chain(urls).collect();
            let outcome = assert_proxied(&place, &origin, through(&place, run, &command)).await;
            outcome.assert_code(0);
        }
    }
}

// Ours: the user's settings for wget apply, except those that bypass the proxy.
#[tokio::test]
async fn wget_keeps_its_users_settings_and_trusts_the_ca() {
    let origin = shop("shop.test").await;
    let place = place(&resolve("shop.test", origin.address()));
    let own = "header = X-Own: yes\nuse_proxy = off\nhttps_proxy = http://127.0.0.1:1\n";
    fs::write(place.path("home/.wgetrc"), own).unwrap();
    let wget = "wget -nv -t 1 -O /dev/null https://shop.test/page https://shop.test/basket";
    let command: Vec<&str> = wget.split(' ').collect();
    let outcome = assert_proxied(&place, &origin, through_run(&place, &command)).await;
    // Exit status 8 is an error response (wget(1), "Exit status"): the refusal.
    outcome.assert_code(8);
    assert_eq!(origin.arrival("/page").await.values("x-own"), ["yes"]);
}

/// Runs a program that requests `https://localhost:PORT/page` without the proxy and with
/// roots of its user that trust the origin. Returns its outcome by itself and under `run`.
async fn bypass_the_proxy(program: &[&str]) -> (Outcome, Outcome) {
    let origin = shop("localhost").await;
    let place = place(&Config::default());
    let url = format!("https://localhost:{}/page", origin.address().port());
    let command: Vec<&str> = program.iter().copied().chain([url.as_str()]).collect();
    let roots = place.path("roots.pem");
    let with_own_roots = |mut command: Command| {
        command
            .env("CURL_CA_BUNDLE", &roots)
            .env("NODE_EXTRA_CA_CERTS", &roots)
            .env("SSL_CERT_FILE", &roots);
        command
    };
    let mut alone = Command::new(command[0]);
    alone.args(&command[1..]);
    let alone = finish(with_own_roots(alone), b"").await;
    let led = finish(with_own_roots(through_run(&place, &command)), b"").await;
    assert_eq!(origin.targets(), ["/page"], "{led:?}");
    (alone, led)
}

// Ours: over HTTPS a bypass fails, because the client trusts only the proxy's CA.
#[tokio::test]
async fn a_client_that_bypasses_the_proxy_gets_nothing_over_https() {
    let curl = ["curl", "-sS", "--noproxy", "*"];
    let (alone, led) = bypass_the_proxy(&curl).await;
    assert_eq!(alone.code, Some(0), "{alone:?}");
    // Exit code 60: the certificate cannot be verified (curl(1), "Exit codes").
    assert_eq!(led.code, Some(60), "{led:?}");
    let script = "require('https').get(process.argv[1], { agent: new (require('https').Agent)() }, \
                      response => console.log(response.statusCode))";
    let (alone, led) = bypass_the_proxy(&["node", "-e", script]).await;
    assert_eq!(alone.stdout, "200\n", "{alone:?}");
    assert!(led.stderr.contains("certificate"), "{led:?}");
}

// Ours: a command may run as another user, which must read the CA; a user's settings may
// hold passwords. All files are removed with the run.
#[tokio::test]
async fn copied_user_settings_are_private_and_a_signal_removes_all_files() {
    let place = place(&Config::default());
    fs::write(place.path("home/.wgetrc"), "password = secret").unwrap();
    let mut command = through_run(&place, &["sh", "-c", "touch ready; exec sleep 60"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let ready = place.path("ready");
    until("the command", async || ready.exists().then_some(())).await;
    let folders = temporary_files(&place);
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(folders.iter().map(mode).collect::<Vec<_>>(), [0o755]);
    for entry in fs::read_dir(&folders[0]).unwrap() {
        let path = entry.unwrap().path();
        let wanted = match path.is_dir() {
            true => 0o755,
            false if path.ends_with("wgetrc") => 0o600,
            false => 0o644,
        };
        assert_eq!(mode(&path), wanted, "{}", path.display());
    }
    send_signal("TERM", child.id().unwrap()).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(128 + 15));
    assert!(temporary_files(&place).is_empty());
}

// Ours: HOME is /dev/null for some services, and another user's after a change of user.
#[tokio::test]
async fn an_unreadable_home_does_not_prevent_the_command() {
    let place = place(&Config::default());
    fs::create_dir(place.path("home/.wgetrc")).unwrap();
    for home in ["/dev/null", "home"] {
        let mut command = through_run(&place, &["sh", "-c", "exit 6"]);
        command.env("HOME", home);
        finish(command, b"").await.assert_code(6);
    }
}
