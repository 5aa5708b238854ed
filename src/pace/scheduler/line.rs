//! Who waits for a turn at one host, and who comes next.
//!
//! A robots.txt comes first, since pages wait for it, but not twice in a row
//! where a page waits. Of the pages one of each crawler comes after the other,
//! so that a crawler with a thousand requests delays another by one turn;
//! within a crawler, first in first out. What is waited for is not known here.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::pace::schedule::Moment;

/// What waits, for all that the line has to know of it.
pub(super) trait Waits {
    /// Its place in the order of arrival, which nothing else has.
    fn number(&self) -> u64;
    /// It need not be asked before then.
    fn not_before(&self) -> Moment;
    /// It may have been told something, if it waits for that.
    fn wake(&mut self);
    /// It cannot start now, and is to be in nobody's way elsewhere.
    fn yields(&mut self);
}

/// The line of one host.
#[derive(Debug)]
pub(super) struct Line<W> {
    robots: VecDeque<W>,
    /// Whether the last turn was one's of these.
    robots_last: bool,
    /// In the order in which they come next; none is empty.
    crawlers: VecDeque<Own<W>>,
    pages: usize,
}

/// What waits of one crawler.
#[derive(Debug)]
struct Own<W> {
    name: Arc<str>,
    waiting: VecDeque<W>,
}

/// QueueOwner a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QueueOwner {
    /// Our own robots.txt fetch.
    Robots,
    /// A crawler's, by its name.
    Crawler(Arc<str>),
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            robots: VecDeque::new(),
            robots_last: false,
            crawlers: VecDeque::new(),
            pages: 0,
        }
    }
}

