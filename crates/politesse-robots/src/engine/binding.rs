//! Which groups bind a crawler, and what they say of a path.
//!
//! RFC 9309, section 2.2.1: the groups that name the crawler are one set of
//! rules; without any, those of `*` are; without those, there are no rules.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use super::canonical::{Buffer, Fold, fold, query_start};
use super::dialect::{AgentMatch, GroupChoice, LineForm, RuleForms, Traits};
use super::lines::RuleKind;
use super::lines::lossy;
use super::pace_records::{self, PaceRecord};
use super::pattern::{CanonicalPath, FoldedPath, FoldedPattern, Pattern};
use super::rules::{RuleLookup, RuleSet};
use super::token::{GroupRanges, GroupSet, ParsedFile, Token, TokenKind, without_end_marks};
use super::wildcard::Fuel;
use crate::crawler::{self, ProductToken};
use crate::pace::PaceRecords;

/// The path of robots.txt itself.
pub(super) const ROBOTS_TXT: &str = "/robots.txt";

/// The groups that bind one crawler, read as one. Cheap to clone, and good for
/// as many judgements as you like, from as many threads.
#[derive(Clone)]
pub struct Binding {
    token: Option<ProductToken>,
    rules: Arc<RuleSet>,
    /// The pace asked for; absent if none is. Crawlers that share their rules
    /// may be asked for different paces.
    pace: Option<Arc<PaceRecords>>,
    /// In which forms a Disallow is tried.
    scope: Fold,
}

/// Outcome of judging one path.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement<'a> {
    /// A rule decides.
    Rule(Rule<'a>),
    /// There are rules for this crawler, and none matches.
    NoRule,
    /// No group is for this crawler, nor for everyone.
    NoGroup,
    /// The file itself is always allowed (RFC 9309, section 2.2.2).
    RobotsTxt,
    /// Judging would take too long, because the file is made to be slow. Not
    /// knowing means no.
    Undecided,
}

impl<'a> Judgement<'a> {
    /// Returns the rule that decides, if one does.
    #[must_use]
    pub fn rule(&self) -> Option<&Rule<'a>> {
        match self {
            Self::Rule(rule) => Some(rule),
            Self::NoRule | Self::NoGroup | Self::RobotsTxt | Self::Undecided => None,
        }
    }

    /// Reports whether the path may be fetched.
    #[must_use]
    pub fn allows(&self) -> bool {
        match self {
            Self::Rule(rule) => rule.kind() == RuleKind::Allow,
            Self::NoRule | Self::NoGroup | Self::RobotsTxt => true,
            Self::Undecided => false,
        }
    }
}

impl Traits {
    /// Reports whether the value of an agent line means `token`, or everyone if
    /// there is none.
    fn addresses(&self, value: &[u8], token: Option<&ProductToken>) -> bool {
        match token {
            Some(token) => self.names(value, token),
            None => self.is_everyone(value),
        }
    }

    /// Reports whether the value of an agent line means `token`.
    fn names(&self, value: &[u8], token: &ProductToken) -> bool {
        match self.binds {
            AgentMatch::Token => {
                // Whatever means the token begins with it.
                let first = value.first().map(u8::to_ascii_lowercase);
                let wanted = token.as_str().bytes().next();
                // But for what is no UTF-8, and is decoded.
                (first == wanted.map(|byte| byte.to_ascii_lowercase())
                    || first.is_some_and(|byte| !byte.is_ascii()))
                    && token.is_named_by(&crawler::decode(value))
            }
            AgentMatch::Letters => {
                let is_letter =
                    |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
                let length = value.iter().take_while(|byte| is_letter(byte)).count();
                let letters = value.get(..length).unwrap_or_default();
                letters.eq_ignore_ascii_case(token.as_str().as_bytes())
            }
            AgentMatch::Part => {
                // The consensus of 1994: "a case insensitive substring match of
                // the name without version information".
                let line = crawler::decode(value).to_ascii_lowercase();
                let name = line
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches([' ', '\t']);
                !name.is_empty() && token.as_str().to_ascii_lowercase().contains(name)
            }
        }
    }

