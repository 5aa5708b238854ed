//! One path pattern of a rule, and the paths it is compared with.
//!
//! RFC 9309, section 2.2.2 (percent-encoding, comparison from the first octet)
//! and section 2.2.3 (`*` and `$`). Both sides are put in one canonical form
//! first; after that, comparing is comparing octets. Which of several patterns
//! counts, and for whom, is not known here.
//!
//! The time to match is linear in the path and the pattern, whatever either
//! holds: they come from strangers.

/// What a rule says of paths (RFC 9309, section 2.2.3): literals, with `*`
/// between them for any octets, and `$` last for the end of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What the path starts with, up to the first `*`.
    head: String,
    /// The literals after each `*`, in order, none empty.
    pieces: Vec<String>,
    end: End,
    octets: usize,
    /// Absent where no part of the pattern can lie in a query.
    folded: Option<Box<FoldedPattern>>,
}

/// Where a match may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Anywhere,
    /// The pattern closes with `$`: the last octet of the path.
    Last,
}

impl Pattern {
    /// Reads the value of an Allow or Disallow line; `None` if it is empty,
    /// which decides nothing (RFC 9309, section 2.2).
    ///
    /// A value that begins with neither `/` nor `*` is kept, and matches no
    /// path.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        if value.is_empty() {
            return None;
        }
        let (body, anchor) = match value.strip_suffix(b"$") {
            Some(body) => (body, End::Last),
            None => (value, End::Anywhere),
        };
        let end = if body.ends_with(b"*") {
            End::Anywhere
        } else {
            anchor
        };
        let mut literals = body.split(|&octet| octet == b'*').map(canonical);
        let head = literals.next().unwrap_or_default();
        let mut pieces: Vec<String> = literals.collect();
        let octets = pieces
            .iter()
            .fold(head.len(), |sum, piece| sum + 1 + piece.len())
            + usize::from(anchor == End::Last);
        pieces.retain(|piece| !piece.is_empty());
        let folded = FoldedPattern::new(&head, &pieces).map(Box::new);
        Some(Self {
            head,
            pieces,
            end,
            octets,
            folded,
        })
    }

    /// Whether the pattern matches `path` as RFC 9309, section 2.2.2, asks:
    /// an escaped reserved octet differs from the octet itself.
    #[must_use]
    pub fn matches(&self, path: &CanonicalPath) -> bool {
        let Some(mut rest) = path.text.strip_prefix(self.head.as_str()) else {
            return false;
        };
        let Some((last, middle)) = self.pieces.split_last() else {
            return self.end == End::Anywhere || rest.is_empty();
        };
        // The leftmost place of each literal leaves most for those behind it,
        // so that none has to be tried again.
        for piece in middle {
            let Some((_, after)) = rest.split_once(piece.as_str()) else {
                return false;
            };
            rest = after;
        }
        match self.end {
            End::Anywhere => rest.contains(last.as_str()),
            End::Last => rest.ends_with(last.as_str()),
        }
    }

    /// Whether the pattern matches `path` when, in the query, a reserved octet
    /// and its escape count as the same.
    ///
    /// The table of RFC 9309, section 2.2.2, shows `?baz=http://foo.bar` and
    /// its escaped form as one path. Crawlers disagree on it; a Disallow line
    /// that is meant either way is obeyed either way.
    #[must_use]
    pub fn matches_folded(&self, path: &CanonicalPath) -> bool {
        match (&self.folded, &path.folded) {
            (Some(pattern), Some(path)) => pattern.matches(path, self.end),
            _ => false,
        }
    }

    /// How specific the pattern is: its octets in canonical form, `*` and `$`
    /// counted (RFC 9309, section 2.2.2: the most octets).
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty pattern is none")]
    pub fn len(&self) -> usize {
        self.octets
    }
}

/// A pattern as it reads on a [`FoldedPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoldedPattern {
    head: String,
    pieces: Vec<FoldedPiece>,
}

