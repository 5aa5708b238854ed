//! A page that is asked about: the annotation that the proxy would give it if it
//! came whole and in time.

use std::io::{self, BufRead};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use thiserror::Error;

use crate::config::Settings;
use politesse_directives::{Annotation, Limits, Page, Reading, Response, Why};
use politesse_robots::crawler::{Crawler, ProductToken};

/// Who asks about which response.
pub(super) struct Asked<'a> {
    pub(super) crawler: &'a Crawler,
    pub(super) method: Method,
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    pub(super) now: Timestamp,
    pub(super) bounds: Bounds,
}

/// There are more fields than can be held, by far more than a message may have.
#[derive(Debug, Error)]
#[error("there are too many fields")]
pub(super) struct TooManyFields;

/// The fields of a response, its type first: one of several types that is HTML is enough.
///
/// # Errors
///
/// [`TooManyFields`].
pub(super) fn fields(
    content_type: Option<HeaderValue>,
    others: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Result<HeaderMap, TooManyFields> {
    let mut fields = HeaderMap::new();
    let content_type = content_type.map(|value| (CONTENT_TYPE, value));
    for (name, value) in content_type.into_iter().chain(others) {
        let appended = fields.try_append(name, value);
        appended.map_err(|_| TooManyFields)?;
    }
    Ok(fields)
}

/// How much of a response is looked at.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Of what is read, and what counts of it.
    pub(super) limits: Limits,
    /// Bytes of the body as it comes.
    pub(super) hold: usize,
}

impl Bounds {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            limits: settings.annotate.limits,
            hold: settings.annotate.hold_bytes,
        }
    }
}

impl Asked<'_> {
    /// The annotation of the page with this body, and how many bytes of the
    /// body it took.
    ///
    /// # Errors
    ///
    /// A body that cannot be read as far as it takes.
    pub(super) fn annotation(&self, body: impl BufRead) -> io::Result<(Annotation, u64)> {
        let tokens = self.crawler.candidates().iter();
        let reading = Reading {
            tokens: &tokens.map(ProductToken::as_str).collect::<Vec<_>>(),
            now: self.now,
            robots: None,
            limits: self.bounds.limits,
        };
        let response = Response {
            method: &self.method,
            status: self.status,
            fields: &self.fields,
            known: None,
        };
        let mut page = Page::new(reading, response);
        let hold = u64::try_from(self.bounds.hold).unwrap_or(u64::MAX);
        let mut held = body.take(hold);
        while page.wants_more() {
            let chunk = held.fill_buf()?;
            let bytes = chunk.len();
            if 0 < bytes {
                page.push(chunk);
            } else if held.limit() == 0 {
                page.miss(Why::HeadLimit);
            } else {
                page.finish();
            }
            held.consume(bytes);
        }
        Ok((page.annotation(), hold - held.limit()))
    }
}
