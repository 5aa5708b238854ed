//! Pace records of a file that bind a crawler: `Crawl-delay`, `Request-rate` and
//! `Visit-time`.
//!
//! RFC 9309 does not define these records, and records that it does not define do not end a
//! list of agents (section 2.2.4). But pace records are older than the RFC, and their
//! authors mean the agents directly above. So a pace record binds the agent lines above it,
//! upwards to the first line that is not an agent line, blank or a comment. Below a rule, a
//! pace record binds the whole group. Does not know the meaning of the values (`pace`).

use std::ops::Range;

use super::lines::{TextLines, lossy};
use super::parsed_file::ParsedFile;
use super::records::seconds;
use super::token::{Token, TokenKind};
use crate::pace::PaceRecords;

/// Pace record that binds a crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceRecord {
    /// Number of the line, from 1.
    pub line: u32,
    /// Reason why the record binds.
    pub scope: PaceScope,
}

/// Reason why a pace record binds a crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceScope {
    /// An agent line directly above the record names the crawler.
    Agents {
        /// Number of the first such agent line in its list, from 1.
        line: u32,
    },
    /// The record is below a rule, so it binds all agents of its group.
    Group,
}

/// Pace record among the tokens of a file.
#[derive(Clone, Copy)]
struct PlacedRecord {
    token: Token,
    scope: PaceScope,
}

/// Collects the pace records in `groups` that bind a crawler; `None` if there are none.
/// `names` reports whether the value of an agent line names the crawler.
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
                        // A repaired delay must not replace another one. It may
                        // only lengthen the pause.
                        let meant = file.traits().seconds_as_meant(value);
                        meant.into_iter().for_each(|s| asked.take_delay(s));
                        continue;
                    };
                    // Of several delays for the same agents, the last counts.
                    let before = delay.replace((scope, seconds));
                    let others = before.filter(|(of, _)| *of != scope);
                    others.into_iter().for_each(|(_, s)| asked.take_delay(s));
                }
                TokenKind::RequestRate => asked.take_rate(&lossy(value)),
                TokenKind::VisitTime => asked.take_visit(&lossy(value)),
                TokenKind::Agent | TokenKind::Allow | TokenKind::Disallow | TokenKind::Blank => {}
            }
        }
        // No other delay replaces the last one of the group.
        delay.into_iter().for_each(|(_, s)| asked.take_delay(s));
    }
    (!asked.is_nothing()).then_some(asked)
}

/// Returns the pace records in `groups` that bind a crawler. `names` reports whether the
/// value of an agent line names the crawler.
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

/// Returns the pace records of one group that bind a crawler. `names` reports whether the
/// value of an agent line names the crawler.
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

/// Reports whether `agent` belongs to the same list as the token before it: that is an agent
/// as well, with only blank lines and comments between them.
fn is_one_list(file: &ParsedFile, previous: Token, agent: Token) -> bool {
    let between = previous.start as usize..agent.start as usize;
    let text = file.text.get(between).unwrap_or_default();
    // Skips the first piece, the rest of the line above, and the last one, the
    // beginning of the line of `agent`.
    let lines = agent.line.saturating_sub(previous.line + 1) as usize;
    let mut between = TextLines::of(text).skip(1).take(lines);
    let form = file.traits().lines;
    previous.kind() == TokenKind::Agent && between.all(|line| form.content(line.bytes).is_empty())
}
