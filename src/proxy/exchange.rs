//! One request from first to last: start reading here.
//!
//! Every step is a line and every way out a `?`; the order is the product.
//! Invariants 1, 3 and 4 meet in `Proxy::forward_if_allowed`. Until its turn
//! comes a request waits in `pace`.

mod pace;

mod turns;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use self::pace::{Decided, InTurn};
use self::turns::Turns;
use super::annotate::{AnnotationRequest, Annotator};
use super::answer::{Close, ProxyIdentity, accepted, status_member, without_content};
use super::body::{AnnotationSummary, OriginBody, ProxyBody, RecordCompletion, has_no_body};
use super::fields::{self, PROXY_STATUS};
use super::max_forwards;
use super::names::NameLimiter;
use super::own_copy;
use super::problem::{Problem, would_be_refused};
use super::request::{self, ConnectionInfo, ProxyRequest};
use crate::audit::AuditLog;
use crate::clock;
use crate::decision::access::Snapshot;
use crate::decision::decide::{Decision, Evidence, Policy, decide};
use crate::decision::receipt::Receipt;
use crate::decision::record::{Effect, Record};
use crate::metrics::{DecisionLabels, Metrics, ReasonLabel, ResultLabel};
use crate::pace::Scheduler;
use crate::robots_cache::RobotsCache;
use crate::upstream::body::ResponseBody;
use crate::upstream::client::Upstream;
use crate::upstream::egress::{Egress, NotAdmitted};

/// How exchanges are conducted.
#[derive(Debug, Clone)]
pub struct Options {
    /// How requests are read; our name in `Via` and `Proxy-Status`.
    pub request: request::Options,
    /// Whether /robots.txt is answered from our copy (`robots.serve_cached`).
    pub serve_cached: bool,
    /// The status of what is refused while robots.txt is unreachable
    /// (`robots.unreachable_answer`).
    pub unreachable: StatusCode,
    /// How long a request may wait for its turn (`pace.max_wait`).
    pub max_wait: Duration,
    /// Whom a refusal names for questions (`proxy.contact`).
    pub contact: Option<Arc<str>>,
}

/// The parts that every exchange shares.
#[derive(Debug)]
pub struct Proxy {
    /// How to conduct it.
    pub options: Options,
    /// What the operator laid down.
    pub policy: Arc<Policy>,
    /// The same, as it is now: who has waited is decided about by this.
    pub latest: Arc<ArcSwap<Policy>>,
    /// Which addresses may be dialled.
    pub egress: Arc<Egress>,
    /// How many names a client may come by; absent where a name costs an origin
    /// nothing (a fixed `robots.user_agent`).
    pub names: Option<Arc<NameLimiter>>,
    /// What origins said.
    pub robots: Arc<RobotsCache>,
    /// When a host may be asked.
    pub scheduler: Arc<Scheduler>,
    /// The way out.
    pub upstream: Arc<Upstream>,
    /// The record.
    pub audit: Arc<AuditLog>,
    /// The directives of what comes back.
    pub annotator: Arc<Annotator>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}

impl Proxy {
    /// Answers a request: with the origin's response, or with why there is
    /// none.
    pub async fn exchange(
        &self,
        request: Request<Incoming>,
        leg: &ConnectionInfo,
    ) -> Response<ProxyBody> {
        let started = clock::instant();
        let asked = accepted(request.headers());
        let has_body = !request.body().is_end_stream();
        let is_head = request.method() == Method::HEAD;
        let answered = self.forward_if_allowed(request, (leg, started)).await;
        let elapsed = clock::instant().duration_since(started);
        self.metrics.exchange_seconds.observe(elapsed.as_secs_f64());
        answered.unwrap_or_else(|problem| {
            let answer = self.explain(&problem, (&asked, has_body));
            if is_head {
                without_content(answer)
            } else {
                answer
            }
        })
    }

