//! An origin that authenticates connections, as IIS does with NTLM and Negotiate: once a
//! client has proved a name on a connection, all later requests on it have that name.
//!
//! Accepts any name. Its messages have the form that curl reads.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::certificates::{Leaf, TestCa};
use super::server::Server;

/// First bytes of each message ([MS-NLMP], section 2.2.1).
const SIGNATURE: &[u8] = b"NTLMSSP\0";

pub(crate) struct NtlmOrigin {
    server: Server,
    desk: Arc<Desk>,
}

/// State shared by an origin's connections.
#[derive(Default)]
struct Desk {
    /// For each robots.txt request, the name proved on its connection before.
    robots_as: Mutex<Vec<String>>,
    open: watch::Sender<usize>,
}

impl NtlmOrigin {
    /// Starts an origin over plain TCP.
    pub(crate) async fn start() -> Self {
        Self::serve(None).await
    }

    /// Starts an origin over TLS called `s.test`, which prefers HTTP/2.
    pub(crate) async fn start_tls() -> Self {
        let config = TestCa::get().server(&Leaf::of("s.test"), &["h2", "http/1.1"]);
        Self::serve(Some(TlsAcceptor::from(config))).await
    }

    async fn serve(tls: Option<TlsAcceptor>) -> Self {
        let desk = Arc::<Desk>::default();
        let shared = Arc::clone(&desk);
        let serve = move |stream| connection(stream, tls.clone(), Arc::clone(&shared));
        let server = Server::start(serve).await;
        Self { server, desk }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the name under which each robots.txt request was made.
    pub(crate) fn robots_as(&self) -> Vec<String> {
        self.desk.robots_as.lock().unwrap().clone()
    }

    /// Waits until exactly `count` connections are open.
    pub(crate) async fn has_open(&self, count: usize) {
        let mut open = self.desk.open.subscribe();
        let reached = open.wait_for(|open| *open == count);
        super::soon("connections to close", reached).await.unwrap();
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, desk: Arc<Desk>) {
    desk.open.send_modify(|open| *open += 1);
    match tls {
        None => serve(stream, &desk, Protocol::Http1).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                let protocol = match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => Protocol::Http2,
                    _ => Protocol::Http1,
                };
                serve(stream, &desk, protocol).await;
            }
        }
    }
    desk.open.send_modify(|open| *open -= 1);
}

enum Protocol {
    Http1,
    Http2,
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    desk: &Arc<Desk>,
    protocol: Protocol,
) {
    let name = Mutex::new(String::new());
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let answer = answer(&request, &mut name.lock().unwrap(), desk);
        async move { Ok::<_, Infallible>(answer) }
    });
    let stream = TokioIo::new(stream);
    // The proxy decides how a connection ends; an error here is no failure.
    match protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new());
            let _ = builder.serve_connection(stream, service).await;
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            let _ = builder.serve_connection(stream, service).await;
        }
    }
}

fn answer<B>(request: &http::Request<B>, name: &mut String, desk: &Desk) -> http::Response<String> {
    if request.uri().path() == "/robots.txt" {
        desk.robots_as.lock().unwrap().push(name.clone());
        return http::Response::new(String::new());
    }
    if request.uri().path() == "/open" {
        return http::Response::new(format!("open to {name}"));
    }
    let shown = request.headers().get("authorization");
    let shown = shown.map(|value| value.to_str().unwrap().split_once(' ').unwrap());
    match shown {
        None if name.is_empty() => refused("NTLM", &[]),
        None => page(name),
        Some((scheme, token)) => {
            let message = STANDARD.decode(token).unwrap();
            match message[SIGNATURE.len()] {
                1 => refused(scheme, &challenge()),
                _ => {
                    *name = user(&message);
                    page(name)
                }
            }
        }
    }
}

fn page(name: &str) -> http::Response<String> {
    let response = http::Response::builder().header("persistent-auth", "true");
    response.body(format!("the page of {name}")).unwrap()
}

fn refused(scheme: &str, message: &[u8]) -> http::Response<String> {
    let mut response = http::Response::builder().status(401);
    if message.is_empty() {
        response = response.header("www-authenticate", "Negotiate");
    }
    let value = format!("{scheme} {}", STANDARD.encode(message));
    let response = response.header("www-authenticate", value.trim());
    response.body("who are you?".to_owned()).unwrap()
}

/// Returns a CHALLENGE_MESSAGE without a target ([MS-NLMP], section 2.2.1.2), for ASCII
/// text and NTLM authentication.
fn challenge() -> Vec<u8> {
    const OEM: u32 = 2;
    const NTLM: u32 = 0x200;
    let mut message = SIGNATURE.to_vec();
    message.extend(2_u32.to_le_bytes());
    message.extend([0, 0, 0, 0, 32, 0, 0, 0]);
    message.extend((OEM | NTLM).to_le_bytes());
    message.extend(*b"nonsense");
    message
}

/// Returns the user in an AUTHENTICATE_MESSAGE ([MS-NLMP], section 2.2.1.3).
fn user(message: &[u8]) -> String {
    let length = usize::from(u16::from_le_bytes([message[36], message[37]]));
    let start = usize::from(u16::from_le_bytes([message[40], message[41]]));
    String::from_utf8_lossy(&message[start..start + length]).into_owned()
}

/// Returns the Authorization field that starts an authentication.
pub(crate) fn first_message(scheme: &str) -> String {
    let message = [SIGNATURE, &1_u32.to_le_bytes()].concat();
    format!("Authorization: {scheme} {}", STANDARD.encode(message))
}

/// Returns the Authorization field that completes an authentication as `user`.
pub(crate) fn last_message(scheme: &str, user: &str) -> String {
    let mut message = [SIGNATURE, &3_u32.to_le_bytes(), &[0; 24]].concat();
    message.extend(u16::try_from(user.len()).unwrap().to_le_bytes());
    message.extend([0, 0, 44, 0, 0, 0]);
    message.extend(user.bytes());
    format!("Authorization: {scheme} {}", STANDARD.encode(message))
}
