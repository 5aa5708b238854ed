//! Differences between two texts, line by line, in the unified format.
//!
//! Uses the crate `similar`. Does not know what the texts are.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use politesse_base::clock;
use politesse_base::inert::inert;

/// Unchanged lines shown before and after changed ones.
const CONTEXT: usize = 3;

/// Time for finding the shortest diff. After that, the part compared so far counts, and
/// the rest is shown as replaced. Two files of 500 KiB without a common line would take
/// minutes.
const SEARCH_TIME: Duration = Duration::from_millis(500);

/// Maximum number of lines shown of one diff; the others are counted.
const SHOWN_MAX: usize = 400;

/// Differences between two texts.
#[derive(Debug)]
pub struct LineDiff<'a> {
    /// Lines of the old text.
    old: Vec<&'a [u8]>,
    /// Lines of the new text.
    new: Vec<&'a [u8]>,
    /// Equal, removed, added and replaced lines, in order.
    operations: Vec<DiffOp>,
}

impl<'a> LineDiff<'a> {
    /// Compares `old` with `new`.
    pub fn new(old: &'a [u8], new: &'a [u8]) -> Self {
        let (old, new) = (lines(old), lines(new));
        let deadline = (clock::instant() + SEARCH_TIME).into_std();
        let operations = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline));
        Self {
            old,
            new,
            operations,
        }
    }

    /// Counts the lines that were added.
    pub fn added(&self) -> usize {
        let changes = self.changes();
        changes.map(|change| change.new_range().len()).sum()
    }

    /// Counts the lines that were removed.
    pub fn removed(&self) -> usize {
        let changes = self.changes();
        changes.map(|change| change.old_range().len()).sum()
    }

    fn changes(&self) -> impl Iterator<Item = &DiffOp> {
        let operations = self.operations.iter();
        operations.filter(|operation| operation.tag() != DiffTag::Equal)
    }

    /// Writes the differences in the unified format, without file names. Control
    /// characters are escaped, so the text is for reading and not for `patch`.
    pub fn unified(&self) -> String {
        let mut text = String::new();
        let (mut shown, mut left) = (0, 0);
        for hunk in group_diff_ops(self.operations.clone(), CONTEXT) {
            if shown < SHOWN_MAX {
                let (old, new) = (
                    span(hunk.iter().map(DiffOp::old_range)),
                    span(hunk.iter().map(DiffOp::new_range)),
                );
                let _ = writeln!(text, "@@ -{old} +{new} @@");
            }
            for (sign, line) in hunk.iter().flat_map(|operation| self.signed(operation)) {
                if shown < SHOWN_MAX {
                    let line = inert(&String::from_utf8_lossy(line));
                    let _ = writeln!(text, "{sign}{line}");
                    shown += 1;
                } else {
                    left += 1;
                }
            }
        }
        if 0 < left {
            let _ = writeln!(text, "… and {left} more lines");
        }
        text
    }

    /// Returns the lines of an operation with their signs.
    fn signed(&self, operation: &DiffOp) -> impl Iterator<Item = (char, &'a [u8])> {
        let old = self.old.get(operation.old_range()).unwrap_or_default();
        let new = self.new.get(operation.new_range()).unwrap_or_default();
        let (sign, added) = match operation.tag() {
            DiffTag::Equal => (' ', Default::default()),
            DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => ('-', new),
        };
        let removed = old.iter().map(move |line| (sign, *line));
        removed.chain(added.iter().map(|line| ('+', *line)))
    }
}

/// Writes the position of a hunk in one of the texts: its first line and its number of
/// lines. If it has no lines there, the format requires the number of the preceding
/// line.
fn span(ranges: impl Iterator<Item = Range<usize>>) -> String {
    let (start, end) = ranges.fold((usize::MAX, 0), |(start, end), range| {
        (start.min(range.start), end.max(range.end))
    });
    let count = end.saturating_sub(start);
    format!("{},{count}", start + usize::from(0 < count))
}

/// Splits a text into lines without their line endings: LF, CR LF or CR, as in
/// robots.txt (RFC 9309, section 2.2).
fn lines(text: &[u8]) -> Vec<&[u8]> {
    let mut rest = text;
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let (line, behind) = rest.split_at(end.unwrap_or(rest.len()));
        lines.push(line);
        let is_pair = behind.starts_with(b"\r\n");
        rest = behind.get(1 + usize::from(is_pair)..).unwrap_or_default();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unified(old: &str, new: &str) -> String {
        LineDiff::new(old.as_bytes(), new.as_bytes()).unified()
    }

    // RFC 9309, section 2.2: line endings.
    #[test]
    fn line_endings_make_no_difference() {
        let diff = LineDiff::new(b"a\r\nb\rc", b"a\nx\nc\n");
        assert_eq!((diff.removed(), diff.added()), (1, 1));
        assert_eq!(diff.unified(), "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n");
        assert_eq!(unified("a\r\nb", "a\nb\n"), "");
    }

    // Ours: a completely different file takes no more than the limit.
    #[test]
    fn files_without_a_line_in_common_are_replaced_whole() {
        let numbers = |from: usize| (from..from + 3000).map(|line| format!("{line}\n"));
        let (old, new): (String, String) = (numbers(0).collect(), numbers(5000).collect());
        let text = unified(&old, &new);
        assert_eq!(text.lines().count(), SHOWN_MAX + 2);
        assert!(text.ends_with("… and 5600 more lines\n"), "{text}");
    }

    // The format of `diff -u`.
    #[test]
    fn hunks_are_numbered_and_have_three_lines_around_them() {
        let text = |replaced: &[(usize, &str)]| {
            let line = |at: usize| {
                let found = replaced.iter().find(|(line, _)| *line == at);
                found.map_or(format!("{at}\n"), |(_, text)| (*text).to_owned())
            };
            (1..=20).map(line).collect::<String>()
        };
        let (old, new) = (text(&[]), text(&[(2, ""), (17, "x\ny\n")]));
        assert_eq!(
            unified(&old, &new),
            "@@ -1,5 +1,4 @@\n 1\n-2\n 3\n 4\n 5\n@@ -14,7 +13,8 @@\n 14\n 15\n 16\n-17\n+x\n+y\n \
             18\n 19\n 20\n"
        );
        assert_eq!(unified("", "\x1b\n"), "@@ -0,0 +1,1 @@\n+\\u{1b}\n");
    }
}
