//! The paths of Conner's version 2.0: explicit ones, and shell globs.

use super::lines::{Kind, Rule};
use super::prefix::{self, Unit, units};

/// The characters that make a value a glob.
const SPECIAL: &[u8] = b"*?[\\";

/// Returns the first explicit Allow that matches, else the first explicit
/// Disallow, else the first glob of either kind. All of them are compared with
/// the whole path and query.
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

/// A part of a glob.
#[derive(Debug)]
enum Piece {
    /// `*`: any bytes, slashes too.
    Any,
    /// `?`: one byte, whatever it is.
    One,
    /// Exactly this byte.
    Is(Unit),
    /// `[...]`: one byte out of a set, or out of the rest.
    Of(Set),
}

/// Set of bytes between brackets.
#[derive(Debug, Default)]
struct Set {
    /// Whether it begins with `!` or `^`.
    is_negated: bool,
    /// Members as ranges, each with both ends in it.
    ranges: Vec<(Unit, Unit)>,
}

impl Set {
    fn holds(&self, unit: Unit) -> bool {
        let is_member = self.ranges.iter().any(|range| match (range, unit) {
            ((Unit::Byte(from), Unit::Byte(to)), Unit::Byte(byte)) => (from..=to).contains(&&byte),
            // Only itself: %2F stands in no order with bytes.
            ((from, to), unit) => *from == unit && *to == unit,
        });
        is_member != self.is_negated
    }
}

impl Piece {
    /// Reports whether it stands for exactly this unit.
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
    // How many units the pieces so far can stand for, in order.
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

/// Returns the pieces of a glob. An escaped byte (`%2A`) is never special.
fn pieces(value: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = value;
    while let Some((piece, after)) = next_piece(rest) {
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Returns the first piece and what is after it.
fn next_piece(value: &[u8]) -> Option<(Piece, &[u8])> {
    match value {
        [b'*', after @ ..] => Some((Piece::Any, after)),
        [b'?', after @ ..] => Some((Piece::One, after)),
        // A bracket that is never closed is an ordinary byte.
        [b'[', within @ ..] => match set(within) {
            Some((set, after)) => Some((Piece::Of(set), after)),
            None => Some((Piece::Is(Unit::Byte(b'[')), within)),
        },
        _ => member(value).map(|(unit, after)| (Piece::Is(unit), after)),
    }
}

/// Returns the set whose opening bracket stands before `within`, and what is
/// after the closing one. A `]` in the first place is a member, a `-` in the
/// last, too.
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

/// Returns the first byte, with the backslash that may stand before it. A
/// backslash at the end stands for itself.
fn member(value: &[u8]) -> Option<(Unit, &[u8])> {
    match value {
        [b'\\', quoted @ ..] if !quoted.is_empty() => prefix::next(quoted),
        _ => prefix::next(value),
    }
}
