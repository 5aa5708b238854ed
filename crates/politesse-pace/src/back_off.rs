//! Back-off of one host: leaving it alone after a 429 or 503, and coming back.
//!
//! `Retry-After` is obeyed (RFC 9110, section 10.2.3; RFC 6585, section 4). Without it
//! the operator's pause applies. It doubles from one back-off to the next, until the host
//! has been quiet for a while; after `Retry-After: 0` it starts at one second.
//!
//! Does not know clocks or chance, nor the record of back-offs: `serve` connects the
//! listener to it.

use std::fmt;
use std::time::Duration;

use politesse_decision::back_off::BackOffEvent;

use super::schedule::Uptime;

/// Growth and forgiveness of back-offs (`pace.backoff`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOffLimits {
    /// First pause if the host names none.
    pub first: Duration,
    /// Longest pause, whether the host or the operator sets it.
    pub longest: Duration,
    /// Time without a 429 or 503 after which the next pause is the first one again.
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

/// Returns whether a status asks the client to come back later: one for which RFC 9110 or
/// RFC 6585 mentions `Retry-After`. A 403 says whether to come back, not when.
pub(super) fn asks_for_less(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Effect of a response on the back-off of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackOffUpdate {
    /// Nothing changed.
    None,
    /// A back-off began.
    Entered,
    /// The current back-off lasts longer.
    Extended,
}

/// Response that asks for fewer requests: a 429 or 503.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThrottleResponse {
    /// Pause that its `Retry-After` names, counted from now.
    pub(super) retry_after: Option<Duration>,
    /// Random number from 0 to 1 that scales the jitter added to the operator's pause.
    pub(super) chance: f64,
}

/// Back-off of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackOff {
    /// End of the latest back-off, which may have passed.
    pub(super) end: Option<Uptime>,
    /// Number of back-offs in a row that used the operator's pause.
    pub(super) incidents: u32,
    /// Whether the end is still to be reported in an event. That remains so if the first
    /// request after the end was not sent.
    pub(super) is_end_unreported: bool,
    /// Time of the latest 429 or 503 that this process received.
    pub(super) asked_at: Option<Uptime>,
    /// Start of the first in a series of back-offs without forgiveness in between, as far
    /// as this process knows.
    pub(super) first_at: Option<Uptime>,
}

impl BackOff {
    /// Largest part of the operator's pause that is added to it, so that crawlers do not
    /// return all at once. Nothing is ever subtracted.
    const JITTER: f64 = 0.1;

    /// First pause after `Retry-After: 0`, which invites an immediate retry. A full
    /// minute would slow a crawl for nothing; no pause at all would hammer a host that
    /// sends it every time.
    const FIRST_OF_ZERO: Duration = Duration::from_secs(1);

    /// Time in back-off after which a person should look at the host: most sites recover
    /// within minutes once requests slow down.
    const LONG: Duration = Duration::from_secs(60 * 60);

    /// Records a 429 or 503.
    pub(super) fn record(
        &mut self,
        response: &ThrottleResponse,
        limits: &BackOffLimits,
        now: Uptime,
    ) -> BackOffUpdate {
        self.asked_at = Some(now);
        let retry_after = response.retry_after.filter(|pause| !pause.is_zero());
        let named = retry_after.map(|pause| pause.min(limits.longest));
        if self.until(now).is_some() {
            // A response that was on its way when the back-off began. It may extend the
            // back-off, but counts as the same incident. `None`, a response that names no
            // time, compares less than any time.
            let end = named.map(|pause| now.saturating_add(pause));
            if end <= self.end {
                return BackOffUpdate::None;
            }
            self.end = end;
            return BackOffUpdate::Extended;
        }
        if self.is_forgiven(limits, now) {
            self.incidents = 0;
            self.first_at = None;
        }
        // The pause before this one may have ended: the host got one request and refused
        // again.
        self.first_at.get_or_insert(now);
        let pause = named.unwrap_or_else(|| self.grown_pause(response, limits));
        let end = now.saturating_add(pause.min(limits.longest));
        self.end = Some(end);
        self.is_end_unreported = true;
        BackOffUpdate::Entered
    }

    /// Returns the end of the back-off; `None` if it is over.
    pub(super) fn until(&self, now: Uptime) -> Option<Uptime> {
        self.end.filter(|end| now < *end)
    }

