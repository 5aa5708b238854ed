//! Dates of `unavailable_after`.
//!
//! The vendors accept RFC 822, RFC 850 and ISO 8601, and pages use all of them. If a
//! date is ambiguous, the earliest instant counts, because a later one would violate
//! the request. Does not know directives or the current time.

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Timestamp};

/// Offset, in minutes east of Greenwich, of the zone where a day begins first. Used if
/// the zone is absent or ambiguous.
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

/// Reads a date as an instant, in whole seconds. A date without a time is the start of
/// that day in UTC; `@1735689600` is a date of RFC 9651. Words after a date are
/// ignored.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = seconds.split_whitespace().next()?;
        return Timestamp::from_second(seconds.parse().ok()?).ok();
    }
    let (date, rest) = iso_date(text).or_else(|| mail_date(text))?;
    let rest = rest.trim_start_matches(is_gap);
    if !rest.starts_with(|letter: char| letter.is_ascii_digit()) {
        let east = if rest.starts_with('+') {
            zone_minutes(rest)
        } else {
            0
        };
        return at(DateTime::from_parts(date, Time::midnight()), east);
    }
    let (time, zone) = clock_time(rest)?;
    let civil = match time {
        ClockTime::At(time) => DateTime::from_parts(date, time),
        ClockTime::DayEnd => DateTime::from_parts(date.tomorrow().ok()?, Time::midnight()),
    };
    at(civil, zone_minutes(zone))
}

/// Time of day.
enum ClockTime {
    At(Time),
    /// `24:00` (ISO 8601), the first instant of the next day.
    DayEnd,
}

/// Reports whether the comma between these two texts may be part of a date:
/// `Wed, 03 Dec`, `Wed, Dec 3`, `Dec 3, 2100`.
pub(super) fn has_comma(before: &str, after: &str) -> bool {
    let last = before
        .trim_end()
        .rsplit(|letter: char| !letter.is_ascii_alphanumeric());
    let next = || word(after).0;
    let is_digit = |letter: char| letter.is_ascii_digit();
    match last.into_iter().next() {
        Some(day) if is_weekday(day) => next().starts_with(is_digit) || month(next()).is_some(),
        Some(day) if day.len() < 3 && number(day, day.len()).is_some() => {
            number(next(), 4).is_some() && month_before(before).is_some()
        }
        _ => false,
    }
}

/// Returns the month before a day at the end of the text.
fn month_before(text: &str) -> Option<i8> {
    month(text.split_whitespace().rev().nth(1)?)
}

/// Reports whether a word names a day of the week, in full or by its first three or
/// more letters (`Tues`).
pub(super) fn is_weekday(word: &str) -> bool {
    let shortened = |day: &&str| {
        let start = day.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    3 <= word.len() && WEEKDAYS.iter().any(shortened)
}

fn at(civil: DateTime, minutes_east: i64) -> Option<Timestamp> {
    let utc = civil.checked_sub(SignedDuration::from_mins(minutes_east));
    let zoned = utc.ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    // Only the last hours of the year 9999 are later than the latest instant.
    let latest = || Timestamp::from_second(Timestamp::MAX.as_second()).ok();
    zoned.ok().map(|zoned| zoned.timestamp()).or_else(latest)
}

/// Reads `2100-09-21` or `21000921`. Returns the date and the text after it,
/// without the `T`.
fn iso_date(text: &str) -> Option<(Date, &str)> {
    let end = text.find(|letter: char| letter != '-' && !letter.is_ascii_digit());
    let (day, rest) = text.split_at(end.unwrap_or(text.len()));
    // `2100-09-21-08:00` has a zone but no time.
    let day = day.get(..10).unwrap_or(day);
    let [year, month, day] = match day.split('-').collect::<Vec<_>>()[..] {
        [year, month, day] => [number(year, 4)?, number(month, 2)?, number(day, 2)?],
        [day] if day.len() == 8 => [
            number(&day[..4], 4)?,
            number(&day[4..6], 2)?,
            number(&day[6..], 2)?,
        ],
        _ => return None,
    };
    let date = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let time = rest.strip_prefix(['T', 't']);
    Some((date, time.unwrap_or(rest)))
}

/// Reads `Wed, 03 Dec 2100`, `31-Dec-30` or `Dec 3, 2100`; also
/// `Wed Dec  3 13:09:53 2100`, where the year comes last. Returns the date and
/// the text after it.
fn mail_date(text: &str) -> Option<(Date, &str)> {
    let (first, after) = word(text);
    let text = if is_weekday(first) { after } else { text };
    let (first, rest) = word(text);
    let (second, rest) = word(rest);
    let (third, after) = word(rest);
    let (day, month) = match month(first) {
        Some(month) => (second, month),
        None => (first, month(second)?),
    };
    let (year, rest) = match full_year(third) {
        Some(year) => (year, after),
        None => (number(rest.split_whitespace().next_back()?, 4)?, rest),
    };
    let day = number(day, day.len().min(2))?;
    let date = Date::new(year, month, i8::try_from(day).ok()?).ok()?;
    Some((date, rest))
}

/// Returns the number of the month with this name, by its first three letters.
fn month(name: &str) -> Option<i8> {
    let start = name.get(..3)?;
    let mut months = (1..).zip(MONTHS);
    let found = months.find(|(_, name)| start.eq_ignore_ascii_case(name));
    found.map(|(month, _)| month)
}

fn is_gap(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, ',' | '-')
}

