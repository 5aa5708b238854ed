//! Output of commands: exit codes, usage errors, results on stdout, errors on stderr.
//!
//! Does not know any command.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use thiserror::Error;

use crate::config::Problems;
use politesse_base::inert::inert;

/// Exit code of a command. Of several outcomes the greatest is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exit {
    /// Code 0.
    Done,
    /// Code 1: the result is negative (something is disallowed, does not match or failed).
    Not,
    /// Code 3: the result could not be determined.
    Unknown,
    /// Code of the process that `run` started.
    Child(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Not => Self::from(1),
            Exit::Unknown => Self::from(3),
            Exit::Child(code) => Self::from(code),
        }
    }
}

/// Passes on an error from writing a result, unless its reader has closed the pipe (`|
/// head`): the exit code still has to be determined.
pub(super) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Format of a result on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputForm {
    /// JSON, for programs.
    Json,
    /// Columns, for users.
    Columns,
}

impl From<bool> for OutputForm {
    /// Returns the format for the flag `--json`.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Columns }
    }
}

/// Error that ends the program with code 2: the caller has to change something.
#[derive(Debug, Error)]
pub(crate) enum Usage {
    /// The configuration has problems.
    #[error("{0}")]
    Configuration(#[from] Problems),
    /// The configuration file cannot be read.
    #[error("cannot read {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Arguments that conflict, or have no meaning.
    #[error("{0}")]
    Arguments(String),
}

/// Prints a result to stdout.
pub(super) fn print(text: &str) -> anyhow::Result<Exit> {
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// Lays out a table in columns, below its titles.
pub(super) fn columns<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = titles.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(widths);
        let columns = padded.map(|(cell, width)| format!("{cell:<width$}"));
        let line = columns.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    let titles = titles.map(str::to_owned);
    std::iter::once(&titles).chain(rows).map(line).collect()
}

/// Prints a line for users to stderr.
pub(super) fn print_notice(line: &str) {
    // stderr may be closed; the command continues regardless.
    let _ = writeln!(io::stderr().lock(), "politesse: {}", inert(line));
}

/// Prints an error and its causes to stderr, one per line.
pub(super) fn report(error: &anyhow::Error) {
    let mut previous = error.to_string();
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "politesse: {previous}");
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // Some libraries repeat the source in the error's own text.
        if !previous.contains(&text) {
            let _ = writeln!(stderr, "  because: {text}");
        }
        previous = text;
    }
}