impl<W: Waits> Line<W> {
    /// How many pages wait; robots.txt fetches have a bound of their own.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    pub(super) fn len(&self) -> usize {
        self.pages + self.robots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, whose: &QueueOwner, waiter: W) {
        match whose {
            QueueOwner::Robots => self.robots.push_back(waiter),
            QueueOwner::Crawler(name) => {
                self.pages += 1;
                if let Some(own) = self.crawlers.iter_mut().find(|own| own.name == *name) {
                    let at = own.before(waiter.number());
                    if let Some(first) = own.waiting.front_mut().filter(|_| at == 0) {
                        first.yields();
                    }
                    own.waiting.insert(at, waiter);
                    return;
                }
                self.crawlers.push_back(Own {
                    name: Arc::clone(name),
                    waiting: VecDeque::from([waiter]),
                });
            }
        }
    }

    /// How many turns come at most before that of a request which joins now,
    /// by this number.
    pub(super) fn ahead(&self, whose: &QueueOwner, number: u64) -> usize {
        let robots = self.robots.len();
        let QueueOwner::Crawler(name) = whose else {
            return robots + robots.min(self.pages);
        };
        let own = self.crawlers.iter().find(|own| own.name == *name);
        let others = self.crawlers.len() - usize::from(own.is_some());
        let own = own.map_or(0, |own| own.before(number));
        let turns = own.saturating_add(others.saturating_mul(own + 1));
        let turns = turns.min(self.pages);
        turns + robots.min(turns + 1)
    }

    /// The page that comes next, if it may.
    pub(super) fn front(&self) -> Option<&W> {
        self.crawlers.front()?.waiting.front()
    }

    /// Whether a robots.txt comes next, if both could: but for one turn in two.
    pub(super) fn is_robots_turn(&self) -> bool {
        !self.robots_last || self.pages == 0
    }

    /// Has all pages be asked that wait to be told something.
    pub(super) fn wake(&mut self) {
        self.each_first(Waits::wake);
    }

    /// None of the pages that come next starts now, or is asked.
    pub(super) fn yields(&mut self) {
        self.each_first(Waits::yields);
    }

    fn each_first(&mut self, each: impl FnMut(&mut W)) {
        let crawlers = self.crawlers.iter_mut();
        let pages = crawlers.filter_map(|own| own.waiting.front_mut());
        pages.for_each(each);
    }

    /// The robots.txt that comes next.
    pub(super) fn robots(&mut self) -> Option<&mut W> {
        self.robots.front_mut()
    }

    /// Takes out what [`Self::robots`] named.
    pub(super) fn pop_robots(&mut self) -> Option<W> {
        self.robots_last = true;
        self.robots.pop_front()
    }

    /// The page that comes next. Crawlers that need not be asked yet are passed
    /// over.
    ///
    /// # Errors
    ///
    /// When the first of them is to be asked, if no one is now.
    pub(super) fn first(&mut self, now: Moment) -> Result<&mut W, Moment> {
        let mut earliest = Moment::MAX;
        for _ in 0..self.crawlers.len() {
            let front = self.crawlers.front().and_then(|own| own.waiting.front());
            let not_before = front.map_or(Moment::MAX, Waits::not_before);
            if not_before <= now {
                break;
            }
            earliest = earliest.min(not_before);
            self.crawlers.rotate_left(1);
        }
        let front = self
            .crawlers
            .front_mut()
            .and_then(|own| own.waiting.front_mut());
        front
            .filter(|waiter| waiter.not_before() <= now)
            .ok_or(earliest)
    }

    /// Takes out whom [`Self::first`] named; its crawler comes last then.
    pub(super) fn pop(&mut self) -> Option<W> {
        self.robots_last = false;
        self.take()
    }

    /// The same for one that leaves without a turn.
    pub(super) fn take(&mut self) -> Option<W> {
        let mut own = self.crawlers.pop_front()?;
        let waiter = own.waiting.pop_front();
        self.pages -= usize::from(waiter.is_some());
        if !own.waiting.is_empty() {
            self.crawlers.push_back(own);
        }
        waiter
    }

    /// Makes room for one more of a crawler: the latest of the one that has most,
    /// if that would still have no less than this one.
    pub(super) fn crowd_out(&mut self, name: &str) -> Option<W> {
        let own = self.crawlers.iter().find(|own| *own.name == *name);
        let own = own.map_or(0, |own| own.waiting.len());
        let most = self.crawlers.iter_mut().max_by_key(|own| own.waiting.len());
        let most = most.filter(|most| own + 1 < most.waiting.len())?;
        let latest = most.waiting.pop_back();
        self.pages -= usize::from(latest.is_some());
        latest
    }

    /// Takes out one that waits no longer.
    pub(super) fn remove(&mut self, whose: &QueueOwner, number: u64) -> Option<W> {
        let QueueOwner::Crawler(name) = whose else {
            return remove(&mut self.robots, number);
        };
        let at = self.crawlers.iter().position(|own| own.name == *name)?;
        let own = self.crawlers.get_mut(at)?;
        let waiter = remove(&mut own.waiting, number)?;
        self.pages -= 1;
        if own.waiting.is_empty() {
            self.crawlers.remove(at);
        }
        Some(waiter)
    }

    /// Takes out all of whom this holds.
    pub(super) fn remove_all(&mut self, leaves: impl Fn(&W) -> bool) -> Vec<W> {
        let (mut gone, staying) = split(std::mem::take(&mut self.robots), &leaves);
        self.robots = staying;
        for own in &mut self.crawlers {
            let waiting = std::mem::take(&mut own.waiting);
            let (leaving, staying): (Vec<W>, VecDeque<W>) = split(waiting, &leaves);
            own.waiting = staying;
            gone.extend(leaving);
        }
        self.crawlers.retain(|own| !own.waiting.is_empty());
        self.pages = self.crawlers.iter().map(|own| own.waiting.len()).sum();
        gone
    }

    /// Does something with each that waits, and tells whose it is, if it is a
    /// page.
    pub(super) fn each(&mut self, mut each: impl FnMut(Option<&str>, &mut W)) {
        self.robots.iter_mut().for_each(|waiter| each(None, waiter));
        for own in &mut self.crawlers {
            let waiting = own.waiting.iter_mut();
            waiting.for_each(|waiter| each(Some(&own.name), waiter));
        }
    }
}

impl<W: Waits> Own<W> {
    /// How many came before that number.
    fn before(&self, number: u64) -> usize {
        self.waiting
            .partition_point(|waiter| waiter.number() < number)
    }
}

fn split<W>(waiting: VecDeque<W>, leaves: impl Fn(&W) -> bool) -> (Vec<W>, VecDeque<W>) {
    let mut parts = (Vec::new(), VecDeque::new());
    for waiter in waiting {
        if leaves(&waiter) {
            parts.0.push(waiter);
        } else {
            parts.1.push_back(waiter);
        }
    }
    parts
}

