//! Canonical form: the form in which a path and the path in a rule are compared.
//!
//! RFC 9309, section 2.2.2, requires a comparison byte by byte after escapes are normalised.
//! The older specifications and google/robotstxt normalise differently. Does not know which
//! bytes of a rule are wildcards; a literal `*` or `$` is escaped here, so that later steps
//! cannot mistake it for one.

use memchr::{memchr, memchr_iter};
use smallvec::SmallVec;

use super::dialect::Escapes;
use super::wildcard::is_glob_byte;

/// Buffer for a path or a rule. Holds a typical path without allocation.
pub(super) type Buffer = SmallVec<[u8; 1024]>;

// Classes of bytes that need no rewriting, by side and form.
const PATH_CANONICAL: u8 = 1;
const RULE_CANONICAL: u8 = 2;
const RULE_AS_WRITTEN: u8 = 4;
const NO_ESCAPE: u8 = 8;
const ANY: u8 = 16;
/// Class of every byte except `?`, which begins a query.
const NO_QUERY: u8 = 32;

const CLASS: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    loop {
        classes[byte as usize] = classes_of(byte);
        if byte == 0xFF {
            break classes;
        }
        byte += 1;
    }
};

const fn classes_of(byte: u8) -> u8 {
    let mut classes = ANY;
    if is_unreserved(byte) || is_reserved(byte) {
        if byte != b'$' {
            classes |= RULE_CANONICAL;
        }
        if byte != b'$' && byte != b'*' {
            classes |= PATH_CANONICAL;
        }
    }
    if byte != b'%' {
        classes |= NO_ESCAPE;
        if byte < 0x80 {
            classes |= RULE_AS_WRITTEN;
        }
    }
    if byte != b'?' {
        classes |= NO_QUERY;
    }
    classes
}

/// Classes that all bytes of a text have in common.
#[derive(Clone, Copy)]
pub(super) struct ByteClasses(u8);

impl ByteClasses {
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(
            bytes
                .iter()
                .fold(0xFF, |common, byte| common & class(*byte)),
        )
    }

    /// Reports whether a rule of these bytes is already in canonical form.
    pub(super) fn is_canonical_rule(self, escapes: Escapes) -> bool {
        let wanted = match escapes {
            Escapes::Canonical => RULE_CANONICAL,
            Escapes::RuleSide => RULE_AS_WRITTEN,
            Escapes::Decoded | Escapes::DecodedInGlob => NO_ESCAPE,
        };
        self.0 & wanted != 0
    }

    pub(super) fn has_query(self) -> bool {
        self.0 & NO_QUERY == 0
    }
}

fn class(byte: u8) -> u8 {
    CLASS[usize::from(byte)]
}

impl Escapes {
    fn path_class(self) -> u8 {
        match self {
            Self::Canonical => PATH_CANONICAL,
            Self::RuleSide => ANY,
            Self::Decoded | Self::DecodedInGlob => NO_ESCAPE,
        }
    }

    /// Reports whether `byte` of a path is in canonical form by itself.
    pub(super) fn is_canonical_byte(self, byte: u8) -> bool {
        class(byte) & self.path_class() != 0
    }

    /// Reports whether `path` is in canonical form.
    #[inline]
    pub(super) fn is_canonical_path(self, path: &[u8]) -> bool {
        if self == Self::RuleSide {
            return true;
        }
        ByteClasses::of(path).0 & self.path_class() != 0
    }

    /// Appends the canonical form of a path and query, as sent. If the path does not begin
    /// with `/`, one is added, as in `http://example.com?query`.
    pub(super) fn canonical_path(self, path: &[u8], out: &mut Buffer) {
        // RFC 3986, section 6.2.3: an empty path is `/`.
        if path.first() != Some(&b'/') {
            out.push(b'/');
        }
        self.rewrite(path, Side::Path, out);
    }

    /// Appends the canonical form of the path of a rule, without the `$` that anchors it. A
    /// `*` stays.
    pub(super) fn canonical_rule(self, path: &[u8], out: &mut Buffer) {
        self.rewrite(path, Side::Rule, out);
    }

