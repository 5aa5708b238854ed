//! Tags as written in a page: their name and attributes.
//!
//! HTML standard, sections 13.2.5.6 to 13.2.5.40. Values keep their character
//! references and their encoding. Does not know where a tag begins.

use std::ops::Range;

use memchr::memchr;

/// Whether a tag opens or closes an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagKind {
    Start,
    End,
}

/// Elements that decide how a page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementName {
    Base,
    Basefont,
    Bgsound,
    Body,
    Br,
    Col,
    Font,
    Head,
    Html,
    Iframe,
    Link,
    Math,
    Meta,
    Noembed,
    Noframes,
    Noscript,
    P,
    Plaintext,
    Script,
    Style,
    Svg,
    Template,
    Textarea,
    Title,
    Xmp,
    Other,
}

/// A complete tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag<'a> {
    /// Whether the tag opens or closes its element.
    pub(super) kind: TagKind,
    /// Name as written, in any case.
    pub(super) name: &'a [u8],
    /// Element that the name stands for.
    pub(super) element: ElementName,
    /// Attributes of a `<meta>`; for other elements they are not collected.
    pub(super) meta: MetaValues<'a>,
    /// Whether the tag ends with `/>`.
    pub(super) is_self_closing: bool,
    /// The whole tag, from `<` to `>`.
    pub(super) text: &'a [u8],
}

impl<'a> Tag<'a> {
    /// Reads the tag at the start of `text`. Returns `None` if there is no tag, or if
    /// it does not end.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        let name = text.strip_prefix(b"</").or(text.strip_prefix(b"<"))?;
        if !name.first()?.is_ascii_alphabetic() {
            return None;
        }
        TagReader::default().read(text)
    }

    /// Reads a tag that is written like nearly all tags: it ends in the text, and each
    /// attribute has no value or a quoted one right after its name. [`TagReader`] gives
    /// the same result at several times the cost.
    fn read_plain(text: &'a [u8]) -> Option<Self> {
        let mut tag = Self::begin(text)?;
        let mut rest = &text[tag.text.len()..];
        loop {
            match rest {
                [b'>', after @ ..] => {
                    rest = after;
                    break;
                }
                [b'/', b'>', after @ ..] => {
                    tag.is_self_closing = true;
                    rest = after;
                    break;
                }
                [byte, after @ ..] if byte.is_ascii_whitespace() => rest = after,
                _ => {
                    let attribute = PlainAttribute::read(rest)?;
                    if tag.element == ElementName::Meta {
                        tag.meta.note(attribute.name, attribute.value);
                    }
                    rest = attribute.after;
                }
            }
        }
        tag.text = &text[..text.len() - rest.len()];
        Some(tag)
    }

    /// Reads a tag up to the end of its name.
    fn begin(text: &'a [u8]) -> Option<Self> {
        let (kind, inside) = match text {
            [_, b'/', inside @ ..] => (TagKind::End, inside),
            _ => (TagKind::Start, text.get(1..)?),
        };
        let name_end = inside.iter().position(|&byte| ends_name(byte))?;
        let name = &inside[..name_end];
        Some(Self {
            kind,
            name,
            element: ElementName::read(name),
            meta: MetaValues::default(),
            is_self_closing: false,
            text: &text[..text.len() - inside.len() + name_end],
        })
    }

    /// Returns names and values of the attributes, in order.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let text = self.text;
        let mut reader = TagReader::default();
        std::iter::from_fn(move || match reader.next_part(text)? {
            TagPart::Attribute { name, value } => Some((&text[name], &text[value])),
            TagPart::End { .. } => None,
        })
    }

    /// Returns the value of the first attribute with this name, which is the one that
    /// counts.
    pub(super) fn attribute(&self, name: &str) -> Option<&'a [u8]> {
        self.attributes()
            .find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

