//! Which groups bind a crawler where damaged lines are read as they were meant.
//!
//! Ours (docs/decisions/007-doubt-refuses.md). They bind beside the groups that
//! [`super::binding`] finds without repairs, so that they only add.

use std::sync::Arc;

use memchr::memchr;

use super::dialect::Traits;
use super::lines::lossy;
use super::marks::plain;
use super::parsed_file::ParsedFile;
use super::repair::is_everyone_in_punctuation;
use super::rules::RuleSet;
use super::token::GroupSet;
use crate::crawler::ProductToken;

/// Names by which agent lines may mean a crawler.
#[derive(Clone, Copy)]
pub(super) struct AgentNames<'a> {
    pub(super) candidates: &'a [ProductToken],
    /// The whole User-Agent, which a repaired line may hold.
    pub(super) user_agent: Option<&'a str>,
}

/// The groups that bind a crawler where damaged lines are read as they were
/// meant.
pub(super) struct RepairedBinding {
    pub(super) token: Option<ProductToken>,
    /// Whether an agent line names the crawler: by a token, or by its whole
    /// User-Agent.
    pub(super) is_named: bool,
    pub(super) rules: Arc<RuleSet>,
}

impl Traits {
    /// Reports whether an agent line, read as it was meant, names a crawler: by
    /// `token`, or as a whole User-Agent.
    fn names_as_meant(
        &self,
        value: &[u8],
        token: Option<&ProductToken>,
        agent: Option<&str>,
    ) -> bool {
        let is_token = |value: &[u8]| token.is_some_and(|token| self.names(value, token));
        if is_token(value) {
            return true;
        }
        if value.is_ascii() {
            return agent.is_some_and(|agent| agent.as_bytes() == value);
        }
        let plain = plain(value);
        is_token(plain.as_bytes())
            || agent.is_some_and(|agent| agent == plain || agent == lossy(value))
    }

    /// Reports whether an agent line, read as it was meant, is for everyone.
    pub(super) fn is_everyone_as_meant(&self, value: &[u8]) -> bool {
        self.is_everyone(value)
            || memchr(b'*', value).is_some() && {
                let plain = plain(value);
                self.is_everyone(plain.as_bytes()) || is_everyone_in_punctuation(&plain)
            }
    }
}

impl RepairedBinding {
    /// Binds as [`Binding::new`] does, with repaired lines; `None` if the same
    /// groups bind, which are `standard`.
    #[cold]
    pub(super) fn new(
        file: &Arc<ParsedFile>,
        names: AgentNames<'_>,
        standard: &GroupSet,
        shared: impl FnOnce(&GroupSet) -> Option<Arc<RuleSet>>,
    ) -> Option<Self> {
        let traits = file.traits();
        let with = |binds: &dyn Fn(&[u8]) -> bool| -> GroupSet {
            let all = file.groups().chain(file.repaired.iter().cloned());
            all.filter(|group| file.has_agent(group, binds)).collect()
        };
        let own = |token: Option<&ProductToken>| {
            let groups = with(&|value| traits.names_as_meant(value, token, names.user_agent));
            (!groups.is_empty()).then(|| (token.cloned(), groups))
        };
        let mut candidates = names.candidates.iter().map(Some);
        let named = candidates.find_map(own).or_else(|| own(None));
        let is_named = named.is_some();
        let (token, groups) =
            named.unwrap_or_else(|| (None, with(&|value| traits.is_everyone_as_meant(value))));
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

    /// Reports whether the value of an agent line means the crawler, or everyone
    /// where those groups bind it.
    pub(super) fn addresses(&self, value: &[u8], agent: Option<&str>) -> bool {
        let traits = self.rules.file.traits();
        if self.is_named {
            traits.names_as_meant(value, self.token.as_ref(), agent)
        } else {
            traits.is_everyone_as_meant(value)
        }
    }
}
