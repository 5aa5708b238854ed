//! Order of those who wait at one host.

use std::num::NonZeroU32;

use super::*;
use crate::pace::ceilings::{CeilingClaim, Ceilings};
use crate::pace::options::Options;
use crate::pace::policy::PaceLimits;
use crate::pace::schedule::Kind;

fn waiter(arrival: u64) -> Waiter {
    Waiter {
        kind: Kind::Page,
        pace_records: None,
        claim: CeilingClaim::default(),
        arrival: Some(arrival),
        deadline: Uptime::MAX,
        not_before: Uptime::ZERO,
        held_by: None,
        ticket: None,
    }
}

fn queue(of: &[(&str, u64)]) -> FairQueue {
    let mut queue = FairQueue::default();
    for (crawler, arrival) in of {
        queue.push(Some(&(*crawler).into()), waiter(*arrival));
    }
    queue
}

fn arrival(waiter: Option<Waiter>) -> Option<u64> {
    waiter?.arrival
}

fn served(queue: &mut FairQueue) -> Vec<u64> {
    std::iter::from_fn(|| arrival(queue.pop_page())).collect()
}

// Ours: round robin, first in first out within one.
#[test]
fn crawlers_take_turns_in_their_own_order() {
    let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
    assert_eq!(served(&mut queue), [1, 4, 5, 2, 6, 3]);
    assert!(queue.is_empty());
}

#[test]
fn a_robots_txt_comes_first_but_not_twice_before_a_page() {
    let mut queue = queue(&[("a", 1), ("b", 2)]);
    queue.push(None, waiter(3));
    queue.push(None, waiter(4));
    assert_eq!((queue.pages(), queue.len()), (2, 4));
    assert!(queue.is_robots_turn());
    assert_eq!(
        queue.first_robots().and_then(|first| first.arrival),
        Some(3)
    );
    assert_eq!(arrival(queue.pop_robots()), Some(3));
    assert!(!queue.is_robots_turn());
    assert_eq!(arrival(queue.pop_page()), Some(1));
    assert!(queue.is_robots_turn());
    assert_eq!(served(&mut queue), [2]);
    assert_eq!((queue.pages(), queue.len()), (0, 1));
    queue.pop_robots();
    assert!(queue.is_robots_turn());
}

// Ours: order within a crawler, also for a request that gave its turn back to
// have the robots.txt fetched again.
#[test]
fn one_that_comes_back_has_its_place() {
    let total = PaceLimits {
        in_flight: NonZeroU32::new(1),
        rate: None,
    };
    let options = Options {
        total,
        ..Options::default()
    };
    let ceilings = Ceilings::new(&options, None);
    let host = "site.example".parse().unwrap();
    let claim = || ceilings.claim(Some("a"), &host, None);
    let in_flight = ceilings.start(&mut claim(), Uptime::ZERO);
    let mut second = Waiter {
        claim: claim(),
        ..waiter(2)
    };
    second.claim.wait_with(&Arc::default());
    assert!(ceilings.start(&mut second.claim, Uptime::ZERO).is_err());
    let mut queue = FairQueue::default();
    queue.push(Some(&"a".into()), second);
    for (crawler, arrival) in [("a", 3), ("b", 5)] {
        queue.push(Some(&crawler.into()), waiter(arrival));
    }
    assert_eq!(queue.ahead(Some("a"), Some(1)), 1);
    queue.push(Some(&"a".into()), waiter(1));
    // Only the first of a crawler is looked at: the second must not keep its
    // place under the ceiling.
    drop(in_flight);
    assert!(ceilings.start(&mut claim(), Uptime::ZERO).is_ok());
    assert_eq!(served(&mut queue), [1, 5, 2, 3]);
}

#[test]
fn turns_ahead_are_counted_in_the_order_of_service() {
    let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4)]);
    assert_eq!(queue.ahead(Some("new"), Some(9)), 2);
    assert_eq!(queue.ahead(Some("b"), Some(9)), 3);
    assert_eq!(queue.ahead(Some("a"), Some(9)), 4);
    assert_eq!(queue.ahead(None, Some(9)), 0);
    for number in 10..15 {
        queue.push(None, waiter(number));
    }
    assert_eq!(queue.ahead(Some("new"), Some(20)), 5);
    assert_eq!(queue.ahead(Some("a"), Some(0)), 3);
    assert_eq!(queue.ahead(None, Some(20)), 9);
}

#[test]
fn one_that_left_is_in_nobodys_way() {
    let mut queue = queue(&[("a", 1), ("b", 2), ("a", 3)]);
    assert!(queue.remove(Some("a"), 2).is_none());
    assert!(queue.remove(Some("b"), 2).is_some());
    assert!(queue.remove(Some("b"), 2).is_none());
    assert_eq!(queue.remove_all(|one| one.arrival == Some(1)).len(), 1);
    assert_eq!((queue.pages(), queue.len()), (1, 1));
    assert_eq!(served(&mut queue), [3]);
}

#[test]
fn a_crawler_that_may_not_yet_is_passed_over() {
    let mut queue = queue(&[("b", 2)]);
    let later = Waiter {
        not_before: Uptime::from_secs(9),
        ..waiter(1)
    };
    queue.push(Some(&"a".into()), later);
    queue.crawlers.rotate_left(1);
    let first = |queue: &mut FairQueue, now| queue.first_page(now).map(|first| first.arrival);
    assert_eq!(first(&mut queue, Uptime::ZERO), Ok(Some(2)));
    assert_eq!(arrival(queue.pop_page()), Some(2));
    let at_nine = Uptime::from_secs(9);
    assert_eq!(first(&mut queue, Uptime::ZERO), Err(at_nine));
    assert!(queue.first_page(at_nine).is_ok());
}
