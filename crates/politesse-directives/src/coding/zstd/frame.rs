//! The header of a zstd frame (RFC 8878, section 3.1.1.1), and the one that
//! `ruzstd` is given in its place.

use super::block::BLOCK_BYTES_MAX;
use super::number;
use crate::Why;

/// What the header of a frame says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    descriptor: u8,
    window_bytes: u64,
    /// Octets that the frame decodes to, if it says so.
    pub(super) content_bytes: Option<u64>,
}

/// The largest window that a frame may ask for in HTTP (RFC 9659, section 3).
const WINDOW_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Flags of the descriptor (RFC 8878, section 3.1.1.1.1).
const SINGLE_SEGMENT: u8 = 1 << 5;
const RESERVED: u8 = 1 << 3;
const CHECKSUM: u8 = 1 << 2;

/// A single segment, its size in four octets, and neither checksum nor
/// dictionary.
const DESCRIPTOR_FOR_DECODER: u8 = 0b1010_0000;

impl Frame {
    /// Begins with the descriptor.
    ///
    /// # Errors
    ///
    /// [`Why::Corrupt`] if it says what no decoder knows.
    pub(super) fn of(descriptor: u8) -> Result<Self, Why> {
        if descriptor & RESERVED != 0 {
            return Err(Why::Corrupt);
        }
        Ok(Self {
            descriptor,
            ..Self::default()
        })
    }

    /// Octets of the header behind the descriptor.
    pub(super) fn header_bytes(&self) -> usize {
        self.field_bytes().into_iter().sum()
    }

    /// Reads the header behind the descriptor.
    ///
    /// # Errors
    ///
    /// [`Why::Window`] if the window is larger than HTTP allows,
    /// [`Why::Coding`] if it takes a dictionary: there is nothing wrong with
    /// the octets, but as with `dcz` they cannot be decoded by themselves.
    pub(super) fn read(&mut self, header: &[u8]) -> Result<(), Why> {
        let [window, dictionary, content] = self.field_bytes();
        let (window, rest) = header.split_at(window);
        let (dictionary, rest) = rest.split_at(dictionary);
        let least = if content == 2 { 256 } else { 0 };
        self.content_bytes = (content != 0).then(|| number(rest).saturating_add(least));
        self.window_bytes = match (window, self.content_bytes) {
            ([window, ..], _) => window_bytes(*window),
            ([], content_bytes) => content_bytes.unwrap_or_default(),
        };
        if number(dictionary) != 0 {
            return Err(Why::Coding);
        }
        if WINDOW_BYTES_MAX < self.window_bytes {
            return Err(Why::Window);
        }
        Ok(())
    }

    pub(super) fn has_checksum(&self) -> bool {
        self.descriptor & CHECKSUM != 0
    }

    /// Octets that a block takes or decodes to, at most (section 3.1.1.2.4).
    pub(super) fn block_bytes_max(&self) -> usize {
        usize::try_from(self.window_bytes).map_or(BLOCK_BYTES_MAX, |it| it.min(BLOCK_BYTES_MAX))
    }

    /// A whole header for `ruzstd`, which takes from it how long a block may
    /// be, and may reserve as much memory.
    pub(super) fn header_for_decoder(&self) -> [u8; 9] {
        let max = u32::try_from(self.block_bytes_max()).unwrap_or_default();
        let [a, b, c, d] = max.to_le_bytes();
        [0x28, 0xB5, 0x2F, 0xFD, DESCRIPTOR_FOR_DECODER, a, b, c, d]
    }

    /// Octets of the window descriptor, the dictionary's id and the content
    /// size.
    fn field_bytes(&self) -> [usize; 3] {
        let is_single = self.descriptor & SINGLE_SEGMENT != 0;
        let window = if is_single { 0 } else { 1 };
        let dictionary = [0, 1, 2, 4][usize::from(self.descriptor & 3)];
        let content = match self.descriptor >> 6 {
            0 if is_single => 1,
            0 => 0,
            flag => 1 << flag,
        };
        [window, dictionary, content]
    }
}

/// The size of a window by its descriptor (section 3.1.1.1.2).
fn window_bytes(descriptor: u8) -> u64 {
    let base = 1 << (10 + (descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 7)
}
