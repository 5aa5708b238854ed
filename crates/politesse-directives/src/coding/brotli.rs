//! br (RFC 7932), by `brotli-decompressor`.
//!
//! A stream asks for a window of up to 16 MiB. A window that is larger than
//! everything that will be handed over changes nothing, so a smaller one is
//! written into the header in its place. "Large window" streams, which are not
//! of the RFC, are not decoded. Octets behind the stream are ignored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brotli_decompressor::{
    Allocator, BrotliDecoderErrorCode, BrotliDecoderTakeOutput, BrotliDecompressStream,
    BrotliResult, BrotliState, SliceWrapper, StandardAlloc,
};

use super::{Coding, Sink, Stop};
use crate::Why;

/// Takes off br.
pub(super) struct Brotli {
    stream: Box<State>,
    /// Octets that it has allocated.
    spent: Arc<AtomicUsize>,
    /// The largest window that is needed, as a power of two.
    window_bits_max: u32,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Header,
    Data,
    Over,
}

/// What a stream may ask for (RFC 7932, section 9.1).
const WINDOW_BITS_MAX: u32 = 24;

/// The smallest window whose code has the length of those of all larger ones.
const WINDOW_BITS_WRITTEN_MIN: u32 = 18;

/// Octets of the window that no distance reaches (RFC 7932, section 9.1).
const WINDOW_GAP: usize = 16;

type State = BrotliState<Counted, Counted, Counted>;

/// Allocates as the standard library does, and keeps account: what a stream
/// takes depends on how many prefix codes it has (up to three kinds of 256
/// trees of 1,080 entries), and few have many.
struct Counted(Arc<AtomicUsize>);

impl<T: Clone + Default> Allocator<T> for Counted {
    type AllocatedMemory = <StandardAlloc as Allocator<T>>::AllocatedMemory;

    fn alloc_cell(&mut self, len: usize) -> Self::AllocatedMemory {
        self.0.fetch_add(len * size_of::<T>(), Ordering::Relaxed);
        StandardAlloc::default().alloc_cell(len)
    }

    fn free_cell(&mut self, cell: Self::AllocatedMemory) {
        let octets = size_of_val(cell.slice());
        self.0.fetch_sub(octets, Ordering::Relaxed);
    }
}

impl Brotli {
    pub(super) fn new(limit: usize) -> Self {
        let spent = Arc::new(AtomicUsize::new(0));
        let alloc = || Counted(Arc::clone(&spent));
        let needed = limit.saturating_add(WINDOW_GAP);
        let holds = |bits: &u32| needed <= 1 << bits;
        let mut written = WINDOW_BITS_WRITTEN_MIN..WINDOW_BITS_MAX;
        let window_bits_max = written.find(holds).unwrap_or(WINDOW_BITS_MAX);
        Self {
            stream: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())),
            spent,
            window_bits_max,
            phase: Phase::Header,
        }
    }

    /// The first octet of a stream, with a window that is large enough.
    fn header(&mut self, octet: u8) -> Result<u8, Stop> {
        let bits = window_bits(octet).ok_or(Stop::Fault(Why::Window))?;
        self.phase = Phase::Data;
        if bits <= self.window_bits_max {
            return Ok(octet);
        }
        // Both codes are a one and three bits, the window less 17.
        let written = u8::try_from(self.window_bits_max - 17).unwrap_or_default();
        Ok(octet & 0xF1 | written << 1)
    }

    fn data(&mut self, octets: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        let (mut left, mut at) = (octets.len(), 0);
        let result = loop {
            let result = self.decode(octets, (&mut left, &mut at));
            self.hand_over(sink)?;
            if !matches!(result, BrotliResult::NeedsMoreOutput) {
                break result;
            }
        };
        match result {
            BrotliResult::ResultSuccess => self.phase = Phase::Over,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultFailure => {
                // It keeps to itself what it decoded before it found the fault:
                // how much that is would depend on the chunks. (Where a command
                // runs over the end of its block it does so all the same.)
                self.stream.error_code = BrotliDecoderErrorCode::BROTLI_DECODER_SUCCESS;
                self.hand_over(sink)?;
                return Err(Stop::Fault(Why::Corrupt));
            }
        }
        Ok(())
    }

    /// Decodes into the window until it is full or the octets are used up.
    fn decode(&mut self, octets: &[u8], (left, at): (&mut usize, &mut usize)) -> BrotliResult {
        let (mut room, mut written, mut total) = (0, 0, 0);
        BrotliDecompressStream(
            left,
            at,
            octets,
            &mut room,
            &mut written,
            &mut [],
            &mut total,
            &mut self.stream,
        )
    }

    /// Hands over what was decoded, out of the window.
    fn hand_over(&mut self, sink: &mut Sink<'_>) -> Result<(), Stop> {
        loop {
            let mut all = 0;
            let piece = BrotliDecoderTakeOutput(&mut self.stream, &mut all);
            if piece.is_empty() {
                return Ok(());
            }
            sink(piece)?;
        }
    }
}

impl Coding for Brotli {
    fn push(&mut self, octets: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        let mut rest = octets;
        if let (Phase::Header, Some((&octet, behind))) = (self.phase, octets.split_first()) {
            let octet = self.header(octet)?;
            self.data(&[octet], sink)?;
            rest = behind;
        }
        if self.phase == Phase::Data && !rest.is_empty() {
            self.data(rest, sink)?;
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.phase != Phase::Data
    }

    fn memory(&self) -> usize {
        size_of::<State>() + self.spent.load(Ordering::Relaxed)
    }
}

/// The window that a stream asks for, as a power of two, by its first octet
/// (RFC 7932, section 9.1); none for a "large window".
fn window_bits(octet: u8) -> Option<u32> {
    let [short, long] = [octet >> 1, octet >> 4].map(|code| u32::from(code & 7));
    match (octet & 1, short, long) {
        (0, ..) => Some(16),
        (_, 0, 0) => Some(17),
        (_, 0, 1) => None,
        (_, 0, long) => Some(8 + long),
        (_, short, _) => Some(17 + short),
    }
}
