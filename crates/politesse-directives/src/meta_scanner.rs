//! Scans the bytes of a page, pushed in chunks, for what its head says.
//!
//! Here bytes become a page: whether they are HTML at all, in which encoding,
//! and how many of them are looked at. `head_reader` reads the page.
//!
//! What is found does not depend on where the chunks were cut.

use std::fmt;

use encoding_rs::{Decoder, Encoding, ISO_2022_JP};
use memchr::memchr;

use super::findings::{HeadFindings, Meta, Notice};
use super::head::HeadExtent;
use super::head_reader::{HeadReader, ScanStatus};
use super::media_type::{Kind, SIGNATURE_BYTES, charset, kind, looks_like_html};
use super::page_encoding::{self, EncodingLabel, PRESCAN_BYTES, PageSignature};

/// Part of a page that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetaScope {
    /// The head.
    #[default]
    Head,
    /// All of the page up to the limit; what stands behind the head is kept
    /// apart.
    Prefix,
}

/// How a page is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// Bytes scanned, at most.
    pub limit: usize,
    /// Where metas may stand.
    pub scope: MetaScope,
}

impl From<usize> for ScanOptions {
    /// Scans the head within so many bytes.
    fn from(limit: usize) -> Self {
        let scope = MetaScope::Head;
        Self { limit, scope }
    }
}

/// Finds what the head of a page says. The page is pushed in chunks.
pub struct MetaScanner {
    options: ScanOptions,
    label: EncodingLabel,
    /// Whether the page must look like HTML to be scanned.
    must_look_like_html: bool,
    /// Bytes pushed, those behind the limit left out.
    pushed: usize,
    /// The first of them, by which the encoding is found.
    start: Vec<u8>,
    phase: Phase,
    status: ScanStatus,
    encoding: Option<&'static Encoding>,
    is_readable: bool,
    has_head_ended: bool,
    findings: Option<HeadFindings>,
}

enum Phase {
    /// The start does not tell yet how the page is to be read.
    Starting,
    Scanning(Box<PageReader>),
    Over,
}

/// A page whose encoding is known, or makes no difference so far.
struct PageReader {
    head: HeadReader,
    decoder: Option<Decoder>,
    /// Bytes still to come in which the page may declare its encoding.
    prescan_left: usize,
}

/// What the start of a page tells about it.
enum PageStart {
    Undecided,
    NotHtml,
    Html {
        encoding: Option<&'static Encoding>,
        /// Length of the byte order mark.
        mark_bytes: usize,
        may_declare: bool,
    },
}

/// Bytes at the start of a page that always tell how it is to be read.
const START_BYTES: usize = SIGNATURE_BYTES;

const _: () = assert!(PRESCAN_BYTES <= START_BYTES);

/// Begins a character of two bytes in ISO-2022-JP.
const ESCAPE: u8 = 0x1B;

/// Bytes transcoded at a time.
const DECODED_BYTES: usize = 4 * 1024;

impl MetaScanner {
    /// Bytes of memory that a scan takes at most for pages as they are.
    const MEMORY_BYTES: usize = 64 * 1024;

    /// A token that has not ended takes so many times its length: it is kept in
    /// a buffer that doubles, and is copied when it does.
    const TOKEN_COPIES: usize = 3;

    /// Begins a page. `charset` is the label in its Content-Type; a byte order
    /// mark outweighs it, and an unknown one counts as none, since markup is
    /// ASCII nearly everywhere.
    pub fn new(options: impl Into<ScanOptions>, charset: Option<&str>) -> Self {
        let label = EncodingLabel::parse(charset);
        Self {
            options: options.into(),
            label,
            must_look_like_html: false,
            pushed: 0,
            start: Vec::new(),
            phase: Phase::Starting,
            status: ScanStatus::More,
            encoding: None,
            is_readable: label != EncodingLabel::Unreadable,
            has_head_ended: false,
            findings: None,
        }
    }

    /// Begins a body of this Content-Type. None if the type is not HTML; a body
    /// without a type is scanned if it looks like HTML.
    pub fn for_type(content_type: Option<&[u8]>, options: impl Into<ScanOptions>) -> Option<Self> {
        let content_type = content_type.map(String::from_utf8_lossy);
        let content_type = content_type.as_deref().unwrap_or_default();
        let must_look_like_html = match kind(content_type) {
            Kind::Html => false,
            Kind::Missing => true,
            Kind::Other => return None,
        };
        Some(Self {
            must_look_like_html,
            ..Self::new(options, charset(content_type).as_deref())
        })
    }

