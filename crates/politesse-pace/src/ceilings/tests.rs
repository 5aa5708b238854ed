//! `pace.crawler`, `.domain`, `.address`, `.total`.

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

/// Ceilings, and those who wait under them.
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

    /// A claim of one that waits, and what it is told by.
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

    /// Number of lines that are remembered, after a sweep.
    fn len(&self) -> usize {
        self.ceilings.sweep(self.now());
        self.ceilings.len(false)
    }
}

async fn is_told(told: &Notify) -> bool {
    timeout(Duration::ZERO, told.notified()).await.is_ok()
}

// The public suffix list.
#[test]
fn a_registered_domain_is_what_somebody_registered() {
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

// Ours: a rate is never exceeded in any second, and a request that is held up
// by one ceiling does not count twice under another.
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

// Ours: no wake-up storm. The first in line has a clock, and
// tells the next; nobody that comes new is before them.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_rate_is_told_in_order() {
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
    // Who leaves, or cannot start for another reason, lets the next one go.
    second.give_way();
    assert!(is_told(&told_third).await);
    assert_eq!(kit.wait(&mut third, &told_third).unwrap_err().as_secs(), 2);
    drop(third);
    assert_eq!(kit.wait(&mut second, &told).unwrap_err().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_counted_until_it_ends() {
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

// Ours: no crawl waits without need. Whoever ends one tells the
// first that waits for it, and he does not tell himself.
#[tokio::test(start_paused = true)]
async fn who_ends_a_request_tells_the_first_that_waits() {
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
    // There is room, but it is too early.
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

// SIGHUP reloads: what is under way counts on.
#[tokio::test(start_paused = true)]
async fn what_is_under_way_counts_under_new_ceilings_too() {
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

// Ours: a robots.txt comes under what is over all crawlers.
#[tokio::test(start_paused = true)]
async fn a_robots_txt_comes_under_the_total() {
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

// Ours: no wake-up storm. Between a rate and another ceiling
// that is full one went back and forth, waking the next one each time.
#[tokio::test(start_paused = true)]
async fn who_a_rate_holds_up_waits_for_that_alone_until_it_lets_him() {
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

// Ours: a request that has left is not waited for, nor remembered while another
// one waits.
#[tokio::test(start_paused = true)]
async fn who_left_a_line_does_not_count_in_it() {
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
