//! The DEFLATE family (RFC 1951) by `flate2`: `gzip` (RFC 1952) and `deflate`,
//! which is zlib's format (RFC 1950) or, from some origins, a stream without it.
//!
//! The backend is `zlib-rs`: it reads gzip's header and checks all checksums,
//! and has its tables for fixed codes at hand, so that empty blocks cost little.
//! Bytes behind the end of a body are ignored, as browsers do.

use flate2::{Decompress, FlushDecompress, Status};

use super::stage::{CORRUPT, Decoder, Halt, Output};

/// Decodes one stream.
struct Inflater {
    stream: Decompress,
    is_finished: bool,
}

/// Decodes `gzip`: members one after the other.
pub(super) struct Gzip {
    member: Inflater,
    /// Bytes behind a member that has ended: of [`MAGIC`] while another may
    /// follow.
    tail: Vec<u8>,
}

/// Decodes `deflate`.
pub(super) struct Deflate {
    inflater: Inflater,
    /// First bytes; `None` once the body is a stream without zlib's format.
    start: Option<Vec<u8>>,
}

/// First bytes of a member: gzip's magic number and the method, DEFLATE.
const MAGIC: [u8; 3] = [0x1F, 0x8B, 8];

/// Largest window that DEFLATE has, as a power of two.
const WINDOW_BITS: u8 = 15;

/// Bytes decoded at once, on the stack: a page that waits for more of its body
/// holds the window only.
const OUTPUT_BYTES: usize = 4 * 1024;

/// Memory of an [`Inflater`]: window and tables.
const INFLATER_BYTES: usize = 48 * 1024;

/// Bytes after which a body is zlib's for good. What is not shows it in the
/// header of its first block.
const TRIAL_BYTES: usize = 64;

impl Inflater {
    fn new(stream: Decompress) -> Self {
        Self {
            stream,
            is_finished: false,
        }
    }

    /// Reports whether the body may end here. One without bytes may.
    fn may_end(&self) -> bool {
        self.is_finished || self.stream.total_in() == 0
    }

    /// Decodes `bytes` up to the end of the stream, and returns those behind it.
    fn push<'a>(&mut self, bytes: &'a [u8], output: &mut Output<'_>) -> Result<&'a [u8], Halt> {
        let (mut rest, mut decoded) = (bytes, [0; OUTPUT_BYTES]);
        while !self.is_finished {
            let (read, written) = (self.stream.total_in(), self.stream.total_out());
            let flush = FlushDecompress::None;
            let status = self.stream.decompress(rest, &mut decoded, flush);
            // The sizes of the buffers bound both.
            let read = (self.stream.total_in() - read) as usize;
            let written = (self.stream.total_out() - written) as usize;
            rest = &rest[read..];
            // What comes before a fault counts: it does not depend on chunks.
            if 0 < written {
                output.push(&decoded[..written])?;
            }
            match status {
                Err(_) => return Err(CORRUPT),
                Ok(Status::StreamEnd) => self.is_finished = true,
                // The input is used up if the output is not.
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
            // Zeros fill up the blocks of a tape: some readers skip them.
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
            // What fails before anything was decoded may be a stream without
            // zlib's format.
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
