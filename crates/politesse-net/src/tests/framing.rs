//! Requests as origins receive them, and responses that must not be forwarded.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};

use crate::body::BodyError;
use crate::client::{Options, UpstreamError};
use crate::testing::{
    OK, Paced, RawOrigin, Setup, Step, body as text, options, outgoing, permit, setup, setup_with,
};
use politesse_decision::access::NoConnection;

/// Upload of unknown length; its last part comes first in the list.
struct Parts(Vec<io::Result<Bytes>>);

impl Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.pop().map(|part| part.map(Frame::data)))
    }
}

/// Returns the outcome of a GET that is answered with these bytes.
async fn answered(bytes: &'static [Step]) -> Result<Result<String, BodyError>, UpstreamError> {
    let origin = RawOrigin::start(&[bytes]).await;
    let response = setup(&origin).get("http://h.test/").await?;
    Ok(text(response).await)
}

// Invariant 1 (ARCHITECTURE.md); RFC 9112, section 3.2.2.
#[tokio::test]
async fn url_and_host_come_from_the_permit_and_host_keeps_its_position() {
    let origin = RawOrigin::start(&[&[OK]]).await;
    let mut head = outgoing(
        Method::GET,
        &[
            ("user-agent", "x"),
            ("host", "evil.test"),
            ("accept", "*/*"),
            ("content-length", "7"),
        ],
    );
    head.path = Some("/other".parse().unwrap());
    let upstream = setup(&origin).upstream;
    let body = Full::new(Bytes::new());
    upstream
        .forward(
            permit("http://h.test:8080/a%2fb?"),
            &mut head,
            body,
            &mut Paced::freely(),
        )
        .await
        .unwrap();
    assert_eq!(
        origin.requests(),
        ["GET /a%2fb? HTTP/1.1\r\nUser-Agent: x\r\nHost: h.test:8080\r\nAccept: */*\r\n\r\n"]
    );
}

#[tokio::test]
async fn the_framing_of_an_upload_is_rewritten() {
    let origin = RawOrigin::start(&[&[OK], &[OK], &[OK]]).await;
    let upstream = setup(&origin).upstream;
    let head = |method| {
        outgoing(
            method,
            &[("content-length", "99"), ("transfer-encoding", "gzip")],
        )
    };
    let send = async |method, body| {
        let sent = upstream
            .forward(
                permit("http://h.test/"),
                &mut head(method),
                body,
                &mut Paced::freely(),
            )
            .await;
        text(sent.unwrap()).await.unwrap()
    };
    let full = Full::new(Bytes::from("abc")).map_err(|never| match never {});
    send(Method::POST, full.boxed_unsync()).await;
    for method in [Method::POST, Method::GET] {
        send(method, Parts(vec![Ok(Bytes::from("abc"))]).boxed_unsync()).await;
    }
    let requests = origin.requests();
    assert!(
        requests[0]
            .to_ascii_lowercase()
            .ends_with("content-length: 3\r\n\r\nabc")
    );
    for request in &requests[1..] {
        let request = request.to_ascii_lowercase();
        assert!(
            request.ends_with("transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
            "{request}"
        );
        assert!(!request.contains("content-length") && !request.contains("gzip"));
    }
}

// RFC 9112, sections 6.1 and 6.3.
#[tokio::test]
async fn responses_that_can_be_read_in_two_ways_are_refused() {
    const CODED: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    )];
    const TWICE: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    )];
    const BOTH: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    )];
    const LENGTHS: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    )];
    const UPGRADE: &[Step] = &[Step::Answer(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    )];
    const NOISE: &[Step] = &[Step::Answer("220 mail.test ready\r\n\r\n")];
    for (bytes, error) in [
        (CODED, "http_response_transfer_coding"),
        (TWICE, "http_response_transfer_coding"),
        (BOTH, "http_protocol_error"),
        (LENGTHS, "http_protocol_error"),
        (UPGRADE, "http_upgrade_failed"),
        (NOISE, "http_protocol_error"),
        (&[Step::Close], "http_response_incomplete"),
    ] {
        assert_eq!(answered(bytes).await.unwrap_err().as_str(), error);
    }
}

#[tokio::test]
async fn response_heads_are_limited_in_size() {
    let fields = |count: usize, bytes: usize| -> &'static [Step] {
        let field = format!("X: {}\r\n", "x".repeat(bytes)).repeat(count);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{field}\r\nok");
        Box::leak(Box::new([Step::Answer(Box::leak(head.into()))]))
    };
    assert_eq!(answered(fields(250, 10)).await.unwrap().unwrap(), "ok");
    for head in [fields(300, 10), fields(1, 300_000)] {
        let error = answered(head).await.unwrap_err();
        assert_eq!(error.as_str(), "http_response_header_section_size");
    }
}

