//! Turns of requests at their hosts: decides a request, waits for its turn, and decides
//! again when the turn has come.
//!
//! A wait can outlast a robots.txt or an override, so the decision that is recorded and
//! acted on is the one made when the turn has come. The wait ends early if the client
//! closes its connection. Does not know how turns are granted; `pace` does.

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
    /// Lower limit for the wait that a client prefers. It allows for the time to get the
    /// lease of a host in a fleet, without which no request could start.
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

/// Age above which a decision is repeated before the request is sent.
const DECISION_AGE_MAX: Duration = Duration::from_millis(10);

/// Wait of one request for its turns.
#[derive(Debug)]
struct TurnWait<'a> {
    connection: &'a ConnectionInfo,
    /// Client and crawler between which turns are shared.
    owner: TurnOwner,
    /// Place among the concurrent requests. Another client can take it while the request
    /// waits.
    place: Option<Arc<RequestPlace>>,
    /// Reason why the wait for a robots.txt was cut short, unless the client has gone.
    cut_short: OnceLock<Reason>,
    /// Address that is dialled for the origin, if known.
    address: Option<IpAddr>,
    elapsed: Duration,
    left: Duration,
    /// Number of retries so far after a 429 or 503.
    retries: u8,
    /// Quota of the client, if the request exceeds it.
    over_quota: Option<QuotaExceeded>,
    robots_fetch: RobotsFetch,
    /// Relation to the page that embeds the requested URL.
    embedding: Option<Embedding>,
    /// Position in the order of arrival, if the request already has one.
    arrival: Option<u64>,
}

impl TurnWait<'_> {
    /// Completes when the request's place is taken by another client. The place can be
    /// taken only while this future is alive.
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

    fn add_wait(&mut self, waited: Duration) {
        self.elapsed += waited;
        self.left = self.left.saturating_sub(waited);
    }

    /// Adds the time that a decision waited for a robots.txt.
    fn add_decision(&mut self, decided: &OriginDecision) {
        self.address = decided.address;
        let Some(robots) = &decided.robots else {
            return;
        };
        self.add_wait(robots.waited);
        if robots.was_fetched && self.robots_fetch == RobotsFetch::No {
            self.robots_fetch = RobotsFetch::Once;
        }
    }
}

/// A place that can be taken until this guard is dropped.
struct DisplaceablePlace<'a>(&'a RequestPlace);

impl Drop for DisplaceablePlace<'_> {
    fn drop(&mut self) {
        self.0.may_be_displaced(false);
    }
}

