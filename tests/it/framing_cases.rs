//! Runs `tests/cases/framing.jsonl`: messages with ambiguous framing, sent from either
//! side through the proxy.
//!
//! The receiving side is a strict parser (`strict`), so each message that the proxy
//! accepts must have been framed again, unambiguously.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use super::case_files::{self, Line};
use super::kit::client::Crawler;
use super::kit::proxy::{Proxy, resolve};
use super::kit::raw_origin::Bytes;
use super::strict::{End, Message, Reader, Seen, StrictOrigin};

const CASES: &str = include_str!("../cases/framing.jsonl");

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    direction: String,
    raw_b64: String,
    expect: String,
    #[serde(default)]
    also: Vec<String>,
    note: String,
    #[serde(default)]
    sees: Vec<String>,
    sees_host: Option<String>,
    sees_body: Option<String>,
    #[serde(default)]
    sees_not: Vec<String>,
    sees_max_1xx: Option<usize>,
    #[serde(default)]
    eof: bool,
    method: Option<String>,
    body: Option<String>,
    #[serde(default)]
    no_reuse: bool,
    robots: Option<String>,
}

impl Line for Case {
    fn id(&self) -> &str {
        &self.id
    }
}

fn cases(direction: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = case_files::read(CASES, &[]);
    cases.retain(|case| case.direction == direction);
    cases
}

#[tokio::test]
async fn no_ambiguous_request_reaches_an_origin() {
    let cases = cases("request");
    assert_eq!(cases.len(), 85);
    case_files::every(cases, |case| async move { case.check_request().await }).await;
}

#[tokio::test]
async fn no_ambiguous_response_reaches_a_crawler() {
    let cases = cases("response");
    assert_eq!(cases.len(), 45);
    case_files::every(cases, |case| async move { case.check_response().await }).await;
}

impl Case {
    fn raw(&self) -> Vec<u8> {
        STANDARD.decode(&self.raw_b64).unwrap()
    }

    fn takes(&self, outcome: &str) -> bool {
        self.expect == outcome || self.also.iter().any(|also| also == outcome)
    }

    async fn check_request(self) {
        let robots = self.robots.as_deref().map_or_else(absent, Bytes::text);
        let origin = StrictOrigin::start(None, move |message| match message.asked() {
            "GET /robots.txt" => robots.clone(),
            "GET /last" => Bytes::text("the last"),
            _ => Bytes::text("a page"),
        })
        .await;
        let config = resolve("o.test", origin.address());
        let proxy = config.resolve("p.test", origin.address()).start().await;
        let answers = self.send(&proxy).await;
        let seen: Vec<Seen> = origin.pages();
        assert_eq!(origin.faults(), [""; 0], "{}", self.note);
        let is_ok = answers.first().is_some_and(|first| first.status() == 200);
        if self.takes("forward") && is_ok {
            return self.assert_forwarded(&answers, &seen);
        }
        self.assert_refused_or_closed(&answers, &seen);
        if !self.takes("close") {
            assert_eq!(origin.connections(), 0, "{}", self.note);
        }
    }

    /// Sends the bytes of the case and then [`LAST`], and collects the answers.
    async fn send(&self, proxy: &Proxy) -> Vec<Message> {
        let mut stream = Crawler::plain(proxy).await.into_stream();
        // The proxy may answer and close before it has read everything.
        let _ = stream.write_all(&self.raw()).await;
        if self.eof {
            let _ = stream.shutdown().await;
        }
        let mut reader = Reader::new(stream);
        let mut answers: Vec<_> = reader.answer("GET").await.unwrap().into_iter().collect();
        let _ = reader.stream.write_all(LAST).await;
        while let Some(answer) = reader.answer("GET").await.unwrap() {
            answers.push(answer);
        }
        answers
    }

    /// Asserts that the origin received each request whole and as the case says, and that
    /// each was answered.
    fn assert_forwarded(&self, answers: &[Message], seen: &[Seen]) {
        let pages: Vec<_> = seen.iter().map(|seen| &seen.message).collect();
        let mut asked: Vec<_> = pages.iter().map(|page| page.asked()).collect();
        // Whether the proxy answered `LAST` after the bytes of the case.
        let last = answers.last();
        let has_last = last.is_some_and(|answer| answer.body == b"the last");
        if has_last {
            assert_eq!(asked.pop(), Some("GET /last"));
        }
        if !self.sees.is_empty() {
            assert_eq!(asked, self.sees, "{}", self.note);
        }
        assert!(pages.iter().all(|page| page.end == End::Whole));
        let first = pages[0];
        let host = self.sees_host.as_deref().unwrap_or("o.test");
        assert_eq!(first.values("host"), [host]);
        if let Some(body) = &self.sees_body {
            assert_eq!(first.body, body.as_bytes());
        }
        // Fields named `X` must be forwarded byte for byte.
        let raw: String = self.raw().into_iter().map(char::from).collect();
        for line in raw.lines().filter(|line| line.starts_with("X: ")) {
            assert!(first.has_line(line), "{line:?} is not in {first:?}");
        }
        for gone in &self.sees_not {
            assert!(!first.has_line(&format!("{gone}:")), "{gone} in {first:?}");
        }
        assert_no_trailer(first, &["content-length", "host", "transfer-encoding"]);
        let refused = usize::from(self.note.contains("gets 403"));
        let wanted = [&vec![200; asked.len()][..], &vec![403; refused][..]].concat();
        let statuses: Vec<_> = answers.iter().map(Message::status).collect();
        assert_eq!(statuses[..wanted.len()], wanted);
        assert_eq!(answers.len(), wanted.len() + usize::from(has_last));
    }

