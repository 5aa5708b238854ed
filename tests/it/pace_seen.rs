//! Pace as operators see it: the admin API, `pace show` and `audit events`.

use std::fs::{Permissions, create_dir_all, metadata, remove_file, set_permissions, write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::process::Command;

use crate::kit::client::{Crawler, get};
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, delaying, queue};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish};
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, assert_members, until};

/// Token file of the proxy in a [`Place`].
const TOKEN_FILE: &str = "data/admin-token";

/// Returns `admin:TOKEN` with the token that `admin token` prints.
async fn credentials(place: &Place) -> String {
    let told = place.run_ok(&["admin", "token"]).await;
    format!("admin:{}", told.stdout.trim_end())
}

/// Writes the token file with these contents and permissions.
fn write_token(place: &Place, text: &str, mode: u32) {
    let path = place.path(TOKEN_FILE);
    create_dir_all(path.parent().unwrap()).unwrap();
    write(&path, text).unwrap();
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Asks the API with curl. Returns the status and the rest of the output.
async fn curl(admin: SocketAddr, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new("curl");
    command
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "30",
            "--noproxy",
            "*",
        ])
        .args(["--write-out", "\n%{http_code}"])
        .args(arguments)
        .arg(format!("http://{admin}/api/v1/pace"));
    let outcome = finish(command, b"").await;
    let (body, status) = outcome.stdout.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// Runs `pace show` against the proxy whose admin listener is `admin`.
async fn show(place: &Place, admin: SocketAddr, arguments: &[&str]) -> Outcome {
    let listen = format!("admin.listen=\"{admin}\"");
    let mut all = vec!["--set", &listen, "pace", "show"];
    all.extend(arguments);
    place.run(&all).await
}

