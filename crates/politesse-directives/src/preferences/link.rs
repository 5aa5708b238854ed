//! Reader of `Link` field lines for RSL licences (RFC 8288, section 3).
//!
//! RSL 1.0 uses `<url>; rel="license"; type="application/rsl+xml"`. A licence of
//! another type, such as Creative Commons, is not listed. The reader follows RFC 8288,
//! appendix B.2, and continues after text that it cannot read. Does not know how many
//! licences are kept.

use std::borrow::Cow;

/// Returns the targets of the links to RSL licences, in order and as written.
pub(super) fn license_targets(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let links = Links(LinkCursor(line));
    links.filter(Link::is_license).map(|link| link.target)
}

/// Links of a field line.
struct Links<'a>(LinkCursor<'a>);

/// Target of a link, and its parameters that matter here. If a parameter occurs twice,
/// the first counts (section 3.3).
#[derive(Default)]
struct Link<'a> {
    /// URL between `<` and `>`, as written.
    target: &'a [u8],
    /// Relation types, separated by whitespace.
    rel: Option<Cow<'a, [u8]>>,
    /// Parameter `type`.
    media_type: Option<Cow<'a, [u8]>>,
    /// URL that the link is about, if not the response.
    anchor: Option<Cow<'a, [u8]>>,
}

impl Link<'_> {
    fn is_license(&self) -> bool {
        let rel = self.rel.as_deref().unwrap_or_default();
        let mut relations = rel.split(u8::is_ascii_whitespace);
        let media_type = self.media_type.as_deref().unwrap_or_default();
        let mut parts = media_type.split(|byte| *byte == b';');
        let essence = parts.next().unwrap_or_default().trim_ascii();
        relations.any(|relation| relation.eq_ignore_ascii_case(b"license"))
            && essence.eq_ignore_ascii_case(b"application/rsl+xml")
            && self.is_of_this_response()
    }

    /// Reports whether the link is about the response. With an anchor, it is about the
    /// resource that the anchor names (section 3.2).
    fn is_of_this_response(&self) -> bool {
        let anchor = self.anchor.as_deref().unwrap_or_default();
        matches!(anchor, [] | [b'#', ..])
    }

    fn set(&mut self, name: &[u8], value: Cow<'_, [u8]>) {
        let place = if name.eq_ignore_ascii_case(b"rel") {
            &mut self.rel
        } else if name.eq_ignore_ascii_case(b"type") {
            &mut self.media_type
        } else if name.eq_ignore_ascii_case(b"anchor") {
            &mut self.anchor
        } else {
            return;
        };
        place.get_or_insert_with(|| Cow::Owned(value.into_owned()));
    }
}

impl<'a> Iterator for Links<'a> {
    type Item = Link<'a>;

    fn next(&mut self) -> Option<Link<'a>> {
        let cursor = &mut self.0;
        loop {
            cursor.take_while(|byte| is_blank(byte) || byte == b',');
            if cursor.eat(b'<') {
                break;
            }
            if cursor.0.is_empty() {
                return None;
            }
            cursor.skip_to(b",");
        }
        let mut link = Link {
            target: cursor.take_while(|byte| byte != b'>'),
            ..Link::default()
        };
        if !cursor.eat(b'>') {
            return None;
        }
        loop {
            cursor.skip_to(b",;");
            if !cursor.eat(b';') {
                return Some(link);
            }
            let (name, value) = cursor.parameter();
            link.set(name, value);
        }
    }
}

/// The unread rest of a line.
#[derive(Clone, Copy)]
struct LinkCursor<'a>(&'a [u8]);

impl<'a> LinkCursor<'a> {
    /// Reads a parameter: a name and an optional value (section 3, `link-param`).
    fn parameter(&mut self) -> (&'a [u8], Cow<'a, [u8]>) {
        self.take_while(is_blank);
        let name = self.take_while(|byte| !is_blank(byte) && !b"=;,".contains(&byte));
        self.take_while(is_blank);
        if !self.eat(b'=') {
            return (name, Cow::default());
        }
        self.take_while(is_blank);
        if self.eat(b'"') {
            return (name, self.quoted());
        }
        let value = self.take_while(|byte| !is_blank(byte) && !b";,".contains(&byte));
        (name, Cow::Borrowed(value))
    }

    /// Reads the rest of a quoted string and undoes its escapes (RFC 9110, section
    /// 5.6.4). An unclosed string extends to the end of the line.
    fn quoted(&mut self) -> Cow<'a, [u8]> {
        let plain = self.take_while(|byte| byte != b'"' && byte != b'\\');
        let mut text = Cow::Borrowed(plain);
        loop {
            match self.0 {
                [b'\\', escaped, rest @ ..] => {
                    text.to_mut().push(*escaped);
                    self.0 = rest;
                    let plain = self.take_while(|byte| byte != b'"' && byte != b'\\');
                    text.to_mut().extend_from_slice(plain);
                }
                // The closing quote, or a trailing backslash.
                [_, rest @ ..] => {
                    self.0 = rest;
                    return text;
                }
                [] => return text,
            }
        }
    }

    /// Advances to the next of `ends`, skipping quoted strings.
    fn skip_to(&mut self, ends: &[u8]) {
        loop {
            self.take_while(|byte| byte != b'"' && !ends.contains(&byte));
            if !self.eat(b'"') {
                return;
            }
            self.quoted();
        }
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let rest = self.0.strip_prefix(&[wanted]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn take_while(&mut self, is_wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.0.iter().take_while(|byte| is_wanted(**byte)).count();
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
