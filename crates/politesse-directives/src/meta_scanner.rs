//! Pushed chunks of HTML to what its head says.
//!
//! Here octets become a page: whether it is HTML at all, in which encoding, and
//! how much of it is looked at. `tokens` reads it, with `lol_html` inside, and
//! `head` knows what counts.
//!
//! Invariant: what is found does not depend on where the chunks were cut.

use std::fmt;

use encoding_rs::{Decoder, Encoding, ISO_2022_JP};
use memchr::memchr;

use super::findings::{Found, Meta, Notice};
use super::head::Extent;
use super::head_reader::{Progress, Tokens};
use super::media_type::{Kind, charset, kind, looks_like_html};
use super::page_encoding::{self as charset, Label, PRESCAN_BYTES, Signature};

/// How far a scan has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// The head goes on, or what is looked at behind it: push more.
    More,
    /// The head, or the page, has ended.
    Done,
    /// The head goes on beyond what is scanned, or where it ends cannot be
    /// known. What was found counts.
    Limit,
}

/// How much of a page is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetaScope {
    /// Its head.
    #[default]
    Head,
    /// All of it up to the limit; what stands behind the head is kept apart.
    Prefix,
}

/// How a page is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// Octets scanned, at most.
    pub limit: usize,
    /// Where they may lie.
    pub scope: MetaScope,
}

/// Finds what the head of a page says, which is pushed in chunks.
pub struct MetaScanner {
    options: ScanOptions,
    pushed: usize,
    label: Label,
    look: Look,
    phase: Phase,
    outcome: Scan,
    is_readable: bool,
    /// Its first octets, as many as tell that it is not in its encoding; none
    /// if it is no HTML.
    first: Option<Vec<u8>>,
    encoding: Option<&'static Encoding>,
    has_head_ended: bool,
    found: Option<Found>,
}

/// Whether the page must look like HTML to be scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Needless,
    Needed,
}

/// What is done with octets that come in.
enum Phase {
    /// They are kept until it is known how they are to be read.
    Start(Vec<u8>),
    Scanning(Box<Page>),
    Over,
}

/// A page of which the encoding is known, or does not matter so far.
struct Page {
    tokens: Tokens,
    decoder: Option<Decoder>,
    /// The first octets of a page without a label, while they may still
    /// declare an encoding.
    prescan: Option<Vec<u8>>,
}

/// What the first octets of a page say about it.
enum Start {
    /// Nothing yet.
    Wait,
    NotHtml,
    Html {
        encoding: Option<&'static Encoding>,
        /// Octets of its byte order mark.
        mark_bytes: usize,
        /// Whether it may still declare an encoding.
        is_open: bool,
    },
}

/// Begins a multibyte character in ISO-2022-JP.
const ESCAPE: u8 = 0x1B;

/// Octets transcoded at a time.
const DECODED_BYTES: usize = 4 * 1024;

impl From<usize> for ScanOptions {
    /// The head within so many octets.
    fn from(limit: usize) -> Self {
        let scope = MetaScope::Head;
        Self { limit, scope }
    }
}

impl MetaScanner {
    /// Octets of memory that a scan takes at most for pages as they are.
    const MEMORY_BYTES: usize = 64 * 1024;

    /// What a token that has not ended takes, by its octets: they are kept in
    /// buffers that double.
    const TOKEN_COPIES: usize = 3;

    /// Begins a page. `charset` is the label in its Content-Type; a byte order
    /// mark outweighs it, and an unknown one counts as none, since markup is
    /// ASCII nearly everywhere.
    pub fn new(options: impl Into<ScanOptions>, charset: Option<&str>) -> Self {
        let label = Label::of(charset);
        Self {
            options: options.into(),
            pushed: 0,
            label,
            look: Look::Needless,
            phase: Phase::Start(Vec::new()),
            outcome: Scan::More,
            is_readable: label != Label::Unreadable,
            first: Some(Vec::new()),
            encoding: None,
            has_head_ended: false,
            found: None,
        }
    }

    /// The scanner for a body of this Content-Type; none if it is not HTML. A
    /// body without a type is scanned if it looks like HTML.
    pub fn for_type(content_type: Option<&[u8]>, options: impl Into<ScanOptions>) -> Option<Self> {
        let content_type = content_type.map(String::from_utf8_lossy);
        let content_type = content_type.as_deref().unwrap_or_default();
        let look = match kind(content_type) {
            Kind::Html => Look::Needless,
            Kind::Missing => Look::Needed,
            Kind::Other => return None,
        };
        Some(Self {
            look,
            ..Self::new(options, charset(content_type).as_deref())
        })
    }

