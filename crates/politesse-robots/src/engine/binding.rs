//! Binding: the groups that bind a crawler, and their judgement of a path.
//!
//! RFC 9309, section 2.2.1: all groups that name the crawler form one set of rules. If there
//! are none, the groups for `*` do. If there are none of these either, no rules apply. Does
//! not know where the names of a crawler come from.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use super::canonical::{Buffer, Fold, fold, query_start};
use super::dialect::{AgentMatch, GroupChoice, LineForm, RuleForms, Traits};
use super::lines::RuleKind;
use super::lines::lossy;
use super::marks::without_end_marks;
use super::pace_records::{self, PaceRecord};
use super::parsed_file::ParsedFile;
use super::pattern::{CanonicalPath, FoldedPath, FoldedPattern};
use super::repaired_binding::{AgentNames, RepairedBinding};
use super::rule::Rule;
use super::rules::{RuleLookup, RuleSet};
use super::token::{GroupSet, Token, TokenKind};
use super::wildcard::Fuel;
use crate::crawler::{self, ProductToken};
use crate::pace::PaceRecords;

/// Path of robots.txt itself.
pub(super) const ROBOTS_TXT: &str = "/robots.txt";

/// Groups that bind one crawler, merged into one. Cheap to clone, and usable for any number
/// of judgements from any number of threads.
#[derive(Clone)]
pub struct Binding {
    token: Option<ProductToken>,
    rules: Arc<RuleSet>,
    /// Additional groups that bind because of repaired lines. A path that they disallow is
    /// disallowed, too.
    repaired: Option<Arc<RepairedBinding>>,
    /// Pace records; `None` if there are none. Crawlers with the same rules may have
    /// different pace records.
    pace: Option<Arc<PaceRecords>>,
    /// Forms in which a Disallow is compared.
    scope: Fold,
}

