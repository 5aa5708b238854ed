//! `audit`: what was decided, and whether the record still says so.

use std::io::{IsTerminal as _, Write as _};

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::Exit;
use super::inert::inert;
use crate::audit::events::{EventFilter, StoredEvent, event_json};
use crate::audit::query::{AuditReader, Filter, row_json};
use crate::audit::verify::Verification;
use crate::config::Settings;
use crate::rules::record::StoredRecord;

/// Rows that `list` shows unless told otherwise.
const LIST_ROWS: usize = 50;
/// Longest URL shown on a terminal.
const URL_COLUMNS: usize = 80;

/// What to ask of the record.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// The newest decisions, the newest first.
    #[command(after_help = "Example: politesse audit list --host site.example --verdict disallow")]
    List {
        #[command(flatten)]
        which: Which,
        /// How many; 0 means all.
        #[arg(long, default_value_t = LIST_ROWS)]
        limit: usize,
        /// JSON Lines instead of columns.
        #[arg(long)]
        json: bool,
    },
    /// When sites asked for less (429, 503), and when they were asked again, the
    /// newest first.
    #[command(after_help = "Example: politesse audit events --host site.example")]
    Events {
        #[command(flatten)]
        which: WhichEvents,
        /// How many; 0 means all.
        #[arg(long, default_value_t = LIST_ROWS)]
        limit: usize,
        /// JSON Lines instead of columns.
        #[arg(long)]
        json: bool,
    },
    /// Decides again from what is stored, and tells what does not fit.
    #[command(after_help = "Example: politesse audit verify --from 2026-11-01T00:00:00Z")]
    Verify {
        #[command(flatten)]
        which: Which,
        /// One JSON object instead of sentences.
        #[arg(long)]
        json: bool,
    },
}

/// Which decisions: those that meet every condition given.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Made then or later (RFC 3339).
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Made before (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// The host of the URL, without a port.
    #[arg(long)]
    host: Option<String>,
    /// The token that was bound, in any case.
    #[arg(long)]
    crawler: Option<String>,
    /// `allow`, `disallow`, or `later`: put off, and nothing was sent.
    #[arg(long, value_parser = ["allow", "disallow", "later"])]
    verdict: Option<String>,
    /// The reason's word, such as `rule` or `unreachable`.
    #[arg(long)]
    reason: Option<String>,
    /// What was done about it: `reported` is what enforcing would refuse.
    #[arg(long, value_parser = ["enforced", "reported", "overridden", "cached"])]
    effect: Option<String>,
}

/// Which events: those that meet every condition given.
#[derive(Debug, Args)]
pub(super) struct WhichEvents {
    /// Then or later (RFC 3339).
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Before (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// The host, without a port.
    #[arg(long)]
    host: Option<String>,
}

impl From<&WhichEvents> for EventFilter {
    fn from(which: &WhichEvents) -> Self {
        Self {
            from: which.from,
            until: which.until,
            host: which.host.clone(),
        }
    }
}

impl From<&Which> for Filter {
    fn from(which: &Which) -> Self {
        Self {
            from: which.from,
            until: which.until,
            host: which.host.clone(),
            crawler: which.crawler.clone(),
            verdict: which.verdict.clone(),
            reason: which.reason.clone(),
            effect: which.effect.clone(),
        }
    }
}

pub(super) fn audit(command: &AuditCommand, settings: &Settings) -> anyhow::Result<Exit> {
    let reader = AuditReader::open(&settings.audit.path)?;
    match command {
        AuditCommand::List { which, limit, json } => {
            let records = reader.list(&which.into(), *limit)?;
            let form = Form::from(*json);
            list(records.iter().map(|record| record_line(record, form)))
        }
        AuditCommand::Events { which, limit, json } => {
            let events = reader.events(&which.into(), *limit)?;
            let form = Form::from(*json);
            list(events.iter().map(|event| event_line(event, form)))
        }
        AuditCommand::Verify { which, json } => verify(&reader, &which.into(), Form::from(*json)),
    }
}

/// For programs, or for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Columns,
}