// RFC 7617 and RFC 6750.
#[tokio::test]
async fn the_api_answers_only_requests_with_the_token() {
    let proxy = Config::default().start().await;
    let right = credentials(proxy.place()).await;
    let (_, token) = right.split_once(':').unwrap();
    let (status, body) = curl(proxy.admin(), &["-u", &right]).await;
    assert_eq!(status, "200", "{body}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(body["hosts"].is_array() && body["total"].is_u64(), "{body}");
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(curl(proxy.admin(), &["-H", &bearer]).await.0, "200");
    for wrong in ["admin:password", "admin:", &format!("root:{token}")] {
        let (status, _) = curl(proxy.admin(), &["-u", wrong]).await;
        assert_eq!(status, "401", "{wrong}");
    }
    let (status, head) = curl(proxy.admin(), &["-i"]).await;
    assert_eq!(status, "401");
    assert!(head.contains("www-authenticate: Basic "), "{head}");
    assert!(head.contains(" admin token"), "{head}");
    // More people may read the log than may know the token.
    assert!(!proxy.log().contains(token), "{}", proxy.log());
}

// Ours: the token is made once, and only its owner may read it.
#[tokio::test]
async fn the_first_start_makes_the_token_and_later_starts_keep_it() {
    let place = Place::with(&Config::default());
    let before = place.run_code(1, &["admin", "token"]).await;
    assert_contains(&before.stderr, "makes it when it starts");
    let show = place.run(&["pace", "show"]).await;
    assert!(show.stderr.contains("makes it when it starts"), "{show:?}");
    let place = place.start().await.stop().await;
    let first = credentials(&place).await;
    assert_eq!(first.len(), "admin:".len() + 64);
    let mode = metadata(place.path(TOKEN_FILE)).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let proxy = place.start().await;
    assert_eq!(credentials(proxy.place()).await, first);
}

// Ours: a token that another user could set protects nothing.
#[tokio::test]
async fn a_writable_or_malformed_token_file_prevents_the_start() {
    let place = Place::with(&Config::default());
    write_token(&place, &"a".repeat(64), 0o620);
    let writable = place.run(&["serve"]).await;
    write_token(&place, "password", 0o600);
    let foreign = place.run(&["serve"]).await;
    for (outcome, why) in [
        (writable, "may be written by others (mode 620)"),
        (foreign, "does not hold 64 hexadecimal digits"),
    ] {
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        let told = &outcome.stderr;
        assert!(told.contains(TOKEN_FILE) && told.contains(why), "{told}");
    }
    write_token(&place, &"a".repeat(64), 0o644);
    let readable = place.start().await;
    assert!(readable.log().contains("others than the owner may read"));
}

// Ours: SIGHUP makes a new token if the file is gone.
#[tokio::test]
async fn a_reload_replaces_a_removed_token() {
    let proxy = Config::default().start().await;
    let old = credentials(proxy.place()).await;
    remove_file(proxy.place().path(TOKEN_FILE)).unwrap();
    assert_eq!(curl(proxy.admin(), &["-u", &old]).await.0, "200");
    proxy.signal("HUP").await;
    until("the new token", async || {
        let status = curl(proxy.admin(), &["-u", &old]).await.0;
        (status == "401").then_some(())
    })
    .await;
    let new = credentials(proxy.place()).await;
    assert_eq!(curl(proxy.admin(), &["-u", &new]).await.0, "200");
    // An unusable file makes the reload fail, and the old token stays in force.
    write_token(proxy.place(), "", 0o600);
    proxy.signal("HUP").await;
    proxy.logged("was not reloaded").await;
    assert_eq!(curl(proxy.admin(), &["-u", &new]).await.0, "200");
}

// Ours.
#[tokio::test]
async fn pace_show_asks_the_running_proxy() {
    let proxy = Config::default().start().await;
    let (place, admin) = (proxy.place(), proxy.admin());
    let table = show(place, admin, &[]).await.assert_code(0);
    assert!(
        table
            .stdout
            .starts_with("HOST  IN FLIGHT  QUEUED  NEXT START"),
        "{table:?}"
    );
    let json = show(place, admin, &["--json"]).await.json_lines();
    assert_eq!((json.len(), json[0]["hosts"].is_array()), (1, true));
    let bad = show(place, admin, &["--host", "a:1"]).await.assert_code(1);
    assert!(bad.stderr.contains("without a port"), "{bad:?}");
}

// Ours: the columns are host, in flight, queued, next start, cause and back-off.
#[tokio::test]
async fn pace_show_prints_the_answer_of_the_api() {
    let answer = json!({"hosts": [{
        "host": "o.test", "in_flight": 1, "queued": 7,
        "next_start": "2026-11-21T10:00:02Z", "cause": "backoff",
        "backoff_until": "2026-11-21T11:00:00Z",
    }], "total": 1});
    let page = Page::typed("application/json", answer.to_string().as_bytes());
    let target = "/api/v1/pace?limit=7&host=O.test";
    let told = Script::robots("").page(target, page).start().await;
    let place = Place::with(&Config::default());
    write_token(&place, &"a".repeat(64), 0o600);
    let asked = ["--limit", "7", "--host", "O.test"];
    let table = show(&place, told.address(), &asked).await;
    assert_eq!(
        table.stdout,
        "HOST    IN FLIGHT  QUEUED  NEXT START            CAUSE    BACK-OFF UNTIL\n\
             o.test  1          7       2026-11-21T10:00:02Z  backoff  2026-11-21T11:00:00Z\n",
        "{table:?}"
    );
    let json = show(
        &place,
        told.address(),
        &["--limit", "7", "--host", "O.test", "--json"],
    );
    assert_eq!(json.await.json_lines(), [answer]);
    let credentials = STANDARD.encode(format!("admin:{}", "a".repeat(64)));
    assert_eq!(
        told.log()[0].values("authorization"),
        [format!("Basic {credentials}")]
    );
}

// Ours: each error tells the operator how to fix it.
#[tokio::test]
async fn pace_show_explains_why_it_has_no_answer() {
    let proxy = Config::default().start().await;
    let (place, admin) = (proxy.place(), proxy.admin());
    assert_eq!(show(place, admin, &[]).await.code, Some(0));
    write_token(place, &"a".repeat(64), 0o600);
    let refused = show(place, admin, &[]).await.assert_code(1);
    assert!(refused.stderr.contains("token was refused"), "{refused:?}");
    let foreign = Script::robots("").start().await;
    let page = show(place, foreign.address(), &[]).await.assert_code(1);
    assert!(page.stderr.contains("is it a politesse"), "{page:?}");
    let place = proxy.stop().await;
    let nobody = show(&place, admin, &[]).await.assert_code(1);
    assert!(nobody.stderr.contains("nothing listens on"), "{nobody:?}");
}

// Ours: a host's entry into back-off and its end are events.
#[tokio::test]
async fn back_off_events_are_listed_and_verified() {
    let place = Config::default().start().await.stop().await;
    let events = ["audit", "events", "--kind"];
    let none = place.run(&[&events[..], &["backoff_left"]].concat()).await;
    none.assert_output(0, "0 rows\n");
    // The times are 2026-11-21T10:00:00Z and later. The empty digests do not match the rows.
    place
        .database()
        .execute_batch(
            "INSERT INTO event (seq, time_us, host, kind, status, until_us, incidents, leaf) VALUES
                   (101, 1795255200000000, 'o.test', 'backoff_entered', 429, 1795255290000000, 2, x''),
                   (102, 1795255290000000, 'p.test', 'backoff_left', NULL, 1795255290000000, 1, x'');",
        )
        .unwrap();
    let before = ["audit", "events", "--until", "2026-11-21T10:02:00Z"];
    let all = place.run(&before).await;
    assert_eq!(
        all.stdout,
        "   SEQ TIME                 KIND             HOST (STATUS, UNTIL, INCIDENT)\n   \
             102 2026-11-21T10:01:30Z backoff_left     p.test  until 2026-11-21T10:01:30Z, incident 1\n   \
             101 2026-11-21T10:00:00Z backoff_entered  o.test  429, until 2026-11-21T10:01:30Z, incident 2\n"
    );
    let told = json!({
        "seq": 101, "time": "2026-11-21T10:00:00Z", "host": "o.test",
        "kind": "backoff_entered", "status": 429,
        "until": "2026-11-21T10:01:30Z", "incidents": 2,
    });
    for filter in [["--host", "O.test"], ["--until", "2026-11-21T10:01:00Z"]] {
        let one = place
            .run(&["audit", "events", "--json", filter[0], filter[1]])
            .await;
        let one = one.json_lines();
        assert_eq!((one.len(), &one[0]), (1, &told), "{filter:?}");
    }
    let later = [
        "audit",
        "events",
        "--from",
        "2026-11-21T10:01:00Z",
        "--json",
    ];
    assert_eq!(place.run(&later).await.json_lines()[0]["seq"], 102);
    let newest = ["audit", "events", "--limit", "1", "--json"];
    assert_eq!(place.run(&newest).await.json_lines()[0]["seq"], 102);
    let verified = place.run_code(1, &["audit", "verify"]).await;
    let changed = "event 101: the row is not as it was written\n";
    assert!(verified.stdout.contains(changed), "{verified:?}");
}

/// Returns the recorded events of `o.test`, oldest first.
async fn events(place: &Place) -> Vec<serde_json::Value> {
    let listed = ["audit", "events", "--host", "o.test", "--json"];
    let told = place.run_ok(&listed).await;
    let mut events = told.json_lines();
    events.sort_by_key(|event| event["time"].as_str().unwrap().to_owned());
    events
}

// Ours: a back-off is recorded, shown by the API, and kept by the next process.
#[tokio::test]
async fn a_back_off_is_recorded_and_survives_a_restart() {
    let busy = |pause: &str| Page::status(429).field("Retry-After", pause);
    let script = Script::robots("")
        .page("/short", busy("1"))
        .page("/long", busy("300"));
    let origin = script.start().await;
    let config = || {
        resolve("o.test", origin.address())
            .set("pace.backoff = { first = \"60s\", longest = \"1h\", forgive = \"30m\" }")
    };
    let proxy = config().start().await;
    let ask = async |proxy: &Proxy, path: &str| get(proxy, &format!("http://o.test{path}")).await;
    assert_eq!(ask(&proxy, "/short").await.head.value("retry-after"), "1");
    assert_eq!(ask(&proxy, "/page").await.status(), 200, "after a second");
    let told = until("two events", async || {
        Some(events(proxy.place()).await).filter(|events| 2 <= events.len())
    })
    .await;
    let words: Vec<_> = told.iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(words, ["backoff_entered", "backoff_left"], "{told:?}");
    assert_members(&told[0], &json!({"host": "o.test", "status": 429}));

    assert_eq!(ask(&proxy, "/long").await.status(), 429);
    let right = credentials(proxy.place()).await;
    let (status, body) = curl(proxy.admin(), &["-u", &right]).await;
    assert_eq!(status, "200", "{body}");
    let seen: serde_json::Value = serde_json::from_str(&body).unwrap();
    let expected = json!({"host": "o.test", "cause": "backoff"});
    assert_members(&seen["hosts"][0], &expected);
    assert!(seen["hosts"][0]["backoff_until"].is_string(), "{body}");
    let asked = origin.log().len();
    let proxy = proxy.stop().await.start().await;
    let refused = ask(&proxy, "/page").await;
    refused.assert_error(429, "http_request_denied");
    let pause: u64 = refused.head.value("retry-after").parse().unwrap();
    assert!((200..=300).contains(&pause), "{pause}");
    assert_eq!(refused.json()["reason"], "backoff");
    assert_eq!(origin.log().len(), asked, "nothing is sent");
    proxy.stop().await.assert_verified().await;
}

// Ours: the API shows the queue, the cause of the wait, and the hosts in back-off.
#[tokio::test]
async fn the_api_shows_queues_and_back_offs_of_hosts() {
    let origin = delaying("60").start().await;
    let less = asking_for_less(429, Some("300"));
    let other = Script::robots("").page("/1", less).start().await;
    let config = resolve("o.test", origin.address())
        .resolve("other.test", other.address())
        .set("pace.backoff = { first = \"60s\", longest = \"1h\", forgive = \"1h\" }");
    let proxy = config.start().await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    assert_eq!(get(&proxy, "http://other.test/1").await.status(), 429);
    let mut waiting = Crawler::plain(&proxy).await;
    waiting.start_get("http://o.test/2", "o.test").await;
    queue(&proxy, 1).await;
    let right = credentials(proxy.place()).await;
    let (_, body) = curl(proxy.admin(), &["-u", &right]).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let host = |name: &str| {
        let mut hosts = body["hosts"].as_array().unwrap().iter();
        hosts.find(|host| host["host"] == name).unwrap().clone()
    };
    let queued = host("o.test");
    let expected = json!({"queued": 1, "in_flight": 0, "cause": "crawl_delay"});
    assert_members(&queued, &expected);
    assert!(queued["next_start"].is_string() && queued["backoff_until"].is_null());
    let left = host("other.test");
    assert_eq!(left["cause"], "backoff");
    assert_eq!(left["backoff_until"], left["next_start"]);
    assert!(left["backoff_until"].is_string());
}