    /// Reports whether this is the `*` line, with or without words or invisible
    /// marks after it.
    fn is_everyone(&self, value: &[u8]) -> bool {
        match value {
            [b'*'] | [b'*', b' ' | b'\t', ..] => true,
            [b'*', b'\t'..=b'\r', ..] => self.lines == LineForm::Cut,
            [b'*', ..] => {
                self.forms == RuleForms::Further && without_end_marks(value) == Some(b"*")
            }
            _ => false,
        }
    }
}

impl Binding {
    /// Binds the first of `candidates` that a group names, else by the groups
    /// of `*` (RFC 9309, section 2.2.1). `shared` looks for rules of the same
    /// groups that another binding has made ready.
    pub(super) fn new(
        file: &Arc<ParsedFile>,
        candidates: &[ProductToken],
        shared: impl FnOnce(&GroupSet) -> Option<Arc<RuleSet>>,
    ) -> Self {
        let traits = file.traits();
        let named = candidates.iter().find_map(|token| {
            let groups = groups_with(file, traits.own, |value| traits.names(value, token));
            (!groups.is_empty()).then(|| (Some(token.clone()), groups))
        });
        let (token, groups) = named.unwrap_or_else(|| {
            let groups = groups_with(file, traits.everyone, |value| traits.is_everyone(value));
            (None, groups)
        });
        let rules = shared(&groups).unwrap_or_else(|| Arc::new(RuleSet::new(file, groups)));
        let pace = pace_records::binding(file, &rules.groups, |value| {
            traits.addresses(value, token.as_ref())
        });
        Self {
            pace: pace.map(Arc::new),
            token,
            rules,
            scope: Fold::InQuery,
        }
    }

    /// Returns the candidate that was bound; `None` when `*` binds, or nothing.
    #[must_use]
    pub fn token(&self) -> Option<&ProductToken> {
        self.token.as_ref()
    }

