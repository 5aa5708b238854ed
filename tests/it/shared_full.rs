//! A shared proxy at full size: one client that behaves (`good`) beside one or ten that
//! take all they can (`bad`).
//!
//! The good client must get four fifths of its fair share of what it gets alone, in at
//! most three times the time, without an error. At a host that eleven clients request all
//! the time it takes longer: a fair turn then takes eleven times as long as alone.
//!
//! These tests measure rates, so only `tests/full.sh` runs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use politesse_base::clock;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::kit::h2::H2Crawler;
use crate::kit::namespace::{Addresses, Everywhere, NameServer, inside};
use crate::kit::origin::Script;
use crate::kit::paced::{ONE_FILE, standard};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::run;
use crate::kit::tenant::{
    Crowd, GOOD, Least, Service, ask, at_least, bad, bad_agent, crawl, crawl_at_once, send_from,
    slow_reader, slow_upload, take_descriptors,
};

/// Time for which the good client crawls alone.
const ALONE: Duration = Duration::from_secs(2);
/// Time for which the good client crawls beside the others.
const BESIDE: Duration = Duration::from_secs(6);
/// Connections that the others hold: the default of `proxy.max_connections`.
const CONNECTIONS: usize = 4096;
const URL: &str = "http://o.test/page";
const QUEUED: &str = "politesse_pace_queued";

/// Share that the good client must get beside `others` clients: four fifths of an equal
/// one.
fn share(others: u8) -> f64 {
    0.8 / f64::from(others + 1)
}

/// Least service for the good client at a host that no other client requests.
fn apart(others: u8) -> Least {
    Least {
        share: share(others),
        p99: 3.0,
    }
}

/// Least service at a host that all clients request all the time: the good client's turn
/// comes after one of each other client, with a quarter for noise.
fn in_turn(others: u8) -> Least {
    Least {
        share: share(others),
        p99: f64::max(3.0, 1.25 * f64::from(others + 1)),
    }
}

async fn alone(proxy: &Proxy) -> Service {
    crawl(proxy, GOOD, "GoodBot", URL, ALONE).await
}

async fn beside(proxy: &Proxy) -> Service {
    crawl(proxy, GOOD, "GoodBot", URL, BESIDE).await
}

/// Has each of `others` clients run `act` `each` times concurrently, with the client's
/// number and a running number.
fn crowd_of<F: Future<Output = ()> + Send>(
    proxy: &Arc<Proxy>,
    others: u8,
    each: usize,
    act: impl Fn(Arc<Proxy>, u8, usize) -> F + Copy + Send + 'static,
) -> Crowd {
    let mut crowd = Crowd::default();
    for client in 0..others {
        for number in 0..each {
            crowd.repeat(proxy, move |proxy| act(proxy, client, number));
        }
    }
    crowd
}

/// Requests a page as one of the bad clients.
async fn take(proxy: Arc<Proxy>, client: u8, agent: String) {
    if ask(&proxy, bad(client), &agent, URL).await.is_err() {
        // Scripted load: a refused client tries again a second later.
        sleep(Duration::from_secs(1)).await;
    }
}

/// Sends `request`, and keeps the connection until the proxy closes it.
async fn hold_connection(proxy: Arc<Proxy>, client: u8, request: &str) {
    if let Some(crawler) = send_from(bad(client), &proxy, request).await {
        let _ = crawler.into_stream().read_u8().await;
    }
    // Scripted load: a refused client does not reconnect in a busy loop.
    sleep(Duration::from_millis(100)).await;
}

/// Asserts the good client's service while `others` hold all connections, on each of which
/// they have sent `request`. The metric `held` counts what they hold.
async fn beside_connections(others: u8, request: &'static str, held: &str) {
    take_descriptors();
    let never = Page::text("x").after(&Gate::shut());
    let origin = Script::robots("").page("/never", never).start().await;
    let config = resolve("o.test", origin.address())
        .set(ONE_FILE)
        .set("pace.origin = { in_flight = 10000 }");
    let proxy = Arc::new(config.start().await);
    let alone = alone(&proxy).await;
    // One more per client than the limit: the clients want more than they get.
    let each = CONNECTIONS / usize::from(others) + 1;
    let _crowd = crowd_of(&proxy, others, each, |proxy, client, _| {
        hold_connection(proxy, client, request)
    });
    at_least(&proxy, held, CONNECTIONS - 100).await;
    // Time under test: a share in use can be displaced after two seconds.
    sleep(Duration::from_millis(2_100)).await;
    let beside = beside(&proxy).await;
    beside.assert_least(&alone, apart(others));
}

