//! Our own answers: one fact in three kinds of body, with `Proxy-Status`.
//!
//! RFC 9457 (problem details), RFC 9209 (Proxy-Status), RFC 9110 section 12.5.1
//! (Accept). An HTML answer is rendered in the origin's own origin, so nothing in
//! it may run. `page.rs` has the kinds that people read.

mod page;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, DATE,
    RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use jiff::Timestamp;
use serde_json::{Map, Value};
use sfv::{ItemSerializer, KeyRef, StringRef, TokenRef};

use self::page::ErrorPage;
use super::body::ProxyBody;
use super::fields::PROXY_STATUS;

/// `details` are for people; a long URL must not make a field nobody takes.
const DETAILS_BYTES_MAX: usize = 1024;

/// A problem as told to a crawler.
#[derive(Debug)]
pub struct ProblemDetails {
    /// The status.
    pub status: StatusCode,
    /// The error type of RFC 9209, section 2.3.
    pub error: &'static str,
    /// What kind of problem: the last part of `urn:politesse:…`.
    pub kind: &'static str,
    /// The kind in words.
    pub title: &'static str,
    /// This case in one sentence.
    pub detail: String,
    /// Seconds after which to ask again.
    pub retry_after: Option<u64>,
    /// Whether the connection must not be used again.
    pub close: Close,
    /// What else there is to tell, by name.
    pub members: Map<String, Value>,
}

/// Who gives an answer.
#[derive(Debug, Clone, Copy)]
pub struct ProxyIdentity<'a> {
    /// The proxy's name in `Proxy-Status` (`proxy.name`).
    pub name: &'a str,
    /// Whom people can ask (`proxy.contact`).
    pub contact: Option<&'a str>,
}

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// It stays.
    No,
    /// It is closed: what follows on it cannot be told.
    Yes,
}

/// The kinds of body, in order of preference among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Html,
    Text,
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Json, "application/problem+json"),
    (Kind::Html, "text/html"),
    (Kind::Text, "text/plain"),
];

impl ProblemDetails {
    /// The response, in the kind that `asked` prefers.
    pub fn response(
        &self,
        asked: &HeaderMap,
        speaker: &ProxyIdentity<'_>,
        now: Timestamp,
    ) -> Response<ProxyBody> {
        let (kind, media_type) = preferred(asked);
        let page = ErrorPage {
            answer: self,
            contact: speaker.contact,
            now,
        };
        let body = match kind {
            Kind::Json => self.json(),
            Kind::Html => page.html(),
            Kind::Text => page.text(),
        };
        let mut response = Response::new(ProxyBody::whole(body));
        *response.status_mut() = self.status;
        let fields = response.headers_mut();
        let charset = if kind == Kind::Json {
            ""
        } else {
            "; charset=utf-8"
        };
        put(fields, CONTENT_TYPE, &format!("{media_type}{charset}"));
        put(fields, CACHE_CONTROL, "no-store");
        put(fields, DATE, &http_date(now));
        put(
            fields,
            PROXY_STATUS,
            &status_member(speaker.name, Some(self.error), &self.detail),
        );
        put(
            fields,
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'",
        );
        put(fields, X_CONTENT_TYPE_OPTIONS, "nosniff");
        if let Some(seconds) = self.retry_after {
            put(fields, RETRY_AFTER, &seconds.to_string());
        }
        if self.close == Close::Yes {
            put(fields, CONNECTION, "close");
        }
        response
    }

    fn json(&self) -> String {
        let mut object = Map::new();
        object.insert("type".into(), format!("urn:politesse:{}", self.kind).into());
        object.insert("title".into(), self.title.into());
        object.insert("status".into(), self.status.as_u16().into());
        object.insert("detail".into(), self.detail.as_str().into());
        object.extend(self.members.clone());
        format!("{}\n", Value::Object(object))
    }
}

/// A member of `Proxy-Status` that `name` adds (RFC 9209, section 2), with an
/// error type if one ended the exchange.
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

/// Sets a field; a value that cannot stand in one is left out.
fn put(fields: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(name, value);
    }
}

/// IMF-fixdate (RFC 9110, section 5.6.7).
pub fn http_date(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// `text` as a structured field's string can hold it: ASCII, other bytes
/// percent-encoded, within the limit.
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

/// The `Accept` of a request: all that an answer needs to know of it.
pub fn accepted(asked: &HeaderMap) -> HeaderMap {
    let values = asked.get_all(ACCEPT).iter();
    values.map(|value| (ACCEPT, value.clone())).collect()
}

/// The kind with the highest weight in `Accept`; the first of equals.
fn preferred(asked: &HeaderMap) -> (Kind, &'static str) {
    let ranges: Vec<(String, f32)> = asked
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(range)
        .collect();
    let mut best = (KINDS[0], if ranges.is_empty() { 1.0 } else { 0.0 });
    for kind in KINDS {
        let weight = weight(&ranges, kind.1);
        if weight > best.1 {
            best = (kind, weight);
        }
    }
    best.0
}

/// `type/subtype;q=0.5` as its range and weight.
fn range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts
        .find_map(|parameter| {
            parameter
                .strip_prefix("q=")
                .or_else(|| parameter.strip_prefix("Q="))
        })
        .map_or(1.0, |value| value.parse().unwrap_or(0.0));
    (range, weight)
}

/// The weight of the most specific range that holds `media_type`.
fn weight(ranges: &[(String, f32)], media_type: &str) -> f32 {
    let top = media_type.split('/').next().unwrap_or_default();
    let candidates = [media_type.to_owned(), format!("{top}/*"), "*/*".to_owned()];
    candidates
        .iter()
        .find_map(|candidate| ranges.iter().find(|(range, _)| range == candidate))
        .map_or(0.0, |(_, weight)| *weight)
}

/// An answer to HEAD: the fields, no content (RFC 9110, section 9.3.2). hyper
/// leaves it out of HTTP/1.1 alone.
pub fn without_content(answer: Response<ProxyBody>) -> Response<ProxyBody> {
    let bytes = answer.body().size_hint().exact().unwrap_or_default();
    let mut answer = answer.map(|_| ProxyBody::whole(Bytes::new()));
    answer.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(accept: &str) -> Kind {
        let mut fields = HeaderMap::new();
        put(&mut fields, ACCEPT, accept);
        preferred(&fields).0
    }

    // RFC 9110, section 12.5.1; the default is ours.
    #[test]
    fn the_body_is_of_the_kind_that_accept_prefers() {
        assert_eq!(preferred(&HeaderMap::new()).0, Kind::Json);
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