impl ElementName {
    /// Reads the name of a tag, in any case.
    fn read(name: &[u8]) -> Self {
        let mut lower = [0; b"plaintext".len()];
        if lower.len() < name.len() {
            return Self::Other;
        }
        for (lower, byte) in lower.iter_mut().zip(name) {
            *lower = byte.to_ascii_lowercase();
        }
        match &lower[..name.len()] {
            b"base" => Self::Base,
            b"basefont" => Self::Basefont,
            b"bgsound" => Self::Bgsound,
            b"body" => Self::Body,
            b"br" => Self::Br,
            b"col" => Self::Col,
            b"font" => Self::Font,
            b"head" => Self::Head,
            b"html" => Self::Html,
            b"iframe" => Self::Iframe,
            b"link" => Self::Link,
            b"math" => Self::Math,
            b"meta" => Self::Meta,
            b"noembed" => Self::Noembed,
            b"noframes" => Self::Noframes,
            b"noscript" => Self::Noscript,
            b"p" => Self::P,
            b"plaintext" => Self::Plaintext,
            b"script" => Self::Script,
            b"style" => Self::Style,
            b"svg" => Self::Svg,
            b"template" => Self::Template,
            b"textarea" => Self::Textarea,
            b"title" => Self::Title,
            b"xmp" => Self::Xmp,
            _ => Self::Other,
        }
    }
}

/// Attributes of a `<meta>`, as written, collected while reading the tag, because a second pass would
/// cost as much as the first. If an attribute occurs twice, the first counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct MetaValues<'a> {
    pub(super) name: Option<&'a [u8]>,
    pub(super) content: Option<&'a [u8]>,
}

impl<'a> MetaValues<'a> {
    /// Keeps the attribute if it is one of the two, and the first of its name.
    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        if name.eq_ignore_ascii_case(b"name") {
            self.name.get_or_insert(value);
        } else if name.eq_ignore_ascii_case(b"content") {
            self.content.get_or_insert(value);
        }
    }
}

/// An attribute without a value, or with a quoted one right after its name.
struct PlainAttribute<'a> {
    name: &'a [u8],
    /// Value without its quotes; empty if there is none.
    value: &'a [u8],
    /// Text after the attribute.
    after: &'a [u8],
}

impl<'a> PlainAttribute<'a> {
    /// Reads the attribute at the start of `text`, if it has this form and ends there.
    fn read(text: &'a [u8]) -> Option<Self> {
        let name_end = text
            .iter()
            .position(|&byte| byte == b'=' || ends_name(byte))?;
        let (name, rest) = text.split_at(name_end);
        let (value, after) = match rest {
            // A name may begin with `=`, and whitespace may surround an `=`.
            _ if name.is_empty() => return None,
            [b'=', quote @ (b'"' | b'\''), quoted @ ..] => {
                let end = memchr(*quote, quoted)?;
                (&quoted[..end], &quoted[end + 1..])
            }
            [b'=', ..] => return None,
            _ => (&rest[..0], rest),
        };
        Some(Self { name, value, after })
    }
}

/// Reader of one tag in text that grows. It reads no byte more than twice, because a tag
/// of a mebibyte that arrives byte by byte must not take quadratic time.
#[derive(Debug)]
pub(super) struct TagReader {
    /// Bytes of the tag that have been read.
    at: usize,
    /// State after those bytes.
    state: TagState,
    /// Range of the name of the current attribute in the text.
    attribute_name: Range<usize>,
    /// Position of the value of the current attribute, after its quote.
    value_start: usize,
}

/// States of the tokenizer inside a tag, named as in the HTML standard.
#[derive(Debug, Clone, Copy)]
enum TagState {
    TagName,
    BeforeAttributeName,
    SelfClosingStartTag,
    AttributeName,
    AfterAttributeName,
    BeforeAttributeValue,
    Quoted(u8),
    Unquoted,
}

/// Part of a tag; the ranges refer to its text.
#[derive(Debug)]
enum TagPart {
    Attribute {
        name: Range<usize>,
        value: Range<usize>,
    },
    End {
        is_self_closing: bool,
    },
}

