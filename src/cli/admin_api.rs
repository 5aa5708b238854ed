//! Requests to the admin listener of the proxy that runs with a configuration.
//!
//! Does not know the pages: commands interpret the answers.

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

/// Timeout for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of an answer in bytes: several hundred thousand hosts.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Request for a page of the admin listener.
#[derive(Debug)]
pub(super) struct ApiRequest {
    /// Method.
    pub(super) method: Method,
    /// Path and query, whose values are escaped ([`escape`]).
    pub(super) target: String,
}

/// Error when asking the proxy.
#[derive(Debug, Error)]
pub(super) enum ApiError {
    #[error("nothing listens on {0} (admin.listen): does the proxy run with this configuration?")]
    Nobody(SocketAddr, #[source] std::io::Error),
    #[error(
        "no TLS with {0} (admin.listen): does it use the certificate in admin.tls_cert? \
         After a change of that file the proxy needs SIGHUP"
    )]
    Tls(SocketAddr, #[source] std::io::Error),
    #[error("no whole answer came from {0} (admin.listen)")]
    Broken(SocketAddr, #[source] hyper::Error),
    #[error("the answer of {0} (admin.listen) is too long, or broke off")]
    Cut(SocketAddr),
    #[error("{0} (admin.listen) did not answer within {after} s", after = ANSWER_TIMEOUT.as_secs())]
    Slow(SocketAddr),
    #[error("the token was refused: is admin.token_file the one that the proxy was started with?")]
    Refused,
    #[error("{0} (admin.listen) says {1}: {2}")]
    Other(SocketAddr, StatusCode, String),
    #[error("{0} (admin.listen) sent an unknown answer: is it a politesse?")]
    Foreign(SocketAddr, #[source] serde_json::Error),
}

/// Asks the proxy that runs with `settings`, and returns the body of its answer.
///
/// # Errors
///
/// [`ApiError`], or the token cannot be read.
pub(super) fn ask(settings: &Settings, request: &ApiRequest) -> anyhow::Result<Bytes> {
    let token = AdminToken::read(&settings.admin.token_file)?;
    send(settings, message(request, Some(token.as_str())))
}

/// Returns `settings` with the admin address of the proxy that holds their record, if
/// one does: `politesse run` and a second `demo` listen on free ports.
pub(super) fn of_running(settings: &Settings) -> anyhow::Result<Settings> {
    let mut found = settings.clone();
    if let Some(folder) = settings.audit.path.parent()
        && let Ok(holder) = runtime()?.block_on(holder_instance(folder))
    {
        found.admin.listen = holder.admin;
    }
    Ok(found)
}

/// Returns `settings` with the actual admin address if they leave the port to the
/// system, as those of a second `demo` do.
pub(super) fn with_port(settings: &Settings) -> anyhow::Result<Settings> {
    match settings.admin.listen.port() {
        0 => of_running(settings),
        // An explicit port is the one to ask.
        _ => Ok(settings.clone()),
    }
}

/// Asks whether the proxy that runs with `settings` is ready, and returns its answer,
/// such as `ready`. Needs no token.
///
/// # Errors
///
/// [`ApiError`]; [`ApiError::Other`] if the proxy is not ready.
pub(super) fn ask_readiness(settings: &Settings) -> anyhow::Result<Bytes> {
    let (method, target) = (Method::GET, "/readyz".to_owned());
    send(settings, message(&ApiRequest { method, target }, None))
}

fn send(settings: &Settings, message: Request<Empty<Bytes>>) -> anyhow::Result<Bytes> {
    let listen = settings.admin.listen;
    let answer = runtime()?.block_on(async {
        timeout(ANSWER_TIMEOUT, exchange(settings, message))
            .await
            .unwrap_or(Err(ApiError::Slow(listen)))
    });
    Ok(answer?)
}

/// Requests the page at `target`, and prints it unchanged or laid out by `table`.
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
    let settings = &with_port(settings)?;
    let answer = ask(settings, &ApiRequest { method, target })?;
    let foreign = |error| ApiError::Foreign(settings.admin.listen, error);
    // Parsed for JSON output too, so that another program's answer is not passed on.
    let page = serde_json::from_slice(&answer).map_err(foreign)?;
    match form {
        OutputForm::Json => {
            let mut out = std::io::stdout().lock();
            out.write_all(&answer)?;
            writeln!(out)?;
            Ok(Exit::Done)
        }
        OutputForm::Columns => print(&table(&page)),
    }
}

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
        .map_err(|error| ApiError::Nobody(listen, error))?;
    let Some(certificate) = &settings.admin.tls.cert else {
        return exchange_over(stream, listen, message).await;
    };
    let stream = admin_tls::connect(stream, address, certificate)
        .await
        .map_err(|error| ApiError::Tls(listen, error))?;
    exchange_over(stream, listen, message).await
}

async fn exchange_over(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    listen: SocketAddr,
    message: Request<Empty<Bytes>>,
) -> Result<Bytes, ApiError> {
    let broken = |error| ApiError::Broken(listen, error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let exchange = async move {
        let response = sender.send_request(message).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|_| ApiError::Cut(listen))?;
        Ok((status, body.to_bytes()))
    };
    // The exchange also receives the errors of the connection.
    let (answer, _) = tokio::join!(exchange, connection);
    match answer? {
        (StatusCode::OK, body) => Ok(body),
        (StatusCode::UNAUTHORIZED, _) => Err(ApiError::Refused),
        (status, body) => {
            let text = inert(String::from_utf8_lossy(&body).trim_end());
            // Any server may answer at this address, with a page of any length.
            let start: String = text.chars().take(200).collect();
            Err(ApiError::Other(listen, status, start))
        }
    }
}

/// Builds the message of a request, without its `Host`.
fn message(request: &ApiRequest, token: Option<&str>) -> Request<Empty<Bytes>> {
    let mut message = Request::new(Empty::new());
    *message.method_mut() = request.method.clone();
    // Both contain only characters that are valid in a target and in a field.
    *message.uri_mut() = request.target.parse().unwrap_or_default();
    let pair = token.map(|token| STANDARD.encode(format!("admin:{token}")));
    if let Some(Ok(mut value)) = pair.map(|pair| HeaderValue::from_str(&format!("Basic {pair}"))) {
        value.set_sensitive(true);
        message.headers_mut().insert(header::AUTHORIZATION, value);
    }
    message
}

/// Escapes a value in a target (RFC 3986, sections 2.1 and 2.3).
pub(super) fn escape(value: &str) -> String {
    value.bytes().map(escaped).collect()
}

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
        let asked = ApiRequest {
            method: Method::DELETE,
            target: format!("/api/v1/pace/{}", escape("[::1] é&limit=1")),
        };
        let message = message(&asked, Some("p:w é"));
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
