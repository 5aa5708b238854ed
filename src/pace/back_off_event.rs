//! That an origin asked for less and that we went away: as an event for the
//! record, and as what has to outlive the process.
//!
//! When a back-off begins, how long it is and when it is forgiven is not known
//! here.

use std::time::Duration;

use jiff::Timestamp;

use politesse_robots::origin::Host;

/// Back-offs that are over sooner are not kept for a restart, which takes
/// about as long.
const WORTH_KEEPING: Duration = Duration::from_secs(60);

/// Which end of a back-off it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackOffChange {
    /// The host asked for less (429, 503), and is not asked until later.
    Entered,
    /// It may be asked again.
    Left,
}

impl BackOffChange {
    /// The word for it in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Entered => "backoff_entered",
            Self::Left => "backoff_left",
        }
    }
}

/// A back-off that began or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackOffEvent {
    /// When.
    pub at: Timestamp,
    /// Which host, on all its ports.
    pub host: Host,
    /// Which end of the back-off it is.
    pub change: BackOffChange,
    /// The status that asked for it; none where it is left.
    pub status: Option<u16>,
    /// Until when the host is not asked, or was not to be.
    pub until: Timestamp,
    /// How many times in a row it asked for less.
    pub incidents: u32,
}

impl BackOffEvent {
    /// What the next process must know of the host: nothing if it is free again,
    /// or will be in a minute.
    #[must_use]
    pub fn saved(&self) -> Option<SavedBackOff> {
        let lasts = self.until.duration_since(self.at).unsigned_abs();
        let is_ahead = self.at < self.until;
        let is_worth_it = is_ahead && WORTH_KEEPING < lasts;
        (self.change == BackOffChange::Entered && is_worth_it).then(|| SavedBackOff {
            host: self.host.clone(),
            until: self.until,
            incidents: self.incidents,
            quiet_since: self.until,
        })
    }
}

/// A back-off as the next process finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedBackOff {
    /// Which host.
    pub host: Host,
    /// Until when it is not asked.
    pub until: Timestamp,
    /// How many times in a row it asked for less.
    pub incidents: u32,
    /// Since when, or from when on, it has not asked for less: what forgiving is
    /// counted from.
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
        }
    }

    // Issue 6, Deliver 6: long ones survive.
    #[test]
    fn a_back_off_of_more_than_a_minute_is_kept() {
        let entered = event(BackOffChange::Entered, "2026-11-21T10:01:00.001Z");
        let kept = entered.saved().unwrap();
        assert_eq!(
            (kept.until, kept.quiet_since),
            (entered.until, entered.until)
        );
        assert_eq!((kept.host, kept.incidents), (entered.host, 2));
    }

    // Issue 6, Deliver 6.
    #[test]
    fn one_of_a_minute_or_one_that_is_over_is_not() {
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
