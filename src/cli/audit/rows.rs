//! Rows written to stdout: columns for users, JSON Lines or CSV.
//!
//! Does not know what the rows are.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use clap::Args;
use serde_json::Value;

use crate::cli::output::{Exit, print_notice};
use politesse_base::inert::{append_json, csv_line, csv_row};

/// Default number of rows.
const LIST_ROWS: u64 = 50;

/// Requested format of rows.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct FormArguments {
    /// Prints JSON Lines instead of columns.
    #[arg(long)]
    json: bool,
    /// Prints CSV (RFC 4180) instead of columns; spreadsheets do not read any field as
    /// a formula.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl FormArguments {
    /// Returns the format.
    pub(crate) fn form(self) -> RowForm {
        match self {
            Self { json: true, .. } => RowForm::Json,
            Self { csv: true, .. } => RowForm::Csv,
            Self { .. } => RowForm::Columns,
        }
    }
}

/// Format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowForm {
    /// Columns for users.
    Columns,
    /// JSON Lines: one object per row, with every field.
    Json,
    /// CSV: one line per row, below the names of the columns.
    Csv,
}

/// Number and format of the rows.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Maximum number of rows; 0 means all.
    #[arg(long, default_value_t = LIST_ROWS)]
    limit: u64,
    #[command(flatten)]
    form: FormArguments,
}

impl ListArguments {
    /// Returns the format of the rows.
    pub(super) fn form(&self) -> RowForm {
        self.form.form()
    }
}

/// Headers above the rows, for each format.
#[derive(Debug)]
pub(crate) struct RowLayout {
    /// Header of the columns for users.
    pub(crate) header: String,
    /// CSV columns, named like the JSON members; `robots.url` is a nested member.
    pub(crate) columns: Vec<&'static str>,
}

/// Writer of rows in one format.
pub(crate) struct RowWriter {
    out: BufWriter<io::StdoutLock<'static>>,
    form: RowForm,
    layout: RowLayout,
    /// Number of rows written.
    written: u64,
}

impl RowWriter {
    /// Makes a writer that has written nothing: the header is written with the first
    /// row.
    pub(crate) fn new(form: RowForm, layout: RowLayout) -> Self {
        Self {
            out: BufWriter::new(io::stdout().lock()),
            form,
            layout,
            written: 0,
        }
    }

    /// Writes a row: `json` returns all of its data, `line` the text for users.
    pub(crate) fn row(
        &mut self,
        json: impl FnOnce() -> Value,
        line: impl FnOnce() -> String,
    ) -> io::Result<()> {
        // With the first row and not earlier, so that an empty result is one line.
        if self.written == 0 {
            self.write_header()?;
        }
        self.written += 1;
        match self.form {
            RowForm::Json => write_json(&mut self.out, &json()),
            RowForm::Columns => writeln!(self.out, "{}", line()),
            RowForm::Csv => {
                let line = csv_row(&json(), &self.layout.columns);
                self.out.write_all(line.as_bytes())
            }
        }
    }

    fn write_header(&mut self) -> io::Result<()> {
        match self.form {
            RowForm::Json => Ok(()),
            RowForm::Columns => writeln!(self.out, "{}", self.layout.header),
            RowForm::Csv => {
                let line = csv_line(self.layout.columns.iter().copied());
                self.out.write_all(line.as_bytes())
            }
        }
    }

    /// Flushes the rows written so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the rows. Reports it if there were none.
    ///
    /// # Errors
    ///
    /// An error of stdout.
    pub(crate) fn end(mut self) -> io::Result<()> {
        if self.written == 0 {
            match self.form {
                RowForm::Columns => writeln!(self.out, "0 rows")?,
                RowForm::Csv => self.write_header()?,
                RowForm::Json => {}
            }
            // Programs read only rows, so for them the note goes to stderr.
            if self.form != RowForm::Columns {
                print_notice("0 rows");
            }
        }
        self.out.flush()
    }
}

/// The newest rows, up to a limit.
pub(super) struct Listing<'a> {
    rows: RowWriter,
    wanted: &'a ListArguments,
    /// Whether more rows exist than were requested.
    is_cut: bool,
    /// Result of writing the latest row.
    outcome: io::Result<()>,
}

impl<'a> Listing<'a> {
    /// Begins a list.
    pub(super) fn new(wanted: &'a ListArguments, layout: RowLayout) -> Self {
        Self {
            rows: RowWriter::new(wanted.form.form(), layout),
            wanted,
            is_cut: false,
            outcome: Ok(()),
        }
    }

    /// Writes a row, unless the limit is reached.
    pub(super) fn row(
        &mut self,
        json: impl FnOnce() -> Value,
        line: impl FnOnce() -> String,
    ) -> ControlFlow<()> {
        if self.wanted.limit != 0 && self.wanted.limit <= self.rows.written {
            self.is_cut = true;
            return ControlFlow::Break(());
        }
        // Kept here, because the visitor cannot return an error of stdout.
        self.outcome = self.rows.row(json, line);
        match self.outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Ends the list.
    ///
    /// # Errors
    ///
    /// An error of stdout.
    pub(super) fn end(self) -> anyhow::Result<Exit> {
        self.outcome?;
        self.rows.end()?;
        if self.is_cut {
            let limit = self.wanted.limit;
            print_notice(&format!("the newest {limit}; --limit 0 shows all"));
        }
        Ok(Exit::Done)
    }
}

/// Writes `value` on one line.
pub(crate) fn write_json(out: &mut impl Write, value: &Value) -> io::Result<()> {
    let mut line = Vec::new();
    append_json(&mut line, value)?;
    line.push(b'\n');
    out.write_all(&line)
}
