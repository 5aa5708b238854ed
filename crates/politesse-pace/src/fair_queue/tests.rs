//! Order of the waiting requests at one host.

use std::cell::RefCell;
use std::net::IpAddr;
use std::num::NonZeroU32;

use super::*;
use crate::ceilings::Ceilings;
use crate::options::Options;
use crate::policy::PaceLimits;
use crate::request::TurnOwner;
use crate::schedule::Kind;
use politesse_base::clients::directory::ClientDirectory;

thread_local! {
    /// Directory of a test, so that the same address always gives the same client.
    static CLIENTS: RefCell<ClientDirectory> = RefCell::default();
}

/// A place of a crawler. A client number other than 0 is a prefix: `1/a`. Without a
/// crawler, the place of a robots.txt for client 0.
fn place(crawler: Option<&str>, arrival: u64) -> QueuePlace {
    let name = crawler.unwrap_or_default();
    let (client, name) = name.split_once('/').unwrap_or(("0", name));
    let address = IpAddr::V4(client.parse::<u32>().unwrap().into());
    let client = CLIENTS.with_borrow(|clients| clients.at(address));
    let owner = TurnOwner {
        crawler: crawler.map(|_| name.into()),
        ..TurnOwner::of_robots(&client)
    };
    let kind = crawler.map_or(Kind::RobotsTxt, |_| Kind::Page);
    QueuePlace {
        owner,
        kind,
        arrival,
    }
}

/// A place of a robots.txt for the client with this number.
fn robots(client: u32, arrival: u64) -> QueuePlace {
    let address = IpAddr::V4(client.into());
    let owner = CLIENTS.with_borrow(|clients| TurnOwner::of_robots(&clients.at(address)));
    QueuePlace {
        owner,
        kind: Kind::RobotsTxt,
        arrival,
    }
}

fn page(crawler: &str, arrival: u64) -> Waiter {
    waiter(place(Some(crawler), arrival))
}

fn waiter(place: QueuePlace) -> Waiter {
    Waiter {
        place,
        pace_records: None,
        address: None,
        claim: None,
        deadline: Uptime::MAX,
        not_before: Uptime::ZERO,
        is_woken: false,
        held_by: None,
        driver: None,
        ticket: None,
    }
}

fn queue(of: &[(&str, u64)]) -> FairQueue {
    let mut queue = FairQueue::default();
    for (crawler, arrival) in of {
        queue.push(page(crawler, *arrival));
    }
    queue
}

/// Returns how many turns come before that of a request that joins.
fn turns(queue: &FairQueue, place: &QueuePlace) -> usize {
    let ahead = queue.ahead(place);
    ahead.robots + ahead.page_count()
}

fn arrival(waiter: Option<Waiter>) -> Option<u64> {
    Some(waiter?.place.arrival)
}

fn served(queue: &mut FairQueue) -> Vec<u64> {
    std::iter::from_fn(|| arrival(next_page(queue))).collect()
}

fn next_page(queue: &mut FairQueue) -> Option<Waiter> {
    queue.pop_page(LineIndex::default())
}

// Ours: round robin between crawlers, first in first out within one.
#[test]
fn crawlers_take_turns_and_keep_their_own_order() {
    let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
    assert_eq!(served(&mut queue), [1, 4, 5, 2, 6, 3]);
    assert!(queue.is_empty());
}

#[test]
fn a_robots_txt_comes_first_but_not_twice_in_a_row() {
    let mut queue = queue(&[("a", 1), ("b", 2)]);
    queue.push(waiter(place(None, 3)));
    queue.push(waiter(place(None, 4)));
    assert_eq!((queue.pages.len(), queue.len()), (2, 4));
    assert!(queue.is_robots_turn());
    let first = queue.robots.first_mut();
    assert_eq!(first.map(|first| first.place.arrival), Some(3));
    assert_eq!(arrival(queue.pop_robots()), Some(3));
    assert!(!queue.is_robots_turn());
    assert_eq!(arrival(next_page(&mut queue)), Some(1));
    assert!(queue.is_robots_turn());
    assert_eq!(served(&mut queue), [2]);
    assert_eq!((queue.pages.len(), queue.len()), (0, 1));
    queue.pop_robots();
    assert!(queue.is_robots_turn());
}

// Ours: the names of one client do not hold up the robots.txt of another.
#[test]
fn robots_txt_fetches_are_taken_from_each_client_in_turn() {
    let mut queue = FairQueue::default();
    for (client, arrival) in [(1, 1), (1, 2), (1, 3), (2, 4), (1, 5), (3, 6), (2, 7)] {
        queue.push(waiter(robots(client, arrival)));
    }
    assert_eq!(turns(&queue, &robots(4, 9)), 3);
    assert_eq!(turns(&queue, &robots(2, 9)), 2 + 3 + 1);
    let order = std::iter::from_fn(|| arrival(queue.pop_robots()));
    assert_eq!(order.collect::<Vec<_>>(), [1, 4, 6, 2, 7, 3, 5]);
    assert!(queue.is_empty());
}