/// Returns the next word and the text after it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(is_gap);
    let end = text.find(is_gap).unwrap_or(text.len());
    text.split_at(end)
}

/// Reads a year. Two digits are a year from 1970 to 2069.
fn full_year(text: &str) -> Option<i16> {
    if text.len() == 4 {
        return number(text, 4);
    }
    let year = number(text, 2)?;
    Some(if year < 70 { 2000 + year } else { 1900 + year })
}

/// Reads `13:09`, `13:09:53`, `13:09:53.25` or `130953`. Returns the time and
/// the zone after it.
fn clock_time(text: &str) -> Option<(ClockTime, &str)> {
    let is_time = |byte: u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.');
    let end = text.bytes().position(|byte| !is_time(byte));
    let (time, zone) = text.split_at(end.unwrap_or(text.len()));
    let whole = time.split('.').next()?;
    let parts: Vec<&str> = match whole.len() {
        4 | 6 if !whole.contains(':') => (0..whole.len())
            .step_by(2)
            .map(|at| &whole[at..at + 2])
            .collect(),
        _ => whole.split(':').collect(),
    };
    let [hour, minute, rest @ ..] = &parts[..] else {
        return None;
    };
    let hour = number(hour, hour.len().min(2))?;
    let second = match rest.first() {
        // A leap second. It is not a reason to reject the whole date.
        Some(&"60") => 59,
        Some(part) => number(part, 2)?,
        None => 0,
    };
    let minute = number(minute, 2)?;
    if (hour, minute, second) == (24, 0, 0) {
        return Some((ClockTime::DayEnd, zone.trim()));
    }
    let [hour, minute, second] = [hour, minute, second].map(|part| part as i8);
    let time = Time::new(hour, minute, second, 0).ok()?;
    Some((ClockTime::At(time), zone.trim()))
}

/// Returns how far east a zone lies, in minutes. A zone is an offset, or a name with
/// only one meaning.
fn zone_minutes(zone: &str) -> i64 {
    let name = zone.split_whitespace().next().unwrap_or_default();
    let hours = match name.to_ascii_uppercase().as_str() {
        // Not British summer time: `BST` is also the zone of Bangladesh.
        "Z" | "UT" | "UTC" | "GMT" | "WET" => 0,
        "CET" => 1,
        "CEST" | "EET" => 2,
        "MSK" => 3,
        "EDT" => -4,
        "EST" | "CDT" => -5,
        "CST" | "MDT" => -6,
        "MST" | "PDT" => -7,
        "PST" => -8,
        _ => return offset_minutes(name).unwrap_or(EARLIEST_ZONE),
    };
    hours * 60
}

/// Reads `+0100`, `-08:00` or `+01`, in minutes.
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

/// Reads a number of exactly `digits` digits, at most four.
fn number(text: &str, digits: usize) -> Option<i16> {
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
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

    // Google's document on robots meta tags names the three formats. Taking the
    // earliest zone for an ambiguous one is ours.
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
        an_unknown_month_is_rejected: "25 Foo 2100 15:00:00 GMT" is None;
        a_month_may_be_written_out: "25 december 2100" is Some("2100-12-25T00:00:00Z");
        a_month_may_come_first: "Wed, Dec 3, 2100, 13:09 UTC" is Some("2100-12-03T13:09:00Z");
        a_year_may_come_last: "Wed Dec  3 13:09:53 GMT 2100" is Some("2100-12-03T13:09:53Z");
        asctime_has_no_zone: "Wed Dec  3 14:00:00 2100" is Some("2100-12-03T00:00:00Z");
        iso_needs_no_hyphens: "21000921T130953Z" is Some("2100-09-21T13:09:53Z");
        a_day_may_end_at_24_00: "2100-01-01T24:00:00Z" is Some("2100-01-02T00:00:00Z");
        a_date_may_have_a_zone: "2100-01-02+14:00" is Some("2100-01-01T10:00:00Z");
        a_date_in_the_west_begins_in_utc: "2100-01-01-08:00" is Some("2100-01-01T00:00:00Z");
        words_after_a_date_are_not_a_time: "2100-01-01 noindex" is Some("2100-01-01T00:00:00Z");
        dates_after_the_last_instant_are_clamped: "9999-12-31" is Some("9999-12-30T22:00:00Z");
        a_military_zone_is_unknown: "02 Jan 2100 00:00:00 A" is Some("2100-01-01T10:00:00Z");
        an_hour_of_four_digits_is_rejected: "2100-01-01T1300:00" is None;
        a_leap_second_is_accepted: "2016-12-31T23:59:60Z" is Some("2016-12-31T23:59:59Z");
        words_are_no_date: "not a date" is None;
        a_nonexistent_day_is_not_a_date: "31 Feb 2100 00:00:00 GMT" is None;
        a_nonexistent_hour_is_not_a_date: "2100-01-01T25:00:00Z" is None;
        nothing_is_no_date: "" is None;
        a_huge_number_is_no_date: "@99999999999999999999" is None;
        a_multibyte_character_is_not_split: "2100-01-0é" is None;
    }

    #[test]
    fn a_weekday_may_be_shortened_to_three_letters() {
        assert!(is_weekday("Wed") && is_weekday("tues") && is_weekday("FRIDAY"));
        assert!(!is_weekday("We") && !is_weekday("wedding") && !is_weekday("Jun"));
    }
}
