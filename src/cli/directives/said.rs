//! What a value of the annotation field says, read back from it as a crawler
//! would (RFC 9651).
//!
//! What people are told is then what crawlers are told. How it is told is not
//! known here.

use jiff::Timestamp;
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

/// A directive in force.
pub(super) struct Said {
    /// As the batch format has it (`max-snippet:20`).
    pub(super) directive: String,
    /// Where it was said, a letter each; none if the field had no room for them.
    pub(super) sources: Vec<String>,
    /// From when on it counts, if it has a date.
    pub(super) date: Option<Timestamp>,
}

/// The directives that `field` lists for the crawler, which its first key is
/// for.
pub(super) fn said(field: &str) -> Vec<Said> {
    let members: Dictionary = Parser::new(field).parse().unwrap_or_default();
    match members.into_values().next() {
        Some(ListEntry::InnerList(list)) => list.items.iter().filter_map(directive).collect(),
        Some(ListEntry::Item(_)) | None => Vec::new(),
    }
}

fn directive(item: &Item) -> Option<Said> {
    let name = item.bare_item.as_token()?;
    let value = item.params.get("value");
    let date = value.and_then(date);
    let value = match (value, date) {
        (_, Some(date)) => format!(":{date:.0}"),
        (Some(value), None) => format!(":{}", text(value)),
        (None, None) => String::new(),
    };
    Some(Said {
        directive: format!("{name}{value}"),
        sources: item.params.get("src").map_or(Vec::new(), letters),
        date,
    })
}

fn date(value: &BareItem) -> Option<Timestamp> {
    let seconds = value.as_date()?.unix_seconds();
    Timestamp::from_second(i64::from(seconds)).ok()
}

fn letters(value: &BareItem) -> Vec<String> {
    let letters = text(value);
    letters.split_whitespace().map(str::to_owned).collect()
}

/// A token or a string as it is, other values as the field has them.
fn text(value: &BareItem) -> String {
    match (value.as_token(), value.as_string()) {
        (Some(token), _) => token.to_string(),
        (None, Some(string)) => string.to_string(),
        (None, None) => sfv::ItemSerializer::new().bare_item(value).finish(),
    }
}
