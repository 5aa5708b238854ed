//! Differences between two texts, line by line, in the unified format.
//!
//! E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986, with a
//! bound on the number of differences. Does not know what the texts are.

use std::fmt::Write as _;

use politesse_base::inert::inert;

/// Lines that stay the same and are shown before and after those that do not.
const CONTEXT: usize = 3;

/// Differences up to which the shortest description is searched for. Time and
/// memory grow with the square of it; beyond it, everything between the first and
/// the last difference is shown as replaced.
const DIFFERENCES_MAX: usize = 1024;

/// Lines of one description that are shown; the others are counted.
const SHOWN_MAX: usize = 400;

/// Change of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineChange {
    Same,
    Removed,
    Added,
}

/// Line of either text.
#[derive(Debug, Clone, Copy)]
struct DiffLine<'a> {
    change: LineChange,
    text: &'a [u8],
}

/// Differences between two texts.
#[derive(Debug)]
pub(crate) struct LineDiff<'a> {
    lines: Vec<DiffLine<'a>>,
}

impl<'a> LineDiff<'a> {
    /// Compares `old` with `new`.
    pub(crate) fn new(old: &'a [u8], new: &'a [u8]) -> Self {
        let (old, new) = (lines(old), lines(new));
        let pairs = old.iter().zip(&new);
        let head = pairs.take_while(|(one, other)| one == other).count();
        let (same, old) = old.split_at(head);
        let (_, new) = new.split_at(head);
        let pairs = old.iter().rev().zip(new.iter().rev());
        let tail = pairs.take_while(|(one, other)| one == other).count();
        let (old, same_end) = old.split_at(old.len() - tail);
        let (new, _) = new.split_at(new.len() - tail);
        let of = |change| move |text: &&'a [u8]| DiffLine { change, text };
        let mut lines: Vec<_> = same.iter().map(of(LineChange::Same)).collect();
        match shortest(old, new) {
            Some(middle) => lines.extend(middle),
            None => {
                lines.extend(old.iter().map(of(LineChange::Removed)));
                lines.extend(new.iter().map(of(LineChange::Added)));
            }
        }
        lines.extend(same_end.iter().map(of(LineChange::Same)));
        Self { lines }
    }

    /// Counts the lines that were added.
    pub(crate) fn added(&self) -> usize {
        self.count(LineChange::Added)
    }

    /// Counts the lines that were removed.
    pub(crate) fn removed(&self) -> usize {
        self.count(LineChange::Removed)
    }

    fn count(&self, change: LineChange) -> usize {
        let lines = self.lines.iter();
        lines.filter(|line| line.change == change).count()
    }

    /// Writes the differences in the unified format, without the names of the files.
    /// Characters that control a terminal are escaped, so the text is for people and
    /// not for `patch`.
    pub(crate) fn unified(&self) -> String {
        let mut text = String::new();
        let (mut old, mut new, mut shown, mut left) = (1, 1, 0, 0);
        for hunk in self.hunks() {
            let count = |wanted: LineChange| {
                let lines = hunk.lines.iter();
                lines.filter(|line| line.change != wanted).count()
            };
            let (in_old, in_new) = (count(LineChange::Added), count(LineChange::Removed));
            old += hunk.skipped;
            new += hunk.skipped;
            if SHOWN_MAX <= shown {
                left += hunk.lines.len();
            } else {
                let (first_old, first_new) = (first(old, in_old), first(new, in_new));
                let _ = writeln!(text, "@@ -{first_old},{in_old} +{first_new},{in_new} @@");
            }
            for line in hunk.lines.iter().take(SHOWN_MAX - shown.min(SHOWN_MAX)) {
                let sign = match line.change {
                    LineChange::Same => ' ',
                    LineChange::Removed => '-',
                    LineChange::Added => '+',
                };
                let line = inert(&String::from_utf8_lossy(line.text));
                let _ = writeln!(text, "{sign}{line}");
            }
            if shown < SHOWN_MAX {
                left += hunk.lines.len().saturating_sub(SHOWN_MAX - shown);
            }
            shown += hunk.lines.len();
            old += in_old;
            new += in_new;
        }
        if 0 < left {
            let _ = writeln!(text, "… and {left} more lines");
        }
        text
    }

