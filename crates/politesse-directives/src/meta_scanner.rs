//! Scanner for the metas and notices in the head of a page that is pushed in chunks.
//!
//! Decides whether the bytes are HTML, which encoding they have, and how many are
//! looked at. `head_reader` reads the page.
//!
//! The result does not depend on where the chunks were cut.

use std::fmt;

use encoding_rs::{Encoding, ISO_2022_JP, UTF_8};
use memchr::memchr;

use super::findings::{HeadFindings, Meta, Notice};
use super::head::HeadExtent;
use super::head_reader::{HeadReader, ScanStatus};
use super::media_type::{Kind, SIGNATURE_BYTES, charset, kind, looks_like_html, text};
use super::page_encoding::{self, ESCAPE, EncodingLabel, PRESCAN_BYTES, PageEncoding, PageStart};

/// Part of a page to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetaScope {
    /// The head.
    #[default]
    Head,
    /// The whole page up to the limit; findings after the head are kept separately.
    Prefix,
}

/// Limits of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// Maximum number of bytes to scan.
    pub limit: usize,
    /// Part of the page in which to look for metas.
    pub scope: MetaScope,
}

impl From<usize> for ScanOptions {
    /// Scans the head within this many bytes.
    fn from(limit: usize) -> Self {
        let scope = MetaScope::Head;
        Self { limit, scope }
    }
}

/// Finds the metas and notices in the head of a page. The page is pushed in chunks.
pub struct MetaScanner {
    options: ScanOptions,
    /// Encoding that the Content-Type declares.
    label: EncodingLabel,
    /// Whether the page must look like HTML to be scanned.
    must_look_like_html: bool,
    /// Bytes pushed, except those after the end of the scan.
    pushed: usize,
    /// The first of these bytes, from which the encoding is determined.
    start: Vec<u8>,
    /// `None` while the start does not yet determine how to read the page, and if the
    /// page is not HTML.
    reader: Option<Box<HeadReader>>,
    /// Bytes still to come in which the page may declare its encoding.
    prescan_left: usize,
    /// Encoding of the page; `None` if it is not known.
    encoding: Option<&'static Encoding>,
    /// Whether the encoding that was declared can be read; see
    /// [`is_readable`](Self::is_readable).
    is_readable: bool,
    /// Progress of the scan.
    status: ScanStatus,
}

/// Length of the start of a page that always determines how to read it.
const START_BYTES: usize = SIGNATURE_BYTES;

const _: () = assert!(PRESCAN_BYTES <= START_BYTES);

impl MetaScanner {
    /// Maximum number of bytes of memory that the scan of an ordinary page takes.
    const MEMORY_BYTES: usize = 64 * 1024;

    /// An incomplete token takes this many times its length: its buffer doubles as it
    /// grows and is copied each time.
    const TOKEN_COPIES: usize = 3;

    /// Begins a page. `charset` is the label in its Content-Type. A byte order mark
    /// outweighs it. An unknown label is ignored, since markup is ASCII in nearly every
    /// encoding.
    pub fn new(options: impl Into<ScanOptions>, charset: Option<&str>) -> Self {
        let label = EncodingLabel::parse(charset);
        Self {
            options: options.into(),
            label,
            must_look_like_html: false,
            pushed: 0,
            start: Vec::new(),
            reader: None,
            prescan_left: 0,
            encoding: None,
            is_readable: label != EncodingLabel::Unreadable,
            status: ScanStatus::More,
        }
    }

    /// Begins a body with this Content-Type. Returns `None` if the type is not HTML. A
    /// body without a type is scanned if it looks like HTML.
    pub fn for_type(content_type: Option<&[u8]>, options: impl Into<ScanOptions>) -> Option<Self> {
        let text = text(content_type.unwrap_or_default());
        let must_look_like_html = match kind(&text) {
            Kind::Html => false,
            Kind::Missing => true,
            Kind::Other => return None,
        };
        Some(Self {
            must_look_like_html,
            ..Self::new(options, charset(&text).as_deref())
        })
    }

    /// Reads the next bytes. Bytes after the end of the scan are ignored.
    pub fn push(&mut self, chunk: &[u8]) -> ScanStatus {
        let room = self.options.limit - self.pushed;
        let bytes = chunk.get(..room).unwrap_or(chunk);
        if self.status == ScanStatus::More {
            self.pushed += bytes.len();
            self.read(bytes);
        }
        if room < chunk.len() {
            self.stop(ScanStatus::Limit);
        }
        self.status
    }

    /// Ends the body, which also ends its head.
    pub fn finish(&mut self) -> ScanStatus {
        self.stop(ScanStatus::Done);
        self.status
    }

    /// Returns the progress of the scan.
    pub fn status(&self) -> ScanStatus {
        self.status
    }

    /// Returns approximately how many bytes of memory the scan takes now; 0 if it has
    /// ended.
    pub fn memory(&self) -> usize {
        if self.status != ScanStatus::More {
            return 0;
        }
        let reader = self.reader.as_ref();
        let pending = reader.map_or(self.start.len(), |reader| reader.pending_bytes());
        let kept = self.findings().map_or(0, |findings| findings.bytes);
        Self::MEMORY_BYTES + pending * Self::TOKEN_COPIES + kept
    }

