//! The DEFLATE family (RFC 1951), decoded by `flate2`: `gzip` (RFC 1952) and `deflate`,
//! which is the zlib format (RFC 1950) or, from some origins, a raw stream.
//!
//! The backend is `zlib-rs`. It reads gzip's header, verifies all checksums, and has
//! the tables for fixed codes prepared, so that empty blocks cost little. As in
//! browsers, bytes after the end of a body are ignored.

use flate2::{Decompress, FlushDecompress, Status};

use super::stage::{CORRUPT, Decoder, Halt, Output};

/// Decodes one stream.
struct Inflater {
    stream: Decompress,
    is_finished: bool,
}

/// Decodes `gzip`: one or more members in a row.
pub(super) struct Gzip {
    member: Inflater,
    /// Bytes after a member that has ended: a prefix of [`MAGIC`] while another member
    /// may follow.
    tail: Vec<u8>,
}

/// Decodes `deflate`.
pub(super) struct Deflate {
    inflater: Inflater,
    /// First bytes; `None` once the body is known to be a raw stream.
    start: Option<Vec<u8>>,
}

/// First bytes of a member: gzip's magic number and the method (DEFLATE).
const MAGIC: [u8; 3] = [0x1F, 0x8B, 8];

/// Largest window of DEFLATE, as a power of two.
const WINDOW_BITS: u8 = 15;

/// Bytes decoded at once, on the stack, so that a page waiting for more of its body
/// holds only the window.
const OUTPUT_BYTES: usize = 4 * 1024;

/// Memory of an [`Inflater`]: window and tables.
const INFLATER_BYTES: usize = 48 * 1024;

/// Bytes after which a body is taken for the zlib format for good. Other bodies fail in
/// the header of their first block.
const TRIAL_BYTES: usize = 64;

impl Inflater {
    fn new(stream: Decompress) -> Self {
        Self {
            stream,
            is_finished: false,
        }
    }

    /// Reports whether the body may end here. An empty body may.
    fn may_end(&self) -> bool {
        self.is_finished || self.stream.total_in() == 0
    }

    /// Decodes `bytes` up to the end of the stream and returns the bytes after it.
    fn push<'a>(&mut self, bytes: &'a [u8], output: &mut Output<'_>) -> Result<&'a [u8], Halt> {
        let (mut rest, mut decoded) = (bytes, [0; OUTPUT_BYTES]);
        while !self.is_finished {
            let (read, written) = (self.stream.total_in(), self.stream.total_out());
            let flush = FlushDecompress::None;
            let status = self.stream.decompress(rest, &mut decoded, flush);
            // Both differences are at most the size of a buffer.
            let read = (self.stream.total_in() - read) as usize;
            let written = (self.stream.total_out() - written) as usize;
            rest = &rest[read..];
            // Output before a fault counts, because it does not depend on how the body
            // was cut.
            if 0 < written {
                output.push(&decoded[..written])?;
            }
            match status {
                Err(_) => return Err(CORRUPT),
                Ok(Status::StreamEnd) => self.is_finished = true,
                // If the output buffer is not full, the input is used up.
                Ok(_) if written < OUTPUT_BYTES => break,
                Ok(_) => {}
            }
        }
        Ok(rest)
    }
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            member: Inflater::new(Decompress::new_gzip(WINDOW_BITS)),
            tail: Vec::new(),
        }
    }
}

impl Decoder for Gzip {
    fn push(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt> {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            if !self.member.is_finished {
                rest = self.member.push(rest, output)?;
                if self.member.is_finished {
                    output.add_part()?;
                }
                continue;
            }
            if !MAGIC.starts_with(&self.tail) {
                return Ok(());
            }
            // Zeros pad tape blocks, and some readers skip them.
            if byte != 0 || !self.tail.is_empty() {
                self.tail.push(byte);
            }
            rest = behind;
            if self.tail == MAGIC {
                *self = Self::new();
                self.member.push(&MAGIC, output)?;
            }
        }
        Ok(())
    }

    fn may_end(&self) -> bool {
        self.member.may_end()
    }

    fn memory_bytes(&self) -> usize {
        INFLATER_BYTES
    }
}

impl Deflate {
    pub(super) fn new() -> Self {
        Self {
            inflater: Inflater::new(Decompress::new(true)),
            start: Some(Vec::new()),
        }
    }
}

impl Decoder for Deflate {
    fn push(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt> {
        let mut rest = bytes;
        if let Some(start) = &mut self.start {
            let length = rest.len().min(TRIAL_BYTES - start.len());
            let (trial, behind) = rest.split_at(length);
            rest = behind;
            start.extend_from_slice(trial);
            let result = self.inflater.push(trial, output);
            let is_decoded = 0 < self.inflater.stream.total_out();
            // A body that fails before anything was decoded may be a raw stream.
            if !is_decoded && matches!(result, Err(Halt::Fault(_))) {
                self.inflater = Inflater::new(Decompress::new(false));
                self.inflater.push(start, output)?;
                self.start = None;
            } else {
                result?;
            }
        }
        self.inflater.push(rest, output).map(|_| ())
    }

    fn may_end(&self) -> bool {
        self.inflater.may_end()
    }

    fn memory_bytes(&self) -> usize {
        INFLATER_BYTES
    }
}
