//! Limits and timeouts: bad input and slow peers get a clear answer, and do not harm the
//! proxy (ARCHITECTURE.md, invariant 8).

use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::kit::client::{Crawler, End, ask, assert_metric, get, metrics};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::program::finish;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::raw_origin::{Bytes, raw_site};
use crate::kit::server::Server;
use crate::kit::{assert_members, until};

/// Returns a command that runs `script`, in which `$0` is politesse, in the folder `place`.
fn shell(place: &Place, script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_politesse")])
        .env("POLITESSE_CONFIG", place.path("politesse.toml"))
        .current_dir(place.folder())
        .kill_on_drop(true);
    command
}

// Ours: `proxy.max_connections` limits connections, not the low soft limit of shells.
#[tokio::test]
async fn the_descriptor_limit_is_raised_to_the_hard_limit() {
    let place = Place::with(&Config::default());
    let command = shell(&place, "ulimit -S -n 100 && exec \"$0\" serve");
    let proxy = Proxy::start(place, command).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", proxy.pid())).unwrap();
    let mut rows = limits.lines();
    let row = rows.find(|row| row.starts_with("Max open files"));
    let mut words = row.unwrap().split_whitespace().skip(3);
    assert_eq!(words.next(), words.next(), "{limits}");
}

// Ours: an error message, not a panic or abort (docs/operating.md).
#[tokio::test]
async fn too_little_memory_to_start_is_reported() {
    let place = Place::with(&Config::default());
    // In KiB. Below the first limit the program cannot even be loaded.
    for limit in [120_000, 256_000, 262_144, 460_000, 532_000, 852_000] {
        let script = format!("ulimit -c 0; ulimit -v {limit}; exec \"$0\" run -- true");
        let outcome = finish(shell(&place, &script), b"").await.assert_code(1);
        let words = "MiB of address space";
        assert!(outcome.stderr.contains(words), "{limit}: {outcome:?}");
    }
}

// Ours: a head may have 64 KiB and 256 fields.
#[tokio::test]
async fn heads_beyond_the_limits_are_refused() {
    let (origin, proxy) = site(Script::robots(""), &[]).await;
    let many: String = (0..300).map(|n| format!("X-{n}: y\r\n")).collect();
    let large = format!("X: {}\r\n", "y".repeat(300_000));
    for fields in [many, large] {
        let mut crawler = Crawler::plain(&proxy).await;
        let head = format!("GET http://o.test/a HTTP/1.1\r\nHost: o.test\r\n{fields}\r\n");
        // The answer may come before the whole head is sent.
        let _ = crawler.try_send(head.as_bytes()).await;
        let reply = crawler.try_reply_to("GET").await;
        assert!(reply.is_none_or(|reply| [400, 431].contains(&reply.status())));
    }
    assert_eq!(origin.connections(), 0);
    let some: Vec<_> = (0..200).map(|n| format!("X-{n}: y")).collect();
    let some: Vec<_> = some.iter().map(String::as_str).collect();
    let reply = ask(&proxy, "GET", "http://o.test/a", &some).await;
    assert_eq!(reply.status(), 200);
}

// RFC 9110, section 15.5.9; proxy.header_timeout.
#[tokio::test]
async fn a_silent_connection_is_closed_and_half_a_head_gets_408() {
    let timeouts = [
        "proxy.header_timeout = \"300ms\"",
        "https.handshake_timeout = \"300ms\"",
    ];
    let (_origin, proxy) = site(Script::robots(""), &timeouts).await;
    assert!(Crawler::plain(&proxy).await.closes().await);
    assert_half_a_head_gets_408(Crawler::plain(&proxy).await).await;
    // For later heads, and for heads inside TLS, the time starts at the first byte.
    let mut later = Crawler::plain(&proxy).await;
    assert_eq!(later.get("http://o.test/", "o.test").await.status(), 200);
    assert_half_a_head_gets_408(later).await;
    let inside = Crawler::inside(&proxy, "o.test:443").await;
    assert_half_a_head_gets_408(inside).await;
    let mut opened = Crawler::connect(&proxy, "o.test:443").await;
    opened.send(b"\x16\x03").await;
    assert!(opened.closes().await);
    assert_metric(&proxy, "politesse_slow_clients_total{result=\"head\"} 3").await;
}

async fn assert_half_a_head_gets_408(mut crawler: Crawler) {
    crawler.send(b"GET http://o.te").await;
    let reply = crawler.reply_to("GET").await;
    reply.assert_error(408, "http_request_error");
    assert!(crawler.closes().await);
}

// Ours: `proxy.min_progress`, `proxy.progress_window`.
#[tokio::test]
async fn an_upload_below_the_minimum_rate_is_aborted() {
    let (_origin, proxy) = site(Script::robots(""), &["proxy.progress_window = \"500ms\""]).await;
    let mut slow = Crawler::plain(&proxy).await;
    let head = "PUT http://o.test/a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 100000\r\n\r\n";
    slow.send(head.as_bytes()).await;
    // Each byte arrives long before `proxy.idle_timeout`, which must not be the cause.
    until("the end of the upload", async || {
        let sent = slow.try_send(b"x").await;
        let ended = metrics(&proxy).await;
        let is_counted = ended.contains("politesse_slow_clients_total{result=\"upload\"} 1");
        (sent.is_err() || is_counted).then_some(())
    })
    .await;
    let rows = proxy.place().completed(1).await;
    assert_eq!(rows[0]["error"], "http_request_error");
}

