//! TLS and HTTP/2 to origins.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{HOST, TE};
use http::{Method, Request, Response, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::client::{Options, Upstream};
use crate::error::UpstreamError;
use crate::testing::{
    OK, Paced, Setup, Step, body, egress, options, outgoing, permit, play, setup_with,
};
use politesse_base::tasks::Tasks;
use politesse_base::tls::Roots;
use politesse_decision::access::{CertificateFault, NoConnection};

const URL: &str = "https://h.test/";

/// A CA, and the file with its certificate.
pub(super) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Ca {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            folder,
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(super) fn server(&self, params: &CertificateParams, alpn: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        acceptor(&self.signed(params, &key), &key, alpn)
    }

    pub(super) fn signed(&self, params: &CertificateParams, key: &KeyPair) -> Certificate {
        params.signed_by(key, &self.issuer).unwrap()
    }
}

pub(super) fn acceptor(certificate: &Certificate, key: &KeyPair, alpn: &[&str]) -> TlsAcceptor {
    let mut config = server_config(&[&TLS13, &TLS12], certificate, key);
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

pub(super) fn server_config(
    versions: &[&'static SupportedProtocolVersion],
    certificate: &Certificate,
    key: &KeyPair,
) -> ServerConfig {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap()
}

pub(super) fn leaf(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

fn trusting(ca: &Ca, address: SocketAddr) -> Setup {
    setup_with(&trust(Roots::File(ca.path())), &[("h.test", address)])
}

/// Returns options that trust these roots.
pub(super) fn trust(roots: Roots) -> Options {
    let mut options = options();
    options.tls.roots = vec![roots];
    options
}

/// Starts an HTTP/2 origin that answers with the version and with the received `Host` and
/// `TE`. Also returns its count of connections.
pub(super) async fn http2_origin(tls: TlsAcceptor) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    Tasks::default().execute(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = tls.accept(stream).await else {
                continue;
            };
            counted.fetch_add(1, Ordering::SeqCst);
            let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(describe));
            Tasks::default().execute(async move { served.await.unwrap_or_default() });
        }
    });
    (address, connections)
}

async fn describe(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let text = format!(
        "{:?} {} {:?} {:?}",
        request.version(),
        request.uri(),
        request.headers().get(HOST),
        request.headers().get(TE)
    );
    Ok(Response::new(Full::from(text)))
}

/// Starts an HTTP/1.1 origin over TLS that plays a script on each connection, and closes
/// without close_notify.
pub(super) async fn raw_origin(tls: TlsAcceptor, script: &'static [Step]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Tasks::default().execute(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = tls.accept(stream).await {
                play(stream, script, Arc::new(Mutex::default())).await;
            }
        }
    });
    address
}

// RFC 9113, sections 8.2.2 and 8.3.1.
#[tokio::test]
async fn negotiated_http2_is_used_without_connection_fields() {
    let ca = Ca::new();
    let (address, _) = http2_origin(ca.server(&leaf("h.test"), &["h2", "http/1.1"])).await;
    let fields = [
        ("te", "trailers"),
        ("connection", "x"),
        ("keep-alive", "1"),
        ("upgrade", "h2c"),
    ];
    let mut head = outgoing(Method::GET, &fields);
    let upstream = trusting(&ca, address).upstream;
    let sent = upstream
        .forward(
            permit("https://h.test:8443/a?b"),
            &mut head,
            Empty::<Bytes>::new(),
            &mut Paced::freely(),
        )
        .await;
    let response = sent.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let text = "HTTP/2.0 https://h.test:8443/a?b None Some(\"trailers\")";
    assert_eq!(body(response).await.unwrap(), text);
}

