//! Orders to remove or to redact entries: who gives them, and why.
//!
//! Both stay on record, in the event of the removal (`docs/keeping.md`). Does not know
//! how entries are removed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::error::AuditError;
use politesse_base::clock;

/// Account of the operating system that gave an order, as the command found it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemUser {
    /// Number of the user.
    pub uid: u32,
    /// Name of the user, from the environment of the command.
    pub name: Option<String>,
    /// Name of the user who called `sudo`, from the same environment.
    pub sudo_user: Option<String>,
}

/// Reason for an order, and the account that gave it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderReason {
    /// Reason: one line of text.
    pub why: String,
    /// Account of the operating system. Absent if the order came from another program
    /// than the command line.
    pub user: Option<SystemUser>,
}

/// Request to remove all entries that are older than a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneRequest {
    /// Moment before which entries are removed.
    pub before: Timestamp,
    /// Whether entries younger than `audit.retention` are removed as well.
    #[serde(default)]
    pub is_even_younger: bool,
    /// Reason, for the record.
    #[serde(flatten)]
    pub reason: OrderReason,
}

impl PruneRequest {
    /// Checks that the request may remove entries of which the youngest is from
    /// `youngest`, where `audit.retention` is `retention`.
    ///
    /// # Errors
    ///
    /// [`AuditError::TooYoung`].
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

/// Order to remove entries, of which some are removed at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RetentionOrder {
    /// Moment before which they are.
    pub(super) before: Timestamp,
    /// Name of the setting or the channel that the order came from.
    pub(super) by: String,
    /// Reason; `None` if entries are removed because of `audit.retention`.
    pub(super) reason: Option<OrderReason>,
    /// Value of `audit.retention`, if it is set.
    pub(super) retention: Option<Duration>,
}

impl RetentionOrder {
    /// Makes the detail of the event that says that entries up to `last` are removed,
    /// of which the youngest is from `youngest`.
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

/// Rounds a duration down to a unit in which people think of it.
fn rounded(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(size, _)| *size <= seconds);
    let (size, name) = unit.unwrap_or((1, "s"));
    format!("{}{name}", seconds / size)
}
