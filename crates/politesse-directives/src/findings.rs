//! Findings of a page: metas that restrict something, and statements about data
//! mining and licences.
//!
//! Which tags are in the head is known to `head`. Every kind is bounded in
//! number.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use serde::{Deserialize, Serialize};

use super::reference;
use super::segment::{self, Scope};
use super::tag::Tag;
use super::vocabulary::may_restrict;

/// A `<meta>` element that restricts something, its references decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Attribute `name`, as written: the crawler that is meant.
    pub name: String,
    /// Attribute `content`, as written.
    pub content: String,
}

/// A statement of a head that is no directive: a reservation of rights or the
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
    /// After the head, where it is evidence.
    BehindHead,
}

/// Findings of one page.
#[derive(Debug)]
pub(super) struct HeadFindings {
    pub(super) encoding: &'static Encoding,
    /// Metas of the head that restrict something, each once.
    pub(super) metas: Vec<Meta>,
    /// Metas after the head that restrict something, each once.
    pub(super) outside: Vec<Meta>,
    pub(super) notices: Vec<Notice>,
    /// Bytes of their texts.
    pub(super) bytes: usize,
}

impl HeadFindings {
    /// Different metas kept of one page. Real pages have five at most.
    pub(super) const METAS_MAX: usize = 256;

    /// Notices kept of one page.
    pub(super) const NOTICES_MAX: usize = 64;

    /// Bytes of a notice. A longer one is not kept: a part of an address is
    /// another address.
    pub(super) const NOTICE_BYTES_MAX: usize = 2048;

    /// Begins a page whose tags are in this encoding.
    pub(super) fn new(encoding: &'static Encoding) -> Self {
        Self {
            encoding,
            metas: Vec::new(),
            outside: Vec::new(),
            notices: Vec::new(),
            bytes: 0,
        }
    }

    /// Reports whether the head has more metas than are kept.
    pub(super) fn is_full(&self) -> bool {
        Self::METAS_MAX <= self.metas.len()
    }

    /// Adds what a `<meta>` says.
    pub(super) fn add_meta(&mut self, tag: &Tag<'_>, place: MetaPlace) {
        let (Some(name), Some(content)) = (tag.meta.name, tag.meta.content) else {
            return;
        };
        if says_nothing(name, content) {
            return;
        }
        let name = self.decoded(name);
        let word = segment::trimmed(&name);
        // No crawler has such a name (RFC 9309, section 2.2.1), and pages have
        // many of them: `twitter:card`.
        if word.contains(':') {
            return;
        }
        let content = self.decoded(content);
        let notice = || content.trim().to_owned();
        if word.eq_ignore_ascii_case("tdm-reservation") {
            self.add_notice(Notice::TdmReservation(notice()), place);
        } else if word.eq_ignore_ascii_case("tdm-policy") {
            self.add_notice(Notice::TdmPolicy(notice()), place);
        // The descriptions and keywords of a page would fill the bound. An
        // unknown word in a meta for robots is evidence.
        } else if Scope::of_meta(word) == Scope::Everyone
            || !segment::read_content(&content).is_empty()
        {
            let (name, content) = (name.into_owned(), content.into_owned());
            self.keep(Meta { name, content }, place);
        }
    }

    /// Adds what a `<link>` says.
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
            self.add_notice(Notice::License(address.trim().to_owned()), place);
        }
    }

    /// Adds the findings of another scan.
    pub(super) fn add(&mut self, other: Self, place: MetaPlace) {
        for meta in other.metas {
            self.keep(meta, place);
        }
        for notice in other.notices {
            self.add_notice(notice, place);
        }
    }

    fn keep(&mut self, meta: Meta, place: MetaPlace) {
        let metas = match place {
            MetaPlace::Head => &mut self.metas,
            MetaPlace::BehindHead => &mut self.outside,
        };
        if metas.len() < Self::METAS_MAX && !metas.contains(&meta) {
            self.bytes += meta.name.capacity() + meta.content.capacity();
            metas.push(meta);
        }
    }

    fn add_notice(&mut self, notice: Notice, place: MetaPlace) {
        let (Notice::TdmReservation(text) | Notice::TdmPolicy(text) | Notice::License(text)) =
            &notice;
        let has_room = self.notices.len() < Self::NOTICES_MAX;
        let is_short = text.len() <= Self::NOTICE_BYTES_MAX;
        if place == MetaPlace::Head && has_room && is_short && !self.notices.contains(&notice) {
            self.bytes += text.capacity();
            self.notices.push(notice);
        }
    }

    /// Text of the value of an attribute.
    fn decoded<'a>(&self, value: &'a [u8]) -> Cow<'a, str> {
        let (text, has_errors) = self.encoding.decode_without_bom_handling(value);
        // A page that does not state its encoding is taken for UTF-8. What is none is of
        // the one that old pages have.
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

/// Reports whether nothing in a meta is read here, as far as its bytes tell
/// before they are decoded: that of nearly all metas of a page.
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
    fn notices_are_kept_whatever_they_say() {
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
    fn other_links_are_not() {
        let tags = "<link rel=license href=/l><link rel=licenses type=application/rsl+xml href=/l>\
                    <link rel=license type=application/rsl+xml><meta name=tdm-policy>";
        assert!(found(tags.as_bytes(), UTF_8).notices.is_empty());
    }

    // Ours: most pages without a stated encoding that are no UTF-8 are old ones.
    #[test]
    fn what_is_no_utf_8_is_read_as_windows_1252() {
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
    fn a_meta_is_kept_once_and_if_it_restricts_or_is_for_robots() {
        let tags = "<meta name=robots content=noindex><meta content=noindex name=robots>\
                    <meta name=description content=index><meta name=robots content=notrain>\
                    <meta name=Robot content=notrain>";
        assert_eq!(found(tags.as_bytes(), UTF_8).metas.len(), 3);
    }

    // Ours: what is passed over before it is decoded says nothing.
    #[test]
    fn a_meta_is_not_passed_over_that_says_something_once_decoded() {
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
    fn the_second_byte_of_a_letter_is_no_letter() {
        let tag =
            b"<meta name=robots content='\x83noindex'><meta name=robots content='\x83n noai'>";
        let metas = found(tag, SHIFT_JIS).metas;
        let contents: Vec<&str> = metas.iter().map(|meta| meta.content.as_str()).collect();
        assert_eq!(contents, ["ハoindex", "ハ noai"]);
    }
}
