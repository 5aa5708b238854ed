//! Bytes of a file, with the place of each in the file.
//!
//! Does not know what the bytes are.

use std::io::{self, BufRead, Read};

/// Size of a buffer in bytes: large reads keep the cost of each call small.
const WINDOW_BYTES: usize = 256 * 1024;

/// Bytes in which records are found, and the places in the file where they begin.
pub trait RecordSource: BufRead {
    /// Notes that a record begins with the next byte, and returns its place.
    fn begin_record(&mut self) -> RecordPlace;

    /// Goes on after a damaged record: drops bytes until a record may begin.
    /// Returns `false` if none does.
    ///
    /// # Errors
    ///
    /// Those of the file, but none for damaged bytes.
    fn recover(&mut self) -> io::Result<bool>;
}

/// Place of a record in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// Byte of the file at which the record begins, or the gzip member that holds its
    /// first byte.
    pub byte: u64,
    /// Whether the record is the first one at `byte`. A gzip member may hold other
    /// records before it.
    pub is_first: bool,
}

/// Buffer over a file, with as much lookahead as [`InputWindow::bytes`] is asked for.
pub(crate) struct InputWindow<R> {
    input: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Place of `buffer[start]` in the file.
    place: u64,
}

impl<R: Read> InputWindow<R> {
    /// Begins at `place` in the file, where `input` stands.
    pub(crate) fn new(input: R, place: u64) -> Self {
        Self {
            input,
            buffer: vec![0; WINDOW_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            place,
        }
    }

    /// Returns the place of the next byte.
    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Returns the next bytes: at least `wanted`, which is at most the half of
    /// the buffer, unless the file ends before.
    pub(crate) fn bytes(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.end - self.start < wanted && self.buffer.len() < self.start + wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < wanted {
            if self.start == self.end {
                self.start = 0;
                self.end = 0;
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Returns the reader below the window. Its next byte is the one after the window.
    pub(crate) fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    /// Drops everything that was read ahead.
    pub(crate) fn clear(&mut self) {
        self.consume(self.end - self.start);
    }

    /// Drops bytes that [`bytes`](Self::bytes) returned.
    pub(crate) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.place += bytes as u64;
    }
}

/// File that is not compressed.
pub struct PlainFile<R>(InputWindow<R>);

impl<R: Read> PlainFile<R> {
    /// Reads a file from its beginning.
    pub fn new(input: R) -> Self {
        Self(InputWindow::new(input, 0))
    }
}

impl<R: Read> Read for PlainFile<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, out)
    }
}

impl<R: Read> BufRead for PlainFile<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.bytes(1)
    }

    fn consume(&mut self, bytes: usize) {
        self.0.consume(bytes);
    }
}

impl<R: Read> RecordSource for PlainFile<R> {
    fn begin_record(&mut self) -> RecordPlace {
        RecordPlace {
            byte: self.0.place(),
            is_first: true,
        }
    }

    fn recover(&mut self) -> io::Result<bool> {
        find_record(&mut self.0)
    }
}

/// Implements [`Read::read`] by [`BufRead`].
pub(crate) fn read_buffered(source: &mut impl BufRead, out: &mut [u8]) -> io::Result<usize> {
    let bytes = source.fill_buf()?;
    let taken = bytes.len().min(out.len());
    out[..taken].copy_from_slice(&bytes[..taken]);
    source.consume(taken);
    Ok(taken)
}

/// Drops bytes up to the next line that begins like a record, and returns whether
/// there is one. At least a line of the damaged record was read before.
pub(crate) fn find_record(input: &mut InputWindow<impl Read>) -> io::Result<bool> {
    // The line before may have been the last of the damaged record.
    if input.bytes(LINE_BEGINS.len())?.starts_with(LINE_BEGINS) {
        return Ok(true);
    }
    loop {
        let bytes = input.bytes(LINE_BEGINS.len() + 1)?;
        let Some(at) = memchr::memchr(b'\n', bytes) else {
            if bytes.is_empty() {
                return Ok(false);
            }
            input.clear();
            continue;
        };
        input.consume(at);
        let line = input.bytes(LINE_BEGINS.len() + 1)?;
        let is_record = line[1..].starts_with(LINE_BEGINS);
        input.consume(1);
        if is_record {
            return Ok(true);
        }
    }
}

/// First bytes of every record.
pub(crate) const LINE_BEGINS: &[u8] = b"WARC/";
