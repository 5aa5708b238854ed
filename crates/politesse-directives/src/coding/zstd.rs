//! zstd (RFC 8878; in HTTP, RFC 9659): frames one after the other, each a
//! header, blocks and perhaps a checksum, by `ruzstd`.
//!
//! `ruzstd` hands over no more than what has left the window, unless the frame
//! is over, and nobody can wait for that. So frames and blocks are taken apart
//! here, and it gets every block as the last of a frame: then it shows all it
//! has. What it has is never taken from it, so that it is the window as well,
//! and the limit bounds it.
//!
//! Checksums are not verified.

use std::io::{self, Write};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::blocks::Blocks;
use super::{Coding, Sink, Stop};
use crate::Why;
use block::{Block, Kind};
use frame::Frame;

mod block;

mod frame;

/// Takes off zstd.
pub(super) struct Zstd {
    phase: Phase,
    /// Octets of the part that comes, until there are as many as it takes.
    part: Vec<u8>,
    frame: Frame,
    decoder: Box<FrameDecoder>,
    /// Octets of the frame that were handed over.
    handed: usize,
    blocks: Blocks,
}

/// The part of a frame that comes (RFC 8878, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Magic,
    /// The size of a skippable frame.
    SkipSize,
    /// As many octets to ignore.
    Skip(usize),
    Descriptor,
    Header,
    BlockHeader,
    /// As many octets of a raw block.
    Raw(usize, Block),
    Block(Block),
    Checksum,
}

const MAGIC: u64 = 0xFD2F_B528;
const MAGIC_SKIP: u64 = 0x184D_2A50;

/// What `ruzstd` holds besides the window: literals, sequences and tables.
const TABLE_BYTES: usize = 512 * 1024;

impl Zstd {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Magic,
            part: Vec::new(),
            frame: Frame::default(),
            decoder: Box::new(FrameDecoder::new()),
            handed: 0,
            blocks: Blocks::default(),
        }
    }

    /// Octets still to come of the part that comes: one at least.
    fn wanted_bytes(&self) -> usize {
        let part = match self.phase {
            Phase::Skip(left) | Phase::Raw(left, _) => return left,
            Phase::Magic | Phase::SkipSize | Phase::Checksum => 4,
            Phase::Descriptor => 1,
            Phase::Header => self.frame.header_bytes(),
            Phase::BlockHeader => Block::HEADER_BYTES,
            Phase::Block(block) => block.body_bytes(),
        };
        part - self.part.len()
    }

    /// Takes in a part that has come whole.
    fn part(&mut self, sink: &mut Sink<'_>) -> Result<(), Stop> {
        let mut part = std::mem::take(&mut self.part);
        self.phase = match self.phase {
            Phase::Magic => {
                self.blocks.add_block()?;
                magic(&part)?
            }
            Phase::SkipSize => skip(size(&part)),
            Phase::Descriptor => {
                self.frame = Frame::of(part[0]).map_err(Stop::Fault)?;
                Phase::Header
            }
            Phase::Header => self.begin_frame(&part)?,
            Phase::BlockHeader => self.begin_block(&part)?,
            Phase::Block(block) => {
                self.decode(block, &part, sink)?;
                self.behind(block)?
            }
            Phase::Skip(_) | Phase::Raw(..) | Phase::Checksum => Phase::Magic,
        };
        part.clear();
        self.part = part;
        Ok(())
    }

    /// Takes in octets of a raw block, of which `left` are to come.
    fn raw(
        &mut self,
        (left, block): (usize, Block),
        octets: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<(), Stop> {
        self.decode(block, octets, sink)?;
        let left = left - octets.len();
        self.phase = if left == 0 {
            self.behind(block)?
        } else {
            Phase::Raw(left, block)
        };
        Ok(())
    }

    fn begin_frame(&mut self, part: &[u8]) -> Result<Phase, Stop> {
        self.frame.read(part).map_err(Stop::Fault)?;
        let header = self.frame.header_for_decoder();
        let begun = self.decoder.reset(&header[..]);
        begun.map_err(|_| Stop::Fault(Why::Corrupt))?;
        self.handed = 0;
        Ok(Phase::BlockHeader)
    }

    fn begin_block(&mut self, part: &[u8]) -> Result<Phase, Stop> {
        self.blocks.add_block()?;
        let block = Block::of(part).filter(|it| it.size <= self.frame.block_bytes_max());
        let block = block.ok_or(Stop::Fault(Why::Corrupt))?;
        match block.kind {
            Kind::Raw if block.size == 0 => self.behind(block),
            Kind::Raw => Ok(Phase::Raw(block.size, block)),
            Kind::Repeated | Kind::Compressed => Ok(Phase::Block(block)),
        }
    }

    /// What comes behind a block.
    fn behind(&self, block: Block) -> Result<Phase, Stop> {
        if !block.is_last {
            return Ok(Phase::BlockHeader);
        }
        let stated = self.frame.content_bytes;
        if stated.is_some_and(|bytes| bytes != u64::try_from(self.handed).unwrap_or(u64::MAX)) {
            return Err(Stop::Fault(Why::Corrupt));
        }
        Ok(if self.frame.has_checksum() {
            Phase::Checksum
        } else {
            Phase::Magic
        })
    }

    /// Decodes a block, or a part of a raw one, and hands over what it adds.
    fn decode(&mut self, block: Block, body: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        let corrupt = Stop::Fault(Why::Corrupt);
        if !block.is_bounded(body, self.frame.block_bytes_max()) {
            return Err(corrupt);
        }
        let header = block.header_for_decoder(body.len());
        let source = io::Read::chain(&header[..], body);
        let one = BlockDecodingStrategy::UptoBlocks(1);
        if self.decoder.decode_blocks(source, one).is_err() {
            return Err(corrupt);
        }
        let mut added = Added {
            known: self.handed,
            sink,
            result: Ok(0),
        };
        // What it says is how much was taken from it, which is nothing.
        let _: io::Result<usize> = self.decoder.collect_to_writer(&mut added);
        let added = added.result?;
        self.handed += added;
        self.blocks.add_octets(added);
        Ok(())
    }
}