#[tokio::test]
async fn a_truncated_body_ends_with_an_error() {
    const SHORT: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
    )];
    const CHUNK: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    )];
    const NO_CHUNK: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nabc\r\n",
    )];
    const TO_THE_END: &[Step] = &[Step::Answer("HTTP/1.1 200 OK\r\n\r\nabc")];
    for bytes in [SHORT, CHUNK, NO_CHUNK] {
        let error = answered(bytes).await.unwrap().unwrap_err();
        assert_eq!(error.as_str(), "http_response_incomplete");
    }
    assert_eq!(answered(TO_THE_END).await.unwrap().unwrap(), "abc");
}

fn hasty(origin: &RawOrigin) -> Setup {
    let options = Options {
        first_byte_timeout: Duration::from_millis(50),
        idle_timeout: Duration::from_millis(50),
        ..options()
    };
    setup_with(&options, &[("h.test", origin.address)])
}

#[tokio::test]
async fn timeouts_apply_before_the_head_and_within_the_body() {
    const STALLS: &[Step] = &[
        Step::Answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"),
        Step::Hold,
    ];
    let origin = RawOrigin::start(&[&[Step::Hold], STALLS]).await;
    let setup = hasty(&origin);
    let error = setup.get("http://h.test/").await.unwrap_err();
    assert!(error.is_timeout() && error.as_str() == "http_response_timeout");
    let error = text(setup.get("http://h.test/").await.unwrap())
        .await
        .unwrap_err();
    assert!(matches!(error, BodyError::Stalled));
}

#[tokio::test]
async fn a_broken_upload_is_reported_as_a_request_error() {
    let origin = RawOrigin::start(&[&[OK]]).await;
    let upstream = setup(&origin).upstream;
    let upload = Parts(vec![Err(io::Error::other("hung up"))]);
    let mut head = outgoing(Method::POST, &[]);
    let sent = upstream
        .forward(
            permit("http://h.test/"),
            &mut head,
            upload,
            &mut Paced::freely(),
        )
        .await;
    assert!(matches!(sent.unwrap_err(), UpstreamError::RequestBody));
    assert_eq!(origin.requests(), [""; 0]);
}

#[tokio::test]
async fn failed_and_prohibited_connections_are_distinguished() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let setup = setup_with(&options(), &[("h.test", address)]);
    for (url, error) in [
        ("http://h.test/", NoConnection::Refused.as_str()),
        ("http://127.0.0.1/", NoConnection::Prohibited.as_str()),
        ("http://a.invalid/", NoConnection::Dns.as_str()),
    ] {
        assert_eq!(setup.get(url).await.unwrap_err().as_str(), error);
    }
}

/// Returns the page of an origin that sends `count` interim responses first.
async fn hinting(count: usize) -> Result<String, UpstreamError> {
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count);
    let page = format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage");
    let script: &'static [Step] = vec![Step::Answer(page.leak())].leak();
    let response = answered(script).await?;
    Ok(response.unwrap())
}

// Ours: 16 are enough for every purpose of interim responses.
#[tokio::test]
async fn a_flood_of_interim_responses_is_an_error() {
    assert_eq!(hinting(16).await.unwrap(), "page");
    assert!(matches!(
        hinting(17).await,
        Err(UpstreamError::InterimResponses)
    ));
}

// Ours: dropping the request does not stop hyper in the middle of a read, so an origin
// that sends without a pause could occupy a thread for seconds.
#[tokio::test]
async fn reading_stops_during_an_endless_flood_of_interim_responses() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Bytes sent before a request would not be an answer to it.
        let asked = stream.read(&mut [0; 1024]).unwrap();
        assert!(0 < asked);
        let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
        let mut sent = 0;
        while sent < 1 << 28 && stream.write_all(hints.as_bytes()).is_ok() {
            sent += hints.len();
        }
        sent
    });
    let setup = setup_with(&options(), &[("h.test", address)]);
    let error = setup.get("http://h.test/").await.unwrap_err();
    assert!(
        matches!(error, UpstreamError::InterimResponses),
        "{error:?}"
    );
    drop(setup);
    let sent = tokio::task::spawn_blocking(|| origin.join().unwrap()).await;
    // The bytes held in the buffers of both sockets cannot be avoided.
    let sent = sent.unwrap();
    assert!(sent < 16 << 20, "{sent} bytes were taken");
}
