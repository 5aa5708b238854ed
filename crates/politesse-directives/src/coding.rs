//! Content codings (`Content-Encoding: gzip`), decoded as a body comes.
//!
//! RFC 9110, section 8.4. A library decodes each coding, behind a [`Decoder`] in
//! a file of its own. Only what is looked into is decoded: the client gets the
//! bytes as they came. That they are a page, or a robots.txt, is not known here.
//!
//! Whatever comes, no stage hands over more than its limit, memory is bounded
//! before it is allocated, and the time is linear in the bytes that come in and
//! go out. What can be decoded is handed over before `push` returns.
//! `docs/decisions/004-content-decoders.md` has the reasons for the libraries.

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

/// Decoder of a body under the content codings that its fields name.
pub struct BodyDecoder {
    /// The coding applied last comes first.
    stages: Vec<Stage>,
    /// `None` while bytes are decoded.
    outcome: Option<Result<(), PartialReason>>,
}

/// Bytes that a stage before the last may decode to beside the limit: what a
/// coding may add to what it codes, and the zstd block that must be whole before
/// any of it is decoded (RFC 8878, section 3.1.1.2.4).
const SPARE_BYTES: usize = 256 * 1024;

impl BodyDecoder {
    /// Number of codings of one body that are decoded. Nobody needs two, but a
    /// field could name thousands, and each takes memory.
    pub const CODINGS_MAX: usize = 4;

    /// Reads the `Content-Encoding` fields, which name codings in the order
    /// they were applied in. `None` if they name none but `identity`.
    ///
    /// The last stage hands over at most `limit` bytes, and each before it a
    /// little more.
    ///
    /// # Errors
    ///
    /// [`PartialReason::Coding`] if a coding is unknown, or there are more than
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

    /// Decodes the next bytes of the body, and hands what they decode to to
    /// `take`, piece by piece. Once `take` breaks, it is called no more and
    /// nothing more is decoded.
    ///
    /// # Errors
    ///
    /// [`PartialReason::Corrupt`] if the bytes are not what the coding allows,
    /// [`PartialReason::Window`] if it wants more memory than is given to it,
    /// [`PartialReason::Coding`] if it wants a dictionary,
    /// [`PartialReason::HeadLimit`] if a stage decodes to more than its limit.
    /// What was handed over before counts. An error is final: it is returned
    /// again from then on.
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

    /// Notes that the body has ended. There is nothing left to hand over.
    ///
    /// # Errors
    ///
    /// [`PartialReason::Corrupt`] if a coding had not come to its end, and the error of
    /// [`push`](Self::push) if it had one.
    pub fn finish(&self) -> Result<(), PartialReason> {
        self.outcome.unwrap_or_else(|| {
            let may_end = self.stages.iter().all(|stage| stage.decoder.may_end());
            may_end.then_some(()).ok_or(PartialReason::Corrupt)
        })
    }

    /// Returns about how many bytes of memory the decoders hold. They grow with
    /// what is decoded, for `br` at most to 5 MiB and for `zstd` to twice the
    /// limit, and are 0 once nothing is decoded any more.
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

/// Makes the stage for a registered name, in any case (RFC 9110, section 8.4.1;
/// RFC 7932; RFC 8878).
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
