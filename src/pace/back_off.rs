//! Going away from a host that answered with 429 or 503, and coming back.
//!
//! RFC 9110, section 10.2.3, and RFC 6585, section 4: what `Retry-After` says
//! is obeyed. Without it the pause is ours, and grows from one back-off to the
//! next until the host was quiet for a while. A moment is a time since some
//! start of the process; neither clock nor chance is known here.

use std::time::Duration;

/// How back-offs grow and are forgiven (`pace.backoff`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOffLimits {
    /// The first pause where the host names none.
    pub first: Duration,
    /// No pause is longer, whoever names it.
    pub longest: Duration,
    /// How long a host must be quiet for the next pause to be the first again.
    pub forgive: Duration,
}

impl Default for BackOffLimits {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(60),
            longest: Duration::from_secs(24 * 60 * 60),
            forgive: Duration::from_secs(30 * 60),
        }
    }
}

/// The head of a response, as far as it says to come later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleAnswer {
    /// Its status.
    pub status: u16,
    /// How long from now its `Retry-After` asks to wait.
    pub retry_after: Option<Duration>,
    /// Some number from 0 to 1, as random as may be: how much of the jitter is
    /// added.
    pub chance: f64,
}

impl ThrottleAnswer {
    /// Whether the status asks to come later: those for which RFC 9110 and
    /// RFC 6585 name `Retry-After`. A 403 is no question of when.
    #[must_use]
    pub fn asks_for_less(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

/// What a response changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackOffUpdate {
    /// Nothing.
    None,
    /// A back-off began.
    Entered,
    /// The one under way lasts longer.
    Extended,
}

/// The back-off of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackOff {
    /// The end of the latest.
    until: Option<Duration>,
    /// How many in a row were of our own length.
    incidents: u32,
    /// Whether its end has not been told yet.
    is_untold: bool,
}

impl BackOff {
    /// At most this part of a pause of ours is added to it, so that crawlers do
    /// not come back all at once. Nothing is ever taken off.
    const JITTER: f64 = 0.1;

    /// The state that a process before this one left behind.
    #[must_use]
    pub fn kept(until: Duration, incidents: u32) -> Self {
        Self {
            until: Some(until),
            incidents,
            is_untold: true,
        }
    }

    /// Learns from a response. Several that ask for less in one back-off were
    /// on their way when it began: they make it longer if they say so, and count
    /// as one incident.
    pub fn note(
        &mut self,
        answered: ThrottleAnswer,
        now: Duration,
        times: &BackOffLimits,
    ) -> BackOffUpdate {
        if !answered.asks_for_less() {
            return BackOffUpdate::None;
        }
        // A moment that has passed says nothing about when.
        let named = answered.retry_after.filter(|pause| !pause.is_zero());
        if self.until(now).is_some() {
            return self.extend(named, now, times);
        }
        if self.is_forgiven(now, times) {
            self.incidents = 0;
        }
        let pause = named.unwrap_or_else(|| self.own_pause(answered.chance, times));
        self.until = Some(now.saturating_add(pause.min(times.longest)));
        self.is_untold = true;
        BackOffUpdate::Entered
    }

    /// Until when nothing is to be sent; `None` if something may be.
    #[must_use]
    pub fn until(&self, now: Duration) -> Option<Duration> {
        self.until.filter(|until| now < *until)
    }

    /// How many back-offs in a row were of our own length.
    #[must_use]
    pub fn incidents(&self) -> u32 {
        self.incidents
    }

    /// The end of the latest back-off, over or not.
    #[must_use]
    pub fn end(&self) -> Option<Duration> {
        self.until
    }

    /// Whether a back-off is over that nobody was told of yet; then it is told.
    pub fn take_end(&mut self, now: Duration) -> bool {
        let is_over = self.until(now).is_none();
        is_over && std::mem::take(&mut self.is_untold)
    }

    /// Whoever was told of its end did not go on: the next one is told.
    pub fn untake_end(&mut self) {
        self.is_untold = true;
    }

    /// Whether the host has been quiet for so long that nothing of it has to be
    /// known any more.
    #[must_use]
    pub fn is_forgiven(&self, now: Duration, times: &BackOffLimits) -> bool {
        let quiet = |until: Duration| until.saturating_add(times.forgive) <= now;
        self.until.is_none_or(quiet)
    }

    fn extend(
        &mut self,
        named: Option<Duration>,
        now: Duration,
        times: &BackOffLimits,
    ) -> BackOffUpdate {
        let named = named.map(|pause| now.saturating_add(pause.min(times.longest)));
        if self.until < named {
            self.until = named;
            return BackOffUpdate::Extended;
        }
        BackOffUpdate::None
    }

