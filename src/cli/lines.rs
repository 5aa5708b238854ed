//! Line-by-line input of commands, and batches: JSON Lines in, JSON Lines out, with one
//! answer per question, in order.
//!
//! A line that cannot be answered does not affect the others. Does not know the
//! questions.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write as _};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use super::output::{Exit, Usage};
use politesse_base::inert::append_json;

/// Maximum length of a batch line in bytes: room for a page several times as long as
/// the part that is ever scanned.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Answer to a line of a batch.
#[derive(Serialize)]
pub(super) struct BatchAnswer<'a, T> {
    /// Copy of the question's id.
    pub(super) id: &'a Value,
    /// Further members.
    #[serde(flatten)]
    pub(super) members: T,
}

/// Output for a line that cannot be answered.
#[derive(Serialize)]
pub(super) struct LineError<'a> {
    /// Number of the line, counted from 1.
    pub(super) line: u64,
    /// URL of the line, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<&'a str>,
    /// Text of the error.
    pub(super) error: String,
}

/// Opens a file, or standard input for `-`.
///
/// # Errors
///
/// [`Usage::File`] if it cannot be opened.
pub(super) fn open(file: &str) -> Result<Box<dyn BufRead>, Usage> {
    if file == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let opened = File::open(file).map_err(|source| Usage::File {
        path: file.into(),
        source,
    })?;
    Ok(Box::new(BufReader::new(opened)))
}

/// Appends the next line of `input` to `text`, with its line end; adds one to the last
/// line if it has none. Returns `false` if there is no further line.
///
/// A line longer than `bytes_max` is cut after that length, so that the caller notices
/// that it was longer.
pub(super) fn append_line(
    input: &mut impl BufRead,
    text: &mut Vec<u8>,
    bytes_max: u64,
) -> io::Result<bool> {
    // Two more bytes for the line end, which may be CR and LF.
    let mut line = Read::take(&mut *input, bytes_max.saturating_add(2));
    if line.read_until(b'\n', text)? == 0 {
        return Ok(false);
    }
    if text.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
        text.push(b'\n');
    }
    Ok(true)
}

/// Calls `answer` for each non-blank line of `input`, and prints the text that it
/// appends or the error that it returns. Returns the worst exit code of all lines.
pub(super) fn answer_each(
    mut input: impl BufRead,
    mut answer: impl FnMut(&[u8], &mut Vec<u8>) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut exit = Exit::Done;
    let mut number = 0;
    let mut line = Vec::new();
    let mut text = Vec::new();
    while append_line(&mut input, &mut line, LINE_BYTES_MAX).context("cannot read the batch")? {
        number += 1;
        let question = line.trim_ascii();
        if !question.is_empty() {
            let answered = check_length(question).and_then(|()| answer(question, &mut text));
            exit = exit.max(match answered {
                Ok(exit) => exit,
                Err(error) => {
                    // The text may hold the beginning of an answer.
                    text.clear();
                    let error = LineError {
                        line: number,
                        url: None,
                        error: format!("{error:#}"),
                    };
                    append_json(&mut text, &error)?;
                    Exit::Not
                }
            });
            text.push(b'\n');
            out.write_all(&text)?;
        }
        line.clear();
        text.clear();
    }
    out.flush()?;
    Ok(exit)
}

fn check_length(line: &[u8]) -> anyhow::Result<()> {
    let is_long = LINE_BYTES_MAX < line.len() as u64;
    anyhow::ensure!(!is_long, "the line is longer than {LINE_BYTES_MAX} bytes");
    Ok(())
}
