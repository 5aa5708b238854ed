//! Ceilings: `pace.crawler`, `.domain`, `.address`, `.total`.

use std::num::NonZeroU32;

use tokio::time::{Instant, advance, timeout};

use super::*;
use crate::policy::Rate;
use politesse_base::clock;

fn host(name: &str) -> Host {
    name.parse().unwrap()
}

fn rate(requests: u32) -> PaceLimits {
    let per = Duration::from_secs(1);
    PaceLimits {
        rate: Some(Rate { requests, per }),
        in_flight: None,
    }
}

fn at_once(requests: u32) -> PaceLimits {
    PaceLimits {
        in_flight: NonZeroU32::new(requests),
        rate: None,
    }
}

/// Ceilings, and the clock of the test.
struct Kit {
    ceilings: Arc<Ceilings>,
    epoch: Instant,
}

impl Kit {
    fn new(options: &Options) -> Self {
        Self {
            ceilings: Ceilings::new(options, None),
            epoch: clock::instant(),
        }
    }

    fn claim(&self, crawler: &str, name: &str) -> CeilingClaim {
        self.ceilings
            .claim(Some(crawler), &host(name), None)
            .unwrap()
    }

    /// A waiting claim and the notification that wakes it.
    fn waiting(&self, crawler: &str, name: &str) -> (CeilingClaim, Arc<Notify>) {
        (self.claim(crawler, name), Arc::default())
    }

    fn now(&self) -> Uptime {
        clock::instant() - self.epoch
    }

    fn start(&self, mut claim: CeilingClaim) -> Result<CeilingClaim, Uptime> {
        claim.start(self.now(), None).map(|()| claim)
    }

    fn wait(&self, claim: &mut CeilingClaim, told: &Arc<Notify>) -> Result<(), Uptime> {
        claim.start(self.now(), Some(told))
    }

    /// Returns the number of remembered lines, after a sweep.
    fn len(&self) -> usize {
        self.ceilings.sweep(self.now());
        self.ceilings.len(false)
    }
}

async fn is_told(told: &Notify) -> bool {
    timeout(Duration::ZERO, told.notified()).await.is_ok()
}

// Source: the public suffix list.
#[test]
fn the_registered_domain_follows_the_public_suffix_list() {
    let rows = [
        ("a.b.museum.example", "museum.example"),
        ("www.site.co.uk", "site.co.uk"),
        ("a.github.io", "a.github.io"),
        ("localhost", "localhost"),
        ("192.0.2.1", "192.0.2.1"),
    ];
    for (name, domain) in rows {
        assert_eq!(registered_domain(&host(name)), domain);
    }
}

// Ours: a rate is never exceeded in any second, and a request that one ceiling holds up
// is not counted twice by another.
#[tokio::test(start_paused = true)]
async fn a_rate_has_no_burst_and_counts_a_request_once() {
    let kit = Kit::new(&Options {
        crawler: rate(1),
        total: rate(2),
        ..Options::default()
    });
    assert!(kit.start(kit.claim("a", "site.example")).is_ok());
    let (mut waiting, told) = kit.waiting("b", "site.example");
    let refused = kit.wait(&mut waiting, &told);
    assert_eq!(refused.unwrap_err().as_millis(), 500);
    advance(Duration::from_millis(500)).await;
    assert!(kit.wait(&mut waiting, &told).is_ok());
    advance(Duration::from_secs(60)).await;
    assert_eq!(kit.len(), 0);
}

