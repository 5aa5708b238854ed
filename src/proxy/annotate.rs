//! The annotation: one field that states the directives in force for the
//! crawler that asked.
//!
//! The head of a page is held back within a bound while it is scanned for
//! `<meta>`, then passed on as it came. Whatever keeps the scan from its end is
//! said in the field (`state=partial`), never in the page.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderName, HeaderValue, Method, response::Parts};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use tokio::time::timeout_at;

use crate::clock;
use crate::origins::body::{BodyError, ResponseBody};
use crate::rules::crawler::{Crawler, ProductToken};
use crate::rules::directives::{Page, Reading, Response, Why};

/// How far to look.
#[derive(Debug, Clone)]
pub struct Options {
    /// The field's name; one that the origin sends is removed.
    pub header: HeaderName,
    /// Octets of a page scanned at most.
    pub scan_limit: usize,
    /// Octets of a page held back at most.
    pub hold_bytes: usize,
    /// The longest a page is held back.
    pub hold_time: Duration,
}

/// The longest field line that is read (draft-illyes-repext-03: at least 8 KiB).
const FIELD_OCTETS_MAX: usize = 32 * 1024;

/// Adds the annotation to responses.
#[derive(Debug)]
pub struct Annotator {
    options: Options,
}

/// A response looked at: the field, and the body to be passed on.
#[derive(Debug)]
pub struct Annotated {
    /// The value of the annotation field.
    pub field: HeaderValue,
    /// What was held back, to be passed on first.
    pub held: VecDeque<Result<Frame<Bytes>, BodyError>>,
    /// What has not been read yet.
    pub rest: ResponseBody,
}

impl Annotated {
    /// Octets of the whole body, if that is known.
    pub fn length(&self) -> Option<u64> {
        let held = self.held.iter().map(|frame| {
            let frame = frame.as_ref().ok()?;
            Some(frame.data_ref().map_or(0, |data| data.remaining() as u64))
        });
        Some(held.sum::<Option<u64>>()? + self.rest.size_hint().exact()?)
    }
}

impl Annotator {
    /// An annotator with these bounds.
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    /// The name of the field.
    pub fn field(&self) -> &HeaderName {
        &self.options.header
    }

    /// Looks at the response to `method`, holding back as much of `rest` as it
    /// takes to see the head of a page.
    pub async fn annotate(
        &self,
        (method, parts): (&Method, &Parts),
        crawler: &Crawler,
        rest: ResponseBody,
    ) -> Annotated {
        let tokens: Vec<&str> = crawler
            .candidates()
            .iter()
            .map(ProductToken::as_str)
            .collect();
        let reading = Reading {
            tokens: &tokens,
            now: clock::now(),
            field_limit: FIELD_OCTETS_MAX,
        };
        let response = Response {
            method,
            status: parts.status,
            fields: &parts.headers,
            scan_limit: self.options.scan_limit,
        };
        let mut page = Page::new(reading, response);
        let (held, rest) = self.hold(&mut page, rest).await;
        let value = page.annotation().header_value();
        let field = HeaderValue::from_str(&value)
            .unwrap_or_else(|_| HeaderValue::from_static("*=();state=unknown"));
        Annotated { field, held, rest }
    }

    /// Reads `rest` until the page wants no more of it, or a bound is met.
    async fn hold(
        &self,
        page: &mut Page<'_>,
        mut rest: ResponseBody,
    ) -> (VecDeque<Result<Frame<Bytes>, BodyError>>, ResponseBody) {
        let until = clock::instant() + self.options.hold_time;
        let mut held = VecDeque::new();
        let mut octets = 0;
        while page.wants_more() {
            let Ok(next) = timeout_at(until, rest.frame()).await else {
                page.miss(Why::Time);
                break;
            };
            match &next {
                Some(Ok(frame)) => {
                    let data = frame.data_ref().map_or(&[][..], |data| data.chunk());
                    page.push(data);
                    octets += data.len();
                }
                // What broke off is no whole page, and the crawler sees it break.
                Some(Err(_)) => page.miss(Why::Corrupt),
                None => page.finish(),
            }
            held.extend(next);
            if octets >= self.options.hold_bytes {
                page.miss(Why::HeadLimit);
            }
        }
        (held, rest)
    }
}
