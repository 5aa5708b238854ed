//! A long list taken in pieces by several workers, and what they make of it put
//! together in its order.
//!
//! A worker waits with what it has made until its turn has come, so no more
//! than a piece a worker is ever held. What is made of a piece is not known
//! here.

use std::io::{self, BufRead, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::cli::lines::append_line;

/// How many lines the first piece has. Each has twice as many as the one before
/// it, until [`PIECE_DOUBLINGS`]: a short list is for all cores as well.
const PIECE_LINES: u64 = 512;
const PIECE_DOUBLINGS: u64 = 6;
/// How many bytes a piece has at most, but for its last line.
const PIECE_BYTES: usize = 4 * 1024 * 1024;
/// The longest line that is read.
pub(super) const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Some lines of the list.
pub(super) struct Piece {
    /// Which piece, from 0.
    pub(super) number: u64,
    /// The number of its first line, from 1.
    pub(super) line: u64,
    /// The lines, each with its end.
    pub(super) text: Vec<u8>,
}

/// The list, piece by piece.
pub(super) struct Pieces<R> {
    list: R,
    number: u64,
    line: u64,
}

impl<R: BufRead> Pieces<R> {
    pub(super) fn of(list: R) -> Self {
        Self {
            list,
            number: 0,
            line: 1,
        }
    }

    pub(super) fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        let mut text = Vec::new();
        let mut lines = 0;
        let lines_max = PIECE_LINES << self.number.min(PIECE_DOUBLINGS);
        while lines < lines_max
            && text.len() < PIECE_BYTES
            && append_line(&mut self.list, &mut text, LINE_BYTES_MAX)?
        {
            lines += 1;
        }
        if lines == 0 {
            return Ok(None);
        }
        let piece = Piece {
            number: self.number,
            line: self.line,
            text,
        };
        self.number += 1;
        self.line += lines;
        Ok(Some(piece))
    }
}

/// Where the workers write, each in its turn.
pub(super) struct InOrder<W> {
    state: Mutex<Turns<W>>,
    changed: Condvar,
}

struct Turns<W> {
    out: W,
    /// Which piece is next.
    next: u64,
    /// Whether nothing more is to be written.
    ended: bool,
}

/// Whether there is more to do.
#[derive(PartialEq, Eq)]
pub(super) enum Written {
    More,
    /// Another worker met an error, which it tells.
    Ended,
}

impl<W: Write> InOrder<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            state: Mutex::new(Turns {
                out,
                next: 0,
                ended: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Writes the answers to piece `number` when those before it are written.
    pub(super) fn write(&self, number: u64, text: &[u8]) -> io::Result<Written> {
        let waits = |turns: &mut Turns<W>| turns.next != number && !turns.ended;
        let turns = self.changed.wait_while(locked(&self.state), waits);
        let mut turns = turns.unwrap_or_else(PoisonError::into_inner);
        if turns.ended {
            return Ok(Written::Ended);
        }
        let written = turns.out.write_all(text).and_then(|()| turns.out.flush());
        turns.ended = written.is_err();
        turns.next += 1;
        self.changed.notify_all();
        written.map(|()| Written::More)
    }

    pub(super) fn end(&self) {
        locked(&self.state).ended = true;
        self.changed.notify_all();
    }
}

/// Lets nobody wait for a worker that has gone.
pub(super) struct EndOnPanic<'a, W: Write>(pub(super) &'a InOrder<W>);

impl<W: Write> Drop for EndOnPanic<'_, W> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end();
        }
    }
}

/// What is shared, whatever became of who had it before.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
