//! Single path pattern of a rule, and the paths that it is compared with.
//!
//! RFC 9309, sections 2.2.2 and 2.2.3. An index compares all rules of a file at once; this
//! module compares one, for explanations and for the operator's patterns. Both use the
//! same [`Shape`] for values and the same function for matching after a `*`, so that they
//! agree. Does not know the precedence of rules.

use memchr::memchr;

use super::canonical::{Buffer, Fold, fold, folds_by_place, query_start};
use super::dialect::{Dialect, PatternSyntax, QueryForms, Traits};
use super::shape::Shape;
use super::wildcard::{Fuel, PatternEnd, find, globs, spans};

/// Path pattern of a rule (RFC 9309, section 2.2.3): literals, `*` for any bytes, and a
/// final `$` for the end of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Head and tail in canonical form; `None` if the pattern matches no path.
    bytes: Option<Box<[u8]>>,
    shape: Shape,
    /// Pattern for folded paths; `None` if folding cannot change the result.
    folded: Option<Box<FoldedPattern>>,
}

impl Pattern {
    /// Parses the value of an Allow or Disallow line. Returns `None` for an empty value,
    /// which decides nothing (RFC 9309, section 2.2).
    ///
    /// A value that begins with neither `/` nor `*` gives a pattern that matches no path.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        Self::in_dialect(value, Dialect::Rfc9309)
    }

    /// Parses a value as [`Pattern::new`] does, with the syntax of `dialect`.
    #[must_use]
    pub fn in_dialect(value: &[u8], dialect: Dialect) -> Option<Self> {
        if value.is_empty() {
            return None;
        }
        let mut rewritten = Buffer::new();
        let Some(shape) = Shape::of(value, dialect.traits(), &mut rewritten) else {
            return Some(Self {
                bytes: None,
                shape: Shape::without_match(value.len()),
                folded: None,
            });
        };
        let length = shape.head + shape.tail;
        let written = if rewritten.is_empty() {
            value
        } else {
            &rewritten[..]
        };
        let bytes = written.get(..length).unwrap_or_default();
        Some(Self {
            folded: (dialect.traits().query == QueryForms::EitherForm)
                .then(|| FoldedPattern::new(bytes, &shape, Fold::InQuery).map(Box::new))
                .flatten(),
            bytes: Some(bytes.into()),
            shape,
        })
    }

    /// Reports whether the pattern matches `path` by RFC 9309, section 2.2.2, where an
    /// escaped reserved byte differs from the byte itself.
    #[must_use]
    pub fn matches(&self, path: &CanonicalPath) -> bool {
        let Some((head, tail)) = self.split() else {
            return false;
        };
        let Some(rest) = path.bytes.strip_prefix(head) else {
            return false;
        };
        let mut fuel = Fuel::FULL;
        match self.shape.syntax {
            PatternSyntax::Glob => globs(tail, rest, &mut fuel),
            PatternSyntax::Pattern | PatternSyntax::Beginning => {
                spans(tail, self.shape.end, rest, &mut fuel)
            }
        }
    }

    /// Reports whether the pattern matches `path` if a reserved byte in the query and its
    /// escape count as equal.
    ///
    /// The table of RFC 9309, section 2.2.2, shows `?baz=http://foo.bar` and its escaped
    /// form as one path. Crawlers disagree about that, so a Disallow line is obeyed in
    /// either form.
    #[must_use]
    pub fn matches_folded(&self, path: &CanonicalPath) -> bool {
        let folded = path.folded.as_deref().map(FoldedPath::new);
        let both = self.folded.as_deref().zip(folded);
        both.is_some_and(|(pattern, path)| pattern.matches(path, &mut { Fuel::FULL }))
    }

    /// Returns the length in canonical form, in bytes, including `*` and `$`. A longer
    /// pattern is more specific (RFC 9309, section 2.2.2: the most bytes).
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty pattern is none")]
    pub fn len(&self) -> usize {
        self.shape.length
    }

    /// Reports whether the pattern can match any path.
    pub(super) fn matches_some(&self) -> bool {
        self.bytes.is_some()
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    fn split(&self) -> Option<(&[u8], &[u8])> {
        self.bytes.as_deref()?.split_at_checked(self.shape.head)
    }
}

