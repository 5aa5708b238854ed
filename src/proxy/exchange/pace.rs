//! The decision that holds when its request is sent, and the turn to send it
//! in.
//!
//! Decisions, "A verdict does not age": waiting for a turn can outlive a
//! robots.txt, or an override. So what is recorded and acted on is decided when
//! the turn has come.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use super::Proxy;
use crate::clock;
use crate::origins::pacer::{Asking, Later, Turn};
use crate::proxy::request::Received;
use crate::rules::decision::{Decision, Evidence, PuttingOff, decide};

/// What holds for an inquiry now.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// Where its origin is dialled, if that is known.
    pub(super) address: Option<IpAddr>,
}

/// A decision that is acted on now.
#[derive(Debug)]
pub(super) struct InTurn {
    pub(super) decision: Decision,
    /// Leave to send it now, if it is sent at all.
    pub(super) turn: Option<Turn>,
    /// Where its origin is dialled, if that is known.
    pub(super) address: Option<IpAddr>,
    /// How long was waited for turns.
    pub(super) waited: Duration,
}

impl Proxy {
    /// Decides, waits for a turn if the request is to be sent, and decides again
    /// when it has come.
    pub(super) async fn decide_in_turn(&self, received: &Received) -> InTurn {
        let longest = self.longest_wait(received);
        let mut waited = Duration::ZERO;
        let mut until = None;
        loop {
            let Decided { decision, address } = self.decide(received).await;
            if !self.is_to_be_sent(&decision) {
                return InTurn::without_turn(self.unasked(decision), waited);
            }
            // What a robots.txt takes that expires again and again counts, too.
            let now = clock::instant();
            let left = (*until.get_or_insert(now + longest)).saturating_duration_since(now);
            let place = (received.client, address);
            let turn = match self.turn(decision.evidence(), place, left).await {
                Ok(turn) => turn,
                Err(later) => return InTurn::without_turn(put_off(decision, later), waited),
            };
            if turn.waited().is_zero() {
                return InTurn {
                    decision,
                    turn: Some(turn),
                    address,
                    waited,
                };
            }
            waited += turn.waited();
            match self.decide_again(decision.evidence()) {
                Some(decision) if self.is_to_be_sent(&decision) => {
                    return InTurn {
                        decision,
                        turn: Some(turn),
                        address,
                        waited,
                    };
                }
                Some(decision) => return InTurn::without_turn(decision, waited),
                // Its robots.txt has expired, and asking for it takes a turn.
                None => drop(turn),
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
    pub(super) fn longest_wait(&self, received: &Received) -> Duration {
        let allowed = received.max_wait.unwrap_or(self.options.max_wait);
        received
            .patience
            .map_or(allowed, |wanted| wanted.min(allowed))
    }

    /// Where a robots.txt was not asked for because its host is not to be asked
    /// now, that is no refusal: the request is put off like all others there.
    fn unasked(&self, decision: Decision) -> Decision {
        let evidence = decision.evidence();
        if !evidence.lacks_an_answer_for_now() {
            return decision;
        }
        match self
            .pacer
            .robots_later(evidence.inquiry.target.origin.host())
        {
            Some(later) => put_off(decision, later),
            None => decision,
        }
    }

    /// A turn for what was decided, for a client and the address of its origin.
    pub(super) async fn turn(
        &self,
        evidence: &Evidence,
        (client, address): (IpAddr, Option<IpAddr>),
        longest: Duration,
    ) -> Result<Turn, Later> {
        let inquiry = &evidence.inquiry;
        let crawler = match inquiry.crawler.token() {
            Some(token) => Cow::Borrowed(token.as_str()),
            None => Cow::Owned(client.to_string()),
        };
        let asking = Asking {
            host: inquiry.target.origin.host(),
            crawler: &crawler,
            address,
            asked: evidence.ruling.asked.clone(),
            longest,
        };
        self.pacer.turn(asking).await
    }

    /// The same inquiry, decided by what its origin says now; nothing if it has
    /// to be asked first.
    pub(super) fn decide_again(&self, evidence: &Evidence) -> Option<Decision> {
        let before = evidence.snapshot.as_ref()?;
        let snapshot = self.robots.still(&evidence.inquiry, before)?;
        let terms = (&self.policy, clock::now());
        Some(decide(&evidence.inquiry, &snapshot, terms))
    }
}

impl InTurn {
    fn without_turn(decision: Decision, waited: Duration) -> Self {
        Self {
            decision,
            turn: None,
            address: None,
            waited,
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
