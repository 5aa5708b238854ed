//! Explanations of a judgement for the author of a robots.txt: which other rules matched
//! and why they did not decide, and which agent lines joined a group by accident.
//!
//! RFC 9309, sections 2.1 and 2.2. Computed only on demand. Does not make judgements.

use std::fmt;

use super::binding::{Binding, Judgement};
use super::dialect::{Dialect, Precedence};
use super::lines::RuleKind;
use super::pattern::Pattern;
use super::records::NoteKind;
use super::rule::Rule;

/// Reason why a matching rule does not decide: the advantage of the rule that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outranked {
    /// The rule is shorter (RFC 9309, section 2.2.2: the most bytes).
    Shorter,
    /// The rules are equally long, and an Allow beats a Disallow (RFC 9309, section
    /// 2.2.2).
    AllowAsLong,
    /// The rules are equally long and of the same kind, and this one is further down.
    RepeatedAsLong,
    /// The rule is further down, and the first matching rule decides.
    FurtherDown,
    /// The rule does not name the exact path, and the other one does (Conner, 1996).
    NotOutright,
    /// Both rules name the exact path, and an Allow beats a Disallow (Conner, 1996).
    AllowOutright,
}

impl Outranked {
    /// Returns the word used in answers to programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shorter => "shorter",
            Self::AllowAsLong => "allow_as_long",
            Self::RepeatedAsLong => "repeated_as_long",
            Self::FurtherDown => "further_down",
            Self::NotOutright => "not_outright",
            Self::AllowOutright => "allow_outright",
        }
    }
}

impl fmt::Display for Outranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shorter => "shorter",
            Self::AllowAsLong => "as long, but allow counts",
            Self::RepeatedAsLong => "as long, but further down",
            Self::FurtherDown => "further down, and the first that matches counts",
            Self::NotOutright => "it does not name the path outright",
            Self::AllowOutright => "it names the path outright as well, but allow counts",
        })
    }
}

impl Binding {
    /// Returns the rules that match `path` but do not decide, each with the reason. They
    /// have the order of [`Binding::competing`].
    ///
    /// The list is empty if no rule decides, or if the judgement is
    /// [`Judgement::Undecided`]: then trying each rule would also take too long.
    #[must_use]
    pub fn outranked(&self, path: &str) -> Vec<(Rule<'_>, Outranked)> {
        let Judgement::Rule(counts) = self.judge(path) else {
            return Vec::new();
        };
        let others = self.competing(path).into_iter();
        others
            .filter(|rule| *rule != counts)
            .map(|rule| {
                (
                    rule,
                    self.shared_rules().file.dialect.outranked(&rule, &counts),
                )
            })
            .collect()
    }
}

impl Dialect {
    /// Reports whether the longest matching rule decides (RFC 9309, section 2.2.2).
    #[must_use]
    pub fn prefers_length(self) -> bool {
        self.traits().order == Precedence::Longest
    }

    /// Returns the reason why `counts` decides and not `rule`. Both rules match.
    fn outranked(self, rule: &Rule<'_>, counts: &Rule<'_>) -> Outranked {
        let allow_wins = counts.kind() == RuleKind::Allow && rule.kind() == RuleKind::Disallow;
        let is_outright = |rule: &Rule<'_>| {
            Pattern::in_dialect(rule.value(), self)
                .is_some_and(|pattern| pattern.shape().is_explicit())
        };
        // The order of the arms is that of the specifications, the strongest reason
        // first.
        match self.traits().order {
            Precedence::Longest if rule.length() < counts.length() => Outranked::Shorter,
            Precedence::Longest if allow_wins => Outranked::AllowAsLong,
            Precedence::Longest => Outranked::RepeatedAsLong,
            Precedence::Explicit if is_outright(counts) && !is_outright(rule) => {
                Outranked::NotOutright
            }
            Precedence::Explicit if is_outright(counts) && allow_wins => Outranked::AllowOutright,
            Precedence::FirstInFile | Precedence::Explicit => Outranked::FurtherDown,
        }
    }
}

/// Agent line that shares its rules with agents further up, although lines between them
/// look like the end of a group ([`NoteKind::JoinsGroup`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedAgents {
    /// Number of the agent line, from 1.
    pub line: u32,
    /// Number of the agent line above, from 1.
    pub above: u32,
}

