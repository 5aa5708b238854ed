//! When and how fast a site wants to be visited, in Conner's records of 1996.
//!
//! RFC 9309 does not define them (section 2.2.4): they are data for who paces,
//! and never change a verdict. Times are UTC, as that text has them.

/// A `Request-rate`: so many documents in so long (`1/5`, `10/10m`,
/// `20/1h 0600-0900`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// At least 1.
    pub documents: u32,
    /// At least 1.
    pub seconds: u32,
    /// When it holds; a line without a time is for the rest of the day.
    pub during: Option<VisitTime>,
}

/// A stretch of the day, UTC (`0600-0845`). One that ends before it begins goes
/// past midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitTime {
    /// Minutes from midnight, below 1440.
    pub from: u16,
    /// Minutes from midnight, at most 1440.
    pub to: u16,
}

impl RequestRate {
    /// Reads the value of the record; the unit is seconds, or `s`, `m`, `h`.
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
}

impl VisitTime {
    /// Reads the value of the record: two times of four digits, with `-` or
    /// blanks between them.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let is_between = |letter: char| letter == '-' || letter.is_whitespace();
        let (from, to) = value.trim().split_once(is_between)?;
        let to = to.trim_start_matches(is_between);
        let (from, to) = (minutes(from)?, minutes(to)?);
        (from < 1440).then_some(Self { from, to })
    }

    /// Whether `minute` of the day is in it.
    #[must_use]
    pub fn contains(&self, minute: u16) -> bool {
        if self.from <= self.to {
            (self.from..self.to).contains(&minute)
        } else {
            !(self.to..self.from).contains(&minute)
        }
    }
}

fn number(digits: &str) -> Option<u32> {
    let all = !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit());
    all.then(|| digits.parse().unwrap_or(u32::MAX))
}

/// `HHMM` as minutes from midnight; 2400 is the end of the day.
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

    // Conner, 1996: documents per unit, seconds by default.
    #[test]
    fn rates_are_documents_and_seconds() {
        let rate = |value| RequestRate::parse(value).map(|rate| (rate.documents, rate.seconds));
        assert_eq!(rate("1/5"), Some((1, 5)));
        assert_eq!(rate("10/60s"), Some((10, 60)));
        assert_eq!(rate("10/10M"), Some((10, 600)));
        assert_eq!(rate("20/1h 0600-0900"), Some((20, 3600)));
        for value in [
            "", "1", "1/", "/5", "0/5", "1/0", "1/5d", "1/5 noon", "-1/5", "1/5/6",
        ] {
            assert_eq!(rate(value), None, "{value}");
        }
    }

    // Conner, 1996; the spellings without a dash are found in files.
    #[test]
    fn times_are_two_of_the_day() {
        for value in ["0600-0845", "0600 0845", "0600 - 0845"] {
            let time = VisitTime::parse(value).unwrap();
            assert_eq!((time.from, time.to), (360, 525), "{value}");
        }
        for value in ["", "0600", "600-845", "0660-0845", "2400-0100", "0600-2401"] {
            assert_eq!(VisitTime::parse(value), None, "{value}");
        }
    }

    // Conner, 1996: it may go past midnight.
    #[test]
    fn time_past_midnight_is_one_stretch() {
        let night = VisitTime::parse("2200-0600").unwrap();
        assert!(night.contains(23 * 60) && night.contains(5 * 60) && night.contains(0));
        assert!(!night.contains(6 * 60) && !night.contains(12 * 60));
        assert!(VisitTime::parse("0000-2400").unwrap().contains(1439));
    }
}
