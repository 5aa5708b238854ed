//! The header of a zstd block (RFC 8878, section 3.1.1.2), and what the
//! sections of a compressed one say of their size.
//!
//! `ruzstd` takes memory for as many literals and sequences as are announced,
//! so that what cannot be true is found here.

use super::{number, size};

/// A block, before its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// Octets it takes, or, of a repeated octet, those it decodes to.
    pub(super) size: usize,
    pub(super) is_last: bool,
}

/// How a block is written (RFC 8878, section 3.1.1.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Raw,
    /// One octet, many times.
    Repeated,
    Compressed,
}

/// No block takes or decodes to more (RFC 8878, section 3.1.1.2.4).
pub(super) const BLOCK_BYTES_MAX: usize = 128 * 1024;

/// Octets that a sequence decodes to, at least (section 3.1.1.3.2.1.1).
const SEQUENCE_BYTES_MIN: usize = 3;

impl Block {
    pub(super) const HEADER_BYTES: usize = 3;

    /// The block with this header. None if there is no such block: its type is
    /// reserved, or it lacks the sections of a compressed one.
    pub(super) fn of(header: &[u8]) -> Option<Self> {
        let header = size(header);
        let block = Self {
            kind: [Kind::Raw, Kind::Repeated, Kind::Compressed]
                .get(header >> 1 & 3)
                .copied()?,
            size: header >> 3,
            is_last: header & 1 != 0,
        };
        let is_empty = block.kind == Kind::Compressed && block.size == 0;
        (!is_empty).then_some(block)
    }

    /// Octets behind the header.
    pub(super) fn body_bytes(&self) -> usize {
        match self.kind {
            Kind::Repeated => 1,
            Kind::Raw | Kind::Compressed => self.size,
        }
    }

    /// A header for `ruzstd` that makes the block the last one. Of a raw block
    /// `come` octets are given to it.
    pub(super) fn header_for_decoder(&self, come: usize) -> [u8; Self::HEADER_BYTES] {
        let (code, size) = match self.kind {
            Kind::Raw => (0, come),
            Kind::Repeated => (1, self.size),
            Kind::Compressed => (2, self.size),
        };
        let [a, b, c, ..] = (size << 3 | code << 1 | 1).to_le_bytes();
        [a, b, c]
    }

    /// Whether a block with this body can decode to at most `max` octets, as
    /// far as its sections announce it.
    pub(super) fn is_bounded(&self, body: &[u8], max: usize) -> bool {
        match self.kind {
            Kind::Raw => true,
            Kind::Repeated => self.size <= max,
            Kind::Compressed => announced_bytes(body).is_some_and(|bytes| bytes <= max),
        }
    }
}

/// Octets that the sections of a compressed block decode to, at least. None if
/// the block ends before it says so.
fn announced_bytes(body: &[u8]) -> Option<usize> {
    let (literals, section) = literals(body)?;
    let sequences = sequences(body.get(section..)?)?;
    Some(literals + SEQUENCE_BYTES_MIN * sequences)
}

/// How many literals the section that a block begins with decodes to, and the
/// octets it takes (RFC 8878, section 3.1.1.3.1.1).
fn literals(body: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*body.first()?);
    let format = first >> 2 & 3;
    let is_huffman = 2 <= first & 3;
    let (header, bits) = match (is_huffman, format) {
        (false, 0 | 2) => return with_content(first, (first >> 3, 1)),
        (false, 1) => (2, 12),
        (false, _) => (3, 20),
        (true, 0 | 1) => (3, 10),
        (true, 2) => (4, 14),
        (true, _) => (5, 18),
    };
    let sizes = number(body.get(..header)?) >> 4;
    let part = |at: u32| usize::try_from(sizes >> at & ((1 << bits) - 1)).ok();
    if is_huffman {
        return Some((part(0)?, header + part(bits)?));
    }
    with_content(first, (part(0)?, header))
}

/// A section of raw literals, or of one that is repeated, with its header.
fn with_content(first: usize, (literals, header): (usize, usize)) -> Option<(usize, usize)> {
    let content = if first & 3 == 0 { literals } else { 1 };
    Some((literals, header + content))
}

/// How many sequences a section has (RFC 8878, section 3.1.1.3.2.1).
fn sequences(section: &[u8]) -> Option<usize> {
    let first = usize::from(*section.first()?);
    Some(match first {
        0..128 => first,
        128..255 => (first - 128) << 8 | usize::from(*section.get(1)?),
        _ => size(section.get(1..3)?) + 0x7F00,
    })
}
