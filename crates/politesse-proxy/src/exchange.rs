//! One request from first to last: start reading here.
//!
//! `Proxy::forward_if_allowed` is the exchange. Each line is a step, each `?` an exit,
//! and the order of the steps is the promise that the proxy makes. Invariants 1, 3 and 4
//! (ARCHITECTURE.md) meet in it. Does not know connections; `connection` does.

use std::future::ready;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::annotate::{AnnotationRequest, Annotator};
use super::answer::{self, AnswerForm, ProxyIdentity, status_member};
use super::body::{OriginBody, ProxyBody};
use super::completion::RecordCompletion;
use super::crawler_table::CrawlerTable;
use super::credentials::CredentialError;
use super::fields::{self, AllowedLength, PROXY_STATUS};
use super::max_forwards;
use super::places::{EntryShares, RequestPlace};
use super::problem::{MalformedRequest, Problem};
use super::problem_details::ProblemDetails;
use super::refusal::would_be_refused;
use super::request::{self, ConnectionInfo, ProxyRequest};
use super::turns::{self, RequestTurns, TurnDecider};
use super::withheld::{WithheldResponse, would_be_withheld};
use politesse_base::clients::client::{Client, Resource};
use politesse_base::clients::shares::{Share, ShareRefusal};
use politesse_base::clock;
use politesse_base::metrics::{DecisionLabels, Metrics, ReasonLabel, ResultLabel};
use politesse_base::throttle::REPEATING;
use politesse_decision::access::is_challenge;
use politesse_decision::decide::{Decision, Evidence, Receipt};
use politesse_decision::label::CrawlLabel;
use politesse_decision::outcome::EndingClass;
use politesse_decision::record::{Effect, Record};
use politesse_net::body::ResponseBody;
use politesse_net::client::Upstream;
use politesse_record::{AuditError, AuditLog};

/// Settings of exchanges.
#[derive(Debug, Clone)]
pub struct Options {
    /// Settings for reading requests, including the proxy's name in `Via` and
    /// `Proxy-Status`.
    pub request: request::Options,
    /// Settings for waiting for turns.
    pub turns: turns::Options,
    /// Longest wait for a request share (`proxy.place_wait`).
    pub place_wait: Duration,
    /// Status of answers given because robots.txt is unreachable
    /// (`robots.unreachable_answer`).
    pub unreachable: StatusCode,
    /// Contact for questions, shown in answers (`proxy.contact`).
    pub contact: Option<Arc<str>>,
}

/// Handler of exchanges under one configuration. A reload creates a new one.
#[derive(Debug)]
pub struct Proxy {
    /// Settings.
    pub options: Options,
    /// Configured crawlers and how to recognise them.
    pub crawlers: CrawlerTable,
    /// Decides requests and waits for their turns.
    pub turns: TurnDecider,
    /// Sends permitted requests.
    pub upstream: Arc<Upstream>,
    /// Shares of connections, handshakes and requests.
    pub entry: Arc<EntryShares>,
    /// Record of all decisions.
    pub audit: Arc<AuditLog>,
    /// Annotates responses.
    pub annotator: Arc<Annotator>,
    /// Metrics of the proxy.
    pub metrics: Arc<Metrics>,
}