    /// Returns whether the host is in back-off now and has been for longer than
    /// [`BackOff::LONG`]. Single requests in between do not count if each was answered
    /// with 429 or 503.
    pub(super) fn is_long(&self, now: Uptime) -> bool {
        let is_long = |first: Uptime| Self::LONG < now.saturating_sub(first);
        self.until(now).is_some() && self.first_at.is_some_and(is_long)
    }

    /// Returns a back-off that has ended and is not reported yet, and marks it as
    /// reported.
    pub(super) fn take_end(&mut self, now: Uptime) -> Option<Self> {
        let is_new = self.until(now).is_none() && std::mem::take(&mut self.is_end_unreported);
        is_new.then(|| self.clone())
    }

    /// Returns whether the host was quiet for long enough that nothing about it has to be
    /// remembered.
    pub(super) fn is_forgiven(&self, limits: &BackOffLimits, now: Uptime) -> bool {
        let is_quiet = |end: Uptime| end.saturating_add(limits.forgive) <= now;
        self.end.is_none_or(is_quiet)
    }

    /// Returns the next operator's pause and counts it.
    fn grown_pause(&mut self, response: &ThrottleResponse, limits: &BackOffLimits) -> Duration {
        // Any other `Retry-After` than zero would be the pause itself.
        let first = match response.retry_after {
            Some(_) => limits.first.min(Self::FIRST_OF_ZERO),
            None => limits.first,
        };
        let doubled = 2_u32.saturating_pow(self.incidents);
        self.incidents = self.incidents.saturating_add(1);
        let pause = first.saturating_mul(doubled).min(limits.longest);
        // `max` after `clamp`, because `clamp` returns NaN for NaN and `max` does not.
        let part = response.chance.clamp(0.0, 1.0).max(0.0) * Self::JITTER;
        pause.saturating_add(pause.mul_f64(part))
    }
}

/// Number of hosts in back-off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackedOffHosts {
    /// Hosts in back-off.
    pub all: i64,
    /// Hosts that have been in back-off for more than an hour.
    pub long: i64,
}

/// Receives every back-off event, in order.
pub struct BackOffListener(pub Box<dyn Fn(BackOffEvent) + Send + Sync>);

