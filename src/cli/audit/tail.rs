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

/// Time between two looks at the record: short for whoever watches, and a look at
/// one page of the file costs next to nothing.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Arguments of `audit tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArguments {
    #[command(flatten)]
    which: DecisionArguments,
    /// How many of the decisions so far are shown first.
    #[arg(long, default_value_t = 10)]
    limit: usize,
    #[command(flatten)]
    form: FormArguments,
}

/// Prints decisions as they come, until stdout is closed.
pub(super) fn tail(source: &DecisionSource, asked: &TailArguments) -> anyhow::Result<Exit> {
    let filter = DecisionFilter::try_from(&asked.which)?;
    if filter.until.is_some() {
        let text = "tail shows what is to come and takes no --until; for the past there is \
                    politesse audit list";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let rows = RowWriter::new(asked.form.form(), source.layout());
    follow(source, &filter, asked.limit, rows)
}

/// Writes the newest `limit` decisions that meet `filter`, and those to come.
///
/// # Errors
///
/// The record cannot be read, or `rows` takes no more.
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
    // From here on, so that no decision is shown twice or passed over.
    let mut end = source.end()?;
    for record in newest(source, filter, limit, &end)? {
        write(&mut rows, &record)?;
    }
    loop {
        // Before each pause, so that whoever watches has all that there is.
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

/// Returns the newest `limit` decisions up to `end`, the oldest of them first.
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
