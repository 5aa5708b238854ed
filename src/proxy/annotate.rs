//! The annotation: one field that states the directives in force for the
//! crawler that asked.
//!
//! The head of a page is held back within bounds while it is scanned for
//! `<meta>`, then passed on as it came. Whatever keeps the scan from its end is
//! said in the field (`state=partial`), never in the page.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, response::Parts};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::timeout_at;

use super::body::AnnotationSummary;
use super::held::{HeldBody, HoldBudget, HoldShare};
use super::known::{AnnotationCache, ConditionalRequest};
use crate::clock;
use crate::decision::decide::Evidence;
use crate::decision::record::Effect;
use crate::metrics::{AnnotationLabels, Metrics};
use crate::upstream::body::ResponseBody;
use politesse_directives::{
    Annotation, Form, General, Keys, Limits, Listed, Page, Reading, Response, Robots, Why,
};
use politesse_robots::crawler::{Crawler, Naming, ProductToken};

/// How far to look, and what to say.
#[derive(Debug, Clone)]
pub struct Options {
    /// The field's name; one that the origin sends is removed.
    pub header: HeaderName,
    /// How much of a response is read, and what of it counts.
    pub limits: Limits,
    /// Bytes of a page held back at most.
    pub hold_bytes: usize,
    /// The longest a page is held back.
    pub hold_time: Duration,
    /// Bytes that all pages together may hold back.
    pub hold_total: usize,
    /// Bytes kept of what was said, to repeat it for a 304.
    pub known: usize,
    /// Whether the field lists preferences; the record always does.
    pub preferences: Listed,
    /// Whether the field states what everyone is told, beside the crawler's own.
    pub general: General,
}

impl Options {
    /// How the annotation for `crawler` is written.
    pub fn form(&self, crawler: &Crawler) -> Form<'static> {
        Form {
            keys: match crawler.naming() {
                Naming::Operator => Keys::All,
                Naming::UserAgent => Keys::First,
            },
            general: self.general,
            preferences: self.preferences,
            bytes_max: Annotation::VALUE_MAX,
            audit: None,
        }
    }
}

/// Adds the annotation to responses.
#[derive(Debug)]
pub struct Annotator {
    options: Options,
    budget: Arc<HoldBudget>,
    known: AnnotationCache,
    metrics: Arc<Metrics>,
}

/// A request on its way, as far as the annotation of its response depends on
/// it.
#[derive(Debug)]
pub struct AnnotationRequest {
    evidence: Arc<Evidence>,
    seq: u64,
    method: Method,
    asked: ConditionalRequest,
}

/// A response looked at: the field, and the body to be passed on.
#[derive(Debug)]
pub struct AnnotatedResponse {
    /// The value of the annotation field.
    pub field: HeaderValue,
    /// What completes the record.
    pub told: AnnotationSummary,
    /// What was held back, to be passed on first.
    pub held: HeldBody,
    /// What has not been read yet.
    pub rest: ResponseBody,
}

impl AnnotationRequest {
    /// The request of `method` with these fields, allowed as the record `seq`
    /// says.
    pub fn of((evidence, seq): (&Arc<Evidence>, u64), method: &Method, fields: &HeaderMap) -> Self {
        let url = evidence.inquiry.target.to_string();
        let tokens = tokens(&evidence.inquiry.crawler);
        Self {
            asked: ConditionalRequest::of((method, &url), &tokens, fields),
            evidence: Arc::clone(evidence),
            seq,
            method: method.clone(),
        }
    }

    /// The method of the request.
    pub fn method(&self) -> &Method {
        &self.method
    }

    fn crawler(&self) -> &Crawler {
        &self.evidence.inquiry.crawler
    }

    /// What robots.txt may say about uses. It says nothing about a path that
    /// it disallows, and that is fetched all the same: the operator opened it,
    /// or only has it reported (draft-ietf-aipref-attach-05, section 3.1).
    fn robots(&self) -> Option<Robots<'_>> {
        let inquiry = &self.evidence.inquiry;
        let snapshot = self.evidence.snapshot.as_ref();
        let copy = snapshot.and_then(|snapshot| snapshot.file());
        let copy = copy.filter(|_| Effect::of(&self.evidence) == Effect::Enforced)?;
        Some(Robots {
            text: &copy.robots,
            crawler: &inquiry.crawler,
            path: inquiry.target.path_and_query(),
        })
    }
}

impl AnnotatedResponse {
    /// Bytes of the whole body, if that is known.
    pub fn length(&self) -> Option<u64> {
        let rest = self.rest.size_hint().exact()?;
        (!self.held.breaks_off()).then_some(self.held.bytes() as u64 + rest)
    }
}