/// A literal behind a `*`: it may lie before the query, reach into it, or lie
/// in it, and reads differently there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoldedPiece {
    /// Folded behind its first `?` only, which begins the query.
    across: String,
    /// Folded throughout.
    within: String,
}

impl FoldedPattern {
    fn new(head: &str, pieces: &[String]) -> Option<Self> {
        if pieces.is_empty() && !head.contains('?') {
            return None;
        }
        let piece = |literal: &String| FoldedPiece {
            across: folded_behind_mark(literal),
            within: folded(literal),
        };
        Some(Self {
            head: folded_behind_mark(head),
            pieces: pieces.iter().map(piece).collect(),
        })
    }

    fn matches(&self, path: &FoldedPath, end: End) -> bool {
        if !path.text.starts_with(&self.head) {
            return false;
        }
        let Some((last, middle)) = self.pieces.split_last() else {
            return end == End::Anywhere || path.text.len() == self.head.len();
        };
        let mut at = self.head.len();
        for piece in middle {
            let Some(after) = piece.end_in(path, at) else {
                return false;
            };
            at = after;
        }
        match end {
            End::Anywhere => last.end_in(path, at).is_some(),
            End::Last => {
                path.from(at).ends_with(&last.across)
                    || path.from(at.max(path.query)).ends_with(&last.within)
            }
        }
    }
}

impl FoldedPiece {
    /// Where the first occurrence from `at` on ends.
    fn end_in(&self, path: &FoldedPath, at: usize) -> Option<usize> {
        // Behind the `?` both forms are one, or `across` cannot occur; not
        // looking for it there again keeps the time linear.
        let across = if path.query <= at {
            None
        } else if self.across.contains('?') {
            path.from(at).find(&self.across)
        } else {
            path.before_query(at).find(&self.across)
        };
        if let Some(offset) = across {
            return Some(at + offset + self.across.len());
        }
        let from = at.max(path.query);
        let offset = path.from(from).find(&self.within)?;
        Some(from + offset + self.within.len())
    }
}

/// A path with its query in canonical form, made once for all the patterns of
/// a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalPath {
    text: String,
    /// Absent where there is no query.
    folded: Option<FoldedPath>,
}

/// A path whose query has every reserved octet escaped, so that the only `?`
/// is the one that begins the query.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoldedPath {
    text: String,
    /// Where the query begins, behind its `?`.
    query: usize,
}

impl CanonicalPath {
    /// Puts a path and query, as sent, in canonical form (RFC 9309, section
    /// 2.2.2). A path that does not begin with `/` is taken to lack it, as in
    /// `http://example.com?query`.
    #[must_use]
    pub fn new(path: &str) -> Self {
        let mut text = canonical(path.as_bytes());
        if !text.starts_with('/') {
            text.insert(0, '/');
        }
        let folded = text.find('?').map(|mark| FoldedPath {
            text: folded_behind_mark(&text),
            query: mark + 1,
        });
        Self { text, folded }
    }

    /// The canonical form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FoldedPath {
    fn from(&self, at: usize) -> &str {
        self.text.get(at..).unwrap_or_default()
    }

    fn before_query(&self, at: usize) -> &str {
        self.text.get(at..self.query).unwrap_or_default()
    }
}

/// `octets` in the one form in which they are compared, all ASCII: escapes of
/// unreserved octets decoded, other escapes in upper case, octets that a URI
/// cannot hold escaped (RFC 9309, section 2.2.2; RFC 3986, section 2).
///
/// A `*` or `$` that means itself is escaped (RFC 9309, section 2.2.3). A `%`
/// that begins no escape stays.
fn canonical(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len());
    let mut rest = octets;
    while let Some((&octet, tail)) = rest.split_first() {
        rest = tail;
        if octet == b'%' {
            let Some((value, after)) = escaped_octet(tail) else {
                text.push('%');
                continue;
            };
            rest = after;
            push_decoded(&mut text, value);
        } else if stands_for_itself(octet) {
            text.push(char::from(octet));
        } else {
            push_escaped(&mut text, octet);
        }
    }
    text
}

