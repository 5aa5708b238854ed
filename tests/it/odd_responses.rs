//! Faulty responses that common clients accept: malformed fields, TLS connections without
//! close_notify, invalid content codings, and refused streams.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::frames::{END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame};
use super::kit::certificates::{Leaf, TestCa};
use super::kit::client::{Crawler, End, ask, curl, get};
use super::kit::page::Gate;
use super::kit::proxy::{Proxy, resolve};
use super::kit::raw_origin::{Bytes, RawOrigin, read_head};
use super::kit::server::Server;
use super::kit::{assert_contains, assert_members};

/// Returns an answer of status 200 with these field lines and this body.
fn answer(fields: &str, body: &str) -> Bytes {
    let head = format!(
        "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    Bytes::of((head + body).as_bytes())
}

/// Starts an origin with these answers to robots.txt and to every other request, and a
/// proxy.
async fn start_site(robots: Bytes, page: Bytes) -> (RawOrigin, Proxy) {
    let origin = RawOrigin::start(move |target| match target {
        "/robots.txt" => robots.clone(),
        _ => page.clone(),
    })
    .await;
    let proxy = resolve("o.test", origin.address()).start().await;
    (origin, proxy)
}

// RFC 9110, section 5.5; RFC 9112, sections 5.1 and 5.2.
#[tokio::test]
async fn odd_response_fields_are_normalized_and_forwarded() {
    let odd = "X-Control: a\x01b\x7fc\r\nX-Fold: a\r\n  b\r\nX-Robots-Tag : noindex\r\n\
            PHP Warning: in /a.php\r\nX-Last: z\r\n";
    let (origin, proxy) = start_site(Bytes::text(""), answer(odd, "the page")).await;
    let fetched = curl(&proxy, &["--include", "http://o.test/a"]).await;
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    let text = fetched.stdout.to_ascii_lowercase();
    for line in [
        "x-control: a b c\r\n",
        "x-fold: a b\r\n",
        "x-robots-tag: noindex\r\n",
        "x-last: z\r\n",
    ] {
        assert_contains(&text, line);
    }
    assert!(!text.contains("warning"), "{text}");
    assert!(text.ends_with("the page"), "{text}");
    let page = get(&proxy, "http://o.test/b").await;
    assert!(page.head.value("robots-directives").contains("noindex"));
    assert_eq!(origin.lines().len(), 2);
}

// Ours: if such a robots.txt response were refused, the whole site would be refused. Sites
// send such `Content-Encoding` values with files that are not encoded.
#[tokio::test]
async fn odd_fields_of_a_robots_txt_response_do_not_disable_its_rules() {
    for fields in [
        "X: a\x02b\r\n",
        "X: a\r\n\tb\r\n",
        "X : a\r\n",
        "X Y: a\r\n",
        "X[]: a\r\n",
        "Content-Encoding: none\r\n",
        "Content-Encoding: identity\r\n",
        "Content-Encoding: UTF-8\r\n",
        "Content-Encoding: gzip\r\n",
    ] {
        let robots = answer(fields, "User-agent: *\nDisallow: /no\n");
        let (origin, proxy) = start_site(robots, Bytes::text("the page")).await;
        let page = get(&proxy, "http://o.test/a").await;
        assert_eq!(page.text(), "the page", "{fields:?}");
        let refused = get(&proxy, "http://o.test/no").await;
        refused.assert_error(403, "http_request_denied");
        assert_eq!(refused.json()["reason"], "rule", "{fields:?}");
        assert_eq!(origin.lines(), ["GET /a"], "{fields:?}");
    }
}

// RFC 9110, section 5.5; RFC 9112, sections 2.2, 5.1 and 6.3. Ours: names that resemble
// framing fields or robots fields.
#[tokio::test]
async fn ambiguous_response_fields_are_refused() {
    for fields in [
        "X: a\0b\r\n",
        "X: a\rb\r\n",
        "X\r\n",
        "X\u{e9}: a\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Connection : close\r\n",
        "Content Length: 3\r\n",
        "X Robots Tag: noindex\r\n",
    ] {
        let (_origin, proxy) = start_site(Bytes::text(""), answer(fields, "the page")).await;
        let refused = get(&proxy, "http://o.test/a").await;
        assert_eq!(refused.status(), 502, "{fields:?}");
        refused.assert_error(502, "http_protocol_error");
    }
    let page = Bytes::of(b"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc");
    let (_origin, proxy) = start_site(Bytes::text(""), page).await;
    let refused = get(&proxy, "http://o.test/a").await;
    refused.assert_error(502, "http_protocol_error");
}

// Ours: no byte held back while a head is repaired leaks into the next response.
#[tokio::test]
async fn a_connection_is_reused_after_an_odd_head() {
    let (origin, proxy) = start_site(answer("X : a\r\n", ""), answer("X : a\r\n", "page")).await;
    for _ in 0..3 {
        assert_eq!(get(&proxy, "http://o.test/a").await.text(), "page");
    }
    assert_eq!(origin.connections(), 1);
}

/// Starts a TLS server for `o.test`, which calls `serve` with each connection.
async fn tls_server<F: Future<Output = ()> + Send + 'static>(
    alpn: &[&str],
    serve: impl Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
) -> Server {
    let leaf = Leaf::of("o.test");
    let acceptor = TlsAcceptor::from(TestCa::get().server(&leaf, alpn));
    let accept = move |stream| {
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        async move { serve(acceptor.accept(stream).await.unwrap()).await }
    };
    Server::start(accept).await
}

