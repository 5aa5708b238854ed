//! Character references in the values of attributes (`no&#x69;ndex`).
//!
//! HTML standard, 13.2.5.72 to 13.2.5.80. Of its 2,231 named references only
//! those are known that can stand in a list of directives; others stay as they
//! are, and make a word that is no directive.

use std::borrow::Cow;

/// Named references, and what they stand for.
const NAMES: [(&str, char); 24] = [
    ("amp", '&'),
    ("apos", '\''),
    ("ast", '*'),
    ("colon", ':'),
    ("comma", ','),
    ("dash", '\u{2010}'),
    ("equals", '='),
    ("gt", '>'),
    ("hyphen", '\u{2010}'),
    ("ldquo", '\u{201C}'),
    ("lowbar", '_'),
    ("lsquo", '\u{2018}'),
    ("lt", '<'),
    ("nbsp", '\u{A0}'),
    ("NewLine", '\n'),
    ("num", '#'),
    ("period", '.'),
    ("plus", '+'),
    ("quot", '"'),
    ("rdquo", '\u{201D}'),
    ("rsquo", '\u{2019}'),
    ("semi", ';'),
    ("sol", '/'),
    ("Tab", '\t'),
];

/// Names that history allows without a semicolon.
const BARE_NAMES: [(&str, char); 5] = [
    ("amp", '&'),
    ("gt", '>'),
    ("lt", '<'),
    ("nbsp", '\u{A0}'),
    ("quot", '"'),
];

/// The value of an attribute with its references replaced.
pub(super) fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains('&') {
        return Cow::Borrowed(value);
    }
    let mut decoded = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(start) = rest.find('&') {
        decoded.push_str(&rest[..start]);
        let reference = &rest[start + 1..];
        if let Some((letter, behind)) = numeric(reference).or_else(|| named(reference)) {
            decoded.push(letter);
            rest = behind;
        } else {
            decoded.push('&');
            rest = reference;
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// `#105;` or `#x69;`, the semicolon optional; and what stands behind.
fn numeric(text: &str) -> Option<(char, &str)> {
    let text = text.strip_prefix('#')?;
    let (text, radix) = match text.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = text.find(|letter: char| !letter.is_digit(radix));
    let (digits, behind) = text.split_at(end.unwrap_or(text.len()));
    if digits.is_empty() {
        return None;
    }
    // Only a number too large for a character fails here.
    let number = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    Some((letter(number), behind.strip_prefix(';').unwrap_or(behind)))
}

/// The character of a number. Numbers of controls that Windows-1252 has
/// letters for mean those (13.2.5.80).
fn letter(number: u32) -> char {
    match number {
        0 => char::REPLACEMENT_CHARACTER,
        0x91 => '\u{2018}',
        0x92 => '\u{2019}',
        0x93 => '\u{201C}',
        0x94 => '\u{201D}',
        _ => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

fn named(text: &str) -> Option<(char, &str)> {
    let whole = NAMES.iter().find_map(|&(name, letter)| {
        let behind = text.strip_prefix(name)?.strip_prefix(';')?;
        Some((letter, behind))
    });
    whole.or_else(|| {
        BARE_NAMES.iter().find_map(|&(name, letter)| {
            let behind = text.strip_prefix(name)?;
            let is_longer = |next: char| next == '=' || next.is_ascii_alphanumeric();
            (!behind.starts_with(is_longer)).then_some((letter, behind))
        })
    })
}

#[cfg(test)]
mod tests {
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
        windows_quotes: "&#147;x&#x94;" is "\u{201C}x\u{201D}";
        what_is_none_stays: "a&b &; &# &#; &#x; &nothing; &" is "a&b &; &# &#; &#x; &nothing; &";
    }
}
