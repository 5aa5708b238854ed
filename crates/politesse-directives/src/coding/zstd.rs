//! `zstd` (RFC 8878; in HTTP, RFC 9659), decoded by `ruzstd`. Checksums are not
//! verified.
//!
//! Until the end of a frame, `ruzstd` outputs only what has left the window, and the
//! window is longer than most pages. So this module splits the blocks and gives
//! `ruzstd` each one as if it were the last of its frame, which makes all of its output
//! readable. The output is read in place and never drained, because later blocks refer
//! to it. The output limit bounds its size.

use std::io::{self, Read, Write};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError as HeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::stage::{CORRUPT, Decoder, Halt, Output};
use crate::annotation::PartialReason;

/// Decodes `zstd`: one or more frames in a row.
pub(super) struct Zstd {
    next: ZstdPart,
    /// Bytes of the next part, while it is incomplete.
    pending: Vec<u8>,
    frame: Box<FrameDecoder>,
    /// Bytes of the frame that have been output.
    frame_bytes: usize,
    /// Maximum number of bytes that a block of the frame decodes to.
    block_bytes_max: usize,
}

/// The part of a body that comes next (RFC 8878, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ZstdPart {
    /// Frame header, after `skipped` bytes of a skippable frame or a checksum.
    FrameHeader {
        skipped: usize,
    },
    Block,
    /// Content of a raw block, which is output as it arrives.
    RawBytes {
        left: usize,
        is_last: bool,
    },
}

