//! The paths of RFC 9309 and of the 2019 draft: patterns with `*` and `$`, in
//! canonical form, the most specific of which counts.

use super::lines::{Kind, Rule};

/// The matching rule with the most octets; of equal ones an Allow, of those the
/// first in the file (RFC 9309, section 2.2.2).
pub(super) fn most_specific<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    path: &[u8],
) -> Option<&'a Rule> {
    let path = canonical_path(path);
    let matching = rules.filter(|rule| is_match(rule, &path));
    matching.min_by_key(|rule| {
        let octets = Pattern::of(&rule.value).map_or(0, |pattern| pattern.octets());
        let after_allow = rule.kind == Kind::Disallow;
        (usize::MAX - octets, after_allow, rule.line)
    })
}

/// Whether the rule matches the canonical `path`.
///
/// In a query a Disallow matches in either form of the reserved octets, encoded
/// or not: the second row of section 2.2.2's table can be read both ways, and
/// neither reading is to let through what the other keeps out.
fn is_match(rule: &Rule, path: &[u8]) -> bool {
    let Some(pattern) = Pattern::of(&rule.value) else {
        return false;
    };
    match rule.kind {
        Kind::Allow => pattern.covers_octets(path),
        Kind::Disallow => pattern.covers_octets(path) || pattern.covers_folded(path),
    }
}

/// The value of a rule, ready to be compared.
#[derive(Debug)]
struct Pattern {
    /// Its canonical form. Each `*` in it is a wildcard.
    text: Vec<u8>,
    /// Whether a `$` stood at its end (section 2.2.3).
    is_anchored: bool,
}

/// A piece of a canonical path that is compared as a whole.
#[derive(Debug)]
struct Unit<'a> {
    /// An octet, or an escape.
    text: &'a [u8],
    /// Whether reserved octets and their escapes are the same here.
    is_folded: bool,
}

impl Pattern {
    /// The pattern that `value` writes. Section 2.2, `path-pattern`: it begins
    /// with `/`; section 5.1 shows that `*` will do. Anything else matches
    /// nothing.
    fn of(value: &[u8]) -> Option<Self> {
        if !value.starts_with(b"/") && !value.starts_with(b"*") {
            return None;
        }
        let before = value.strip_suffix(b"$");
        Some(Self {
            text: canonical(before.unwrap_or(value)),
            is_anchored: before.is_some(),
        })
    }

    /// How specific it is: its octets, `*` and `$` counted.
    fn octets(&self) -> usize {
        self.text.len() + usize::from(self.is_anchored)
    }

    /// Section 2.2.2: "The match evaluates positively if and only if the end of
    /// the path from the rule is reached before a difference in octets is
    /// encountered."
    fn covers_octets(&self, path: &[u8]) -> bool {
        let pieces: Vec<&[u8]> = self.text.chunks(1).collect();
        let path: Vec<Unit<'_>> = path.chunks(1).map(Unit::exact).collect();
        self.covers(&pieces, &path)
    }

    /// The same, with each escape as one unit, and with reserved octets and
    /// their escapes alike behind the first `?` of the path. What is in the
    /// query is told by the path: behind a `*` the pattern cannot know.
    fn covers_folded(&self, path: &[u8]) -> bool {
        let query = path.iter().position(|&octet| octet == b'?');
        let query = query.map_or(path.len(), |mark| mark + 1);
        let before = units(&path[..query]).into_iter().map(Unit::exact);
        let behind = units(&path[query..]).into_iter().map(Unit::folded);
        let path: Vec<Unit<'_>> = before.chain(behind).collect();
        self.covers(&units(&self.text), &path)
    }

    /// Whether `pieces`, which are this pattern's, match from the first unit of
    /// `path`, and up to the last if the pattern is anchored.
    fn covers(&self, pieces: &[&[u8]], path: &[Unit<'_>]) -> bool {
        // How many units the pieces so far can stand for, in order.
        let mut ends = vec![0];
        for piece in pieces {
            if *piece == b"*" {
                // Section 2.2.3: zero or more octets.
                ends = (ends[0]..=path.len()).collect();
            } else {
                ends.retain(|&end| path.get(end).is_some_and(|unit| unit.equals(piece)));
                ends.iter_mut().for_each(|end| *end += 1);
            }
            if ends.is_empty() {
                return false;
            }
        }
        !self.is_anchored || ends.contains(&path.len())
    }
}

impl<'a> Unit<'a> {
    fn exact(text: &'a [u8]) -> Self {
        let is_folded = false;
        Self { text, is_folded }
    }

    fn folded(text: &'a [u8]) -> Self {
        let is_folded = true;
        Self { text, is_folded }
    }

    /// Whether a piece of a pattern is the same.
    fn equals(&self, piece: &[u8]) -> bool {
        let both = (reserved(self.text), reserved(piece));
        let is_same = matches!(both, (Some(here), Some(there)) if here == there);
        self.text == piece || (self.is_folded && is_same)
    }
}

/// The reserved octet (RFC 3986, section 2.2) that a unit writes.
fn reserved(unit: &[u8]) -> Option<u8> {
    let octet = match unit {
        [octet] => *octet,
        _ => escape(unit)?,
    };
    b":/?#[]@!$&'()*+,;=".contains(&octet).then_some(octet)
}

/// The octets and escapes of a canonical text.
fn units(text: &[u8]) -> Vec<&[u8]> {
    let mut units = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = if escape(rest).is_some() { 3 } else { 1 };
        units.push(&rest[..length]);
        rest = &rest[length..];
    }
    units
}

/// The canonical form of a URL's path: a `*` or `$` in it is no special
/// character, so it is compared as section 2.2.3 has it written, encoded.
fn canonical_path(path: &[u8]) -> Vec<u8> {
    let encoded = |octet: u8| match octet {
        b'*' => b"%2A".to_vec(),
        _ => vec![octet],
    };
    canonical(path).into_iter().flat_map(encoded).collect()
}

/// The form in which both sides are compared (section 2.2.2): escapes of
/// unreserved octets decoded, other escapes in upper case, octets that a URI
/// cannot have encoded, and every `$`. A `%` that begins no escape stays.
fn canonical(text: &[u8]) -> Vec<u8> {
    let mut canonical = Vec::new();
    let mut rest = text;
    while let Some((&octet, after)) = rest.split_first() {
        match escape(rest) {
            Some(decoded) if is_unreserved(decoded) => canonical.push(decoded),
            Some(decoded) => canonical.extend(encoded(decoded)),
            None if is_to_encode(octet) => canonical.extend(encoded(octet)),
            None => canonical.push(octet),
        }
        rest = if escape(rest).is_some() {
            &rest[3..]
        } else {
            after
        };
    }
    canonical
}

/// The octet whose escape `text` begins with.
pub(super) fn escape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |octet: u8| char::from(octet).to_digit(16);
    let value = digit(*high)? * 16 + digit(*low)?;
    u8::try_from(value).ok()
}

fn encoded(octet: u8) -> Vec<u8> {
    format!("%{octet:02X}").into_bytes()
}

/// RFC 3986, section 2.3.
fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

/// Octets that are neither reserved nor unreserved, and `$`, which is an
/// ordinary octet everywhere but at the end of a rule.
fn is_to_encode(octet: u8) -> bool {
    !(0x21..=0x7E).contains(&octet) || b"\"<>\\^`{|}$".contains(&octet)
}
