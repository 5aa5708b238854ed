//! Where the head of a page ends, and which of its tags are in it.
//!
//! HTML standard, 13.2.6.4: the head may be implied, and goes on until something
//! appears that only a body can hold; `</head>` by itself does not end it for
//! a meta. Tokens come from `tokens`; octets and encodings are not known here.
//!
//! A `<noscript>` is read both ways, as if scripts ran and as if they did not:
//! its metas count, and nothing in it ends the head.

use encoding_rs::Encoding;

use super::blank::Blank;
use super::findings::{Found, Place};
use super::open_elements::{Nest, Step};
use super::tag::{Ending, Kind, Tag};

/// Which elements are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Those in the head.
    Head,
    /// Those behind it as well, apart.
    Prefix,
    /// Those in the text of a `<noscript>`.
    Noscript,
}

/// How the page is to be read on behind a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// As `lol_html` does by itself.
    Usual,
    /// As markup, which `lol_html` would not do.
    Markup,
    /// As the content of this element, which `lol_html` would not do.
    Content(&'static str),
    /// It cannot be known.
    Doubt,
    /// As usual; this was the text of a `<noscript>`, to be scanned by itself.
    Noscript(Vec<u8>),
}

/// Follows the tokens of a page to the end of its head.
#[derive(Debug)]
pub(super) struct Head {
    extent: Extent,
    /// Whether it has ended.
    has_ended: bool,
    /// Whether `</head>` was seen; in a `<noscript>`, its own end tag.
    is_closed: bool,
    nest: Nest,
    /// Whether there was anything in the nest, or the end of a template.
    has_nested: bool,
    blank: Blank,
    /// The text of the `<noscript>` that is open.
    noscript: Option<Vec<u8>>,
    pub(super) found: Found,
}

/// The elements that hold text in place of markup.
pub(super) const TEXT_ELEMENTS: [&str; 10] = [
    "iframe",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "script",
    "style",
    "textarea",
    "title",
    "xmp",
];

impl Head {
    /// Octets of a `<noscript>` that are kept to be scanned.
    pub(super) const NOSCRIPT_BYTES_MAX: usize = 64 * 1024;

    pub(super) fn new(extent: Extent, encoding: &'static Encoding) -> Self {
        Self {
            extent,
            has_ended: false,
            is_closed: false,
            nest: Nest::default(),
            has_nested: false,
            blank: Blank::default(),
            noscript: None,
            found: Found::new(encoding),
        }
    }

    /// Whether the head was seen to end.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether a template, or SVG, is open.
    pub(super) fn is_nested(&self) -> bool {
        !self.nest.is_empty()
    }

    /// Whether nothing that follows can matter.
    pub(super) fn is_over(&self) -> bool {
        self.extent == Extent::Head && self.has_ended || self.found.is_full()
    }

    pub(super) fn tag(&mut self, tag: &Tag<'_>) -> Next {
        self.end_text();
        match tag.kind {
            Kind::Start => self.start_tag(tag),
            Kind::End => self.end_tag(tag),
        }
    }

    /// Takes in text of the page, its references not decoded.
    pub(super) fn text(&mut self, text: &[u8]) {
        if self.is_in_head() && !self.blank.take(text) {
            self.has_ended = true;
        }
    }

    /// Takes in the content of an element that holds text. That of a
    /// `<noscript>` is collected; one that is too long to be scanned is a
    /// doubt, unless it stands where nothing is claimed.
    pub(super) fn content(&mut self, text: &[u8]) -> Next {
        let Some(noscript) = &mut self.noscript else {
            return Next::Usual;
        };
        noscript.extend_from_slice(text);
        if noscript.len() <= Self::NOSCRIPT_BYTES_MAX {
            return Next::Usual;
        }
        if self.has_ended {
            self.noscript = None;
            return Next::Usual;
        }
        Next::Doubt
    }

    pub(super) fn comment(&mut self, text: &str) -> Next {
        self.end_text();
        // In SVG this is text, and ends elsewhere (HTML standard, 13.2.5.42).
        if self.nest.is_foreign() && text.starts_with("[CDATA[") {
            return Next::Doubt;
        }
        Next::Usual
    }

    /// Notes that a piece of text has ended.
    pub(super) fn end_text(&mut self) {
        if !self.blank.end() {
            self.has_ended = true;
        }
    }

