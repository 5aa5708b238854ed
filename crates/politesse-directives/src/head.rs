//! Head of a page: its end, and the tags inside it.
//!
//! HTML standard, section 13.2.6.4: the head may be implied, and lasts until something
//! appears that only a body can contain. `</head>` alone does not end it for a meta.
//! Does not know bytes or encodings.
//!
//! A `<noscript>` is read both ways, with scripts enabled and disabled: its metas
//! count, and nothing inside it ends the head.

use encoding_rs::Encoding;

use super::findings::{HeadFindings, MetaPlace};
use super::open_elements::{OpenElements, TagReading};
use super::reference;
use super::tag::{ElementName, Tag, TagKind};
use super::tokenizer::HtmlToken;

/// Part of a page to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadExtent {
    /// The head.
    Head,
    /// The head, and what follows it.
    Prefix,
    /// The content of a `<noscript>`.
    Noscript,
}

/// Effect of a token on how the rest of the page is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenEffect {
    /// None.
    Continue,
    /// The content of the named element is text.
    EnterText(&'static str),
    /// Content of a `<noscript>`, to be read separately.
    Noscript(Vec<u8>),
    /// The standard's result depends on state that is not tracked here.
    Ambiguous,
}

/// State of the head of a page.
#[derive(Debug)]
pub(super) struct Head {
    /// Part of the page that is looked at.
    extent: HeadExtent,
    /// Whether a token was seen that only a body can contain.
    has_ended: bool,
    /// Whether `</head>` was seen; in a `<noscript>`, whether its end tag was.
    is_closed: bool,
    /// Elements that are open here and are read in a way of their own: templates, SVG and
    /// MathML.
    open: OpenElements,
    /// Whether anything was ever in `open`, or a template was closed.
    has_nested: bool,
    /// Content of the `<noscript>` that is open.
    noscript: Option<Vec<u8>>,
    pub(super) findings: HeadFindings,
}

impl Head {
    /// Maximum number of bytes of a `<noscript>` that are kept to be read separately.
    pub(super) const NOSCRIPT_BYTES_MAX: usize = 64 * 1024;

    pub(super) fn new(extent: HeadExtent, encoding: &'static Encoding) -> Self {
        Self {
            extent,
            has_ended: false,
            is_closed: false,
            open: OpenElements::default(),
            has_nested: false,
            noscript: None,
            findings: HeadFindings::new(encoding),
        }
    }

    /// Reports whether the head has ended: at something that only a body can contain, not
    /// at `</head>`.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Reports whether nothing later in the page can matter.
    pub(super) fn is_over(&self) -> bool {
        self.extent == HeadExtent::Head && self.has_ended || self.findings.is_full()
    }

    /// Reports whether a template is open, which hides its content.
    pub(super) fn is_in_template(&self) -> bool {
        self.open.has_template()
    }

    /// Takes the content of a `<noscript>` that has not ended.
    pub(super) fn take_noscript(&mut self) -> Option<Vec<u8>> {
        self.noscript.take()
    }

    /// Reads the next token of the page.
    pub(super) fn read(&mut self, token: &HtmlToken<'_>) -> TokenEffect {
        match token {
            HtmlToken::Text(text) => {
                self.has_ended |= self.is_directly_in_head() && !is_blank(text);
                TokenEffect::Continue
            }
            HtmlToken::ElementText(text) => self.read_element_text(text),
            HtmlToken::Tag(tag) if tag.kind == TagKind::Start => self.read_start_tag(tag),
            HtmlToken::Tag(tag) => self.read_end_tag(tag),
            // In SVG this is text and ends elsewhere (HTML standard, 13.2.5.42).
            HtmlToken::CdataStart if !self.has_ended && self.open.is_in_foreign() => {
                TokenEffect::Ambiguous
            }
            HtmlToken::CdataStart | HtmlToken::Skipped => TokenEffect::Continue,
        }
    }

    /// Adds the findings from the content of a `<noscript>`.
    ///
    /// Ambiguous if the content did not end with its end tag, because everything after
    /// it would read differently without scripts.
    pub(super) fn add_noscript(&mut self, inner: Self) -> TokenEffect {
        let is_ambiguous = !inner.is_closed || inner.has_nested && self.is_in_template();
        if !self.is_in_template() {
            self.findings.add(inner.findings, self.place());
        }
        if is_ambiguous && !self.has_ended {
            TokenEffect::Ambiguous
        } else {
            TokenEffect::Continue
        }
    }

