//! Hundreds of origins at once: one listener reachable at every address of 127.0.0.0/8.
//! Each address is a separate origin.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::codings::coded;
use super::raw_origin::find;

/// An origin's answer for robots.txt. All origins answer requests for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file that disallows /private.
    File,
    /// The file compressed with gzip, although the request did not accept it.
    Gzip,
    /// A redirect to the file at another path.
    Redirect,
    /// Status 404.
    Missing,
    /// Status 503.
    Failing,
    /// No answer: the request hangs.
    Hanging,
}

const KINDS: [Kind; 6] = [
    Kind::File,
    Kind::Gzip,
    Kind::Redirect,
    Kind::Missing,
    Kind::Failing,
    Kind::Hanging,
];

const RULES: &str = "User-agent: *\nDisallow: /private\n";

/// A set of origins, which end with the test's runtime.
#[derive(Clone)]
pub(crate) struct Origins {
    port: u16,
    count: u16,
    fetches: Arc<Mutex<BTreeMap<u16, usize>>>,
}

impl Origins {
    /// Starts `count` origins, of each kind in turn.
    pub(crate) async fn start(count: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let origins = Self {
            port: listener.local_addr().unwrap().port(),
            count,
            fetches: Arc::default(),
        };
        let fetches = Arc::clone(&origins.fetches);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&fetches)));
            }
        });
        origins
    }

    /// Returns the numbers of the origins.
    pub(crate) fn numbers(&self) -> std::ops::Range<u16> {
        0..self.count
    }

    /// Returns the kind of origin `number`.
    pub(crate) fn kind(number: u16) -> Kind {
        KINDS[usize::from(number) % KINDS.len()]
    }

    /// Returns the URL of `path` on origin `number`.
    pub(crate) fn url(&self, number: u16, path: &str) -> String {
        let [high, low] = number.to_be_bytes();
        format!("http://127.1.{high}.{low}:{}{path}", self.port)
    }

    /// Returns the number of robots.txt fetches per origin.
    pub(crate) fn fetches(&self) -> BTreeMap<u16, usize> {
        self.fetches.lock().unwrap().clone()
    }

    /// Asserts that the robots.txt of each of `numbers` was fetched `times` times.
    pub(crate) fn assert_fetched(&self, numbers: impl IntoIterator<Item = u16>, times: usize) {
        let fetches = self.fetches();
        let others: Vec<_> = numbers
            .into_iter()
            .map(|number| (number, fetches.get(&number).copied().unwrap_or_default()))
            .filter(|(_, fetched)| *fetched != times)
            .map(|(number, fetched)| (number, Self::kind(number), fetched))
            .collect();
        assert!(others.is_empty(), "not asked {times} times: {others:?}");
    }
}

async fn serve(mut stream: TcpStream, fetches: Arc<Mutex<BTreeMap<u16, usize>>>) {
    let IpAddr::V4(own) = stream.local_addr().unwrap().ip() else {
        return;
    };
    let [_, _, high, low] = own.octets();
    let number = u16::from_be_bytes([high, low]);
    let mut unread = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut unread).await {
        while let Some(end) = find(&unread, b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            let is_robots = head.starts_with(b"GET /robots.txt ");
            if is_robots {
                *fetches.lock().unwrap().entry(number).or_default() += 1;
            }
            let answer = if is_robots {
                robots(Origins::kind(number)).await
            } else {
                response("200 OK", "", RULES.as_bytes())
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

async fn robots(kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Hanging => std::future::pending().await,
        Kind::File => response(
            "200 OK",
            "ETag: \"1\"\r\nContent-Type: text/plain\r\n",
            RULES.as_bytes(),
        ),
        Kind::Gzip => response(
            "200 OK",
            "Content-Encoding: gzip\r\n",
            &coded("gzip", RULES.into()),
        ),
        Kind::Redirect => response("302 Found", "Location: /rules\r\n", b""),
        Kind::Missing => response("404 Not Found", "", b""),
        Kind::Failing => response("503 Service Unavailable", "", b""),
    }
}

fn response(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}
