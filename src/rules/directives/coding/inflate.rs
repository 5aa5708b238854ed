//! The octets of a DEFLATE stream (RFC 1951), by `flate2` on `miniz_oxide`.

use flate2::{Decompress, FlushDecompress, Status};

use super::{Sink, Stop};
use crate::rules::directives::Why;

/// The window of `miniz_oxide`, which it fills and then hands over.
const WINDOW_BYTES: usize = 32 * 1024;

/// Decodes one stream, raw or in the wrapping of zlib (RFC 1950), whose
/// checksum is then verified.
pub(super) struct Inflater {
    stream: Decompress,
    phase: Phase,
}

/// What the octets of a stream are wrapped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapping {
    Raw,
    Zlib,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Going,
    Over,
}

impl Inflater {
    /// The window, the tables, and what is around them.
    pub(super) const MEMORY_BYTES: usize = 48 * 1024;

    pub(super) fn new(wrapping: Wrapping) -> Self {
        Self {
            stream: Decompress::new(wrapping == Wrapping::Zlib),
            phase: Phase::Going,
        }
    }

    /// Begins another stream, without wrapping.
    pub(super) fn restart(&mut self) {
        self.stream.reset(false);
        self.phase = Phase::Going;
    }

    /// Whether the stream has come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Takes in octets up to the end of the stream, and gives those behind it.
    pub(super) fn push<'a>(
        &mut self,
        octets: &'a [u8],
        sink: &mut Sink<'_>,
    ) -> Result<&'a [u8], Stop> {
        let mut piece = [0; WINDOW_BYTES];
        let mut rest = octets;
        while !self.is_over() {
            let (read, written) = (self.stream.total_in(), self.stream.total_out());
            // Room for just what is left of the window. With more it goes round
            // in one call, with less not all fits, and when it then finds a
            // fault the rest is lost: as much as depends on the chunks.
            let room = WINDOW_BYTES - octets_between(0, written) % WINDOW_BYTES;
            let none = FlushDecompress::None;
            let status = self.stream.decompress(rest, &mut piece[..room], none);
            let read = octets_between(read, self.stream.total_in());
            let written = octets_between(written, self.stream.total_out());
            rest = &rest[read..];
            if 0 < written {
                sink(&piece[..written])?;
            }
            match status {
                Ok(Status::StreamEnd) => self.phase = Phase::Over,
                Ok(_) if written < room && rest.is_empty() => break,
                Ok(Status::Ok) => {}
                // Nothing was wanting, neither octets nor room.
                Ok(Status::BufError) | Err(_) => return Err(Stop::Fault(Why::Corrupt)),
            }
        }
        Ok(rest)
    }
}

/// How many octets two totals are apart: no more than a call was given.
fn octets_between(before: u64, after: u64) -> usize {
    usize::try_from(after - before).unwrap_or(usize::MAX)
}