/// Numbers rise within a queue.
fn remove<W: Waits>(waiting: &mut VecDeque<W>, number: u64) -> Option<W> {
    let at = waiting.binary_search_by_key(&number, Waits::number).ok()?;
    waiting.remove(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its number, when it may, and whether it yielded.
    struct One(u64, u64, bool);

    impl Waits for One {
        fn number(&self) -> u64 {
            self.0
        }

        fn not_before(&self) -> Moment {
            Moment::from_secs(self.1)
        }

        fn wake(&mut self) {}

        fn yields(&mut self) {
            self.2 = true;
        }
    }

    fn crawler(name: &str) -> QueueOwner {
        QueueOwner::Crawler(name.into())
    }

    fn line(of: &[(&str, u64)]) -> Line<One> {
        let mut line = Line::default();
        for (name, number) in of {
            line.push(&crawler(name), One(*number, 0, false));
        }
        line
    }

    fn served(line: &mut Line<One>) -> Vec<u64> {
        std::iter::from_fn(|| line.pop().map(|one| one.0)).collect()
    }

    // The issue, deliverable 1: round robin, first in first out within one.
    #[test]
    fn crawlers_take_turns_in_their_own_order() {
        let mut line = line(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
        assert_eq!(served(&mut line), [1, 4, 5, 2, 6, 3]);
        assert!(line.is_empty());
    }

    #[test]
    fn a_robots_txt_comes_first_but_not_twice_before_a_page() {
        let mut line = line(&[("a", 1), ("b", 2)]);
        line.push(&QueueOwner::Robots, One(3, 0, false));
        line.push(&QueueOwner::Robots, One(4, 0, false));
        assert_eq!((line.pages(), line.len()), (2, 4));
        assert!(line.is_robots_turn());
        assert_eq!(line.robots().map(|one| one.0), Some(3));
        assert_eq!(line.pop_robots().map(|one| one.0), Some(3));
        assert!(!line.is_robots_turn());
        assert_eq!(line.pop().map(|one| one.0), Some(1));
        assert!(line.is_robots_turn());
        assert_eq!(served(&mut line), [2]);
        assert_eq!((line.pages(), line.len()), (0, 1));
        line.pop_robots();
        assert!(line.is_robots_turn());
    }

    // The issue, "must hold": order within a crawler, also for one that gave
    // its turn back to have the robots.txt asked for again.
    #[test]
    fn one_that_comes_back_has_its_place() {
        let mut line = line(&[("a", 2), ("a", 3), ("b", 5)]);
        assert_eq!(line.ahead(&crawler("a"), 1), 1);
        line.push(&crawler("a"), One(1, 0, false));
        // Nobody behind the first is asked, so that it must be in nobody's way.
        let second = line.remove(&crawler("a"), 2).map(|one| (one.0, one.2));
        assert_eq!(second, Some((2, true)));
        assert_eq!(served(&mut line), [1, 5, 3]);
    }

    #[test]
    fn turns_ahead_are_counted_in_the_order_of_service() {
        let mut line = line(&[("a", 1), ("a", 2), ("a", 3), ("b", 4)]);
        assert_eq!(line.ahead(&crawler("new"), 9), 2);
        assert_eq!(line.ahead(&crawler("b"), 9), 3);
        assert_eq!(line.ahead(&crawler("a"), 9), 4);
        assert_eq!(line.ahead(&QueueOwner::Robots, 9), 0);
        for number in 10..15 {
            line.push(&QueueOwner::Robots, One(number, 0, false));
        }
        assert_eq!(line.ahead(&crawler("new"), 20), 5);
        assert_eq!(line.ahead(&crawler("a"), 0), 3);
        assert_eq!(line.ahead(&QueueOwner::Robots, 20), 9);
    }

    #[test]
    fn one_that_left_is_in_nobodys_way() {
        let mut line = line(&[("a", 1), ("b", 2), ("a", 3)]);
        assert!(line.remove(&crawler("a"), 2).is_none());
        assert!(line.remove(&crawler("b"), 2).is_some());
        assert!(line.remove(&crawler("b"), 2).is_none());
        assert_eq!(line.remove_all(|one| one.0 == 1).len(), 1);
        assert_eq!((line.pages(), line.len()), (1, 1));
        assert_eq!(served(&mut line), [3]);
    }

    #[test]
    fn a_crawler_that_may_not_yet_is_passed_over() {
        let mut line = line(&[("b", 2)]);
        line.push(&crawler("a"), One(1, 9, false));
        line.crawlers.rotate_left(1);
        assert_eq!(line.first(Moment::ZERO).map(|one| one.0), Ok(2));
        assert_eq!(line.pop().map(|one| one.0), Some(2));
        let first = line.first(Moment::ZERO).map(|one| one.0);
        assert_eq!(first, Err(Moment::from_secs(9)));
        assert!(line.first(Moment::from_secs(9)).is_ok());
    }
}
