//! Wildcard matching: compares the rest of a path with the rest of a rule from its first
//! wildcard on.
//!
//! RFC 9309, section 2.2.3. Rules and paths are untrusted, so for each literal the time is
//! linear in the path. [`Fuel`] limits the total work of a judgement, so that the engine
//! stops early on a file built to be slow. Does not know the precedence of rules.

use memchr::{memchr, memmem, memrchr};

/// Position at which a match may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternEnd {
    Anywhere,
    /// Only at the end of the path: the pattern ends with `$`.
    Last,
}

/// Remaining budget of one judgement, in steps of up to eight nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fuel(u32);

impl Fuel {
    /// Initial budget: less than a millisecond of work. Without help from the index, it
    /// suffices for a few hundred literals in a URL of a few hundred bytes, or for a
    /// hundred literals in a URL of two thousand bytes.
    pub(super) const FULL: Self = Self(200_000);

    #[inline]
    pub(super) fn spend(&mut self, steps: usize) {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.0 = self.0.saturating_sub(steps);
    }

    #[inline]
    pub(super) fn is_spent(self) -> bool {
        self.0 == 0
    }
}

/// Reports whether `tail`, a sequence of `*` and literals, matches `rest`.
pub(super) fn spans(tail: &[u8], end: PatternEnd, rest: &[u8], fuel: &mut Fuel) -> bool {
    let (mut tail, mut rest) = (tail, rest);
    if end == PatternEnd::Last {
        let last = memrchr(b'*', tail).map_or(0, |star| star + 1);
        let (before, literal) = tail.split_at(last);
        let Some(left) = rest.strip_suffix(literal) else {
            return false;
        };
        if before.is_empty() {
            return left.is_empty();
        }
        (tail, rest) = (before, left);
    }
    // The leftmost match of each literal leaves the most for the literals after
    // it, so backtracking is never needed.
    while let Some(star) = memchr(b'*', tail) {
        let after = tail.get(star + 1..).unwrap_or_default();
        let length = memchr(b'*', after).unwrap_or(after.len());
        let (literal, next) = after.split_at(length);
        let Some(after) = behind_first(literal, rest, fuel) else {
            return false;
        };
        (tail, rest) = (next, after);
    }
    true
}

/// Returns the text after the first `literal` in `text`.
pub(super) fn behind_first<'a>(
    literal: &[u8],
    text: &'a [u8],
    fuel: &mut Fuel,
) -> Option<&'a [u8]> {
    let at = find(literal, text, fuel)?;
    text.get(at + literal.len()..)
}

/// Returns the position of the first `literal` in `text`.
pub(super) fn find(literal: &[u8], text: &[u8], fuel: &mut Fuel) -> Option<usize> {
    // Setting up `memmem` costs more than scanning a text of this length.
    const SHORT: usize = 64;
    let (found, bytes_a_step) = match literal {
        [] => return Some(0),
        // Preparing the search would take time proportional to the longer literal.
        _ if text.len() < literal.len() => (None, 64),
        [byte] => (memchr(*byte, text), 32),
        _ if text.len() <= SHORT => (find_in_short(literal, text), 1),
        // One step a byte, because text that repeats two or three bytes is slow to
        // search.
        _ => (memmem::find(text, literal), 1),
    };
    fuel.spend(8 + found.unwrap_or(text.len()) / bytes_a_step);
    found
}

fn find_in_short(literal: &[u8], text: &[u8]) -> Option<usize> {
    let (&first, others) = literal.split_first()?;
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = from + memchr(first, rest)?;
        from = at + 1;
        if text.get(from..)?.starts_with(others) {
            return Some(at);
        }
    }
}

