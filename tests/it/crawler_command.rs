//! `politesse crawler`: a new token is printed once, and the configuration gets only its
//! digest. All ours; docs/clients.md.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;

use crate::kit::assert_contains;
use crate::kit::client::{Crawler, get_as, reload};
use crate::kit::origin::{Script, site};
use crate::kit::program::{Outcome, politesse, run_in};
use crate::kit::proxy::{Config, Place};
use crate::kit::sha256;

/// Returns the printed token.
fn token(outcome: &Outcome) -> String {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let token = outcome.stdout.strip_suffix('\n').unwrap();
    assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert!(!outcome.stderr.contains(token), "{outcome:?}");
    token.to_owned()
}

fn file(place: &Place) -> String {
    std::fs::read_to_string(place.path("politesse.toml")).unwrap()
}

#[tokio::test]
async fn a_new_token_protects_the_name_after_a_reload() {
    let (_origin, proxy) = site(Script::robots("User-agent: FooBot\nDisallow: /f\n"), &[]).await;
    let before = file(proxy.place());
    let add = ["crawler", "add", "FooBot", "--comment", "shop team"];
    let token = token(&proxy.place().run(&add).await);
    let after = file(proxy.place());
    let added = after.strip_prefix(&before).unwrap();
    let lines: Vec<_> = added.trim().lines().collect();
    assert!(lines[0].starts_with("# politesse crawler add, 20"));
    assert!(lines[0].ends_with(": shop team"));
    let digest = sha256(token.as_bytes());
    let entry = [
        "[[crawler]]",
        "token = \"FooBot\"",
        &format!("credential = \"sha256:{digest}\""),
    ];
    assert_eq!(lines[1..], entry);
    let status = async || get_as(&proxy, "FooBot/1", "http://o.test/x").await.status();
    assert_eq!(status().await, 200);
    reload(&proxy).await;
    assert_eq!(status().await, 407);
    let mut crawler = Crawler::plain(&proxy).await;
    let bearer = format!("Proxy-Authorization: Bearer {token}");
    let lines = ["GET http://o.test/f HTTP/1.1", "Host: o.test", &bearer];
    let reply = crawler.ask(&lines).await;
    assert_eq!(reply.status(), 403, "{}", reply.text());
    assert_eq!(reply.json()["crawler"], "FooBot");
}

#[tokio::test]
async fn crawler_add_keeps_the_mode_and_lines_of_the_file() {
    let place = Place::with(&Config::default());
    let path = place.path("politesse.toml");
    for (text, mode) in [
        ("", 0o600),
        ("[proxy]\nname = \"x\"", 0o640),
        ("[proxy]\r\nname = \"x\"\r\n", 0o644),
        (
            "[[crawler]]\ntoken = \"A\"\n\n[log]\nlevel = \"warn\"\n# end",
            0o604,
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        token(&place.run(&["crawler", "add", "FooBot"]).await);
        token(&place.run(&["crawler", "add", "a \"b\""]).await);
        assert!(file(&place).starts_with(text), "{text:?}");
        let kept = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(kept, mode, "{text:?}");
        let list = place.run(&["crawler", "list", "--json"]).await.json_lines();
        assert_eq!(list.last().unwrap()["token"], json!(["a \"b\""]));
    }
}

#[tokio::test]
async fn crawler_add_prints_the_lines_if_it_cannot_write_them() {
    let inline = Place::with(&Config::default().set("crawler = [{ token = \"A\" }]"));
    let before = file(&inline);
    let outcome = inline.run(&["crawler", "add", "FooBot"]).await;
    let digest = sha256(token(&outcome).as_bytes());
    let line = format!("credential = \"sha256:{digest}\"\n");
    outcome.assert_stderr(&["`crawler` is a list there", &line]);
    assert_eq!(file(&inline), before);

    let empty = tempfile::tempdir().unwrap();
    let outcome = run_in(empty.path(), &["crawler", "add", "FooBot"]).await;
    let digest = sha256(token(&outcome).as_bytes());
    // This machine may have a configuration file of its own.
    if !std::path::Path::new("/etc/politesse/politesse.toml").exists() {
        outcome.assert_stderr(&["no configuration file", &digest]);
    }
}

#[tokio::test]
async fn config_check_warns_if_credentials_contradict_proxy_auth() {
    let place = Place::with(&Config::default().set("proxy.auth = \"required\""));
    let outcome = place.run(&["config", "check"]).await;
    assert_contains(&outcome.stdout, "every request is answered with 407");
    token(&place.run(&["crawler", "add", "FooBot"]).await);
    let outcome = place.run(&["config", "check"]).await;
    assert_eq!(outcome.stdout, "the configuration is good\n");
    let off = ["--set", "proxy.auth=off", "config", "check"];
    let outcome = place.run(&off).await;
    assert_contains(&outcome.stdout, "credentials of crawler");
}

#[tokio::test]
async fn crawler_add_refuses_invalid_names_and_comments() {
    let place = Place::with(&Config::default());
    let before = file(&place);
    for arguments in [
        &["FooBot/1"][..],
        &["*"],
        &[""],
        &["Foo#"],
        &["FooBot", "--comment", "a\nb"],
    ] {
        let outcome = place.run(&[&["crawler", "add"], arguments].concat()).await;
        outcome.assert_output(2, "");
    }
    assert_eq!(file(&place), before);
}

#[tokio::test]
async fn crawler_list_shows_entries_in_matching_order() {
    let digest = sha256(b"t");
    let table = format!(
        "crawler = [{{ token = [\"A\", \"B\"], user_agent = \"a/\", max_wait = \"60s\" }}, \
             {{ token = \"C\", client = \"10.0.0.0/8\", credential = \"sha256:{digest}\" }}]"
    );
    let place = Place::with(&Config::default().set(&table));
    let outcome = place.run(&["crawler", "list"]).await;
    let short = &digest[..12];
    let expected = format!(
        "NAMES  CREDENTIAL            USER-AGENT  CLIENT      MAX WAIT\n\
             A, B   -                     a/          -           60s\n\
             C      sha256:{short}…  -           10.0.0.0/8  -\n"
    );
    assert_eq!(outcome.stdout, expected);
    let lines = place.run(&["crawler", "list", "--json"]).await.json_lines();
    assert_eq!(lines[0]["max_wait_ms"], 60_000);
    assert_eq!(lines[1]["credential"], format!("sha256:{digest}"));
}

// Ours: an entry with a lost token would lock its crawler out.
#[tokio::test]
async fn crawler_add_reports_a_token_that_could_not_be_printed() {
    let place = Place::with(&Config::default());
    let mut add = politesse(place.folder());
    add.args(["crawler", "add", "FooBot"])
        .stdout(std::fs::File::create("/dev/full").unwrap())
        .stderr(Stdio::piped());
    let outcome = add.spawn().unwrap().wait_with_output().await.unwrap();
    let told = String::from_utf8(outcome.stderr).unwrap();
    assert_eq!(outcome.status.code(), Some(1), "{told}");
    assert!(told.contains("remove the entry of FooBot"), "{told}");
}