    /// Takes in the next octets. Those behind the end of the scan are ignored.
    pub fn push(&mut self, chunk: &[u8]) -> Scan {
        let room = self.options.limit - self.pushed;
        let taken = chunk.get(..room).unwrap_or(chunk);
        self.pushed += taken.len();
        if let Some(first) = &mut self.first {
            let missing = charset::ZERO_BYTES.saturating_sub(first.len());
            first.extend(taken.iter().take(missing));
        }
        self.take(taken);
        if self.outcome == Scan::More && room < chunk.len() {
            self.stop(Scan::Limit);
        }
        self.outcome
    }

    /// Notes that the body has ended, which ends its head.
    pub fn finish(&mut self) -> Scan {
        self.stop(Scan::Done);
        self.outcome
    }

    /// How far the scan has come.
    pub fn outcome(&self) -> Scan {
        self.outcome
    }

    /// About how many octets of memory it takes now.
    pub fn memory(&self) -> usize {
        let waiting = match &self.phase {
            Phase::Start(held) => held.len(),
            Phase::Scanning(page) => page.tokens.waiting(),
            Phase::Over => return 0,
        };
        Self::MEMORY_BYTES + waiting * Self::TOKEN_COPIES
    }

    /// Whether the page was in an encoding that is read. If not, it was looked
    /// through as if it were ASCII, and nothing is surely absent.
    pub fn is_readable(&self) -> bool {
        let first = self.first.as_deref().unwrap_or_default();
        self.is_readable && !charset::has_foreign_zero(first, self.encoding)
    }

    /// Whether the head was seen to end. With [`MetaScope::Prefix`] this comes
    /// before the end of the scan.
    pub fn has_head_ended(&self) -> bool {
        match &self.phase {
            Phase::Scanning(page) => page.tokens.has_head_ended(),
            Phase::Start(_) | Phase::Over => self.has_head_ended,
        }
    }

    /// The metas in the head that restrict something, each once. They are
    /// complete when the scan has ended.
    pub fn metas(&self) -> &[Meta] {
        self.found.as_ref().map_or(&[], |found| &found.metas)
    }

    /// The metas behind the head that restrict something, with
    /// [`MetaScope::Prefix`].
    pub fn outside(&self) -> &[Meta] {
        match (&self.found, self.options.scope) {
            (Some(found), MetaScope::Prefix) => &found.outside,
            _ => &[],
        }
    }

    /// What the head says of data mining and licences.
    pub fn notices(&self) -> &[Notice] {
        self.found.as_ref().map_or(&[], |found| &found.notices)
    }

    fn take(&mut self, octets: &[u8]) {
        match &mut self.phase {
            // Nearly always the first octets tell, and need no copy.
            Phase::Start(held) if held.is_empty() => {
                self.open(octets, self.options.limit <= self.pushed);
            }
            Phase::Start(held) => {
                held.extend_from_slice(octets);
                let held = std::mem::take(held);
                self.open(&held, self.options.limit <= self.pushed);
            }
            Phase::Scanning(page) => match page.write(octets) {
                Ok(Progress::More) => {}
                Ok(Progress::Over) => self.stop(Scan::Done),
                Ok(Progress::Memory) => self.stop(Scan::Limit),
                Err(held) => {
                    self.phase = Phase::Start(Vec::new());
                    self.open(&held, self.options.limit <= self.pushed);
                }
            },
            Phase::Over => {}
        }
    }

    /// Begins to scan with the octets held back, if they say how.
    fn open(&mut self, held: &[u8], is_all: bool) {
        let (encoding, mark_bytes, is_open) = match self.start(held, is_all) {
            Start::Wait => {
                self.phase = Phase::Start(held.to_vec());
                return;
            }
            Start::NotHtml => {
                self.phase = Phase::Over;
                self.outcome = Scan::Done;
                self.first = None;
                return;
            }
            Start::Html {
                encoding,
                mark_bytes,
                is_open,
            } => (encoding, mark_bytes, is_open),
        };
        if self.label == Label::Unknown {
            self.is_readable = charset::is_ascii_markup(held).unwrap_or(true);
        }
        self.is_readable |= 0 < mark_bytes;
        self.encoding = encoding;
        let extent = match self.options.scope {
            MetaScope::Head => Extent::Head,
            MetaScope::Prefix => Extent::Prefix,
        };
        let mut page = Box::new(Page::new(encoding, extent));
        if is_open {
            page.prescan = Some(Vec::new());
        }
        self.phase = Phase::Scanning(page);
        self.take(&held[mark_bytes..]);
    }