    /// Collects the content of a `<noscript>`. One that is too long is ambiguous,
    /// unless the head has already ended.
    fn read_element_text(&mut self, text: &[u8]) -> TokenEffect {
        let Some(noscript) = &mut self.noscript else {
            return TokenEffect::Continue;
        };
        if noscript.len() + text.len() <= Self::NOSCRIPT_BYTES_MAX {
            noscript.extend_from_slice(text);
            return TokenEffect::Continue;
        }
        if self.has_ended {
            self.noscript = None;
            return TokenEffect::Continue;
        }
        TokenEffect::Ambiguous
    }

    fn read_start_tag(&mut self, tag: &Tag<'_>) -> TokenEffect {
        let is_directly_in_head = self.is_directly_in_head();
        let reading = self.open.read(tag);
        self.has_nested |= !self.open.is_empty();
        if is_directly_in_head {
            let is_late = self.is_closed && tag.element == ElementName::Noscript;
            self.has_ended = is_late || !may_stand_in_head(tag.element);
        }
        if reading == TagReading::Markup {
            return TokenEffect::Continue;
        }
        if reading == TagReading::Ambiguous && !self.has_ended {
            return TokenEffect::Ambiguous;
        }
        if !self.is_in_template() {
            self.record_element(tag);
        }
        self.enter(tag)
    }

    /// Adds the findings of a `<meta>` or `<link>`.
    fn record_element(&mut self, tag: &Tag<'_>) {
        if tag.element == ElementName::Meta {
            self.findings.add_meta(tag, self.place());
        } else if tag.element == ElementName::Link {
            self.findings.add_link(tag, self.place());
        }
    }

    /// Enters the content of an HTML element.
    fn enter(&mut self, tag: &Tag<'_>) -> TokenEffect {
        let Some(name) = text_element(tag.element) else {
            return TokenEffect::Continue;
        };
        if tag.element == ElementName::Noscript {
            // Inside a noscript scripts are disabled, so a nested noscript contains
            // markup.
            if self.extent == HeadExtent::Noscript {
                return TokenEffect::Continue;
            }
            self.noscript = Some(Vec::new());
        }
        TokenEffect::EnterText(name)
    }

    fn read_end_tag(&mut self, tag: &Tag<'_>) -> TokenEffect {
        let is_noscript = tag.element == ElementName::Noscript;
        if let Some(text) = self.noscript.take_if(|_| is_noscript) {
            return TokenEffect::Noscript(text);
        }
        if !self.open.is_empty() {
            let is_ambiguous = self.open.read(tag) == TagReading::Ambiguous;
            return if is_ambiguous && !self.has_ended {
                TokenEffect::Ambiguous
            } else {
                TokenEffect::Continue
            };
        }
        self.has_nested |= tag.element == ElementName::Template;
        self.is_closed |= match self.extent {
            HeadExtent::Head | HeadExtent::Prefix => tag.element == ElementName::Head,
            HeadExtent::Noscript => is_noscript,
        };
        // Other end tags that match no open element are ignored.
        let opens_body = matches!(
            tag.element,
            ElementName::Body | ElementName::Html | ElementName::Br
        );
        self.has_ended |= opens_body && self.is_directly_in_head();
        TokenEffect::Continue
    }

    /// Reports whether the next token is a child of the head.
    fn is_directly_in_head(&self) -> bool {
        self.extent != HeadExtent::Noscript && !self.has_ended && self.open.is_empty()
    }

    /// Returns the place of the current token.
    fn place(&self) -> MetaPlace {
        if self.has_ended {
            MetaPlace::AfterHead
        } else {
            MetaPlace::Head
        }
    }
}

/// Reports whether an element leaves the head open when it appears there.
fn may_stand_in_head(element: ElementName) -> bool {
    matches!(
        element,
        ElementName::Meta
            | ElementName::Link
            | ElementName::Script
            | ElementName::Style
            | ElementName::Title
            | ElementName::Noscript
            | ElementName::Base
            | ElementName::Template
            | ElementName::Head
            | ElementName::Html
            | ElementName::Noframes
            | ElementName::Basefont
            | ElementName::Bgsound
    )
}

