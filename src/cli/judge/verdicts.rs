//! Verdicts on past requests, by the function that `check` and the proxy call.
//!
//! Requests are judged in batches, on all cores. Does not know how the verdicts are
//! used.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

use super::outcome::{CrawlerOutcome, JudgedRequest, JudgedRuling, UnknownReason};
use super::past_request::{PastAgent, PastRequest};
use super::robots_index::{FoundRobots, RobotsIndex};
use super::statements::PurposeQuestion;
use crate::cli::check::context::{CheckContext, target};
use crate::cli::check::saved::{SavedFileError, SavedFolder};
use politesse_decision::access::Cause;
use politesse_decision::decide::{Inquiry, Reason, ruling};
use politesse_decision::snapshot::{CacheKey, Snapshot};
use politesse_directives::PurposeSet;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::{Origin, Target};

/// Minimum number of requests that a core judges in a row: neighbours often share an
/// origin.
const CHUNK: usize = 256;

/// Source of the robots.txt files.
pub(super) enum PastRobotsSource<'a> {
    /// The archive that contains the requests.
    Archive(Box<RobotsIndex<'a>>),
    /// A folder of saved files.
    Folder(&'a SavedFolder<'a>),
}

impl PastRobotsSource<'_> {
    fn find(&self, origin: &Origin, at: Option<Timestamp>) -> FoundRobots {
        match self {
            Self::Archive(index) => index.find(origin, at),
            Self::Folder(folder) => folder.find(origin).map_err(|error| match &*error {
                SavedFileError::Missing(_) => UnknownReason::NoRobots,
                SavedFileError::Unreadable { .. } => UnknownReason::Unreadable,
            }),
        }
    }
}

/// Judge of past requests.
pub(super) struct PastJudge<'a> {
    /// Policy and settings, as for `check`.
    pub(super) context: &'a CheckContext,
    pub(super) robots: PastRobotsSource<'a>,
    /// Crawler to assume for requests whose files name none.
    pub(super) agent: Option<&'a str>,
    /// Crawlers to judge each request for, instead of the one that made it.
    pub(super) agents: &'a [Crawler],
    /// Purposes whose denials are looked for; if empty, no statements are read.
    pub(super) purposes: PurposeSet,
}

