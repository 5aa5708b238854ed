//! Pace as operators see it: the admin API, `pace show` and `audit events`.

use std::fs::{metadata, remove_file};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::kit::client::{Crawler, Reply, get, get_admin, reload};
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, assert_later, column, queue, standard};
use crate::kit::page::Page;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, assert_members, until};

/// Token file of the proxy in a [`Place`].
const TOKEN_FILE: &str = "data/admin-token";

/// Returns the token that `admin token` prints.
async fn printed_token(place: &Place) -> String {
    let told = place.run_ok(&["admin", "token"]).await;
    told.stdout.trim_end().to_owned()
}

/// Requests the pace of all hosts from the API, with the token as the password of Basic
/// credentials (RFC 7617).
async fn paces(proxy: &Proxy, token: &str) -> Reply {
    let user = STANDARD.encode(format!("admin:{token}"));
    let line = format!("Authorization: Basic {user}");
    get_admin(proxy.admin(), "/api/v1/pace", &[&line]).await
}

/// Runs `pace show` against the proxy whose admin listener is `admin`.
async fn show(place: &Place, admin: SocketAddr, arguments: &[&str]) -> Outcome {
    let listen = format!("admin.listen=\"{admin}\"");
    let mut all = vec!["--set", &listen, "pace", "show"];
    all.extend(arguments);
    place.run(&all).await
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
    let first = printed_token(&place).await;
    assert_eq!(first.len(), 64);
    let mode = metadata(place.path(TOKEN_FILE)).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let proxy = place.start().await;
    assert_eq!(printed_token(proxy.place()).await, first);
}

// Ours: a token that another user could set protects nothing.
#[tokio::test]
async fn a_writable_or_malformed_token_file_prevents_the_start() {
    let place = Place::with(&Config::default());
    place.write(TOKEN_FILE, &"a".repeat(64), 0o620);
    let writable = place.run(&["serve"]).await;
    place.write(TOKEN_FILE, "password", 0o600);
    let foreign = place.run(&["serve"]).await;
    for (outcome, why) in [
        (writable, "may be written by others (mode 620)"),
        (foreign, "does not hold 64 hexadecimal digits"),
    ] {
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        let told = &outcome.stderr;
        assert!(told.contains(TOKEN_FILE) && told.contains(why), "{told}");
    }
    place.write(TOKEN_FILE, &"a".repeat(64), 0o644);
    let readable = place.start().await;
    readable.logged("others than the owner may read").await;
}

// Ours: SIGHUP makes a new token if the file is gone.
#[tokio::test]
async fn a_reload_replaces_a_removed_token() {
    let proxy = Config::default().start().await;
    let old = printed_token(proxy.place()).await;
    remove_file(proxy.place().path(TOKEN_FILE)).unwrap();
    assert_eq!(paces(&proxy, &old).await.status(), 200);
    reload(&proxy).await;
    assert_eq!(paces(&proxy, &old).await.status(), 401);
    let new = printed_token(proxy.place()).await;
    assert_eq!(paces(&proxy, &new).await.status(), 200);
    // An unusable file makes the reload fail, and the old token stays in force.
    proxy.place().write(TOKEN_FILE, "", 0o600);
    proxy.signal("HUP").await;
    let log = proxy.logged("was not reloaded").await;
    assert_eq!(paces(&proxy, &new).await.status(), 200);
    // More people may read the log than may know the token.
    assert!(!log.contains(&old) && !log.contains(&new), "{log}");
}

/// Returns the output of `pace show`.
async fn shown(proxy: &Proxy, arguments: &[&str]) -> String {
    let outcome = show(proxy.place(), proxy.admin(), arguments).await;
    outcome.assert_code(0).stdout
}

/// Starts an origin at `[::1]` with a `Crawl-delay` of a minute, and returns its port.
async fn start_ipv6_origin() -> u16 {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4_096]).await;
            let robots = "User-agent: *\nCrawl-delay: 60\n";
            let head = format!("Content-Length: {}\r\nConnection: close", robots.len());
            let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{robots}");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