    /// Takes in what a scan of the text of a `<noscript>` has found. Where it
    /// did not end with its text, all that follows would be read otherwise
    /// without scripts.
    pub(super) fn add(&mut self, inner: Self) -> Next {
        let is_doubtful = !inner.is_closed || inner.has_nested && !self.nest.is_empty();
        if self.nest.is_empty() {
            self.found.add(inner.found, self.place());
        }
        if is_doubtful && !self.has_ended {
            Next::Doubt
        } else {
            Next::Usual
        }
    }

    /// The text of a `<noscript>` that has not ended.
    pub(super) fn take_noscript(&mut self) -> Option<Vec<u8>> {
        self.noscript.take()
    }

    /// Whether what comes is part of the head, and of no element in it.
    fn is_in_head(&self) -> bool {
        self.extent != Extent::Noscript && !self.has_ended && self.nest.is_empty()
    }

    fn place(&self) -> Place {
        if self.has_ended {
            Place::Behind
        } else {
            Place::Head
        }
    }

    fn start_tag(&mut self, tag: &Tag<'_>) -> Next {
        let mut step = Step::Html;
        if self.is_nested_by(tag) {
            self.has_nested = true;
            step = self.nest.take(tag);
        } else if self.nest.is_empty() {
            self.take(tag);
        }
        if step == Step::Html && tag.is("noscript") {
            if self.extent == Extent::Noscript {
                step = Step::Markup;
            } else {
                self.noscript = Some(Vec::new());
            }
        }
        self.next(tag, step)
    }

    /// Whether a start tag is the nest's. Behind the head only templates are,
    /// which hide metas.
    fn is_nested_by(&self, tag: &Tag<'_>) -> bool {
        if self.has_ended {
            return tag.is("template");
        }
        let opens_foreign = self.extent == Extent::Noscript && is_foreign(tag);
        !self.nest.is_empty() || opens_foreign || tag.is("template")
    }

    /// Takes in a start tag that stands in no template.
    fn take(&mut self, tag: &Tag<'_>) {
        if self.is_in_head() {
            let may_stand = may_stand_in_head(tag);
            let is_late = self.is_closed && tag.is("noscript");
            self.has_ended = !may_stand || is_late;
        }
        if tag.is("meta") {
            self.found.meta(tag, self.place());
        } else if tag.is("link") {
            self.found.link(tag, self.place());
        }
    }

    /// How the page goes on behind a start tag. `lol_html` reads the content
    /// of a text element as such everywhere but behind `<title a=>`, and takes
    /// SVG to go on where it does not.
    fn next(&self, tag: &Tag<'_>, step: Step) -> Next {
        if self.has_ended {
            return Next::Usual;
        }
        if step == Step::Doubt {
            return Next::Doubt;
        }
        if is_foreign(tag) {
            return Next::Markup;
        }
        let Some(name) = TEXT_ELEMENTS.into_iter().find(|name| tag.is(name)) else {
            return Next::Usual;
        };
        let is_read_as_text = tag.ending() != Ending::ValueMissing;
        match step {
            Step::Html if is_read_as_text => Next::Usual,
            Step::Html => Next::Content(name),
            Step::Markup | Step::Doubt => Next::Markup,
        }
    }

    fn end_tag(&mut self, tag: &Tag<'_>) -> Next {
        if let Some(text) = self.noscript.take_if(|_| tag.is("noscript")) {
            return Next::Noscript(text);
        }
        if self.has_ended && !tag.is("template") {
            return Next::Usual;
        }
        if !self.nest.is_empty() {
            return match self.nest.take(tag) {
                Step::Doubt => Next::Doubt,
                Step::Html | Step::Markup => Next::Usual,
            };
        }
        self.has_nested |= tag.is("template");
        self.is_closed |= tag.is(match self.extent {
            Extent::Head | Extent::Prefix => "head",
            Extent::Noscript => "noscript",
        });
        let opens_body = ["body", "html", "br"].into_iter().any(|name| tag.is(name));
        self.has_ended |= opens_body && self.is_in_head();
        Next::Usual
    }
}

fn is_foreign(tag: &Tag<'_>) -> bool {
    tag.is("svg") || tag.is("math")
}

/// Whether this element leaves the head open.
fn may_stand_in_head(tag: &Tag<'_>) -> bool {
    let names = [
        "meta", "link", "script", "style", "title", "noscript", "base", "template", "head", "html",
        "noframes", "basefont", "bgsound",
    ];
    names.into_iter().any(|name| tag.is(name))
}
