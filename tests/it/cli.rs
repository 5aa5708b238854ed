//! The command line: the output and exit code of each command. All of it is ours.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish, isolated, politesse, run_in, send_signal};
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_members, soon};

const ROBOTS: &str =
    "User-agent: foobot\nDisallow: /a\nAllow: /a/b\n\nUser-agent: *\nDisallow: /\n";

/// Runs the program in an empty folder.
async fn run_in_empty_folder(arguments: &[&str]) -> Outcome {
    run_in(TempDir::new().unwrap().path(), arguments).await
}

#[tokio::test]
async fn serve_prints_its_addresses_and_a_working_curl_line() {
    let script = Script::robots("").page("/", Page::text("the page")).tls();
    let (_origin, proxy) = site(script, &[]).await;
    let banner = proxy.banner();
    let version = env!("CARGO_PKG_VERSION");
    let listens = format!("politesse {version} listens on http://{}", proxy.address());
    assert_eq!(banner[0], listens);
    let admin = format!("dashboard, health and metrics on http://{}", proxy.admin());
    assert_eq!(banner[1], admin);
    let line = banner.last().unwrap().strip_prefix("try: ").unwrap();
    assert!(line.ends_with(" https://o.test/"), "{line}");
    let mut shell = isolated("sh", proxy.place().folder());
    shell.args(["-c", &format!("{line} --silent --show-error")]);
    finish(shell, b"").await.assert_output(0, "the page");
}

// Ours: with a log for programs, nothing is printed for people.
#[tokio::test]
async fn a_json_log_has_an_event_for_the_start() {
    let place = Place::with(&Config::default().set("log.format = \"json\""));
    let mut command = politesse(place.folder());
    command
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let started = soon("start", async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["message"] == "started" {
                return event;
            }
        }
        panic!("the proxy did not start");
    })
    .await;
    for (name, wanted) in [
        ("version", env!("CARGO_PKG_VERSION")),
        ("mode", "enforce"),
        ("profile", "owned"),
    ] {
        assert_eq!(started[name], wanted, "{started}");
    }
    let listen = started["listen"].as_str().unwrap();
    assert!(listen.starts_with("http://127.0.0.1:"), "{started}");
    assert!(started["record"].as_str().unwrap().ends_with("audit.db"));
    send_signal("TERM", child.id().unwrap()).await;
    let ended = soon("end", child.wait_with_output()).await.unwrap();
    assert_eq!(ended.stdout, b"");
    assert!(ended.status.success());
}

#[tokio::test]
async fn five_configuration_mistakes_give_five_messages_and_no_start() {
    let mistakes = [
        "proxy.listne = [\"127.0.0.1:0\"]",
        "upstream.connect_timeout = \"-5s\"",
        "robots.redirects = 99",
        "https.mode = \"tunnel\"",
        "audit.queue = true",
    ];
    let config = mistakes.into_iter().fold(Config::default(), Config::set);
    let place = Place::with(&config);
    for command in [&["serve"][..], &["config", "check"]] {
        let outcome = place.run(command).await;
        outcome.assert_output(2, "");
        for mistake in mistakes {
            let (key, _) = mistake.split_once(" = ").unwrap();
            let told = outcome.stderr.lines().filter(|line| line.contains(key));
            assert_eq!(told.count(), 1, "{key}: {}", outcome.stderr);
        }
        assert!(outcome.stderr.contains("line 11"), "{}", outcome.stderr);
    }
}

#[tokio::test]
async fn an_unreadable_ca_file_is_named_with_the_reason() {
    let place = Place::with(&Config::default());
    place.run_ok(&["ca", "init"]).await;
    std::fs::write(place.path("certs/ca.pem"), "nonsense").unwrap();
    let outcome = place.run(&["serve"]).await;
    outcome.assert_output(1, "");
    assert_contains(&outcome.stderr, "certs/ca.pem");
    std::fs::remove_file(place.path("certs/ca.pem")).unwrap();
    std::fs::create_dir(place.path("certs/ca.pem")).unwrap();
    let outcome = place.run_code(1, &["serve"]).await;
    assert_contains(&outcome.stderr, "certs/ca.pem");
    assert_contains(&outcome.stderr, "directory");
}

