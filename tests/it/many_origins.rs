//! A crawl of many origins, one in ten of them broken. Each robots.txt is fetched once,
//! even across a restart; nothing disallowed is fetched; and memory stays within limits.
//!
//! Each origin has its own address in 127/8, and a single listener serves all of them.
//! Only `tests/full.sh` runs the crawl of 100,000 origins.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::kit::client::Crawler;
use crate::kit::proxy::{Config, Place, Proxy};
use crate::kit::raw_origin::read_head;
use crate::kit::{clock, run_within};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
const WORKERS: usize = 32;

/// How an origin answers a request for robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Healthy,
    /// Rules, followed by endless comment lines.
    Endless,
    Hanging,
    Resetting,
    Closing,
    Looping,
    ServerError,
    Garbage,
    Dripping,
    /// Endless interim responses.
    Flooding,
    /// A body shorter than its `Content-Length`.
    Short,
}

const BROKEN: [Kind; 10] = [
    Kind::Endless,
    Kind::Hanging,
    Kind::Resetting,
    Kind::Closing,
    Kind::Looping,
    Kind::ServerError,
    Kind::Garbage,
    Kind::Dripping,
    Kind::Flooding,
    Kind::Short,
];

/// All origins, and counters of the requests to them.
struct Crowd {
    port: u16,
    one_in_ten_broken: bool,
    asked: Vec<AtomicU32>,
    disallowed: AtomicUsize,
    /// Pages served by origins whose rules are unknown; must stay 0.
    unknown: AtomicUsize,
}

impl Crowd {
    async fn start(count: usize, one_in_ten_broken: bool) -> Arc<Self> {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let crowd = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            one_in_ten_broken,
            asked: (0..count).map(|_| AtomicU32::new(0)).collect(),
            disallowed: AtomicUsize::new(0),
            unknown: AtomicUsize::new(0),
        });
        let origins = Arc::clone(&crowd);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let origins = Arc::clone(&origins);
                tokio::spawn(async move { origins.serve(stream).await });
            }
        });
        crowd
    }

    fn count(&self) -> usize {
        self.asked.len()
    }

    fn kind(&self, number: usize) -> Kind {
        if self.one_in_ten_broken && number % 10 == 7 {
            BROKEN[number / 10 % BROKEN.len()]
        } else {
            Kind::Healthy
        }
    }

    /// Answers the requests on a connection until it ends.
    async fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let number = number_of(stream.local_addr().ok()?)?;
        let kind = self.kind(number);
        let mut unread = Vec::new();
        loop {
            let head = read_head(&mut stream, &mut unread).await?;
            let target = head.split(' ').nth(1)?;
            if target.starts_with("/robots.txt") {
                if target == "/robots.txt" {
                    self.asked[number].fetch_add(1, Ordering::Relaxed);
                }
                robots(&mut stream, kind, target).await?;
                continue;
            }
            if target.starts_with("/private") {
                self.disallowed.fetch_add(1, Ordering::Relaxed);
            }
            if !matches!(kind, Kind::Healthy | Kind::Endless) {
                self.unknown.fetch_add(1, Ordering::Relaxed);
            }
            answer(&mut stream, "200 OK", "a page").await?;
        }
    }
}

/// Returns the address of origin `number`; 127.0/16 is not used.
fn address_of(number: usize) -> Ipv4Addr {
    let [.., a, b, c] = u32::try_from(number).unwrap().to_be_bytes();
    Ipv4Addr::new(127, a + 1, b, c)
}

fn number_of(address: SocketAddr) -> Option<usize> {
    let SocketAddr::V4(address) = address else {
        return None;
    };
    let [_, a, b, c] = address.ip().octets();
    usize::try_from(u32::from_be_bytes([0, a.checked_sub(1)?, b, c])).ok()
}

async fn answer(stream: &mut TcpStream, status: &str, body: &str) -> Option<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.ok()
}

