//! Back-off events, and the state of a back-off that is saved across a restart.
//!
//! Does not know when a back-off begins or ends: the crate `politesse-pace` does.

use std::time::Duration;

use jiff::Timestamp;
use politesse_robots::origin::Host;

/// Shortest remaining time for which a back-off is saved. A restart itself takes about
/// as long, so a shorter one would be over by then.
const WORTH_SAVING: Duration = Duration::from_secs(60);

/// Change of a back-off that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackOffChange {
    /// The host answered 429 or 503, and requests to it pause.
    Entered,
    /// The back-off is over: requests to the host may start again.
    Left,
    /// An operator ended the back-off.
    Released,
}

/// Operator's order to end a back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseOrder {
    /// Credential and address that gave the order.
    pub by: String,
    /// Reason, in the operator's words.
    pub reason: String,
}

impl BackOffChange {
    /// Returns the word used in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Entered => "backoff_entered",
            Self::Left => "backoff_left",
            Self::Released => "backoff_released",
        }
    }
}

/// Beginning or end of a back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackOffEvent {
    /// Time of the event.
    pub at: Timestamp,
    /// Host, on all its ports.
    pub host: Host,
    /// Change that the event reports.
    pub change: BackOffChange,
    /// Status of the response that began the back-off; `None` at its end.
    pub status: Option<u16>,
    /// End of the back-off.
    pub until: Timestamp,
    /// Consecutive back-offs for which the host stated no duration.
    pub incidents: u32,
    /// Order that ended the back-off early, if an operator gave one.
    pub release: Option<ReleaseOrder>,
}

impl BackOffEvent {
    /// Returns the back-off to save for the next process; `None` if the back-off is over,
    /// or will be within a minute.
    #[must_use]
    pub fn saved(&self) -> Option<SavedBackOff> {
        let remaining = Duration::try_from(self.until.duration_since(self.at)).unwrap_or_default();
        let is_worth_it = self.change == BackOffChange::Entered && WORTH_SAVING < remaining;
        is_worth_it.then(|| SavedBackOff {
            host: self.host.clone(),
            until: self.until,
            incidents: self.incidents,
            quiet_since: self.until,
        })
    }
}

/// Back-off that a previous process saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedBackOff {
    /// Host, on all its ports.
    pub host: Host,
    /// End of the back-off.
    pub until: Timestamp,
    /// Consecutive back-offs for which the host stated no duration.
    pub incidents: u32,
    /// Time from which the quiet period until forgiveness counts; may be in the future.
    pub quiet_since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(change: BackOffChange, until: &str) -> BackOffEvent {
        BackOffEvent {
            at: "2026-11-21T10:00:00Z".parse().unwrap(),
            host: "o.test".parse().unwrap(),
            change,
            status: Some(429),
            until: until.parse().unwrap(),
            incidents: 2,
            release: None,
        }
    }

    // Ours: long back-offs survive a restart.
    #[test]
    fn a_back_off_of_more_than_a_minute_is_saved() {
        let entered = event(BackOffChange::Entered, "2026-11-21T10:01:00.001Z");
        let kept = entered.saved().unwrap();
        assert_eq!(
            (kept.until, kept.quiet_since),
            (entered.until, entered.until)
        );
        assert_eq!((kept.host, kept.incidents), (entered.host, 2));
    }

    #[test]
    fn a_back_off_that_is_short_or_over_is_not_saved() {
        for until in ["2026-11-21T10:01:00Z", "2026-11-20T10:00:00Z"] {
            assert_eq!(
                event(BackOffChange::Entered, until).saved(),
                None,
                "{until}"
            );
        }
        let left = event(BackOffChange::Left, "2026-11-21T11:00:00Z");
        assert_eq!(left.saved(), None);
    }
}
