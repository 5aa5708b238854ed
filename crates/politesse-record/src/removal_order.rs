//! Orders to remove or redact entries: who gives them, and why.
//!
//! Both facts stay on record, in the event of the removal (`docs/keeping.md`). Does
//! not know how entries are removed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::error::AuditError;
use politesse_base::clock;

/// Operating system account that gave an order, as seen by the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemUser {
    /// User id.
    pub uid: u32,
    /// User name, from the environment of the command.
    pub name: Option<String>,
    /// Name of the user who called `sudo`, from the environment of the command.
    pub sudo_user: Option<String>,
}

/// Reason for an order, and the account that gave it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderReason {
    /// Reason: one line of text.
    pub why: String,
    /// Operating system account; `None` if the order did not come from the command
    /// line.
    pub user: Option<SystemUser>,
}

/// Request to remove all entries older than a given time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneRequest {
    /// Time before which entries are removed.
    pub before: Timestamp,
    /// Whether entries younger than `audit.retention` are removed too.
    #[serde(default)]
    pub is_even_younger: bool,
    /// Reason, for the record.
    #[serde(flatten)]
    pub reason: OrderReason,
}

impl PruneRequest {
    /// Checks that the request may remove entries of which the youngest is from
    /// `youngest`, given the configured `retention`.
    ///
    /// # Errors
    ///
    /// [`AuditError::TooYoung`] if the youngest entry is younger than `retention`,
    /// unless the request allows that.
    pub(super) fn check_age(
        &self,
        youngest: Option<Timestamp>,
        retention: Option<Duration>,
    ) -> Result<(), AuditError> {
        let (Some(youngest), Some(retention)) = (youngest, retention) else {
            return Ok(());
        };
        let age = clock::now().duration_since(youngest);
        let age_min = retention.try_into().unwrap_or(SignedDuration::MAX);
        match self.is_even_younger || age_min <= age {
            true => Ok(()),
            false => Err(AuditError::TooYoung {
                age: rounded(age),
                retention: rounded(age_min),
            }),
        }
    }
}

/// Order to remove entries, executed in several steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RetentionOrder {
    /// Time before which entries are removed.
    pub(super) before: Timestamp,
    /// Name of the setting or the channel that the order came from.
    pub(super) by: String,
    /// Reason; `None` if entries are removed because of `audit.retention`.
    pub(super) reason: Option<OrderReason>,
    /// Value of `audit.retention`, if it is set.
    pub(super) retention: Option<Duration>,
}

impl RetentionOrder {
    /// Returns the detail of the event which states that the entries up to `last`
    /// are removed, and that the youngest of them is from `youngest`.
    pub(super) fn event_detail(&self, last: i64, youngest: Option<Timestamp>) -> Json {
        let reason = self.reason.as_ref();
        json!({
            "entries_until": last,
            "youngest": youngest.map(|youngest| youngest.to_string()),
            "before": self.before.to_string(),
            "retention_s": self.retention.map(|retention| retention.as_secs()),
            "by": self.by,
            "user": reason.map(|reason| &reason.user),
            "why": reason.map(|reason| &reason.why),
        })
    }
}

/// Rounds a duration down to a whole number of its largest unit.
fn rounded(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(size, _)| *size <= seconds);
    let (size, name) = unit.unwrap_or((1, "s"));
    format!("{}{name}", seconds / size)
}
