//! Matching of paths by RFC 9309 and the draft of 2019: patterns with `*` and `$` in
//! canonical form, of which the most specific decides.

use super::lines::{Kind, Rule};
use super::meant;

/// Forms in which a Disallow is compared. An Allow is compared only as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forms {
    /// As written, with the reserved bytes of a query both escaped and unescaped.
    Standard,
    /// Additionally without invisible marks at its end.
    WithoutMarks,
    /// Additionally with the reserved bytes of the path both escaped and unescaped.
    AsServed,
}

/// Returns the matching rule with the most bytes; if equal, an Allow; if still equal, the
/// first (RFC 9309, section 2.2.2). Repaired groups come after all others; otherwise the
/// order is that of the file.
pub(super) fn most_specific<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    path: &[u8],
    forms: Forms,
) -> Option<&'a Rule> {
    let path = canonical_path(path);
    let matching = rules.filter(|rule| is_match(rule, &path, forms));
    matching.min_by_key(|rule| {
        // The length is that of the written form, if that can match, regardless of
        // the form that does match.
        let values = values(rule, forms);
        let mut patterns = values.iter().filter_map(|value| Pattern::of(value));
        let bytes = patterns.next().map_or(0, |pattern| pattern.bytes());
        let after_allow = rule.kind == Kind::Disallow;
        (usize::MAX - bytes, after_allow)
    })
}

/// Reports whether the rule matches the canonical `path`.
///
/// In a query, a Disallow matches reserved bytes both encoded and not. The second row of the
/// table in section 2.2.2 has two interpretations, and a path that either one disallows is
/// disallowed. Servers treat both forms alike in a path as well.
fn is_match(rule: &Rule, path: &[u8], forms: Forms) -> bool {
    if rule.kind == Kind::Allow {
        return Pattern::of(&rule.value).is_some_and(|pattern| pattern.covers_bytes(path));
    }
    let values = values(rule, forms);
    let mut patterns = values.iter().filter_map(|value| Pattern::of(value));
    patterns.any(|pattern| {
        pattern.covers_bytes(path)
            || pattern.covers_folded(path)
            || (forms == Forms::AsServed && pattern.covers_served(path))
    })
}

/// Returns the values to compare for a rule, the written one first.
fn values(rule: &Rule, forms: Forms) -> Vec<Vec<u8>> {
    let mut values = vec![rule.value.clone()];
    if forms != Forms::Standard && rule.kind == Kind::Disallow {
        values.push(without_marks(&rule.value));
        values.extend(meant::forms(rule));
        values.extend(rule.path.clone());
    }
    values
}

/// Removes the invisible characters at the end of a value: no-break spaces (also that of
/// ISO-8859-1, after ASCII), zero-width spaces, direction marks, and the blanks among them.
pub(super) fn without_marks(value: &[u8]) -> Vec<u8> {
    const MARKS: &str = "\u{a0}\u{202f}\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{200e}\u{200f}\
        \u{61c}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
    let mark_at_end = |text: &[u8]| match text {
        [before @ .., 0xA0] if before.last().is_none_or(u8::is_ascii) => Some(1),
        _ => {
            let mut marks = MARKS.chars().map(String::from);
            let mark = marks.find(|mark| text.ends_with(mark.as_bytes()));
            mark.map(|mark| mark.len())
        }
    };
    let mut rest = value;
    while let Some(length) = mark_at_end(rest) {
        rest = &rest[..rest.len() - length];
        while let [before @ .., b' ' | b'\t'] = rest {
            rest = before;
        }
    }
    rest.to_vec()
}

/// Value of a rule, prepared for comparison.
#[derive(Debug)]
struct Pattern {
    /// Canonical form of the pattern. Each `*` in it is a wildcard.
    text: Vec<u8>,
    /// Whether the pattern ended with `$` (section 2.2.3).
    is_anchored: bool,
}

/// Unit of a canonical path.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// A literal byte, which may be part of an escape.
    Byte(u8),
    /// A reserved byte, escaped or not.
    Either(u8),
}

impl Pattern {
    /// Parses a pattern. Section 2.2, `path-pattern`: it begins with `/`; section 5.1 shows
    /// that `*` is possible, too. Any other value matches nothing.
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

    /// Returns the length in bytes, including `*` and `$`, which measures specificity.
    fn bytes(&self) -> usize {
        self.text.len() + usize::from(self.is_anchored)
    }

    /// Reports whether the pattern matches byte by byte. Section 2.2.2: "The match evaluates
    /// positively if and only if the end of the path from the rule is reached before a
    /// difference in bytes is encountered."
    fn covers_bytes(&self, path: &[u8]) -> bool {
        let path: Vec<Unit> = path.iter().copied().map(Unit::Byte).collect();
        self.covers(&path)
    }

