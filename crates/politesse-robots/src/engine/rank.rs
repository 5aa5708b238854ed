//! Entries of the index: the rank of a rule, and the position of its bytes.
//!
//! Does not know how dialects weigh rules.

use super::shape::Shape;

/// Rank of a rule: its weight in the high half, and its position in the file in the low
/// half. The matching rule with the greatest rank decides. Of rules with equal weight, the
/// first in the file has the greatest rank. 0 means no rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RuleRank(pub(super) u64);

impl RuleRank {
    pub(super) const NONE: Self = Self(0);

    /// Creates a rank. Between two ranks, `weight` decides first, then the lower `token`.
    pub(super) fn new(weight: u32, token: u32) -> Self {
        Self(u64::from(weight) << 32 | u64::from(u32::MAX - token))
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the token of the rule.
    pub(super) fn token(self) -> u32 {
        // Cannot truncate: only the low half is left.
        u32::MAX - (self.0 & u64::from(u32::MAX)) as u32
    }
}

/// Rule to be indexed.
#[derive(Clone, Copy)]
pub(super) struct IndexEntry {
    pub(super) rank: RuleRank,
    pub(super) place: BytePlace,
    pub(super) shape: Shape,
}

/// Position of the canonical bytes of a rule, in the text of the file or in the extra
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BytePlace(pub(super) u32);

impl BytePlace {
    const EXTRA: u32 = 1 << 31;

    pub(super) fn in_text(start: u32) -> Self {
        Self(start)
    }

    /// Returns a position in the extra bytes: those that had to be rewritten.
    pub(super) fn in_extra(start: usize) -> Self {
        // Always fits: the extra bytes are at most three times the text, or 96 MiB.
        Self(u32::try_from(start).unwrap_or(u32::MAX) | Self::EXTRA)
    }

    pub(super) fn after(self, bytes: usize) -> Self {
        Self(self.0 + u32::try_from(bytes).unwrap_or(u32::MAX - self.0))
    }
}

/// Bytes that positions refer to: the text of the file, and the extra bytes.
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

    /// Returns all bytes from `place` on.
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
