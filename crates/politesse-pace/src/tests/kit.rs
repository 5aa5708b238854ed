//! A scheduler, crawlers, and an origin that logs when requests start.

use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use crate::options::Options;
use crate::policy::{PaceLimits, PacePolicy, Profile};
use crate::{Embedding, RobotsFetch, Scheduler, Turn, TurnOwner, TurnRequest};
use politesse_base::clients::client::Client;
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_decision::delay::Delay;
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

pub(super) const PATIENT: Duration = Duration::from_secs(3600);

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn host(name: &str) -> Host {
    name.parse().unwrap()
}

pub(super) fn asked(seconds: u64) -> Option<Arc<PaceRecords>> {
    let crawl_delay = Some(Duration::from_secs(seconds));
    Some(Arc::new(PaceRecords {
        crawl_delay,
        ..PaceRecords::default()
    }))
}

/// Returns the options of a profile, with defaults for everything else.
pub(super) fn profile(profile: Profile) -> Options {
    let policy = PacePolicy::new(profile, &PaceLimits::default(), Vec::new());
    Options {
        policy: Arc::new(policy),
        ..Options::default()
    }
}

pub(super) fn scheduler(options: Options) -> Scheduler {
    politesse_base::testing::follow_tokio();
    Scheduler::new(options, Arc::new(Metrics::default()), Tasks::default())
}

/// A scheduler with a log of starts, shared by tasks.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) clients: Arc<ClientDirectory>,
    begun: Instant,
    starts: Arc<Mutex<Vec<(Duration, String)>>>,
}

/// One request.
#[derive(Clone)]
pub(super) struct Get {
    pub(super) host: &'static str,
    pub(super) crawler: String,
    /// Address of the client.
    pub(super) client: u32,
    pub(super) asked: Option<Arc<PaceRecords>>,
    pub(super) longest: Duration,
    /// Time that the origin takes to answer.
    pub(super) takes: Duration,
    pub(super) robots_from: Option<Timestamp>,
    pub(super) robots: RobotsFetch,
    pub(super) number: Option<u64>,
    pub(super) embedding: Option<Embedding>,
}

impl Get {
    pub(super) fn by(crawler: &str, asked: Option<&Arc<PaceRecords>>) -> Self {
        Self {
            host: "site.example",
            crawler: crawler.to_owned(),
            client: 0,
            asked: asked.cloned(),
            longest: PATIENT,
            takes: Duration::ZERO,
            robots_from: None,
            robots: RobotsFetch::NotNeeded,
            number: None,
            embedding: None,
        }
    }

    pub(super) fn at(self, client: u32) -> Self {
        Self { client, ..self }
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
            scheduler: Arc::new(scheduler(options)),
            clients: Arc::default(),
            begun: clock::instant(),
            starts: Arc::default(),
        }
    }

    /// Returns the client with this number.
    pub(super) fn client(&self, number: u32) -> Arc<Client> {
        self.clients.at(IpAddr::V4(number.into()))
    }

    pub(super) fn owner(&self, get: &Get) -> TurnOwner {
        TurnOwner {
            client: self.client(get.client),
            crawler: Some(get.crawler.as_str().into()),
        }
    }

    pub(super) fn turn(&self, get: Get) -> impl Future<Output = Result<Turn, Delay>> + use<> {
        let scheduler = Arc::clone(&self.scheduler);
        let owner = self.owner(&get);
        async move {
            let name = host(get.host);
            let request = TurnRequest {
                host: &name,
                owner: &owner,
                address: None,
                pace_records: get.asked,
                max_wait: get.longest,
                robots_fetched_at: get.robots_from,
                robots_fetch: get.robots,
                arrival: get.number,
                embedding: get.embedding,
            };
            scheduler.turn(request).await
        }
    }

    /// Runs a request from start to end in a task of its own. The request has asked for
    /// its turn when this returns.
    pub(super) async fn get(&self, get: Get) -> JoinHandle<Result<(), Delay>> {
        let (origin, crawler, takes) = (self.clone(), get.crawler.clone(), get.takes);
        let (owner, embedding) = (self.owner(&get), get.embedding);
        let turn = self.turn(get);
        let task = tokio::spawn(async move {
            let turn = turn.await?;
            turn.mark_sent();
            origin.log(crawler);
            sleep(takes).await;
            turn.record_status(200, None);
            if let Some(embedding) = embedding {
                turn.give_page(&owner, &embedding);
            }
            Ok(())
        });
        settle().await;
        task
    }

    pub(super) fn log(&self, crawler: String) {
        let at = clock::instant() - self.begun;
        self.starts.lock().unwrap().push((at, crawler));
    }

    /// Returns the crawlers of the starts, in order.
    pub(super) fn order(&self) -> Vec<String> {
        let starts = self.starts.lock().unwrap();
        starts.iter().map(|(_, crawler)| crawler.clone()).collect()
    }

    /// Returns the times of the starts, in milliseconds.
    pub(super) fn times(&self) -> Vec<u128> {
        let starts = self.starts.lock().unwrap();
        starts.iter().map(|(at, _)| at.as_millis()).collect()
    }
}

/// Lets all tasks run until they wait.
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
