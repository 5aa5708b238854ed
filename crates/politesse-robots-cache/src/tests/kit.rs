//! Origins that answer on cue, and a cache that uses them.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Response;
use tokio::time::sleep;

use super::*;
use crate::fetch::{FetchError, RobotsRequest};
use crate::shared_answers::{SharedAnswers, SharedStore};
use crate::store::SnapshotStore;
use politesse_base::testing::follow_tokio;
use politesse_decision::decide::{Policy, Unauthorized};
use politesse_decision::snapshot::{AccessResult, RobotsBody, Validators};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const ROBOTS: &str = "http://a.test/robots.txt";

/// Behaviour of a scripted origin when it gets a request.
#[derive(Clone)]
pub(super) enum Reply {
    Answer(u16, Vec<(&'static str, &'static str)>, &'static str),
    After(Duration, Box<Self>),
    Fail(fn() -> Cause),
    Never,
    Panic,
}

pub(super) fn text(body: &'static str) -> Reply {
    Reply::Answer(200, Vec::new(), body)
}

pub(super) fn status(status: u16) -> Reply {
    Reply::Answer(status, Vec::new(), "")
}

pub(super) fn to(location: &'static str) -> Reply {
    Reply::Answer(301, vec![("location", location)], "")
}

pub(super) fn after(time: Duration, reply: Reply) -> Reply {
    Reply::After(time, Box::new(reply))
}

/// Origins that answer by URL, repeating their last reply; any other URL fails the test.
#[derive(Clone, Default)]
pub(super) struct Script(Arc<Mutex<Scripted>>);

#[derive(Default)]
pub(super) struct Scripted {
    replies: HashMap<String, VecDeque<Reply>>,
    asked: Vec<Asked>,
    turns: Vec<String>,
    /// Each clone of this is a turn.
    turn: Arc<()>,
    /// Wait for each turn, and the wait that is announced.
    pause: Option<(Duration, Duration)>,
    /// Time from a turn to its request; normally zero.
    stall: Duration,
}

/// Request that an origin got.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) url: String,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) known: Option<Validators>,
}

impl Script {
    pub(super) fn at(self, url: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = replies.into_iter().collect();
        self.0
            .lock()
            .unwrap()
            .replies
            .insert(url.to_owned(), replies);
        self
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.log().into_iter().map(|asked| asked.url).collect()
    }

    /// Returns all requests, in order.
    pub(super) fn log(&self) -> Vec<Asked> {
        self.0.lock().unwrap().asked.clone()
    }

    /// Makes turns take `pause`, and announces them with a wait of `announced`.
    pub(super) fn paced(&self, pause: Duration, announced: Duration) {
        self.0.lock().unwrap().pause = Some((pause, announced));
    }

    /// Delays each request by `time` after its turn came.
    pub(super) fn stalls(&self, time: Duration) {
        self.0.lock().unwrap().stall = time;
    }

    /// Returns the hosts at which turns were taken.
    pub(super) fn turns(&self) -> Vec<String> {
        self.0.lock().unwrap().turns.clone()
    }

    /// Returns how many turns have not ended.
    pub(super) fn turns_held(&self) -> usize {
        Arc::strong_count(&self.0.lock().unwrap().turn) - 1
    }

