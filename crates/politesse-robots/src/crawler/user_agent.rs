//! Names in a User-Agent that may be the crawler's product token.
//!
//! RFC 9110, section 10.1.5, defines the format: products, the most significant first,
//! and comments. The position of the crawler's name is a convention: most crawlers claim
//! to be a browser first, and name themselves in a comment. Does not know agent lines.

use std::borrow::Cow;

use super::name_text::{
    is_generic, is_letter_outside_ascii, is_library, is_name_letter, is_number, leading_run,
    without_version,
};
use super::token::ProductToken;

/// Maximum number of names to consider. The longest known User-Agent has a quarter of
/// that.
const NAMES_MAX: usize = 64;

/// Candidates derived from a User-Agent.
pub(super) struct DerivedCandidates {
    /// Names to match, best first, without duplicates.
    pub(super) candidates: Vec<ProductToken>,
    /// Whether names were dropped, because there are too many or because one is not a
    /// valid token.
    pub(super) is_cut: bool,
}

/// Derives the candidates from the values of the User-Agent field.
///
/// Ignores names that every browser sends, and uses names of libraries only if there are
/// no others. A number is an additional name, and does not exclude others: it may be a
/// date, or the hours of `24/7`.
pub(super) fn candidates(values: &[Cow<'_, str>]) -> DerivedCandidates {
    let mut names: Vec<_> = values.iter().flat_map(|value| names(value)).collect();
    if names.iter().all(Name::is_number) {
        names.extend(values.iter().flat_map(|value| names_by_trade(value)));
    }
    let are_too_many = NAMES_MAX < names.len();
    names.sort_by_key(|name| name.rank);
    if names
        .iter()
        .any(|name| !name.is_library() && !name.is_number())
    {
        names.retain(|name| !name.is_library());
    }
    let is_nameless = |name: &Name<'_>| name.tokens().next().is_none();
    let is_cut = are_too_many || names.iter().any(is_nameless);
    let mut candidates = Vec::new();
    for token in names.iter().take(NAMES_MAX).flat_map(Name::candidates) {
        if !candidates.contains(&token) {
            candidates.push(token);
        }
    }
    DerivedCandidates { candidates, is_cut }
}

/// Name in a User-Agent, with or without a version: `Example Bot/1.0`.
struct Name<'a> {
    words: Vec<&'a str>,
    versioned: bool,
    rank: NameRank,
}

/// Position of a name, ordered by the likelihood that it is the crawler's own, likeliest
/// first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameRank {
    /// In a comment, after `compatible;`.
    Compatible,
    /// With a version, in a comment that has a URL or a mail address.
    Contact,
    /// A product outside comments; or a number with a version in a comment that has a URL
    /// or a mail address.
    Product,
    /// In a comment that has a URL or a mail address, the beginning of a product's name:
    /// `ExampleBot-News/1.0 (ExampleBot; +https://…)`.
    Family,
    /// In any comment, such as a browser's description of its system, if the name itself
    /// says that it is a crawler.
    Trade,
}