    fn rewrite(self, bytes: &[u8], side: Side, out: &mut Buffer) {
        if (self, side) == (Self::RuleSide, Side::Path) {
            return out.extend_from_slice(bytes);
        }
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte != b'%' {
                self.push_byte(byte, side, out);
            } else if let Some((value, after)) = escaped_byte(tail) {
                rest = after;
                self.push_escape(value, side, out);
            } else {
                self.push_percent(out);
            }
        }
    }

    /// Appends a literal `%`: one that does not begin an escape.
    fn push_percent(self, out: &mut Buffer) {
        match self {
            Self::Canonical | Self::RuleSide => out.push(b'%'),
            // Escaped, so that a bare `%` never occurs in decoded text.
            Self::Decoded | Self::DecodedInGlob => push_escaped(b'%', out),
        }
    }

    fn push_byte(self, byte: u8, side: Side, out: &mut Buffer) {
        let stays = match (self, side) {
            (Self::Canonical, Side::Path) => class(byte) & PATH_CANONICAL != 0,
            (Self::Canonical, Side::Rule) => class(byte) & RULE_CANONICAL != 0,
            (Self::RuleSide, _) => byte < 0x80,
            (Self::Decoded | Self::DecodedInGlob, _) => true,
        };
        if stays {
            out.push(byte);
        } else {
            push_escaped(byte, out);
        }
    }

    fn push_escape(self, value: u8, side: Side, out: &mut Buffer) {
        let decodes = match self {
            Self::Canonical => is_unreserved(value),
            Self::RuleSide => false,
            Self::Decoded | Self::DecodedInGlob => value != b'/' && value != b'%',
        };
        if (self, side) == (Self::DecodedInGlob, Side::Rule)
            && (is_glob_byte(value) || matches!(value, b']' | b'-' | b'!' | b'^'))
            && !ends_in_quote(out)
        {
            out.push(b'\\');
        }
        if decodes {
            out.push(value);
        } else {
            push_escaped(value, out);
        }
    }
}

/// Reports whether a backslash at the end of `glob` already quotes the next byte.
fn ends_in_quote(glob: &[u8]) -> bool {
    let backslashes = glob.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// Estimates the memory, in bytes, for the rules of `text` that have to be rewritten.
pub(super) fn bytes_if_rewritten(text: &[u8]) -> usize {
    let is_odd = |byte: &&u8| class(**byte) & RULE_CANONICAL == 0;
    // Each escape may be a separate literal, in two forms.
    let escapes = text.iter().filter(|byte| **byte == b'%').count();
    // The literals of a rule with an escape are stored once for each form, with
    // their positions: five bytes for each byte of the rule.
    let lines = text.split(|byte| matches!(byte, b'\r' | b'\n'));
    let escaped = lines.filter(|line| memchr(b'%', line).is_some());
    let in_forms: usize = escaped.map(|line| 5 * line.len()).sum();
    // Each such byte becomes an escape of three bytes, as written and as servers
    // read it.
    6 * text.iter().filter(is_odd).count() + 96 * escapes + in_forms
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Path,
    Rule,
}

/// Returns the position after the `?` of a canonical path, or its end if there is no query.
pub(super) fn query_start(path: &[u8]) -> usize {
    memchr(b'?', path).map_or(path.len(), |mark| mark + 1)
}

/// Scope of folding: the part of a path in which a Disallow treats a reserved byte and its
/// escape as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// Only in the query, where the table of RFC 9309, section 2.2.2, shows both spellings
    /// as one path.
    InQuery,
    /// Also in the path, where servers treat both spellings alike.
    Everywhere,
    /// Also in the path, except for the slash.
    KeepingSlash,
}

impl Fold {
    /// Returns the scope in which servers read a rule. In a rule with a `*`, an escaped slash
    /// in the path stays escaped: `/*%2F*` is about escaped slashes, and would match nearly
    /// every path if decoded. A `*` at the end does not count.
    pub(super) fn of_served(value: &[u8]) -> Self {
        let end = value.iter().rposition(|byte| *byte != b'*');
        let value = end.and_then(|end| value.get(..=end)).unwrap_or_default();
        let is_slash = |at: usize| matches!(value.get(at + 1..), Some([b'2', b'f' | b'F', ..]));
        if memchr(b'*', value).is_some() && memchr_iter(b'%', value).any(is_slash) {
            Self::KeepingSlash
        } else {
            Self::Everywhere
        }
    }

    /// Returns the predicate for bytes whose escapes are decoded before the query.
    fn decoded_in_path(self) -> fn(u8) -> bool {
        match self {
            Self::InQuery => |_| false,
            Self::Everywhere => folds_in_path,
            Self::KeepingSlash => |value| value != b'/' && folds_in_path(value),
        }
    }
}