/// Reads the head of a request and returns its request line without the version.
async fn request_line(stream: &mut TlsStream<TcpStream>) -> String {
    let head = read_head(stream, &mut Vec::new()).await.unwrap();
    head.split(" HTTP/").next().unwrap().to_owned()
}

/// Starts a TLS origin that answers one request per connection, with `robots` or a page,
/// without a length, and ends the connection without close_notify. With `reset`, a page
/// ends with a TCP reset once that gate opens.
async fn origin_without_close_notify(robots: &'static str, reset: Option<Gate>) -> Server {
    let serve = move |mut stream: TlsStream<TcpStream>| {
        let reset = reset.clone();
        async move {
            let is_robots = request_line(&mut stream).await == "GET /robots.txt";
            let body = if is_robots { robots } else { "the page" };
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            if let Some(gate) = reset.filter(|_| !is_robots) {
                gate.pass().await;
                stream.get_ref().0.set_zero_linger().unwrap();
            }
        }
    };
    tls_server(&["http/1.1"], serve).await
}

// RFC 9112, section 9.8, calls it incomplete. Ours: every client we tried accepts it.
#[tokio::test]
async fn a_page_without_close_notify_is_complete_and_marked_in_the_record() {
    let origin = origin_without_close_notify("", None).await;
    let proxy = resolve("o.test", origin.address()).start().await;
    let fetched = curl(&proxy, &["https://o.test/a"]).await;
    assert_eq!((fetched.code, &*fetched.stdout), (Some(0), "the page"));
    let rows = proxy.place().completed(1).await;
    let expected = json!({"status": 200, "error": "no_close_notify"});
    assert_members(&rows[0], &expected);
}

// RFC 9112, section 9.8.
#[tokio::test]
async fn a_page_ended_by_a_reset_is_incomplete() {
    let reset = Gate::shut();
    let origin = origin_without_close_notify("", Some(reset.clone())).await;
    let proxy = resolve("o.test", origin.address()).start().await;
    let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
    crawler.start_get("/a", "o.test").await;
    let head = crawler.head().await.unwrap();
    reset.open(1);
    assert_eq!(crawler.body(&head, |_| ()).await, End::Broken);
    let rows = proxy.place().completed(1).await;
    assert_eq!(rows[0]["error"], "http_response_incomplete");
}

// Ours: the last line may be truncated, so it may only restrict.
#[tokio::test]
async fn without_close_notify_the_last_robots_txt_line_cannot_allow() {
    for (robots, refused) in [
        ("User-agent: *\nDisallow: /a", &["/a", "/a/b"][..]),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", &["/a", "/a/b"]),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b\n", &["/a"]),
        (
            "User-agent: *\nDisallow: /a\nUser-agent: ExampleBot",
            &["/a", "/a/b"],
        ),
    ] {
        let origin = origin_without_close_notify(robots, None).await;
        let proxy = resolve("o.test", origin.address()).start().await;
        for path in ["/a", "/a/b", "/b"] {
            let reply = get(&proxy, &format!("https://o.test{path}")).await;
            let wanted = if refused.contains(&path) { 403 } else { 200 };
            assert_eq!(reply.status(), wanted, "{path} by {robots:?}");
        }
    }
}

/// Error codes of RST_STREAM (RFC 9113, section 7).
const REFUSED_STREAM: u32 = 7;
const HTTP_1_1_REQUIRED: u32 = 0xD;

/// A TLS origin that resets HTTP/2 streams and answers HTTP/1.1, and a proxy before it.
struct ResettingSite {
    proxy: Proxy,
    _origin: Server,
    /// Request lines over HTTP/1.1, and `h2` for each request over HTTP/2.
    log: Arc<Mutex<Vec<String>>>,
}

