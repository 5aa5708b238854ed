//! Batches: JSON Lines in, JSON Lines out, a question a line and an answer a
//! line, in order.
//!
//! A line that cannot be answered costs itself only. What is asked is not known
//! here.

use std::io::{BufRead, BufWriter, Write as _};

use anyhow::Context as _;
use serde::Serialize;

use super::Exit;
use super::inert::append_json;
use super::input::append_line;

/// The longest line that is read, in bytes: room for a page that is several
/// times as long as what is ever scanned of one.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why there is no answer to the question on a line.
#[derive(Serialize)]
pub(super) struct Unanswered<'a> {
    /// Which line, from 1.
    pub(super) line: u64,
    /// Its URL, where that much could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<&'a str>,
    /// What is wrong.
    pub(super) error: String,
}

/// Prints what `answer` appends for every line of `input`, in order; for one
/// that it has no answer to, what is wrong. Of all ends the worst is the end.
pub(super) fn answer_each(
    mut input: impl BufRead,
    mut answer: impl FnMut(&[u8], &mut Vec<u8>) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut exit, mut number) = (Exit::Done, 0);
    let (mut line, mut text) = (Vec::new(), Vec::new());
    while append_line(&mut input, &mut line, LINE_BYTES_MAX).context("cannot read the batch")? {
        number += 1;
        let question = line.trim_ascii();
        if !question.is_empty() {
            let answered = is_short(question).and_then(|()| answer(question, &mut text));
            let end = answered.or_else(|error| unanswered(&mut text, (number, &error)))?;
            exit = exit.max(end);
            text.push(b'\n');
            out.write_all(&text)?;
        }
        line.clear();
        text.clear();
    }
    out.flush()?;
    Ok(exit)
}

fn is_short(line: &[u8]) -> anyhow::Result<()> {
    let is_long = LINE_BYTES_MAX < line.len() as u64;
    anyhow::ensure!(!is_long, "the line is longer than {LINE_BYTES_MAX} bytes");
    Ok(())
}

/// Says in place of an answer, of which `text` may hold the beginning, why there
/// is none.
fn unanswered(
    text: &mut Vec<u8>,
    (line, error): (u64, &anyhow::Error),
) -> serde_json::Result<Exit> {
    text.clear();
    let error = format!("{error:#}");
    let url = None;
    append_json(text, &Unanswered { line, url, error })?;
    Ok(Exit::Not)
}