    /// Reads the next bytes. Those behind the end of the scan are ignored.
    pub fn push(&mut self, chunk: &[u8]) -> ScanStatus {
        let room = self.options.limit - self.pushed;
        let bytes = chunk.get(..room).unwrap_or(chunk);
        self.pushed += bytes.len();
        self.read(bytes);
        if self.status == ScanStatus::More && room < chunk.len() {
            self.stop(ScanStatus::Limit);
        }
        self.status
    }

    /// Notes that the body has ended, which ends its head.
    pub fn finish(&mut self) -> ScanStatus {
        self.stop(ScanStatus::Done);
        self.status
    }

    /// How far the scan has come.
    pub fn status(&self) -> ScanStatus {
        self.status
    }

    /// About how many bytes of memory the scan takes now.
    pub fn memory(&self) -> usize {
        let pending = match &self.phase {
            Phase::Starting => self.start.len(),
            Phase::Scanning(page) => page.head.pending_bytes(),
            Phase::Over => return 0,
        };
        Self::MEMORY_BYTES + pending * Self::TOKEN_COPIES
    }

    /// Whether the page was in an encoding that is read. If not, it was looked
    /// through as if it were ASCII, and nothing is surely absent.
    pub fn is_readable(&self) -> bool {
        self.is_readable && !page_encoding::has_foreign_zero(&self.start, self.encoding)
    }

    /// Whether the head was seen to end. With [`MetaScope::Prefix`] this comes
    /// before the end of the scan.
    pub fn has_head_ended(&self) -> bool {
        match &self.phase {
            Phase::Scanning(page) => page.head.has_head_ended(),
            Phase::Starting | Phase::Over => self.has_head_ended,
        }
    }

    /// Metas in the head that restrict something, each once. They are complete
    /// when the scan has ended.
    pub fn metas(&self) -> &[Meta] {
        self.findings.as_ref().map_or(&[], |found| &found.metas)
    }

    /// Metas behind the head that restrict something, with
    /// [`MetaScope::Prefix`].
    pub fn outside(&self) -> &[Meta] {
        match (&self.findings, self.options.scope) {
            (Some(found), MetaScope::Prefix) => &found.outside,
            _ => &[],
        }
    }

    /// Statements of the head about data mining and licences.
    pub fn notices(&self) -> &[Notice] {
        self.findings.as_ref().map_or(&[], |found| &found.notices)
    }

