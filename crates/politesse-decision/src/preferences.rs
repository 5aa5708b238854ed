//! Purposes that the operator declares for a crawler, and what follows if the
//! preferences of a robots.txt or of a TDM file deny them.
//!
//! A path that robots.txt disallows has no preferences
//! (draft-ietf-aipref-attach-05, section 3.1): they only narrow what its rules
//! allow. Denials are recorded in every mode, also where nothing follows from them. Does
//! not know the preferences that a response states (`withholding`).

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
/// They are part of the policy, so each crawler with purposes of its own is decided
/// by a policy of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PreferenceTerms {
    /// Purposes that the operator declares.
    pub purposes: PurposeSet,
    /// Treatment of a request whose purposes are denied.
    pub enforce: PreferenceMode,
    /// Number of the purposes that must be denied.
    #[serde(default, skip_serializing_if = "is_every")]
    pub rule: DenialRule,
    /// Treatment of a page whose statements could not be read whole.
    #[serde(default, skip_serializing_if = "passes")]
    pub unknown: UnknownPreferences,
}

/// Treatment of a page whose statements could not be read whole (`preferences.unknown`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownPreferences {
    /// What is not known denies nothing.
    #[default]
    Pass,
    /// What is not known denies every purpose that it could deny.
    Refuse,
}

/// Treatment of a request whose purposes are denied (`preferences.enforce`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreferenceMode {
    /// Denials are recorded, and nothing follows from them.
    #[default]
    Off,
    /// The request is forwarded all the same, as in report mode.
    Report,
    /// The request is refused.
    Refuse,
}

/// Treatment of the crawlers whose entry states none (`preferences`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PreferenceDefaults {
    /// Treatment of denied requests.
    pub enforce: PreferenceMode,
    /// Number of the purposes that must be denied.
    pub rule: DenialRule,
    /// Treatment of a page whose statements could not be read whole.
    pub unknown: UnknownPreferences,
}

fn is_every(rule: &DenialRule) -> bool {
    *rule == DenialRule::Every
}

fn passes(unknown: &UnknownPreferences) -> bool {
    *unknown == UnknownPreferences::Pass
}

impl PreferenceTerms {
    /// Returns the denials of the purposes by what `snapshot` says of a path that
    /// `crawler` may fetch.
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

    /// Reports whether the TDM file of the origin of `target` could deny a purpose. The
    /// file itself is judged by robots.txt alone.
    pub fn want_tdm_file(&self, target: &Target) -> bool {
        self.enforce != PreferenceMode::Off
            && !denials::reservable(self.purposes).is_empty()
            && target.path_and_query() != TDM_FILE
    }

    /// Reports whether a request is disallowed for these denials.
    pub(super) fn disallows(&self, denials: &[PurposeDenial]) -> bool {
        self.enforce != PreferenceMode::Off && self.rule.is_met(self.purposes, denials)
    }
}
