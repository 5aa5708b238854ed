//! Steps of the lease task, as pure functions of their input.

use std::time::Duration;

use jiff::Timestamp;

use crate::fleet_part::HostHistory;
use crate::lease::{HostLease, HostNeeds, LeaseAnswer, LeaseOrder, LeaseStep, LeaseTime};
use crate::schedule::Uptime;

const LEASE: Duration = Duration::from_secs(2);
/// Time after which a lease is renewed or handed on.
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

/// Returns a lease under which one request was started and has ended.
fn used() -> HostLease {
    let mut lease = HostLease::new(&"o.test".parse().unwrap(), 1);
    answer(&mut lease, at(Duration::ZERO), false);
    lease.record_start(Uptime::ZERO);
    lease
}

// Ours: without this, a host at which nothing waits lost its lease at each check, and its
// next request had to wait for a new one.
#[test]
fn a_host_with_frequent_requests_keeps_its_lease() {
    let mut lease = used();
    for parts in 1..10 {
        let time = at(PART * parts);
        lease.record_start(at(PART * parts - PART / 8).uptime);
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
fn the_lease_of_an_unused_host_is_given_back() {
    let next = order(&mut used(), &HostNeeds::default(), at(PART));
    assert_eq!(next, Some(LeaseOrder::Release(HostHistory::default())));
}

// Ours: other nodes need not wait for the rest of a lease while the host is at rest.
#[test]
fn the_lease_of_a_host_at_rest_goes_at_once_to_a_node_that_wants_it() {
    let mut lease = used();
    lease.record_start(at(PART - PART / 8).uptime);
    order(&mut lease, &HostNeeds::default(), at(PART));
    answer(&mut lease, at(PART), true);
    let next = order(&mut lease, &HostNeeds::default(), at(PART));
    assert_eq!(next, Some(LeaseOrder::Release(HostHistory::default())));
}

// Ours: each hand-over takes time.
#[test]
fn the_lease_of_a_busy_host_is_kept_for_another_part() {
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
fn a_draining_node_gives_back_leases_at_rest() {
    let draining = HostNeeds {
        is_draining: true,
        ..HostNeeds::default()
    };
    let next = order(&mut used(), &draining, at(Duration::ZERO));
    assert_eq!(next, Some(LeaseOrder::Release(HostHistory::default())));
}