    /// The next pause of ours.
    fn own_pause(&mut self, chance: f64, times: &BackOffLimits) -> Duration {
        let doubled = 2_u32.saturating_pow(self.incidents);
        self.incidents = self.incidents.saturating_add(1);
        let pause = times.first.saturating_mul(doubled).min(times.longest);
        // NaN is no part of it.
        let part = chance.clamp(0.0, 1.0).max(0.0) * Self::JITTER;
        pause.saturating_add(pause.mul_f64(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A back-off with what happens to it, in seconds.
    #[derive(Default)]
    struct Host(BackOff);

    impl Host {
        fn says(&mut self, status: u16, retry_after: Option<u64>, now: u64) -> BackOffUpdate {
            let answered = ThrottleAnswer {
                status,
                retry_after: retry_after.map(at),
                chance: 0.0,
            };
            self.0.note(answered, at(now), &BackOffLimits::default())
        }

        fn until(&self, now: u64) -> Option<u64> {
            self.0.until(at(now)).map(|until| until.as_secs())
        }
    }

    // RFC 9110, section 10.2.3; RFC 6585, section 4.
    #[test]
    fn what_retry_after_says_is_obeyed() {
        for status in [429, 503] {
            let mut host = Host::default();
            assert_eq!(host.says(status, Some(7), 100), BackOffUpdate::Entered);
            assert_eq!(host.until(100), Some(107));
            assert_eq!(host.until(106), Some(107));
            assert_eq!(host.until(107), None);
        }
    }

    // operations.md, section 1.2: 403 and 404 never.
    #[test]
    fn other_statuses_change_nothing() {
        let mut host = Host::default();
        for status in [200, 301, 403, 404, 500, 502, 504] {
            assert_eq!(
                host.says(status, Some(7), 0),
                BackOffUpdate::None,
                "{status}"
            );
            assert_eq!(host.until(0), None);
        }
    }

    // Issue 6, Deliver 2.
    #[test]
    fn without_it_the_pause_doubles_from_a_minute_to_a_day() {
        let mut host = Host::default();
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..40 {
            assert_eq!(host.says(503, None, now), BackOffUpdate::Entered);
            let until = host.until(now).unwrap();
            pauses.push(until - now);
            now = until;
        }
        assert_eq!(pauses[..5], [60, 120, 240, 480, 960]);
        assert!(pauses.is_sorted());
        assert_eq!(pauses[39], 24 * 60 * 60);
    }

    // Issue 6, Deliver 2.
    #[test]
    fn thirty_quiet_minutes_forgive() {
        for (quiet, pause) in [(30 * MINUTE - 1, 120), (30 * MINUTE, 60)] {
            let mut host = Host::default();
            host.says(429, None, 0);
            let now = 60 + quiet;
            host.says(429, None, now);
            assert_eq!(host.until(now), Some(now + pause), "{quiet}");
        }
        assert!(BackOff::default().is_forgiven(at(0), &BackOffLimits::default()));
    }

    // operations.md, section 1.1: failures in one window escalate once.
    #[test]
    fn answers_that_were_on_their_way_count_as_one() {
        let mut host = Host::default();
        assert_eq!(host.says(429, None, 0), BackOffUpdate::Entered);
        for now in 1..20 {
            assert_eq!(host.says(429, None, now), BackOffUpdate::None);
        }
        assert_eq!(host.until(20), Some(60));
        assert_eq!(host.0.incidents(), 1);
        host.says(429, None, 60);
        assert_eq!(host.until(60), Some(180));
    }

    // Issue 6, Deliver 2: obeyed in full, by the longest that was said.
    #[test]
    fn the_longest_retry_after_of_one_back_off_counts() {
        let mut host = Host::default();
        host.says(429, Some(30), 0);
        assert_eq!(host.says(503, Some(10), 5), BackOffUpdate::None);
        assert_eq!(host.until(5), Some(30));
        assert_eq!(host.says(503, Some(90), 5), BackOffUpdate::Extended);
        assert_eq!(host.until(5), Some(95));
    }

    // operations.md, section 1.2: Retry-After is obeyed up to 24 h.
    #[test]
    fn no_pause_is_longer_than_the_longest() {
        let day = 24 * 60 * 60;
        let mut host = Host::default();
        host.says(429, Some(u64::MAX), 5);
        assert_eq!(host.until(5), Some(5 + day));
        host.says(429, Some(u64::MAX), 9);
        assert_eq!(host.until(9), Some(9 + day));
    }

    // Ours: a moment that has passed says nothing about when.
    #[test]
    fn retry_after_of_nothing_is_none() {
        let mut host = Host::default();
        host.says(429, Some(0), 5);
        assert_eq!(host.until(5), Some(65));
    }

    // Ours: what the host says does not make our own pauses longer.
    #[test]
    fn only_pauses_of_our_own_escalate() {
        let mut host = Host::default();
        for now in 0..10 {
            host.says(429, Some(1), now);
        }
        host.says(429, None, 10);
        assert_eq!(host.until(10), Some(70));
    }

    // Decisions, Pace: jitter lengthens by a tenth at most, and only what is
    // ours.
    #[test]
    fn jitter_lengthens_by_a_tenth_at_most() {
        let pause = |chance, retry_after| {
            let mut state = BackOff::default();
            let answered = ThrottleAnswer {
                status: 429,
                retry_after,
                chance,
            };
            state.note(answered, at(0), &BackOffLimits::default());
            state.until(at(0)).unwrap().as_secs_f64()
        };
        let rows = [
            (0.0, 60.0),
            (0.5, 63.0),
            (1.0, 66.0),
            (9.0, 66.0),
            (-1.0, 60.0),
            (f64::NAN, 60.0),
        ];
        for (chance, seconds) in rows {
            assert_eq!(pause(chance, None), seconds, "{chance}");
            assert_eq!(pause(chance, Some(at(60))), 60.0, "{chance}");
        }
    }

    // Issue 6, Deliver 5: an event where a back-off ends.
    #[test]
    fn the_end_is_told_once() {
        let mut host = Host::default();
        assert!(!host.0.take_end(at(0)));
        host.says(429, Some(10), 0);
        assert!(!host.0.take_end(at(9)));
        assert!(host.0.take_end(at(10)));
        assert!(!host.0.take_end(at(11)));
    }

    // Issue 6, Deliver 6.
    #[test]
    fn what_was_kept_goes_on() {
        let mut state = BackOff::kept(at(100), 3);
        assert_eq!(state.until(at(99)), Some(at(100)));
        assert!(state.take_end(at(100)));
        let answered = ThrottleAnswer {
            status: 503,
            retry_after: None,
            chance: 0.0,
        };
        state.note(answered, at(100), &BackOffLimits::default());
        assert_eq!(state.until(at(100)), Some(at(100 + 8 * 60)));
    }
}
