//! Purposes that the operator declares for a crawler, and the treatment of its requests
//! if the preferences of a robots.txt or of a TDM file deny these purposes.
//!
//! A path that robots.txt disallows has no preferences
//! (draft-ietf-aipref-attach-05, section 3.1): they only narrow what its rules
//! allow. Denials are recorded in every mode, even in `off`, where they have no effect.
//! Does not know the preferences that a response states (`withholding`).

use politesse_directives::PurposeSet;
use politesse_directives::denials::{self, DenialRule, PurposeDenial};
use politesse_directives::preferences::Preferences;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use super::tdm::{TDM_FILE, TdmResult};

/// Purposes of a crawler, and the treatment of requests if they are denied.
///
/// The terms are part of the policy, so crawlers with different purposes are decided
/// by different policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PreferenceTerms {
    /// Purposes that the operator declares.
    pub purposes: PurposeSet,
    /// Treatment of a request whose purposes are denied.
    pub enforce: PreferenceMode,
    /// Whether every purpose must be denied, or any one is enough.
    #[serde(default, skip_serializing_if = "is_every")]
    pub rule: DenialRule,
    /// Treatment of a page whose statements could not be read completely.
    #[serde(default, skip_serializing_if = "passes")]
    pub unknown: UnknownPreferences,
}

/// Treatment of a page whose statements could not be read completely
/// (`preferences.unknown`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownPreferences {
    /// Unread statements count as denying nothing.
    #[default]
    Pass,
    /// Unread statements count as denying every purpose that they could deny.
    Refuse,
}

/// Treatment of a request whose purposes are denied (`preferences.enforce`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreferenceMode {
    /// Denials are recorded and have no other effect.
    #[default]
    Off,
    /// The request is forwarded anyway, as in report mode.
    Report,
    /// The request is refused.
    Refuse,
}

/// Default treatment for crawlers whose entry sets none (`preferences`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PreferenceDefaults {
    /// Treatment of denied requests.
    pub enforce: PreferenceMode,
    /// Whether every purpose must be denied, or any one is enough.
    pub rule: DenialRule,
    /// Treatment of a page whose statements could not be read completely.
    pub unknown: UnknownPreferences,
}

fn is_every(rule: &DenialRule) -> bool {
    *rule == DenialRule::Every
}

fn passes(unknown: &UnknownPreferences) -> bool {
    *unknown == UnknownPreferences::Pass
}

impl PreferenceTerms {
    /// Returns the denials of the purposes that robots.txt and the TDM file in `snapshot`
    /// state for `path`, which `crawler` may fetch.
    pub(super) fn denials(
        &self,
        snapshot: &Snapshot,
        crawler: &Crawler,
        path: &str,
    ) -> Vec<PurposeDenial> {
        let mut preferences = Preferences::default();
        if let Some(file) = snapshot.file() {
            preferences.add_robots(&file.robots, crawler, path);
        }
        let tdm = snapshot.tdm.as_ref().map(|tdm| &tdm.result);
        let rule = tdm.and_then(|tdm| tdm.binding(path));
        if let Some(rule) = rule {
            preferences.add_tdm_rule(rule);
        }
        let mut denials = denials::by_preferences(&preferences.settle(), self.purposes);
        let is_unknown = rule.is_none() && tdm.is_some_and(TdmResult::is_partial);
        if is_unknown && self.unknown == UnknownPreferences::Refuse {
            denials.extend(denials::by_unknown_reservation(self.purposes));
        }
        denials
    }

    /// Reports whether the TDM file of the origin of `target` could deny a purpose.
    /// Returns false for the URL of the TDM file itself: only robots.txt judges that.
    pub fn want_tdm_file(&self, target: &Target) -> bool {
        self.enforce != PreferenceMode::Off
            && !denials::reservable(self.purposes).is_empty()
            && target.path_and_query() != TDM_FILE
    }

    /// Reports whether these denials disallow a request.
    pub(super) fn disallows(&self, denials: &[PurposeDenial]) -> bool {
        self.enforce != PreferenceMode::Off && self.rule.is_met(self.purposes, denials)
    }
}
