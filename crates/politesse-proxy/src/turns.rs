//! Turns of requests at their hosts: decides a request, waits for its turn, and decides
//! again when the turn has come.
//!
//! A wait can outlast a robots.txt or an override, so the decision that is recorded and
//! acted on is the one made when the turn has come.
//!
//! - A *turn* is the permission to send one request to a host now. The scheduler grants
//!   it, and the request holds it until its response ends.
//! - The *arrival number* orders the requests that a crawler has in the queue of a host.
//!   A request that gives its turn back and asks for another keeps its number, and so its
//!   position in the queue.
//! - A *seat* counts a waiting request against `pace.queue`. The scheduler takes one for
//!   each client request in a queue; this module takes one while a request waits for its
//!   robots.txt.
//! - A *place* counts a request against `proxy.max_requests`, from its head to the end of
//!   its response.
//! - The *patience* of a request is the time for which it may still wait.
//! - The *pace records* of a robots.txt are `Crawl-delay`, `Request-rate` and `Visit-time`.
//! - The *TDM file* of an origin is its `/.well-known/tdmrep.json`.
//!
//! A wait ends when the turn comes, when the patience is over, when the client closes its
//! side of the connection, or when another client takes over the seat or the place. Does
//! not know how turns are granted; `pace` does.

use std::future::{pending, ready};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Response, StatusCode};
use hyper::body::Body as _;
use tokio::time::Instant;

use super::decider::{Decider, OriginDecision, RobotsWait};
use super::places::RequestPlace;
use super::purpose_policies::PurposePolicies;
use super::request::{ConnectionInfo, ProxyRequest};
use super::upload::ClientUpload;
use politesse_base::clients::client::{Client, QuotaExceeded};
use politesse_base::clock;
use politesse_decision::decide::{Decision, Evidence, Inquiry, Policy, decide};
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::preferences::PreferenceTerms;
use politesse_decision::reason::Reason;
use politesse_net::client::HostTurns;
use politesse_net::private::PrivateScope;
use politesse_pace::{Embedding, RobotsFetch, Scheduler, Turn, TurnOwner, TurnRequest};
use politesse_robots_cache::QueuedFetch;

/// `Retry-After` of a request that is delayed because the proxy is too busy, for example
/// to request its robots.txt.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Settings of waits for turns.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether /robots.txt is answered from the cache (`robots.serve_cached`).
    pub serve_cached: bool,
    /// Longest wait of one request for its turns (`pace.max_wait`).
    pub max_wait: Duration,
    /// Maximum number of retries of a request after a 429 or 503 (`pace.retry`).
    pub retries: u8,
    /// Lower limit for the longest wait that a client prefers (`Prefer: wait`). A shorter
    /// one would not leave enough time to get the lease of a host in a fleet, without
    /// which no request can start.
    pub least_wait: Duration,
}

/// Decides requests and waits for their turns.
#[derive(Debug)]
pub struct TurnDecider {
    /// Settings.
    pub options: Options,
    /// Makes decisions, fetching robots.txt if necessary.
    pub decider: Decider,
    /// Policy of the configuration under which the request began.
    pub policy: Arc<Policy>,
    /// Policy in force now. It applies to a request that has waited.
    pub latest_policy: Arc<ArcSwap<Policy>>,
    /// Policies of crawlers with purposes.
    pub purpose_policies: PurposePolicies,
    /// Grants turns.
    pub scheduler: Arc<Scheduler>,
}

/// Maximum age of a decision that is acted on without deciding again. If getting a turn
/// takes longer, the request is decided again, even if the scheduler reports no wait.
const DECISION_AGE_MAX: Duration = Duration::from_millis(10);

