//! How long requests wait, and the answer when they cannot wait long enough.

use super::kit::*;
use crate::RobotsFetch;
use crate::policy::Profile;
use politesse_decision::reason::Reason;
use tokio::time::{advance, sleep};

/// Timers round up to a millisecond.
fn in_seconds(times: &[u128]) -> Vec<u128> {
    times.iter().map(|time| time / 1000).collect()
}

// Ours: fetch 3 s + delay 1 s, so starts 4 s apart.
#[tokio::test(start_paused = true)]
async fn a_delay_counts_from_the_end_of_a_response() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(1);
    for _ in 0..4 {
        origin
            .get(Get::by("a", asked.as_ref()).taking(seconds(3)))
            .await;
    }
    sleep(seconds(60)).await;
    assert_eq!(in_seconds(&origin.times()), [0, 4, 8, 12]);
}

// Ours: the least gap is exactly the delay, over 102 grants.
#[tokio::test(start_paused = true)]
async fn starts_are_exactly_the_delay_apart() {
    let origin = Origin::new(profile(Profile::Standard));
    let asked = asked(1);
    for number in 0..102 {
        origin
            .get(Get::by(&format!("c{}", number % 7), asked.as_ref()))
            .await;
    }
    sleep(seconds(200)).await;
    let times = origin.times();
    let gaps: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.len(), 101);
    assert!(
        gaps.iter().all(|gap| (1000..=1001).contains(gap)),
        "{gaps:?}"
    );
}

// Ours: if the delay rises from 1 to 10 s after a start, 10 s apply: the delay of the
// starting request counts.
#[tokio::test(start_paused = true)]
async fn a_changed_delay_counts_from_the_previous_request() {
    let origin = Origin::new(profile(Profile::Owned));
    let (short, long) = (asked(1), asked(10));
    origin.get(Get::by("a", short.as_ref())).await;
    origin.get(Get::by("a", long.as_ref())).await;
    sleep(seconds(10)).await;
    origin.get(Get::by("a", short.as_ref())).await;
    origin.get(Get::by("a", short.as_ref())).await;
    sleep(seconds(60)).await;
    assert_eq!(in_seconds(&origin.times()), [0, 10, 11, 12]);
}

// Ours: a longer delay of another crawler holds up only that crawler, and counts from the
// last end of any request.
#[tokio::test(start_paused = true)]
async fn a_longer_delay_holds_up_only_its_own_crawler() {
    let origin = Origin::new(profile(Profile::Owned));
    let (short, long) = (asked(5), asked(30));
    origin.get(Get::by("a", short.as_ref())).await;
    origin.get(Get::by("b", long.as_ref())).await;
    origin.get(Get::by("a", short.as_ref())).await;
    origin.get(Get::by("c", None)).await;
    sleep(seconds(100)).await;
    assert_eq!(origin.order(), ["a", "c", "a", "b"]);
    assert_eq!(in_seconds(&origin.times()), [0, 0, 5, 35]);
}

// Ours: a crawler that takes the name of one with a delay of 2000 s makes no one else
// wait: neither by its page, nor by a waiting one, nor for a robots.txt.
#[tokio::test(start_paused = true)]
async fn a_crawler_name_with_a_very_long_delay_blocks_no_one_else() {
    let origin = Origin::new(profile(Profile::Standard));
    let long = asked(2000);
    for _ in 0..2 {
        let get = Get::by("slow", long.as_ref()).at(1);
        origin.get(get.within(seconds(4000))).await;
    }
    let wait = origin
        .scheduler
        .robots_wait(&host("site.example"), &origin.client(0));
    assert_eq!(wait, seconds(10));
    for _ in 0..10 {
        origin
            .get(Get::by("good", None).at(2).within(seconds(5)))
            .await;
    }
    sleep(seconds(3)).await;
    assert_eq!(origin.order()[1..], ["good"; 10]);
    robots(&origin).await;
    sleep(seconds(3000)).await;
    assert_eq!(origin.order()[11..], ["robots", "slow"]);
    let times = in_seconds(&origin.times());
    assert_eq!(times[12] - times[11], 2000, "{times:?}");
}

