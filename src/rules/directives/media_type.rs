//! Which bodies are HTML: by their Content-Type, or by how they begin.
//!
//! The MIME Sniffing standard is followed for bodies without a type only; what
//! an origin declares is believed.

/// Octets of a page that has no Content-Type which tell whether it is HTML
/// (MIME Sniffing standard, section 5.2).
pub(super) const SIGNATURE_BYTES: usize = 1445;

/// The types of pages that are scanned.
const HTML: [&str; 2] = ["text/html", "application/xhtml+xml"];

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
        Kind::Missing => looks_like_html(start).unwrap_or(false),
        Kind::Other => false,
    }
}

/// What this Content-Type says; empty stands for none, and so does what is no
/// media type (section 4.4; `text/html charset=utf-8`). Three types say that
/// nothing is known (MIME Sniffing standard, section 7).
pub(super) fn kind(content_type: &str) -> Kind {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let is_one = |names: &[&str]| names.iter().any(|it| essence.eq_ignore_ascii_case(it));
    // Several fields may have been joined to one.
    let mut types = essence.split(',').map(str::trim_ascii);
    if types.any(|it| HTML.iter().any(|name| it.eq_ignore_ascii_case(name))) {
        Kind::Html
    } else if !is_type(essence) || is_one(&["unknown/unknown", "application/unknown", "*/*"]) {
        Kind::Missing
    } else {
        Kind::Other
    }
}

/// Whether this is a type and a subtype, each a token (RFC 9110, section 5.6.2).
fn is_type(essence: &str) -> bool {
    let is_letter =
        |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet);
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_letter);
    let parts = essence.split_once('/');
    parts.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

/// The parameter `charset`, the first if there are several (MIME Sniffing
/// standard, section 4.4).
pub(super) fn charset(content_type: &str) -> Option<String> {
    let mut rest = content_type.split_once(';')?.1;
    loop {
        let end = rest.find(['=', ';'])?;
        let (name, behind) = rest.split_at(end);
        let Some(behind) = behind.strip_prefix('=') else {
            rest = &behind[1..];
            continue;
        };
        let (value, behind) = parameter_value(behind);
        if name.trim().eq_ignore_ascii_case("charset") && !value.is_empty() {
            return Some(value);
        }
        rest = behind.split_once(';')?.1;
    }
}

/// The value of a parameter, out of its quotes, and what stands behind it.
fn parameter_value(text: &str) -> (String, &str) {
    let trimmed = text.trim_start();
    if let Some(quoted) = trimmed.strip_prefix('"') {
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => return (value, &quoted[at + 1..]),
                '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
                letter => value.push(letter),
            }
        }
        return (value, "");
    }
    let (value, behind) = trimmed.split_at(trimmed.find(';').unwrap_or(trimmed.len()));
    // No standard has these quotes, some origins do.
    (value.trim().trim_matches('\'').to_owned(), behind)
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

/// Whether a page begins as HTML does (MIME Sniffing standard, section 7.1);
/// none while more octets are needed to tell. Anything else is not HTML: text,
/// XML, an image, what is binary.
pub(super) fn looks_like_html(start: &[u8]) -> Option<bool> {
    let is_all = SIGNATURE_BYTES <= start.len();
    let start = start.get(..SIGNATURE_BYTES).unwrap_or(start);
    let wait = if is_all { Some(false) } else { None };
    let tag = match start.trim_ascii_start() {
        [] => return wait,
        [b'<', tag @ ..] => tag,
        _ => return Some(false),
    };
    let mut may_be = false;
    for name in TAGS.iter().copied().chain(["!--"]) {
        let name = name.as_bytes();
        let begun = tag.len().min(name.len());
        let begins = tag[..begun].eq_ignore_ascii_case(&name[..begun]);
        match tag.get(name.len()) {
            _ if begins && begun == name.len() && name == b"!--" => return Some(true),
            Some(b' ' | b'>') if begins => return Some(true),
            Some(_) => {}
            None => may_be |= begins,
        }
    }
    if may_be { wait } else { Some(false) }
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
        for start in [
            "words <p>",
            "<pre>",
            "<",
            "<head",
            "{}",
            "",
            "<?xml",
            "\u{FEFF}<p>",
        ] {
            assert!(!is_html(None, start.as_bytes()), "{start}");
        }
    }

    #[test]
    fn it_is_known_as_soon_as_it_can_be() {
        for start in ["", " ", "<", "<h", "<head", "<!DOCTYPE htm", "<b", "<!-"] {
            assert_eq!(looks_like_html(start.as_bytes()), None, "{start}");
        }
        for start in ["x", "<x", "<headx", "\0", "<html\n"] {
            assert_eq!(looks_like_html(start.as_bytes()), Some(false), "{start}");
        }
        let blanks = " ".repeat(SIGNATURE_BYTES);
        assert_eq!(looks_like_html(blanks.as_bytes()), Some(false));
    }

    // MIME Sniffing standard, section 7.
    #[test]
    fn a_type_that_says_nothing_is_none() {
        for content_type in [
            "",
            "Unknown/Unknown",
            "application/unknown;a=b",
            " */* ",
            "text/html charset=utf-8",
            "html",
            "text/",
            "text/html/x",
        ] {
            assert_eq!(kind(content_type), Kind::Missing, "{content_type}");
        }
        assert_eq!(kind("application/octet-stream"), Kind::Other);
        assert_eq!(kind("text/plain, Text/HTML"), Kind::Html);
    }

    macro_rules! charsets {
        ($($name:ident: $text:literal is $charset:expr;)*) => {$(
            #[test]
            fn $name() {
                assert_eq!(charset($text).as_deref(), $charset);
            }
        )*};
    }

    // MIME Sniffing standard, section 4.4.
    charsets! {
        a_charset_may_be_quoted: "text/html; CharSet=\"utf\\-16\" ; x" is Some("utf-16");
        a_charset_may_be_bare: "text/html;x;charset=utf-16 ;y=z" is Some("utf-16");
        another_parameter_may_hold_it: "text/html; x=\"; charset=a\"; charset=b" is Some("b");
        the_first_charset_counts: "text/html; charset=a; charset=b" is Some("a");
        there_may_be_none: "text/html; x=y" is None;
        an_empty_charset_is_none: "text/html; charset=" is None;
        odd_quotes_are_dropped: "text/html; charset='utf-8'" is Some("utf-8");
    }
}
