//! Turns at one host whose clients are waited for, and the clients that were waited
//! for too long.
//!
//! A client may stall once for as long as `pace.max_stall`, and then, as long as
//! that is remembered, hardly at all: otherwise a few that stall again and again
//! would have the host for themselves most of the time. Does not know the schedule.

use std::sync::Arc;
use std::time::Duration;

use super::context::Now;
use super::schedule::{Start, Uptime};
use super::turn_activity::TurnActivity;
use crate::clients::client::Client;

/// Longest stall of a client that has stalled before: more than the moments in
/// which any client is waited for.
const STALL_AGAIN: Duration = Duration::from_millis(50);

/// Clients that are remembered at one host; the oldest goes first.
const CLIENTS_MAX: usize = 256;

/// Limits of stalls.
#[derive(Debug, Clone, Copy)]
pub(super) struct StallLimits {
    /// Time for which a client may stall (`pace.max_stall`).
    first: Duration,
    /// Time for which it is remembered that it did (`pace.max_turn`).
    remembered: Duration,
}

impl StallLimits {
    /// Returns the limits in force.
    pub(super) fn of(now: &Now) -> Self {
        let options = &now.active.options;
        Self {
            first: options.max_stall,
            remembered: options.max_turn,
        }
    }
}

/// Turns and clients of one host.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    /// Turns whose clients were waited for, until they end or are given up.
    pub(super) turns: Vec<Arc<TurnActivity>>,
    /// Clients that have stalled, in the order in which they did first.
    clients: Vec<StalledClient>,
}

/// Client whose turns were given up.
#[derive(Debug)]
struct StalledClient {
    client: Arc<Client>,
    /// Turns that were given up and go on.
    given_up: u32,
    /// Time until which it may hardly stall again.
    until: Uptime,
}

impl StallWatch {
    /// Gives up the turns of clients that have stalled; returns their starts.
    pub(super) fn give_up(&mut self, limits: &StallLimits, now: Uptime) -> Vec<Start> {
        let Self { turns, clients } = self;
        let is_stalled = |turn: &mut Arc<TurnActivity>| look_at(turn, clients, limits, now) <= now;
        let stalled: Vec<_> = turns.extract_if(.., is_stalled).collect();
        for turn in &stalled {
            turn.give_up();
            if let Some(client) = &turn.client {
                self.remember(client, now.saturating_add(limits.remembered), now);
            }
        }
        stalled.iter().map(|turn| turn.start).collect()
    }

    fn remember(&mut self, client: &Arc<Client>, until: Uptime, now: Uptime) {
        if let Some(known) = self.known(client) {
            known.given_up += 1;
            known.until = until;
            return;
        }
        self.clients.retain(|client| !client.is_idle(now));
        if CLIENTS_MAX <= self.clients.len() {
            self.clients.remove(0);
        }
        self.clients.push(StalledClient {
            client: Arc::clone(client),
            given_up: 1,
            until,
        });
    }

    fn known(&mut self, client: &Arc<Client>) -> Option<&mut StalledClient> {
        let mut clients = self.clients.iter_mut();
        clients.find(|known| Arc::ptr_eq(&known.client, client))
    }

    /// Returns when to look at the first of the turns; `None` if there is none.
    pub(super) fn look_at(&self, limits: &StallLimits, now: Uptime) -> Option<Uptime> {
        let turns = self.turns.iter();
        turns
            .map(|turn| look_at(turn, &self.clients, limits, now))
            .min()
    }

    /// Returns how many turns of `client` were given up and go on.
    pub(super) fn given_up(&self, client: &Arc<Client>) -> u32 {
        let known = self
            .clients
            .iter()
            .find(|known| Arc::ptr_eq(&known.client, client));
        known.map_or(0, |known| known.given_up)
    }

    /// Forgets a turn that ends. Returns whether it was given up before.
    pub(super) fn end(&mut self, turn: &Arc<TurnActivity>) -> bool {
        if !turn.is_given_up() {
            self.turns.retain(|watched| !Arc::ptr_eq(watched, turn));
            return false;
        }
        if let Some(known) = turn.client.as_ref().and_then(|client| self.known(client)) {
            known.given_up = known.given_up.saturating_sub(1);
        }
        true
    }

    /// Returns whether there is nothing to remember.
    pub(super) fn is_idle(&self, now: Uptime) -> bool {
        self.turns.is_empty() && self.clients.iter().all(|client| client.is_idle(now))
    }
}

impl StalledClient {
    fn is_idle(&self, now: Uptime) -> bool {
        self.given_up == 0 && self.until <= now
    }
}

/// Returns when to look at a turn, beside `clients` that have stalled.
fn look_at(
    turn: &TurnActivity,
    clients: &[StalledClient],
    limits: &StallLimits,
    now: Uptime,
) -> Uptime {
    let is_of_turn = |known: &&StalledClient| {
        let client = turn.client.as_ref();
        client.is_some_and(|client| Arc::ptr_eq(&known.client, client)) && now < known.until
    };
    let max_stall = match clients.iter().find(is_of_turn) {
        Some(_) => limits.first.min(STALL_AGAIN),
        None => limits.first,
    };
    turn.look_at(max_stall, now)
}
