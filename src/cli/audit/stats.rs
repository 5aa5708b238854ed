//! `audit stats` and `audit top`: counted decisions, as a table.
//!
//! Does not know how they are counted.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::arguments::DecisionArguments;
use super::listing::{Screen, cut, wait};
use super::rows::{FormArguments, RowLayout, RowWriter};
use super::source::DecisionSource;
use crate::cli::output::{Exit, Usage, print_notice};
use politesse_base::inert::inert;
use politesse_record::filter::DecisionFilter;
use politesse_record::stats::{DecisionSums, StatGroup, StatKey, StatOrder, StatQuestion};

/// Maximum number of characters of a value on a terminal.
const VALUE_MAX: usize = 40;

/// Columns of sums, named as in JSON and CSV.
const SUM_NAMES: [&str; 10] = [
    "requests",
    "refusals",
    "reported",
    "later",
    "wait_ms",
    "bytes",
    "errors",
    "withheld",
    "refused_by_site",
    "put_off_by_site",
];

/// Arguments of `audit stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArguments {
    /// Keys to group by, separated by commas: host, url, crawler, label, preference,
    /// purpose, rule, reason, hour and, with --archive, node. A decision with several
    /// denied purposes counts under each preference and purpose.
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    by: Vec<StatKey>,
    #[command(flatten)]
    which: DecisionArguments,
    /// Maximum number of rows; 0 means all.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    form: FormArguments,
}

/// Arguments of `audit top`.
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Subject to count.
    subject: TopSubject,
    #[command(flatten)]
    which: DecisionArguments,
    /// Maximum number of rows; 0 means all.
    #[arg(long, default_value_t = 10)]
    limit: usize,
    #[command(flatten)]
    form: FormArguments,
}

/// Subject that `audit top` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopSubject {
    /// Deciding rules, summed over all hosts.
    Rules,
    /// Hosts.
    Hosts,
    /// Product tokens.
    Crawlers,
}

/// Prints the sums of the selected decisions; those with the most requests come first.
pub(super) fn print_stats(source: &DecisionSource, asked: &StatsArguments) -> anyhow::Result<Exit> {
    let keys = asked.by.as_slice();
    if keys.contains(&StatKey::Node) && !source.has_nodes() {
        let text = "--by node needs --archive: a record belongs to one node";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    if let Some(key) = (1..keys.len()).find_map(|at| {
        let (before, rest) = keys.split_at(at);
        rest.first().filter(|key| before.contains(key))
    }) {
        return Err(Usage::Arguments(format!("--by names {} twice", key.as_str())).into());
    }
    let filter = DecisionFilter::try_from(&asked.which)?;
    // All groups, because the order is known only after counting.
    let groups = source.stats(&StatQuestion {
        filter: &filter,
        keys,
        order: StatOrder::Requests,
    })?;
    let table = StatTable {
        keys,
        limit: asked.limit,
        screen: Screen::of_stdout(),
    };
    table.print(&groups, asked.form)?;
    source.tell_removals(&filter, asked.form.form())?;
    Ok(Exit::Done)
}

/// Prints the subjects with the most refusals.
pub(super) fn print_top(source: &DecisionSource, asked: &TopArguments) -> anyhow::Result<Exit> {
    let key = match asked.subject {
        TopSubject::Rules => StatKey::Rule,
        TopSubject::Hosts => StatKey::Host,
        TopSubject::Crawlers => StatKey::Crawler,
    };
    let filter = DecisionFilter::try_from(&asked.which)?;
    let mut groups = source.stats(&StatQuestion {
        filter: &filter,
        keys: &[key],
        order: StatOrder::Refusals,
    })?;
    if key == StatKey::Rule {
        // Most requests are decided without a rule, and those are left out.
        groups.retain(|group| group.values.iter().all(Option::is_some));
    }
    // Filtered before the limit is applied, so that the note about left-out rows counts
    // only rules.
    let table = StatTable {
        keys: &[key],
        limit: asked.limit,
        screen: Screen::of_stdout(),
    };
    table.print(&groups, asked.form)?;
    source.tell_removals(&filter, asked.form.form())?;
    Ok(Exit::Done)
}

/// Table of groups.
struct StatTable<'a> {
    keys: &'a [StatKey],
    /// Maximum number of rows shown; 0 means all.
    limit: usize,
    screen: Screen,
}

