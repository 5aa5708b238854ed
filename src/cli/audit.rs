//! `audit`: what was decided, and whether the record still says so.

mod arguments;
mod columns;
mod details;
mod robots;
mod screen;
mod sections;
mod show;

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use clap::Subcommand;
use serde_json::Value;

use self::arguments::{DecisionArguments, DecisionSubject, EventArguments, FILTERS_HELP};
use self::columns::{EVENT_HEADER, event_line, record_header, record_line};
use self::robots::RobotsArguments;
use self::screen::Screen;
use super::inert::{append_json, inert};
use super::{Exit, Form};
use crate::audit::filter::DecisionFilter;
use crate::audit::reader::AuditReader;
use crate::audit::verify::{Verification, verify};
use crate::audit::{Direction, row_json};
use crate::config::Settings;

/// Rows that `list` shows unless told otherwise.
const LIST_ROWS: u64 = 50;

/// What to ask of the record.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// The newest decisions, the newest first.
    #[command(after_help = format!("\
Examples:
  politesse audit list --host site.example --verdict disallow
  politesse audit list --from 1h --rule 'Disallow: /private'
  politesse audit list --url 'https://site.example/shop/*' --limit 0 --json

{FILTERS_HELP}

A URL is cut to the width of a terminal, and whole in a file or a pipe. --json has
every field, a row a line."))]
    List {
        #[command(flatten)]
        which: DecisionArguments,
        #[command(flatten)]
        rows: ListArguments,
    },
    /// All that is on record of one decision, with the robots.txt it rests on.
    #[command(after_help = "\
Examples:
  politesse audit show 17
  politesse audit show https://site.example/private/a

The number is the first column of `list`, and stands on each refusal (`decision`). Of
a URL the newest decision is shown; `others` says how many more there are. Exit codes:
0 shown, 1 there is no such decision.")]
    Show {
        /// The number of a decision, or a URL.
        #[arg(value_name = "SEQ|URL")]
        subject: DecisionSubject,
        /// One JSON object: the row of `list`, and what it refers to.
        #[arg(long)]
        json: bool,
    },
    /// The robots.txt of a host that was in force at a time.
    #[command(after_help = "\
Examples:
  politesse audit robots site.example
  politesse audit robots site.example --at 2026-11-22T10:00:00Z > robots.txt
  politesse audit robots https://site.example:8443 --crawler FooBot

The bytes of the file go to stdout, and nothing else; where it is from goes to stderr.
Where several origins or crawlers of the host had different files, they are listed,
and one has to be asked for (exit code 2). Files are on record from the first decision
that rests on them. Exit codes: 0 printed, 1 there was no file, or none is on record.")]
    Robots(RobotsArguments),
    /// When sites asked for less (429, 503), and when they were asked again, the
    /// newest first.
    #[command(after_help = "\
Example: politesse audit events --host site.example --from 7d

Times and hosts are given as for `list`.")]
    Events {
        #[command(flatten)]
        which: EventArguments,
        #[command(flatten)]
        rows: ListArguments,
    },
    /// Decides again from what is stored, and tells what does not fit.
    #[command(after_help = format!("\
Example: politesse audit verify --from 2026-11-01

{FILTERS_HELP}

Without a filter the whole record is looked at, gaps and robots.txt bodies included."))]
    Verify {
        #[command(flatten)]
        which: DecisionArguments,
        /// One JSON object instead of sentences.
        #[arg(long)]
        json: bool,
    },
}

/// How many rows are listed, and in which form.
#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// How many; 0 means all.
    #[arg(long, default_value_t = LIST_ROWS)]
    limit: u64,
    /// JSON Lines instead of columns.
    #[arg(long)]
    json: bool,
}

/// Answers `command` from the record.
pub(super) fn audit(command: &AuditCommand, settings: &Settings) -> anyhow::Result<Exit> {
    let reader = AuditReader::open(&settings.audit.path)?;
    match command {
        AuditCommand::List { which, rows } => list(&reader, &which.try_into()?, rows),
        AuditCommand::Show { subject, json } => show::show(&reader, subject, Form::from(*json)),
        AuditCommand::Robots(asked) => robots::robots(&reader, asked),
        AuditCommand::Events { which, rows } => {
            let mut out = Listing::new(rows, EVENT_HEADER.to_owned());
            reader.visit_events(&which.try_into()?, |event| {
                out.row(|| event.json(), || event_line(&event))
            })?;
            out.end()
        }
        AuditCommand::Verify { which, json } => {
            verification(&reader, &which.try_into()?, Form::from(*json))
        }
    }
}