async fn beside_silence(others: u8) {
    beside_connections(others, "", "politesse_connections").await;
}

/// Requests a page that never comes.
async fn beside_endless_requests(others: u8) {
    let request = "GET http://o.test/never HTTP/1.1\r\nHost: o.test\r\n\
                   User-Agent: BadBot/1.0\r\n\r\n";
    beside_connections(others, request, "politesse_pace_in_flight").await;
}

/// Opens 100 streams on one connection, each of which keeps requesting a page of a host
/// with a crawl delay.
async fn waiting_streams(proxy: Arc<Proxy>, client: u8, number: usize) {
    let (host, agent) = (format!("h{}.test", number % 50), bad_agent(number));
    let Some(connection) = H2Crawler::at(bad(client), &proxy, &format!("{host}:443")).await else {
        // Scripted load: a refused client does not reconnect in a busy loop.
        return sleep(Duration::from_millis(100)).await;
    };
    let mut streams = JoinSet::new();
    for stream in 0..100 {
        let (mut connection, agent) = (connection.beside(), agent.clone());
        let url = format!("https://{host}/{stream}");
        streams.spawn(async move {
            while connection.open_as(&agent, &url).await.is_ok() {
                // Scripted load: each stream requests a page a second at most.
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
    streams.join_all().await;
}

async fn beside_waiting_streams(others: u8) {
    take_descriptors();
    let slow = Script::robots("User-agent: *\nCrawl-delay: 1\n");
    let names: Vec<_> = (0..50).map(|number| format!("h{number}.test")).collect();
    let slow = slow.names(names.clone()).tls().start().await;
    let origin = Script::robots("").start().await;
    let mut config = resolve("o.test", origin.address())
        .set(ONE_FILE)
        // Makes the good client's requests wait for each other.
        .set("pace.origin = { in_flight = 4 }")
        .set("pace.max_wait = \"1h\"");
    for name in names {
        config = config.resolve(&name, slow.address());
    }
    let proxy = Arc::new(config.start().await);
    let alone = crawl_at_once(&proxy, 20, URL, ALONE).await;
    let mut crowd = Crowd::default();
    for number in 0..150 {
        let client = (number % usize::from(others)) as u8;
        crowd.repeat(&proxy, move |proxy| waiting_streams(proxy, client, number));
    }
    at_least(&proxy, QUEUED, 9_900).await;
    let beside = crawl_at_once(&proxy, 20, URL, BESIDE).await;
    beside.assert_least(&alone, apart(others));
}

/// Requests a page under a name that the name server never answers.
async fn request_hanging_name(proxy: Arc<Proxy>, client: u8) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let url = format!("http://hangs.{number}.example/");
    let _ = ask(&proxy, bad(client), "BadBot", &url).await;
    // Scripted load: 80 of these tasks make 16 lookups a second.
    sleep(Duration::from_secs(5)).await;
}

/// Requests pages under ever new names, one after the other, for `time`.
async fn crawl_new_names(proxy: &Proxy, label: &str, time: Duration) -> Service {
    let (begun, mut service) = (clock::instant(), Service::default());
    for number in 0.. {
        let asked = clock::instant();
        let url = format!("http://{label}.{number}.example/");
        match ask(proxy, GOOD, "GoodBot", &url).await {
            Ok(()) => service.times.push(clock::instant() - asked),
            Err(error) => service.errors.push(error),
        }
        if time < clock::instant() - begun {
            break;
        }
    }
    service.time = clock::instant() - begun;
    service
}

async fn beside_names_that_hang(others: u8) {
    const PUBLIC: &str = "93.184.216.34";
    take_descriptors();
    let _web = Everywhere::listen(80).await;
    let _names =
        NameServer::start(|name, _| (!name.starts_with("hangs")).then_some(&[PUBLIC])).await;
    let proxy = Arc::new(Config::default().start().await);
    let alone = crawl_new_names(&proxy, "alone", ALONE).await;
    let _crowd = crowd_of(&proxy, others, 80, |proxy, client, _| {
        request_hanging_name(proxy, client)
    });
    at_least(&proxy, "politesse_upstream_dns_hanging", 8).await;
    let beside = crawl_new_names(&proxy, "beside", BESIDE).await;
    beside.assert_least(&alone, apart(others));
}

async fn beside_the_slow<F: Future<Output = ()> + Send + 'static>(
    others: u8,
    each: usize,
    slow: fn(Arc<Proxy>, u8) -> F,
    p99: f64,
) {
    let endless = Page::stream(1 << 30, Length::Announced);
    let origin = Script::robots("").page("/endless", endless).start().await;
    let config = standard(&origin)
        .set(ONE_FILE)
        .set("pace.origin = { in_flight = 4, rate = \"20/s\" }");
    let proxy = Arc::new(config.start().await);
    let alone = alone(&proxy).await;
    let _crowd = crowd_of(&proxy, others, each, move |proxy, client, _| {
        slow(proxy, client)
    });
    at_least(&proxy, QUEUED, 4).await;
    // Each client may stall once for some seconds (`pace.max_stall`).
    let crawl_on = async {
        loop {
            crawl(&proxy, GOOD, "GoodBot", URL, Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = crawl_on => {}
        () = at_least(&proxy, "politesse_pace_stalls_total", usize::from(others).max(4)) => {}
    }
    let beside = beside(&proxy).await;
    let share = share(others);
    beside.assert_least(&alone, Least { share, p99 });
}

async fn beside_slow_uploads(others: u8, p99: f64) {
    let upload = |proxy, client| slow_upload(proxy, client, Duration::from_secs(2));
    beside_the_slow(others, 8, upload, p99).await;
}

async fn beside_slow_readers(others: u8, p99: f64) {
    let stay = |proxy, client| slow_reader(proxy, client, Duration::from_secs(100));
    beside_the_slow(others, 24, stay, p99).await;
}

/// The readers leave before `pace.max_stall` ends.
async fn beside_brief_readers(others: u8, p99: f64) {
    let leave = |proxy, client| slow_reader(proxy, client, Duration::from_secs(4));
    beside_the_slow(others, 24, leave, p99).await;
}

async fn beside_many_names(others: u8) {
    let origin = Script::robots("").start().await;
    let config = standard(&origin)
        .set(ONE_FILE)
        .set("pace.origin = { rate = \"20/s\" }");
    let proxy = Arc::new(config.start().await);
    let alone = alone(&proxy).await;
    let _crowd = crowd_of(&proxy, others, 60, |proxy, client, number| {
        take(proxy, client, bad_agent(number))
    });
    at_least(&proxy, QUEUED, 50).await;
    let beside = beside(&proxy).await;
    beside.assert_least(&alone, in_turn(others));
}

macro_rules! rows {
    ($($name:ident: $row:expr;)*) => {$(
        #[test]
        #[ignore = "measures rates: tests/full.sh runs it"]
        fn $name() {
            run($row);
        }
    )*};
}

// Ours: the good client keeps its share and its time.
rows! {
    one_client_with_all_connections_leaves_another_its_share: beside_silence(1);
    ten_clients_with_all_connections_leave_another_its_share: beside_silence(10);
    one_client_with_endless_requests_leaves_another_its_share: beside_endless_requests(1);
    ten_clients_with_endless_requests_leave_another_its_share: beside_endless_requests(10);
    one_client_with_waiting_streams_leaves_another_its_share: beside_waiting_streams(1);
    ten_clients_with_waiting_streams_leave_another_its_share: beside_waiting_streams(10);
    one_client_with_slow_uploads_leaves_another_its_share: beside_slow_uploads(1, 3.0);
    // Measurements sometimes show two or three turns of other clients in between.
    ten_clients_with_slow_uploads_leave_another_its_share: beside_slow_uploads(10, 5.0);
    one_client_with_slow_readers_leaves_another_its_share: beside_slow_readers(1, 3.0);
    ten_clients_with_slow_readers_leave_another_its_share: beside_slow_readers(10, 5.0);
    one_client_with_brief_readers_leaves_another_its_share: beside_brief_readers(1, 3.0);
    // Eleven times is an equal share; each new reader may stall for some seconds.
    ten_clients_with_brief_readers_leave_another_its_share: beside_brief_readers(10, 16.5);
    one_client_with_sixty_names_leaves_another_its_share: beside_many_names(1);
    ten_clients_with_sixty_names_each_leave_another_its_share: beside_many_names(10);
}

macro_rules! namespaced {
    ($($name:ident: $row:expr;)*) => {$(
        #[test]
        #[ignore = "measures rates: tests/full.sh runs it"]
        fn $name() {
            let name = concat!("shared_full::", stringify!($name));
            inside(name, Addresses::Every, $row);
        }
    )*};
}

// Ours: lookups that hang. The tests need a name server and a network of their own.
namespaced! {
    one_client_with_hanging_lookups_leaves_another_its_share: beside_names_that_hang(1);
    ten_clients_with_hanging_lookups_leave_another_its_share: beside_names_that_hang(10);
}
