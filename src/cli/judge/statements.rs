//! Statements in archived responses about their use, and the purposes that they deny.
//!
//! A response is read together with its record, one at a time, and only its statements
//! are kept: its crawler and its robots.txt are unknown until everything is read. Does
//! not know how the denials are used.

use http::header::{CONTENT_ENCODING, HeaderValue};
use http::{Method, StatusCode};
use jiff::Timestamp;
use politesse_crawls::{ArchivedMessage, BodyEnd, MessageSide};
use politesse_decision::decide::{Reason, Verdict};
use politesse_directives::denials::PurposeDenial;
use politesse_directives::{
    AnnotationContext, DirectiveCollector, DirectiveLimits, PageReader, PartialReason, PurposeSet,
    ResponseHead, ResponseStatements, RobotsContext,
};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::Target;

use super::outcome::CrawlerOutcome;
use super::past_request::PastRequest;
use super::robots_index::GZIP_BEGINS;

/// Takes the page out of a message and returns its statements. `None` if the archive
/// has no response for the page, or one without a status.
pub(super) fn take_statements(message: &mut ArchivedMessage) -> Option<Box<ResponseStatements>> {
    let MessageSide::Response { status, page, .. } = &mut message.side else {
        return None;
    };
    let mut page = page.take()?;
    let coding = page.fields.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    // Many archives store the decoded body and leave the field in place.
    if coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip"))
        && !page.body.starts_with(&GZIP_BEGINS)
    {
        page.fields.remove(CONTENT_ENCODING);
    }
    let head = ResponseHead {
        method: &Method::GET,
        status: StatusCode::from_u16((*status)?).ok()?,
        fields: &page.fields,
        known: None,
    };
    let mut reader = PageReader::new(context(&[], message.at, None), head);
    reader.push(&page.body);
    match page.end {
        BodyEnd::Whole => reader.finish(),
        BodyEnd::Long => reader.miss(PartialReason::HeadLimit),
        BodyEnd::Broken => reader.miss(PartialReason::Corrupt),
        BodyEnd::Elsewhere => reader.miss(PartialReason::NotModified),
    }
    Some(Box::new(reader.statements(&page.fields)))
}

fn context<'a>(
    tokens: &'a [&'a str],
    at: Option<Timestamp>,
    robots: Option<RobotsContext<'a>>,
) -> AnnotationContext<'a> {
    AnnotationContext {
        tokens,
        now: at.unwrap_or(Timestamp::UNIX_EPOCH),
        robots,
        limits: DirectiveLimits::default(),
    }
}

/// Page of a past crawl, and the purposes to check its statements for.
pub(super) struct PurposeQuestion<'a> {
    /// Request for the page.
    pub(super) request: &'a PastRequest,
    /// URL of the request.
    pub(super) target: &'a Target,
    /// Purposes given by `--purpose`.
    pub(super) purposes: PurposeSet,
}

impl PurposeQuestion<'_> {
    /// Returns the denials of the purposes for the crawler of `outcome`, by its
    /// robots.txt and by the response.
    pub(super) fn denials(&self, outcome: &CrawlerOutcome) -> Vec<PurposeDenial> {
        let crawler = outcome.crawler.as_ref();
        let names = crawler.map(|crawler| crawler.candidates().iter().chain(crawler.unlisted()));
        let tokens: Vec<_> = names
            .into_iter()
            .flatten()
            .map(ProductToken::as_str)
            .collect();
        let robots = crawler.and_then(|crawler| self.robots(outcome, crawler));
        let context = context(&tokens, self.request.at, robots);
        let annotation = match &self.request.statements {
            Some(statements) => statements.annotation(context),
            None => DirectiveCollector::new(context).annotation(),
        };
        annotation.denials(self.purposes)
    }

    /// Returns the robots.txt, for its statements about uses. They do not cover paths
    /// that its rules disallow (draft-ietf-aipref-attach-05, section 3.1).
    fn robots<'a>(
        &'a self,
        outcome: &'a CrawlerOutcome,
        crawler: &'a Crawler,
    ) -> Option<RobotsContext<'a>> {
        let judged = outcome.result.as_ref().ok()?;
        let ruling = &judged.ruling;
        let is_allowed = ruling.verdict == Verdict::Allow || ruling.reason == Reason::Override;
        if !is_allowed || ruling.is_overridden() {
            return None;
        }
        Some(RobotsContext {
            text: &judged.snapshot.file()?.robots,
            crawler,
            path: self.target.path_and_query(),
        })
    }
}
