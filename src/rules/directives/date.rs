//! The dates of `unavailable_after`.
//!
//! The vendors accept RFC 822, RFC 850 and ISO 8601, and pages have all of
//! them. Where a date leaves several instants open, the earliest counts: too
//! late would break what was asked for.

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Timestamp};

/// Minutes east of Greenwich of the zone where a day begins first. It stands in
/// for a zone that is absent or has several meanings.
const EARLIEST_ZONE: i64 = 14 * 60;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// The instant that is meant, in whole seconds. A date without a time is its
/// first instant in UTC; `@1735689600` is a date of RFC 9651.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        return Timestamp::from_second(seconds.trim().parse().ok()?).ok();
    }
    let (date, rest) = iso_date(text).or_else(|| mail_date(text))?;
    let rest = rest.trim_start();
    if rest.is_empty() {
        return at(DateTime::from_parts(date, Time::midnight()), 0);
    }
    let (time, zone) = clock_time(rest)?;
    at(DateTime::from_parts(date, time), zone_minutes(zone))
}

/// Whether this word names a day of the week, whole or by its first three
/// letters or more (`Tues`).
pub(super) fn is_weekday(word: &str) -> bool {
    let shortened = |day: &&str| {
        let start = day.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    3 <= word.len() && WEEKDAYS.iter().any(shortened)
}

fn at(civil: DateTime, minutes_east: i64) -> Option<Timestamp> {
    let utc = civil.checked_sub(SignedDuration::from_mins(minutes_east));
    let zoned = utc.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(zoned.timestamp())
}

/// `2100-09-21` and what follows it, less the `T`.
fn iso_date(text: &str) -> Option<(Date, &str)> {
    let (day, rest) = (text.get(..10)?, text.get(10..)?);
    let mut parts = day.split('-');
    let mut part = |digits| parts.next().and_then(|part| number(part, digits));
    let date = Date::new(part(4)?, part(2)? as i8, part(2)? as i8).ok()?;
    let time = rest.strip_prefix(['T', 't']);
    Some((date, time.unwrap_or(rest)))
}

/// `Wed, 03 Dec 2100`, `31-Dec-30`, and what follows.
fn mail_date(text: &str) -> Option<(Date, &str)> {
    let (first, behind) = word(text);
    let text = if is_weekday(first) { behind } else { text };
    let (day, rest) = word(text);
    let (month, rest) = word(rest);
    let (year, rest) = word(rest);
    let month = MONTHS.iter().position(|name| {
        let start = month.get(..3);
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    })?;
    let day = number(day, day.len().min(2))?;
    let date = Date::new(full_year(year)?, month as i8 + 1, day as i8).ok()?;
    Some((date, rest))
}

/// The next word, and what stands behind it.
fn word(text: &str) -> (&str, &str) {
    let is_gap = |letter: char| letter.is_whitespace() || matches!(letter, ',' | '-');
    let text = text.trim_start_matches(is_gap);
    let end = text.find(is_gap).unwrap_or(text.len());
    text.split_at(end)
}

/// Two digits are a year from 1970 to 2069.
fn full_year(text: &str) -> Option<i16> {
    if text.len() == 4 {
        return number(text, 4);
    }
    let year = number(text, 2)?;
    Some(if year < 70 { 2000 + year } else { 1900 + year })
}

/// `13:09`, `13:09:53`, `13:09:53.25` and the zone behind it.
fn clock_time(text: &str) -> Option<(Time, &str)> {
    let is_time = |octet: u8| octet.is_ascii_digit() || matches!(octet, b':' | b'.');
    let end = text.bytes().position(|octet| !is_time(octet));
    let (time, zone) = text.split_at(end.unwrap_or(text.len()));
    let whole = time.split('.').next()?;
    let mut parts = whole.split(':');
    let hour = parts.next().and_then(|part| number(part, part.len()))?;
    let minute = parts.next().and_then(|part| number(part, 2))?;
    let second = match parts.next() {
        // A leap second; no date is worth being lost for it.
        Some("60") => 59,
        Some(part) => number(part, 2)?,
        None => 0,
    };
    let time = Time::new(hour as i8, minute as i8, second as i8, 0).ok()?;
    Some((time, zone.trim()))
}

/// How far east a zone lies: an offset, or a name that has one meaning.
fn zone_minutes(zone: &str) -> i64 {
    let name = zone.split_whitespace().next().unwrap_or_default();
    let hours = match name.to_ascii_uppercase().as_str() {
        "Z" | "UT" | "UTC" | "GMT" | "WET" => 0,
        "CET" | "MET" | "WEST" => 1,
        "CEST" | "MEST" | "EET" => 2,
        "EEST" | "MSK" => 3,
        "EDT" => -4,
        "EST" | "CDT" => -5,
        "CST" | "MDT" => -6,
        "MST" | "PDT" => -7,
        "PST" => -8,
        _ => return offset_minutes(name).unwrap_or(EARLIEST_ZONE),
    };
    hours * 60
}

/// `+0100`, `-08:00`, `+01`.
fn offset_minutes(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits = text.get(1..)?.replacen(':', "", 1);
    let hours = number(digits.get(..2)?, 2)?;
    let minutes = match digits.get(2..)? {
        "" => 0,
        minutes => number(minutes, 2)?,
    };
    (hours < 15 && minutes < 60).then_some(sign * (i64::from(hours) * 60 + i64::from(minutes)))
}

/// Exactly so many digits, at most four.
fn number(text: &str, digits: usize) -> Option<i16> {
    let all_digits = text.bytes().all(|octet| octet.is_ascii_digit());
    let fits = text.len() == digits && (1..=4).contains(&digits);
    (all_digits && fits).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! dates {
        ($($name:ident: $text:literal is $instant:expr;)*) => {$(
            #[test]
            fn $name() {
                let expected: Option<&str> = $instant;
                let read = instant($text).map(|instant| instant.to_string());
                assert_eq!(read.as_deref(), expected);
            }
        )*};
    }

    // Google's document on robots meta tags names the three formats; that an
    // open zone is the earliest one is ours.
    dates! {
        a_mail_date_is_read: "Wed, 03 Dec 2100 13:09:53 GMT" is Some("2100-12-03T13:09:53Z");
        the_weekday_may_be_absent: "25 Jun 2010 15:00:00 PST" is Some("2010-06-25T23:00:00Z");
        hyphens_separate: "24-Feb-2027 21:00:00 CET" is Some("2027-02-24T20:00:00Z");
        two_digits_below_70_are_this_century: "Tuesday, 31-Dec-30 23:00:00 PST" is Some("2031-01-01T07:00:00Z");
        two_digits_from_70_are_the_last: "01-Jan-70 00:00:00 GMT" is Some("1970-01-01T00:00:00Z");
        an_iso_date_begins_in_utc: "2100-09-21" is Some("2100-09-21T00:00:00Z");
        an_iso_offset_is_subtracted: "2025-11-06T10:14:16+01:00" is Some("2025-11-06T09:14:16Z");
        a_fraction_is_dropped: "2100-01-01T00:00:00.750Z" is Some("2100-01-01T00:00:00Z");
        seconds_may_be_absent: "3 Dec 2100 13:09 UTC" is Some("2100-12-03T13:09:00Z");
        an_absent_zone_is_the_earliest: "2100-01-02T00:00:00" is Some("2100-01-01T10:00:00Z");
        an_unknown_zone_is_the_earliest: "02 Jan 2100 00:00:00 BST" is Some("2100-01-01T10:00:00Z");
        a_structured_date_is_read: "@4102444800" is Some("2100-01-01T00:00:00Z");
        a_leap_second_is_no_mistake: "2016-12-31T23:59:60Z" is Some("2016-12-31T23:59:59Z");
        words_are_no_date: "not a date" is None;
        a_day_that_is_not_is_no_date: "31 Feb 2100 00:00:00 GMT" is None;
        an_hour_that_is_not_is_no_date: "2100-01-01T25:00:00Z" is None;
        nothing_is_no_date: "" is None;
        a_huge_number_is_no_date: "@99999999999999999999" is None;
        no_letter_is_cut: "2100-01-0é" is None;
    }

    #[test]
    fn a_weekday_may_be_shortened_to_three_letters() {
        assert!(is_weekday("Wed") && is_weekday("tues") && is_weekday("FRIDAY"));
        assert!(!is_weekday("We") && !is_weekday("wedding") && !is_weekday("Jun"));
    }
}
