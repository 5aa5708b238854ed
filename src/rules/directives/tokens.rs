//! A page on its way through `lol_html`, token by token, to its head.
//!
//! `lol_html` has no tree, and guesses how a page is to be read behind a tag.
//! Where `head` knows better, the page is begun anew behind that tag, with a
//! tag in front of it that makes `lol_html` read on as it should.
//!
//! Tags and text are not asked for: they are what is passed on between the
//! tokens that are, as it was written. So end tags are seen too, and nothing is
//! allocated for them.

use std::borrow::Cow;
use std::error::Error;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use encoding_rs::{Encoding, UTF_8};
use lol_html::html_content::{Comment, Doctype, EndTag};
use lol_html::send::{
    DocumentContentHandlers, Element, ElementContentHandlers, HtmlRewriter, Settings,
};
use lol_html::{AsciiCompatibleEncoding, HandlerResult, MemorySettings, OutputSink, Selector};
use memchr::memchr;

use super::found::Found;
use super::head::{Extent, Head, Next, TEXT_ELEMENTS};
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
    /// What was passed on and not read yet: tags and text.
    gap: Vec<u8>,
    /// Where the gap begins in the page.
    at: usize,
    /// Where the page was begun anew, and the octets put in front.
    origin: (usize, usize),
    content: Content,
    /// Whether what comes was put in front of the page.
    is_front: bool,
    turn: Option<Turn>,
}

/// What is passed on next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Tags, and text that counts.
    Page,
    /// The start tag of an element that holds text, then its content.
    Tag,
    /// The content of such an element.
    Text,
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
            content: Content::Page,
            is_front: false,
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
        state.content = Content::Page;
        state.origin = (turn.at, front.len());
        state.is_front = true;
        drop(state);
        let mut rewriter = rewriter(&self.shared, self.encoding);
        // One short tag: it cannot fail, and it is not part of the page.
        let _ = rewriter.write(front.as_bytes());
        let mut state = self.shared.lock();
        state.gap.clear();
        state.at = turn.at;
        state.is_front = false;
        state.content = match turn.next {
            Next::Content(_) => Content::Text,
            _ => Content::Page,
        };
        drop(state);
        self.rewriter = Some(rewriter);
    }
}

/// Every element. To choose some by name would take longer to set up than most
/// heads take to read.
static ELEMENTS: LazyLock<Selector> = LazyLock::new(|| "*".parse().expect("a star is a selector"));

fn rewriter(shared: &Shared, encoding: AsciiCompatibleEncoding) -> HtmlRewriter<'static, Gap> {
    let (elements, comments, doctypes) = (shared.clone(), shared.clone(), shared.clone());
    let document = DocumentContentHandlers::default()
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
    let element = ElementContentHandlers::default()
        .element(move |element: &mut Element<'_, '_>| elements.on_element(element));
    let memory = MemorySettings::new().with_max_allowed_memory_usage(MEMORY_BYTES);
    let settings = Settings::new_send()
        .append_document_content_handler(document)
        .append_element_content_handler((Cow::Borrowed(&*ELEMENTS), element))
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

    /// Parts the content of an element that holds text from the page, and ends
    /// the write soon behind the head.
    fn on_element(&self, element: &mut Element<'_, '_>) -> HandlerResult {
        let name = element.tag_name();
        // Nearly every tag of a head is one of these, and can wait.
        if matches!(name.as_str(), "meta" | "link") {
            return Ok(());
        }
        let start = element.source_location().bytes().start;
        self.on_token(start..start, |_| Next::Usual)?;
        if TEXT_ELEMENTS.contains(&name.as_str()) && element.can_have_content() {
            self.lock().content = Content::Tag;
            let shared = self.clone();
            element.on_end_tag(Box::new(move |tag: &mut EndTag<'_>| {
                let start = tag.source_location().bytes().start;
                let ended = shared.on_token(start..start, |_| Next::Usual);
                shared.lock().content = Content::Page;
                ended
            }))?;
        }
        Ok(())
    }
}

impl State {
    /// Takes in what was passed on.
    fn pass_on(&mut self, chunk: &[u8]) {
        match self.content {
            Content::Page => self.gap.extend_from_slice(chunk),
            Content::Tag => {
                self.gap.extend_from_slice(chunk);
                self.content = Content::Text;
            }
            Content::Text => {
                self.close_gap();
                let next = self.head.content(chunk);
                if next == Next::Doubt && self.turn.is_none() {
                    self.turn = Some(Turn { at: self.at, next });
                }
                self.at += chunk.len();
            }
        }
    }

    /// Reads what stands before the next token.
    fn close_gap(&mut self) {
        if self.gap.is_empty() || self.turn.is_some() || self.is_front {
            return;
        }
        let mut gap = std::mem::take(&mut self.gap);
        let end = self.at + gap.len();
        let mut rest = gap.as_slice();
        while !rest.is_empty() && !self.head.is_over() {
            let start = memchr(b'<', rest).unwrap_or(rest.len());
            let (text, markup) = rest.split_at(start);
            self.head.text(text);
            let Some((tag, behind)) = Tag::read(markup) else {
                rest = self.read_odd(markup);
                continue;
            };
            let next = self.head.tag(&tag);
            if self.follow(next, (end - markup.len(), end - behind.len())) {
                break;
            }
            rest = behind;
        }
        self.at = end;
        gap.clear();
        self.gap = gap;
    }

    /// Reads what begins like a tag and is none: `</>` is nothing, the rest is
    /// text. Gives what stands behind.
    fn read_odd<'a>(&mut self, markup: &'a [u8]) -> &'a [u8] {
        if let Some(behind) = markup.strip_prefix(b"</>") {
            self.head.end_text();
            return behind;
        }
        let (text, behind) = markup.split_at(markup.len().min(1));
        self.head.text(text);
        behind
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
        let mut tokens = Tokens::new(Some(self.head.found.encoding), Extent::Noscript);
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
            self.0.lock().pass_on(chunk);
        }
    }
}