impl From<bool> for Form {
    /// What `--json` asks for.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Columns }
    }
}

/// Prints a line a row.
fn list(lines: impl Iterator<Item = String>) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(Exit::Done)
}

fn record_line(record: &StoredRecord, form: Form) -> String {
    match form {
        Form::Json => row_json(record).to_string(),
        Form::Columns => columns(record),
    }
}

fn event_line(event: &StoredEvent, form: Form) -> String {
    match form {
        Form::Json => event_json(event).to_string(),
        Form::Columns => event_columns(event),
    }
}

fn event_columns(event: &StoredEvent) -> String {
    let status = event
        .status
        .map_or(String::new(), |status| format!("{status}, "));
    let line = format!(
        "{:>6} {:.3} {:<15} {}  {status}until {:.0}, incident {}",
        event.seq, event.at, event.kind, event.host, event.until, event.incidents,
    );
    inert(&line)
}

fn columns(record: &StoredRecord) -> String {
    let ruling = &record.ruling;
    let crawler = ruling.crawler.as_deref().unwrap_or("*");
    let status = record
        .status
        .map_or("-".to_owned(), |status| status.to_string());
    let rule = match (ruling.line, &ruling.rule) {
        (Some(line), Some(rule)) => format!("  (line {line}: {rule})"),
        _ => String::new(),
    };
    let effect = match record.effect.as_str() {
        "enforced" => String::new(),
        effect => format!("  {effect}"),
    };
    let error = record
        .error
        .as_ref()
        .map_or(String::new(), |error| format!("  [{error}]"));
    let line = format!(
        "{:>6} {:.3} {:<8} {:<11} {crawler} {} {status} {}{rule}{effect}{error}",
        record.seq,
        record.at,
        ruling.verdict,
        ruling.reason,
        record.method,
        shown(&record.url),
    );
    inert(&line)
}

/// A URL that leaves room on a terminal for the rest of the row.
fn shown(url: &str) -> String {
    if !std::io::stdout().is_terminal() || url.chars().count() <= URL_COLUMNS {
        return url.to_owned();
    }
    let head: String = url.chars().take(URL_COLUMNS - 1).collect();
    format!("{head}…")
}

/// What a verification came to, in one line.
fn summary(sums: &Verification) -> String {
    let other_revision = match sums.other_revision {
        0 => String::new(),
        rows => format!(", {rows} decided otherwise by another revision"),
    };
    format!(
        "{} decided again, {} checked for form, {} mismatches, {} missing{other_revision}",
        sums.decided, sums.form_only, sums.mismatches, sums.missing
    )
}

fn verify(reader: &AuditReader, filter: &Filter, form: Form) -> anyhow::Result<Exit> {
    let mut findings = Vec::new();
    let mut out = std::io::stdout().lock();
    let sums = reader.verify(filter, |finding| match form {
        // A closed reader is found out by the last line.
        Form::Columns => drop(writeln!(out, "{}", inert(&finding.to_string()))),
        Form::Json => findings.push(finding.to_string()),
    })?;
    match form {
        Form::Json => writeln!(
            out,
            "{}",
            serde_json::json!({
                "decided": sums.decided,
                "other_revision": sums.other_revision,
                "form_only": sums.form_only,
                "mismatches": sums.mismatches,
                "missing": sums.missing,
                "kept": sums.kept,
                "events": sums.events,
                "back_offs": sums.back_offs,
                "findings": findings,
            })
        )?,
        Form::Columns => writeln!(out, "{}", summary(&sums))?,
    }
    // Nothing removes rows but a hand from outside.
    Ok(if sums.mismatches + sums.missing == 0 {
        Exit::Done
    } else {
        Exit::Not
    })
}