impl NoteKind {
    /// Returns the word used in answers to programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotARecord => "not_a_record",
            Self::Html => "html",
            Self::UnknownRecord => "unknown_record",
            Self::Misspelt => "misspelt",
            Self::WithoutColon => "without_colon",
            Self::NamesNobody => "names_nobody",
            Self::OutsideGroup => "outside_group",
            Self::NeverMatches => "never_matches",
            Self::EndsInvisibly => "ends_invisibly",
            Self::HoldsMarks => "holds_marks",
            Self::OtherCharset => "other_charset",
            Self::UrlOfSite => "url_of_site",
            Self::MarkedName => "marked_name",
            Self::MarkedToken => "marked_token",
            Self::EveryoneInPunctuation => "everyone_in_punctuation",
            Self::RuleOnAgentLine => "rule_on_agent_line",
            Self::WholeUserAgent => "whole_user_agent",
            Self::DelayAsMeant => "delay_as_meant",
            Self::JoinsGroup => "joins_group",
            Self::Noindex => "noindex",
            Self::InvalidCrawlDelay => "invalid_crawl_delay",
            Self::InvalidRequestRate => "invalid_request_rate",
            Self::InvalidVisitTime => "invalid_visit_time",
            Self::CutAtLimit => "cut_at_limit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outranked::{
        AllowAsLong, AllowOutright, FurtherDown, NotOutright, RepeatedAsLong, Shorter,
    };
    use super::*;
    use crate::crawler::Crawler;
    use crate::engine::RobotsTxt;

    fn outranked(dialect: Dialect, robots: &'static str, path: &str) -> Vec<(u32, Outranked)> {
        let robots = RobotsTxt::in_dialect(robots.as_bytes(), dialect);
        let binding = robots.binding(&Crawler::parse("FooBot"));
        let outranked = binding.outranked(path);
        outranked
            .iter()
            .map(|(rule, why)| (rule.line(), *why))
            .collect()
    }

    /// One test per row: a file, a path, and the lines that do not decide, with the reason.
    macro_rules! losing {
        ($($name:ident: $dialect:ident $robots:literal on $path:literal loses $expected:expr;)*) => {$(
            #[test]
            fn $name() {
                let expected: &[(u32, Outranked)] = &$expected;
                assert_eq!(outranked(Dialect::$dialect, $robots, $path), expected);
            }
        )*};
    }

    // RFC 9309, section 2.2.2; the drafts of 1996 for the order in the file.
    losing! {
        shorter_rules_lose: Rfc9309 "User-agent: *\nAllow: /\nDisallow: /a\nAllow: /a/b" on "/a/b"
            loses [(3, Shorter), (2, Shorter)];
        an_equally_long_disallow_loses: Rfc9309 "User-agent: *\nDisallow: /a\nAllow: /a" on "/a"
            loses [(2, AllowAsLong)];
        repeats_lose: Rfc9309 "User-agent: *\nDisallow: /a\nDisallow: /a" on "/a"
            loses [(3, RepeatedAsLong)];
        rules_that_do_not_match_do_not_compete: Rfc9309 "User-agent: *\nDisallow: /a\nDisallow: /b" on "/a"
            loses [];
        nothing_loses_if_no_rule_decides: Rfc9309 "User-agent: *\nDisallow: /a" on "/b" loses [];
        longer_rules_lose_further_down: Draft1996 "User-agent: *\nDisallow: /a\nAllow: /a/b" on "/a/b"
            loses [(3, FurtherDown)];
        ignored_allow_lines_do_not_compete: Consensus1994 "User-agent: *\nAllow: /a\nDisallow: /a" on "/a"
            loses [];
        globs_lose_to_a_rule_that_names_the_path: Conner "User-agent: *\nDisallow: /a*\nAllow: /ab" on "/ab"
            loses [(2, NotOutright)];
        explicit_disallow_loses_to_explicit_allow: Conner "User-agent: *\nDisallow: /ab\nAllow: /ab" on "/ab"
            loses [(2, AllowOutright)];
        globs_lose_to_globs_above: Conner "User-agent: *\nDisallow: /a*\nAllow: /*b" on "/ab"
            loses [(3, FurtherDown)];
    }

    // RFC 9309, section 2.2.4: only a rule ends a list of agents.
    #[test]
    fn agent_lines_that_join_a_group_are_found_from_a_rule() {
        let robots = RobotsTxt::parse(
            b"User-agent: A\nDisallow: /a\n\nUser-agent: *\nCrawl-delay: 5\n\nUser-agent: B # b\nDisallow: /b\n",
        );
        assert_eq!(robots.joined(8), [JoinedAgents { line: 7, above: 4 }]);
        assert_eq!(robots.joined(2), []);
        assert_eq!(robots.joined(99), []);
        assert_eq!(robots.line(7).as_deref(), Some("User-agent: B"));
        assert_eq!(robots.line(99), None);
    }

    // RFC 9309, section 2.1: an empty rule is a rule. `check` advises to use one.
    #[test]
    fn an_empty_disallow_keeps_agents_apart() {
        let robots = RobotsTxt::parse(
            b"User-agent: *\nCrawl-delay: 5\nDisallow:\n\nUser-agent: B\nDisallow: /b\n",
        );
        assert_eq!(robots.joined(6), []);
        let binding = robots.binding(&Crawler::parse("A"));
        assert_eq!(binding.judge("/b"), Judgement::NoRule);
    }
}
