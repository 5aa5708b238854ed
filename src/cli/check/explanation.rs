//! Explanation of a decision: the group that binds the crawler, the line that
//! decided, the other rules that match, and oddities of the file.
//!
//! All of it is derived from the evidence. Does not know how it is printed.

use std::sync::Arc;

use jiff::Timestamp;

use super::context::CheckContext;
use politesse_decision::decide::{
    Decision, Evidence, Policy, Reason, RuleCited, Ruling, Verdict, ruling,
};
use politesse_decision::ruling::{judged_path, with_served_forms};
use politesse_decision::snapshot::{RobotsFile, Snapshot};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::{
    Binding, Dialect, JoinedAgents, Judgement, Outranked, PaceRecord, RobotsTxt, Rule,
};

/// Decision with the evidence and the groups that explain it.
pub(super) struct DecisionExplanation {
    evidence: Arc<Evidence>,
    proxy_policy: Arc<Policy>,
    /// Groups by which it was made; absent without a file.
    binding: Option<Binding>,
    age: FileAge,
}

/// Time by which the age of a file is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum FileAge {
    /// None: the file was saved, and is as old as it may be.
    Saved,
    /// The time of printing.
    Now(Timestamp),
    /// The time of the decision, which is on record.
    AtDecision,
}

/// Name by which a group binds a crawler.
pub(super) enum BoundName<'a> {
    /// One of its own names.
    Token(&'a ProductToken),
    /// `*`: no group names it.
    Everyone,
    /// None: no group names it, and there is none for everyone.
    Nobody,
}

/// Rule that matches and does not count.
pub(super) struct CompetingRule<'a> {
    pub(super) rule: Rule<'a>,
    /// Reason; `None` if an override of the operator replaces all rules.
    pub(super) why: Option<Outranked>,
}

impl DecisionExplanation {
    /// Derives the explanation of `decision`.
    pub(super) fn new(decision: &Decision, context: &CheckContext, age: FileAge) -> Self {
        let evidence = Arc::clone(decision.evidence());
        // With `enforcement.candidates` the token that decided may be another
        // than the first.
        let token = evidence.ruling.token.as_ref();
        let user_agent = evidence.inquiry.crawler.user_agent().map(str::as_bytes);
        let bound = token.map(|token| Crawler::known_as(std::slice::from_ref(token), user_agent));
        let crawler = bound.as_ref().unwrap_or(&evidence.inquiry.crawler);
        let file = evidence.snapshot.as_deref().and_then(Snapshot::file);
        Self {
            binding: file.map(|file| {
                let readings = evidence.policy.terms().readings;
                with_served_forms(file.robots.binding(crawler), readings)
            }),
            proxy_policy: Arc::clone(&context.proxy_policy),
            age,
            evidence,
        }
    }

    /// Returns the ruling.
    pub(super) fn ruling(&self) -> &Ruling {
        &self.evidence.ruling
    }

    /// Returns the evidence.
    pub(super) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns the crawler that asked.
    pub(super) fn crawler(&self) -> &Crawler {
        &self.evidence.inquiry.crawler
    }

    /// Returns the candidate that was bound, else the first.
    pub(super) fn token(&self) -> Option<&ProductToken> {
        let first = || self.crawler().token();
        self.ruling().token.as_ref().or_else(first)
    }

