//! Pushed chunks of HTML to the metas of its head.
//!
//! `lol_html` cuts the octets into tokens, `head` knows which of them count.
//! Three things `lol_html` does not do are done here: UTF-16 and ISO-2022-JP
//! are transcoded before it, end tags that close nothing are found in what it
//! passes on between its tokens, and the text of a `<noscript>` is scanned a
//! second time.
//!
//! Invariant: what is found does not depend on where the chunks were cut.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use encoding_rs::{Decoder, Encoding};
use lol_html::html_content::{Comment, Doctype, TextChunk, TextType};
use lol_html::send::{DocumentContentHandlers, Element, HtmlRewriter, Settings};
use lol_html::{AsciiCompatibleEncoding, HandlerResult, MemorySettings, OutputSink};

use super::head::{Extent, Head, Meta, Tag, Text};
use super::media_type::{Kind, SIGNATURE_BYTES, charset, kind, looks_like_html};

/// How far a scan has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// The head goes on: push more.
    More,
    /// The head, or the page, has ended.
    Done,
    /// The head goes on beyond what is scanned. What was found counts.
    Limit,
}

/// Finds the metas in the head of a page that is pushed in chunks.
pub struct MetaScanner {
    limit: usize,
    pushed: usize,
    encoding: Option<&'static Encoding>,
    signature: Signature,
    phase: Phase,
    outcome: Scan,
    metas: Vec<Meta>,
}

/// Whether the page must look like HTML to be scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signature {
    Needless,
    Needed,
}

/// What is done with octets that come in.
enum Phase {
    /// They are kept until the encoding can be known.
    Start(Vec<u8>),
    Scanning(Box<Tokens>),
    Over,
}

/// The longest byte order mark.
const MARK_BYTES: usize = 3;

/// Memory beyond twice the scan limit that `lol_html` may take.
const MEMORY_SPARE_BYTES: usize = 64 * 1024;

impl MetaScanner {
    /// Octets of memory that a scan takes at most for pages as they are.
    pub const MEMORY_BYTES: usize = 64 * 1024;

    /// Begins a page of which at most `limit` octets are scanned. `charset` is
    /// the label in its Content-Type; a byte order mark outweighs it, and an
    /// unknown one counts as none, since markup is ASCII nearly everywhere.
    pub fn new(limit: usize, charset: Option<&str>) -> Self {
        let label = charset.unwrap_or_default().as_bytes();
        Self {
            limit,
            pushed: 0,
            encoding: Encoding::for_label_no_replacement(label),
            signature: Signature::Needless,
            phase: Phase::Start(Vec::new()),
            outcome: Scan::More,
            metas: Vec::new(),
        }
    }

    /// The scanner for a body of this Content-Type; none if it is not HTML. A
    /// body without a type is scanned if it looks like HTML.
    pub fn for_type(content_type: Option<&[u8]>, limit: usize) -> Option<Self> {
        let content_type = content_type.map(String::from_utf8_lossy);
        let content_type = content_type.as_deref().unwrap_or_default();
        let charset = charset(content_type);
        let signature = match kind(content_type) {
            Kind::Html => Signature::Needless,
            Kind::Missing => Signature::Needed,
            Kind::Other => return None,
        };
        Some(Self {
            signature,
            ..Self::new(limit, charset)
        })
    }

    /// Takes in the next octets. Those behind the end of the scan are ignored.
    pub fn push(&mut self, chunk: &[u8]) -> Scan {
        let room = self.limit - self.pushed;
        let taken = chunk.get(..room).unwrap_or(chunk);
        self.pushed += taken.len();
        self.take(taken);
        if self.outcome == Scan::More && room < chunk.len() {
            self.stop(Scan::Limit);
        }
        self.outcome
    }

    /// Notes that the body has ended, which ends its head.
    pub fn finish(&mut self) -> Scan {
        if let Phase::Start(held) = &mut self.phase {
            let held = std::mem::take(held);
            self.open(&held);
        }
        self.stop(Scan::Done);
        self.outcome
    }

    /// How far the scan has come.
    pub fn outcome(&self) -> Scan {
        self.outcome
    }

    /// The metas that restrict something, each once. They are complete when
    /// the scan has ended.
    pub fn metas(&self) -> &[Meta] {
        &self.metas
    }