/// The octet whose two hexadecimal digits `tail` begins with, and what follows.
fn escaped_octet(tail: &[u8]) -> Option<(u8, &[u8])> {
    let ([high, low], after) = tail.split_first_chunk::<2>()?;
    let digit = |octet: u8| char::from(octet).to_digit(16);
    let value = digit(*high)? * 16 + digit(*low)?;
    Some((u8::try_from(value).ok()?, after))
}

fn push_decoded(text: &mut String, octet: u8) {
    if is_unreserved(octet) {
        text.push(char::from(octet));
    } else {
        push_escaped(text, octet);
    }
}

fn push_escaped(text: &mut String, octet: u8) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    text.push('%');
    text.push(DIGITS[usize::from(octet >> 4)]);
    text.push(DIGITS[usize::from(octet & 0x0F)]);
}

/// `text` with what follows its first `?` folded.
fn folded_behind_mark(text: &str) -> String {
    match text.split_once('?') {
        Some((before, query)) => format!("{before}?{}", folded(query)),
        None => text.to_owned(),
    }
}

/// Canonical `text` with its reserved octets escaped too.
fn folded(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for octet in text.bytes() {
        if is_reserved(octet) {
            push_escaped(&mut folded, octet);
        } else {
            folded.push(char::from(octet));
        }
    }
    folded
}

/// RFC 3986, section 2.3.
fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~')
}

/// RFC 3986, section 2.2.
fn is_reserved(octet: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&octet)
}

