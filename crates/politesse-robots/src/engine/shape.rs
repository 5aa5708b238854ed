//! What a rule's path is made of: a head without wildcards, a tail with them,
//! and how much they count.
//!
//! RFC 9309, sections 2.2.2 and 2.2.3. Both the index and a single pattern
//! are built from this, so that they cannot differ.

use memchr::{memchr, memrchr};

use super::canonical::{Buffer, ByteClasses, Fold, fold};
use super::dialect::{Escapes, PatternSyntax, Traits};
use super::wildcard::{PatternEnd, is_glob_byte};

/// Shape of a rule: how its canonical bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The bytes that a path must begin with.
    pub(super) head: usize,
    /// The bytes after the head that count in a match: from the first wildcard
    /// on, without the `*` at the end.
    pub(super) tail: usize,
    pub(super) end: PatternEnd,
    /// Length, which says how specific the rule is: its bytes in canonical
    /// form, `*` and `$` counted (RFC 9309, section 2.2.2: the most bytes).
    pub(super) length: usize,
    pub(super) syntax: PatternSyntax,
    /// Whether it can speak of a query.
    pub(super) reaches_query: bool,
}

impl Shape {
    /// Returns the shape of a rule's value; `None` if it matches no path, since
    /// it is empty or begins with neither `/` nor a wildcard.
    ///
    /// `rewritten` gets the canonical bytes, unless the value is that itself:
    /// then it stays empty.
    // Not as a call: every rule of a group comes through here.
    #[inline(always)]
    pub(super) fn of(value: &[u8], traits: &Traits, rewritten: &mut Buffer) -> Option<Self> {
        rewritten.clear();
        match traits.syntax {
            PatternSyntax::Pattern => Self::pattern(value, traits, rewritten),
            PatternSyntax::Beginning => Self::beginning(value, traits, rewritten),
            PatternSyntax::Glob => Self::glob(value, traits, rewritten),
        }
    }

    #[inline(always)]
    fn pattern(value: &[u8], traits: &Traits, rewritten: &mut Buffer) -> Option<Self> {
        let (path, end) = anchored(value)?;
        let common = ByteClasses::of(path);
        let floats = floats(path);
        if common.is_canonical_rule(traits.escapes) && !floats {
            return Some(Self::of_pattern(path, end, common));
        }
        if floats {
            // It cannot begin in first place, where every path has its `/`: so
            // it need not be sought there, apart from what hangs below.
            rewritten.push(b'/');
        }
        traits.escapes.canonical_rule(path, rewritten);
        let shape = Self::of_pattern(rewritten, end, ByteClasses::of(rewritten));
        Some(Self {
            length: shape.length - usize::from(floats),
            ..shape
        })
    }

    /// Returns the shape of a pattern's value as it reads in canonical form,
    /// all of which `canonical` gets.
    pub(super) fn of_canonical(
        value: &[u8],
        traits: &Traits,
        canonical: &mut Buffer,
    ) -> Option<Self> {
        let (path, end) = anchored(value)?;
        canonical.clear();
        traits.escapes.canonical_rule(path, canonical);
        Some(Self::of_pattern(canonical, end, ByteClasses::of(canonical)))
    }

    /// Returns the shape of a pattern's value with the escapes of reserved
    /// bytes decoded ([`Fold::Everywhere`]), which `rewritten` gets. What was
    /// decoded is no wildcard.
    pub(super) fn folded(value: &[u8], traits: &Traits, rewritten: &mut Buffer) -> Option<Self> {
        let mut canonical = Buffer::new();
        let written = Self::of_canonical(value, traits, &mut canonical)?;
        let mut folded = Buffer::new();
        fold(&canonical, canonical.len(), Fold::Everywhere, &mut folded);
        rewritten.clear();
        if floats(&folded) {
            rewritten.push(b'/');
        }
        rewritten.extend_from_slice(&folded);
        // A `*` at the end has undone a `$` after it.
        let end = written.end;
        Some(Self::of_pattern(rewritten, end, ByteClasses::of(rewritten)))
    }