    fn next(&self, url: &str, asker: &Asker, known: Option<&Validators>) -> Reply {
        let mut scripted = self.0.lock().unwrap();
        scripted.asked.push(Asked {
            url: url.to_owned(),
            user_agent: asker.user_agent.clone(),
            known: known.cloned(),
        });
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

impl RobotsFetcher for Script {
    type Turn = Arc<()>;

    async fn turn(&self, host: &Host, _: &Arc<Client>) -> Option<Arc<()>> {
        let pause = self.0.lock().unwrap().pause;
        if let Some((pause, _)) = pause {
            sleep(pause).await;
        }
        let mut scripted = self.0.lock().unwrap();
        scripted.turns.push(host.to_string());
        Some(Arc::clone(&scripted.turn))
    }

    fn wait(&self, _: &Host, _: &Arc<Client>) -> Duration {
        let pause = self.0.lock().unwrap().pause;
        pause.map_or(Duration::ZERO, |(_, announced)| announced)
    }

    async fn fetch(
        &self,
        request: RobotsRequest<'_>,
        _: &mut Arc<()>,
    ) -> Result<Response<RobotsBody>, FetchError> {
        let stall = self.0.lock().unwrap().stall;
        sleep(stall).await;
        if request.claim.is_some_and(|claim| !claim.is_held()) {
            return Err(FetchError::TurnLost);
        }
        let url = request.permit.target().to_string();
        let mut reply = self.next(&url, request.asker, request.known);
        loop {
            match reply {
                Reply::After(time, then) => {
                    sleep(time).await;
                    reply = *then;
                }
                Reply::Answer(status, fields, body) => return Ok(response(status, &fields, body)),
                Reply::Fail(error) => return Err(error().into()),
                Reply::Never => pending().await,
                Reply::Panic => panic!("scripted"),
            }
        }
    }
}

pub(super) fn response(
    status: u16,
    fields: &[(&'static str, &'static str)],
    body: &'static str,
) -> Response<RobotsBody> {
    let mut response = Response::new(RobotsBody::from(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status.try_into().unwrap();
    for (name, value) in fields {
        let value = HeaderValue::from_static(value);
        response.headers_mut().append(*name, value);
    }
    response
}

pub(crate) fn options() -> Options {
    // Lifetimes are measured on the wall clock, which must pause with the other one.
    follow_tokio();
    Options {
        user_agent: UserAgent::Crawler,
        max_bytes: 512_000,
        ttl: 24 * HOUR,
        ttl_min: 5 * MINUTE,
        unavailable_ttl: HOUR,
        stale: 30 * 24 * HOUR,
        retry_first: 30 * SECOND,
        retry_longest: 30 * MINUTE,
        redirects: 5,
        timeout: 30 * SECOND,
        max_fetches: NonZeroUsize::new(1024).unwrap(),
        max_waiting: NonZeroUsize::new(1024).unwrap(),
        max_snapshots: NonZeroUsize::new(1000).unwrap(),
        max_snapshot_bytes: 64 * 1024 * 1024,
        policy: Policy::new(Unauthorized::Allow),
    }
}

pub(super) fn cache_with(options: Options, script: &Script) -> RobotsCache<Script> {
    cache_from(options, script, Stores::default())
}

pub(super) fn cache_on(
    options: Options,
    script: &Script,
    store: Arc<dyn SnapshotStore>,
) -> RobotsCache<Script> {
    let stores = Stores {
        own: Some(store),
        shared: None,
    };
    cache_from(options, script, stores)
}

/// Stores of a cache.
#[derive(Default)]
pub(super) struct Stores {
    pub(super) own: Option<Arc<dyn SnapshotStore>>,
    pub(super) shared: Option<Arc<dyn SharedStore>>,
}

pub(super) fn cache_from(options: Options, script: &Script, stores: Stores) -> RobotsCache<Script> {
    let sources = CacheSources {
        changes: None,
        fetcher: script.clone(),
        store: stores.own,
        shared: stores.shared.map(SharedAnswers::new),
        slots: options.fetch_shares(Arc::default()),
        latest_policy: Arc::new(ArcSwap::from_pointee(options.policy.clone())),
    };
    RobotsCache::new(options, sources, Arc::default(), TaskTracker::new())
}

pub(super) fn cache(script: &Script) -> RobotsCache<Script> {
    cache_with(options(), script)
}

pub(crate) fn inquiry(url: &str, agent: &str) -> Inquiry {
    Inquiry {
        crawler: Crawler::parse(agent),
        target: url.parse().unwrap(),
        method: "GET".to_owned(),
    }
}

pub(super) async fn ask_as(cache: &RobotsCache<Script>, url: &str, agent: &str) -> Arc<Snapshot> {
    let asker = Asker {
        client: None,
        entry: None,
        user_agent: HeaderValue::from_str(agent).ok(),
        from: None,
    };
    let inquiry = inquiry(url, agent);
    let known = cache.snapshot(&inquiry, &asker, Duration::MAX, pending());
    known.await.snapshot
}

pub(super) async fn ask(cache: &RobotsCache<Script>) -> Arc<Snapshot> {
    ask_as(cache, "http://a.test/page", "ExampleBot/1.0").await
}

/// Returns whether a snapshot is the one in force.
pub(super) fn holds(cache: &RobotsCache<Script>, snapshot: &Arc<Snapshot>) -> bool {
    let now = cache.current(snapshot);
    now.is_some_and(|now| Arc::ptr_eq(&now, snapshot))
}

pub(super) fn cause(snapshot: &Snapshot) -> Option<Cause> {
    match snapshot.result {
        AccessResult::Unreachable(cause) => Some(cause),
        AccessResult::Successful(_) | AccessResult::Unavailable => None,
    }
}

/// Returns the seconds from now until the origin is asked again.
pub(super) fn asked_again_in(snapshot: &Snapshot) -> i64 {
    snapshot.expires_at.duration_since(clock::now()).as_secs()
}

pub(super) fn held_for(snapshot: &Snapshot) -> i64 {
    snapshot
        .expires_at
        .duration_since(snapshot.fetched_at)
        .as_secs()
}
