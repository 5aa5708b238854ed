//! A page on its way through `lol_html`, token by token, to its head.
//!
//! `lol_html` has no tree, and guesses how a page is to be read behind a tag.
//! Where `head` knows better, the page is begun anew behind that tag, with a
//! tag in front of it that makes `lol_html` read on as it should.
//!
//! Tags are not asked for: they are what is passed on between the texts and
//! comments, as they were written. So end tags are seen too, and nothing is
//! allocated for a tag.

use std::error::Error;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use encoding_rs::{Encoding, UTF_8};
use lol_html::html_content::{Comment, Doctype, TextChunk, TextType};
use lol_html::send::{DocumentContentHandlers, HtmlRewriter, Settings};
use lol_html::{AsciiCompatibleEncoding, HandlerResult, MemorySettings, OutputSink};
use memchr::memchr;

use super::found::Found;
use super::head::{Extent, Head, Next, Text};
use super::lax::Lax;
use super::tag::Tag;

/// How far the tokens go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More can be taken in.
    More,
    /// Nothing that follows can matter.
    Over,
    /// A tag, or a comment, takes more memory than it may.
    Memory,
}

/// A page being read.
pub(super) struct Tokens {
    encoding: AsciiCompatibleEncoding,
    rewriter: Option<HtmlRewriter<'static, Gap>>,
    shared: Shared,
    /// Octets taken in.
    taken: usize,
    /// How often the page was begun anew.
    turns: usize,
    /// Set where the reading of the page is in doubt.
    lax: Option<Lax>,
}

/// The state that the callbacks of a rewriter write to. They run inside its
/// `write`, never at the same time.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

struct State {
    head: Head,
    /// What was passed on and not read yet: tags.
    gap: Vec<u8>,
    /// Where the gap begins in the page.
    at: usize,
    /// Where the page was begun anew, and the octets put in front.
    origin: (usize, usize),
    turn: Option<Turn>,
}

/// Where the reading of the page is to change.
struct Turn {
    at: usize,
    next: Next,
}

/// Takes what the rewriter passes on.
struct Gap(Shared);

/// Ends a write from inside a callback.
#[derive(Debug, thiserror::Error)]
#[error("the page is to be read otherwise, or not at all")]
struct Stop;

/// Octets written at a time: so many are read too far where the head has ended.
const PIECE_BYTES: usize = 4 * 1024;

/// Memory that `lol_html` may take for one tag and its attributes.
const MEMORY_BYTES: usize = 1024 * 1024;

/// How often a page is begun anew. Each time costs up to a piece of work.
const TURNS_MAX: usize = 256;

impl Tokens {
    pub(super) fn new(encoding: Option<&'static Encoding>, extent: Extent) -> Self {
        let encoding = encoding.and_then(AsciiCompatibleEncoding::new);
        let encoding = encoding.unwrap_or_else(AsciiCompatibleEncoding::utf_8);
        let shared = Shared(Arc::new(Mutex::new(State {
            head: Head::new(extent, encoding.into()),
            gap: Vec::new(),
            at: 0,
            origin: (0, 0),
            turn: None,
        })));
        Self {
            encoding,
            rewriter: Some(rewriter(&shared, encoding)),
            shared,
            taken: 0,
            turns: 0,
            lax: None,
        }
    }

    /// Takes in octets of an encoding in which markup is ASCII.
    pub(super) fn write(&mut self, octets: &[u8]) -> Progress {
        for piece in octets.chunks(PIECE_BYTES) {
            let progress = self.write_piece(piece);
            if progress != Progress::More {
                return progress;
            }
        }
        Progress::More
    }

    /// Whether the head was seen to end.
    pub(super) fn has_head_ended(&self) -> bool {
        self.shared.lock().head.has_ended()
    }

    /// Whether the reading of the page is in doubt.
    pub(super) fn is_doubtful(&self) -> bool {
        self.lax.is_some()
    }

