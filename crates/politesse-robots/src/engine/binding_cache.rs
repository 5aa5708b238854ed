//! Cache of the latest bindings of one file, so that repeated requests of a crawler need
//! not bind it again.
//!
//! Does not know how a binding is created.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::binding::Binding;
use super::rules::RuleSet;
use super::token::GroupSet;
use crate::crawler::ProductToken;

/// Maximum number of cached bindings of one file: enough for the usual number of candidates
/// of a crawler, each of which may be bound separately. Crawlers bound by the same groups
/// share their rules.
const BINDINGS_MAX: usize = 20;

/// Bindings by the candidates that they were created for, the latest first.
#[derive(Default)]
pub(super) struct BindingCache(Mutex<SmallVec<[CachedBinding; 1]>>);

struct CachedBinding {
    candidates: Arc<[ProductToken]>,
    user_agent: Option<Arc<str>>,
    binding: Binding,
}

impl BindingCache {
    /// Returns the cached binding for `candidates`, or creates one with `bind`.
    /// `user_agent` is given only if the groups may depend on it.
    pub(super) fn binding(
        &self,
        candidates: &Arc<[ProductToken]>,
        user_agent: Option<&Arc<str>>,
        bind: impl FnOnce() -> Binding,
    ) -> Binding {
        if let Some(binding) = self.find(candidates, user_agent) {
            return binding;
        }
        // Called without the lock, so that other threads need not wait. At worst,
        // two threads do the same work.
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
        // Compared as written, because the binding names one of the candidates and
        // the equality of tokens ignores case.
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

    /// Returns the memory that the bindings use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.lock().iter().map(|entry| entry.binding.memory()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, SmallVec<[CachedBinding; 1]>> {
        // A panic under the lock leaves the list in a valid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
