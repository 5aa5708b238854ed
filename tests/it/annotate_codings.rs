//! Bodies that the proxy reads arrive byte for byte as sent, with the fields that
//! describe them (ARCHITECTURE.md, invariant 7).
//!
//! Serves the cases of `directives.jsonl` through the proxy, with every content coding,
//! framing and protocol.

use crate::kit::client::{Crawler, End, Head, Reply};
use crate::kit::codings::{CODINGS, coded, named};
use crate::kit::directive_case::{Case, cases};
use crate::kit::h2::{H2Crawler, H2Reply, Trailers};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::{Length, Page};
use crate::kit::proxy::Proxy;
use crate::kit::sha256;
use crate::kit::told::told;

/// A case served with a content coding and a framing.
struct Serving {
    case: Case,
    target: String,
    codings: Option<&'static str>,
    framing: Length,
}

/// A crawler's connection.
enum Connection {
    /// HTTP/1.1, and the text before each target: the origin in absolute form, or none
    /// inside CONNECT.
    Http1(Crawler, &'static str),
    /// HTTP/2 inside CONNECT and TLS.
    Http2(H2Crawler),
}

impl Serving {
    fn of(case: Case, codings: Option<&'static str>, framing: Length) -> Self {
        let target = format!("/{}/{}/{framing:?}", case.id, codings.unwrap_or("plain"));
        let target = target.replace(", ", "+");
        Self {
            case,
            target,
            codings,
            framing,
        }
    }

    /// Returns the body as the origin sends it.
    fn bytes(&self) -> Vec<u8> {
        let body = self.case.body();
        self.codings
            .map_or(body.clone(), |codings| coded(codings, body))
    }

    fn page(&self) -> Page {
        let bytes = self.bytes();
        let mut page = Page::untyped(&bytes).with_status(self.case.status.unwrap_or(200));
        for (name, value) in self.case.fields() {
            page = page.byte_field(name, &value);
        }
        if let Some(codings) = self.codings {
            page = page.field("Content-Encoding", &named(codings));
        }
        match self.framing {
            Length::Announced => page,
            Length::Chunked => page.in_chunks(&bytes.chunks(100).collect::<Vec<_>>()),
        }
    }

    fn method(&self) -> &str {
        self.case.method.as_deref().unwrap_or("GET")
    }

    /// Returns the target and its annotation if `reply` differs from what was expected.
    fn failure(&self, reply: &Reply) -> Option<String> {
        let sent = match self.method() {
            "HEAD" => Vec::new(),
            _ => self.bytes(),
        };
        let value = reply.head.values("robots-directives").join("; twice: ");
        let is_same = sha256(&reply.body) == sha256(&sent) && self.is_framed(&reply.head);
        let is_as_expected = is_same && self.is_annotated_as_expected(&value);
        (!is_as_expected).then(|| format!("{}: {value}", self.target))
    }

    /// Reports whether length and content coding arrived as the origin sent them.
    fn is_framed(&self, head: &Head) -> bool {
        let is_told = head.values("content-length").len() == 1;
        let codings = head.values("content-encoding");
        let is_named = self
            .codings
            .is_none_or(|codings_sent| codings == [named(codings_sent)]);
        // For a HEAD an origin may leave out the length (RFC 9110, section 9.3.2).
        let is_framed = is_told == (self.framing == Length::Announced);
        is_named && (is_framed || self.method() == "HEAD")
    }

