//! The decision that holds when its request is sent, and the turn to send it
//! in.
//!
//! Decisions, "A verdict does not age": waiting for a turn can outlive a
//! robots.txt, or an override. So what is recorded and acted on is decided when
//! the turn has come. A crawler that closes its connection meanwhile waits no
//! longer.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use super::Proxy;
use crate::clock;
use crate::decision::decide::{Decision, Evidence, Inquiry, decide};
use crate::decision::delay::{Delay, DelayEnd};
use crate::decision::reason::Reason;
use crate::pace::{RobotsFetch, Turn, TurnRequest};
use crate::proxy::request::ProxyRequest;
use crate::proxy::socket::ClientEnd;
use crate::robots_cache::{QueuedFetch, RobotsLookup};

/// When it is worth asking again where nobody had the room to ask an origin.
const ROOM_AGAIN: Duration = Duration::from_secs(1);

/// What holds for an inquiry now.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// Where its origin is dialled, if that is known.
    pub(super) address: Option<IpAddr>,
    /// How its robots.txt came, if it was asked about.
    pub(super) known: Option<RobotsLookup>,
}

/// A decision that is acted on now.
#[derive(Debug)]
pub(super) struct InTurn {
    pub(super) decision: Decision,
    /// Leave to send it now, if it is sent at all.
    pub(super) turn: Option<Turn>,
    /// The wait for that.
    pub(super) wait: Wait,
}

/// Who waits for turns, and how long.
#[derive(Debug)]
pub(super) struct Wait {
    client: IpAddr,
    end: ClientEnd,
    /// Where the origin is dialled, if that is known.
    address: Option<IpAddr>,
    so_far: Duration,
    left: Duration,
    robots: RobotsFetch,
    /// Its place in the order of arrival, if it has one.
    number: Option<u64>,
}

impl Wait {
    fn of(received: &ProxyRequest, longest: Duration) -> Self {
        Self {
            client: received.client,
            end: received.end.clone(),
            address: None,
            so_far: Duration::ZERO,
            left: longest,
            robots: RobotsFetch::No,
            number: None,
        }
    }

    /// How long it was until now.
    pub(super) fn so_far(&self) -> Duration {
        self.so_far
    }

    /// The decision took what was waited for a robots.txt.
    fn decided(&mut self, decided: &Decided) {
        self.address = decided.address;
        let Some(known) = &decided.known else { return };
        self.took(known.waited);
        if known.was_fetched && self.robots == RobotsFetch::No {
            self.robots = RobotsFetch::Once;
        }
    }

    fn took(&mut self, waited: Duration) {
        self.so_far += waited;
        self.left = self.left.saturating_sub(waited);
    }
}

impl Proxy {
    /// Decides, waits for a turn if the request is to be sent, and decides again
    /// when it has come.
    pub(super) async fn decide_in_turn(&self, received: &ProxyRequest) -> InTurn {
        let mut wait = Wait::of(received, self.longest_wait(received));
        loop {
            let decided = self.decide(received, wait.left).await;
            wait.decided(&decided);
            if !self.is_to_be_sent(&decided.decision) {
                self.heed(&decided);
                return InTurn::without(self.unasked(decided, received.client), wait);
            }
            let decision = decided.decision;
            let begun = clock::instant();
            let turn = match self.turn(decision.evidence(), &wait).await {
                Ok(turn) => turn,
                Err(delay) => {
                    wait.took(clock::instant().saturating_duration_since(begun));
                    return InTurn::without(decision.later(delay), wait);
                }
            };
            if turn.waited().is_zero() {
                return InTurn::with(turn, decision, wait);
            }
            wait.took(turn.waited());
            match self.decide_again(decision.evidence()) {
                Some(decision) if self.is_to_be_sent(&decision) => {
                    return InTurn::with(turn, decision, wait);
                }
                Some(decision) => return InTurn::without(decision, wait),
                // Its robots.txt has expired, and is asked for first; then it
                // has its place again.
                None => (wait.number, wait.robots) = (turn.arrival(), RobotsFetch::Again),
            }
        }
    }

    /// Whether the origin is asked: not for what is refused, nor for what our
    /// own copy answers, nor by what it may not say any more.
    fn is_to_be_sent(&self, decision: &Decision) -> bool {
        let is_cached = self.options.serve_cached && decision.own_copy().is_some();
        let evidence = decision.evidence();
        evidence.lets_through() && !evidence.is_out_of_date() && !is_cached
    }

    /// What was just asked for its robots.txt keeps the pause that this asks
    /// for, though no page follows: other crawlers have theirs asked for.
    fn heed(&self, decided: &Decided) {
        let evidence = decided.decision.evidence();
        let was_asked = decided
            .known
            .as_ref()
            .is_some_and(|known| known.was_fetched);
        if let Some(asked) = evidence.ruling.asked.as_ref().filter(|_| was_asked) {
            self.scheduler
                .record_crawl_delay(evidence.inquiry.target.origin.host(), asked);
        }
    }