impl Annotator {
    /// An annotator with these bounds, which counts in `metrics`.
    pub fn new(options: Options, metrics: Arc<Metrics>) -> Self {
        Self {
            budget: HoldBudget::new(options.hold_total, metrics.directives_hold_total.clone()),
            known: AnnotationCache::new(options.known, metrics.directives_known.clone()),
            options,
            metrics,
        }
    }

    /// The name of the field.
    pub fn field(&self) -> &HeaderName {
        &self.options.header
    }

    /// Looks at the response to `question`, holding back as much of `rest` as
    /// it takes to see the head of a page.
    pub async fn annotate(
        &self,
        question: &AnnotationRequest,
        parts: &Parts,
        rest: ResponseBody,
    ) -> AnnotatedResponse {
        let tokens = tokens(question.crawler());
        let reading = Reading {
            tokens: &tokens,
            now: clock::now(),
            robots: question.robots(),
            limits: self.options.limits,
        };
        let is_repeat = parts.status == StatusCode::NOT_MODIFIED;
        let known = is_repeat
            .then(|| self.known.recall(&question.asked, &parts.headers))
            .flatten();
        let response = Response {
            method: &question.method,
            status: parts.status,
            fields: &parts.headers,
            known: known.as_deref(),
        };
        let mut page = Page::new(reading, response);
        for value in parts.headers.get_all(self.field()) {
            page.forged(self.field(), value);
        }
        let (held, rest) = self.hold(&mut page, rest).await;
        let annotation = page.annotation();
        let response = (parts.status, &parts.headers);
        self.known
            .keep(&question.asked, response, annotation.known());
        self.count(&annotation);
        let (field, told) = self.told(question, &annotation);
        AnnotatedResponse {
            field,
            told,
            held,
            rest,
        }
    }

    /// What the crawler is told, and what the record keeps: the same, with all
    /// preferences.
    fn told(
        &self,
        question: &AnnotationRequest,
        annotation: &Annotation,
    ) -> (HeaderValue, AnnotationSummary) {
        let audit = question.seq.to_string();
        let form = Form {
            audit: Some(&audit),
            ..self.options.form(question.crawler())
        };
        let value = annotation.header_value(&form);
        let field = HeaderValue::from_str(&value)
            .unwrap_or_else(|_| HeaderValue::from_static("*=();state=unknown;why=internal"));
        let directives = if annotation.preferences().is_empty() {
            value
        } else {
            annotation.header_value(&Form {
                preferences: Listed::Yes,
                bytes_max: usize::MAX,
                ..form
            })
        };
        let quotations = annotation.quotations().clone();
        let told = AnnotationSummary {
            directives,
            quotations,
        };
        (field, told)
    }

    /// Reads `rest` until the page wants no more of it, or a bound is met.
    async fn hold(&self, page: &mut Page<'_>, mut rest: ResponseBody) -> (HeldBody, ResponseBody) {
        let mut held = HeldBody::new();
        if !page.wants_more() {
            return (held, rest);
        }
        let mut share = self.budget.share();
        charge(&mut share, 0, page);
        let until = clock::instant() + self.options.hold_time;
        while page.wants_more() {
            if self.is_full(&held) {
                page.miss(Why::HeadLimit);
                break;
            }
            let Ok(next) = timeout_at(until, rest.frame()).await else {
                page.miss(Why::Time);
                break;
            };
            match &next {
                Some(Ok(frame)) => {
                    let data = frame.data_ref().map_or(&[][..], |data| data);
                    page.push(data);
                    charge(&mut share, held.bytes() + data.len(), page);
                }
                // What broke off is no whole page, and the crawler sees it break.
                Some(Err(_)) => page.miss(Why::Corrupt),
                None => page.finish(),
            }
            if let Some(next) = next {
                held.push(next);
            }
        }
        (held.within(share), rest)
    }

    /// Whether no more of a page may be held back, or read at all.
    fn is_full(&self, held: &HeldBody) -> bool {
        let Options {
            hold_bytes, limits, ..
        } = &self.options;
        *hold_bytes <= held.bytes() || limits.scan_limit == 0
    }

    fn count(&self, annotation: &Annotation) {
        let labels = AnnotationLabels {
            state: annotation.state().as_str(),
            why: annotation.why().unwrap_or_default(),
        };
        self.metrics.annotations.get_or_create(&labels).inc();
    }
}

/// Takes of the budget what a page holds with `bytes` of it held back. A page
/// that finds no room goes on unread.
fn charge(share: &mut HoldShare, bytes: usize, page: &mut Page<'_>) {
    if page.wants_more() && share.grow_to(bytes + page.memory()).is_none() {
        page.miss(Why::Memory);
    }
}

fn tokens(crawler: &Crawler) -> Vec<&str> {
    let candidates = crawler.candidates().iter();
    candidates.map(ProductToken::as_str).collect()
}