    async fn forward_if_allowed(
        &self,
        request: Request<Incoming>,
        (leg, started): (&ConnectionInfo, Instant),
    ) -> Result<Response<ProxyBody>, Problem> {
        let own = max_forwards::answer(&request, &self.options.request.fields.name)?;
        let received = ProxyRequest::read(request, leg, &self.options.request)?;
        if let Some(answer) = own {
            return Ok(answer);
        }
        let in_turn = self.decide_in_turn(&received).await;
        let decision = &in_turn.decision;
        let now = decision.evidence().at;
        let mut record = Record::of(decision, leg.client, in_turn.wait.so_far());
        let cached = self.options.serve_cached && decision.own_copy().is_some();
        if cached {
            record.effect = Effect::Cached;
        }
        let evidence = Arc::clone(decision.evidence());
        let (effect, waited) = (record.effect, record.waited);
        let (receipt, ending) = self.audit.record(record).await?;
        if let Some(tally) = &leg.tally {
            tally.add(&evidence, effect, waited);
        }
        self.count(decision);
        let closing = RecordCompletion::new(ending, evidence, started);
        if cached && let Some((snapshot, copy)) = decision.own_copy() {
            let method = &received.outgoing.method;
            return Ok(attach(
                own_copy::response(snapshot, copy, (method, now)),
                closing,
            ));
        }
        match self.send(in_turn, &receipt, received).await {
            Ok((response, told)) => Ok(attach(response, closing.with_told(told))),
            Err(problem) => {
                let answer = problem.answer((now, self.options.unreachable));
                closing
                    .with_status(answer.status.as_u16())
                    .end(problem.failure());
                Err(problem)
            }
        }
    }

    /// What holds for this inquiry now. Egress is asked first: an origin that
    /// may not be dialled is not asked for its robots.txt either. Nobody waits
    /// longer than `patience` for the turn to do so, nor once he has left.
    async fn decide(&self, received: &ProxyRequest, patience: Duration) -> Decided {
        let inquiry = &received.inquiry;
        let mut address = None;
        let mut known = None;
        let decision = match self.egress.admits(&inquiry.target.origin).await {
            Err(NotAdmitted::Denied(denial)) => Decision::denied(
                Arc::clone(inquiry),
                (&self.policy, clock::now()),
                denial.to_string(),
            ),
            Err(NotAdmitted::NoConnection(cause)) => {
                let now = clock::now();
                let origin = &inquiry.target.origin;
                let snapshot = Arc::new(Snapshot::without_connection(origin, cause, now));
                decide(inquiry, &snapshot, (&self.policy, now))
            }
            Ok(admitted) => {
                address = admitted.address();
                let snapshot = match self.one_name_too_many(received) {
                    Some(snapshot) => snapshot,
                    None => {
                        let gone = self.leaves(received);
                        let asker = &received.asker;
                        let lookup = self.robots.snapshot(inquiry, asker, patience, gone);
                        Arc::clone(&known.insert(lookup.await).snapshot)
                    }
                };
                decide(inquiry, &snapshot, (&self.policy, clock::now()))
            }
        };
        Decided {
            decision,
            address,
            known,
        }
    }

    /// What stands for a robots.txt that is not asked for, because its client
    /// has come to the origin by too many names.
    fn one_name_too_many(&self, received: &ProxyRequest) -> Option<Arc<Snapshot>> {
        let (origin, crawler) = (&received.inquiry.target.origin, &received.inquiry.crawler);
        let (names, token) = (self.names.as_ref()?, crawler.token()?);
        let until = names.admit(received.client, origin, token).err()?;
        let now = clock::now();
        Some(Arc::new(Snapshot::without_asking(
            (origin, token),
            now,
            until,
        )))
    }