/// Waits of one request: for its robots.txt, then for its turn.
#[derive(Debug)]
struct TurnWait<'a> {
    /// Connection on which the request arrived.
    connection: &'a ConnectionInfo,
    /// Client and crawler of the request. Turns are shared fairly between clients, and
    /// between the crawlers of a client.
    owner: TurnOwner,
    /// Place of the request. Another client can take it while the request waits. `None`
    /// if the request has taken none.
    place: Option<Arc<RequestPlace>>,
    /// Reason why the wait for the robots.txt was aborted. Unset if it was not aborted,
    /// or if the client closed its side: the delay then has the reason for which the
    /// fetch itself waits.
    abort_reason: OnceLock<Reason>,
    /// Address that is dialled for the origin, if known.
    address: Option<IpAddr>,
    /// Time that the request has waited in the current attempt. The wait of an earlier
    /// attempt is in the audit row of that attempt.
    elapsed: Duration,
    /// Remaining patience. Unlike `elapsed`, a retry does not reset it.
    left: Duration,
    /// Number of retries so far after a 429 or 503.
    retries: u8,
    /// Details of the client's quota, if the request exceeds it.
    over_quota: Option<QuotaExceeded>,
    /// Whether a robots.txt was fetched in the current attempt, and when.
    robots_fetch: RobotsFetch,
    /// Relation to the page that may embed the requested URL. `None` if the request
    /// needs a turn of its own in any case.
    embedding: Option<Embedding>,
    /// Arrival number, if the request gave back a turn for which it had waited.
    arrival: Option<u64>,
}

impl TurnWait<'_> {
    /// Completes when another client has taken the request's place. Another client can
    /// take it only while this future is alive.
    async fn place_lost(&self) {
        match &self.place {
            Some(place) => {
                let displaceable = DisplaceablePlace(place);
                place.may_be_displaced(true);
                place.displaced().await;
                drop(displaceable);
            }
            None => pending().await,
        }
    }

    /// Counts `waited` as time of waiting, and takes it off the patience.
    fn add_wait(&mut self, waited: Duration) {
        self.elapsed += waited;
        self.left = self.left.saturating_sub(waited);
    }

    /// Takes over the facts gathered by a decision: the dialled address, and the wait for
    /// a robots.txt fetch.
    fn add_decision(&mut self, decided: &OriginDecision) {
        self.address = decided.address;
        let Some(robots) = &decided.robots else {
            return;
        };
        self.add_wait(robots.waited);
        if robots.was_fetched && self.robots_fetch == RobotsFetch::NotNeeded {
            self.robots_fetch = RobotsFetch::BeforeTurn;
        }
    }
}

/// Guard during whose life another client may take a place.
struct DisplaceablePlace<'a>(&'a RequestPlace);

impl Drop for DisplaceablePlace<'_> {
    fn drop(&mut self) {
        self.0.may_be_displaced(false);
    }
}

/// Turns of one request: the current one, and another if the request must be sent again
/// because its connection broke.
///
/// The decision record is written before the request is sent. It contains the wait for
/// the first turn, and its decision covers both turns.
#[derive(Debug)]
pub struct RequestTurns<'a> {
    decider: &'a TurnDecider,
    /// Evidence of the decision under which the request is sent.
    evidence: Arc<Evidence>,
    wait: TurnWait<'a>,
    /// Current turn; `None` if the request is not sent, or lost its turn and got no
    /// other.
    turn: Option<Turn>,
    /// Time of the decision under which the request is sent.
    decided_at: Instant,
}