    /// Reports whether the annotation says what the case expects. A date in a case may
    /// have passed, so further directives are accepted there. Cases with a limit expect
    /// other limits than this proxy's, so only their keys are compared.
    fn is_annotated_as_expected(&self, value: &str) -> bool {
        let case = &self.case;
        let told = told(value);
        if told.len() != 1 || told[0].key != case.agent.to_ascii_lowercase() {
            return false;
        }
        if case.field_limit.or(case.scan_limit).is_some() {
            return true;
        }
        let found = &told[0].directives;
        let is_dated = |name: &String| name.starts_with("unavailable_after");
        let is_whole = found == &case.expect
            || case.expect.iter().any(is_dated)
                && case.expect.iter().all(|name| found.contains(name));
        is_whole
            && case
                .state
                .as_ref()
                .is_none_or(|state| *state == told[0].state)
    }
}

impl Connection {
    async fn ask(&mut self, serving: &Serving) -> Reply {
        let (method, target) = (serving.method(), &serving.target);
        let agent = format!("{}/1.0", serving.case.agent);
        match self {
            Self::Http1(crawler, origin) => {
                let line = format!("{method} {origin}{target} HTTP/1.1");
                let agent = format!("User-Agent: {agent}");
                crawler.ask(&[&line, "Host: o.test", &agent]).await
            }
            Self::Http2(crawler) => {
                let request = http::Request::builder().method(method);
                let request = request.uri(format!("https://o.test{target}"));
                let request = request.header("user-agent", agent);
                reply_of(crawler.ask(request).await.unwrap())
            }
        }
    }
}

/// Returns a response over HTTP/2 in the form of one over HTTP/1.1.
fn reply_of(response: H2Reply) -> Reply {
    let (parts, body) = response.into_parts();
    let fields = parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        (name.to_string(), value.into_owned())
    });
    Reply {
        head: Head {
            status: parts.status.as_u16(),
            fields: fields.collect(),
        },
        body: body.to_vec(),
        end: End::Whole,
        trailers: Vec::new(),
    }
}

/// Starts `script` with a page for each of `servings`, and a proxy.
async fn start(script: Script, servings: &[Serving]) -> (Origin, Proxy) {
    let script = servings.iter().fold(script, |script, serving| {
        script.page(&serving.target, serving.page())
    });
    site(script, &[]).await
}

