//! Format of the API: its query parameters, such as the number of rows and the host,
//! and its JSON responses.
//!
//! Does not know the pages.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use thiserror::Error;

use politesse_record::AuditError;
use politesse_robots::origin::Host;

/// OpenAPI document of the API. `tests/it/openapi.rs` keeps it in step with the routes
/// and their responses.
const DOCUMENT: &str = include_str!("openapi.json");

/// Default of the parameter `limit`: rows in a response.
pub const ROWS_SHOWN: usize = 1000;

/// Query of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiQuery {
    /// Maximum number of rows shown.
    pub(super) limit: usize,
    /// The only host to show, spelled as on the pages.
    pub(super) host: Option<String>,
}

/// Reason to answer a query with 400.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum InvalidQuery {
    /// `limit` is not a number.
    #[error("limit is a whole number; 0 means all")]
    Limit,
    /// `host` is not a host.
    #[error("host is a name or an address, without a port")]
    Host,
    /// A parameter is unknown, has no value, or occurs twice.
    #[error("{0} can be asked for, once")]
    Unknown(String),
}

/// Returns the OpenAPI document.
pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// Makes a response with `page` as JSON.
pub(super) fn json(page: &impl Serialize) -> Response {
    match serde_json::to_vec(page) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Makes the response for a record that cannot be written.
pub(super) fn unavailable(error: &AuditError) -> Response {
    let text = format!("{}\n", error_text(error));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Writes an error of the record with its cause.
pub(super) fn error_text(error: &AuditError) -> String {
    // The cause names the file or the limit, which the operator can fix.
    let cause = std::error::Error::source(error);
    let because = cause.map_or(String::new(), |cause| format!(": {cause}"));
    format!("{error}{because}")
}

impl ApiQuery {
    /// Reads the part of a target after `?`, which may contain the parameters in
    /// `known`.
    pub(super) fn parse(query: &str, known: &[&str]) -> Result<Self, InvalidQuery> {
        let (mut limit, mut host) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let parameter = pair
                .split_once('=')
                .filter(|(name, _)| known.contains(name));
            match parameter {
                Some(("limit", value)) if limit.is_none() => limit = Some(number(value)?),
                Some(("host", value)) if host.is_none() => host = Some(normal(value)?),
                _ => return Err(InvalidQuery::Unknown(known.join(" and "))),
            }
        }
        Ok(Self {
            limit: limit.unwrap_or(ROWS_SHOWN),
            host,
        })
    }
}

/// Reads a limit; 0 means all.
fn number(value: &str) -> Result<usize, InvalidQuery> {
    match value.parse() {
        Ok(0) => Ok(usize::MAX),
        Ok(limit) => Ok(limit),
        Err(_) => Err(InvalidQuery::Limit),
    }
}

/// Reads a host and spells it as the pages do: in lower case, without a final dot, an
/// IPv6 address in brackets.
fn normal(value: &str) -> Result<String, InvalidQuery> {
    // Clients escape only three of the bytes of a host in a query (RFC 3986, section
    // 2.2), so no general decoder is needed.
    let text = value
        .to_ascii_lowercase()
        .replace("%3a", ":")
        .replace("%5b", "[")
        .replace("%5d", "]");
    host(&text).map(|host| host.to_string())
}

/// Reads a host; an IPv6 address may have brackets or not.
pub(super) fn host(text: &str) -> Result<Host, InvalidQuery> {
    text.parse::<Host>()
        .or_else(|_| format!("[{text}]").parse())
        .map_err(|_| InvalidQuery::Host)
}

/// Returns the first value of `name` in a query or a form, with its escapes decoded.
pub(super) fn query_value(query: &str, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

/// Decodes the escapes in a query value (RFC 3986, section 2.1). Returns `None` if an
/// escape is malformed or the value is not UTF-8.
pub(super) fn unescape(value: &str) -> Option<String> {
    let mut parts = value.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter_query::{EFFECTS, VERDICTS};
    use politesse_decision::decide::Reason;

    fn query(limit: usize, host: Option<&str>) -> Result<ApiQuery, InvalidQuery> {
        let host = host.map(str::to_owned);
        Ok(ApiQuery { limit, host })
    }

    fn unknown() -> Result<ApiQuery, InvalidQuery> {
        Err(InvalidQuery::Unknown("limit and host".to_owned()))
    }

    // Ours.
    #[test]
    fn a_query_has_a_limit_and_a_host() {
        for (text, expected) in [
            ("", query(1000, None)),
            ("&", query(1000, None)),
            ("limit=7", query(7, None)),
            ("limit=0", query(usize::MAX, None)),
            ("host=O.Test.", query(1000, Some("o.test"))),
            ("host=%5B::1%5d&limit=2", query(2, Some("[::1]"))),
            ("host=%3a%3A1", query(1000, Some("[::1]"))),
            ("host=10.0.0.1", query(1000, Some("10.0.0.1"))),
            ("limit=x", Err(InvalidQuery::Limit)),
            ("limit=-1", Err(InvalidQuery::Limit)),
            ("host=", Err(InvalidQuery::Host)),
            ("host=o.test:80", Err(InvalidQuery::Host)),
            ("hosts=o.test", unknown()),
            ("limit", unknown()),
            ("limit=1&limit=2", unknown()),
        ] {
            assert_eq!(
                ApiQuery::parse(text, &["limit", "host"]),
                expected,
                "{text}"
            );
        }
    }

    // Ours: programs generated from the document must know every word.
    #[test]
    fn the_document_has_the_words_of_the_record() {
        let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
        let words = |name: &str| document["components"]["schemas"][name]["enum"].clone();
        let reasons = Reason::ALL.map(Reason::as_str);
        assert_eq!(words("Reason"), serde_json::json!(reasons));
        assert_eq!(words("Verdict"), serde_json::json!(VERDICTS));
        assert_eq!(words("Effect"), serde_json::json!(EFFECTS));
    }

    #[test]
    fn a_page_refuses_parameters_of_other_pages() {
        let wrong = ApiQuery::parse("host=o.test", &["limit"]).unwrap_err();
        assert_eq!(wrong.to_string(), "limit can be asked for, once");
    }
}