impl<'a> RequestTurns<'a> {
    /// Counts in `sent` how often the request is handed to a connection. The count is
    /// correct even if the exchange is dropped midway.
    pub fn counting<'t>(&'t mut self, sent: &'t mut u32) -> CountedTurns<'t, 'a> {
        CountedTurns { turns: self, sent }
    }

    /// Returns the connection on which the request arrived.
    pub fn connection(&self) -> &'a ConnectionInfo {
        self.wait.connection
    }

    /// Returns how long the request has waited in the current attempt.
    pub fn waited(&self) -> Duration {
        self.wait.elapsed
    }

    /// Marks the turn as used: from now on the host may have seen the request, so the turn
    /// cannot be given back unused.
    pub fn mark_sent(&self) {
        if let Some(turn) = &self.turn {
            turn.mark_sent();
        }
    }

    /// Records the head of the response, whose status may request a pause. Returns
    /// whether the request should be retried: it has retries left (`pace.retry`), and
    /// another turn is expected within its remaining patience.
    ///
    /// RFC 9110, section 10.2.3; RFC 6585, section 4: a client may retry after
    /// `Retry-After`. Most crawlers give up on the page instead.
    pub async fn record_response<B>(&self, response: &Response<B>) -> bool {
        let host = self.evidence.inquiry.target.origin.host();
        let turn = self.turn.as_ref();
        self.note_page(response.status());
        let Some(pause) = turn.and_then(|turn| turn.record_response(host, response)) else {
            return false;
        };
        let left = self.left();
        if self.decider.options.retries <= self.wait.retries || left < pause {
            return false;
        }
        // If other requests are ahead in the queue, or the client has closed its side, the
        // proxy would have to answer the retry itself. The site's own answer is worth more
        // to the client.
        let request = turn_request(&self.evidence, &self.wait.owner, self.wait.address);
        let estimate = self.decider.scheduler.estimate(&request);
        let is_waiting = tokio::select! {
            biased;
            () = self.wait.connection.end.ended() => false,
            () = ready(()) => true,
        };
        is_waiting && estimate.delay.wait().is_none_or(|wait| wait <= left)
    }

    /// Notes that the crawler gets a page, so that requests for embedded files may follow
    /// it.
    fn note_page(&self, status: StatusCode) {
        // On a 304, the browser already has the page.
        let is_given = status.is_success() || status == StatusCode::NOT_MODIFIED;
        if let (Some(turn), Some(embedding)) = (&self.turn, &self.wait.embedding)
            && is_given
        {
            turn.give_page(&self.wait.owner, embedding);
        }
    }

    /// Returns the remaining patience of the request. The time since the decision is
    /// subtracted, because the client was waiting.
    pub(super) fn left(&self) -> Duration {
        let since_decision = clock::instant().saturating_duration_since(self.decided_at);
        self.wait.left.saturating_sub(since_decision)
    }

    /// Returns how often the request was retried.
    pub fn retries(&self) -> u8 {
        self.wait.retries
    }

    /// Makes an upload report to the turn when it waits for the client.
    pub fn watch_upload(&self, upload: ClientUpload) -> ClientUpload {
        match &self.turn {
            Some(turn) if !upload.is_end_stream() => upload.within(Arc::clone(turn.activity())),
            _ => upload,
        }
    }

    /// Returns the turn, which ends when dropped.
    pub fn into_turn(self) -> Option<Turn> {
        self.turn
    }
}

/// Turns of a request, with a count of how often it is handed to a connection.
#[derive(Debug)]
pub struct CountedTurns<'t, 'a> {
    turns: &'t mut RequestTurns<'a>,
    sent: &'t mut u32,
}

impl HostTurns for CountedTurns<'_, '_> {
    fn client(&self) -> Option<&Arc<Client>> {
        self.turns.client()
    }

    fn pause(&self) -> Duration {
        self.turns.pause()
    }

    fn holds(&self) -> bool {
        self.turns.holds()
    }

    fn renew(&mut self) -> impl Future<Output = bool> + Send {
        self.turns.renew()
    }

    fn private(&self) -> Option<PrivateScope> {
        self.turns.private()
    }

    fn note_connected(&self) {
        self.turns.note_connected();
    }

    fn note_sent(&mut self) {
        // Counted before the outcome is known: a host may have seen a request that got no
        // response.
        *self.sent += 1;
    }
}

impl HostTurns for RequestTurns<'_> {
    fn client(&self) -> Option<&Arc<Client>> {
        Some(&self.wait.connection.sharer)
    }

    fn pause(&self) -> Duration {
        self.turn.as_ref().map_or(Duration::ZERO, Turn::pause)
    }

    /// Reports whether the turn is still valid. Without a turn there is none to lose.
    fn holds(&self) -> bool {
        self.turn.as_ref().is_none_or(Turn::holds)
    }

    fn note_connected(&self) {
        if let Some(turn) = &self.turn {
            turn.note_connected();
        }
    }

    fn private(&self) -> Option<PrivateScope> {
        let credential = self.wait.connection.credential.as_ref();
        Some(PrivateScope {
            connections: Arc::clone(&self.wait.connection.private),
            credential: credential.map(|shown| Arc::clone(shown.name())),
        })
    }

    async fn renew(&mut self) -> bool {
        // The current turn ends first, because the pause after it starts now.
        self.turn = None;
        let turn = self.decider.turn_to_resend(&self.evidence, &mut self.wait);
        self.turn = turn.await;
        // The caller sends the request at once, and does not mark it again.
        self.mark_sent();
        self.turn.is_some()
    }
}