async fn assert_all_arrive(servings: &[Serving], mut connection: Connection) {
    let mut missed = Vec::new();
    for serving in servings {
        let reply = connection.ask(serving).await;
        assert_eq!(reply.end, End::Whole, "{}", serving.target);
        missed.extend(serving.failure(&reply));
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Requests `servings` over HTTP/1.1 with absolute URLs, and asserts that all arrive.
async fn assert_all_arrive_over_http(servings: &[Serving]) {
    let (_origin, proxy) = start(Script::robots(""), servings).await;
    let connection = Connection::Http1(Crawler::plain(&proxy).await, "http://o.test");
    assert_all_arrive(servings, connection).await;
}

/// Returns the cases with a body and no content coding of their own.
fn pages() -> impl Iterator<Item = Case> {
    cases().filter(|case| !case.is_coded() && !case.body().is_empty())
}

// Ours.
#[tokio::test]
async fn every_case_arrives_as_sent_and_is_annotated() {
    let framings = [Length::Announced, Length::Chunked].into_iter();
    let servings = framings.flat_map(|framing| {
        let of = move |case| Serving::of(case, None, framing);
        cases().map(of)
    });
    assert_all_arrive_over_http(&servings.collect::<Vec<_>>()).await;
}

// Ours: compressed pages are read, but sent on as they came.
#[tokio::test]
async fn every_page_arrives_as_sent_in_every_coding() {
    // Three framings in turn, so that each coding meets both kinds.
    let framings = [Length::Announced, Length::Chunked, Length::Chunked];
    let mut framings = framings.into_iter().cycle();
    let mut servings = Vec::new();
    for case in pages() {
        let of = |codings| Serving::of(case.clone(), Some(codings), framings.next().unwrap());
        servings.extend(CODINGS.map(of));
    }
    assert!(500 < servings.len());
    assert_all_arrive_over_http(&servings).await;
}

// Ours: codings and framings in rotation, inside CONNECT and TLS.
#[tokio::test]
async fn pages_arrive_as_sent_over_https_and_http2() {
    let codings = CODINGS.map(Some).into_iter().chain([None]).cycle();
    let framings = [Length::Announced, Length::Chunked].into_iter().cycle();
    let ways = codings.zip(framings);
    let servings = pages().zip(ways);
    let servings: Vec<_> = servings
        .map(|(case, (codings, framing))| Serving::of(case, codings, framing))
        .collect();
    let (_origin, proxy) = start(Script::robots("").tls(), &servings).await;
    let crawler = Crawler::inside(&proxy, "o.test:443").await;
    assert_all_arrive(&servings, Connection::Http1(crawler, "")).await;
    let crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    assert_all_arrive(&servings, Connection::Http2(crawler)).await;
}

const HEAD: &str = "<html><head><meta name=robots content=noindex></head><body>";

const SHA_256: &str = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";

/// Fields that describe the bytes of the body.
const BODY_FIELDS: [(&str, &str); 7] = [
    ("Content-Encoding", "gzip"),
    ("Content-MD5", "Q2hlY2sgSW50ZWdyaXR5IQ=="),
    (
        "Digest",
        "sha-256=X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=",
    ),
    ("Repr-Digest", SHA_256),
    ("Content-Digest", SHA_256),
    ("ETag", "\"a\""),
    ("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT"),
];

// Ours: content coding, digests and validators (RFC 9530; RFC 9110, section 8).
#[tokio::test]
async fn fields_that_describe_the_body_are_passed_on() {
    let bytes = coded("gzip", HEAD.into());
    let page = Page::typed("text/html", &bytes);
    let page = BODY_FIELDS
        .iter()
        .fold(page, |page, (name, value)| page.field(name, value));
    let script = Script::robots("").page("/a", page);
    let (_origin, proxy) = site(script.tls(), &[]).await;
    let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
    let over_http1 = crawler.get("/a", "o.test").await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let over_http2 = reply_of(crawler.get("https://o.test/a").await);
    for reply in [over_http1, over_http2] {
        for (name, value) in BODY_FIELDS {
            assert_eq!(reply.head.value(name), value, "{name}");
        }
        let length = reply.head.value("content-length");
        assert_eq!(length, bytes.len().to_string());
        assert_eq!(reply.body, bytes);
        let value = reply.head.value("robots-directives");
        assert_eq!(value, "examplebot=(noindex;src=m);state=complete");
    }
}

/// Returns a page with `body` in chunks, and two trailers.
fn with_trailers(body: &str) -> Page {
    let chunks: Vec<&[u8]> = body.as_bytes().chunks(1000).collect();
    let page = Page::typed("text/html", b"").in_chunks(&chunks);
    page.trailer("X-Sum", "1").trailer("X-Sum-2", "2")
}

// Ours: trailers (RFC 9110, section 6.5; RFC 9112, section 7.1.2). A long page ends far
// after the part that is held back.
#[tokio::test]
async fn trailers_follow_a_page_that_was_held_back() {
    let long = HEAD.to_owned() + &"x".repeat(1_000_000);
    let script = Script::robots("")
        .page("/held", with_trailers("<head>"))
        .page("/short", with_trailers(HEAD))
        .page("/long", with_trailers(&long));
    let (_origin, proxy) = site(script.tls(), &[]).await;
    let mut http1 = Crawler::inside(&proxy, "o.test:443").await;
    let mut http2 = H2Crawler::inside(&proxy, "o.test:443").await;
    for path in ["/held", "/short", "/long"] {
        let line = format!("GET {path} HTTP/1.1");
        let reply = http1.ask(&[&line, "Host: o.test", "TE: trailers"]).await;
        let sums = reply.trailers.iter().map(|(_, value)| value.as_str());
        assert_eq!(sums.collect::<String>(), "12", "{path}");
        let reply = http2.get(&format!("https://o.test{path}")).await;
        let Trailers(sums) = reply.extensions().get().unwrap();
        let sums = [&sums["x-sum"], &sums["x-sum-2"]];
        assert_eq!(sums, ["1", "2"], "{path}");
    }
}
