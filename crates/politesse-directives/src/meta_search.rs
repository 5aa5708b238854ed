//! Search for `<meta` anywhere in the bytes of a page.
//!
//! For pages whose reading is ambiguous: in every reading a meta begins with these
//! bytes, so none is missed. Some findings may be no metas, such as text in a comment.

use memchr::memchr;

use super::findings::{HeadFindings, MetaPlace};
use super::tag::{ElementName, TagReader};

/// Searches for metas in bytes that are pushed in chunks.
#[derive(Debug, Default)]
pub(super) struct MetaSearch {
    /// Beginning of a possible meta.
    pending: Vec<u8>,
    /// Reader of the tag in `pending`.
    tag: TagReader,
    /// Bytes of tags read so far.
    bytes_read: usize,
}

impl MetaSearch {
    /// Length of the longest meta that is found.
    const TAG_BYTES_MAX: usize = 2048;

    /// Maximum number of bytes of tags read of one page. Nested metas would otherwise
    /// take quadratic time.
    const BYTES_READ_MAX: usize = 8 * 1024 * 1024;

    /// Reads more of the page.
    pub(super) fn push(&mut self, bytes: &[u8], findings: &mut HeadFindings) {
        let mut text = std::mem::take(&mut self.pending);
        text.extend_from_slice(bytes);
        let mut rest = text.as_slice();
        while let Some(start) = memchr(b'<', rest) {
            rest = &rest[start..];
            if Self::BYTES_READ_MAX < self.bytes_read {
                return;
            }
            if self.read_meta(rest, findings).is_none() {
                self.pending = rest.to_vec();
                return;
            }
            rest = &rest[1..];
        }
    }

    /// Reads the meta at the start of `text`, if there is one. Returns `None` if the
    /// text may be a meta that has not ended.
    fn read_meta(&mut self, text: &[u8], findings: &mut HeadFindings) -> Option<()> {
        const META: &[u8] = b"<meta";
        let start = text.get(..META.len()).unwrap_or(text);
        if !start.eq_ignore_ascii_case(&META[..start.len()]) {
            return Some(());
        }
        let tag_text = text.get(..Self::TAG_BYTES_MAX).unwrap_or(text);
        let tag = self.tag.read(tag_text);
        if tag.is_none() && text.len() < Self::TAG_BYTES_MAX {
            return None;
        }
        self.tag = TagReader::default();
        self.bytes_read += tag.map_or(Self::TAG_BYTES_MAX, |tag| tag.text.len());
        if let Some(tag) = tag.filter(|tag| tag.element == ElementName::Meta) {
            findings.add_meta(&tag, MetaPlace::Head);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use encoding_rs::UTF_8;

    fn metas(page: &str, chunk_bytes: usize) -> usize {
        let mut findings = HeadFindings::new(UTF_8);
        let mut search = MetaSearch::default();
        for chunk in page.as_bytes().chunks(chunk_bytes) {
            search.push(chunk, &mut findings);
        }
        findings.metas.len()
    }

    // Ours.
    #[test]
    fn a_meta_is_found_wherever_it_stands() {
        let page = "<!-- <META name=a content=noindex> --><p a='<meta name=b content=\"noindex\">'>\
                    <metas name=c content=noindex><meta name=d content='noindex>";
        for chunk in [1, 7, 50, page.len()] {
            assert_eq!(metas(page, chunk), 2, "{chunk}");
        }
    }

    #[test]
    fn metas_inside_metas_take_bounded_work() {
        let page = "<meta ".repeat(1 << 17);
        assert_eq!(metas(&page, 4096), 0);
    }
}