impl PastJudge<'_> {
    /// Judges requests, and returns them in their order.
    pub(super) fn judge_all(&self, requests: Vec<PastRequest>) -> Vec<JudgedRequest> {
        requests
            .into_par_iter()
            .with_min_len(CHUNK)
            .map_init(HashMap::new, |crawlers, request| {
                self.judge(request, crawlers)
            })
            .collect()
    }

    /// Judges a request. `crawlers` caches the crawlers of this thread.
    fn judge(
        &self,
        request: PastRequest,
        crawlers: &mut HashMap<PastAgent, Crawler>,
    ) -> JudgedRequest {
        // Parsed as `check` parses it.
        let target = target(&request.url).ok();
        let found = match &target {
            None => Err(UnknownReason::NoUrl),
            Some(_) if request.is_tunnel => Err(UnknownReason::Tunnel),
            Some(target) => Ok((target, self.robots.find(&target.origin, request.at))),
        };
        let outcome = |crawler: Option<Crawler>| match &found {
            Err(reason) => CrawlerOutcome {
                result: Err(*reason),
                crawler,
                denials: Vec::new(),
            },
            Ok((target, robots)) => {
                let result = self.rule(&request, target, crawler.as_ref(), robots);
                self.with_denials(
                    &request,
                    target,
                    CrawlerOutcome {
                        result,
                        crawler,
                        denials: Vec::new(),
                    },
                )
            }
        };
        let (first, rest) = match self.agents.split_first() {
            Some((first, rest)) => (Some(first.clone()), rest),
            None => (self.past_crawler(&request.agent, crawlers), &[][..]),
        };
        let decisive = outcome(first);
        let others: Vec<_> = rest.iter().cloned().map(Some).map(outcome).collect();
        let mut judged = JudgedRequest {
            request,
            target,
            decisive,
            others: Vec::new(),
        };
        others.into_iter().for_each(|other| judged.add(other));
        judged
    }

    /// Adds the denials of the purposes to an outcome.
    fn with_denials(
        &self,
        request: &PastRequest,
        target: &Target,
        outcome: CrawlerOutcome,
    ) -> CrawlerOutcome {
        if self.purposes.is_empty() {
            return outcome;
        }
        let question = PurposeQuestion {
            request,
            target,
            purposes: self.purposes,
        };
        let denials = question.denials(&outcome);
        CrawlerOutcome { denials, ..outcome }
    }

    /// Returns the crawler that made a request, if it is known.
    fn past_crawler(
        &self,
        agent: &PastAgent,
        crawlers: &mut HashMap<PastAgent, Crawler>,
    ) -> Option<Crawler> {
        match (agent, self.agent) {
            (PastAgent::Untold, None) => None,
            (PastAgent::Untold, Some(agent)) => {
                Some(self.crawler(&PastAgent::Named(agent.to_owned()), crawlers))
            }
            (agent, _) => Some(self.crawler(agent, crawlers)),
        }
    }

    /// Returns the crawler for a name, as `check` does. A crawl has few names, and
    /// finding the tokens in one takes longer than judging.
    fn crawler(&self, agent: &PastAgent, crawlers: &mut HashMap<PastAgent, Crawler>) -> Crawler {
        /// A crawl that changes its name with each request must not fill memory.
        const CRAWLERS_MAX: usize = 64;
        if let Some(crawler) = crawlers.get(agent) {
            return crawler.clone();
        }
        let crawler = self.context.crawler(match agent {
            PastAgent::Named(text) => Some(text),
            PastAgent::Untold | PastAgent::Silent => None,
        });
        if crawlers.len() == CRAWLERS_MAX {
            crawlers.clear();
        }
        crawlers.insert(agent.clone(), crawler.clone());
        crawler
    }

    /// Decides a request for a crawler by `robots`.
    ///
    /// # Errors
    ///
    /// The reason in `robots`, or [`UnknownReason::NoAgent`] without a crawler.
    fn rule(
        &self,
        request: &PastRequest,
        target: &Target,
        crawler: Option<&Crawler>,
        robots: &FoundRobots,
    ) -> Result<JudgedRuling, UnknownReason> {
        let found = match crawler {
            Some(_) => robots.clone(),
            None => Err(UnknownReason::NoAgent),
        };
        let inquiry = Inquiry {
            crawler: crawler
                .cloned()
                .unwrap_or_else(|| Crawler::from_user_agent([])),
            target: target.clone(),
            method: "GET".to_owned(),
        };
        let snapshot = found
            .clone()
            .unwrap_or_else(|_| Arc::new(placeholder_snapshot(&target.origin)));
        // An override of the configuration may apply only for a time, so the time of the
        // request counts.
        let at = request.at.unwrap_or(self.context.at);
        let ruling = ruling(&inquiry, &snapshot, &self.context.policy, at);
        match found {
            // The robots.txt itself may always be fetched, regardless of its rules.
            Err(reason) if ruling.reason != Reason::RobotsTxt => Err(reason),
            found => Ok(JudgedRuling {
                ruling,
                robots_at: match self.robots {
                    PastRobotsSource::Archive(_) => found.ok().map(|snapshot| snapshot.fetched_at),
                    PastRobotsSource::Folder(_) => None,
                },
                snapshot,
            }),
        }
    }
}

/// Returns a snapshot for an origin whose robots.txt is unknown. Rulings based on it are
/// used only for requests that need no robots.txt.
fn placeholder_snapshot(origin: &Origin) -> Snapshot {
    let key = CacheKey::new(origin.clone(), None);
    Snapshot::unreachable(key, Cause::Internal, Timestamp::UNIX_EPOCH)
}