#[tokio::test]
async fn an_http2_connection_is_shared() {
    let ca = Ca::new();
    let (address, connections) = http2_origin(ca.server(&leaf("h.test"), &["h2"])).await;
    let setup = trusting(&ca, address);
    let held = setup.get(URL).await.unwrap();
    let (a, b) = tokio::join!(setup.page(URL), setup.page(URL));
    assert_eq!(a, b);
    assert_eq!(body(held).await.unwrap(), a);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn http2_is_not_offered_if_disabled() {
    let ca = Ca::new();
    let address = raw_origin(ca.server(&leaf("h.test"), &["h2", "http/1.1"]), &[OK]).await;
    let mut options = trust(Roots::File(ca.path()));
    options.tls.http2 = false;
    let setup = setup_with(&options, &[("h.test", address)]);
    let response = setup.get(URL).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_11);
    assert_eq!(body(response).await.unwrap(), "ok");
}

// RFC 8446, section 6.1: without close_notify the end may be forged. RFC 9112, section
// 9.8, calls such a body incomplete. Ours: it is forwarded, and marked.
#[tokio::test]
async fn a_body_without_length_that_ends_without_close_notify_is_marked() {
    const TO_THE_END: &[Step] = &[Step::Answer("HTTP/1.1 200 OK\r\n\r\nabc")];
    let ca = Ca::new();
    let address = raw_origin(ca.server(&leaf("h.test"), &[]), TO_THE_END).await;
    let response = trusting(&ca, address).get(URL).await.unwrap();
    let mut body = response.into_body();
    assert_eq!((&mut body).collect().await.unwrap().to_bytes(), "abc");
    assert!(body.is_unclosed());
}

// RFC 9112, section 9.8.
#[tokio::test]
async fn a_framed_body_does_not_depend_on_close_notify() {
    const WHOLE: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    )];
    const SHORT: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    )];
    let ca = Ca::new();
    for (script, is_whole) in [(WHOLE, true), (SHORT, false)] {
        let address = raw_origin(ca.server(&leaf("h.test"), &[]), script).await;
        let response = trusting(&ca, address).get(URL).await.unwrap();
        let mut body = response.into_body();
        let collected = (&mut body).collect().await;
        assert_eq!(collected.is_ok(), is_whole);
        assert!(!body.is_unclosed());
    }
}

// Ours.
#[tokio::test]
async fn an_invalid_certificate_ends_the_attempt() {
    let ca = Ca::new();
    let mut expired = leaf("h.test");
    expired.not_after = date_time_ymd(2020, 1, 1);
    let mut early = leaf("h.test");
    early.not_before = date_time_ymd(2999, 1, 1);
    for (params, fault) in [
        (leaf("other.test"), CertificateFault::Name),
        (leaf("*.h.test"), CertificateFault::Name),
        (expired, CertificateFault::Expired),
        (early, CertificateFault::NotValidYet),
    ] {
        assert_fault(&ca, ca.server(&params, &[]), fault).await;
    }
    // Its issuer has the same name as the trusted CA, and as the certificate itself.
    let foreign = Ca::new().server(&leaf("h.test"), &[]);
    assert_fault(&ca, foreign, CertificateFault::Issuer).await;
    // Like the result of `openssl req -x509`, and like a certificate made for a single
    // server.
    for is_ca in [
        IsCa::Ca(BasicConstraints::Unconstrained),
        IsCa::ExplicitNoCa,
    ] {
        let mut params = leaf("h.test");
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let own = acceptor(&params.self_signed(&key).unwrap(), &key, &[]);
        assert_fault(&ca, own, CertificateFault::SelfSigned).await;
    }
}

/// Asserts that a client trusting `ca` refuses the server because of `fault`.
async fn assert_fault(ca: &Ca, server: TlsAcceptor, fault: CertificateFault) {
    let address = raw_origin(server, &[OK]).await;
    let error = trusting(ca, address).get(URL).await.unwrap_err();
    assert_eq!(error.as_str(), "tls_certificate_error");
    let found = matches!(
        error,
        UpstreamError::NoConnection(NoConnection::Certificate(found)) if found == fault
    );
    assert!(found, "{fault:?}: {error:?}");
}

