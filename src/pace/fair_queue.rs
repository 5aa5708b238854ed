//! Order in which the requests that wait at one host start.
//!
//! A robots.txt comes first, since pages wait for it, but not twice in a row
//! while a page waits. Pages are taken from each crawler in turn, so that a
//! crawler with a thousand requests delays another by one turn; those of one
//! crawler start in the order of arrival. Does not know what delays a request:
//! the state of the host says that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::context::Now;
use super::host::HostState;
use super::request::{Grant, QueuePlace, Waiter};
use super::schedule::Uptime;
use crate::decision::delay::{Delay, DelayEnd, DelayScope};
use crate::decision::reason::Reason;

/// Requests that wait at one host, in the order in which they start.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    robots: VecDeque<Waiter>,
    /// Whether the last turn went to a robots.txt.
    was_robots: bool,
    /// Pages of each crawler in the order of arrival, and the crawlers in the
    /// order of their next turns; none is empty.
    crawlers: VecDeque<VecDeque<Waiter>>,
    /// Wakes the task that grants turns.
    pub(super) driver: Arc<Notify>,
}

impl FairQueue {
    /// Returns the number of pages; robots.txt fetches have a bound of their
    /// own.
    pub(super) fn pages(&self) -> usize {
        self.crawlers.iter().map(VecDeque::len).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.pages() + self.robots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.crawlers.is_empty() && self.robots.is_empty()
    }

    /// Adds a request, in its place by number of arrival.
    pub(super) fn push(&mut self, waiter: Waiter) {
        let Some(line) = self.line(&waiter.place) else {
            self.crawlers.push_back(VecDeque::from([waiter]));
            return;
        };
        let index = before(line, &waiter.place);
        // Only the first of a line is looked at. If it is first no more, it must
        // not keep a place under a ceiling.
        if let Some(first) = line.front_mut().filter(|_| index == 0) {
            first.give_way();
        }
        line.insert(index, waiter);
    }

    /// Returns how many turns come at most before that of a request which joins
    /// now.
    pub(super) fn ahead(&self, place: &QueuePlace) -> usize {
        let (robots, pages) = (self.robots.len(), self.pages());
        if place.crawler.is_none() {
            // A page comes between two of them, as long as there are pages.
            return robots + robots.min(pages);
        }
        let own = self.crawlers.iter().find(|line| is_of(line, place));
        let others = self.crawlers.len() - usize::from(own.is_some());
        let before = own.map_or(0, |line| before(line, place));
        // Every other crawler may come once before each page of this one.
        let in_turn = before.saturating_add(others.saturating_mul(before + 1));
        let pages = in_turn.min(pages);
        pages + robots.min(pages + 1)
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
        let kinds = if self.is_robots_turn() {
            [Self::serve_robots, Self::serve_page]
        } else {
            [Self::serve_page, Self::serve_robots]
        };
        let mut earliest = Uptime::MAX;
        for serve in kinds {
            match serve(self, host, now) {
                Ok(served) => return Ok(served),
                Err(until) => earliest = earliest.min(until),
            }
        }
        Err(earliest)
    }

    fn serve_robots(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        let waiter = self.robots.front_mut().ok_or(Uptime::MAX)?;
        let started = host.start(waiter, now);
        let grant = started.map_err(|delay| now.uptime.saturating_add(delay.recheck_after()))?;
        let waiter = self.pop_robots().ok_or(now.uptime)?;
        Ok((waiter, grant))
    }

    fn serve_page(&mut self, host: &mut HostState, now: &Now) -> Result<(Waiter, Grant), Uptime> {
        loop {
            let waiter = self.first_page(now.uptime)?;
            let delay = match host.start(waiter, now) {
                Ok(grant) => {
                    let waiter = self.pop_page().ok_or(now.uptime)?;
                    return Ok((waiter, grant));
                }
                Err(delay) => delay,
            };
            let until = now.uptime.saturating_add(delay.recheck_after());
            if waiter.is_hopeless(&delay, now) {
                if let Some(waiter) = self.drop_page() {
                    waiter.answer(Err(delay));
                }
            } else if delay.scope == DelayScope::Crawler {
                // Other crawlers need not wait for this one's hours or ceilings.
                (waiter.not_before, waiter.held_by) = (until, Some(delay.reason));
            } else {
                waiter.held_by = None;
                self.for_each_first(Waiter::give_way);
                return Err(until);
            }
        }
    }

    /// Returns whether a robots.txt comes next, if there is one.
    fn is_robots_turn(&self) -> bool {
        !self.was_robots || self.crawlers.is_empty()
    }

