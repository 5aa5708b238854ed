//! Start order of the requests that wait for one host.
//!
//! A robots.txt comes first, since pages wait for it, but not twice in a row while a
//! page waits. Robots.txt fetches and pages are taken from each client in turn, and a
//! client's pages from each of its crawlers in turn. So neither a thousand requests nor
//! a hundred names delay another client by more than one turn. Requests of one crawler,
//! and robots.txt fetches of one client, start in order of arrival. Requisites have
//! lines of their own, so they do not wait for pages that wait for a rate, and they
//! alternate with all other requests. Does not know what delays a request: the state of
//! the host decides that.

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

/// Requests waiting for one host, in the order in which they start.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// Robots.txt fetches.
    robots: ClientTurns,
    /// Pages.
    pages: ClientTurns,
    /// Requisites: files embedded in pages.
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

    /// Inserts a request by its arrival number.
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.turns_mut(&waiter.place).push(waiter);
    }

    /// Returns an upper bound of the requests that start before one that joins now.
    pub(super) fn ahead(&self, place: &QueuePlace) -> RequestsAhead {
        match place.kind {
            Kind::RobotsTxt => {}
            // Requisites do not wait for the pause between requests.
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
        // A page starts between two robots.txt fetches, as long as pages wait.
        ahead.add(robots.min(self.pages.len()), self.firsts().next());
        ahead
    }

    /// Starts the next request.
    ///
    /// # Errors
    ///
    /// Time at which to check again; [`Uptime::MAX`] if the driver will be woken.
    pub(super) fn serve(
        &mut self,
        host: &mut HostState,
        now: &Now,
    ) -> Result<(Waiter, Grant), Uptime> {
        // Requisites and other requests alternate when both may start, so that neither
        // holds up the other: not pages full of files, and not many pages.
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

    /// Starts the next robots.txt or page.
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
        // A robots.txt may need a shorter delay than a page, and each one would
        // postpone the page again.
        if self.firsts().any(|page| host.is_set_back(page, now)) {
            // In the meantime the robots.txt must not hold a place under a ceiling.
            if let Some(first) = self.robots.first_mut() {
                first.give_way();
            }
            return Err(until);
        }
        self.serve_robots(host, now)
            .map_err(|other| until.min(other))
    }

    /// Starts the next robots.txt, and refuses those before it that can never start.
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

    /// Starts the next page that may start.
    fn serve_page(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        let (index, grant) = start_first(&mut self.pages, host, now)?;
        Ok((self.pop_page(index).ok_or(now.uptime)?, grant))
    }

    /// Starts the next requisite that may start.
    fn serve_requisite(
        &mut self,
        host: &mut HostState,
        now: &Now,
    ) -> Result<(Waiter, Grant), Uptime> {
        let (index, grant) = start_first(&mut self.requisites, host, now)?;
        self.was_requisite = true;
        Ok((self.requisites.pop(index).ok_or(now.uptime)?, grant))
    }

    /// Returns whether the next turn belongs to a robots.txt, if one waits.
    fn is_robots_turn(&self) -> bool {
        !self.was_robots || self.pages.is_empty()
    }

    /// Removes the next robots.txt, which starts now.
    fn pop_robots(&mut self) -> Option<Waiter> {
        self.was_robots = true;
        self.was_requisite = false;
        self.robots.pop(LineIndex::default())
    }

    /// Removes the first page of a line, which starts now.
    fn pop_page(&mut self, index: LineIndex) -> Option<Waiter> {
        self.was_robots = false;
        self.was_requisite = false;
        self.pages.pop(index)
    }

    /// Returns the first page of each line, whether it may start or not.
    pub(super) fn firsts(&self) -> impl Iterator<Item = &Waiter> {
        self.pages.firsts()
    }

    /// Returns whether the first request of some line waits for a ceiling over many hosts.
    pub(super) fn is_under_ceiling(&self) -> bool {
        self.firsts()
            .chain(self.requisites.firsts())
            .chain(self.robots.firsts())
            .any(|first| first.held_by == Some(Reason::Ceiling))
    }

    /// Makes room for one more request if `pages_max` pages, or as many requisites,
    /// already wait ([`ClientTurns::make_room`]). Returns whether there is room.
    pub(super) fn make_room(&mut self, place: &QueuePlace, pages_max: usize) -> bool {
        let turns = self.turns_mut(place);
        if place.kind == Kind::RobotsTxt || turns.len() < pages_max {
            return true;
        }
        let Some(latest) = turns.make_room(&place.owner) else {
            return false;
        };
        // There is no way to know when the queue has room again.
        let end = DelayEnd::OnEvent(Duration::MAX);
        latest.answer(Err(Delay::of_crawler(Reason::QueueFull, end)));
        true
    }

    /// Removes a request that no longer waits.
    pub(super) fn remove(&mut self, place: &QueuePlace) -> Option<Waiter> {
        self.turns_mut(place).remove(place)
    }

    /// Removes the requests for which `leaves` returns true.
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

    /// Calls `each` for every request.
    pub(super) fn for_each(&mut self, each: impl FnMut(&mut Waiter)) {
        let all = [&mut self.pages, &mut self.requisites, &mut self.robots];
        let lines = all.into_iter().flat_map(ClientTurns::lines_mut);
        lines.flatten().for_each(each);
    }

    /// Calls `each` for the first page and the first requisite of every crawler.
    pub(super) fn for_each_first(&mut self, each: impl FnMut(&mut Waiter)) {
        let pages = self.pages.firsts_from(LineIndex::default());
        let firsts = pages.chain(self.requisites.firsts_from(LineIndex::default()));
        firsts.map(|(_, first)| first).for_each(each);
    }

    /// Returns the requests of the same kind as `place`.
    fn turns_mut(&mut self, place: &QueuePlace) -> &mut ClientTurns {
        match place.kind {
            Kind::Page | Kind::PageAtOnce => &mut self.pages,
            Kind::Requisite => &mut self.requisites,
            Kind::RobotsTxt => &mut self.robots,
        }
    }
}

/// Starts the first request in `turns` that may start. The caller removes it from
/// `turns`.
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
            // The line may be gone, and its client as well.
            from = index.first_of_client();
        } else if delay.scope == DelayScope::Crawler {
            // Other crawlers need not wait for this one's delay, hours or ceilings. It
            // keeps its place before them.
            first.hold(&delay, now);
            from = index.next();
        } else {
            first.held_by = None;
            // Only the requests from `index` on give way. Those before it are not held
            // up by the host, or were not checked. If they gave way as well, two hosts
            // could keep waking each other.
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
