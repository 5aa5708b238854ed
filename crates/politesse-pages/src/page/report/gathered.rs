//! Data of a report, read from the record.
//!
//! A report states only what follows from the data gathered here (docs/reports.md).
//! Does not know the layout.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;

use politesse_base::clock;
use politesse_decision::decide::EnforcementMode;
use politesse_decision::record::{StoredRecord, StoredRuling};
use politesse_record::AuditError;
use politesse_record::events::EventRow;
use politesse_record::filter::{DecisionFilter, EventFilter};
use politesse_record::override_uses::{OverrideUses, override_uses};
use politesse_record::reader::AuditReader;
use politesse_record::report::{ReportFacts, RulingSums, report_facts};
use politesse_record::report_history::{ReportHistory, report_history};
use politesse_record::robots_history::RobotsOwner;
use politesse_record::robots_versions::{RobotsVersion, robots_versions};
use politesse_record::stats::DecisionSums;
use politesse_record::verify::{Verification, verify};

/// Maximum number of verification findings shown in a report; the others are counted.
const FINDINGS_MAX: usize = 10;

/// Maximum number of events in a report. A record with more has hosts that keep sending
/// 429 or 503, and the report shows the latest.
const EVENTS_MAX: usize = 10_000;

/// Decisions that a report covers.
#[derive(Debug)]
pub(super) struct ReportScope {
    /// Times and host.
    pub(super) filter: DecisionFilter,
    /// Time at which the report is made.
    pub(super) made_at: Timestamp,
    /// Whether the report was made without any condition, so that it covers everything on
    /// record.
    pub(super) is_whole: bool,
}

impl ReportScope {
    /// Returns the scope of the decisions that `filter` selects, up to now if it has no
    /// end.
    pub(super) fn new(filter: &DecisionFilter) -> Self {
        let made_at = clock::now();
        Self {
            filter: DecisionFilter {
                // The page states this end, so that the same report can be made again later,
                // with the same numbers.
                until: filter.until.or(Some(made_at)),
                ..filter.clone()
            },
            made_at,
            is_whole: filter.is_open(),
        }
    }

    /// Returns the host that the report is about, if it is about one.
    pub(super) fn host(&self) -> Option<&str> {
        self.filter.host.as_deref()
    }

    /// Returns the command-line arguments that select the same decisions. Each is on
    /// its own line, so that a page does not wrap within a time.
    pub(super) fn arguments(&self) -> String {
        let mut text = String::new();
        if let Some(from) = self.filter.from {
            text.push_str(&format!(" \\\n  --from {from}"));
        }
        if let Some(until) = self.filter.until {
            text.push_str(&format!(" \\\n  --until {until}"));
        }
        if let Some(host) = self.host() {
            text.push_str(&format!(" \\\n  --host {host}"));
        }
        text
    }
}

/// Data of a report.
#[derive(Debug)]
pub(super) struct ReportData {
    /// Time span and host of the report.
    pub(super) scope: ReportScope,
    /// Sums of decisions by hour, host and ruling.
    pub(super) facts: ReportFacts,
    /// Sums of `facts` over all hosts and rulings.
    pub(super) totals: ReportTotals,
    /// Events of the record itself in the time span: removals, redactions, stops.
    pub(super) history: ReportHistory,
    /// Overrides that decisions are based on.
    pub(super) overrides: OverrideUses,
    /// Back-offs that began or ended, the earliest first.
    pub(super) back_offs: Vec<EventRow>,
    /// Versions of the robots.txt, for a report about one host.
    pub(super) versions: Vec<RobotsVersion>,
    /// Result of verifying the decisions.
    pub(super) check: ReportCheck,
    /// Id of the record.
    pub(super) record: String,
    /// Contact for questions (`proxy.contact`).
    pub(super) contact: Option<String>,
}

