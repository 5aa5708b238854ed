//! Responses of our own: answers to problems, in the media type that the client
//! prefers, and `/robots.txt` from the cache.
//!
//! RFC 9110, section 12.5.1 (`Accept`); RFC 9209 (`Proxy-Status`). A page is
//! rendered in the origin's own origin, so nothing in it may run.

use bytes::Bytes;
use http::header::{
    ACCEPT, AGE, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    DATE, PROXY_AUTHENTICATE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body as HttpBody;
use jiff::Timestamp;
use sfv::{ItemSerializer, KeyRef, StringRef, TokenRef};

use super::body::ProxyBody;
use super::error_page::ErrorPage;
use super::fields::PROXY_STATUS;
use super::problem_details::ProblemDetails;
use politesse_decision::snapshot::{RobotsFile, Snapshot};

/// Bytes of `details` in `Proxy-Status`. It is for people, and some clients
/// reject responses with long fields.
const DETAILS_BYTES_MAX: usize = 1024;

/// The ways to send a credential (RFC 9110, section 11.7.1), a field each: some
/// clients do not look for a second one behind a comma.
const CHALLENGES: [HeaderValue; 2] = [
    // Basic comes first: clients that know a user name and a password send them so.
    HeaderValue::from_static("Basic realm=\"politesse\""),
    HeaderValue::from_static("Bearer"),
];

/// Name and contact that the proxy puts into its answers.
#[derive(Debug, Clone, Copy)]
pub struct ProxyIdentity<'a> {
    /// Name in `Proxy-Status` (`proxy.name`).
    pub name: &'a str,
    /// Contact for questions (`proxy.contact`).
    pub contact: Option<&'a str>,
}

/// Properties of a request that the form of our answer to it depends on.
#[derive(Debug)]
pub struct AnswerForm {
    accept: Vec<HeaderValue>,
    is_head: bool,
    has_body: bool,
}

/// Media type of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Html,
    Text,
}

/// Media types by our preference, which decides among those of equal weight.
const KINDS: [(Kind, &str); 3] = [
    (Kind::Json, "application/problem+json"),
    (Kind::Html, "text/html"),
    (Kind::Text, "text/plain"),
];

impl AnswerForm {
    /// Reads the properties of `request`.
    pub fn of<B: HttpBody>(request: &Request<B>) -> Self {
        Self {
            accept: request.headers().get_all(ACCEPT).iter().cloned().collect(),
            is_head: *request.method() == Method::HEAD,
            has_body: !request.body().is_end_stream(),
        }
    }

    /// Returns the answer with these facts, given at `now`.
    pub fn answer(
        &self,
        details: &ProblemDetails,
        proxy: &ProxyIdentity<'_>,
        now: Timestamp,
    ) -> Response<ProxyBody> {
        let (kind, media_type) = preferred(&self.accept);
        let page = ErrorPage {
            details,
            contact: proxy.contact,
            now,
        };
        let (body, charset) = match kind {
            Kind::Json => (details.json(), ""),
            Kind::Html => (page.html(), "; charset=utf-8"),
            Kind::Text => (page.text(), "; charset=utf-8"),
        };
        let bytes = body.len();
        // HEAD is answered without content (RFC 9110, section 9.3.2), which
        // hyper leaves out of HTTP/1.1 alone.
        let content = if self.is_head {
            Bytes::new()
        } else {
            body.into()
        };
        let mut response = Response::new(ProxyBody::whole(content));
        *response.status_mut() = details.status;
        let fields = response.headers_mut();
        put(fields, CONTENT_TYPE, &format!("{media_type}{charset}"));
        // A refusal ends with the next robots.txt, and must not outlive it in
        // some cache.
        put(fields, CACHE_CONTROL, "no-store");
        put(fields, DATE, &http_date(now));
        let status = status_member(proxy.name, Some(details.error), &details.detail);
        put(fields, PROXY_STATUS, &status);
        // The page is shown as one of the origin: a script or link in it would
        // run in the name of that site.
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        put(fields, CONTENT_SECURITY_POLICY, policy);
        put(fields, X_CONTENT_TYPE_OPTIONS, "nosniff");
        if details.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            for challenge in CHALLENGES {
                fields.append(PROXY_AUTHENTICATE, challenge);
            }
        }
        if let Some(seconds) = details.retry_after {
            put(fields, RETRY_AFTER, &seconds.to_string());
        }
        // A refused upload was not read, so where the next request begins is
        // not known.
        if details.close || self.has_body {
            put(fields, CONNECTION, "close");
        }
        if self.is_head {
            fields.insert(CONTENT_LENGTH, bytes.into());
        }
        response
    }
}

/// Returns the answer with these facts as it is written to an HTTP/1 connection.
pub fn as_written(details: &ProblemDetails, name: &str, now: Timestamp) -> String {
    let body = details.json();
    let status = status_member(name, Some(details.error), &details.detail);
    let retry_after = details.retry_after.map_or(String::new(), |seconds| {
        format!("Retry-After: {seconds}\r\n")
    });
    format!(
        "HTTP/1.1 {}\r\n\
         Content-Type: application/problem+json\r\n\
         Content-Length: {}\r\n\
         Cache-Control: no-store\r\n\
         Connection: close\r\n\
         Date: {}\r\n\
         Proxy-Status: {status}\r\n\
         {retry_after}\
         \r\n\
         {body}",
        details.status,
        body.len(),
        http_date(now),
    )
}

