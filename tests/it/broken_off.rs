//! Exchanges that an origin ends early: responses cut short, and answers sent before the
//! upload has ended.

use std::convert::Infallible;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::kit::certificates::{Leaf, TestCa, Validity};
use crate::kit::client::{Crawler, curl};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::proxy::resolve;
use crate::kit::raw_origin::read_head;
use crate::kit::server::Server;
use crate::kit::stream_part;

/// Protocol of an origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speaks {
    Http,
    Https,
    Http2,
}

// Without `Connection: close` the proxy could send an upload on the closing connection.
const NO_ROBOTS: &[u8] =
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Starts an origin that sends `answer` as soon as a request's head has arrived, and then
/// closes the connection. robots.txt gets 404.
async fn start_hasty_origin(speaks: Speaks, answer: &[u8]) -> Server {
    let leaf = Leaf {
        names: vec!["o.test".to_owned()],
        validity: Validity::Current,
    };
    let alpn = match speaks {
        Speaks::Http2 => "h2",
        Speaks::Http | Speaks::Https => "http/1.1",
    };
    let tls = TlsAcceptor::from(TestCa::get().server(&leaf, &[alpn]));
    let answer = answer.to_vec();
    Server::start(move |stream| {
        let (tls, answer) = (tls.clone(), answer.clone());
        async move {
            if speaks == Speaks::Http {
                answer_hastily(stream, &answer).await;
            } else if let Ok(stream) = tls.accept(stream).await {
                match speaks {
                    Speaks::Http2 => answer_http2(stream).await,
                    Speaks::Http | Speaks::Https => answer_hastily(stream, &answer).await,
                }
            }
        }
    })
    .await
}

async fn answer_hastily(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
    let Some(head) = read_head(&mut stream, &mut Vec::new()).await else {
        return;
    };
    let is_robots = head.starts_with("GET /robots.txt ");
    let answer = if is_robots { NO_ROBOTS } else { answer };
    let _ = stream.write_all(answer).await;
    let _ = stream.flush().await;
}

/// Answers each upload with 413 without reading it, and GET with 404.
async fn answer_http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(async |request: http::Request<Incoming>| {
        let is_get = request.method() == http::Method::GET;
        let status = if is_get { 404 } else { 413 };
        let response = http::Response::builder().status(status);
        Ok::<_, Infallible>(response.body("too much".to_owned()).unwrap())
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

// RFC 9113, section 5.4.2: a reset discards bytes that have not been sent yet.
#[tokio::test]
async fn http2_clients_get_all_bytes_of_a_response_cut_short() {
    for length in [0, 1_000, 65_535, 300_000] {
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec();
        let body = stream_part(0, length);
        answer.extend(&body);
        let origin = start_hasty_origin(Speaks::Https, &answer).await;
        let proxy = resolve("o.test", origin.address()).start().await;
        let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
        for _ in 0..3 {
            let response = crawler.head_of("https://o.test/").await;
            assert_eq!(response.status(), 200);
            let (mut received, mut stream) = (Vec::new(), response.into_body());
            // The client sees only that the stream was reset.
            while let Ok(frame) = stream.frame().await.expect("an error at the end") {
                received.extend(frame.into_data().unwrap());
            }
            assert!(received == body, "{} of {length} bytes", received.len());
        }
        let arguments = ["--http2", "-w", "%{http_code}", "https://o.test/"];
        let outcome = curl(&proxy, &arguments).await;
        assert_ne!(outcome.code, Some(0), "curl reports the cut response");
        assert!(outcome.stdout.ends_with("200"), "{outcome:?}");
    }
}

const TOO_MUCH: &[u8] =
    b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo much";

// RFC 9112, section 9.6: an origin may answer an upload before its end. Writing then
// fails, but the client needs the answer, not that error.
#[tokio::test]
async fn an_early_answer_to_an_upload_reaches_the_client() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("upload");
    std::fs::write(&file, stream_part(0, 3_000_000)).unwrap();
    let file = file.to_str().unwrap();
    for speaks in [Speaks::Http, Speaks::Https, Speaks::Http2] {
        let origin = start_hasty_origin(speaks, TOO_MUCH).await;
        let proxy = resolve("o.test", origin.address()).start().await;
        let url = match speaks {
            Speaks::Http => "http://o.test/up",
            Speaks::Https | Speaks::Http2 => "https://o.test/up",
        };
        for version in ["--http1.1", "--http2"] {
            for _ in 0..10 {
                let upload = ["-T", file, "-H", "Expect:", "-w", " %{http_code}"];
                let outcome = curl(&proxy, &[&upload[..], &[version, url]].concat()).await;
                // Over HTTP/2 curl stops its upload when the status arrives, and may then
                // lose the body.
                assert!(
                    outcome.stdout.ends_with(" 413"),
                    "{speaks:?} {version} {outcome:?}"
                );
            }
        }
        let rows = proxy.place().completed(20).await;
        assert!(rows.iter().all(|row| row["error"].is_null()), "{rows:?}");
    }
}

// RFC 9112, section 9.6, for the proxy's own answers: it does not read the upload.
#[tokio::test]
async fn a_refused_upload_gets_the_403_after_sending_its_body() {
    let script = Script::robots("User-agent: *\nDisallow: /\n");
    let (_origin, proxy) = site(script, &[]).await;
    for _ in 0..20 {
        let mut crawler = Crawler::plain(&proxy).await;
        let head =
            "PUT http://o.test/up HTTP/1.1\r\nHost: o.test\r\nContent-Length: 1000000\r\n\r\n";
        crawler.send(head.as_bytes()).await;
        // Send the complete body, even if the answer has already arrived.
        crawler.send(&stream_part(0, 1_000_000)).await;
        assert_eq!(crawler.reply_to("PUT").await.status(), 403);
    }
}

// RFC 9110, section 8.6. curl resets an HTTP/2 stream whose 204 has a length.
#[tokio::test]
async fn a_204_is_forwarded_without_content_length() {
    for length in ["0", "5"] {
        let answer = format!("HTTP/1.1 204 No Content\r\nContent-Length: {length}\r\n\r\n");
        let origin = start_hasty_origin(Speaks::Https, answer.as_bytes()).await;
        let proxy = resolve("o.test", origin.address()).start().await;
        for version in ["--http1.1", "--http2"] {
            let arguments = [
                "-i",
                "--suppress-connect-headers",
                version,
                "https://o.test/",
            ];
            let outcome = curl(&proxy, &arguments).await.assert_code(0);
            let head = outcome.stdout.to_lowercase();
            assert!(head.contains(" 204"), "{head}");
            assert!(!head.contains("content-length"), "{head}");
        }
    }
}
