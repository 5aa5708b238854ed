//! Shape of a rule's path: a head without wildcards, a tail with wildcards, and the length
//! that determines precedence.
//!
//! RFC 9309, sections 2.2.2 and 2.2.3. The index and single patterns both use shapes, so
//! that they agree. Does not know how paths are matched.

use memchr::{memchr, memrchr};

use super::canonical::{Buffer, ByteClasses, Fold, fold};
use super::dialect::{Escapes, PatternSyntax, Traits};
use super::wildcard::{PatternEnd, is_glob_byte};

/// Shape of a rule: how to interpret its canonical bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Length of the head, which a path must begin with.
    pub(super) head: usize,
    /// Length of the tail: the bytes from the first wildcard on, without any `*` at the end.
    pub(super) tail: usize,
    pub(super) end: PatternEnd,
    /// Length of the rule in canonical form, including `*` and `$`. A longer rule is more
    /// specific (RFC 9309, section 2.2.2: the most bytes).
    pub(super) length: usize,
    pub(super) syntax: PatternSyntax,
    /// Whether the rule can match in a query.
    pub(super) reaches_query: bool,
}

impl Shape {
    /// Returns the shape of a rule's value; `None` if it matches no path, because it is
    /// empty or begins with neither `/` nor a wildcard.
    ///
    /// Writes the canonical bytes to `rewritten`. It stays empty if the value is already in
    /// canonical form.
    // Inlined, because every rule of a group comes here.
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
            // The literal after the `*` cannot match at the first byte, which is `/`
            // in every path. With this `/` as head, such rules are attached to the
            // same node as other rules that begin with `/*`.
            rewritten.push(b'/');
        }
        traits.escapes.canonical_rule(path, rewritten);
        let shape = Self::of_pattern(rewritten, end, ByteClasses::of(rewritten));
        Some(Self {
            length: shape.length - usize::from(floats),
            ..shape
        })
    }

    /// Returns the shape of a pattern's value, and writes its complete canonical form to
    /// `canonical`.
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

    /// Returns the shape of a pattern's value with the escapes of reserved bytes decoded
    /// ([`Fold::Everywhere`]), and writes that form to `rewritten`. Decoding never produces
    /// a wildcard.
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
        // Taken from the written form, in which a final `*` has undone a `$`.
        let end = written.end;
        Some(Self::of_pattern(rewritten, end, ByteClasses::of(rewritten)))
    }

    #[inline]
    fn of_pattern(bytes: &[u8], end: PatternEnd, common: ByteClasses) -> Self {
        let length = bytes.len() + usize::from(end == PatternEnd::Last);
        // A final `*` adds only length, and undoes a `$` after it.
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
            // An escaped wildcard is a literal, and does not make the rule a glob.
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

    /// Returns the shape of a rule that matches no path.
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

    /// Reports whether the rule names one exact path.
    pub(super) fn is_explicit(&self) -> bool {
        self.tail == 0 && self.end == PatternEnd::Last
    }

    /// Reports whether the rule is a plain prefix: it has no tail and no anchor.
    pub(super) fn is_plain(&self) -> bool {
        self.tail == 0 && self.end == PatternEnd::Anywhere
    }
}

/// Splits a pattern from the `$` that anchors it; `None` if the pattern can match no path.
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

/// Reports whether a pattern begins with a `*` and a literal that no path can begin with.
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

/// Returns the folder that an Allow for an index page also allows in robots.cc:
/// `/x/index.html` allows `/x/`, as `/x/$` would.
pub(super) fn folder_of_index(value: &[u8]) -> Option<&[u8]> {
    let slash = memrchr(b'/', value)?;
    let (folder, page) = value.split_at(slash + 1);
    page.starts_with(b"index.htm").then_some(folder)
}
