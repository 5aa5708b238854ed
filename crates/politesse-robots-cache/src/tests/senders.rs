//! Answers that an origin gives to some senders of a product token and not to others.
//!
//! Ours: docs/decisions/031-shared-robots.md.

use super::kept::Shelf;
use super::shared::pair;
use super::*;
use politesse_base::clients::directory::ClientDirectory;
use politesse_decision::digest::Digest;
use politesse_decision::snapshot::{AccessResult, StoredSnapshot};

const GOOD: &str = "GoodBot/1.0";
const EVIL: &str = "GoodBot/1.0 evil";

/// Asks for a page as a sender from the address 127.0.0.`last`.
async fn ask_from(cache: &RobotsCache<Script>, last: u8, agent: &str) -> Arc<Snapshot> {
    let asker = Asker {
        client: Some(ClientDirectory::default().at([127, 0, 0, last].into())),
        user_agent: HeaderValue::from_str(agent).ok(),
        ..Asker::default()
    };
    let inquiry = inquiry("http://a.test/page", agent);
    let known = cache.snapshot(&inquiry, &asker, Duration::MAX, std::future::pending());
    known.await.snapshot
}

fn allows(snapshot: &Snapshot) -> bool {
    matches!(snapshot.result, AccessResult::Unavailable)
}