/// Turns of one request: the current turn, and another if the request must be sent again
/// over a new connection.
///
/// The decision record is written before the request is sent. It contains the first wait,
/// and its decision covers both turns.
#[derive(Debug)]
pub struct RequestTurns<'a> {
    decider: &'a TurnDecider,
    evidence: Arc<Evidence>,
    wait: TurnWait<'a>,
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

    /// Returns how long the request has waited.
    pub fn waited(&self) -> Duration {
        self.wait.elapsed
    }

    /// Marks the turn as used: from now on the host may have seen the request.
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
        // If others are ahead, or the client no longer waits, the retry would end in an
        // answer from the proxy. The site's own answer is worth more to the client.
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

    /// Returns the remaining patience of the request. The time since the decision counts
    /// too, because the client was waiting.
    pub(super) fn left(&self) -> Duration {
        let under_way = clock::instant().saturating_duration_since(self.decided_at);
        self.wait.left.saturating_sub(under_way)
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

    fn again(&mut self) -> impl Future<Output = bool> + Send {
        self.turns.again()
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

    async fn again(&mut self) -> bool {
        // The failed turn ends first, because the pause after it starts now.
        self.turn = None;
        let turn = self.decider.turn_again(&self.evidence, &mut self.wait);
        self.turn = turn.await;
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
            cut_short: OnceLock::new(),
            address: None,
            elapsed: Duration::ZERO,
            left: self.longest_wait(request),
            retries: 0,
            // Counted before the decision, so that a flood of refused requests counts,
            // too.
            over_quota: connection.sharer.count_request().err(),
            robots_fetch: RobotsFetch::No,
            embedding: request.embedding,
            arrival: None,
        };
        self.decide_within(request, wait).await
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
            // The wait of the previous attempt is in that attempt's row.
            elapsed: Duration::ZERO,
            left,
            retries: before.wait.retries + 1,
            robots_fetch: RobotsFetch::No,
            arrival: None,
            ..before.wait
        };
        self.decide_within(request, wait).await
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
        self.decide_within(request, wait).await
    }

    async fn decide_within<'a>(
        &'a self,
        request: &ProxyRequest,
        mut wait: TurnWait<'a>,
    ) -> (Decision, RequestTurns<'a>) {
        let (decision, turn) = loop {
            let decided = self.decide(request, &wait).await;
            wait.add_decision(&decided);
            if !self.is_to_be_sent(&decided.decision) {
                self.record_crawl_delay(&decided);
                break (self.delayed_if_unasked(decided, &wait), None);
            }
            let decision = decided.decision;
            if let Some(exceeded) = &wait.over_quota {
                break (decision.later(quota_delay(exceeded)), None);
            }
            // No turn is taken yet, because the request has to wait for the file first.
            if decision.evidence().lacks_tdm_file() {
                break (decision, None);
            }
            // A `Delay` does not tell how long the request has waited.
            let begun = clock::instant();
            let turn = match self.turn(decision.evidence(), &wait).await {
                Ok(turn) => turn,
                Err(delay) => {
                    wait.add_wait(clock::instant().saturating_duration_since(begun));
                    break (decision.later(delay), None);
                }
            };
            // Even a turn granted at once may have been requested late, after the client
            // had closed its side.
            let waited = clock::instant().saturating_duration_since(begun);
            if turn.waited().is_zero() && waited < DECISION_AGE_MAX {
                break (decision, Some(turn));
            }
            wait.add_wait(waited);
            match self.decide_again(decision.evidence()) {
                // The turn was granted under pace records that have changed. The request
                // waits for a turn under the new ones, and keeps its position in the
                // order of arrival.
                Some(again)
                    if self.is_to_be_sent(&again)
                        && again.ruling().asked != decision.ruling().asked =>
                {
                    wait.arrival = turn.arrival();
                }
                Some(again) if self.is_to_be_sent(&again) => break (again, Some(turn)),
                Some(again) => break (again, None),
                // The robots.txt has expired and must be fetched first. The request keeps
                // its position in the order of arrival.
                None => (wait.arrival, wait.robots_fetch) = (turn.arrival(), RobotsFetch::Again),
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

    async fn decide(&self, request: &ProxyRequest, wait: &TurnWait<'_>) -> OriginDecision {
        if let Some(name) = &request.foreign_name {
            let policy = self.policy_now(request.preferences.as_ref());
            let inquiry = Arc::clone(&request.inquiry);
            let refused = Decision::foreign_name(inquiry, &policy, clock::now(), name);
            return OriginDecision::unasked(refused, None);
        }
        let robots_wait = RobotsWait {
            longest: wait.left,
            // Pinned here because it has half a kilobyte, is passed on twice, and is
            // seldom polled.
            client_gone: pin!(self.end_of_robots_wait(wait)),
        };
        let (inquiry, asker) = (&request.inquiry, &request.asker);
        // The configuration may change during the wait for the robots.txt.
        let policy = || self.policy_now(request.preferences.as_ref());
        self.decider
            .decide(inquiry, policy, asker, robots_wait)
            .await
    }

    /// Returns the policy in force, in the dialect of the policy under which the request
    /// began, because this cache parsed each robots.txt in that dialect.
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

    /// Completes when a request must stop waiting for a robots.txt.
    ///
    /// The request takes a seat in the queue, and stops at once if the queue is full.
    async fn end_of_robots_wait(&self, wait: &TurnWait<'_>) {
        let Some(seat) = self.scheduler.seat(&wait.owner) else {
            let _ = wait.cut_short.set(Reason::QueueFull);
            return;
        };
        let reason = tokio::select! {
            biased;
            () = wait.connection.end.ended() => return,
            () = seat.displaced() => Reason::QueueFull,
            () = wait.place_lost() => Reason::Overload,
        };
        let _ = wait.cut_short.set(reason);
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
        if let Some(asked) = evidence.ruling.asked.as_ref().filter(|_| was_fetched) {
            let host = evidence.inquiry.target.origin.host();
            self.scheduler.record_crawl_delay(host, asked);
        }
    }

    /// Returns the maximum wait: the operator's limit, or less if the client prefers
    /// less.
    fn longest_wait(&self, request: &ProxyRequest) -> Duration {
        let allowed = request.max_wait.unwrap_or(self.options.max_wait);
        let preferred = request.preferred_wait;
        preferred.map_or(allowed, |preferred| {
            preferred.max(self.options.least_wait).min(allowed)
        })
    }

    /// Delays a request whose robots.txt could not be requested yet. That is no reason to
    /// refuse it.
    fn delayed_if_unasked(&self, decided: OriginDecision, wait: &TurnWait<'_>) -> Decision {
        let evidence = decided.decision.evidence();
        let is_late = evidence.lets_through() && evidence.is_out_of_date();
        if !is_late && !evidence.lacks_an_answer_for_now() {
            return decided.decision;
        }
        let queued = decided.robots.and_then(|robots| robots.queued);
        let client = &wait.connection.sharer;
        let delay = match &queued {
            Some(queued) => {
                let reason = wait.cut_short.get().copied();
                let QueuedFetch { host, wait } = queued;
                self.scheduler
                    .put_off_robots_by(host, client, reason, *wait)
            }
            None => self.robots_delay(evidence, client),
        };
        decided.decision.later(delay)
    }

    /// Returns the delay of a request of `client` whose robots.txt cannot be requested
    /// now. The delay lasts at least as long as the snapshot that stands in for the
    /// robots.txt.
    fn robots_delay(&self, evidence: &Evidence, client: &Arc<Client>) -> Delay {
        let host = evidence.inquiry.target.origin.host();
        let delay = self.scheduler.put_off_robots(host, client);
        let delay = delay.unwrap_or_else(|| {
            let delay = Delay::of_host(Reason::Overload, DelayEnd::After(BUSY_RETRY));
            delay.explained("its robots.txt could not be asked for yet")
        });
        let held = evidence.holds_for(clock::now());
        Delay {
            end: DelayEnd::After(delay.retry_after().max(held)),
            ..delay
        }
    }

    /// Waits for a turn to send the request that `evidence` decided.
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
            // The request has left the queue by now. A second call with no patience
            // returns how long the client would have waited.
            () = wait.connection.end.ended() => {
                let request = TurnRequest {
                    max_wait: Duration::ZERO,
                    robots_fetch: RobotsFetch::No,
                    embedding: None,
                    ..request
                };
                Box::pin(self.scheduler.turn(request)).await
            }
            () = wait.place_lost() => Err(out_of_places()),
        }
    }

    /// Waits for another turn to send a request that was lost. Returns `None` if no turn
    /// comes in time, or if the recorded decision no longer holds: a request is only sent
    /// under the decision in the record. The decision is checked even if the turn comes
    /// at once, because the lost request may have been at the origin for long.
    async fn turn_again(&self, evidence: &Evidence, wait: &mut TurnWait<'_>) -> Option<Turn> {
        let turn = self.turn(evidence, wait).await.ok()?;
        wait.add_wait(turn.waited());
        let again = self.decide_again(evidence)?;
        let holds = self.is_to_be_sent(&again) && *again.ruling() == evidence.ruling;
        holds.then_some(turn)
    }

    /// Decides the inquiry of `evidence` again by the current robots.txt and policy.
    /// Returns `None` if the robots.txt must be fetched first.
    fn decide_again(&self, evidence: &Evidence) -> Option<Decision> {
        let before = evidence.snapshot.as_ref()?;
        let snapshot = self.decider.robots.current(before)?;
        let decision = decide(
            &evidence.inquiry,
            &snapshot,
            &self.policy_now(evidence.policy.terms().preferences.as_ref()),
            clock::now(),
        );
        let evidence = decision.evidence();
        // A request refused because its robots.txt is not available yet is delayed
        // instead.
        let is_unasked = evidence.lacks_an_answer_for_now() && !evidence.lets_through();
        (!is_unasked && !evidence.is_out_of_date()).then_some(decision)
    }
}

/// Builds the turn request of `owner` for the request that `evidence` decided, at an
/// origin dialled at `address`. Its wait is unlimited.
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
        pace_records: evidence.ruling.asked.clone(),
        max_wait: Duration::MAX,
        robots_fetched_at: snapshot.map(|snapshot| snapshot.fetched_at),
        robots_fetch: RobotsFetch::No,
        arrival: None,
        embedding: None,
    }
}

/// Returns the delay of a request whose place was taken by a client with fewer requests.
fn out_of_places() -> Delay {
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
