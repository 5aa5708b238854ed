//! Report about a time span, for readers who do not know robots.txt, and the page for
//! the owner of a site.
//!
//! Each is a single HTML file without scripts and links. Does not know which command or
//! request it is for.

mod common;
mod completeness;
mod enforcement;
mod gathered;
mod operator;
mod site;
mod tables;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value as Json, json};

use self::gathered::{ReportData, ReportScope};
use crate::page::tables::ROWS_MAX;
use politesse_record::AuditError;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::removals::RemovalNote;
use politesse_record::report::SiteRefusals;
use politesse_record::stats::StatGroup;

/// Audience of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// Auditors, and anyone responsible for a crawl.
    Operator,
    /// The owner of the one host that the report is about: contains nothing about other
    /// hosts or clients.
    Site,
}

/// Report about a time span.
#[derive(Debug)]
pub struct Report {
    /// The page, in HTML.
    pub page: String,
    /// Numbers of the page.
    pub summary: ReportSummary,
    /// Whether nothing on record contradicts the report.
    pub is_good: bool,
}

/// Numbers of a report.
#[derive(Debug, Clone, Serialize)]
pub struct ReportSummary {
    /// Id of the record.
    record: String,
    made_at: Timestamp,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    host: Option<String>,
    /// Requests in the time span of the report.
    pub requests: u64,
    let_through: u64,
    refused: u64,
    /// Requests among `let_through` that would have been refused without report mode.
    reported: u64,
    /// Requests among `let_through` that an override allowed.
    overridden: u64,
    later: u64,
    /// Requests among `let_through` whose response was withheld from the crawler.
    withheld: u64,
    /// Requests among `let_through` that the site refused.
    refused_by_site: u64,
    /// The hosts with most of these refusals.
    site_refusals: Vec<SiteRefusals>,
    wait_ms: u64,
    bytes: u64,
    hosts: u64,
    /// Statements that deny purposes of crawlers, by host.
    denials: Vec<Json>,
    /// SHA-256 of the leaves of the decisions.
    sha256: String,
    /// Number of decisions that were made again.
    verified: u64,
    /// Numbers of mismatching and of missing entries.
    mismatches: u64,
    missing: u64,
    /// The first findings.
    findings: Vec<String>,
    /// The newest signed head of the record.
    head: Option<String>,
    /// Removals and redactions that may affect the report.
    removals: Vec<Json>,
}

impl ReportSummary {
    fn of(data: &ReportData) -> Self {
        let (sums, check) = (&data.totals.sums, &data.check);
        let (filter, history) = (&data.scope.filter, &data.history);
        let removed = history.removals.iter().map(|removal| &removal.note);
        let refusals = data.facts.site_refusals.iter();
        let redacted = history.redactions.iter().map(|redaction| &redaction.note);
        Self {
            record: data.record.clone(),
            made_at: data.scope.made_at,
            from: filter.from,
            until: filter.until,
            host: filter.host.clone(),
            requests: sums.requests,
            let_through: data.totals.let_through(),
            refused: sums.refusals,
            reported: sums.reported,
            overridden: data.totals.overridden,
            later: sums.later,
            withheld: sums.withheld,
            refused_by_site: sums.refused_by_site,
            site_refusals: refusals.take(ROWS_MAX).cloned().collect(),
            wait_ms: sums.wait_ms,
            bytes: sums.bytes,
            hosts: data.totals.hosts,
            denials: data.facts.denials.iter().map(denial_json).collect(),
            sha256: data.facts.digest.to_string(),
            verified: check.sums.decided,
            mismatches: check.sums.mismatches,
            missing: check.sums.missing,
            findings: check.findings.clone(),
            head: check.head.clone(),
            removals: removed.chain(redacted).map(RemovalNote::json).collect(),
        }
    }
}

fn denial_json(group: &StatGroup) -> Json {
    let [host, statement, purpose] = &group.values[..] else {
        return Json::Null;
    };
    json!({
        "host": host.as_deref(),
        "statement": statement.as_deref(),
        "purpose": purpose.as_deref(),
        "requests": group.sums.requests,
        "refused": group.sums.refusals,
        "withheld": group.sums.withheld,
    })
}

/// Makes the report about the decisions that `filter` selects, and verifies them. Only
/// the times and the host of the filter count. `contact` is named for questions
/// (`proxy.contact`).
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn make_report(
    reader: &AuditReader,
    filter: &DecisionFilter,
    kind: ReportKind,
    contact: Option<&str>,
) -> Result<Report, AuditError> {
    let data = ReportData::gather(reader, ReportScope::new(filter), contact)?;
    let page = match kind {
        ReportKind::Operator => operator::document(&data),
        ReportKind::Site => site::document(&data),
    };
    Ok(Report {
        page: page.into_string(),
        summary: ReportSummary::of(&data),
        is_good: data.check.is_good(),
    })
}
