//! An origin that records times: when each page request arrived, and when the last byte
//! of its answer was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use politesse_base::clock;

use super::raw_origin::find;
use super::server::Server;

/// One page request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) target: String,
    pub(crate) came: Instant,
    /// `None` while the answer is being sent.
    pub(crate) ended: Option<Instant>,
}

/// Answers of an origin, and the time that each answer takes.
#[derive(Clone, Default)]
struct Script {
    robots: String,
    page: String,
    takes: Duration,
    /// Answers every n-th page request with 429 and `Retry-After: 2`.
    busy_each: Option<usize>,
}

/// A running origin, over plain TCP.
pub(crate) struct TimedOrigin {
    server: Server,
    log: Arc<Mutex<Vec<Served>>>,
}

impl TimedOrigin {
    /// Starts an origin with `robots` as robots.txt. Every page is `page` as HTML, and
    /// its last byte follows `takes` after the rest.
    pub(crate) async fn start(robots: &str, page: &str, takes: Duration) -> Self {
        Self::serving(Script {
            robots: robots.to_owned(),
            page: page.to_owned(),
            takes,
            ..Script::default()
        })
        .await
    }

    /// Starts an origin that answers every `each`-th page request with 429 and
    /// `Retry-After: 2`.
    pub(crate) async fn busy(page: &str, each: usize) -> Self {
        Self::serving(Script {
            page: page.to_owned(),
            busy_each: Some(each),
            ..Script::default()
        })
        .await
    }

    async fn serving(script: Script) -> Self {
        let log = Arc::default();
        let shared = Arc::clone(&log);
        let server = Server::start(move |stream| {
            let (script, log) = (script.clone(), Arc::clone(&shared));
            async move {
                // The proxy decides how a connection ends; an error here is no failure.
                let _ = serve(stream, &script, &log).await;
            }
        });
        Self {
            server: server.await,
            log,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the page requests, in order of arrival.
    pub(crate) fn pages(&self) -> Vec<Served> {
        self.log.lock().unwrap().clone()
    }

    /// Returns the times from the end of each answer to the next request; zero if the
    /// request arrived before that end.
    pub(crate) fn pauses(&self) -> Vec<Duration> {
        let pages = self.pages();
        let pairs = pages.iter().zip(pages.iter().skip(1));
        pairs
            .map(|(before, next)| {
                let ended = before.ended.unwrap_or(next.came);
                next.came.saturating_duration_since(ended)
            })
            .collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    script: &Script,
    log: &Mutex<Vec<Served>>,
) -> std::io::Result<()> {
    let mut unread = Vec::new();
    loop {
        let Some(head) = find(&unread, b"\r\n\r\n") else {
            if stream.read_buf(&mut unread).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let came = clock::instant();
        let line = String::from_utf8_lossy(&unread[..head]).into_owned();
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        unread.drain(..head + 4);
        if target == "/robots.txt" {
            let robots = answer("text/plain", &script.robots);
            stream.write_all(&robots).await?;
            continue;
        }
        let place = enter(log, target, came);
        let bytes = match script.busy_each {
            Some(each) if (place + 1).is_multiple_of(each) => BUSY.as_bytes().to_vec(),
            _ => answer("text/html", &script.page),
        };
        let (last, first) = bytes.split_last().unwrap();
        stream.write_all(first).await?;
        // Scripted load: a slow answer.
        tokio::time::sleep(script.takes).await;
        // Taken before the byte is sent: if this task is delayed after sending, the pause
        // must not appear too short.
        log.lock().unwrap()[place].ended = Some(clock::instant());
        stream.write_all(&[*last]).await?;
    }
}

/// Appends a request to the log, and returns its index.
fn enter(log: &Mutex<Vec<Served>>, target: String, came: Instant) -> usize {
    let mut log = log.lock().unwrap();
    log.push(Served {
        target,
        came,
        ended: None,
    });
    log.len() - 1
}

const BUSY: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 1\r\n\r\n-";

fn answer(media_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
