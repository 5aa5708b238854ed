//! `audit speed`: how fast crawlers sent requests, and which hosts asked for fewer.
//!
//! Does not know how speeds are computed.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::arguments::CommonArguments;
use super::listing::{Screen, cut, wait};
use super::rows::{FormArguments, RowLayout, RowWriter};
use crate::cli::output::{Exit, print_notice};
use politesse_base::inert::inert;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::speed::{CrawlSpeed, SpeedKey, crawl_speeds};

/// Maximum number of characters of a name on a terminal.
const NAME_MAX: usize = 40;

/// Arguments of `audit speed`.
#[derive(Debug, Args)]
pub(crate) struct SpeedArguments {
    /// Subject of each row: a crawler at a host, a crawler over all hosts, or a host.
    #[arg(long, value_name = "KEY", default_value = "crawler,host")]
    by: SpeedSubjects,
    #[command(flatten)]
    which: CommonArguments,
    /// Maximum number of rows; 0 means all.
    #[arg(long, default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    form: FormArguments,
}

/// Subjects, as named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SpeedSubjects {
    #[value(name = "crawler,host")]
    CrawlerHost,
    Crawler,
    Host,
}

/// Prints the speeds, the fastest first.
pub(super) fn print_speeds(reader: &AuditReader, asked: &SpeedArguments) -> anyhow::Result<Exit> {
    let filter = DecisionFilter::try_from(&asked.which)?;
    let (key, names) = match asked.by {
        SpeedSubjects::CrawlerHost => (SpeedKey::CrawlerHost, &["crawler", "host"][..]),
        SpeedSubjects::Crawler => (SpeedKey::Crawler, &["crawler"][..]),
        SpeedSubjects::Host => (SpeedKey::Host, &["host"][..]),
    };
    let speeds = crawl_speeds(reader, &filter, key)?;
    let shown = match asked.limit {
        0 => speeds.len(),
        limit => limit.min(speeds.len()),
    };
    let (shown, left) = speeds.split_at(shown);
    let table = SpeedTable {
        names,
        screen: Screen::of_stdout(),
    };
    table.print(shown, asked.form)?;
    if !left.is_empty() {
        // Hosts that asked for less and got nothing come last, and must not be missed.
        let quiet = left.iter().filter(|speed| 0 < speed.back_offs.begun);
        print_notice(&format!(
            "left out: {} slower rows, {} of them of hosts that asked for less; --limit 0 shows \
             all",
            left.len(),
            quiet.count(),
        ));
    }
    Ok(Exit::Done)
}

/// Table of speeds.
struct SpeedTable {
    /// Names of the subjects.
    names: &'static [&'static str],
    screen: Screen,
}

impl SpeedTable {
    fn print(&self, speeds: &[CrawlSpeed], form: FormArguments) -> std::io::Result<()> {
        let rows: Vec<_> = speeds.iter().map(|speed| self.cells(speed)).collect();
        let titles = self.titles();
        let mut widths: Vec<_> = titles.iter().map(|title| title.chars().count()).collect();
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let layout = RowLayout {
            header: self.line(&titles, &widths),
            columns: self.columns(),
        };
        let mut out = RowWriter::new(form.form(), layout);
        for (speed, cells) in speeds.iter().zip(&rows) {
            out.row(|| self.json(speed), || self.line(cells, &widths))?;
        }
        out.end()
    }

    /// Reports whether rows have hosts: only hosts ask for less.
    fn has_hosts(&self) -> bool {
        self.names.contains(&"host")
    }

    fn columns(&self) -> Vec<&'static str> {
        let mut columns = self.names.to_vec();
        columns.extend(["sent", "busiest_minute", "usual_pause_ms"]);
        if self.has_hosts() {
            columns.extend(["back_offs", "back_off_status", "back_off_until"]);
        }
        columns
    }

    fn titles(&self) -> Vec<String> {
        let names = self.names.iter().map(|name| name.to_uppercase());
        let mut titles: Vec<_> = names.collect();
        titles.extend(["SENT", "BUSIEST MINUTE", "USUAL PAUSE"].map(str::to_owned));
        if self.has_hosts() {
            titles.extend(["BACK-OFFS", "THE LAST UNTIL"].map(str::to_owned));
        }
        titles
    }

    fn cells(&self, speed: &CrawlSpeed) -> Vec<String> {
        let shown_max = self.screen.columns.map(|_| NAME_MAX);
        let mut cells: Vec<_> = self
            .names
            .iter()
            .map(|name| cut(&inert(subject(speed, name)), shown_max))
            .collect();
        cells.extend([
            speed.sent.to_string(),
            speed.busiest_minute.to_string(),
            speed
                .usual_pause_us
                .map_or("-".to_owned(), |pause| match pause / 1000 {
                    0 => "<1ms".to_owned(),
                    ms => wait(ms),
                }),
        ]);
        if self.has_hosts() {
            let back_offs = &speed.back_offs;
            let status = back_offs.status.map(|status| format!(" ({status})"));
            let until = back_offs.until.map(|until| format!("{until:.0}"));
            cells.push(back_offs.begun.to_string());
            cells.push(match until {
                None => "-".to_owned(),
                Some(until) => until + &status.unwrap_or_default(),
            });
        }
        cells
    }

    /// Lays out cells: names are left-aligned, numbers right-aligned.
    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let padded = cells.iter().zip(widths).enumerate();
        let columns = padded.map(|(at, (cell, width))| {
            if at < self.names.len() {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        columns.collect::<Vec<_>>().join("  ")
    }

    fn json(&self, speed: &CrawlSpeed) -> Value {
        let mut row = json!({});
        if self.names.contains(&"crawler") {
            row["crawler"] = json!(speed.crawler.as_deref());
        }
        if self.has_hosts() {
            row["host"] = json!(speed.host.as_deref());
        }
        row["sent"] = json!(speed.sent);
        row["busiest_minute"] = json!(speed.busiest_minute);
        row["usual_pause_ms"] = json!(speed.usual_pause_us.map(|pause| pause / 1000));
        if self.has_hosts() {
            let back_offs = &speed.back_offs;
            row["back_offs"] = json!(back_offs.begun);
            row["back_off_status"] = json!(back_offs.status);
            row["back_off_until"] = json!(back_offs.until.map(|until| until.to_string()));
        }
        row
    }
}

/// Returns the text of a subject. A host that was sent nothing has no crawler; a
/// crawler without a token matches the group of everyone.
fn subject<'a>(speed: &'a CrawlSpeed, name: &str) -> &'a str {
    match name {
        "host" => speed.host.as_deref().unwrap_or("-"),
        _ if speed.sent == 0 => "-",
        _ => speed.crawler.as_deref().unwrap_or("*"),
    }
}
