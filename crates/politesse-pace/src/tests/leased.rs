//! Turns of a fleet node, in particular turns that may no longer be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::advance;

use super::kit::{Get, Origin, profile, seconds, settle};
use crate::fleet_part::{AloneSince, FleetMode, FleetPart, FleetShare, HostHistory};
use crate::lease::{LeaseAnswer, LeaseCall, LeaseFuture, LeaseOrder, LeaseStore};
use crate::options::Options;
use crate::policy::{PaceLimits, PacePolicy, Profile};
use politesse_base::testing::set_wall_by;
use politesse_decision::back_off::ReleaseOrder;
use politesse_robots::PaceRecords;

const LEASE: Duration = Duration::from_secs(2);

const ALONE: FleetMode = FleetMode::Alone(AloneSince {
    from: Duration::ZERO,
    place: 0,
});

/// Store that grants every lease at once.
#[derive(Debug, Default)]
struct Generous {
    releases: AtomicU32,
    /// Number of releases that reported a back-off.
    back_offs: AtomicU32,
    /// Number of an operator's orders to end a back-off.
    ended: AtomicU32,
    /// Seconds for which the latest release asks to be remembered.
    remembered: AtomicU64,
    /// Whether another node wants each lease.
    is_wanted: bool,
}

impl LeaseStore for Generous {
    fn lease<'a>(&'a self, call: LeaseCall<'a>) -> LeaseFuture<'a> {
        if let LeaseOrder::Release(history) = call.order {
            self.releases.fetch_add(1, Ordering::Relaxed);
            let is_told = history.back_off_end.is_some();
            self.back_offs.fetch_add(is_told.into(), Ordering::Relaxed);
            let remembered = history.remembered.as_secs();
            self.remembered.store(remembered, Ordering::Relaxed);
        }
        let is_end = call.order == LeaseOrder::EndBackOff;
        self.ended.fetch_add(is_end.into(), Ordering::Relaxed);
        let answer = match call.order {
            LeaseOrder::Claim | LeaseOrder::Renew(_) => LeaseAnswer::Held {
                length: LEASE,
                is_wanted: self.is_wanted,
                history: Some(HostHistory::default()),
            },
            LeaseOrder::Release(_) => LeaseAnswer::Noted,
            LeaseOrder::EndBackOff => LeaseAnswer::Freed,
        };
        Box::pin(async move { Ok(answer) })
    }
}

fn set_mode(origin: &Origin, mode: FleetMode) {
    set_part(origin, mode, 1);
}

fn set_part(origin: &Origin, mode: FleetMode, generation: u64) {
    set(
        origin,
        FleetPart {
            mode,
            share: FleetShare::WHOLE,
            generation,
        },
    );
}

fn set_share(origin: &Origin, mode: FleetMode, nodes: u32) {
    set(
        origin,
        FleetPart {
            mode,
            share: FleetShare {
                nodes,
                sharing: nodes,
            },
            generation: 1,
        },
    );
}

fn set(origin: &Origin, part: FleetPart) {
    let valid_until = origin.scheduler.uptime() + seconds(3600);
    origin.scheduler.set_fleet_part(part, valid_until);
}

fn in_a_fleet(mode: FleetMode) -> Origin {
    in_a_fleet_with(mode, Arc::default())
}

fn in_a_fleet_with(mode: FleetMode, store: Arc<Generous>) -> Origin {
    let origin = Origin::new(profile(Profile::Owned));
    origin.scheduler.join_fleet(store);
    set_mode(&origin, mode);
    origin
}