impl StatTable<'_> {
    fn print(&self, groups: &[StatGroup], form: FormArguments) -> anyhow::Result<()> {
        let shown = if self.limit == 0 {
            groups.len()
        } else {
            self.limit.min(groups.len())
        };
        let (shown, left) = groups.split_at(shown);
        let cells: Vec<_> = shown.iter().map(|group| self.cells(group)).collect();
        let titles = self.titles();
        let mut widths: Vec<_> = titles.iter().map(|title| title.chars().count()).collect();
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let names = self.keys.iter().map(|key| key.as_str());
        let layout = RowLayout {
            header: self.line(&titles, &widths),
            columns: names.chain(SUM_NAMES).collect(),
        };
        let mut out = RowWriter::new(form.form(), layout);
        for (group, cells) in shown.iter().zip(&cells) {
            out.row(|| self.json(group), || self.line(cells, &widths))?;
        }
        out.end()?;
        if !left.is_empty() {
            let mut sums = DecisionSums::default();
            left.iter().for_each(|group| sums.add(&group.sums));
            print_notice(&format!(
                "left out: {} rows with {} requests, {} refusals; --limit 0 shows all",
                left.len(),
                sums.requests,
                sums.refusals
            ));
        }
        Ok(())
    }

    fn titles(&self) -> Vec<String> {
        let keys = self.keys.iter().map(|key| key.as_str().to_uppercase());
        let sums = [
            "REQUESTS",
            "REFUSALS",
            "REPORTED",
            "LATER",
            "WAITS",
            "BYTES",
            "ERRORS",
            "WITHHELD",
            "REFUSED_BY_SITE",
            "PUT_OFF_BY_SITE",
        ];
        keys.chain(sums.map(str::to_owned)).collect()
    }

    fn cells(&self, group: &StatGroup) -> Vec<String> {
        let values = self.keys.iter().zip(&group.values);
        let shown_max = self.screen.columns.map(|_| VALUE_MAX);
        // A rule may be as long as its file; files and pipes get it whole.
        let texts = values.map(|(key, value)| cut(&inert(shown(*key, value)), shown_max));
        let sums = &group.sums;
        let counts = [
            sums.requests.to_string(),
            sums.refusals.to_string(),
            sums.reported.to_string(),
            sums.later.to_string(),
            wait(sums.wait_ms),
            sums.bytes.to_string(),
            sums.errors.to_string(),
            sums.withheld.to_string(),
            sums.refused_by_site.to_string(),
            sums.put_off_by_site.to_string(),
        ];
        texts.chain(counts).collect()
    }

    /// Lays out cells: values are left-aligned, sums right-aligned.
    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let padded = cells.iter().zip(widths).enumerate();
        let columns = padded.map(|(at, (cell, width))| {
            if at < self.keys.len() {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        columns.collect::<Vec<_>>().join("  ")
    }

    fn json(&self, group: &StatGroup) -> Value {
        let values = self.keys.iter().zip(&group.values);
        let named = values.map(|(key, value)| (key.as_str().to_owned(), json!(value.as_deref())));
        let sums = &group.sums;
        let counts = SUM_NAMES.into_iter().map(str::to_owned).zip([
            json!(sums.requests),
            json!(sums.refusals),
            json!(sums.reported),
            json!(sums.later),
            json!(sums.wait_ms),
            json!(sums.bytes),
            json!(sums.errors),
            json!(sums.withheld),
            json!(sums.refused_by_site),
            json!(sums.put_off_by_site),
        ]);
        Value::Object(named.chain(counts).collect::<Map<_, _>>())
    }
}

/// Returns the text for a value that may be missing: a crawler without a token matches
/// the group of everyone.
fn shown(key: StatKey, value: &Option<Arc<str>>) -> &str {
    match (key, value) {
        (_, Some(value)) => value,
        (StatKey::Crawler, None) => "*",
        (_, None) => "-",
    }
}
