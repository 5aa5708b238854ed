//! Repaired binding: the groups that bind a crawler if damaged lines are repaired.
//!
//! Ours (docs/decisions/007-doubt-refuses.md). These groups bind in addition to those that
//! [`super::binding`] finds without repairs, so they can only refuse more. Does not know
//! how lines are repaired.

use std::sync::Arc;

use super::dialect::Traits;
use super::lines::lossy;
use super::marks::plain;
use super::parsed_file::ParsedFile;
use super::repair::is_everyone_in_punctuation;
use super::rules::RuleSet;
use super::token::GroupSet;
use crate::crawler::ProductToken;

/// Names that agent lines may use for a crawler.
#[derive(Clone, Copy)]
pub(super) struct AgentNames<'a> {
    pub(super) candidates: &'a [ProductToken],
    /// The complete User-Agent, which an agent line may contain.
    pub(super) user_agent: Option<&'a str>,
}

/// Groups that bind a crawler if damaged lines are repaired.
pub(super) struct RepairedBinding {
    pub(super) token: Option<ProductToken>,
    /// Whether an agent line names the crawler, by a token or by its complete User-Agent.
    pub(super) is_named: bool,
    pub(super) rules: Arc<RuleSet>,
}

/// Value of an agent line, as written and as a person reads it.
pub(super) struct MeantName<'a> {
    written: &'a [u8],
    /// Form without invisible marks; `None` if the value is ASCII, and so has none.
    plain: Option<String>,
}

impl<'a> MeantName<'a> {
    pub(super) fn of(written: &'a [u8]) -> Self {
        Self {
            written,
            plain: (!written.is_ascii()).then(|| plain(written)),
        }
    }

    /// Reports whether the value names a crawler, by `token` or by its complete User-Agent.
    fn names(&self, traits: &Traits, token: Option<&ProductToken>, agent: Option<&str>) -> bool {
        let is_token = |value: &[u8]| token.is_some_and(|token| traits.names(value, token));
        let is_plain = |agent: &str| match &self.plain {
            Some(plain) => agent == plain || agent == lossy(self.written),
            None => agent.as_bytes() == self.written,
        };
        let plain = self.plain.as_deref();
        is_token(self.written)
            || plain.is_some_and(|plain| is_token(plain.as_bytes()))
            || agent.is_some_and(is_plain)
    }

    /// Reports whether the value stands for all crawlers.
    pub(super) fn is_everyone(&self, traits: &Traits) -> bool {
        let in_punctuation =
            |text: &str| traits.is_everyone(text.as_bytes()) || is_everyone_in_punctuation(text);
        let plain = match &self.plain {
            Some(plain) => Some(&plain[..]),
            None => str::from_utf8(self.written).ok(),
        };
        traits.is_everyone(self.written) || plain.is_some_and(in_punctuation)
    }
}

impl RepairedBinding {
    /// Binds as `Binding::new` does, but with repaired lines. Returns `None` if the result
    /// is the same groups, `standard`.
    #[cold]
    pub(super) fn new(
        file: &Arc<ParsedFile>,
        names: AgentNames<'_>,
        standard: &GroupSet,
        shared: impl FnOnce(&GroupSet) -> Option<Arc<RuleSet>>,
    ) -> Option<Self> {
        let traits = file.traits();
        let all = file.groups().chain(file.repaired.iter().cloned());
        // Collected once, because a file may have many agent lines and a crawler many
        // names.
        let agents: Vec<_> = all
            .flat_map(|group| {
                let names = file.agents(&group).map(MeantName::of);
                names.map(move |name| (group.clone(), name))
            })
            .collect();
        let with = |binds: &dyn Fn(&MeantName<'_>) -> bool| {
            let bound = agents.iter().filter(|(_, name)| binds(name));
            let mut groups: GroupSet = bound.map(|(group, _)| group.clone()).collect();
            groups.dedup();
            groups
        };
        let own = |token: Option<&ProductToken>| {
            let groups = with(&|name| name.names(traits, token, names.user_agent));
            (!groups.is_empty()).then(|| (token.cloned(), groups))
        };
        let mut candidates = names.candidates.iter().map(Some);
        let named = candidates.find_map(own).or_else(|| own(None));
        let is_named = named.is_some();
        let (token, groups) =
            named.unwrap_or_else(|| (None, with(&|name| name.is_everyone(traits))));
        if groups == *standard {
            return None;
        }
        let rules = shared(&groups).unwrap_or_else(|| Arc::new(RuleSet::new(file, groups)));
        Some(Self {
            token,
            is_named,
            rules,
        })
    }

    /// Reports whether the value of an agent line names the crawler, or all crawlers if the
    /// groups for `*` bind it.
    pub(super) fn addresses(&self, value: &[u8], agent: Option<&str>) -> bool {
        let (traits, name) = (self.rules.file.traits(), MeantName::of(value));
        if self.is_named {
            name.names(traits, self.token.as_ref(), agent)
        } else {
            name.is_everyone(traits)
        }
    }
}