    fn take(&mut self, octets: &[u8]) {
        let needed = match self.signature {
            Signature::Needless => MARK_BYTES,
            Signature::Needed => SIGNATURE_BYTES,
        };
        match &mut self.phase {
            Phase::Start(held) => {
                held.extend_from_slice(octets);
                if needed.min(self.limit) <= held.len() {
                    let held = std::mem::take(held);
                    self.open(&held);
                }
            }
            Phase::Scanning(tokens) => {
                let outcome = tokens.write(octets);
                if outcome != Scan::More {
                    self.stop(outcome);
                }
            }
            Phase::Over => {}
        }
    }

    /// Begins to scan with the octets held back at the start.
    fn open(&mut self, held: &[u8]) {
        if self.signature == Signature::Needed && !looks_like_html(held) {
            self.phase = Phase::Over;
            self.outcome = Scan::Done;
            return;
        }
        let (encoding, mark) = match Encoding::for_bom(held) {
            Some((encoding, length)) => (Some(encoding), length),
            None => (self.encoding, 0),
        };
        let memory = self.limit.saturating_mul(2);
        let memory = memory.saturating_add(MEMORY_SPARE_BYTES);
        let tokens = Tokens::new(encoding, Extent::Head, memory);
        self.phase = Phase::Scanning(Box::new(tokens));
        self.take(&held[mark..]);
    }

    /// Ends the scan, and collects what it found.
    fn stop(&mut self, outcome: Scan) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Scanning(mut tokens) = phase else {
            self.outcome = match self.outcome {
                Scan::More => outcome,
                Scan::Done | Scan::Limit => self.outcome,
            };
            return;
        };
        self.outcome = match outcome {
            Scan::Done => tokens.finish(),
            Scan::More | Scan::Limit => outcome,
        };
        self.metas = tokens.into_metas();
        if Head::METAS_MAX <= self.metas.len() {
            self.outcome = Scan::Limit;
        }
    }
}

impl fmt::Debug for MetaScanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaScanner")
            .field("pushed", &self.pushed)
            .field("outcome", &self.outcome)
            .field("metas", &self.metas)
            .finish_non_exhaustive()
    }
}

/// A page on its way through `lol_html`.
struct Tokens {
    /// None once it has failed, which is how a callback ends the scan.
    rewriter: Option<HtmlRewriter<'static, Gap>>,
    decoder: Option<Decoder>,
    head: Shared,
    memory: usize,
}

/// The head that the callbacks of a rewriter write to. They run inside its
/// `write`, never at the same time.
#[derive(Clone)]
struct Shared(Arc<Mutex<Head>>);

/// Takes what the rewriter passes on. Every token that has a callback is
/// removed, so that end tags alone are left.
struct Gap(Shared);

/// Ends the scan from inside a callback.
#[derive(Debug, thiserror::Error)]
#[error("the head has ended")]
struct HeadOver;

/// Octets transcoded at a time.
const DECODED_BYTES: usize = 8 * 1024;

impl Tokens {
    fn new(encoding: Option<&'static Encoding>, extent: Extent, memory: usize) -> Self {
        let head = Shared(Arc::new(Mutex::new(Head::new(extent))));
        let native = encoding.and_then(AsciiCompatibleEncoding::new);
        let foreign = encoding.filter(|encoding| !encoding.is_ascii_compatible());
        let rewriter = rewriter(&head, native, memory);
        Self {
            rewriter: Some(rewriter),
            decoder: foreign.map(Encoding::new_decoder_without_bom_handling),
            head,
            memory,
        }
    }

    fn write(&mut self, octets: &[u8]) -> Scan {
        let Some(decoder) = &mut self.decoder else {
            return self.write_ascii(octets);
        };
        let mut text = String::new();
        for piece in octets.chunks(DECODED_BYTES) {
            let length = decoder.max_utf8_buffer_length(piece.len());
            text.reserve(length.unwrap_or_default());
            let _ = decoder.decode_to_string(piece, &mut text, false);
        }
        self.write_ascii(text.as_bytes())
    }

    /// Writes octets of an encoding in which markup is ASCII.
    fn write_ascii(&mut self, octets: &[u8]) -> Scan {
        let Some(rewriter) = &mut self.rewriter else {
            return Scan::Done;
        };
        let failed = rewriter.write(octets).is_err();
        let mut head = self.head.lock();
        head.close_gap();
        let is_over = head.is_over();
        let is_full = head.is_full();
        drop(head);
        if failed || is_over || is_full {
            self.rewriter = None;
        }
        match (is_over, failed || is_full) {
            (true, _) => Scan::Done,
            // It ran out of memory: a tag, or a nest of elements, too large.
            (false, true) => Scan::Limit,
            (false, false) => Scan::More,
        }
    }

