//! Floods: one client sends what is most expensive for the proxy, while the service to a
//! well-behaved client is measured.
//!
//! Each flood is limited in bytes and time, and stays on loopback. Because times are
//! measured, only `tests/full.sh` runs these tests.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink, split};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::frames::{
    END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, literal,
};
use crate::kit::certificates;
use crate::kit::client::{Crawler, Duplex};
use crate::kit::origin::Script;
use crate::kit::paced::ONE_FILE;
use crate::kit::page::{Length, Page};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::run;
use crate::kit::tenant::{Crowd, GOOD, Service, bad, crawl, take_descriptors};

/// Time for which the well-behaved client sends requests, alone and during the flood.
const TIME: Duration = Duration::from_secs(4);
/// Longest life of a flood connection.
const FLOOD: Duration = Duration::from_secs(2);
/// Concurrent connections of a flood that causes work.
const FEW: usize = 4;
/// Concurrent connections of a flood that holds resources by being slow.
const MANY: usize = 1000;
/// Limit of the 99th percentile of request times during a flood.
const P99: Duration = Duration::from_millis(150);
/// Share of its undisturbed rate that the well-behaved client must keep: four fifths of
/// an equal share of the proxy.
const HALF: f64 = 0.8 / 2.0;
/// Share to keep if each byte of the flood costs the proxy more than its sender, which
/// also uses one of the two processors of the machine.
const THIRD: f64 = 0.8 / 3.0;
/// Attempts to measure a flood. Other work on the machine can spoil one of the two
/// compared periods; a proxy that really gives too little fails every attempt.
const ATTEMPTS: usize = 3;
const URL: &str = "http://o.test/page";

const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PING: u8 = 6;
/// Setting for the window of new streams (RFC 9113, section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Frames per write.
const BATCH: u32 = 200;

/// Asserts that the well-behaved client gets each answer in time and keeps `share` of its
/// rate, while another client runs `flood` on this number of connections.
async fn assert_service_during<F: Future<Output = ()> + Send + 'static>(
    connections: usize,
    flood: fn(Arc<Proxy>) -> F,
    share: f64,
) {
    for attempt in 1..=ATTEMPTS {
        let (alone, beside) = measure(connections, flood).await;
        beside.report(&alone);
        assert!(beside.errors.is_empty(), "{:?}", beside.errors);
        let least = alone.rate() * share;
        if beside.p99() <= P99 && least <= beside.rate() {
            return;
        }
        let (p99, rate) = (beside.p99(), beside.rate());
        assert!(attempt < ATTEMPTS, "{p99:?} of {P99:?}, {rate} of {least}");
    }
}

/// Measures the service to the well-behaved client, alone and during the flood.
async fn measure<F: Future<Output = ()> + Send + 'static>(
    connections: usize,
    flood: fn(Arc<Proxy>) -> F,
) -> (Service, Service) {
    take_descriptors();
    let mut crowd = Crowd::default();
    let endless = Page::stream(1 << 30, Length::Announced);
    let endless = Script::robots("").page("/endless", endless);
    // The flood has its own origins, so that the origin of the well-behaved client has no
    // other work.
    let plain = crowd.origin(endless.clone().start()).await;
    let secure = crowd.origin(endless.tls().start()).await;
    let origin = Script::robots("").start().await;
    let config = resolve("o.test:80", origin.address())
        .resolve("o.test:443", secure.address())
        .resolve("endless.test", plain.address())
        .set(ONE_FILE)
        .set("pace.origin = { in_flight = 10000 }");
    let proxy = Arc::new(config.start().await);
    let alone = crawl(&proxy, GOOD, "GoodBot", URL, TIME).await;
    for _ in 0..connections {
        crowd.repeat(&proxy, move |proxy| async move {
            // Scripted load: a closed connection is not repeated in a busy loop.
            let pause = sleep(Duration::from_millis(10));
            let _ = tokio::join!(timeout(FLOOD, flood(proxy)), pause);
        });
    }
    // Scripted load: the flood grows before it is measured.
    sleep(Duration::from_millis(500)).await;
    let beside = crawl(&proxy, GOOD, "GoodBot", URL, TIME).await;
    (alone, beside)
}

