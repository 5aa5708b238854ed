//! /robots.txt answered from our copy: the crawler asks for what we have just
//! read on its behalf.
//!
//! RFC 9111, section 5.1: `Age` tells that it comes from a cache.

use bytes::Bytes;
use http::header::{AGE, CONTENT_LENGTH, CONTENT_TYPE, DATE};
use http::{HeaderValue, Method, Response};
use jiff::Timestamp;

use super::answer::http_date;
use super::body::ProxyBody;
use crate::decision::access::{RobotsFile, Snapshot};

/// The response to `method` at `now`, with the body of `copy`.
pub fn response(
    snapshot: &Snapshot,
    copy: &RobotsFile,
    (method, now): (&Method, Timestamp),
) -> Response<ProxyBody> {
    let bytes = match *method {
        Method::HEAD => Bytes::new(),
        _ => copy.body.clone(),
    };
    let mut response = Response::new(ProxyBody::whole(bytes));
    let fields = response.headers_mut();
    let media_type = copy.content_type.as_deref().unwrap_or("text/plain");
    if let Ok(media_type) = HeaderValue::from_str(media_type) {
        fields.insert(CONTENT_TYPE, media_type);
    }
    if let Ok(date) = HeaderValue::from_str(&http_date(now)) {
        fields.insert(DATE, date);
    }
    fields.insert(CONTENT_LENGTH, copy.body.len().into());
    let age = now.duration_since(snapshot.fetched_at).as_secs().max(0);
    fields.insert(AGE, age.into());
    response
}
