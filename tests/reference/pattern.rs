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

/// A piece of a canonical path.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// An octet as it stands, be it part of an escape.
    Octet(u8),
    /// A reserved octet, whether it is written out or as its escape.
    Either(u8),
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
        let path: Vec<Unit> = path.iter().copied().map(Unit::Octet).collect();
        self.covers(&path)
    }

    /// The same, with reserved octets and their escapes alike behind the first
    /// `?` of the path. What is in the query is told by the path: behind a `*`
    /// the pattern cannot know.
    fn covers_folded(&self, path: &[u8]) -> bool {
        let query = path.iter().position(|&octet| octet == b'?');
        let (before, behind) = path.split_at(query.map_or(path.len(), |mark| mark + 1));
        let mut units: Vec<Unit> = before.iter().copied().map(Unit::Octet).collect();
        let mut rest = behind;
        while let Some(&octet) = rest.first() {
            let (unit, length) = match foldable(rest) {
                Some((reserved, length)) => (Unit::Either(reserved), length),
                None => (Unit::Octet(octet), 1),
            };
            units.push(unit);
            rest = &rest[length..];
        }
        self.covers(&units)
    }

    /// Whether the pattern matches from the first unit of `path`, and up to the
    /// last if it is anchored.
    fn covers(&self, path: &[Unit]) -> bool {
        // How many units the octets up to each can stand for, in order.
        let mut ends = vec![Vec::new(); self.text.len() + 1];
        ends[0].push(0);
        let mut furthest = 0;
        for at in 0..self.text.len() {
            if furthest < at {
                return false;
            }
            let here = std::mem::take(&mut ends[at]);
            let rest = &self.text[at..];
            if rest[0] == b'*' {
                // Section 2.2.3: zero or more octets.
                if let Some(&first) = here.iter().min() {
                    ends[at + 1] = (first..=path.len()).collect();
                    furthest = at + 1;
                }
                continue;
            }
            for end in here {
                if let Some(taken) = path.get(end).and_then(|unit| unit.begins(rest)) {
                    ends[at + taken].push(end + 1);
                    furthest = furthest.max(at + taken);
                }
            }
        }
        let last = &ends[self.text.len()];
        last.contains(&path.len()) || (!self.is_anchored && !last.is_empty())
    }
}

impl Unit {
    /// How many octets of `pattern`, which begins with it, it takes.
    fn begins(self, pattern: &[u8]) -> Option<usize> {
        match self {
            Self::Octet(octet) => pattern.starts_with(&[octet]).then_some(1),
            Self::Either(reserved) => {
                let (found, length) = foldable(pattern)?;
                (found == reserved).then_some(length)
            }
        }
    }
}

/// The reserved octet (RFC 3986, section 2.2) that a canonical text begins with,
/// and in how many octets it is written. Not `*` and `$`: canonical form has
/// them as escapes alone.
fn foldable(text: &[u8]) -> Option<(u8, usize)> {
    let (octet, length) = match escape(text) {
        Some(octet) => (octet, 3),
        None => (*text.first()?, 1),
    };
    b":/?#[]@!&'()+,;="
        .contains(&octet)
        .then_some((octet, length))
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