/// Opens an HTTP/2 connection inside CONNECT and sends preface and settings. `None` if
/// the proxy does not accept it.
async fn h2(proxy: &Proxy, settings: &[u8]) -> Option<impl Duplex + 'static> {
    let crawler = Crawler::connect_at(bad(0), proxy, "o.test:443").await?;
    let connector = TlsConnector::from(certificates::client(&proxy.ca(), &["h2"]));
    let name = "o.test".try_into().ok()?;
    let mut stream = connector.connect(name, crawler.into_stream()).await.ok()?;
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, settings)].concat();
    stream.write_all(&begin).await.ok()?;
    Some(stream)
}

/// Writes the bytes of `next` for each client stream id, until the proxy closes.
async fn flood_streams(proxy: Arc<Proxy>, next: impl Fn(u32) -> Vec<u8>) {
    let Some(stream) = h2(&proxy, &[]).await else {
        return;
    };
    let (mut reader, mut writer) = split(stream);
    let write = async {
        for first in (0..100_000).step_by(BATCH as usize) {
            let batch = (first..first + BATCH).flat_map(|number| next(2 * number + 1));
            let batch: Vec<u8> = batch.collect();
            writer.write_all(&batch).await?;
            writer.flush().await?;
        }
        std::io::Result::Ok(())
    };
    let mut nowhere = sink();
    // Stop when either ends: the proxy may close while there is more to write.
    tokio::select! {
        _ = write => {}
        _ = copy(&mut reader, &mut nowhere) => {}
    }
}

/// Encodes the fields of a GET for `path`, without indexing.
fn request(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "o.test"),
        (":path", path),
        ("user-agent", "BadBot/1.0"),
    ];
    let fields = fields.iter();
    let encoded = fields.flat_map(|(name, value)| literal(name, value));
    encoded.collect()
}

fn open(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &request(path))
}

// CVE-2023-44487.
async fn rapid_reset(proxy: Arc<Proxy>) {
    let cancel = |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    let reset = |stream| [open(stream, "/page"), cancel(stream)];
    flood_streams(proxy, |stream| reset(stream).concat()).await;
}

// CVE-2025-8671: client errors that make the server reset the stream.
async fn made_you_reset(proxy: Arc<Proxy>) {
    let nothing = |stream| frame(WINDOW_UPDATE, 0, stream, &[0; 4]);
    let reset = |stream| [open(stream, "/page"), nothing(stream)];
    flood_streams(proxy, |stream| reset(stream).concat()).await;
}

// CVE-2024-27316 and similar ones.
async fn continuations(proxy: Arc<Proxy>) {
    let part = literal("x-part", "value");
    flood_streams(proxy, |stream| match stream {
        1 => frame(HEADERS, 0, 1, &request("/page")),
        _ => frame(CONTINUATION, 0, 1, &part),
    })
    .await;
}

// CVE-2019-9515.
async fn settings(proxy: Arc<Proxy>) {
    flood_streams(proxy, |_| frame(SETTINGS, 0, 0, &[])).await;
}

// CVE-2019-9512.
async fn pings(proxy: Arc<Proxy>) {
    flood_streams(proxy, |_| frame(PING, 0, 0, &[7; 8])).await;
}

