//! Order in which the requests that wait at one host start.
//!
//! A robots.txt comes first, since pages wait for it, but not twice in a row
//! while a page waits. Both are taken from each client in turn, and of its pages
//! from each of its crawlers in turn: neither a thousand requests nor a hundred
//! names delay another client by more than one turn. Those of one crawler, and the
//! robots.txt fetches of one client, start in the order of arrival. Requisites have
//! lines of their own, in which they do not wait for pages that wait for a rate, and
//! take turns with all others. Does not know what delays a request: the state of the
//! host says that.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::client_turns::{ClientTurns, LineIndex};
use super::context::Now;
use super::host::HostState;
use super::request::{Grant, QueuePlace, RequestsAhead, Waiter};
use super::schedule::{Kind, Uptime};
use politesse_decision::delay::{Delay, DelayEnd, DelayScope};
use politesse_decision::reason::Reason;

/// Requests that wait at one host, in the order in which they start.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    robots: ClientTurns,
    pages: ClientTurns,
    /// Files that pages embed.
    requisites: ClientTurns,
    /// Whether the last turn of a robots.txt or page went to a robots.txt.
    was_robots: bool,
    /// Whether the last turn went to a requisite.
    was_requisite: bool,
    /// Wakes the task that grants turns.
    pub(super) driver: Arc<Notify>,
}

impl FairQueue {
    pub(super) fn len(&self) -> usize {
        self.pages.len() + self.requisites.len() + self.robots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.requisites.is_empty() && self.robots.is_empty()
    }

