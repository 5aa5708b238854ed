//! Rules that led to a decision: the group that binds the crawler, the other matching
//! rules, and oddities of the file.
//!
//! Everything is derived from the evidence. Does not know how it is shown.

use std::sync::Arc;

use politesse_decision::decide::{Evidence, Policy, Reason, Ruling, Verdict, ruling};
use politesse_decision::ruling::{judged_path, with_served_forms};
use politesse_decision::snapshot::{RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::{
    Binding, Dialect, JoinedAgents, Judgement, Outranked, PaceRecord, RobotsTxt, Rule,
};

/// Evidence of a decision with the groups that bind its crawler.
pub struct DecidingRules {
    evidence: Arc<Evidence>,
    /// Groups that bind the crawler; `None` if there is no file.
    binding: Option<Binding>,
    /// Ruling of the proxy, if it would refuse a URL that is allowed as sent.
    proxy_refusal: Option<Ruling>,
}

/// Rule that matches but has no effect.
pub struct CompetingRule<'a> {
    /// The rule.
    pub rule: Rule<'a>,
    /// Reason why it has no effect; `None` if an override of the operator replaces all
    /// rules.
    pub why: Option<Outranked>,
}

impl DecidingRules {
    /// Finds the groups that decided `evidence`. `proxy_policy` is the policy that the
    /// proxy would use.
    pub fn new(evidence: &Arc<Evidence>, proxy_policy: &Policy) -> Self {
        // With `enforcement.candidates`, the token that decided may not be the first.
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
            proxy_refusal: proxy_refusal(evidence, proxy_policy),
            evidence: Arc::clone(evidence),
        }
    }

    /// Returns the ruling.
    pub fn ruling(&self) -> &Ruling {
        &self.evidence.ruling
    }

    /// Returns the evidence.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns why the address may not be dialled, if egress denied it. Denials for
    /// other reasons are reported elsewhere.
    pub fn egress_denial(&self) -> Option<&str> {
        let evidence = &self.evidence;
        let denial = evidence.denial.as_deref();
        denial.filter(|_| evidence.ruling.reason == Reason::Egress)
    }

    /// Returns the crawler that sent the request.
    pub fn crawler(&self) -> &Crawler {
        &self.evidence.inquiry.crawler
    }

    /// Returns the snapshot, unless the address may not be dialled.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.evidence.snapshot.as_deref()
    }

    /// Returns the robots.txt, if the site has one.
    pub fn file(&self) -> Option<&RobotsFile> {
        self.snapshot().and_then(Snapshot::file)
    }

    /// Returns the rules of the robots.txt.
    pub fn robots(&self) -> Option<&RobotsTxt> {
        self.file().map(|file| &file.robots)
    }

    /// Returns the dialect in which files are read.
    pub fn dialect(&self) -> Dialect {
        self.evidence.policy.terms().dialect
    }

    /// Returns the name under which a group binds the crawler: one of its tokens, or
    /// `*`. `None` if no group does.
    pub fn bound(&self) -> Option<&str> {
        let binding = self.binding.as_ref()?;
        match binding.token() {
            Some(token) => Some(token.as_str()),
            None => binding.is_bound().then_some("*"),
        }
    }

    /// Returns the rule that decided, if one did.
    pub fn rule(&self) -> Option<Rule<'_>> {
        let cited = self.ruling().rule.as_ref()?;
        let judgement = self.binding.as_ref()?.judge(self.path());
        let rule = judgement.rule().copied();
        rule.filter(|rule| Some(rule.line()) == cited.line)
    }

    /// Returns the number and text of the agent line that makes the group binding.
    pub fn agent_line(&self) -> Option<(u32, String)> {
        let line = self.ruling().agent_line?;
        Some((line, self.robots()?.line(line)?.into_owned()))
    }

    /// Returns the other matching rules, the closest to the path first.
    pub fn competing(&self) -> Vec<CompetingRule<'_>> {
        let Some(binding) = &self.binding else {
            return Vec::new();
        };
        let path = self.path();
        // If a rule would have decided, the override replaces it as well.
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

    /// Returns the agent lines that joined the group of the deciding rule, possibly by
    /// accident.
    pub fn joined(&self) -> Vec<JoinedAgents> {
        let rule = self.ruling().rule.as_ref();
        match (self.robots(), rule.and_then(|rule| rule.line)) {
            (Some(robots), Some(line)) => robots.joined(line),
            _ => Vec::new(),
        }
    }

    /// Returns the pace records that bind the crawler.
    pub fn pace_records(&self) -> Vec<PaceRecord> {
        let binding = self.binding.as_ref();
        binding.map_or_else(Vec::new, Binding::pace_records)
    }

    /// Returns the reading of the path for which the proxy would refuse a URL that is
    /// allowed as sent.
    pub fn refused_reading(&self) -> Option<&str> {
        self.proxy_refusal.as_ref()?.reading.as_deref()
    }

    /// Returns line and text of the rule that would make the proxy refuse a URL that is
    /// allowed as sent, because servers treat the path of the rule and the path that
    /// was sent alike.
    pub fn refused_by_rule(&self) -> Option<(u32, &str)> {
        let rule = self.proxy_refusal.as_ref()?.rule.as_ref()?;
        let served = self.binding.clone()?.as_served();
        let sent = self.evidence.inquiry.target.path_and_query();
        let line = rule.line.filter(|_| !served.judge(sent).allows())?;
        Some((line, &rule.text))
    }

    /// Returns the path that was judged.
    fn path(&self) -> &str {
        let sent = self.evidence.inquiry.target.path_and_query();
        let reading = self.ruling().reading.as_deref().unwrap_or(sent);
        if self.ruling().reason == Reason::RobotsTxt {
            return reading;
        }
        judged_path(reading, self.evidence.policy.terms().dialect)
    }
}

/// Returns the ruling of the proxy, if it would refuse a URL that is allowed as sent.
fn proxy_refusal(evidence: &Evidence, policy: &Policy) -> Option<Ruling> {
    let decided = &evidence.ruling;
    if decided.reading.is_some() {
        return None;
    }
    let as_proxy = ruling(
        &evidence.inquiry,
        evidence.snapshot.as_deref()?,
        policy,
        evidence.at,
    );
    let is_other = as_proxy.reading.is_some() || decided.verdict == Verdict::Allow;
    Some(as_proxy).filter(|ruling| ruling.verdict == Verdict::Disallow && is_other)
}
