//! `Content-Usage` values to statements (draft-ietf-aipref-vocab-08, section 6).
//!
//! The value is a dictionary of RFC 9651. Where it cannot be read as one,
//! nothing is known of any use; labels and values that are not defined say
//! nothing, so that the use is as if it were not mentioned.

use std::borrow::Cow;

use sfv::{BareItem, Dictionary, Item, ListEntry, Parser, TokenRef, token_ref};

use super::uses::{Answer, Statement};

/// The labels of revision 08 (section 6.1); earlier revisions had others.
const LABELS: [&TokenRef; 2] = [token_ref("train-ai"), token_ref("search")];

/// The lines of the field as the one value that they are (RFC 9651, section
/// 4.2). An empty line adds nothing.
pub(super) fn joined<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Cow<'a, [u8]> {
    let mut lines = lines.filter(|line| !line.trim_ascii().is_empty());
    let Some(first) = lines.next() else {
        return Cow::default();
    };
    lines.fold(Cow::Borrowed(first), |mut whole, line| {
        whole.to_mut().extend_from_slice(b", ");
        whole.to_mut().extend_from_slice(line);
        whole
    })
}

/// What a dictionary says (section 6.5). Of a label given twice the last
/// counts, and its parameters mean nothing.
pub(super) fn statements(dictionary: &[u8]) -> Vec<Statement> {
    if dictionary.is_empty() {
        return Vec::new();
    }
    let read = Parser::new(dictionary).parse::<Dictionary>();
    let read = read.unwrap_or_default();
    let stated = LABELS.into_iter().filter_map(|label| {
        let answer = answer(read.get(label.as_str())?)?;
        Some((label, answer))
    });
    stated.collect()
}

/// Section 6.2: `y` and `n` are tokens, and all else is unknown.
fn answer(value: &ListEntry) -> Option<Answer> {
    let ListEntry::Item(Item {
        bare_item: BareItem::Token(word),
        ..
    }) = value
    else {
        return None;
    };
    match word.as_str() {
        "y" => Some(Answer::Yes),
        "n" => Some(Answer::No),
        _ => None,
    }
}
