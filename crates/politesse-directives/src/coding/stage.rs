//! One content coding of a body: its decoder, and the limits of what it passes on to
//! the next stage.
//!
//! Does not know which codings exist.

use std::ops::ControlFlow;

use crate::annotation::PartialReason;

/// One coding, with the budget of its decoder.
pub(super) struct Stage {
    pub(super) decoder: Box<dyn Decoder>,
    budget: Budget,
}

/// Decoder of one coding.
pub(super) trait Decoder: Send {
    /// Decodes bytes and outputs everything that they decode to. The output does not
    /// depend on how a body is cut into chunks.
    fn push(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt>;

    /// Reports whether the body may end here. An empty body may.
    fn may_end(&self) -> bool;

    /// Returns approximately how many bytes of memory are allocated.
    fn memory_bytes(&self) -> usize;
}

/// Receiver of one stage's output.
pub(super) struct Output<'a> {
    budget: &'a mut Budget,
    later: &'a mut [Stage],
    take: &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>,
}

/// Limits on the output of one stage.
struct Budget {
    bytes_left: usize,
    /// Grows with the decoded bytes; each part spends some of it.
    part_credit: usize,
}

/// Reason to stop decoding a body.
pub(super) enum Halt {
    /// The receiver has seen enough.
    Enough,
    Fault(PartialReason),
}

pub(super) const CORRUPT: Halt = Halt::Fault(PartialReason::Corrupt);

/// Parts (gzip members, zstd frames and blocks) that may decode to nothing. Each flush
/// makes one or two.
const SPARE_PARTS: usize = 1024;

/// Decoded bytes that allow one more part. An origin that flushes every line of a page
/// outputs more than that per line.
const BYTES_PER_PART: usize = 32;

impl Stage {
    /// Makes a stage that outputs at most `limit` bytes.
    pub(super) fn new(decoder: Box<dyn Decoder>, limit: usize) -> Self {
        let budget = Budget {
            bytes_left: limit,
            part_credit: SPARE_PARTS * BYTES_PER_PART,
        };
        Self { decoder, budget }
    }
}

impl Output<'_> {
    /// Passes decoded bytes on to the next stage, as far as the limit allows.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Halt> {
        let within = piece.get(..self.budget.bytes_left).unwrap_or(piece);
        self.budget.bytes_left -= within.len();
        self.budget.part_credit += within.len();
        if !within.is_empty() {
            push_through(self.later, within, self.take)?;
        }
        if within.len() < piece.len() {
            return Err(Halt::Fault(PartialReason::HeadLimit));
        }
        Ok(())
    }

    /// Counts a part of the body that begins or ends. A part takes time even if it
    /// decodes to nothing, and the limit on decoded bytes does not cover that: half a
    /// megabyte can hold a hundred thousand parts.
    pub(super) fn add_part(&mut self) -> Result<(), Halt> {
        let left = self.budget.part_credit.checked_sub(BYTES_PER_PART);
        self.budget.part_credit = left.ok_or(CORRUPT)?;
        Ok(())
    }
}

/// Pushes bytes through all stages in turn.
pub(super) fn push_through(
    stages: &mut [Stage],
    bytes: &[u8],
    take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Halt> {
    let Some((Stage { decoder, budget }, later)) = stages.split_first_mut() else {
        return match take(bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Halt::Enough),
        };
    };
    let mut output = Output {
        budget,
        later,
        take,
    };
    decoder.push(bytes, &mut output)
}
