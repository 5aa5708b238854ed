//! Media type of a body: whether it is HTML, judged by its Content-Type or its first
//! bytes, and its `charset`.
//!
//! A declared type is trusted; bodies without one are judged by the MIME Sniffing
//! standard. Does not know what happens to an HTML body.

use std::borrow::Cow;

use memchr::memchr2;

/// Number of first bytes that decide whether a body without a Content-Type is HTML
/// (MIME Sniffing standard, section 5.2).
pub const SIGNATURE_BYTES: usize = 1445;

/// Kind of body declared by a Content-Type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Missing,
    Other,
}

/// Reports whether a body with this Content-Type is HTML. A body without a type is
/// judged by its first 1,445 bytes, `start`.
pub fn is_html(content_type: Option<&[u8]>, start: &[u8]) -> bool {
    match kind(&text(content_type.unwrap_or_default())) {
        Kind::Html => true,
        Kind::Missing => looks_like_html(start).unwrap_or(false),
        Kind::Other => false,
    }
}

/// Returns a Content-Type as text; bytes that are not UTF-8 are replaced.
pub(super) fn text(content_type: &[u8]) -> Cow<'_, str> {
    // Nearly all are ASCII, and the lossy conversion takes twice as long for those.
    match str::from_utf8(content_type) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(content_type),
    }
}

/// Reads a Content-Type; an empty one counts as missing.
///
/// Several field lines, or types joined by a comma, are several types. Browsers take
/// the last one that they understand (Fetch standard, section 3.5), other clients the
/// first, so one HTML type is enough. A malformed type is ignored, and so are three
/// placeholder types (MIME Sniffing standard, section 7).
pub(super) fn kind(content_type: &str) -> Kind {
    let mut kind = Kind::Missing;
    for essence in members(content_type).map(essence) {
        if is_one_of(essence, &HTML) {
            return Kind::Html;
        }
        if is_type(essence) && !is_one_of(essence, &UNKNOWN) {
            kind = Kind::Other;
        }
    }
    kind
}

const HTML: [&str; 2] = ["text/html", "application/xhtml+xml"];

const UNKNOWN: [&str; 3] = ["unknown/unknown", "application/unknown", "*/*"];

fn is_one_of(essence: &str, names: &[&str]) -> bool {
    names.iter().any(|it| essence.eq_ignore_ascii_case(it))
}

/// Splits a Content-Type into its types. A comma in quotes is part of a
/// parameter.
fn members(content_type: &str) -> impl Iterator<Item = &str> {
    // Nearly all are a single type without quotes.
    let is_one = memchr2(b',', b'"', content_type.as_bytes()).is_none();
    let (mut is_quoted, mut is_escaped) = (false, false);
    let several = (!is_one).then(|| {
        content_type.split(move |letter| {
            let was_escaped = std::mem::take(&mut is_escaped);
            match letter {
                '\\' => is_escaped = is_quoted && !was_escaped,
                '"' => is_quoted ^= !was_escaped,
                _ => {}
            }
            letter == ',' && !is_quoted
        })
    });
    let one = is_one.then_some(content_type);
    one.into_iter().chain(several.into_iter().flatten())
}

/// Returns a type without its parameters. Some browsers accept a space in place of a
/// missing semicolon (`text/html charset=utf-8`).
fn essence(member: &str) -> &str {
    let member = member.trim();
    let ends = |byte: u8| byte == b';' || byte.is_ascii_whitespace();
    let end = member.bytes().position(ends);
    &member[..end.unwrap_or(member.len())]
}

/// Reports whether a text has the syntax of a type (RFC 9110, section 8.3.1).
fn is_type(essence: &str) -> bool {
    let bytes = essence.as_bytes();
    let is_token = |&byte: &u8| TOKEN_BYTES[usize::from(byte)];
    let Some(slash) = bytes.iter().position(|byte| !is_token(byte)) else {
        return false;
    };
    let (main, rest) = bytes.split_at(slash);
    match rest {
        [b'/', sub @ ..] => !main.is_empty() && !sub.is_empty() && sub.iter().all(is_token),
        _ => false,
    }
}

/// Bytes that may be part of a token (RFC 9110, section 5.6.2). A table, because the
/// type of every response is checked.
const TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
};

/// Returns the parameter `charset`. Of several types, the last HTML type that has one
/// counts.
pub(super) fn charset(content_type: &str) -> Option<String> {
    let html = |member: &&str| matches!(kind(member), Kind::Html | Kind::Missing);
    let charsets = members(content_type).filter(html).filter_map(charset_of);
    charsets.last()
}

/// Returns the parameter `charset` of one type, the first if there are several
/// (MIME Sniffing standard, section 4.4).
fn charset_of(member: &str) -> Option<String> {
    let mut rest = member.split_once(';')?.1;
    loop {
        let end = rest.find(['=', ';'])?;
        let (name, after) = rest.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            rest = &after[1..];
            continue;
        };
        let (value, after) = parameter_value(after);
        if name.trim().eq_ignore_ascii_case("charset") && !value.is_empty() {
            return Some(value);
        }
        rest = after.split_once(';')?.1;
    }
}

/// Reads the value of a parameter, without its quotes. Returns the value and the text
/// after it.
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
    let (value, after) = trimmed.split_at(trimmed.find(';').unwrap_or(trimmed.len()));
    // Single quotes are in no standard, but some origins use them.
    (value.trim().trim_matches('\'').to_owned(), after)
}

/// Beginnings of HTML, besides a comment.
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

/// Reports whether a body begins like HTML (MIME Sniffing standard, section 7.1).
/// `None` while more bytes are needed. Every other body is not HTML: text, XML, an
/// image, binary data.
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
    fn the_type_is_decided_as_early_as_possible() {
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
    fn a_placeholder_type_counts_as_missing() {
        for content_type in ["", "Unknown/Unknown", "application/unknown;a=b", " */* "] {
            assert_eq!(kind(content_type), Kind::Missing, "{content_type}");
        }
        assert_eq!(kind("application/octet-stream"), Kind::Other);
    }

    macro_rules! kinds {
        ($($name:ident: $text:literal is $kind:ident;)*) => {$(
            #[test]
            fn $name() {
                assert_eq!(kind($text), Kind::$kind);
            }
        )*};
    }

    // Fetch standard, section 3.5; MIME Sniffing standard, sections 4.4 and 7.
    kinds! {
        one_of_several_types_may_be_html: "image/png, Text/HTML" is Html;
        html_stays_html_whatever_follows: "text/html, text/plain" is Html;
        a_comma_may_stand_for_the_semicolon: "text/html,charset=utf-8" is Html;
        a_blank_may_stand_for_the_semicolon: "text/html charset=utf-8" is Html;
        html_in_quotes_is_not_a_type: "text/plain; a=\"x\\\", text/html\"" is Other;
        a_type_without_a_slash_says_nothing: "html" is Missing;
        a_type_in_quotes_says_nothing: "\"text/html\"" is Missing;
        a_broken_type_beside_a_good_one_does_not_count: "text/plain, x" is Other;
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
        a_charset_inside_another_parameter_is_ignored: "text/html; x=\"; charset=a\"; charset=b" is Some("b");
        the_first_charset_counts: "text/html; charset=a; charset=b" is Some("a");
        the_charset_is_optional: "text/html; x=y" is None;
        an_empty_charset_is_none: "text/html; charset=" is None;
        the_charset_of_the_html_type_counts: "text/plain; charset=a, text/html; charset=b, text/html" is Some("b");
        odd_quotes_are_dropped: "text/html; charset='utf-8'" is Some("utf-8");
    }
}
