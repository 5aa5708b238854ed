//! All ours, with a paused clock: one name must not delay another.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{advance, sleep};

use super::*;
use crate::egress::rules::{Deny, EgressLists, EgressPorts};
use politesse_base::clients::client::Resource;
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clients::shares::DisplacementOrder;
use politesse_base::clock;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Duration of a lookup of `*.slow.test`, longer than any test waits.
const SLOW: Duration = Duration::from_secs(12);

/// Lookups per client and zone.
const ZONE_LOOKUPS: usize = 4;

/// Maximum number of waiting claims and cached names.
const NAMES: usize = 8;

/// Returns a resolver whose system answers depend only on the name.
fn resolver(lookups: usize) -> Resolver {
    resolver_with(lookups, |name, _| {
        Box::pin(async move {
            if name.ends_with("slow.test") || name.ends_with(".dead.example") {
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

/// Returns a resolver without a limit per zone, and with room for many waiting claims.
fn resolver_zoned(lookups: usize) -> Resolver {
    let mut resolver = resolver(lookups);
    let state = Arc::get_mut(&mut resolver.0).unwrap();
    state.zones = ZonePermits::new(usize::MAX);
    state.pending = Arc::new(PendingLookups::new(1000, TIMEOUT));
    state.shares.set_waiting_limit(1000);
    resolver
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
        zone_lookups: NonZeroUsize::new(ZONE_LOOKUPS).unwrap(),
        names: NonZeroUsize::new(NAMES).unwrap(),
    };
    let order = DisplacementOrder::Never;
    let parts = ResolverParts {
        rules,
        shares: Shares::new(Resource::Lookups, lookups, order, metrics),
        tasks: Tasks::default(),
    };
    Resolver::with_system(limits, parts, lookup)
}

impl Resolver {
    /// Looks up a name for the proxy itself.
    async fn of(&self, name: &str) -> ResolvedName {
        self.addresses(name, None).await
    }
}

fn clients<const N: usize>() -> [Arc<Client>; N] {
    let directory = ClientDirectory::default();
    std::array::from_fn(|n| directory.at([192, 0, 2, u8::try_from(n).unwrap()].into()))
}

fn answers(resolver: &Resolver, result: &'static str) -> u64 {
    let metrics = &resolver.0.metrics;
    let label = ResultLabel { result };
    metrics.upstream_dns_answers.get_or_create(&label).get()
}

fn cause(found: &ResolvedName) -> NoConnection {
    match found {
        Err(DialError::NoConnection(cause)) => *cause,
        Ok(_) | Err(DialError::Denied(_) | DialError::Busy) => panic!("{found:?}"),
    }
}

// The monotonic clock stands still while the machine is suspended.
#[tokio::test(start_paused = true)]
async fn an_answer_expires_when_the_clock_is_set_forward() {
    let resolver = resolver(1);
    for (seconds, lookups) in [(0, 1), (-3600, 1), (3600, 1), (31, 2)] {
        politesse_base::testing::set_wall_by(jiff::SignedDuration::from_secs(seconds));
        resolver.of("a.test").await.unwrap();
        assert_eq!(answers(&resolver, "found"), lookups, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_cached_for_dns_ttl_and_no_longer() {
    let resolver = resolver(1);
    for (seconds, lookups) in [(0, 1), (29, 1), (2, 2)] {
        advance(Duration::from_secs(seconds)).await;
        assert!(resolver.of("a.test").await.is_ok());
        assert_eq!(answers(&resolver, "found"), lookups);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_is_cached_briefly() {
    for name in ["none.test", "empty.test"] {
        let resolver = resolver(1);
        for (seconds, lookups) in [(0, 1), (4, 1), (2, 2)] {
            advance(Duration::from_secs(seconds)).await;
            assert_eq!(cause(&resolver.of(name).await), NoConnection::Dns);
            assert_eq!(answers(&resolver, "dns_error"), lookups, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_name_is_cached_as_denied() {
    let resolver = resolver(1);
    for _ in 0..2 {
        let found = resolver.of("inner.test").await;
        assert!(matches!(found, Err(DialError::Denied(_))));
    }
    assert_eq!(answers(&resolver, "denied"), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_sixteen_addresses_are_tried() {
    let found = resolver(1).of("many.test").await.unwrap();
    assert_eq!(found.len(), ADDRESSES_MAX);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_for_a_name_share_one_lookup() {
    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    let resolver = resolver_with(8, |_, _| {
        Box::pin(async {
            LOOKUPS.fetch_add(1, Ordering::SeqCst);
            sleep(HANGS_AFTER / 2).await;
            Ok(vec!["93.184.216.34".parse().unwrap()])
        })
    });
    let ask = || resolver.of("a.test");
    let (a, b, c, d) = tokio::join!(ask(), ask(), ask(), ask());
    assert!([a, b, c, d].iter().all(Result::is_ok));
    assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_name_delays_its_requests_only_once() {
    let resolver = resolver(1);
    let begun = clock::instant();
    for _ in 0..3 {
        let found = resolver.of("slow.test").await;
        assert_eq!(cause(&found), NoConnection::DnsTimeout);
        assert_eq!(clock::instant() - begun, TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_serves_the_next_request() {
    let resolver = resolver(1);
    assert!(resolver.of("slow.test").await.is_err());
    sleep(SLOW).await;
    let begun = clock::instant();
    assert!(resolver.of("slow.test").await.is_ok());
    assert_eq!(clock::instant(), begun);
}

#[tokio::test(start_paused = true)]
async fn a_cached_name_does_not_wait_for_hanging_ones() {
    let resolver = resolver(4);
    assert!(resolver.of("a.test").await.is_ok());
    let begun = clock::instant();
    let (a, b, c, kept) = tokio::join!(
        resolver.of("a.slow.test"),
        resolver.of("b.slow.test"),
        resolver.of("c.test"),
        async {
            let found = resolver.of("a.test").await;
            (found, clock::instant())
        },
    );
    assert!(kept.0.is_ok());
    assert_eq!(kept.1, begun);
    for found in [a, b] {
        assert_eq!(cause(&found), NoConnection::DnsTimeout);
    }
    // Both shares of the client are taken for longer than the third name waits.
    assert_eq!(c, Err(DialError::Busy));
    let metrics = &resolver.0.metrics;
    let running = || {
        (
            metrics.upstream_dns_lookups.get(),
            metrics.upstream_dns_hanging.get(),
        )
    };
    assert_eq!((running(), answers(&resolver, "busy")), ((2, 2), 1));
    sleep(SLOW).await;
    assert!(resolver.of("c.test").await.is_ok());
    assert_eq!(running(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_waiting_names_is_bounded_and_shared() {
    let resolver = resolver(1);
    let [client, other, third] = clients();
    let ask = |client: &Arc<Client>, number: usize| {
        let (resolver, client) = (Resolver(Arc::clone(&resolver.0)), Arc::clone(client));
        resolver.0.tasks.clone().execute(async move {
            let name = format!("{number}.slow.test");
            let _ = resolver.addresses(&name, Some(&client)).await;
        });
    };
    // One lookup runs, and the others wait as claims. A client may have no more claims
    // than it leaves free.
    for number in 0..=NAMES {
        ask(&client, number);
        tokio::task::yield_now().await;
    }
    let begun = clock::instant();
    let one_more = resolver.addresses("more.test", Some(&client)).await;
    assert_eq!((one_more, clock::instant()), (Err(DialError::Busy), begun));
    let waiting = |client: &Client| {
        let claims = resolver.0.pending.waiting();
        claims.iter().filter(|other| **other == client.id).count()
    };
    for number in 100..110 {
        ask(&other, number);
        ask(&third, number + 10);
    }
    tokio::task::yield_now().await;
    assert_eq!([&client, &other, &third].map(|one| waiting(one)), [4, 1, 1]);
    sleep(TIMEOUT * 2).await;
    assert_eq!([&client, &other, &third].map(|one| waiting(one)), [0; 3]);
}

// A dead zone delays no other names, whichever client asks.
#[tokio::test(start_paused = true)]
async fn names_of_a_dead_zone_delay_only_each_other() {
    let resolver = resolver(64);
    let dead: Vec<_> = (0..ZONE_LOOKUPS + 2)
        .map(|n| format!("{n}.dead.example"))
        .collect();
    let begun = clock::instant();
    let dead = async {
        let asked = dead.iter().map(|name| resolver.of(name));
        let mut asked: Vec<_> = asked.map(Box::pin).collect();
        let mut found = Vec::new();
        for answer in &mut asked {
            tokio::select! { biased; one = answer => found.push(one), () = sleep(SLOW) => {} }
        }
        found
    };
    let others = async {
        tokio::task::yield_now().await;
        for name in ["a.example", "b.test", "dead.test"] {
            assert!(resolver.of(name).await.is_ok(), "{name}");
            assert_eq!(clock::instant(), begun, "{name}");
        }
    };
    let (dead, ()) = tokio::join!(dead, others);
    assert!(dead.iter().all(Result::is_err));
}

/// Uses up all shares of `client` with hanging names, each in its own zone.
async fn hang(resolver: &Resolver, client: &Arc<Client>) {
    for number in 0..100 {
        let (resolver, client) = (Resolver(Arc::clone(&resolver.0)), Arc::clone(client));
        resolver.0.tasks.clone().execute(async move {
            let name = format!("{}-{number}.slow.test", client.id);
            let _ = resolver.addresses(&name, Some(&client)).await;
        });
    }
    // Until each has its share or waits for one.
    sleep(Duration::from_millis(1)).await;
}

// Ours: a client may ask for any number of names that DNS does not answer.
#[tokio::test(start_paused = true)]
async fn hanging_names_of_one_client_do_not_delay_another() {
    let resolver = resolver_zoned(24);
    let [bad, worse, good] = clients();
    hang(&resolver, &bad).await;
    assert_eq!(bad.held(Resource::Lookups), 11);
    hang(&resolver, &worse).await;
    assert_eq!(worse.held(Resource::Lookups), 5);
    let begun = clock::instant();
    for number in 0..50 {
        let name = format!("{number}.test");
        assert!(resolver.addresses(&name, Some(&good)).await.is_ok());
    }
    assert_eq!(clock::instant(), begun);
}

// A name queued after many of one client must still be available to another client.
#[tokio::test(start_paused = true)]
async fn a_lookup_starts_when_the_first_of_its_clients_gets_a_share() {
    let resolver = resolver_zoned(4);
    let [bad, good] = clients();
    hang(&resolver, &bad).await;
    let begun = clock::instant();
    let late = async {
        let found = resolver.addresses("wanted.test", Some(&bad)).await;
        (found, clock::instant())
    };
    let early = async {
        tokio::task::yield_now().await;
        let found = resolver.addresses("wanted.test", Some(&good)).await;
        (found, clock::instant())
    };
    let (late, early) = tokio::join!(late, early);
    for (found, at) in [late, early] {
        assert!(found.is_ok());
        assert_eq!(at, begun);
    }
    assert_eq!(answers(&resolver, "found"), 1);
}

// When a client hangs up, its other names get the share.
#[tokio::test(start_paused = true)]
async fn an_abandoned_name_is_not_looked_up() {
    let resolver = resolver(1);
    let hangs = resolver.of("0.slow.test");
    let given_up = timeout(Duration::from_secs(1), resolver.of("1.slow.test"));
    let (_, given_up) = tokio::join!(hangs, given_up);
    assert!(given_up.is_err());
    assert!(resolver.0.pending.waiting().is_empty());
    sleep(SLOW).await;
    assert_eq!(resolver.0.metrics.upstream_dns_lookups.get(), 0);
    assert_eq!(answers(&resolver, "busy"), 0);
}

// RFC 8305, section 3: queries for IPv6 are dropped. The thread that asks for both
// families keeps its permits as long as it hangs.
#[tokio::test(start_paused = true)]
async fn ipv4_is_looked_up_separately_if_the_system_hangs() {
    let resolver = resolver_with(4, |_, family| {
        Box::pin(async move {
            if family == AddressFamily::Any {
                sleep(SLOW).await;
            }
            Ok(vec!["93.184.216.34".parse().unwrap()])
        })
    });
    let begun = clock::instant();
    assert!(resolver.of("a.test").await.is_ok());
    assert_eq!(clock::instant() - begun, HANGS_AFTER);
    assert_eq!(resolver.0.metrics.upstream_dns_lookups.get(), 1);
    sleep(SLOW).await;
    assert_eq!(resolver.0.metrics.upstream_dns_lookups.get(), 0);
}

// RFC 6761, section 6.4, and a panic of ours: no request waits forever.
#[tokio::test(start_paused = true)]
async fn a_lookup_that_panics_ends_its_requests() {
    let resolver = resolver_with(1, |_, _| Box::pin(async { panic!("scripted") }));
    for _ in 0..2 {
        let found = resolver.of("a.test").await;
        assert_eq!(cause(&found), NoConnection::Dns);
    }
}

// RFC 6761, section 6.3: the name leads to loopback, with or without /etc/hosts.
#[tokio::test]
async fn the_system_resolves_localhost() {
    for family in [AddressFamily::Any, AddressFamily::V4] {
        let found = ask_system("localhost".into(), family).await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
        let is_v4 = found.iter().all(IpAddr::is_ipv4);
        assert!(!found.is_empty() && (is_v4 || family == AddressFamily::Any));
    }
}
