//! Effects of a host's responses on its pace.

use std::sync::{Arc, Mutex};

use super::kit::*;
use crate::back_off::{BackOffListener, BackOffUpdate};
use crate::policy::Profile;
use politesse_decision::back_off::{BackOffChange, BackOffEvent, ReleaseOrder, SavedBackOff};
use politesse_decision::reason::Reason;
use tokio::time::{advance, sleep};

async fn answered(origin: &Origin, status: u16, retry_after: Option<u64>) -> BackOffUpdate {
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    turn.record_status(status, retry_after.map(seconds))
}

/// Returns for how many seconds the host is left alone now.
async fn left_alone(origin: &Origin) -> u64 {
    match origin.turn(Get::by("a", None).within(seconds(0))).await {
        Ok(_unused) => 0,
        Err(later) => {
            assert_eq!(later.reason, Reason::BackOff);
            later.retry_after().as_secs()
        }
    }
}

// Ours: with a back-off of 60 s, a request that may wait 5 s is refused at once.
#[tokio::test(start_paused = true)]
async fn a_back_off_refuses_requests_that_cannot_outwait_it() {
    let origin = Origin::new(profile(Profile::Owned));
    assert_eq!(
        answered(&origin, 429, Some(60)).await,
        BackOffUpdate::Entered
    );
    let refused = origin.get(Get::by("a", None).within(seconds(5))).await;
    assert!(refused.is_finished());
    let later = refused.await.unwrap().unwrap_err();
    assert_eq!(
        (later.reason, later.retry_after()),
        (Reason::BackOff, seconds(60))
    );
    assert_eq!(origin.scheduler.context.metrics.pace_backoffs.get(), 1);
    let waits = origin.get(Get::by("a", None).within(seconds(61))).await;
    sleep(seconds(59)).await;
    assert!(!waits.is_finished());
    sleep(seconds(2)).await;
    assert!(waits.is_finished());
    assert_eq!(origin.order(), ["a"]);
}

// Ours: 60 s, doubling, plus a tenth of jitter at most; forgiven after 30 quiet minutes.
#[tokio::test(start_paused = true)]
async fn back_offs_double_and_are_forgiven_after_thirty_quiet_minutes() {
    let origin = Origin::new(profile(Profile::Owned));
    answered(&origin, 503, None).await;
    assert!((60..=66).contains(&left_alone(&origin).await));
    advance(seconds(67)).await;
    answered(&origin, 429, None).await;
    assert!((120..=132).contains(&left_alone(&origin).await));
    advance(seconds(133 + 30 * 60)).await;
    answered(&origin, 429, None).await;
    assert!((60..=66).contains(&left_alone(&origin).await));
}

// Ours: a back-off that begins while requests wait applies to them.
#[tokio::test(start_paused = true)]
async fn a_back_off_applies_to_requests_that_already_wait() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(5);
    let turn = origin.turn(Get::by("a", asked.as_ref())).await.unwrap();
    let short = origin
        .get(Get::by("b", asked.as_ref()).within(seconds(30)))
        .await;
    let long = origin.get(Get::by("c", asked.as_ref())).await;
    turn.record_status(429, Some(seconds(100)));
    drop(turn);
    settle().await;
    let later = short.await.unwrap().unwrap_err();
    assert_eq!(
        (later.reason, later.retry_after()),
        (Reason::BackOff, seconds(100))
    );
    sleep(seconds(99)).await;
    assert!(!long.is_finished());
    sleep(seconds(2)).await;
    assert!(long.is_finished());
}

// Ours: 403 and 404 never start a back-off.
#[tokio::test(start_paused = true)]
async fn other_statuses_start_no_back_off() {
    let origin = Origin::new(profile(Profile::Owned));
    for status in [200, 301, 403, 404, 500, 502] {
        assert_eq!(
            answered(&origin, status, Some(60)).await,
            BackOffUpdate::None
        );
        assert_eq!(left_alone(&origin).await, 0, "{status}");
    }
}

// Ours: 5 times the duration of the last response, counted from its end, from 3 s to 30
// s.
#[tokio::test(start_paused = true)]
async fn the_archive_profile_pauses_longer_for_a_slow_site() {
    let origin = Origin::new(profile(Profile::Archive));
    for takes in [2, 0, 60, 0] {
        origin.get(Get::by("a", None).taking(seconds(takes))).await;
    }
    sleep(seconds(300)).await;
    let times: Vec<u128> = origin.times().iter().map(|time| time / 1000).collect();
    assert_eq!(times, [0, 12, 15, 105]);
}

// Ours: a slow connect or a slow upload does not make a host slow.
#[tokio::test(start_paused = true)]
async fn the_response_time_counts_from_the_end_of_the_request() {
    let origin = Origin::new(profile(Profile::Archive));
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    sleep(seconds(5)).await;
    turn.note_connected();
    sleep(seconds(2)).await;
    turn.record_status(200, None);
    drop(turn);
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    assert_eq!(turn.waited(), seconds(5 * 2));
    let activity = Arc::clone(turn.activity());
    sleep(seconds(5)).await;
    activity.end_upload();
    sleep(seconds(1)).await;
    turn.record_status(200, None);
    drop(turn);
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    assert_eq!(turn.waited(), seconds(5));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_why_a_host_waits() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    origin.get(Get::by("a", asked.as_ref())).await;
    origin.get(Get::by("a", asked.as_ref())).await;
    let shown = origin.scheduler.snapshot();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].queued, shown[0].in_flight), (1, 0));
    assert_eq!(shown[0].cause.as_deref(), Some("crawl_delay"));
    assert!(shown[0].next_start.is_some() && shown[0].backoff_until.is_none());
    sleep(seconds(10)).await;
    answered(&origin, 503, Some(600)).await;
    let shown = origin.scheduler.snapshot();
    assert_eq!(shown[0].cause.as_deref(), Some("backoff"));
    assert!(shown[0].backoff_until.is_some());
}

