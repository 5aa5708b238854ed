//! Progress bar for reading, on one line of the terminal.
//!
//! Shows nothing if stderr is not a terminal. Does not know what is read.

use std::io::{self, IsTerminal as _, Read, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

/// Width of the bar, in cells.
const BAR_CELLS: u64 = 30;
/// Minimum change before the line is rewritten, in thousandths.
const STEP_PERMILLE: u64 = 5;

/// Number of bytes read so far, out of all.
pub(super) struct Progress {
    /// Length of all files; 0 if it is unknown.
    all_bytes: u64,
    /// Bytes read so far.
    read_bytes: AtomicU64,
    /// Thousandths that were last shown.
    shown_permille: AtomicU64,
    /// Whether there is a bar: the length is known, and stderr is a terminal.
    is_shown: bool,
}

impl Progress {
    /// Makes the progress of reading `all_bytes`. Shows nothing if their number is
    /// unknown.
    pub(super) fn new(all_bytes: Option<u64>) -> Self {
        Self {
            all_bytes: all_bytes.unwrap_or(0),
            read_bytes: AtomicU64::new(0),
            shown_permille: AtomicU64::new(0),
            is_shown: all_bytes.is_some() && io::stderr().is_terminal(),
        }
    }

    /// Adds bytes that were read.
    pub(super) fn add(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Rewrites the line, if the progress has changed enough.
    pub(super) fn show(&self) {
        let read = self.read_bytes.load(Ordering::Relaxed);
        // A range that is read twice counts twice, so the sum may exceed the total.
        let permille = (read.saturating_mul(1000) / self.all_bytes.max(1)).min(1000);
        let shown = self.shown_permille.load(Ordering::Relaxed);
        if !self.is_shown || permille < shown + STEP_PERMILLE {
            return;
        }
        self.shown_permille.store(permille, Ordering::Relaxed);
        // stderr may be closed; the command continues regardless.
        let _ = write!(io::stderr().lock(), "\r{}", line(permille, self.all_bytes));
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        if self.is_shown && 0 < self.shown_permille.load(Ordering::Relaxed) {
            let blank = line(1000, self.all_bytes).chars().count();
            let _ = write!(io::stderr().lock(), "\r{:blank$}\r", "");
        }
    }
}

fn line(permille: u64, all_bytes: u64) -> String {
    let full = (permille * BAR_CELLS / 1000) as usize;
    let rest = BAR_CELLS as usize - full;
    format!(
        "reading [{}{}] {:>3} % of {} MB",
        "#".repeat(full),
        " ".repeat(rest),
        permille / 10,
        all_bytes.div_ceil(1_000_000),
    )
}

/// Reader that adds the bytes it reads to the progress.
pub(super) struct CountingReader<'a, R> {
    input: R,
    progress: &'a Progress,
}

impl<'a, R> CountingReader<'a, R> {
    /// Makes a reader of `input`.
    pub(super) fn new(input: R, progress: &'a Progress) -> Self {
        Self { input, progress }
    }
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(out)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn the_bar_keeps_its_width_from_start_to_end() {
        let begin = line(0, 5_000_001);
        assert_eq!(begin, format!("reading [{}]   0 % of 6 MB", " ".repeat(30)));
        assert_eq!(line(1000, 5_000_001).len(), begin.len());
        assert!(line(500, 1).starts_with(&format!("reading [{} ", "#".repeat(15))));
    }
}