/// Pattern for a [`FoldedPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoldedPattern {
    head: Box<[u8]>,
    /// Literals after the head in the form of [`FoldedPiece::across`], each after its `*`.
    /// In one buffer, because a box for each literal could take fifty times the memory of a
    /// rule with many wildcards.
    across: Box<[u8]>,
    /// Literals in the form of [`FoldedPiece::within`], each after its `*`.
    within: Box<[u8]>,
    end: PatternEnd,
}

/// Literal after a `*`. It may match before the query, across its beginning, or inside it,
/// and its folded form depends on that.
#[derive(Clone, Copy)]
struct FoldedPiece<'a> {
    /// Form for a match that begins before the query. Its first `?` begins the query.
    across: &'a [u8],
    /// Form for a match inside the query.
    within: &'a [u8],
}

impl FoldedPattern {
    /// Returns the pattern of a rule's value if its folded forms in the path and in the
    /// query differ, so that the form to compare depends on the position of the match.
    pub(super) fn by_place(value: &[u8], traits: &Traits, scope: Fold) -> Option<Self> {
        let mut canonical = Buffer::new();
        let shape = Shape::of_canonical(value, traits, &mut canonical)?;
        let bytes = canonical.get(..shape.head + shape.tail)?;
        folds_by_place(bytes, scope).then(|| Self::new(bytes, &shape, scope))?
    }

    /// Returns the pattern of a rule's value for paths in the form of [`Fold::Everywhere`].
    pub(super) fn everywhere(value: &[u8], traits: &Traits) -> Option<Self> {
        let mut canonical = Buffer::new();
        let shape = Shape::of_canonical(value, traits, &mut canonical)?;
        let bytes = canonical.get(..shape.head + shape.tail)?;
        Self::new(bytes, &shape, Fold::Everywhere)
    }

    /// Returns the pattern of a rule's value, as servers read it, for paths in the form of
    /// [`Fold::of_served`].
    pub(super) fn as_served(value: &[u8], traits: &Traits) -> Option<Self> {
        let mut canonical = Buffer::new();
        let shape = Shape::of_canonical(value, traits, &mut canonical)?;
        let bytes = canonical.get(..shape.head + shape.tail)?;
        Self::new(bytes, &shape, Fold::of_served(value))
    }

    /// Creates the folded pattern; `None` if folding cannot change the result.
    fn new(bytes: &[u8], shape: &Shape, scope: Fold) -> Option<Self> {
        let reaches = shape.reaches_query || scope != Fold::InQuery;
        if shape.syntax != PatternSyntax::Pattern || !reaches {
            return None;
        }
        let (head, tail) = bytes.split_at_checked(shape.head)?;
        let [mut across, mut within] = [Buffer::new(), Buffer::new()];
        for piece in literals(tail) {
            across.push(b'*');
            fold(piece, query_start(piece), scope, &mut across);
            within.push(b'*');
            fold(piece, 0, scope, &mut within);
        }
        Some(Self {
            head: folded(head, query_start(head), scope),
            across: across.to_vec().into(),
            within: within.to_vec().into(),
            end: shape.end,
        })
    }

