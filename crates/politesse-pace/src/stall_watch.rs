//! Turns of one host that have waited for their clients, and the clients that stalled
//! for too long.
//!
//! A client may stall for `pace.max_stall` in total, over all of its turns. After that,
//! for as long as its stalls are remembered, it may hardly stall at all; otherwise a
//! few clients that stall again and again would occupy the host most of the time. Does
//! not know the schedule.

use std::sync::Arc;
use std::time::Duration;

use super::schedule::{Start, Uptime};
use super::turn_activity::TurnActivity;
use politesse_base::clients::client::Client;

/// Longest stall allowed to a client that has used up its time. It covers the short
/// moments in which a turn waits for any client.
const STALL_AGAIN: Duration = Duration::from_millis(50);

/// Time for which the stalls of a client are remembered, counted from its last one.
const REMEMBERED: Duration = Duration::from_secs(120);

/// Clients that are remembered per host; the oldest entry is evicted first.
const CLIENTS_MAX: usize = 256;

/// Turns and clients of one host.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    /// Turns that have waited for their clients, until they end or are given up.
    pub(super) turns: Vec<Arc<TurnActivity>>,
    /// Clients that have stalled, in the order of their first stalls.
    clients: Vec<StalledClient>,
}

/// Client that has stalled.
#[derive(Debug)]
struct StalledClient {
    /// The client.
    client: Arc<Client>,
    /// Total stall time in turns that ended or were given up.
    stalled: Duration,
    /// Number of turns that were given up and still run.
    given_up: u32,
    /// Time at which the last of them was given up.
    given_up_at: Uptime,
    /// Time until which the stalls are remembered.
    until: Uptime,
}

/// Turns of one client that were given up and still run.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenUp {
    /// Number of turns.
    pub(super) turns: u32,
    /// Time until which they count as in flight for the client itself.
    pub(super) until: Uptime,
}

impl StallWatch {
    /// Gives up the turns of clients that have stalled. Returns the starts of those
    /// turns.
    pub(super) fn give_up(&mut self, max_stall: Duration, now: Uptime) -> Vec<Start> {
        let Self { turns, clients } = self;
        let is_stalled =
            |turn: &mut Arc<TurnActivity>| look_at(turn, clients, max_stall, now) <= now;
        let stalled: Vec<_> = turns.extract_if(.., is_stalled).collect();
        for turn in &stalled {
            turn.give_up();
            if let Some(known) = self.remember(turn, now) {
                known.given_up += 1;
                known.given_up_at = now;
            }
        }
        stalled.iter().map(|turn| turn.start).collect()
    }

    /// Adds the stall of a turn to those of its client.
    fn remember(&mut self, turn: &TurnActivity, now: Uptime) -> Option<&mut StalledClient> {
        let client = turn.client.as_ref()?;
        if self.known(client).is_none() {
            self.clients.retain(|client| !client.is_idle(now));
            if CLIENTS_MAX <= self.clients.len() {
                self.clients.remove(0);
            }
            self.clients.push(StalledClient {
                client: Arc::clone(client),
                stalled: Duration::ZERO,
                given_up: 0,
                given_up_at: Uptime::ZERO,
                until: Uptime::ZERO,
            });
        }
        let known = self.known(client)?;
        if known.until <= now {
            known.stalled = Duration::ZERO;
        }
        known.stalled = known.stalled.saturating_add(turn.stalled(now));
        known.until = now.saturating_add(REMEMBERED);
        Some(known)
    }

    fn known(&mut self, client: &Arc<Client>) -> Option<&mut StalledClient> {
        let mut clients = self.clients.iter_mut();
        clients.find(|known| Arc::ptr_eq(&known.client, client))
    }

    /// Returns the earliest time at which to check one of the turns; `None` without
    /// turns.
    pub(super) fn look_at(&self, max_stall: Duration, now: Uptime) -> Option<Uptime> {
        let turns = self.turns.iter();
        turns
            .map(|turn| look_at(turn, &self.clients, max_stall, now))
            .min()
    }

    /// Returns the turns of `client` that were given up and still run. After `max_turn`
    /// they count as ended, even for the client itself.
    pub(super) fn given_up(
        &self,
        client: &Arc<Client>,
        max_turn: Duration,
        now: Uptime,
    ) -> Option<GivenUp> {
        let mut clients = self.clients.iter();
        let known = clients.find(|known| Arc::ptr_eq(&known.client, client))?;
        let given_up = GivenUp {
            turns: known.given_up,
            until: known.given_up_at.saturating_add(max_turn),
        };
        (given_up.turns != 0 && now < given_up.until).then_some(given_up)
    }

    /// Removes a turn that ends, but remembers its stall. Returns whether the turn had
    /// been given up.
    pub(super) fn end(&mut self, turn: &Arc<TurnActivity>, now: Uptime) -> bool {
        if !turn.is_given_up() {
            self.turns.retain(|watched| !Arc::ptr_eq(watched, turn));
            // A client that leaves just before its time is up has stalled nevertheless.
            if STALL_AGAIN < turn.stalled(now) {
                self.remember(turn, now);
            }
            return false;
        }
        if let Some(known) = turn.client.as_ref().and_then(|client| self.known(client)) {
            known.given_up = known.given_up.saturating_sub(1);
        }
        true
    }

    /// Returns whether the watch can be dropped without losing anything.
    pub(super) fn is_idle(&self, now: Uptime) -> bool {
        self.turns.is_empty() && self.clients.iter().all(|client| client.is_idle(now))
    }
}

impl StalledClient {
    fn is_idle(&self, now: Uptime) -> bool {
        self.given_up == 0 && self.until <= now
    }
}

/// Returns when to check a turn, given the `clients` that have stalled.
fn look_at(
    turn: &TurnActivity,
    clients: &[StalledClient],
    max_stall: Duration,
    now: Uptime,
) -> Uptime {
    let is_of_turn = |known: &&StalledClient| {
        let client = turn.client.as_ref();
        client.is_some_and(|client| Arc::ptr_eq(&known.client, client)) && now < known.until
    };
    let stalled = clients.iter().find(is_of_turn);
    let left = max_stall.saturating_sub(stalled.map_or(Duration::ZERO, |known| known.stalled));
    turn.look_at(left.max(max_stall.min(STALL_AGAIN)), now)
}