    /// Finds the stretches with differences, each with the lines around it.
    fn hunks(&self) -> Vec<Hunk<'_>> {
        let is_changed = |(_, line): &(usize, &DiffLine<'_>)| line.change != LineChange::Same;
        let changed = self.lines.iter().enumerate().filter(is_changed);
        let mut stretches: Vec<(usize, usize)> = Vec::new();
        for (at, _) in changed {
            let (from, to) = (
                at.saturating_sub(CONTEXT),
                (at + 1 + CONTEXT).min(self.lines.len()),
            );
            match stretches.last_mut() {
                Some(last) if from <= last.1 => last.1 = to,
                _ => stretches.push((from, to)),
            }
        }
        let mut end = 0;
        let hunk = |(from, to): (usize, usize)| {
            let skipped = from - end;
            end = to;
            Hunk {
                skipped,
                lines: self.lines.get(from..to).unwrap_or_default(),
            }
        };
        stretches.into_iter().map(hunk).collect()
    }
}

/// Stretch of lines with differences.
struct Hunk<'a> {
    /// Lines between the hunk before and this one; all stay the same.
    skipped: usize,
    lines: &'a [DiffLine<'a>],
}

/// Returns the number of the first line of a hunk; that of the line before it if it
/// has none in this text, as the format wants.
fn first(next: usize, lines: usize) -> usize {
    if lines == 0 { next - 1 } else { next }
}

/// Splits a text into lines, without the ends of lines: LF, CR LF or CR, as a
/// robots.txt has them (RFC 9309, section 2.2).
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

/// Finds the shortest list of changes from `old` to `new`; `None` if there are more
/// than [`DIFFERENCES_MAX`].
fn shortest<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> Option<Vec<DiffLine<'a>>> {
    let furthest = Furthest::search(old, new)?;
    let (mut x, mut y) = (old.len(), new.len());
    let mut changes = Vec::new();
    let mut add = |change, text: Option<&&'a [u8]>| {
        let text = text.copied().unwrap_or_default();
        changes.push(DiffLine { change, text });
    };
    // Back from the end, one difference after the other.
    for differences in (0..furthest.steps.len()).rev() {
        let (from_x, from_y) = furthest.before(differences, x, y);
        while from_x < x && from_y < y {
            (x, y) = (x - 1, y - 1);
            add(LineChange::Same, old.get(x));
        }
        if differences == 0 {
            break;
        }
        if from_x < x {
            x -= 1;
            add(LineChange::Removed, old.get(x));
        } else {
            y -= 1;
            add(LineChange::Added, new.get(y));
        }
    }
    changes.reverse();
    Some(changes)
}

/// Furthest lines of the old text that are reached with 0, 1, 2… differences.
///
/// A diagonal is the number of lines of the old text less that of the new one.
struct Furthest {
    /// Lines reached before the search with d differences, by diagonal from -d to d, for
    /// each d.
    steps: Vec<Vec<usize>>,
}

impl Furthest {
    fn search(old: &[&[u8]], new: &[&[u8]]) -> Option<Self> {
        let mut steps: Vec<Vec<usize>> = Vec::new();
        // Two diagonals more than are reached, so that each has neighbours.
        let mut reached = vec![0; 3];
        for differences in 0..=DIFFERENCES_MAX.min(old.len() + new.len()) {
            steps.push(reached.clone());
            let mut next = vec![0; 2 * differences + 5];
            for at in (0..=2 * differences).step_by(2) {
                let mut x = begin(&reached, differences, at);
                // Diagonal `at - differences`.
                while let Some(y) = (x + differences).checked_sub(at)
                    && let (Some(one), Some(other)) = (old.get(x), new.get(y))
                    && one == other
                {
                    x += 1;
                }
                if let Some(place) = next.get_mut(at + 2) {
                    *place = x;
                }
                if x >= old.len() && x + differences >= new.len() + at {
                    return Some(Self { steps });
                }
            }
            reached = next;
        }
        None
    }

