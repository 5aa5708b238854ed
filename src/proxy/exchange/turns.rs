//! The turns of a request on its way: the one that it waited for, and another
//! if it has to be sent again.
//!
//! The record is written by then, and holds the first wait and the decision
//! that both are sent by.

use std::sync::Arc;
use std::time::Duration;

use super::Proxy;
use super::pace::Wait;
use crate::decision::decide::Evidence;
use crate::pace::Turn;
use crate::upstream::client::Starts;

/// What a request needs to be sent, and to be sent again.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    pub(super) proxy: &'a Proxy,
    /// What it is sent by.
    pub(super) evidence: Arc<Evidence>,
    pub(super) wait: Wait,
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
        let again = self.proxy.turn_again(&self.evidence, &mut self.wait);
        self.turn = again.await;
        if let Some(turn) = &self.turn {
            turn.mark_sent();
        }
        self.turn.is_some()
    }
}
