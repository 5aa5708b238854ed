//! Operator's limits, and bounds on resources.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use super::kit::*;
use crate::TurnOwner;
use crate::options::{Options, QueueLimits};
use crate::policy::Rate;
use crate::policy::{PaceLimits, Profile};
use politesse_base::clock;
use politesse_decision::reason::Reason;
use tokio::time::sleep;

fn rate(text: &str) -> PaceLimits {
    let rate: Option<Rate> = text.parse().ok();
    PaceLimits {
        in_flight: None,
        rate,
    }
}

fn places(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

// Ours: 4 in flight, 5 requests a second per host.
#[tokio::test(start_paused = true)]
async fn no_second_has_more_than_five_starts_at_a_host() {
    let origin = Origin::new(profile(Profile::Standard));
    for _ in 0..21 {
        origin.get(Get::by("a", None)).await;
    }
    sleep(seconds(30)).await;
    let times = origin.times();
    let gaps = times.windows(6).map(|some| some[5] - some[0]);
    assert!(
        gaps.clone().all(|gap| (1000..=1010).contains(&gap)),
        "{times:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_than_four_requests_are_in_flight_at_a_host() {
    let origin = Origin::new(profile(Profile::Standard));
    for _ in 0..8 {
        origin.get(Get::by("a", None).taking(seconds(30))).await;
    }
    sleep(seconds(20)).await;
    assert_eq!(origin.order().len(), 4);
    assert_eq!(origin.scheduler.context.metrics.pace_in_flight.get(), 4);
    sleep(seconds(20)).await;
    assert_eq!(origin.order().len(), 8);
}

// Ours: `pace.queue`; 429 `queue_full`.
#[tokio::test(start_paused = true)]
async fn queues_are_limited_by_host_by_crawler_and_in_total() {
    let queue = QueueLimits {
        origin: places(3),
        crawler: places(2),
        total: places(4),
    };
    let owned = profile(Profile::Owned);
    let origin = Origin::new(Options { queue, ..owned });
    let asked = asked(60);
    let mut waiting = Vec::new();
    let rows = [
        ("one.example", "a", true),
        ("one.example", "a", true),
        ("one.example", "a", true),
        ("one.example", "a", false),
        ("one.example", "b", true),
        // Displaces the latest request of the crawler with the most requests.
        ("one.example", "c", true),
        ("two.example", "b", true),
        ("two.example", "b", true),
        ("two.example", "d", false),
    ];
    for (host, crawler, is_taken) in rows {
        let get = Get::by(crawler, asked.as_ref());
        let task = origin.get(Get { host, ..get }).await;
        if is_taken {
            waiting.push(task);
            continue;
        }
        let later = task.await.unwrap().unwrap_err();
        assert_eq!(later.reason, Reason::QueueFull, "{host} {crawler}");
    }
    let crowded_out = waiting.remove(2).await.unwrap().unwrap_err();
    assert_eq!(crowded_out.reason, Reason::QueueFull);
    let metrics = &origin.scheduler.context.metrics;
    assert_eq!(metrics.pace_queued.get(), 4);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    settle().await;
    assert_eq!(metrics.pace_queued.get(), 0);
}

// Ours: waiting places are shared by client. Without this, 150 connections with 100
// streams each, at fifty hosts, took all places.
#[tokio::test(start_paused = true)]
async fn a_client_that_holds_all_places_gives_way_to_another_client() {
    let queue = QueueLimits {
        origin: places(100),
        crawler: places(100),
        total: places(10),
    };
    let owned = profile(Profile::Owned);
    let origin = Origin::new(Options { queue, ..owned });
    let asked = asked(60);
    let get = |host: usize, client| {
        let host: &'static str = format!("h{host}.example").leak();
        let name = format!("c{client}");
        let get = Get::by(&name, asked.as_ref()).at(client);
        Get { host, ..get }
    };
    for host in 0..2 {
        origin.get(get(host, 1)).await;
    }
    let mut bad = Vec::new();
    for number in 0..10 {
        bad.push(origin.get(get(number % 2, 1)).await);
    }
    let mut good = Vec::new();
    for _ in 0..5 {
        good.push(origin.get(get(0, 2)).await);
    }
    settle().await;
    assert!(good.iter().all(|request| !request.is_finished()));
    let lost = bad.split_off(5);
    for request in lost {
        let later = request.await.unwrap().unwrap_err();
        assert_eq!(later.reason, Reason::QueueFull);
        assert!(later.detail.contains("of this client"), "{later:?}");
        assert!(seconds(1) <= later.retry_after());
    }
    assert!(bad.iter().all(|request| !request.is_finished()));
    let refused = origin.get(get(0, 2)).await.await.unwrap().unwrap_err();
    assert_eq!(refused.reason, Reason::QueueFull);
    assert!(refused.detail.contains("has its share"), "{refused:?}");
    // A larger limit takes effect at once.
    let queue = QueueLimits {
        total: places(11),
        ..queue
    };
    let owned = profile(Profile::Owned);
    origin.scheduler.set_options(Options { queue, ..owned });
    assert!(!origin.get(get(0, 2)).await.is_finished());
}

// Ours: a request that waits for its robots.txt also holds a seat, and can also lose it.
#[tokio::test(start_paused = true)]
async fn a_seat_held_while_waiting_for_robots_txt_can_be_lost() {
    let queue = QueueLimits {
        total: places(2),
        ..QueueLimits::default()
    };
    let owned = profile(Profile::Owned);
    let origin = Origin::new(Options { queue, ..owned });
    let owner = |client: u32| TurnOwner {
        client: origin.clients.at(std::net::IpAddr::V4(client.into())),
        crawler: Some("a".into()),
    };
    let seats = [(); 2].map(|()| origin.scheduler.seat(&owner(1)).unwrap());
    let _other = origin.scheduler.seat(&owner(2)).unwrap();
    seats[1].displaced().await;
    assert!(origin.scheduler.seat(&owner(2)).is_none());
}

// Ours: `pace.total`, `pace.crawler`.
#[tokio::test(start_paused = true)]
async fn ceilings_apply_across_all_hosts() {
    let total = rate("2/s");
    let origin = Origin::new(Options {
        total,
        ..profile(Profile::Owned)
    });
    for number in 0..10 {
        let host: &'static str = format!("h{number}.example").leak();
        origin
            .get(Get {
                host,
                ..Get::by("a", None)
            })
            .await;
    }
    sleep(seconds(20)).await;
    let times = origin.times();
    assert_eq!(times.len(), 10);
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| 499 <= gap), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crawler_at_its_ceiling_holds_up_no_other_crawler() {
    let crawler = PaceLimits {
        in_flight: NonZeroU32::new(2),
        rate: None,
    };
    let origin = Origin::new(Options {
        crawler,
        ..profile(Profile::Owned)
    });
    for _ in 0..4 {
        origin.get(Get::by("a", None).taking(seconds(10))).await;
    }
    origin.get(Get::by("b", None)).await;
    assert_eq!(origin.order(), ["a", "a", "b"]);
    sleep(seconds(11)).await;
    assert_eq!(origin.order(), ["a", "a", "b", "a", "a"]);
}

// Ours: beyond the limit, idle hosts are forgotten, but none with waiting requests or a
// back-off.
#[tokio::test(start_paused = true)]
async fn only_idle_hosts_make_room_for_new_ones() {
    let origin = Origin::new(Options {
        max_hosts: places(40),
        ..profile(Profile::Owned)
    });
    let get = |number: usize| {
        let host: &'static str = format!("h{number}.example").leak();
        Get {
            host,
            ..Get::by("a", None)
        }
    };
    for number in 0..40 {
        let turn = origin.turn(get(number)).await.unwrap();
        turn.record_status(503, (number < 39).then_some(seconds(3000)));
    }
    let refused = origin.turn(get(100)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Overload);
    let mut held = Vec::new();
    tokio::time::advance(seconds(30 * 60 + 3000 + 70)).await;
    for number in 200..240 {
        held.push(origin.turn(get(number)).await.unwrap());
    }
    assert_eq!(origin.scheduler.context.metrics.pace_hosts.get(), 40);
    assert_eq!(origin.scheduler.snapshot().len(), 40);
    assert_eq!(Arc::strong_count(&origin.scheduler), 1);
}

// Ours: a new ceiling also applies to waiting requests, each under its own crawler name.
#[tokio::test(start_paused = true)]
async fn a_new_ceiling_applies_to_requests_that_already_wait() {
    let crawler = PaceLimits {
        in_flight: NonZeroU32::new(1),
        rate: None,
    };
    let origin = Origin::new(profile(Profile::Archive));
    for name in ["first", "a", "a", "b"] {
        origin.get(Get::by(name, None).taking(seconds(10))).await;
    }
    assert_eq!(origin.order(), ["first"]);
    origin.scheduler.set_options(Options {
        crawler,
        ..profile(Profile::Owned)
    });
    sleep(seconds(1)).await;
    assert_eq!(origin.order(), ["first", "a", "b"]);
    sleep(seconds(11)).await;
    assert_eq!(origin.order(), ["first", "a", "b", "a"]);
}

// Ours: waiting requests are sent away at once.
#[tokio::test(start_paused = true)]
async fn no_request_waits_after_close() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(60);
    let get = || Get::by("a", asked.as_ref());
    origin.get(get()).await;
    let waiting = origin.get(get()).await;
    let robots = {
        let (scheduler, client) = (Arc::clone(&origin.scheduler), origin.client(0));
        let name = host("site.example");
        tokio::spawn(async move { scheduler.robots_turn(&name, &client).await.is_some() })
    };
    settle().await;
    origin.scheduler.close();
    let begun = clock::instant();
    assert_eq!(waiting.await.unwrap().unwrap_err().reason, Reason::Overload);
    assert!(!robots.await.unwrap());
    let next = origin.turn(get()).await;
    assert_eq!(next.unwrap_err().reason, Reason::Overload);
    assert_eq!(clock::instant(), begun);
    assert_eq!(origin.order(), ["a"]);
    // A request that need not wait is still served.
    let other = Get {
        host: "other.example",
        ..get()
    };
    assert!(origin.turn(other).await.is_ok());
}

// Ours: each grant takes O(1) work, even if many hosts wait for one ceiling, and starts
// follow the order of arrival.
#[tokio::test(start_paused = true)]
async fn hosts_that_wait_for_one_ceiling_are_woken_one_by_one() {
    let origin = Origin::new(Options {
        total: rate("10/s"),
        ..profile(Profile::Owned)
    });
    for number in 0..500 {
        let host: &'static str = format!("h{number}.example").leak();
        let name = number.to_string();
        let get = Get {
            host,
            ..Get::by(&name, None)
        };
        origin.get(get).await;
    }
    sleep(seconds(60)).await;
    let order: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    assert_eq!(origin.order(), order);
    let woken = origin.scheduler.context.metrics.pace_wakeups.get();
    assert!(woken <= 2_500, "{woken}");
}

// Ours: no request waits longer than necessary.
#[tokio::test(start_paused = true)]
async fn a_crawler_at_its_ceiling_continues_as_soon_as_a_request_ends() {
    let crawler = PaceLimits {
        in_flight: NonZeroU32::new(1),
        rate: None,
    };
    let origin = Origin::new(Options {
        crawler,
        ..profile(Profile::Owned)
    });
    for number in 0..10 {
        let host = ["one.example", "two.example"][number % 2];
        let get = Get {
            host,
            ..Get::by("a", None)
        };
        let takes = std::time::Duration::from_millis(5);
        origin.get(get.taking(takes)).await;
    }
    sleep(seconds(10)).await;
    let times: Vec<u128> = (0..10).map(|number| 5 * number).collect();
    assert_eq!(origin.times(), times);
}

// Ours: a wait that would be too long is refused with 429 at once, and with the actual
// reason.
#[tokio::test(start_paused = true)]
async fn a_refusal_under_the_total_rate_names_the_wait() {
    let origin = Origin::new(Options {
        total: rate("6/m"),
        ..profile(Profile::Standard)
    });
    for host in ["a.example", "b.example", "c.example", "d.example"] {
        let get = Get::by("a", None).within(seconds(30));
        origin.get(Get { host, ..get }).await;
    }
    let get = Get::by("a", None).within(seconds(12));
    let refused = origin
        .get(Get {
            host: "e.example",
            ..get
        })
        .await;
    assert!(refused.is_finished());
    let later = refused.await.unwrap().unwrap_err();
    assert_eq!(
        (later.reason, later.retry_after()),
        (Reason::Ceiling, seconds(30))
    );
    // The delay is also visible in the snapshot.
    let shown = origin.scheduler.snapshot();
    let b = shown.iter().find(|host| host.host == "b.example").unwrap();
    assert_eq!((b.queued, b.cause.as_deref()), (1, Some("ceiling")));
    assert!(b.next_start.is_some());
}

// Ours: `pace.max_turn`: a client that reads slowly cannot hold up others for ever.
#[tokio::test(start_paused = true)]
async fn a_response_holds_up_others_for_max_turn_and_no_longer() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    let get = || Get::by("a", asked.as_ref());
    origin.get(get().taking(seconds(1000))).await;
    origin.get(get()).await;
    origin.get(get()).await;
    sleep(seconds(200)).await;
    let times: Vec<u128> = origin.times().iter().map(|time| time / 1000).collect();
    assert_eq!(times, [0, 130, 140]);
    assert_eq!(origin.scheduler.context.metrics.pace_overruns.get(), 1);
    sleep(seconds(1000)).await;
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 0);
}

