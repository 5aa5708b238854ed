//! A tag as it was written: its name and its attributes.
//!
//! HTML standard, 13.2.5.6 to 13.2.5.40. Where a tag begins is known by whoever
//! asks; values keep their references, and their encoding.

use memchr::memchr;

/// Whether a tag opens or closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Start,
    End,
}

/// A tag that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag<'a> {
    pub(super) kind: Kind,
    /// As written, in any case.
    pub(super) name: &'a [u8],
    attributes: &'a [u8],
}

/// How a tag ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With `>`, or with `/` anywhere but before it.
    Plain,
    /// With `/>`.
    SelfClosing,
    /// Where a value was expected: `<script src=>`.
    ValueMissing,
    /// It has not.
    Open,
}

/// The attributes of a tag, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Attributes<'a> {
    rest: &'a [u8],
    ending: Ending,
}

/// The name of an attribute, and its value as written.
type Attribute<'a> = (&'a [u8], &'a [u8]);

impl<'a> Tag<'a> {
    /// The tag that begins with the text, which begins with `<`; and what
    /// stands behind it. None, if it is no tag or does not end.
    pub(super) fn read(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, inside) = match text {
            [_, b'/', inside @ ..] => (Kind::End, inside),
            [_, inside @ ..] => (Kind::Start, inside),
            [] => return None,
        };
        if !inside.first().is_some_and(u8::is_ascii_alphabetic) {
            return None;
        }
        let end = inside.iter().position(|&octet| ends_name(octet))?;
        let (name, attributes) = inside.split_at(end);
        let tag = Self {
            kind,
            name,
            attributes,
        };
        match tag.attributes().last_of_all() {
            (_, Ending::Open) => None,
            (behind, _) => Some((tag, behind)),
        }
    }

    /// Whether the name is this one, given in lower case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    pub(super) fn attributes(&self) -> Attributes<'a> {
        Attributes {
            rest: self.attributes,
            ending: Ending::Open,
        }
    }

    /// The first attribute of this name, which is the one that counts.
    pub(super) fn attribute(&self, name: &str) -> Option<&'a [u8]> {
        let mut attributes = self.attributes();
        let found = attributes.find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| value)
    }

    pub(super) fn ending(&self) -> Ending {
        self.attributes().last_of_all().1
    }
}

impl<'a> Attributes<'a> {
    /// Reads to the end of the tag: what stands behind, and how it ended.
    fn last_of_all(mut self) -> (&'a [u8], Ending) {
        while self.next().is_some() {}
        (self.rest, self.ending)
    }

    fn end(&mut self, ending: Ending, rest: &'a [u8]) {
        self.ending = ending;
        self.rest = rest;
    }

    /// A value, behind its `=`.
    fn value(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        let text = text.trim_ascii_start();
        match text {
            [] => {
                self.rest = text;
                None
            }
            [b'>', behind @ ..] => {
                self.end(Ending::ValueMissing, behind);
                Some(&[])
            }
            [quote @ (b'"' | b'\''), quoted @ ..] => {
                let Some(end) = memchr(*quote, quoted) else {
                    self.rest = &[];
                    return None;
                };
                self.rest = &quoted[end + 1..];
                Some(&quoted[..end])
            }
            bare => {
                let ends = |octet: &u8| octet.is_ascii_whitespace() || *octet == b'>';
                let end = bare.iter().position(ends).unwrap_or(bare.len());
                self.rest = &bare[end..];
                Some(&bare[..end])
            }
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ending != Ending::Open {
            return None;
        }
        let mut rest = self.rest.trim_ascii_start();
        let mut ending = Ending::Plain;
        while let [b'/', behind @ ..] = rest {
            ending = match behind {
                [b'>', ..] => Ending::SelfClosing,
                _ => Ending::Plain,
            };
            rest = behind.trim_ascii_start();
        }
        if let [b'>', behind @ ..] = rest {
            self.end(ending, behind);
            return None;
        }
        // The first octet of a name may be a `=`.
        let ends = |octet: &u8| *octet == b'=' || ends_name(*octet);
        let end = rest.iter().skip(1).position(ends).map(|at| at + 1);
        let Some(end) = end else {
            self.rest = &[];
            return None;
        };
        let (name, behind) = rest.split_at(end);
        match behind.trim_ascii_start() {
            [b'=', value @ ..] => Some((name, self.value(value)?)),
            other => {
                self.rest = other;
                Some((name, &[]))
            }
        }
    }
}

fn ends_name(octet: u8) -> bool {
    octet.is_ascii_whitespace() || matches!(octet, b'/' | b'>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(Tag<'_>, &str)> {
        let (tag, behind) = Tag::read(text.as_bytes())?;
        Some((tag, str::from_utf8(behind).unwrap()))
    }

    macro_rules! tags {
        ($($name:ident: $text:literal is $tag:literal $attributes:expr, $ending:ident;)*) => {$(
            #[test]
            fn $name() {
                for behind in ["", "<p>"] {
                    let text = format!("{}{behind}", $text);
                    let (tag, rest) = read(&text).unwrap();
                    assert_eq!((tag.name, rest), ($tag.as_bytes(), behind));
                    let wanted: &[(&str, &str)] = &$attributes;
                    let wanted = wanted.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
                    assert!(tag.attributes().eq(wanted));
                    assert_eq!(tag.ending(), Ending::$ending);
                }
            }
        )*};
    }

    // HTML standard, 13.2.5.6 to 13.2.5.40.
    tags! {
        a_name_alone: "<p>" is "p" [], Plain;
        an_end_tag_has_attributes_too: "</P a=1>" is "P" [("a", "1")], Plain;
        quotes_hold_what_would_end_a_tag: "<a b='>' c=\"'>\">" is "a" [("b", ">"), ("c", "'>")], Plain;
        a_bare_value_may_hold_a_slash: "<a b=c/>" is "a" [("b", "c/")], Plain;
        a_slash_before_the_end_closes: "<a b />" is "a" [("b", "")], SelfClosing;
        a_slash_elsewhere_does_not: "<a/b/ >" is "a" [("b", "")], Plain;
        blanks_may_stand_around_an_equals_sign: "<a b \n=\x0C'c'd>" is "a" [("b", "c"), ("d", "")], Plain;
        an_equals_sign_may_begin_a_name: "<a =b==c>" is "a" [("=b", "=c")], Plain;
        a_missing_value_ends_the_tag: "<a b= >" is "a" [("b", "")], ValueMissing;
        an_equals_sign_alone_is_a_name: "<a b='' =>" is "a" [("b", ""), ("=", "")], Plain;
        any_octet_may_be_in_a_name: "<a<b\0 \"=x>" is "a<b\0" [("\"", "x")], Plain;
    }

    #[test]
    fn what_does_not_end_is_no_tag() {
        for text in ["<a", "<a b", "<a b=", "<a b='>", "<a b=c", "<a /", "</a "] {
            assert!(read(text).is_none(), "{text}");
            assert!(read(&format!("{text}<")).is_none(), "{text}<");
        }
    }

    #[test]
    fn the_first_of_two_attributes_counts() {
        let (tag, _) = read("<meta NAME=a name=b content>").unwrap();
        assert_eq!(tag.attribute("name"), Some(b"a".as_slice()));
        assert_eq!(tag.attribute("content"), Some(b"".as_slice()));
        assert_eq!(tag.attribute("x"), None);
    }
}
