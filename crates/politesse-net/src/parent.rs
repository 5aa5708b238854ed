//! Parent proxy (`upstream.parent`). If one is configured, all connections to origins go
//! through it.
//!
//! Requests for `http` URLs are sent to the parent itself (RFC 9112, section 3.2.2).
//! Those for `https` URLs go through a CONNECT (RFC 9110, section 9.3.6), inside which
//! the origin's certificate is verified as usual. The connection to the parent is
//! unencrypted. Does not know which addresses a parent may have.

use std::path::Path;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HOST, HeaderName, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use politesse_base::server::{CredentialsError, UserPassword, user_and_password};
use politesse_base::tasks::Tasks;
use politesse_decision::access::NoConnection;
use politesse_robots::origin::{InvalidTarget, Origin, Scheme};

/// Size limits for the head of an answer to CONNECT, in bytes and fields.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 256;

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// Field that marks an error page as Squid's own.
const X_SQUID_ERROR: HeaderName = HeaderName::from_static("x-squid-error");

/// Address of the parent proxy (`upstream.parent`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent(pub(super) Origin);

impl FromStr for Parent {
    type Err = InvalidTarget;

    /// Parses `http://proxy.example:3128`. Other schemes are refused, because TLS to a
    /// proxy is not supported.
    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let (scheme, authority) = text.split_once("://").ok_or(InvalidTarget::Scheme)?;
        if scheme.parse::<Scheme>()? != Scheme::Http {
            return Err(InvalidTarget::Scheme);
        }
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        Ok(Self(Origin::new(Scheme::Http, authority)?))
    }
}

/// Credentials for the parent (RFC 7617).
#[derive(Debug, Clone)]
pub(super) struct Credentials(HeaderValue);

impl Credentials {
    /// Reads the credentials from the file of `upstream.parent_auth`.
    pub(super) fn read(path: &Path) -> Result<Self, CredentialsError> {
        Ok(Self::from(&user_and_password(path)?))
    }
}

impl From<&UserPassword> for Credentials {
    fn from(UserPassword { user, password }: &UserPassword) -> Self {
        let encoded = STANDARD.encode(format!("{user}:{password}"));
        let mut value =
            HeaderValue::try_from(format!("Basic {encoded}")).expect("base64 is visible ASCII");
        // Debug output of a header map omits sensitive values.
        value.set_sensitive(true);
        Self(value)
    }
}

/// Adds the credentials for the parent, if any, to the fields of a request to it.
pub(super) fn authorize(fields: &mut HeaderMap, credentials: Option<&Credentials>) {
    if let Some(Credentials(value)) = credentials {
        fields.append(PROXY_AUTHORIZATION, value.clone());
    }
}

/// Reports whether this status requests credentials for the parent. It does if it is 407,
/// which only a proxy sends (RFC 9110, section 15.5.8).
pub(super) fn asks_for_credentials(status: StatusCode) -> bool {
    status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
}

/// Reports whether an error response states that a proxy generated it: by an `error` in
/// `Proxy-Status` (RFC 9209, section 2.1.1), or by Squid's own field.
///
/// The `error` may come from any proxy on the way, including one run by the origin's
/// operator. In doubt, the response is not attributed to the origin.
pub(super) fn is_made_on_the_way(status: StatusCode, fields: &HeaderMap) -> bool {
    let names_error = |value: &HeaderValue| {
        let value = value.as_bytes().to_ascii_lowercase();
        // Not parsed as a structured field. At worst, a match inside a string makes a
        // robots.txt count as unreachable, which allows nothing.
        value.windows(6).any(|part| part == b"error=")
    };
    let says_so = fields.get_all(PROXY_STATUS).iter().any(names_error);
    400 <= status.as_u16() && (says_so || fields.contains_key(X_SQUID_ERROR))
}

