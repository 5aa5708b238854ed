//! Snapshots that outlive the memory of the cache, and the process.
//!
//! All ours: after a restart no origin is asked again, and memory holds a limited number
//! of snapshots, the store all others (docs/decisions/008-robots-cache.md).

use std::collections::HashMap;
use std::future::ready;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Mutex, Weak};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{advance, sleep};

use super::kit::*;
use super::*;
use crate::store::{EntryTable, StoreFuture, StoreUnread};
use crate::worker::LOAD_TIMEOUT;
use politesse_decision::snapshot::{AccessResult, RobotsFile, StoredSnapshot, Validators};
use politesse_robots::Dialect;

const FILE: &str = "User-agent: *\nDisallow: /a";

/// Store in memory, with faults.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    kept: Mutex<HashMap<CacheKey, StoredSnapshot>>,
    loads: Mutex<usize>,
    fault: Mutex<Fault>,
    handed_out: Mutex<Option<Weak<EntryTable>>>,
    /// Whether the last saved snapshot had already been handed out.
    late: Mutex<Option<bool>>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Fault {
    #[default]
    None,
    Fails,
    Hangs,
    Panics,
}

impl Shelf {
    fn with(kept: StoredSnapshot) -> Arc<Self> {
        let shelf = Self::default();
        shelf.keep(kept);
        Arc::new(shelf)
    }

    pub(super) fn keep(&self, kept: StoredSnapshot) {
        self.kept
            .lock()
            .unwrap()
            .insert(kept.snapshot.key.clone(), kept);
    }

    fn at(&self, key: &CacheKey) -> Option<StoredSnapshot> {
        self.kept.lock().unwrap().get(key).cloned()
    }

    pub(super) fn only(&self) -> StoredSnapshot {
        self.kept.lock().unwrap().values().next().unwrap().clone()
    }
}

impl SnapshotStore for Shelf {
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        _: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, StoreUnread>> {
        *self.loads.lock().unwrap() += 1;
        Box::pin(async move {
            let fault = *self.fault.lock().unwrap();
            match fault {
                Fault::None => Ok(self.kept.lock().unwrap().get(key).cloned()),
                Fault::Fails => Err(StoreUnread),
                Fault::Hangs => std::future::pending().await,
                Fault::Panics => panic!("scripted"),
            }
        })
    }

    fn keys<'a>(&'a self, host: &'a Host) -> StoreFuture<'a, Result<Vec<CacheKey>, StoreUnread>> {
        let kept = self.kept.lock().unwrap();
        let keys: Vec<_> = kept
            .keys()
            .filter(|key| key.origin.host() == host)
            .cloned()
            .collect();
        Box::pin(ready(Ok(keys)))
    }

    fn save(&self, kept: StoredSnapshot) -> StoreFuture<'_, ()> {
        if let Some(snapshots) = &*self.handed_out.lock().unwrap() {
            let latest = snapshots.upgrade().unwrap().latest(&kept.snapshot.key);
            *self.late.lock().unwrap() = Some(latest.is_some());
        }
        self.keep(kept);
        Box::pin(ready(()))
    }
}

fn ago(time: Duration) -> Timestamp {
    clock::now() - SignedDuration::try_from(time).unwrap()
}

fn from_now(time: Duration) -> Timestamp {
    clock::now() + SignedDuration::try_from(time).unwrap()
}

fn snapshot(result: AccessResult, lifetime: Range<Timestamp>) -> Snapshot {
    let inquiry = inquiry("http://a.test/", "ExampleBot/1.0");
    Snapshot {
        key: CacheKey::new(inquiry.target.origin, inquiry.crawler.token().cloned()),
        url: ROBOTS.to_owned(),
        hops: Vec::new(),
        status: Some(200),
        fetched_at: lifetime.start,
        expires_at: lifetime.end,
        result,
        stale: None,
        tdm: None,
    }
}

