//! Character references in the values of attributes (`no&#x69;ndex`).
//!
//! HTML standard, 13.2.5.72 to 13.2.5.80. Of its 2,231 named references, only those are
//! replaced that can separate, quote or end words of a list: spaces, quotes and
//! punctuation. The others stay as written and make the word unknown; none of them
//! stands for a letter of a directive. Does not know which attributes are read.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;

/// Named references and their characters.
#[rustfmt::skip]
const NAMES: [(&str, char); 74] = [
    ("AMP", '&'),
    ("CloseCurlyDoubleQuote", '\u{201D}'),
    ("CloseCurlyQuote", '\u{2019}'),
    ("DiacriticalGrave", '`'),
    ("GT", '>'),
    ("Hat", '^'),
    ("LT", '<'),
    ("MediumSpace", '\u{205F}'),
    ("NewLine", '\n'),
    ("NonBreakingSpace", '\u{A0}'),
    ("OpenCurlyDoubleQuote", '\u{201C}'),
    ("OpenCurlyQuote", '\u{2018}'),
    ("QUOT", '"'),
    ("Tab", '\t'),
    ("ThinSpace", '\u{2009}'),
    ("UnderBar", '_'),
    ("VerticalLine", '|'),
    ("VeryThinSpace", '\u{200A}'),
    ("amp", '&'),
    ("apos", '\''),
    ("ast", '*'),
    ("bdquo", '\u{201E}'),
    ("bsol", '\\'),
    ("colon", ':'),
    ("comma", ','),
    ("commat", '@'),
    ("dollar", '$'),
    ("emsp13", '\u{2004}'),
    ("emsp14", '\u{2005}'),
    ("emsp", '\u{2003}'),
    ("ensp", '\u{2002}'),
    ("equals", '='),
    ("excl", '!'),
    ("grave", '`'),
    ("gt", '>'),
    ("hairsp", '\u{200A}'),
    ("laquo", '\u{AB}'),
    ("lbrace", '{'),
    ("lbrack", '['),
    ("lcub", '{'),
    ("ldquo", '\u{201C}'),
    ("ldquor", '\u{201E}'),
    ("lowbar", '_'),
    ("lpar", '('),
    ("lsqb", '['),
    ("lsquo", '\u{2018}'),
    ("lsquor", '\u{201A}'),
    ("lt", '<'),
    ("midast", '*'),
    ("nbsp", '\u{A0}'),
    ("num", '#'),
    ("numsp", '\u{2007}'),
    ("percnt", '%'),
    ("period", '.'),
    ("plus", '+'),
    ("puncsp", '\u{2008}'),
    ("quest", '?'),
    ("quot", '"'),
    ("raquo", '\u{BB}'),
    ("rbrace", '}'),
    ("rbrack", ']'),
    ("rcub", '}'),
    ("rdquo", '\u{201D}'),
    ("rdquor", '\u{201D}'),
    ("rpar", ')'),
    ("rsqb", ']'),
    ("rsquo", '\u{2019}'),
    ("rsquor", '\u{2019}'),
    ("sbquo", '\u{201A}'),
    ("semi", ';'),
    ("sol", '/'),
    ("thinsp", '\u{2009}'),
    ("verbar", '|'),
    ("vert", '|'),
];

/// Names that the standard also accepts without a semicolon, because old pages use them
/// that way.
const BARE_NAMES: [(&str, char); 11] = [
    ("AMP", '&'),
    ("GT", '>'),
    ("LT", '<'),
    ("QUOT", '"'),
    ("amp", '&'),
    ("gt", '>'),
    ("laquo", '\u{AB}'),
    ("lt", '<'),
    ("nbsp", '\u{A0}'),
    ("quot", '"'),
    ("raquo", '\u{BB}'),
];