    /// Adds a request, in its place by number of arrival.
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.turns_mut(&waiter.place).push(waiter);
    }

    /// Returns the requests that come at most before one that joins now.
    pub(super) fn ahead(&self, place: &QueuePlace) -> RequestsAhead {
        match place.kind {
            Kind::RobotsTxt => {}
            // No pause between requests holds it up.
            Kind::Requisite => return RequestsAhead::default(),
            Kind::Page | Kind::PageAtOnce => {
                let mut ahead = self.pages.ahead(place);
                ahead.robots = self.robots.len().min(ahead.page_count() + 1);
                return ahead;
            }
        }
        let robots = self.robots.ahead(place).page_count();
        let mut ahead = RequestsAhead {
            robots,
            ..RequestsAhead::default()
        };
        // A page comes between two of them, as long as there are pages.
        ahead.add(robots.min(self.pages.len()), self.firsts().next());
        ahead
    }

    /// Starts the request that comes next.
    ///
    /// # Errors
    ///
    /// Time at which to look again; [`Uptime::MAX`] if the driver is woken.
    pub(super) fn serve(
        &mut self,
        host: &mut HostState,
        now: &Now,
    ) -> Result<(Waiter, Grant), Uptime> {
        // Where both may start, neither pages full of files nor many pages hold up the
        // other.
        if self.was_requisite {
            let until = match self.serve_others(host, now) {
                Ok(served) => return Ok(served),
                Err(until) => until,
            };
            return self
                .serve_requisite(host, now)
                .map_err(|other| until.min(other));
        }
        let until = match self.serve_requisite(host, now) {
            Ok(served) => return Ok(served),
            Err(until) => until,
        };
        self.serve_others(host, now)
            .map_err(|other| until.min(other))
    }

    /// Starts the robots.txt or page that comes next.
    fn serve_others(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        if self.is_robots_turn() {
            let until = match self.serve_robots(host, now) {
                Ok(served) => return Ok(served),
                Err(until) => until,
            };
            return self.serve_page(host, now).map_err(|other| until.min(other));
        }
        let until = match self.serve_page(host, now) {
            Ok(served) => return Ok(served),
            Err(until) => until,
        };
        // A robots.txt needs less distance than a page may, and each would set the page
        // back once more.
        if self.firsts().any(|page| host.is_set_back(page, now)) {
            // It must not keep a place under a ceiling meanwhile.
            if let Some(first) = self.robots.first_mut() {
                first.give_way();
            }
            return Err(until);
        }
        self.serve_robots(host, now)
            .map_err(|other| until.min(other))
    }

    fn serve_robots(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        loop {
            let waiter = self.robots.first_mut().ok_or(Uptime::MAX)?;
            let delay = match host.start(waiter, now) {
                Ok(grant) => return Ok((self.pop_robots().ok_or(now.uptime)?, grant)),
                Err(delay) => delay,
            };
            if delay.scope != DelayScope::Request && !waiter.is_hopeless(&delay, now) {
                let is_own = delay.scope == DelayScope::Crawler;
                waiter.held_by = is_own.then_some(delay.reason);
                return Err(now.uptime.saturating_add(delay.recheck_after()));
            }
            if let Some(waiter) = self.robots.drop_first(LineIndex::default()) {
                waiter.answer(Err(delay));
            }
        }
    }

    fn serve_page(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        let (index, grant) = start_first(&mut self.pages, host, now)?;
        Ok((self.pop_page(index).ok_or(now.uptime)?, grant))
    }

    fn serve_requisite(
        &mut self,
        host: &mut HostState,
        now: &Now,
    ) -> Result<(Waiter, Grant), Uptime> {
        let (index, grant) = start_first(&mut self.requisites, host, now)?;
        self.was_requisite = true;
        Ok((self.requisites.pop(index).ok_or(now.uptime)?, grant))
    }

    /// Returns whether a robots.txt comes next, if there is one.
    fn is_robots_turn(&self) -> bool {
        !self.was_robots || self.pages.is_empty()
    }

    /// Takes out the robots.txt that comes next, for its turn.
    fn pop_robots(&mut self) -> Option<Waiter> {
        self.was_robots = true;
        self.was_requisite = false;
        self.robots.pop(LineIndex::default())
    }

    /// Takes out the first page of a line, for its turn.
    fn pop_page(&mut self, index: LineIndex) -> Option<Waiter> {
        self.was_robots = false;
        self.was_requisite = false;
        self.pages.pop(index)
    }

    /// Returns the pages that come first in their lines, whether they may start
    /// or not.
    pub(super) fn firsts(&self) -> impl Iterator<Item = &Waiter> {
        self.pages.firsts()
    }

    /// Returns whether a request waits for a ceiling over many hosts.
    pub(super) fn is_under_ceiling(&self) -> bool {
        self.firsts()
            .chain(self.requisites.firsts())
            .chain(self.robots.firsts())
            .any(|first| first.held_by == Some(Reason::Ceiling))
    }

    /// Makes room for one more request where `pages_max` pages, or as many requisites,
    /// wait ([`ClientTurns::make_room`]). Returns whether there is room.
    pub(super) fn make_room(&mut self, place: &QueuePlace, pages_max: usize) -> bool {
        let turns = self.turns_mut(place);
        if place.kind == Kind::RobotsTxt || turns.len() < pages_max {
            return true;
        }
        let Some(latest) = turns.make_room(&place.owner) else {
            return false;
        };
        // When the queue has room again is not known.
        let end = DelayEnd::OnEvent(Duration::MAX);
        latest.answer(Err(Delay::of_crawler(Reason::QueueFull, end)));
        true
    }

    /// Takes out a request that waits no longer.
    pub(super) fn remove(&mut self, place: &QueuePlace) -> Option<Waiter> {
        self.turns_mut(place).remove(place)
    }

    /// Takes out the requests for which `leaves` holds.
    pub(super) fn remove_all(&mut self, leaves: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let all = [&mut self.pages, &mut self.requisites, &mut self.robots];
        let gone = all.into_iter().map(|turns| turns.remove_all(&leaves));
        gone.flatten().collect()
    }

    /// Returns every request.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        let others = self.requisites.waiters().chain(self.robots.waiters());
        self.pages.waiters().chain(others)
    }

    /// Calls `each` with every request.
    pub(super) fn for_each(&mut self, each: impl FnMut(&mut Waiter)) {
        let all = [&mut self.pages, &mut self.requisites, &mut self.robots];
        let lines = all.into_iter().flat_map(ClientTurns::lines_mut);
        lines.flatten().for_each(each);
    }

    /// Calls `each` with the first page and the first requisite of every crawler.
    pub(super) fn for_each_first(&mut self, each: impl FnMut(&mut Waiter)) {
        let pages = self.pages.firsts_from(LineIndex::default());
        let firsts = pages.chain(self.requisites.firsts_from(LineIndex::default()));
        firsts.map(|(_, first)| first).for_each(each);
    }

    /// Returns the requests of the kind of `place`.
    fn turns_mut(&mut self, place: &QueuePlace) -> &mut ClientTurns {
        match place.kind {
            Kind::Page | Kind::PageAtOnce => &mut self.pages,
            Kind::Requisite => &mut self.requisites,
            Kind::RobotsTxt => &mut self.robots,
        }
    }
}

/// Starts the first request that may start of those in `turns`, which stays there.
///
/// # Errors
///
/// As [`FairQueue::serve`].
fn start_first(
    turns: &mut ClientTurns,
    host: &mut HostState,
    now: &Now,
) -> Result<(LineIndex, Grant), Uptime> {
    let mut from = LineIndex::default();
    while let Some((index, first)) = turns.next_due(from, now.uptime) {
        let delay = match host.start(first, now) {
            Ok(grant) => return Ok((index, grant)),
            Err(delay) => delay,
        };
        if delay.scope == DelayScope::Request || first.is_hopeless(&delay, now) {
            if let Some(waiter) = turns.drop_first(index) {
                waiter.answer(Err(delay));
            }
            // The line may be gone, and its client, too.
            from = index.first_of_client();
        } else if delay.scope == DelayScope::Crawler {
            // Other crawlers need not wait for this one's delay, hours or
            // ceilings.
            // It keeps its place before them.
            first.hold(&delay, now);
            from = index.next();
        } else {
            first.held_by = None;
            // Those before it are not held up by the host, or were not looked
            // at. If they gave way as well, two hosts could wake each other
            // without end.
            let held_up = turns.firsts_from(index);
            held_up.for_each(|(_, first)| first.give_way());
            let until = now.uptime.saturating_add(delay.recheck_after());
            return Err(until.min(turns.next_look(now.uptime)));
        }
    }
    Err(turns.next_look(now.uptime))
}

#[cfg(test)]
mod tests;
