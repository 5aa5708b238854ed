//! All ours, at a paused clock: what one name does must not hold up another.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{advance, sleep};

use super::*;
use crate::upstream::egress::rules::{Deny, EgressLists, EgressPorts};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a lookup of `*.slow.test` takes, longer than any test waits.
const SLOW: Duration = Duration::from_secs(12);

/// Returns a resolver whose system answers by the name alone.
fn resolver(lookups: usize) -> Resolver {
    resolver_with(lookups, |name| {
        Box::pin(async move {
            if name.ends_with("slow.test") {
                sleep(SLOW).await;
            }
            match &*name {
                "none.test" => Err(io::ErrorKind::NotFound.into()),
                "empty.test" => Ok(Vec::new()),
                "inner.test" => Ok(vec!["10.0.0.1".parse().unwrap()]),
                "many.test" => Ok((0..40).map(|n| IpAddr::from([8, 8, 8, n])).collect()),
                _ => Ok(vec!["93.184.216.34".parse().unwrap()]),
            }
        })
    })
}

fn resolver_with(lookups: usize, lookup: SystemLookup) -> Resolver {
    let lists = EgressLists {
        deny: vec![Deny::Default],
        allow: Vec::new(),
        ports: vec![EgressPorts::Default],
    };
    let metrics = Arc::new(Metrics::default());
    let rules = Arc::new(EgressRules::new(lists, Arc::clone(&metrics)));
    let limits = ResolverLimits {
        ttl: Duration::from_secs(30),
        timeout: TIMEOUT,
        lookups: NonZeroUsize::new(lookups).unwrap(),
        names: NonZeroUsize::new(8).unwrap(),
    };
    let mut resolver = Resolver::new(limits, rules, metrics, Tasks::default());
    Arc::get_mut(&mut resolver.0).unwrap().lookup = lookup;
    resolver
}

fn answers(resolver: &Resolver, result: &'static str) -> u64 {
    let metrics = &resolver.0.metrics;
    let label = ResultLabel { result };
    metrics.upstream_dns_answers.get_or_create(&label).get()
}

fn cause(found: &ResolvedName) -> NoConnection {
    match found {
        Err(DialError::NoConnection(cause)) => *cause,
        Ok(_) | Err(DialError::Denied(_)) => panic!("{found:?}"),
    }
}

// A machine that slept: its monotonic clock stood still.
#[tokio::test(start_paused = true)]
async fn an_answer_from_before_the_clock_was_set_forward_is_not_used() {
    let resolver = resolver(1);
    for (seconds, lookups) in [(0, 1), (-3600, 1), (3600, 1), (31, 2)] {
        clock::tests::set_wall_by(jiff::SignedDuration::from_secs(seconds));
        resolver.addresses("a.test").await.unwrap();
        assert_eq!(answers(&resolver, "found"), lookups, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_holds_for_its_time_and_no_longer() {
    let resolver = resolver(1);
    for (seconds, lookups) in [(0, 1), (29, 1), (2, 2)] {
        advance(Duration::from_secs(seconds)).await;
        assert!(resolver.addresses("a.test").await.is_ok());
        assert_eq!(answers(&resolver, "found"), lookups);
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_holds_for_a_short_time() {
    for name in ["none.test", "empty.test"] {
        let resolver = resolver(1);
        for (seconds, lookups) in [(0, 1), (4, 1), (2, 2)] {
            advance(Duration::from_secs(seconds)).await;
            assert_eq!(cause(&resolver.addresses(name).await), NoConnection::Dns);
            assert_eq!(answers(&resolver, "dns_error"), lookups, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_without_an_allowed_address_is_kept_as_denied() {
    let resolver = resolver(1);
    for _ in 0..2 {
        let found = resolver.addresses("inner.test").await;
        assert!(matches!(found, Err(DialError::Denied(_))));
    }
    assert_eq!(answers(&resolver, "denied"), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_sixteen_addresses_are_tried() {
    let found = resolver(1).addresses("many.test").await.unwrap();
    assert_eq!(found.len(), ADDRESSES_MAX);
}

#[tokio::test(start_paused = true)]
async fn all_who_ask_for_a_name_share_one_lookup() {
    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    let resolver = resolver_with(8, |_| {
        Box::pin(async {
            LOOKUPS.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
            Ok(vec!["93.184.216.34".parse().unwrap()])
        })
    });
    let ask = || resolver.addresses("a.test");
    let (a, b, c, d) = tokio::join!(ask(), ask(), ask(), ask());
    assert!([a, b, c, d].iter().all(Result::is_ok));
    assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_a_name_that_hangs_waits_for_its_time_once() {
    let resolver = resolver(1);
    let begun = clock::instant();
    for _ in 0..3 {
        let found = resolver.addresses("slow.test").await;
        assert_eq!(cause(&found), NoConnection::DnsTimeout);
        assert_eq!(clock::instant() - begun, TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_too_late_serves_the_next() {
    let resolver = resolver(1);
    assert!(resolver.addresses("slow.test").await.is_err());
    sleep(SLOW).await;
    let begun = clock::instant();
    assert!(resolver.addresses("slow.test").await.is_ok());
    assert_eq!(clock::instant(), begun);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_kept_does_not_wait_for_those_that_hang() {
    let resolver = resolver(2);
    assert!(resolver.addresses("a.test").await.is_ok());
    let begun = clock::instant();
    let (a, b, c, kept) = tokio::join!(
        resolver.addresses("a.slow.test"),
        resolver.addresses("b.slow.test"),
        resolver.addresses("c.test"),
        async {
            let found = resolver.addresses("a.test").await;
            (found, clock::instant())
        },
    );
    assert!(kept.0.is_ok());
    assert_eq!(kept.1, begun);
    // Both places are taken for longer than the third waits for one.
    for found in [a, b, c] {
        assert_eq!(cause(&found), NoConnection::DnsTimeout);
    }
    assert_eq!(resolver.0.metrics.upstream_dns_lookups.get(), 2);
    sleep(SLOW).await;
    assert!(resolver.addresses("c.test").await.is_ok());
    assert_eq!(resolver.0.metrics.upstream_dns_lookups.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_more_names_wait_than_may_be_kept() {
    let resolver = resolver(1);
    let names: Vec<_> = (0..9).map(|n| format!("{n}.slow.test")).collect();
    let begun = clock::instant();
    let mut asked = Vec::new();
    for name in &names[..8] {
        asked.push(resolver.ask(name).unwrap());
    }
    let found = resolver.addresses(&names[8]).await;
    assert_eq!(cause(&found), NoConnection::DnsTimeout);
    assert_eq!(clock::instant(), begun);
}

// RFC 6761, section 6.3: it leads to loopback, by /etc/hosts or by itself.
#[tokio::test]
async fn the_system_knows_this_machine() {
    let found = ask_system("localhost".into()).await.unwrap();
    assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
}