// Ours: without roots no origin can be trusted, so the proxy does not start.
#[tokio::test]
async fn a_system_without_roots_is_reported_with_the_key_to_set() {
    let place = Place::with(&Config::default().set("https.upstream_roots = \"system\""));
    std::fs::write(place.path("none.pem"), "").unwrap();
    let mut command = politesse(place.folder());
    command.args(["--config", "politesse.toml", "serve"]);
    std::fs::create_dir(place.path("none")).unwrap();
    command.env("SSL_CERT_FILE", place.path("none.pem"));
    command.env("SSL_CERT_DIR", place.path("none"));
    let outcome = finish(command, b"").await.assert_code(1);
    assert_contains(&outcome.stderr, "no root certificates");
    assert_contains(&outcome.stderr, "https.upstream_roots");
}

#[tokio::test]
async fn usage_mistakes_exit_with_2() {
    for arguments in [
        &["nonsense"][..],
        &["check"],
        &["--config", "absent.toml", "serve"],
        &["check", "--robots", "absent.txt", "http://o.test/"],
    ] {
        let outcome = run_in_empty_folder(arguments).await;
        outcome.assert_output(2, "");
    }
    for command in ["serve", "check", "ca", "run", "audit", "config"] {
        let help = run_in_empty_folder(&[command, "--help"]).await;
        assert_contains(&help.assert_code(0).stdout, "Example");
    }
}

const GZIP: &str = "H4sIAAAAAAACAwstTi3STUxPzSuxUtDicsksTszJyS+3UtDnAgBChKSPGgAAAA==";

// Ours: docs/check.md.
#[tokio::test]
async fn check_batch_answers_each_line_in_order_despite_bad_lines() {
    let mut command = politesse(std::env::temp_dir().as_path());
    command.args(["check", "--batch", "-"]);
    let lines = [
        json!({"id": 1, "robots": ROBOTS, "agent": "FooBot/2.1 (+http://f.test/)", "url": "http://o.test/a", "unknown": 1}).to_string(),
        "{nonsense".to_owned(),
        json!({"id": "b", "robots": "", "robots_b64": "VXNlci1hZ2VudDogKgpEaXNhbGxvdzogLwo=", "agent": "x", "url": "http://o.test/"}).to_string(),
        json!({"id": 3, "robots": "", "agent": "x", "url": "http://o.test/", "status": 503}).to_string(),
        // `User-agent: *` and `Disallow: /` compressed with gzip, and four NUL bytes.
        json!({"id": 4, "robots_b64": GZIP, "agent": "x", "url": "http://o.test/"}).to_string(),
        json!({"id": 5, "robots_b64": "AAAAAA==", "agent": "x", "url": "http://o.test/"}).to_string(),
    ];
    let outcome = finish(command, (lines.join("\n") + "\n").as_bytes()).await;
    let told = outcome.json_lines();
    assert_eq!(told.len(), 6, "{outcome:?}");
    for (at, reason) in [(4, "rule"), (5, "unreachable")] {
        assert_members(&told[at], &json!({"verdict": "disallow", "reason": reason}));
    }
    let first = json!({
        "id": 1, "verdict": "disallow", "reason": "rule", "line": 2, "rule": "Disallow: /a",
        "group": ["foobot"], "token": "FooBot", "candidates": ["FooBot"], "crawl_delay": null,
    });
    assert_eq!(told[0], first);
    assert_eq!(told[1]["line"], 2);
    assert!(told[1]["error"].is_string());
    assert_members(&told[2], &json!({"id": "b", "verdict": "disallow"}));
    assert_eq!(told[3]["reason"], "unreachable");
}

#[tokio::test]
async fn ca_commands_make_show_and_export_the_authority() {
    let place = Place::with(&Config::default());
    for command in [
        &["ca", "show"][..],
        &["ca", "export"],
        &["ca", "issue", "a"],
    ] {
        let outcome = place.run_code(1, command).await;
        assert!(outcome.stderr.contains("ca init`"), "{outcome:?}");
    }
    place.run_ok(&["ca", "init"]).await;
    let pem = std::fs::read_to_string(place.path("certs/ca.pem")).unwrap();
    assert_eq!(place.run(&["ca", "export"]).await.stdout, pem);
    // Another user cannot read the key, but these commands need only the certificate.
    let (key, away) = (place.path("certs/ca.key"), place.path("away"));
    std::fs::rename(&key, &away).unwrap();
    assert_eq!(place.run(&["ca", "export"]).await.stdout, pem);
    let trust = place.run(&["ca", "trust", "--for", "chromium"]).await;
    assert!(trust.stdout.contains("spki-list="), "{trust:?}");
    std::fs::rename(&away, &key).unwrap();
    assert!(place.run(&["ca", "show"]).await.stdout.contains("sha256"));
    let again = place.run(&["ca", "init"]).await;
    assert_ne!(again.code, Some(0), "never overwritten");
    assert_eq!(place.run(&["ca", "export"]).await.stdout, pem);
}