impl TurnDecider {
    /// Decides a request, waits for its turn if it will be sent, and decides again when
    /// the turn has come.
    pub async fn decide_in_turn<'a>(
        &'a self,
        request: &ProxyRequest,
        connection: &'a ConnectionInfo,
    ) -> (Decision, RequestTurns<'a>) {
        let wait = TurnWait {
            connection,
            owner: owner(&request.inquiry, &connection.sharer, connection.client),
            place: request.place.clone(),
            abort_reason: OnceLock::new(),
            address: None,
            elapsed: Duration::ZERO,
            left: self.longest_wait(request),
            retries: 0,
            // Counted before the decision, so that a flood of refused requests counts,
            // too.
            over_quota: connection.sharer.count_request().err(),
            robots_fetch: RobotsFetch::NotNeeded,
            embedding: request.embedding,
            arrival: None,
        };
        self.decide_and_wait(request, wait).await
    }

    /// Decides again about a request that got a 429 or 503, and waits for another turn
    /// within its remaining patience.
    pub async fn decide_retry<'a>(
        &'a self,
        request: &ProxyRequest,
        before: RequestTurns<'a>,
    ) -> (Decision, RequestTurns<'a>) {
        let left = before.left();
        // The turn is released, so that other requests can have it during the wait.
        drop(before.turn);
        let wait = TurnWait {
            // The wait of the previous attempt is in that attempt's audit row.
            elapsed: Duration::ZERO,
            left,
            retries: before.wait.retries + 1,
            robots_fetch: RobotsFetch::NotNeeded,
            arrival: None,
            ..before.wait
        };
        self.decide_and_wait(request, wait).await
    }

    /// Decides again about a request that has waited for the TDM file of its origin, and
    /// waits for its turn within its remaining patience.
    pub async fn decide_by_tdm_file<'a>(
        &'a self,
        request: &ProxyRequest,
        before: RequestTurns<'a>,
    ) -> (Decision, RequestTurns<'a>) {
        let mut wait = before.wait;
        wait.add_wait(clock::instant().saturating_duration_since(before.decided_at));
        self.decide_and_wait(request, wait).await
    }

    /// Decides a request and waits for its turn, within the patience of `wait`. If it has
    /// waited, decides again when the turn comes, and starts over with the same arrival
    /// number if the robots.txt has expired, or has other pace records than those under
    /// which the turn was granted. Returns the last decision, and the turn if the request is
    /// to be sent.
    async fn decide_and_wait<'a>(
        &'a self,
        request: &ProxyRequest,
        mut wait: TurnWait<'a>,
    ) -> (Decision, RequestTurns<'a>) {
        let (decision, turn) = loop {
            let decided = self.decide(request, &wait).await;
            wait.add_decision(&decided);
            if !self.is_to_be_sent(&decided.decision) {
                self.record_crawl_delay(&decided);
                break (self.delayed_without_robots(decided, &wait), None);
            }
            let decision = decided.decision;
            if let Some(exceeded) = &wait.over_quota {
                break (decision.later(quota_delay(exceeded)), None);
            }
            // No turn is taken yet, because the request has to wait for the TDM file first.
            if decision.evidence().lacks_tdm_file() {
                break (decision, None);
            }
            // Measured here, because a `Delay` does not say how long the request waited.
            let begun = clock::instant();
            let turn = match self.turn(decision.evidence(), &wait).await {
                Ok(turn) => turn,
                Err(delay) => {
                    wait.add_wait(clock::instant().saturating_duration_since(begun));
                    break (decision.later(delay), None);
                }
            };
            // `turn.waited()` is also zero for the turn that `Self::turn` requests after
            // the client has closed its side, however long the request waited before.
            let waited = clock::instant().saturating_duration_since(begun);
            if turn.waited().is_zero() && waited < DECISION_AGE_MAX {
                break (decision, Some(turn));
            }
            wait.add_wait(waited);
            match self.decide_without_fetch(decision.evidence()) {
                // The turn was granted under pace records that have changed. The request
                // waits for a turn under the new ones, and keeps its arrival number.
                Some(latest)
                    if self.is_to_be_sent(&latest)
                        && latest.ruling().pace_records != decision.ruling().pace_records =>
                {
                    wait.arrival = turn.arrival();
                }
                Some(latest) if self.is_to_be_sent(&latest) => break (latest, Some(turn)),
                Some(latest) => break (latest, None),
                // The robots.txt has expired and must be fetched first. The request keeps
                // its arrival number.
                None => {
                    wait.arrival = turn.arrival();
                    wait.robots_fetch = RobotsFetch::AfterTurn;
                }
            }
        };
        let turns = RequestTurns {
            decider: self,
            evidence: Arc::clone(decision.evidence()),
            wait,
            turn,
            decided_at: clock::instant(),
        };
        (decision, turns)
    }

    /// Decides a request, waiting for its robots.txt if that must be fetched.
    async fn decide(&self, request: &ProxyRequest, wait: &TurnWait<'_>) -> OriginDecision {
        if let Some(name) = &request.foreign_name {
            let policy = self.policy_now(request.preferences.as_ref());
            let inquiry = Arc::clone(&request.inquiry);
            let refused = Decision::foreign_name(inquiry, &policy, clock::now(), name);
            return OriginDecision::without_lookup(refused, None);
        }
        let robots_wait = RobotsWait {
            longest: wait.left,
            // Pinned here because the future has half a kilobyte, is passed on twice, and
            // is seldom polled.
            abort: pin!(self.robots_wait_aborted(wait)),
        };
        let (inquiry, asker) = (&request.inquiry, &request.asker);
        // The configuration may change during the wait for the robots.txt.
        let policy = || self.policy_now(request.preferences.as_ref());
        self.decider
            .decide(inquiry, policy, asker, robots_wait)
            .await
    }

    /// Returns the policy in force, but with the dialect of robots.txt under which the
    /// request began: the cache of the request's decider has files parsed in that dialect.
    ///
    /// With `preferences`, the policy is that of a crawler with these purposes.
    fn policy_now(&self, preferences: Option<&PreferenceTerms>) -> Arc<Policy> {
        let latest = self.latest_policy.load_full();
        let dialect = self.policy.terms().dialect;
        let policy = if latest.terms().dialect == dialect {
            latest
        } else {
            Arc::new(latest.in_dialect(dialect))
        };
        self.purpose_policies.of(policy, preferences)
    }

    /// Returns the policy of this configuration for a crawler with these preferences.
    pub fn policy_for(&self, preferences: Option<&PreferenceTerms>) -> Arc<Policy> {
        self.purpose_policies
            .of(Arc::clone(&self.policy), preferences)
    }

    /// Completes when a request must stop waiting for its robots.txt: no seat is free, the
    /// client closes its side, or another client takes the seat or the place. Sets
    /// [`TurnWait::abort_reason`], unless the client closed its side.
    ///
    /// The request holds its seat until this future completes or is dropped.
    async fn robots_wait_aborted(&self, wait: &TurnWait<'_>) {
        let Some(seat) = self.scheduler.seat(&wait.owner) else {
            let _ = wait.abort_reason.set(Reason::QueueFull);
            return;
        };
        let reason = tokio::select! {
            biased;
            () = wait.connection.end.ended() => return,
            () = seat.displaced() => Reason::QueueFull,
            () = wait.place_lost() => Reason::Overload,
        };
        let _ = wait.abort_reason.set(reason);
    }

    /// Reports whether the request goes to the origin. It does not if it is refused,
    /// answered from the cache, or decided by an expired robots.txt.
    pub(super) fn is_to_be_sent(&self, decision: &Decision) -> bool {
        let evidence = decision.evidence();
        evidence.lets_through() && !evidence.is_out_of_date() && !self.is_cached(decision)
    }

    /// Reports whether the request is answered with the cached robots.txt.
    pub fn is_cached(&self, decision: &Decision) -> bool {
        self.options.serve_cached && decision.own_copy().is_some()
    }

    /// Records the crawl delay of a robots.txt that was just fetched for a request that
    /// is not sent. Requests that are sent record it with their turn.
    fn record_crawl_delay(&self, decided: &OriginDecision) {
        let evidence = decided.decision.evidence();
        let robots = decided.robots.as_ref();
        let was_fetched = robots.is_some_and(|robots| robots.was_fetched);
        let records = evidence.ruling.pace_records.as_ref();
        if let Some(records) = records.filter(|_| was_fetched) {
            let host = evidence.inquiry.target.origin.host();
            self.scheduler.record_crawl_delay(host, records);
        }
    }

    /// Returns the patience of a new request: the operator's limit, or less if the client
    /// prefers less.
    fn longest_wait(&self, request: &ProxyRequest) -> Duration {
        let allowed = request.max_wait.unwrap_or(self.options.max_wait);
        let preferred = request.preferred_wait;
        preferred.map_or(allowed, |preferred| {
            preferred.max(self.options.least_wait).min(allowed)
        })
    }

    /// Returns the decision, changed to a delay if the robots.txt could not be requested
    /// yet: the site has not refused such a request.
    fn delayed_without_robots(&self, decided: OriginDecision, wait: &TurnWait<'_>) -> Decision {
        let evidence = decided.decision.evidence();
        let must_be_fetched = evidence.lets_through() && evidence.is_out_of_date();
        let not_requested_yet = evidence.lacks_an_answer_for_now();
        if !must_be_fetched && !not_requested_yet {
            return decided.decision;
        }
        let queued = decided.robots.and_then(|robots| robots.queued);
        let client = &wait.connection.sharer;
        let delay = match &queued {
            Some(queued) => {
                let reason = wait.abort_reason.get().copied();
                let QueuedFetch { host, wait } = queued;
                self.scheduler
                    .put_off_robots_by(host, client, reason, *wait)
            }
            None => self.robots_delay(evidence, client),
        };
        decided.decision.later(delay)
    }

    /// Returns the delay of a request of `client` whose robots.txt cannot be requested
    /// now, and for which no fetch is queued. The delay lasts at least until the snapshot
    /// that stands in for the robots.txt expires.
    fn robots_delay(&self, evidence: &Evidence, client: &Arc<Client>) -> Delay {
        let host = evidence.inquiry.target.origin.host();
        let delay = self.scheduler.put_off_robots(host, client);
        let delay = delay.unwrap_or_else(|| {
            let delay = Delay::of_host(Reason::Overload, DelayEnd::After(BUSY_RETRY));
            delay.explained("its robots.txt could not be asked for yet")
        });
        let snapshot_left = evidence.holds_for(clock::now());
        Delay {
            end: DelayEnd::After(delay.retry_after().max(snapshot_left)),
            ..delay
        }
    }

    /// Waits for a turn to send the request that `evidence` decided. Returns the delay
    /// with which to answer if none comes in time.
    ///
    /// When the client closes its side, the request gets a turn only if one is free at
    /// once.
    async fn turn(&self, evidence: &Evidence, wait: &TurnWait<'_>) -> Result<Turn, Delay> {
        let request = TurnRequest {
            max_wait: wait.left,
            robots_fetch: wait.robots_fetch,
            arrival: wait.arrival,
            embedding: wait.embedding,
            ..turn_request(evidence, &wait.owner, wait.address)
        };
        tokio::select! {
            biased;
            turn = self.scheduler.turn(request.clone()) => turn,
            // The select has dropped the first call, so the request has left the queue. A
            // second call without patience does not wait: it returns a free turn, or how
            // long the client would have had to wait.
            () = wait.connection.end.ended() => {
                let request = TurnRequest {
                    max_wait: Duration::ZERO,
                    robots_fetch: RobotsFetch::NotNeeded,
                    embedding: None,
                    ..request
                };
                Box::pin(self.scheduler.turn(request)).await
            }
            () = wait.place_lost() => Err(displaced_delay()),
        }
    }

    /// Waits for another turn to send a request again, after its turn or its connection
    /// was lost. Returns `None` if no turn comes in time, or if the recorded decision no
    /// longer holds: a request is only sent under the decision in the record. The decision
    /// is checked even if the turn comes at once, because the lost request may have been
    /// in flight for a long time.
    async fn turn_to_resend(&self, evidence: &Evidence, wait: &mut TurnWait<'_>) -> Option<Turn> {
        let turn = self.turn(evidence, wait).await.ok()?;
        wait.add_wait(turn.waited());
        let latest = self.decide_without_fetch(evidence)?;
        let holds = self.is_to_be_sent(&latest) && *latest.ruling() == evidence.ruling;
        holds.then_some(turn)
    }

    /// Decides the inquiry of `evidence` again by the robots.txt in memory and the current
    /// policy. Returns `None` if the robots.txt must be fetched first.
    fn decide_without_fetch(&self, evidence: &Evidence) -> Option<Decision> {
        let before = evidence.snapshot.as_ref()?;
        let snapshot = self.decider.robots.current(before)?;
        let decision = decide(
            &evidence.inquiry,
            &snapshot,
            &self.policy_now(evidence.policy.terms().preferences.as_ref()),
            clock::now(),
        );
        let evidence = decision.evidence();
        // A refusal that rests only on a robots.txt that was not requested yet does not
        // count: the caller fetches the file, and delays the request if that fails.
        let lacks_robots = evidence.lacks_an_answer_for_now() && !evidence.lets_through();
        (!lacks_robots && !evidence.is_out_of_date()).then_some(decision)
    }
}

