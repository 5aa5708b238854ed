//! A pacer, crawlers, and an origin that logs when requests start.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::metrics::Metrics;
use crate::pace::options::Options;
use crate::pace::scheduler::{Asking, Later, Pacer, RobotsAsked, Turn};
use crate::pace::policy::{Ceilings, PacePolicy, Profile};
use crate::tasks::Tasks;
use politesse_robots::origin::Host;
use politesse_robots::pace::asked::Asked;

pub(super) const PATIENT: Duration = Duration::from_secs(3600);

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn host(name: &str) -> Host {
    name.parse().unwrap()
}

pub(super) fn asked(seconds: u64) -> Option<Arc<Asked>> {
    let crawl_delay = Some(Duration::from_secs(seconds));
    Some(Arc::new(Asked {
        crawl_delay,
        ..Asked::default()
    }))
}

/// What a profile lays down, and nothing else.
pub(super) fn profile(profile: Profile) -> Options {
    let policy = PacePolicy::new(profile, &Ceilings::default(), Vec::new());
    Options {
        policy: Arc::new(policy),
        ..Options::default()
    }
}

pub(super) fn pacer(options: Options) -> Pacer {
    Pacer::new(options, Arc::new(Metrics::default()), Tasks::default())
}

/// A pacer with a log, shared by tasks.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) pacer: Arc<Pacer>,
    begun: Instant,
    starts: Arc<Mutex<Vec<(Duration, String)>>>,
}

/// One request.
#[derive(Clone)]
pub(super) struct Get {
    pub(super) host: &'static str,
    pub(super) crawler: String,
    pub(super) asked: Option<Arc<Asked>>,
    pub(super) longest: Duration,
    /// How long the origin takes.
    pub(super) takes: Duration,
    pub(super) robots_from: Option<Timestamp>,
    pub(super) robots: RobotsAsked,
    pub(super) number: Option<u64>,
}

impl Get {
    pub(super) fn by(crawler: &str, asked: Option<&Arc<Asked>>) -> Self {
        Self {
            host: "site.example",
            crawler: crawler.to_owned(),
            asked: asked.cloned(),
            longest: PATIENT,
            takes: Duration::ZERO,
            robots_from: None,
            robots: RobotsAsked::No,
            number: None,
        }
    }

    pub(super) fn within(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    pub(super) fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }
}

impl Origin {
    pub(super) fn new(options: Options) -> Self {
        Self {
            pacer: Arc::new(pacer(options)),
            begun: clock::instant(),
            starts: Arc::default(),
        }
    }

    pub(super) fn turn(&self, get: Get) -> impl Future<Output = Result<Turn, Later>> + use<> {
        let pacer = Arc::clone(&self.pacer);
        async move {
            let name = host(get.host);
            let asking = Asking {
                host: &name,
                crawler: &get.crawler,
                address: None,
                asked: get.asked,
                longest: get.longest,
                robots_from: get.robots_from,
                robots: get.robots,
                number: get.number,
            };
            pacer.turn(asking).await
        }
    }

    /// A request from its asking to its end, in a task of its own, which has
    /// asked when this returns.
    pub(super) async fn get(&self, get: Get) -> JoinHandle<Result<(), Later>> {
        let (origin, crawler, takes) = (self.clone(), get.crawler.clone(), get.takes);
        let turn = self.turn(get);
        let task = tokio::spawn(async move {
            let turn = turn.await?;
            turn.sent();
            origin.log(crawler);
            sleep(takes).await;
            turn.observed(200, None);
            Ok(())
        });
        settle().await;
        task
    }

    pub(super) fn log(&self, crawler: String) {
        let at = clock::instant() - self.begun;
        self.starts.lock().unwrap().push((at, crawler));
    }

    /// Who started, in order.
    pub(super) fn order(&self) -> Vec<String> {
        let starts = self.starts.lock().unwrap();
        starts.iter().map(|(_, crawler)| crawler.clone()).collect()
    }

    /// When, in milliseconds.
    pub(super) fn times(&self) -> Vec<u128> {
        let starts = self.starts.lock().unwrap();
        starts.iter().map(|(at, _)| at.as_millis()).collect()
    }
}

/// Lets all tasks do what they can do now.
pub(super) async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

pub(super) async fn polled_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    use std::task::Poll;
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
