//! What the proxy adds to one keep-alive exchange: guards the forward path.
//!
//! `cargo bench --bench exchange`. An origin, the proxy and a client in one
//! process over loopback, so only the ratio of two rows of one run means
//! something.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use politesse::clock;
use politesse::config::{Config, Sources};
use politesse::serve::{self, Running};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 9;
const REQUESTS: u32 = 400;
const CONNECTIONS: [usize; 2] = [1, 32];
const BODY: Bytes = Bytes::from_static(&[b'x'; 1024]);

#[tokio::main]
async fn main() {
    let origin = origin().await;
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
        for durability in ["queue", "commit"] {
            let folder = tempfile::tempdir().expect("a folder");
            let proxy = proxy(folder.path(), origin, durability).await;
            let through = measure(proxy.listen[0], "http://o.test/page", connections).await;
            row(
                &format!("proxy, {durability}, {connections} connections"),
                through,
                direct,
            );
            proxy.stop(std::future::pending()).await;
        }
    }
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
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let service = service_fn(async |request: hyper::Request<_>| {
                    let body = if request.uri().path() == "/robots.txt" {
                        Bytes::from_static(b"User-agent: *\nDisallow: /private\n")
                    } else {
                        BODY
                    };
                    Ok::<_, Infallible>(Response::new(Full::new(body)))
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

async fn proxy(folder: &std::path::Path, origin: SocketAddr, durability: &str) -> Running {
    let overrides = [
        r#"proxy.listen=["127.0.0.1:0"]"#.to_owned(),
        r#"admin.listen="127.0.0.1:0""#.to_owned(),
        r#"https.mode="refuse""#.to_owned(),
        format!(r#"audit.durability="{durability}""#),
        format!(r#"upstream.resolve={{"o.test"="{origin}"}}"#),
    ];
    let config = Config::read(&Sources {
        file: None,
        environment: Vec::new(),
        overrides: &overrides,
        working_directory: folder.to_owned(),
    });
    serve::start(config.expect("a configuration").settings())
        .await
        .expect("a proxy")
}

/// The median time of a request over `connections` at once.
async fn measure(address: SocketAddr, target: &'static str, connections: usize) -> Duration {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..=ROUNDS {
        let began = clock::instant();
        let crawlers: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(crawl(address, target)))
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

async fn crawl(address: SocketAddr, target: &str) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: BenchBot/1.0\r\n\r\n");
    let mut buffer = vec![0; 4096];
    for _ in 0..REQUESTS {
        stream
            .write_all(request.as_bytes())
            .await
            .expect("a request");
        let mut got = 0;
        loop {
            got += stream.read(&mut buffer[got..]).await.expect("a response");
            let head = buffer[..got]
                .windows(4)
                .position(|octets| octets == b"\r\n\r\n");
            if head.is_some_and(|head| got >= head + 4 + BODY.len()) {
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
