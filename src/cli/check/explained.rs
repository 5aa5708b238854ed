//! A decision with what explains it: who was bound by which line, what else
//! matched, and what is odd about the file.
//!
//! All of it is worked out again from the evidence. How it is told is not known
//! here.

use std::sync::Arc;

use jiff::Timestamp;

use super::terms::Terms;
use crate::decision::decide::{Decision, Evidence, Reason, RuleCited, Ruling, Verdict, ruling};
use crate::decision::ruling::with_served_forms;
use crate::decision::snapshot::{RobotsFile, Snapshot};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::{
    Binding, Dialect, JoinedAgents, Judgement, Outranked, PaceRecord, RobotsTxt, Rule,
};

/// A decision, and what it was made from.
pub(super) struct Explained {
    evidence: Arc<Evidence>,
    terms: Terms,
    /// The groups by which it was made; absent without a file.
    binding: Option<Binding>,
    /// Now, if the file was fetched and not saved before.
    now: Option<Timestamp>,
}

/// By which name a crawler is bound.
pub(super) enum Bound<'a> {
    /// By one of its own.
    Token(&'a ProductToken),
    /// No group names it: by that of everyone.
    Everyone,
    /// Nor is there one for everyone.
    Nobody,
}

/// A rule that matches and does not count.
pub(super) struct Competing<'a> {
    pub(super) rule: Rule<'a>,
    /// Why; `None` if the operator's word was put in place of them all.
    pub(super) why: Option<Outranked>,
}

impl Explained {
    /// What explains `decision`, made by `terms`, of a file that was fetched if
    /// there is a `now`.
    pub(super) fn new(decision: &Decision, terms: &Terms, now: Option<Timestamp>) -> Self {
        let evidence = Arc::clone(decision.evidence());
        // With `enforcement.candidates` it may be another than the first.
        let token = evidence.ruling.token.as_ref();
        let bound = token.map(|token| Crawler::known_as(std::slice::from_ref(token), None));
        let crawler = bound.as_ref().unwrap_or(&evidence.inquiry.crawler);
        let copy = evidence.snapshot.as_deref().and_then(Snapshot::file);
        Self {
            binding: copy.map(|copy| {
                let readings = evidence.policy.readings();
                with_served_forms(copy.robots.binding(crawler), readings)
            }),
            terms: terms.clone(),
            now,
            evidence,
        }
    }

    pub(super) fn ruling(&self) -> &Ruling {
        &self.evidence.ruling
    }

    pub(super) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    pub(super) fn crawler(&self) -> &Crawler {
        &self.evidence.inquiry.crawler
    }

    /// The candidate that was bound, else the first.
    pub(super) fn token(&self) -> Option<&ProductToken> {
        let first = || self.crawler().token();
        self.ruling().token.as_ref().or_else(first)
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.evidence.snapshot.as_deref()
    }

    pub(super) fn file(&self) -> Option<&RobotsFile> {
        self.snapshot().and_then(Snapshot::file)
    }

    pub(super) fn robots(&self) -> Option<&RobotsTxt> {
        self.file().map(|copy| &copy.robots)
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.terms.dialect()
    }

    /// By which name the crawler is bound, if there is a file.
    pub(super) fn bound(&self) -> Option<Bound<'_>> {
        let binding = self.binding.as_ref()?;
        Some(match binding.token() {
            Some(token) => Bound::Token(token),
            None if binding.is_bound() => Bound::Everyone,
            None => Bound::Nobody,
        })
    }

    /// The rule that counts, if one does.
    pub(super) fn rule(&self) -> Option<Rule<'_>> {
        let cited = self.ruling().rule.as_ref()?;
        let judgement = self.binding.as_ref()?.judge(self.path());
        let rule = judgement.rule().copied();
        rule.filter(|rule| rule.line() == cited.line)
    }

    /// The agent line by which that rule binds, and how it reads.
    pub(super) fn agent_line(&self) -> Option<(u32, String)> {
        let line = self.ruling().agent_line?;
        Some((line, self.robots()?.line(line)?.into_owned()))
    }

    /// The other rules that match, the nearest to the path first.
    pub(super) fn competing(&self) -> Vec<Competing<'_>> {
        let Some(binding) = &self.binding else {
            return Vec::new();
        };
        let path = self.path();
        // Where a rule counts, the operator's word is in place of that as well.
        let is_set_aside = self.ruling().reason == Reason::Override
            && matches!(binding.judge(path), Judgement::Rule(_));
        if is_set_aside {
            let rules = binding.competing(path).into_iter();
            return rules.map(|rule| Competing { rule, why: None }).collect();
        }
        let outranked = binding.outranked(path).into_iter();
        outranked
            .map(|(rule, why)| Competing {
                rule,
                why: Some(why),
            })
            .collect()
    }

    /// The agent lines that joined the group of the rule that counts, although
    /// they may not have been meant to.
    pub(super) fn joined(&self) -> Vec<JoinedAgents> {
        let rule = self.ruling().rule.as_ref();
        match (self.robots(), rule) {
            (Some(robots), Some(rule)) => robots.joined(rule.line),
            _ => Vec::new(),
        }
    }

    /// The pace records that bind the crawler.
    pub(super) fn pace_records(&self) -> Vec<PaceRecord> {
        let binding = self.binding.as_ref();
        binding.map_or_else(Vec::new, Binding::pace_records)
    }

    /// The reading of the path for which the proxy would refuse what is allowed
    /// as sent.
    pub(super) fn refused_reading(&self) -> Option<String> {
        self.refused_by_the_proxy()?.reading
    }

    /// The rule by which the proxy would refuse what is allowed as sent, because
    /// servers take the path that it writes for the path that was sent.
    pub(super) fn refused_by_rule(&self) -> Option<RuleCited> {
        let refused = self.refused_by_the_proxy()?;
        refused.rule.filter(|_| refused.reading.is_none())
    }

    /// The ruling of the proxy, if it would refuse what is allowed as sent.
    fn refused_by_the_proxy(&self) -> Option<Ruling> {
        let evidence = &self.evidence;
        if self.ruling().reading.is_some() {
            return None;
        }
        let policy = &self.terms.policy;
        let as_proxy = ruling(&evidence.inquiry, self.snapshot()?, policy, evidence.at);
        let is_other = as_proxy.reading.is_some() || self.ruling().verdict == Verdict::Allow;
        Some(as_proxy).filter(|ruling| ruling.verdict == Verdict::Disallow && is_other)
    }

    /// How many seconds ago the file was fetched, if it was.
    pub(super) fn age(&self) -> Option<i64> {
        let fetched_at = self.snapshot()?.fetched_at;
        let age = self.now?.as_second() - fetched_at.as_second();
        Some(age.max(0))
    }

    /// The path as it was judged.
    fn path(&self) -> &str {
        let sent = self.evidence.inquiry.target.path_and_query();
        self.ruling().reading.as_deref().unwrap_or(sent)
    }
}