#[tokio::test(start_paused = true)]
async fn an_answer_other_than_a_file_applies_only_to_its_sender() {
    for wall in [403, 404, 503, 301] {
        let script = Script::default().at(ROBOTS, [status(wall), text("User-agent: *")]);
        let cache = cache(&script);
        let walled = ask_from(&cache, 1, EVIL).await;
        assert!(walled.file().is_none());
        assert!(Arc::ptr_eq(&walled, &ask_from(&cache, 2, EVIL).await));
        let file = ask_from(&cache, 2, GOOD).await;
        assert!(file.file().is_some(), "{wall}");
        // The file applies to all senders of the name, because it can only be stricter.
        assert!(Arc::ptr_eq(&file, &ask_from(&cache, 1, EVIL).await));
        assert!(Arc::ptr_eq(&file, &ask_from(&cache, 1, "GoodBot/2").await));
        assert_eq!(script.asked().len(), 2, "{wall}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_by_one_sender_does_not_loosen_the_rules_of_another() {
    let script = Script::default().at(ROBOTS, [text("User-agent: *"), status(403), text("")]);
    let cache = cache(&script);
    ask_from(&cache, 2, GOOD).await;
    advance(22 * HOUR).await;
    ask_from(&cache, 1, EVIL).await;
    tokio::time::sleep(SECOND).await;
    assert!(allows(&*ask_from(&cache, 1, EVIL).await));
    assert_eq!(script.asked().len(), 2);
    assert!(ask_from(&cache, 2, GOOD).await.file().is_some());
    tokio::time::sleep(SECOND).await;
    assert_eq!(script.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_sender_takes_no_file_from_others() {
    let script = Script::default().at(ROBOTS, [text("User-agent: *"), status(503), status(503)]);
    let cache = cache(&script);
    ask_from(&cache, 2, GOOD).await;
    advance(24 * HOUR).await;
    for (agent, pause) in [(EVIL, 30), (GOOD, 30)] {
        let stale = ask_from(&cache, 1, agent).await;
        assert_eq!(stale.stale, Some(Cause::Status));
        assert_eq!(asked_again_in(&stale), pause);
    }
    assert_eq!(script.asked().len(), 3);
}

// Ours: a failed connection concerns the network, not the sender.
#[tokio::test(start_paused = true)]
async fn a_failure_without_an_answer_applies_to_all_senders() {
    let script = Script::default().at(ROBOTS, [Reply::Fail(|| Cause::Timeout)]);
    let cache = cache(&script);
    ask_from(&cache, 1, EVIL).await;
    assert_eq!(
        cause(&*ask_from(&cache, 2, GOOD).await),
        Some(Cause::Timeout)
    );
    assert_eq!(script.asked().len(), 1);
}

// Ours: a failed refresh is postponed, even if the answer in force is for one sender
// only.
#[tokio::test(start_paused = true)]
async fn a_failed_refresh_for_one_sender_is_not_repeated_at_once() {
    let fails = || Reply::Fail(|| Cause::Timeout);
    let script = Script::default().at(ROBOTS, [status(404), fails(), fails(), fails()]);
    let cache = cache(&script);
    ask_from(&cache, 1, GOOD).await;
    advance(HOUR * 58 / 60).await;
    for _ in 0..30 {
        assert!(allows(&*ask_from(&cache, 1, GOOD).await));
        tokio::time::sleep(SECOND / 10).await;
    }
    assert_eq!(script.asked().len(), 2);
}

// Ours: each of them may find the answer of another before its own fetch begins.
#[tokio::test]
async fn many_concurrent_senders_each_get_their_own_answer() {
    let script = Script::default().at(ROBOTS, vec![status(404); 40]);
    let cache = Arc::new(cache(&script));
    let asked: Vec<_> = (0..40)
        .map(|number| {
            let cache = Arc::clone(&cache);
            tokio::spawn(
                async move { ask_from(&cache, number, &format!("GoodBot/1.{number}")).await },
            )
        })
        .collect();
    for asked in asked {
        assert!(allows(&asked.await.unwrap()));
    }
    assert_eq!(script.asked().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_the_fetch_of_another_sender_ask_again() {
    let wall = after(SECOND, status(403));
    let script = Script::default().at(ROBOTS, [wall, text("User-agent: *")]);
    let cache = cache(&script);
    let (evil, good, again) = tokio::join!(
        ask_from(&cache, 1, EVIL),
        ask_from(&cache, 2, GOOD),
        ask_from(&cache, 3, "GoodBot/3"),
    );
    assert!(allows(&evil));
    assert!(good.file().is_some() && Arc::ptr_eq(&good, &again));
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn after_eight_senders_of_a_client_the_strictest_answer_applies() {
    let mut replies = vec![status(404), status(403), status(404)];
    replies.extend(vec![status(410); 6]);
    replies.push(text("User-agent: *"));
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    for number in 0..8 {
        ask_from(&cache, 1, &format!("GoodBot/{number}")).await;
    }
    assert_eq!(script.asked().len(), 8);
    for number in 8..20 {
        let strictest = ask_from(&cache, 1, &format!("GoodBot/{number}")).await;
        assert_eq!(strictest.status, Some(403));
        assert!(holds(&cache, &strictest));
    }
    assert_eq!(script.asked().len(), 8);
    // Another client has its own senders, and the answers of these do not loosen its
    // rules.
    assert_eq!(ask_from(&cache, 2, "GoodBot/20").await.status, Some(410));
    assert!(ask_from(&cache, 2, "GoodBot/21").await.file().is_some());
    assert_eq!(script.asked().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn senders_are_counted_anew_after_an_hour() {
    let script = Script::default().at(ROBOTS, [status(404)]);
    let cache = cache(&script);
    for number in 0..9 {
        ask_from(&cache, 1, &format!("GoodBot/{number}")).await;
    }
    assert_eq!(script.asked().len(), 8);
    advance(HOUR).await;
    ask_from(&cache, 1, "GoodBot/9").await;
    assert_eq!(script.asked().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn beyond_eight_senders_pauses_grow_as_for_a_single_one() {
    let script = Script::default().at(ROBOTS, [status(500)]);
    let cache = cache(&script);
    let mut number = 0;
    let mut ask = async || {
        number += 1;
        ask_from(&cache, 1, &format!("GoodBot/{number}")).await
    };
    for _ in 0..8 {
        ask().await;
    }
    for pause in [60, 120, 240, 480] {
        advance(Duration::from_secs(pause / 2)).await;
        assert_eq!(asked_again_in(&*ask().await), pause.cast_signed());
        assert_eq!(asked_again_in(&*ask().await), pause.cast_signed());
    }
    assert_eq!(script.asked().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn crawler_entries_share_no_snapshot() {
    let script = Script::default().at(ROBOTS, [text("User-agent: *")]);
    let cache = cache(&script);
    for entry in [None, Some(Digest::of(b"1")), Some(Digest::of(b"2")), None] {
        let asker = Asker {
            entry,
            user_agent: HeaderValue::from_str(GOOD).ok(),
            ..Asker::default()
        };
        let inquiry = inquiry("http://a.test/page", GOOD);
        let known = cache.snapshot(&inquiry, &asker, Duration::MAX, std::future::pending());
        assert_eq!(known.await.snapshot.key.entry, entry);
    }
    assert_eq!(script.asked().len(), 3);
}

// Ours: a site may answer by any of the fields that are sent.
#[tokio::test(start_paused = true)]
async fn a_different_from_field_is_a_different_sender() {
    let script = Script::default().at(ROBOTS, [status(403), text("User-agent: *")]);
    let cache = cache(&script);
    for (from, is_file) in [(Some("' or 1=1"), false), (None, true)] {
        let asker = Asker {
            user_agent: HeaderValue::from_str(GOOD).ok(),
            from: from.map(HeaderValue::from_static),
            ..Asker::default()
        };
        let inquiry = inquiry("http://a.test/page", GOOD);
        let known = cache.snapshot(&inquiry, &asker, Duration::MAX, std::future::pending());
        assert_eq!(known.await.snapshot.file().is_some(), is_file);
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_fixed_user_agent_every_answer_applies_to_all() {
    let fixed = Options {
        user_agent: UserAgent::Fixed("Ours/1.0".to_owned()),
        ..options()
    };
    let script = Script::default().at(ROBOTS, [status(403)]);
    let cache = cache_with(fixed, &script);
    let evil = ask_from(&cache, 1, EVIL).await;
    assert!(Arc::ptr_eq(&evil, &ask_from(&cache, 2, GOOD).await));
}

#[tokio::test(start_paused = true)]
async fn rows_of_an_earlier_version_loosen_nothing_after_a_restart() {
    let shelf = Arc::new(Shelf::default());
    let script = Script::default().at(ROBOTS, [status(403), text("User-agent: *")]);
    let before = cache_on(options(), &script, shelf.clone());
    let walled = ask_from(&before, 1, EVIL).await;
    // Stored for all senders, as earlier versions did.
    let old = Snapshot {
        key: walled.key.shared(),
        ..(*walled).clone()
    };
    shelf.keep(StoredSnapshot {
        snapshot: Arc::new(old),
        failures: 0,
        led_to: None,
    });
    let restarted = cache_on(options(), &script, shelf.clone());
    assert!(Arc::ptr_eq(&walled, &ask_from(&restarted, 1, EVIL).await));
    assert_eq!(script.asked().len(), 1);
    assert!(ask_from(&restarted, 2, GOOD).await.file().is_some());
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_node_loosens_nothing() {
    let first = Script::default().at(ROBOTS, [status(403)]);
    let second = Script::default().at(ROBOTS, [text("User-agent: *")]);
    let pair = pair([&first, &second]);
    let [one, other] = &pair.caches;
    assert!(allows(&*ask_from(one, 1, EVIL).await));
    // The same sender gets the answer that the other node received.
    assert!(allows(&*ask_from(other, 2, EVIL).await));
    assert_eq!(second.asked().len(), 0);
    assert!(ask_from(other, 2, GOOD).await.file().is_some());
}