    /// Asserts that the connection ended, with or without a single 4xx, and that the
    /// origin saw no complete request.
    fn assert_refused_or_closed(&self, answers: &[Message], seen: &[Seen]) {
        let whole = seen.iter().find(|seen| seen.message.end == End::Whole);
        assert!(whole.is_none(), "{}: {whole:?}", self.note);
        match answers {
            [] => assert!(self.takes("close"), "no answer ({})", self.note),
            [answer] => {
                let status = answer.status().to_string();
                assert!(self.takes(&status), "{status} ({})", self.note);
            }
            more => panic!("answers after a refusal: {more:?}"),
        }
    }

    async fn check_response(self) {
        let page = match self.eof {
            true => Bytes::closing(&self.raw()),
            false => Bytes::of(&self.raw()),
        };
        let origin = StrictOrigin::start(None, move |message| match message.asked() {
            "GET /robots.txt" => absent(),
            _ => page.clone(),
        })
        .await;
        let proxy = resolve("o.test", origin.address()).start().await;
        let told = self.fetch(&proxy).await;
        match told {
            None => assert!(self.takes("close"), "no answer ({})", self.note),
            Some(answer) if answer.end == End::Cut => {
                assert!(self.takes("close"), "cut: {answer:?} ({})", self.note);
            }
            Some(answer) if answer.status() == 502 => {
                assert!(self.takes("502"), "{answer:?} ({})", self.note);
                let said = answer.values("proxy-status").join(", ");
                assert!(said.starts_with("politesse;"), "{said}");
                origin.left_alone().await;
            }
            Some(answer) => self.assert_response_forwarded(&answer),
        }
        if self.no_reuse {
            drop(self.fetch(&proxy).await);
            let pages = origin.pages();
            assert_ne!(pages[0].connection, pages[1].connection, "{}", self.note);
        }
        assert_eq!(origin.faults(), [""; 0]);
    }

    /// Requests a page and returns the answer; asserts that nothing follows it.
    async fn fetch(&self, proxy: &Proxy) -> Option<Message> {
        let method = self.method.as_deref().unwrap_or("GET");
        let mut reader = Reader::new(Crawler::plain(proxy).await.into_stream());
        let line = format!("{method} http://o.test/a HTTP/1.1");
        let request = format!("{line}\r\nHost: o.test\r\nConnection: close\r\n\r\n");
        reader.stream.write_all(request.as_bytes()).await.unwrap();
        let mut interim = 0;
        let mut answer = reader.answer(method).await.unwrap()?;
        while (100..200).contains(&answer.status()) {
            interim += 1;
            answer = reader.answer(method).await.unwrap()?;
        }
        assert!(interim <= self.sees_max_1xx.unwrap_or(1));
        let behind = reader.answer(method).await.unwrap();
        assert!(behind.is_none(), "{behind:?} after {answer:?}");
        Some(answer)
    }

    fn assert_response_forwarded(&self, answer: &Message) {
        assert!(self.takes("forward"), "{answer:?} ({})", self.note);
        let given = self.raw();
        let status = answer.status().to_string();
        assert!(given.windows(3).any(|bytes| bytes == status.as_bytes()));
        if let Some(body) = &self.body {
            assert_eq!(answer.body, body.as_bytes(), "{answer:?}");
        }
        assert_eq!(answer.values("robots-directives").len(), 1, "{answer:?}");
        assert_no_trailer(answer, &["robots-directives", "proxy-status"]);
        for gone in &self.sees_not {
            assert!(!answer.has_line(gone), "{gone} in {answer:?}");
        }
        if answer.status() == 204 {
            assert_eq!(answer.values("content-length"), [""; 0]);
        }
    }
}

/// Asserts that no trailer of `message` has one of these names, which must not be forwarded
/// as trailers (RFC 9110, section 6.5.1).
fn assert_no_trailer(message: &Message, names: &[&str]) {
    let trailers = message.trailers.to_ascii_lowercase();
    for name in names {
        assert!(!trailers.contains(name), "{name} in {message:?}");
    }
}

/// Request sent after the bytes of each case, to see whether the connection still works.
const LAST: &[u8] = b"GET http://o.test/last HTTP/1.1\r\nHost: o.test\r\nConnection: close\r\n\r\n";

fn absent() -> Bytes {
    Bytes::of(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
}