/// Builds the turn request of `owner` for the request that `evidence` decided, at an
/// origin dialled at `address`. Its patience is unlimited.
pub(super) fn turn_request<'r>(
    evidence: &'r Evidence,
    owner: &'r TurnOwner,
    address: Option<IpAddr>,
) -> TurnRequest<'r> {
    let snapshot = evidence.snapshot.as_deref();
    TurnRequest {
        host: evidence.inquiry.target.origin.host(),
        owner,
        address,
        pace_records: evidence.ruling.pace_records.clone(),
        max_wait: Duration::MAX,
        robots_fetched_at: snapshot.map(|snapshot| snapshot.fetched_at),
        robots_fetch: RobotsFetch::NotNeeded,
        arrival: None,
        embedding: None,
    }
}

/// Returns the delay of a request whose place was taken by a client with fewer requests.
fn displaced_delay() -> Delay {
    let delay = Delay::of_host(Reason::Overload, DelayEnd::After(BUSY_RETRY));
    delay.explained("too many requests are under way, most of them of this client")
}

/// Returns the delay of a page whose TDM file could not be requested in time.
pub(super) fn tdm_delay() -> Delay {
    let delay = Delay::of_host(Reason::Overload, DelayEnd::After(BUSY_RETRY));
    delay.explained("its tdmrep.json could not be asked for yet")
}