    /// Returns where the last of so many differences began that lead to `x`, `y`,
    /// the lines that follow it without a difference included.
    fn before(&self, differences: usize, x: usize, y: usize) -> (usize, usize) {
        let nothing = Vec::new();
        let reached = self.steps.get(differences).unwrap_or(&nothing);
        if differences == 0 {
            return (0, 0);
        }
        let at = (x + differences).saturating_sub(y);
        let value = |at: usize| reached.get(at).copied().unwrap_or_default();
        let (below, above) = (value(at), value(at + 2));
        if is_added(differences, at, below, above) {
            (above, (above + differences).saturating_sub(at + 1))
        } else {
            (below, (below + differences + 1).saturating_sub(at))
        }
    }
}

/// Returns the line of the old text at which diagonal `at` begins: behind a removed
/// line of the diagonal below, or an added one of that above.
fn begin(reached: &[usize], differences: usize, at: usize) -> usize {
    let value = |at: usize| reached.get(at).copied().unwrap_or_default();
    let (below, above) = (value(at), value(at + 2));
    if differences == 0 {
        0
    } else if is_added(differences, at, below, above) {
        above
    } else {
        below + 1
    }
}

/// Reports whether the diagonal `at` is reached by an added line.
fn is_added(differences: usize, at: usize, below: usize, above: usize) -> bool {
    at == 0 || (at != 2 * differences && below < above)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the differences as lines with their signs, and checks that both texts
    /// follow from them.
    fn signed(old: &str, new: &str) -> Vec<String> {
        let diff = LineDiff::new(old.as_bytes(), new.as_bytes());
        let text = |skipped| {
            let lines = diff.lines.iter().filter(|line| line.change != skipped);
            lines.map(|line| line.text).collect::<Vec<_>>()
        };
        assert_eq!(text(LineChange::Added), lines(old.as_bytes()));
        assert_eq!(text(LineChange::Removed), lines(new.as_bytes()));
        let line = |line: &DiffLine<'_>| {
            let sign = match line.change {
                LineChange::Same => ' ',
                LineChange::Removed => '-',
                LineChange::Added => '+',
            };
            format!("{sign}{}", String::from_utf8_lossy(line.text))
        };
        diff.lines.iter().map(line).collect()
    }

    // Myers 1986, figure 2: abcabba and cbabac differ in five lines.
    #[test]
    fn the_shortest_list_of_changes_is_found() {
        let found = signed("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n");
        let changes = found.iter().filter(|line| !line.starts_with(' '));
        assert_eq!(changes.count(), 5, "{found:?}");
        assert_eq!(signed("a\nb\n", "a\nb\n"), [" a", " b"]);
        assert_eq!(signed("", "a\n"), ["+a"]);
        assert_eq!(signed("a\n", ""), ["-a"]);
        assert_eq!(signed("a\r\nb\rc", "a\nx\nc\n"), [" a", "-b", "+x", " c"]);
    }

    // Ours: all texts of up to five lines of three kinds.
    #[test]
    fn both_texts_follow_from_their_differences() {
        let text = |mut number: usize| {
            let mut text = String::new();
            while 0 < number {
                text.push_str(["a\n", "b\n", "c\n"][number % 3]);
                number /= 3;
            }
            text
        };
        for old in 0..243 {
            for new in 0..243 {
                signed(&text(old), &text(new));
            }
        }
    }

    // Ours: a file that is all others takes no more than the bound.
    #[test]
    fn files_without_a_line_in_common_are_replaced_whole() {
        let numbers = |from: usize| (from..from + 3000).map(|line| format!("{line}\n"));
        let (old, new): (String, String) = (numbers(0).collect(), numbers(5000).collect());
        let found = signed(&old, &new);
        assert_eq!(found.len(), 6000);
        let text = LineDiff::new(old.as_bytes(), new.as_bytes()).unified();
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
            LineDiff::new(old.as_bytes(), new.as_bytes()).unified(),
            "@@ -1,5 +1,4 @@\n 1\n-2\n 3\n 4\n 5\n@@ -14,7 +13,8 @@\n 14\n 15\n 16\n-17\n+x\n+y\n \
             18\n 19\n 20\n"
        );
        assert_eq!(
            LineDiff::new(b"", b"\x1b\n").unified(),
            "@@ -0,0 +1,1 @@\n+\\u{1b}\n"
        );
    }
}