impl Coding for Zstd {
    fn push(&mut self, octets: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        let mut rest = octets;
        while !rest.is_empty() {
            let wanted = self.wanted_bytes().min(rest.len());
            let (come, behind) = rest.split_at(wanted);
            rest = behind;
            if let Phase::Skip(left) = self.phase {
                self.phase = skip(left - come.len());
            } else if let Phase::Raw(left, block) = self.phase {
                self.raw((left, block), come, sink)?;
            } else {
                self.part.extend_from_slice(come);
                if self.wanted_bytes() == 0 {
                    self.part(sink)?;
                }
            }
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.phase == Phase::Magic && self.part.is_empty()
    }

    fn memory(&self) -> usize {
        // The decoder's buffer doubles, and keeps a frame from its beginning.
        TABLE_BYTES + self.part.capacity() + 2 * self.handed
    }
}

/// Looks at all that `ruzstd` has decoded of a frame, takes nothing from it,
/// and hands over what is new.
struct Added<'a, 'b> {
    /// Octets that were handed over before.
    known: usize,
    sink: &'a mut Sink<'b>,
    /// How many were now.
    result: Result<usize, Stop>,
}

impl Write for Added<'_, '_> {
    fn write(&mut self, all: &[u8]) -> io::Result<usize> {
        let piece = all.get(self.known..).unwrap_or_default();
        if !piece.is_empty() {
            self.result = (self.sink)(piece).map(|()| piece.len());
        }
        Ok(0)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a magic number begins (RFC 8878, sections 3.1.1 and 3.1.2).
fn magic(part: &[u8]) -> Result<Phase, Stop> {
    match number(part) {
        MAGIC => Ok(Phase::Descriptor),
        number if number & !0xF == MAGIC_SKIP => Ok(Phase::SkipSize),
        _ => Err(Stop::Fault(Why::Corrupt)),
    }
}

fn skip(left: usize) -> Phase {
    if left == 0 {
        Phase::Magic
    } else {
        Phase::Skip(left)
    }
}

/// A number of up to eight octets, the lowest first. Those behind do not count.
fn number(octets: &[u8]) -> u64 {
    let octets = octets.iter().take(8).rev();
    octets.fold(0, |number, &octet| number << 8 | u64::from(octet))
}

/// The same, as a size. One that is no `usize` cannot come to its end.
fn size(octets: &[u8]) -> usize {
    usize::try_from(number(octets)).unwrap_or(usize::MAX)
}
