//! What is kept of the tags in a head: metas that restrict something, and what
//! is said about data mining and licences.
//!
//! Which tags count is known to `head`. Every kind is bounded in number.

use std::borrow::Cow;

use encoding_rs::Encoding;

use super::reference;
use super::segment;
use super::tag::Tag;

/// A `<meta>` element that restricts something, its references decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The attribute `name`, as written: which crawler is meant.
    pub name: String,
    /// The attribute `content`, as written.
    pub content: String,
}

/// A statement of a head that is no directive: a reservation of rights or the
/// terms of a licence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The content of `<meta name="tdm-reservation">` (TDMRep, section 6.3).
    TdmReservation(String),
    /// The content of `<meta name="tdm-policy">`.
    TdmPolicy(String),
    /// The address in `<link rel="license" type="application/rsl+xml">`
    /// (RSL 1.0, section 4.3).
    License(String),
}

/// Where an element stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the head: it counts.
    Head,
    /// Behind it.
    Behind,
}

/// All that is kept of a page.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) encoding: &'static Encoding,
    /// The metas of the head that restrict something, each once.
    pub(super) metas: Vec<Meta>,
    /// Those behind it.
    pub(super) outside: Vec<Meta>,
    pub(super) notices: Vec<Notice>,
}

impl Found {
    /// Different metas kept of one page. Real pages have five at most.
    pub(super) const METAS_MAX: usize = 256;

    /// Notices kept of one page.
    pub(super) const NOTICES_MAX: usize = 64;

    /// Octets of a notice. A longer one is not kept: a part of an address is
    /// another address.
    pub(super) const NOTICE_BYTES_MAX: usize = 2048;

    /// Begins with nothing found in a page of this encoding.
    pub(super) fn new(encoding: &'static Encoding) -> Self {
        Self {
            encoding,
            metas: Vec::new(),
            outside: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Whether the page has more metas than are kept.
    pub(super) fn is_full(&self) -> bool {
        Self::METAS_MAX <= self.metas.len()
    }

    /// Takes in a `<meta>`.
    pub(super) fn meta(&mut self, tag: &Tag<'_>, place: Place) {
        let (mut name, mut content) = (None, None);
        for (own, value) in tag.attributes() {
            if own.eq_ignore_ascii_case(b"name") {
                name = name.or(Some(value));
            } else if own.eq_ignore_ascii_case(b"content") {
                content = content.or(Some(value));
            }
        }
        let (Some(name), Some(content)) = (name, content) else {
            return;
        };
        let name = self.text(name);
        let word = segment::trimmed(&name);
        // No crawler has such a name (RFC 9309, section 2.2.1), and pages have
        // many of them: `twitter:card`.
        if word.contains(':') {
            return;
        }
        let content = self.text(content);
        if word.eq_ignore_ascii_case("tdm-reservation") {
            self.notice(Notice::TdmReservation, (&content, place));
        } else if word.eq_ignore_ascii_case("tdm-policy") {
            self.notice(Notice::TdmPolicy, (&content, place));
        // The descriptions and keywords of a page would fill the bound. What a
        // robots meta says that nobody knows is evidence.
        } else if segment::is_meta_for_everyone(word) || restricts(&content) {
            let (name, content) = (name.into_owned(), content.into_owned());
            self.keep(Meta { name, content }, place);
        }
    }

    /// Takes in a `<link>`.
    pub(super) fn link(&mut self, tag: &Tag<'_>, place: Place) {
        let Some(relation) = tag.attribute("rel").map(|value| self.text(value)) else {
            return;
        };
        let mut words = relation.split_ascii_whitespace();
        if !words.any(|word| word.eq_ignore_ascii_case("license")) {
            return;
        }
        let kind = self.text(tag.attribute("type").unwrap_or_default());
        let essence = kind.split(';').next().unwrap_or_default().trim();
        let Some(address) = tag.attribute("href") else {
            return;
        };
        if essence.eq_ignore_ascii_case("application/rsl+xml") {
            let address = self.text(address);
            self.notice(Notice::License, (&address, place));
        }
    }

    /// Adds what another scan has found.
    pub(super) fn add(&mut self, other: Self, place: Place) {
        for meta in other.metas {
            self.keep(meta, place);
        }
        for notice in other.notices {
            self.keep_notice(notice, place);
        }
    }

    fn keep(&mut self, meta: Meta, place: Place) {
        let metas = match place {
            Place::Head => &mut self.metas,
            Place::Behind => &mut self.outside,
        };
        if metas.len() < Self::METAS_MAX && !metas.contains(&meta) {
            metas.push(meta);
        }
    }

    fn notice(&mut self, kind: fn(String) -> Notice, (text, place): (&str, Place)) {
        let text = text.trim();
        if text.len() <= Self::NOTICE_BYTES_MAX {
            self.keep_notice(kind(text.to_owned()), place);
        }
    }

    fn keep_notice(&mut self, notice: Notice, place: Place) {
        let has_room = self.notices.len() < Self::NOTICES_MAX;
        if place == Place::Head && has_room && !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// The text of a value.
    fn text<'a>(&self, value: &'a [u8]) -> Cow<'a, str> {
        match self.encoding.decode_without_bom_handling(value).0 {
            Cow::Borrowed(text) => reference::decoded(text),
            Cow::Owned(text) => Cow::Owned(reference::decoded(&text).into_owned()),
        }
    }
}

/// Whether the content of a meta restricts something.
fn restricts(content: &str) -> bool {
    !segment::read_content(content).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use encoding_rs::{SHIFT_JIS, UTF_8};

    fn found(tags: &[u8], encoding: &'static Encoding) -> Found {
        let mut found = Found::new(encoding);
        let mut rest = tags;
        while let Some((tag, behind)) = Tag::read(rest) {
            if tag.is("meta") {
                found.meta(&tag, Place::Head);
            } else {
                found.link(&tag, Place::Head);
            }
            rest = behind;
        }
        found
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

    #[test]
    fn notices_are_bounded() {
        let long = "x".repeat(Found::NOTICE_BYTES_MAX + 1);
        let tags = format!("<meta name=tdm-policy content={long}>");
        assert!(found(tags.as_bytes(), UTF_8).notices.is_empty());
        let tags = (0..100).map(|at| format!("<meta name=tdm-policy content={at}>"));
        let tags: String = tags.collect();
        let kept = found(tags.as_bytes(), UTF_8).notices.len();
        assert_eq!(kept, Found::NOTICES_MAX);
    }

    #[test]
    fn a_meta_is_kept_once_and_if_it_restricts_or_is_for_robots() {
        let tags = "<meta name=robots content=noindex><meta content=noindex name=robots>\
                    <meta name=description content=index><meta name=robots content=notrain>\
                    <meta name=Robot content=notrain>";
        assert_eq!(found(tags.as_bytes(), UTF_8).metas.len(), 3);
    }

    #[test]
    fn the_second_octet_of_a_letter_is_no_letter() {
        let tag =
            b"<meta name=robots content='\x83noindex'><meta name=robots content='\x83n noai'>";
        let metas = found(tag, SHIFT_JIS).metas;
        let contents: Vec<&str> = metas.iter().map(|meta| meta.content.as_str()).collect();
        assert_eq!(contents, ["ハoindex", "ハ noai"]);
    }
}