/// Returns the answer to a request of `method` for the robots.txt that
/// `snapshot` has a copy of. `Age` says that it comes from a cache (RFC 9111,
/// section 5.1).
pub fn robots_txt(
    snapshot: &Snapshot,
    file: &RobotsFile,
    method: &Method,
    now: Timestamp,
) -> Response<ProxyBody> {
    let content = match *method {
        Method::HEAD => Bytes::new(),
        _ => file.body.clone(),
    };
    let mut response = Response::new(ProxyBody::whole(content));
    let fields = response.headers_mut();
    let media_type = file.content_type.as_deref().unwrap_or("text/plain");
    put(fields, CONTENT_TYPE, media_type);
    put(fields, DATE, &http_date(now));
    fields.insert(CONTENT_LENGTH, file.body.len().into());
    let age = now.duration_since(snapshot.fetched_at).as_secs().max(0);
    fields.insert(AGE, age.into());
    response
}

/// Returns a member of `Proxy-Status` that `name` adds (RFC 9209, section 2),
/// with an error type if one ended the exchange.
pub fn status_member(name: &str, error: Option<&str>, details: &str) -> String {
    let details = printable(details);
    let serializer = ItemSerializer::new();
    let mut item = match (TokenRef::from_str(name), StringRef::from_str(name)) {
        (Ok(token), _) => serializer.bare_item(token),
        (_, Ok(string)) => serializer.bare_item(string),
        (Err(_), Err(_)) => serializer.bare_item(TokenRef::constant("politesse")),
    };
    if let Some(Ok(error)) = error.map(TokenRef::from_str) {
        item = item.parameter(KeyRef::constant("error"), error);
    }
    if let Ok(details) = StringRef::from_str(&details) {
        item = item.parameter(KeyRef::constant("details"), details);
    }
    item.finish()
}

/// Sets a field, unless the value cannot stand in one.
pub(super) fn put(fields: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(name, value);
    }
}

/// Formats a time as IMF-fixdate (RFC 9110, section 5.6.7).
pub fn http_date(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Makes `text` fit into a structured field's string: bytes that are not
/// printable ASCII are percent-encoded, and the rest is cut off.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for byte in text.bytes() {
        if printable.len() + 3 > DETAILS_BYTES_MAX {
            break;
        }
        match byte {
            b' '..=b'~' => printable.push(char::from(byte)),
            _ => printable.push_str(&format!("%{byte:02X}")),
        }
    }
    printable
}

/// Returns the kind with the highest weight in `Accept`; the first of equals.
fn preferred(accept: &[HeaderValue]) -> (Kind, &'static str) {
    let ranges: Vec<(String, f32)> = accept
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(range)
        .collect();
    // JSON where nothing is asked for: crawlers are programs.
    let mut best = (KINDS[0], if ranges.is_empty() { 1.0 } else { 0.0 });
    for kind in KINDS {
        let weight = weight(&ranges, kind.1);
        if weight > best.1 {
            best = (kind, weight);
        }
    }
    best.0
}

/// Splits `type/subtype;q=0.5` into its range and its weight.
fn range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts
        .find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")))
        .map_or(1.0, |value| value.parse().unwrap_or(0.0));
    (range, weight)
}

/// Returns the weight of the most specific range that holds `media_type`.
fn weight(ranges: &[(String, f32)], media_type: &str) -> f32 {
    let top = media_type.split('/').next().unwrap_or_default();
    let candidates = [media_type.to_owned(), format!("{top}/*"), "*/*".to_owned()];
    candidates
        .iter()
        .find_map(|candidate| ranges.iter().find(|(range, _)| range == candidate))
        .map_or(0.0, |(_, weight)| *weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(accept: &'static str) -> Kind {
        preferred(&[HeaderValue::from_static(accept)]).0
    }

    // RFC 9110, section 12.5.1; the default is ours.
    #[test]
    fn the_body_is_of_the_kind_that_accept_prefers() {
        assert_eq!(preferred(&[]).0, Kind::Json);
        for (accept, wanted) in [
            ("*/*", Kind::Json),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                Kind::Html,
            ),
            ("text/plain", Kind::Text),
            ("text/*;q=0.5, text/plain;q=0.4", Kind::Html),
            (
                "application/problem+json;q=0.1, text/plain;q=0.2",
                Kind::Text,
            ),
            ("image/png", Kind::Json),
        ] {
            assert_eq!(kind(accept), wanted, "{accept}");
        }
    }

    // RFC 9651, section 3.3.3: a string holds ASCII alone.
    #[test]
    fn details_hold_ascii_and_have_a_longest() {
        assert_eq!(printable("é\n\"x"), "%C3%A9%0A\"x");
        assert!(printable(&"é".repeat(5000)).len() <= DETAILS_BYTES_MAX);
    }
}
