//! Policies of crawlers with purposes: the configured policy, extended by the purposes of
//! one of its crawlers.
//!
//! A policy is recorded by its digest, so each is built once. Does not know where the
//! purposes of a request come from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use politesse_decision::decide::Policy;
use politesse_decision::digest::Digest;
use politesse_decision::preferences::PreferenceTerms;

/// Maximum number of cached policies. A configuration needs a few, and each reload may
/// add as many for requests under way.
const REMEMBERED_MAX: usize = 256;

/// Policies by the digest of the configured policy and the preferences added to it.
#[derive(Debug, Default)]
pub struct PurposePolicies(Mutex<HashMap<(Digest, PreferenceTerms), Arc<Policy>>>);

impl PurposePolicies {
    /// Returns `policy` extended by `preferences`, or unchanged if there are none.
    pub(super) fn of(
        &self,
        policy: Arc<Policy>,
        preferences: Option<&PreferenceTerms>,
    ) -> Arc<Policy> {
        let Some(&preferences) = preferences else {
            return policy;
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if REMEMBERED_MAX <= known.len() {
            known.clear();
        }
        let made = known
            .entry((policy.digest(), preferences))
            .or_insert_with(|| Arc::new(policy.for_purposes(preferences)));
        Arc::clone(made)
    }
}
