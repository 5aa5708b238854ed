//! Selection of the `Content-Usage` and `Content-Signal` lines of a robots.txt that
//! count for a path.
//!
//! draft-ietf-aipref-attach-05, sections 3.1 and 3.2: the value of a line may begin with
//! a path, which matches like the path of an Allow or Disallow line; the longest match
//! counts. Unlike in RFC 9309, equally specific lines add up. A path has the syntax of
//! RFC 9309 even if `robots.dialect` gives Allow and Disallow lines another one.
//! Content-Signal lines with a path exist, and are read in the same way. Does not
//! interpret the statements.

use politesse_robots::{CanonicalPath, Pattern, UsageKind, UsageLine, UsageScope};

/// Path used for a line without a path; it matches every path.
const EVERY_PATH: &[u8] = b"/";

/// Line of a robots.txt, split into the paths it applies to and its statement.
pub(super) struct PathRule<'a> {
    /// Number of the line, counted from 1.
    pub(super) line: u32,
    /// Pattern of the paths.
    path: &'a [u8],
    /// Rest of the value, such as `train-ai=n`.
    pub(super) statement: &'a [u8],
}

/// Returns the rules of one kind that count for a path: of the lines that bind the
/// crawler (`bound`), the most specific in its groups, and the most specific outside all
/// groups.
pub(super) fn most_specific<'a>(
    bound: &[UsageLine<'a>],
    kind: UsageKind,
    path: &CanonicalPath,
) -> Vec<PathRule<'a>> {
    let mut specific = Vec::new();
    // Separately, because a line in a group does not set aside one outside all groups,
    // however specific it is.
    for scope in [UsageScope::AllCrawlers, UsageScope::OwnGroup] {
        let is_wanted = |line: &&UsageLine<'_>| line.kind == kind && line.scope == scope;
        let lines = bound.iter().filter(is_wanted);
        let rules = lines.filter_map(PathRule::read);
        specific.extend(longest_matches(rules, path));
    }
    specific
}

/// Returns the matching rules whose pattern is the longest.
fn longest_matches<'a>(
    rules: impl Iterator<Item = PathRule<'a>>,
    path: &CanonicalPath,
) -> Vec<PathRule<'a>> {
    let mut length = 0;
    let mut longest = Vec::new();
    for rule in rules {
        let Some(own) = rule.matched_length(path) else {
            continue;
        };
        // Rules of equal length add up: none outweighs another.
        if length < own {
            length = own;
            longest.clear();
        }
        if length == own {
            longest.push(rule);
        }
    }
    longest
}

impl<'a> PathRule<'a> {
    /// Splits the value of a line. Returns `None` if it has a path but no statement: no
    /// blank follows the path.
    fn read(written: &UsageLine<'a>) -> Option<Self> {
        let UsageLine { line, value, .. } = *written;
        if value.first() != Some(&b'/') {
            return Some(Self {
                line,
                path: EVERY_PATH,
                statement: value,
            });
        }
        let end = value.iter().position(|byte| is_blank(*byte))?;
        let (path, statement) = value.split_at(end);
        Some(Self {
            line,
            path,
            statement: statement.trim_ascii(),
        })
    }

    /// Returns how specific the rule is: the length of its pattern, in bytes (RFC 9309,
    /// section 2.2.2). Returns `None` if it does not match the path.
    fn matched_length(&self, path: &CanonicalPath) -> Option<usize> {
        let pattern = Pattern::new(self.path)?;
        pattern.matches(path).then(|| pattern.len())
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
