//! The last few bindings of one file, so that a crawler that asks again is not
//! bound again.
//!
//! Does not know how a binding is made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::binding::Binding;
use super::rules::RuleSet;
use super::token::GroupSet;
use crate::crawler::ProductToken;

/// Most bindings of one file that are kept: more than a crawler can have
/// candidates, each of which may be asked about by itself. Crawlers that are
/// bound by the same groups share their rules.
const BINDINGS_MAX: usize = 20;

/// Bindings by the candidates they were made for, the latest first.
#[derive(Default)]
pub(super) struct BindingCache(Mutex<SmallVec<[CachedBinding; 1]>>);

struct CachedBinding {
    candidates: Arc<[ProductToken]>,
    user_agent: Option<Arc<str>>,
    binding: Binding,
}

impl BindingCache {
    /// Returns the binding kept for `candidates`, or the one that `bind` makes.
    /// `user_agent` is given where the groups may depend on it.
    pub(super) fn binding(
        &self,
        candidates: &Arc<[ProductToken]>,
        user_agent: Option<&Arc<str>>,
        bind: impl FnOnce() -> Binding,
    ) -> Binding {
        if let Some(binding) = self.find(candidates, user_agent) {
            return binding;
        }
        // Not under the lock: others can go on, at worst to do the same work.
        let binding = bind();
        let mut cached = self.lock();
        cached.truncate(BINDINGS_MAX - 1);
        let candidates = Arc::clone(candidates);
        cached.insert(
            0,
            CachedBinding {
                candidates,
                user_agent: user_agent.cloned(),
                binding: binding.clone(),
            },
        );
        binding
    }

    fn find(
        &self,
        candidates: &Arc<[ProductToken]>,
        user_agent: Option<&Arc<str>>,
    ) -> Option<Binding> {
        let mut cached = self.lock();
        // Compared as written: the binding names one of the candidates, and
        // tokens are equal whatever their case.
        let at = cached.iter().position(|entry| {
            let theirs = entry.candidates.iter().map(ProductToken::as_str);
            theirs.eq(candidates.iter().map(ProductToken::as_str))
                && entry.user_agent.as_ref() == user_agent
        })?;
        cached.get_mut(..=at)?.rotate_right(1);
        cached.first().map(|entry| entry.binding.clone())
    }

    /// Returns the rules of `groups`, if a cached binding has them.
    pub(super) fn rules(&self, groups: &GroupSet) -> Option<Arc<RuleSet>> {
        let cached = self.lock();
        let bindings = cached.iter().map(|entry| &entry.binding);
        let mut rules = bindings.flat_map(|binding| {
            std::iter::once(binding.shared_rules()).chain(binding.repaired_rules())
        });
        rules.find(|rules| rules.groups == *groups).cloned()
    }

    /// Counts the bytes of memory that the bindings take.
    pub(super) fn memory(&self) -> usize {
        self.lock().iter().map(|entry| entry.binding.memory()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, SmallVec<[CachedBinding; 1]>> {
        // A panic under the lock leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
