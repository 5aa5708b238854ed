//! Fetches that wait for their turns at a host. All ours.

use super::kit::*;
use super::*;
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::tasks::Tasks;
use politesse_decision::decide::{Verdict, decide};
use politesse_pace::options as pace;
use politesse_pace::{RobotsFetch, Scheduler, TurnOwner, TurnRequest};
use politesse_robots::PaceRecords;
use tokio::time::sleep;

/// Makes the next turn come after `pause`, and announces it with a wait of `announced`.
fn paced(script: Script, pause: Duration, announced: Duration) -> Script {
    script.paced(pause, announced);
    script
}

fn file() -> Script {
    Script::default().at(ROBOTS, [text("User-agent: *")])
}

async fn ask_within(cache: &RobotsCache<Script>, patience: Duration) -> RobotsLookup {
    let inquiry = inquiry("http://a.test/page", "ExampleBot/1.0");
    let asker = Asker {
        client: None,
        entry: None,
        user_agent: None,
        from: None,
    };
    let gone = std::future::pending();
    cache.snapshot(&inquiry, &asker, patience, gone).await
}

// Ours: the wait is limited by the patience of the crawler.
#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_for_a_turn_than_its_patience() {
    let rows: [(u32, u32, u64); 4] = [
        // (announced, patience, waited for)
        (60, 5, 0),
        (60, 0, 0),
        (0, 5, 5),
        (60, 59, 0),
    ];
    for (announced, patience, waited) in rows {
        let cache = cache(&paced(file(), MINUTE, announced * SECOND));
        let begun = clock::instant();
        let known = ask_within(&cache, patience * SECOND).await;
        assert_eq!(cause(&known.snapshot), Some(Cause::Busy), "{announced}");
        let QueuedFetch { host, wait } = known.queued.unwrap();
        assert_eq!(host.to_string(), "a.test");
        assert_eq!(wait.as_secs(), u64::from(announced));
        let took = clock::instant() - begun;
        assert_eq!((known.waited.as_secs(), took.as_secs()), (waited, waited));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_reports_how_long_it_waited_for_a_turn() {
    let cache = cache(&paced(file(), MINUTE, MINUTE));
    let known = ask_within(&cache, MINUTE + SECOND).await;
    assert!(known.snapshot.file().is_some() && known.was_fetched);
    assert_eq!((known.waited.as_secs(), known.queued), (60, None));
    let again = ask_within(&cache, Duration::ZERO).await;
    assert!(again.snapshot.file().is_some() && !again.was_fetched);
    assert_eq!(again.waited, Duration::ZERO);
}

// Ours: the response time of an origin does not count as waiting for a turn.
#[tokio::test(start_paused = true)]
async fn patience_does_not_limit_the_response_time_of_an_origin() {
    let script = Script::default().at(ROBOTS, [after(20 * SECOND, text("User-agent: *"))]);
    let known = ask_within(&cache(&script), Duration::ZERO).await;
    assert!(known.snapshot.file().is_some());
    assert_eq!(known.waited, Duration::ZERO);
}

// Ours: another request may have the patience that this one lacks.
#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_does_not_affect_waiting_ones() {
    let script = paced(file(), MINUTE, Duration::ZERO);
    let cache = cache(&script);
    let patient = ask_within(&cache, HOUR);
    let left = async {
        sleep(SECOND).await;
        ask_within(&cache, SECOND).await
    };
    let (patient, left) = tokio::join!(patient, left);
    assert!(patient.snapshot.file().is_some());
    assert!(left.queued.is_some());
    assert_eq!(script.asked(), [ROBOTS]);
}

// Ours: redirects on one host share a turn. With a pause longer than any wait between
// them, a robots.txt would never arrive. Another host needs its own turn.
#[tokio::test(start_paused = true)]
async fn redirects_on_one_host_share_a_turn() {
    let script = Script::default()
        .at(ROBOTS, [to("/1")])
        .at("http://a.test/1", [to("https://a.test/2")])
        .at("https://a.test/2", [to("http://b.test/robots.txt")])
        .at("http://b.test/robots.txt", [to("/3")])
        .at("http://b.test/3", [text("User-agent: *")])
        .at("https://a.test/robots.txt", [text("")]);
    let cache = cache(&script);
    assert!(ask(&cache).await.file().is_some());
    // The turn is given up to check the rules of other origins: three turns at each host,
    // one of them for its own robots.txt.
    let turns = ["a.test", "a.test", "a.test", "b.test", "b.test", "b.test"];
    assert_eq!(script.turns(), turns);
}

// Ours: the snapshot in force when the turn comes decides; if that has expired, none
// does.
#[tokio::test(start_paused = true)]
async fn a_robots_txt_fetched_during_a_wait_decides() {
    let closed = "User-agent: *\nDisallow: /";
    let script = Script::default().at(ROBOTS, [says("User-agent: *"), says(closed)]);
    let cache = cache(&script);
    let scheduler = Scheduler::new(pace::Options::default(), Arc::default(), Tasks::default());
    let inquiry = Arc::new(inquiry("http://a.test/page", "ExampleBot/1.0"));
    let crawl_delay = Some(400 * SECOND);
    let asked = PaceRecords {
        crawl_delay,
        ..PaceRecords::default()
    };
    let owner = TurnOwner {
        client: ClientDirectory::default().at([127, 0, 0, 1].into()),
        crawler: Some("ExampleBot".into()),
    };
    let request = TurnRequest {
        host: inquiry.target.origin.host(),
        owner: &owner,
        address: None,
        pace_records: Some(Arc::new(asked)),
        max_wait: HOUR,
        robots_fetched_at: None,
        robots_fetch: RobotsFetch::NotNeeded,
        arrival: None,
        embedding: None,
    };
    let before = ask_within(&cache, HOUR).await.snapshot;
    let first = scheduler.turn(request.clone()).await.unwrap();
    first.mark_sent();
    drop(first);
    let waits = async {
        let turn = scheduler.turn(request).await.unwrap();
        assert_eq!(turn.waited().as_secs(), 400);
        cache.current(&before)
    };
    let changes = async {
        sleep(301 * SECOND).await;
        ask_within(&cache, HOUR).await
    };
    let (now, _) = tokio::join!(waits, changes);
    let policy = Arc::new(options().policy);
    let decision = decide(&inquiry, &now.unwrap(), &policy, clock::now());
    assert_eq!(decision.ruling().verdict, Verdict::Disallow);
    sleep(300 * SECOND).await;
    assert!(cache.current(&before).is_none());
}

/// Returns a robots.txt with the shortest possible lifetime.
fn says(text: &'static str) -> Reply {
    Reply::Answer(200, vec![("cache-control", "max-age=1")], text)
}
