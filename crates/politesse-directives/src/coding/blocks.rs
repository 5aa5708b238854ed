//! How many blocks a stream may have for what it decodes to.
//!
//! A block of a few bits can have tables built that take microseconds: with
//! nothing but such blocks, half a megabyte would cost seconds. The limit on
//! octets does not see them, since they decode to nothing.

use super::Stop;
use crate::Why;

/// The blocks of a stream so far, and what they decoded to.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    begun: usize,
    octets: usize,
}

/// Blocks that need not decode to anything. Each flush makes one or two.
const SPARE: usize = 1024;

/// Octets that allow a further block. An origin that flushes every line of a
/// page has more.
const OCTETS_PER_BLOCK: usize = 32;

impl Blocks {
    /// Notes what was decoded.
    pub(super) fn add_octets(&mut self, octets: usize) {
        self.octets += octets;
    }

    /// Notes that a block, or whatever holds blocks, begins or ends.
    ///
    /// # Errors
    ///
    /// [`Why::Corrupt`] if there are too many.
    pub(super) fn add_block(&mut self) -> Result<(), Stop> {
        self.begun += 1;
        if SPARE + self.octets / OCTETS_PER_BLOCK < self.begun {
            return Err(Stop::Fault(Why::Corrupt));
        }
        Ok(())
    }
}