    /// The wait that the operator allows, for all or for this crawler, unless
    /// the crawler wants a shorter one.
    fn longest_wait(&self, received: &ProxyRequest) -> Duration {
        let allowed = received.max_wait.unwrap_or(self.options.max_wait);
        received
            .patience
            .map_or(allowed, |wanted| wanted.min(allowed))
    }

    /// Where a robots.txt was not asked for, that is no refusal: the request is
    /// put off like all others.
    fn unasked(&self, decided: Decided, client: IpAddr) -> Decision {
        let Decided {
            decision, known, ..
        } = decided;
        let evidence = decision.evidence();
        let is_late = evidence.lets_through() && evidence.is_out_of_date();
        if !is_late && !evidence.lacks_an_answer_for_now() {
            return decision;
        }
        let queued = known.and_then(|known| known.queued);
        let delay = match &queued {
            Some(QueuedFetch { host, wait }) => {
                let crawler = crawler(&evidence.inquiry, client);
                self.scheduler.put_off_robots_by(host, &crawler, *wait)
            }
            None => self.unasked_later(evidence),
        };
        decision.later(delay)
    }

    /// When it is worth asking again where what was decided by holds for as long
    /// as nobody can be asked.
    fn unasked_later(&self, evidence: &Evidence) -> Delay {
        let host = evidence.inquiry.target.origin.host();
        let delay = self.scheduler.put_off_robots(host).unwrap_or_else(|| {
            let delay = Delay::of_host(Reason::Overload, DelayEnd::After(ROOM_AGAIN));
            delay.explained("its robots.txt could not be asked for yet")
        });
        let held = evidence.holds_for(clock::now());
        Delay {
            end: DelayEnd::After(delay.retry_after().max(held)),
            ..delay
        }
    }

    /// Waits until the crawler has left, from the moment on when its robots.txt
    /// waits for a turn; it waits in line as well, and leaves at once where that
    /// is full.
    pub(super) async fn leaves(&self, received: &ProxyRequest) {
        let crawler = crawler(&received.inquiry, received.client);
        if let Some(_seat) = self.scheduler.seat(&crawler) {
            received.end.ended().await;
        }
    }

    /// A turn to send what was decided by `evidence`.
    async fn turn(&self, evidence: &Evidence, wait: &Wait) -> Result<Turn, Delay> {
        let inquiry = &evidence.inquiry;
        let crawler = crawler(inquiry, wait.client);
        let snapshot = evidence.snapshot.as_deref();
        let request = |longest, robots| TurnRequest {
            host: inquiry.target.origin.host(),
            crawler: Some(&crawler),
            address: wait.address,
            pace_records: evidence.ruling.asked.clone(),
            max_wait: longest,
            robots_fetched_at: snapshot.map(|snapshot| snapshot.fetched_at),
            robots_fetch: robots,
            arrival: wait.number,
        };
        let wanted = self.scheduler.turn(request(wait.left, wait.robots));
        tokio::select! {
            biased;
            turn = wanted => turn,
            // Its place is free by now, and it learns what it waited for.
            () = wait.end.ended() => {
                self.scheduler.turn(request(Duration::ZERO, RobotsFetch::No)).await
            }
        }
    }

    /// Another turn for what was sent in vain, if it comes in time, and if what
    /// is on record is what would be decided then: a verdict does not age, and
    /// what is sent is sent by the one that is written down.
    pub(super) async fn turn_again(&self, evidence: &Evidence, wait: &mut Wait) -> Option<Turn> {
        let turn = self.turn(evidence, wait).await.ok()?;
        wait.took(turn.waited());
        if turn.waited().is_zero() {
            return Some(turn);
        }
        let again = self.decide_again(evidence)?;
        (*again.ruling() == evidence.ruling).then_some(turn)
    }

    /// The same inquiry, decided by what its origin and the operator say now;
    /// nothing if the origin has to be asked first.
    fn decide_again(&self, evidence: &Evidence) -> Option<Decision> {
        let before = evidence.snapshot.as_ref()?;
        let snapshot = self.robots.current(&evidence.inquiry, before)?;
        // What is held was read in one dialect.
        let latest = self.latest.load_full();
        let same = latest.dialect() == self.policy.dialect();
        let policy = if same { &latest } else { &self.policy };
        let terms = (policy, clock::now());
        let decision = decide(&evidence.inquiry, &snapshot, terms);
        (!decision.evidence().is_out_of_date()).then_some(decision)
    }
}

impl InTurn {
    fn with(turn: Turn, decision: Decision, wait: Wait) -> Self {
        Self {
            turn: Some(turn),
            ..Self::without(decision, wait)
        }
    }

    fn without(decision: Decision, wait: Wait) -> Self {
        Self {
            decision,
            turn: None,
            wait,
        }
    }
}

/// By whom turns are taken: a product token, else a client's address.
fn crawler(inquiry: &Inquiry, client: IpAddr) -> Cow<'_, str> {
    match inquiry.crawler.token() {
        Some(token) => Cow::Borrowed(token.as_str()),
        None => Cow::Owned(client.to_string()),
    }
}
