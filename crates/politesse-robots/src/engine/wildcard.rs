//! Whether what is left of a path fits what is left of a rule after its first
//! wildcard.
//!
//! RFC 9309, section 2.2.3. The time is linear in the path for each literal,
//! whatever either side holds: they come from strangers. What a judgement may
//! spend in all is counted in [`Fuel`], so that a file made to be slow is
//! given up rather than worked through.

use memchr::{memchr, memmem, memrchr};

/// Place where a match may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternEnd {
    Anywhere,
    /// The pattern closes with `$`: the last byte of the path.
    Last,
}

/// Budget that one judgement has left, in steps that take up to eight
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fuel(u32);

impl Fuel {
    /// Less than a millisecond; a few hundred literals in a URL of a few hundred
    /// bytes, or a hundred in one of two thousand, where no index helps.
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

/// Reports whether `tail`, literals each after a `*`, fits `rest`.
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
    // The leftmost place of each literal leaves most for those after it, so
    // that none has to be tried again.
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

/// Returns what follows the first `literal` in `text`.
pub(super) fn behind_first<'a>(
    literal: &[u8],
    text: &'a [u8],
    fuel: &mut Fuel,
) -> Option<&'a [u8]> {
    let at = find(literal, text, fuel)?;
    text.get(at + literal.len()..)
}

/// Finds the first `literal` in `text`.
pub(super) fn find(literal: &[u8], text: &[u8], fuel: &mut Fuel) -> Option<usize> {
    // Setting up a search costs more than to go through a short text.
    const SHORT: usize = 64;
    let (found, bytes_a_step) = match literal {
        [] => return Some(0),
        // To prepare a search for it would cost what the text does not.
        _ if text.len() < literal.len() => (None, 64),
        [byte] => (memchr(*byte, text), 32),
        _ if text.len() <= SHORT => (find_in_short(literal, text), 1),
        // Text of two or three bytes alone is slow to search.
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

/// Reports whether `byte` means something else than itself in a shell glob.
pub(super) fn is_glob_byte(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// Reports whether the shell glob `glob` fits all of `text`: `*` stands for any
/// bytes, `?` for one, `[a-z]` and `[!a]` for one of a set or not of it, `\`
/// makes the next byte mean itself (Conner, 1996).
pub(super) fn globs(glob: &[u8], text: &[u8], fuel: &mut Fuel) -> bool {
    let (mut glob, mut text) = (glob, text);
    // Where to go on if what follows the last `*` does not fit here. An earlier
    // `*` need not be tried again: the last one can take as much.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        // Globs alone can go back, so they alone look at the fuel on the way.
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

/// Returns the rest of both after one byte of `text` that `glob` begins with.
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

/// Unit that counts as one byte where all escapes but `%2F` are decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GlobUnit {
    Byte(u8),
    EscapedSlash,
}

impl GlobUnit {
    fn first_of(text: &[u8]) -> Option<(Self, &[u8])> {
        match text {
            // Decoded text holds no other escapes, and no bare `%`.
            [b'%', b'2', b'F', rest @ ..] => Some((Self::EscapedSlash, rest)),
            [b'%', b'2', b'5', rest @ ..] => Some((Self::Byte(b'%'), rest)),
            [byte, rest @ ..] => Some((Self::Byte(*byte), rest)),
            [] => None,
        }
    }

    /// Reads a unit and the backslash that may stand before it. A backslash at
    /// the end stands for itself.
    fn quoted(text: &[u8]) -> Option<(Self, &[u8])> {
        match text {
            [b'\\', quoted @ ..] if !quoted.is_empty() => Self::first_of(quoted),
            _ => Self::first_of(text),
        }
    }

    /// Reports whether it lies between two others; `%2F` stands in no order.
    fn is_between(self, low: Self, high: Self) -> bool {
        match (low, self, high) {
            (Self::Byte(low), Self::Byte(byte), Self::Byte(high)) => (low..=high).contains(&byte),
            _ => low == self && high == self,
        }
    }
}

/// Reports whether `sent` is in the set whose members `set` begins with, and
/// what follows its `]`; `None` if it is not closed.
fn in_set(set: &[u8], sent: GlobUnit) -> Option<(bool, &[u8])> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let mut members = set.get(usize::from(negated)..)?;
    let mut found = false;
    let mut first = true;
    loop {
        // A `]` in first place is a member.
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
