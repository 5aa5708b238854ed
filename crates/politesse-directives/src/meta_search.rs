//! Every `<meta` in the octets of a page, wherever it stands.
//!
//! For pages whose reading is in doubt: whatever the reading, a meta begins
//! with these octets, so none is lost. Some that are found are none.

use memchr::memchr;

use super::findings::{Found, Place};
use super::tag::Tag;

/// Looks for metas in octets that are pushed in chunks.
#[derive(Debug, Default)]
pub(super) struct Lax {
    /// The beginning of what may be a meta.
    kept: Vec<u8>,
    /// Octets of tags read so far.
    work: usize,
}

/// The longest meta that is found.
const TAG_BYTES_MAX: usize = 2048;

/// Octets of tags read of one page. Metas inside metas would take quadratic
/// time.
const WORK_MAX: usize = 8 * 1024 * 1024;

/// How a meta begins.
const META: &[u8] = b"<meta";

impl Lax {
    /// Takes in more of the page.
    pub(super) fn push(&mut self, octets: &[u8], found: &mut Found) {
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(octets);
        let mut rest = kept.as_slice();
        while let Some(start) = memchr(b'<', rest) {
            rest = &rest[start..];
            if WORK_MAX < self.work {
                return;
            }
            if self.may_go_on(rest, found) {
                self.kept = rest.to_vec();
                return;
            }
            rest = &rest[1..];
        }
    }

    /// Reads the meta that begins here, if one does. Whether it may be one
    /// that has not ended.
    fn may_go_on(&mut self, text: &[u8], found: &mut Found) -> bool {
        let start = text.get(..META.len()).unwrap_or(text);
        if !start.eq_ignore_ascii_case(&META[..start.len()]) {
            return false;
        }
        let text = text.get(..TAG_BYTES_MAX).unwrap_or(text);
        let Some((tag, behind)) = Tag::read(text) else {
            self.work += text.len();
            return text.len() < TAG_BYTES_MAX;
        };
        self.work += text.len() - behind.len();
        if tag.is("meta") {
            found.meta(&tag, Place::Head);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use encoding_rs::UTF_8;

    fn metas(page: &str, chunk_bytes: usize) -> usize {
        let mut found = Found::new(UTF_8);
        let mut lax = Lax::default();
        for chunk in page.as_bytes().chunks(chunk_bytes) {
            lax.push(chunk, &mut found);
        }
        found.metas.len()
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