    /// Ends the page, unless its head has ended before. Text that the decoder
    /// holds back is part of an incomplete character: it could end the head
    /// only where the page ends anyway.
    fn finish(&mut self) -> Scan {
        let Some(rewriter) = self.rewriter.take() else {
            return Scan::Done;
        };
        let failed = rewriter.end().is_err();
        if failed && !self.head.lock().is_over() {
            return Scan::Limit;
        }
        Scan::Done
    }

    /// The metas found, those in a `<noscript>` among them.
    fn into_metas(self) -> Vec<Meta> {
        drop(self.rewriter);
        let mut head = self.head.lock();
        for text in std::mem::take(&mut head.noscripts) {
            if !text.to_ascii_lowercase().contains("<meta") {
                continue;
            }
            let mut tokens = Self::new(None, Extent::All, self.memory);
            if tokens.write_ascii(text.as_bytes()) == Scan::More {
                tokens.finish();
            }
            for meta in std::mem::take(&mut tokens.head.lock().metas) {
                head.keep_once(meta);
            }
        }
        std::mem::take(&mut head.metas)
    }
}

fn rewriter(
    head: &Shared,
    encoding: Option<AsciiCompatibleEncoding>,
    memory: usize,
) -> HtmlRewriter<'static, Gap> {
    let (tags, texts) = (head.clone(), head.clone());
    let (comments, doctypes) = (head.clone(), head.clone());
    let document = DocumentContentHandlers::default()
        .text(move |chunk: &mut TextChunk<'_>| texts.on_text(chunk))
        .comments(move |comment: &mut Comment<'_>| {
            comment.remove();
            comments.on_token(|_| {})
        })
        .doctype(move |doctype: &mut Doctype<'_>| {
            doctype.remove();
            doctypes.on_token(|_| {})
        });
    let element = lol_html::element!("*", move |element: &mut Element<'_, '_>| {
        tags.on_element(element)
    });
    let memory = MemorySettings::new().with_max_allowed_memory_usage(memory);
    let settings = Settings::new_send()
        .append_element_content_handler(element)
        .append_document_content_handler(document)
        .with_encoding(encoding.unwrap_or_else(AsciiCompatibleEncoding::utf_8))
        .with_memory_settings(memory)
        .with_strict(false);
    HtmlRewriter::new(settings, Gap(head.clone()))
}

impl Shared {
    /// The head. A poisoned lock would mean a panic in `head`, whose state is
    /// valid between any two steps.
    fn lock(&self) -> MutexGuard<'_, Head> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the end tags before a token, then the token.
    ///
    /// # Errors
    ///
    /// [`HeadOver`] if the scan is to end.
    fn on_token(&self, take: impl FnOnce(&mut Head)) -> HandlerResult {
        let mut head = self.lock();
        head.close_gap();
        take(&mut head);
        if head.is_over() || head.is_full() {
            return Err(Box::new(HeadOver) as Box<dyn Error + Send + Sync>);
        }
        Ok(())
    }

    fn on_element(&self, element: &mut Element<'_, '_>) -> HandlerResult {
        element.start_tag().remove();
        let name = element.tag_name();
        let meta = (name == "meta").then(|| {
            let name = element.get_attribute("name");
            name.zip(element.get_attribute("content"))
        });
        let meta = meta.flatten();
        self.on_token(|head| head.start_tag(Tag { name, meta }))
    }

    fn on_text(&self, chunk: &mut TextChunk<'_>) -> HandlerResult {
        let kind = match chunk.text_type() {
            TextType::Data => Text::Data,
            TextType::RawText => Text::Raw,
            TextType::PlainText
            | TextType::RCData
            | TextType::ScriptData
            | TextType::CDataSection => Text::Other,
        };
        let taken = self.on_token(|head| head.text(chunk.as_str(), kind));
        chunk.remove();
        taken
    }
}

impl OutputSink for Gap {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        self.0.lock().gap.extend_from_slice(chunk);
    }
}

#[cfg(test)]
mod tests;