// Ours: `pace.max_stall`: a client that neither reads nor sends loses its turn if another
// request waits, and keeps it otherwise.
#[tokio::test(start_paused = true)]
async fn a_stalled_client_loses_its_turn_to_waiting_requests() {
    let origin = Origin::new(profile(Profile::Standard));
    let mut held = Vec::new();
    for client in [3, 1, 1, 1] {
        let turn = origin.turn(Get::by("slow", None).at(client)).await.unwrap();
        turn.record_status(200, None);
        turn.activity().wait_for_client();
        held.push(turn);
    }
    // One client reads on, one turn waits for the origin, and two clients read nothing;
    // one of those read a lot at the beginning.
    held[1].wait_for_origin();
    held[2].activity().add_client_bytes(1 << 30);
    sleep(seconds(20)).await;
    held[0].activity().add_client_bytes(30 * 16 * 1024);
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 4);
    let begun = clock::instant();
    for _ in 0..2 {
        let takes = Get::by("good", None).at(2).taking(seconds(1000));
        origin.get(takes).await;
    }
    sleep(seconds(1)).await;
    assert_eq!(origin.order(), ["good"; 2]);
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 4);
    // The next request waits until the first client has stalled as well, for 5 s more.
    let takes = Get::by("good", None).at(2).taking(seconds(1000));
    origin.get(takes).await;
    sleep(seconds(3)).await;
    assert_eq!(origin.order().len(), 2);
    sleep(seconds(2)).await;
    assert_eq!(origin.order().len(), 3);
    assert!(clock::instant() - begun < seconds(7));
    let metrics = &origin.scheduler.context.metrics;
    assert_eq!(
        (metrics.pace_stalls.get(), metrics.pace_overruns.get()),
        (3, 0)
    );
    // Each stalled turn counts as ended once: in flight are the turn that waits for the
    // origin and three others.
    drop(held);
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 3);
    sleep(seconds(2000)).await;
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 0);
}

