//! Character references in the values of attributes (`no&#x69;ndex`).
//!
//! HTML standard, 13.2.5.72 to 13.2.5.80. All numeric references are replaced by their
//! character. Of the 2,231 named ones, only those are replaced that can separate, quote or
//! end the words of a list of directives: spaces, quotes and punctuation. The others stay
//! as written, and a word that contains one is no known directive. Replacing it would not
//! change that: directives consist of ASCII characters, and none of the others stands for
//! a single one. Does not know which attributes are read.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;

/// Names of the references that are replaced (`&amp;`), and their characters.
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

/// Names in [`NAMES`] that the standard accepts with and without a semicolon (`&amp`),
/// because old pages leave it out.
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

/// Returns the value of an attribute with its references replaced. Text after `&` that is
/// not a reference, or whose name is not in [`NAMES`], stays as written.
pub(super) fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains('&') {
        return Cow::Borrowed(value);
    }
    let mut decoded = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(start) = rest.find('&') {
        decoded.push_str(&rest[..start]);
        let reference = &rest[start + 1..];
        if let Some((character, after)) = numeric(reference).or_else(|| named(reference)) {
            decoded.push(character);
            rest = after;
        } else {
            decoded.push('&');
            rest = reference;
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// Reads a numeric reference after its `&`: `#105;` or `#x69;`, with or without the
/// semicolon. Returns the character and the text after the reference; `None` if `text`
/// does not begin with one.
fn numeric(text: &str) -> Option<(char, &str)> {
    let text = text.strip_prefix('#')?;
    let (text, radix) = match text.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = text.find(|character: char| !character.is_digit(radix));
    let (digits, after) = text.split_at(end.unwrap_or(text.len()));
    if digits.is_empty() {
        return None;
    }
    // Digits fail to parse only if the number is too large to be a character.
    let number = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    Some((
        character_of(number),
        after.strip_prefix(';').unwrap_or(after),
    ))
}

/// Returns the character that a numeric reference with this number stands for
/// (13.2.5.80), or U+FFFD if the number is not a character.
///
/// That is the Unicode character, with one exception: 0x80 to 0x9F, which Unicode gives
/// to control characters, are read as bytes of Windows-1252. Old pages number its quotes
/// that way (`&#147;` is `“`).
fn character_of(number: u32) -> char {
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

/// Reads a named reference after its `&`: one of [`NAMES`] with a semicolon (`amp;`), or
/// one of [`BARE_NAMES`] without (`amp`). Returns the character and the text after the
/// reference; `None` if `text` does not begin with one.
fn named(text: &str) -> Option<(char, &str)> {
    let terminated = NAMES.iter().find_map(|&(name, character)| {
        let after = text.strip_prefix(name)?.strip_prefix(';')?;
        Some((character, after))
    });
    terminated.or_else(|| {
        BARE_NAMES.iter().find_map(|&(name, character)| {
            let after = text.strip_prefix(name)?;
            // Before `=`, a letter or a digit (`&lt=`, `&ltx`) the name is usually that of
            // a parameter in a URL, so the standard leaves it as written.
            let is_parameter = |next: char| next == '=' || next.is_ascii_alphanumeric();
            (!after.starts_with(is_parameter)).then_some((character, after))
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

    // HTML standard, 13.5: all named references. html5ever lists each with the numbers of
    // its two characters; the second is 0 if there is only one.
    #[test]
    fn every_name_of_a_separator_or_quote_is_known() {
        let matters = |character: char| {
            let is_sign = character.is_ascii() && !character.is_ascii_alphanumeric();
            is_sign || is_margin(character)
        };
        for (name, &(first, second)) in NAMED_ENTITIES.entries() {
            // html5ever also lists every beginning of a name, with the number 0. Those are
            // not references.
            let Some(character) = char::from_u32(first).filter(|_| first != 0) else {
                continue;
            };
            let text = format!("&{name}");
            if second == 0 && matters(character) && !name.is_empty() {
                assert_eq!(decoded(&text), character.to_string(), "{name}");
            } else if name.ends_with(';') {
                assert_eq!(decoded(&text), text, "{name}");
            }
        }
    }
}
