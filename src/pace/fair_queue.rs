//! Order in which the requests that wait at one host start.
//!
//! A robots.txt comes first, since pages wait for it, but not twice in a row
//! while a page waits. Pages are taken from each client in turn, and of its pages
//! from each of its crawlers in turn: neither a thousand requests nor a hundred
//! names delay another client by more than one turn. Those of one crawler start
//! in the order of arrival. Does not know what delays a request: the state of the
//! host says that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::context::Now;
use super::host::HostState;
use super::request::{Grant, QueuePlace, RequestsAhead, TurnOwner, Waiter};
use super::schedule::Uptime;
use crate::decision::delay::{Delay, DelayEnd, DelayScope};
use crate::decision::reason::Reason;

/// Requests that wait at one host, in the order in which they start.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    robots: CrawlerLine,
    /// Whether the last turn went to a robots.txt.
    was_robots: bool,
    /// Clients with pages, in the order of their next turns; none is empty.
    clients: VecDeque<ClientPages>,
    /// Wakes the task that grants turns.
    pub(super) driver: Arc<Notify>,
}

/// Requests of one crawler in the order of arrival.
type CrawlerLine = VecDeque<Waiter>;

/// Pages of one client: its crawlers in the order of their next turns; none is
/// empty.
#[derive(Debug, Default)]
struct ClientPages(VecDeque<CrawlerLine>);

/// Position of a crawler's line.
#[derive(Debug, Clone, Copy, Default)]
struct LineIndex {
    client: usize,
    crawler: usize,
}

impl ClientPages {
    fn len(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }

    fn is_of(&self, owner: &TurnOwner) -> bool {
        let first = self.0.front().and_then(VecDeque::front);
        let own = first.and_then(|first| first.place.owner.as_ref());
        own.is_some_and(|own| own.has_client_of(owner))
    }

    /// Adds the pages of the client that come at most before one of `owner`.
    fn add_ahead(&self, owner: &TurnOwner, arrival: u64, ahead: &mut RequestsAhead) {
        let own = self.0.iter().find(|line| is_of(line, owner));
        let own_before = own.map_or(0, |line| before(line, arrival));
        for line in &self.0 {
            // Every other crawler may come once before each page of this one.
            let count = if is_of(line, owner) {
                own_before
            } else {
                line.len().min(own_before + 1)
            };
            ahead.add(count, line.front());
        }
    }
}

impl FairQueue {
    /// Returns the number of pages; robots.txt fetches have a bound of their
    /// own.
    pub(super) fn pages(&self) -> usize {
        self.clients.iter().map(ClientPages::len).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.pages() + self.robots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.robots.is_empty()
    }

    /// Adds a request, in its place by number of arrival.
    pub(super) fn push(&mut self, waiter: Waiter) {
        let Some(line) = self.line_or_new(&waiter.place) else {
            return;
        };
        let index = before(line, waiter.place.arrival);
        // Only the first of a line is looked at. If it is first no more, it must
        // not keep a place under a ceiling.
        if let Some(first) = line.front_mut().filter(|_| index == 0) {
            first.give_way();
        }
        line.insert(index, waiter);
    }

