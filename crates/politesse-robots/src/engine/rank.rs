//! How much a rule counts, and where its bytes are: what an index is made of.

use super::shape::Shape;

/// Rank of a rule: how much it counts, and in the low half its place in the
/// file. The greater rank counts; of rules that count as much, the first in the
/// file has it. 0 is no rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RuleRank(pub(super) u64);

impl RuleRank {
    pub(super) const NONE: Self = Self(0);

    /// `weight` decides, below 2³².
    pub(super) fn new(weight: u32, token: u32) -> Self {
        Self(u64::from(weight) << 32 | u64::from(u32::MAX - token))
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the token of the rule.
    pub(super) fn token(self) -> u32 {
        // The low half, as it was put there.
        u32::MAX - (self.0 & u64::from(u32::MAX)) as u32
    }
}

/// A rule to be indexed.
#[derive(Clone, Copy)]
pub(super) struct IndexEntry {
    pub(super) rank: RuleRank,
    pub(super) place: BytePlace,
    pub(super) shape: Shape,
}

/// Start of the canonical bytes of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BytePlace(pub(super) u32);

impl BytePlace {
    const EXTRA: u32 = 1 << 31;

    pub(super) fn in_text(start: u32) -> Self {
        Self(start)
    }

    /// In the bytes that had to be rewritten.
    pub(super) fn in_extra(start: usize) -> Self {
        // They are at most three times the text: 96 MiB.
        Self(u32::try_from(start).unwrap_or(u32::MAX) | Self::EXTRA)
    }

    pub(super) fn after(self, bytes: usize) -> Self {
        Self(self.0 + u32::try_from(bytes).unwrap_or(u32::MAX - self.0))
    }
}

/// The two texts that places are in.
#[derive(Clone, Copy)]
pub(super) struct RuleBytes<'a> {
    pub(super) text: &'a [u8],
    pub(super) extra: &'a [u8],
}

impl<'a> RuleBytes<'a> {
    #[inline]
    pub(super) fn at(self, place: BytePlace, length: usize) -> &'a [u8] {
        self.from(place).get(..length).unwrap_or_default()
    }

    /// Returns the bytes at `place` and all after them.
    #[inline]
    pub(super) fn from(self, place: BytePlace) -> &'a [u8] {
        let start = (place.0 & !BytePlace::EXTRA) as usize;
        let bytes = if place.0 & BytePlace::EXTRA == 0 {
            self.text
        } else {
            self.extra
        };
        bytes.get(start..).unwrap_or_default()
    }
}