/// Answers a request for robots.txt; `None` ends the connection.
async fn robots(stream: &mut TcpStream, kind: Kind, target: &str) -> Option<()> {
    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    match kind {
        Kind::Healthy => answer(stream, "200 OK", ROBOTS).await,
        Kind::ServerError => answer(stream, "503 Busy", "").await,
        Kind::Looping => {
            let to = if target.contains('?') { "" } else { "?again" };
            let status = format!("302 Found\r\nLocation: /robots.txt{to}");
            answer(stream, &status, "").await
        }
        Kind::Endless => {
            stream.write_all(CHUNKED).await.ok()?;
            let part = ROBOTS.to_owned() + &"# and on and on\n".repeat(1000);
            let chunk = format!("{:x}\r\n{part}\r\n", part.len());
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
            None
        }
        Kind::Dripping => {
            stream.write_all(CHUNKED).await.ok()?;
            loop {
                // Scripted load: a slow origin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                stream.write_all(b"1\r\n#\r\n").await.ok()?;
            }
        }
        Kind::Flooding => {
            let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n";
            while stream.write_all(interim).await.is_ok() {}
            None
        }
        Kind::Hanging => {
            // Until the proxy gives up and closes the connection.
            let mut rest = [0; 16];
            while 0 < stream.read(&mut rest).await.ok()? {}
            None
        }
        Kind::Resetting => {
            stream.set_zero_linger().ok()?;
            None
        }
        Kind::Closing => None,
        Kind::Garbage => {
            let bytes = b"\x16\x03\x01 no HTTP at all\r\n";
            stream.write_all(bytes).await.ok()?;
            None
        }
        Kind::Short => {
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{ROBOTS}");
            stream.write_all(text.as_bytes()).await.ok()?;
            None
        }
    }
}

/// Durations in a crawl: sorted times of pages from healthy origins, and the total.
struct Crawl {
    pages: Vec<Duration>,
    took: Duration,
}

impl Crawl {
    /// Requests an allowed and a disallowed page of each of these origins.
    async fn of(proxy: &Proxy, crowd: &Arc<Crowd>, origins: std::ops::Range<usize>) -> Self {
        let started = clock::instant();
        let next = Arc::new(AtomicUsize::new(origins.start));
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            let (address, crowd, next) = (proxy.address(), Arc::clone(crowd), Arc::clone(&next));
            workers.spawn(async move {
                let mut crawler = Crawler::to(address).await;
                let mut pages = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if origins.end <= number {
                        return pages;
                    }
                    pages.extend(visit(&mut crawler, &crowd, number).await);
                }
            });
        }
        let mut pages = workers.join_all().await.concat();
        pages.sort_unstable();
        Self {
            pages,
            took: clock::since(started),
        }
    }

    /// Returns the `part`/1000 quantile of the page times.
    fn quantile(&self, part: usize) -> Duration {
        self.pages[(self.pages.len() - 1) * part / 1000]
    }
}

/// Visits an origin as [`Crawl::of`] does. Returns the time of the allowed page, if the
/// origin is healthy.
async fn visit(crawler: &mut Crawler, crowd: &Crowd, number: usize) -> Option<Duration> {
    let authority = format!("{}:{}", address_of(number), crowd.port);
    let mut ask = async |path: &str| {
        let line = format!("GET http://{authority}{path} HTTP/1.1");
        let host = format!("Host: {authority}");
        let lines = [&*line, &host, "User-Agent: ManyBot/1.0"];
        crawler.ask(&lines).await
    };
    let started = clock::instant();
    let page = ask("/page").await;
    let took = clock::since(started);
    let private = ask("/private/page").await;
    let kind = crowd.kind(number);
    let can_be_known = matches!(kind, Kind::Healthy | Kind::Endless);
    let wanted = if can_be_known { 200 } else { 403 };
    assert_eq!(page.status(), wanted, "{kind:?} {number}: {}", page.text());
    assert_eq!(private.status(), 403, "{kind:?} {number}");
    (kind == Kind::Healthy).then_some(took)
}

fn config(snapshots: usize) -> Config {
    Config::default()
        .set("egress.allow = [\"127.0.0.0/8\"]")
        .set("robots.timeout = \"5s\"")
        .set("robots.retry = [\"30m\", \"30m\"]")
        .set(&format!("robots.max_snapshots = {snapshots}"))
        .set("robots.max_snapshot_bytes = \"16MiB\"")
        .set("log.level = \"warn\"")
}

/// Crawls the first half of `crowd`, restarts the proxy, and crawls everything. Asserts
/// that each robots.txt was fetched once. Returns the running proxy and the second crawl.
async fn crawl_with_restart(crowd: &Arc<Crowd>, config: &Config) -> (Proxy, Crawl) {
    let proxy = Place::with(config).start().await;
    let count = crowd.count();
    Crawl::of(&proxy, crowd, 0..count / 2).await;
    let proxy = proxy.stop().await.start().await;
    let crawl = Crawl::of(&proxy, crowd, 0..count).await;
    for (number, asked) in crowd.asked.iter().enumerate() {
        let (asked, kind) = (asked.load(Ordering::Relaxed), crowd.kind(number));
        // A redirect loop returns to its first URL.
        let most = if kind == Kind::Looping { 2 } else { 1 };
        assert!((1..=most).contains(&asked), "{kind:?} {number}: {asked}");
    }
    assert_eq!(crowd.disallowed.load(Ordering::Relaxed), 0);
    assert_eq!(crowd.unknown.load(Ordering::Relaxed), 0);
    (proxy, crawl)
}

