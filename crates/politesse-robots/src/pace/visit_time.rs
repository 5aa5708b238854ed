//! Daily visit time in UTC, set by a site (Conner, 1996) or by the operator.
//!
//! RFC 9309 does not define the record (section 2.2.4). Visit times delay requests, and
//! never change a verdict. Does not know requests.

use std::fmt;

use jiff::Timestamp;

/// Number of minutes in a day.
pub(super) const DAY: u16 = 24 * 60;

/// Period of each day, in UTC (`0600-0845`).
///
/// A period that ends before it begins extends past midnight. One that ends where it begins
/// is the whole day, because a visit time must never exclude all visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitTime {
    /// Minutes from midnight, below 1440.
    pub from: u16,
    /// Minutes from midnight, at most 1440.
    pub to: u16,
}

impl VisitTime {
    /// Parses the value of the record: two times of four digits, with `-` or spaces between
    /// them.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let is_between = |letter: char| letter == '-' || letter.is_whitespace();
        let (from, to) = value.trim().split_once(is_between)?;
        let to = to.trim_start_matches(is_between);
        let (from, to) = (minutes(from)?, minutes(to)?);
        (from < DAY).then_some(Self { from, to })
    }

    /// Reports whether the period contains this minute of the day.
    #[must_use]
    pub fn contains(&self, minute: u16) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            !(self.to..self.from).contains(&minute)
        }
    }

    /// Returns the next beginning of the period; `None` during the period.
    #[must_use]
    pub fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        if self.contains(minute_of_day(now)) {
            return None;
        }
        let second = now.as_second();
        let midnight = second - second.rem_euclid(SECONDS_A_DAY);
        let today = midnight + i64::from(self.from) * 60;
        let opening = if second < today {
            today
        } else {
            today + SECONDS_A_DAY
        };
        Some(Timestamp::from_second(opening).unwrap_or(Timestamp::MAX))
    }
}

const SECONDS_A_DAY: i64 = 24 * 60 * 60;

/// Returns the minute of the day of `now`, in UTC.
pub(super) fn minute_of_day(now: Timestamp) -> u16 {
    let minute = now.as_second().rem_euclid(SECONDS_A_DAY) / 60;
    u16::try_from(minute).unwrap_or_default()
}

impl fmt::Display for VisitTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minutes: u16| minutes / 60 * 100 + minutes % 60;
        write!(f, "{:04}-{:04}", clock(self.from), clock(self.to))
    }
}

/// Parses a number that consists only of digits. A number that is too large becomes
/// `u32::MAX`.
pub(super) fn number(digits: &str) -> Option<u32> {
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().unwrap_or(u32::MAX))
}

/// Parses `HHMM` as minutes from midnight; 2400 is the end of the day.
fn minutes(time: &str) -> Option<u16> {
    if time.len() != 4 {
        return None;
    }
    let time = u16::try_from(number(time)?).ok()?;
    let (hours, minutes) = (time / 100, time % 100);
    let is_time = (hours < 24 && minutes < 60) || time == 2400;
    is_time.then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Conner, 1996; the spellings with spaces occur in real files.
    #[test]
    fn a_visit_time_is_two_times_of_the_day() {
        for value in ["0600-0845", "0600 0845", "0600 - 0845"] {
            let time = VisitTime::parse(value).unwrap();
            assert_eq!((time.from, time.to), (360, 525), "{value}");
            assert_eq!(time.to_string(), "0600-0845");
        }
        for value in ["", "0600", "600-845", "0660-0845", "2400-0100", "0600-2401"] {
            assert_eq!(VisitTime::parse(value), None, "{value}");
        }
    }

    // Conner, 1996.
    #[test]
    fn a_period_may_extend_past_midnight() {
        let night = VisitTime::parse("2200-0600").unwrap();
        assert!(night.contains(23 * 60) && night.contains(5 * 60) && night.contains(0));
        assert!(!night.contains(6 * 60) && !night.contains(12 * 60));
        assert!(VisitTime::parse("0000-2400").unwrap().contains(1439));
    }

    // Ours: a visit time must never exclude all visits.
    #[test]
    fn a_period_of_no_length_is_the_whole_day() {
        for value in ["0000-0000", "0600-0600", "2359-2359"] {
            let time = VisitTime::parse(value).unwrap();
            assert!((0..DAY).all(|minute| time.contains(minute)), "{value}");
        }
    }

    /// One test per row: the next beginning of a period, as seen from a time.
    macro_rules! openings {
        ($($name:ident: $value:literal at $now:literal is $opens:expr;)+) => {$(
            #[test]
            fn $name() {
                let opens: Option<&str> = $opens;
                let time = VisitTime::parse($value).unwrap();
                let opens = opens.map(|text| text.parse().unwrap());
                assert_eq!(time.opens($now.parse().unwrap()), opens);
            }
        )+};
    }

    // Conner, 1996.
    openings! {
        open_from_its_first_second: "0600-0845" at "2026-11-21T06:00:00Z" is None;
        open_to_its_last_second: "0600-0845" at "2026-11-21T08:44:59.999Z" is None;
        closed_from_its_end_on: "0600-0845" at "2026-11-21T08:45:00Z" is Some("2026-11-22T06:00:00Z");
        opens_later_the_same_day: "0600-0845" at "2026-11-21T05:59:59.5Z" is Some("2026-11-21T06:00:00Z");
        opens_the_same_evening_past_midnight: "2200-0600" at "2026-11-21T06:00:00Z" is Some("2026-11-21T22:00:00Z");
        open_past_midnight: "2200-0600" at "2026-11-22T00:00:00Z" is None;
        opens_at_midnight: "0000-0100" at "2026-12-31T23:59:59Z" is Some("2027-01-01T00:00:00Z");
        times_before_1970_are_supported: "0600-0845" at "1969-12-31T23:00:00Z" is Some("1970-01-01T06:00:00Z");
        a_period_of_no_length_is_always_open: "0600-0600" at "2026-11-21T05:00:00Z" is None;
        a_beginning_after_the_last_timestamp_becomes_that_timestamp: "0000-0001" at "9999-12-30T21:59:59Z" is Some("9999-12-30T22:00:00.999999999Z");
    }
}
