//! Bytes of a file, with the position of each in the file.
//!
//! Does not know what the bytes mean.

use std::io::{self, BufRead, Read};

/// Size of a buffer in bytes. Large reads keep the cost per call low.
const WINDOW_BYTES: usize = 256 * 1024;

/// Byte source in which records are found, with the positions in the file where they
/// begin.
pub trait RecordSource: BufRead {
    /// Records that the next byte begins a record. Returns its position.
    fn begin_record(&mut self) -> RecordPlace;

    /// Continues after a damaged record: skips bytes until a record may begin. Returns
    /// `false` if none follows.
    ///
    /// # Errors
    ///
    /// An error of reading the file. Damaged bytes are not errors.
    fn recover(&mut self) -> io::Result<bool>;
}

/// Position of a record in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// Byte of the file at which the record begins, or the gzip member that holds its
    /// first byte.
    pub byte: u64,
    /// Whether the record is the first one at `byte`. A gzip member may hold several
    /// records.
    pub is_first: bool,
}

/// Buffer over a file that provides the lookahead that [`InputWindow::bytes`] asks for.
pub(crate) struct InputWindow<R> {
    input: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Position of `buffer[start]` in the file.
    place: u64,
}

impl<R: Read> InputWindow<R> {
    /// Starts at `place` in the file, which is the current position of `input`.
    pub(crate) fn new(input: R, place: u64) -> Self {
        Self {
            input,
            buffer: vec![0; WINDOW_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            place,
        }
    }

    /// Returns the position of the next byte.
    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Returns the next bytes: at least `wanted`, unless the file ends earlier. `wanted`
    /// is at most half the size of the buffer.
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

    /// Returns the reader below the window. Its next byte follows the window.
    pub(crate) fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    /// Drops all bytes that were read ahead.
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

/// Uncompressed file.
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

/// Implements [`Read::read`] on top of [`BufRead`].
pub(crate) fn read_buffered(source: &mut impl BufRead, out: &mut [u8]) -> io::Result<usize> {
    let bytes = source.fill_buf()?;
    let taken = bytes.len().min(out.len());
    out[..taken].copy_from_slice(&bytes[..taken]);
    source.consume(taken);
    Ok(taken)
}

/// Skips to the next line that begins like a record. Returns whether there is one. The
/// caller has already read at least one line of the damaged record.
pub(crate) fn find_record(input: &mut InputWindow<impl Read>) -> io::Result<bool> {
    // The line already read may have been the last one of the damaged record.
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
