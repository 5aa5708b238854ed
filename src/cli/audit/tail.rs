//! `audit tail`: decisions as they are made.

use std::io;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::arguments::DecisionArguments;
use super::listing::{Screen, record_line};
use super::rows::{FormArguments, RowWriter};
use super::source::{DecisionSource, SourceEnd};
use crate::cli::output::{Exit, Usage};
use politesse_decision::record::StoredRecord;
use politesse_decision::row_json::row_json;
use politesse_record::Direction;
use politesse_record::filter::DecisionFilter;

/// Time between two looks at the record: short for the user, and cheap, because a look
/// reads one page of the file.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Arguments of `audit tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArguments {
    #[command(flatten)]
    which: DecisionArguments,
    /// Number of past decisions to show first.
    #[arg(long, default_value_t = 10)]
    limit: usize,
    #[command(flatten)]
    form: FormArguments,
}

/// Prints decisions as they come, until stdout is closed.
pub(super) fn tail(source: &DecisionSource, asked: &TailArguments) -> anyhow::Result<Exit> {
    let filter = DecisionFilter::try_from(&asked.which)?;
    if filter.until.is_some() {
        let text = "tail shows future decisions and takes no --until; for the past use \
                    politesse audit list";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let rows = RowWriter::new(asked.form.form(), source.layout());
    follow(source, &filter, asked.limit, rows)
}

/// Writes the newest `limit` decisions that meet `filter`, and then new ones as they
/// come.
///
/// # Errors
///
/// The record cannot be read, or `rows` cannot be written.
pub(super) fn follow(
    source: &DecisionSource,
    filter: &DecisionFilter,
    limit: usize,
    mut rows: RowWriter,
) -> anyhow::Result<Exit> {
    let screen = Screen::of_stdout();
    let write = |rows: &mut RowWriter, record: &StoredRecord| -> io::Result<()> {
        rows.row(|| row_json(record), || record_line(record, screen))
    };
    // Taken before reading, so that no decision is shown twice or skipped.
    let mut end = source.end()?;
    for record in newest(source, filter, limit, &end)? {
        write(&mut rows, &record)?;
    }
    loop {
        // Before each pause, so that the user sees everything so far.
        rows.flush()?;
        thread::sleep(LOOK_EVERY);
        let mut outcome = Ok(());
        source.visit_after(&mut end, filter, |record| {
            outcome = write(&mut rows, &record);
            match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        outcome?;
    }
}

/// Returns the newest `limit` decisions up to `end`, in order of age, the oldest first.
fn newest(
    source: &DecisionSource,
    filter: &DecisionFilter,
    limit: usize,
    end: &SourceEnd,
) -> anyhow::Result<Vec<StoredRecord>> {
    let mut found = Vec::new();
    source.visit(filter, Direction::NewestFirst, |record| {
        if found.len() == limit {
            return ControlFlow::Break(());
        }
        // Later ones are shown by the first look.
        if end.includes(&record) {
            found.push(record);
        }
        ControlFlow::Continue(())
    })?;
    found.reverse();
    Ok(found)
}
