//! Contract, section 2: `pace.crawler`, `.domain`, `.address`, `.total`.

use std::num::NonZeroU32;

use super::*;
use crate::rules::pace::rate::Rate;

fn host(name: &str) -> Host {
    name.parse().unwrap()
}

fn rate(requests: u32) -> Limits {
    let per = Duration::from_secs(1);
    Limits {
        rate: Some(Rate { requests, per }),
        in_flight: None,
    }
}

fn ceilings(options: &Options) -> (Arc<Ceilings>, Ticks) {
    let ticks = Ticks::since(clock::instant());
    (Ceilings::new(options, &ticks), ticks)
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
    let (ceilings, ticks) = ceilings(&Options {
        crawler: rate(1),
        total: rate(2),
        ..Options::default()
    });
    let keys = |crawler| ceilings.keys(crawler, &host("site.example"), None);
    let mut waiting = Passed::default();
    let started = ceilings.pass(keys("a"), &mut Passed::default(), ticks.now());
    assert!(started.is_ok());
    let refused = ceilings.pass(keys("b"), &mut waiting, ticks.now());
    assert_eq!(refused.unwrap_err().as_millis(), 500);
    tokio::time::advance(Duration::from_millis(500)).await;
    assert!(ceilings.pass(keys("b"), &mut waiting, ticks.now()).is_ok());
    tokio::time::advance(Duration::from_secs(60)).await;
    ceilings.sweep();
    let limiters = ceilings.over.iter().filter_map(|over| over.rate.as_ref());
    assert!(limiters.map(|limiter| limiter.len()).all(|keys| keys == 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_counted_until_it_ends() {
    let most = Limits {
        in_flight: NonZeroU32::new(1),
        rate: None,
    };
    let (ceilings, ticks) = ceilings(&Options {
        domain: most,
        address: most,
        ..Options::default()
    });
    let ip: IpAddr = "192.0.2.7".parse().unwrap();
    let ask = |name: &str, address| {
        let keys = ceilings.keys("a", &host(name), address);
        ceilings.pass(keys, &mut Passed::default(), ticks.now())
    };
    let held = ask("a.one.example", Some(ip)).unwrap();
    assert!(ask("b.one.example", None).is_err());
    assert!(ask("two.example", Some(ip)).is_err());
    assert!(ask("two.example", None).is_ok());
    drop(held);
    assert!(ask("b.one.example", Some(ip)).is_ok());
    let counted = ceilings.over.iter().map(|over| over.under_way().len());
    assert_eq!(counted.sum::<usize>(), 0);
}
