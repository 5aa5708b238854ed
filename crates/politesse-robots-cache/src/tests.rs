//! Life of a snapshot, on a paused clock.

pub(super) mod kit;

mod bounds;

mod clocks;

mod fetched;

mod kept;

mod life;

mod pace;

mod redirects;

mod refetch;

mod senders;

mod shared;

mod shared_late;

pub(super) mod shared_shelf;

use http::HeaderValue;
use tokio::time::{advance, timeout};

use self::kit::*;
use super::*;
use crate::options::UserAgent;
use crate::store::SnapshotStore;
use politesse_decision::access::NoConnection;
use politesse_decision::snapshot::CacheKey;
use politesse_net::body::BodyError;
use politesse_net::client::UpstreamError;
use politesse_robots::crawler::Crawler;

// Ours: a crawler that hangs up cancels only its own exchange.
#[tokio::test(start_paused = true)]
async fn a_fetch_survives_the_request_that_started_it() {
    let script = Script::default().at(ROBOTS, [after(5 * SECOND, text(""))]);
    let cache = cache(&script);
    assert!(timeout(SECOND, ask(&cache)).await.is_err());
    let began = clock::instant();
    assert!(ask(&cache).await.file().is_some());
    assert_eq!(clock::instant().duration_since(began).as_secs(), 4);
    assert_eq!(script.asked().len(), 1);
}

// RFC 9309, section 2.4: for 24 hours at most.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_in_force_until_it_expires_or_is_replaced() {
    let script = Script::default().at(ROBOTS, [text("User-agent: *")]);
    let cache = cache(&script);
    let first = ask(&cache).await;
    assert!(holds(&cache, &first));
    advance(24 * HOUR - SECOND).await;
    assert!(Arc::ptr_eq(&first, &ask(&cache).await));
    advance(SECOND).await;
    assert!(!holds(&cache, &first));
    let second = ask(&cache).await;
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(holds(&cache, &second) && !holds(&cache, &first));
    assert_eq!(script.asked().len(), 2);
}

// RFC 9309, section 2.3.1.4. Ours: asked again after 30 s, doubling up to 30 min.
#[tokio::test(start_paused = true)]
async fn the_pause_after_failures_doubles_up_to_the_longest() {
    let mut replies = vec![status(503); 8];
    replies.extend([text(""), status(503)]);
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    for pause in [30, 60, 120, 240, 480, 960, 1800, 1800] {
        let snapshot = ask(&cache).await;
        assert_eq!(cause(&snapshot), Some(Cause::Status));
        assert_eq!(held_for(&snapshot), pause);
        advance(Duration::from_secs(pause.unsigned_abs())).await;
    }
    assert!(ask(&cache).await.file().is_some());
    advance(24 * HOUR).await;
    assert_eq!(asked_again_in(&*ask(&cache).await), 30);
}

// Ours: no crawler is judged by a file that was given to another one.
#[tokio::test(start_paused = true)]
async fn each_product_token_has_its_own_snapshot() {
    let script = Script::default().at(ROBOTS, [status(404), text("User-agent: *")]);
    let cache = cache(&script);
    let evil = ask_as(&cache, "http://a.test/", "EvilBot/1.0").await;
    let good = ask_as(&cache, "http://a.test/", "GoodBot/1.0").await;
    assert!(evil.file().is_none() && good.file().is_some());
    let again = ask_as(&cache, "http://a.test/x", "goodbot/2.0").await;
    assert!(Arc::ptr_eq(&good, &again));
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_user_agent_has_one_snapshot_for_all_crawlers() {
    let script = Script::default().at(ROBOTS, [text("")]);
    let cache = cache_with(
        Options {
            user_agent: UserAgent::Fixed("Ours/1.0".to_owned()),
            ..options()
        },
        &script,
    );
    let one = ask_as(&cache, "http://a.test/", "OneBot").await;
    let two = ask_as(&cache, "http://a.test/", "TwoBot").await;
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(one.key.token.as_ref().unwrap().as_str(), "Ours");
    let asked = script.log();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].user_agent.as_ref().unwrap(), "Ours/1.0");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_panics_is_unreachable_and_tried_again() {
    let script = Script::default().at(ROBOTS, [Reply::Panic, text("")]);
    let cache = cache(&script);
    let snapshot = ask(&cache).await;
    assert_eq!(cause(&snapshot), Some(Cause::Internal));
    assert_eq!(held_for(&snapshot), 30);
    advance(30 * SECOND).await;
    assert!(ask(&cache).await.file().is_some());
}

// RFC 9309, section 2.3.1.
#[tokio::test(start_paused = true)]
async fn each_failure_has_its_own_cause() {
    let refused = || UpstreamError::NoConnection(NoConnection::Refused).into();
    let cases: [(fn() -> Cause, Cause); 5] = [
        (refused, Cause::NoConnection(NoConnection::Refused)),
        (|| UpstreamError::FirstByteTimeout.into(), Cause::Timeout),
        (|| UpstreamError::AmbiguousFraming.into(), Cause::Broken),
        (|| BodyError::Stalled.into(), Cause::Timeout),
        (|| Cause::Coding, Cause::Coding),
    ];
    for (error, expected) in cases {
        let script = Script::default().at(ROBOTS, [Reply::Fail(error)]);
        assert_eq!(cause(&*ask(&cache(&script)).await), Some(expected));
    }
    let script = Script::default()
        .at(ROBOTS, [to("/1")])
        .at("http://a.test/1", [Reply::Fail(refused)]);
    assert_eq!(
        cause(&*ask(&cache(&script)).await),
        Some(Cause::RedirectTarget)
    );
}

// RFC 9309, section 2.4.
#[tokio::test(start_paused = true)]
async fn stated_lifetimes_are_kept_within_limits() {
    let says = |status, value| Reply::Answer(status, vec![("cache-control", value)], "");
    for (reply, seconds) in [
        (status(200), 86_400),
        (says(200, "max-age=600"), 600),
        (says(200, "max-age=1"), 300),
        (says(200, "no-store"), 300),
        (says(200, "max-age=9999999"), 86_400),
        (Reply::Answer(200, vec![("expires", "0")], ""), 300),
        (status(404), 3600),
        (says(404, "max-age=60"), 3600),
        (says(404, "max-age=7200"), 7200),
        (says(404, "max-age=9999999"), 86_400),
        (says(500, "max-age=7200"), 30),
    ] {
        let script = Script::default().at(ROBOTS, [reply]);
        assert_eq!(held_for(&*ask(&cache(&script)).await), seconds);
    }
}
