//! Caches of several nodes that fetch for each other.
//!
//! Ours: snapshots are shared, so that each file is fetched once per fleet.

use tokio::time::{advance, sleep};

use super::kept::Shelf;
use super::kit::*;
use super::shared_shelf::{SharedShelf, ShelfLink};
use super::*;
use politesse_decision::snapshot::StoredSnapshot;

/// Two nodes of a fleet.
pub(super) struct Pair {
    pub(super) shelf: Arc<SharedShelf>,
    pub(super) links: [Arc<ShelfLink>; 2],
    pub(super) caches: [RobotsCache<Script>; 2],
}

/// Returns two nodes, each with its own scripted origins.
pub(super) fn pair(scripts: [&Script; 2]) -> Pair {
    let shelf = Arc::<SharedShelf>::default();
    let links = [0, 1].map(|node| shelf.link(node));
    let [first, second] = scripts;
    let cache = |script, link: &Arc<ShelfLink>| {
        let stores = Stores {
            own: Some(Arc::<Shelf>::default()),
            shared: Some(Arc::clone(link) as Arc<_>),
        };
        cache_from(options(), script, stores)
    };
    let caches = [cache(first, &links[0]), cache(second, &links[1])];
    Pair {
        shelf,
        links,
        caches,
    }
}

/// Returns the caches of two nodes, each with its own scripted origins.
fn nodes(scripts: [&Script; 2]) -> (Arc<SharedShelf>, [RobotsCache<Script>; 2]) {
    let pair = pair(scripts);
    (pair.shelf, pair.caches)
}

/// Returns origins at which any request fails the test.
pub(super) fn nobody() -> Script {
    Script::default()
}

#[tokio::test(start_paused = true)]
async fn a_file_that_one_node_fetched_is_not_fetched_by_another() {
    for reply in [text("User-agent: *\nDisallow: /a"), status(404)] {
        let (first, second) = (Script::default().at(ROBOTS, [reply]), nobody());
        let (_, [one, other]) = nodes([&first, &second]);
        let fetched = ask(&one).await;
        let taken = ask(&other).await;
        assert_eq!(taken.fetched_at, fetched.fetched_at);
        assert_eq!(taken.expires_at, fetched.expires_at);
        assert_eq!(
            taken.file().map(|file| file.digest),
            fetched.file().map(|file| file.digest)
        );
        assert_eq!((first.asked().len(), second.asked().len()), (1, 0));
    }
}

// Ours: an origin that one node cannot reach may be reachable for another.
#[tokio::test(start_paused = true)]
async fn failures_are_not_shared() {
    let first = Script::default().at(ROBOTS, [status(503)]);
    let second = Script::default().at(ROBOTS, [text("")]);
    let (_, [one, other]) = nodes([&first, &second]);
    assert!(cause(&*ask(&one).await).is_some());
    assert!(ask(&other).await.file().is_some());
    // The node that failed checks the store before it asks the origin again.
    advance(MINUTE).await;
    assert!(ask(&one).await.file().is_some());
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_checks_the_store_again_after_waiting_for_its_turn() {
    let first = Script::default().at(ROBOTS, [after(5 * SECOND, text(""))]);
    let second = nobody();
    second.paced(10 * SECOND, 10 * SECOND);
    let (_, [one, other]) = nodes([&first, &second]);
    let (fetched, taken) = tokio::join!(ask(&one), ask(&other));
    assert_eq!(taken.fetched_at, fetched.fetched_at);
    assert_eq!((second.turns().len(), second.asked().len()), (1, 0));
}

// Ours: the next node to have a turn must find the answer of this one.
#[tokio::test(start_paused = true)]
async fn a_turn_ends_only_after_its_answer_is_shared() {
    let script = Script::default().at(ROBOTS, [text("")]);
    let (shelf, [one, _]) = nodes([&script, &nobody()]);
    shelf.takes(5 * SECOND);
    // The request on this node does not wait for that.
    let began = clock::instant();
    ask(&one).await;
    assert_eq!(clock::instant(), began);
    assert_eq!(script.turns_held(), 1);
    sleep(6 * SECOND).await;
    assert_eq!(script.turns_held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_prefers_the_newer_answer() {
    let (first, second) = (
        Script::default().at(ROBOTS, [text("User-agent: *\nDisallow: /old"), text("")]),
        nobody(),
    );
    let own = Arc::<Shelf>::default();
    let shelf = Arc::<SharedShelf>::default();
    let stores = |own: &Arc<Shelf>| Stores {
        own: Some(own.clone()),
        shared: Some(shelf.link(0)),
    };
    let one = cache_from(options(), &first, stores(&Arc::default()));
    let old = ask(&one).await;
    ask(&cache_from(options(), &second, stores(&own))).await;
    assert_eq!(own.only().snapshot.fetched_at, old.fetched_at);
    advance(23 * HOUR).await;
    ask(&one).await;
    sleep(SECOND).await;
    let again = cache_from(options(), &second, stores(&own));
    let newer = ask(&again).await;
    assert!(old.fetched_at < newer.fetched_at);
    // Its own store has the newer file as well.
    assert_eq!(own.only().snapshot.fetched_at, newer.fetched_at);
    // But an answer older than its own file is not used.
    shelf.keep(StoredSnapshot {
        snapshot: Arc::clone(&old),
        failures: 0,
        led_to: None,
    });
    let third = ask(&cache_from(options(), &second, stores(&own))).await;
    assert_eq!(third.fetched_at, newer.fetched_at);
}

#[tokio::test(start_paused = true)]
async fn a_changed_answer_replaces_the_one_in_memory() {
    let replies = [text("User-agent: *\nDisallow: /old"), text("")];
    let (first, second) = (Script::default().at(ROBOTS, replies), nobody());
    let (shelf, [one, other]) = nodes([&first, &second]);
    ask(&one).await;
    let old = ask(&other).await;
    let key = old.key.clone();
    other.take_newer(&key).await;
    assert!(holds(&other, &old));
    advance(23 * HOUR).await;
    // A refresh that no request waits for.
    ask(&one).await;
    sleep(SECOND).await;
    assert!(holds(&other, &old));
    other.take_newer(&key).await;
    let now = ask(&other).await;
    assert_eq!(now.fetched_at, shelf.only().snapshot.fetched_at);
    assert!(old.fetched_at < now.fetched_at);
    // A key that is not in memory is not loaded.
    let idle = cache_from(options(), &nobody(), Stores::default());
    idle.take_newer(&key).await;
    assert_eq!(idle.worker.table.len(), 0);
}