fn list(
    reader: &AuditReader,
    filter: &DecisionFilter,
    rows: &ListArguments,
) -> anyhow::Result<Exit> {
    let screen = Screen::of_stdout();
    let mut out = Listing::new(rows, record_header());
    reader.visit_decisions(filter, Direction::NewestFirst, |record| {
        out.row(|| row_json(&record), || record_line(&record, screen))
    })?;
    out.end()
}

/// Rows on their way to stdout.
struct Listing<'a> {
    out: BufWriter<io::StdoutLock<'static>>,
    wanted: &'a ListArguments,
    header: String,
    written: u64,
    /// Whether there are more rows than were wanted.
    is_cut: bool,
    outcome: io::Result<()>,
}

impl<'a> Listing<'a> {
    fn new(wanted: &'a ListArguments, header: String) -> Self {
        Self {
            out: BufWriter::new(io::stdout().lock()),
            wanted,
            header,
            written: 0,
            is_cut: false,
            outcome: Ok(()),
        }
    }

    /// Writes a row, unless there are enough.
    fn row(
        &mut self,
        json: impl FnOnce() -> Value,
        line: impl FnOnce() -> String,
    ) -> ControlFlow<()> {
        if self.wanted.limit != 0 && self.wanted.limit <= self.written {
            self.is_cut = true;
            return ControlFlow::Break(());
        }
        self.outcome = match Form::from(self.wanted.json) {
            Form::Json => self.write_json(&json()),
            Form::Columns => self.write_line(&line()),
        };
        self.written += 1;
        match self.outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn write_json(&mut self, value: &Value) -> io::Result<()> {
        let mut line = Vec::new();
        append_json(&mut line, value)?;
        line.push(b'\n');
        self.out.write_all(&line)
    }

    fn write_line(&mut self, line: &str) -> io::Result<()> {
        if self.written == 0 {
            writeln!(self.out, "{}", self.header)?;
        }
        writeln!(self.out, "{line}")
    }

    /// Ends the list; what is not a row of it goes to stderr where rows are for
    /// programs.
    fn end(mut self) -> anyhow::Result<Exit> {
        self.outcome?;
        if self.written == 0 && !self.wanted.json {
            writeln!(self.out, "0 rows")?;
        }
        self.out.flush()?;
        if self.written == 0 && self.wanted.json {
            eprint_line("0 rows")?;
        }
        if self.is_cut {
            let limit = self.wanted.limit;
            eprint_line(&format!("the newest {limit}; --limit 0 shows all"))?;
        }
        Ok(Exit::Done)
    }
}

fn eprint_line(text: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "politesse: {text}")
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

fn verification(reader: &AuditReader, filter: &DecisionFilter, form: Form) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(io::stdout().lock());
    if form == Form::Json {
        out.write_all(b"{\"findings\":[")?;
    }
    let mut separator = "";
    // A closed reader is found out by the last line.
    let sums = verify(reader, filter, |finding| match form {
        Form::Columns => drop(writeln!(out, "{}", inert(&finding.to_string()))),
        Form::Json => {
            drop(write!(
                out,
                "{separator}{}",
                Value::from(finding.to_string())
            ));
            separator = ",";
        }
    })?;
    match form {
        Form::Json => writeln!(out, "],{}", sums_json(&sums).trim_start_matches('{'))?,
        Form::Columns => writeln!(out, "{}", summary(&sums))?,
    }
    out.flush()?;
    // Nothing removes rows but a hand from outside.
    Ok(if sums.mismatches + sums.missing == 0 {
        Exit::Done
    } else {
        Exit::Not
    })
}

/// What a verification came to, as one JSON object.
fn sums_json(sums: &Verification) -> String {
    let sums = serde_json::json!({
        "decided": sums.decided,
        "other_revision": sums.other_revision,
        "form_only": sums.form_only,
        "mismatches": sums.mismatches,
        "missing": sums.missing,
        "kept": sums.kept,
        "events": sums.events,
        "back_offs": sums.back_offs,
    });
    sums.to_string()
}
