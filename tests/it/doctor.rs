//! `politesse doctor`: each fault that it detects is produced here, and its output
//! says how to fix it.

use std::fs;
use std::net::TcpListener;

use crate::kit::addresses::free_addresses;
use crate::kit::client::{get, reload};
use crate::kit::program::{Outcome, finish, isolated, politesse};
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_contains_each};

/// Returns the line that begins with `start`; fails the test without one.
fn line<'a>(outcome: &'a Outcome, start: &str) -> &'a str {
    let mut lines = outcome.stdout.lines();
    let found = lines.find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no line {start}: {outcome:?}"))
}

/// Creates a place whose configuration uses two free ports.
fn place() -> Place {
    let [proxy, admin] = free_addresses();
    let config = Config::default()
        .set(&format!("proxy.listen = [\"{proxy}\"]"))
        .set(&format!("admin.listen = \"{admin}\""));
    Place::with(&config)
}

#[tokio::test]
async fn a_new_installation_has_no_fault() {
    let outcome = place().run_ok(&["doctor"]).await;
    line(&outcome, "ok       configuration: ");
    let free = "ok       no proxy runs with this record, and its ports are free";
    line(&outcome, free);
    assert_contains(line(&outcome, "warning  there is no CA yet"), "ca init`");
    line(&outcome, "ok       clock: ");
    line(&outcome, "ok       disk: ");
    line(&outcome, "ok       names: ");
    assert!(!outcome.stdout.contains("fault"), "{outcome:?}");
}

#[tokio::test]
async fn a_taken_port_is_a_fault_with_a_command_for_a_free_port() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let place = Place::with(&Config::default().set(&format!("proxy.listen = [\"{address}\"]")));
    let outcome = place.run_code(1, &["doctor"]).await;
    let fault = line(&outcome, "fault    cannot listen on ");
    let wanted = [
        &*format!("{address} (proxy.listen): "),
        "On free ports: ",
        "serve --set 'proxy.listen=[\"127.0.0.1:0\"]'",
    ];
    assert_contains_each(fault, &wanted);
}

#[tokio::test]
async fn an_outdated_process_configuration_is_a_warning_with_the_changed_keys() {
    let place = place();
    let proxy = place.start().await;
    let outcome = proxy.place().run(&["doctor"]).await;
    let runs = format!("ok       politesse serve runs, process {}", proxy.pid());
    line(&outcome, &runs);
    let file = proxy.place().path("politesse.toml");
    let text = fs::read_to_string(&file).unwrap() + "pace.max_wait = \"7s\"\n";
    fs::write(&file, text).unwrap();
    let outcome = proxy.place().run_ok(&["doctor"]).await;
    let pid = proxy.pid();
    let older = format!("warning  politesse serve, process {pid}");
    let hint = "To make it read the file again: kill -HUP";
    let hint = format!("different here: pace.max_wait. {hint} {pid};");
    assert_contains(line(&outcome, &older), &hint);
    reload(&proxy).await;
    line(&proxy.place().run(&["doctor"]).await, &runs);
}

#[tokio::test]
async fn report_mode_few_descriptors_and_a_variable_that_points_elsewhere_are_warnings() {
    let place = place();
    let mut shell = isolated("sh", place.folder());
    let command = "ulimit -n 500; exec \"$0\" --set enforcement.mode=report doctor";
    shell
        .args(["-c", command, env!("CARGO_BIN_EXE_politesse")])
        .env("http_proxy", "http://192.0.2.1:8080");
    let outcome = finish(shell, b"").await.assert_code(0);
    for warning in [
        "warning  enforcement.mode is \"report\"",
        "warning  the hard limit of descriptors is 500",
        "warning  http_proxy leads to 192.0.2.1:8080, which is not this proxy",
    ] {
        line(&outcome, warning);
    }
}

#[tokio::test]
async fn a_clock_earlier_than_the_record_is_a_fault() {
    let proxy = place().start().await;
    // Egress denies the address, which is a decision, too.
    get(&proxy, "http://10.0.0.1/").await;
    let place = proxy.stop().await;
    let hour = "UPDATE decision SET time_us = time_us + 3600000000";
    place.database().execute_batch(hour).unwrap();
    let outcome = place.run_code(1, &["doctor"]).await;
    let fault = line(&outcome, "fault    the clock says ");
    assert_contains(fault, "the record was written at ");
}

// Ours: `doctor` reports the faults that `config check` finds.
#[tokio::test]
async fn an_unreadable_configured_file_is_a_fault() {
    let command = ["--set", "https.upstream_roots=gone.pem", "doctor"];
    let outcome = place().run_code(1, &command).await;
    let fault = "fault    https.upstream_roots: cannot read the roots in ";
    assert_contains(line(&outcome, fault), "gone.pem");
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_ca_is_a_fault() {
    let place = place();
    place.run(&["ca", "init"]).await;
    let asked = async |ca: &str| {
        let mut command = politesse(place.folder());
        command.args(["doctor", "--for", "node"]);
        command.env("NODE_EXTRA_CA_CERTS", place.path(ca));
        finish(command, b"").await
    };
    let outcome = asked("roots.pem").await.assert_code(1);
    let fault = line(&outcome, "fault    node does not trust the CA ");
    assert!(fault.ends_with("ca trust --for node"), "{fault}");
    let outcome = asked("certs/ca.pem").await.assert_code(0);
    line(&outcome, "ok       node trusts the CA ");
    let outcome = place.run(&["doctor", "--for", "firefox"]).await;
    line(&outcome, "warning  whether firefox trusts the CA ");
}

// Ours: an existing CA may be on a read-only mount. A missing CA must be created, so
// its folder must be writable.
#[tokio::test]
async fn a_read_only_folder_is_a_fault_only_if_a_ca_must_be_created_in_it() {
    let place = place();
    place.run(&["ca", "init"]).await;
    let script = "
            mkdir mounted
            mount -t tmpfs none mounted
            cp certs/ca.pem certs/ca.key mounted
            mount -o remount,ro mounted
            ask() { \"$0\" --set https.ca_cert=mounted/$1.pem --set https.ca_key=mounted/$1.key doctor; }
            ask ca | grep cannot && exit 9
            ask other || true";
    let mut command = isolated("unshare", place.folder());
    command
        .args(["--map-root-user", "--mount", "sh", "-euc", script])
        .arg(env!("CARGO_BIN_EXE_politesse"))
        .env("POLITESSE_CONFIG", place.path("politesse.toml"));
    let outcome = finish(command, b"").await.assert_code(0);
    let fault = "fault    the CA (https.ca_key) cannot be written: ";
    line(&outcome, fault);
}
