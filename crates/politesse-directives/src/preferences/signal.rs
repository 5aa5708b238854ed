//! `Content-Signal` values to statements (contentsignals.org).
//!
//! `search=yes, ai-input=no, ai-train=no, use=reference`, in robots.txt and as
//! a field. There is no grammar, and packages write it as they like (`allow`
//! for `yes`, quotes, blanks): whatever stands on the two sides of a `=` is
//! read, and of several answers the strictest counts.

use sfv::{TokenRef, token_ref};

use super::uses::{Answer, Statement};

const SIGNALS: [&TokenRef; 3] = [
    token_ref("search"),
    token_ref("ai-input"),
    token_ref("ai-train"),
];
/// How far any use may go, since July 2026.
const USE: &TokenRef = token_ref("use");

/// What a value says; names and values that are not known say nothing.
pub(super) fn statements(value: &[u8]) -> impl Iterator<Item = Statement> {
    let mut sides = value.split(|byte| *byte == b'=');
    let mut left = sides.next().unwrap_or_default();
    sides.filter_map(move |right| {
        let name = last_word(left);
        left = right;
        statement(name, first_word(right))
    })
}

fn statement(name: &[u8], value: &[u8]) -> Option<Statement> {
    let is = |known: &&TokenRef| name.eq_ignore_ascii_case(known.as_str().as_bytes());
    if is(&USE) {
        return Some((USE, level(value)?));
    }
    let signal = SIGNALS.into_iter().find(is)?;
    Some((signal, answer(value)?))
}

fn answer(value: &[u8]) -> Option<Answer> {
    let is = |word: &&[u8]| value.eq_ignore_ascii_case(word);
    if [&b"yes"[..], b"y", b"allow"].iter().any(is) {
        Some(Answer::Yes)
    } else {
        let no = [&b"no"[..], b"n", b"disallow"].iter().any(is);
        no.then_some(Answer::No)
    }
}

fn level(value: &[u8]) -> Option<Answer> {
    const LEVELS: [(&[u8], Answer); 3] = [
        (b"immediate", Answer::Immediate),
        (b"reference", Answer::Reference),
        (b"full", Answer::Full),
    ];
    let level = LEVELS
        .iter()
        .find(|(word, _)| value.eq_ignore_ascii_case(word));
    level.map(|(_, level)| *level)
}

fn first_word(text: &[u8]) -> &[u8] {
    let mut words = text.split(|byte| !is_word(*byte));
    words.find(|word| !word.is_empty()).unwrap_or_default()
}

fn last_word(text: &[u8]) -> &[u8] {
    let mut words = text.rsplit(|byte| !is_word(*byte));
    words.find(|word| !word.is_empty()).unwrap_or_default()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}
