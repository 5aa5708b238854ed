//! Usage lines: the lines of a robots.txt about uses of the content, not about fetching it.
//!
//! `Content-Usage` (draft-ietf-aipref-attach-05, section 3), `Content-Signal`
//! (contentsignals.org) and `License` (RSL 1.0). The engine treats them as other records
//! (RFC 9309, section 2.2.4): they end no group and affect no verdict. Few files have any,
//! so the search happens on first use. Does not know the meaning of their values.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::lines::{TextLine, TextLines};
use super::parsed_file::ParsedFile;
use super::rules::RuleSet;
use super::token::GroupSet;

/// Maximum number of usage lines of a file: more than real files need, and few enough to
/// search for each response.
const LINES_MAX: usize = 512;
/// Maximum total length of the usage lines of a file, in bytes: few enough to search for
/// each response.
const BYTES_MAX: usize = 64 * 1024;

/// Usage line that binds a crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageLine<'a> {
    /// Number of the line, from 1.
    pub line: u32,
    /// Name of the line.
    pub kind: UsageKind,
    /// Reason why the line binds the crawler.
    pub scope: UsageScope,
    /// Value of the line, without comment and outer whitespace.
    pub value: &'a [u8],
}

/// Name of a usage line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageKind {
    /// `Content-Usage`.
    ContentUsage,
    /// `Content-Signal`.
    ContentSignal,
    /// `License`, or `Licence`.
    License,
}

/// Position of a usage line, and thereby the crawlers that it binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageScope {
    /// The line is outside all groups, and binds all crawlers.
    AllCrawlers,
    /// The line is in a group that binds the crawler.
    OwnGroup,
}

/// Usage lines of one file, found on first use.
#[derive(Default)]
pub(super) struct UsageLines(OnceLock<Box<[PlacedLine]>>);

/// Position of a usage line in the text, and its group.
struct PlacedLine {
    kind: UsageKind,
    /// Number of the line, from 1.
    line: u32,
    /// Start of the line in the text, in bytes.
    start: u32,
    /// Length of the line in bytes.
    length: u32,
    /// Position of the first token of the group; `None` outside all groups.
    group: Option<u32>,
}

impl UsageLines {
    /// Returns the usage lines in the groups of `rules` and those outside all groups, in file
    /// order. For a file without usage lines, the second call costs nothing.
    pub(super) fn binding<'a>(
        &self,
        file: &'a ParsedFile,
        rules: impl FnOnce() -> Arc<RuleSet>,
    ) -> Vec<UsageLine<'a>> {
        let lines = self.0.get_or_init(|| placed_lines(file));
        if lines.is_empty() {
            return Vec::new();
        }
        let rules = rules();
        let bound = lines.iter().filter_map(|line| {
            Some(UsageLine {
                line: line.line,
                kind: line.kind,
                scope: line.scope(&rules.groups)?,
                value: line.value(file),
            })
        });
        bound.collect()
    }

    /// Returns the memory of the found lines, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.get().map_or(0, |found| size_of_val(&**found))
    }
}

impl PlacedLine {
    /// Returns the scope of the line for a crawler whose groups are `bound`; `None` if the
    /// line is in another group.
    fn scope(&self, bound: &GroupSet) -> Option<UsageScope> {
        let Some(group) = self.group else {
            return Some(UsageScope::AllCrawlers);
        };
        // Groups are in file order.
        let binds = bound.binary_search_by_key(&group, |range| range.start);
        binds.is_ok().then_some(UsageScope::OwnGroup)
    }

    fn value<'a>(&self, file: &'a ParsedFile) -> &'a [u8] {
        let start = self.start as usize;
        let line = file.text.get(start..start + self.length as usize);
        let lines = file.traits().lines;
        let field = lines.field(lines.content(line.unwrap_or_default()));
        field.map_or(&[], |field| field.value)
    }
}

fn placed_lines(file: &ParsedFile) -> Box<[PlacedLine]> {
    let named = TextLines::of(&file.text).filter_map(|line| Some((line, kind(line, file)?)));
    let mut bytes = 0;
    let fits = |(line, _): &(TextLine<'_>, UsageKind)| {
        bytes += line.bytes.len();
        bytes <= BYTES_MAX
    };
    let named: Vec<_> = named.take(LINES_MAX).take_while(fits).collect();
    if named.is_empty() {
        return Box::default();
    }
    let groups: Vec<_> = file
        .groups()
        .map(|group| (lines_of(&group, file), group.start))
        .collect();
    let fit = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    let placed = named.into_iter().map(|(line, kind)| PlacedLine {
        kind,
        line: line.number,
        start: fit(line.start),
        length: fit(line.bytes.len()),
        group: group_of(line.number, &groups),
    });
    placed.collect()
}