/// Appends the folded form of canonical `text`, in which both spellings of a reserved byte
/// are equal. Decodes escapes from position `query` on, and before it as `scope` requires.
/// `%2A` and `%24` stay, because a canonical path never contains a bare `*` or `$`.
pub(super) fn fold(text: &[u8], query: usize, scope: Fold, out: &mut Buffer) {
    // A literal of a rule may end before the query begins.
    let (before, after) = text.split_at(query.min(text.len()));
    match scope {
        Fold::InQuery => out.extend_from_slice(before),
        Fold::Everywhere | Fold::KeepingSlash => decode(before, scope.decoded_in_path(), out),
    }
    decode(after, folds, out);
}

/// Appends `text`, and decodes the escapes of bytes for which `decodes` is true.
fn decode(text: &[u8], decodes: fn(u8) -> bool, out: &mut Buffer) {
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        match escaped_byte(tail).filter(|(value, _)| byte == b'%' && decodes(*value)) {
            Some((value, after)) => {
                out.push(value);
                rest = after;
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
}

/// Returns a canonical path in which reserved bytes before the query are escaped if `rule`
/// contains their escape. The first slash stays.
pub(super) fn with_escapes_of(rule: &[u8], path: &[u8]) -> Vec<u8> {
    let escapes = rule.split(|byte| *byte == b'%').skip(1);
    let escaped: Vec<u8> = escapes
        .filter_map(|rest| Some(escaped_byte(rest)?.0))
        .collect();
    let (before, query) = path.split_at(query_start(path));
    let mut out = Buffer::new();
    for (at, byte) in before.iter().enumerate() {
        if 0 < at && folds_in_path(*byte) && escaped.contains(byte) {
            push_escaped(*byte, &mut out);
        } else {
            out.push(*byte);
        }
    }
    out.extend_from_slice(query);
    out.to_vec()
}

/// Reports whether canonical `text` contains the escape of a reserved byte that a query may
/// also contain unescaped.
pub(super) fn has_folding(text: &[u8]) -> bool {
    holds_escape(text, folds)
}

/// Reports whether `text`, canonical or not, contains the escape of a reserved byte that a
/// path may also contain unescaped.
pub(super) fn has_folding_in_path(text: &[u8]) -> bool {
    holds_escape(text, folds_in_path)
}

/// Reports whether the folded forms of canonical `text` in the path and in the query differ.
pub(super) fn folds_by_place(text: &[u8], scope: Fold) -> bool {
    match scope {
        Fold::InQuery => has_folding(text),
        Fold::Everywhere | Fold::KeepingSlash => {
            holds_escape(text, |value| folds(value) && !folds_in_path(value))
        }
    }
}

/// Reports whether `text` contains the escape of a byte for which `is_one` is true.
fn holds_escape(text: &[u8], is_one: fn(u8) -> bool) -> bool {
    let mut escapes = text.split(|byte| *byte == b'%').skip(1);
    // Checks the first digit first: it excludes bytes outside ASCII, the most common
    // escapes.
    escapes.any(|escape| {
        matches!(escape.first(), Some(b'2'..=b'5'))
            && escaped_byte(escape).is_some_and(|(value, _)| is_one(value))
    })
}

fn folds(value: u8) -> bool {
    is_reserved(value) && class(value) & PATH_CANONICAL != 0
}

/// Reports whether the escape of a byte may be decoded before the query. Excludes `?` and
/// `#`: they begin a query and a fragment, but to a server `%3F` and `%23` are part of a
/// name.
fn folds_in_path(value: u8) -> bool {
    folds(value) && !matches!(value, b'?' | b'#')
}

/// Returns the byte that the two hexadecimal digits at the beginning of `tail` encode, and
/// the text after them.
fn escaped_byte(tail: &[u8]) -> Option<(u8, &[u8])> {
    let ([high, low], after) = tail.split_first_chunk::<2>()?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(*high)? * 16 + digit(*low)?;
    Some((u8::try_from(value).ok()?, after))
}

fn push_escaped(byte: u8, out: &mut Buffer) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push(b'%');
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 0x0F)]);
}

/// Reports whether a byte is unreserved (RFC 3986, section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Reports whether a byte is reserved (RFC 3986, section 2.2).
#[rustfmt::skip]
const fn is_reserved(byte: u8) -> bool {
    matches!(
        byte,
        b':' | b'/' | b'?' | b'#' | b'[' | b']' | b'@' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')'
            | b'*' | b'+' | b',' | b';' | b'='
    )
}
