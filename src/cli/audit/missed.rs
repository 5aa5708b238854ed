//! `audit missed`: the URLs that a crawl requested and did not get, with reasons.
//!
//! Decisions are read twice: once to find the URLs that were never answered, once to
//! print the newest decision about each. Only digests of URLs are held in memory.

use std::collections::HashMap;
use std::ops::ControlFlow;

use clap::Args;
use serde_json::{Value, json};

use super::arguments::DecisionArguments;
use super::listing::{Screen, cut};
use super::rows::{FormArguments, RowLayout, RowWriter};
use super::source::DecisionSource;
use crate::cli::output::{Exit, Usage, print_notice};
use politesse_base::inert::inert;
use politesse_decision::digest::Digest;
use politesse_decision::outcome::{EndingClass, Outcome};
use politesse_decision::record::StoredRecord;
use politesse_decision::row_json::row_json;
use politesse_pages::page::words::counted;
use politesse_record::Direction;
use politesse_record::filter::DecisionFilter;

/// Maximum number of URLs of a crawl. Each takes about 60 bytes of memory.
const URLS_MAX: usize = 1 << 22;

/// Columns of CSV.
const COLUMNS: [&str; 13] = [
    "url", "why", "reason", "line", "rule", "status", "error", "requests", "time", "seq",
    "crawler", "label", "method",
];

/// Arguments of `audit missed`.
#[derive(Debug, Args)]
pub(crate) struct MissedArguments {
    #[command(flatten)]
    which: DecisionArguments,
    #[command(flatten)]
    form: FormArguments,
}

/// Requests for one URL.
#[derive(Debug, Default)]
struct UrlRequests {
    /// Number of requests.
    count: u64,
    /// Whether one of them was answered.
    is_answered: bool,
    /// Whether the URL was already printed as missed.
    is_printed: bool,
}

/// Requests by the digest of their URL.
#[derive(Debug, Default)]
struct Crawl {
    urls: HashMap<Digest, UrlRequests>,
    /// Decisions whose URL is redacted.
    redacted: u64,
}

