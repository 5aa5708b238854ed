//! Requests to the admin listener of the proxy that runs by a configuration.
//!
//! Does not know the pages; commands read their answers.

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
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::output::{Exit, OutputForm, print};
use super::process::{reachable, runtime};
use crate::admin::AdminToken;
use crate::config::Settings;
use crate::inert::inert;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest answer that is read, in bytes: some hundred thousand hosts.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Request for a page of the admin listener.
#[derive(Debug)]
pub(super) struct ApiRequest {
    /// Method.
    pub(super) method: Method,
    /// Path and query; its values escaped ([`escape`]).
    pub(super) target: String,
}

/// Error of asking the proxy.
#[derive(Debug, Error)]
pub(super) enum ApiError {
    #[error("nothing listens on {0} (admin.listen): does the proxy run by this configuration?")]
    Nobody(SocketAddr, #[source] std::io::Error),
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
    #[error("{0} (admin.listen) answers something else: is it a politesse?")]
    Foreign(SocketAddr, #[source] serde_json::Error),
}

/// Asks the proxy that runs by `settings`, and returns the body of its answer.
///
/// # Errors
///
/// [`ApiError`], or a token that cannot be read.
pub(super) fn ask(settings: &Settings, request: &ApiRequest) -> anyhow::Result<Bytes> {
    let token = AdminToken::read(&settings.admin.token_file)?;
    let address = settings.admin.listen;
    let answer = runtime()?.block_on(async {
        timeout(ANSWER_TIMEOUT, exchange(address, request, &token))
            .await
            .unwrap_or(Err(ApiError::Slow(address)))
    });
    Ok(answer?)
}

/// Asks for the page at `target`, and prints it: as it is, or laid out by `table`.
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
    let answer = ask(settings, &ApiRequest { method, target })?;
    let foreign = |error| ApiError::Foreign(settings.admin.listen, error);
    // Read for JSON as well: what another program answers is not handed on.
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
    listen: SocketAddr,
    request: &ApiRequest,
    token: &AdminToken,
) -> Result<Bytes, ApiError> {
    let broken = |error| ApiError::Broken(listen, error);
    let address = reachable(&listen);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| ApiError::Nobody(listen, error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let request = message(&address.to_string(), request, token.as_str());
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|_| ApiError::Cut(listen))?;
        Ok((status, body.to_bytes()))
    };
    // The exchange gets the errors of the connection as well.
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

/// Builds the request to a proxy that is reached at `address`.
fn message(address: &str, request: &ApiRequest, token: &str) -> Request<Empty<Bytes>> {
    let basic = format!("Basic {}", STANDARD.encode(format!("admin:{token}")));
    let mut message = Request::new(Empty::new());
    *message.method_mut() = request.method.clone();
    // Both consist of characters that a target and a field may have.
    *message.uri_mut() = request.target.parse().unwrap_or_default();
    let fields = message.headers_mut();
    for (name, text) in [(header::HOST, address), (header::AUTHORIZATION, &basic)] {
        if let Ok(mut value) = HeaderValue::from_str(text) {
            value.set_sensitive(name == header::AUTHORIZATION);
            fields.insert(name, value);
        }
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
    fn a_request_has_the_token_and_any_value() {
        let asked = ApiRequest {
            method: Method::DELETE,
            target: format!("/api/v1/pace/{}", escape("[::1] é&limit=1")),
        };
        let message = message("127.0.0.1:3129", &asked, "p:w é");
        assert_eq!(message.method(), Method::DELETE);
        assert_eq!(
            message.uri(),
            "/api/v1/pace/%5B%3A%3A1%5D%20%C3%A9%26limit%3D1"
        );
        assert_eq!(message.headers()["host"], "127.0.0.1:3129");
        let basic = message.headers()["authorization"].to_str().unwrap();
        let pair = STANDARD.decode(basic.strip_prefix("Basic ").unwrap());
        assert_eq!(pair.unwrap(), "admin:p:w é".as_bytes());
    }
}