    fn read(&mut self, bytes: &[u8]) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        let room = START_BYTES - self.start.len();
        let (early, late) = bytes.split_at(room.min(bytes.len()));
        self.start.extend_from_slice(early);
        if let Phase::Scanning(page) = &mut self.phase {
            if let Some(status) = page.push(bytes, &self.start) {
                return self.stop_unless_more(status);
            }
            self.phase = Phase::Starting;
        }
        self.begin(late, self.options.limit <= self.pushed);
    }

    /// Begins to scan, if the start of the page says how. `late` are the bytes
    /// behind that start; `is_all`: no more will come.
    fn begin(&mut self, late: &[u8], is_all: bool) {
        let is_all = is_all || START_BYTES == self.start.len();
        let (encoding, mark_bytes, may_declare) = match self.page_start(is_all) {
            PageStart::Undecided => return,
            PageStart::NotHtml => {
                self.phase = Phase::Over;
                self.status = ScanStatus::Done;
                self.start.clear();
                return;
            }
            PageStart::Html {
                encoding,
                mark_bytes,
                may_declare,
            } => (encoding, mark_bytes, may_declare),
        };
        if self.label == EncodingLabel::Unknown {
            self.is_readable = page_encoding::is_ascii_markup(&self.start).unwrap_or(true);
        }
        self.is_readable |= 0 < mark_bytes;
        self.encoding = encoding;
        let extent = match self.options.scope {
            MetaScope::Head => HeadExtent::Head,
            MetaScope::Prefix => HeadExtent::Prefix,
        };
        let mut page = Box::new(PageReader::new(encoding, extent));
        let mut status = page.push_decoded(&self.start[mark_bytes..]);
        if status == ScanStatus::More {
            status = page.push_decoded(late);
        }
        if may_declare {
            page.prescan_left = PRESCAN_BYTES - self.start.len();
        }
        self.phase = Phase::Scanning(page);
        self.stop_unless_more(status);
    }

    /// Reads the start of the page. `is_all`: no more of it will come.
    fn page_start(&self, is_all: bool) -> PageStart {
        let start = self.start.as_slice();
        if self.must_look_like_html {
            match looks_like_html(start) {
                None if !is_all => return PageStart::Undecided,
                None | Some(false) => return PageStart::NotHtml,
                Some(true) => {}
            }
        }
        let html = |encoding, mark_bytes| PageStart::Html {
            encoding,
            mark_bytes,
            may_declare: false,
        };
        match (PageSignature::read(start, self.label), self.label) {
            (PageSignature::Incomplete, _) if !is_all => return PageStart::Undecided,
            (PageSignature::Mark(encoding, bytes), _) => return html(Some(encoding), bytes),
            (PageSignature::Declaration(encoding), _) | (_, EncodingLabel::Known(encoding)) => {
                return html(Some(encoding), 0);
            }
            (_, EncodingLabel::Unknown)
                if !is_all && page_encoding::is_ascii_markup(start).is_none() =>
            {
                return PageStart::Undecided;
            }
            _ => {}
        }
        let prescanned = start.get(..PRESCAN_BYTES).unwrap_or(start);
        if is_all || prescanned.len() == PRESCAN_BYTES {
            let declared = page_encoding::declares_iso_2022_jp(prescanned);
            return html(declared.then_some(ISO_2022_JP), 0);
        }
        if memchr(ESCAPE, prescanned).is_some() {
            return PageStart::Undecided;
        }
        PageStart::Html {
            encoding: None,
            mark_bytes: 0,
            may_declare: true,
        }
    }

    fn stop_unless_more(&mut self, status: ScanStatus) {
        if status != ScanStatus::More {
            self.stop(status);
        }
    }

    /// Ends the scan, and keeps what it found.
    fn stop(&mut self, status: ScanStatus) {
        if matches!(self.phase, Phase::Starting) {
            self.begin(&[], true);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Scanning(mut page) = phase else {
            return;
        };
        page.head.finish();
        self.has_head_ended = page.head.has_head_ended();
        let is_ambiguous = page.head.is_ambiguous();
        let findings = page.head.into_findings();
        let is_known = !is_ambiguous && !findings.is_full();
        self.status = if is_known && (self.has_head_ended || status == ScanStatus::Done) {
            ScanStatus::Done
        } else {
            ScanStatus::Limit
        };
        self.findings = Some(findings);
    }
}

impl fmt::Debug for MetaScanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaScanner")
            .field("pushed", &self.pushed)
            .field("status", &self.status)
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}

impl PageReader {
    fn new(encoding: Option<&'static Encoding>, extent: HeadExtent) -> Self {
        let foreign = encoding.filter(|encoding| !encoding.is_ascii_compatible());
        Self {
            head: HeadReader::new(encoding, extent),
            decoder: foreign.map(Encoding::new_decoder_without_bom_handling),
            prescan_left: 0,
        }
    }

    /// Reads more of the page, whose `start` holds these bytes already. None if
    /// the page must be begun anew once it is known whether it declares an
    /// encoding.
    fn push(&mut self, bytes: &[u8], start: &[u8]) -> Option<ScanStatus> {
        let (early, late) = bytes.split_at(self.prescan_left.min(bytes.len()));
        if !early.is_empty() {
            if memchr(ESCAPE, early).is_some() {
                return None;
            }
            let status = self.head.push(early);
            self.prescan_left -= early.len();
            if status != ScanStatus::More || 0 < self.prescan_left {
                return Some(status);
            }
            // So far the encoding made no difference.
            if page_encoding::declares_iso_2022_jp(start) {
                self.decoder = Some(ISO_2022_JP.new_decoder_without_bom_handling());
            }
        }
        Some(self.push_decoded(late))
    }

    /// Transcodes bytes if need be, and reads them.
    fn push_decoded(&mut self, bytes: &[u8]) -> ScanStatus {
        let Some(decoder) = &mut self.decoder else {
            return self.head.push(bytes);
        };
        let mut text = String::new();
        for piece in bytes.chunks(DECODED_BYTES) {
            let length = decoder.max_utf8_buffer_length(piece.len());
            text.clear();
            text.reserve(length.unwrap_or_default());
            let _ = decoder.decode_to_string(piece, &mut text, false);
            let status = self.head.push(text.as_bytes());
            if status != ScanStatus::More {
                return status;
            }
        }
        ScanStatus::More
    }
}

#[cfg(test)]
mod tests;
