//! Outcome of judging a past request: what robots.txt said about it, or why that is
//! unknown.
//!
//! Does not know where requests and files come from.

use std::iter;
use std::mem;
use std::sync::Arc;

use jiff::Timestamp;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

use super::past_request::PastRequest;
use politesse_decision::decide::{Reason, Ruling, Verdict};
use politesse_decision::snapshot::Snapshot;
use politesse_directives::PurposeSet;
use politesse_directives::denials::{DenialRule, PurposeDenial};

/// Verdict on a past request. A worse one is less than a better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PastVerdict {
    /// Robots.txt disallowed the request.
    Disallow,
    /// No robots.txt is known that decides the request ([`UnknownReason`]).
    Unknown,
    /// Robots.txt allowed the request.
    Allow,
}

impl PastVerdict {
    /// Returns the word for the verdict.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Disallow => "disallow",
            Self::Unknown => "unknown",
            Self::Allow => "allow",
        }
    }
}

/// Reason why a request has no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum UnknownReason {
    /// The archive, or the folder of saved files, has no answer for the robots.txt of the
    /// origin.
    NoRobots,
    /// The first robots.txt of the origin was fetched after the request.
    RobotsLater,
    /// The request has no time, so no robots.txt is known to precede it.
    NoTime,
    /// Robots.txt redirects to a URL without an answer in the archive.
    NoRedirectTarget,
    /// The archive refers to an earlier copy of robots.txt that it does not contain.
    NoBody,
    /// The crawler that sent the request is unknown.
    NoAgent,
    /// The URL is not a website's.
    NoUrl,
    /// The request was a tunnel (CONNECT): the URLs inside it are unknown.
    Tunnel,
    /// The robots.txt, or the temporary file that holds it, cannot be read.
    Unreadable,
}

impl UnknownReason {
    /// All reasons.
    pub(super) const ALL: [Self; 9] = [
        Self::NoRobots,
        Self::RobotsLater,
        Self::NoTime,
        Self::NoRedirectTarget,
        Self::NoBody,
        Self::NoAgent,
        Self::NoUrl,
        Self::Tunnel,
        Self::Unreadable,
    ];

    /// Returns the word of the reason, as in `reason` of the output.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NoRobots => "no_robots",
            Self::RobotsLater => "robots_later",
            Self::NoTime => "no_time",
            Self::NoRedirectTarget => "no_redirect_target",
            Self::NoBody => "no_body",
            Self::NoAgent => "no_agent",
            Self::NoUrl => "no_url",
            Self::Tunnel => "tunnel",
            Self::Unreadable => "unreadable",
        }
    }

    /// Explains the reason in a sentence.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::NoRobots => "there is no robots.txt of the origin",
            Self::RobotsLater => {
                "the first robots.txt of the origin came after the request (--nearest-after)"
            }
            Self::NoTime => "the request has no time",
            Self::NoRedirectTarget => {
                "robots.txt redirects to a URL that the archive does not have"
            }
            Self::NoBody => "robots.txt was unchanged since a fetch that the archive does not have",
            Self::NoAgent => "the crawler is not named (--agent)",
            Self::NoUrl => "the URL is not a website's",
            Self::Tunnel => "it went through a tunnel, which hides the URL",
            Self::Unreadable => "the robots.txt cannot be read",
        }
    }
}

/// Past request with its outcome for each crawler that it was judged for.
#[derive(Debug)]
pub(super) struct JudgedRequest {
    /// The request.
    pub(super) request: PastRequest,
    /// URL, if it is a website's.
    pub(super) target: Option<Target>,
    /// Decisive outcome: the first disallow, else the first unknown, else the first.
    pub(super) decisive: CrawlerOutcome,
    /// Outcomes for the other crawlers of `--agents`.
    pub(super) others: Vec<CrawlerOutcome>,
}

