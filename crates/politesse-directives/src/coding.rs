//! Content codings (`Content-Encoding: gzip`), decoded as a body arrives.
//!
//! RFC 9110, section 8.4. Each coding has a file of its own, in which a library decodes
//! it through the [`Decoder`] trait. Bodies are decoded for inspection only: the client
//! gets the original bytes. Does not know whether a body is a page or a robots.txt.
//!
//! For any input, no stage outputs more than its limit, memory is bounded before it is
//! allocated, and the time is linear in the bytes that go in and come out. Everything
//! that can be decoded is output before `push` returns.
//! `docs/decisions/004-content-decoders.md` gives the reasons for the choice of
//! libraries.

use std::fmt;
use std::ops::ControlFlow;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use self::stage::{Decoder, Halt, Stage, push_through};
use super::annotation::PartialReason;

pub use accept_encoding::{accepts_only_decoded, narrow_accept_encoding};

mod accept_encoding;
mod brotli;
mod deflate;
mod stage;
#[cfg(test)]
mod tests;
mod zstd;

/// Decoder of a body with the content codings that its fields name.
pub struct BodyDecoder {
    /// The coding applied last comes first.
    stages: Vec<Stage>,
    /// `None` while decoding continues.
    outcome: Option<Result<(), PartialReason>>,
}

/// Bytes beyond the limit that a stage before the last may output: the overhead that a
/// coding can add to its input, and the zstd block that must be complete before any of
/// it is decoded (RFC 8878, section 3.1.1.2.4).
const SPARE_BYTES: usize = 256 * 1024;

impl BodyDecoder {
    /// Maximum number of codings of one body that are decoded. No real body needs even
    /// two, but a field could name thousands, and each takes memory.
    pub const CODINGS_MAX: usize = 4;

    /// Reads the `Content-Encoding` fields, which name the codings in the order in
    /// which they were applied. Returns `None` if they name only `identity`.
    ///
    /// The last stage outputs at most `limit` bytes, each earlier stage slightly more.
    ///
    /// # Errors
    ///
    /// [`PartialReason::Coding`] if a coding is unknown, or if there are more than
    /// [`CODINGS_MAX`](Self::CODINGS_MAX).
    pub fn for_fields(fields: &HeaderMap, limit: usize) -> Result<Option<Self>, PartialReason> {
        let lines = fields.get_all(CONTENT_ENCODING).into_iter();
        let names = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
        let mut stages = Vec::new();
        for name in names.map(<[u8]>::trim_ascii) {
            if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            if stages.len() == Self::CODINGS_MAX {
                return Err(PartialReason::Coding);
            }
            let spare = if stages.is_empty() { 0 } else { SPARE_BYTES };
            stages.push(stage(name, limit.saturating_add(spare))?);
        }
        stages.reverse();
        let outcome = None;
        Ok((!stages.is_empty()).then_some(Self { stages, outcome }))
    }

    /// Decodes the next bytes of the body and passes the output to `take`, piece by
    /// piece. Once `take` breaks, it is not called again and decoding stops.
    ///
    /// # Errors
    ///
    /// [`PartialReason::Corrupt`] if the bytes are invalid in the coding,
    /// [`PartialReason::Window`] if the coding needs more memory than is allowed,
    /// [`PartialReason::Coding`] if it needs a dictionary, [`PartialReason::HeadLimit`]
    /// if a stage outputs more than its limit. Output passed to `take` before the error
    /// counts. An error is final: every later call returns it again.
    pub fn push(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), PartialReason> {
        if self.outcome.is_none() {
            self.outcome = match push_through(&mut self.stages, bytes, take) {
                Ok(()) => return Ok(()),
                Err(Halt::Enough) => Some(Ok(())),
                Err(Halt::Fault(why)) => Some(Err(why)),
            };
            self.stages.clear();
        }
        self.outcome.unwrap_or(Ok(()))
    }

    /// Ends the body. All output has already been passed on by then.
    ///
    /// # Errors
    ///
    /// [`PartialReason::Corrupt`] if a coding is incomplete, or the error that
    /// [`push`](Self::push) returned.
    pub fn finish(&self) -> Result<(), PartialReason> {
        self.outcome.unwrap_or_else(|| {
            let may_end = self.stages.iter().all(|stage| stage.decoder.may_end());
            may_end.then_some(()).ok_or(PartialReason::Corrupt)
        })
    }

    /// Returns approximately how many bytes of memory the decoders hold. They grow with
    /// the output: `br` to at most 5 MiB, `zstd` to twice the limit. 0 once decoding
    /// has stopped.
    pub fn memory(&self) -> usize {
        let stages = self.stages.iter();
        stages.map(|stage| stage.decoder.memory_bytes()).sum()
    }
}

impl fmt::Debug for BodyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyDecoder")
            .field("stages", &self.stages.len())
            .finish_non_exhaustive()
    }
}

/// Makes the stage for a registered name, in any case (RFC 9110, section 8.4.1; RFC
/// 7932; RFC 8878).
fn stage(name: &[u8], limit: usize) -> Result<Stage, PartialReason> {
    let decoder: Box<dyn Decoder> = match name.to_ascii_lowercase().as_slice() {
        b"gzip" | b"x-gzip" => Box::new(deflate::Gzip::new()),
        b"deflate" => Box::new(deflate::Deflate::new()),
        b"br" => Box::new(brotli::Brotli::new(limit)),
        b"zstd" => Box::new(zstd::Zstd::new()),
        _ => return Err(PartialReason::Coding),
    };
    Ok(Stage::new(decoder, limit))
}
