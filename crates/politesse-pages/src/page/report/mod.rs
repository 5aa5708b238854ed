//! Reports about a time span (docs/reports.md), for readers who do not know robots.txt.
//!
//! There are two kinds, each a single HTML file without scripts or external links:
//!
//! - the operator's report (`operator`), about all requests of a crawl, for auditors and
//!   anyone responsible for the crawl;
//! - the site's page (`site`), about the requests to one host, for the owner of that host.
//!
//! Both come from the same data (`gathered`). Does not know whether a command or the
//! dashboard asks for the report.

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
    /// The owner of a host. The filter of the report must select that host. The page
    /// contains nothing about other hosts, and no client addresses.
    Site,
}

/// Report about a time span.
#[derive(Debug)]
pub struct Report {
    /// The page, in HTML.
    pub page: String,
    /// Numbers of the page, for programs.
    pub summary: ReportSummary,
    /// Whether the record confirms the report: the verification of its decisions found
    /// neither mismatches nor missing entries. If it found some, the page shows them.
    pub is_confirmed: bool,
}

/// Numbers of a report. The admin API returns them as JSON, with the names of the fields
/// as keys.
#[derive(Debug, Clone, Serialize)]
pub struct ReportSummary {
    /// Id of the record (audit log) that the report is about.
    record: String,
    /// Time at which the report was made.
    made_at: Timestamp,
    /// Start of the time span; `None` for the start of the record.
    from: Option<Timestamp>,
    /// End of the time span, exclusive; `made_at` if the filter has no end.
    until: Option<Timestamp>,
    /// The host that the report is about, with any port; `None` for all hosts.
    host: Option<String>,
    /// Requests in the time span of the report: the sum of `let_through`, `refused` and
    /// `later`.
    pub requests: u64,
    /// Requests that politesse neither refused nor put off.
    let_through: u64,
    /// Requests that politesse refused.
    refused: u64,
    /// Requests among `let_through` that politesse would have refused or put off if it had
    /// not been in report mode.
    reported: u64,
    /// Requests among `let_through` that an override allowed.
    overridden: u64,
    /// Requests that politesse put off: it answered that the client should retry later
    /// (429 or 503).
    later: u64,
    /// Requests among `let_through` whose response was withheld from the crawler.
    withheld: u64,
    /// Requests among `let_through` that the site refused: with 401, 402, 403, 451 or a bot
    /// challenge.
    refused_by_site: u64,
    /// The hosts with most requests in `refused_by_site`.
    site_refusals: Vec<SiteRefusals>,
    /// Time that all requests together waited for their turn, in milliseconds.
    wait_ms: u64,
    /// Bytes of response bodies passed on to crawlers.
    bytes: u64,
    /// Number of hosts.
    hosts: u64,
    /// Statements that deny purposes of crawlers, by host; see [`denial_json`].
    denials: Vec<Json>,
    /// SHA-256 of the leaves of all decisions and endings of the report. A leaf is the hash
    /// of one entry (docs/decisions/020-thin-record.md), so any changed decision changes
    /// this digest.
    sha256: String,
    /// Number of decisions that the verification decided again from the stored evidence.
    verified: u64,
    /// Number of mismatches: an entry was altered, or its decision comes out differently.
    mismatches: u64,
    /// Number of entries that are missing from the record.
    missing: u64,
    /// Texts of the first mismatches and missing entries.
    findings: Vec<String>,
    /// The newest signed head of the record (docs/proving.md), if it has one.
    head: Option<String>,
    /// Removals (by order or by age) and redactions of entries that may affect the report.
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

/// Converts a group of denied requests to JSON; null if it has not been grouped by host,
/// statement and purpose.
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

/// Makes the report about the decisions that `filter` selects, and verifies them.
///
/// The filter may have times and a host; other conditions are not supported. `contact` is
/// the address for questions that the site's page shows (`proxy.contact`).
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
        is_confirmed: data.check.is_confirmed(),
    })
}