fn file() -> AccessResult {
    let mut copy = RobotsFile::new(Bytes::from_static(FILE.as_bytes()));
    copy.validators = Validators {
        etag: Some(HeaderValue::from_static("\"1\"")),
        last_modified: None,
    };
    AccessResult::Successful(Arc::new(copy))
}

fn kept(snapshot: Snapshot, failures: u32) -> StoredSnapshot {
    StoredSnapshot {
        snapshot: Arc::new(snapshot),
        failures,
        led_to: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_snapshot_in_the_store_is_not_fetched() {
    for result in [
        file(),
        AccessResult::Unavailable,
        AccessResult::Unreachable(Cause::Timeout),
    ] {
        let shelf = Shelf::with(kept(snapshot(result, ago(HOUR)..from_now(HOUR)), 3));
        let script = Script::default().at(ROBOTS, [status(503)]);
        let cache = cache_on(options(), &script, shelf.clone());
        let restored = ask(&cache).await;
        assert!(Arc::ptr_eq(&restored, &shelf.only().snapshot));
        advance(HOUR / 2).await;
        assert!(Arc::ptr_eq(&restored, &ask(&cache).await));
        assert_eq!((script.asked().len(), *shelf.loads.lock().unwrap()), (0, 1));
        advance(HOUR / 2).await;
        assert!(!Arc::ptr_eq(&restored, &ask(&cache).await));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_snapshot_is_also_refreshed_before_its_end() {
    let times = ago(HOUR * 22)..from_now(HOUR * 2);
    let shelf = Shelf::with(kept(snapshot(file(), times), 0));
    let script = Script::default().at(ROBOTS, [status(304)]);
    let cache = cache_on(options(), &script, shelf.clone());
    ask(&cache).await;
    ask(&cache).await;
    sleep(SECOND).await;
    assert_eq!(script.asked().len(), 1);
    assert_eq!(asked_again_in(&shelf.only().snapshot), 86_399);
}

// Ours: after a failed early refresh, a restart does not make the proxy ask the origin
// earlier.
#[tokio::test(start_paused = true)]
async fn the_pause_after_a_failed_refresh_outlives_a_restart() {
    let times = ago(HOUR * 22)..from_now(HOUR * 2);
    let shelf = Shelf::with(kept(snapshot(file(), times), 0));
    let wait = Reply::Answer(503, vec![("retry-after", "3600")], "");
    let script = Script::default().at(ROBOTS, [wait, status(304)]);
    let before = cache_on(options(), &script, shelf.clone());
    ask(&before).await;
    ask(&before).await;
    sleep(SECOND).await;
    let restarted = cache_on(options(), &script, shelf.clone());
    assert_eq!(ask(&restarted).await.file().unwrap().body, FILE);
    advance(HOUR - 3 * SECOND).await;
    ask(&restarted).await;
    sleep(SECOND).await;
    assert_eq!(script.asked().len(), 1);
    advance(SECOND * 3).await;
    assert_eq!(ask(&restarted).await.stale, None);
    sleep(SECOND).await;
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_expired_snapshot_in_the_store_is_the_earlier_copy() {
    for (reply, stale, fetches) in [
        (status(304), None, 1),
        (status(503), Some(Cause::Status), 1),
    ] {
        let times = ago(HOUR * 48)..ago(HOUR * 24);
        let shelf = Shelf::with(kept(snapshot(file(), times.clone()), 2));
        let script = Script::default().at(ROBOTS, [reply]);
        let cache = cache_on(options(), &script, shelf.clone());
        let restored = ask(&cache).await;
        assert_eq!(restored.stale, stale);
        assert_eq!(restored.file().unwrap().body, FILE);
        let etag = script.log()[0].known.clone().unwrap().etag.unwrap();
        assert_eq!(
            (etag.to_str().unwrap(), script.asked().len()),
            ("\"1\"", fetches)
        );
        if stale.is_some() {
            // After two earlier failures the pause is four times the first one.
            let failures = shelf.at(&restored.key).unwrap().failures;
            assert_eq!((asked_again_in(&restored), failures), (120, 3));
            assert_eq!(restored.fetched_at, times.start);
        }
    }
}

// Ours (`robots.stale`): at most 30 days, with or without restarts.
#[tokio::test(start_paused = true)]
async fn a_copy_in_the_store_gets_no_older_than_30_days() {
    let day = HOUR * 24;
    for (age, used) in [(day * 30 - SECOND, true), (day * 30, false)] {
        let shelf = Shelf::with(kept(snapshot(file(), ago(age)..ago(day * 20)), 5));
        let script = Script::default().at(ROBOTS, [status(503)]);
        let cache = cache_on(options(), &script, shelf);
        assert_eq!(ask(&cache).await.file().is_some(), used);
    }
}

// Ours: with such a clock the age of the entry is unknown.
#[tokio::test(start_paused = true)]
async fn after_the_clock_is_set_back_the_origin_is_asked() {
    let times = from_now(HOUR)..from_now(HOUR * 25);
    for (reply, cause_then) in [(status(503), Some(Cause::Status)), (status(304), None)] {
        let shelf = Shelf::with(kept(snapshot(file(), times.clone()), 0));
        let script = Script::default().at(ROBOTS, [reply]);
        let cache = cache_on(options(), &script, shelf);
        let asked = ask(&cache).await;
        assert_eq!(script.asked().len(), 1);
        assert_eq!((cause(&asked), asked.stale), (cause_then, None));
    }
}

// RFC 9309, section 2.4: a shortened lifetime also applies to stored entries.
#[tokio::test(start_paused = true)]
async fn a_shortened_ttl_applies_to_stored_snapshots() {
    for (ttl, fetches) in [(HOUR * 3, 0), (HOUR * 2, 1)] {
        let times = ago(HOUR * 2)..from_now(HOUR * 20);
        let shelf = Shelf::with(kept(snapshot(file(), times), 0));
        let script = Script::default().at(ROBOTS, [text("")]);
        let cache = cache_on(Options { ttl, ..options() }, &script, shelf);
        ask(&cache).await;
        assert_eq!(script.asked().len(), fetches, "{ttl:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_answer_is_saved() {
    let replies = [text(FILE), status(503), status(404), status(503)];
    let script = Script::default().at(ROBOTS, replies);
    let shelf = Arc::new(Shelf::default());
    let cache = cache_on(options(), &script, shelf.clone());
    for (pause, failures) in [
        (HOUR * 24, 0),
        (30 * SECOND, 1),
        (HOUR, 0),
        (30 * SECOND, 1),
    ] {
        let asked = ask(&cache).await;
        sleep(Duration::from_millis(1)).await;
        let saved = shelf.at(&asked.key).unwrap();
        assert!(Arc::ptr_eq(&saved.snapshot, &asked));
        assert_eq!(saved.failures, failures);
        advance(pause).await;
    }
}

// Ours: a store that hangs delays no request for long. In that case a failure is not
// saved: the store may have a file that can be used for the next 30 days.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_no_request_for_long_and_keeps_its_file() {
    for (reply, is_saved) in [
        (text("User-agent: *"), true),
        (status(404), true),
        (status(503), false),
    ] {
        let times = ago(HOUR * 48)..ago(HOUR * 24);
        let shelf = Arc::new(Shelf {
            fault: Mutex::new(Fault::Hangs),
            ..Shelf::default()
        });
        shelf.keep(kept(snapshot(file(), times), 0));
        let cache = cache_on(
            options(),
            &Script::default().at(ROBOTS, [reply]),
            shelf.clone(),
        );
        let began = clock::instant();
        let asked = ask(&cache).await;
        assert_eq!(clock::instant().duration_since(began), LOAD_TIMEOUT);
        let saved = shelf.at(&asked.key);
        let is_asked = |saved: StoredSnapshot| Arc::ptr_eq(&asked, &saved.snapshot);
        assert_eq!(saved.is_some_and(is_asked), is_saved);
        assert!(
            shelf
                .at(&asked.key.shared())
                .unwrap()
                .snapshot
                .file()
                .is_some()
        );
    }
}

// Ours: a stored file is used as soon as it can be read, no matter how often the origin
// failed before (RFC 9309, section 2.3.1.4: a cached copy).
#[tokio::test(start_paused = true)]
async fn an_unread_file_in_the_store_is_read_at_the_next_fetch() {
    for fault in [Fault::Hangs, Fault::Fails, Fault::Panics] {
        let shelf = Arc::new(Shelf {
            fault: Mutex::new(fault),
            ..Shelf::default()
        });
        shelf.keep(kept(snapshot(file(), ago(HOUR * 48)..ago(HOUR * 24)), 0));
        let script = Script::default().at(ROBOTS, [status(503), status(503), status(503)]);
        let cache = cache_on(options(), &script, shelf.clone());
        for _ in 0..2 {
            assert!(ask(&cache).await.file().is_none());
            advance(MINUTE * 10).await;
        }
        *shelf.fault.lock().unwrap() = Fault::None;
        let asked = ask(&cache).await;
        assert!(asked.file().is_some(), "{fault:?}");
        assert!(shelf.at(&asked.key).unwrap().snapshot.file().is_some());
    }
}

// Ours: no file is used that was given to another crawler.
#[tokio::test(start_paused = true)]
async fn a_copy_fetched_under_another_name_is_not_used() {
    let shelf = Arc::new(Shelf::default());
    let named = |agent: &str| Options {
        user_agent: UserAgent::Fixed(agent.to_owned()),
        ..options()
    };
    for (agent, fetches) in [("Ours/1.0", 1), ("Ours/1.1", 0), ("Theirs/1.0", 1)] {
        let script = Script::default().at(ROBOTS, [text(FILE)]);
        ask(&cache_on(named(agent), &script, shelf.clone())).await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(script.asked().len(), fetches, "{agent}");
    }
}

// Ours: nothing is requested again after a restart at any moment, because the snapshot of
// a decision is on its way to the disk before the decision exists.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_saved_before_it_is_handed_out() {
    let shelf = Arc::new(Shelf::default());
    let script = Script::default().at(ROBOTS, [text(FILE)]);
    let cache = cache_on(options(), &script, shelf.clone());
    let snapshots = Arc::downgrade(&cache.worker.table);
    *shelf.handed_out.lock().unwrap() = Some(snapshots);
    ask(&cache).await;
    assert_eq!(*shelf.late.lock().unwrap(), Some(false));
}

// Source: ARCHITECTURE.md, invariant 4.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_allows_nothing() {
    let shelf = Shelf {
        fault: Mutex::new(Fault::Panics),
        ..Shelf::default()
    };
    let script = Script::default().at(ROBOTS, [text(FILE)]);
    let cache = cache_on(options(), &script, Arc::new(shelf));
    assert_eq!(cause(&*ask(&cache).await), Some(Cause::Internal));
}

// Ours: a limited number in memory, the rest on disk.
#[tokio::test(start_paused = true)]
async fn evicted_snapshots_come_back_from_the_store() {
    let urls: Vec<String> = (0..20)
        .map(|n| format!("http://h{n}.test/robots.txt"))
        .collect();
    let script = urls.iter().fold(Script::default(), |script, url| {
        script.at(url, [text(FILE)])
    });
    let options = Options {
        max_snapshots: NonZeroUsize::new(2).unwrap(),
        ..options()
    };
    let shelf = Arc::new(Shelf::default());
    let cache = cache_on(options, &script, shelf.clone());
    for _ in 0..3 {
        for url in &urls {
            ask_as(&cache, url, "ExampleBot").await;
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(cache.worker.table.len(), 2);
    }
    assert_eq!(script.asked(), urls);
    assert!(40 <= *shelf.loads.lock().unwrap());
}