/// Sums over all decisions of a report.
#[derive(Debug, Default)]
pub(super) struct ReportTotals {
    pub(super) sums: DecisionSums,
    /// Requests that robots.txt disallows but an override allowed.
    pub(super) overridden: u64,
    /// Requests that a rule of a robots.txt refused.
    pub(super) by_rules: u64,
    /// Decisions made in report mode.
    pub(super) in_report_mode: u64,
    /// Decisions whose policy cannot be read, so that their mode is unknown.
    pub(super) in_unknown_mode: u64,
    /// Bytes of the responses to requests that report mode let through.
    pub(super) reported_bytes: u64,
    /// Number of hosts.
    pub(super) hosts: u64,
    /// Number of crawlers; all requests without a product token count as one.
    pub(super) crawlers: u64,
}

impl ReportTotals {
    fn of(facts: &ReportFacts) -> Self {
        let mut totals = Self::default();
        let (mut hosts, mut crawlers) = (BTreeSet::new(), BTreeSet::new());
        for RulingSums { host, ruling, sums } in &facts.rulings {
            totals.sums.add(sums);
            // Redacted decisions appear under this word, which is not a website.
            if &**host != StoredRecord::REDACTED {
                hosts.insert(host);
            }
            crawlers.insert(ruling.crawler.as_deref());
            if ruling.effect == "overridden" {
                totals.overridden += sums.requests;
            }
            if ruling.reason == "rule" {
                totals.by_rules += sums.refusals;
            }
            // A ruling is reported as a whole or not at all, so all of its bytes count.
            if 0 < sums.reported {
                totals.reported_bytes += sums.bytes;
            }
        }
        totals.hosts = hosts.len() as u64;
        totals.crawlers = crawlers.len() as u64;
        for span in &facts.modes {
            match span.mode {
                Some(EnforcementMode::Enforce) => {}
                Some(EnforcementMode::Report) => totals.in_report_mode += span.requests,
                None => totals.in_unknown_mode += span.requests,
            }
        }
        totals
    }

    /// Returns the number of requests that were neither refused nor put off.
    pub(super) fn let_through(&self) -> u64 {
        self.sums.let_through()
    }
}

/// Result of verifying the decisions of a report.
#[derive(Debug)]
pub(super) struct ReportCheck {
    /// Numbers of decisions that were checked, and of findings.
    pub(super) sums: Verification,
    /// Texts of the first findings: altered or missing entries.
    pub(super) findings: Vec<String>,
    /// Number of findings left out of `findings`.
    pub(super) more_findings: u64,
    /// The newest signed head of the record.
    pub(super) head: Option<String>,
}

impl ReportCheck {
    fn of(reader: &AuditReader, scope: &ReportScope) -> Result<Self, AuditError> {
        // Without an end, the verification also looks for gaps and checks the record as
        // a whole.
        let all = DecisionFilter::default();
        let filter = if scope.is_whole { &all } else { &scope.filter };
        let found = Self::verified(reader, filter)?;
        match found.sums.is_outrun {
            // Missing entries may have been removed by age in the meantime; the second
            // run takes that into account.
            true => Self::verified(reader, filter),
            false => Ok(found),
        }
    }

    fn verified(reader: &AuditReader, filter: &DecisionFilter) -> Result<Self, AuditError> {
        let (mut findings, mut more_findings) = (Vec::new(), 0);
        let sums = verify(reader, filter, |finding| {
            // A list of thousands would bury the rest of the report.
            if findings.len() < FINDINGS_MAX {
                findings.push(finding);
            } else {
                more_findings += 1;
            }
        })?;
        let seal = reader.tree().newest_seal()?;
        Ok(Self {
            sums,
            findings,
            more_findings,
            head: seal.map(|seal| seal.note),
        })
    }

    /// Reports whether the record confirms the report: no entry was found altered or
    /// missing.
    pub(super) fn is_confirmed(&self) -> bool {
        self.sums.failures() == 0
    }
}

