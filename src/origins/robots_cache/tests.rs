use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use http::HeaderMap;
use hyper::rt::Executor;
use tokio::time::{advance, sleep};

use super::*;
use crate::origins::robots_store::Forgetful;
use crate::rules::decision::Unauthorized;
use crate::tasks::Tasks;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const ROBOTS: &str = "http://a.test/robots.txt";

/// What a scripted origin does when it is asked.
#[derive(Clone)]
enum Reply {
    Answer(u16, Vec<(&'static str, &'static str)>, &'static str),
    After(Duration, Box<Self>),
    Fail(fn() -> FetchError),
    Never,
    Panic,
}

fn text(body: &'static str) -> Reply {
    Reply::Answer(200, Vec::new(), body)
}

fn status(status: u16) -> Reply {
    Reply::Answer(status, Vec::new(), "")
}

fn to(location: &'static str) -> Reply {
    Reply::Answer(301, vec![("location", location)], "")
}

fn after(time: Duration, reply: Reply) -> Reply {
    Reply::After(time, Box::new(reply))
}

/// Origins that answer by URL, the last reply again and again; others fail the
/// test.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Scripted>>);

#[derive(Default)]
struct Scripted {
    replies: HashMap<String, VecDeque<Reply>>,
    asked: Vec<(String, Option<HeaderValue>)>,
}

impl Script {
    fn at(self, url: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = replies.into_iter().collect();
        self.0
            .lock()
            .unwrap()
            .replies
            .insert(url.to_owned(), replies);
        self
    }

    fn asked(&self) -> Vec<String> {
        let asked = &self.0.lock().unwrap().asked;
        asked.iter().map(|(url, _)| url.clone()).collect()
    }

    fn next(&self, url: &str, asker: &Asker) -> Reply {
        let mut scripted = self.0.lock().unwrap();
        scripted
            .asked
            .push((url.to_owned(), asker.user_agent.clone()));
        let replies = scripted
            .replies
            .get_mut(url)
            .unwrap_or_else(|| panic!("{url} was asked for"));
        if replies.len() == 1 {
            replies[0].clone()
        } else {
            replies.pop_front().unwrap()
        }
    }
}

impl FetchRobots for Script {
    async fn fetch(&self, permit: RobotsPermit, asker: &Asker) -> Result<Hop, FetchError> {
        let mut reply = self.next(&permit.target().to_string(), asker);
        loop {
            match reply {
                Reply::After(time, then) => {
                    sleep(time).await;
                    reply = *then;
                }
                Reply::Answer(status, fields, body) => return Ok(hop(status, &fields, body)),
                Reply::Fail(error) => return Err(error()),
                Reply::Never => std::future::pending().await,
                Reply::Panic => panic!("scripted"),
            }
        }
    }
}

fn hop(status: u16, fields: &[(&'static str, &'static str)], body: &'static str) -> Hop {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_static(value));
    }
    Hop {
        status,
        headers,
        body: Bytes::from_static(body.as_bytes()),
        whole: true,
    }
}

fn options() -> Options {
    Options {
        user_agent: UserAgent::Crawler,
        max_bytes: 512_000,
        ttl: 24 * HOUR,
        ttl_min: 5 * MINUTE,
        unavailable_ttl: HOUR,
        retry_first: 30 * SECOND,
        retry_longest: 30 * MINUTE,
        redirects: 5,
        timeout: 30 * SECOND,
        max_snapshots: NonZeroUsize::new(1000).unwrap(),
        max_snapshot_bytes: 64 * 1024 * 1024,
        policy: Policy::new(Unauthorized::Allow),
    }
}

fn cache_with(options: Options, script: &Script) -> RobotsCache<Script> {
    let parts = (script.clone(), Arc::new(Forgetful) as Arc<dyn KeepRobots>);
    RobotsCache::new(options, parts, Arc::default(), TaskTracker::new())
}

fn cache(script: &Script) -> RobotsCache<Script> {
    cache_with(options(), script)
}

