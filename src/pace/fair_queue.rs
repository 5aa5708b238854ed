//! Order in which the requests that wait at one host start.
//!
//! A robots.txt comes first, since pages wait for it, but not twice in a row
//! while a page waits. Pages are taken from each crawler in turn, so that a
//! crawler with a thousand requests delays another by one turn; those of one
//! crawler start in the order of arrival. Does not know what delays a request.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use super::request::Waiter;
use super::schedule::Uptime;

/// Requests that wait at one host, in the order in which they start.
///
/// Where a method takes a crawler, `None` stands for our own robots.txt fetch.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    robots: VecDeque<Waiter>,
    /// Whether the last turn went to a robots.txt.
    was_robots: bool,
    /// Crawlers in the order of their next turns; none is empty.
    crawlers: VecDeque<CrawlerQueue>,
    pages: usize,
    /// Wakes the task that grants turns.
    pub(super) driver: Arc<Notify>,
}

/// Pages that wait for one crawler, in the order of arrival.
#[derive(Debug)]
struct CrawlerQueue {
    crawler: Arc<str>,
    waiters: VecDeque<Waiter>,
}

impl FairQueue {
    /// Returns the number of pages; robots.txt fetches have a bound of their
    /// own.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    pub(super) fn len(&self) -> usize {
        self.pages + self.robots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a request, in its place by number of arrival.
    pub(super) fn push(&mut self, crawler: Option<&Arc<str>>, waiter: Waiter) {
        let Some(crawler) = crawler else {
            self.robots.push_back(waiter);
            return;
        };
        self.pages += 1;
        if let Some(own) = self.crawlers.iter_mut().find(|own| own.crawler == *crawler) {
            let index = own.before(waiter.arrival);
            // Only the first of a crawler is looked at. If it is first no more,
            // it must not keep a place under a ceiling.
            if let Some(first) = own.waiters.front_mut().filter(|_| index == 0) {
                first.claim.give_way();
            }
            own.waiters.insert(index, waiter);
            return;
        }
        self.crawlers.push_back(CrawlerQueue {
            crawler: Arc::clone(crawler),
            waiters: VecDeque::from([waiter]),
        });
    }

    /// Returns how many turns come at most before that of a request which joins
    /// now; without a number of arrival it comes last.
    pub(super) fn ahead(&self, crawler: Option<&str>, arrival: Option<u64>) -> usize {
        let robots = self.robots.len();
        let Some(crawler) = crawler else {
            // A page comes between two of them, as long as there are pages.
            return robots + robots.min(self.pages);
        };
        let own = self.crawlers.iter().find(|own| *own.crawler == *crawler);
        let others = self.crawlers.len() - usize::from(own.is_some());
        let before = own.map_or(0, |own| own.before(arrival));
        // Every other crawler may come once before each page of this one.
        let in_turn = before.saturating_add(others.saturating_mul(before + 1));
        let pages = in_turn.min(self.pages);
        pages + robots.min(pages + 1)
    }

    /// Returns whether a robots.txt comes next, if there is one.
    pub(super) fn is_robots_turn(&self) -> bool {
        !self.was_robots || self.pages == 0
    }

    /// Returns the robots.txt that comes next.
    pub(super) fn first_robots(&mut self) -> Option<&mut Waiter> {
        self.robots.front_mut()
    }

    /// Takes out the robots.txt that comes next, for its turn.
    pub(super) fn pop_robots(&mut self) -> Option<Waiter> {
        self.was_robots = true;
        self.robots.pop_front()
    }

    /// Returns the page that comes next, whether it may start or not.
    pub(super) fn front(&self) -> Option<&Waiter> {
        self.crawlers.front()?.waiters.front()
    }

    /// Returns the page that comes next, and passes over crawlers whose first
    /// page need not be looked at yet.
    ///
    /// # Errors
    ///
    /// Time at which to look at the first of those, if there is no other.
    pub(super) fn first_page(&mut self, now: Uptime) -> Result<&mut Waiter, Uptime> {
        let mut earliest = Uptime::MAX;
        for _ in 0..self.crawlers.len() {
            let not_before = self.front().map_or(Uptime::MAX, |first| first.not_before);
            if not_before <= now {
                break;
            }
            earliest = earliest.min(not_before);
            self.crawlers.rotate_left(1);
        }
        let own = self.crawlers.front_mut();
        own.and_then(|own| own.waiters.front_mut())
            .filter(|first| first.not_before <= now)
            .ok_or(earliest)
    }

