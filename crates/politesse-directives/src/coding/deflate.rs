//! deflate (RFC 9110, section 8.4.1.2): a DEFLATE stream in the wrapping of
//! zlib (RFC 1950), or without, as some origins send it in spite of the text.
//!
//! A stream that begins as zlib's is read as such. If that fails before
//! anything was decoded it is read again as a raw one. Octets behind the stream
//! are ignored.

use super::inflate::{Inflater, Wrapping};
use super::{Coding, Sink, Stop};

/// Takes off deflate.
pub(super) struct Deflate {
    inflater: Option<Inflater>,
    /// The first octets, as long as they may have to be read again.
    start: Vec<u8>,
    trial: Trial,
}

/// Whether it is settled how the stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    Open,
    Settled,
}

/// Octets after which a reading stands. A stream that is not zlib's shows it in
/// its first block header.
const TRIAL_BYTES: usize = 64;

impl Deflate {
    pub(super) fn new() -> Self {
        Self {
            inflater: None,
            start: Vec::new(),
            trial: Trial::Open,
        }
    }

    /// Takes in one of the first octets. They are taken one by one, so that it
    /// does not depend on the chunks which reading wins.
    fn try_octet(&mut self, octet: u8, sink: &mut Sink<'_>) -> Result<(), Stop> {
        self.start.push(octet);
        let [first, second, ..] = self.start[..] else {
            return Ok(());
        };
        if !is_zlib(first, second) {
            return self.settle(Wrapping::Raw, sink);
        }
        let (inflater, octets) = match &mut self.inflater {
            Some(inflater) => (inflater, std::slice::from_ref(&octet)),
            none => (
                none.insert(Inflater::new(Wrapping::Zlib)),
                self.start.as_slice(),
            ),
        };
        let mut is_decoded = false;
        let result = inflater.push(octets, &mut |piece| {
            is_decoded = true;
            sink(piece)
        });
        if is_decoded || inflater.is_over() || self.start.len() == TRIAL_BYTES {
            self.trial = Trial::Settled;
        }
        match result {
            Err(Stop::Fault(_)) if !is_decoded => self.settle(Wrapping::Raw, sink),
            other => other.map(|_| ()),
        }
    }

    /// Reads the first octets in the one way that is left.
    fn settle(&mut self, wrapping: Wrapping, sink: &mut Sink<'_>) -> Result<(), Stop> {
        self.trial = Trial::Settled;
        let inflater = self.inflater.insert(Inflater::new(wrapping));
        inflater.push(&self.start, sink).map(|_| ())
    }
}

impl Coding for Deflate {
    fn push(&mut self, octets: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        let mut rest = octets;
        while let (Trial::Open, Some((&octet, behind))) = (self.trial, rest.split_first()) {
            self.try_octet(octet, sink)?;
            rest = behind;
        }
        if let (Some(inflater), false) = (&mut self.inflater, rest.is_empty()) {
            inflater.push(rest, sink)?;
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        let inflater = self.inflater.as_ref();
        inflater.map_or(self.start.is_empty(), Inflater::is_over)
    }

    fn memory(&self) -> usize {
        Inflater::MEMORY_BYTES
    }
}

/// Whether a stream begins with a header of zlib without a preset dictionary
/// (RFC 1950, section 2.2).
fn is_zlib(first: u8, second: u8) -> bool {
    let check = u16::from_be_bytes([first, second]);
    first & 0x0F == 8 && first >> 4 <= 7 && check.is_multiple_of(31) && second & 0x20 == 0
}