/// Returns the delay of a request that exceeds the quota of its client.
fn quota_delay(exceeded: &QuotaExceeded) -> Delay {
    let end = DelayEnd::After(exceeded.wait);
    Delay::of_crawler(Reason::Quota, end).explained(exceeded.to_string())
}

/// Returns the client and crawler between which turns are shared. The crawler is
/// identified by its product token, or else by the client's address.
pub(super) fn owner(inquiry: &Inquiry, client: &Arc<Client>, address: IpAddr) -> TurnOwner {
    let crawler = match inquiry.crawler.token() {
        Some(token) => token.folded(),
        None => Arc::from(address.to_string()),
    };
    TurnOwner {
        client: Arc::clone(client),
        crawler: Some(crawler),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_base::clients::directory::ClientDirectory;
    use politesse_robots::crawler::Crawler;

    // RFC 9309, section 2.2.1: product tokens are case-insensitive.
    #[test]
    fn all_spellings_of_a_token_are_one_crawler() {
        let address = [127, 0, 0, 1].into();
        let client = ClientDirectory::default().at(address);
        let crawler = |agent: &str| {
            let inquiry = Inquiry {
                crawler: Crawler::parse(agent),
                target: "http://o.test/".parse().unwrap(),
                method: "GET".to_owned(),
            };
            owner(&inquiry, &client, address).crawler
        };
        assert_eq!(crawler("FooBot/2.1"), crawler("foobot/1.0"));
        assert_ne!(crawler("FooBot/2.1"), crawler("BarBot/2.1"));
    }
}