fn inquiry(url: &str, agent: &str) -> Inquiry {
    Inquiry {
        crawler: Crawler::parse(agent),
        target: url.parse().unwrap(),
        method: "GET".to_owned(),
    }
}

async fn ask_as(cache: &RobotsCache<Script>, url: &str, agent: &str) -> Arc<Snapshot> {
    let asker = Asker {
        user_agent: HeaderValue::from_str(agent).ok(),
        from: None,
    };
    cache.snapshot(&inquiry(url, agent), &asker).await
}

async fn ask(cache: &RobotsCache<Script>) -> Arc<Snapshot> {
    ask_as(cache, "http://a.test/page", "ExampleBot/1.0").await
}

fn cause(snapshot: &Snapshot) -> Option<Cause> {
    match snapshot.result {
        AccessResult::Unreachable(cause) => Some(cause),
        AccessResult::Successful(_) | AccessResult::Unavailable => None,
    }
}

fn held_for(snapshot: &Snapshot) -> i64 {
    snapshot
        .expires_at
        .duration_since(snapshot.fetched_at)
        .as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_askers_share_one_fetch() {
    let script = Script::default().at(ROBOTS, [after(SECOND, text("User-agent: *"))]);
    let cache = Arc::new(cache(&script));
    let tasks = Tasks::default();
    for _ in 0..1000 {
        let cache = Arc::clone(&cache);
        tasks.execute(async move {
            assert!(ask(&cache).await.copy().is_some());
        });
    }
    tasks.0.close();
    tasks.0.wait().await;
    assert_eq!(script.asked(), [ROBOTS]);
}

// decisions, "Proxy": a crawler that hangs up cancels its own exchange only.
#[tokio::test(start_paused = true)]
async fn a_fetch_survives_the_one_who_asked_for_it() {
    let script = Script::default().at(ROBOTS, [after(5 * SECOND, text(""))]);
    let cache = cache(&script);
    assert!(timeout(SECOND, ask(&cache)).await.is_err());
    let began = clock::instant();
    assert!(ask(&cache).await.copy().is_some());
    assert_eq!(clock::instant().duration_since(began).as_secs(), 4);
    assert_eq!(script.asked().len(), 1);
}

// RFC 9309, section 2.4: no longer than 24 hours; checklist 32.
#[tokio::test(start_paused = true)]
async fn a_snapshot_holds_until_it_expires_or_is_replaced() {
    let script = Script::default().at(ROBOTS, [text("User-agent: *")]);
    let cache = cache(&script);
    let first = ask(&cache).await;
    assert!(cache.holds(&first));
    advance(24 * HOUR - SECOND).await;
    assert!(Arc::ptr_eq(&first, &ask(&cache).await));
    advance(SECOND).await;
    assert!(!cache.holds(&first));
    let second = ask(&cache).await;
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(cache.holds(&second) && !cache.holds(&first));
    assert_eq!(script.asked().len(), 2);
}

// decisions, "Robots": asked again after 30 s, doubling to 30 min. RFC 9309,
// section 2.3.1.4; checklist 29 and 30.
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
    assert!(ask(&cache).await.copy().is_some());
    advance(24 * HOUR).await;
    assert_eq!(held_for(&*ask(&cache).await), 30);
}

// security, section 2.4: no crawler is judged by the file another was given.
#[tokio::test(start_paused = true)]
async fn each_product_token_has_its_own_snapshot() {
    let script = Script::default().at(ROBOTS, [status(404), text("User-agent: *")]);
    let cache = cache(&script);
    let evil = ask_as(&cache, "http://a.test/", "EvilBot/1.0").await;
    let good = ask_as(&cache, "http://a.test/", "GoodBot/1.0").await;
    assert!(evil.copy().is_none() && good.copy().is_some());
    let again = ask_as(&cache, "http://a.test/x", "goodbot/2.0").await;
    assert!(Arc::ptr_eq(&good, &again));
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_user_agent_has_one_snapshot_for_all() {
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
    assert!(Arc::ptr_eq(&one, &two) && one.token.is_none());
    let asked = &script.0.lock().unwrap().asked;
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].1.as_ref().unwrap(), "Ours/1.0");
}