    /// Ends the page. A `<noscript>` that has not ended counts as far as it
    /// goes.
    pub(super) fn finish(&mut self) {
        self.rewriter = None;
        let mut state = self.shared.lock();
        let Some(text) = state.head.take_noscript() else {
            return;
        };
        let next = state.read_noscript(&text, b"");
        if next == Next::Doubt && state.head.is_nested() {
            let lax = self.lax.get_or_insert_default();
            lax.push(&text, &mut state.head.found);
        }
    }

    /// What was found.
    pub(super) fn into_found(self) -> Found {
        drop(self.rewriter);
        let mut state = self.shared.lock();
        let nothing = Found::new(UTF_8);
        std::mem::replace(&mut state.head.found, nothing)
    }

    fn write_piece(&mut self, piece: &[u8]) -> Progress {
        let start = self.taken;
        self.taken += piece.len();
        let mut rest = piece;
        loop {
            if let Some(lax) = &mut self.lax {
                lax.push(rest, &mut self.shared.lock().head.found);
                return Progress::More;
            }
            let Some(rewriter) = &mut self.rewriter else {
                return Progress::Over;
            };
            let has_failed = rewriter.write(rest).is_err();
            let mut state = self.shared.lock();
            state.close_gap();
            let is_over = state.head.is_over();
            let turn = state.turn.take();
            drop(state);
            match turn {
                Some(turn) if !is_over => {
                    rest = piece
                        .get(turn.at.saturating_sub(start)..)
                        .unwrap_or_default();
                    self.turn(turn);
                }
                _ if is_over => return self.stop(Progress::Over),
                _ if has_failed => return self.stop(Progress::Memory),
                _ => return Progress::More,
            }
        }
    }

    fn stop(&mut self, progress: Progress) -> Progress {
        self.rewriter = None;
        progress
    }

    /// Begins anew behind a tag, in the way that it asks for.
    fn turn(&mut self, turn: Turn) {
        self.turns += 1;
        self.rewriter = None;
        let front = match turn.next {
            Next::Content(name) => format!("<{name}>"),
            _ => String::new(),
        };
        let in_doubt = turn.next == Next::Doubt || TURNS_MAX < self.turns;
        let mut state = self.shared.lock();
        if in_doubt {
            let mut lax = Lax::default();
            if let Some(text) = state.head.take_noscript() {
                lax.push(&text, &mut state.head.found);
            }
            self.lax = Some(lax);
            return;
        }
        state.gap.clear();
        state.origin = (turn.at, front.len());
        drop(state);
        let mut rewriter = rewriter(&self.shared, self.encoding);
        // One short tag: it cannot fail, and it is not part of the page.
        let _ = rewriter.write(front.as_bytes());
        let mut state = self.shared.lock();
        state.gap.clear();
        state.at = turn.at;
        drop(state);
        self.rewriter = Some(rewriter);
    }
}

fn rewriter(shared: &Shared, encoding: AsciiCompatibleEncoding) -> HtmlRewriter<'static, Gap> {
    let (texts, comments, doctypes) = (shared.clone(), shared.clone(), shared.clone());
    let document = DocumentContentHandlers::default()
        .text(move |chunk: &mut TextChunk<'_>| texts.on_text(chunk))
        .comments(move |comment: &mut Comment<'_>| {
            let range = comment.source_location().bytes();
            let text = comment.text();
            comment.remove();
            comments.on_token(range, |head| head.comment(&text))
        })
        .doctype(move |doctype: &mut Doctype<'_>| {
            doctype.remove();
            doctypes.on_token(doctype.source_location().bytes(), |head| {
                head.end_text();
                Next::Usual
            })
        });
    let memory = MemorySettings::new().with_max_allowed_memory_usage(MEMORY_BYTES);
    let settings = Settings::new_send()
        .append_document_content_handler(document)
        .with_encoding(encoding)
        .with_memory_settings(memory)
        .with_strict(false);
    HtmlRewriter::new(settings, Gap(shared.clone()))
}

