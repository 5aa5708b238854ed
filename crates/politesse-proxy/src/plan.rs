//! Plans of requests that are not made: the decision about each URL, and when a
//! request for it could start.
//!
//! By the functions that decide and pace requests. Nothing is recorded and no turn
//! is taken; a robots.txt that is not in the cache may be fetched, as for a request.
//! Does not know how the questions came, nor how the answers are written.

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

/// Longest time that the answers of one request take. URLs that are not decided by
/// then stay unknown.
pub const PLAN_TIME_MAX: Duration = Duration::from_secs(15);

/// URLs that one crawler might ask for.
pub struct PlanRequest {
    /// `User-Agent` of the crawler.
    pub user_agent: HeaderValue,
    /// Client by whom its turns would be counted.
    pub sharer: Arc<Client>,
    /// Address of the client.
    pub address: IpAddr,
    /// Source of robots.txt files.
    pub source: RobotsSource,
    /// URLs.
    pub targets: Vec<Target>,
}

/// Source of the robots.txt files by which URLs are planned.
#[derive(Debug, Clone)]
pub enum RobotsSource {
    /// The cache, and the origin for what is not in it.
    Origin,
    /// The cache alone.
    Cache,
    /// Files of the question, whatever the sites have now.
    Given(GivenRobots),
}

/// Robots.txt files that a question brings, or that were in force at some time.
#[derive(Debug, Clone)]
pub struct GivenRobots {
    /// Time of the decisions, which says which overrides of the operator are in force.
    pub at: Timestamp,
    /// Files by origin; a URL of another origin stays unknown.
    pub snapshots: HashMap<Origin, Arc<Snapshot>>,
}

impl GivenRobots {
    /// Plans by these files. No start follows from them: they may be of another time.
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
    /// Decision; `None` if the robots.txt is not known.
    pub decision: Option<Decision>,
    /// Earliest start. Of a request that would be refused because its robots.txt
    /// cannot be had, and of an unknown one: the time at which that can be asked
    /// for. `None` if the request would be refused, or that is not known.
    pub start: Option<PlannedStart>,
    /// Whether the answer would be our copy of a robots.txt.
    pub is_cached: bool,
}

/// Time at which a request could start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlannedStart {
    /// Time until then, from the moment of the plan.
    pub wait: Duration,
    /// Reason for the wait, if there is one.
    pub reason: Option<Reason>,
    /// Least time from this start to the next one at the host, if that is known.
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
/// Credentials play no part: nobody has shown one.
///
/// # Errors
///
/// [`MalformedRequest::Names`] if the proxy would refuse such a `User-Agent`.
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
            // For the proxy itself: a question must not use up the names by which the
            // client may come to an origin (`robots.max_names`), nor its shares.
            client: None,
            entry: known.entry,
            user_agent: Some(request.user_agent.clone()),
            from: None,
        },
        crawler: known,
        left: Mutex::new(by_origin.into_values().collect()),
        plans: Mutex::new(request.targets.iter().map(|_| Plan::default()).collect()),
    };
    // Eight origins at a time: each may take as long as a fetch of its robots.txt,
    // and a slow one must not hold up the rest.
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
    // What is planned by then is answered all the same. A fetch that is not waited
    // for any longer goes on, so that the next question finds its file.
    let _ = timeout(PLAN_TIME_MAX, lanes).await;
    let plans = planner.plans.into_inner();
    Ok(plans.unwrap_or_else(PoisonError::into_inner))
}

/// Work on one request.
struct Planner<'a> {
    turns: &'a TurnDecider,
    request: &'a PlanRequest,
    crawler: KnownCrawler,
    asker: Asker,
    /// Places of the URLs of each origin that is not begun yet.
    left: Mutex<Vec<Vec<usize>>>,
    plans: Mutex<Vec<Plan>>,
}

impl Planner<'_> {
    /// Plans one origin after the other, until none is left.
    async fn lane(&self) {
        while let Some(places) = self.next_origin() {
            for place in places {
                let Some(target) = self.request.targets.get(place) else {
                    continue;
                };
                let plan = self.plan(target).await;
                self.keep(place, plan);
                // By a cached robots.txt nothing is waited for: a thousand URLs
                // would keep a thread from the requests of crawlers.
                yield_now().await;
            }
        }
    }

    fn keep(&self, place: usize, plan: Plan) {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = plans.get_mut(place) {
            *slot = plan;
        }
    }

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
                    client_gone: pending(),
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
            // The fetch may wait at another host that a redirect led to.
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

    /// Plans a request whose robots.txt is not known: it starts no sooner than that
    /// can be asked for.
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
