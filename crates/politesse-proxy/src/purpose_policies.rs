//! Policies of crawlers with purposes: that of the configuration, with the purposes of
//! one of its crawlers in it.
//!
//! A policy is recorded by its digest, so each is made once. Does not know how a request
//! comes by its purposes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use politesse_decision::decide::Policy;
use politesse_decision::digest::Digest;
use politesse_decision::preferences::PreferenceTerms;

/// Policies that are remembered. A configuration has a few, and each reload may add as
/// many for requests that are under way.
const REMEMBERED_MAX: usize = 256;

/// Policies by that of the configuration, and by the purposes in it.
#[derive(Debug, Default)]
pub struct PurposePolicies(Mutex<HashMap<(Digest, PreferenceTerms), Arc<Policy>>>);

impl PurposePolicies {
    /// Returns `policy` with `preferences` in it; without any, as it is.
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