// RFC 9309, section 2.3.1.2: at least five are followed; checklist 27.
#[tokio::test(start_paused = true)]
async fn five_redirects_are_followed_and_a_sixth_is_not() {
    let mut script = Script::default().at(ROBOTS, [to("/1")]);
    for (at, location) in [("1", "/2"), ("2", "/3"), ("3", "/4"), ("4", "/5")] {
        script = script.at(&format!("http://a.test/{at}"), [to(location)]);
    }
    script = script.at("http://a.test/5", [text("User-agent: *"), to("/6")]);
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(snapshot.copy().unwrap().redirects, 5);
    assert_eq!(snapshot.url, "http://a.test/5");
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(cause(&snapshot), Some(Cause::Redirects));
    assert_eq!(script.asked().len(), 12);
}

// RFC 9309, section 2.3.1.4; checklist 27 and 29.
#[tokio::test(start_paused = true)]
async fn redirects_that_lead_round_or_nowhere_are_unreachable() {
    for (reply, expected) in [
        (to("/robots.txt"), Cause::Redirects),
        (to("ftp://a.test/"), Cause::RedirectTarget),
        (to("http://u@b.test/robots.txt"), Cause::RedirectTarget),
        (status(302), Cause::RedirectTarget),
    ] {
        let script = Script::default().at(ROBOTS, [reply]);
        let snapshot = ask(&cache(&script)).await;
        assert_eq!(cause(&snapshot), Some(expected));
        assert_eq!(script.asked(), [ROBOTS]);
    }
}

// RFC 9309, section 2.3.1.2: across authorities, for the initial one; checklist
// 27.
#[tokio::test(start_paused = true)]
async fn another_robots_txt_is_followed_to_unjudged() {
    let other = "https://www.a.test/robots.txt";
    let script = Script::default()
        .at(ROBOTS, [to(other)])
        .at(other, [text("User-agent: *")]);
    let snapshot = ask(&cache(&script)).await;
    assert!(snapshot.copy().is_some());
    assert_eq!(snapshot.origin.to_string(), "http://a.test");
    assert_eq!(script.asked(), [ROBOTS, other]);
}