// Ours: `proxy.min_progress`. Over HTTP/2 only the stream ends; the connection remains.
#[tokio::test]
async fn a_response_that_the_client_does_not_read_is_aborted() {
    let large = Page::stream(64 << 20, Length::Announced);
    let script = Script::robots("").page("/large", large);
    let timeouts = [
        "proxy.header_timeout = \"200ms\"",
        "proxy.progress_window = \"500ms\"",
    ];
    let (_origin, proxy) = site(script.tls(), &timeouts).await;
    let mut slow = Crawler::inside(&proxy, "o.test:443").await;
    slow.start_get("/large", "o.test").await;
    proxy.place().completed(1).await;
    let mut streams = H2Crawler::inside(&proxy, "o.test:443").await;
    let stalled = streams.head_of("https://o.test/large").await;
    for row in proxy.place().completed(2).await {
        assert_eq!(row["error"], "client_too_slow", "{row}");
    }
    assert!(stalled.into_body().collect().await.is_err());
    assert_eq!(streams.get("https://o.test/small").await.status(), 200);
    let counted = "politesse_slow_clients_total{result=\"response\"} 2";
    assert_metric(&proxy, counted).await;
}

// Ours: `upstream.first_byte_timeout`.
#[tokio::test]
async fn an_origin_that_never_answers_causes_504() {
    let never = Gate::shut();
    let script = Script::robots("").page("/a", Page::text("").after(&never));
    let (_origin, proxy) = site(script, &["upstream.first_byte_timeout = \"300ms\""]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    reply.assert_error(504, "http_response_timeout");
    let rows = proxy.place().completed(1).await;
    let expected = json!({"status": 504, "error": "http_response_timeout"});
    assert_members(&rows[0], &expected);
}

// Ours: `upstream.idle_timeout` applies between parts of a body.
#[tokio::test]
async fn a_stalled_response_body_is_aborted() {
    let never = Gate::shut();
    let script = Script::robots("").page("/a", Page::stepped(&["some", "more"], &never));
    let (_origin, proxy) = site(script, &["upstream.idle_timeout = \"300ms\""]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!((reply.end, &*reply.text()), (End::Broken, "some"));
}

// Ours: each kind of invalid answer causes 502 with its own error type.
#[tokio::test]
async fn an_invalid_answer_of_the_origin_causes_502() {
    for (bytes, error) in [
        (&b"<html>hello</html>\r\n\r\n"[..], "http_protocol_error"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "http_protocol_error",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "http_response_transfer_coding",
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
            "http_upgrade_failed",
        ),
        (b"HTTP/1.1 200 OK\r\nX: y", "http_response_incomplete"),
    ] {
        let (_origin, proxy) = raw_site("", Bytes::closing(bytes)).await;
        let reply = get(&proxy, "http://o.test/a").await;
        reply.assert_error(502, error);
    }
}

// Ours: it applies neither to the answer nor to the pause before the next request.
#[tokio::test]
async fn header_timeout_does_not_abort_a_slow_answer() {
    let gate = Gate::shut();
    let script = Script::robots("").page("/a", Page::stepped(&["some", "more"], &gate));
    let (origin, proxy) = site(script, &["proxy.header_timeout = \"300ms\""]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    origin.arrival("/a").await;
    // A silent connection that was opened later is closed, so the timeout has passed.
    assert!(Crawler::plain(&proxy).await.closes().await);
    gate.open(2);
    let reply = crawler.reply_to("GET").await;
    assert_eq!(reply.text(), "somemore");
    assert_eq!(crawler.get("http://o.test/b", "o.test").await.status(), 200);
}

// Ours: only `upstream.idle_timeout` limits pauses of an origin.
#[tokio::test]
async fn a_pause_of_the_origin_does_not_count_as_client_idleness() {
    let gate = Gate::shut();
    let script = Script::robots("").page("/a", Page::stepped(&["some", "more"], &gate));
    let (origin, proxy) = site(script, &["proxy.idle_timeout = \"300ms\""]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    gate.open(1);
    origin.arrival("/a").await;
    // Idle connections opened later are closed, so the timeout has passed.
    for _ in 0..3 {
        let mut other = Crawler::plain(&proxy).await;
        assert_eq!(other.get("http://o.test/b", "o.test").await.status(), 200);
        assert!(other.closes().await);
    }
    gate.open(1);
    assert_eq!(crawler.reply_to("GET").await.text(), "somemore");
}

// Ours: a crawler that does not read must not hold a connection.
#[tokio::test]
async fn a_crawler_that_reads_nothing_is_disconnected() {
    let page = Page::stream(64 << 20, Length::Announced);
    let script = Script::robots("").page("/a", page);
    let (_origin, proxy) = site(script, &["proxy.idle_timeout = \"300ms\""]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    let rows = proxy.place().completed(1).await;
    assert_eq!(rows[0]["error"], "client_idle", "{rows:?}");
}

// Ours: the rest of an upload after its answer is not taken for a late head.
#[tokio::test]
async fn an_upload_may_continue_after_its_answer() {
    // Answers each head, and discards everything else.
    let origin = Server::start(|mut stream| async move {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            if buffer[..length].ends_with(b"\r\n\r\n") {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        }
    })
    .await;
    let config = resolve("o.test", origin.address())
        .set("proxy.header_timeout = \"300ms\"")
        .set("proxy.idle_timeout = \"300ms\"");
    let proxy = config.start().await;
    let mut crawler = Crawler::plain(&proxy).await;
    let head = "PUT http://o.test/a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 8\r\n\r\n";
    crawler.send(head.as_bytes()).await;
    assert_eq!(crawler.reply_to("PUT").await.status(), 200);
    for _ in 0..8 {
        crawler.send(b"x").await;
        // Scripted load: the upload as a whole takes longer than either timeout.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(crawler.get("http://o.test/", "o.test").await.status(), 200);
}
