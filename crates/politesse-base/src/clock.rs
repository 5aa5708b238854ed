//! Clocks of the process. No other module reads the time.
//!
//! Waits and pauses use the monotonic clock (tokio's, which tests can pause), so that
//! a change of the wall clock never lets a request start sooner than its host wants.
//! The audit record and HTTP dates use the wall clock. Ages use both ([`Stamp`]).
//! Callers read the time again after each wait.

use std::time::{Duration, SystemTime};

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use jiff::Timestamp;
use tokio::time::Instant;

#[cfg(any(test, feature = "testing"))]
use crate::testing;

/// Reads the wall clock, for the audit record and dates.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Timestamp {
    #[cfg(any(test, feature = "testing"))]
    if let Some(now) = testing::wall_clock() {
        return now;
    }
    Timestamp::now()
}

/// Reads the wall clock without converting it to a date. The conversion takes several
/// times as long, and ages do not need it.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn wall() -> SystemTime {
    #[cfg(any(test, feature = "testing"))]
    if let Some(now) = testing::wall_clock() {
        return now.into();
    }
    SystemTime::now()
}

/// Moment on both clocks from which an age is measured.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    instant: Instant,
    wall: SystemTime,
    /// Age at the moment of the stamp.
    age_then: Duration,
}

impl Stamp {
    /// Returns the present moment.
    pub fn now() -> Self {
        Self::aged(Duration::ZERO)
    }

    /// Returns a stamp of the present moment for something that is already `age` old.
    pub fn aged(age: Duration) -> Self {
        Self {
            instant: instant(),
            wall: wall(),
            age_then: age,
        }
    }

    /// Returns the age, measured on the clock on which more time has passed.
    pub fn age(&self) -> Duration {
        // The monotonic clock stops while the machine sleeps, and the wall clock
        // can be set back.
        let by_wall = wall().duration_since(self.wall).unwrap_or_default();
        let monotonic = instant().saturating_duration_since(self.instant);
        self.age_then.saturating_add(monotonic.max(by_wall))
    }
}

/// Returns the time between two moments of the wall clock; zero if `to` is not
/// later.
pub fn passed(from: Timestamp, to: Timestamp) -> Duration {
    // `to` is earlier if the wall clock was set back. The result must not be negative.
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// Reads the monotonic clock, for pauses and lifetimes.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn instant() -> Instant {
    Instant::now()
}

/// Rate limiter that uses the monotonic clock.
pub type RateLimiter =
    governor::RateLimiter<NotKeyed, InMemoryState, LimiterClock, NoOpMiddleware<Duration>>;

/// Clock of a [`RateLimiter`]: the time since the clock was created.
#[derive(Debug, Clone)]
pub struct LimiterClock(Instant);

impl Default for LimiterClock {
    fn default() -> Self {
        Self(instant())
    }
}

impl Clock for LimiterClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        instant().saturating_duration_since(self.0)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::testing::{follow_tokio, set_wall_by};

    const HOUR: Duration = Duration::from_secs(3600);

    // Ours: the machine may sleep, and the wall clock may be set back.
    #[tokio::test(start_paused = true)]
    async fn an_age_is_measured_on_the_clock_that_advanced_further() {
        follow_tokio();
        let stamp = Stamp::now();
        let older = Stamp::aged(HOUR);
        tokio::time::advance(HOUR).await;
        assert_eq!((stamp.age(), older.age()), (HOUR, 2 * HOUR));
        set_wall_by(SignedDuration::from_hours(-100));
        assert_eq!(stamp.age(), HOUR);
        set_wall_by(SignedDuration::from_hours(125));
        assert_eq!((stamp.age(), older.age()), (26 * HOUR, 27 * HOUR));
        assert_eq!(Stamp::aged(Duration::MAX).age(), Duration::MAX);
    }
}
