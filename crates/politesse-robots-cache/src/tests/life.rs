//! Every transition in the life of a snapshot: its state, and the result of asking the
//! origin.
//!
//! | state | next state | test |
//! |---|---|---|
//! | nothing | a file, none, unreachable | `a_fetch_ends_successful_unavailable_or_unreachable` |
//! | fresh | fresh, origin not asked | `a_fresh_answer_is_not_fetched_again` |
//! | fresh, near its end | replaced, confirmed | `a_copy_in_use_is_refreshed_before_its_end` |
//! | | failed: fresh until its end, then stale | `a_failed_refresh_leaves_the_copy_in_force_until_its_end` |
//! | | no file | `a_refresh_that_finds_no_file_drops_the_copy` |
//! | expired | confirmed, replaced | `a_304_confirms_the_copy` |
//! | | stale | `a_copy_outlives_its_origin_for_30_days` |
//! | no file | no file, then unreachable | `a_missing_file_is_not_assumed_beyond_its_end` |
//! | stale | recovered | `a_stale_copy_ends_with_an_answer` |
//! | | no file, then unreachable | `a_404_in_between_drops_the_copy` |
//! | | after 30 days unreachable | `a_copy_outlives_its_origin_for_30_days` |
//! | unreachable | unreachable for longer | `the_pause_after_failures_doubles_up_to_the_longest` |
//! | all waiting requests cancelled | as if they still waited | `a_fetch_survives_the_request_that_started_it` |
//! | panicked | unreachable, or stale | `a_fetch_that_panics_is_unreachable_and_tried_again` |
//!
//! Sources: RFC 9309, sections 2.3.1.4 and 2.4;
//! docs/decisions/008-robots-cache.md.

use tokio::time::{advance, sleep};

use super::kit::*;
use super::*;
use politesse_decision::access::NoConnection;
use politesse_decision::snapshot::{AccessResult, RobotsFile, Validators};

const DAY: Duration = Duration::from_secs(24 * 3600);
const FILE: &str = "User-agent: *\nDisallow: /a";

fn tagged(status: u16, etag: &'static str, body: &'static str) -> Reply {
    Reply::Answer(status, vec![("etag", etag)], body)
}

fn copy(snapshot: &Snapshot) -> &Arc<RobotsFile> {
    match &snapshot.result {
        AccessResult::Successful(copy) => copy,
        other @ (AccessResult::Unavailable | AccessResult::Unreachable(_)) => {
            panic!("no copy: {other:?}")
        }
    }
}

/// Returns the etags of the conditional requests, one entry per request.
fn etags(script: &Script) -> Vec<Option<String>> {
    let etag = |known: Validators| known.etag.map(|etag| etag.to_str().unwrap().to_owned());
    let log = script.log().into_iter();
    log.map(|asked| asked.known.and_then(etag)).collect()
}

