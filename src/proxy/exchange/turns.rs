//! The turns of a request on its way: the one that it waited for, and another
//! if it has to be sent again.
//!
//! The record is written by then, and holds the first wait and the decision
//! that both are sent by.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Proxy;
use crate::clock;
use crate::origins::pacer::Turn;
use crate::origins::robots_fetch::Asker;
use crate::origins::upstream::Starts;
use crate::rules::decision::{Decision, Evidence, decide};

/// What a request needs to be sent, and to be sent again.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    pub(super) proxy: &'a Proxy,
    /// What it is sent by.
    pub(super) evidence: Arc<Evidence>,
    pub(super) client: IpAddr,
    /// Where its origin is dialled, if that is known.
    pub(super) address: Option<IpAddr>,
    /// On whose behalf robots.txt is asked for.
    pub(super) asker: Asker,
    /// How long it may still wait.
    pub(super) left: Duration,
    /// The turn that it has.
    pub(super) turn: Option<Turn>,
}

impl Starts for Turns<'_> {
    fn pause(&self) -> Duration {
        self.turn.as_ref().map_or(Duration::ZERO, Turn::pause)
    }

    async fn again(&mut self) -> bool {
        // The one that failed ends first: its pause counts from here.
        self.turn = None;
        self.turn = self.next().await;
        if let Some(turn) = &self.turn {
            turn.sent();
        }
        self.turn.is_some()
    }
}

impl Turns<'_> {
    /// Another turn, if it comes in time, and if what is on record is still what
    /// would be decided then: a verdict does not age, and what is sent is sent by
    /// the one that is written down.
    async fn next(&self) -> Option<Turn> {
        let until = clock::instant() + self.left;
        let place = (self.client, self.address);
        loop {
            let left = until.saturating_duration_since(clock::instant());
            let turn = self.proxy.turn(&self.evidence, place, left).await.ok()?;
            if turn.waited().is_zero() {
                return Some(turn);
            }
            if let Some(again) = self.proxy.decide_again(&self.evidence) {
                return self.is_as_recorded(&again).then_some(turn);
            }
            // Its robots.txt has expired, and asking for it takes a turn.
            drop(turn);
            let inquiry = &self.evidence.inquiry;
            let snapshot = self.proxy.robots.snapshot(inquiry, &self.asker).await;
            let terms = (&self.proxy.policy, clock::now());
            if !self.is_as_recorded(&decide(inquiry, &snapshot, terms)) {
                return None;
            }
        }
    }

    fn is_as_recorded(&self, again: &Decision) -> bool {
        *again.ruling() == self.evidence.ruling
    }
}
