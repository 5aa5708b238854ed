//! Message heads: writes those of requests, and checks those of responses.
//!
//! Invariant 1 (ARCHITECTURE.md): the URL and `Host` come from the permit's target,
//! regardless of the request. Framing fields are never copied: hyper writes its own. Does
//! not know connections.

use std::mem;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{
    Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use hyper::body::Body;

use super::parent::{Credentials, authorize};
use super::upload::Upload;
use crate::error::UpstreamError;
use politesse_robots::origin::Target;

/// Size limit for the fields of a response, names and values together, in bytes.
pub(super) const FIELDS_BYTES_MAX: usize = 256 * 1024;

/// Fields that only concern a single HTTP/1.1 connection and are malformed in HTTP/2 (RFC
/// 9113, section 8.2.2).
const CONNECTION_FIELDS: [HeaderName; 5] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Form of the target in a request line (RFC 9112, section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// The permit's URL.
    Url,
    /// `*`, for an OPTIONS about a whole server under a permit for its `/`.
    Asterisk,
}

/// Head of a request as the crawler sent it, except for its URL.
#[derive(Debug, Clone)]
pub struct OutgoingHead {
    /// Method.
    pub method: Method,
    /// End-to-end fields in order. `Host` keeps its position but not its value; framing
    /// fields are not copied.
    pub headers: HeaderMap,
    /// Form of the target.
    pub form: TargetForm,
    /// Path and query as received. If they equal those of the permit, they are sent
    /// without copying and parsing them again.
    pub path: Option<PathAndQuery>,
    /// Extensions of hyper's request, which store the case of its field names.
    pub extensions: Extensions,
}

/// Builds an HTTP/1.1 request from `head` for `target`.
///
/// Moves the fields out of `head` and leaves a copy there: hyper reads the response into
/// the map that it has sent, and a copy has no spare capacity for additional fields.
pub(super) fn http1_request(
    target: &Target,
    head: &mut OutgoingHead,
    body: Upload,
) -> Result<Request<Upload>, UpstreamError> {
    let written = written(target, head);
    // `http` stores a missing path as an empty one but compares it as `/`.
    let is_received = |path: &&PathAndQuery| written != "/" && **path == written;
    let received = head.path.as_ref().filter(is_received);
    let uri = match received {
        Some(path) => Uri::from(path.clone()),
        None => written.parse().map_err(|_| UpstreamError::Target)?,
    };
    let mut fields = unframed(&mut head.headers);
    let host = fields.get(HOST).map(HeaderValue::as_bytes);
    if !host.is_some_and(|host| target.origin.is_authority(host)) {
        let authority = HeaderValue::try_from(target.origin.authority());
        // `insert` keeps the position of the received field.
        fields.insert(HOST, authority.map_err(|_| UpstreamError::Target)?);
    }
    // An origin that answers without reading the body would take the body for its next
    // request, which has no decision (docs/decisions/005-hyper-and-a-pool.md).
    if !body.is_end_stream() {
        fields.append(CONNECTION, HeaderValue::from_static("close"));
    }
    if needs_chunks(&head.method, &body) {
        fields.append(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    } else if needs_length(&head.method, &body) {
        fields.append(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let mut request = request(head, uri, body);
    *request.headers_mut() = fields;
    Ok(request)
}

/// Builds an HTTP/2 request from `head` for `target`, with `:authority` and without
/// `Host` (RFC 9113, section 8.3.1).
pub(super) fn http2_request(
    target: &Target,
    head: &OutgoingHead,
    body: Upload,
) -> Result<Request<Upload>, UpstreamError> {
    let uri = Uri::builder()
        .scheme(target.origin.scheme().as_str())
        .authority(target.origin.authority())
        .path_and_query(written(target, head))
        .build()
        .map_err(|_| UpstreamError::Target)?;
    let mut fields = HeaderMap::with_capacity(head.headers.len());
    for (name, value) in &head.headers {
        // `trailers` is the only value allowed in HTTP/2 (RFC 9113, section 8.2.2).
        let passes = if name == TE {
            value.as_bytes().eq_ignore_ascii_case(b"trailers")
        } else {
            *name != HOST && !is_framing(name) && !CONNECTION_FIELDS.contains(name)
        };
        if passes {
            fields.append(name, value.clone());
        }
    }
    let mut request = request(head, uri, body);
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = fields;
    Ok(request)
}

/// Turns a request into one to a proxy: its target becomes the absolute URL (RFC 9112,
/// section 3.2.2), and our credentials are added. The crawler's own credentials were
/// removed earlier.
pub(super) fn to_parent(
    mut request: Request<Upload>,
    target: &Target,
    credentials: Option<&Credentials>,
) -> Result<Request<Upload>, UpstreamError> {
    let uri = target.to_string().parse::<Uri>();
    *request.uri_mut() = uri.map_err(|_| UpstreamError::Target)?;
    authorize(request.headers_mut(), credentials);
    Ok(request)
}

/// Returns the path and query for the request line.
fn written<'a>(target: &'a Target, head: &OutgoingHead) -> &'a str {
    let path = target.path_and_query();
    let is_for_server = head.form == TargetForm::Asterisk && head.method == Method::OPTIONS;
    if is_for_server && path == "/" {
        "*"
    } else {
        path
    }
}

fn request(head: &OutgoingHead, uri: Uri, body: Upload) -> Request<Upload> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    *request.extensions_mut() = head.extensions.clone();
    request
}

/// Returns the fields without those that frame the message. `fields` itself keeps all of
/// them.
fn unframed(fields: &mut HeaderMap) -> HeaderMap {
    if !fields.keys().any(is_framing) {
        let copy = fields.clone();
        return mem::replace(fields, copy);
    }
    // A new map in the same order. `HeaderMap::remove` would change the order, because it
    // moves the last field into the gap.
    let copied = fields.iter().filter(|(name, _)| !is_framing(name));
    copied
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Reports whether hyper writes this field itself, so that it must not be copied.
fn is_framing(name: &HeaderName) -> bool {
    matches!(*name, CONTENT_LENGTH | TRANSFER_ENCODING)
}

/// Reports whether hyper needs an explicit transfer coding: with these methods, it drops
/// a body of unknown length.
fn needs_chunks(method: &Method, body: &Upload) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
}

/// Reports whether `Content-Length: 0` must be added: the methods define a meaning for a
/// body, and hyper omits the field (RFC 9110, section 8.6).
fn needs_length(method: &Method, body: &Upload) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH) && body.is_end_stream()
}