// Ours: a request that cannot succeed in time is answered early, even a robots.txt fetch.
#[tokio::test(start_paused = true)]
async fn a_back_off_ends_the_wait_for_a_robots_txt() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(5);
    let turn = origin.turn(Get::by("a", asked.as_ref())).await.unwrap();
    let waits = origin.clone();
    let waits = tokio::spawn(async move {
        let (scheduler, client) = (&waits.scheduler, waits.client(0));
        let turn = scheduler.robots_turn(&host("site.example"), &client).await;
        turn.is_some()
    });
    settle().await;
    turn.record_status(503, Some(seconds(600)));
    settle().await;
    assert!(waits.is_finished());
    assert!(!waits.await.unwrap());
    let later = origin
        .scheduler
        .put_off_robots(&host("site.example"), &origin.client(0))
        .unwrap();
    assert_eq!(
        (later.reason, later.retry_after()),
        (Reason::BackOff, seconds(600))
    );
}

// Ours: the end of a back-off is reported, even if the first request after it is
// cancelled.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_back_off_is_reported_even_if_the_next_request_is_cancelled() {
    let origin = Origin::new(profile(Profile::Owned));
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let tell = move |event: BackOffEvent| log.lock().unwrap().push(event.change);
    origin
        .scheduler
        .set_back_off_listener(BackOffListener(Box::new(tell)));
    let response = http::Response::builder().status(429);
    let response = response.header("retry-after", "10").body(()).unwrap();
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    turn.record_response(&host("site.example"), &response);
    drop(turn);
    let mut gone = Box::pin(origin.turn(Get::by("a", None)));
    assert!(polled_once(&mut gone).await.is_none());
    advance(seconds(11)).await;
    settle().await;
    assert_eq!(origin.scheduler.snapshot()[0].in_flight, 1);
    drop(gone);
    assert_eq!(*told.lock().unwrap(), [BackOffChange::Entered]);
    drop(origin.turn(Get::by("a", None)).await);
    origin.scheduler.sweep();
    let both = [BackOffChange::Entered, BackOffChange::Left];
    assert_eq!(*told.lock().unwrap(), both);
}

// Ours: a wrong clock must not keep a host in back-off for years, and forgiven back-offs
// are not restored.
#[tokio::test(start_paused = true)]
async fn saved_back_offs_are_restored_within_limits() {
    let wall = politesse_base::clock::now();
    let hours = jiff::SignedDuration::from_hours;
    let kept = |name: &str, ahead| SavedBackOff {
        host: host(name),
        until: wall + hours(ahead),
        incidents: 3,
        quiet_since: wall + hours(ahead),
    };
    let origin = Origin::new(profile(Profile::Owned));
    let rows = [
        ("years.example", 20_000),
        ("hour.example", 1),
        ("quiet.example", -1),
    ];
    origin
        .scheduler
        .restore_back_offs(rows.map(|(name, ahead)| kept(name, ahead)));
    let asks = |host| Get {
        host,
        ..Get::by("a", None).within(seconds(0))
    };
    for (host, hours) in [("years.example", 24), ("hour.example", 1)] {
        let later = origin.turn(asks(host)).await.unwrap_err();
        let left = later.retry_after().as_secs();
        assert!(
            (3600 * hours - 2..=3600 * hours).contains(&left),
            "{host}: {left}"
        );
    }
    let turn = origin.turn(asks("quiet.example")).await.unwrap();
    turn.record_status(503, None);
    drop(turn);
    let later = origin.turn(asks("quiet.example")).await.unwrap_err();
    assert!((60..=66).contains(&later.retry_after().as_secs()));
}

// Ours: an operator can end a back-off, and the release is reported.
#[tokio::test(start_paused = true)]
async fn an_operator_can_end_a_back_off() {
    let origin = Origin::new(profile(Profile::Owned));
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let tell = move |event: BackOffEvent| log.lock().unwrap().push(event);
    origin
        .scheduler
        .set_back_off_listener(BackOffListener(Box::new(tell)));
    let order = || ReleaseOrder {
        by: "admin".to_owned(),
        reason: "a mistake".to_owned(),
    };
    let name = host("site.example");
    assert!(!origin.scheduler.release(&name, order()));
    let turn = origin.turn(Get::by("a", None)).await.unwrap();
    turn.record_status(503, Some(seconds(86_400)));
    drop(turn);
    let waits = origin.get(Get::by("a", None).within(seconds(90_000))).await;
    assert!(!waits.is_finished());
    assert!(origin.scheduler.release(&name, order()));
    settle().await;
    assert!(waits.is_finished());
    assert!(!origin.scheduler.release(&name, order()));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].change, BackOffChange::Released);
    assert_eq!(told[0].release, Some(order()));
}