    async fn send(
        &self,
        in_turn: InTurn,
        receipt: &Receipt,
        received: ProxyRequest,
    ) -> Result<(Response<ProxyBody>, AnnotationSummary), Problem> {
        let evidence = Arc::clone(in_turn.decision.evidence());
        let mut turns = Turns {
            proxy: self,
            evidence: Arc::clone(&evidence),
            wait: in_turn.wait,
            turn: in_turn.turn,
        };
        let permit = in_turn.decision.into_permit(receipt)?;
        let outgoing = &received.outgoing;
        let question = AnnotationRequest::of(
            (&evidence, receipt.seq()),
            &outgoing.method,
            &outgoing.headers,
        );
        if let Some(turn) = &turns.turn {
            turn.mark_sent();
        }
        let message = (received.outgoing, received.upload);
        let response = self.upstream.forward(permit, message, &mut turns).await?;
        let turn = turns.turn;
        if let Some(turn) = &turn {
            turn.record_response(evidence.inquiry.target.origin.host(), &response);
        }
        let (response, told) = self.pass_on(response, &question).await;
        let mut response = response.map(|body| body.within(turn));
        if evidence.is_reported() {
            self.tell(&mut response, &evidence);
        }
        Ok((response, told))
    }

    /// Says beside the origin's own `Proxy-Status` that the request would have
    /// been refused, and why.
    fn tell(&self, response: &mut Response<ProxyBody>, evidence: &Evidence) {
        let name = &self.options.request.fields.name;
        let member = status_member(name, None, &would_be_refused(evidence));
        if let Ok(member) = HeaderValue::try_from(member) {
            response.headers_mut().append(PROXY_STATUS, member);
        }
    }

    /// The origin's response as the crawler gets it: its end-to-end fields, the
    /// annotation, and its body.
    async fn pass_on(
        &self,
        response: Response<ResponseBody>,
        question: &AnnotationRequest,
    ) -> (Response<ProxyBody>, AnnotationSummary) {
        let (mut parts, rest) = response.into_parts();
        let annotated = self.annotator.annotate(question, &parts, rest).await;
        let reserved = self.annotator.field();
        let length = (!has_no_body(question.method(), parts.status.as_u16()))
            .then(|| annotated.length())
            .flatten();
        let options = &self.options.request.fields;
        parts.headers = fields::of_response(&parts.headers, reserved, (options, length));
        parts.headers.append(reserved.clone(), annotated.field);
        parts.version = Version::HTTP_11;
        let body = OriginBody::new((annotated.held, annotated.rest), reserved, options);
        let response = Response::from_parts(parts, ProxyBody::Origin(Box::new(body)));
        (response, annotated.told)
    }

    fn count(&self, decision: &Decision) {
        let ruling = decision.ruling();
        let labels = DecisionLabels {
            verdict: ruling.verdict.as_str(),
            reason: ruling.reason.as_str(),
        };
        self.metrics.decisions.get_or_create(&labels).inc();
        if decision.evidence().is_reported() {
            let reason = labels.reason;
            let reported = &self.metrics.reported;
            reported.get_or_create(&ReasonLabel { reason }).inc();
        }
    }

    /// The answer to a problem. After a refused upload the connection closes:
    /// the body was not read.
    fn explain(
        &self,
        problem: &Problem,
        (asked, has_body): (&HeaderMap, bool),
    ) -> Response<ProxyBody> {
        let label = ResultLabel {
            result: problem.error(),
        };
        self.metrics.problems.get_or_create(&label).inc();
        tracing::debug!(error = problem.error(), "{problem}");
        let now = clock::now();
        let mut answer = problem.answer((now, self.options.unreachable));
        if has_body {
            answer.close = Close::Yes;
        }
        let speaker = ProxyIdentity {
            name: &self.options.request.fields.name,
            contact: self.options.contact.as_deref(),
        };
        answer.response(asked, &speaker, now)
    }

    /// The answer to a request that is not conducted at all, after which the
    /// connection closes.
    pub fn turn_away<B>(&self, problem: &Problem, request: &Request<B>) -> Response<ProxyBody> {
        let answer = self.explain(problem, (request.headers(), true));
        if request.method() == Method::HEAD {
            without_content(answer)
        } else {
            answer
        }
    }
}

/// Ties a response to the record that its body's end completes.
fn attach(response: Response<ProxyBody>, closing: RecordCompletion) -> Response<ProxyBody> {
    let closing = closing.with_status(response.status().as_u16());
    response.map(|body| body.completing(closing))
}
