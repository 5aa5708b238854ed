//! Which pace records of a file bind a crawler: `Crawl-delay`, `Request-rate`
//! and `Visit-time`.
//!
//! RFC 9309 does not define them, and a record that it does not define ends no
//! list of agents (section 2.2.4). Those who write pace records mean the agents
//! directly above, though: they are older than the RFC. So a pace record binds
//! the agent lines directly above it, back to the line before that is neither
//! agent, blank nor comment; one that stands below a rule binds the group. What
//! the records ask for is known to `rules/pace` alone.

use std::ops::Range;

use super::lines::{TextLines, lossy};
use super::parsed_file::ParsedFile;
use super::records::seconds;
use super::token::{Token, TokenKind};
use crate::pace::PaceRecords;

/// A pace record that binds a crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceRecord {
    /// Number of the line, from 1.
    pub line: u32,
    /// Why it binds.
    pub scope: PaceScope,
}

/// By what a pace record binds a crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceScope {
    /// An agent line directly above names the crawler: the first of its list
    /// that does.
    Agents {
        /// Number of the agent line, from 1.
        line: u32,
    },
    /// The record stands below a rule, so it is for all agents of its group.
    Group,
}

/// A pace record among the tokens of a file.
#[derive(Clone, Copy)]
struct PlacedRecord {
    token: Token,
    scope: PaceScope,
}

/// Collects the pace that `groups` ask of the crawler whose name `names` finds
/// in the values of agent lines; `None` if they ask for none.
pub(super) fn binding(
    file: &ParsedFile,
    groups: &[Range<u32>],
    names: impl Fn(&[u8]) -> bool,
) -> Option<PaceRecords> {
    let mut asked = PaceRecords::default();
    for group in groups {
        let mut delay: Option<(PaceScope, f64)> = None;
        for PlacedRecord { token, scope } in placed(file, group, &names) {
            let value = file.value(token);
            match token.kind() {
                TokenKind::CrawlDelay => {
                    let Some(seconds) = seconds(value) else {
                        // A repaired delay replaces none, it may only add to it.
                        let meant = file.traits().seconds_as_meant(value);
                        meant.into_iter().for_each(|s| asked.take_delay(s));
                        continue;
                    };
                    // Of several for the same agents the last one counts.
                    let before = delay.replace((scope, seconds));
                    let others = before.filter(|(of, _)| *of != scope);
                    others.into_iter().for_each(|(_, s)| asked.take_delay(s));
                }
                TokenKind::RequestRate => asked.take_rate(&lossy(value)),
                TokenKind::VisitTime => asked.take_visit(&lossy(value)),
                TokenKind::Agent | TokenKind::Allow | TokenKind::Disallow | TokenKind::Blank => {}
            }
        }
        // The last delay of the group has none after it to replace it.
        delay.into_iter().for_each(|(_, s)| asked.take_delay(s));
    }
    (!asked.is_nothing()).then_some(asked)
}

/// Returns the pace records of `groups` that bind the crawler that `names`
/// finds.
pub(super) fn records(
    file: &ParsedFile,
    groups: &[Range<u32>],
    names: impl Fn(&[u8]) -> bool,
) -> Vec<PaceRecord> {
    let placed = groups.iter().flat_map(|group| placed(file, group, &names));
    placed
        .map(|PlacedRecord { token, scope }| PaceRecord {
            line: token.line,
            scope,
        })
        .collect()
}

/// Returns the pace records of one group that bind the crawler that `names`
/// finds.
fn placed(
    file: &ParsedFile,
    group: &Range<u32>,
    names: impl Fn(&[u8]) -> bool,
) -> Vec<PlacedRecord> {
    let tokens = file.of_group(group);
    if !tokens.iter().any(|token| token.kind().is_of_pace()) {
        return Vec::new();
    }
    let mut placed = Vec::new();
    let mut previous: Option<Token> = None;
    let mut list = None;
    let mut is_below_rule = false;
    for &token in tokens {
        match token.kind() {
            TokenKind::Agent => {
                let goes_on = previous.is_some_and(|previous| is_one_list(file, previous, token));
                list = list.filter(|_| goes_on).or_else(|| {
                    let line = token.line;
                    names(file.value(token)).then_some(PaceScope::Agents { line })
                });
            }
            TokenKind::Allow | TokenKind::Disallow => is_below_rule = true,
            TokenKind::CrawlDelay | TokenKind::RequestRate | TokenKind::VisitTime => {
                let scope = if is_below_rule {
                    Some(PaceScope::Group)
                } else {
                    list
                };
                placed.extend(scope.map(|scope| PlacedRecord { token, scope }));
            }
            TokenKind::Blank => {}
        }
        previous = Some(token);
    }
    placed
}

/// Reports whether `agent` stands in the same list as the token before it: that
/// is an agent as well, and nothing stands between them but blank lines and
/// comments.
fn is_one_list(file: &ParsedFile, previous: Token, agent: Token) -> bool {
    let between = previous.start as usize..agent.start as usize;
    let text = file.text.get(between).unwrap_or_default();
    // The first is the rest of the line above, the last the line of `agent`.
    let lines = agent.line.saturating_sub(previous.line + 1) as usize;
    let mut between = TextLines::of(text).skip(1).take(lines);
    let form = file.traits().lines;
    previous.kind() == TokenKind::Agent && between.all(|line| form.content(line.bytes).is_empty())
}
