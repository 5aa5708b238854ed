//! Annotation of responses: adds the field that states the directives in force
//! for the crawler that asked.
//!
//! The head of a page is held back within bounds while it is scanned for
//! `<meta>`, then passed on as it came. Whatever keeps the scan from its end is
//! said in the field (`state=partial`), never in the page. Does not know what a
//! directive means; `politesse_directives` does.

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
    /// Name of the field; one that the origin sends is removed.
    pub header: HeaderName,
    /// Bounds on how much of a response is read.
    pub limits: DirectiveLimits,
    /// Bytes of one page that are held back at most.
    pub hold_bytes: usize,
    /// The longest that a page is held back.
    pub hold_time: Duration,
    /// Bytes that all pages together may hold back.
    pub hold_total: usize,
    /// Bytes of annotations that are kept, to repeat them for a 304.
    pub known: usize,
    /// Whether the field lists preferences; the record always does.
    pub preferences: PreferenceListing,
    /// Whether the field states the general directives beside the crawler's own.
    pub general: GeneralKey,
}

impl Options {
    /// Returns the form of the annotation for `crawler`.
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
    /// Number of the decision in the record.
    pub seq: u64,
    /// Method and fields as the origin saw them: a field that `Connection` names
    /// has selected no representation.
    pub head: &'a OutgoingHead,
}

/// A response whose head was scanned, as far as the scan went.
#[derive(Debug)]
pub struct AnnotatedResponse {
    /// Value of the annotation field.
    pub field: HeaderValue,
    /// Statements for the row in the audit record.
    pub summary: AnnotationSummary,
    /// Reason to withhold the response, if there is one.
    pub withholding: Option<Withholding>,
    /// Beginning of the body, to be passed on first.
    pub held: HeldBody,
    /// Rest of the body, unread.
    pub rest: ResponseBody,
}

impl<'a> AnnotationRequest<'a> {
    fn crawler(&self) -> &'a Crawler {
        &self.evidence.inquiry.crawler
    }

    /// Returns the robots.txt, for what it says about uses.
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

    /// Returns the rule of the TDM file for the path, if the decision rests on one.
    fn tdm_rule(&self) -> Option<&'a TdmRule> {
        let tdm = self.evidence.snapshot.as_ref()?.tdm.as_ref()?;
        let path = self.evidence.inquiry.target.path_and_query();
        tdm.result.binding(path).filter(|_| self.has_preferences())
    }

    /// Reports whether the site has preferences about the path. It has none about one that
    /// its rules disallow, which is fetched all the same if the operator allows it or only
    /// has it reported (draft-ietf-aipref-attach-05, section 3.1).
    fn has_preferences(&self) -> bool {
        let is_set_aside = Effect::of(self.evidence) != Effect::Enforced;
        !is_set_aside || self.evidence.ruling.reason == Reason::Preference
    }
}

impl AnnotatedResponse {
    /// Returns the length of the whole body, if that is known.
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

    /// Annotates the response to `request`, holding back as much of `rest` as
    /// the scan of the head needs.
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
        // A 304 has no page to scan. Its fields are its own, so only what the
        // page said comes from the cache
        // (docs/decisions/017-doubt-is-partial.md).
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

    /// Returns the annotation as the client and as the audit record get it. The
    /// latter has all preferences.
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
        // Mostly the two are equal, and the value is written once.
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

    /// Reads `rest` until the scan wants no more of it, or a bound is met.
    async fn hold(
        &self,
        page: &mut PageReader<'_>,
        mut rest: ResponseBody,
    ) -> (HeldBody, ResponseBody) {
        let mut held = HeldBody::default();
        let mut share = self.budget.share();
        charge(&mut share, 0, page);
        // One deadline for the whole head. A timeout for each part would let a
        // page that drips hold its crawler for ever.
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

    /// Reports whether no more of a page may be held back, or read at all.
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

/// Takes from the budget what a page needs with `bytes` of it held back. A page
/// that finds no room is passed on unread.
fn charge(share: &mut HoldShare, bytes: usize, page: &mut PageReader<'_>) {
    if page.wants_more() && share.grow_to(bytes + page.memory()).is_none() {
        page.miss(PartialReason::Memory);
    }
}

fn tokens(crawler: &Crawler) -> Vec<&str> {
    // What a page says to a name that is sent without being listed binds, too.
    let names = crawler.candidates().iter().chain(crawler.unlisted());
    names.map(ProductToken::as_str).collect()
}
