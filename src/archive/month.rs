//! Months by which the archive is partitioned.

use std::fmt;

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

/// Month of a time (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    year: i16,
    month: i8,
}

impl Month {
    /// Returns the month of a time in microseconds since 1970. What is no time, which a
    /// damaged record may have, is in the first month of 1970.
    pub fn of(time_us: i64) -> Self {
        let time = Timestamp::from_microsecond(time_us).unwrap_or(Timestamp::UNIX_EPOCH);
        let day = time.to_zoned(TimeZone::UTC).date();
        Self {
            year: day.year(),
            month: day.month(),
        }
    }

    /// Returns the statements that make the partitions of the month, if they are not
    /// there.
    pub(super) fn partitions(self) -> String {
        let (from, until) = self.bounds();
        let name = self.name();
        ["decision", "ending"]
            .map(|table| {
                format!(
                    "CREATE TABLE IF NOT EXISTS {table}_{name} PARTITION OF {table} \
                     FOR VALUES FROM ({from}) TO ({until});"
                )
            })
            .concat()
    }

    /// Returns the month whose partitions have this name; `None` if it is none that this
    /// program gives.
    pub(super) fn named(name: &str) -> Option<Self> {
        let (year, month) = name.rsplit_once('_')?;
        let year = match year.strip_prefix("before_") {
            Some(before) => -before.parse::<i16>().ok()?,
            None => year.parse().ok()?,
        };
        let found = Self {
            year,
            month: month.parse().ok()?,
        };
        (Date::new(found.year, found.month, 1).is_ok() && found.name() == name).then_some(found)
    }

    /// Returns the first moment of the next month, in microseconds since 1970.
    pub fn end_us(self) -> i64 {
        self.bounds().1
    }

    /// Returns the name of the month in names of partitions.
    pub(super) fn name(self) -> String {
        // A year before our era has a sign, which no name has.
        let era = if self.year < 0 { "before_" } else { "" };
        format!("{era}{:04}_{:02}", self.year.unsigned_abs(), self.month)
    }

    /// Returns the first moment of the month and that of the next one, in microseconds
    /// since 1970.
    fn bounds(self) -> (i64, i64) {
        let first = date(self.year, self.month, 1);
        let next = first.checked_add(1.month());
        (
            microseconds(first).unwrap_or(i64::MIN),
            next.ok().and_then(microseconds).unwrap_or(i64::MAX),
        )
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

fn microseconds(day: Date) -> Option<i64> {
    let midnight = day.to_zoned(TimeZone::UTC).ok()?;
    Some(midnight.timestamp().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_microsecond()
    }

    // Ours, docs/archive.md.
    #[test]
    fn a_time_is_in_the_partition_of_its_month() {
        for (time, name) in [
            ("2026-11-01T00:00:00Z", "2026_11"),
            ("2026-11-30T23:59:59.999999Z", "2026_11"),
            ("2026-12-31T00:00:00Z", "2026_12"),
            ("1970-01-01T00:00:00Z", "1970_01"),
        ] {
            let month = Month::of(at(time));
            let (from, until) = month.bounds();
            assert!((from..until).contains(&at(time)), "{time}");
            assert_eq!(month.name(), name);
            assert_eq!(Month::named(name), Some(month));
            let partition =
                format!("decision_{name} PARTITION OF decision FOR VALUES FROM ({from})");
            assert!(month.partitions().contains(&partition));
        }
    }

    // Ours: a damaged record may have any number there.
    #[test]
    fn any_number_is_in_some_month() {
        for time_us in [
            i64::MIN,
            -1,
            0,
            i64::MAX,
            at("-009999-01-02T01:59:59Z"),
            at("9999-12-30T00:00:00Z"),
        ] {
            let month = Month::of(time_us);
            let (from, until) = month.bounds();
            assert!(from < until, "{time_us}");
            assert_eq!(Month::named(&month.name()), Some(month));
        }
        for other in ["", "2026", "2026_13", "2026_1", "default", "x_01"] {
            assert_eq!(Month::named(other), None, "{other}");
        }
    }
}
