//! Copies that are fetched again on an operator's order. All ours.

use tokio::time::sleep;

use super::kept::Shelf;
use super::kit::*;
use super::*;

const OLD: &str = "User-agent: *\nDisallow: /old";
const NEW: &str = "User-agent: *\nDisallow: /new";

async fn refetch(cache: &RobotsCache<Script>) -> Vec<&'static str> {
    let mut words = Vec::new();
    for mut refetch in cache.refetch(&"a.test".parse().unwrap()).await {
        words.push(refetch.outcome().await.as_str());
    }
    words
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_in_force_until_its_fetch_has_an_answer() {
    let script = Script::default().at(ROBOTS, [text(OLD), after(5 * SECOND, text(NEW))]);
    let cache = cache(&script);
    assert!(refetch(&cache).await.is_empty());
    let old = ask(&cache).await;
    let mut begun = cache.refetch(&"a.test".parse().unwrap()).await;
    assert!(Arc::ptr_eq(&old, &ask(&cache).await));
    assert_eq!(begun[0].outcome().await.as_str(), "changed");
    let new = ask(&cache).await;
    assert_eq!(&new.file().unwrap().body[..], NEW.as_bytes());
    assert_eq!(refetch(&cache).await, ["unchanged"]);
    assert_eq!(script.asked().len(), 3);
    assert!(cache.refetch(&"b.test".parse().unwrap()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_stays_in_force_if_the_fetch_fails() {
    let script = Script::default().at(ROBOTS, [text(OLD), status(503)]);
    let cache = cache(&script);
    let old = ask(&cache).await;
    assert_eq!(refetch(&cache).await, ["failed"]);
    assert!(Arc::ptr_eq(&old, &ask(&cache).await));
    advance(24 * HOUR).await;
    assert_eq!(ask(&cache).await.stale, Some(Cause::Status));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_before_its_pause_is_over() {
    let script = Script::default().at(ROBOTS, [status(503), text(NEW)]);
    let cache = cache(&script);
    assert_eq!(cause(&*ask(&cache).await), Some(Cause::Status));
    assert_eq!(refetch(&cache).await, ["changed"]);
    assert!(ask(&cache).await.file().is_some());
}

#[tokio::test(start_paused = true)]
async fn each_sender_without_a_file_is_fetched_again() {
    let replies = [status(404), status(404), status(404), status(403)];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    for agent in ["Bot/1", "Bot/2"] {
        ask_as(&cache, "http://a.test/", agent).await;
        advance(SECOND).await;
    }
    // The newest is fetched at once, the other with its next request.
    assert_eq!(refetch(&cache).await, ["unchanged"]);
    let agent = |at: usize| script.log()[at].user_agent.clone().unwrap();
    assert_eq!(agent(2), "Bot/2");
    ask_as(&cache, "http://a.test/", "Bot/1").await;
    sleep(SECOND).await;
    assert_eq!(agent(3), "Bot/1");
    assert_eq!(
        ask_as(&cache, "http://a.test/", "Bot/1").await.status,
        Some(403)
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_the_previous_process_is_fetched_under_its_token() {
    let script = Script::default().at(ROBOTS, [text(OLD), text(NEW)]);
    let shelf = Arc::new(Shelf::default());
    ask(&cache_on(options(), &script, shelf.clone())).await;
    let cache = cache_on(options(), &script, shelf);
    assert_eq!(refetch(&cache).await, ["changed"]);
    assert_eq!(script.log()[1].user_agent.as_ref().unwrap(), "ExampleBot");
    assert_eq!(&ask(&cache).await.file().unwrap().body[..], NEW.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn one_order_starts_a_limited_number_of_fetches() {
    let script = Script::default().at(ROBOTS, [text(OLD)]);
    let cache = cache(&script);
    for number in 0..20 {
        ask_as(
            &cache,
            "http://a.test/",
            &format!("Bot{}", "x".repeat(number)),
        )
        .await;
    }
    assert_eq!(refetch(&cache).await, ["unchanged"; 16]);
}