// Ours: evictions and a restart cause no second fetch within a lifetime.
#[tokio::test]
async fn a_crawl_of_many_origins_fetches_each_robots_txt_once() {
    let crowd = Crowd::start(500, true).await;
    let (proxy, crawl) = crawl_with_restart(&crowd, &config(50)).await;
    assert_eq!(crawl.pages.len(), 450);
    proxy.place().assert_verified().await;
}

// Ours: the crawl above at full size, with printed times and memory.
#[test]
#[ignore = "several minutes long: tests/full.sh runs it"]
fn a_crawl_of_100_000_origins_stays_below_512_mib() {
    const COUNT: usize = 100_000;
    run_within(Duration::from_secs(3600), async {
        let healthy = Crowd::start(COUNT / 5, false).await;
        let proxy = config(5000).start().await;
        let without = Crawl::of(&proxy, &healthy, 0..COUNT / 5).await;
        proxy.stop().await;
        let crowd = Crowd::start(COUNT, true).await;
        let (proxy, with) = crawl_with_restart(&crowd, &config(5000)).await;
        for (name, crawl) in [("without", &without), ("with", &with)] {
            let [median, p99, longest] = [500, 990, 1000].map(|part| crawl.quantile(part));
            let (count, took) = (crawl.pages.len(), crawl.took);
            println!("{name} broken origins: {count} healthy pages in {took:?}");
            println!("median {median:?}, p99 {p99:?}, longest {longest:?}");
        }
        let (peak, rest) = (proxy.memory_kib("VmHWM"), proxy.rss_kib());
        println!("memory: at most {peak} KiB, {rest} KiB at the end");
        assert!(peak < 512 * 1024, "{peak} KiB");
    });
}

/// Asserts that the mean of samples does not grow from the third to the last quarter of a
/// crawl, apart from noise. During the first half caches and the allocator fill up.
fn assert_flat(name: &str, samples: &[u64]) {
    let quarter = samples.len() / 4;
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len() as u64;
    let early = mean(&samples[2 * quarter..3 * quarter]);
    let late = mean(&samples[3 * quarter..]);
    assert!(late <= early + early / 20 + 20, "{name}: {early} to {late}");
}

// Ours: no growth of memory or descriptors under full load with changing connections.
#[test]
#[ignore = "half an hour long: tests/full.sh runs it"]
fn memory_and_descriptors_do_not_grow_in_half_an_hour() {
    const COUNT: usize = 100_000;
    const TIME: Duration = Duration::from_secs(30 * 60);
    /// Step between visited origins. It has no common divisor with `COUNT`, so it reaches
    /// every origin, in an order that defeats caches.
    const STEP: usize = 38_197;
    run_within(Duration::from_secs(3600), async {
        let crowd = Crowd::start(COUNT, false).await;
        let proxy = Arc::new(config(5000).start().await);
        let (begun, next) = (clock::instant(), Arc::new(AtomicUsize::new(0)));
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            let (address, crowd, next) = (proxy.address(), Arc::clone(&crowd), Arc::clone(&next));
            workers.spawn(async move {
                while clock::since(begun) < TIME {
                    // Connections to the proxy are replaced regularly, too.
                    let mut crawler = Crawler::to(address).await;
                    for _ in 0..100 {
                        let number = next.fetch_add(1, Ordering::Relaxed) * STEP % COUNT;
                        visit(&mut crawler, &crowd, number).await;
                    }
                }
            });
        }
        let (mut memory, mut descriptors) = (Vec::new(), Vec::new());
        while clock::since(begun) < TIME {
            // Time under test: samples over the whole half hour.
            tokio::time::sleep(Duration::from_secs(10)).await;
            let open = std::fs::read_dir(format!("/proc/{}/fd", proxy.pid()));
            memory.push(proxy.rss_kib());
            descriptors.push(open.unwrap().count() as u64);
        }
        workers.join_all().await;
        let requests = 2 * next.load(Ordering::Relaxed);
        println!("{requests} requests in {:?}", clock::since(begun));
        for (name, samples) in [("memory (KiB)", &memory), ("descriptors", &descriptors)] {
            let some: Vec<_> = samples.iter().step_by(18).collect();
            println!("{name}: {some:?}");
            assert_flat(name, samples);
        }
        assert_eq!(crowd.disallowed.load(Ordering::Relaxed), 0);
    });
}