    /// Reports whether any group binds. If none does, no rules apply.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        !self.rules.groups.is_empty()
    }

    /// Returns a binding to these groups that judges as servers read rules: a
    /// Disallow matches a path in either form of its reserved bytes (`/a:b`,
    /// `/a%3Ab`), as [`Binding::judge`] otherwise has it in the query alone.
    /// Where a rule means either, nothing that it may mean is allowed.
    #[must_use]
    pub fn as_served(self) -> Self {
        Self {
            scope: Fold::Everywhere,
            ..self
        }
    }

    /// Judges a path with its query, bytes as sent. Allocates nothing unless
    /// the path has to be rewritten and is longer than most.
    #[must_use]
    pub fn judge(&self, path: &str) -> Judgement<'_> {
        if path == ROBOTS_TXT && self.rules.file.dialect.exempts_robots_txt() {
            return Judgement::RobotsTxt;
        }
        match self.rules.answer(path.as_bytes(), self.scope) {
            RuleLookup::Token(at) => Judgement::Rule(Rule {
                rules: &self.rules,
                at,
            }),
            RuleLookup::Undecided => Judgement::Undecided,
            RuleLookup::NoRule if self.is_bound() => Judgement::NoRule,
            RuleLookup::NoRule => Judgement::NoGroup,
        }
    }

    /// Returns all rules that match the path, the one that decides first.
    ///
    /// Tries each rule by itself, to explain a judgement; far slower than
    /// [`Binding::judge`].
    #[must_use]
    pub fn competing(&self, path: &str) -> Vec<Rule<'_>> {
        let dialect = self.rules.file.dialect;
        let canonical = CanonicalPath::in_dialect(path, dialect);
        let matches = |rule: &Rule<'_>| {
            let disallows = rule.kind() == RuleKind::Disallow;
            rule.patterns().any(|pattern| {
                pattern.matches(&canonical) || (disallows && pattern.matches_folded(&canonical))
            }) || (disallows && self.matches_as_served(rule, &canonical))
        };
        let mut matching: Vec<_> = self.rules().filter(matches).collect();
        matching.sort_by_key(|rule| (Reverse(rule.length()), rule.kind(), rule.line()));
        // The index decides. Should the slow way here ever order rules otherwise,
        // the explanation still names the rule that was applied.
        if let Judgement::Rule(counts) = self.judge(path) {
            matching.retain(|rule| *rule != counts);
            matching.insert(0, counts);
        }
        matching
    }

    /// Reports whether `rule` matches in a form that is tried because servers
    /// read it so.
    fn matches_as_served(&self, rule: &Rule<'_>, path: &CanonicalPath) -> bool {
        let traits = self.rules.file.traits();
        if self.scope == Fold::InQuery || traits.forms == RuleForms::AsWritten {
            return false;
        }
        let mut folded = Buffer::new();
        let bytes = path.as_bytes();
        fold(bytes, query_start(bytes), self.scope, &mut folded);
        let path = FoldedPath::new(&folded);
        let mut patterns = rule
            .forms()
            .filter_map(|form| FoldedPattern::everywhere(form, traits));
        patterns.any(|pattern| pattern.matches(path, &mut { Fuel::FULL }))
    }

    /// Returns the rules of all the groups, in file order.
    pub fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        let rules = &*self.rules;
        rules.rule_tokens().map(|(at, _)| Rule {
            rules,
            at: at as usize,
        })
    }

    /// Number of names that are given of a group: a file can list tens of
    /// thousands, and every decision is recorded.
    pub const NAMES_MAX: usize = 256;

    /// Returns the names that the groups are for, in lower case: `["*"]` for the groups of
    /// everyone, empty if nothing binds; the first [`Binding::NAMES_MAX`].
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        if self.token.is_none() {
            let groups = self.rules.groups.iter().take(1);
            return groups.map(|_| "*".to_owned()).collect();
        }
        let groups = self.rules.groups.iter();
        without_repeats(groups.flat_map(|group| self.rules.names(group)))
    }

    /// Returns the names that the group of `rule` is for, as
    /// [`Binding::names`] gives them.
    #[must_use]
    pub fn names_of(&self, rule: &Rule<'_>) -> Vec<String> {
        match rule.group().filter(|_| self.token.is_some()) {
            Some(group) => without_repeats(self.rules.names(group)),
            None => self.names(),
        }
    }

    /// Returns the agent line by which `rule` binds: the first of its group
    /// that names the crawler, or everyone.
    #[must_use]
    pub fn agent_line(&self, rule: &Rule<'_>) -> Option<u32> {
        let mut agents = self.rules.agents(rule.group()?);
        agents
            .find(|agent| self.is_addressed(self.rules.file.value(*agent)))
            .map(|agent| agent.line)
    }

    /// Reports whether the value of an agent line means the crawler, or
    /// everyone where those groups bind it.
    fn is_addressed(&self, value: &[u8]) -> bool {
        let traits = self.rules.file.traits();
        traits.addresses(value, self.token.as_ref())
    }

    /// Returns the pace that the pace records of the crawler's groups ask for,
    /// if any.
    #[must_use]
    pub fn pace(&self) -> Option<&Arc<PaceRecords>> {
        self.pace.as_ref()
    }

    /// Returns the pace records that bind the crawler, in file order: not all
    /// of its groups do.
    ///
    /// Found again each time, for explanations.
    #[must_use]
    pub fn pace_records(&self) -> Vec<PaceRecord> {
        let names = |value: &[u8]| self.is_addressed(value);
        pace_records::records(&self.rules.file, &self.rules.groups, names)
    }

    /// Returns the pause asked for, in seconds: the longest that any of the
    /// groups asks of the crawler.
    #[must_use]
    pub fn crawl_delay(&self) -> Option<f64> {
        let pause = self.pace.as_ref()?.crawl_delay?;
        Some(pause.as_secs_f64())
    }

    /// Returns the memory that the rules take beside the file, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let pace = self.pace.as_ref().map_or(0, |pace| pace.memory());
        size_of::<Self>() + self.rules.memory() + pace
    }

    pub(super) fn shared_rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }
}

/// A rule that binds: an Allow or Disallow line (RFC 9309, section 2.2.2).
#[derive(Clone, Copy)]
pub struct Rule<'a> {
    rules: &'a RuleSet,
    at: usize,
}

impl<'a> Rule<'a> {
    /// Returns whether the rule allows or disallows.
    #[must_use]
    pub fn kind(&self) -> RuleKind {
        let token = self.token().and_then(Token::rule_kind);
        token.unwrap_or(RuleKind::Disallow)
    }

