//! Findings of a page: metas that restrict something, and statements about data
//! mining and licences.
//!
//! Does not know which tags are in the head (`head`). The number of findings of every
//! kind is bounded.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use serde::{Deserialize, Serialize};

use super::reference;
use super::segment::{self, Scope};
use super::tag::Tag;
use super::vocabulary::may_restrict;

/// A `<meta>` element that restricts something. Its values are decoded: from the encoding
/// of the page, and with their character references replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Attribute `name`: the crawler it addresses. Surrounding blanks and its case stay as
    /// they are.
    pub name: String,
    /// Attribute `content`: a list of directives, not yet parsed.
    pub content: String,
}

/// A statement in the head that is not a directive: a reservation of rights, or the
/// terms of a licence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// Content of `<meta name="tdm-reservation">` (TDMRep, section 6.3).
    TdmReservation(String),
    /// Content of `<meta name="tdm-policy">`.
    TdmPolicy(String),
    /// Address in `<link rel="license" type="application/rsl+xml">` (RSL 1.0,
    /// section 4.3).
    License(String),
}

/// Place of an element in its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetaPlace {
    /// In the head, where a meta counts.
    Head,
    /// After the head. A meta is not in force there, but may be reported
    /// (`directives.meta_scope`); a notice is dropped.
    AfterHead,
}

/// Findings of one page.
#[derive(Debug)]
pub(super) struct HeadFindings {
    /// Encoding of the page, from which attribute values are decoded.
    pub(super) encoding: &'static Encoding,
    /// Metas of the head that restrict something, each once.
    pub(super) metas: Vec<Meta>,
    /// Metas after the head that restrict something, each once.
    pub(super) outside: Vec<Meta>,
    /// Notices of the head, each once.
    pub(super) notices: Vec<Notice>,
    /// Total bytes that the texts of metas and notices occupy.
    pub(super) bytes: usize,
}

impl HeadFindings {
    /// Maximum number of different metas kept of one page. Real pages have five at most.
    pub(super) const METAS_MAX: usize = 256;

    /// Maximum number of notices kept of one page.
    pub(super) const NOTICES_MAX: usize = 64;

    /// Maximum number of bytes of a notice. A longer one is dropped, not cut, because a
    /// truncated address is a different address.
    pub(super) const NOTICE_BYTES_MAX: usize = 2048;

    /// Begins a page with tags in this encoding.
    pub(super) fn new(encoding: &'static Encoding) -> Self {
        Self {
            encoding,
            metas: Vec::new(),
            outside: Vec::new(),
            notices: Vec::new(),
            bytes: 0,
        }
    }

    /// Reports whether the head has as many metas as are kept.
    pub(super) fn is_full(&self) -> bool {
        Self::METAS_MAX <= self.metas.len()
    }

    /// Adds the statement of a `<meta>` element, if it has one.
    pub(super) fn add_meta(&mut self, tag: &Tag<'_>, place: MetaPlace) {
        let (Some(name), Some(content)) = (tag.meta.name, tag.meta.content) else {
            return;
        };
        if says_nothing(name, content) {
            return;
        }
        let name = self.decoded(name);
        let word = segment::trimmed(&name);
        // No crawler has a name with a colon (RFC 9309, section 2.2.1), and pages have
        // many such metas: `twitter:card`.
        if word.contains(':') {
            return;
        }
        let content = self.decoded(content);
        let text = || content.trim().to_owned();
        if word.eq_ignore_ascii_case("tdm-reservation") {
            self.push_notice(Notice::TdmReservation(text()), place);
        } else if word.eq_ignore_ascii_case("tdm-policy") {
            self.push_notice(Notice::TdmPolicy(text()), place);
        // Keeping the descriptions and keywords of a page would fill the limit. An
        // unknown word in a meta for robots is kept as evidence.
        } else if Scope::of_meta(word) == Scope::Everyone
            || !segment::read_content(&content).is_empty()
        {
            let (name, content) = (name.into_owned(), content.into_owned());
            self.push_meta(Meta { name, content }, place);
        }
    }

