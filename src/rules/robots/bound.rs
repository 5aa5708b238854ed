//! The last few bindings of a file, so that a crawler that asks again is not
//! bound again.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::binding::Binding;
use super::rules::Rules;
use crate::rules::crawler::ProductToken;

/// How many crawlers one file keeps the rules ready for. A file belongs to an
/// origin and a token, so that more than a few are rare.
const KEPT: usize = 8;

/// Bindings by the candidates they were made for, the latest first.
#[derive(Default)]
pub(super) struct Bound(Mutex<Vec<(Box<[ProductToken]>, Binding)>>);

impl Bound {
    /// The binding kept for `candidates`, or the one that `bind` makes.
    pub(super) fn binding(
        &self,
        candidates: &[ProductToken],
        bind: impl FnOnce() -> Binding,
    ) -> Binding {
        let is_theirs = |kept: &(Box<[ProductToken]>, Binding)| *kept.0 == *candidates;
        {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = kept.iter().position(is_theirs) {
                if let Some(until) = kept.get_mut(..=at) {
                    until.rotate_right(1);
                }
                return kept
                    .first()
                    .map_or_else(bind, |(_, binding)| binding.clone());
            }
        }
        // Not under the lock: others can go on, at worst to do the same work.
        let binding = bind();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT - 1);
        kept.insert(0, (candidates.into(), binding.clone()));
        binding
    }

    /// The rules of these groups, if a binding that is kept has them.
    pub(super) fn rules(&self, groups: &[Range<usize>]) -> Option<Arc<Rules>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |rules: &Rules| {
            rules.groups.len() == groups.len()
                && std::iter::zip(&rules.groups, groups)
                    .all(|(one, other)| one.start as usize == other.start)
        };
        let mut rules = kept.iter().map(|(_, binding)| binding.shared());
        rules.find(|rules| is_same(rules)).cloned()
    }

    /// The memory that the bindings take, in octets.
    pub(super) fn memory(&self) -> usize {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = kept
            .iter()
            .map(|(candidates, _)| size_of_val(&**candidates));
        let bindings = kept.iter().map(|(_, binding)| binding.memory());
        keys.chain(bindings).sum()
    }
}