    /// Returns the literals, in order. Folding never produces a `*`, so each `*` is a
    /// separator.
    fn pieces(&self) -> impl Iterator<Item = FoldedPiece<'_>> {
        let pieces = literals(&self.across).zip(literals(&self.within));
        pieces.map(|(across, within)| FoldedPiece { across, within })
    }

    /// Returns the memory of the boxed parts, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.head.len() + self.across.len() + self.within.len()
    }

    /// Reports whether the pattern matches `path`, which must be folded in the scope that
    /// the pattern was created for.
    pub(super) fn matches(&self, path: FoldedPath<'_>, fuel: &mut Fuel) -> bool {
        fuel.spend(8);
        if !path.bytes.starts_with(&self.head) {
            return false;
        }
        // The leftmost match of each literal leaves the most for the literals after
        // it.
        let mut at = self.head.len();
        let mut pieces = self.pieces().peekable();
        while let Some(piece) = pieces.next() {
            if self.end == PatternEnd::Last && pieces.peek().is_none() {
                return piece.ends(path, at);
            }
            let Some(after) = piece.end_in(path, at, fuel) else {
                return false;
            };
            at = after;
        }
        self.end == PatternEnd::Anywhere || path.bytes.len() == at
    }
}

impl FoldedPiece<'_> {
    /// Reports whether the part of the path from `at` on ends with the literal.
    fn ends(self, path: FoldedPath<'_>, at: usize) -> bool {
        path.from(at).ends_with(self.across) || path.from(at.max(path.query)).ends_with(self.within)
    }

    /// Returns the end of the first occurrence from `at` on.
    fn end_in(self, path: FoldedPath<'_>, at: usize, fuel: &mut Fuel) -> Option<usize> {
        // After the `?`, `across` either equals `within` or cannot occur. Not
        // searching for it there again keeps the time linear.
        let across = if path.query <= at {
            None
        } else if memchr(b'?', self.across).is_some() {
            find(self.across, path.from(at), fuel)
        } else {
            find(self.across, path.before_query(at), fuel)
        };
        if let Some(offset) = across {
            return Some(at + offset + self.across.len());
        }
        let from = at.max(path.query);
        let offset = find(self.within, path.from(from), fuel)?;
        Some(from + offset + self.within.len())
    }
}

/// Pattern that matches reserved bytes both escaped and unescaped (`/a:b`, `/a%3Ab`), in
/// the path and in the query.
///
/// Meant for patterns that refuse, because servers treat both forms alike. The rules of a
/// robots.txt use an index instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPattern(FoldedPattern);

impl ServedPattern {
    /// Parses a pattern; `None` if it begins with neither `/` nor `*`.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        FoldedPattern::everywhere(value, Dialect::Rfc9309.traits()).map(Self)
    }

    /// Reports whether the pattern matches `path`.
    #[must_use]
    pub fn matches(&self, path: &CanonicalPath) -> bool {
        let path = path.as_bytes();
        let mut folded = Buffer::new();
        fold(path, query_start(path), Fold::Everywhere, &mut folded);
        self.0
            .matches(FoldedPath::new(&folded), &mut { Fuel::FULL })
    }
}

/// Path with its query in canonical form, computed once for all patterns of a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalPath {
    bytes: Box<[u8]>,
    /// Form with the escapes of reserved bytes in the query decoded; `None` without a
    /// query.
    folded: Option<Box<[u8]>>,
}

/// Canonical path in the form of a [`Fold`].
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldedPath<'a> {
    bytes: &'a [u8],
    /// Start of the query, after its `?`.
    query: usize,
}

impl CanonicalPath {
    /// Brings a path and query, as sent, into canonical form (RFC 9309, section 2.2.2). If
    /// the path does not begin with `/`, one is added, as in `http://example.com?query`.
    #[must_use]
    pub fn new(path: &str) -> Self {
        Self::in_dialect(path, Dialect::Rfc9309)
    }

    /// Brings a path and query into the form that `dialect` compares.
    #[must_use]
    pub fn in_dialect(path: &str, dialect: Dialect) -> Self {
        let mut bytes = Buffer::new();
        let escapes = dialect.traits().escapes;
        escapes.canonical_path(path.as_bytes(), &mut bytes);
        Self::of_canonical(&bytes)
    }

    pub(super) fn of_canonical(bytes: &[u8]) -> Self {
        let query = memchr(b'?', bytes);
        Self {
            bytes: bytes.into(),
            folded: query.map(|mark| folded(bytes, mark + 1, Fold::InQuery)),
        }
    }

