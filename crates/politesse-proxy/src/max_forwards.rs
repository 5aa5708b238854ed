//! `Max-Forwards`: the number of proxies that a TRACE or OPTIONS may still pass (RFC
//! 9110, section 7.6.2).
//!
//! A request with 0 is answered by this proxy, without a decision and therefore without a
//! row. For other methods the field has no meaning and is forwarded unchanged.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, MAX_FORWARDS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use hyper::body::Body as HttpBody;

use super::answer::{http_date, put, status_member};
use super::body::ProxyBody;
use super::fields::PROXY_STATUS;
use super::problem::MalformedRequest;
use politesse_base::clock;

/// Substrings of field names that suggest a secret. TRACE does not echo such fields (RFC
/// 9110, section 9.3.8).
const SECRETS: [&str; 8] = [
    "auth",
    "cookie",
    "credential",
    "key",
    "pass",
    "secret",
    "session",
    "token",
];

/// Returns the proxy's answer to `request` if it may not be forwarded. `name` is the
/// proxy's name in `Proxy-Status`.
///
/// # Errors
///
/// [`MalformedRequest::MaxForwards`].
pub fn answer<B: HttpBody>(
    request: &Request<B>,
    name: &str,
) -> Result<Option<Response<ProxyBody>>, MalformedRequest> {
    if left(request.method(), request.headers())? != Some(0) {
        return Ok(None);
    }
    let mut response = match *request.method() {
        Method::TRACE => traced(request),
        _ => Response::new(ProxyBody::whole("")),
    };
    let length = HttpBody::size_hint(response.body()).exact();
    let fields = response.headers_mut();
    fields.insert(CONTENT_LENGTH, length.unwrap_or_default().into());
    put(fields, DATE, &http_date(clock::now()));
    put(fields, CACHE_CONTROL, "no-store");
    let status = status_member(name, None, "answered here: Max-Forwards is 0");
    put(fields, PROXY_STATUS, &status);
    // The body is not read, so the start of a following request would be unknown.
    if !request.body().is_end_stream() {
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(Some(response))
}

/// Decrements the remaining hops of a request that is forwarded.
///
/// # Errors
///
/// [`MalformedRequest::MaxForwards`].
pub fn take_one(method: &Method, fields: &mut HeaderMap) -> Result<(), MalformedRequest> {
    if let Some(hops) = left(method, fields)? {
        // `insert` keeps the field's position.
        fields.insert(MAX_FORWARDS, hops.saturating_sub(1).into());
    }
    Ok(())
}

/// Returns the remaining hops; `None` if the request is not limited.
fn left(method: &Method, fields: &HeaderMap) -> Result<Option<u64>, MalformedRequest> {
    if *method != Method::TRACE && *method != Method::OPTIONS {
        return Ok(None);
    }
    let mut values = fields.get_all(MAX_FORWARDS).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let digits = value.to_str().unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || values.next().is_some() {
        return Err(MalformedRequest::MaxForwards);
    }
    // A number that does not fit is as good as no limit.
    Ok(Some(digits.parse().unwrap_or(u64::MAX)))
}

/// Returns the answer to TRACE: the request as received, without fields that may hold
/// secrets.
fn traced<B>(request: &Request<B>) -> Response<ProxyBody> {
    let (method, uri) = (request.method(), request.uri());
    let mut message = format!("{method} {uri} {:?}\r\n", request.version()).into_bytes();
    // Substrings are compared, because `X-Api-Key` and similar fields are not registered.
    // Omitting too much does no harm.
    let is_secret = |name: &HeaderName| SECRETS.iter().any(|part| name.as_str().contains(part));
    let fields = request.headers().iter();
    for (name, value) in fields.filter(|(name, _)| !is_secret(name)) {
        message.extend_from_slice(name.as_str().as_bytes());
        message.extend_from_slice(b": ");
        message.extend_from_slice(value.as_bytes());
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(b"\r\n");
    let mut response = Response::new(ProxyBody::whole(Bytes::from(message)));
    let media_type = HeaderValue::from_static("message/http");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(method: &Method, values: &[&'static str]) -> Option<Option<u64>> {
        let value = |value: &&'static str| (MAX_FORWARDS, HeaderValue::from_static(value));
        let fields: HeaderMap = values.iter().map(value).collect();
        left(method, &fields).ok()
    }

    // RFC 9110, section 7.6.2: 1*DIGIT, for TRACE and OPTIONS.
    #[test]
    fn max_forwards_applies_to_trace_and_options_and_only_digits_are_valid() {
        for (values, expected) in [
            (&[][..], Some(None)),
            (&["0"], Some(Some(0))),
            (&["007"], Some(Some(7))),
            (&["99999999999999999999999"], Some(Some(u64::MAX))),
            (&["-1"], None),
            (&["+1"], None),
            (&["1, 2"], None),
            (&[""], None),
            (&["1", "1"], None),
        ] {
            assert_eq!(hops(&Method::TRACE, values), expected, "{values:?}");
            assert_eq!(hops(&Method::OPTIONS, values), expected, "{values:?}");
            assert_eq!(hops(&Method::GET, values), Some(None), "{values:?}");
        }
    }
}
