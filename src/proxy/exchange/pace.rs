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
use crate::origins::pacer::{Asking, Later, RobotsAsked, Turn};
use crate::origins::robots_cache::Known;
use crate::proxy::request::Received;
use crate::rules::decision::{Decision, PuttingOff, decide};
use crate::rules::reason::Reason;

/// When it is worth asking again where nobody had the room to ask an origin.
const ROOM_AGAIN: Duration = Duration::from_secs(1);

/// What holds for an inquiry now.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// Where its origin is dialled, if that is known.
    pub(super) address: Option<IpAddr>,
    /// How its robots.txt came, if it was asked about.
    pub(super) known: Option<Known>,
}

/// A decision that is acted on now.
#[derive(Debug)]
pub(super) struct InTurn {
    pub(super) decision: Decision,
    /// Leave to send it now, if it is sent at all.
    pub(super) turn: Option<Turn>,
    /// How long was waited for turns.
    pub(super) waited: Duration,
}

/// How long a request waits for turns.
#[derive(Debug)]
struct Wait {
    so_far: Duration,
    left: Duration,
    robots: RobotsAsked,
    /// Its place in the order of arrival, if it has one.
    number: Option<u64>,
}

impl Wait {
    /// The decision took what was waited for a robots.txt.
    fn decided(&mut self, known: Option<&Known>) {
        let Some(known) = known else { return };
        self.took(known.waited);
        if known.was_asked && self.robots == RobotsAsked::No {
            self.robots = RobotsAsked::Once;
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
    pub(super) async fn decide_in_turn(&self, received: &Received) -> InTurn {
        let mut wait = Wait {
            so_far: Duration::ZERO,
            left: self.longest_wait(received),
            robots: RobotsAsked::No,
            number: None,
        };
        loop {
            let decided = self.decide(received, wait.left).await;
            wait.decided(decided.known.as_ref());
            if !self.is_to_be_sent(&decided.decision) {
                return InTurn::without(self.unasked(decided), &wait);
            }
            let (decision, address) = (decided.decision, decided.address);
            let turn = match self.turn(&decision, (received, address), &wait).await {
                Ok(turn) => turn,
                Err(later) => return InTurn::without(put_off(decision, later), &wait),
            };
            if turn.waited().is_zero() {
                return InTurn::with(turn, decision, &wait);
            }
            wait.took(turn.waited());
            match self.decide_again(&decision) {
                Some(decision) if self.is_to_be_sent(&decision) => {
                    return InTurn::with(turn, decision, &wait);
                }
                Some(decision) => return InTurn::without(decision, &wait),
                // Its robots.txt has expired, and is asked for first; then it
                // has its place again.
                None => (wait.number, wait.robots) = (turn.number(), RobotsAsked::Again),
            }
        }
    }

    /// Whether the origin is asked: not for what is refused, nor for what our
    /// own copy answers.
    fn is_to_be_sent(&self, decision: &Decision) -> bool {
        let is_cached = self.options.serve_cached && decision.own_copy().is_some();
        decision.evidence().lets_through() && !is_cached
    }

    /// The wait that the operator allows, for all or for this crawler, unless
    /// the crawler wants a shorter one.
    fn longest_wait(&self, received: &Received) -> Duration {
        let allowed = received.max_wait.unwrap_or(self.options.max_wait);
        received
            .patience
            .map_or(allowed, |wanted| wanted.min(allowed))
    }

    /// Where a robots.txt was not asked for, that is no refusal: the request is
    /// put off like all others.
    fn unasked(&self, decided: Decided) -> Decision {
        let Decided {
            decision, known, ..
        } = decided;
        let evidence = decision.evidence();
        if !evidence.lacks_an_answer_for_now() {
            return decision;
        }
        let too_long = known.and_then(|known| known.too_long);
        let later = match &too_long {
            Some((host, wait)) => Some(self.pacer.robots_later_by(host, *wait)),
            None => {
                let host = evidence.inquiry.target.origin.host();
                self.pacer.robots_later(host)
            }
        };
        let later = match later {
            Some(later) => later,
            None => Later {
                reason: Reason::Overload,
                retry_after: ROOM_AGAIN,
                detail: "its robots.txt could not be asked for yet".to_owned(),
            },
        };
        put_off(decision, later)
    }

    async fn turn(
        &self,
        decision: &Decision,
        (received, address): (&Received, Option<IpAddr>),
        wait: &Wait,
    ) -> Result<Turn, Later> {
        let inquiry = &received.inquiry;
        let crawler = match inquiry.crawler.token() {
            Some(token) => Cow::Borrowed(token.as_str()),
            None => Cow::Owned(received.client.to_string()),
        };
        let snapshot = decision.evidence().snapshot.as_deref();
        let asking = |longest| Asking {
            host: inquiry.target.origin.host(),
            crawler: &crawler,
            address,
            asked: decision.ruling().asked.clone(),
            longest,
            robots_from: snapshot.map(|snapshot| snapshot.fetched_at),
            robots: wait.robots,
            number: wait.number,
        };
        tokio::select! {
            biased;
            turn = self.pacer.turn(asking(wait.left)) => turn,
            // Its place is free by now, and it learns what it waited for.
            () = received.end.ended() => self.pacer.turn(asking(Duration::ZERO)).await,
        }
    }

    /// The same inquiry, decided by what its origin says now; nothing if it has
    /// to be asked first.
    fn decide_again(&self, decision: &Decision) -> Option<Decision> {
        let evidence = decision.evidence();
        let before = evidence.snapshot.as_ref()?;
        let snapshot = self.robots.still(&evidence.inquiry, before)?;
        let terms = (&self.policy, clock::now());
        Some(decide(&evidence.inquiry, &snapshot, terms))
    }
}

impl InTurn {
    fn with(turn: Turn, decision: Decision, wait: &Wait) -> Self {
        Self {
            turn: Some(turn),
            ..Self::without(decision, wait)
        }
    }

    fn without(decision: Decision, wait: &Wait) -> Self {
        Self {
            decision,
            turn: None,
            waited: wait.so_far,
        }
    }
}

fn put_off(decision: Decision, later: Later) -> Decision {
    decision.later(PuttingOff {
        reason: later.reason,
        retry_after: later.retry_after,
        detail: later.detail,
    })
}