    #[inline]
    fn of_pattern(bytes: &[u8], end: PatternEnd, common: ByteClasses) -> Self {
        let length = bytes.len() + usize::from(end == PatternEnd::Last);
        // A `*` at the end adds nothing but length, and undoes a `$` after it.
        let (bytes, end) = match bytes {
            [.., b'*'] => (without_stars(bytes), PatternEnd::Anywhere),
            _ => (bytes, end),
        };
        let head = memchr(b'*', bytes).unwrap_or(bytes.len());
        let tail = bytes.len() - head;
        Self {
            head,
            tail,
            end,
            length,
            syntax: PatternSyntax::Pattern,
            reaches_query: 0 < tail || common.has_query(),
        }
    }

    fn beginning(value: &[u8], traits: &Traits, rewritten: &mut Buffer) -> Option<Self> {
        if value.first() != Some(&b'/') {
            return None;
        }
        let length = canonical(value, traits, rewritten).len();
        Some(Self {
            head: length,
            tail: 0,
            end: PatternEnd::Anywhere,
            length,
            syntax: PatternSyntax::Beginning,
            reaches_query: true,
        })
    }

    fn glob(value: &[u8], traits: &Traits, rewritten: &mut Buffer) -> Option<Self> {
        let is_glob = value.iter().any(|byte| is_glob_byte(*byte));
        if !is_glob {
            // An escaped wildcard is none, and makes no glob of the rule.
            Escapes::Decoded.canonical_rule(value, rewritten);
        }
        let bytes = if is_glob {
            canonical(value, traits, rewritten)
        } else {
            &rewritten[..]
        };
        let wildcard = bytes.iter().position(|byte| is_glob && is_glob_byte(*byte));
        let head = wildcard.unwrap_or(bytes.len());
        let may_match = bytes.first() == Some(&b'/') || wildcard == Some(0);
        may_match.then_some(Self {
            head,
            tail: bytes.len() - head,
            end: PatternEnd::Last,
            length: bytes.len(),
            syntax: PatternSyntax::Glob,
            reaches_query: true,
        })
    }

    /// Returns the shape of what matches no path.
    pub(super) fn without_match(length: usize) -> Self {
        Self {
            head: 0,
            tail: 0,
            end: PatternEnd::Last,
            length,
            syntax: PatternSyntax::Pattern,
            reaches_query: false,
        }
    }

    /// Reports whether it names one path outright.
    pub(super) fn is_explicit(&self) -> bool {
        self.tail == 0 && self.end == PatternEnd::Last
    }

    /// Reports whether its head is all there is to it.
    pub(super) fn is_plain(&self) -> bool {
        self.tail == 0 && self.end == PatternEnd::Anywhere
    }
}

/// Returns a pattern without the `$` that anchors it; `None` if it can match no
/// path.
#[inline]
fn anchored(value: &[u8]) -> Option<(&[u8], PatternEnd)> {
    if !matches!(value.first()?, b'/' | b'*') {
        return None;
    }
    Some(match value.strip_suffix(b"$") {
        Some(path) => (path, PatternEnd::Last),
        None => (value, PatternEnd::Anywhere),
    })
}

/// Reports whether a pattern begins with a `*` after which no path begins.
#[inline]
fn floats(path: &[u8]) -> bool {
    matches!(path, [b'*', after, ..] if !matches!(after, b'*' | b'/'))
}

fn canonical<'a>(value: &'a [u8], traits: &Traits, rewritten: &'a mut Buffer) -> &'a [u8] {
    if ByteClasses::of(value).is_canonical_rule(traits.escapes) {
        return value;
    }
    traits.escapes.canonical_rule(value, rewritten);
    rewritten
}

fn without_stars(bytes: &[u8]) -> &[u8] {
    let mut bytes = bytes;
    while let [rest @ .., b'*'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns the part of an Allow's value that robots.cc also takes to mean the
/// folder itself: `/x/index.html` allows `/x/`, as `/x/$` would.
pub(super) fn folder_of_index(value: &[u8]) -> Option<&[u8]> {
    let slash = memrchr(b'/', value)?;
    let (folder, page) = value.split_at(slash + 1);
    page.starts_with(b"index.htm").then_some(folder)
}