/// Largest window of a frame in HTTP (RFC 9659, section 3).
const WINDOW_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Maximum number of bytes that a block may take or decode to, in any frame (RFC 8878,
/// section 3.1.1.2.4).
const BLOCK_BYTES_MAX: usize = 128 * 1024;

/// Memory of `ruzstd` besides the window: tables, and the literals and sequences of a
/// block.
const TABLE_BYTES: usize = 512 * 1024;

const CHECKSUM_BYTES: usize = 4;

/// Position of the frame header descriptor, and two of its bits (RFC 8878, section
/// 3.1.1.1.1).
const DESCRIPTOR_AT: usize = 4;
const SINGLE_SEGMENT: u8 = 1 << 5;
const RESERVED: u8 = 1 << 3;

impl Zstd {
    pub(super) fn new() -> Self {
        Self {
            next: ZstdPart::FrameHeader { skipped: 0 },
            pending: Vec::new(),
            frame: Box::new(FrameDecoder::new()),
            frame_bytes: 0,
            block_bytes_max: 0,
        }
    }

    /// Reads the next part from `bytes` and returns its length, 0 if it is incomplete.
    fn read(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<usize, Halt> {
        match self.next {
            ZstdPart::FrameHeader { skipped: 0 } => self.read_frame_header(bytes, output),
            ZstdPart::Block => self.read_block(bytes, output),
            ZstdPart::RawBytes { left, is_last } => {
                let content = bytes.get(..left).unwrap_or(bytes);
                let [low, middle, high, ..] = (content.len() << 3 | 1).to_le_bytes();
                self.decode([low, middle, high], content, output)?;
                self.next = match left - content.len() {
                    0 => self.after_block(is_last)?,
                    left => ZstdPart::RawBytes { left, is_last },
                };
                Ok(content.len())
            }
            ZstdPart::FrameHeader { skipped } => {
                let length = skipped.min(bytes.len());
                let skipped = skipped - length;
                self.next = ZstdPart::FrameHeader { skipped };
                Ok(length)
            }
        }
    }

    fn read_frame_header(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<usize, Halt> {
        use FrameDecoderError::{DictNotProvided, ReadFrameHeaderError, WindowSizeTooBig};
        // A new decoder, because a reused one allocates the whole window.
        *self.frame = FrameDecoder::new();
        self.frame.set_max_window_size(WINDOW_BYTES_MAX);
        self.frame_bytes = 0;
        let mut rest = bytes;
        self.next = match self.frame.reset(&mut rest) {
            // ruzstd does not check the reserved bit.
            Ok(()) if bytes[DESCRIPTOR_AT] & RESERVED == 0 => {
                self.block_bytes_max = block_bytes_max(bytes, self.frame.content_size());
                ZstdPart::Block
            }
            Err(ReadFrameHeaderError(HeaderError::SkipFrame { length, .. })) => {
                let skipped = usize::try_from(length).unwrap_or(usize::MAX);
                ZstdPart::FrameHeader { skipped }
            }
            Ok(()) | Err(ReadFrameHeaderError(HeaderError::BadMagicNumber(_))) => {
                return Err(CORRUPT);
            }
            // All other errors mean that the bytes end within the header.
            Err(ReadFrameHeaderError(_)) => return Ok(0),
            // The bytes are valid, but need a dictionary, as with `dcz`.
            Err(DictNotProvided { .. }) => return Err(Halt::Fault(PartialReason::Coding)),
            Err(WindowSizeTooBig { .. } | FrameDecoderError::FrameHeaderError(_)) => {
                return Err(Halt::Fault(PartialReason::Window));
            }
            Err(_) => return Err(CORRUPT),
        };
        output.add_part()?;
        Ok(bytes.len() - rest.len())
    }

    /// Reads a block (RFC 8878, section 3.1.1.2), or the header of a raw one.
    fn read_block(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<usize, Halt> {
        let Some((&[low, middle, high], behind)) = bytes.split_first_chunk() else {
            return Ok(0);
        };
        let header = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        let (is_last, kind, size) = (header & 1 == 1, header >> 1 & 3, header >> 3);
        let content_bytes = match kind {
            // The size is the number of repetitions of one byte.
            1 => 1,
            // Checked here, because ruzstd gets the content of a raw block in pieces.
            0 if size <= self.block_bytes_max => size,
            2 if size <= BLOCK_BYTES_MAX => size,
            _ => return Err(CORRUPT),
        };
        if kind != 0 && behind.len() < content_bytes {
            return Ok(0);
        }
        output.add_part()?;
        if kind == 0 && size != 0 {
            self.next = ZstdPart::RawBytes {
                left: size,
                is_last,
            };
            return Ok(3);
        }
        self.decode([low | 1, middle, high], &behind[..content_bytes], output)?;
        self.next = self.after_block(is_last)?;
        Ok(3 + content_bytes)
    }

    /// Returns the part that follows a block.
    fn after_block(&self, is_last: bool) -> Result<ZstdPart, Halt> {
        if !is_last {
            return Ok(ZstdPart::Block);
        }
        // Zero if the header does not state the size.
        let stated = self.frame.content_size();
        if stated != 0 && usize::try_from(stated) != Ok(self.frame_bytes) {
            return Err(CORRUPT);
        }
        // ruzstd has read the dummy checksum that `decode` put after the block.
        let has_checksum = self.frame.get_checksum_from_data().is_some();
        let skipped = if has_checksum { CHECKSUM_BYTES } else { 0 };
        Ok(ZstdPart::FrameHeader { skipped })
    }

    /// Decodes a block under the header of a last block, and outputs what it adds.
    fn decode(&mut self, head: [u8; 3], body: &[u8], output: &mut Output<'_>) -> Result<(), Halt> {
        // ruzstd may look for a checksum after the block.
        let source = head.chain(body).chain(&[0; CHECKSUM_BYTES][..]);
        let one = BlockDecodingStrategy::UptoBlocks(1);
        self.frame.decode_blocks(source, one).map_err(|_| CORRUPT)?;
        let mut view = FrameView {
            seen_bytes: self.frame_bytes,
            output,
            result: Ok(()),
        };
        // The result is the number of bytes drained, which is always zero.
        let _: io::Result<usize> = self.frame.collect_to_writer(&mut view);
        view.result?;
        self.frame_bytes = view.seen_bytes;
        Ok(())
    }
}

impl Decoder for Zstd {
    fn push(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut rest = &pending[..];
        while !rest.is_empty() {
            match self.read(rest, output)? {
                0 => break,
                taken => rest = &rest[taken..],
            }
        }
        pending.drain(..pending.len() - rest.len());
        self.pending = pending;
        Ok(())
    }

    fn may_end(&self) -> bool {
        self.next == ZstdPart::FrameHeader { skipped: 0 } && self.pending.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        // The buffer of a frame doubles when it grows.
        TABLE_BYTES + self.pending.capacity() + 2 * self.frame_bytes
    }
}

/// Returns the most bytes that a block of a frame decodes to: the size of its window,
/// up to a fixed maximum (RFC 8878, sections 3.1.1.1.2 and 3.1.1.2.4). In a frame of a
/// single segment the content is the window.
fn block_bytes_max(header: &[u8], content_bytes: u64) -> usize {
    let window = if header[DESCRIPTOR_AT] & SINGLE_SEGMENT != 0 {
        content_bytes
    } else {
        let descriptor = header[DESCRIPTOR_AT + 1];
        let base = 1_u64 << (10 + (descriptor >> 3));
        base + base / 8 * u64::from(descriptor & 7)
    };
    usize::try_from(window).map_or(BLOCK_BYTES_MAX, |window| window.min(BLOCK_BYTES_MAX))
}

/// Writer that sees everything decoded of a frame so far and outputs what is new.
struct FrameView<'a, 'b> {
    seen_bytes: usize,
    output: &'a mut Output<'b>,
    result: Result<(), Halt>,
}

impl Write for FrameView<'_, '_> {
    fn write(&mut self, frame: &[u8]) -> io::Result<usize> {
        let added = frame.get(self.seen_bytes..).unwrap_or_default();
        self.seen_bytes += added.len();
        // ruzstd does not limit the literals of a block and keeps their buffer.
        // `TABLE_BYTES` would not cover a larger one.
        self.result = match added.len() {
            0 => Ok(()),
            1..=BLOCK_BYTES_MAX => self.output.push(added),
            _ => Err(CORRUPT),
        };
        // Zero drains nothing, and the writer is not called again.
        Ok(0)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