impl ReportData {
    /// Gathers the facts, and verifies the decisions that they cover.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`], [`AuditError::TooManySums`].
    pub(super) fn gather(
        reader: &AuditReader,
        scope: ReportScope,
        contact: Option<&str>,
    ) -> Result<Self, AuditError> {
        let facts = report_facts(reader, &scope.filter)?;
        // For all hosts, the list of versions would be too long to read.
        let versions = match scope.host() {
            Some(host) => versions_within(reader, host, &scope)?,
            None => Vec::new(),
        };
        Ok(Self {
            totals: ReportTotals::of(&facts),
            history: report_history(reader, &scope.filter, &facts)?,
            overrides: override_uses(reader, &scope.filter)?,
            back_offs: back_offs(reader, &scope)?,
            versions,
            check: ReportCheck::of(reader, &scope)?,
            record: reader.record_id()?,
            contact: contact.map(str::to_owned),
            facts,
            scope,
        })
    }

    /// Returns the rules that decided requests counted by `count`, those with most
    /// requests first. Rulings of one host with the same rule are merged, regardless of
    /// the crawler.
    pub(super) fn ranked(&self, count: impl Fn(&RulingSums) -> u64) -> Vec<RankedRule> {
        let mut rules: BTreeMap<RuleKey, u64> = BTreeMap::new();
        for sums in &self.facts.rulings {
            let requests = count(sums);
            if 0 < requests {
                *rules.entry(RuleKey::of(sums)).or_default() += requests;
            }
        }
        let mut ranked: Vec<_> = rules
            .into_iter()
            .map(|(rule, requests)| RankedRule { rule, requests })
            .collect();
        // A stable sort: rules with equal counts stay in the order of host and line.
        ranked.sort_by_key(|rule| std::cmp::Reverse(rule.requests));
        ranked
    }
}

/// Rule of a host, or the reason if no rule decided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RuleKey {
    /// The host, with any port.
    pub(super) host: Arc<str>,
    /// Number of the rule's line in the robots.txt; `None` if no rule decided.
    pub(super) line: Option<u32>,
    /// Text of the rule; `None` if no rule decided.
    pub(super) rule: Option<String>,
    /// Product tokens of the group that the rule is in.
    pub(super) group: Vec<String>,
    /// Reason of the decision, as a word; `rule` if a rule decided.
    pub(super) reason: String,
}

impl RuleKey {
    fn of(sums: &RulingSums) -> Self {
        let StoredRuling {
            line,
            rule,
            group,
            reason,
            ..
        } = &*sums.ruling;
        Self {
            host: Arc::clone(&sums.host),
            line: *line,
            rule: rule.clone(),
            group: group.clone(),
            reason: reason.clone(),
        }
    }
}

/// Rule, and the number of requests that it decided.
#[derive(Debug)]
pub(super) struct RankedRule {
    pub(super) rule: RuleKey,
    pub(super) requests: u64,
}

/// Finds the versions of the robots.txt that were in force in the time span.
fn versions_within(
    reader: &AuditReader,
    host: &str,
    scope: &ReportScope,
) -> Result<Vec<RobotsVersion>, AuditError> {
    let mut versions = robots_versions(reader, &RobotsOwner::Host(host.to_owned()))?;
    let DecisionFilter { from, until, .. } = scope.filter;
    versions.retain(|version| {
        let ends_before =
            from.is_some_and(|from| version.snapshot.expires_at < from && version.last_seen < from);
        let begins_after = until.is_some_and(|until| until <= version.snapshot.fetched_at);
        !ends_before && !begins_after
    });
    Ok(versions)
}

/// Finds the back-offs that began or ended in the time span, the earliest first. If there
/// are too many, only the latest are returned.
fn back_offs(reader: &AuditReader, scope: &ReportScope) -> Result<Vec<EventRow>, AuditError> {
    let filter = EventFilter {
        from: scope.filter.from,
        until: scope.filter.until,
        host: scope.filter.host.clone(),
        kind: None,
    };
    let mut events = Vec::new();
    reader.visit_events(&filter, |event| {
        if event.kind.starts_with("backoff_") {
            events.push(event);
        }
        if events.len() < EVENTS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    events.reverse();
    Ok(events)
}