// Ours: 429 at once only if the wait would really be too long. Fifty requests ahead of a
// crawler with a long delay take their own time, not fifty times that delay.
#[tokio::test(start_paused = true)]
async fn requests_ahead_count_with_their_own_delays() {
    let origin = Origin::new(profile(Profile::Standard));
    let long = asked(10);
    for client in 0..50 {
        origin.get(Get::by("quick", None).at(client)).await;
    }
    let get = Get::by("slow", long.as_ref()).at(100);
    let refused = origin.get(get.clone().within(seconds(15))).await;
    assert!(refused.is_finished());
    let waits = origin.get(get.within(seconds(30))).await;
    assert!(!waits.is_finished());
    sleep(seconds(25)).await;
    assert!(waits.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_applies_to_requests_that_already_wait() {
    let origin = Origin::new(profile(Profile::Archive));
    for _ in 0..4 {
        origin.get(Get::by("a", None).taking(seconds(10))).await;
    }
    sleep(seconds(5)).await;
    assert_eq!(origin.times(), [0]);
    origin.scheduler.set_options(profile(Profile::Owned));
    settle().await;
    assert_eq!(in_seconds(&origin.times()), [0, 5, 5, 5]);
}

// Ours: a delay is kept from the requests of all crawlers, over all ports and schemes. A
// request with a delay is the only one in flight at its host.
#[tokio::test(start_paused = true)]
async fn a_delay_counts_from_the_last_end_of_any_request() {
    let origin = Origin::new(profile(Profile::Owned));
    let long = asked(10);
    origin.get(Get::by("a", None).taking(seconds(3))).await;
    origin.get(Get::by("b", None).taking(seconds(7))).await;
    origin.get(Get::by("slow", long.as_ref())).await;
    sleep(seconds(5)).await;
    origin.get(Get::by("b", None).taking(seconds(4))).await;
    sleep(seconds(60)).await;
    assert_eq!(in_seconds(&origin.times()), [0, 0, 5, 19]);
}

/// Asks for a robots.txt in a task of its own.
async fn robots(origin: &Origin) {
    let origin = origin.clone();
    tokio::spawn(async move {
        let (scheduler, client) = (&origin.scheduler, origin.client(0));
        let turn = scheduler.robots_turn(&host("site.example"), &client).await;
        origin.log("robots".into());
        turn.unwrap().record_status(200, None);
    });
    settle().await;
}

// Ours: a robots.txt is first in line, and does not delay the first page.
#[tokio::test(start_paused = true)]
async fn a_robots_txt_comes_first_and_does_not_delay_the_first_page() {
    let origin = Origin::new(profile(Profile::Owned));
    let name = host("site.example");
    let robots = origin
        .scheduler
        .robots_turn(&name, &origin.client(0))
        .await
        .unwrap();
    robots.record_status(200, None);
    drop(robots);
    let asked = asked(2);
    for _ in 0..3 {
        origin.get(Get::by("a", asked.as_ref())).await;
    }
    assert_eq!(origin.times(), [0]);
    self::robots(&origin).await;
    sleep(seconds(20)).await;
    assert_eq!(origin.order(), ["a", "robots", "a", "a"]);
    assert_eq!(in_seconds(&origin.times()), [0, 2, 4, 6]);
}

// Ours: a flooding client never delays another crawler by more than one turn each, not
// even with robots.txt fetches for made-up names.
#[tokio::test(start_paused = true)]
async fn robots_txt_fetches_and_pages_alternate() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    origin.get(Get::by("a", asked.as_ref())).await;
    for _ in 0..4 {
        robots(&origin).await;
    }
    for _ in 0..3 {
        origin.get(Get::by("a", asked.as_ref())).await;
    }
    sleep(seconds(100)).await;
    let order = ["a", "robots", "a", "robots", "a", "robots", "a", "robots"];
    assert_eq!(origin.order(), order);
    let times: Vec<u128> = (0..8).map(|turn| 10 * turn).collect();
    assert_eq!(in_seconds(&origin.times()), times);
}

// Ours: a robots.txt needs a delay of 10 s at most, a page its whole delay. Without
// turns, successive robots.txt fetches would put a page off for ever.
#[tokio::test(start_paused = true)]
async fn robots_txt_fetches_set_a_page_back_only_once() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(30);
    origin.get(Get::by("a", asked.as_ref())).await;
    origin.get(Get::by("b", asked.as_ref())).await;
    for _ in 0..8 {
        robots(&origin).await;
    }
    sleep(seconds(300)).await;
    let order = origin.order();
    let page = order.iter().position(|who| *who == "b").unwrap();
    let at = in_seconds(&origin.times())[page];
    assert!((30..=60).contains(&at), "{at} {order:?}");
    assert_eq!(order.len(), 10);
}