/// Part of a User-Agent (RFC 9110, section 10.1.5).
#[derive(Clone, Copy)]
enum UserAgentPart<'a> {
    Products(&'a str),
    /// Text without the outer parentheses; comments may nest.
    Comment(&'a str),
}

impl Name<'_> {
    /// Returns the possible tokens, best first: as sent, then without a version that
    /// follows `-` or `_`.
    fn candidates(&self) -> Vec<ProductToken> {
        let mut candidates: Vec<_> = self.tokens().chain(self.bare()).collect();
        let further: Vec<_> = candidates
            .iter()
            .filter_map(|token| without_version(token.as_str()))
            // `Windows-10` must not become the crawler `Windows`.
            .filter(|text| !is_generic(text))
            .filter_map(|text| ProductToken::new(text).ok())
            .collect();
        candidates.extend(further);
        candidates
    }

    /// Returns the first word that can be a product token, then the full name as sent.
    fn tokens(&self) -> impl Iterator<Item = ProductToken> {
        let whole = self.words.join(" ");
        let texts = self.word().map(str::to_owned).into_iter().chain([whole]);
        texts.filter_map(|text| ProductToken::new(&text).ok())
    }

    /// Returns the first word that consists only of name characters.
    fn word(&self) -> Option<&str> {
        let is_name = |word: &&str| word.chars().all(is_name_letter);
        self.words.iter().copied().find(is_name)
    }

    /// Returns the product token inside the first word, if no complete word is one: `EvilBot`
    /// in `EvilBot:1.0` or `[EvilBot`. Does not cut a word at a letter outside ASCII:
    /// `Jävla-Bot` does not contain the token `J`.
    fn bare(&self) -> Option<ProductToken> {
        if self.word().is_some() {
            return None;
        }
        let word = self.words.first()?;
        let named = word.trim_start_matches(|letter| !is_name_letter(letter));
        let margin = &word[..word.len() - named.len()];
        if margin.ends_with(is_letter_outside_ascii) {
            return None;
        }
        let bare = leading_run(named, is_name_letter)?;
        ProductToken::new(bare).ok().filter(|_| !is_generic(bare))
    }

    /// Reports whether the name is that of a library, with or without a version.
    fn is_library(&self) -> bool {
        let mut words = self.words.iter();
        words.any(|word| is_library(word) || without_version(word).is_some_and(is_library))
    }

    /// Reports whether the name consists only of numbers.
    fn is_number(&self) -> bool {
        self.words.iter().all(|word| is_number(word))
    }

    /// Reports whether this name begins with `other`.
    fn extends(&self, other: &Self) -> bool {
        let words = self.words.first().zip(other.words.first());
        words.is_some_and(|(own, other)| begins_with(own, other))
    }
}

/// Returns every name in one field value.
fn names(value: &str) -> Vec<Name<'_>> {
    let mut products = Vec::new();
    let mut in_comments = Vec::new();
    let parts = parts(value);
    products.extend(first_number(&parts));
    for part in parts {
        match part {
            UserAgentPart::Products(text) => {
                products.extend(fragments(text).flat_map(|text| names_in(text, NameRank::Product)));
            }
            UserAgentPart::Comment(text) => {
                in_comments.extend(names_behind_compatible(text));
                in_comments.extend(names_by_contact(text));
            }
        }
    }
    // Bounded, because otherwise a long User-Agent would take quadratic time.
    let in_family = |name: &Name<'_>| products.iter().take(NAMES_MAX).any(|own| own.extends(name));
    in_comments.retain(|name| name.rank != NameRank::Family || in_family(name));
    products.append(&mut in_comments);
    products
}

/// Returns the names after `compatible;` that have a version. If only numbers have one,
/// returns the names in the first fragment: in comments of browsers, the system follows it.
fn names_behind_compatible(comment: &str) -> Vec<Name<'_>> {
    let mut after = fragments(comment)
        .map(str::trim)
        .skip_while(|text| !text.eq_ignore_ascii_case("compatible"))
        .skip(1)
        .filter(|text| !text.is_empty());
    let first = after.next().unwrap_or_default();
    let rest: Vec<_> = after
        .flat_map(|text| names_in(text, NameRank::Compatible))
        .collect();
    let number = number_alone(first, NameRank::Compatible).into_iter();
    let first: Vec<_> = number
        .chain(names_in(first, NameRank::Compatible))
        .collect();
    let tells = |name: &Name<'_>| name.versioned && !name.is_number();
    if first.iter().chain(&rest).any(tells) {
        let all = first.into_iter().chain(rest);
        return all.filter(|name| name.versioned).collect();
    }
    first
}

/// Returns the names in a comment that also has a URL or a mail address.
fn names_by_contact(comment: &str) -> Vec<Name<'_>> {
    if !fragments(comment)
        .flat_map(str::split_whitespace)
        .any(is_contact)
    {
        return Vec::new();
    }
    let mut names: Vec<_> = fragments(comment)
        .flat_map(|text| names_in(text, NameRank::Contact))
        .collect();
    for name in &mut names {
        if !name.versioned {
            name.rank = NameRank::Family;
        } else if name.is_number() {
            name.rank = NameRank::Product;
        }
    }
    names
}