// CVE-2016-6581: a large field in the dynamic table, referenced thousands of times by
// one byte each (RFC 7541, section 6.1).
async fn hpack(proxy: Arc<Proxy>) {
    let mut large = vec![0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
    large.extend([b'v'; 4000]);
    let named = vec![0x80 | 62; 12_000];
    flood_streams(proxy, |stream| {
        let fields = [request("/page"), large.clone(), named.clone()].concat();
        frame(HEADERS, END_STREAM | END_HEADERS, stream, &fields)
    })
    .await;
}

// CVE-2019-9517: responses that the client requests but never reads.
async fn window_zero(proxy: Arc<Proxy>) {
    let mut setting = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    setting.extend([0; 4]);
    let Some(mut stream) = h2(&proxy, &setting).await else {
        return;
    };
    let requests = (0..100).flat_map(|number| open(2 * number + 1, "/endless"));
    let requests: Vec<u8> = requests.collect();
    if stream.write_all(&requests).await.is_err() || stream.flush().await.is_err() {
        return;
    }
    // Scripted load: PINGs keep the connection from looking idle.
    while stream.write_all(&frame(PING, 0, 0, &[7; 8])).await.is_ok() {
        sleep(Duration::from_millis(100)).await;
    }
}

/// Sends `begin`, then repeats `more` one byte at a time, slowly.
async fn drip(proxy: Arc<Proxy>, begin: &str, more: &str) {
    let Some(mut crawler) = Crawler::at(bad(0), &proxy).await else {
        return;
    };
    let mut sent = crawler.try_send(begin.as_bytes()).await;
    for byte in more.bytes().cycle() {
        if sent.is_err() {
            return;
        }
        // Scripted load: a slow sender.
        sleep(Duration::from_millis(100)).await;
        sent = crawler.try_send(&[byte]).await;
    }
}

async fn slow_heads(proxy: Arc<Proxy>) {
    drip(proxy, "GET http://o.test/page HTTP/1.1\r\n", "X-A: b\r\n").await;
}

async fn slow_bodies(proxy: Arc<Proxy>) {
    let head = "POST http://o.test/page HTTP/1.1\r\nHost: o.test\r\nContent-Length: 9999\r\n\r\n";
    drip(proxy, head, "x").await;
}

async fn slow_reads(proxy: Arc<Proxy>) {
    let Some(mut crawler) = Crawler::at(bad(0), &proxy).await else {
        return;
    };
    let request = "GET http://endless.test/endless HTTP/1.1\r\nHost: endless.test\r\n\r\n";
    let _ = crawler.try_send(request.as_bytes()).await;
    let mut stream = crawler.into_stream();
    while stream.read_u8().await.is_ok() {
        // Scripted load: a slow reader.
        sleep(Duration::from_millis(100)).await;
    }
}

async fn half_handshakes(proxy: Arc<Proxy>) {
    // Only the start of a ClientHello (RFC 8446, section 4.1.2).
    let begin = "CONNECT o.test:443 HTTP/1.1\r\nHost: o.test:443\r\n\r\n\u{16}\u{3}\u{1}\u{2}";
    drip(proxy, begin, "\u{1}").await;
}

async fn large_heads(proxy: Arc<Proxy>) {
    let Some(mut crawler) = Crawler::at(bad(0), &proxy).await else {
        return;
    };
    let field = format!("X-A: {}\r\n", "a".repeat(1 << 20));
    let head = format!("GET http://o.test/page HTTP/1.1\r\nHost: o.test\r\n{field}\r\n");
    let _ = crawler.try_send(head.as_bytes()).await;
    crawler.try_reply_to("GET").await;
}

macro_rules! floods {
    ($($name:ident: $connections:ident of $flood:ident leaves $share:ident;)*) => {$(
        #[test]
        #[ignore = "measures times: tests/full.sh runs it"]
        fn $name() {
            run(assert_service_during($connections, $flood, $share));
        }
    )*};
}

// Ours; the CVEs are cited at each flood.
floods! {
    rapid_resets_do_not_slow_other_clients: FEW of rapid_reset leaves HALF;
    provoked_resets_do_not_slow_other_clients: FEW of made_you_reset leaves HALF;
    endless_continuations_do_not_slow_other_clients: FEW of continuations leaves HALF;
    endless_settings_do_not_slow_other_clients: FEW of settings leaves THIRD;
    endless_pings_do_not_slow_other_clients: FEW of pings leaves HALF;
    header_compression_bombs_do_not_slow_other_clients: FEW of hpack leaves HALF;
    streams_with_a_zero_window_do_not_slow_other_clients: FEW of window_zero leaves HALF;
    slow_heads_do_not_slow_other_clients: MANY of slow_heads leaves HALF;
    slow_bodies_do_not_slow_other_clients: MANY of slow_bodies leaves HALF;
    slow_readers_do_not_slow_other_clients: MANY of slow_reads leaves HALF;
    half_handshakes_do_not_slow_other_clients: MANY of half_handshakes leaves HALF;
    heads_of_a_mebibyte_do_not_slow_other_clients: FEW of large_heads leaves HALF;
}
