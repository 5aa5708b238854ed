//! Many wrong tokens: they do not slow a client with the right token, and the proxy never
//! writes or shows a token.
//!
//! The test measures rates, so only `tests/full.sh` runs it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use politesse_base::clock;
use tokio::time::sleep;

use crate::kit::client::{Crawler, assert_metric, get_admin, metrics};
use crate::kit::origin::Script;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::raw_origin::find;
use crate::kit::tenant::{Crowd, GOOD, Least, Service, bad};
use crate::kit::{sha256, soon};

/// Number of wrong tokens to send.
const TOKENS: usize = 100_000;
/// Concurrent connections that send wrong tokens.
const CONNECTIONS: usize = 4;
const ALONE: Duration = Duration::from_secs(3);
/// Beginning of each wrong token. Together with `FooBot:` it fills whole groups of Base64,
/// so that its encoded form can be searched for, too.
const WRONG: &str = "wr0ng";
const RIGHT: &str = "f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0";

fn basic(token: &str) -> String {
    STANDARD.encode(format!("FooBot:{token}"))
}

/// Sends a request with `credential` on an open connection, and returns the status.
async fn ask(crawler: &mut Crawler, credential: &str) -> u16 {
    let field = format!("Proxy-Authorization: {credential}");
    let lines = ["GET http://o.test/page HTTP/1.1", "Host: o.test", &field];
    crawler.ask(&lines).await.status()
}

/// Crawls with the right token while `is_on`, given the time since the start, returns true.
async fn crawl(proxy: &Proxy, is_on: impl Fn(Duration) -> bool) -> Service {
    let mut crawler = Crawler::at(GOOD, proxy).await.unwrap();
    let credential = format!("Basic {}", basic(RIGHT));
    let (begun, mut service) = (clock::instant(), Service::default());
    while is_on(service.time) {
        let asked = clock::instant();
        match ask(&mut crawler, &credential).await {
            200 => service.times.push(clock::instant() - asked),
            status => service.errors.push(status.to_string()),
        }
        service.time = clock::instant() - begun;
    }
    service
}

/// Sends wrong tokens on one connection until `sent`, which all connections share, reaches
/// [`TOKENS`].
async fn send_wrong(proxy: Arc<Proxy>, source: Ipv4Addr, sent: Arc<AtomicUsize>) {
    let mut crawler = Crawler::at(source, &proxy).await.unwrap();
    loop {
        let number = sent.fetch_add(1, Ordering::Relaxed);
        if TOKENS <= number {
            // Scripted load: the crowd repeats this function until it is dropped.
            return sleep(Duration::from_secs(1)).await;
        }
        let token = format!("{WRONG}{}", sha256(&number.to_ne_bytes()));
        let credential = match number % 2 {
            0 => format!("Basic {}", basic(&token)),
            _ => format!("Bearer {token}"),
        };
        assert_eq!(ask(&mut crawler, &credential).await, 407);
    }
}

/// Asserts that `text` contains no token. Failures name `place`, the source of the text.
fn assert_no_token(place: &str, text: &[u8]) {
    let encoded = [basic(WRONG), basic(RIGHT)];
    let needles = [WRONG, &encoded[0][..16], RIGHT, &encoded[1]];
    for needle in needles {
        let found = find(text, needle.as_bytes());
        assert!(found.is_none(), "{needle} in {place}");
    }
}

/// Asserts that no file below the folder of `place` contains a token. The columns of the
/// record are stored as they are, so its file would show one.
async fn assert_no_token_written(place: &Place) {
    let mut folders = vec![place.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                assert_no_token(&path.display().to_string(), &bytes);
            }
        }
    }
    let shown = place.run_ok(&["audit", "show", "3", "--json"]).await;
    assert_no_token("audit show", shown.stdout.as_bytes());
}

/// Asserts that no page of the admin listener contains a token.
async fn assert_no_token_shown(proxy: &Proxy) {
    assert_no_token("/metrics", metrics(proxy).await.as_bytes());
    let admin = std::fs::read_to_string(proxy.place().path("data/admin-token")).unwrap();
    let token = format!("Authorization: Bearer {}", admin.trim());
    for page in ["clients", "pace"] {
        let path = format!("/api/v1/{page}");
        let reply = get_admin(proxy.admin(), &path, &[&token]).await;
        assert_eq!(reply.status(), 200, "{page}: {}", reply.text());
        assert_no_token(page, &reply.body);
    }
}

// Ours.
#[tokio::test]
#[ignore = "measures rates: tests/full.sh runs it"]
async fn a_hundred_thousand_wrong_tokens_slow_no_other_client_and_are_not_stored() {
    let origin = Script::robots("").start().await;
    let digest = sha256(RIGHT.as_bytes());
    let table = format!("{{ token = \"FooBot\", credential = \"sha256:{digest}\" }}");
    let config = resolve("o.test", origin.address())
        .set(&format!("crawler = [{table}]"))
        .set("proxy.auth = \"required\"")
        .set("log.exchanges = true");
    let proxy = Arc::new(config.start().await);
    let alone = crawl(&proxy, |time| time < ALONE).await;
    let (sent, mut crowd) = (Arc::new(AtomicUsize::new(0)), Crowd::default());
    for _ in 0..CONNECTIONS {
        let sent = Arc::clone(&sent);
        crowd.repeat(&proxy, move |proxy| {
            send_wrong(proxy, bad(0), Arc::clone(&sent))
        });
    }
    let is_sending = |_| sent.load(Ordering::Relaxed) < TOKENS;
    let beside = soon("all tokens", crawl(&proxy, is_sending)).await;
    drop(crowd);
    let refused = "politesse_credentials_refused_total{reason=\"wrong\"} 100000\n";
    assert_metric(&proxy, refused).await;
    assert_no_token_shown(&proxy).await;
    assert_no_token("the log", proxy.log().as_bytes());
    let place = Arc::into_inner(proxy).unwrap().stop().await;
    assert_no_token_written(&place).await;
    let half = Least {
        share: 0.8 / 2.0,
        p99: 3.0,
    };
    beside.assert_least(&alone, half);
}
