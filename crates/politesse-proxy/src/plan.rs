//! Plans: for each URL of a question, the decision about a request that is not made, and
//! the time at which it could start.
//!
//! Uses the same functions that decide and pace real requests. Nothing is recorded and no
//! turn is taken, but a robots.txt missing from the cache may be fetched, as for a real
//! request. Does not know where questions come from or how answers are written.

use std::collections::HashMap;
use std::future::pending;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::crawler_table::{KnownCrawler, RequestSender};
use super::decider::{OriginDecision, RobotsWait};
use super::exchange::Proxy;
use super::problem::MalformedRequest;
use super::turns::{TurnDecider, owner, turn_request};
use politesse_base::clients::client::Client;
use politesse_base::clock;
use politesse_decision::decide::{Decision, Inquiry, Policy, Reason, decide};
use politesse_decision::delay::Delay;
use politesse_decision::record::Effect;
use politesse_decision::snapshot::Snapshot;
use politesse_directives::PurposeSet;
use politesse_pace::{StartEstimate, TurnOwner, TurnRequest};
use politesse_robots::origin::{Host, Origin, Target};
use politesse_robots_cache::fetch::Asker;

/// Time limit for answering one question. URLs not decided by then stay unknown.
pub const PLAN_TIME_MAX: Duration = Duration::from_secs(15);

/// URLs that a crawler might request.
pub struct PlanRequest {
    /// `User-Agent` of the crawler.
    pub user_agent: HeaderValue,
    /// Client to which its turns would be charged.
    pub sharer: Arc<Client>,
    /// Address of the client.
    pub address: IpAddr,
    /// Source of robots.txt files.
    pub source: RobotsSource,
    /// URLs to plan.
    pub targets: Vec<Target>,
}

/// Source of the robots.txt files used for planning.
#[derive(Debug, Clone)]
pub enum RobotsSource {
    /// The cache, and the origin for files not in the cache.
    Origin,
    /// The cache only.
    Cache,
    /// Files given in the question, in place of those of the sites.
    Given(GivenRobots),
}

/// Robots.txt files that are part of a question, or that were in force at an earlier
/// time.
#[derive(Debug, Clone)]
pub struct GivenRobots {
    /// Time of the decisions; determines which operator overrides are in force.
    pub at: Timestamp,
    /// Files by origin. A URL of any other origin stays unknown.
    pub snapshots: HashMap<Origin, Arc<Snapshot>>,
}

impl GivenRobots {
    /// Decides by these files. Plans no start, because the files may be from another
    /// time.
    fn plan(&self, inquiry: &Arc<Inquiry>, policy: &Arc<Policy>) -> Plan {
        let snapshot = self.snapshots.get(&inquiry.target.origin);
        let decision = snapshot.map(|snapshot| {
            let read = Snapshot::read_by(Arc::clone(snapshot), policy.terms().dialect);
            decide(inquiry, &read, policy, self.at)
        });
        Plan {
            decision,
            ..Plan::default()
        }
    }
}

/// Plan of one request.
#[derive(Debug, Default)]
pub struct Plan {
    /// Decision, or `None` if the robots.txt is unknown.
    pub decision: Option<Decision>,
    /// Earliest start. If robots.txt is unreachable or unknown, the time at which it can
    /// be requested. `None` if the request would be refused, or if the start is unknown.
    pub start: Option<PlannedStart>,
    /// Whether the request would be answered with the cached robots.txt.
    pub is_cached: bool,
}

/// Earliest time at which a request could start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlannedStart {
    /// Time from planning to the start.
    pub wait: Duration,
    /// Reason for the wait, if it is not zero.
    pub reason: Option<Reason>,
    /// Minimum time from this start to the next one at the host, if known.
    pub pause: Option<Duration>,
}

impl Plan {
    /// Returns the effect that the decision would have.
    pub fn effect(&self) -> Option<Effect> {
        let decision = self.decision.as_ref()?;
        Some(if self.is_cached {
            Effect::Cached
        } else {
            Effect::of(decision.evidence())
        })
    }
}

impl From<Delay> for PlannedStart {
    fn from(delay: Delay) -> Self {
        let wait = delay.wait().unwrap_or_default();
        Self {
            wait,
            reason: (!wait.is_zero()).then_some(delay.reason),
            pause: None,
        }
    }
}

impl From<StartEstimate> for PlannedStart {
    fn from(estimate: StartEstimate) -> Self {
        Self {
            pause: Some(estimate.pause),
            ..Self::from(estimate.delay)
        }
    }
}

/// Plans the requests for all URLs of `request`, in their order, within
/// [`PLAN_TIME_MAX`].
///
/// Credentials are not considered, because none is presented.
///
/// # Errors
///
/// [`MalformedRequest::Names`] if the proxy would refuse this `User-Agent`.
pub async fn plan(proxy: &Proxy, request: &PlanRequest) -> Result<Vec<Plan>, MalformedRequest> {
    let known = proxy.crawlers.unproved(&RequestSender {
        user_agent: Some(request.user_agent.as_bytes()),
        client: request.address,
        credential: None,
        purposes: PurposeSet::default(),
    });
    if known.crawler.is_cut() {
        return Err(MalformedRequest::Names);
    }
    let mut by_origin: HashMap<&Origin, Vec<usize>> = HashMap::new();
    for (place, target) in request.targets.iter().enumerate() {
        by_origin.entry(&target.origin).or_default().push(place);
    }
    let planner = Planner {
        turns: &proxy.turns,
        request,
        asker: Asker {
            // The proxy itself asks, so that a question does not use up the client's
            // shares or the product tokens that it may use at an origin
            // (`robots.max_names`).
            client: None,
            entry: known.entry,
            user_agent: Some(request.user_agent.clone()),
            from: None,
        },
        crawler: known,
        left: Mutex::new(by_origin.into_values().collect()),
        plans: Mutex::new(request.targets.iter().map(|_| Plan::default()).collect()),
    };
    // Eight origins are planned concurrently: each can take as long as a robots.txt
    // fetch, and a slow one must not delay the rest.
    let lanes = async {
        tokio::join!(
            planner.lane(),
            planner.lane(),
            planner.lane(),
            planner.lane(),
            planner.lane(),
            planner.lane(),
            planner.lane(),
            planner.lane(),
        )
    };
    // Plans finished by the deadline are returned. A fetch that is still running
    // continues, so that the next question finds the file in the cache.
    let _ = timeout(PLAN_TIME_MAX, lanes).await;
    let plans = planner.plans.into_inner();
    Ok(plans.unwrap_or_else(PoisonError::into_inner))
}