impl Default for TagReader {
    fn default() -> Self {
        Self {
            at: Self::FIRST,
            state: TagState::TagName,
            attribute_name: 0..0,
            value_start: 0,
        }
    }
}

impl TagReader {
    /// Bytes of a tag that its caller has checked: `<` and a letter, or `</` and a
    /// letter.
    const FIRST: usize = 2;

    /// Continues reading in `text`, which begins with the tag. Returns `None` while the
    /// tag has not ended; the next call passes the same text with more after it.
    pub(super) fn read<'a>(&mut self, text: &'a [u8]) -> Option<Tag<'a>> {
        if self.at == Self::FIRST
            && let Some(tag) = Tag::read_plain(text)
        {
            return Some(tag);
        }
        loop {
            let TagPart::End { is_self_closing } = self.next_part(text)? else {
                continue;
            };
            let tag_text = &text[..std::mem::take(self).at];
            let mut tag = Tag::begin(tag_text)?;
            tag.is_self_closing = is_self_closing;
            tag.text = tag_text;
            if tag.element == ElementName::Meta {
                for (name, value) in tag.attributes() {
                    tag.meta.note(name, value);
                }
            }
            return Some(tag);
        }
    }

    /// Reads to the end of the next attribute, or of the tag. Returns `None` if the
    /// text ends first.
    fn next_part(&mut self, text: &[u8]) -> Option<TagPart> {
        while let Some(&byte) = text.get(self.at) {
            match self.state {
                TagState::TagName if !ends_name(byte) => {}
                TagState::TagName | TagState::BeforeAttributeName => match byte {
                    b'/' => self.state = TagState::SelfClosingStartTag,
                    b'>' => return Some(self.end(false)),
                    _ if byte.is_ascii_whitespace() => {
                        self.state = TagState::BeforeAttributeName;
                    }
                    // The first byte of a name may be `=`.
                    _ => self.begin_attribute(),
                },
                TagState::SelfClosingStartTag if byte == b'>' => return Some(self.end(true)),
                TagState::SelfClosingStartTag => {
                    self.state = TagState::BeforeAttributeName;
                    continue;
                }
                TagState::AttributeName if byte == b'=' || ends_name(byte) => {
                    self.attribute_name.end = self.at;
                    self.state = TagState::AfterAttributeName;
                    continue;
                }
                TagState::AfterAttributeName if byte == b'=' => {
                    self.state = TagState::BeforeAttributeValue;
                }
                TagState::AfterAttributeName | TagState::BeforeAttributeValue
                    if byte.is_ascii_whitespace() => {}
                TagState::BeforeAttributeValue if byte != b'>' => self.begin_value(byte),
                TagState::AfterAttributeName | TagState::BeforeAttributeValue => {
                    return Some(self.attribute(self.at..self.at));
                }
                TagState::Quoted(quote) => {
                    let Some(length) = memchr(quote, &text[self.at..]) else {
                        self.at = text.len();
                        return None;
                    };
                    let end = self.at + length;
                    self.at = end + 1;
                    return Some(self.attribute(self.value_start..end));
                }
                TagState::Unquoted if byte == b'>' || byte.is_ascii_whitespace() => {
                    return Some(self.attribute(self.value_start..self.at));
                }
                TagState::AttributeName | TagState::Unquoted => {}
            }
            self.at += 1;
        }
        None
    }

    fn begin_attribute(&mut self) {
        self.attribute_name = self.at..self.at;
        self.state = TagState::AttributeName;
    }

    /// Enters a value at its first byte.
    fn begin_value(&mut self, byte: u8) {
        (self.state, self.value_start) = match byte {
            b'"' | b'\'' => (TagState::Quoted(byte), self.at + 1),
            _ => (TagState::Unquoted, self.at),
        };
    }

    /// Ends an attribute. The byte at `self.at` is read again, as the text after it.
    fn attribute(&mut self, value: Range<usize>) -> TagPart {
        self.state = TagState::BeforeAttributeName;
        TagPart::Attribute {
            name: self.attribute_name.clone(),
            value,
        }
    }

    /// Ends the tag, after its `>`.
    fn end(&mut self, is_self_closing: bool) -> TagPart {
        self.at += 1;
        TagPart::End { is_self_closing }
    }
}

