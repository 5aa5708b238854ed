//! The last few bindings of a file, so that a crawler that asks again is not
//! bound again.

use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::binding::Binding;
use super::rules::Rules;
use super::token::GroupSet;
use crate::crawler::ProductToken;

/// How many crawlers one file keeps the rules ready for: more than a crawler can
/// have candidates, each of which may be asked about. Those that are bound by
/// the same groups share their rules.
const KEPT: usize = 20;

/// Bindings by the candidates they were made for, the latest first.
#[derive(Default)]
pub(super) struct Bound(Mutex<SmallVec<[Kept; 1]>>);

type Kept = (Arc<[ProductToken]>, Binding);

impl Bound {
    /// The binding kept for `candidates`, or the one that `bind` makes.
    pub(super) fn binding(
        &self,
        candidates: &Arc<[ProductToken]>,
        bind: impl FnOnce() -> Binding,
    ) -> Binding {
        if let Some(binding) = self.find(candidates) {
            return binding;
        }
        // Not under the lock: others can go on, at worst to do the same work.
        let binding = bind();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT - 1);
        kept.insert(0, (Arc::clone(candidates), binding.clone()));
        binding
    }

    fn find(&self, candidates: &Arc<[ProductToken]>) -> Option<Binding> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // As written: the binding names one of them, and tokens are equal
        // whatever their case.
        let is_theirs = |(theirs, _): &Kept| {
            let theirs = theirs.iter().map(ProductToken::as_str);
            theirs.eq(candidates.iter().map(ProductToken::as_str))
        };
        let at = kept.iter().position(is_theirs)?;
        kept.get_mut(..=at)?.rotate_right(1);
        kept.first().map(|(_, binding)| binding.clone())
    }

    /// The rules of these groups, if a binding that is kept has them.
    pub(super) fn rules(&self, groups: &GroupSet) -> Option<Arc<Rules>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = kept.iter().map(|(_, binding)| binding.shared());
        rules.find(|rules| rules.groups == *groups).cloned()
    }

    /// The memory that the bindings take, in bytes.
    pub(super) fn memory(&self) -> usize {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|(_, binding)| binding.memory()).sum()
    }
}
