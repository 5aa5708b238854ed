//! A shared proxy at full size: ten clients that take all they can, or one, beside
//! one that behaves.
//!
//! The figures are those that the proxy promises: of what the one that behaves gets
//! alone, four fifths of its part, in at most three times the time, and no error. Of
//! a host that eleven ask all the time the time is longer: eleven times that of alone
//! is an equal part.
//! Ignored in every run but that of `tests/full.sh`, since rates are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use politesse_base::clock;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::kit::client::Crawler;
use crate::kit::h2::H2Crawler;
use crate::kit::namespace::{Addresses, Everywhere, NameServer, inside};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{ONE_FILE, metric, standard};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::tenant::{
    Crowd, GOOD, Least, Service, ask, bad, crawl, crawl_at_once, take_descriptors,
};
use crate::kit::{run, until};

/// Time for which the client that behaves asks alone.
const ALONE: Duration = Duration::from_secs(2);
/// Time for which it asks beside the others.
const BESIDE: Duration = Duration::from_secs(6);
/// Connections that the others hold, as many as there may be.
const CONNECTIONS: usize = 4096;
const URL: &str = "http://o.test/page";

/// Part of what there is that a client must get beside so many: four fifths of an
/// equal one.
fn share(others: u8) -> f64 {
    0.8 / f64::from(others + 1)
}

/// What the client that behaves must get where nobody else asks the same host.
fn apart(others: u8) -> Least {
    Least {
        share: share(others),
        p99: 3.0,
    }
}

/// What it must get of a host that all ask all the time: its turn comes after one of
/// each of the others, and a quarter more is noise.
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

/// Starts a proxy whose hosts are asked 20 times a second.
async fn at_twenty_a_second(origin: &Origin) -> Arc<Proxy> {
    let config = standard(origin)
        .set(ONE_FILE)
        .set("pace.origin = { rate = \"20/s\" }");
    Arc::new(config.start().await)
}

/// Has each of `others` clients do `each` times at once what `act` does, which is
/// told the client and a number.
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