// Ours: order within a crawler, even for a request that gave its turn back to have the
// robots.txt fetched again.
#[test]
fn a_returning_request_regains_its_place() {
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
    let claim = || ceilings.claim(Some("a"), &host, None).unwrap();
    let mut in_flight = claim();
    in_flight.start(Uptime::ZERO, None).unwrap();
    let mut waits = claim();
    let driver = Arc::default();
    assert!(waits.start(Uptime::ZERO, Some(&driver)).is_err());
    let second = Waiter {
        claim: Some(waits),
        ..page("a", 2)
    };
    let mut queue = FairQueue::default();
    queue.push(second);
    for (crawler, arrival) in [("a", 3), ("b", 5)] {
        queue.push(page(crawler, arrival));
    }
    assert_eq!(turns(&queue, &place(Some("a"), 1)), 1);
    queue.push(page("a", 1));
    // Only the first request of a crawler is checked: the second must not hold a place
    // under the ceiling.
    drop(in_flight);
    assert!(claim().start(Uptime::ZERO, None).is_ok());
    assert_eq!(served(&mut queue), [1, 5, 2, 3]);
}

#[test]
fn turns_ahead_are_counted_in_the_order_of_service() {
    let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4)]);
    assert_eq!(turns(&queue, &place(Some("new"), 9)), 2);
    assert_eq!(turns(&queue, &place(Some("b"), 9)), 3);
    assert_eq!(turns(&queue, &place(Some("a"), 9)), 4);
    assert_eq!(turns(&queue, &place(None, 9)), 0);
    for number in 10..15 {
        queue.push(waiter(place(None, number)));
    }
    assert_eq!(turns(&queue, &place(Some("new"), 20)), 5);
    assert_eq!(turns(&queue, &place(Some("a"), 0)), 3);
    assert_eq!(turns(&queue, &place(None, 20)), 9);
}

#[test]
fn a_removed_request_no_longer_holds_up_others() {
    let mut queue = queue(&[("a", 1), ("b", 2), ("a", 3)]);
    assert!(queue.remove(&place(Some("a"), 2)).is_none());
    assert!(queue.remove(&place(Some("b"), 2)).is_some());
    assert!(queue.remove(&place(Some("b"), 2)).is_none());
    assert_eq!(queue.remove_all(|one| one.place.arrival == 1).len(), 1);
    assert_eq!((queue.pages.len(), queue.len()), (1, 1));
    assert_eq!(served(&mut queue), [3]);
}

#[test]
fn a_crawler_that_must_wait_is_skipped_and_keeps_its_place() {
    let later = Waiter {
        not_before: Uptime::from_secs(9),
        ..page("a", 1)
    };
    let mut queue = FairQueue::default();
    queue.push(later);
    queue.push(page("b", 2));
    queue.push(page("1/c", 3));
    let first = |queue: &mut FairQueue, now| {
        let due = queue.pages.next_due(LineIndex::default(), now);
        due.map(|(index, first)| (index, first.place.arrival))
    };
    let (index, number) = first(&mut queue, Uptime::ZERO).unwrap();
    assert_eq!(number, 2);
    assert_eq!(arrival(queue.pop_page(index)), Some(2));
    let (index, number) = first(&mut queue, Uptime::ZERO).unwrap();
    assert_eq!(number, 3);
    assert_eq!(arrival(queue.pop_page(index)), Some(3));
    assert!(first(&mut queue, Uptime::ZERO).is_none());
    let at_nine = Uptime::from_secs(9);
    assert_eq!(queue.pages.next_look(Uptime::ZERO), at_nine);
    assert_eq!(first(&mut queue, at_nine).unwrap().1, 1);
}

// Ours: turns are shared by client first, so sixty names of one client get no more turns
// than the single name of another.
#[test]
fn clients_take_turns_and_their_crawlers_within_them() {
    let mut queue = queue(&[
        ("1/a", 1),
        ("1/a", 2),
        ("1/b", 3),
        ("1/c", 4),
        ("2/a", 5),
        ("2/a", 6),
        ("2/a", 7),
        ("3/x", 8),
    ]);
    assert_eq!(turns(&queue, &place(Some("4/y"), 9)), 3);
    assert_eq!(turns(&queue, &place(Some("3/x"), 9)), 3 + 2);
    // Four pages of its own, and four of the others, which have no more.
    assert_eq!(turns(&queue, &place(Some("1/a"), 9)), 4 + 4);
    assert_eq!(turns(&queue, &place(Some("1/b"), 2)), 2 + 3 + 1);
    assert_eq!(served(&mut queue), [1, 5, 8, 3, 6, 4, 7, 2]);
    assert!(queue.is_empty());
}

// Ours: `pace.queue.origin`.
#[test]
fn a_full_queue_drops_the_latest_request_of_the_client_with_most() {
    let mut queue = queue(&[("1/a", 1), ("1/b", 2), ("1/b", 3), ("2/c", 4)]);
    let has_room = |queue: &mut FairQueue, name| queue.make_room(&place(Some(name), 9), 4);
    assert!(queue.make_room(&place(None, 9), 4));
    assert!(queue.make_room(&place(Some("1/b"), 9), 5));
    // Within one client, a name with fewer requests displaces one of another name.
    assert!(!has_room(&mut queue, "1/b"));
    assert!(!has_room(&mut queue, "1/a"));
    assert!(has_room(&mut queue, "1/z"));
    assert!(queue.remove(&place(Some("1/b"), 3)).is_none());
    queue.push(page("1/z", 5));
    assert!(has_room(&mut queue, "3/x"));
    assert_eq!(queue.pages.len(), 3);
    queue.push(page("3/x", 6));
    // Two requests of the first client, one of each other client: the first has no
    // surplus.
    assert!(!has_room(&mut queue, "3/x"));
    assert!(!has_room(&mut queue, "1/z"));
    assert!(has_room(&mut queue, "4/new"));
}