/// Refuses a response head that could be read in two ways, or that no forwarded request
/// can have asked for.
///
/// hyper resolves ambiguous framing in one way; other readers of the connection may
/// resolve it differently (RFC 9112, sections 6.1 and 6.3).
pub(super) fn check_response<B>(response: &Response<B>) -> Result<(), UpstreamError> {
    let fields = response.headers();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(UpstreamError::UnaskedUpgrade);
    }
    let bytes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    // hyper has the same limit, but a single read can exceed the intended size of its
    // buffer.
    if FIELDS_BYTES_MAX < bytes.sum::<usize>() {
        return Err(UpstreamError::ResponseHeaderSize);
    }
    check_coding(fields)?;
    check_length(fields)
}

fn check_coding(fields: &HeaderMap) -> Result<(), UpstreamError> {
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(_), None) if fields.contains_key(CONTENT_LENGTH) => {
            Err(UpstreamError::AmbiguousFraming)
        }
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(_), _) => Err(UpstreamError::ResponseCoding),
    }
}

fn check_length(fields: &HeaderMap) -> Result<(), UpstreamError> {
    let mut lengths = fields
        .get_all(CONTENT_LENGTH)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii);
    let Some(first) = lengths.next() else {
        return Ok(());
    };
    // Equal lengths count as one (RFC 9110, section 8.6). hyper replaces them with a
    // single field.
    if lengths.all(|length| length == first) {
        Ok(())
    } else {
        Err(UpstreamError::AmbiguousFraming)
    }
}