// Ours: no wake-up storm. The first in line watches the clock and wakes the next; a new
// request never overtakes it.
#[tokio::test(start_paused = true)]
async fn requests_waiting_for_a_rate_are_woken_in_order() {
    let kit = Kit::new(&Options {
        total: rate(1),
        ..Options::default()
    });
    assert!(kit.start(kit.claim("a", "site.example")).is_ok());
    let (mut first, told_first) = kit.waiting("a", "one.example");
    let (mut second, told) = kit.waiting("a", "two.example");
    let (mut third, told_third) = kit.waiting("a", "three.example");
    assert_eq!(kit.wait(&mut first, &told_first).unwrap_err().as_secs(), 1);
    assert_eq!(kit.wait(&mut second, &told).unwrap_err(), Uptime::MAX);
    assert_eq!(kit.wait(&mut third, &told_third).unwrap_err(), Uptime::MAX);
    let new = kit.start(kit.claim("a", "new.example"));
    assert_eq!(new.unwrap_err().as_secs(), 3);
    advance(Duration::from_secs(1)).await;
    assert_eq!(kit.wait(&mut second, &told).unwrap_err(), Uptime::MAX);
    assert!(!is_told(&told).await);
    assert!(kit.wait(&mut first, &told_first).is_ok());
    assert!(is_told(&told).await && !is_told(&told_third).await);
    assert_eq!(kit.wait(&mut second, &told).unwrap_err().as_secs(), 2);
    // A request that leaves, or cannot start for another reason, lets the next one
    // through.
    second.give_way();
    assert!(is_told(&told_third).await);
    assert_eq!(kit.wait(&mut third, &told_third).unwrap_err().as_secs(), 2);
    drop(third);
    assert_eq!(kit.wait(&mut second, &told).unwrap_err().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_counts_as_in_flight_until_it_ends() {
    let kit = Kit::new(&Options {
        domain: at_once(1),
        address: at_once(1),
        ..Options::default()
    });
    let ip: IpAddr = "192.0.2.7".parse().unwrap();
    let ask = |name: &str, address| {
        let claim = kit.ceilings.claim(Some("a"), &host(name), address);
        kit.start(claim.unwrap())
    };
    let held = ask("a.one.example", Some(ip)).unwrap();
    assert!(ask("b.one.example", None).is_err());
    assert!(ask("two.example", Some(ip)).is_err());
    assert!(ask("two.example", None).is_ok());
    drop(held);
    assert!(ask("b.one.example", Some(ip)).is_ok());
    assert_eq!(kit.len(), 0);
}

// Ours: no request waits longer than necessary. The end of a request wakes the first one
// in line, and only that one.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_request_wakes_the_first_one_waiting() {
    let limits = PaceLimits {
        rate: rate(1).rate,
        ..at_once(1)
    };
    let kit = Kit::new(&Options {
        crawler: limits,
        ..Options::default()
    });
    let held = kit.start(kit.claim("a", "site.example")).unwrap();
    let (mut first, told) = kit.waiting("a", "one.example");
    let (mut second, told_second) = kit.waiting("a", "two.example");
    assert_eq!(kit.wait(&mut first, &told).unwrap_err(), Uptime::MAX);
    assert_eq!(
        kit.wait(&mut second, &told_second).unwrap_err(),
        Uptime::MAX
    );
    assert!(!is_told(&told).await);
    drop(held);
    assert!(is_told(&told).await && !is_told(&told_second).await);
    // There is room, but the rate does not allow a start yet.
    assert_eq!(kit.wait(&mut first, &told).unwrap_err().as_secs(), 1);
    assert!(!is_told(&told).await);
    advance(Duration::from_secs(1)).await;
    kit.wait(&mut first, &told).unwrap();
    assert!(is_told(&told_second).await);
    assert_eq!(
        kit.wait(&mut second, &told_second).unwrap_err(),
        Uptime::MAX
    );
    drop((first, second));
    advance(Duration::from_secs(60)).await;
    assert_eq!(kit.len(), 0);
}

// Ours: requests in flight keep counting across a reload (SIGHUP).
#[tokio::test(start_paused = true)]
async fn requests_in_flight_count_under_new_ceilings() {
    let options = |most| Options {
        crawler: at_once(most),
        total: at_once(9),
        ..Options::default()
    };
    let kit = Kit::new(&options(1));
    let held = kit.start(kit.claim("a", "site.example")).unwrap();
    let ceilings = Ceilings::new(&options(2), Some(&kit.ceilings));
    assert!(ceilings.are_of(&options(2)));
    let kit = Kit { ceilings, ..kit };
    let second = kit.start(kit.claim("a", "site.example")).unwrap();
    assert!(kit.start(kit.claim("a", "site.example")).is_err());
    drop(held);
    assert!(kit.start(kit.claim("a", "site.example")).is_ok());
    drop(second);
    assert_eq!(kit.len(), 0);
}

// Ours: the ceilings over all crawlers also apply to a robots.txt.
#[tokio::test(start_paused = true)]
async fn the_total_ceiling_applies_to_a_robots_txt() {
    let kit = Kit::new(&Options {
        crawler: at_once(1),
        total: at_once(1),
        ..Options::default()
    });
    let robots = || {
        let claim = kit.ceilings.claim(None, &host("site.example"), None);
        claim.unwrap()
    };
    let held = kit.start(robots()).unwrap();
    assert!(kit.start(robots()).is_err());
    drop(held);
    let held = kit.start(kit.claim("a", "site.example")).unwrap();
    assert!(kit.start(robots()).is_err());
    drop(held);
}

// Ours: no wake-up storm. Without this, a request between a rate and another full ceiling
// went back and forth and woke the next one each time.
#[tokio::test(start_paused = true)]
async fn a_request_held_up_by_a_rate_stays_in_that_line() {
    let kit = Kit::new(&Options {
        domain: rate(1),
        total: at_once(1),
        ..Options::default()
    });
    drop(kit.start(kit.claim("a", "one.example")).unwrap());
    let (mut waiting, told) = kit.waiting("a", "one.example");
    let until = kit.wait(&mut waiting, &told).unwrap_err();
    assert_eq!(until, Duration::from_secs(1));
    let total = kit.start(kit.claim("b", "two.example")).unwrap();
    assert_eq!(kit.wait(&mut waiting, &told).unwrap_err(), until);
    advance(Duration::from_secs(1)).await;
    assert_eq!(kit.wait(&mut waiting, &told).unwrap_err(), Uptime::MAX);
    drop(total);
    assert!(kit.wait(&mut waiting, &told).is_ok());
}

// Ours: a request that has left no longer counts in the line, nor is it remembered while
// another one waits.
#[tokio::test(start_paused = true)]
async fn a_request_that_left_a_line_no_longer_counts() {
    let kit = Kit::new(&Options {
        total: rate(1),
        ..Options::default()
    });
    drop(kit.start(kit.claim("a", "one.example")).unwrap());
    let (mut first, told) = kit.waiting("a", "one.example");
    assert!(kit.wait(&mut first, &told).is_err());
    for _ in 0..100 {
        let (mut leaving, told) = kit.waiting("b", "two.example");
        assert!(kit.wait(&mut leaving, &told).is_err());
    }
    let wait = kit.claim("c", "three.example").wait();
    assert_eq!(wait, Duration::from_secs(1));
}