/// Asks as one of the others, and waits for the answer for as long as that takes.
/// Pauses after any other than 200.
async fn take(proxy: Arc<Proxy>, client: u8, agent: String) {
    let Some(mut crawler) = Crawler::at(bad(client), &proxy).await else {
        return;
    };
    let request = format!(
        "GET {URL} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: {agent}/1.0\r\n\
         Connection: close\r\n\r\n"
    );
    let _ = crawler.try_send(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = crawler.into_stream().read_to_end(&mut answer).await;
    if !answer.starts_with(b"HTTP/1.1 200") {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Opens a connection, and holds it without a word until the proxy ends it.
async fn silence(proxy: Arc<Proxy>, client: u8) {
    if let Some(crawler) = Crawler::at(bad(client), &proxy).await {
        let _ = crawler.into_stream().read_u8().await;
    }
    sleep(Duration::from_millis(100)).await;
}

async fn beside_silence(others: u8) {
    take_descriptors();
    let origin = Script::robots("").start().await;
    let proxy = Arc::new(resolve("o.test", origin.address()).start().await);
    let alone = alone(&proxy).await;
    let mut crowd = Crowd::default();
    // One for each client above what there is: they want more than they get.
    for number in 0..CONNECTIONS + usize::from(others) {
        let client = (number % usize::from(others)) as u8;
        crowd.repeat(&proxy, move |proxy| silence(proxy, client));
    }
    at_least(&proxy, "politesse_connections", CONNECTIONS - 100).await;
    let beside = beside(&proxy).await;
    beside.assert_least(&alone, apart(others));
}

/// Asks for a page that does not come, until the proxy ends that.
async fn last(proxy: Arc<Proxy>, client: u8) {
    if let Some(mut crawler) = Crawler::at(bad(client), &proxy).await {
        let request = "GET http://o.test/never HTTP/1.1\r\nHost: o.test\r\n\
                       User-Agent: BadBot/1.0\r\n\r\n";
        let _ = crawler.try_send(request.as_bytes()).await;
        let _ = crawler.into_stream().read_u8().await;
    }
    sleep(Duration::from_millis(100)).await;
}

async fn beside_requests_that_last(others: u8) {
    take_descriptors();
    let never = Page::text("x").after(&Gate::shut());
    let origin = Script::robots("").page("/never", never).start().await;
    let config = resolve("o.test", origin.address())
        .set(ONE_FILE)
        .set("pace.origin = { in_flight = 10000 }");
    let proxy = Arc::new(config.start().await);
    let alone = alone(&proxy).await;
    let mut crowd = Crowd::default();
    for number in 0..CONNECTIONS + usize::from(others) {
        let client = (number % usize::from(others)) as u8;
        crowd.repeat(&proxy, move |proxy| last(proxy, client));
    }
    at_least(&proxy, "politesse_pace_in_flight", CONNECTIONS - 100).await;
    // A request that has just begun is not cut off.
    sleep(Duration::from_secs(3)).await;
    let beside = beside(&proxy).await;
    beside.assert_least(&alone, apart(others));
}

/// Waits until a metric has at least this value.
async fn at_least(proxy: &Proxy, name: &str, value: usize) {
    until(name, async || {
        (value as f64 <= metric(proxy, name).await).then_some(())
    })
    .await;
}

/// Streams of one connection, each of which asks for a page of a host with a crawl
/// delay, again and again.
async fn waiting_streams(proxy: Arc<Proxy>, client: u8, number: usize) {
    let (host, agent) = (format!("h{}.test", number % 50), agent("Bad", number));
    let Some(connection) = H2Crawler::at(bad(client), &proxy, &format!("{host}:443")).await else {
        return sleep(Duration::from_millis(100)).await;
    };
    let mut streams = JoinSet::new();
    for stream in 0..100 {
        let (mut connection, agent) = (connection.beside(), agent.clone());
        let url = format!("https://{host}/{stream}");
        streams.spawn(async move {
            while connection.open_as(&agent, &url).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
    streams.join_all().await;
}

/// Returns the User-Agent of the crawler with this number.
fn agent(name: &str, number: usize) -> String {
    let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
    format!("{name}{}{}", letter(number / 26), letter(number))
}

async fn beside_waiting_streams(others: u8) {
    take_descriptors();
    let slow = Script::robots("User-agent: *\nCrawl-delay: 1\n");
    let names: Vec<_> = (0..50).map(|number| format!("h{number}.test")).collect();
    let slow = slow.names(names.clone()).tls().start().await;
    let origin = Script::robots("").start().await;
    let mut config = resolve("o.test", origin.address())
        .set(ONE_FILE)
        // So that the requests of the client that behaves wait for each other.
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
    at_least(&proxy, "politesse_pace_queued", 9_900).await;
    let beside = crawl_at_once(&proxy, 20, URL, BESIDE).await;
    beside.assert_least(&alone, apart(others));
}

/// Asks for names that no server answers, one after the other.
async fn names_that_hang(proxy: Arc<Proxy>, client: u8) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let url = format!("http://hangs.{number}.example/");
    let _ = ask(&proxy, bad(client), "BadBot", &url).await;
    // 80 of them are 16 a second.
    sleep(Duration::from_secs(5)).await;
}

/// Asks for names that were not asked for, one after the other.
async fn new_names(proxy: &Proxy, label: &str, time: Duration) -> Service {
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
    let alone = new_names(&proxy, "alone", ALONE).await;
    let _crowd = crowd_of(&proxy, others, 80, |proxy, client, _| {
        names_that_hang(proxy, client)
    });
    at_least(&proxy, "politesse_upstream_dns_hanging", 8).await;
    let beside = new_names(&proxy, "beside", BESIDE).await;
    beside.assert_least(&alone, apart(others));
}

/// Uploads a byte in two seconds, for as long as the proxy lets it.
async fn slow_upload(proxy: Arc<Proxy>, client: u8) {
    let Some(mut crawler) = Crawler::at(bad(client), &proxy).await else {
        return;
    };
    let head = "POST http://o.test/upload HTTP/1.1\r\nHost: o.test\r\n\
                User-Agent: BadBot/1.0\r\nContent-Length: 1000\r\n\r\n";
    let mut sent = crawler.try_send(head.as_bytes()).await;
    while sent.is_ok() {
        sleep(Duration::from_secs(2)).await;
        sent = crawler.try_send(b"x").await;
    }
}

/// Asks for a page that never ends, and reads no more than its head.
async fn slow_reader(proxy: Arc<Proxy>, client: u8) {
    read_head_and_wait(proxy, client, Duration::from_secs(100)).await;
}

/// Does so again and again, and goes before `pace.max_stall` is over.
async fn brief_reader(proxy: Arc<Proxy>, client: u8) {
    read_head_and_wait(proxy, client, Duration::from_secs(4)).await;
}

async fn read_head_and_wait(proxy: Arc<Proxy>, client: u8, wait: Duration) {
    let Some(mut crawler) = Crawler::at(bad(client), &proxy).await else {
        return;
    };
    let request = "GET http://o.test/endless HTTP/1.1\r\nHost: o.test\r\n\
                   User-Agent: BadBot/1.0\r\n\r\n";
    let sent = crawler.try_send(request.as_bytes()).await;
    let mut stream = crawler.into_stream();
    if sent.is_ok() && stream.read_u8().await.is_ok() {
        sleep(wait).await;
    }
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
    at_least(&proxy, "politesse_pace_queued", 4).await;
    // Each may stall once for some seconds (`pace.max_stall`).
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

async fn beside_many_names(others: u8) {
    let origin = Script::robots("").start().await;
    let proxy = at_twenty_a_second(&origin).await;
    let alone = alone(&proxy).await;
    let _crowd = crowd_of(&proxy, others, 60, |proxy, client, number| {
        take(proxy, client, agent("Bad", number))
    });
    at_least(&proxy, "politesse_pace_queued", 50).await;
    let beside = beside(&proxy).await;
    beside.assert_least(&alone, in_turn(others));
}

async fn beside_a_crawl_delay(others: u8) {
    let robots = "User-agent: SlowBot\nCrawl-delay: 2000\n\nUser-agent: *\nDisallow:\n";
    let origin = Script::robots(robots).start().await;
    let proxy = at_twenty_a_second(&origin).await;
    let alone = alone(&proxy).await;
    let _crowd = crowd_of(&proxy, others, 10, |proxy, client, _| {
        take(proxy, client, "SlowBot".to_owned())
    });
    sleep(Duration::from_millis(200)).await;
    let beside = beside(&proxy).await;
    beside.assert_least(&alone, apart(others));
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

// Ours.
rows! {
    all_connections_of_one_client: beside_silence(1);
    all_connections_of_ten_clients: beside_silence(10);
    requests_that_last_of_one_client: beside_requests_that_last(1);
    requests_that_last_of_ten_clients: beside_requests_that_last(10);
    streams_that_wait_of_one_client: beside_waiting_streams(1);
    streams_that_wait_of_ten_clients: beside_waiting_streams(10);
    slow_uploads_of_one_client: beside_the_slow(1, 8, slow_upload, 3.0);
    // Now and then two or three turns of others come in between (as measured).
    slow_uploads_of_ten_clients: beside_the_slow(10, 8, slow_upload, 5.0);
    slow_readers_of_one_client: beside_the_slow(1, 24, slow_reader, 3.0);
    slow_readers_of_ten_clients: beside_the_slow(10, 24, slow_reader, 5.0);
    readers_that_come_and_go_of_one_client: beside_the_slow(1, 24, brief_reader, 3.0);
    // Eleven times is an equal part; each that comes may stall for some seconds.
    readers_that_come_and_go_of_ten_clients: beside_the_slow(10, 24, brief_reader, 16.5);
    sixty_names_of_one_client: beside_many_names(1);
    sixty_names_of_ten_clients_each: beside_many_names(10);
    a_crawl_delay_of_one_client: beside_a_crawl_delay(1);
    a_crawl_delay_of_ten_clients: beside_a_crawl_delay(10);
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

// Ours: by the system, and by the proxy itself.
namespaced! {
    names_that_hang_of_one_client: beside_names_that_hang(1);
    names_that_hang_of_ten_clients: beside_names_that_hang(10);
}
