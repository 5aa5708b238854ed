//! `br` (RFC 7932), decoded by `brotli-decompressor`. Bytes after the stream are
//! ignored.
//!
//! A stream may ask for a window of 16 MiB, and the library allocates it as soon as the
//! stream announces a block of that size. A window as large as the output limit is
//! enough, so a smaller size is written into the first byte of the stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brotli_decompressor::{
    Allocator, BrotliDecoderErrorCode, BrotliDecoderIsFinished, BrotliDecoderTakeOutput,
    BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, StandardAlloc,
};

use super::stage::{CORRUPT, Decoder, Halt, Output};
use crate::annotation::PartialReason;

/// Decodes `br`.
pub(super) struct Brotli {
    stream: Box<BrotliStream>,
    allocated_bytes: Arc<AtomicUsize>,
    /// Largest window that is needed, as a power of two; `None` once the first byte has
    /// arrived.
    window_bits_max: Option<u8>,
}

type BrotliStream = BrotliState<CountingAllocator, CountingAllocator, CountingAllocator>;

/// The standard library's allocator with a count of the bytes in use. Prefix codes can
/// take 4 MiB, but those of most streams take little.
struct CountingAllocator(Arc<AtomicUsize>);

/// Window sizes, as powers of two, whose codes differ only in three bits of the first
/// byte (RFC 7932, section 9.1).
const WINDOW_BITS: std::ops::RangeInclusive<u8> = 18..=24;

/// Bytes of a window that no distance can reach (RFC 7932, section 9.1).
const WINDOW_GAP_BYTES: usize = 16;

impl<T: Clone + Default> Allocator<T> for CountingAllocator {
    type AllocatedMemory = <StandardAlloc as Allocator<T>>::AllocatedMemory;

    fn alloc_cell(&mut self, len: usize) -> Self::AllocatedMemory {
        self.0.fetch_add(len * size_of::<T>(), Ordering::Relaxed);
        StandardAlloc::default().alloc_cell(len)
    }

    fn free_cell(&mut self, cell: Self::AllocatedMemory) {
        let bytes = size_of_val(cell.slice());
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Brotli {
    /// Returns a decoder that outputs at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        let allocated_bytes = Arc::new(AtomicUsize::new(0));
        let allocator = || CountingAllocator(Arc::clone(&allocated_bytes));
        // Strict, because "large windows" are not part of the RFC.
        let stream = BrotliState::new_strict(allocator(), allocator(), allocator());
        let needed_bytes = limit.saturating_add(WINDOW_GAP_BYTES);
        let mut enough = WINDOW_BITS.skip_while(|bits| 1 << bits < needed_bytes);
        Self {
            stream: Box::new(stream),
            allocated_bytes,
            window_bits_max: enough.next().or(Some(*WINDOW_BITS.end())),
        }
    }

    fn decode(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt> {
        let (mut left, mut at) = (bytes.len(), 0);
        loop {
            // Without an output buffer, the library decodes until the window is full.
            let (stream, [mut room, mut written, mut total]) = (&mut self.stream, [0; 3]);
            let result = BrotliDecompressStream(
                &mut left,
                &mut at,
                bytes,
                &mut room,
                &mut written,
                &mut [],
                &mut total,
                stream,
            );
            if matches!(result, BrotliResult::ResultFailure) {
                use BrotliDecoderErrorCode::{
                    BROTLI_DECODER_ERROR_FORMAT_WINDOW_BITS as WINDOW,
                    BROTLI_DECODER_SUCCESS as SUCCESS,
                };
                if matches!(stream.error_code, WINDOW) {
                    return Err(Halt::Fault(PartialReason::Window));
                }
                // While an error is set, the library holds back what it decoded before,
                // and how much that is would depend on the chunks. (If a command runs
                // past the end of its block, it holds it back regardless.)
                stream.error_code = SUCCESS;
            }
            self.hand_over(output)?;
            match result {
                BrotliResult::NeedsMoreOutput => {}
                BrotliResult::ResultFailure => return Err(CORRUPT),
                BrotliResult::NeedsMoreInput | BrotliResult::ResultSuccess => return Ok(()),
            }
        }
    }

    /// Outputs the decoded bytes, straight from the window.
    fn hand_over(&mut self, output: &mut Output<'_>) -> Result<(), Halt> {
        loop {
            let mut all = 0;
            let piece = BrotliDecoderTakeOutput(&mut self.stream, &mut all);
            if piece.is_empty() {
                return Ok(());
            }
            output.push(piece)?;
        }
    }
}

impl Decoder for Brotli {
    fn push(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt> {
        let mut rest = bytes;
        if let (Some(bits_max), Some((first, behind))) = (self.window_bits_max, bytes.split_first())
        {
            self.window_bits_max = None;
            self.decode(&[with_window(*first, bits_max)], output)?;
            rest = behind;
        }
        if rest.is_empty() || BrotliDecoderIsFinished(&self.stream) {
            return Ok(());
        }
        self.decode(rest, output)
    }

    fn may_end(&self) -> bool {
        self.window_bits_max.is_some() || BrotliDecoderIsFinished(&self.stream)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<BrotliStream>() + self.allocated_bytes.load(Ordering::Relaxed)
    }
}

/// Returns the first byte of a stream, with a window of at most `bits_max`, which is
/// one of [`WINDOW_BITS`].
fn with_window(first: u8, bits_max: u8) -> u8 {
    // A one bit, then the size minus 17 in three bits. All other codes are small
    // windows.
    let bits = 17 + (first >> 1 & 7);
    if first & 1 == 0 || bits <= bits_max {
        return first;
    }
    first & 0b1111_0001 | (bits_max - 17) << 1
}