/// Outcome of a request for one crawler.
#[derive(Debug)]
pub(super) struct CrawlerOutcome {
    /// Crawler, if it is known.
    pub(super) crawler: Option<Crawler>,
    /// Ruling, or the reason why there is none.
    pub(super) result: Result<JudgedRuling, UnknownReason>,
    /// Denials of the purposes of `--purpose`.
    pub(super) denials: Vec<PurposeDenial>,
}

/// Ruling with the robots.txt that it is based on.
#[derive(Debug)]
pub(super) struct JudgedRuling {
    /// The ruling.
    pub(super) ruling: Ruling,
    /// The robots.txt that the ruling is based on.
    pub(super) snapshot: Arc<Snapshot>,
    /// Time at which the robots.txt was fetched; unknown for a saved file.
    pub(super) robots_at: Option<Timestamp>,
}

impl JudgedRequest {
    /// Adds the outcome for another crawler. It becomes decisive if it is worse than
    /// the earlier ones.
    pub(super) fn add(&mut self, outcome: CrawlerOutcome) {
        let other = if outcome.verdict() < self.decisive.verdict() {
            mem::replace(&mut self.decisive, outcome)
        } else {
            outcome
        };
        self.others.push(other);
    }

    /// Returns all outcomes, the decisive one first.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &CrawlerOutcome> {
        iter::once(&self.decisive).chain(&self.others)
    }

    /// Returns the verdict.
    pub(super) fn verdict(&self) -> PastVerdict {
        self.decisive.verdict()
    }

    /// Reports whether the request is for a page that the crawl received.
    pub(super) fn is_page(&self) -> bool {
        let is_robots_txt = self.decisive.reason() == Reason::RobotsTxt.as_str();
        self.target.is_some() && !is_robots_txt && self.request.got_page()
    }

    /// Reports whether every one of `purposes` is denied, for any of the crawlers.
    pub(super) fn is_denied(&self, purposes: PurposeSet) -> bool {
        let is_denied =
            |outcome: &CrawlerOutcome| DenialRule::Every.is_met(purposes, &outcome.denials);
        self.is_page() && self.outcomes().any(is_denied)
    }

    /// Returns the denials for all crawlers without duplicates; none if the request is
    /// not for a page.
    pub(super) fn denials(&self) -> Vec<&PurposeDenial> {
        let mut denials = Vec::new();
        for denial in self.outcomes().flat_map(|outcome| &outcome.denials) {
            if self.is_page() && !denials.contains(&denial) {
                denials.push(denial);
            }
        }
        denials
    }

    /// Returns the names of the crawlers with the decisive verdict; none if the crawler
    /// is unknown.
    pub(super) fn crawlers(&self) -> Vec<String> {
        let same = self.outcomes().filter(|it| it.verdict() == self.verdict());
        same.filter_map(CrawlerOutcome::crawler_name).collect()
    }
}

impl CrawlerOutcome {
    /// Returns the verdict.
    pub(super) fn verdict(&self) -> PastVerdict {
        match &self.result {
            Err(_) => PastVerdict::Unknown,
            Ok(judged) if judged.ruling.verdict == Verdict::Allow => PastVerdict::Allow,
            Ok(_) => PastVerdict::Disallow,
        }
    }

    /// Returns the word for the reason.
    pub(super) fn reason(&self) -> &'static str {
        match &self.result {
            Err(cause) => cause.as_str(),
            Ok(judged) => judged.ruling.reason.as_str(),
        }
    }

    /// Returns the ruling, if there is one.
    pub(super) fn ruling(&self) -> Option<&Ruling> {
        self.result.as_ref().ok().map(|judged| &judged.ruling)
    }

    /// Returns the product token that matched, else the crawler's first; `*` if it has
    /// none, `None` if the crawler is unknown.
    pub(super) fn crawler_name(&self) -> Option<String> {
        let crawler = self.crawler.as_ref()?;
        let bound = self.ruling().and_then(|ruling| ruling.token.as_ref());
        let token = bound.or_else(|| crawler.token());
        Some(token.map_or_else(|| "*".to_owned(), ToString::to_string))
    }
}