/// Returns the names in comments that have a version and contain `bot`, `crawler` or
/// `spider`: `(X11; Linux x86_64; Storebot-Google/1.0)`. Without a version, such a name may
/// be that of a device.
fn names_by_trade(value: &str) -> Vec<Name<'_>> {
    let names = parts(value).into_iter().flat_map(|part| match part {
        UserAgentPart::Products(_) => Vec::new(),
        UserAgentPart::Comment(text) => fragments(text)
            .flat_map(|text| names_in(text, NameRank::Trade))
            .collect(),
    });
    names
        .filter(|name| name.versioned && name.words.iter().any(|word| says_trade(word)))
        .collect()
}

fn says_trade(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["bot", "crawler", "spider"]
        .iter()
        .any(|trade| word.contains(trade))
}

/// Returns the number at the beginning of a User-Agent if it is the complete name: `008` in
/// `008 (+https://…)`.
fn first_number<'a>(parts: &[UserAgentPart<'a>]) -> Option<Name<'a>> {
    match parts.first()? {
        UserAgentPart::Products(text) => number_alone(fragments(text).next()?, NameRank::Product),
        UserAgentPart::Comment(_) => None,
    }
}

/// Returns a number without a version as a name, if only contacts follow it in `text`. In
/// any other place, a bare number is a version or a date.
fn number_alone(text: &str, rank: NameRank) -> Option<Name<'_>> {
    let mut words = text.split_whitespace();
    let number = words.next().filter(|word| is_number(word))?;
    words.all(is_contact).then(|| Name {
        words: vec![number],
        versioned: false,
        rank,
    })
}

/// Returns the names in a text without separators. A name is a run of words that ends at a
/// version, a contact or a generic word.
///
/// A number is a name if it has a version and begins a product: `008/0.83`, but not `95` in
/// `Windows 95/98`.
fn names_in(text: &str, rank: NameRank) -> Vec<Name<'_>> {
    let mut names = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    let mut begins_product = true;
    let mut end = |words: &mut Vec<_>, versioned| {
        let words = std::mem::take(words);
        if !words.is_empty() {
            names.push(Name {
                words,
                versioned,
                rank,
            });
        }
    };
    for word in text.split_whitespace() {
        let (name, version) = match word.split_once('/') {
            Some((name, _)) => (name, true),
            None => (word.trim_end_matches('+'), false),
        };
        let is_numbered = version && begins_product && is_number(name);
        let means_crawler = !is_contact(word) && (!is_generic(name) || is_numbered);
        begins_product = version;
        let fits = name.len() <= ProductToken::BYTES_MAX;
        // A word that is too long gets a name of its own, which cannot become a
        // token, so that the User-Agent counts as cut.
        if means_crawler && !fits {
            end(&mut words, false);
        }
        if means_crawler {
            words.push(name);
        }
        if version || !means_crawler || !fits {
            end(&mut words, version && means_crawler);
        }
    }
    end(&mut words, false);
    names
}

/// Splits a User-Agent into products and comments. An unclosed comment extends to the end.
fn parts(value: &str) -> Vec<UserAgentPart<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut depth, mut quoted) = (0, 0_usize, false);
    for (at, letter) in value.char_indices() {
        if std::mem::take(&mut quoted) {
            continue;
        }
        match letter {
            // A quoted pair (RFC 9110, section 5.6.4).
            '\\' => quoted = true,
            '(' if depth == 0 => {
                parts.extend(value.get(start..at).map(UserAgentPart::Products));
                (start, depth) = (at + 1, 1);
            }
            '(' => depth += 1,
            ')' if depth == 1 => {
                parts.extend(value.get(start..at).map(UserAgentPart::Comment));
                (start, depth) = (at + 1, 0);
            }
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let last = if depth == 0 {
        UserAgentPart::Products
    } else {
        UserAgentPart::Comment
    };
    parts.extend(value.get(start..).map(last));
    parts
}

fn fragments(text: &str) -> impl Iterator<Item = &str> {
    text.split([';', ',', '(', ')'])
}

/// Reports whether a word is a URL or a mail address.
fn is_contact(word: &str) -> bool {
    word.contains("://") || word.contains('@') || word.starts_with('+') || begins_with(word, "www.")
}

fn begins_with(word: &str, beginning: &str) -> bool {
    let start = word.get(..beginning.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(beginning))
}