/// State of planning one request.
struct Planner<'a> {
    /// Decides and paces, as for real requests.
    turns: &'a TurnDecider,
    request: &'a PlanRequest,
    /// Crawler that the request is for.
    crawler: KnownCrawler,
    /// Crawler and client for which robots.txt files are fetched.
    asker: Asker,
    /// Indices of the URLs of each origin not yet started.
    left: Mutex<Vec<Vec<usize>>>,
    /// Plans of the URLs, in the order of the request.
    plans: Mutex<Vec<Plan>>,
}

impl Planner<'_> {
    /// Plans one origin after the other until none is left. Several lanes run at once.
    async fn lane(&self) {
        while let Some(indices) = self.next_origin() {
            for index in indices {
                let Some(target) = self.request.targets.get(index) else {
                    continue;
                };
                let plan = self.plan(target).await;
                self.keep(index, plan);
                // With a cached robots.txt, planning never awaits. Without this yield, a
                // thousand URLs would keep a thread from serving crawlers.
                yield_now().await;
            }
        }
    }

    /// Stores the plan of the URL at `index`.
    fn keep(&self, index: usize, plan: Plan) {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = plans.get_mut(index) {
            *slot = plan;
        }
    }

    /// Takes an origin that is not started, and returns the indices of its URLs.
    fn next_origin(&self) -> Option<Vec<usize>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.pop()
    }

    async fn plan(&self, target: &Target) -> Plan {
        let inquiry = Arc::new(Inquiry {
            crawler: self.crawler.crawler.clone(),
            target: target.clone(),
            method: "GET".to_owned(),
        });
        let decider = &self.turns.decider;
        let policy = &self.turns.policy_for(self.crawler.preferences.as_ref());
        let asker = &self.asker;
        if let Some(name) = &self.crawler.foreign_name {
            return Plan {
                decision: Some(Decision::foreign_name(inquiry, policy, clock::now(), name)),
                ..Plan::default()
            };
        }
        let decided = match &self.request.source {
            RobotsSource::Given(given) => return given.plan(&inquiry, policy),
            RobotsSource::Origin => {
                let wait = RobotsWait {
                    longest: PLAN_TIME_MAX,
                    abort: pending(),
                };
                let policy = || Arc::clone(policy);
                Some(decider.decide(&inquiry, policy, asker, wait).await)
            }
            RobotsSource::Cache => decider.decide_by_cache(&inquiry, policy, asker).await,
        };
        match decided {
            Some(decided) => self.plan_by(decided),
            None => self.unknown(target.origin.host()),
        }
    }

    fn plan_by(&self, decided: OriginDecision) -> Plan {
        let decision = decided.decision;
        let evidence = decision.evidence();
        let is_cached = self.turns.is_cached(&decision);
        let start = if self.turns.is_to_be_sent(&decision) {
            Some(self.start(&decision, decided.address))
        } else if is_cached {
            Some(PlannedStart::default())
        } else if evidence.is_out_of_date() || evidence.lacks_an_answer_for_now() {
            let unknown = self.unknown(evidence.inquiry.target.origin.host());
            let queued = decided.robots.and_then(|robots| robots.queued);
            // The fetch may be queued at another host, because of a redirect.
            let wait = queued.map(|queued| PlannedStart {
                wait: queued.wait,
                ..unknown.start.unwrap_or_default()
            });
            return Plan {
                start: wait.or(unknown.start),
                ..unknown
            };
        } else {
            (evidence.ruling.reason == Reason::Unreachable).then(|| PlannedStart {
                wait: evidence.holds_for(clock::now()),
                reason: Some(Reason::Unreachable),
                pause: None,
            })
        };
        Plan {
            decision: Some(decision),
            start,
            is_cached,
        }
    }

    /// Plans a request whose robots.txt is unknown: it cannot start before the robots.txt
    /// can be requested.
    fn unknown(&self, host: &Host) -> Plan {
        let owner = TurnOwner::of_robots(&self.request.sharer);
        let robots = TurnRequest::robots(host, &owner, Duration::ZERO);
        let start = PlannedStart::from(self.turns.scheduler.estimate(&robots));
        Plan {
            start: Some(PlannedStart {
                pause: None,
                ..start
            }),
            ..Plan::default()
        }
    }

    /// Estimates the start of a request that would be sent.
    fn start(&self, decision: &Decision, address: Option<IpAddr>) -> PlannedStart {
        let evidence = decision.evidence();
        let owner = owner(
            &evidence.inquiry,
            &self.request.sharer,
            self.request.address,
        );
        let request = turn_request(evidence, &owner, address);
        self.turns.scheduler.estimate(&request).into()
    }
}
