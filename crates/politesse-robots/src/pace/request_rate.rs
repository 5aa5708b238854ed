//! `Request-rate` record: the maximum rate of visits to a site (Conner, 1996).
//!
//! RFC 9309 does not define it (section 2.2.4). A rate delays requests, and never changes a
//! verdict. Does not know requests.

use std::fmt;
use std::time::Duration;

use super::visit_time::{VisitTime, number};

/// Value of a `Request-rate` record: a number of documents in a period (`1/5`, `10/10m`,
/// `20/1h 0600-0900`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// Number of documents; at least 1.
    pub documents: u32,
    /// Length of the period in seconds; at least 1.
    pub seconds: u32,
    /// Time of day at which the rate applies. A rate without one applies at the times that
    /// no other rate covers.
    pub during: Option<VisitTime>,
}

impl RequestRate {
    /// Parses the value of the record. The unit is `s`, `m` or `h`; without one, seconds.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (rate, during) = match value.split_once([' ', '\t']) {
            Some((rate, during)) => (rate, Some(VisitTime::parse(during)?)),
            None => (value, None),
        };
        let (documents, time) = rate.split_once('/')?;
        let digits = time.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = match time.get(digits.len()..)?.to_ascii_lowercase().as_str() {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        let rate = Self {
            documents: number(documents)?,
            seconds: number(digits)?.saturating_mul(unit),
            during,
        };
        (0 < rate.documents && 0 < rate.seconds).then_some(rate)
    }

    /// Returns the pause between two requests that keeps to the rate.
    #[must_use]
    pub fn pause(&self) -> Duration {
        Duration::from_secs(self.seconds.into()) / self.documents.max(1)
    }
}

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}s", self.documents, self.seconds)?;
        match self.during {
            Some(during) => write!(f, " {during}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Conner, 1996: documents per unit, seconds by default.
    #[test]
    fn a_rate_is_a_number_of_documents_in_some_seconds() {
        let rate = |value| RequestRate::parse(value).map(|rate| (rate.documents, rate.seconds));
        assert_eq!(rate("1/5"), Some((1, 5)));
        assert_eq!(rate("10/60s"), Some((10, 60)));
        assert_eq!(rate("10/10M"), Some((10, 600)));
        assert_eq!(rate("20/1h 0600-0900"), Some((20, 3600)));
        for value in [
            "", "1", "1/", "/5", "0/5", "1/0", "1/5d", "1/5 noon", "-1/5", "1/5/6", "1.5/5",
            "1/0.5", "nan/1", "1e9/1",
        ] {
            assert_eq!(rate(value), None, "{value}");
        }
    }

    // Ours: the displayed form parses to the same rate.
    #[test]
    fn a_rate_is_displayed_in_the_form_that_is_parsed() {
        for value in ["1/5s", "20/3600s 0600-0900", "1/1s 2200-2400"] {
            let rate = RequestRate::parse(value).unwrap();
            assert_eq!(rate.to_string(), value);
        }
    }

    // Ours: evenly spaced requests keep to the rate.
    #[test]
    fn the_pause_is_the_time_for_one_document() {
        let pause = |value| RequestRate::parse(value).unwrap().pause();
        assert_eq!(pause("1/5"), Duration::from_secs(5));
        assert_eq!(pause("10/1m"), Duration::from_secs(6));
        assert_eq!(pause("4/1"), Duration::from_millis(250));
        assert_eq!(
            pause("1/99999999999h"),
            Duration::from_secs(u32::MAX.into())
        );
    }
}