/// Lets the fetches in the background run to their end.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fetch_ends_successful_unavailable_or_unreachable() {
    for (reply, result) in [
        (text(FILE), "successful"),
        (status(404), "unavailable"),
        (status(503), "unreachable"),
    ] {
        let snapshot = ask(&cache(&Script::default().at(ROBOTS, [reply]))).await;
        assert_eq!(
            politesse_decision::record::result_word(&snapshot.result),
            result
        );
        assert_eq!(snapshot.stale, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_answer_is_not_fetched_again() {
    for (reply, lifetime) in [(text(FILE), DAY), (status(404), HOUR)] {
        let script = Script::default().at(ROBOTS, [reply]);
        let cache = cache(&script);
        let first = ask(&cache).await;
        advance(lifetime / 10 * 9 - SECOND).await;
        assert!(Arc::ptr_eq(&first, &ask(&cache).await));
        settle().await;
        assert_eq!(script.asked().len(), 1);
    }
}

// Ours: refresh ahead of expiry for origins in use.
#[tokio::test(start_paused = true)]
async fn a_copy_in_use_is_refreshed_before_its_end() {
    for second in [text("User-agent: *"), tagged(304, "\"1\"", "")] {
        let replies = [tagged(200, "\"1\"", FILE), after(5 * SECOND, second)];
        let script = Script::default().at(ROBOTS, replies);
        let cache = cache(&script);
        let first = ask(&cache).await;
        advance(DAY / 10 * 9).await;
        for _ in 0..10 {
            // No request waits, and none starts a second fetch.
            assert!(Arc::ptr_eq(&first, &ask(&cache).await));
            settle().await;
        }
        assert_eq!(script.asked().len(), 2);
        sleep(5 * SECOND).await;
        let second = ask(&cache).await;
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(first.fetched_at < second.fetched_at && second.stale.is_none());
        assert_eq!(held_for(&second), 86_400);
        assert_eq!(script.asked().len(), 2);
    }
}

// Ours: a replaced snapshot is not in force, even after its successor has expired.
#[tokio::test(start_paused = true)]
async fn a_replaced_snapshot_is_no_longer_in_force() {
    let short = Reply::Answer(200, vec![("cache-control", "max-age=300")], "");
    let script = Script::default().at(ROBOTS, [text(FILE), short]);
    let cache = cache(&script);
    let first = ask(&cache).await;
    advance(DAY / 10 * 9).await;
    ask(&cache).await;
    assert!(holds(&cache, &first));
    settle().await;
    assert!(!holds(&cache, &first));
    advance(300 * SECOND).await;
    assert!(!holds(&cache, &first));
    assert!(clock::now() < first.expires_at);
}

// Ours: only origins in use are refreshed.
#[tokio::test(start_paused = true)]
async fn an_unused_copy_is_not_refreshed() {
    let script = Script::default().at(ROBOTS, [text(FILE)]);
    let cache = cache(&script);
    ask(&cache).await;
    sleep(DAY * 3).await;
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_after_the_end_waits_for_the_running_refresh() {
    let late = after(20 * SECOND, text("User-agent: *"));
    let replies = [
        Reply::Answer(200, vec![("cache-control", "max-age=300")], FILE),
        late,
    ];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    let first = ask(&cache).await;
    advance(295 * SECOND).await;
    assert!(Arc::ptr_eq(&first, &ask(&cache).await));
    settle().await;
    advance(6 * SECOND).await;
    let second = ask(&cache).await;
    assert_ne!(copy(&first).digest, copy(&second).digest);
    assert_eq!(script.asked().len(), 2);
}

// RFC 9309, section 2.4: no copy is used for longer than 24 hours unless the origin is
// unreachable.
#[tokio::test(start_paused = true)]
async fn a_failed_refresh_leaves_the_copy_in_force_until_its_end() {
    let script = Script::default().at(ROBOTS, [text(FILE), status(503)]);
    let cache = cache(&script);
    let first = ask(&cache).await;
    advance(DAY / 10 * 9).await;
    ask(&cache).await;
    settle().await;
    assert!(Arc::ptr_eq(&first, &ask(&cache).await));
    settle().await;
    // No further fetch during the pause.
    assert_eq!(script.asked().len(), 2);
    advance(30 * SECOND).await;
    ask(&cache).await;
    settle().await;
    assert_eq!(script.asked().len(), 3);
    let left = u64::try_from(asked_again_in(&first)).unwrap();
    advance(Duration::from_secs(left - 10)).await;
    assert!(Arc::ptr_eq(&first, &ask(&cache).await));
    settle().await;
    assert_eq!(script.asked().len(), 4);
    advance(11 * SECOND).await;
    let stale = ask(&cache).await;
    assert_eq!(stale.stale, Some(Cause::Status));
    assert!(Arc::ptr_eq(copy(&first), copy(&stale)));
    assert_eq!(stale.fetched_at, first.fetched_at);
    // The origin was asked just before the end, and the pause continues.
    assert_eq!(script.asked().len(), 4);
    assert_eq!(asked_again_in(&stale), 108);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_finds_no_file_drops_the_copy() {
    let replies = [text(FILE), status(404), status(503)];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    ask(&cache).await;
    advance(DAY / 10 * 9).await;
    ask(&cache).await;
    settle().await;
    let none = ask(&cache).await;
    assert!(matches!(none.result, AccessResult::Unavailable));
    // Other senders may still use the copy, so its own end counts as well.
    advance(3 * HOUR).await;
    assert_eq!(cause(&*ask(&cache).await), Some(Cause::Status));
}

// RFC 9110, section 15.4.5; RFC 9111, section 4.3.4: the fields of the 304 set the
// lifetime.
#[tokio::test(start_paused = true)]
async fn a_304_confirms_the_copy() {
    let confirmed = Reply::Answer(304, vec![("cache-control", "max-age=600")], "");
    let replies = [tagged(200, "W/\"1\"", FILE), confirmed, text("")];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    let first = ask(&cache).await;
    advance(DAY).await;
    let second = ask(&cache).await;
    assert!(Arc::ptr_eq(copy(&first), copy(&second)));
    assert_eq!((second.status, held_for(&second)), (Some(200), 600));
    assert_eq!(asked_again_in(&second), 600);
    advance(600 * SECOND).await;
    assert!(copy(&*ask(&cache).await).body.is_empty());
    let etag = || Some("W/\"1\"".to_owned());
    assert_eq!(etags(&script), [None, etag(), etag()]);
}

// RFC 9111, section 3.2: fields that a 304 omits keep their values.
#[tokio::test(start_paused = true)]
async fn a_304_without_a_lifetime_keeps_the_earlier_one() {
    let fields = vec![("etag", "\"1\""), ("cache-control", "max-age=600")];
    let first = Reply::Answer(200, fields, FILE);
    let script = Script::default().at(ROBOTS, [first, tagged(304, "\"1\"", ""), text("")]);
    let cache = cache(&script);
    ask(&cache).await;
    advance(600 * SECOND).await;
    assert_eq!(asked_again_in(&*ask(&cache).await), 600);
    advance(600 * SECOND).await;
    assert!(copy(&*ask(&cache).await).body.is_empty());
}

// Ours: the record states the redirects of each fetch.
#[tokio::test(start_paused = true)]
async fn a_304_records_its_own_redirects() {
    let (long, file) = ("http://c.test/robots.txt", "http://b.test/robots.txt");
    let to = |location| Reply::Answer(301, vec![("location", location)], "");
    let script = Script::default()
        .at(ROBOTS, [to(file), to(long)])
        .at(long, [to(file)])
        .at(file, [tagged(200, "\"1\"", FILE), tagged(304, "\"1\"", "")]);
    let cache = cache(&script);
    assert_eq!(ask(&cache).await.hops.len(), 1);
    advance(DAY).await;
    let confirmed = ask(&cache).await;
    assert!(confirmed.file().is_some());
    assert_eq!(confirmed.hops.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_last_modified_alone_makes_a_request_conditional() {
    let dated = Reply::Answer(200, vec![("last-modified", "yesterday")], FILE);
    let script = Script::default().at(ROBOTS, [dated, status(304)]);
    let cache = cache(&script);
    ask(&cache).await;
    advance(DAY).await;
    assert_eq!(ask(&cache).await.stale, None);
    let known = script.log()[1].known.clone().unwrap();
    assert_eq!(known.etag, None);
    assert_eq!(known.last_modified.unwrap(), "yesterday");
}

// Ours: a 304 to an unconditional request counts as unreachable.
#[tokio::test(start_paused = true)]
async fn a_304_to_an_unconditional_request_confirms_nothing() {
    let script = Script::default().at(ROBOTS, [text(FILE), status(304)]);
    let cache = cache(&script);
    ask(&cache).await;
    advance(DAY).await;
    assert_eq!(ask(&cache).await.stale, Some(Cause::Status));
    assert_eq!(etags(&script), [None, None]);
}

// Ours: a validator is sent with every fetch.
#[tokio::test(start_paused = true)]
async fn a_validator_over_its_limit_is_not_stored() {
    for (bytes, kept) in [(1024, true), (1025, false)] {
        let etag: &str = "e".repeat(bytes).leak();
        let script = Script::default().at(ROBOTS, [tagged(200, etag, FILE), text("")]);
        let cache = cache(&script);
        ask(&cache).await;
        advance(DAY).await;
        ask(&cache).await;
        assert_eq!(script.log()[1].known.is_some(), kept, "{bytes}");
    }
}

// RFC 9110, section 8.8: a validator belongs to one resource. The copy came through a
// redirect, so only the request for the last URL carries its validator.
#[tokio::test(start_paused = true)]
async fn a_validator_is_sent_only_to_the_url_of_its_copy() {
    let (there, elsewhere) = ("http://a.test/r", "http://a.test/s");
    let script = Script::default()
        .at(
            ROBOTS,
            [to("/r"), to("/r"), to("/s"), tagged(304, "\"1\"", "")],
        )
        .at(there, [tagged(200, "\"1\"", FILE), status(304)])
        .at(elsewhere, [status(304)]);
    let cache = cache(&script);
    let first = ask(&cache).await;
    advance(DAY).await;
    let second = ask(&cache).await;
    assert!(Arc::ptr_eq(copy(&first), copy(&second)));
    assert_eq!((second.stale, second.url.as_str()), (None, there));
    assert_eq!(second.hops, [ROBOTS]);
    advance(DAY).await;
    let third = ask(&cache).await;
    assert_eq!(third.stale, Some(Cause::Status));
    // The hops are those of the copy.
    assert_eq!((third.url.as_str(), &third.hops), (there, &second.hops));
    let conditional: Vec<_> = script
        .log()
        .into_iter()
        .filter(|asked| asked.known.is_some())
        .map(|asked| asked.url)
        .collect();
    assert_eq!(conditional, [there]);
}

// Ours: no crawler's copy is confirmed for another.
#[tokio::test(start_paused = true)]
async fn a_validator_is_sent_only_for_its_own_token() {
    let script = Script::default().at(ROBOTS, [tagged(200, "\"1\"", FILE)]);
    let cache = cache(&script);
    ask_as(&cache, "http://a.test/", "OneBot").await;
    ask_as(&cache, "http://a.test/", "TwoBot").await;
    assert_eq!(etags(&script), [None, None]);
}

// Ours (`robots.stale`): at most 30 days, counted from when the origin last sent or
// confirmed the file; after that everything is disallowed.
#[tokio::test(start_paused = true)]
async fn a_copy_outlives_its_origin_for_30_days() {
    let replies = [tagged(200, "\"1\"", FILE), status(304), status(500)];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    ask(&cache).await;
    advance(DAY).await;
    let confirmed = ask(&cache).await;
    let age = || clock::now().duration_since(confirmed.fetched_at).as_secs();
    advance(DAY).await;
    let mut pauses = Vec::new();
    let end = loop {
        let snapshot = ask(&cache).await;
        if cause(&snapshot).is_some() {
            break age();
        }
        assert_eq!(snapshot.stale, Some(Cause::Status));
        assert_eq!(snapshot.fetched_at, confirmed.fetched_at);
        assert!(Arc::ptr_eq(copy(&snapshot), copy(&confirmed)));
        assert!(holds(&cache, &snapshot));
        let pause = asked_again_in(&snapshot);
        pauses.push(pause);
        advance(Duration::from_secs(pause.unsigned_abs())).await;
    };
    assert_eq!(pauses[..8], [30, 60, 120, 240, 480, 960, 1800, 1800]);
    assert_eq!(end, 30 * 86_400);
    // The pauses continue as before.
    assert_eq!(asked_again_in(&*ask(&cache).await), 1800);
}

#[tokio::test(start_paused = true)]
async fn robots_stale_sets_how_long_a_copy_outlives_its_origin() {
    for (stale, used) in [(Duration::ZERO, false), (DAY, false), (DAY + SECOND, true)] {
        let script = Script::default().at(ROBOTS, [text(FILE), status(503)]);
        let cache = cache_with(Options { stale, ..options() }, &script);
        ask(&cache).await;
        advance(DAY).await;
        let snapshot = ask(&cache).await;
        assert_eq!(snapshot.file().is_some(), used, "{stale:?}");
        if used {
            assert_eq!(asked_again_in(&snapshot), 1);
        }
    }
}

// Ours: for every reason why an origin is unreachable.
#[tokio::test(start_paused = true)]
async fn a_copy_outlives_every_cause_of_failure() {
    let refused = || Cause::from(UpstreamError::NoConnection(NoConnection::Refused));
    for (reply, expected) in [
        (status(429), Cause::Status),
        (to("/robots.txt"), Cause::Redirects),
        (Reply::Never, Cause::Timeout),
        (Reply::Panic, Cause::Internal),
        (
            Reply::Fail(refused),
            Cause::NoConnection(NoConnection::Refused),
        ),
    ] {
        let script = Script::default().at(ROBOTS, [text(FILE), reply]);
        let cache = cache(&script);
        ask(&cache).await;
        advance(DAY).await;
        assert_eq!(ask(&cache).await.stale, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_copy_ends_with_an_answer() {
    let replies = [
        text(FILE),
        status(503),
        status(503),
        text("User-agent: *"),
        status(503),
    ];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    ask(&cache).await;
    advance(DAY).await;
    for pause in [30 * SECOND, 60 * SECOND] {
        assert!(ask(&cache).await.stale.is_some());
        advance(pause).await;
    }
    let recovered = ask(&cache).await;
    assert_eq!((recovered.stale, held_for(&recovered)), (None, 86_400));
    advance(DAY).await;
    // The earlier failures no longer count.
    assert_eq!(asked_again_in(&*ask(&cache).await), 30);
}

#[tokio::test(start_paused = true)]
async fn a_404_in_between_drops_the_copy() {
    let replies = [text(FILE), status(503), status(404), status(503)];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    ask(&cache).await;
    advance(DAY).await;
    assert!(ask(&cache).await.stale.is_some());
    advance(30 * SECOND).await;
    assert!(matches!(
        ask(&cache).await.result,
        AccessResult::Unavailable
    ));
    advance(HOUR).await;
    assert_eq!(cause(&*ask(&cache).await), Some(Cause::Status));
}

// RFC 9309, section 2.3.1.4: only a copy of rules is used beyond its end.
#[tokio::test(start_paused = true)]
async fn a_missing_file_is_not_assumed_beyond_its_end() {
    let script = Script::default().at(ROBOTS, [status(404), status(503)]);
    let cache = cache(&script);
    let first = ask(&cache).await;
    advance(HOUR / 10 * 9).await;
    ask(&cache).await;
    settle().await;
    assert_eq!(script.asked().len(), 2);
    assert!(Arc::ptr_eq(&first, &ask(&cache).await));
    advance(HOUR / 10).await;
    assert_eq!(cause(&*ask(&cache).await), Some(Cause::Status));
    assert_eq!(script.asked().len(), 3);
}

// RFC 9110, section 10.2.3. Ours: at most 24 hours.
#[tokio::test(start_paused = true)]
async fn a_retry_after_lengthens_the_pause() {
    for (code, value, seconds) in [
        (503, "3600", 3600),
        (429, "3600", 3600),
        (503, "5", 30),
        (503, "999999999", 86_400),
        (500, "3600", 30),
    ] {
        let reply = Reply::Answer(code, vec![("retry-after", value)], "");
        let script = Script::default().at(ROBOTS, [reply]);
        assert_eq!(held_for(&*ask(&cache(&script)).await), seconds);
    }
}
