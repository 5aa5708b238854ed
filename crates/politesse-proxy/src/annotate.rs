//! Annotation of responses: adds the field that states the directives in force for the
//! requesting crawler.
//!
//! The head of a page is held back, within limits, while it is scanned for `<meta>`, and
//! is then passed on unchanged. If the scan cannot finish, the field says so
//! (`state=partial`); the page is never modified. Does not know the meaning of
//! directives; `politesse_directives` does.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, response::Parts};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::time::timeout_at;

use super::annotation_cache::{AnnotationCache, ConditionalRequest};
use super::completion::AnnotationSummary;
use super::hold::{HeldBody, HoldBudget, HoldShare};
use politesse_base::clock;
use politesse_base::metrics::{AnnotationLabels, Metrics};
use politesse_decision::decide::{Evidence, Reason};
use politesse_decision::record::{Effect, StoredDenial};
use politesse_decision::withholding::{Withholding, stated_denials};
use politesse_directives::preferences::TdmRule;
use politesse_directives::{
    Annotation, AnnotationContext, DirectiveLimits, FieldFormat, GeneralKey, PageReader,
    PartialReason, PreferenceListing, ResponseHead, RobotsContext, TokenKeys,
};
use politesse_net::body::ResponseBody;
use politesse_net::client::OutgoingHead;
use politesse_robots::crawler::{Crawler, Naming, ProductToken};

/// Settings of annotations (`directives.*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the annotation field. A field of this name from the origin is removed.
    pub header: HeaderName,
    /// Limits on how much of a response is read.
    pub limits: DirectiveLimits,
    /// Maximum number of bytes held back per page.
    pub hold_bytes: usize,
    /// Longest time that a page is held back.
    pub hold_time: Duration,
    /// Maximum number of bytes held back for all pages together.
    pub hold_total: usize,
    /// Size in bytes of the annotation cache, from which annotations are repeated for a
    /// 304.
    pub known: usize,
    /// Whether the field lists preferences. The record always does.
    pub preferences: PreferenceListing,
    /// Whether the field states the general directives in addition to the crawler's own.
    pub general: GeneralKey,
}

impl Options {
    /// Returns the format of the annotation for `crawler`.
    pub fn form(&self, crawler: &Crawler) -> FieldFormat {
        FieldFormat {
            keys: match crawler.naming() {
                Naming::Operator => TokenKeys::All,
                Naming::UserAgent => TokenKeys::First,
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
    cache: AnnotationCache,
    metrics: Arc<Metrics>,
}

/// Properties of a request that the annotation of its response depends on.
#[derive(Debug)]
pub struct AnnotationRequest<'a> {
    /// Decision on the request.
    pub evidence: &'a Arc<Evidence>,
    /// Sequence number of the decision in the record.
    pub seq: u64,
    /// Method and fields as sent to the origin. Fields that `Connection` names are not
    /// among them, so they did not select a representation.
    pub head: &'a OutgoingHead,
}

/// A response and the outcome of scanning its head.
#[derive(Debug)]
pub struct AnnotatedResponse {
    /// Value of the annotation field.
    pub field: HeaderValue,
    /// Summary for the row in the audit record.
    pub summary: AnnotationSummary,
    /// Reason to withhold the response, if any.
    pub withholding: Option<Withholding>,
    /// Start of the body, to be passed on first.
    pub held: HeldBody,
    /// Rest of the body, not read yet.
    pub rest: ResponseBody,
}

impl<'a> AnnotationRequest<'a> {
    fn crawler(&self) -> &'a Crawler {
        &self.evidence.inquiry.crawler
    }

    /// Returns the robots.txt, for its preferences about uses.
    fn robots(&self) -> Option<RobotsContext<'a>> {
        if !self.has_preferences() {
            return None;
        }
        let inquiry = &self.evidence.inquiry;
        let copy = self.evidence.snapshot.as_ref()?.file()?;
        Some(RobotsContext {
            text: &copy.robots,
            crawler: &inquiry.crawler,
            path: inquiry.target.path_and_query(),
        })
    }

    /// Returns the rule of the TDM file for the path, if the decision depends on one.
    fn tdm_rule(&self) -> Option<&'a TdmRule> {
        let tdm = self.evidence.snapshot.as_ref()?.tdm.as_ref()?;
        let path = self.evidence.inquiry.target.path_and_query();
        tdm.result.binding(path).filter(|_| self.has_preferences())
    }

    /// Reports whether preferences of the site apply to the path. None apply to a path
    /// that its rules disallow, even if it is fetched because the operator allows it or
    /// uses report mode (draft-ietf-aipref-attach-05, section 3.1).
    fn has_preferences(&self) -> bool {
        let is_set_aside = Effect::of(self.evidence) != Effect::Enforced;
        !is_set_aside || self.evidence.ruling.reason == Reason::Preference
    }
}

impl AnnotatedResponse {
    /// Returns the length of the whole body, if known.
    pub fn length(&self) -> Option<u64> {
        let rest = self.rest.size_hint().exact()?;
        (!self.held.breaks_off()).then_some(self.held.bytes() as u64 + rest)
    }
}

impl Annotator {
    /// Creates an annotator with empty caches.
    pub fn new(options: Options, metrics: Arc<Metrics>) -> Self {
        Self {
            budget: HoldBudget::new(options.hold_total, metrics.directives_hold_total.clone()),
            cache: AnnotationCache::new(options.known, metrics.directives_known.clone()),
            options,
            metrics,
        }
    }