    /// Takes out the page that comes next, for its turn; its crawler comes last
    /// then.
    pub(super) fn pop_page(&mut self) -> Option<Waiter> {
        self.was_robots = false;
        self.drop_page()
    }

    /// Takes out the page that comes next, without a turn.
    pub(super) fn drop_page(&mut self) -> Option<Waiter> {
        let mut own = self.crawlers.pop_front()?;
        let waiter = own.waiters.pop_front();
        self.pages -= usize::from(waiter.is_some());
        if !own.waiters.is_empty() {
            self.crawlers.push_back(own);
        }
        waiter
    }

    /// Makes room for one more page of a crawler: takes out the latest of the
    /// crawler that has most, if that would still have no fewer than this one.
    pub(super) fn crowd_out(&mut self, crawler: &str) -> Option<Waiter> {
        let own = self.crawlers.iter().find(|own| *own.crawler == *crawler);
        let own_len = own.map_or(0, |own| own.waiters.len());
        let most = self
            .crawlers
            .iter_mut()
            .max_by_key(|one| one.waiters.len())?;
        if most.waiters.len() <= own_len + 1 {
            return None;
        }
        let latest = most.waiters.pop_back();
        self.pages -= usize::from(latest.is_some());
        latest
    }

    /// Takes out a request that waits no longer.
    pub(super) fn remove(&mut self, crawler: Option<&str>, arrival: u64) -> Option<Waiter> {
        let Some(crawler) = crawler else {
            return remove(&mut self.robots, arrival);
        };
        let mut crawlers = self.crawlers.iter();
        let index = crawlers.position(|own| *own.crawler == *crawler)?;
        let own = self.crawlers.get_mut(index)?;
        let waiter = remove(&mut own.waiters, arrival)?;
        self.pages -= 1;
        if own.waiters.is_empty() {
            self.crawlers.remove(index);
        }
        Some(waiter)
    }

    /// Takes out the requests for which `leaves` holds.
    pub(super) fn remove_all(&mut self, leaves: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let own = self.crawlers.iter_mut().map(|own| &mut own.waiters);
        let mut gone = Vec::new();
        for waiters in own.chain([&mut self.robots]) {
            let (leaving, staying): (Vec<_>, Vec<_>) = waiters.drain(..).partition(&leaves);
            gone.extend(leaving);
            waiters.extend(staying);
        }
        self.crawlers.retain(|own| !own.waiters.is_empty());
        self.pages = self.crawlers.iter().map(|own| own.waiters.len()).sum();
        gone
    }

    /// Calls `each` with every request and its crawler.
    pub(super) fn for_each(&mut self, mut each: impl FnMut(Option<&str>, &mut Waiter)) {
        self.robots.iter_mut().for_each(|waiter| each(None, waiter));
        for own in &mut self.crawlers {
            let waiters = own.waiters.iter_mut();
            waiters.for_each(|waiter| each(Some(&own.crawler), waiter));
        }
    }

    /// Calls `each` with the first page of every crawler.
    pub(super) fn for_each_first(&mut self, each: impl FnMut(&mut Waiter)) {
        let crawlers = self.crawlers.iter_mut();
        let first = crawlers.filter_map(|own| own.waiters.front_mut());
        first.for_each(each);
    }
}

impl CrawlerQueue {
    /// Returns how many requests came before this number of arrival.
    fn before(&self, arrival: Option<u64>) -> usize {
        let arrival = arrival.unwrap_or(u64::MAX);
        self.waiters
            .partition_point(|waiter| waiter.arrival < Some(arrival))
    }
}

fn remove(waiters: &mut VecDeque<Waiter>, arrival: u64) -> Option<Waiter> {
    // Numbers of arrival rise within a queue.
    let index = waiters.binary_search_by_key(&Some(arrival), |waiter| waiter.arrival);
    waiters.remove(index.ok()?)
}

#[cfg(test)]
mod tests;