impl Proxy {
    /// Answers a request with the origin's response, or with the problem that prevented
    /// one.
    pub async fn exchange(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Response<ProxyBody> {
        let mut completion = RecordCompletion::start(&connection.activity);
        let form = AnswerForm::of(&request);
        let result = match self.place(connection).await {
            Ok(place) => {
                self.forward_if_allowed(request, connection, place, &mut completion)
                    .await
            }
            Err(problem) => Err(problem),
        };
        let seconds = completion.elapsed().as_secs_f64();
        self.metrics.exchange_seconds.observe(seconds);
        match result {
            Ok(response) => {
                completion.status = Some(response.status().as_u16());
                self.count_answer(connection, &completion, None);
                response.map(|body| body.completing(completion))
            }
            Err(problem) => {
                let mut details = self.details(&problem, connection.client);
                completion.status = Some(details.status.as_u16());
                self.count_answer(connection, &completion, problem.failure());
                // A withheld response must be on disk before its client is answered.
                if !matches!(problem, Problem::Withheld(_)) {
                    completion.end(problem.failure());
                } else if let Err(error) = Box::pin(completion.end_withheld()).await {
                    details = self.details(&error.into(), connection.client);
                }
                form.answer(&details, &self.identity(), clock::now())
            }
        }
    }

    /// Answers a request of `client` with a problem, without a decision or a record row.
    pub fn turn_away<B: hyper::body::Body>(
        &self,
        problem: &Problem,
        request: &Request<B>,
        client: IpAddr,
    ) -> Response<ProxyBody> {
        let details = self.details(problem, client);
        AnswerForm::of(request).answer(&details, &self.identity(), clock::now())
    }

    /// Returns the complete bytes of the answer to a connection on which no request is
    /// read.
    pub fn turn_away_unread(&self, problem: &Problem) -> String {
        let name = &self.options.request.fields.name;
        answer::as_written(&self.counted(problem), name, clock::now())
    }

    async fn forward_if_allowed(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
        place: Arc<RequestPlace>,
        completion: &mut RecordCompletion,
    ) -> Result<Response<ProxyBody>, Problem> {
        // Computed before the request is taken apart, but returned only after reading it:
        // a malformed request is refused regardless of its `Max-Forwards`.
        let own_answer = max_forwards::answer(&request, &self.options.request.fields.name)?;
        let mut request =
            ProxyRequest::read(request, connection, &self.options.request, &self.crawlers)?;
        request.place = Some(Arc::clone(&place));
        request.upload.count_in(&self.metrics);
        if let Some(answer) = own_answer {
            return Ok(answer);
        }
        let can_retry = request.can_be_sent_again();
        let (mut decision, mut turns) = self.turns.decide_in_turn(&request, connection).await;
        let (response, evidence, receipt) = loop {
            if decision.evidence().lacks_tdm_file() {
                // Boxed: nearly all requests find the file in memory or do not need it.
                (decision, turns) = Box::pin(self.with_tdm_file(decision, turns, &request)).await?;
            }
            // The decision is in the audit record before anything is sent. No request to
            // the origin may come before this line.
            let receipt = self
                .record(&decision, &turns, request.label.as_ref(), completion)
                .await?;
            if let Some(answer) = self.cached_robots_txt(&decision, &request.outgoing.method) {
                return Ok(answer);
            }
            let evidence = Arc::clone(decision.evidence());
            let permit = decision.into_permit(&receipt)?;
            if 0 < turns.retries() {
                self.metrics.pace_retries.inc();
            }
            // From here on the host may have seen the request, so its turn is used up
            // even if no response arrives.
            turns.mark_sent();
            let upload = turns.watch_upload(request.upload.take());
            let mut counted = turns.counting(&mut completion.sent);
            // Awaited in place: a future bound to a variable is moved once more.
            let response = self
                .upstream
                .forward(permit, &mut request.outgoing, upload, &mut counted)
                .await?;
            let is_worth_retrying = turns.record_response(&response).await;
            if !(can_retry && is_worth_retrying) {
                break (response, evidence, receipt);
            }
            completion.end_before_retry(response.status());
            // Dropped before the wait, because the response holds a connection.
            drop(response);
            (decision, turns) = self.turns.decide_retry(&request, turns).await;
        };
        let annotation = AnnotationRequest {
            evidence: &evidence,
            seq: receipt.seq(),
            head: &request.outgoing,
        };
        let annotated = self.annotate(response, &annotation, completion).await?;
        let response = annotated.map(|body| {
            let body = body.within(turns.into_turn()).keeping(place);
            ProxyBody::origin(body)
        });
        Ok(response)
    }

    /// Takes one of the places for concurrent requests.
    async fn place(&self, connection: &ConnectionInfo) -> Result<Arc<RequestPlace>, Problem> {
        let taken = tokio::select! {
            biased;
            taken = self.request_share(&connection.sharer) => taken,
            () = connection.place.displaced() => Err(ShareRefusal::Full),
        };
        match taken {
            Ok(share) => Ok(RequestPlace::new(share, &connection.place)),
            Err(refusal) => Err(Problem::Overload {
                key: "proxy.max_requests",
                refusal,
            }),
        }
    }

    /// Takes a request share, waiting for one if necessary.
    async fn request_share(&self, sharer: &Arc<Client>) -> Result<Share, ShareRefusal> {
        let requests = &self.entry.requests;
        if let Some(share) = requests.take_free(sharer) {
            return Ok(share);
        }
        let mut taken = pin!(requests.take_within(sharer, self.options.place_wait));
        tokio::select! {
            biased;
            taken = taken.as_mut() => return taken,
            () = ready(()) => {}
        }
        // A waiting request would have been displaced by now. Requests under way end only
        // with their connection, so a connection is displaced.
        let connections = &self.entry.connections;
        connections.make_room_by(Resource::Requests, sharer);
        taken.await
    }

    /// Writes the decision to the record and counts it.
    pub(super) async fn record(
        &self,
        decision: &Decision,
        turns: &RequestTurns<'_>,
        label: Option<&CrawlLabel>,
        completion: &mut RecordCompletion,
    ) -> Result<Receipt, AuditError> {
        let connection = turns.connection();
        let mut record = Record::of(decision, connection.client, turns.waited());
        let credential = connection.credential.as_ref();
        record.credential = credential.map(|shown| Arc::clone(shown.name()));
        record.label = label.cloned();
        if self.turns.is_cached(decision) {
            record.effect = Effect::Cached;
        }
        let effect = record.effect;
        let (receipt, row) = self.audit.record(record).await?;
        let evidence = decision.evidence();
        if let Some(tally) = &connection.tally {
            tally.add(evidence, effect, turns.waited());
        }
        // Counted only after the receipt: a decision that could not be recorded is not
        // one.
        self.count(evidence);
        completion.row = Some((row, Arc::clone(evidence)));
        Ok(receipt)
    }

    /// Returns the answer to a request for a robots.txt that the cache serves.
    fn cached_robots_txt(
        &self,
        decision: &Decision,
        method: &Method,
    ) -> Option<Response<ProxyBody>> {
        if !self.turns.is_cached(decision) {
            return None;
        }
        let (snapshot, copy) = decision.own_copy()?;
        let now = decision.evidence().at;
        Some(answer::robots_txt(snapshot, copy, method, now))
    }

    /// Prepares the origin's response for the client: its end-to-end fields, the
    /// annotation, and its body. Returns [`Problem::Withheld`] if the response denies the
    /// purposes of the crawler.
    async fn annotate(
        &self,
        response: Response<ResponseBody>,
        request: &AnnotationRequest<'_>,
        completion: &mut RecordCompletion,
    ) -> Result<Response<Box<OriginBody>>, Problem> {
        let (mut parts, rest) = response.into_parts();
        completion.is_challenge = is_challenge(&parts.headers);
        let annotated = self.annotator.annotate(request, &parts, rest).await;
        let reserved = self.annotator.field();
        let length_known = annotated.length();
        completion.summary = Some(annotated.summary);
        let would_be = match annotated.withholding {
            Some(withholding) if withholding.is_reported => Some(would_be_withheld(&withholding)),
            Some(withholding) => {
                let withheld = WithheldResponse {
                    seq: request.seq,
                    evidence: Arc::clone(request.evidence),
                    status: parts.status,
                    withholding,
                };
                let reason = withheld.withholding.reason();
                let counted = &self.metrics.withheld;
                counted.get_or_create(&ReasonLabel { reason }).inc();
                return Err(Problem::Withheld(Box::new(withheld)));
            }
            None => None,
        };
        let length = if has_no_body(&request.head.method, parts.status) {
            // hyper does not read such a body to its end, which over HTTP/2 may be a
            // frame of its own.
            completion.expected_bytes = Some(0);
            match parts.status {
                StatusCode::NO_CONTENT => AllowedLength::None,
                _ => AllowedLength::Any,
            }
        } else {
            length_known.map_or(AllowedLength::Any, AllowedLength::Exactly)
        };
        let options = &self.options.request.fields;
        parts.headers = fields::of_response(parts.headers, reserved, length, options);
        parts.headers.append(reserved.clone(), annotated.field);
        parts.version = Version::HTTP_11;
        // In report mode, responses that would have been refused or withheld are
        // forwarded with a note.
        let evidence = request.evidence;
        let refused = evidence.is_reported().then(|| would_be_refused(evidence));
        if let Some(told) = refused.or(would_be) {
            let member = status_member(&self.options.request.fields.name, None, &told);
            if let Ok(member) = HeaderValue::try_from(member) {
                parts.headers.append(PROXY_STATUS, member);
            }
        }
        let body = OriginBody::new(annotated.held, annotated.rest, reserved, options);
        Ok(Response::from_parts(parts, body))
    }

    fn count(&self, evidence: &Evidence) {
        let ruling = &evidence.ruling;
        let labels = DecisionLabels {
            verdict: ruling.verdict.as_str(),
            reason: ruling.reason.as_str(),
        };
        self.metrics.decisions.inc(&labels);
        if evidence.is_reported() {
            let reason = labels.reason;
            let reported = &self.metrics.reported;
            reported.get_or_create(&ReasonLabel { reason }).inc();
        }
    }

    /// Counts the answer to a request that was decided; `error` as in
    /// [`RecordCompletion::end`].
    fn count_answer(
        &self,
        connection: &ConnectionInfo,
        completion: &RecordCompletion,
        error: Option<&'static str>,
    ) {
        let Some((_, evidence)) = &completion.row else {
            return;
        };
        let class = completion.class(error);
        if class == EndingClass::RefusedBySite {
            self.metrics.refused_by_site.inc();
        }
        if let Some(tally) = &connection.tally {
            tally.add_answer(&evidence.inquiry.target, completion.status, class);
        }
    }

    /// Counts a problem of `client`, and returns the details for its answer.
    fn details(&self, problem: &Problem, client: IpAddr) -> ProblemDetails {
        if let Problem::Credential(error) = problem {
            let reason = error.as_str();
            let refused = &self.metrics.credentials_refused;
            refused.get_or_create(&ReasonLabel { reason }).inc();
            // Many clients send a credential only after a 407, so a missing one is not
            // logged.
            if *error != CredentialError::Missing {
                tracing::warn!(target: REPEATING, %client, reason, "answered with 407: {problem}");
            }
        }
        if matches!(problem, Problem::Malformed(MalformedRequest::OwnName(_))) {
            let result = "refused";
            let pages = &self.metrics.own_pages;
            pages.get_or_create(&ResultLabel { result }).inc();
        }
        self.counted(problem)
    }

    fn counted(&self, problem: &Problem) -> ProblemDetails {
        let result = problem.error();
        let problems = &self.metrics.problems;
        problems.get_or_create(&ResultLabel { result }).inc();
        tracing::debug!(error = result, "{problem}");
        problem.details(clock::now(), self.options.unreachable)
    }

    fn identity(&self) -> ProxyIdentity<'_> {
        ProxyIdentity {
            name: &self.options.request.fields.name,
            contact: self.options.contact.as_deref(),
        }
    }
}

/// Reports whether a response to `method` with `status` has no body, regardless of its
/// fields (RFC 9112, section 6.3).
fn has_no_body(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD || matches!(status.as_u16(), 100..=199 | 204 | 304)
}
