//! Selection of the `Content-Usage` and `Content-Signal` lines of a robots.txt that
//! count for a path.
//!
//! draft-ietf-aipref-attach-05, sections 3.1 and 3.2: a line may begin with a path,
//! which matches as in RFC 9309's Allow and Disallow in every dialect; the longest
//! match counts. Unlike in RFC 9309, equally specific lines add up. Content-Signal
//! lines with a path exist, and are read the same way. Does not know what the lines
//! state.

use politesse_robots::{CanonicalPath, Pattern, UsageKind, UsageLine, UsageScope};

/// Path used for a line without a path; it matches every path.
const EVERY_PATH: &[u8] = b"/";

/// One line: the paths it applies to, and its statement.
pub(super) struct PathRule<'a> {
    /// Number of the line, counted from 1.
    pub(super) line: u32,
    path: &'a [u8],
    pub(super) statement: &'a [u8],
}

/// Returns the rules of one kind that count for a path: the most specific lines in
/// groups, and the most specific lines outside groups.
pub(super) fn most_specific<'a>(
    bound: &[UsageLine<'a>],
    kind: UsageKind,
    path: &CanonicalPath,
) -> Vec<PathRule<'a>> {
    let mut specific = Vec::new();
    for scope in [UsageScope::Everyone, UsageScope::Group] {
        let is_wanted = |line: &&UsageLine<'_>| line.kind == kind && line.scope == scope;
        let lines = bound.iter().filter(is_wanted);
        let rules = lines.filter_map(PathRule::read);
        specific.extend(longest(rules, path));
    }
    specific
}

/// Returns the rules with the longest matching path.
fn longest<'a>(
    rules: impl Iterator<Item = PathRule<'a>>,
    path: &CanonicalPath,
) -> Vec<PathRule<'a>> {
    let mut length = 0;
    let mut longest = Vec::new();
    for rule in rules {
        let Some(own) = rule.length_on(path) else {
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
    /// Reads a line. Returns `None` if it has a path but no statement.
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

    /// Returns how specific the rule is, if it matches (RFC 9309, section 2.2.2).
    fn length_on(&self, path: &CanonicalPath) -> Option<usize> {
        let pattern = Pattern::new(self.path)?;
        pattern.matches(path).then(|| pattern.len())
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
