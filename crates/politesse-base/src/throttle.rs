//! Throttle for log lines that clients can cause at will.
//!
//! A client that reaches a listener must not fill the disk with log lines. Those
//! that it can repeat have the target [`REPEATING`]. This module knows neither a
//! clock nor a log: `cli/log.rs` asks it about each line.

use std::time::Duration;

/// Target of log events that clients can cause as often as they like.
pub const REPEATING: &str = "politesse::repeating";

/// Time after which one more line of a kind may be written.
pub const PAUSE: Duration = Duration::from_secs(1);

/// Throttle for the lines of one kind.
///
/// The first `burst` are written as they come. The others are left out until
/// their number has been reported, which may be done once a [`PAUSE`]. A kind
/// that rests gets one line back for each pause, up to `burst`.
#[derive(Debug)]
pub struct Throttle {
    burst: u32,
    /// Lines that may still be written at once.
    left: u32,
    /// When lines were last added to `left`, or the first was taken from it.
    counted_at: Duration,
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
    /// Throttle of a kind that no line has come of yet. `burst` is one at least.
    pub fn new(burst: u32) -> Self {
        // Without a line of its own a kind could never report what was left
        // out.
        let burst = burst.max(1);
        Self {
            burst,
            left: burst,
            counted_at: Duration::ZERO,
            left_out: 0,
        }
    }

    /// Decides about a line that comes at `now`, a time since any fixed moment.
    pub fn decide(&mut self, now: Duration) -> Fate {
        // While some are left out, the line that may be written each pause is the
        // one that says how many.
        if self.has_left_out() || !self.take(now) {
            self.left_out += 1;
            return Fate::LeaveOut;
        }
        Fate::Write
    }

    /// Returns the number of lines that were left out, if a line that says so
    /// may be written at `now`; they are not counted again.
    pub fn report(&mut self, now: Duration) -> Option<u64> {
        (self.has_left_out() && self.take(now)).then(|| std::mem::take(&mut self.left_out))
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

    fn take(&mut self, now: Duration) -> bool {
        self.refill(now);
        let Some(left) = self.left.checked_sub(1) else {
            return false;
        };
        // A kind at rest has earned nothing: its pauses count from its first
        // line.
        if self.left == self.burst {
            self.counted_at = now;
        }
        self.left = left;
        true
    }

    fn refill(&mut self, now: Duration) {
        let rested = now.saturating_sub(self.counted_at);
        let pauses = u32::try_from(rested.as_secs() / PAUSE.as_secs()).unwrap_or(u32::MAX);
        if 0 < pauses {
            self.left = self.left.saturating_add(pauses).min(self.burst);
            self.counted_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(throttle: &mut Throttle, times: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let is_written = |ms: &u64| throttle.decide(Duration::from_millis(*ms)) == Fate::Write;
        times.into_iter().filter(is_written).collect()
    }

    fn reported(throttle: &mut Throttle, ms: u64) -> Option<u64> {
        throttle.report(Duration::from_millis(ms))
    }

    // Ours.
    #[test]
    fn the_first_lines_are_written_and_then_once_a_second_how_many_were_left_out() {
        let mut throttle = Throttle::new(3);
        assert_eq!(written(&mut throttle, 0..900), [0, 1, 2]);
        assert_eq!(reported(&mut throttle, 999), None);
        assert_eq!(reported(&mut throttle, 1000), Some(897));
        assert!(written(&mut throttle, 1000..2500).is_empty());
        assert_eq!(reported(&mut throttle, 2500), Some(1500));
        assert_eq!(reported(&mut throttle, 9000), None);
    }

    #[test]
    fn what_was_left_out_last_is_reported_at_the_end() {
        let mut throttle = Throttle::new(1);
        written(&mut throttle, 0..10);
        assert_eq!(throttle.last_report(), Some(9));
        assert_eq!(throttle.last_report(), None);
    }

    #[test]
    fn a_kind_that_rested_has_its_burst_again_and_no_more() {
        let mut throttle = Throttle::new(2);
        assert_eq!(written(&mut throttle, [0, 0]), [0, 0]);
        assert_eq!(written(&mut throttle, [60_000; 3]), [60_000; 2]);
    }

    #[test]
    fn a_line_now_and_then_is_always_written() {
        let mut throttle = Throttle::new(1);
        let times = (0..100).map(|second| second * 1000);
        assert_eq!(written(&mut throttle, times).len(), 100);
    }
}