/// Opens a tunnel to `origin` on `stream`, a new connection to the parent. Returns the
/// stream, which now leads to the origin.
///
/// The size of the answer's head is limited here; the caller limits the time.
///
/// # Errors
///
/// [`NoConnection::ParentCredentials`] if the parent asks for other credentials,
/// [`NoConnection::Parent`] if it refuses the tunnel for any other reason.
pub(super) async fn tunnel(
    stream: TcpStream,
    origin: &Origin,
    credentials: Option<&Credentials>,
    tasks: &Tasks,
) -> Result<TcpStream, NoConnection> {
    let request = connect_request(origin, credentials).ok_or(NoConnection::Parent)?;
    let broken = |_| NoConnection::Parent;
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_headers(FIELDS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    tasks.execute(async move {
        // An error also fails the request below, which reports it.
        connection.with_upgrades().await.unwrap_or_default();
    });
    let response = sender.send_request(request).await.map_err(broken)?;
    if asks_for_credentials(response.status()) {
        return Err(NoConnection::ParentCredentials);
    }
    let fields = response.headers().iter();
    let bytes = fields.map(|(name, value)| name.as_str().len() + value.len());
    // The head is measured again, because a single read by hyper may exceed
    // `max_buf_size`.
    if !response.status().is_success() || HEAD_BYTES_MAX < bytes.sum::<usize>() {
        return Err(NoConnection::Parent);
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(broken)?;
    let parts = upgraded
        .downcast::<TokioIo<TcpStream>>()
        .map_err(|_| NoConnection::Parent)?;
    // In TLS the client sends first, so bytes received by now cannot come from the
    // origin.
    if !parts.read_buf.is_empty() {
        return Err(NoConnection::Parent);
    }
    Ok(parts.io.into_inner())
}

/// Builds the CONNECT to `origin`. Its target always includes a port (RFC 9112, section
/// 3.2.3).
fn connect_request(
    origin: &Origin,
    credentials: Option<&Credentials>,
) -> Option<Request<Empty<Bytes>>> {
    let authority = format!("{}:{}", origin.host(), origin.port());
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = authority.parse::<Uri>().ok()?;
    let host = HeaderValue::try_from(authority).ok()?;
    request.headers_mut().append(HOST, host);
    authorize(request.headers_mut(), credentials);
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin_of(text: &str) -> Option<String> {
        let parent = text.parse::<Parent>().ok()?;
        Some(parent.0.to_string())
    }

    // Ours: `upstream.parent` (docs/reference/keys.md).
    #[test]
    fn a_parent_is_an_http_url_without_a_path() {
        let proxy = Some("http://proxy.example:3128".to_owned());
        assert_eq!(origin_of("http://Proxy.example:3128"), proxy);
        assert_eq!(origin_of("http://proxy.example:3128/"), proxy);
        assert_eq!(
            origin_of("http://[::1]:8080"),
            Some("http://[::1]:8080".to_owned())
        );
        for text in [
            "",
            "proxy.example:3128",
            "https://proxy.example:3128",
            "socks5://proxy.example",
            "http://u:p@proxy.example",
            "http://proxy.example/x",
            "http://",
        ] {
            assert_eq!(origin_of(text), None, "{text}");
        }
    }

    // RFC 7617, section 2, with its example.
    #[test]
    fn credentials_use_basic_and_are_marked_sensitive() {
        let Credentials(value) = Credentials::from(&UserPassword {
            user: "Aladdin".to_owned(),
            password: "open sesame".to_owned(),
        });
        assert_eq!(value, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(value.is_sensitive());
    }

    // RFC 9209, section 2.1.1; Squid's own field.
    #[test]
    fn a_proxy_on_the_way_can_mark_an_error_as_its_own() {
        let made = |status: u16, name: &'static str, value| {
            let fields = [(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )];
            let status = StatusCode::from_u16(status).unwrap();
            is_made_on_the_way(status, &HeaderMap::from_iter(fields))
        };
        assert!(made(403, "proxy-status", "p; error=http_request_denied"));
        assert!(made(404, "proxy-status", "a, b; Error=dns_error"));
        assert!(made(403, "x-squid-error", "ERR_ACCESS_DENIED 0"));
        assert!(!made(404, "proxy-status", "cache; received-status=404"));
        assert!(!made(404, "server", "squid"));
        assert!(!made(200, "proxy-status", "p; error=dns_error"));
    }
}
