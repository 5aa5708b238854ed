//! Choice of the `Content-Usage` and `Content-Signal` lines of a robots.txt that
//! count for a path.
//!
//! draft-ietf-aipref-attach-05, sections 3.1 and 3.2: a line may begin with a
//! path, which matches as RFC 9309 has it for Allow and Disallow, whatever the
//! dialect, and the longest counts. Unlike there, lines as specific as each
//! other add up. Content-Signal lines with a path are found, and read alike.
//! Does not know what the lines say.

use politesse_robots::{CanonicalPath, Pattern, UsageKind, UsageLine, UsageScope};

/// Path of a line without one: it matches every path.
const EVERY_PATH: &[u8] = b"/";

/// One line: the paths it is about, and its statement.
struct PathRule<'a> {
    path: &'a [u8],
    statement: &'a [u8],
}

/// Returns the statements of one kind on a path: of the lines in groups the most
/// specific, and of those in no group the most specific.
pub(super) fn most_specific<'a>(
    bound: &[UsageLine<'a>],
    kind: UsageKind,
    path: &CanonicalPath,
) -> Vec<&'a [u8]> {
    let mut statements = Vec::new();
    for scope in [UsageScope::Everyone, UsageScope::Group] {
        let is_wanted = |line: &&UsageLine<'_>| line.kind == kind && line.scope == scope;
        let lines = bound.iter().filter(is_wanted);
        let rules = lines.filter_map(|line| PathRule::read(line.value));
        statements.extend(longest(rules, path));
    }
    statements
}

/// Returns the statements of the rules with the longest path that matches.
fn longest<'a>(rules: impl Iterator<Item = PathRule<'a>>, path: &CanonicalPath) -> Vec<&'a [u8]> {
    let mut length = 0;
    let mut statements = Vec::new();
    for rule in rules {
        let Some(own) = rule.length_on(path) else {
            continue;
        };
        // Rules of one length add up: none of them outweighs another.
        if length < own {
            length = own;
            statements.clear();
        }
        if length == own {
            statements.push(rule.statement);
        }
    }
    statements
}

impl<'a> PathRule<'a> {
    /// Reads the value of a line. `None` if there is a path and nothing after
    /// it: that is no rule.
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

    /// Returns how specific the rule is, if it matches (RFC 9309, section 2.2.2).
    fn length_on(&self, path: &CanonicalPath) -> Option<usize> {
        let pattern = Pattern::new(self.path)?;
        pattern.matches(path).then(|| pattern.len())
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
