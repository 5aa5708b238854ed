//! Which of the lines of a robots.txt on a use count for a path.
//!
//! draft-ietf-aipref-attach-05, sections 3.1 and 3.2: a line may begin with a
//! path, which matches as RFC 9309 has it for Allow and Disallow, whatever the
//! dialect, and the longest counts. Unlike there, lines as specific as each
//! other add up. Content-Signal lines with a path are found, and read alike.

use politesse_robots::{CanonicalPath, Pattern, UsageKind, UsageLine, UsageScope};

/// The path of a line without one: it matches every path, as this one does.
const EVERY_PATH: &[u8] = b"/";

/// A line's path, and what it says of uses.
struct PathRule<'a> {
    path: &'a [u8],
    statement: &'a [u8],
}

/// What the lines of one kind say of a path: those of the groups that are the
/// most specific, and the most specific of those in no group.
pub(super) fn most_specific<'a>(
    bound: &[UsageLine<'a>],
    kind: UsageKind,
    path: &CanonicalPath,
) -> Vec<&'a [u8]> {
    let mut said = Vec::new();
    for scope in [UsageScope::Everyone, UsageScope::Group] {
        let lines = bound.iter().filter(|line| line.kind == kind);
        let lines = lines.filter(|line| line.scope == scope);
        let rules = lines.filter_map(|line| PathRule::read(line.value));
        said.extend(longest(rules, path));
    }
    said
}

/// The statements of the rules with the longest path that matches.
fn longest<'a>(rules: impl Iterator<Item = PathRule<'a>>, path: &CanonicalPath) -> Vec<&'a [u8]> {
    let mut length = 0;
    let mut said = Vec::new();
    for rule in rules {
        let Some(own) = rule.length_on(path) else {
            continue;
        };
        if length < own {
            length = own;
            said.clear();
        }
        if length == own {
            said.push(rule.statement);
        }
    }
    said
}

impl<'a> PathRule<'a> {
    /// `None` if there is a path and nothing behind it: that is no rule.
    fn read(value: &'a [u8]) -> Option<Self> {
        if value.first() != Some(&b'/') {
            return Some(Self {
                path: EVERY_PATH,
                statement: value,
            });
        }
        let end = value.iter().position(|byte| is_blank(*byte))?;
        let (path, statement) = value.split_at(end);
        Some(Self {
            path,
            statement: statement.trim_ascii(),
        })
    }

    /// How specific it is, if it matches (RFC 9309, section 2.2.2).
    fn length_on(&self, path: &CanonicalPath) -> Option<usize> {
        let pattern = Pattern::new(self.path)?;
        pattern.matches(path).then(|| pattern.len())
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
