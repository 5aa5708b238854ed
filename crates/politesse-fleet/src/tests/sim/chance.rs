//! Reproducible random numbers.

use std::time::Duration;

/// Reproducible random number generator (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1)
    }

    /// Returns a time of less than `below` microseconds.
    pub(crate) fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.below(below))
    }
}
