//! Decisions about inquiries: whether a URL may be requested, given everything that a
//! decision depends on. The proxy and `check` share this sequence.
//!
//! Does not know when a request is sent or what is recorded.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::names::NameLimiter;
use politesse_base::clients::client::ClientId;
use politesse_base::clock;
use politesse_decision::access::Cause;
use politesse_decision::decide::{Decision, Inquiry, Policy, decide};
use politesse_decision::snapshot::{CacheKey, Snapshot};
use politesse_net::egress::{DialError, Egress};
use politesse_robots_cache::fetch::Asker;
use politesse_robots_cache::{RobotsCache, RobotsLookup};

/// Decides inquiries, and gathers the facts that a decision needs.
#[derive(Debug)]
pub struct Decider {
    /// Addresses that may be dialled.
    pub egress: Arc<Egress>,
    /// Limit on the product tokens that a client may use. Absent if tokens cause an
    /// origin no extra load (a fixed `robots.user_agent`).
    pub names: Option<Arc<NameLimiter>>,
    /// Robots.txt files.
    pub robots: Arc<RobotsCache>,
}

/// Decision, and facts gathered on the way to it.
#[derive(Debug)]
pub struct OriginDecision {
    /// The decision.
    pub decision: Decision,
    /// Address that is dialled for the origin, if known.
    pub address: Option<IpAddr>,
    /// Lookup of the robots.txt, unless the decision needed none.
    pub robots: Option<RobotsLookup>,
}

/// Limits on how long a decision waits for a robots.txt fetch that waits for its turns.
/// The fetch itself continues when the decision stops waiting.
#[derive(Debug)]
pub struct RobotsWait<F> {
    /// Longest wait.
    pub longest: Duration,
    /// Future that completes when the decision must stop waiting, for example because
    /// the client has left.
    pub abort: F,
}

impl Decider {
    /// Decides `inquiry` by the policy that `policy` returns after all other facts are
    /// known.
    ///
    /// Egress is checked first: an origin that must not be dialled is not asked for its
    /// robots.txt either. A robots.txt missing from the cache is fetched for `asker`,
    /// within `wait`.
    pub async fn decide(
        &self,
        inquiry: &Arc<Inquiry>,
        policy: impl Fn() -> Arc<Policy>,
        asker: &Asker,
        wait: RobotsWait<impl Future<Output = ()>>,
    ) -> OriginDecision {
        let address = match self.dialled(inquiry, &policy, asker).await {
            Ok(address) => address,
            Err(decided) => return *decided,
        };
        if let Some(snapshot) = self.names_exceeded(inquiry, asker) {
            let decision = decide(inquiry, &Arc::new(snapshot), &policy(), clock::now());
            return OriginDecision::without_lookup(decision, address);
        }
        let robots = self
            .robots
            .snapshot(inquiry, asker, wait.longest, wait.abort)
            .await;
        OriginDecision {
            decision: self.decide_by(inquiry, &robots.snapshot, &policy(), asker),
            address,
            robots: Some(robots),
        }
    }

    /// Decides `inquiry` by the robots.txt in memory; `None` if no fresh one is there.
    /// Sends nothing to the origin, but may resolve its name.
    pub async fn decide_by_cache(
        &self,
        inquiry: &Arc<Inquiry>,
        policy: &Arc<Policy>,
        asker: &Asker,
    ) -> Option<OriginDecision> {
        let snapshot = self.robots.cached(inquiry, asker)?;
        let known = || Arc::clone(policy);
        Some(match self.dialled(inquiry, known, asker).await {
            Ok(address) => {
                let decision = self.decide_by(inquiry, &snapshot, policy, asker);
                OriginDecision::without_lookup(decision, address)
            }
            Err(decided) => *decided,
        })
    }

    /// Decides `inquiry` by its robots.txt and, if the policy needs the TDM file of its
    /// origin and that file is in memory, by the file.
    fn decide_by(
        &self,
        inquiry: &Arc<Inquiry>,
        robots: &Arc<Snapshot>,
        policy: &Arc<Policy>,
        asker: &Asker,
    ) -> Decision {
        let terms = policy.terms().preferences;
        if !terms.is_some_and(|terms| terms.want_tdm_file(&inquiry.target)) {
            return decide(inquiry, robots, policy, clock::now());
        }
        let both = self.robots.tdm_files.join(inquiry, asker, robots);
        decide(inquiry, &both, policy, clock::now())
    }

    /// Returns the address that would be dialled for the origin, if known, or the
    /// decision if egress already decides the inquiry.
    async fn dialled(
        &self,
        inquiry: &Arc<Inquiry>,
        policy: impl Fn() -> Arc<Policy>,
        asker: &Asker,
    ) -> Result<Option<IpAddr>, Box<OriginDecision>> {
        let origin = &inquiry.target.origin;
        let refused = match self.egress.admits(origin, asker.client.as_ref()).await {
            Ok(admitted) => return Ok(admitted.address()),
            Err(DialError::Denied(denial)) => {
                let (asked, denial) = (Arc::clone(inquiry), denial.to_string());
                let denied = Decision::denied(asked, &policy(), clock::now(), denial);
                OriginDecision::without_lookup(denied, None)
            }
            Err(DialError::NoConnection(cause)) => {
                unresolved(inquiry, &policy(), Cause::NoConnection(cause))
            }
            Err(DialError::Busy) => unresolved(inquiry, &policy(), Cause::Busy),
        };
        Err(Box::new(refused))
    }

    /// Returns a snapshot that refuses everything if the client has used more product
    /// tokens at this origin than `robots.max_names` allows. Without a client, the tokens
    /// count as the proxy's own.
    fn names_exceeded(&self, inquiry: &Inquiry, asker: &Asker) -> Option<Snapshot> {
        let names = self.names.as_ref()?;
        let client = asker.client.as_ref();
        let id = client.map_or(&ClientId::Proxy, |client| &client.id);
        let (origin, token) = (&inquiry.target.origin, inquiry.crawler.token()?);
        let until = names.admit(id, origin, token).err()?;
        let key = CacheKey::new(origin.clone(), Some(token.clone()));
        Some(Snapshot {
            expires_at: until,
            ..Snapshot::unreachable(key, Cause::Names, clock::now())
        })
    }
}

/// Decides by a snapshot that stands in for a robots.txt that was not requested, because
/// the origin could not be resolved (`cause`).
fn unresolved(inquiry: &Arc<Inquiry>, policy: &Arc<Policy>, cause: Cause) -> OriginDecision {
    let now = clock::now();
    let key = CacheKey::new(inquiry.target.origin.clone(), None);
    let snapshot = Arc::new(Snapshot::unreachable(key, cause, now));
    OriginDecision::without_lookup(decide(inquiry, &snapshot, policy, now), None)
}

impl OriginDecision {
    /// Wraps a decision for which no robots.txt was looked up or fetched.
    pub fn without_lookup(decision: Decision, address: Option<IpAddr>) -> Self {
        Self {
            decision,
            address,
            robots: None,
        }
    }
}
