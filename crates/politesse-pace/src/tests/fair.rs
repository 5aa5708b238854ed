//! Order in which clients and crawlers get their turns.

use super::kit::*;
use crate::policy::Profile;
use tokio::time::{advance, sleep};

// Ours: with 100 requests of one flooding client queued, the single requests of two other
// clients start third and fourth: each waits for one turn of the flooding client at most.
#[tokio::test(start_paused = true)]
async fn a_flooder_delays_others_by_one_turn() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(1);
    for _ in 0..100 {
        origin.get(Get::by("flood", asked.as_ref())).await;
    }
    origin.get(Get::by("b", asked.as_ref())).await;
    origin.get(Get::by("c", asked.as_ref())).await;
    sleep(seconds(200)).await;
    let order = origin.order();
    assert_eq!(order.len(), 102);
    assert_eq!(order[..5], ["flood", "flood", "b", "c", "flood"]);
}

// Ours: sixty crawler names from one address at a host with 5/s. Another client gets half
// of the turns.
#[tokio::test(start_paused = true)]
async fn a_client_with_sixty_names_gets_no_more_turns_than_one_with_a_single_name() {
    let origin = Origin::new(profile(Profile::Standard));
    for number in 0..60 {
        let name = format!("bad{number}");
        origin.get(Get::by(&name, None).at(1)).await;
    }
    for _ in 0..10 {
        origin.get(Get::by("good", None).at(2)).await;
    }
    sleep(seconds(30)).await;
    let order = origin.order();
    let good = (0..order.len()).filter(|turn| order[*turn] == "good");
    // The first request of the other client had already started, and one more may precede
    // each.
    let every_other = (0..10).map(|turn| 2 * turn + 2);
    assert!(good.eq(every_other), "{order:?}");
    // One turn every 200 ms, half of them for this client.
    assert!(origin.times()[20] <= 4_010, "{:?}", origin.times());
}

// Ours: requests of one crawler keep their order.
#[tokio::test(start_paused = true)]
async fn requests_of_a_crawler_start_in_order_of_arrival() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(1);
    let mut expected = Vec::new();
    for number in 0..20 {
        let (sender, turn) = (origin.clone(), origin.turn(Get::by("a", asked.as_ref())));
        tokio::spawn(async move {
            let turn = turn.await.unwrap();
            sender.log(number.to_string());
            turn.record_status(200, None);
        });
        expected.push(number.to_string());
        settle().await;
    }
    sleep(seconds(60)).await;
    assert_eq!(origin.order(), expected);
}

// Ours: of 10 waiting requests, 8 are cancelled; the other two start after 1 s and 2 s.
#[tokio::test(start_paused = true)]
async fn cancelled_requests_leave_their_turns_to_others() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(1);
    let mut waiting = Vec::new();
    for number in 0..11 {
        let get = Get::by(&number.to_string(), asked.as_ref());
        waiting.push(origin.get(get).await);
    }
    assert_eq!(origin.order(), ["0"]);
    for (number, task) in waiting.iter().enumerate() {
        if ![4, 9].contains(&number) {
            task.abort();
        }
    }
    sleep(seconds(20)).await;
    assert_eq!(origin.order(), ["0", "4", "9"]);
    let times: Vec<u128> = origin.times().iter().map(|time| time / 1000).collect();
    assert_eq!(times, [0, 1, 2]);
    assert_eq!(origin.scheduler.context.metrics.pace_queued.get(), 0);
}

// Ours: a turn that is given back unused makes room for the next request.
#[tokio::test(start_paused = true)]
async fn an_unused_turn_passes_to_the_next_request() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    let unused = origin.turn(Get::by("a", asked.as_ref())).await.unwrap();
    origin.get(Get::by("b", asked.as_ref())).await;
    origin.get(Get::by("c", asked.as_ref())).await;
    advance(seconds(3)).await;
    drop(unused);
    settle().await;
    assert_eq!(origin.order(), ["b"]);
    sleep(seconds(11)).await;
    assert_eq!(origin.order(), ["b", "c"]);
}

// Ours: a granted turn that is never taken passes to the next request. Here the client
// disconnects after the grant, before it sees it.
#[tokio::test(start_paused = true)]
async fn a_granted_turn_that_is_not_taken_passes_to_the_next_request() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    let first = origin.turn(Get::by("a", asked.as_ref())).await.unwrap();
    let mut gone = Box::pin(origin.turn(Get::by("b", asked.as_ref())));
    assert!(polled_once(&mut gone).await.is_none());
    origin.get(Get::by("c", asked.as_ref())).await;
    // Nothing was sent, so the driver grants the turn to `b` at once.
    drop(first);
    settle().await;
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 1);
    assert!(origin.order().is_empty());
    drop(gone);
    settle().await;
    assert_eq!(origin.order(), ["c"]);
}

// Ours: a late cancellation does not take another request's place.
#[tokio::test(start_paused = true)]
async fn a_late_cancellation_does_not_remove_a_newer_request() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    let first = origin.turn(Get::by("a", asked.as_ref())).await.unwrap();
    let mut gone = Box::pin(origin.turn(Get::by("a", asked.as_ref())));
    assert!(polled_once(&mut gone).await.is_none());
    drop(first);
    settle().await;
    let waits = origin.get(Get::by("a", asked.as_ref())).await;
    drop(gone);
    settle().await;
    assert!(waits.is_finished() && waits.await.unwrap().is_ok());
}

// Ours: origins in parallel do not slow each other down.
#[tokio::test(start_paused = true)]
async fn a_hundred_hosts_do_not_slow_each_other_down() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(2);
    for number in 0..100 {
        let name: &'static str = format!("h{number}.example").leak();
        for _ in 0..6 {
            let get = Get::by("a", asked.as_ref());
            origin.get(Get { host: name, ..get }).await;
        }
    }
    sleep(seconds(60)).await;
    let times = origin.times();
    assert_eq!(times.len(), 600);
    assert!(times.iter().all(|time| *time <= 10_010), "{times:?}");
}

// Ours: no wake-up storm. Each of 200 requests is polled when it joins and when its turn
// comes; the driver wakes once or twice per grant.
#[tokio::test(start_paused = true)]
async fn waiting_requests_are_woken_only_for_their_turns() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(1);
    let polls = Arc::new(AtomicUsize::new(0));
    for _ in 0..200 {
        let mut turn = Box::pin(origin.turn(Get::by("a", asked.as_ref())));
        let (polls, origin) = (Arc::clone(&polls), origin.clone());
        tokio::spawn(async move {
            let counted = std::future::poll_fn(|cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                turn.as_mut().poll(cx)
            });
            let turn = counted.await.unwrap();
            origin.log("a".into());
            turn.record_status(200, None);
        });
    }
    settle().await;
    sleep(seconds(300)).await;
    assert_eq!(origin.order().len(), 200);
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 400, "{polls}");
    let steps = origin.scheduler.context.metrics.pace_wakeups.get();
    // A grant, a wait for the request to end, and a sleep for the delay.
    assert!(steps <= 3 * 200 + 3, "{steps}");
}