/// Prints the URLs that were not answered, the latest first.
pub(super) fn print_missed(
    source: &DecisionSource,
    asked: &MissedArguments,
) -> anyhow::Result<Exit> {
    let filter = DecisionFilter::try_from(&asked.which)?;
    let mut crawl = Crawl::read(source, &filter)?;
    let node = source.has_nodes().then_some("node");
    let layout = RowLayout {
        header: line(["WHY", "REASON", "STATUS", "TRIES"], "URL (LINE: RULE)"),
        columns: COLUMNS.into_iter().chain(node).collect(),
    };
    let mut out = RowWriter::new(asked.form.form(), layout);
    let screen = Screen::of_stdout();
    let mut sums = [0_u64; Outcome::ALL.len()];
    // The visitor cannot return an error of stdout.
    let mut written = Ok(());
    source.visit(&filter, Direction::NewestFirst, |record| {
        let Some(requests) = crawl.newest_of_missed(&record) else {
            return ControlFlow::Continue(());
        };
        let why = Outcome::of(&record);
        sums[why as usize] += 1;
        let row = MissedUrl {
            record: &record,
            why,
            requests,
        };
        written = out.row(|| row.json(), || row.line(screen));
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    written?;
    out.end()?;
    crawl.print_summary(sums);
    source.tell_removals(&filter, asked.form.form())?;
    Ok(Exit::Done)
}

impl Crawl {
    /// Reads all requests.
    fn read(source: &DecisionSource, filter: &DecisionFilter) -> anyhow::Result<Self> {
        let mut crawl = Self::default();
        source.visit(filter, Direction::OldestFirst, |record| {
            crawl.add(&record);
            match crawl.urls.len() <= URLS_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        if URLS_MAX < crawl.urls.len() {
            return Err(Usage::Arguments(format!(
                "there are more than {URLS_MAX} URLs: select a part of them, for example with \
                 --host, --from and --until"
            ))
            .into());
        }
        Ok(crawl)
    }

    fn add(&mut self, record: &StoredRecord) {
        if record.is_redacted() {
            self.redacted += 1;
        } else if let Some(url) = wanted_url(record) {
            let requests = self.urls.entry(url).or_default();
            requests.count += 1;
            requests.is_answered |= Outcome::of(record) == Outcome::Answered;
        }
    }

    /// Returns the number of requests for the URL of `record`, if it was never answered
    /// and no newer decision about it has been visited.
    fn newest_of_missed(&mut self, record: &StoredRecord) -> Option<u64> {
        let requests = self.urls.get_mut(&wanted_url(record)?)?;
        // The crawl may still be running.
        requests.is_answered |= Outcome::of(record) == Outcome::Answered;
        if requests.is_answered || requests.is_printed {
            return None;
        }
        requests.is_printed = true;
        Some(requests.count)
    }

    /// Prints to stderr how many URLs were missed, by reason.
    fn print_summary(&self, sums: [u64; Outcome::ALL.len()]) {
        let reasons = Outcome::ALL.into_iter().zip(sums);
        let named: Vec<_> = reasons
            .filter(|(_, count)| 0 < *count)
            .map(|(why, count)| format!("{count} {}", why.as_str()))
            .collect();
        let missed: u64 = sums.iter().sum();
        let asked = counted(u64::try_from(self.urls.len()).unwrap_or(u64::MAX), "URL");
        let list = match named.is_empty() {
            true => String::new(),
            false => format!(": {}", named.join(", ")),
        };
        print_notice(&format!("missed {missed} of {asked}{list}"));
        if 0 < self.redacted {
            let redacted = counted(self.redacted, "decision");
            print_notice(&format!("left out: {redacted} whose URL is redacted"));
        }
    }
}

/// Returns the digest of the URL whose content a request wanted; `None` for HEAD, which
/// wants no content, and for a redacted URL.
fn wanted_url(record: &StoredRecord) -> Option<Digest> {
    let wants_content = &*record.method != "HEAD" && !record.is_redacted();
    wants_content.then(|| Digest::of(record.url.as_bytes()))
}

/// Unanswered URL, with the newest decision about it.
struct MissedUrl<'a> {
    record: &'a StoredRecord,
    /// Outcome of that decision.
    why: Outcome,
    /// Number of requests for it.
    requests: u64,
}

impl MissedUrl<'_> {
    fn json(&self) -> Value {
        let mut row = row_json(self.record);
        row["why"] = json!(self.why);
        row["requests"] = json!(self.requests);
        row
    }

    fn line(&self, screen: Screen) -> String {
        let ruling = &self.record.ruling;
        let reason = match (self.why, &self.record.error, self.record.status) {
            (Outcome::Error, Some(error), _) => inert(error),
            (Outcome::Error, None, None) => "unfinished".to_owned(),
            (Outcome::RefusedBySite, Some(error), _) if **error == *EndingClass::BOT_CHALLENGE => {
                inert(error)
            }
            // The reason of a decision that allowed would not explain it.
            (Outcome::Error | Outcome::RefusedBySite | Outcome::Withheld, ..) => "-".to_owned(),
            _ => inert(&ruling.reason),
        };
        let number = self.record.status.map(|status| status.to_string());
        let status = number.as_deref().unwrap_or("-");
        let tries = self.requests.to_string();
        let start = line([self.why.as_str(), &reason, status, &tries], "");
        let rule = match (ruling.line, &ruling.rule, self.why) {
            (Some(line), Some(rule), Outcome::Refused) => format!("  (line {line}: {rule})"),
            _ => String::new(),
        };
        let rest = inert(&self.record.url) + &inert(&rule);
        let left = screen.left(start.chars().count(), URL_MIN);
        start + &cut(&rest, left)
    }
}

/// Minimum number of characters of a URL that are shown, even on a narrow terminal.
const URL_MIN: usize = 24;

fn line(values: [&str; 4], url: &str) -> String {
    let [why, reason, status, tries] = values;
    format!("{why:<15} {reason:<24} {status:>6} {tries:>5}  {url}")
}
