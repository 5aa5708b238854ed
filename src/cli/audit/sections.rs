//! Text of `audit show`: one line for each fact about the decision, then its
//! robots.txt.
//!
//! Does not know how facts are found.

use std::io::{self, Write};

use super::listing::{Screen, cut};
use politesse_base::command_line::command;
use politesse_base::inert::inert;
use politesse_pages::explain::Explanation;
use politesse_pages::explain::facts::Facts;

/// Maximum number of robots.txt lines that a terminal shows in full: with more, the
/// facts above would scroll away.
const LINES_MAX: usize = 60;

/// Number of lines shown before and after the deciding one, in a longer file.
const LINES_AROUND: u32 = 12;

/// Writes `explanation` as text.
pub(super) fn write(
    explanation: &Explanation,
    screen: Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(Facts::of(explanation).text("").as_bytes())?;
    write_file(explanation, screen, out)
}

/// Writes the robots.txt with its line numbers.
fn write_file(explanation: &Explanation, screen: Screen, out: &mut impl Write) -> io::Result<()> {
    let Some(robots) = explanation.robots() else {
        return Ok(());
    };
    let marked = explanation.record.ruling.line;
    let count = robots.numbered_lines().count();
    writeln!(out, "\nrobots.txt as it was, {count} lines:")?;
    let is_cut = screen.columns.is_some() && LINES_MAX < count;
    let shown = match marked {
        _ if !is_cut => 0..=u32::MAX,
        Some(line) => line.saturating_sub(LINES_AROUND)..=line.saturating_add(LINES_AROUND),
        None => 0..=2 * LINES_AROUND - 1,
    };
    for (number, line) in robots.numbered_lines() {
        if shown.contains(&number) {
            let line = RobotsLine {
                number,
                text: line.into_owned(),
            };
            line.write(marked, screen, out)?;
        }
    }
    if is_cut {
        let seq = explanation.record.seq;
        let command = command(format_args!("audit show {seq}"));
        writeln!(out, "the whole file: {command} | less")?;
    }
    Ok(())
}

/// Line of a robots.txt.
pub(super) struct RobotsLine {
    /// Number of the line, from 1.
    pub(super) number: u32,
    pub(super) text: String,
}

impl RobotsLine {
    /// Writes the line with its number, preceded by `>` if its number is `marked`.
    pub(super) fn write(
        &self,
        marked: Option<u32>,
        screen: Screen,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Self { number, text } = self;
        let mark = if marked == Some(*number) { '>' } else { ' ' };
        // Mark and number take 10 columns; at least 24 are left for the text.
        let text = cut(&inert(text), screen.left(10, 24));
        writeln!(out, "{mark} {number:>5} | {text}")
    }
}