/// Returns the kind of a line, if it is a usage line.
fn kind(line: TextLine<'_>, file: &ParsedFile) -> Option<UsageKind> {
    let first = line.bytes.first()?;
    // Checks the first letter first, because every line of every file comes here.
    if !matches!(first | 0x20, b'c' | b'l') && b' ' < *first {
        return None;
    }
    let lines = file.traits().lines;
    let name = lines.field(lines.content(line.bytes))?.name;
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if is("content-usage") {
        Some(UsageKind::ContentUsage)
    } else if is("content-signal") {
        Some(UsageKind::ContentSignal)
    } else {
        (is("license") || is("licence")).then_some(UsageKind::License)
    }
}

/// Returns the range of line numbers of a group: from its first agent line up to the
/// token after the group.
fn lines_of(group: &Range<u32>, file: &ParsedFile) -> Range<u32> {
    let line = |at: u32| file.tokens.get(at as usize).map(|token| token.line);
    line(group.start).unwrap_or(u32::MAX)..line(group.end).unwrap_or(u32::MAX)
}

fn group_of(line: u32, groups: &[(Range<u32>, u32)]) -> Option<u32> {
    let after = groups.partition_point(|(lines, _)| lines.start <= line);
    let (lines, group) = groups.get(after.checked_sub(1)?)?;
    lines.contains(&line).then_some(*group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawler::Crawler;
    use crate::engine::{Dialect, RobotsTxt};

    const FILE: &str = "\
License: https://h.example/all.xml
User-agent: A
Content-Signal: search=yes # so far
Disallow: /a

 CONTENT-USAGE :\ttrain-ai=n
User-agent: B
Allow: /
License: https://h.example/b.xml
User-agent: a
Licence: https://h.example/a.xml
User-agent: *
Content-Usage: search=n
";

    /// Returns the lines that bind, with `+` before those of a group.
    fn bound(file: &str, agent: &str) -> Vec<String> {
        bound_in(file, agent, Dialect::Rfc9309)
    }

    fn bound_in(file: &str, agent: &str, dialect: Dialect) -> Vec<String> {
        let robots = RobotsTxt::in_dialect(file.to_owned(), dialect);
        let lines = robots.usage_lines(&Crawler::parse(agent)).into_iter();
        let shown = lines.map(|line| {
            let mark = if line.scope == UsageScope::OwnGroup {
                "+"
            } else {
                ""
            };
            format!(
                "{mark}{} {}",
                line.line,
                String::from_utf8_lossy(line.value)
            )
        });
        shown.collect()
    }

    // RFC 9309, section 2.2.1: groups for one name are merged.
    #[test]
    fn usage_lines_bind_with_their_groups() {
        let expected = [
            "1 https://h.example/all.xml",
            "+3 search=yes",
            "+6 train-ai=n",
            "+11 https://h.example/a.xml",
            "+13 search=n",
        ];
        assert_eq!(bound(FILE, "A/1.0"), expected);
    }

    // RFC 9309, sections 2.2.1 and 2.2.4: only a rule ends a list of agents, so `a` and
    // `*` above share a group.
    #[test]
    fn lines_of_other_groups_do_not_bind() {
        let all = "1 https://h.example/all.xml";
        assert_eq!(bound(FILE, "B"), [all, "+9 https://h.example/b.xml"]);
        let shared = [all, "+11 https://h.example/a.xml", "+13 search=n"];
        assert_eq!(bound(FILE, "C"), shared);
    }

    // The consensus of 1994: a blank line ends a record.
    #[test]
    fn a_line_after_a_record_of_1994_is_for_everyone() {
        let file = "User-agent: A\nDisallow: /a\n\nLicense: https://h.example/\n";
        let all = ["4 https://h.example/"];
        assert_eq!(bound_in(file, "B", Dialect::Consensus1994), all);
        assert!(bound(file, "B").is_empty());
    }

    // Ours: such lines are also found in UTF-16.
    #[test]
    fn a_line_in_a_file_without_groups_is_for_everyone() {
        let file = "Content-Signal: ai-train=no";
        assert_eq!(bound(file, "A"), ["1 ai-train=no"]);
        let file = format!("{file}\nUser-agent: B\n");
        let wide: Vec<u8> = file.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let robots = RobotsTxt::parse(&wide);
        let lines = robots.usage_lines(&Crawler::parse("A"));
        assert_eq!(lines[0].value, b"ai-train=no");
    }

    // Ours: limits the cost for each response.
    #[test]
    fn usage_lines_beyond_the_limits_are_ignored() {
        let file = "Content-Signal: ai-train=no\n".repeat(LINES_MAX + 1);
        assert_eq!(bound(&file, "A").len(), LINES_MAX);
        let line = format!("Content-Usage: /{}\n", "a".repeat(BYTES_MAX / 4));
        assert_eq!(bound(&line.repeat(4), "A").len(), 3);
    }

    // Ours: the proxy looks for usage lines for every response.
    #[test]
    fn a_file_without_usage_lines_allocates_nothing() {
        let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /a\nSitemap: /b\n");
        let crawler = Crawler::parse("A");
        assert!(robots.usage_lines(&crawler).is_empty());
        let info = allocation_counter::measure(|| {
            assert!(robots.usage_lines(&crawler).is_empty());
        });
        assert_eq!(info.count_total, 0);
        assert_eq!(robots.usage.memory(), 0);
    }
}
