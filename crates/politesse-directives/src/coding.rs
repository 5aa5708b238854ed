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

use super::annotation::PartialReason;

pub use accept_encoding::narrow_accept_encoding;

mod accept_encoding;

mod brotli;

mod deflate;

mod zstd;

#[cfg(test)]
mod tests;

/// Decoder of a body under the content codings that its fields name.
pub struct BodyDecoder {
    /// The coding applied last comes first.
    stages: Vec<Stage>,
    /// `None` while bytes are decoded.
    outcome: Option<Result<(), PartialReason>>,
}

/// One coding, and what its decoder may still hand over.
struct Stage {
    decoder: Box<dyn Decoder>,
    budget: Budget,
}

/// Decoder of one coding.
trait Decoder: Send {
    /// Decodes bytes, and hands over all that they decode to. The same comes
    /// out however a body is cut into chunks.
    fn push(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<(), Halt>;

    /// Whether the body may end here. A body without bytes may.
    fn may_end(&self) -> bool;

    /// Returns about how many bytes of memory are allocated.
    fn memory_bytes(&self) -> usize;
}

/// Receiver of what one stage decodes.
struct Output<'a> {
    budget: &'a mut Budget,
    later: &'a mut [Stage],
    take: &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>,
}

/// Bounds of what one stage hands over.
struct Budget {
    bytes: usize,
    bytes_left: usize,
    parts: usize,
}

/// Reason to decode no more of a body.
enum Halt {
    /// The receiver has seen enough.
    Enough,
    Fault(PartialReason),
}

const CORRUPT: Halt = Halt::Fault(PartialReason::Corrupt);

/// Bytes that a stage before the last may decode to beside the limit: what a
/// coding may add to what it codes, and the zstd block that must be whole before
/// any of it is decoded (RFC 8878, section 3.1.1.2.4).
const SPARE_BYTES: usize = 256 * 1024;

/// Parts (gzip members, zstd frames and blocks) that need not decode to
/// anything. Each flush makes one or two.
const SPARE_PARTS: usize = 1024;

/// Decoded bytes that allow a further part. An origin that flushes every line of
/// a page has more.
const BYTES_PER_PART: usize = 32;

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
            stages.push(Stage::new(name, limit.saturating_add(spare))?);
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

impl Stage {
    /// Returns the stage for a registered name, in any case (RFC 9110, section
    /// 8.4.1; RFC 7932; RFC 8878).
    fn new(name: &[u8], limit: usize) -> Result<Self, PartialReason> {
        let decoder: Box<dyn Decoder> = match name.to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Box::new(deflate::Gzip::new()),
            b"deflate" => Box::new(deflate::Deflate::new()),
            b"br" => Box::new(brotli::Brotli::new(limit)),
            b"zstd" => Box::new(zstd::Zstd::new()),
            _ => return Err(PartialReason::Coding),
        };
        let budget = Budget {
            bytes: limit,
            bytes_left: limit,
            parts: 0,
        };
        Ok(Self { decoder, budget })
    }
}

impl Output<'_> {
    /// Hands decoded bytes over to the next stage, as far as the limit allows.
    fn push(&mut self, piece: &[u8]) -> Result<(), Halt> {
        let within = piece.get(..self.budget.bytes_left).unwrap_or(piece);
        self.budget.bytes_left -= within.len();
        if !within.is_empty() {
            push_through(self.later, within, self.take)?;
        }
        if within.len() < piece.len() {
            return Err(Halt::Fault(PartialReason::HeadLimit));
        }
        Ok(())
    }

    /// Counts a part of the body that begins or ends. A part takes time even if
    /// it decodes to nothing, and no limit on decoded bytes sees it: half a
    /// megabyte may hold a hundred thousand.
    fn add_part(&mut self) -> Result<(), Halt> {
        self.budget.parts += 1;
        let decoded_bytes = self.budget.bytes - self.budget.bytes_left;
        if SPARE_PARTS + decoded_bytes / BYTES_PER_PART < self.budget.parts {
            return Err(CORRUPT);
        }
        Ok(())
    }
}

/// Pushes bytes through the stages, one after the other.
fn push_through(
    stages: &mut [Stage],
    bytes: &[u8],
    take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Halt> {
    let Some((Stage { decoder, budget }, later)) = stages.split_first_mut() else {
        return match take(bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Halt::Enough),
        };
    };
    let mut output = Output {
        budget,
        later,
        take,
    };
    decoder.push(bytes, &mut output)
}