/// Judgement of one path.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement<'a> {
    /// A rule decides.
    Rule(Rule<'a>),
    /// There are rules for this crawler, but none matches.
    NoRule,
    /// There is no group for this crawler, and none for all crawlers (`*`).
    NoGroup,
    /// The path is that of robots.txt itself, which is always allowed (RFC 9309, section
    /// 2.2.2).
    RobotsTxt,
    /// The judgement would take too long, because the file is built to be slow to match.
    /// Does not allow.
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
    /// Reports whether the value of an agent line names `token`, or all crawlers if `token`
    /// is `None`.
    fn addresses(&self, value: &[u8], token: Option<&ProductToken>) -> bool {
        match token {
            Some(token) => self.names(value, token),
            None => self.is_everyone(value),
        }
    }

    /// Reports whether the value of an agent line names `token`.
    pub(super) fn names(&self, value: &[u8], token: &ProductToken) -> bool {
        match self.binds {
            AgentMatch::Token => {
                // Fast path: a value that names the token has the same first byte.
                let first = value.first().map(u8::to_ascii_lowercase);
                let wanted = token.as_str().bytes().next();
                // Exception: decoding may change a byte that is not ASCII.
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

    /// Reports whether the value of an agent line is `*`, with or without words or invisible
    /// marks after it.
    pub(super) fn is_everyone(&self, value: &[u8]) -> bool {
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
    /// Binds the first candidate that a group names, otherwise the groups for `*` (RFC 9309,
    /// section 2.2.1). `shared` returns the rules of the same groups if another binding has
    /// already prepared them.
    pub(super) fn new(
        file: &Arc<ParsedFile>,
        names: AgentNames<'_>,
        shared: impl Fn(&GroupSet) -> Option<Arc<RuleSet>>,
    ) -> Self {
        let traits = file.traits();
        let named = names.candidates.iter().find_map(|token| {
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
        let binding = Self {
            pace: pace.map(Arc::new),
            token,
            rules,
            repaired: None,
            scope: Fold::InQuery,
        };
        if !file.may_bind_more(names.user_agent) {
            return binding;
        }
        let repaired = RepairedBinding::new(file, names, &binding.rules.groups, shared);
        binding.with_repaired(repaired, names.user_agent)
    }

    /// Adds the groups that bind because of repaired lines, and their pace records.
    fn with_repaired(self, repaired: Option<RepairedBinding>, agent: Option<&str>) -> Self {
        let Some(repaired) = repaired else {
            return self;
        };
        let file = &repaired.rules.file;
        let asked = pace_records::binding(file, &repaired.rules.groups, |value| {
            repaired.addresses(value, agent)
        });
        Self {
            pace: PaceRecords::all(self.pace.iter().chain(&asked.map(Arc::new))),
            repaired: Some(Arc::new(repaired)),
            ..self
        }
    }

    /// Returns the binding limited to groups that name the crawler; `None` if there are
    /// none.
    pub(super) fn own(self) -> Option<Self> {
        if self.token.is_some() {
            return Some(self);
        }
        let repaired = self.repaired.filter(|repaired| repaired.is_named)?;
        Some(Self {
            token: repaired.token.clone(),
            rules: Arc::clone(&repaired.rules),
            pace: self.pace,
            repaired: Some(repaired),
            scope: self.scope,
        })
    }

    /// Returns the candidate whose groups bind; `None` if the groups for `*` or no groups
    /// bind.
    #[must_use]
    pub fn token(&self) -> Option<&ProductToken> {
        let by_repair = || self.repaired.as_ref()?.token.as_ref();
        self.token.as_ref().or_else(by_repair)
    }

    /// Returns the candidate that the group of `rule` names; `None` for a group for `*`.
    #[must_use]
    pub fn token_of(&self, rule: &Rule<'_>) -> Option<&ProductToken> {
        match self.repaired_of(rule) {
            Some(repaired) => repaired.token.as_ref(),
            None => self.token.as_ref(),
        }
    }

    /// Reports whether any group binds. If none does, no rules apply.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.parts().any(|rules| !rules.groups.is_empty())
    }

    /// Returns the rules of the groups that bind by the standard, then those that bind
    /// because of repaired lines.
    fn parts(&self) -> impl Iterator<Item = &RuleSet> {
        let repaired = self.repaired.iter().map(|repaired| &*repaired.rules);
        std::iter::once(&*self.rules).chain(repaired)
    }

    /// Returns the repaired binding if `rule` belongs to it.
    fn repaired_of(&self, rule: &Rule<'_>) -> Option<&RepairedBinding> {
        let repaired = self.repaired.as_deref();
        repaired.filter(|repaired| std::ptr::eq(rule.rules, &raw const *repaired.rules))
    }

    /// Changes the binding to judge paths the way servers read them: a Disallow matches
    /// reserved bytes of the path whether escaped or not (`/a:b`, `/a%3Ab`). By default
    /// [`Binding::judge`] does so only in the query. If a rule is ambiguous, this refuses
    /// every path that it may mean.
    #[must_use]
    pub fn as_served(self) -> Self {
        Self {
            scope: Fold::Everywhere,
            ..self
        }
    }

    /// Judges a path with its query, exactly as sent. Allocates nothing, unless the path has
    /// to be rewritten and is unusually long.
    #[must_use]
    pub fn judge(&self, path: &str) -> Judgement<'_> {
        if path == ROBOTS_TXT && self.rules.file.dialect.exempts_robots_txt() {
            return Judgement::RobotsTxt;
        }
        match &self.repaired {
            Some(repaired) => self.judge_by_both(repaired, path),
            None => self.judge_by(&self.rules, path),
        }
    }

    /// Judges a path by the groups of the standard and by those of repaired lines. Both must
    /// allow it.
    #[cold]
    fn judge_by_both<'a>(&'a self, repaired: &'a RepairedBinding, path: &str) -> Judgement<'a> {
        let standard = self.judge_by(&self.rules, path);
        if !standard.allows() {
            return standard;
        }
        let repaired = self.judge_by(&repaired.rules, path);
        // If both allow, a judgement with a rule is the more informative one.
        if repaired.allows() && standard.rule().is_some() {
            standard
        } else {
            repaired
        }
    }

    // Inlined, because nearly all judgements consist of this alone.
    #[inline(always)]
    fn judge_by<'a>(&self, rules: &'a RuleSet, path: &str) -> Judgement<'a> {
        match rules.answer(path.as_bytes(), self.scope) {
            RuleLookup::Token { at, as_served } => Judgement::Rule(Rule {
                rules,
                at,
                as_served,
            }),
            RuleLookup::Undecided => Judgement::Undecided,
            RuleLookup::NoRule if !rules.groups.is_empty() => Judgement::NoRule,
            RuleLookup::NoRule => Judgement::NoGroup,
        }
    }

    /// Returns all rules that match the path, the deciding rule first.
    ///
    /// Meant for explanations: tries each rule separately, which is much slower than
    /// [`Binding::judge`].
    #[must_use]
    pub fn competing(&self, path: &str) -> Vec<Rule<'_>> {
        let dialect = self.rules.file.dialect;
        let canonical = CanonicalPath::in_dialect(path, dialect);
        let matches = |rule: &Rule<'_>| {
            let disallows = rule.kind() == RuleKind::Disallow;
            rule.matches(&canonical) || (disallows && self.matches_as_served(rule, &canonical))
        };
        let mut matching: Vec<_> = self.rules().filter(matches).collect();
        matching.sort_by_key(|rule| (Reverse(rule.length()), rule.kind(), rule.line()));
        // The index is authoritative. If the order computed here ever differed, the
        // explanation would still name the rule that was applied.
        if let Judgement::Rule(counts) = self.judge(path) {
            matching.retain(|rule| rule.line() != counts.line());
            matching.insert(0, counts);
        }
        matching
    }

    /// Reports whether `rule` matches in a form in which servers read it.
    fn matches_as_served(&self, rule: &Rule<'_>, path: &CanonicalPath) -> bool {
        let traits = self.rules.file.traits();
        if self.scope == Fold::InQuery || traits.forms == RuleForms::AsWritten {
            return false;
        }
        let bytes = path.as_bytes();
        rule.forms().any(|form| {
            let scope = Fold::of_served(&form);
            let mut folded = Buffer::new();
            fold(bytes, query_start(bytes), scope, &mut folded);
            let pattern = FoldedPattern::as_served(&form, traits);
            pattern.is_some_and(|pattern| {
                pattern.matches(FoldedPath::new(&folded), &mut { Fuel::FULL })
            })
        })
    }

    /// Returns the rules of all groups, in file order.
    pub fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        let of_part = |rules| RuleSet::rule_tokens(rules).map(move |(at, _)| Rule::new(rules, at));
        let mut rules: Vec<_> = self.parts().flat_map(of_part).collect();
        if self.repaired.is_some() {
            // A repaired group also contains undamaged rules of the standard's groups.
            rules.sort_by_key(Rule::line);
            rules.dedup_by_key(|rule| rule.line());
        }
        rules.into_iter()
    }

    /// Maximum number of names returned for a group. A file can list tens of thousands, and
    /// every decision record contains them.
    pub const NAMES_MAX: usize = 256;

    /// Returns the names on the agent lines of the groups, in lower case: `["*"]` for the
    /// groups for all crawlers, and an empty list if nothing binds. Returns at most the
    /// first [`Binding::NAMES_MAX`] names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let (rules, is_named) = match &self.repaired {
            Some(repaired) if self.token.is_none() => (&repaired.rules, repaired.is_named),
            _ => (&self.rules, self.token.is_some()),
        };
        if !is_named {
            let groups = rules.groups.iter().take(1);
            return groups.map(|_| "*".to_owned()).collect();
        }
        let groups = rules.groups.iter();
        without_repeats(groups.flat_map(|group| rules.names(group)))
    }

    /// Returns the names on the agent lines of the group of `rule`, in the form of
    /// [`Binding::names`].
    #[must_use]
    pub fn names_of(&self, rule: &Rule<'_>) -> Vec<String> {
        let is_named = match self.repaired_of(rule) {
            Some(repaired) => repaired.is_named,
            None => self.token.is_some(),
        };
        match rule.group() {
            Some(group) if is_named => without_repeats(rule.rules.names(group)),
            _ => vec!["*".to_owned()],
        }
    }

    /// Returns the number of the agent line that makes `rule` bind: the first in its group
    /// that names the crawler, or `*`.
    #[must_use]
    pub fn agent_line(&self, rule: &Rule<'_>) -> Option<u32> {
        let (file, group) = (&rule.rules.file, rule.group()?);
        let repaired = self.repaired_of(rule);
        let is_addressed = |agent: &Token| match repaired {
            Some(repaired) => repaired.addresses(file.value(*agent), None),
            None => self.is_addressed(file.value(*agent)),
        };
        // If no line names the crawler, a complete User-Agent does, which is not known
        // here. The first agent line then stands for it.
        let mut agents = rule.rules.agents(group);
        let first = agents.next()?;
        let named = std::iter::once(first).chain(agents).find(is_addressed);
        Some(named.unwrap_or(first).line)
    }

    /// Reports whether the value of an agent line names the crawler, or all crawlers if the
    /// groups for `*` bind it.
    fn is_addressed(&self, value: &[u8]) -> bool {
        let traits = self.rules.file.traits();
        traits.addresses(value, self.token.as_ref())
    }

    /// Returns the combined pace records that bind the crawler, if there are any.
    #[must_use]
    pub fn pace(&self) -> Option<&Arc<PaceRecords>> {
        self.pace.as_ref()
    }

    /// Returns the pace records that bind the crawler, in file order. Not every pace record
    /// of its groups binds it.
    ///
    /// Meant for explanations: searches the file on each call.
    #[must_use]
    pub fn pace_records(&self) -> Vec<PaceRecord> {
        let names = |value: &[u8]| self.is_addressed(value);
        let file = &self.rules.file;
        let mut records = pace_records::records(file, &self.rules.groups, names);
        if let Some(repaired) = &self.repaired {
            let names = |value: &[u8]| repaired.addresses(value, None);
            records.extend(pace_records::records(file, &repaired.rules.groups, names));
            records.sort_by_key(|record| record.line);
            records.dedup_by_key(|record| record.line);
        }
        records
    }

    /// Returns the longest `Crawl-delay` that binds the crawler, in seconds.
    #[must_use]
    pub fn crawl_delay(&self) -> Option<f64> {
        let pause = self.pace.as_ref()?.crawl_delay?;
        Some(pause.as_secs_f64())
    }

    /// Returns the memory, in bytes, that the rules use in addition to the file.
    #[must_use]
    pub fn memory(&self) -> usize {
        let pace = self.pace.as_ref().map_or(0, |pace| pace.memory());
        size_of::<Self>() + self.parts().map(RuleSet::memory).sum::<usize>() + pace
    }

    pub(super) fn shared_rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    pub(super) fn repaired_rules(&self) -> Option<&Arc<RuleSet>> {
        self.repaired.as_ref().map(|repaired| &repaired.rules)
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
    /// Returns the agent lines of a group. All of them precede its first rule.
    fn agents(&self, group: &Range<u32>) -> impl Iterator<Item = Token> {
        let tokens = self.file.of_group(group).iter().copied();
        tokens
            .take_while(|token| token.rule_kind().is_none())
            .filter(|token| token.kind() == TokenKind::Agent)
    }

    fn names(&self, group: &Range<u32>) -> impl Iterator<Item = String> {
        self.agents(group).map(|agent| {
            let value = self.file.value(agent);
            // No token is longer, so the cut cannot affect a name that binds.
            let name = value.get(..ProductToken::BYTES_MAX).unwrap_or(value);
            lossy(name).to_ascii_lowercase()
        })
    }
}

/// Removes duplicates, and keeps at most [`Binding::NAMES_MAX`] names.
fn without_repeats(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let names = names.filter(|name| seen.insert(name.clone()));
    names.take(Binding::NAMES_MAX).collect()
}

/// Collects the groups that have an agent line for which `binds` holds.
fn groups_with(file: &ParsedFile, which: GroupChoice, binds: impl Fn(&[u8]) -> bool) -> GroupSet {
    let bound = file.groups().filter(|group| file.has_agent(group, &binds));
    match which {
        GroupChoice::Merged => bound.collect(),
        GroupChoice::First => bound.take(1).collect(),
    }
}
