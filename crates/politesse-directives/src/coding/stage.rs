//! One content coding among those of a body: its decoder, and the bounds of what
//! it hands over to the next.
//!
//! Does not know which codings there are.

use std::ops::ControlFlow;

use crate::annotation::PartialReason;

/// One coding, and what its decoder may still hand over.
pub(super) struct Stage {
    pub(super) decoder: Box<dyn Decoder>,
    budget: Budget,
}

/// Decoder of one coding.
pub(super) trait Decoder: Send {
    /// Decodes bytes, and hands over all that they decode to. The same comes
    /// out however a body is cut into chunks.
    fn push(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt>;

    /// Whether the body may end here. A body without bytes may.
    fn may_end(&self) -> bool;

    /// Returns about how many bytes of memory are allocated.
    fn memory_bytes(&self) -> usize;
}

/// Receiver of what one stage decodes.
pub(super) struct Output<'a> {
    budget: &'a mut Budget,
    later: &'a mut [Stage],
    take: &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>,
}

/// Bounds of what one stage hands over.
struct Budget {
    bytes_left: usize,
    /// Grows by the decoded bytes, and is spent by parts.
    part_credit: usize,
}

/// Reason to decode no more of a body.
pub(super) enum Halt {
    /// The receiver has seen enough.
    Enough,
    Fault(PartialReason),
}

pub(super) const CORRUPT: Halt = Halt::Fault(PartialReason::Corrupt);

/// Parts (gzip members, zstd frames and blocks) that need not decode to
/// anything. Each flush makes one or two.
const SPARE_PARTS: usize = 1024;

/// Decoded bytes that allow a further part. An origin that flushes every line of
/// a page has more.
const BYTES_PER_PART: usize = 32;

impl Stage {
    /// Makes a stage that hands over at most `limit` bytes.
    pub(super) fn new(decoder: Box<dyn Decoder>, limit: usize) -> Self {
        let budget = Budget {
            bytes_left: limit,
            part_credit: SPARE_PARTS * BYTES_PER_PART,
        };
        Self { decoder, budget }
    }
}

impl Output<'_> {
    /// Hands decoded bytes over to the next stage, as far as the limit allows.
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

    /// Counts a part of the body that begins or ends. A part takes time even if
    /// it decodes to nothing, and no limit on decoded bytes sees it: half a
    /// megabyte may hold a hundred thousand.
    pub(super) fn add_part(&mut self) -> Result<(), Halt> {
        let left = self.budget.part_credit.checked_sub(BYTES_PER_PART);
        self.budget.part_credit = left.ok_or(CORRUPT)?;
        Ok(())
    }
}

/// Pushes bytes through the stages, one after the other.
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