    /// Reads the first octets of a page. `is_all`: no more will come.
    fn start(&self, held: &[u8], is_all: bool) -> Start {
        if self.look == Look::Needed {
            match looks_like_html(held) {
                None if !is_all => return Start::Wait,
                None | Some(false) => return Start::NotHtml,
                Some(true) => {}
            }
        }
        let html = |encoding, mark_bytes| Start::Html {
            encoding,
            mark_bytes,
            is_open: false,
        };
        match (Signature::of(held, self.label), self.label) {
            (Signature::Begun, _) if !is_all => return Start::Wait,
            (Signature::Mark(encoding, bytes), _) => return html(Some(encoding), bytes),
            (Signature::Declaration(encoding), _) | (_, Label::Known(encoding)) => {
                return html(Some(encoding), 0);
            }
            (_, Label::Unknown) if !is_all && charset::is_ascii_markup(held).is_none() => {
                return Start::Wait;
            }
            _ => {}
        }
        let start = held.get(..PRESCAN_BYTES).unwrap_or(held);
        if is_all || PRESCAN_BYTES <= held.len() {
            let declared = charset::declares_iso_2022_jp(start);
            return html(declared.then_some(ISO_2022_JP), 0);
        }
        if memchr(ESCAPE, start).is_some() {
            return Start::Wait;
        }
        Start::Html {
            encoding: None,
            mark_bytes: 0,
            is_open: true,
        }
    }

    /// Ends the scan, and collects what it found.
    fn stop(&mut self, outcome: Scan) {
        if let Phase::Start(held) = &mut self.phase {
            let held = std::mem::take(held);
            self.open(&held, true);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Scanning(mut page) = phase else {
            return;
        };
        page.tokens.finish();
        self.has_head_ended = page.tokens.has_head_ended();
        let is_doubtful = page.tokens.is_doubtful();
        let found = page.tokens.into_found();
        let is_known = !is_doubtful && !found.is_full();
        self.outcome = match outcome {
            Scan::Done | Scan::Limit if self.has_head_ended && is_known => Scan::Done,
            Scan::Done if is_known => Scan::Done,
            Scan::More | Scan::Done | Scan::Limit => Scan::Limit,
        };
        self.found = Some(found);
    }
}

impl fmt::Debug for MetaScanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaScanner")
            .field("pushed", &self.pushed)
            .field("outcome", &self.outcome)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

impl Page {
    fn new(encoding: Option<&'static Encoding>, extent: Extent) -> Self {
        let foreign = encoding.filter(|encoding| !encoding.is_ascii_compatible());
        Self {
            tokens: Tokens::new(encoding, extent),
            decoder: foreign.map(Encoding::new_decoder_without_bom_handling),
            prescan: None,
        }
    }

    /// Takes in octets.
    ///
    /// # Errors
    ///
    /// All the octets so far, if they cannot be read before it is known
    /// whether the page declares an encoding.
    fn write(&mut self, octets: &[u8]) -> Result<Progress, Vec<u8>> {
        let mut octets = octets;
        if let Some(mut start) = self.prescan.take() {
            let room = octets.len().min(PRESCAN_BYTES - start.len());
            let (early, late) = octets.split_at(room);
            start.extend_from_slice(early);
            if memchr(ESCAPE, early).is_some() {
                start.extend_from_slice(late);
                return Err(start);
            }
            let progress = self.tokens.write(early);
            if progress != Progress::More {
                return Ok(progress);
            }
            if start.len() < PRESCAN_BYTES {
                self.prescan = Some(start);
                return Ok(Progress::More);
            }
            // So far the encoding made no difference.
            if charset::declares_iso_2022_jp(&start) {
                self.decoder = Some(ISO_2022_JP.new_decoder_without_bom_handling());
            }
            octets = late;
        }
        Ok(self.write_decoded(octets))
    }

    fn write_decoded(&mut self, octets: &[u8]) -> Progress {
        let Some(decoder) = &mut self.decoder else {
            return self.tokens.write(octets);
        };
        let mut text = String::new();
        for piece in octets.chunks(DECODED_BYTES) {
            let length = decoder.max_utf8_buffer_length(piece.len());
            text.clear();
            text.reserve(length.unwrap_or_default());
            let _ = decoder.decode_to_string(piece, &mut text, false);
            let progress = self.tokens.write(text.as_bytes());
            if progress != Progress::More {
                return progress;
            }
        }
        Progress::More
    }
}

#[cfg(test)]
mod tests;