    /// Adds the licence of a `<link>` element, if it names one.
    pub(super) fn add_link(&mut self, tag: &Tag<'_>, place: MetaPlace) {
        let attribute = |name| tag.attribute(name).map(|value| self.decoded(value));
        let is_license = |relation: &str| {
            let mut words = relation.split_ascii_whitespace();
            words.any(|word| word.eq_ignore_ascii_case("license"))
        };
        if !attribute("rel").is_some_and(|relation| is_license(&relation)) {
            return;
        }
        let media_type = attribute("type").unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if let Some(address) = attribute("href")
            && essence.eq_ignore_ascii_case("application/rsl+xml")
        {
            self.push_notice(Notice::License(address.trim().to_owned()), place);
        }
    }

    /// Adds the findings of another scan, of a part of the page that stands at `place`.
    pub(super) fn add(&mut self, other: Self, place: MetaPlace) {
        for meta in other.metas {
            self.push_meta(meta, place);
        }
        for notice in other.notices {
            self.push_notice(notice, place);
        }
    }

    /// Keeps a meta, unless it is a duplicate or the limit is reached.
    fn push_meta(&mut self, meta: Meta, place: MetaPlace) {
        let metas = match place {
            MetaPlace::Head => &mut self.metas,
            MetaPlace::AfterHead => &mut self.outside,
        };
        if metas.len() < Self::METAS_MAX && !metas.contains(&meta) {
            self.bytes += meta.name.capacity() + meta.content.capacity();
            metas.push(meta);
        }
    }

    /// Keeps a notice of the head, unless it is too long, a duplicate, or the limit is
    /// reached.
    fn push_notice(&mut self, notice: Notice, place: MetaPlace) {
        let (Notice::TdmReservation(text) | Notice::TdmPolicy(text) | Notice::License(text)) =
            &notice;
        let has_room = self.notices.len() < Self::NOTICES_MAX;
        let is_short = text.len() <= Self::NOTICE_BYTES_MAX;
        if place == MetaPlace::Head && has_room && is_short && !self.notices.contains(&notice) {
            self.bytes += text.capacity();
            self.notices.push(notice);
        }
    }

    /// Returns the text of an attribute value.
    fn decoded<'a>(&self, value: &'a [u8]) -> Cow<'a, str> {
        let (text, has_errors) = self.encoding.decode_without_bom_handling(value);
        // A page that does not declare its encoding is taken for UTF-8. If it is not
        // valid UTF-8, it is taken for Windows-1252, the encoding of most old pages.
        let text = match has_errors && self.encoding == UTF_8 {
            true => WINDOWS_1252.decode_without_bom_handling(value).0,
            false => text,
        };
        match text {
            Cow::Borrowed(text) => reference::decoded(text),
            Cow::Owned(text) => Cow::Owned(reference::decoded(&text).into_owned()),
        }
    }
}

