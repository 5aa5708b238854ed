//! Content codings (`Content-Encoding: gzip`), taken off as a body comes.
//!
//! RFC 9110, section 8.4. Only what is scanned is decoded; the crawler gets the
//! octets as they came. `inflate`, `gzip`, `deflate`, `brotli` and `zstd` know
//! a format each, `blocks` what they may cost, `accepted` what a crawler may ask an origin for so that one
//! of them will do. That the octets are a page is not known here.
//!
//! Invariants: whatever comes, no stage hands over more than the limit, memory
//! is bounded before it is taken, and the time goes with the octets that came
//! in and went out. What can be decoded is handed over before `push` returns.

use std::fmt;
use std::ops::ControlFlow;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use super::Why;

pub use accepted::narrowed;

mod accepted;

mod brotli;

mod deflate;

mod gzip;

mod zstd;

mod inflate;

mod blocks;

#[cfg(test)]
mod tests;

/// The content codings of one body, taken off as it comes.
pub struct Decoding {
    /// The coding applied last comes first.
    stages: Vec<Stage>,
    progress: Progress,
}

/// One coding, and how much it may still hand over.
struct Stage {
    coding: Box<dyn Coding>,
    left: usize,
}

/// How far a body has come.
enum Progress {
    Going,
    /// As much was handed over as was wanted.
    Enough,
    Failed(Why),
}

/// Why a coding takes in no more.
enum Stop {
    Enough,
    Fault(Why),
}

/// Takes what a coding hands over, piece by piece.
type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Stop> + 'a;

/// The decoder of one coding.
trait Coding: Send {
    /// Takes in octets, and hands over all that they decode to.
    fn push(&mut self, octets: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop>;

    /// Whether the body may end here.
    fn is_whole(&self) -> bool;

    /// About how many octets of memory it holds.
    fn memory(&self) -> usize;
}

/// What a coding may add to what it codes, and the block that must be whole
/// before any of it can be decoded (RFC 8878, section 3.1.1.2.4).
const SPARE_BYTES: usize = 256 * 1024;

impl Decoding {
    /// Codings of one body that are taken off, at most. Nobody needs two.
    pub const CODINGS_MAX: usize = 4;

    /// The codings named by the `Content-Encoding` fields, which are in the
    /// order they were applied in; none if there is none but `identity`. Each
    /// of them hands over at most `limit` octets, or what may be needed for
    /// that by another.
    ///
    /// # Errors
    ///
    /// [`Why::Coding`] if one is not known, or there are more than
    /// [`CODINGS_MAX`](Self::CODINGS_MAX).
    pub fn of(fields: &HeaderMap, limit: usize) -> Result<Option<Self>, Why> {
        let lines = fields.get_all(CONTENT_ENCODING).into_iter();
        let names = lines.flat_map(|line| line.as_bytes().split(|&octet| octet == b','));
        let mut stages = Vec::new();
        for name in names.map(<[u8]>::trim_ascii) {
            if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            if stages.len() == Self::CODINGS_MAX {
                return Err(Why::Coding);
            }
            let spare = if stages.is_empty() { 0 } else { SPARE_BYTES };
            let left = limit.saturating_add(spare);
            let coding = coding(name, left).ok_or(Why::Coding)?;
            stages.push(Stage { coding, left });
        }
        stages.reverse();
        let progress = Progress::Going;
        Ok((!stages.is_empty()).then_some(Self { stages, progress }))
    }

    /// Takes in the next octets as received, and hands what they decode to to
    /// `take`, piece by piece. Once `take` breaks, it is called no more and
    /// nothing more is decoded.
    ///
    /// # Errors
    ///
    /// [`Why::Corrupt`] if the octets are not what the coding allows,
    /// [`Why::Window`] if it wants more memory than is given to it,
    /// [`Why::Coding`] if it wants a dictionary, [`Why::HeadLimit`] if a stage
    /// decodes to more than the limit. What was handed over before counts. An
    /// error is final: it is returned again from then on.
    pub fn push(
        &mut self,
        octets: &[u8],
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), Why> {
        if matches!(self.progress, Progress::Going) {
            self.progress = match push_through(&mut self.stages, octets, take) {
                Ok(()) => return Ok(()),
                Err(Stop::Enough) => Progress::Enough,
                Err(Stop::Fault(why)) => Progress::Failed(why),
            };
            self.stages.clear();
        }
        self.outcome()
    }

    /// Notes that the body has ended. There is nothing left to hand over. A
    /// body without any octets is whole under every coding.
    ///
    /// # Errors
    ///
    /// [`Why::Corrupt`] if a coding had not come to its end, and what `push`
    /// failed with.
    pub fn finish(&self) -> Result<(), Why> {
        self.outcome()?;
        if self.stages.iter().all(|stage| stage.coding.is_whole()) {
            Ok(())
        } else {
            Err(Why::Corrupt)
        }
    }

    /// About how many octets of memory the decoders hold. It grows with what
    /// is decoded, for br at most to 5 MiB and for zstd to twice the limit, and
    /// is nothing once nothing is decoded any more.
    pub fn memory(&self) -> usize {
        let stages = self.stages.iter();
        stages.map(|stage| stage.coding.memory()).sum()
    }

    fn outcome(&self) -> Result<(), Why> {
        match self.progress {
            Progress::Going | Progress::Enough => Ok(()),
            Progress::Failed(why) => Err(why),
        }
    }
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoding")
            .field("stages", &self.stages.len())
            .finish_non_exhaustive()
    }
}

/// The decoder of a coding by its registered name, in any case (RFC 9110,
/// section 8.4.1; RFC 7932; RFC 8878).
fn coding(name: &[u8], limit: usize) -> Option<Box<dyn Coding>> {
    let name = str::from_utf8(name).ok()?.to_ascii_lowercase();
    Some(match name.as_str() {
        "gzip" | "x-gzip" => Box::new(gzip::Gzip::new()),
        "deflate" => Box::new(deflate::Deflate::new()),
        "br" => Box::new(brotli::Brotli::new(limit)),
        "zstd" => Box::new(zstd::Zstd::new()),
        _ => return None,
    })
}

/// Pushes octets through the stages, one after the other.
fn push_through(
    stages: &mut [Stage],
    octets: &[u8],
    take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Stop> {
    let Some((stage, behind)) = stages.split_first_mut() else {
        return match take(octets) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Enough),
        };
    };
    let left = &mut stage.left;
    stage.coding.push(octets, &mut |piece| {
        let within = piece.get(..*left).unwrap_or(piece);
        *left -= within.len();
        if !within.is_empty() {
            push_through(behind, within, take)?;
        }
        if within.len() < piece.len() {
            return Err(Stop::Fault(Why::HeadLimit));
        }
        Ok(())
    })
}
