//! `audit show`: all that is on record of one decision.

use std::io::Write;
use std::ops::ControlFlow;

use super::arguments::DecisionSubject;
use super::details::{DecisionDetails, of_url};
use super::screen::Screen;
use super::sections;
use crate::audit::query::{AuditReader, UrlPattern};
use crate::cli::inert::append_json;
use crate::cli::{Exit, Form};
use crate::decision::record::StoredRecord;

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

fn find(reader: &AuditReader, subject: &DecisionSubject) -> anyhow::Result<Option<StoredRecord>> {
    match subject {
        DecisionSubject::Number(seq) => Ok(reader.record(*seq)?),
        DecisionSubject::Url(target) => {
            let mut newest = None;
            let filter = of_url(UrlPattern::exact(target));
            reader.newest(&filter, |record| {
                newest = Some(record);
                ControlFlow::Break(())
            })?;
            Ok(newest)
        }
    }
}

/// Says on stderr what there is instead.
fn report_missing(reader: &AuditReader, subject: &DecisionSubject) -> anyhow::Result<()> {
    let what = match subject {
        DecisionSubject::Number(seq) => format!("there is no decision {seq} on record"),
        DecisionSubject::Url(target) => format!("there is no decision about {target} on record"),
    };
    let range = match reader.extent()? {
        None => "the record is empty".to_owned(),
        Some(extent) => format!("its decisions are {} to {}", extent.first, extent.last),
    };
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "politesse: {what}; {range}")?;
    if let DecisionSubject::Url(target) = subject {
        let beginning = &target.origin;
        writeln!(stderr, "  try: politesse audit list --url '{beginning}/*'")?;
    }
    Ok(())
}