/// Reports whether `byte` has a special meaning in a shell glob.
pub(super) fn is_glob_byte(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// Reports whether the shell glob `glob` matches all of `text` (Conner, 1996). `*` matches
/// any bytes, `?` matches one byte, `[a-z]` and `[!a]` match one byte in a set or outside
/// it, and `\` quotes the next byte.
pub(super) fn globs(glob: &[u8], text: &[u8], fuel: &mut Fuel) -> bool {
    let (mut glob, mut text) = (glob, text);
    // Where to resume if the glob after the last `*` does not match here. Earlier
    // `*` need no retry, because the last one can match as much.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        // Only globs backtrack, so only they check the fuel during a match.
        fuel.spend(2);
        if fuel.is_spent() {
            return false;
        }
        if let Some(after) = glob.strip_prefix(b"*") {
            retry = Some((after, text));
            glob = after;
        } else if let Some((glob_left, text_left)) = one_byte(glob, text) {
            (glob, text) = (glob_left, text_left);
        } else if glob.is_empty() && text.is_empty() {
            return true;
        } else {
            let Some((after, begun)) = retry else {
                return false;
            };
            let Some((_, shorter)) = GlobUnit::first_of(begun) else {
                return false;
            };
            retry = Some((after, shorter));
            (glob, text) = (after, shorter);
        }
    }
}

/// Matches one byte of `text` with the beginning of `glob`. Returns the rest of both.
fn one_byte<'a>(glob: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (sent, text) = GlobUnit::first_of(text)?;
    let (fits, glob) = match glob {
        [b'?', after @ ..] => (true, after),
        [b'[', after @ ..] => match in_set(after, sent) {
            Some(found) => found,
            None => (sent == GlobUnit::Byte(b'['), after),
        },
        _ => {
            let (literal, after) = GlobUnit::quoted(glob)?;
            (sent == literal, after)
        }
    };
    fits.then_some((glob, text))
}

/// Unit that counts as one byte in text in which all escapes except `%2F` are decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GlobUnit {
    Byte(u8),
    EscapedSlash,
}

impl GlobUnit {
    fn first_of(text: &[u8]) -> Option<(Self, &[u8])> {
        match text {
            // Decoded text contains no other escapes, and no bare `%`.
            [b'%', b'2', b'F', rest @ ..] => Some((Self::EscapedSlash, rest)),
            [b'%', b'2', b'5', rest @ ..] => Some((Self::Byte(b'%'), rest)),
            [byte, rest @ ..] => Some((Self::Byte(*byte), rest)),
            [] => None,
        }
    }

    /// Reads a unit, with an optional backslash before it. A backslash at the end stands
    /// for itself.
    fn quoted(text: &[u8]) -> Option<(Self, &[u8])> {
        match text {
            [b'\\', quoted @ ..] if !quoted.is_empty() => Self::first_of(quoted),
            _ => Self::first_of(text),
        }
    }

    /// Reports whether the unit lies in a range. `%2F` is only in the range of itself.
    fn is_between(self, low: Self, high: Self) -> bool {
        match (low, self, high) {
            (Self::Byte(low), Self::Byte(byte), Self::Byte(high)) => (low..=high).contains(&byte),
            _ => low == self && high == self,
        }
    }
}

/// Matches `sent` with the set at the beginning of `set`, after its `[`. Returns whether it
/// matches, and the text after the `]`; `None` if the set has no `]`.
fn in_set(set: &[u8], sent: GlobUnit) -> Option<(bool, &[u8])> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let mut members = set.get(usize::from(negated)..)?;
    let mut found = false;
    let mut first = true;
    loop {
        // A `]` in first position is a member of the set.
        if let [b']', after @ ..] = members
            && !first
        {
            return Some((found != negated, after));
        }
        let (low, mut rest) = GlobUnit::quoted(members)?;
        let mut high = low;
        if let [b'-', after @ ..] = rest
            && after.first() != Some(&b']')
        {
            (high, rest) = GlobUnit::quoted(after)?;
        }
        found |= sent.is_between(low, high);
        (members, first) = (rest, false);
    }
}