// Ours: a client may stall once, and its given-up turns still count for itself.
#[tokio::test(start_paused = true)]
async fn a_client_that_stalls_repeatedly_does_not_hold_up_others_each_time() {
    let origin = Origin::new(profile(Profile::Standard));
    let stall = async || {
        let mut held = Vec::new();
        for _ in 0..4 {
            let slow = Get::by("slow", None).at(1);
            let Some(turn) = soon(origin.turn(slow)).await else {
                break;
            };
            let turn = turn.unwrap();
            turn.record_status(200, None);
            turn.activity().wait_for_client();
            held.push(turn);
        }
        held
    };
    let first = stall().await;
    let begun = clock::instant();
    let good = || Get::by("good", None).at(2);
    drop(origin.turn(good()).await.unwrap());
    let waited = clock::instant() - begun;
    assert!(seconds(4) < waited && waited <= seconds(5), "{waited:?}");
    // Others get the turns that the first four gave up; the client itself does not.
    for _ in 0..10 {
        drop(origin.turn(good()).await.unwrap());
    }
    assert_eq!((first.len(), stall().await.len()), (4, 0));
    drop(first);
    let again = stall().await;
    let begun = clock::instant();
    drop(origin.turn(good()).await.unwrap());
    let waited = clock::instant() - begun;
    assert!(again.len() == 4 && waited <= seconds(1), "{waited:?}");
    drop(again);
    // A client that always leaves just before its time is up gets no more time either.
    sleep(seconds(200)).await;
    for _ in 0..2 {
        let some = stall().await;
        sleep(seconds(3)).await;
        drop(some);
    }
    let held = stall().await;
    let begun = clock::instant();
    drop(origin.turn(good()).await.unwrap());
    assert!(clock::instant() - begun <= seconds(1));
    drop(held);
    sleep(seconds(1000)).await;
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 0);
}