    /// Returns the canonical form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'a> FoldedPath<'a> {
    /// Wraps bytes that are already folded. The first `?` still begins the query.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            query: query_start(bytes),
        }
    }

    fn from(self, at: usize) -> &'a [u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    fn before_query(self, at: usize) -> &'a [u8] {
        self.bytes.get(at..self.query).unwrap_or_default()
    }
}

/// Returns the nonempty literals between the `*` of a tail.
fn literals(tail: &[u8]) -> impl Iterator<Item = &[u8]> {
    let literals = tail.split(|byte| *byte == b'*');
    literals.filter(|literal| !literal.is_empty())
}

fn folded(text: &[u8], query: usize, scope: Fold) -> Box<[u8]> {
    let mut out = Buffer::new();
    fold(text, query, scope, &mut out);
    out.to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test per row: `"pattern" matches "path" misses "path";`
    macro_rules! matching {
        ($($name:ident: $pattern:literal $(matches $hit:literal)* $(misses $miss:literal)*;)*) => {$(
            #[test]
            fn $name() {
                let pattern = Pattern::new($pattern.as_bytes()).unwrap();
                $(assert!(pattern.matches(&CanonicalPath::new($hit)), $hit);)*
                $(assert!(!pattern.matches(&CanonicalPath::new($miss)), $miss);)*
            }
        )*};
    }

    /// One test per row: `"pattern" folds "path" keeps "path";`
    macro_rules! folding {
        ($($name:ident: $pattern:literal $(folds $hit:literal)* $(keeps $miss:literal)*;)*) => {$(
            #[test]
            fn $name() {
                let pattern = Pattern::new($pattern.as_bytes()).unwrap();
                $(assert!(pattern.matches_folded(&CanonicalPath::new($hit)), $hit);)*
                $(assert!(!pattern.matches_folded(&CanonicalPath::new($miss)), $miss);)*
            }
        )*};
    }

    // RFC 9309, section 2.2.2.
    matching! {
        a_prefix_matches_deeper_paths: "/fish" matches "/fish" matches "/fishheads/yum.html" misses "/Fish" misses "/x/fish";
        the_query_is_part_of_the_path: "/x?id=" matches "/x?id=7" misses "/x?a=1&id=7";
        a_path_without_a_slash_gets_one: "/?q" matches "?q=1";
        a_double_slash_is_not_merged: "//a" matches "//a" misses "/a";
        a_value_without_a_slash_matches_nothing: "private/" misses "/private/" misses "/x/private/";
    }

    // RFC 9309, section 2.2.2, the table, and RFC 3986, section 2.
    matching! {
        utf8_equals_its_escapes: "/ツ" matches "/%E3%83%84" matches "/%e3%83%84" matches "/ツ";
        an_escape_in_a_rule_equals_utf8: "/foo/bar/%E3%83%84" matches "/foo/bar/ツ";
        unreserved_escapes_are_decoded: "/foo/bar/%62%61%7A" matches "/foo/bar/baz" misses "/foo/bar/BAZ";
        unreserved_escapes_of_the_path_are_decoded: "/~joe" matches "/%7ejoe" matches "/%7Ejoe";
        an_escaped_slash_does_not_match_a_slash: "/a%2fb" matches "/a%2Fb" misses "/a/b";
        escapes_are_decoded_once: "/%2562" matches "/%2562" misses "/%62" misses "/b";
        a_broken_escape_is_compared_as_written: "/a%zz" matches "/a%zz" misses "/azz";
        a_space_equals_its_escape: "/a b" matches "/a%20b" misses "/a+b";
        a_control_character_is_compared: "/a\u{0}" matches "/a%00" misses "/a";
    }

    // RFC 9309, section 2.2.3.
    matching! {
        a_star_matches_any_bytes: "/a*c" matches "/ac" matches "/abc/d" matches "/a%2Ac" misses "/ab";
        stars_match_in_order: "/*/b/*/d" matches "/a/b/c/d/e" misses "/a/d/c/b/e";
        a_leading_star_matches_anywhere: "*.gif$" matches "/x/y.gif" misses "/y.gif?1";
        a_star_alone_matches_everything: "*" matches "/" matches "/a?b";
        a_dollar_anchors_the_end: "/*.php$" matches "/a.php" matches "/a.php.php" misses "/a.php?x=1";
        a_dollar_anchors_a_plain_path: "/$" matches "/" misses "/a" misses "/?q";
        the_last_literal_before_a_dollar_is_matched_at_the_end: "/*a$" matches "/aba" misses "/ab";
        literals_do_not_overlap: "/*ab*ab$" matches "/abab" misses "/ab";
        head_and_tail_do_not_overlap: "/ab*ba$" matches "/abba" misses "/aba";
        a_star_before_a_dollar_undoes_it: "/a*$" matches "/a" matches "/abc";
        a_dollar_inside_a_pattern_is_literal: "/a$b" matches "/a$b" matches "/a%24b" misses "/a";
        a_dollar_alone_matches_no_path: "$" misses "/" misses "/$";
        an_escaped_star_is_literal: "/file-with-a-%2A.html" matches "/file-with-a-*.html" misses "/file-with-a-b.html";
        an_escaped_dollar_is_literal: "/foo-%24" matches "/foo-$" misses "/foo-";
    }

    // RFC 9309, section 2.2.2, the second row of the table.
    folding! {
        the_query_of_a_rule_is_folded: "/r?u=https://x.y" folds "/r?u=https%3A%2F%2Fx.y" keeps "/r";
        the_query_of_a_path_is_folded: "/r?u=https%3A%2F%2Fx.y" folds "/r?u=https://x.y";
        the_path_is_not_folded: "/a%3Db?" folds "/a%3Db?" keeps "/a=b?";
        a_literal_after_a_star_is_folded_in_the_query: "/*u=http://" folds "/r?u=http%3A%2F%2Fx" keeps "/u=http%3A%2F%2Fx?q";
        a_literal_after_a_star_may_extend_into_the_query: "/*r?u=/" folds "/x/r?u=%2F" keeps "/x/r%3Fu=/?";
        a_second_question_mark_is_folded: "/*u=x?y" folds "/r?u=x%3Fy";
        literals_keep_their_order: "/*/b*:c*d" folds "/a/b?%3Ac=d" keeps "/a?%3Ac=d";
        the_end_of_the_query_is_folded: "/*=a/$" folds "/r?q=a%2F" keeps "/r?q=a%2Fb";
        an_anchored_query_is_folded: "/r?a=/$" folds "/r?a=%2F" keeps "/r?a=%2Fb";
    }

    // RFC 9309, section 2.2.2: the most bytes. Counted in canonical form, with `*` and `$`.
    #[test]
    fn the_length_counts_canonical_bytes() {
        let len = |value: &str| Pattern::new(value.as_bytes()).unwrap().len();
        assert_eq!(len("/ツ"), 10);
        assert_eq!(len("/%61*"), 3);
        assert_eq!(len("/a**b$"), 6);
        assert_eq!(len("$"), 1);
    }

    // RFC 9309, section 2.2: an empty value is no pattern.
    #[test]
    fn an_empty_value_is_no_pattern() {
        assert_eq!(Pattern::new(b""), None);
    }

    // Ours: patterns come from untrusted files.
    #[test]
    fn a_hostile_pattern_is_matched_in_linear_time() {
        let pattern = Pattern::new(&[&b"/"[..], &b"*a".repeat(50_000), b"*b"].concat()).unwrap();
        assert!(!pattern.matches(&CanonicalPath::new(&format!("/{}", "a".repeat(100_000)))));
        let slashes = Pattern::new(&[&b"/"[..], &b"*/".repeat(50_000), b"*b"].concat()).unwrap();
        let path = CanonicalPath::new(&format!("/?{}", "/".repeat(100_000)));
        assert!(!slashes.matches_folded(&path));
    }
}