/// Returns the name of an element whose content is text, not markup.
fn text_element(element: ElementName) -> Option<&'static str> {
    Some(match element {
        ElementName::Iframe => "iframe",
        ElementName::Noembed => "noembed",
        ElementName::Noframes => "noframes",
        ElementName::Noscript => "noscript",
        ElementName::Plaintext => "plaintext",
        ElementName::Script => "script",
        ElementName::Style => "style",
        ElementName::Textarea => "textarea",
        ElementName::Title => "title",
        ElementName::Xmp => "xmp",
        ElementName::Base
        | ElementName::Basefont
        | ElementName::Bgsound
        | ElementName::Body
        | ElementName::Br
        | ElementName::Col
        | ElementName::Font
        | ElementName::Head
        | ElementName::Html
        | ElementName::Link
        | ElementName::Math
        | ElementName::Meta
        | ElementName::P
        | ElementName::Svg
        | ElementName::Template
        | ElementName::Other => return None,
    })
}

/// Reports whether text is blank once its character references are decoded
/// (`&#32;`, `&Tab;`). Blank text leaves a head open, anything else ends it
/// (HTML standard, 13.2.6.4.4).
fn is_blank(text: &[u8]) -> bool {
    let is_blank = |text: &[u8]| text.iter().all(u8::is_ascii_whitespace);
    match text.first() {
        Some(b'&') => {
            let decoded = str::from_utf8(text).map(reference::decoded);
            decoded.is_ok_and(|text| is_blank(text.as_bytes()))
        }
        _ => is_blank(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Tokenizer;
    use super::*;

    /// Reports whether the text at the start of a page is blank. The page is pushed in
    /// steps of `step` bytes.
    fn is_blank_before_tag(page: &[u8], step: usize) -> bool {
        let mut tokenizer = Tokenizer::default();
        let mut start = 0;
        for end in (0..page.len()).step_by(step).chain([page.len()]) {
            while let Some((token, length)) = tokenizer.read(&page[start..end]) {
                if matches!(token, HtmlToken::Tag(_)) {
                    return true;
                }
                if matches!(token, HtmlToken::Text(text) if !is_blank(text)) {
                    return false;
                }
                start += length;
            }
        }
        unreachable!("the page has a tag")
    }

    macro_rules! texts {
        ($($name:ident: $text:literal is $blank:literal;)*) => {$(
            #[test]
            fn $name() {
                let text = [$text.as_ref(), b"<p>".as_slice()].concat();
                for step in [1, text.len()] {
                    assert_eq!(is_blank_before_tag(&text, step), $blank);
                }
            }
        )*};
    }

    // HTML standard, 13.2.6.4.4 and 13.2.5.72 to 13.2.5.80.
    texts! {
        empty_text_is_blank: "" is true;
        five_bytes_are_blank: " \t\n\r\x0C" is true;
        a_vertical_tab_is_not_blank: "\x0B" is false;
        a_nul_is_not_blank: "\0" is false;
        a_no_break_space_is_not_blank: "\u{A0}" is false;
        numeric_references_to_blanks_are_blank: "&#32;&#x9;&#X0a;&#0012;&#13;" is true;
        leading_zeros_are_ignored: "&#0000000000000000000032;&#x000000000000000000020;" is true;
        zeros_after_a_digit_count: "&#3200000000000000000000;" is false;
        zeros_alone_are_not_blank: "&#000" is false;
        a_zero_before_an_x_is_a_number: "&#0x20;" is false;
        a_number_needs_no_semicolon: "&#32 &#x20" is true;
        two_named_references_are_blank: "&Tab;&NewLine;" is true;
        a_name_needs_its_semicolon: "&Tab" is false;
        a_name_in_another_case_is_not_blank: "&tab;" is false;
        a_longer_name_is_not_blank: "&NewLines;" is false;
        an_ampersand_is_not_blank: " & " is false;
        an_ampersand_at_the_end_is_not_blank: "&" is false;
        a_number_without_digits_is_not_blank: "&#;" is false;
        a_number_without_hexadecimal_digits_is_not_blank: "&#x" is false;
        another_number_is_not_blank: "&#160;" is false;
        a_number_that_is_too_large_is_not_blank: "&#4294967328;" is false;
    }
}
