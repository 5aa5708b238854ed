//! Estimates for requests that are not made: `Scheduler::estimate`.

use std::sync::Arc;
use std::time::Duration;

use jiff::ToSpan as _;
use tokio::time::{advance, sleep};

use super::kit::*;
use crate::policy::Profile;
use crate::{RobotsFetch, StartEstimate, TurnOwner, TurnRequest};
use politesse_base::clock;
use politesse_decision::reason::Reason;
use politesse_robots::{PaceRecords, VisitTime};

/// Estimates the start of one more request of crawler `a`.
fn estimate(origin: &Origin, asked: Option<&Arc<PaceRecords>>) -> StartEstimate {
    let name = host("site.example");
    let owner = TurnOwner {
        client: origin.clients.at([0, 0, 0, 0].into()),
        crawler: Some("a".into()),
    };
    origin.scheduler.estimate(&TurnRequest {
        host: &name,
        owner: &owner,
        address: None,
        pace_records: asked.cloned(),
        max_wait: Duration::MAX,
        robots_fetched_at: None,
        robots_fetch: RobotsFetch::NotNeeded,
        arrival: None,
        embedding: None,
    })
}

/// Returns how long a request made now waits.
async fn wait(origin: &Origin, asked: Option<&Arc<PaceRecords>>) -> Duration {
    let before = clock::instant();
    let turn = origin.turn(Get::by("a", asked)).await.unwrap();
    drop(turn);
    clock::instant() - before
}

// Ours: with a delay of the site, a rate of the operator, and waiting requests.
#[tokio::test(start_paused = true)]
async fn an_estimate_equals_the_wait_of_a_real_request() {
    for (profile_of, delay, waiting, passed, expected) in [
        (Profile::Owned, 10, 0, 3, 7),
        (Profile::Owned, 10, 2, 0, 30),
        (Profile::Owned, 10, 0, 11, 0),
        (Profile::Owned, 0, 0, 0, 0),
        (Profile::Archive, 0, 0, 1, 2),
        (Profile::Archive, 7, 1, 1, 13),
    ] {
        let origin = Origin::new(profile(profile_of));
        let asked = asked(delay);
        origin.get(Get::by("a", asked.as_ref())).await;
        for _ in 0..waiting {
            origin.get(Get::by("a", asked.as_ref())).await;
        }
        advance(seconds(passed)).await;
        let estimated = estimate(&origin, asked.as_ref());
        let case = format!("{profile_of:?} {delay} {waiting} {passed}");
        assert_eq!(estimated.delay.wait(), Some(seconds(expected)), "{case}");
        let really = wait(&origin, asked.as_ref()).await;
        assert!(
            really.abs_diff(seconds(expected)) < seconds(1),
            "{case}: {really:?}"
        );
    }
}

// Ours: the request may end at any moment, and the site's delay counts from then.
#[tokio::test(start_paused = true)]
async fn an_estimate_counts_the_delay_from_now_while_a_request_is_in_flight() {
    let origin = Origin::new(profile(Profile::Owned));
    let asked = asked(10);
    let slow = Get::by("a", asked.as_ref()).taking(seconds(5));
    origin.get(slow).await;
    advance(seconds(2)).await;
    let estimated = estimate(&origin, asked.as_ref());
    assert_eq!(estimated.delay.wait(), Some(seconds(10)));
    assert_eq!(estimated.delay.reason, Reason::CrawlDelay);
    assert_eq!(estimated.pause, seconds(10));
    // Without a delay, another request may be in flight.
    assert_eq!(estimate(&origin, None).delay.wait(), Some(Duration::ZERO));
    sleep(seconds(60)).await;
}

// Ours: visiting hours apply, in UTC.
#[tokio::test(start_paused = true)]
async fn an_estimate_waits_for_the_hours_of_the_site() {
    let origin = Origin::new(profile(Profile::Owned));
    let at = |ahead: i64| {
        let then = clock::now().checked_add(ahead.hours()).unwrap();
        let then = then.to_zoned(jiff::tz::TimeZone::UTC);
        u16::from(then.hour().unsigned_abs()) * 60 + u16::from(then.minute().unsigned_abs())
    };
    let records = Arc::new(PaceRecords {
        visits: vec![VisitTime {
            from: at(3),
            to: at(5),
        }],
        ..PaceRecords::default()
    });
    let estimated = estimate(&origin, Some(&records));
    let wait = estimated.delay.wait().unwrap();
    let least = seconds(3 * 3600 - 60);
    assert!((least..=seconds(3 * 3600)).contains(&wait), "{wait:?}");
    assert_eq!(estimated.delay.reason, Reason::VisitTime);
}

// Ours: an estimate is not a request.
#[tokio::test(start_paused = true)]
async fn an_estimate_takes_no_turn_and_remembers_no_host() {
    let origin = Origin::new(profile(Profile::Archive));
    let asked = asked(100);
    for _ in 0..100 {
        let estimated = estimate(&origin, asked.as_ref());
        assert!(estimated.delay.is_over(), "{estimated:?}");
        assert_eq!(estimated.pause, seconds(100));
    }
    let context = &origin.scheduler.context;
    assert_eq!(context.metrics.pace_hosts.get(), 0);
    assert_eq!(wait(&origin, asked.as_ref()).await, Duration::ZERO);
    assert_eq!(context.metrics.pace_hosts.get(), 1);
}
