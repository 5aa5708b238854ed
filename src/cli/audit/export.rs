//! `audit export`: decisions, the oldest first, in formats for other programs.
//!
//! Reads one page at a time, so that a record of any length is exported in the memory
//! of one page; a WARC file also remembers which robots.txt it already has. Does not
//! know how decisions are found.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::arguments::DecisionArguments;
use super::rows::write_json;
use super::source::DecisionSource;
use super::warc::{WarcCompression, WarcExport};
use crate::cli::output::{Exit, Usage, print_notice};
use politesse_base::inert::{csv_line, csv_row};
use politesse_decision::record::StoredRecord;
use politesse_decision::row_json::row_json;
use politesse_pages::explain::json::decision_json;
use politesse_record::Direction;
use politesse_record::filter::DecisionFilter;

/// Arguments of `audit export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Format of the decisions.
    #[arg(long = "as", value_name = "FORM")]
    form: ExportForm,
    #[command(flatten)]
    which: DecisionArguments,
    /// File to create; by default stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Format of exported decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportForm {
    /// JSON Lines: the objects of `list --json`, with more of the data behind them.
    Jsonl,
    /// CSV (RFC 4180), with fields that no spreadsheet reads as formulas.
    Csv,
    /// WARC 1.1: each robots.txt, and a metadata record for each decision.
    Warc,
}

/// Writes the selected decisions.
pub(super) fn export(source: &DecisionSource, asked: &ExportArguments) -> anyhow::Result<Exit> {
    let run = ExportRun {
        source,
        filter: DecisionFilter::try_from(&asked.which)?,
    };
    let is_gzip = |path: &Path| path.extension().is_some_and(|end| end == "gz");
    let count = match &asked.output {
        None => run.write(asked.form, WarcCompression::Plain, io::stdout().lock())?,
        Some(path) if is_gzip(path) && asked.form != ExportForm::Warc => {
            let text = "only WARC files are compressed here; pipe the others: politesse audit \
                        export … | gzip";
            return Err(Usage::Arguments(text.to_owned()).into());
        }
        Some(path) => {
            let compression = match is_gzip(path) {
                true => WarcCompression::GzipByRecord,
                false => WarcCompression::Plain,
            };
            write_new_file(path, |file| run.write(asked.form, compression, file))?
        }
    };
    // To stderr, because the rows may go to stdout.
    print_notice(&format!("{count} decisions"));
    Ok(Exit::Done)
}

/// Selected decisions to export.
struct ExportRun<'a> {
    source: &'a DecisionSource,
    filter: DecisionFilter,
}

impl ExportRun<'_> {
    /// Writes the decisions to `out`. Returns their number.
    fn write(
        &self,
        form: ExportForm,
        compression: WarcCompression,
        out: impl Write,
    ) -> anyhow::Result<u64> {
        let mut out = BufWriter::new(out);
        let count = match form {
            ExportForm::Jsonl => self.visit(|record| {
                let line = decision_json(&record, &self.source.record_id(&record));
                Ok(write_json(&mut out, &line)?)
            }),
            ExportForm::Csv => {
                let columns = self.source.layout().columns;
                out.write_all(csv_line(columns.iter().copied()).as_bytes())?;
                self.visit(|record| {
                    let line = csv_row(&row_json(&record), &columns);
                    Ok(out.write_all(line.as_bytes())?)
                })
            }
            ExportForm::Warc => {
                let Some((reader, id)) = self.source.record() else {
                    let text = "a WARC file contains robots.txt files, which are read from the \
                                record of a node: run this there, without --archive";
                    return Err(Usage::Arguments(text.to_owned()).into());
                };
                let mut file = WarcExport::begin(&mut out, compression, id)?;
                self.visit(|record| {
                    let json = decision_json(&record, id);
                    file.decision(reader, &record, &json)
                })
            }
        }?;
        out.flush()?;
        Ok(count)
    }

    /// Passes each decision to `write` until that fails. Returns their number.
    fn visit(
        &self,
        mut write: impl FnMut(StoredRecord) -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let mut count = 0;
        // Kept here, because the visitor cannot return an error of the file.
        let mut outcome = Ok(());
        let direction = Direction::OldestFirst;
        self.source.visit(&self.filter, direction, |record| {
            outcome = write(record);
            match outcome {
                Ok(()) => count += 1,
                Err(_) => return ControlFlow::Break(()),
            }
            ControlFlow::Continue(())
        })?;
        outcome.map(|()| count)
    }
}

/// Checks that `path` is the name of a file that can be created.
///
/// # Errors
///
/// The path exists, or is `-`, which would create a file of that name: output to stdout
/// could not be taken back if its end is missing.
pub(crate) fn require_new(path: &Path) -> Result<(), Usage> {
    let name = path.display();
    let problem = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => format!("{name} is there already"),
        Ok(_) => format!("{name} is no file: the name of a new one is wanted"),
        Err(_) if path == Path::new("-") => "the name of a new file is wanted, not -".to_owned(),
        Err(_) => return Ok(()),
    };
    Err(Usage::Arguments(problem))
}

/// Creates the file `path`, which must not exist, readable only by its owner, with the
/// output of `write`.
///
/// # Errors
///
/// An error of `write`, or of creating the file. Nothing is left of the file then.
pub(crate) fn write_new_file<T>(
    path: &Path,
    write: impl FnOnce(&File) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    require_new(path)?;
    // Under another name until it is complete: half a file must not pass for a whole
    // one.
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let make = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&part)?;
        let written = write(&file)?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        anyhow::Ok(written)
    };
    let made = make().with_context(|| format!("cannot write {}", path.display()));
    if made.is_err() {
        // If it cannot be removed either, the next file overwrites it.
        fs::remove_file(&part).unwrap_or_default();
    }
    made
}