// Ours: the end of a request wakes both the driver of the queue and the lease task, and
// on a multi-threaded runtime the lease task may run first.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lease_is_kept_from_one_page_to_the_next() {
    let store = Arc::<Generous>::default();
    let origin = in_a_fleet_with(FleetMode::Leased, Arc::clone(&store));
    let crawl_delay = Some(Duration::from_millis(10));
    let records = Arc::new(PaceRecords {
        crawl_delay,
        ..PaceRecords::default()
    });
    let crawlers = ["a", "b"].map(|name| {
        let (origin, records) = (origin.clone(), Arc::clone(&records));
        // On a worker thread, as in the proxy.
        tokio::spawn(async move {
            for _ in 0..8 {
                let turn = origin.turn(Get::by(name, Some(&records))).await.unwrap();
                turn.mark_sent();
                tokio::task::yield_now().await;
                drop(turn);
            }
        })
    });
    for crawler in crawlers {
        crawler.await.unwrap();
    }
    assert_eq!(store.releases.load(Ordering::Relaxed), 0);
}

// Ours: a process that was suspended (SIGSTOP) while it held a turn. Timers expired in
// the meantime, and nothing renewed the lease.
#[tokio::test(start_paused = true)]
async fn a_turn_is_lost_with_the_lease_it_was_granted_under() {
    let origin = in_a_fleet(FleetMode::Leased);
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    assert!(turn.holds());
    advance(LEASE).await;
    assert!(!turn.holds());
    // A new lease does not allow sending a request that started under the old one.
    let another = origin.turn(Get::by("b", None)).await.unwrap();
    assert!(another.holds() && !turn.holds());
    drop((turn, another));
}

// Ours: a machine that slept, with its monotonic clock stopped.
#[tokio::test(start_paused = true)]
async fn a_lease_also_ends_by_the_wall_clock() {
    let origin = in_a_fleet(FleetMode::Leased);
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    set_wall_by(SignedDuration::from_hours(-1));
    assert!(turn.holds());
    set_wall_by(SignedDuration::from_hours(2));
    assert!(!turn.holds());
    drop(turn);
}

// Ours: a suspended node has an outdated generation number and share until it asks the
// store. If it worked without the store, other nodes may hold leases by now.
#[tokio::test(start_paused = true)]
async fn a_suspended_node_starts_nothing_before_it_asks_the_store() {
    for mode in [FleetMode::Leased, ALONE] {
        let origin = in_a_fleet(mode);
        let turn = origin.turn(Get::by("a", None)).await.unwrap();
        advance(seconds(3600)).await;
        assert!(!turn.holds());
        drop(turn);
        let waits = tokio::spawn(origin.turn(Get::by("a", None)));
        advance(seconds(60)).await;
        settle().await;
        assert!(!waits.is_finished());
        set_mode(&origin, mode);
        assert!(waits.await.unwrap().unwrap().holds());
    }
}

// Ours: once a node has reached the store again, it needs a lease for what it sends.
#[tokio::test(start_paused = true)]
async fn a_turn_granted_without_the_store_is_lost_when_the_store_is_back() {
    let origin = in_a_fleet(ALONE);
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    assert!(turn.holds());
    set_mode(&origin, FleetMode::Leased);
    assert!(!turn.holds());
    drop(turn);
}

// Ours: `pace.max_turn` also limits how long another node waits. Nothing waits on this
// node.
#[tokio::test(start_paused = true)]
async fn max_turn_also_limits_how_long_other_nodes_wait_for_a_host() {
    let store = Arc::new(Generous {
        is_wanted: true,
        ..Generous::default()
    });
    let origin = in_a_fleet_with(FleetMode::Leased, Arc::clone(&store));
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    turn.mark_sent();
    let releases = async |time| {
        tokio::time::sleep(time).await;
        store.releases.load(Ordering::Relaxed)
    };
    assert_eq!(releases(seconds(115)).await, 0);
    assert_eq!(releases(seconds(10)).await, 1);
    drop(turn);
}

/// Makes a request that is answered with a 429 and this pause in seconds.
async fn is_asked_for_less(origin: &Origin, pause: u64) {
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    turn.mark_sent();
    turn.record_status(429, Some(seconds(pause)));
}