// Ours: if the site asks for a delay, one request is in flight at a time, and for its own
// client a given-up turn is still in flight.
#[tokio::test(start_paused = true)]
async fn a_stalled_client_gets_no_second_turn_while_a_delay_applies() {
    let origin = Origin::new(profile(Profile::Standard));
    let asked = asked(10);
    let slow = || Get::by("slow", asked.as_ref()).at(1);
    let held = origin.turn(slow()).await.unwrap();
    held.record_status(200, None);
    held.activity().wait_for_client();
    let second = tokio::spawn(origin.turn(slow()));
    sleep(seconds(100)).await;
    assert!(!second.is_finished());
    // After another `pace.max_turn`.
    sleep(seconds(40)).await;
    assert!(second.is_finished());
    drop((held, second.await));
}

/// Waits for `turn` for a few seconds.
async fn soon<T>(turn: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(seconds(3), turn).await.ok()
}

// Ours: a delay counts from when the turn was lost, and again from the end of the
// response.
#[tokio::test(start_paused = true)]
async fn a_crawl_delay_counts_from_the_loss_of_a_turn() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    let turn = origin.turn(Get::by("a", asked.as_ref())).await.unwrap();
    turn.record_status(200, None);
    for _ in 0..2 {
        origin.get(Get::by("b", asked.as_ref()).at(2)).await;
    }
    turn.activity().wait_for_client();
    sleep(seconds(18)).await;
    drop(turn);
    sleep(seconds(100)).await;
    let times: Vec<u128> = origin.times().iter().map(|time| time / 1000).collect();
    assert_eq!(times, [15, 28]);
}

