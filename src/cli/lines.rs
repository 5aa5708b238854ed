//! Line-by-line input of commands, and batches (`--batch`): each line of the input is a
//! question in JSON, and each line of the output is the answer to one, in order.
//!
//! A line that cannot be answered gets a [`LineError`], and does not affect the others.
//! Does not know the questions.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write as _};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use super::output::{Exit, Usage};
use politesse_base::inert::append_json;

/// Maximum length of a batch line in bytes. A line may contain a whole page in Base64, even
/// though usually only the first 512 KiB are scanned (`directives.scan_limit`). The limit
/// only keeps an endless line from filling the memory.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Answer to a line of a batch.
#[derive(Serialize)]
pub(super) struct BatchAnswer<'a, T> {
    /// Copy of the question's `id`, which tells the caller to which question this belongs.
    pub(super) id: &'a Value,
    /// Other members of the answer.
    #[serde(flatten)]
    pub(super) members: T,
}

/// Output for a line that cannot be answered.
#[derive(Serialize)]
pub(super) struct LineError<'a> {
    /// Number of the line, counted from 1.
    pub(super) line: u64,
    /// URL that the line asks about; `None` if the line contains no valid URL, and always
    /// in batches, whose lines are JSON.
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

/// Appends the next line of `input` to `text`, with its line end. Returns `false` if there
/// is no further line. A last line without a line end gets LF.
///
/// `bytes_max` is the longest line that the caller accepts, in bytes without the line end.
/// Of a longer line, only `bytes_max + 2` bytes and LF are appended, and the rest is
/// skipped. The caller must therefore check the length of each line: more than `bytes_max`
/// bytes mean that the line is too long, and perhaps cut.
pub(super) fn append_line(
    input: &mut impl BufRead,
    text: &mut Vec<u8>,
    bytes_max: u64,
) -> io::Result<bool> {
    // Two more bytes, so that a line of the maximum length is read with its line end,
    // which may be CR and LF.
    let mut line = Read::take(&mut *input, bytes_max.saturating_add(2));
    if line.read_until(b'\n', text)? == 0 {
        return Ok(false);
    }
    // Without LF, the line was cut, or is the last one.
    if text.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
        text.push(b'\n');
    }
    Ok(true)
}

/// Calls `answer` for each non-blank line of `input`, and prints the text that it
/// appends, or the error that it returns as a [`LineError`]. Returns the greatest exit
/// code of all lines, where an error counts as [`Exit::Not`]: code 1, as for a failure.
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
                    // `answer` may have failed after appending a part of its text.
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

/// Returns an error for a line that is too long, and that [`append_line`] may have cut.
fn check_length(line: &[u8]) -> anyhow::Result<()> {
    let is_long = LINE_BYTES_MAX < line.len() as u64;
    anyhow::ensure!(!is_long, "the line is longer than {LINE_BYTES_MAX} bytes");
    Ok(())
}