// Ours: a store that was lost and came back empty knows of no 429, and might lease the
// host to any node.
#[tokio::test(start_paused = true)]
async fn a_back_off_is_reported_to_each_generation_of_the_store() {
    let store = Arc::<Generous>::default();
    let origin = in_a_fleet_with(FleetMode::Leased, Arc::clone(&store));
    is_asked_for_less(&origin, 3600).await;
    let told = async || {
        tokio::time::sleep(seconds(10)).await;
        store.back_offs.load(Ordering::Relaxed)
    };
    assert_eq!(told().await, 1);
    // Each change of its role wakes a node; there is nothing new to report to the store.
    for (mode, nodes) in [(FleetMode::Leased, 2), (FleetMode::Leased, 1)] {
        set_share(&origin, mode, nodes);
        assert_eq!(told().await, 1);
    }
    set_part(&origin, FleetMode::Leased, 2);
    assert_eq!(told().await, 2);
}

// Ours: a node that was cut off from the store when the 429 came, and is back.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_cut_off_reports_its_back_off_when_it_is_back() {
    let store = Arc::<Generous>::default();
    let origin = in_a_fleet_with(FleetMode::Leased, Arc::clone(&store));
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    turn.mark_sent();
    set_mode(&origin, FleetMode::Closed);
    turn.record_status(429, Some(seconds(3600)));
    drop(turn);
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(store.back_offs.load(Ordering::Relaxed), 0);
    set_mode(&origin, FleetMode::Leased);
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(store.back_offs.load(Ordering::Relaxed), 1);
}

// Ours: an operator's order to a node without a store still holds when the store is back.
#[tokio::test(start_paused = true)]
async fn an_operators_release_reaches_the_store_once_it_is_back() {
    let store = Arc::<Generous>::default();
    let origin = in_a_fleet_with(FleetMode::Leased, Arc::clone(&store));
    is_asked_for_less(&origin, 3600).await;
    tokio::time::sleep(seconds(10)).await;
    set_mode(&origin, ALONE);
    let order = ReleaseOrder {
        by: "admin".to_owned(),
        reason: "asked".to_owned(),
    };
    assert!(
        origin
            .scheduler
            .release(&"site.example".parse().unwrap(), order)
    );
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(store.ended.load(Ordering::Relaxed), 0);
    set_mode(&origin, FleetMode::Leased);
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(store.ended.load(Ordering::Relaxed), 1);
}

// Ours: for a host with a long wait, the store gets about one call per second, not
// twenty.
#[tokio::test(start_paused = true)]
async fn a_host_with_a_long_wait_is_claimed_once_per_lease() {
    let store = Arc::<Generous>::default();
    let origin = in_a_fleet_with(FleetMode::Leased, Arc::clone(&store));
    is_asked_for_less(&origin, 60).await;
    let begun = origin.scheduler.uptime();
    let waiting = tokio::spawn({
        let origin = origin.clone();
        async move { origin.turn(Get::by("a", None)).await.map(drop) }
    });
    tokio::time::sleep(seconds(30)).await;
    let releases = store.releases.load(Ordering::Relaxed);
    assert!((8..=16).contains(&releases), "{releases}");
    waiting.await.unwrap().unwrap();
    let waited = origin.scheduler.uptime() - begun;
    assert!((seconds(60)..seconds(61)).contains(&waited), "{waited:?}");
}

// Ours: the next holder must know the latest start for as long as the operator's rate
// counts from it.
#[tokio::test(start_paused = true)]
async fn a_history_is_remembered_for_as_long_as_the_rate_counts() {
    let store = Arc::<Generous>::default();
    let limits = PaceLimits {
        rate: Some("3/h".parse().unwrap()),
        in_flight: None,
    };
    let policy = PacePolicy::new(Profile::Owned, &limits, Vec::new());
    let origin = Origin::new(Options {
        policy: Arc::new(policy),
        ..Options::default()
    });
    origin.scheduler.join_fleet(store.clone());
    set_mode(&origin, FleetMode::Leased);
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    turn.mark_sent();
    drop(turn);
    tokio::time::sleep(seconds(10)).await;
    assert!(1200 <= store.remembered.load(Ordering::Relaxed));
}
