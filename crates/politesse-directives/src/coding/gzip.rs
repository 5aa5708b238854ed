//! gzip (RFC 1952): members one after the other, each a header, a DEFLATE
//! stream and a checksum.
//!
//! Octets behind a member that do not begin another are ignored, as browsers
//! do. The checksum of a header is not verified, that of the data is.

use flate2::Crc;

use super::inflate::{Inflater, Wrapping};
use super::{Coding, Sink, Stop};
use crate::Why;

/// Takes off gzip.
pub(super) struct Gzip {
    phase: Phase,
    inflater: Inflater,
    checksum: Crc,
    /// The octet expected next among those of a fixed length.
    at: usize,
    /// The flags of the header whose fields are still to come.
    flags: u8,
    /// Octets left of the field `Extra`.
    extra: u16,
    members: Members,
}

/// The part of a member that the next octet belongs to (RFC 1952, 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Up to the octet `XFL`, and `OS`.
    Fixed,
    ExtraLength,
    Extra,
    Name,
    Comment,
    HeaderChecksum,
    Data,
    /// `CRC32` and `ISIZE`.
    Trailer,
    /// Behind the last member.
    Garbage,
}

/// Which member comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Members {
    First,
    Further,
}

/// What every member begins with: its magic number, and the method DEFLATE.
const MAGIC: [u8; 3] = [0x1F, 0x8B, 8];

/// Octets of a header without optional fields, and of a trailer.
const FIXED_BYTES: usize = 10;
const TRAILER_BYTES: usize = 8;

/// Optional fields of a header, by their flags.
const FHCRC: u8 = 1 << 1;
const FEXTRA: u8 = 1 << 2;
const FNAME: u8 = 1 << 3;
const FCOMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Fixed,
            inflater: Inflater::new(Wrapping::Raw),
            checksum: Crc::new(),
            at: 0,
            flags: 0,
            extra: 0,
            members: Members::First,
        }
    }

    /// Takes in one octet of a header or a trailer.
    fn octet(&mut self, octet: u8) -> Result<(), Stop> {
        match self.phase {
            Phase::Fixed => return self.fixed(octet),
            Phase::ExtraLength => {
                self.extra |= u16::from(octet) << (8 * self.at);
                self.at += 1;
                if self.at == 2 {
                    self.phase = Phase::Extra;
                }
            }
            Phase::Extra => self.extra -= 1,
            Phase::Name | Phase::Comment if octet == 0 => self.next_field(),
            Phase::HeaderChecksum => {
                self.at += 1;
                if self.at == 2 {
                    self.next_field();
                }
            }
            Phase::Trailer => return self.trailer(octet),
            Phase::Name | Phase::Comment | Phase::Data | Phase::Garbage => {}
        }
        if self.phase == Phase::Extra && self.extra == 0 {
            self.next_field();
        }
        Ok(())
    }

    fn fixed(&mut self, octet: u8) -> Result<(), Stop> {
        // Some readers skip what a tape is filled up with, and read on.
        if octet == 0 && self.members == Members::Further && self.at == 0 {
            return Ok(());
        }
        let is_wrong = match self.at {
            at @ 0..=2 => octet != MAGIC[at],
            3 => octet & RESERVED != 0,
            _ => false,
        };
        if is_wrong && self.members == Members::Further && self.at < MAGIC.len() {
            self.phase = Phase::Garbage;
            return Ok(());
        }
        if is_wrong {
            return Err(Stop::Fault(Why::Corrupt));
        }
        if self.at == 3 {
            self.flags = octet;
        }
        self.at += 1;
        if self.at == FIXED_BYTES {
            self.next_field();
        }
        Ok(())
    }

    /// Goes on to the next field of the header that its flags name, or to what
    /// is behind the header.
    fn next_field(&mut self) {
        let fields = [
            (FEXTRA, Phase::ExtraLength),
            (FNAME, Phase::Name),
            (FCOMMENT, Phase::Comment),
            (FHCRC, Phase::HeaderChecksum),
        ];
        self.at = 0;
        self.extra = 0;
        let field = fields.iter().find(|(flag, _)| self.flags & flag != 0);
        if let Some((flag, phase)) = field {
            self.flags &= !flag;
            self.phase = *phase;
        } else {
            self.phase = Phase::Data;
        }
    }

    fn trailer(&mut self, octet: u8) -> Result<(), Stop> {
        let [a, b, c, d] = self.checksum.sum().to_le_bytes();
        let [e, f, g, h] = self.checksum.amount().to_le_bytes();
        let expected = [a, b, c, d, e, f, g, h];
        if octet != expected[self.at] {
            return Err(Stop::Fault(Why::Corrupt));
        }
        self.at += 1;
        if self.at == TRAILER_BYTES {
            self.at = 0;
            self.members = Members::Further;
            self.phase = Phase::Fixed;
        }
        Ok(())
    }

    /// Takes in octets of the data, and gives those behind it.
    fn data<'a>(&mut self, octets: &'a [u8], sink: &mut Sink<'_>) -> Result<&'a [u8], Stop> {
        let checksum = &mut self.checksum;
        let rest = self.inflater.push(octets, &mut |piece| {
            checksum.update(piece);
            sink(piece)
        })?;
        if self.inflater.is_over() {
            self.phase = Phase::Trailer;
        }
        Ok(rest)
    }
}

impl Coding for Gzip {
    fn push(&mut self, octets: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        let mut rest = octets;
        while let Some((&octet, behind)) = rest.split_first() {
            if self.phase == Phase::Garbage {
                return Ok(());
            }
            if self.phase == Phase::Data {
                rest = self.data(rest, sink)?;
                continue;
            }
            self.octet(octet)?;
            rest = behind;
            if self.phase == Phase::Fixed && self.at == 0 {
                self.inflater.restart();
                self.checksum.reset();
            }
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        // Less than the magic number of a further member is garbage as well.
        self.phase == Phase::Garbage || self.phase == Phase::Fixed && self.is_between_members()
    }

    fn memory(&self) -> usize {
        Inflater::MEMORY_BYTES
    }
}

impl Gzip {
    fn is_between_members(&self) -> bool {
        match self.members {
            Members::First => self.at == 0,
            Members::Further => self.at < MAGIC.len(),
        }
    }
}