    /// Returns the snapshot, unless the address may not be dialled.
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.evidence.snapshot.as_deref()
    }

    /// Returns the robots.txt, if the site has one.
    pub(super) fn file(&self) -> Option<&RobotsFile> {
        self.snapshot().and_then(Snapshot::file)
    }

    /// Returns its rules.
    pub(super) fn robots(&self) -> Option<&RobotsTxt> {
        self.file().map(|file| &file.robots)
    }

    /// Returns the dialect that files are read by.
    pub(super) fn dialect(&self) -> Dialect {
        self.proxy_policy.terms().dialect
    }

    /// Returns the name by which the crawler is bound, if there is a file.
    pub(super) fn bound(&self) -> Option<BoundName<'_>> {
        let binding = self.binding.as_ref()?;
        Some(match binding.token() {
            Some(token) => BoundName::Token(token),
            None if binding.is_bound() => BoundName::Everyone,
            None => BoundName::Nobody,
        })
    }

    /// Returns the rule that decided, if one did.
    pub(super) fn rule(&self) -> Option<Rule<'_>> {
        let cited = self.ruling().rule.as_ref()?;
        let judgement = self.binding.as_ref()?.judge(self.path());
        let rule = judgement.rule().copied();
        rule.filter(|rule| rule.line() == cited.line)
    }

    /// Returns the number and the text of the agent line by which it binds.
    pub(super) fn agent_line(&self) -> Option<(u32, String)> {
        let line = self.ruling().agent_line?;
        Some((line, self.robots()?.line(line)?.into_owned()))
    }

    /// Returns the other rules that match, the nearest to the path first.
    pub(super) fn competing(&self) -> Vec<CompetingRule<'_>> {
        let Some(binding) = &self.binding else {
            return Vec::new();
        };
        let path = self.path();
        // Where a rule would decide, the override replaces that as well.
        let is_set_aside = self.ruling().reason == Reason::Override
            && matches!(binding.judge(path), Judgement::Rule(_));
        if is_set_aside {
            let rules = binding.competing(path).into_iter();
            return rules
                .map(|rule| CompetingRule { rule, why: None })
                .collect();
        }
        let outranked = binding.outranked(path).into_iter();
        outranked
            .map(|(rule, why)| CompetingRule {
                rule,
                why: Some(why),
            })
            .collect()
    }

    /// Returns the agent lines that joined the group of the rule that decided,
    /// although that may not have been meant.
    pub(super) fn joined(&self) -> Vec<JoinedAgents> {
        let rule = self.ruling().rule.as_ref();
        match (self.robots(), rule) {
            (Some(robots), Some(rule)) => robots.joined(rule.line),
            _ => Vec::new(),
        }
    }

    /// Returns the pace records that bind the crawler.
    pub(super) fn pace_records(&self) -> Vec<PaceRecord> {
        let binding = self.binding.as_ref();
        binding.map_or_else(Vec::new, Binding::pace_records)
    }

    /// Returns the reading of the path for which the proxy would refuse a URL
    /// that is allowed as sent.
    pub(super) fn refused_reading(&self) -> Option<String> {
        self.refused_by_the_proxy()?.reading
    }

    /// Returns the rule by which the proxy would refuse a URL that is allowed as
    /// sent, because servers take the path of the rule for the path that was sent.
    pub(super) fn refused_by_rule(&self) -> Option<RuleCited> {
        let refused = self.refused_by_the_proxy()?;
        let served = self.binding.clone()?.as_served();
        let sent = self.evidence.inquiry.target.path_and_query();
        refused.rule.filter(|_| !served.judge(sent).allows())
    }

    /// Returns the ruling of the proxy, if it would refuse a URL that is allowed
    /// as sent.
    fn refused_by_the_proxy(&self) -> Option<Ruling> {
        let evidence = &self.evidence;
        if self.ruling().reading.is_some() {
            return None;
        }
        let policy = &self.proxy_policy;
        let as_proxy = ruling(&evidence.inquiry, self.snapshot()?, policy, evidence.at);
        let is_other = as_proxy.reading.is_some() || self.ruling().verdict == Verdict::Allow;
        Some(as_proxy).filter(|ruling| ruling.verdict == Verdict::Disallow && is_other)
    }

    /// Returns the seconds since the file was fetched, if it was.
    pub(super) fn age(&self) -> Option<i64> {
        let fetched_at = self.snapshot()?.fetched_at;
        let now = match self.age {
            FileAge::Saved => return None,
            FileAge::Now(now) => now,
            FileAge::AtDecision => self.evidence.at,
        };
        let age = now.as_second() - fetched_at.as_second();
        Some(age.max(0))
    }

    /// Reports whether the decision is one of the record.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self.age, FileAge::AtDecision)
    }

    /// Returns the path as it was judged.
    fn path(&self) -> &str {
        let sent = self.evidence.inquiry.target.path_and_query();
        let reading = self.ruling().reading.as_deref().unwrap_or(sent);
        if self.ruling().reason == Reason::RobotsTxt {
            return reading;
        }
        judged_path(reading, self.evidence.policy.terms().dialect)
    }
}