    /// Returns the name of the annotation field.
    pub fn field(&self) -> &HeaderName {
        &self.options.header
    }

    /// Annotates the response to `request`. Holds back as much of `rest` as the scan of
    /// the head needs.
    pub async fn annotate(
        &self,
        request: &AnnotationRequest<'_>,
        parts: &Parts,
        rest: ResponseBody,
    ) -> AnnotatedResponse {
        let tokens = tokens(request.crawler());
        let conditional = ConditionalRequest {
            inquiry: &request.evidence.inquiry,
            fields: &request.head.headers,
        };
        let reading = AnnotationContext {
            tokens: &tokens,
            now: clock::now(),
            robots: request.robots(),
            limits: self.options.limits,
        };
        // A 304 has no page to scan. Its fields are its own, so the cache only supplies
        // the directives found in the page (docs/decisions/017-doubt-is-partial.md).
        let known = if parts.status == StatusCode::NOT_MODIFIED {
            self.cache.recall(&conditional, &parts.headers)
        } else {
            None
        };
        let response = ResponseHead {
            method: &request.head.method,
            status: parts.status,
            fields: &parts.headers,
            known: known.as_deref(),
        };
        let mut page = PageReader::new(reading, response);
        for value in parts.headers.get_all(self.field()) {
            page.add_forged(self.field(), value);
        }
        if let Some(rule) = request.tdm_rule() {
            page.add_tdm_rule(rule);
        }
        let (held, rest) = if page.wants_more() {
            // Boxed: most responses have no head to hold back.
            Box::pin(self.hold(&mut page, rest)).await
        } else {
            (HeldBody::default(), rest)
        };
        let annotation = page.annotation();
        self.count(&annotation);
        let (field, mut summary) = self.written(request, &annotation);
        let stated = stated_denials(request.evidence, &summary.directives);
        summary.denials = stated.denials.iter().map(StoredDenial::from).collect();
        let withholding = Withholding::of(request.evidence, parts.status.as_u16(), stated);
        let known = annotation.into_known();
        self.cache
            .keep(&conditional, parts.status, &parts.headers, known);
        AnnotatedResponse {
            field,
            summary,
            withholding,
            held,
            rest,
        }
    }

    /// Returns the annotation in the formats of the client and of the audit record, which
    /// has all preferences.
    fn written(
        &self,
        request: &AnnotationRequest<'_>,
        annotation: &Annotation,
    ) -> (HeaderValue, AnnotationSummary) {
        let form = FieldFormat {
            audit: Some(request.seq),
            ..self.options.form(request.crawler())
        };
        let value = annotation.header_value(&form);
        let field = HeaderValue::from_str(&value)
            .unwrap_or_else(|_| HeaderValue::from_static("*=();state=unknown;why=internal"));
        // The two formats are usually equal, and the value is then serialised once.
        let directives = if annotation.preferences().is_empty() {
            value
        } else {
            annotation.header_value(&FieldFormat {
                preferences: PreferenceListing::Yes,
                bytes_max: usize::MAX,
                ..form
            })
        };
        let summary = AnnotationSummary {
            directives,
            quotations: annotation.quotations().clone(),
            denials: Vec::new(),
        };
        (field, summary)
    }

    /// Reads `rest` until the scan needs no more of it or a limit is reached.
    async fn hold(
        &self,
        page: &mut PageReader<'_>,
        mut rest: ResponseBody,
    ) -> (HeldBody, ResponseBody) {
        let mut held = HeldBody::default();
        let mut share = self.budget.share();
        charge(&mut share, 0, page);
        // One deadline for the whole head. With a timeout for each part, a page that
        // trickles in could hold its crawler forever.
        let until = clock::instant() + self.options.hold_time;
        while page.wants_more() {
            if self.is_full(&held) {
                page.miss(PartialReason::HeadLimit);
                break;
            }
            let Ok(next) = timeout_at(until, rest.frame()).await else {
                page.miss(PartialReason::Time);
                break;
            };
            match &next {
                Some(Ok(frame)) => {
                    let data = frame.data_ref().map_or(&[][..], |data| data);
                    page.push(data);
                    charge(&mut share, held.bytes() + data.len(), page);
                }
                // The client sees the body break off, too.
                Some(Err(_)) => page.miss(PartialReason::Corrupt),
                None => page.finish(),
            }
            if let Some(next) = next {
                held.push(next);
            }
        }
        (held.within(share), rest)
    }

    /// Reports whether the limit on held bytes is reached, or scanning is disabled.
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
        self.metrics.annotations.inc(&labels);
    }
}

/// Charges the budget for the memory of a page of which `bytes` are held back. If the
/// budget is exhausted, the rest of the page is not scanned.
fn charge(share: &mut HoldShare, bytes: usize, page: &mut PageReader<'_>) {
    if page.wants_more() && share.grow_to(bytes + page.memory()).is_none() {
        page.miss(PartialReason::Memory);
    }
}

fn tokens(crawler: &Crawler) -> Vec<&str> {
    // Directives for a name that the crawler sends without listing it apply, too.
    let names = crawler.candidates().iter().chain(crawler.unlisted());
    names.map(ProductToken::as_str).collect()
}
