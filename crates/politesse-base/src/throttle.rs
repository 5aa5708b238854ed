//! Throttle for log lines that clients can cause at will.
//!
//! A client that reaches a listener must not fill the disk with log lines. Those
//! that it can repeat have the target [`REPEATING`]. This module knows no log:
//! `cli/log.rs` asks it about each line.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;

use crate::clock::{LimiterClock, RateLimiter};

/// Target of log events that clients can cause as often as they like.
pub const REPEATING: &str = "politesse::repeating";

/// Time after which one more line of a kind may be written.
pub const PAUSE: Duration = Duration::from_secs(1);

/// Lines of a kind that may be written after a burst: one each [`PAUSE`].
const AFTER_BURST: Quota = Quota::per_second(NonZeroU32::MIN);

/// Throttle for the lines of one kind.
///
/// The first `burst` are written as they come. The others are left out until
/// their number has been reported, which may be done once a [`PAUSE`]. A kind
/// that rests gets one line back for each pause, up to `burst`.
#[derive(Debug)]
pub struct Throttle {
    limiter: RateLimiter,
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
    /// Throttle of a kind that no line has come of yet.
    pub fn new(burst: NonZeroU32) -> Self {
        let quota = AFTER_BURST.allow_burst(burst);
        Self {
            limiter: RateLimiter::direct_with_clock(quota, LimiterClock::default()),
            left_out: 0,
        }
    }

    /// Decides about a line that comes now.
    pub fn decide(&mut self) -> Fate {
        // While some are left out, the line that may be written each pause is the
        // one that says how many.
        if self.has_left_out() || self.limiter.check().is_err() {
            self.left_out += 1;
            return Fate::LeaveOut;
        }
        Fate::Write
    }

    /// Returns the number of lines that were left out, if a line that says so
    /// may be written now; they are not counted again.
    pub fn report(&mut self) -> Option<u64> {
        let is_due = self.has_left_out() && self.limiter.check().is_ok();
        is_due.then(|| std::mem::take(&mut self.left_out))
    }

    /// Returns the number of lines that were left out, at the end of the log.
    pub fn last_report(&mut self) -> Option<u64> {
        self.has_left_out()
            .then(|| std::mem::take(&mut self.left_out))
    }

    /// Reports whether lines were left out and not reported yet.
    pub fn has_left_out(&self) -> bool {
        0 < self.left_out
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::clock;

    /// Throttle on a clock that is paused.
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

        /// Advances the clock to `ms` after the throttle was made.
        async fn advance_to(&self, ms: u64) {
            let at = self.made_at + Duration::from_millis(ms);
            advance(at.saturating_duration_since(clock::instant())).await;
        }

        /// Returns which of the lines that come at these milliseconds are written.
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
    async fn the_first_lines_are_written_and_then_once_a_second_how_many_were_left_out() {
        let mut throttle = PausedThrottle::new(3);
        assert_eq!(throttle.written(0..900).await, [0, 1, 2]);
        assert_eq!(throttle.reported(999).await, None);
        assert_eq!(throttle.reported(1000).await, Some(897));
        assert!(throttle.written(1000..2500).await.is_empty());
        assert_eq!(throttle.reported(2500).await, Some(1500));
        assert_eq!(throttle.reported(9000).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_left_out_last_is_reported_at_the_end() {
        let mut throttle = PausedThrottle::new(1);
        throttle.written(0..10).await;
        assert_eq!(throttle.throttle.last_report(), Some(9));
        assert_eq!(throttle.throttle.last_report(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_rested_has_its_burst_again_and_no_more() {
        let mut throttle = PausedThrottle::new(2);
        assert_eq!(throttle.written([0, 0]).await, [0, 0]);
        assert_eq!(throttle.written([60_000; 3]).await, [60_000; 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_now_and_then_is_always_written() {
        let mut throttle = PausedThrottle::new(1);
        let times = (0..100).map(|second| second * 1000);
        assert_eq!(throttle.written(times).await.len(), 100);
    }
}
