//! Requests to the admin listener of a running proxy, from commands on its machine.
//!
//! Requests go to `admin.listen` of the settings that the caller passes. A proxy may
//! listen on another port: [`with_holder_address`] and [`with_bound_port`] find it, before
//! the request is sent. Does not know what an answer contains: the calling command
//! interprets it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::admin_tls;
use super::output::{Exit, OutputForm, print};
use super::process::{holder_instance, reachable, runtime};
use crate::config::Settings;
use politesse_admin::AdminToken;
use politesse_base::inert::inert;

/// Timeout for a whole exchange: connecting, the request, and the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of an answer in bytes: several hundred thousand hosts.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Request to the admin listener.
#[derive(Debug)]
pub(super) struct ApiRequest {
    pub(super) method: Method,
    /// Path and query, whose values are escaped ([`escape`]).
    pub(super) target: String,
}

/// Reason why the proxy gave no usable answer. Most variants carry the address asked.
#[derive(Debug, Error)]
pub(super) enum ApiError {
    /// The connection could not be opened.
    #[error("nothing listens on {0} (admin.listen): does the proxy run with this configuration?")]
    NotListening(SocketAddr, #[source] std::io::Error),
    /// The TLS handshake failed.
    #[error(
        "no TLS with {0} (admin.listen): does it use the certificate in admin.tls_cert? \
         After a change of that file the proxy needs SIGHUP"
    )]
    Tls(SocketAddr, #[source] std::io::Error),
    /// The connection ended, or was not HTTP, before the head of an answer was complete.
    #[error("no whole answer came from {0} (admin.listen)")]
    NoHead(SocketAddr, #[source] hyper::Error),
    /// The body is longer than [`ANSWER_BYTES_MAX`], or the connection ended within it.
    #[error("the answer of {0} (admin.listen) is too long, or broke off")]
    IncompleteBody(SocketAddr),
    /// The exchange took longer than [`ANSWER_TIMEOUT`].
    #[error("{0} (admin.listen) did not answer within {after} s", after = ANSWER_TIMEOUT.as_secs())]
    Timeout(SocketAddr),
    /// Status 401.
    #[error("the token was refused: is admin.token_file the one that the proxy was started with?")]
    TokenRefused,
    /// Any other status than 200, with the beginning of the body.
    #[error("{0} (admin.listen) says {1}: {2}")]
    Status(SocketAddr, StatusCode, String),
    /// Status 200, but the body is not the JSON that the command expects.
    #[error("{0} (admin.listen) sent an unknown answer: is it a politesse?")]
    Foreign(SocketAddr, #[source] serde_json::Error),
}

/// Sends `request`, with the token, to `admin.listen` of `settings`, and returns the body
/// of the answer.
///
/// # Errors
///
/// [`ApiError`], or the token cannot be read.
pub(super) fn ask(settings: &Settings, request: &ApiRequest) -> anyhow::Result<Bytes> {
    let token = AdminToken::read(&settings.admin.token_file)?;
    send(settings, message(request, Some(token.as_str())))
}

/// Returns `settings` with `admin.listen` replaced by the address at which the proxy that
/// holds their record actually listens.
///
/// For commands that want that proxy, wherever it listens: `politesse run` listens on a
/// free port even if the configuration names one. If no running proxy holds the record,
/// the settings stay as they are.
pub(super) fn with_holder_address(settings: &Settings) -> anyhow::Result<Settings> {
    let mut found = settings.clone();
    if let Some(folder) = settings.audit.path.parent()
        && let Ok(holder) = runtime()?.block_on(holder_instance(folder))
    {
        found.admin.listen = holder.admin;
    }
    Ok(found)
}

/// Returns `settings` with the actual admin address if `admin.listen` has port 0, which
/// lets the system choose a port. A second `demo` is configured that way.
///
/// For commands that ask the address in the configuration. If no running proxy holds the
/// record, the port stays 0, and a request fails with [`ApiError::NotListening`].
pub(super) fn with_bound_port(settings: &Settings) -> anyhow::Result<Settings> {
    match settings.admin.listen.port() {
        0 => with_holder_address(settings),
        // The user may have given the port (`--set admin.listen=…`) to ask another proxy
        // than the one that holds this record.
        _ => Ok(settings.clone()),
    }
}

/// Asks the proxy at `admin.listen` of `settings` whether it is ready, and returns its
/// answer, such as `ready`. Needs no token.
///
/// # Errors
///
/// [`ApiError`]; [`ApiError::Status`] if the proxy is not ready.
pub(super) fn ask_readiness(settings: &Settings) -> anyhow::Result<Bytes> {
    let (method, target) = (Method::GET, "/readyz".to_owned());
    send(settings, message(&ApiRequest { method, target }, None))
}

/// Sends a complete message, and waits for the answer at most [`ANSWER_TIMEOUT`].
fn send(settings: &Settings, message: Request<Empty<Bytes>>) -> anyhow::Result<Bytes> {
    let listen = settings.admin.listen;
    let answer = runtime()?.block_on(async {
        timeout(ANSWER_TIMEOUT, exchange(settings, message))
            .await
            .unwrap_or(Err(ApiError::Timeout(listen)))
    });
    Ok(answer?)
}

/// Requests the JSON at `target` with GET, at the address of [`with_bound_port`], and
/// prints it unchanged or laid out by `table`.
///
/// # Errors
///
/// Those of [`ask`], and [`ApiError::Foreign`].
pub(super) fn show<T: DeserializeOwned>(
    settings: &Settings,
    target: String,
    form: OutputForm,
    table: fn(&T) -> String,
) -> anyhow::Result<Exit> {
    let method = Method::GET;
    let found = with_bound_port(settings)?;
    let answer = ask(&found, &ApiRequest { method, target })?;
    let foreign = |error| ApiError::Foreign(found.admin.listen, error);
    // Parsed for JSON output too, so that another program's answer is not passed on.
    let parsed = serde_json::from_slice(&answer).map_err(foreign)?;
    match form {
        OutputForm::Json => {
            let mut out = std::io::stdout().lock();
            out.write_all(&answer)?;
            writeln!(out)?;
            Ok(Exit::Done)
        }
        OutputForm::Columns => print(&table(&parsed)),
    }
}

/// Opens a connection, with TLS if `admin.tls_cert` is set, and exchanges one request for
/// its answer.
async fn exchange(
    settings: &Settings,
    mut message: Request<Empty<Bytes>>,
) -> Result<Bytes, ApiError> {
    let listen = settings.admin.listen;
    let address = reachable(&listen);
    if let Ok(host) = HeaderValue::from_str(&address.to_string()) {
        message.headers_mut().insert(header::HOST, host);
    }
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| ApiError::NotListening(listen, error))?;
    let Some(certificate) = &settings.admin.tls.cert else {
        return exchange_over(stream, listen, message).await;
    };
    let stream = admin_tls::connect(stream, address, certificate)
        .await
        .map_err(|error| ApiError::Tls(listen, error))?;
    exchange_over(stream, listen, message).await
}

/// Sends `message` over `stream`, and returns the body of the answer if its status is 200.
/// `listen` is the address for errors.
async fn exchange_over(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    listen: SocketAddr,
    message: Request<Empty<Bytes>>,
) -> Result<Bytes, ApiError> {
    let no_head = |error| ApiError::NoHead(listen, error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(no_head)?;
    let answering = async move {
        let response = sender.send_request(message).await.map_err(no_head)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|_| ApiError::IncompleteBody(listen))?;
        Ok((status, body.to_bytes()))
    };
    // Polling `connection` moves the bytes. Its error can be dropped, because `answering`
    // then fails as well.
    let (answer, _) = tokio::join!(answering, connection);
    match answer? {
        (StatusCode::OK, body) => Ok(body),
        (StatusCode::UNAUTHORIZED, _) => Err(ApiError::TokenRefused),
        (status, body) => {
            let text = inert(String::from_utf8_lossy(&body).trim_end());
            // Any server may answer at this address, with a page of any length.
            let start: String = text.chars().take(200).collect();
            Err(ApiError::Status(listen, status, start))
        }
    }
}

/// Builds the HTTP message for a request, without `Host`, which [`exchange`] adds.
fn message(request: &ApiRequest, token: Option<&str>) -> Request<Empty<Bytes>> {
    let mut message = Request::new(Empty::new());
    *message.method_mut() = request.method.clone();
    // Parsing cannot fail: callers escape the values in the target.
    *message.uri_mut() = request.target.parse().unwrap_or_default();
    // Nor can Base64 contain a byte that is invalid in a field.
    let pair = token.map(|token| STANDARD.encode(format!("admin:{token}")));
    if let Some(Ok(mut value)) = pair.map(|pair| HeaderValue::from_str(&format!("Basic {pair}"))) {
        value.set_sensitive(true);
        message.headers_mut().insert(header::AUTHORIZATION, value);
    }
    message
}

/// Escapes a value for the path or query of a target: every byte but the unreserved
/// characters (RFC 3986, sections 2.1 and 2.3).
pub(super) fn escape(value: &str) -> String {
    value.bytes().map(escaped).collect()
}

/// Returns a byte as a target may contain it: itself, or `%` with two digits.
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3986, section 2.1; RFC 7617, section 2.
    #[test]
    fn a_request_carries_the_token_and_escaped_values() {
        let request = ApiRequest {
            method: Method::DELETE,
            target: format!("/api/v1/pace/{}", escape("[::1] é&limit=1")),
        };
        let message = message(&request, Some("p:w é"));
        assert_eq!(message.method(), Method::DELETE);
        assert_eq!(
            message.uri(),
            "/api/v1/pace/%5B%3A%3A1%5D%20%C3%A9%26limit%3D1"
        );
        let basic = message.headers()["authorization"].to_str().unwrap();
        let pair = STANDARD.decode(basic.strip_prefix("Basic ").unwrap());
        assert_eq!(pair.unwrap(), "admin:p:w é".as_bytes());
    }
}