    /// Returns the number of its line, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.token().map_or(0, |token| token.line)
    }

    /// Returns the line as written, without byte order mark, comment and outer
    /// blanks; invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'a, str> {
        let Some(token) = self.token() else {
            return Cow::Borrowed("");
        };
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let text = &self.rules.file.text[..];
        let (before, after) = text.split_at(text.len().min(token.start as usize));
        let start = before
            .iter()
            .rposition(is_line_end)
            .map_or(0, |end| end + 1);
        let end = after.iter().position(is_line_end).unwrap_or(after.len());
        let line = text.get(start..before.len() + end).unwrap_or_default();
        lossy(self.rules.file.traits().lines.content(line))
    }

    /// Returns how specific the rule is: the bytes of its path in canonical form, `*` and
    /// `$` counted (RFC 9309, section 2.2.2: the most bytes).
    #[must_use]
    pub fn length(&self) -> usize {
        let pattern = Pattern::in_dialect(self.value(), self.rules.file.dialect);
        pattern.map_or(0, |pattern| pattern.len())
    }

    /// Returns the path in every form that is compared, the written one first.
    fn patterns(&self) -> impl Iterator<Item = Pattern> + use<'a> {
        let dialect = self.rules.file.dialect;
        let forms = self.forms();
        forms.filter_map(move |form| Pattern::in_dialect(form, dialect))
    }

    /// Returns the value, and without invisible marks at its end if it is tried
    /// so.
    fn forms(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (traits, value) = (self.rules.file.traits(), self.value());
        let kind = self.token().map(Token::kind);
        let form = kind.and_then(|kind| traits.without_marks(kind, value));
        [Some(value), form].into_iter().flatten()
    }

    pub(super) fn value(&self) -> &'a [u8] {
        let token = self.token();
        token.map_or(&[], |token| token.value(&self.rules.file.text))
    }

    fn token(&self) -> Option<Token> {
        self.rules.file.tokens.get(self.at).copied()
    }

    fn group(&self) -> Option<&'a Range<u32>> {
        let groups = &self.rules.groups;
        let after = groups.partition_point(|group| group.start as usize <= self.at);
        groups.get(after.checked_sub(1)?)
    }
}

impl PartialEq for Rule<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at && self.rules.file.text == other.rules.file.text
    }
}

impl std::fmt::Debug for Rule<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line(), self.text())
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Binding")
            .field("token", &self.token)
            .field("groups", &self.rules.groups)
            .finish()
    }
}

impl RuleSet {
    /// Returns the agent lines of a group; none stands after its first rule.
    fn agents(&self, group: &Range<u32>) -> impl Iterator<Item = Token> {
        let tokens = self.file.of_group(group).iter().copied();
        tokens
            .take_while(|token| token.rule_kind().is_none())
            .filter(|token| token.kind() == TokenKind::Agent)
    }

    fn names(&self, group: &Range<u32>) -> impl Iterator<Item = String> {
        self.agents(group).map(|agent| {
            let value = self.file.value(agent);
            // No token is longer, so nothing that could bind is cut off.
            let name = value.get(..ProductToken::BYTES_MAX).unwrap_or(value);
            lossy(name).to_ascii_lowercase()
        })
    }
}

/// Each name once, and no more than a person would read.
fn without_repeats(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let names = names.filter(|name| seen.insert(name.clone()));
    names.take(Binding::NAMES_MAX).collect()
}

/// Collects the groups that have an agent line for which `binds` holds.
fn groups_with(file: &ParsedFile, which: GroupChoice, binds: impl Fn(&[u8]) -> bool) -> GroupSet {
    let is_bound = |group: &Range<u32>| {
        let tokens = file.of_group(group).iter();
        let mut agents = tokens.take_while(|token| token.rule_kind().is_none());
        agents.any(|token| token.kind() == TokenKind::Agent && binds(file.value(*token)))
    };
    let bound = GroupRanges::of(&file.tokens).filter(is_bound);
    match which {
        GroupChoice::Merged => bound.collect(),
        GroupChoice::First => bound.take(1).collect(),
    }
}
