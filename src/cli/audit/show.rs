//! `audit show`: all that is on record of one decision.

use std::io::Write;
use std::ops::ControlFlow;

use super::arguments::DecisionSubject;
use super::details::{DecisionDetails, of_url};
use super::screen::Screen;
use super::sections;
use crate::audit::filter::UrlPattern;
use crate::audit::reader::AuditReader;
use crate::audit::{CheckedRecord, Direction};
use crate::cli::inert::append_json;
use crate::cli::{Exit, Form};

/// Prints the decision that `subject` means.
pub(super) fn show(
    reader: &AuditReader,
    subject: &DecisionSubject,
    form: Form,
) -> anyhow::Result<Exit> {
    let Some(record) = find(reader, subject)? else {
        report_missing(reader, subject)?;
        return Ok(Exit::Not);
    };
    let details = DecisionDetails::of(reader, record)?;
    let mut out = std::io::stdout().lock();
    match form {
        Form::Json => {
            let mut line = Vec::new();
            append_json(&mut line, &details.json())?;
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Form::Columns => sections::write(&details, Screen::of_stdout(), &mut out)?,
    }
    Ok(Exit::Done)
}

fn find(reader: &AuditReader, subject: &DecisionSubject) -> anyhow::Result<Option<CheckedRecord>> {
    let seq = match subject {
        DecisionSubject::Number(seq) => Some(*seq),
        DecisionSubject::Url(target) => {
            let mut newest = None;
            let filter = of_url(UrlPattern::exact(target));
            reader.visit_decisions(&filter, Direction::NewestFirst, |record| {
                newest = Some(record.seq);
                ControlFlow::Break(())
            })?;
            newest
        }
    };
    Ok(seq.map_or(Ok(None), |seq| reader.record(seq))?)
}

/// Says on stderr what there is instead.
fn report_missing(reader: &AuditReader, subject: &DecisionSubject) -> anyhow::Result<()> {
    let what = match subject {
        DecisionSubject::Number(seq) => format!("there is no decision {seq} on record"),
        DecisionSubject::Url(target) => format!("there is no decision about {target} on record"),
    };
    let range = match reader.seq_range()? {
        None => "the record is empty".to_owned(),
        Some(range) => format!("its decisions are {} to {}", range.first, range.last),
    };
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "politesse: {what}; {range}")?;
    if let DecisionSubject::Url(target) = subject {
        let beginning = &target.origin;
        writeln!(stderr, "  try: politesse audit list --url '{beginning}/*'")?;
    }
    Ok(())
}