// Ours: a robots.txt waits only if the site asks for a delay, and cancelling it gives its
// turn back.
#[tokio::test(start_paused = true)]
async fn a_cancelled_robots_txt_fetch_takes_no_turn() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    origin.get(Get::by("a", asked.as_ref())).await;
    let name = host("site.example");
    let client = origin.client(0);
    let wait = || origin.scheduler.robots_wait(&name, &client);
    assert_eq!(wait(), seconds(10));
    let turn = origin.scheduler.robots_turn(&name, &client);
    let left = tokio::time::timeout(seconds(5), turn);
    assert!(left.await.is_err());
    robots(&origin).await;
    assert_eq!(wait(), seconds(15));
    sleep(seconds(20)).await;
    assert_eq!(in_seconds(&origin.times()), [0, 10]);
}

// Ours: order within a crawler. A request that gives its turn back to have the robots.txt
// fetched first regains its place.
#[tokio::test(start_paused = true)]
async fn a_returning_request_starts_before_later_ones_of_its_crawler() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    origin.get(Get::by("first", asked.as_ref())).await;
    let turn = tokio::spawn(origin.turn(Get::by("a", asked.as_ref())));
    settle().await;
    for name in ["b", "a"] {
        origin.get(Get::by(name, asked.as_ref())).await;
    }
    let turn = turn.await.unwrap().unwrap();
    let number = turn.arrival();
    let again = Get {
        number,
        robots: RobotsFetch::AfterTurn,
        ..Get::by("a", asked.as_ref()).within(seconds(11))
    };
    let again = tokio::spawn(origin.turn(again));
    settle().await;
    drop(turn);
    settle().await;
    assert_eq!(origin.order(), ["first", "b"]);
    // The other request of the same crawler came later, so this one waits one turn, not
    // two.
    let turn = again.await.unwrap().unwrap();
    assert_eq!(turn.arrival(), number);
    assert_eq!(turn.waited().as_secs(), 10);
}

// Ours: no page waits for ever if its robots.txt expires before the delay is over.
#[tokio::test(start_paused = true)]
async fn a_page_that_cannot_wait_follows_its_robots_txt_at_once() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(600);
    origin.get(Get::by("a", asked.as_ref())).await;
    sleep(seconds(600)).await;
    robots(&origin).await;
    let get = |robots, longest| Get {
        robots,
        ..Get::by("a", asked.as_ref()).within(seconds(longest))
    };
    let refused = origin.get(get(RobotsFetch::NotNeeded, 120)).await;
    let later = refused.await.unwrap().unwrap_err();
    assert_eq!(later.retry_after(), seconds(600));
    let patient = origin.turn(get(RobotsFetch::BeforeTurn, 700));
    assert!(polled_once(&mut Box::pin(patient)).await.is_none());
    origin.get(get(RobotsFetch::BeforeTurn, 120)).await;
    assert_eq!(origin.order(), ["a", "robots", "a"]);
    let refused = origin.get(get(RobotsFetch::BeforeTurn, 120)).await;
    let later = refused.await.unwrap().unwrap_err();
    assert_eq!(later.retry_after(), seconds(600));
}

// Ours: a restart must not shorten a delay.
#[tokio::test(start_paused = true)]
async fn a_restart_assumes_a_request_of_the_previous_process() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    let before = politesse_base::clock::now() - jiff::SignedDuration::from_secs(60);
    let get = |host, robots_from| Get {
        host,
        robots_from,
        ..Get::by(host, asked.as_ref())
    };
    sleep(seconds(4)).await;
    let later = politesse_base::clock::now() + jiff::SignedDuration::from_secs(60);
    origin.get(get("kept.example", Some(before))).await;
    origin.get(get("new.example", Some(later))).await;
    sleep(seconds(10)).await;
    assert_eq!(origin.order(), ["new.example", "kept.example"]);
    assert_eq!(in_seconds(&origin.times()), [4, 10]);
    // The process knows about its own requests.
    origin.get(get("kept.example", Some(before))).await;
    sleep(seconds(60)).await;
    assert_eq!(in_seconds(&origin.times()), [4, 10, 20]);
}

// Ours: 429 at once if the wait would be longer.
#[tokio::test(start_paused = true)]
async fn a_wait_that_would_be_too_long_is_refused_at_once() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    for _ in 0..3 {
        origin.get(Get::by("a", asked.as_ref())).await;
    }
    let refused = origin
        .get(Get::by("b", asked.as_ref()).within(seconds(19)))
        .await;
    assert!(refused.is_finished());
    let later = refused.await.unwrap().unwrap_err();
    assert_eq!(later.reason, Reason::CrawlDelay);
    assert_eq!(later.retry_after().as_secs(), 20);
    let waits = origin
        .get(Get::by("b", asked.as_ref()).within(seconds(20)))
        .await;
    assert!(!waits.is_finished());
}

