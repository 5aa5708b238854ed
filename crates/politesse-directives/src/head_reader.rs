//! Reads a page, pushed in chunks, to the end of its head.
//!
//! `tokenizer` splits the page; `head` decides what a token means and how the rest is
//! read. If that is ambiguous, every `<meta` in the rest of the page counts
//! (`meta_search`). Does not know how the encoding of a page is determined.
//!
//! The result does not depend on where the chunks were cut.

use encoding_rs::{Decoder, Encoding, UTF_8};

use super::findings::HeadFindings;
use super::head::{Head, HeadExtent, TokenEffect};
use super::meta_search::MetaSearch;
use super::tokenizer::{HtmlToken, Tokenizer};

/// Progress of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStatus {
    /// The head, or the part after it that is looked at, has not ended: push more.
    More,
    /// The head, or the page, has ended.
    Done,
    /// The head continues beyond the scan limit, or its end cannot be determined. The
    /// findings so far count.
    Limit,
}

/// Reader of one page.
pub(super) struct HeadReader {
    /// Set if markup is not ASCII in the encoding of the page.
    decoder: Option<Decoder>,
    /// Splits the page into tokens.
    tokenizer: Tokenizer,
    /// State of the head, and the findings.
    head: Head,
    /// Bytes of the token that has not ended yet.
    pending: Vec<u8>,
    /// Set once the reading of the page is ambiguous.
    search: Option<MetaSearch>,
    /// Progress of the scan.
    status: ScanStatus,
}

/// Number of bytes that are copied or transcoded at a time.
const PIECE_BYTES: usize = 4 * 1024;

impl HeadReader {
    /// Length of the longest tag that is read. Tags of real pages have 180 KB at most;
    /// longer ones would only take memory.
    const TAG_BYTES_MAX: usize = 1024 * 1024;

    /// Begins a page in this encoding.
    pub(super) fn new(encoding: &'static Encoding, extent: HeadExtent) -> Self {
        let is_ascii = encoding.is_ascii_compatible();
        Self {
            decoder: (!is_ascii).then(|| encoding.new_decoder_without_bom_handling()),
            tokenizer: Tokenizer::default(),
            head: Head::new(extent, if is_ascii { encoding } else { UTF_8 }),
            pending: Vec::new(),
            search: None,
            status: ScanStatus::More,
        }
    }

    /// Reads the rest of the page in another encoding. The bytes before must read the
    /// same in both.
    pub(super) fn transcode_from(&mut self, encoding: &'static Encoding) {
        self.decoder = Some(encoding.new_decoder_without_bom_handling());
    }

    /// Reads more of the page.
    pub(super) fn push(&mut self, bytes: &[u8]) -> ScanStatus {
        let Some(mut decoder) = self.decoder.take() else {
            return self.push_decoded(bytes);
        };
        let mut text = String::new();
        for piece in bytes.chunks(PIECE_BYTES) {
            let length = decoder.max_utf8_buffer_length(piece.len());
            text.clear();
            text.reserve(length.unwrap_or_default());
            // The text has room for the whole piece, so all of it is decoded.
            let _ = decoder.decode_to_string(piece, &mut text, false);
            if self.push_decoded(text.as_bytes()) != ScanStatus::More {
                break;
            }
        }
        self.decoder = Some(decoder);
        self.status
    }

    /// Reports whether the head was seen to end.
    pub(super) fn has_head_ended(&self) -> bool {
        self.head.has_ended()
    }

    /// Returns the number of bytes that were pushed and are not yet part of a token.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Reports whether the reading of the page is ambiguous.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.search.is_some()
    }

    /// Ends the page. A `<noscript>` that has not ended counts as far as it was read.
    pub(super) fn finish(&mut self) {
        let Some(text) = self.head.take_noscript() else {
            return;
        };
        let effect = self.read_noscript(&text, b"");
        if effect == TokenEffect::Ambiguous && self.head.is_in_template() {
            self.search_metas(&text);
        }
    }

    /// Returns the findings so far.
    pub(super) fn findings(&self) -> &HeadFindings {
        &self.head.findings
    }

    /// Reads bytes of an encoding in which markup is ASCII.
    fn push_decoded(&mut self, bytes: &[u8]) -> ScanStatus {
        let mut rest = bytes;
        while !self.pending.is_empty() && !rest.is_empty() {
            rest = self.push_to_pending(rest);
        }
        let length = self.read(rest);
        if self.status == ScanStatus::More {
            self.pending.extend_from_slice(&rest[length..]);
        } else {
            self.pending = Vec::new();
        }
        self.status
    }

    /// Completes the pending token with some of the new bytes. Returns the bytes that
    /// are still unread.
    fn push_to_pending<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        // Copying all bytes would be too much: nearly every token ends within the first
        // few.
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        let mut text = std::mem::take(&mut self.pending);
        let pending = text.len();
        text.extend_from_slice(piece);
        let length = self.read(&text);
        if pending <= length || self.status != ScanStatus::More {
            return &bytes[length.saturating_sub(pending)..];
        }
        text.drain(..length);
        self.pending = text;
        &bytes[piece.len()..]
    }

    /// Reads tokens from `text` and returns their total length. The rest is an
    /// incomplete token, or follows the end of the scan.
    fn read(&mut self, text: &[u8]) -> usize {
        let mut at = 0;
        while self.status == ScanStatus::More {
            let rest = &text[at..];
            if let Some(search) = &mut self.search {
                search.push(rest, &mut self.head.findings);
                return text.len();
            }
            let Some((token, length)) = self.tokenizer.read(rest) else {
                if Self::TAG_BYTES_MAX <= rest.len() {
                    self.status = ScanStatus::Limit;
                }
                break;
            };
            at += length;
            // A tag is too long regardless of how it was cut into chunks.
            if matches!(token, HtmlToken::Tag(_)) && Self::TAG_BYTES_MAX < length {
                self.status = ScanStatus::Limit;
                break;
            }
            let effect = self.head.read(&token);
            self.apply(effect, &rest[..length]);
        }
        at
    }

    /// Continues after the token `text` as `effect` says.
    fn apply(&mut self, effect: TokenEffect, text: &[u8]) {
        match effect {
            TokenEffect::Continue => {}
            TokenEffect::EnterText(name) => self.tokenizer.enter_text(name),
            TokenEffect::Noscript(content) => {
                if self.read_noscript(&content, text) == TokenEffect::Ambiguous {
                    // A meta may begin inside it and end after it.
                    self.search_metas(&content);
                    self.search_metas(text);
                }
            }
            TokenEffect::Ambiguous => {
                let noscript = self.head.take_noscript().unwrap_or_default();
                self.search_metas(&noscript);
                self.search_metas(text);
            }
        }
        if self.head.is_over() {
            self.status = ScanStatus::Done;
        }
    }

    /// Searches `text`, and from now on the rest of the page, for metas.
    fn search_metas(&mut self, text: &[u8]) {
        let search = self.search.get_or_insert_default();
        search.push(text, &mut self.head.findings);
    }

    /// Reads the content of a `<noscript>` as if scripts were disabled. `end` is its
    /// end tag, or empty.
    fn read_noscript(&mut self, content: &[u8], end: &[u8]) -> TokenEffect {
        let mut inner = Self::new(self.head.findings.encoding, HeadExtent::Noscript);
        inner.push(content);
        inner.push(end);
        let is_ambiguous = inner.is_ambiguous();
        let effect = self.head.add_noscript(inner.head);
        if is_ambiguous {
            TokenEffect::Ambiguous
        } else {
            effect
        }
    }
}