    /// Takes out the robots.txt that comes next, for its turn.
    fn pop_robots(&mut self) -> Option<Waiter> {
        self.was_robots = true;
        self.robots.pop_front()
    }

    /// Returns the page that comes next, whether it may start or not.
    pub(super) fn front(&self) -> Option<&Waiter> {
        self.crawlers.front()?.front()
    }

    /// Returns the page that comes next, and passes over crawlers whose first
    /// page need not be looked at yet.
    ///
    /// # Errors
    ///
    /// Time at which to look at the first of those, if there is no other.
    fn first_page(&mut self, now: Uptime) -> Result<&mut Waiter, Uptime> {
        let mut earliest = Uptime::MAX;
        for _ in 0..self.crawlers.len() {
            let not_before = self.front().map_or(Uptime::MAX, |first| first.not_before);
            if not_before <= now {
                break;
            }
            earliest = earliest.min(not_before);
            self.crawlers.rotate_left(1);
        }
        let line = self.crawlers.front_mut();
        line.and_then(VecDeque::front_mut)
            .filter(|first| first.not_before <= now)
            .ok_or(earliest)
    }

    /// Takes out the page that comes next, for its turn; its crawler comes last
    /// then.
    fn pop_page(&mut self) -> Option<Waiter> {
        self.was_robots = false;
        self.drop_page()
    }

    /// Takes out the page that comes next, without a turn.
    fn drop_page(&mut self) -> Option<Waiter> {
        let mut line = self.crawlers.pop_front()?;
        let waiter = line.pop_front();
        if !line.is_empty() {
            self.crawlers.push_back(line);
        }
        waiter
    }

    /// Makes room for one more request where `pages_max` pages wait: puts off the
    /// latest of the crawler that has most, if that would still have no fewer
    /// than this one. Returns whether there is room.
    pub(super) fn make_room(&mut self, place: &QueuePlace, pages_max: usize) -> bool {
        if place.crawler.is_none() || self.pages() < pages_max {
            return true;
        }
        let own_len = self.line(place).map_or(0, |line| line.len());
        let most = self.crawlers.iter_mut().max_by_key(|line| line.len());
        let most = most.filter(|line| own_len + 1 < line.len());
        let Some(latest) = most.and_then(VecDeque::pop_back) else {
            return false;
        };
        // When the queue has room again is not known.
        let end = DelayEnd::OnEvent(Duration::MAX);
        latest.answer(Err(Delay::of_crawler(Reason::QueueFull, end)));
        true
    }

    /// Takes out a request that waits no longer.
    pub(super) fn remove(&mut self, place: &QueuePlace) -> Option<Waiter> {
        let line = self.line(place)?;
        let index = before(line, place);
        line.get(index)
            .filter(|waiter| waiter.place.arrival == place.arrival)?;
        let waiter = line.remove(index);
        self.crawlers.retain(|line| !line.is_empty());
        waiter
    }

    /// Takes out the requests for which `leaves` holds.
    pub(super) fn remove_all(&mut self, leaves: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut gone = Vec::new();
        for line in self.crawlers.iter_mut().chain([&mut self.robots]) {
            let (leaving, staying): (Vec<_>, Vec<_>) = line.drain(..).partition(&leaves);
            gone.extend(leaving);
            line.extend(staying);
        }
        self.crawlers.retain(|line| !line.is_empty());
        gone
    }

    /// Calls `each` with every request.
    pub(super) fn for_each(&mut self, each: impl FnMut(&mut Waiter)) {
        let lines = self.crawlers.iter_mut().chain([&mut self.robots]);
        lines.flatten().for_each(each);
    }

    /// Calls `each` with the first page of every crawler.
    pub(super) fn for_each_first(&mut self, each: impl FnMut(&mut Waiter)) {
        let lines = self.crawlers.iter_mut();
        lines.filter_map(VecDeque::front_mut).for_each(each);
    }

    /// Returns the line in which a place is, if there is one.
    fn line(&mut self, place: &QueuePlace) -> Option<&mut VecDeque<Waiter>> {
        if place.crawler.is_none() {
            return Some(&mut self.robots);
        }
        self.crawlers.iter_mut().find(|line| is_of(line, place))
    }
}

fn is_of(line: &VecDeque<Waiter>, place: &QueuePlace) -> bool {
    line.front()
        .is_some_and(|first| first.place.crawler == place.crawler)
}

/// Returns how many requests of a line came before that of `place`. Numbers of
/// arrival rise within a line.
fn before(line: &VecDeque<Waiter>, place: &QueuePlace) -> usize {
    line.partition_point(|waiter| waiter.place.arrival < place.arrival)
}

#[cfg(test)]
mod tests;
