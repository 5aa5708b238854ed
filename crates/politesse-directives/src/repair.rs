//! Repair of damaged directive lists: text that a person reads as a restriction counts.
//!
//! People separate directives with `|`, write `no-index`, or paste invisible
//! characters. A list with such damage is read twice, as written and repaired, and both
//! readings are in force: a repair only ever adds restrictions. Words that loosen
//! (`index`, `all`) are never repaired. Ours; see docs/annotation.md.
//!
//! Does not know crawlers or values.

use memchr::memchr2_iter;

use super::vocabulary::{is_invisible, lookup, lookup_hyphenated};

/// Returns a list with its damage repaired; `None` if there is no damage.
///
/// The text of a date is never cut: a separator that may occur in a date counts only
/// next to a directive.
pub(super) fn repaired(text: &str) -> Option<String> {
    if !may_be_damaged(text) {
        return None;
    }
    let plain: String = text.chars().filter_map(plain).collect();
    let repaired = with_joined_words(&with_separators(&plain));
    (repaired != text).then_some(repaired)
}

/// Reports whether a list contains anything that may need repair. Nearly all lists do
/// not, and this check must add hardly any cost to reading them.
fn may_be_damaged(text: &str) -> bool {
    let text = text.as_bytes();
    let is_odd = |byte: u8| !byte.is_ascii() | b"|&+/.!".contains(&byte);
    let is_no = |letters: &[u8]| {
        (letters[0] | 0x20 == b'n') & (letters[1] | 0x20 == b'o') & (letters[2] <= b' ')
    };
    // No early exit, so that the compiler vectorises the loop.
    let has_odd = text.iter().fold(false, |found, &byte| found | is_odd(byte));
    let has_no = text
        .windows(3)
        .fold(false, |found, letters| found | is_no(letters));
    let mut hyphens = memchr2_iter(b'-', b'_', text);
    has_odd || has_no || hyphens.any(|at| !is_usual_hyphen(text, at))
}

/// Reports whether a hyphen belongs to the name of a directive, correctly written, or
/// stands before a number.
fn is_usual_hyphen(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    let follows = |word: &[u8]| {
        let start = before.len().checked_sub(word.len());
        start.is_some_and(|start| before[start..].eq_ignore_ascii_case(word))
    };
    if text[at] == b'_' {
        return follows(b"unavailable");
    }
    let is_inside = before.last().is_some_and(u8::is_ascii_alphanumeric);
    !is_inside || follows(b"max") || follows(b"max-image") || follows(b"max-video")
}

/// Returns the ASCII character that a separator or hyphen of another script or width
/// stands for (`，` for `,`), a comma for `|` and `&`, and any other character unchanged;
/// `None` for an invisible character.
fn plain(letter: char) -> Option<char> {
    match letter {
        '|' | '&' | '，' | '﹐' | '､' | '、' | '،' | '؛' | '；' | '｜' | '＆' => {
            Some(',')
        }
        '：' => Some(':'),
        '．' | '。' => Some('.'),
        '／' => Some('/'),
        '＋' => Some('+'),
        '！' => Some('!'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some('-'),
        letter => (!is_invisible(letter)).then_some(letter),
    }
}

/// Returns a list with commas in place of other separators, and without superfluous
/// hyphens in restrictions.
///
/// `. / + !` separate only next to a directive or at the end of a segment, because
/// names of crawlers, versions, numbers and dates contain them as well.
fn with_separators(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut follows_directive = false;
    while let Some(letter) = rest.chars().next() {
        if is_word(letter) {
            let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let hyphenated = lookup_hyphenated(word);
            out.push_str(hyphenated.map_or(word, |word| word.name.as_str()));
            follows_directive = hyphenated.is_some() || lookup(word).is_some();
            rest = after;
            continue;
        }
        let after = &rest[letter.len_utf8()..];
        let separates = "./+!".contains(letter)
            && (follows_directive || begins_with_directive(after) || ends_segment(after));
        out.push(if separates { ',' } else { letter });
        follows_directive &= letter == ' ';
        rest = after;
    }
    out
}

/// Reports whether the first word of a text is a directive, even if misspelt with hyphens.
fn begins_with_directive(text: &str) -> bool {
    let text = text.trim_start();
    let end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    let word = &text[..end];
    lookup(word).is_some() || lookup_hyphenated(word).is_some()
}

/// Reports whether a segment ends at the beginning of `text`.
fn ends_segment(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with([',', ';'])
}

/// Returns a list with `no index` joined into one word, in segments that consist only
/// of directives. In any other segment, `no` is part of a sentence.
fn with_joined_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for segment in text.split_inclusive([',', ';', ':', '=']) {
        match joined(segment.trim_end_matches([',', ';', ':', '='])) {
            Some(words) => {
                out.push_str(&words);
                out.extend(
                    segment
                        .chars()
                        .next_back()
                        .filter(|&it| ",;:=".contains(it)),
                );
            }
            None => out.push_str(segment),
        }
    }
    out
}

/// Joins each `no` in a segment with the word after it. Returns `None` if there is no
/// `no`, or if not all resulting words are directives.
fn joined(segment: &str) -> Option<String> {
    let mut joined = String::new();
    let mut has_no = false;
    let mut words = segment.split_whitespace();
    while let Some(word) = words.next() {
        joined.push(' ');
        let start = joined.len();
        joined.push_str(word);
        if word.eq_ignore_ascii_case("no") {
            has_no = true;
            joined.push_str(words.next()?);
        }
        lookup(&joined[start..])?;
    }
    has_no.then_some(joined)
}

/// Reports whether a character may be part of a directive's name.
fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! repairs {
        ($($name:ident: $text:literal is $repaired:expr;)*) => {$(
            #[test]
            fn $name() {
                let wanted: Option<&str> = $repaired;
                assert_eq!(repaired($text).as_deref(), wanted);
            }
        )*};
    }

    // Ours.
    repairs! {
        a_plain_list_has_no_damage: "noindex, max-snippet:-1; ExampleBot: nofollow" is None;
        names_with_hyphens_are_no_damage: "max-image-preview:large, Other-Bot: noindex" is None;
        a_bar_separates: "noindex|nofollow" is Some("noindex,nofollow");
        a_slash_beside_a_directive_separates: "noindex/x, x/NoFollow" is Some("noindex,x, x,NoFollow");
        a_slash_in_a_version_does_not_separate: "ExampleBot/2.1: noindex" is None;
        a_point_in_a_name_does_not_separate: "example.bot: noindex" is None;
        a_point_ends_a_list: "noindex, max-snippet:20." is Some("noindex, max-snippet:20,");
        marks_of_other_scripts_separate: "a，b、c،d؛e：f" is Some("a,b,c,d,e:f");
        invisible_characters_are_removed: "no\u{200B}index\u{FEFF}\u{AD}" is Some("noindex");
        hyphens_may_be_too_many: "No-Index, no_image-index" is Some("noindex, noimageindex");
        hyphens_may_be_missing_or_of_another_kind: "max_snippet:1, max\u{2011}snippet:1, unavailable-after:x"
            is Some("max-snippet:1, max-snippet:1, unavailable_after:x");
        a_word_that_loosens_is_not_repaired: "in-dex, al_l, no_n-e-" is None;
        words_are_joined_among_directives_alone: "no index, a: No Follow index; no index please"
            is Some(" noindex, a: NoFollow index; no index please");
        a_date_is_not_cut: "unavailable_after: 2100-01-01T00:00:00.5+01:00" is None;
        a_date_ends_at_a_directive: "unavailable_after: 2100-01-01/noindex"
            is Some("unavailable_after: 2100-01-01,noindex");
    }
}
