//! Throttle for log lines that clients can trigger repeatedly.
//!
//! A client that can reach a listener must not be able to fill the disk with log lines.
//! Lines that it can repeat have the target [`REPEATING`]. Does not know the log:
//! `cli/log.rs` asks this module about each line.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;

use crate::clock::{LimiterClock, RateLimiter};

/// Target of log events that clients can trigger as often as they like.
pub const REPEATING: &str = "politesse::repeating";

/// Time after which one more line of the same kind may be written.
pub const PAUSE: Duration = Duration::from_secs(1);

/// Quota for lines of one kind after a burst: one line each [`PAUSE`].
const AFTER_BURST: Quota = Quota::per_second(NonZeroU32::MIN);

/// Throttle for the lines of one kind.
///
/// The first `burst` lines are written as they come. Further lines are dropped until their
/// number has been reported, which may happen once each [`PAUSE`]. While no lines come, one
/// line of the burst is restored each pause.
#[derive(Debug)]
pub struct Throttle {
    limiter: RateLimiter,
    /// Number of dropped lines that have not been reported.
    left_out: u64,
}

/// Decision about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Write the line.
    Write,
    /// Only count the line.
    LeaveOut,
}

impl Throttle {
    /// Creates the throttle for a kind of which no line has come yet.
    pub fn new(burst: NonZeroU32) -> Self {
        let quota = AFTER_BURST.allow_burst(burst);
        Self {
            limiter: RateLimiter::direct_with_clock(quota, LimiterClock::default()),
            left_out: 0,
        }
    }

    /// Decides whether a line that comes now is written.
    pub fn decide(&mut self) -> Fate {
        // While dropped lines are unreported, the one line allowed each pause is
        // the report of their number.
        if self.has_left_out() || self.limiter.check().is_err() {
            self.left_out += 1;
            return Fate::LeaveOut;
        }
        Fate::Write
    }

    /// Returns the number of dropped lines and resets it, if a line that reports it may be
    /// written now.
    pub fn report(&mut self) -> Option<u64> {
        let is_due = self.has_left_out() && self.limiter.check().is_ok();
        is_due.then(|| std::mem::take(&mut self.left_out))
    }

    /// Returns the number of dropped lines and resets it, for the end of the log.
    pub fn last_report(&mut self) -> Option<u64> {
        self.has_left_out()
            .then(|| std::mem::take(&mut self.left_out))
    }

    /// Reports whether there are dropped lines that have not been reported.
    pub fn has_left_out(&self) -> bool {
        0 < self.left_out
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::clock;

    /// Throttle with a paused clock.
    struct PausedThrottle {
        throttle: Throttle,
        made_at: Instant,
    }

    impl PausedThrottle {
        fn new(burst: u32) -> Self {
            Self {
                throttle: Throttle::new(NonZeroU32::new(burst).unwrap()),
                made_at: clock::instant(),
            }
        }

        /// Advances the clock to `ms` after the creation of the throttle.
        async fn advance_to(&self, ms: u64) {
            let at = self.made_at + Duration::from_millis(ms);
            advance(at.saturating_duration_since(clock::instant())).await;
        }

        /// Returns the times, in milliseconds, at which lines are written, if lines come at
        /// `times`.
        async fn written(&mut self, times: impl IntoIterator<Item = u64>) -> Vec<u64> {
            let mut written = Vec::new();
            for ms in times {
                self.advance_to(ms).await;
                written.extend((self.throttle.decide() == Fate::Write).then_some(ms));
            }
            written
        }

        async fn reported(&mut self, ms: u64) -> Option<u64> {
            self.advance_to(ms).await;
            self.throttle.report()
        }
    }

    // Ours.
    #[tokio::test(start_paused = true)]
    async fn after_a_burst_only_the_number_of_dropped_lines_is_written_each_second() {
        let mut throttle = PausedThrottle::new(3);
        assert_eq!(throttle.written(0..900).await, [0, 1, 2]);
        assert_eq!(throttle.reported(999).await, None);
        assert_eq!(throttle.reported(1000).await, Some(897));
        assert!(throttle.written(1000..2500).await.is_empty());
        assert_eq!(throttle.reported(2500).await, Some(1500));
        assert_eq!(throttle.reported(9000).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_dropped_lines_are_reported_at_the_end() {
        let mut throttle = PausedThrottle::new(1);
        throttle.written(0..10).await;
        assert_eq!(throttle.throttle.last_report(), Some(9));
        assert_eq!(throttle.throttle.last_report(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_restores_at_most_one_burst() {
        let mut throttle = PausedThrottle::new(2);
        assert_eq!(throttle.written([0, 0]).await, [0, 0]);
        assert_eq!(throttle.written([60_000; 3]).await, [60_000; 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_line_each_second_is_always_written() {
        let mut throttle = PausedThrottle::new(1);
        let times = (0..100).map(|second| second * 1000);
        assert_eq!(throttle.written(times).await.len(), 100);
    }
}