/// Whether a URI can hold `octet` as it is, and it means no more than itself in
/// a pattern.
fn stands_for_itself(octet: u8) -> bool {
    is_unreserved(octet) || (is_reserved(octet) && octet != b'*' && octet != b'$')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test a row: `"pattern" matches "path" misses "path";`
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

    /// One test a row: `"pattern" folds "path" keeps "path";`
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
        prefix_matches_deeper_paths: "/fish" matches "/fish" matches "/fishheads/yum.html" misses "/Fish" misses "/x/fish";
        query_is_part_of_the_path: "/x?id=" matches "/x?id=7" misses "/x?a=1&id=7";
        path_without_slash_has_one: "/?q" matches "?q=1";
        double_slash_is_not_collapsed: "//a" matches "//a" misses "/a";
        value_without_slash_matches_nothing: "private/" misses "/private/" misses "/x/private/";
    }

    // RFC 9309, section 2.2.2, the table, and RFC 3986, section 2.
    matching! {
        utf8_equals_its_escapes: "/ツ" matches "/%E3%83%84" matches "/%e3%83%84" matches "/ツ";
        escape_in_a_rule_equals_utf8: "/foo/bar/%E3%83%84" matches "/foo/bar/ツ";
        unreserved_escapes_are_decoded: "/foo/bar/%62%61%7A" matches "/foo/bar/baz" misses "/foo/bar/BAZ";
        unreserved_escapes_of_the_path_are_decoded: "/~joe" matches "/%7ejoe" matches "/%7Ejoe";
        escaped_slash_is_no_slash: "/a%2fb" matches "/a%2Fb" misses "/a/b";
        escapes_are_decoded_once: "/%2562" matches "/%2562" misses "/%62" misses "/b";
        broken_escape_is_compared_as_it_is: "/a%zz" matches "/a%zz" misses "/azz";
        blank_equals_its_escape: "/a b" matches "/a%20b" misses "/a+b";
        every_octet_of_a_control_counts: "/a\u{0}" matches "/a%00" misses "/a";
    }

    // RFC 9309, section 2.2.3.
    matching! {
        star_spans_any_octets: "/a*c" matches "/ac" matches "/abc/d" matches "/a%2Ac" misses "/ab";
        stars_match_in_order: "/*/b/*/d" matches "/a/b/c/d/e" misses "/a/d/c/b/e";
        leading_star_matches_anywhere: "*.gif$" matches "/x/y.gif" misses "/y.gif?1";
        star_alone_matches_everything: "*" matches "/" matches "/a?b";
        dollar_anchors_the_end: "/*.php$" matches "/a.php" matches "/a.php.php" misses "/a.php?x=1";
        dollar_anchors_a_plain_path: "/$" matches "/" misses "/a" misses "/?q";
        last_literal_is_sought_at_the_end: "/*a$" matches "/aba" misses "/ab";
        literals_do_not_overlap: "/*ab*ab$" matches "/abab" misses "/ab";
        head_and_tail_do_not_overlap: "/ab*ba$" matches "/abba" misses "/aba";
        star_before_dollar_undoes_it: "/a*$" matches "/a" matches "/abc";
        dollar_inside_is_itself: "/a$b" matches "/a$b" matches "/a%24b" misses "/a";
        dollar_alone_matches_no_path: "$" misses "/" misses "/$";
        escaped_star_is_a_star: "/file-with-a-%2A.html" matches "/file-with-a-*.html" misses "/file-with-a-b.html";
        escaped_dollar_is_a_dollar: "/foo-%24" matches "/foo-$" misses "/foo-";
    }

    // RFC 9309, section 2.2.2, the second row of the table.
    folding! {
        query_of_a_rule_is_folded: "/r?u=https://x.y" folds "/r?u=https%3A%2F%2Fx.y" keeps "/r";
        query_of_a_path_is_folded: "/r?u=https%3A%2F%2Fx.y" folds "/r?u=https://x.y";
        path_is_not_folded: "/a%3Db?" folds "/a%3Db?" keeps "/a=b?";
        literal_behind_a_star_is_folded_in_the_query: "/*u=http://" folds "/r?u=http%3A%2F%2Fx" keeps "/u=http%3A%2F%2Fx?q";
        literal_behind_a_star_reaches_into_the_query: "/*r?u=/" folds "/x/r?u=%2F" keeps "/x/r%3Fu=/?";
        second_mark_is_folded: "/*u=x?y" folds "/r?u=x%3Fy";
        literals_keep_their_order: "/*/b*:c*d" folds "/a/b?%3Ac=d" keeps "/a?%3Ac=d";
        end_of_the_query_is_folded: "/*=a/$" folds "/r?q=a%2F" keeps "/r?q=a%2Fb";
        anchored_query_is_folded: "/r?a=/$" folds "/r?a=%2F" keeps "/r?a=%2Fb";
    }

    // RFC 9309, section 2.2.2: the most octets; after encoding, `*` and `$` too.
    #[test]
    fn length_counts_canonical_octets() {
        let len = |value: &str| Pattern::new(value.as_bytes()).unwrap().len();
        assert_eq!(len("/ツ"), 10);
        assert_eq!(len("/%61*"), 3);
        assert_eq!(len("/a**b$"), 6);
        assert_eq!(len("$"), 1);
    }

    // RFC 9309, section 2.2: an empty pattern is no pattern.
    #[test]
    fn empty_value_is_no_pattern() {
        assert_eq!(Pattern::new(b""), None);
    }

    // Ours: a pattern made to be slow is not.
    #[test]
    fn hostile_pattern_is_matched_in_linear_time() {
        let pattern = Pattern::new(&[&b"/"[..], &b"*a".repeat(50_000), b"*b"].concat()).unwrap();
        assert!(!pattern.matches(&CanonicalPath::new(&format!("/{}", "a".repeat(100_000)))));
        let slashes = Pattern::new(&[&b"/"[..], &b"*/".repeat(50_000), b"*b"].concat()).unwrap();
        let path = CanonicalPath::new(&format!("/?{}", "/".repeat(100_000)));
        assert!(!slashes.matches_folded(&path));
    }
}
