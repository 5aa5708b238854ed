//! The octets of a DEFLATE stream (RFC 1951), by `miniz_oxide`.
//!
//! Its window is kept here, and what it decodes is handed over from there: all
//! of it, also what it finds before a fault.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::blocks::Blocks;
use super::{Sink, Stop};
use crate::Why;

/// The farthest that a distance reaches (RFC 1951, section 2).
const WINDOW_BYTES: usize = 32 * 1024;

/// Decodes one stream after the other, raw or in the wrapping of zlib (RFC
/// 1950), whose checksum is then verified.
pub(super) struct Inflater {
    stream: Box<DecompressorOxide>,
    flags: u32,
    window: Vec<u8>,
    /// Where in the window the next octet goes.
    at: usize,
    blocks: Blocks,
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
        let wrapping = match wrapping {
            Wrapping::Raw => inflate_flags::TINFL_FLAG_IGNORE_ADLER32,
            Wrapping::Zlib => inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER,
        };
        let more = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
        Self {
            stream: Box::default(),
            flags: wrapping | more | inflate_flags::TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY,
            window: vec![0; WINDOW_BYTES],
            at: 0,
            blocks: Blocks::default(),
            phase: Phase::Going,
        }
    }

    /// Begins another stream of the same kind.
    pub(super) fn restart(&mut self) {
        self.stream.init();
        self.at = 0;
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
        let mut rest = octets;
        while !self.is_over() {
            let (window, at) = (&mut self.window, self.at);
            let (status, read, written) =
                decompress(&mut self.stream, rest, window, at, self.flags);
            rest = &rest[read..];
            self.at = (at + written) % WINDOW_BYTES;
            self.blocks.add_octets(written);
            if 0 < written {
                sink(&window[at..at + written])?;
            }
            match status {
                TINFLStatus::NeedsMoreInput => break,
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::BlockBoundary => self.blocks.add_block()?,
                TINFLStatus::Done => {
                    self.phase = Phase::Over;
                    self.blocks.add_block()?;
                }
                TINFLStatus::Failed
                | TINFLStatus::FailedCannotMakeProgress
                | TINFLStatus::BadParam
                | TINFLStatus::Adler32Mismatch
                | _ => return Err(Stop::Fault(Why::Corrupt)),
            }
        }
        Ok(rest)
    }
}
