//! Time that the proxy adds to a keep-alive exchange, and the share of it that is spent
//! on annotating a page. Guards the forward path.
//!
//! `cargo bench --bench exchange`. The origin, the proxy and the client run in one
//! process and talk over loopback, so only the ratio between two rows of the same run
//! is meaningful.

#![expect(clippy::print_stdout, reason = "its output is its result")]

#[path = "../crates/politesse-directives/benches/annotate/pages.rs"]
mod pages;

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use politesse::config::{Config, ConfigSources};
use politesse::serve::{self, RunningProxy};
use politesse_base::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 9;
const REQUESTS: u32 = 400;
const CONNECTIONS: [usize; 2] = [1, 32];
const BODY: Bytes = Bytes::from_static(&[b'x'; 1024]);

/// Pages: the size of the head in KB, and the content coding.
const PAGES: [(usize, &str); 8] = [
    (5, "plain"),
    (5, "gzip"),
    (25, "plain"),
    (25, "gzip"),
    (200, "plain"),
    (200, "gzip"),
    (500, "plain"),
    (500, "gzip"),
];

#[tokio::main]
async fn main() {
    let origin = origin().await;
    println!("| page | not looked at | annotated | share |");
    println!("|---|---|---|---|");
    for (head_kb, coding) in PAGES {
        annotation(origin, head_kb, coding).await;
    }
    println!();
    println!(
        "{:<40} {:>12} {:>8}",
        "1 KiB, keep-alive, plain", "a request", "ratio"
    );
    for connections in CONNECTIONS {
        let direct = measure(origin, "/page", connections).await;
        row(
            &format!("direct, {connections} connections"),
            direct,
            direct,
        );
        let folder = tempfile::tempdir().expect("a folder");
        let proxy = proxy(folder.path(), origin).await;
        let through = measure(proxy.listen[0].address, "http://o.test/page", connections).await;
        row(
            &format!("proxy, {connections} connections"),
            through,
            direct,
        );
        proxy.stop(std::future::pending()).await;
    }
}

/// Measures an HTML page, which the proxy annotates, and the same bytes as plain text,
/// which it does not read.
async fn annotation(origin: SocketAddr, head_kb: usize, coding: &'static str) {
    let folder = tempfile::tempdir().expect("a folder");
    let proxy = proxy(folder.path(), origin).await;
    let mut times = [Duration::ZERO; 2];
    for (time, kind) in times.iter_mut().zip(["plain", "html"]) {
        let target = format!("http://o.test/{kind}/{head_kb}/{coding}");
        *time = measure(proxy.listen[0].address, &target, 1).await;
    }
    proxy.stop(std::future::pending()).await;
    let [unread, read] = times.map(|time| time.as_secs_f64() * 1e6);
    let share = 100.0 * (1.0 - unread / read);
    println!("| {head_kb} KB, {coding} | {unread:.0} us | {read:.0} us | {share:.0} % |");
}

fn row(name: &str, time: Duration, direct: Duration) {
    println!(
        "{name:<40} {time:>12.1?} {:>8.2}",
        time.as_secs_f64() / direct.as_secs_f64()
    );
}

async fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let pages: Vec<Bytes> = PAGES
        .iter()
        .map(|&(head_kb, coding)| bytes(head_kb, coding))
        .collect();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let pages = pages.clone();
            tokio::spawn(async move {
                let service = service_fn(async |request: hyper::Request<_>| {
                    Ok::<_, Infallible>(answer(request.uri().path(), &pages))
                });
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

fn answer(path: &str, pages: &[Bytes]) -> Response<Full<Bytes>> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let [kind, head_kb, coding] = parts[..] else {
        let robots = Bytes::from_static(b"User-agent: *\nDisallow: /private\n");
        let body = if path == "/robots.txt" { robots } else { BODY };
        return Response::new(Full::new(body));
    };
    let is_page = |page: &(usize, &str)| page.0.to_string() == head_kb && page.1 == coding;
    let at = PAGES.iter().position(is_page).expect("a page");
    let mut answer = Response::builder().header("content-type", format!("text/{kind}"));
    if coding == "gzip" {
        answer = answer.header("content-encoding", coding);
    }
    answer
        .body(Full::new(pages[at].clone()))
        .expect("a response")
}

fn bytes(head_kb: usize, coding: &str) -> Bytes {
    let page = pages::page(head_kb * 1000);
    if coding == "plain" {
        return page.into();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(page.as_bytes()).expect("room");
    encoder.finish().expect("room").into()
}

async fn proxy(folder: &std::path::Path, origin: SocketAddr) -> RunningProxy {
    let overrides = [
        r#"proxy.listen=["127.0.0.1:0"]"#.to_owned(),
        r#"admin.listen="127.0.0.1:0""#.to_owned(),
        r#"https.mode="refuse""#.to_owned(),
        r#"pace.profile="owned""#.to_owned(),
        format!(r#"upstream.resolve={{"o.test"="{origin}"}}"#),
    ];
    let config = Config::read(&ConfigSources {
        file: None,
        environment: Vec::new(),
        overrides: &overrides,
        working_directory: folder.to_owned(),
        data_directory: None,
    });
    serve::start(config.expect("a configuration").settings())
        .await
        .expect("a proxy")
}

/// Returns the median time of a request, with `connections` sending at the same time.
async fn measure(address: SocketAddr, target: &str, connections: usize) -> Duration {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..=ROUNDS {
        let began = clock::instant();
        let crawlers: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(crawl(address, target.to_owned())))
            .collect();
        for crawler in crawlers {
            crawler.await.expect("a crawl");
        }
        let requests = REQUESTS * u32::try_from(connections).expect("few connections");
        times.push(clock::instant().duration_since(began) / requests);
    }
    // The first round warms up.
    times.remove(0);
    times.sort_unstable();
    times[ROUNDS / 2]
}

async fn crawl(address: SocketAddr, target: String) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: BenchBot/1.0\r\n\r\n");
    let mut buffer = vec![0; 640 * 1024];
    for _ in 0..REQUESTS {
        stream
            .write_all(request.as_bytes())
            .await
            .expect("a request");
        let mut got = 0;
        loop {
            got += stream.read(&mut buffer[got..]).await.expect("a response");
            if length(&buffer[..got]).is_some_and(|length| length <= got) {
                break;
            }
        }
        assert!(
            buffer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&buffer[..got])
        );
    }
}

/// Returns the length of a response, head included, once its head has arrived.
fn length(response: &[u8]) -> Option<usize> {
    let head = response.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&response[..head]).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(": "));
    let (_, length) = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    Some(head + 4 + length.parse::<usize>().ok()?)
}