    /// Reports whether the pattern matches if reserved bytes and their escapes are equal
    /// after the first `?` of the path. The path determines where the query begins: after a
    /// `*`, the pattern cannot.
    fn covers_folded(&self, path: &[u8]) -> bool {
        let (before, behind) = split_at_query(path);
        let mut units: Vec<Unit> = before.iter().copied().map(Unit::Byte).collect();
        units.extend(either(behind, RESERVED));
        self.covers(&units)
    }

    /// Reports whether the pattern matches if reserved bytes and their escapes are equal in
    /// the path as well. Before the query, `%3F` and `%23` stay escaped: to a server they
    /// are part of a name, and do not begin a query or a fragment.
    fn covers_served(&self, path: &[u8]) -> bool {
        let (before, behind) = split_at_query(path);
        // `/*%2F*` matches only escaped slashes.
        let keeps_slash = self.text.contains(&b'*') && holds(&self.text, b"%2F");
        let reserved = if keeps_slash {
            &RESERVED_IN_PATH[1..]
        } else {
            RESERVED_IN_PATH
        };
        let mut units = either(before, reserved);
        units.extend(either(behind, RESERVED));
        self.covers(&units)
    }

    /// Reports whether the pattern matches from the first unit of `path` on, and up to the
    /// last if it is anchored.
    fn covers(&self, path: &[Unit]) -> bool {
        // For each prefix of the pattern, the numbers of units that it can match.
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
                // Section 2.2.3: zero or more bytes.
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
    /// Returns the number of bytes at the beginning of `pattern` that match the unit; `None`
    /// if they do not.
    fn begins(self, pattern: &[u8]) -> Option<usize> {
        match self {
            Self::Byte(byte) => pattern.starts_with(&[byte]).then_some(1),
            Self::Either(reserved) => {
                let (found, length) = foldable(pattern)?;
                (found == reserved).then_some(length)
            }
        }
    }
}

/// Reserved bytes (RFC 3986, section 2.2) except `*` and `$`, which are always escaped in
/// canonical form.
const RESERVED: &[u8] = b":/?#[]@!&'()+,;=";

/// Reserved bytes that a path can contain (RFC 3986, section 3.3), and the brackets, which
/// servers also accept.
const RESERVED_IN_PATH: &[u8] = b"/:[]@!&'()+,;=";

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Splits a path after the first `?`, into the part before the query and the query.
fn split_at_query(path: &[u8]) -> (&[u8], &[u8]) {
    let query = path.iter().position(|&byte| byte == b'?');
    path.split_at(query.map_or(path.len(), |mark| mark + 1))
}

/// Returns the units of `text`, in which the bytes of `reserved` equal their escapes.
fn either(text: &[u8], reserved: &[u8]) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        let found = foldable(rest).filter(|(byte, _)| reserved.contains(byte));
        let (unit, length) = match found {
            Some((reserved, length)) => (Unit::Either(reserved), length),
            None => (Unit::Byte(byte), 1),
        };
        units.push(unit);
        rest = &rest[length..];
    }
    units
}

/// Returns the reserved byte at the beginning of a canonical text, and the number of bytes
/// of its spelling.
fn foldable(text: &[u8]) -> Option<(u8, usize)> {
    let (byte, length) = match escape(text) {
        Some(byte) => (byte, 3),
        None => (*text.first()?, 1),
    };
    RESERVED.contains(&byte).then_some((byte, length))
}

/// Returns the canonical form of a URL's path. A `*` or `$` in a path is literal, so it is
/// encoded, as section 2.2.3 requires for literals.
fn canonical_path(path: &[u8]) -> Vec<u8> {
    let encoded = |byte: u8| match byte {
        b'*' => b"%2A".to_vec(),
        _ => vec![byte],
    };
    canonical(path).into_iter().flat_map(encoded).collect()
}

/// Returns the canonical form for comparison (section 2.2.2). Escapes of unreserved bytes are
/// decoded, other escapes are in upper case, and bytes that a URI cannot contain are encoded,
/// as is every `$`. A `%` that does not begin an escape stays.
fn canonical(text: &[u8]) -> Vec<u8> {
    let mut canonical = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match escape(rest) {
            Some(decoded) if is_unreserved(decoded) => canonical.push(decoded),
            Some(decoded) => canonical.extend(encoded(decoded)),
            None if is_to_encode(byte) => canonical.extend(encoded(byte)),
            None => canonical.push(byte),
        }
        rest = if escape(rest).is_some() {
            &rest[3..]
        } else {
            after
        };
    }
    canonical
}

/// Returns the byte that the escape at the beginning of `text` encodes.
pub(super) fn escape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(*high)? * 16 + digit(*low)?;
    u8::try_from(value).ok()
}

fn encoded(byte: u8) -> Vec<u8> {
    format!("%{byte:02X}").into_bytes()
}

/// Reports whether a byte is unreserved (RFC 3986, section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Reports whether a byte must be encoded: it is neither reserved nor unreserved, or it is
/// `$`, which is literal everywhere except at the end of a rule.
fn is_to_encode(byte: u8) -> bool {
    !(0x21..=0x7E).contains(&byte) || b"\"<>\\^`{|}$".contains(&byte)
}