/// Reports whether a meta can be skipped before its bytes are decoded, because it says
/// nothing that is read here. Nearly all metas of a page can.
fn says_nothing(name: &[u8], content: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let Some(end) = name.iter().position(|byte| !is_letter(byte)) else {
        let mut words = ["robots", "robot", "tdm-reservation", "tdm-policy"].iter();
        let is_read = words.any(|word| name.eq_ignore_ascii_case(word.as_bytes()));
        return !is_read && !may_restrict(content);
    };
    // `twitter:card`.
    name[end] == b':' && !name[end..].contains(&b'&') && name.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::super::tag::ElementName;
    use super::*;
    use encoding_rs::SHIFT_JIS;

    fn found(tags: &[u8], encoding: &'static Encoding) -> HeadFindings {
        let mut findings = HeadFindings::new(encoding);
        let mut rest = tags;
        while let Some(tag) = Tag::read(rest) {
            if tag.element == ElementName::Meta {
                findings.add_meta(&tag, MetaPlace::Head);
            } else {
                findings.add_link(&tag, MetaPlace::Head);
            }
            rest = &rest[tag.text.len()..];
        }
        findings
    }

    // TDMRep, section 6.3; RSL 1.0, section 4.3.
    #[test]
    fn notices_are_kept_with_any_value() {
        let tags = "<meta name=TDM-Reservation content=7><meta name='tdm-policy ' content=' /p '>\
                    <link href=/l rel='x LICENSE' type='Application/RSL+XML; a=b'>";
        let wanted = [
            Notice::TdmReservation("7".into()),
            Notice::TdmPolicy("/p".into()),
            Notice::License("/l".into()),
        ];
        assert_eq!(found(tags.as_bytes(), UTF_8).notices, wanted);
    }

    #[test]
    fn other_links_are_not_notices() {
        let tags = "<link rel=license href=/l><link rel=licenses type=application/rsl+xml href=/l>\
                    <link rel=license type=application/rsl+xml><meta name=tdm-policy>";
        assert!(found(tags.as_bytes(), UTF_8).notices.is_empty());
    }

    // Ours: most pages that declare no encoding and are not UTF-8 are old pages.
    #[test]
    fn invalid_utf_8_is_read_as_windows_1252() {
        let tags = b"<meta name=robots content='noindex,\xA0nofollow\xA0'>";
        let metas = found(tags, UTF_8).metas;
        assert_eq!(&*metas[0].content, "noindex,\u{A0}nofollow\u{A0}");
    }

    #[test]
    fn notices_are_bounded() {
        let long = "x".repeat(HeadFindings::NOTICE_BYTES_MAX + 1);
        let tags = format!("<meta name=tdm-policy content={long}>");
        assert!(found(tags.as_bytes(), UTF_8).notices.is_empty());
        let tags = (0..100).map(|at| format!("<meta name=tdm-policy content={at}>"));
        let tags: String = tags.collect();
        let kept = found(tags.as_bytes(), UTF_8).notices.len();
        assert_eq!(kept, HeadFindings::NOTICES_MAX);
    }

    #[test]
    fn a_meta_that_restricts_or_is_for_robots_is_kept_once() {
        let tags = "<meta name=robots content=noindex><meta content=noindex name=robots>\
                    <meta name=description content=index><meta name=robots content=notrain>\
                    <meta name=Robot content=notrain>";
        assert_eq!(found(tags.as_bytes(), UTF_8).metas.len(), 3);
    }

    // Ours: a meta is skipped before decoding only if it says nothing.
    #[test]
    fn a_meta_that_restricts_once_decoded_is_not_skipped() {
        for tag in [
            "<meta name=other-bot content='no&#105;ndex'>",
            "<meta name='&#114;obots' content=x>",
            "<meta name=' \u{201C}robots\u{201D}' content=x>",
            "<meta name=ROBOT content=x>",
            "<meta name=other.bot/1 content='x NoIndex'>",
        ] {
            assert_eq!(found(tag.as_bytes(), UTF_8).metas.len(), 1, "{tag}");
        }
        for tag in [
            "<meta name=twitter:card content=noindex>",
            "<meta name=other-bot content='words that restrict nothing'>",
        ] {
            assert!(found(tag.as_bytes(), UTF_8).metas.is_empty(), "{tag}");
        }
    }

    #[test]
    fn the_second_byte_of_a_character_is_not_read_as_a_letter() {
        let tag =
            b"<meta name=robots content='\x83noindex'><meta name=robots content='\x83n noai'>";
        let metas = found(tag, SHIFT_JIS).metas;
        let contents: Vec<&str> = metas.iter().map(|meta| meta.content.as_str()).collect();
        assert_eq!(contents, ["ハoindex", "ハ noai"]);
    }
}