impl Shared {
    /// The state. A poisoned lock would mean a panic in `head`, whose state is
    /// valid between any two steps.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the tags before a token, then the token.
    ///
    /// # Errors
    ///
    /// [`Stop`] if the write is to end.
    fn on_token(&self, range: Range<usize>, take: impl FnOnce(&mut Head) -> Next) -> HandlerResult {
        let mut state = self.lock();
        state.close_gap();
        if state.turn.is_none() && !state.head.is_over() {
            let next = take(&mut state.head);
            state.pass(range, next);
        }
        if state.turn.is_some() || state.head.is_over() {
            return Err(Box::new(Stop) as Box<dyn Error + Send + Sync>);
        }
        Ok(())
    }

    fn on_text(&self, chunk: &mut TextChunk<'_>) -> HandlerResult {
        if chunk.as_str().is_empty() {
            return Ok(());
        }
        let kind = match chunk.text_type() {
            TextType::Data => Text::Data,
            TextType::RawText => Text::Raw,
            TextType::PlainText
            | TextType::RCData
            | TextType::ScriptData
            | TextType::CDataSection => Text::Other,
        };
        let range = chunk.source_location().bytes();
        let text = chunk.as_str().as_bytes();
        self.on_token(range, |head| head.text(text, kind))?;
        chunk.remove();
        Ok(())
    }
}

impl State {
    /// Reads the tags that stand before the next token.
    fn close_gap(&mut self) {
        if self.gap.is_empty() || self.turn.is_some() {
            return;
        }
        self.head.end_text();
        let mut gap = std::mem::take(&mut self.gap);
        let end = self.at + gap.len();
        let mut rest = gap.as_slice();
        while let Some(start) = memchr(b'<', rest).filter(|_| !self.head.is_over()) {
            let text = &rest[start..];
            // `</>` is no tag, nor is what begins and ends a CDATA section.
            let Some((tag, behind)) = Tag::read(text) else {
                rest = &text[1..];
                continue;
            };
            let next = self.head.tag(&tag);
            if self.follow(next, (end - text.len(), end - behind.len())) {
                break;
            }
            rest = behind;
        }
        self.at = end;
        gap.clear();
        self.gap = gap;
    }

    /// Does as a tag asks. Whether the page is to be read otherwise.
    fn follow(&mut self, next: Next, (start, end): (usize, usize)) -> bool {
        let next = match next {
            Next::Noscript(text) => self.end_noscript(text),
            next => next,
        };
        let at = match next {
            Next::Usual | Next::Noscript(_) => return false,
            Next::Markup | Next::Content(_) => end,
            Next::Doubt => start,
        };
        self.turn = Some(Turn { at, next });
        true
    }

    /// Takes the place of a token in, and what it asks for.
    fn pass(&mut self, range: Range<usize>, next: Next) {
        let (origin, front) = self.origin;
        let place = |at: usize| (origin + at).saturating_sub(front);
        self.at = place(range.end);
        if next == Next::Doubt {
            let at = place(range.start);
            self.turn = Some(Turn { at, next });
        }
    }

    /// Scans the text of a `<noscript>`. In doubt it is kept, since a tag in it
    /// may end behind it.
    fn end_noscript(&mut self, text: Vec<u8>) -> Next {
        let next = self.read_noscript(&text, b"</noscript>");
        if next == Next::Doubt {
            self.head.keep_noscript(text);
        }
        next
    }

    /// Scans the text of a `<noscript>`, ended by `end`, as without scripts.
    fn read_noscript(&mut self, text: &[u8], end: &[u8]) -> Next {
        // Its text is decoded already.
        let mut tokens = Tokens::new(None, Extent::Noscript);
        tokens.write(text);
        tokens.write(end);
        let in_doubt = tokens.is_doubtful();
        let shared = tokens.shared.clone();
        drop(tokens);
        let Some(inner) = Arc::into_inner(shared.0) else {
            return Next::Doubt;
        };
        let inner = inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        match self.head.add(inner.head) {
            Next::Usual if in_doubt => Next::Doubt,
            next => next,
        }
    }
}

impl OutputSink for Gap {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        if !chunk.is_empty() {
            self.0.lock().gap.extend_from_slice(chunk);
        }
    }
}