impl ResettingSite {
    /// Starts an origin that answers HTTP/2 requests with `answers` in order, and repeats
    /// the last one: a status as its HPACK index, or the error code of a reset.
    async fn start(answers: &'static [Result<u8, u32>]) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&log);
        let serve = move |stream: TlsStream<TcpStream>| {
            let log = Arc::clone(&shared);
            async move {
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    serve_http2(stream, answers, log).await;
                } else {
                    serve_http1(stream, log).await;
                }
            }
        };
        let origin = tls_server(&["h2", "http/1.1"], serve).await;
        Self {
            proxy: resolve("o.test", origin.address()).start().await,
            _origin: origin,
            log,
        }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

async fn serve_http1(mut stream: TlsStream<TcpStream>, log: Arc<Mutex<Vec<String>>>) {
    let line = request_line(&mut stream).await;
    log.lock().unwrap().push(line);
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nh1";
    stream.write_all(answer).await.unwrap();
    stream.shutdown().await.unwrap_or_default();
}

async fn serve_http2(
    mut stream: TlsStream<TcpStream>,
    answers: &[Result<u8, u32>],
    log: Arc<Mutex<Vec<String>>>,
) {
    let mut preface = vec![0; PREFACE.len()];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let mut header = [0; 9];
    while stream.read_exact(&mut header).await.is_ok() {
        let [l0, l1, l2, kind, _, s0, s1, s2, s3] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if kind != HEADERS {
            continue;
        }
        let place = {
            let mut log = log.lock().unwrap();
            log.push("h2".to_owned());
            let over_http2 = log.iter().filter(|line| *line == "h2").count();
            over_http2.min(answers.len()) - 1
        };
        let number = u32::from_be_bytes([s0, s1, s2, s3]);
        let answer = match answers[place] {
            Ok(status) => frame(HEADERS, END_STREAM | END_HEADERS, number, &[0x80 | status]),
            Err(reason) => frame(RST_STREAM, 0, number, &reason.to_be_bytes()),
        };
        stream.write_all(&answer).await.unwrap();
    }
}

// Indexes in the static table of HPACK (RFC 7541, appendix A).
const STATUS_200: u8 = 8;
const STATUS_404: u8 = 13;

// RFC 9113, section 7.
#[tokio::test]
async fn http_1_1_required_is_retried_over_http_1_and_remembered() {
    for method in ["GET", "POST"] {
        let answers = &[Ok(STATUS_404), Err(HTTP_1_1_REQUIRED)];
        let site = ResettingSite::start(answers).await;
        for path in ["a", "b"] {
            let reply = ask(&site.proxy, method, &format!("https://o.test/{path}"), &[]).await;
            assert_eq!((reply.status(), &*reply.text()), (200, "h1"));
        }
        let [a, b] = ["a", "b"].map(|path| format!("{method} /{path}"));
        assert_eq!(site.log(), ["h2".to_owned(), "h2".to_owned(), a, b]);
    }
}

// RFC 9113, section 8.7: with any method, also on a new connection.
#[tokio::test]
async fn a_refused_stream_is_retried() {
    let answers = &[
        Err(REFUSED_STREAM),
        Ok(STATUS_404),
        Err(REFUSED_STREAM),
        Ok(STATUS_200),
    ];
    let site = ResettingSite::start(answers).await;
    let reply = ask(&site.proxy, "POST", "https://o.test/a", &[]).await;
    assert_eq!(reply.status(), 200);
    assert_eq!(site.log(), ["h2"; 4]);
}

// RFC 9113, section 8.7: an upload can be repeated if none of its body was consumed.
#[tokio::test]
async fn an_upload_refused_before_its_body_is_retried() {
    let answers = &[Ok(STATUS_404), Err(REFUSED_STREAM), Ok(STATUS_200)];
    let site = ResettingSite::start(answers).await;
    let mut crawler = Crawler::inside(&site.proxy, "o.test:443").await;
    let head = b"POST /a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 4\r\n\r\n";
    crawler.send(head).await;
    assert_eq!(crawler.head().await.unwrap().status, 200);
    assert_eq!(site.log(), ["h2"; 3]);
}

// Ours: `Permit::SENDS_MAX` limits the attempts.
#[tokio::test]
async fn a_stream_that_is_always_refused_is_tried_twice() {
    let answers = &[Ok(STATUS_404), Err(REFUSED_STREAM)];
    let site = ResettingSite::start(answers).await;
    let reply = get(&site.proxy, "https://o.test/a").await;
    reply.assert_error(502, "http_response_incomplete");
    assert_eq!(site.log(), ["h2"; 3]);
}