/// Reports whether a byte ends the name of a tag or an attribute.
pub(super) fn ends_name(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>')
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! tags {
        ($($name:ident: $text:literal is $tag:literal $attributes:expr, $closing:literal;)*) => {$(
            #[test]
            fn $name() {
                let text: &[u8] = $text.as_bytes();
                let mut reader = TagReader::default();
                let ends = (2..text.len()).find(|&end| reader.read(&text[..end]).is_some());
                assert_eq!(ends, None, "it ended early");
                let attributes: &[(&str, &str)] = &$attributes;
                let wanted = attributes.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
                let wanted: Vec<(&[u8], &[u8])> = wanted.collect();
                for behind in ["", "<p>"] {
                    let text = [text, behind.as_bytes()].concat();
                    let resumed = std::mem::take(&mut reader).read(&text).unwrap();
                    for tag in [Tag::read(&text).unwrap(), resumed] {
                        assert_eq!((tag.name, tag.text), ($tag.as_bytes(), $text.as_bytes()));
                        assert_eq!(tag.is_self_closing, $closing);
                        assert_eq!(tag.attributes().collect::<Vec<_>>(), wanted);
                    }
                }
            }
        )*};
    }

    // HTML standard, 13.2.5.6 to 13.2.5.40.
    tags! {
        a_name_alone: "<p>" is "p" [], false;
        an_end_tag_has_attributes_too: "</P a=1>" is "P" [("a", "1")], false;
        quotes_hold_what_would_end_a_tag: "<a b='>' c=\"'>\">" is "a" [("b", ">"), ("c", "'>")], false;
        a_bare_value_may_hold_a_slash: "<a b=c/>" is "a" [("b", "c/")], false;
        a_slash_before_the_end_closes: "<a b />" is "a" [("b", "")], true;
        a_slash_elsewhere_does_not_close: "<a/b/ >" is "a" [("b", "")], false;
        blanks_may_stand_around_an_equals_sign: "<a b \n=\x0C'c'd>" is "a" [("b", "c"), ("d", "")], false;
        an_equals_sign_may_begin_a_name: "<a =b==c>" is "a" [("=b", "=c")], false;
        a_missing_value_ends_the_tag: "<a b= >" is "a" [("b", "")], false;
        an_equals_sign_alone_is_a_name: "<a b='' =>" is "a" [("b", ""), ("=", "")], false;
        any_byte_may_be_in_a_name: "<a<b\0 \"=x>" is "a<b\0" [("\"", "x")], false;
    }

    #[test]
    fn an_unfinished_tag_is_not_a_tag() {
        for text in ["<a", "<a b", "<a b=", "<a b='>", "<a b=c", "<a /", "</a "] {
            assert!(Tag::read(text.as_bytes()).is_none(), "{text}");
            let longer = format!("{text}<");
            assert!(Tag::read(longer.as_bytes()).is_none(), "{longer}");
        }
    }

    #[test]
    fn the_values_of_a_meta_are_those_of_its_attributes() {
        for text in [
            "<META NAME=\"a\" x Content='b' name='c' />",
            "<meta name=a content = b name=c>",
            "<meta content name='a' content='b'>",
            "<meta content= name>",
        ] {
            let tag = Tag::read(text.as_bytes()).unwrap();
            assert_eq!(tag.meta.name, tag.attribute("name"), "{text}");
            assert_eq!(tag.meta.content, tag.attribute("content"), "{text}");
        }
    }

    #[test]
    fn the_first_of_two_attributes_counts() {
        let tag = Tag::read(b"<meta NAME=a name=b content>").unwrap();
        assert_eq!(tag.attribute("name"), Some(b"a".as_slice()));
        assert_eq!(tag.attribute("content"), Some(b"".as_slice()));
        assert_eq!(tag.attribute("x"), None);
    }
}