/// Returns the value of an attribute with its references replaced.
pub(super) fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains('&') {
        return Cow::Borrowed(value);
    }
    let mut decoded = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(start) = rest.find('&') {
        decoded.push_str(&rest[..start]);
        let reference = &rest[start + 1..];
        if let Some((letter, after)) = numeric(reference).or_else(|| named(reference)) {
            decoded.push(letter);
            rest = after;
        } else {
            decoded.push('&');
            rest = reference;
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// Reads `#105;` or `#x69;`; the semicolon is optional. Returns the character and the
/// text after it.
fn numeric(text: &str) -> Option<(char, &str)> {
    let text = text.strip_prefix('#')?;
    let (text, radix) = match text.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = text.find(|letter: char| !letter.is_digit(radix));
    let (digits, after) = text.split_at(end.unwrap_or(text.len()));
    if digits.is_empty() {
        return None;
    }
    // Digits fail to parse only if the number is too large to be a character.
    let number = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    Some((letter(number), after.strip_prefix(';').unwrap_or(after)))
}

/// Returns the character with this number. The control characters of Windows-1252 stand
/// for its printable ones (13.2.5.80), as in old pages.
fn letter(number: u32) -> char {
    if number == 0 {
        return char::REPLACEMENT_CHARACTER;
    }
    if let Ok(byte @ 0x80..=0x9F) = u8::try_from(number) {
        let text = [byte];
        let (text, _) = WINDOWS_1252.decode_without_bom_handling(&text);
        return text.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
    }
    char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Reads `amp;`, or one of [`BARE_NAMES`]. Returns the character and the text after it.
fn named(text: &str) -> Option<(char, &str)> {
    let whole = NAMES.iter().find_map(|&(name, letter)| {
        let after = text.strip_prefix(name)?.strip_prefix(';')?;
        Some((letter, after))
    });
    whole.or_else(|| {
        BARE_NAMES.iter().find_map(|&(name, letter)| {
            let after = text.strip_prefix(name)?;
            // `&lt=` and `&ltx` are usually part of a URL's query string, so they stay.
            let is_longer = |next: char| next == '=' || next.is_ascii_alphanumeric();
            (!after.starts_with(is_longer)).then_some((letter, after))
        })
    })
}

#[cfg(test)]
mod tests {
    use html5ever::data::NAMED_ENTITIES;

    use super::super::vocabulary::is_margin;
    use super::*;

    macro_rules! references {
        ($($name:ident: $text:literal is $decoded:literal;)*) => {$(
            #[test]
            fn $name() {
                assert_eq!(decoded($text), $decoded);
            }
        )*};
    }

    // HTML standard, 13.2.5.72 to 13.2.5.80.
    references! {
        decimal: "&#114;obots" is "robots";
        hexadecimal_in_either_case: "no&#x69;nde&#X78;" is "noindex";
        the_semicolon_is_optional: "&#110oindex" is "noindex";
        a_named_comma: "noindex&comma;nofollow" is "noindex,nofollow";
        a_bare_name_ends_a_word: "a&amp b&ltc&lt=" is "a& b&ltc&lt=";
        zero_and_surrogates_are_replaced: "&#0;&#xD800;&#x110000;&#99999999999;" is "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}";
        numbers_of_windows_1252: "&#147;x&#x94;&#x82;&#133;&#x81;" is "\u{201C}x\u{201D}\u{201A}\u{2026}\u{81}";
        blanks_have_many_names: "a&thinsp;b&NewLine;c&nbsp" is "a\u{2009}b\nc\u{A0}";
        a_bare_name_does_not_match_inside_a_longer_name: "&ltdot;&lt.&QUOT" is "&ltdot;<.\"";
        text_that_is_not_a_reference_stays: "a&b &; &# &#; &#x; &nothing; &" is "a&b &; &# &#; &#x; &nothing; &";
    }

    // HTML standard, 13.5: all named references.
    #[test]
    fn every_name_that_matters_is_known() {
        let matters = |letter: char| {
            let is_sign = letter.is_ascii() && !letter.is_ascii_alphanumeric();
            is_sign || is_margin(letter)
        };
        for (name, &(first, second)) in NAMED_ENTITIES.entries() {
            let Some(letter) = char::from_u32(first).filter(|_| first != 0) else {
                continue;
            };
            let text = format!("&{name}");
            if second == 0 && matters(letter) && !name.is_empty() {
                assert_eq!(decoded(&text), letter.to_string(), "{name}");
            } else if name.ends_with(';') {
                assert_eq!(decoded(&text), text, "{name}");
            }
        }
    }
}