/// Returns the cells of each line after the heading.
fn cells(table: &str) -> Vec<Vec<&str>> {
    let lines = table.lines().skip(1);
    lines
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[tokio::test]
async fn pace_show_lists_queues_and_back_offs() {
    let less = asking_for_less(503, Some("300"));
    let busy = Script::robots("").page("/1", less).start().await;
    let port = start_ipv6_origin().await;
    let config = standard(&busy).set("egress.allow = [\"::1\"]");
    let proxy = config.start().await;
    let first = get(&proxy, &format!("http://[::1]:{port}/1")).await;
    assert_eq!(first.status(), 200, "{}", first.text());
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 503);
    let mut waiting = Crawler::plain(&proxy).await;
    let url = format!("http://[::1]:{port}/2");
    waiting.start_get(&url, &format!("[::1]:{port}")).await;
    queue(&proxy, 1).await;
    let all = shown(&proxy, &[]).await;
    let rows = cells(&all);
    assert_eq!(rows.len(), 2, "{all}");
    let row = |host: &str| rows.iter().find(|row| row[0] == host).unwrap();
    let slow = row("[::1]");
    assert_eq!(
        (&slow[1..3], slow[4], slow[5]),
        (&["0", "1"][..], "crawl_delay", "-")
    );
    let left = row("o.test");
    assert_eq!((&left[1..3], left[4]), (&["0", "0"][..], "backoff"));
    assert_eq!(left[3], left[5]);
    for spelling in ["::1", "[::1]", "0:0:0:0:0:0:0:1"] {
        let one = shown(&proxy, &["--host", spelling]).await;
        assert_eq!(cells(&one).len(), 1, "{spelling}: {one}");
        assert!(one.contains("[::1]"), "{spelling}: {one}");
    }
    let one = shown(&proxy, &["--host", "O.test.", "--json"]).await;
    let one: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_members(
        &one["hosts"][0],
        &json!({"host": "o.test", "queued": 0, "in_flight": 0}),
    );
    assert_eq!(one["total"], 1);
    let nobody = shown(&proxy, &["--host", "nobody.test"]).await;
    assert_eq!(cells(&nobody), Vec::<Vec<&str>>::new());
    let first = shown(&proxy, &["--limit", "1"]).await;
    assert!(
        first.ends_with("1 of 2 hosts; --limit 0 shows all\n"),
        "{first}"
    );
}

// Ours: each error tells the operator how to fix it.
#[tokio::test]
async fn pace_show_explains_why_it_has_no_answer() {
    let proxy = Config::default().start().await;
    let (place, admin) = (proxy.place(), proxy.admin());
    assert_eq!(show(place, admin, &[]).await.code, Some(0));
    let bad = show(place, admin, &["--host", "a:1"]).await.assert_code(1);
    assert!(bad.stderr.contains("without a port"), "{bad:?}");
    place.write(TOKEN_FILE, &"a".repeat(64), 0o600);
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
    let first_event = json!([{
        "seq": 101, "time": "2026-11-21T10:00:00Z", "host": "o.test",
        "kind": "backoff_entered", "status": 429,
        "until": "2026-11-21T10:01:30Z", "incidents": 2,
    }]);
    let listed = async |filter: [&str; 2]| {
        let arguments = [&["audit", "events", "--json"][..], &filter].concat();
        place.run(&arguments).await.json_lines()
    };
    for filter in [["--host", "O.test"], ["--until", "2026-11-21T10:01:00Z"]] {
        assert_eq!(json!(listed(filter).await), first_event, "{filter:?}");
    }
    for filter in [["--from", "2026-11-21T10:01:00Z"], ["--limit", "1"]] {
        assert_eq!(listed(filter).await[0]["seq"], 102, "{filter:?}");
    }
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
    assert_eq!(column(&told, "kind"), ["backoff_entered", "backoff_left"]);
    assert_members(&told[0], &json!({"host": "o.test", "status": 429}));

    assert_eq!(ask(&proxy, "/long").await.status(), 429);
    let token = printed_token(proxy.place()).await;
    let seen = paces(&proxy, &token).await.json();
    let expected = json!({"host": "o.test", "cause": "backoff"});
    assert_members(&seen["hosts"][0], &expected);
    assert!(seen["hosts"][0]["backoff_until"].is_string(), "{seen}");
    let asked = origin.log().len();
    let proxy = proxy.stop().await.start().await;
    let pause = assert_later(&ask(&proxy, "/page").await, "backoff");
    assert!((200..=300).contains(&pause), "{pause}");
    assert_eq!(origin.log().len(), asked, "nothing is sent");
    proxy.stop().await.assert_verified().await;
}