// security, section 2.3: a redirect would make us fetch what is disallowed.
#[tokio::test(start_paused = true)]
async fn a_page_of_another_origin_is_judged_before_it_is_asked_for() {
    let rules = "User-agent: *\nDisallow: /private";
    let script = Script::default()
        .at(ROBOTS, [to("http://b.test/private?delete")])
        .at("http://b.test/robots.txt", [text(rules)]);
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(cause(&snapshot), Some(Cause::RedirectDisallowed));
    assert_eq!(script.asked(), [ROBOTS, "http://b.test/robots.txt"]);

    let script = script
        .at(ROBOTS, [to("http://b.test/open")])
        .at("http://b.test/open", [text("User-agent: *")]);
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(snapshot.url, "http://b.test/open");
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_rules_cannot_be_told_is_not_asked_for() {
    for reply in [status(503), status(403), Reply::Panic] {
        let script = Script::default()
            .at(ROBOTS, [to("http://b.test/x")])
            .at("http://b.test/robots.txt", [reply]);
        let snapshot = ask(&cache(&script)).await;
        assert_eq!(cause(&snapshot), Some(Cause::RedirectDisallowed));
    }
}

// decisions, "Robots": two origins could wait for each other.
#[tokio::test(start_paused = true)]
async fn two_origins_that_judge_each_other_do_not_wait() {
    let second = after(SECOND, to("http://a.test/y"));
    let script = Script::default()
        .at(ROBOTS, [after(SECOND, to("http://b.test/x"))])
        .at("http://b.test/robots.txt", [second]);
    let cache = cache(&script);
    let began = clock::instant();
    let (a, b) = tokio::join!(
        ask(&cache),
        ask_as(&cache, "http://b.test/", "ExampleBot/1.0")
    );
    assert_eq!(cause(&a), Some(Cause::RedirectDisallowed));
    assert_eq!(cause(&b), Some(Cause::RedirectDisallowed));
    assert!(clock::instant().duration_since(began) < 3 * SECOND);
    assert_eq!(script.asked().len(), 2);
}

// RFC 9309, section 2.3.1.4; checklist 29.
#[tokio::test(start_paused = true)]
async fn all_hops_together_have_one_time_limit() {
    let script = Script::default()
        .at(ROBOTS, [after(20 * SECOND, to("/1"))])
        .at("http://a.test/1", [after(20 * SECOND, text(""))]);
    let began = clock::instant();
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(cause(&snapshot), Some(Cause::Timeout));
    assert_eq!(
        (snapshot.url.as_str(), snapshot.status),
        ("http://a.test/1", None)
    );
    assert_eq!(clock::instant().duration_since(began).as_secs(), 30);

    let script = Script::default().at(ROBOTS, [Reply::Never]);
    assert_eq!(cause(&*ask(&cache(&script)).await), Some(Cause::Timeout));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_panics_is_unreachable_and_tried_again() {
    let script = Script::default().at(ROBOTS, [Reply::Panic, text("")]);
    let cache = cache(&script);
    let snapshot = ask(&cache).await;
    assert_eq!(cause(&snapshot), Some(Cause::Internal));
    assert_eq!(held_for(&snapshot), 30);
    advance(30 * SECOND).await;
    assert!(ask(&cache).await.copy().is_some());
}

// RFC 9309, section 2.3.1; decisions, "Robots"; checklist 29.
#[tokio::test(start_paused = true)]
async fn failures_are_told_apart() {
    let refused = || UpstreamError::NoConnection(NoConnection::Refused).into();
    let cases: [(fn() -> FetchError, Cause); 5] = [
        (refused, Cause::NoConnection(NoConnection::Refused)),
        (|| UpstreamError::FirstByteTimeout.into(), Cause::Timeout),
        (|| UpstreamError::AmbiguousFraming.into(), Cause::Broken),
        (|| BodyError::Stalled.into(), Cause::Timeout),
        (|| FetchError::Coding, Cause::Coding),
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

// RFC 9309, section 2.4; decisions, "Robots"; checklist 32.
#[tokio::test(start_paused = true)]
async fn lifetimes_are_stated_within_bounds() {
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

// Ours: a wildcard domain can serve a large file under any number of names.
#[tokio::test(start_paused = true)]
async fn the_octets_of_snapshots_are_bounded() {
    let file: &str = "#".repeat(99_000).leak();
    let urls: Vec<String> = (0..20)
        .map(|n| format!("http://h{n}.test/robots.txt"))
        .collect();
    let script = urls.iter().fold(Script::default(), |script, url| {
        script.at(url, [text(file)])
    });
    let options = Options {
        max_snapshot_bytes: 500_000,
        ..options()
    };
    let cache = cache_with(options, &script);
    for url in &urls {
        ask_as(&cache, url, "ExampleBot").await;
    }
    cache.shared.entries.run_pending_tasks();
    assert_eq!(cache.shared.entries.entry_count(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_snapshots_is_bounded() {
    let mut script = Script::default();
    let urls: Vec<String> = (0..100)
        .map(|n| format!("http://h{n}.test/robots.txt"))
        .collect();
    for url in &urls {
        script = script.at(url, [text("")]);
    }
    let max_snapshots = NonZeroUsize::new(2).unwrap();
    let cache = cache_with(
        Options {
            max_snapshots,
            ..options()
        },
        &script,
    );
    for url in &urls {
        let snapshot = ask_as(&cache, url, "ExampleBot").await;
        assert!(cache.holds(&snapshot), "{url}");
    }
    cache.shared.entries.run_pending_tasks();
    assert_eq!(cache.shared.entries.entry_count(), 2);
    assert_eq!(script.asked(), urls);
}
