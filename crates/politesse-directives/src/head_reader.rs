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

use super::findings::Found;
use super::head::{Extent, Head, Next, TEXT_ELEMENTS};
use super::meta_search::Lax;
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

/// A change in how the page is read, from a place on that was written last.
enum Turn {
    /// As markup, or as the content of this element.
    Anew(usize, Option<&'static str>),
    /// In doubt; and what stands before that place and is in doubt too.
    Doubt(usize, Vec<u8>),
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

    /// Octets that have come and are not yet part of a token.
    pub(super) fn waiting(&self) -> usize {
        self.taken.saturating_sub(self.shared.lock().at)
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
            drop(state);
            self.doubt(&text);
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
                    let (Turn::Anew(at, _) | Turn::Doubt(at, _)) = turn;
                    rest = piece.get(at.saturating_sub(start)..).unwrap_or_default();
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

    /// Changes how the page is read.
    fn turn(&mut self, turn: Turn) {
        self.turns += 1;
        self.rewriter = None;
        match turn {
            Turn::Anew(at, within) if self.turns < TURNS_MAX => self.begin_at(at, within),
            Turn::Anew(..) => self.doubt(&[]),
            Turn::Doubt(_, before) => self.doubt(&before),
        }
    }

    fn doubt(&mut self, before: &[u8]) {
        let lax = self.lax.get_or_insert_default();
        lax.push(before, &mut self.shared.lock().head.found);
    }

    /// Begins anew at this place, which is `within` the content of an element.
    fn begin_at(&mut self, at: usize, within: Option<&'static str>) {
        let front = within.map(|name| format!("<{name}>")).unwrap_or_default();
        let mut state = self.shared.lock();
        state.content = Content::Page;
        state.origin = (at, front.len());
        state.is_front = true;
        drop(state);
        let mut rewriter = rewriter(&self.shared, self.encoding);
        // One short tag: it cannot fail, and it is not part of the page.
        let _ = rewriter.write(front.as_bytes());
        self.rewriter = Some(rewriter);
        let mut state = self.shared.lock();
        state.gap.clear();
        state.at = at;
        state.is_front = false;
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
            comments.on_token((range, &text), |head| head.comment(&text))
        })
        .doctype(move |doctype: &mut Doctype<'_>| {
            doctype.remove();
            let range = doctype.source_location().bytes();
            doctypes.on_token((range, ""), |head| {
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
    fn on_token(
        &self,
        (range, text): (Range<usize>, &str),
        take: impl FnOnce(&mut Head) -> Next,
    ) -> HandlerResult {
        let mut state = self.lock();
        state.close_gap();
        if state.turn.is_none() && !state.head.is_over() {
            let (origin, front) = state.origin;
            state.at = (origin + range.end).saturating_sub(front);
            if take(&mut state.head) == Next::Doubt {
                let text = [text, ">"].concat().into_bytes();
                state.turn = Some(Turn::Doubt(state.at, text));
            }
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
        self.on_token((start..start, ""), |_| Next::Usual)?;
        if TEXT_ELEMENTS.contains(&name.as_str()) && element.can_have_content() {
            self.lock().content = Content::Tag;
            let shared = self.clone();
            element.on_end_tag(Box::new(move |tag: &mut EndTag<'_>| {
                let start = tag.source_location().bytes().start;
                let ended = shared.on_token((start..start, ""), |_| Next::Usual);
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
            Content::Text => self.pass_text(chunk),
        }
    }

    fn pass_text(&mut self, text: &[u8]) {
        self.close_gap();
        self.at += text.len();
        if self.turn.is_none() && self.head.content(text) == Next::Doubt {
            let noscript = self.head.take_noscript().unwrap_or_default();
            self.turn = Some(Turn::Doubt(self.at, noscript));
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
            if self.head.is_over() {
                break;
            }
            let Some((tag, behind)) = Tag::read(markup) else {
                rest = self.read_odd(markup);
                continue;
            };
            let next = self.head.tag(&tag);
            let written = &markup[..markup.len() - behind.len()];
            self.turn = self.turn_behind(next, (end - behind.len(), written));
            if self.turn.is_some() {
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

    /// How the page is to be read behind a tag, if otherwise than it would be.
    fn turn_behind(&mut self, next: Next, (at, tag): (usize, &[u8])) -> Option<Turn> {
        match next {
            Next::Usual => None,
            Next::Markup => Some(Turn::Anew(at, None)),
            Next::Content(name) => Some(Turn::Anew(at, Some(name))),
            Next::Doubt => Some(Turn::Doubt(at, tag.to_vec())),
            Next::Noscript(text) => {
                let is_doubt = self.read_noscript(&text, b"</noscript>") == Next::Doubt;
                // A meta may begin in it and end behind it.
                is_doubt.then(|| Turn::Doubt(at, [&text, tag].concat()))
            }
        }
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
        let next = self.head.add(inner.head);
        if in_doubt { Next::Doubt } else { next }
    }
}

impl OutputSink for Gap {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        if !chunk.is_empty() {
            self.0.lock().pass_on(chunk);
        }
    }
}
