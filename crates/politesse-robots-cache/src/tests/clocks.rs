//! Lifetimes when the wall clock is set, or the machine sleeps, while the process runs.
//! All ours; RFC 9309, section 2.4, for the day.

use jiff::SignedDuration;
use tokio::time::advance;

use super::kit::*;
use super::*;
use politesse_base::testing::set_wall_by;
use politesse_decision::snapshot::AccessResult;

const DAY: Duration = Duration::from_secs(24 * 3600);
const FILE: &str = "User-agent: *\nDisallow: /a";

#[tokio::test(start_paused = true)]
async fn a_robots_txt_is_fetched_again_after_the_clock_is_set_forward() {
    let script = Script::default().at(ROBOTS, [text(FILE)]);
    let cache = cache(&script);
    ask(&cache).await;
    set_wall_by(SignedDuration::from_hours(23));
    ask(&cache).await;
    assert_eq!(script.asked().len(), 1);
    set_wall_by(SignedDuration::from_hours(2));
    ask(&cache).await;
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_robots_txt_is_not_used_longer_after_the_clock_is_set_back() {
    let script = Script::default().at(ROBOTS, [text(FILE)]);
    let cache = cache(&script);
    ask(&cache).await;
    set_wall_by(SignedDuration::from_hours(-40 * 24));
    ask(&cache).await;
    assert_eq!(script.asked().len(), 1);
    advance(DAY).await;
    ask(&cache).await;
    assert_eq!(script.asked().len(), 2);
}

// Used for 30 days after its origin fails, no matter what the clock is set to in between.
#[tokio::test(start_paused = true)]
async fn a_stale_copy_is_not_used_longer_after_the_clock_is_set_back() {
    let script = Script::default().at(ROBOTS, [text(FILE), status(500)]);
    let cache = cache(&script);
    ask(&cache).await;
    advance(20 * DAY).await;
    assert!(ask(&cache).await.stale.is_some());
    set_wall_by(SignedDuration::from_hours(-15 * 24));
    advance(9 * DAY).await;
    assert!(ask(&cache).await.stale.is_some());
    advance(2 * DAY).await;
    let end = ask(&cache).await;
    assert!(
        matches!(end.result, AccessResult::Unreachable(_)),
        "{:?}",
        end.result
    );
}