    /// Returns the requests that come at most before one that joins now.
    pub(super) fn ahead(&self, place: &QueuePlace) -> RequestsAhead {
        let robots = self.robots.len();
        let mut ahead = RequestsAhead::default();
        let Some(owner) = &place.owner else {
            // A page comes between two of them, as long as there are pages.
            ahead.robots = robots;
            ahead.add(robots.min(self.pages()), self.firsts().next());
            return ahead;
        };
        if let Some(own) = self.clients.iter().find(|client| client.is_of(owner)) {
            own.add_ahead(owner, place.arrival, &mut ahead);
        }
        let own_before = ahead.page_count();
        for client in self.clients.iter().filter(|client| !client.is_of(owner)) {
            // Every other client may come once before each page of this one.
            let first = client.0.front().and_then(VecDeque::front);
            ahead.add(client.len().min(own_before + 1), first);
        }
        ahead.robots = robots.min(ahead.page_count() + 1);
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
            if let Some(first) = self.robots.front_mut() {
                first.give_way();
            }
            return Err(until);
        }
        self.serve_robots(host, now)
            .map_err(|other| until.min(other))
    }

    fn serve_robots(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        loop {
            let waiter = self.robots.front_mut().ok_or(Uptime::MAX)?;
            let delay = match host.start(waiter, now) {
                Ok(grant) => return Ok((self.pop_robots().ok_or(now.uptime)?, grant)),
                Err(delay) => delay,
            };
            if delay.scope != DelayScope::Request && !waiter.is_hopeless(&delay, now) {
                let is_own = delay.scope == DelayScope::Crawler;
                waiter.held_by = is_own.then_some(delay.reason);
                return Err(now.uptime.saturating_add(delay.recheck_after()));
            }
            if let Some(waiter) = self.robots.pop_front() {
                waiter.answer(Err(delay));
            }
        }
    }

    fn serve_page(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        let mut from = LineIndex::default();
        while let Some((index, first)) = self.next_due(from, now.uptime) {
            let delay = match host.start(first, now) {
                Ok(grant) => return Ok((self.pop_page(index).ok_or(now.uptime)?, grant)),
                Err(delay) => delay,
            };
            if delay.scope == DelayScope::Request || first.is_hopeless(&delay, now) {
                if let Some(waiter) = self.drop_first(index) {
                    waiter.answer(Err(delay));
                }
                // The line may be gone, and its client, too.
                from = LineIndex {
                    crawler: 0,
                    ..index
                };
            } else if delay.scope == DelayScope::Crawler {
                // Other crawlers need not wait for this one's delay, hours or
                // ceilings.
                // It keeps its place before them.
                first.hold(&delay, now);
                from = LineIndex {
                    crawler: index.crawler + 1,
                    ..index
                };
            } else {
                first.held_by = None;
                // Those before it are not held up by the host, or were not looked
                // at. If they gave way as well, two hosts could wake each other
                // without end.
                let held_up = self.firsts_from(index);
                held_up.for_each(|(_, first)| first.give_way());
                let until = now.uptime.saturating_add(delay.recheck_after());
                return Err(until.min(self.next_look(now.uptime)));
            }
        }
        Err(self.next_look(now.uptime))
    }

    /// Returns whether a robots.txt comes next, if there is one.
    fn is_robots_turn(&self) -> bool {
        !self.was_robots || self.clients.is_empty()
    }

    /// Takes out the robots.txt that comes next, for its turn.
    fn pop_robots(&mut self) -> Option<Waiter> {
        self.was_robots = true;
        self.robots.pop_front()
    }

    /// Returns the pages that come first in their lines, whether they may start
    /// or not.
    pub(super) fn firsts(&self) -> impl Iterator<Item = &Waiter> {
        let lines = self.clients.iter().flat_map(|client| &client.0);
        lines.filter_map(VecDeque::front)
    }

    /// Returns whether a request waits for a ceiling over many hosts.
    pub(super) fn is_under_ceiling(&self) -> bool {
        self.firsts()
            .chain(self.robots.front())
            .any(|first| first.held_by == Some(Reason::Ceiling))
    }

    /// Returns the first page that is to be looked at, in the line at `from` or
    /// behind that.
    fn next_due(&mut self, from: LineIndex, now: Uptime) -> Option<(LineIndex, &mut Waiter)> {
        let mut firsts = self.firsts_from(from);
        firsts.find(|(_, first)| first.not_before <= now)
    }

    /// Returns the first pages of the line at `from` and of those behind it.
    fn firsts_from(&mut self, from: LineIndex) -> impl Iterator<Item = (LineIndex, &mut Waiter)> {
        let clients = self.clients.iter_mut().enumerate().skip(from.client);
        clients.flat_map(move |(client, pages)| {
            let passed = if client == from.client {
                from.crawler
            } else {
                0
            };
            let lines = pages.0.iter_mut().enumerate().skip(passed);
            lines.filter_map(move |(crawler, line)| {
                Some((LineIndex { client, crawler }, line.front_mut()?))
            })
        })
    }

    /// Returns the time at which to look at the first of the pages that need not
    /// be looked at now.
    fn next_look(&self, now: Uptime) -> Uptime {
        let times = self.firsts().map(|first| first.not_before);
        times
            .filter(|time| now < *time)
            .min()
            .unwrap_or(Uptime::MAX)
    }

    /// Takes out the first page of a line, for its turn. Its crawler comes last
    /// of its client then, and that last of all.
    fn pop_page(&mut self, index: LineIndex) -> Option<Waiter> {
        self.was_robots = false;
        let mut pages = self.clients.remove(index.client)?;
        let mut line = pages.0.remove(index.crawler)?;
        let waiter = line.pop_front();
        if !line.is_empty() {
            pages.0.push_back(line);
        }
        if !pages.0.is_empty() {
            self.clients.push_back(pages);
        }
        waiter
    }

    /// Takes out the first page of a line, without a turn.
    fn drop_first(&mut self, index: LineIndex) -> Option<Waiter> {
        let pages = self.clients.get_mut(index.client)?;
        let waiter = pages.0.get_mut(index.crawler)?.pop_front();
        self.forget_empty();
        waiter
    }

    /// Makes room for one more request where `pages_max` pages wait: puts off the
    /// latest of the client that has most, if that would still have no fewer than
    /// this one, and of that client's crawlers of the one that has most. The
    /// crawlers of one client make room for each other in the same way. Returns
    /// whether there is room.
    pub(super) fn make_room(&mut self, place: &QueuePlace, pages_max: usize) -> bool {
        let Some(owner) = &place.owner else {
            return true;
        };
        if self.pages() < pages_max {
            return true;
        }
        let own = self.clients.iter().find(|client| client.is_of(owner));
        let own_pages = own.map_or(0, ClientPages::len);
        let own_line = own.and_then(|own| own.0.iter().find(|line| is_of(line, owner)));
        let own_len = own_line.map_or(0, VecDeque::len);
        let most = self.clients.iter().map(ClientPages::len).max().unwrap_or(0);
        let is_from_other = own_pages + 1 < most;
        let mut clients = self.clients.iter_mut();
        let gives_way = clients.find(|client| {
            if is_from_other {
                client.len() == most
            } else {
                client.is_of(owner)
            }
        });
        let lines = gives_way.map(|client| client.0.iter_mut());
        let longest = lines.and_then(|lines| lines.max_by_key(|line| line.len()));
        let latest = longest
            .filter(|line| is_from_other || own_len + 1 < line.len())
            .and_then(VecDeque::pop_back);
        let Some(latest) = latest else {
            return false;
        };
        self.forget_empty();
        // When the queue has room again is not known.
        let end = DelayEnd::OnEvent(Duration::MAX);
        latest.answer(Err(Delay::of_crawler(Reason::QueueFull, end)));
        true
    }

    /// Takes out a request that waits no longer.
    pub(super) fn remove(&mut self, place: &QueuePlace) -> Option<Waiter> {
        let line = match &place.owner {
            None => &mut self.robots,
            Some(owner) => {
                let lines = self.clients.iter_mut().filter(|pages| pages.is_of(owner));
                let mut lines = lines.flat_map(|pages| &mut pages.0);
                lines.find(|line| is_of(line, owner))?
            }
        };
        let index = before(line, place.arrival);
        line.get(index)
            .filter(|waiter| waiter.place.arrival == place.arrival)?;
        let waiter = line.remove(index);
        self.forget_empty();
        waiter
    }

    /// Takes out the requests for which `leaves` holds.
    pub(super) fn remove_all(&mut self, leaves: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut gone = Vec::new();
        for line in self.lines_mut() {
            let (leaving, staying): (Vec<_>, Vec<_>) = line.drain(..).partition(&leaves);
            gone.extend(leaving);
            line.extend(staying);
        }
        self.forget_empty();
        gone
    }

    /// Returns every request.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        let lines = self.clients.iter().flat_map(|client| &client.0);
        lines.chain([&self.robots]).flatten()
    }

    /// Calls `each` with every request.
    pub(super) fn for_each(&mut self, each: impl FnMut(&mut Waiter)) {
        self.lines_mut().flatten().for_each(each);
    }

    /// Calls `each` with the first page of every crawler.
    pub(super) fn for_each_first(&mut self, each: impl FnMut(&mut Waiter)) {
        let lines = self.clients.iter_mut().flat_map(|client| &mut client.0);
        lines.filter_map(VecDeque::front_mut).for_each(each);
    }

    fn lines_mut(&mut self) -> impl Iterator<Item = &mut CrawlerLine> {
        let lines = self.clients.iter_mut().flat_map(|client| &mut client.0);
        lines.chain([&mut self.robots])
    }

    /// Returns the line in which a place is, made if there is none.
    fn line_or_new(&mut self, place: &QueuePlace) -> Option<&mut CrawlerLine> {
        let Some(owner) = &place.owner else {
            return Some(&mut self.robots);
        };
        let known = self.clients.iter().position(|pages| pages.is_of(owner));
        let client = known.unwrap_or_else(|| {
            self.clients.push_back(ClientPages::default());
            self.clients.len() - 1
        });
        let lines = &mut self.clients.get_mut(client)?.0;
        let own = lines.iter().position(|line| is_of(line, owner));
        let crawler = own.unwrap_or_else(|| {
            lines.push_back(CrawlerLine::new());
            lines.len() - 1
        });
        lines.get_mut(crawler)
    }

    fn forget_empty(&mut self) {
        for client in &mut self.clients {
            client.0.retain(|line| !line.is_empty());
        }
        self.clients.retain(|client| !client.0.is_empty());
    }
}

fn is_of(line: &CrawlerLine, owner: &TurnOwner) -> bool {
    let first = line.front().and_then(|first| first.place.owner.as_ref());
    first.is_some_and(|first| first.crawler == owner.crawler)
}

/// Returns how many requests of a line came before number `arrival`. Numbers of
/// arrival rise within a line.
fn before(line: &CrawlerLine, arrival: u64) -> usize {
    line.partition_point(|waiter| waiter.place.arrival < arrival)
}

#[cfg(test)]
mod tests;