#[tokio::test]
async fn an_origin_without_tls_is_not_reported_as_a_bad_certificate() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Tasks::default().execute(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        stream
            .read_to_end(&mut Vec::new())
            .await
            .unwrap_or_default();
    });
    let error = trusting(&Ca::new(), address).get(URL).await.unwrap_err();
    assert_eq!(error.as_str(), "tls_protocol_error");
}

#[test]
fn unreadable_roots_are_named() {
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for path in [empty, folder.path().join("absent.pem")] {
        let setup = Upstream::new(
            &trust(Roots::File(path.clone())),
            egress(&[]),
            Arc::default(),
            Tasks::default(),
        );
        let error = setup.unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

/// Starts an HTTP/2 origin that answers the first stream with exactly these `frames`.
async fn framed_origin(tls: TlsAcceptor, frames: impl Into<Vec<u8>>) -> SocketAddr {
    let frames = frames.into();
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEADERS: u8 = 1;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Tasks::default().execute(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tls.accept(stream).await.unwrap();
        stream.write_all(&SETTINGS).await.unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        let mut head = [0; 9];
        while head[3] != HEADERS {
            stream.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
            stream.read_exact(&mut payload).await.unwrap();
        }
        // The client may hang up in the middle.
        stream.write_all(&frames).await.unwrap_or_default();
        let mut rest = Vec::new();
        // Stays open until the client closes.
        stream.read_to_end(&mut rest).await.unwrap_or_default();
    });
    address
}

// RFC 9113, section 8.1: NO_ERROR is a clean end only after a complete response. A
// truncated body must not look complete.
#[tokio::test]
async fn a_stream_reset_with_no_error_before_its_end_is_a_broken_body() {
    let ca = Ca::new();
    let frames = b"\0\0\x01\x01\x04\0\0\0\x01\x88\
        \0\0\x02\0\0\0\0\0\x01he\
        \0\0\x04\x03\0\0\0\0\x01\0\0\0\0";
    let address = framed_origin(ca.server(&leaf("h.test"), &["h2"]), *frames).await;
    let response = trusting(&ca, address).get(URL).await.unwrap();
    assert!(body(response).await.is_err());
}

// The same stream with END_STREAM is complete.
#[tokio::test]
async fn a_stream_with_end_stream_is_a_complete_body() {
    let ca = Ca::new();
    let frames = b"\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x02\0\x01\0\0\0\x01he";
    let address = framed_origin(ca.server(&leaf("h.test"), &["h2"]), *frames).await;
    let response = trusting(&ca, address).get(URL).await.unwrap();
    assert_eq!(body(response).await.unwrap(), "he");
}

/// Returns this many interim responses to the first stream, followed by a response.
fn interim_then_response(interim: usize) -> Vec<u8> {
    let hint = b"\0\0\x05\x01\x04\0\0\0\x01\x08\x03103".repeat(interim);
    let response = b"\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x02\0\x01\0\0\0\x01he";
    [&hint[..], response].concat()
}

// RFC 9110, section 15.2: a client must be able to parse interim responses. The number is
// ours.
#[tokio::test]
async fn a_few_interim_responses_on_http2_are_skipped() {
    let ca = Ca::new();
    let tls = ca.server(&leaf("h.test"), &["h2"]);
    let address = framed_origin(tls, interim_then_response(16)).await;
    let response = trusting(&ca, address).get(URL).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(body(response).await.unwrap(), "he");
}

// Ours: the same limit as on HTTP/1.1.
#[tokio::test]
async fn a_flood_of_interim_responses_on_http2_is_an_error() {
    for interim in [18, 100_000] {
        let ca = Ca::new();
        let tls = ca.server(&leaf("h.test"), &["h2"]);
        let address = framed_origin(tls, interim_then_response(interim)).await;
        let error = trusting(&ca, address).get(URL).await.unwrap_err();
        assert!(
            matches!(error, UpstreamError::InterimResponses),
            "{interim}: {error:?}"
        );
    }
}