    /// Reports whether the encoding of the page could be read. If not, the page was
    /// scanned as if it were ASCII, and a directive that was not found may still be
    /// there.
    pub fn is_readable(&self) -> bool {
        self.is_readable && !page_encoding::is_mislabelled(&self.start, self.encoding)
    }

    /// Reports whether the end of the head was seen. With [`MetaScope::Prefix`] this
    /// happens before the end of the scan.
    pub fn has_head_ended(&self) -> bool {
        let reader = self.reader.as_ref();
        reader.is_some_and(|reader| reader.has_head_ended())
    }

    /// Returns the metas in the head that restrict something, each once. They are
    /// complete when the scan has ended.
    pub fn metas(&self) -> &[Meta] {
        self.findings().map_or(&[], |findings| &findings.metas)
    }

    /// Returns the metas after the head that restrict something; empty unless the scope
    /// is [`MetaScope::Prefix`].
    pub fn outside(&self) -> &[Meta] {
        match self.options.scope {
            MetaScope::Head => &[],
            MetaScope::Prefix => self.findings().map_or(&[], |findings| &findings.outside),
        }
    }

    /// Returns the statements in the head about data mining and licences.
    pub fn notices(&self) -> &[Notice] {
        self.findings().map_or(&[], |findings| &findings.notices)
    }

    fn findings(&self) -> Option<&HeadFindings> {
        self.reader.as_ref().map(|reader| reader.findings())
    }

    fn read(&mut self, bytes: &[u8]) {
        let room = START_BYTES - self.start.len();
        self.start
            .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        let Some(reader) = &mut self.reader else {
            return self.begin(bytes);
        };
        let (prescanned, rest) = bytes.split_at(self.prescan_left.min(bytes.len()));
        if !prescanned.is_empty() {
            if memchr(ESCAPE, prescanned).is_some() {
                // How an escape is read depends on a declaration that may follow.
                self.reader = None;
                return self.begin(bytes);
            }
            reader.push(prescanned);
            self.prescan_left -= prescanned.len();
            // Up to here the encoding made no difference.
            if self.prescan_left == 0 && page_encoding::declares_iso_2022_jp(&self.start) {
                reader.transcode_from(ISO_2022_JP);
            }
        }
        let status = reader.push(rest);
        self.stop(status);
    }

    /// Begins to read the page, if its start determines how. `bytes` are the most
    /// recently pushed bytes.
    fn begin(&mut self, bytes: &[u8]) {
        let is_limit = self.options.limit <= self.pushed || self.status != ScanStatus::More;
        let start = PageStart {
            bytes: &self.start,
            is_complete: is_limit || START_BYTES == self.start.len(),
        };
        if self.must_look_like_html {
            match looks_like_html(start.bytes) {
                Some(true) => {}
                None if !start.is_complete => return,
                None | Some(false) => {
                    self.status = ScanStatus::Done;
                    // A body that is not HTML cannot have a wrong encoding.
                    self.start.clear();
                    return;
                }
            }
        }
        let Some(found) = PageEncoding::read(start, self.label) else {
            return;
        };
        if self.label == EncodingLabel::Unknown {
            self.is_readable = page_encoding::is_ascii_markup(&self.start).unwrap_or(true);
        }
        self.is_readable |= 0 < found.mark_bytes;
        self.encoding = found.encoding;
        if found.encoding.is_none() {
            self.prescan_left = PRESCAN_BYTES.saturating_sub(self.start.len());
        }
        let extent = match self.options.scope {
            MetaScope::Head => HeadExtent::Head,
            MetaScope::Prefix => HeadExtent::Prefix,
        };
        let new_reader = HeadReader::new(found.encoding.unwrap_or(UTF_8), extent);
        let reader = self.reader.insert(Box::new(new_reader));
        let status = if self.pushed == bytes.len() {
            // The whole page so far. Reading its start first would cut a token there,
            // and a token that is cut has to be copied.
            reader.push(&bytes[found.mark_bytes..])
        } else {
            reader.push(&self.start[found.mark_bytes..]);
            // While there is no reader, `start` has every byte except the end of the
            // last chunk.
            let late_bytes = self.pushed - self.start.len();
            reader.push(&bytes[bytes.len() - late_bytes..])
        };
        self.stop(status);
    }

    /// Ends the scan, unless `status` is `More`.
    fn stop(&mut self, status: ScanStatus) {
        if status == ScanStatus::More || self.status != ScanStatus::More {
            return;
        }
        self.status = status;
        if self.reader.is_none() {
            self.begin(&[]);
        }
        let Some(reader) = &mut self.reader else {
            return;
        };
        reader.finish();
        let is_known = !reader.is_ambiguous() && !reader.findings().is_full();
        let has_ended = reader.has_head_ended() || status == ScanStatus::Done;
        self.status = if is_known && has_ended {
            ScanStatus::Done
        } else {
            ScanStatus::Limit
        };
    }
}

impl fmt::Debug for MetaScanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaScanner")
            .field("pushed", &self.pushed)
            .field("status", &self.status)
            .field("findings", &self.findings())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