impl fmt::Debug for BackOffListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackOffListener")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Back-off with helpers that take times in seconds.
    #[derive(Default)]
    struct Host(BackOff);

    impl Host {
        fn says(&mut self, status: u16, retry_after: Option<u64>, now: u64) -> BackOffUpdate {
            if !asks_for_less(status) {
                return BackOffUpdate::None;
            }
            let limits = BackOffLimits::default();
            let response = ThrottleResponse {
                retry_after: retry_after.map(at),
                ..ThrottleResponse::default()
            };
            self.0.record(&response, &limits, at(now))
        }

        fn until(&self, now: u64) -> Option<u64> {
            self.0.until(at(now)).map(|until| until.as_secs())
        }
    }

    // RFC 9110, section 10.2.3; RFC 6585, section 4.
    #[test]
    fn retry_after_is_obeyed() {
        for status in [429, 503] {
            let mut host = Host::default();
            assert_eq!(host.says(status, Some(7), 100), BackOffUpdate::Entered);
            assert_eq!(host.until(100), Some(107));
            assert_eq!(host.until(106), Some(107));
            assert_eq!(host.until(107), None);
        }
    }

    // Ours: the pauses between repeated 429s count as one back-off.
    #[test]
    fn repeated_429s_are_a_long_back_off_after_an_hour() {
        let mut host = Host::default();
        let (mut now, mut first_long) = (0, None);
        while now < 3 * 60 * MINUTE && first_long.is_none() {
            host.says(429, None, now);
            let until = host.until(now).unwrap();
            first_long = (now..until).find(|now| host.0.is_long(at(*now)));
            now = until;
        }
        assert_eq!(first_long, Some(60 * MINUTE + 1));
        // At the end of a back-off, and after a quiet time.
        assert!(!host.0.is_long(at(now)));
        let later = now + 30 * MINUTE;
        host.says(429, None, later);
        assert!(!host.0.is_long(at(later + 59)));
    }

    // Ours: 403 and 404 never start a back-off.
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

    #[test]
    fn without_retry_after_the_pause_doubles_from_a_minute_to_a_day() {
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

    // Ours: RFC 9110, section 10.2.3, allows a zero.
    #[test]
    fn after_retry_after_zero_the_pause_doubles_from_a_second() {
        let mut host = Host::default();
        let mut now = 0;
        for pause in [1, 2, 4, 8] {
            assert_eq!(host.says(503, Some(0), now), BackOffUpdate::Entered);
            assert_eq!(host.until(now), Some(now + pause));
            now += pause;
        }
        assert_eq!(host.says(503, None, now), BackOffUpdate::Entered);
        assert_eq!(host.until(now), Some(now + 60 * 16));
    }

    #[test]
    fn a_host_is_forgiven_after_thirty_quiet_minutes() {
        for (quiet, pause) in [(30 * MINUTE - 1, 120), (30 * MINUTE, 60)] {
            let mut host = Host::default();
            host.says(429, None, 0);
            let now = 60 + quiet;
            host.says(429, None, now);
            assert_eq!(host.until(now), Some(now + pause), "{quiet}");
        }
        assert!(BackOff::default().is_forgiven(&BackOffLimits::default(), at(0)));
    }

    // Ours: failures in one window escalate once.
    #[test]
    fn responses_already_on_their_way_count_as_one_incident() {
        let mut host = Host::default();
        assert_eq!(host.says(429, None, 0), BackOffUpdate::Entered);
        for now in 1..20 {
            assert_eq!(host.says(429, None, now), BackOffUpdate::None);
        }
        assert_eq!(host.until(20), Some(60));
        assert_eq!(host.0.incidents, 1);
        host.says(429, None, 60);
        assert_eq!(host.until(60), Some(180));
    }

    // Ours: obeyed in full, using the longest that the host sent.
    #[test]
    fn the_longest_retry_after_of_a_back_off_applies() {
        let mut host = Host::default();
        host.says(429, Some(30), 0);
        assert_eq!(host.says(503, Some(10), 5), BackOffUpdate::None);
        assert_eq!(host.until(5), Some(30));
        assert_eq!(host.says(503, Some(90), 5), BackOffUpdate::Extended);
        assert_eq!(host.until(5), Some(95));
    }

    // Ours: Retry-After is obeyed up to 24 h.
    #[test]
    fn no_pause_exceeds_the_longest_pause() {
        let day = 24 * 60 * 60;
        let mut host = Host::default();
        host.says(429, Some(u64::MAX), 5);
        assert_eq!(host.until(5), Some(5 + day));
        host.says(429, Some(u64::MAX), 9);
        assert_eq!(host.until(9), Some(9 + day));
    }

    // Ours: pauses that the host names do not lengthen our own.
    #[test]
    fn only_pauses_of_our_own_escalate() {
        let mut host = Host::default();
        for now in 0..10 {
            host.says(429, Some(1), now);
        }
        host.says(429, None, 10);
        assert_eq!(host.until(10), Some(70));
    }

    // Ours: jitter adds at most a tenth, and only to our own pauses.
    #[test]
    fn jitter_adds_at_most_a_tenth() {
        let pause = |chance, retry_after| {
            let mut state = BackOff::default();
            let response = ThrottleResponse {
                retry_after,
                chance,
            };
            state.record(&response, &BackOffLimits::default(), at(0));
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

    // Ours: the end of a back-off is an event.
    #[test]
    fn the_end_of_a_back_off_is_reported_once() {
        let mut host = Host::default();
        assert!(host.0.take_end(at(0)).is_none());
        host.says(429, Some(10), 0);
        assert!(host.0.take_end(at(9)).is_none());
        assert!(host.0.take_end(at(10)).is_some());
        assert!(host.0.take_end(at(11)).is_none());
    }

    #[test]
    fn a_restored_back_off_keeps_its_end_and_incidents() {
        let mut state = BackOff {
            end: Some(at(100)),
            incidents: 3,
            is_end_unreported: true,
            ..BackOff::default()
        };
        assert_eq!(state.until(at(99)), Some(at(100)));
        assert!(state.take_end(at(100)).is_some());
        state.record(
            &ThrottleResponse::default(),
            &BackOffLimits::default(),
            at(100),
        );
        assert_eq!(state.until(at(100)), Some(at(100 + 8 * 60)));
    }
}