// Ours: the reason names the actual obstacle. The site's pause is over; the total has no
// room.
#[tokio::test(start_paused = true)]
async fn a_request_that_timed_out_under_a_ceiling_gets_that_reason() {
    let total = PaceLimits {
        in_flight: NonZeroU32::new(1),
        rate: None,
    };
    let origin = Origin::new(Options {
        total,
        ..profile(Profile::Owned)
    });
    let asked = asked(1);
    origin.get(Get::by("a", asked.as_ref())).await;
    sleep(seconds(5)).await;
    let other = Get {
        host: "other.example",
        ..Get::by("b", None)
    };
    origin.get(other.taking(seconds(100))).await;
    let get = Get::by("a", asked.as_ref()).within(seconds(10));
    let waits = origin.get(get).await;
    let later = waits.await.unwrap().unwrap_err();
    assert_eq!(later.reason, Reason::Ceiling);
}

// Ours: two ceilings do not multiply wake-ups either. A request that moves on to the
// second line keeps the first place in the other.
#[tokio::test(start_paused = true)]
async fn hosts_under_two_ceilings_are_woken_one_by_one() {
    let most = |in_flight| PaceLimits {
        in_flight: NonZeroU32::new(in_flight),
        rate: None,
    };
    for total in [most(3), rate("20/s"), rate("60/s")] {
        let origin = Origin::new(Options {
            crawler: most(2),
            total,
            ..profile(Profile::Owned)
        });
        for number in 0..300 {
            let host: &'static str = format!("h{number}.example").leak();
            let crawler = ["a", "b", "c"][number % 3];
            let takes = std::time::Duration::from_millis(50);
            let get = Get {
                host,
                ..Get::by(crawler, None)
            };
            origin.get(get.taking(takes)).await;
        }
        sleep(seconds(60)).await;
        assert_eq!(origin.times().len(), 300);
        let woken = origin.scheduler.context.metrics.pace_wakeups.get();
        assert!(woken <= 3_000, "{total:?}: {woken}");
    }
}
