//! Matching of paths in Conner's version 2.0: exact paths and shell globs.

use super::lines::{Kind, Rule};
use super::prefix::{self, Unit, units};

/// Characters that make a value a glob.
const SPECIAL: &[u8] = b"*?[\\";

/// Returns the first matching explicit Allow, otherwise the first matching explicit Disallow,
/// otherwise the first matching glob of either kind. All are compared with the complete path
/// and query.
pub(super) fn by_order_of_kinds<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    path: &[u8],
) -> Option<&'a Rule> {
    let path = units(path);
    let (globs, explicit): (Vec<&Rule>, Vec<&Rule>) =
        rules.partition(|rule| rule.value.iter().any(|byte| SPECIAL.contains(byte)));
    let equal = |kind| {
        let mut of_kind = explicit.iter().filter(move |rule| rule.kind == kind);
        of_kind.find(|rule| units(&rule.value) == path)
    };
    let glob = || {
        let mut globs = globs.iter();
        globs.find(|rule| covers(&pieces(&rule.value), &path))
    };
    equal(Kind::Allow)
        .or_else(|| equal(Kind::Disallow))
        .or_else(glob)
        .copied()
}

/// Piece of a glob.
#[derive(Debug)]
enum Piece {
    /// `*`: any bytes, including slashes.
    Any,
    /// `?`: any single byte.
    One,
    /// Exactly this byte.
    Is(Unit),
    /// `[...]`: one byte in a set, or outside it.
    Of(Set),
}

/// Set of bytes between brackets.
#[derive(Debug, Default)]
struct Set {
    /// Whether it begins with `!` or `^`.
    is_negated: bool,
    /// Members as inclusive ranges.
    ranges: Vec<(Unit, Unit)>,
}

impl Set {
    fn holds(&self, unit: Unit) -> bool {
        let is_member = self.ranges.iter().any(|range| match (range, unit) {
            ((Unit::Byte(from), Unit::Byte(to)), Unit::Byte(byte)) => (from..=to).contains(&&byte),
            // `%2F` is only in the range of itself, because it has no order with bytes.
            ((from, to), unit) => *from == unit && *to == unit,
        });
        is_member != self.is_negated
    }
}

impl Piece {
    /// Reports whether the piece matches this single unit.
    fn fits(&self, unit: Unit) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Is(own) => *own == unit,
            Self::Of(set) => set.holds(unit),
        }
    }
}

/// Reports whether the pieces match the path from end to end.
fn covers(pieces: &[Piece], path: &[Unit]) -> bool {
    // The numbers of units that the pieces so far can match, in order.
    let mut ends = vec![0];
    for piece in pieces {
        if let Piece::Any = piece {
            ends = (ends[0]..=path.len()).collect();
        } else {
            ends.retain(|&end| path.get(end).is_some_and(|unit| piece.fits(*unit)));
            ends.iter_mut().for_each(|end| *end += 1);
        }
        if ends.is_empty() {
            return false;
        }
    }
    ends.contains(&path.len())
}

/// Splits a glob into pieces. An escaped byte (`%2A`) is never special.
fn pieces(value: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = value;
    while let Some((piece, after)) = next_piece(rest) {
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Returns the first piece and the rest of the glob.
fn next_piece(value: &[u8]) -> Option<(Piece, &[u8])> {
    match value {
        [b'*', after @ ..] => Some((Piece::Any, after)),
        [b'?', after @ ..] => Some((Piece::One, after)),
        // A bracket that is never closed is literal.
        [b'[', within @ ..] => match set(within) {
            Some((set, after)) => Some((Piece::Of(set), after)),
            None => Some((Piece::Is(Unit::Byte(b'[')), within)),
        },
        _ => member(value).map(|(unit, after)| (Piece::Is(unit), after)),
    }
}

/// Returns the set at the beginning of `within`, after its opening bracket, and the text
/// after the closing one. A `]` in first position and a `-` in last position are members.
fn set(within: &[u8]) -> Option<(Set, &[u8])> {
    let is_negated = within.starts_with(b"!") || within.starts_with(b"^");
    let mut set = Set {
        is_negated,
        ..Set::default()
    };
    let mut rest = &within[usize::from(is_negated)..];
    loop {
        if rest.starts_with(b"]") && !set.ranges.is_empty() {
            return Some((set, &rest[1..]));
        }
        let (from, mut after) = member(rest)?;
        let mut to = from;
        if after.starts_with(b"-") && !after.starts_with(b"-]") {
            (to, after) = member(&after[1..])?;
        }
        set.ranges.push((from, to));
        rest = after;
    }
}

/// Returns the first unit, with an optional backslash before it, and the rest. A backslash
/// at the end stands for itself.
fn member(value: &[u8]) -> Option<(Unit, &[u8])> {
    match value {
        [b'\\', quoted @ ..] if !quoted.is_empty() => prefix::next(quoted),
        _ => prefix::next(value),
    }
}
