//! Steps of whoever looks after a lease, as data in and data out.

use std::time::Duration;

use jiff::Timestamp;

use crate::fleet_part::HostHistory;
use crate::lease::{HostLease, HostNeeds, LeaseAnswer, LeaseOrder, LeaseStep, LeaseTime};
use crate::schedule::Uptime;

const LEASE: Duration = Duration::from_secs(2);
/// Time after which a lease is looked at.
const PART: Duration = Duration::from_millis(500);

fn at(since: Duration) -> LeaseTime {
    LeaseTime {
        uptime: Uptime::ZERO.saturating_add(since),
        wall: Timestamp::UNIX_EPOCH + since,
    }
}

fn answer(lease: &mut HostLease, time: LeaseTime, is_wanted: bool) {
    let held = LeaseAnswer::Held {
        length: LEASE,
        is_wanted,
        history: None,
    };
    lease.take(Ok(held), time, time.uptime);
}

/// Returns the order of the next step, if it is a call.
fn order(lease: &mut HostLease, needs: &HostNeeds, time: LeaseTime) -> Option<LeaseOrder> {
    match lease.step(needs, time) {
        LeaseStep::Call(_, order) => Some(order),
        LeaseStep::Wait(_) | LeaseStep::Rest => None,
    }
}

/// Returns a lease in which a request was started and has ended.
fn used() -> HostLease {
    let mut lease = HostLease::new(&"o.test".parse().unwrap(), 1);
    answer(&mut lease, at(Duration::ZERO), false);
    lease.use_up(Uptime::ZERO);
    lease
}

// Ours: a host at which nothing ever waits lost its lease at each look, and the next
// request waited for another one.
#[test]
fn a_host_that_is_asked_again_and_again_keeps_its_lease() {
    let mut lease = used();
    for parts in 1..10 {
        let time = at(PART * parts);
        lease.use_up(at(PART * parts - PART / 8).uptime);
        let next = order(&mut lease, &HostNeeds::default(), time);
        assert_eq!(
            next,
            Some(LeaseOrder::Renew(HostHistory::default())),
            "{parts}"
        );
        answer(&mut lease, time, false);
    }
}

// Ours.
#[test]
fn a_host_that_is_not_asked_any_more_is_given_back() {
    let next = order(&mut used(), &HostNeeds::default(), at(PART));
    assert_eq!(next, Some(LeaseOrder::Release(HostHistory::default())));
}

// Ours: nobody waits for another part of a lease on behalf of a host at rest.
#[test]
fn a_host_at_rest_that_another_node_wants_is_given_back_at_once() {
    let mut lease = used();
    lease.use_up(at(PART - PART / 8).uptime);
    order(&mut lease, &HostNeeds::default(), at(PART));
    answer(&mut lease, at(PART), true);
    let next = order(&mut lease, &HostNeeds::default(), at(PART));
    assert_eq!(next, Some(LeaseOrder::Release(HostHistory::default())));
}

// Ours: each hand-over takes time.
#[test]
fn a_busy_host_that_another_node_wants_is_kept_for_another_part() {
    let busy = HostNeeds {
        in_flight: 1,
        ..HostNeeds::default()
    };
    let mut lease = used();
    order(&mut lease, &busy, at(PART));
    answer(&mut lease, at(PART), true);
    assert_eq!(order(&mut lease, &HostNeeds::default(), at(PART)), None);
    let next = order(&mut lease, &HostNeeds::default(), at(2 * PART));
    assert_eq!(next, Some(LeaseOrder::Release(HostHistory::default())));
}

// Ours.
#[test]
fn a_node_that_drains_gives_back_what_is_at_rest() {
    let draining = HostNeeds {
        is_draining: true,
        ..HostNeeds::default()
    };
    let next = order(&mut used(), &draining, at(Duration::ZERO));
    assert_eq!(next, Some(LeaseOrder::Release(HostHistory::default())));
}
