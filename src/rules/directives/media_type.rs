//! Which bodies are HTML: by their Content-Type, or by how they begin.
//!
//! The MIME Sniffing standard is followed for bodies without a type only; what
//! an origin declares is believed.

/// Octets of a page that has no Content-Type which tell whether it is HTML
/// (MIME Sniffing standard, section 5.2).
pub(super) const SIGNATURE_BYTES: usize = 1445;

/// What a Content-Type says about scanning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Missing,
    Other,
}

/// Whether a body of this Content-Type is HTML to scan. One without a type is
/// judged by its first 1,445 octets, `start`.
pub fn is_html(content_type: Option<&[u8]>, start: &[u8]) -> bool {
    let content_type = content_type.map(String::from_utf8_lossy);
    match kind(content_type.as_deref().unwrap_or_default()) {
        Kind::Html => true,
        Kind::Missing => looks_like_html(start),
        Kind::Other => false,
    }
}

/// What this Content-Type says; empty stands for none.
pub(super) fn kind(content_type: &str) -> Kind {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let scanned = ["text/html", "application/xhtml+xml"];
    if essence.is_empty() {
        Kind::Missing
    } else if scanned.iter().any(|it| essence.eq_ignore_ascii_case(it)) {
        Kind::Html
    } else {
        Kind::Other
    }
}

/// The parameter `charset`, the first if there are several.
pub(super) fn charset(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches(['"', '\'']))
    })
}

/// How HTML begins: these, and a comment.
const TAGS: [&str; 16] = [
    "!DOCTYPE HTML",
    "HTML",
    "HEAD",
    "SCRIPT",
    "IFRAME",
    "H1",
    "DIV",
    "FONT",
    "TABLE",
    "A",
    "STYLE",
    "TITLE",
    "B",
    "BODY",
    "BR",
    "P",
];

/// Whether a page begins as HTML does (MIME Sniffing standard, section 7.1).
pub(super) fn looks_like_html(start: &[u8]) -> bool {
    let start = start.get(..SIGNATURE_BYTES).unwrap_or(start);
    let Some(tag) = start.trim_ascii_start().strip_prefix(b"<") else {
        return false;
    };
    let is_tag = |name: &str| {
        let begins = tag.get(..name.len());
        let ends = matches!(tag.get(name.len()), Some(b' ' | b'>'));
        ends && begins.is_some_and(|it| it.eq_ignore_ascii_case(name.as_bytes()))
    };
    tag.starts_with(b"!--") || TAGS.into_iter().any(is_tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    // MIME Sniffing standard, section 7.1.
    #[test]
    fn a_body_without_a_type_must_look_like_html() {
        for start in ["\n <!DOCTYPE html>", "<!--", "<HeAd >", "<p>"] {
            assert!(is_html(None, start.as_bytes()), "{start}");
        }
        for start in ["words <p>", "<pre>", "<", "<head", "{}", ""] {
            assert!(!is_html(None, start.as_bytes()), "{start}");
        }
    }

    #[test]
    fn a_charset_may_be_quoted() {
        assert_eq!(charset("text/html; CharSet=\"utf-16\""), Some("utf-16"));
        assert_eq!(charset("text/html; x=y"), None);
    }
}