// Ours: a request is answered early once other requests have pushed its start past its
// deadline.
#[tokio::test(start_paused = true)]
async fn a_request_pushed_past_its_deadline_is_refused_early() {
    let origin = Origin::new(profile(Profile::Owned));
    let long = asked(50);
    origin.get(Get::by("a", None)).await;
    let get = Get::by("slow", long.as_ref()).within(seconds(60));
    let waits = origin.get(get).await;
    sleep(seconds(20)).await;
    origin.get(Get::by("a", None)).await;
    assert!(!waits.is_finished());
    // Its start would be at 70 s, but it may wait until 60 s. That is noticed when it is
    // checked again.
    sleep(seconds(31)).await;
    assert!(waits.is_finished());
    let later = waits.await.unwrap().unwrap_err();
    assert_eq!(
        (later.reason, later.retry_after()),
        (Reason::CrawlDelay, seconds(20))
    );
}

// Ours: waits are bounded, no matter what was estimated.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(1);
    origin
        .get(Get::by("a", asked.as_ref()).taking(seconds(1000)))
        .await;
    let waits = origin
        .get(Get::by("a", asked.as_ref()).within(seconds(5)))
        .await;
    sleep(seconds(4)).await;
    assert!(!waits.is_finished());
    advance(seconds(2)).await;
    let later = waits.await.unwrap().unwrap_err();
    assert_eq!(later.reason, Reason::CrawlDelay);
    let at_once = origin
        .get(Get::by("a", asked.as_ref()).within(seconds(0)))
        .await;
    assert_eq!(
        at_once.await.unwrap().unwrap_err().reason,
        Reason::CrawlDelay
    );
    assert_eq!(origin.scheduler.context.metrics.pace_queued.get(), 0);
}

// Ours: hours are in UTC. No request may wait that long, so it is refused with the time
// until the site opens.
#[tokio::test(start_paused = true)]
async fn a_request_outside_visiting_hours_waits_or_is_refused() {
    use politesse_robots::PaceRecords;
    use politesse_robots::VisitTime;
    politesse_base::testing::follow_tokio();
    let minute = politesse_base::clock::now().as_second().rem_euclid(86_400) / 60;
    let from = u16::try_from((minute + 2) % 1440).unwrap();
    let to = (from + 10) % 1440;
    let visits = vec![VisitTime { from, to }];
    let asked = std::sync::Arc::new(PaceRecords {
        visits,
        ..PaceRecords::default()
    });
    let origin = Origin::new(profile(Profile::Owned));
    let waits = origin
        .get(Get::by("a", Some(&asked)).within(seconds(120)))
        .await;
    let refused = origin
        .get(Get::by("a", Some(&asked)).within(seconds(30)))
        .await;
    let later = refused.await.unwrap().unwrap_err();
    assert_eq!(later.reason, Reason::VisitTime);
    assert!((60..=120).contains(&later.retry_after().as_secs()));
    // A request that may start now is not held up by one that may not.
    let other = origin.get(Get::by("b", None)).await;
    assert!(other.is_finished() && !waits.is_finished());
    sleep(seconds(130)).await;
    assert!(waits.is_finished());
    assert_eq!(origin.order(), ["b", "a"]);
}

// Ours: idle hosts are forgotten, busy ones are kept.
#[tokio::test(start_paused = true)]
async fn idle_hosts_are_forgotten_and_busy_ones_are_kept() {
    let origin = Origin::new(profile(Profile::Standard));
    let asked = asked(3600);
    let get = |host, asked: Option<&_>| Get {
        host,
        ..Get::by("a", asked)
    };
    origin.get(get("idle.example", None)).await;
    origin.get(get("delayed.example", asked.as_ref())).await;
    origin
        .get(get("busy.example", None).taking(seconds(3600)))
        .await;
    let turn = origin.turn(get("away.example", None)).await.unwrap();
    turn.record_status(503, Some(seconds(600)));
    drop(turn);
    let metrics = &origin.scheduler.context.metrics;
    assert_eq!(metrics.pace_hosts.get(), 4);
    sleep(seconds(61)).await;
    origin.scheduler.sweep();
    // The next crawler may have a longer delay.
    assert_eq!(metrics.pace_hosts.get(), 4);
    sleep(seconds(600)).await;
    origin.scheduler.sweep();
    let mut hosts: Vec<String> = origin
        .scheduler
        .snapshot()
        .into_iter()
        .map(|host| host.host)
        .collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["away.example", "busy.example", "delayed.example"]);
    assert_eq!(metrics.pace_hosts.get(), 3);
}
