//! `Retry-After`, and the two forms of time in header fields: a number of seconds, and a
//! date.
//!
//! RFC 9110, sections 5.6.7 and 10.2.3. Does not know how a pause is used.

use std::time::Duration;

use http::HeaderMap;
use http::header::{AGE, DATE, RETRY_AFTER};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Date formats: the preferred one, that of RFC 850 with a two-digit year, and that of
/// C's asctime.
const DATES: [&str; 3] = [
    "%a, %d %b %Y %H:%M:%S GMT",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a %b %e %H:%M:%S %Y",
];

/// Longest time that the clock of an origin may lag. Beyond it, the origin has no valid
/// clock, or the response is an old one.
const CLOCK_SLOW_MAX: SignedDuration = SignedDuration::from_hours(1);

/// Returns the pause that a response asks for. Of several fields the longest pause
/// counts, because a proxy on the way may have added its own. A date is measured from
/// `now`, or from the `Date` of the response if that comes from the origin itself and is
/// at most an hour in the past.
pub fn retry_after(fields: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let is_near = |date: &Timestamp| *date < now && now.duration_since(*date) <= CLOCK_SLOW_MAX;
    let from = fields
        .get(DATE)
        .filter(|_| !fields.contains_key(AGE))
        .and_then(|value| http_date(value.as_bytes().trim_ascii()))
        .filter(is_near)
        .unwrap_or(now);
    let values = fields.get_all(RETRY_AFTER).iter();
    let pauses = values.filter_map(|value| pause(value.as_bytes().trim_ascii(), from));
    pauses.max()
}

fn pause(value: &[u8], now: Timestamp) -> Option<Duration> {
    if is_number(value) {
        return Some(Duration::from_secs(delta_seconds(value)));
    }
    // A past date does not convert to a `Duration`: it asks for no pause.
    let until = http_date(value)?;
    Duration::try_from(until.duration_since(now)).ok()
}

/// Parses a number of seconds, with or without quotes. Anything else counts as zero, and
/// a number that does not fit as the maximum of RFC 9111, section 1.2.2.
pub fn delta_seconds(text: &[u8]) -> u64 {
    // The grammar has no quotes, but recipients are encouraged to accept both forms (RFC
    // 9111, section 5.2).
    let text = text
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""))
        .unwrap_or(text);
    if !is_number(text) {
        return 0;
    }
    std::str::from_utf8(text).map_or(0, |digits| digits.parse().unwrap_or(u64::from(u32::MAX)))
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Parses a date in any of the three formats (RFC 9110, section 5.6.7). A wrong weekday
/// is ignored, because the rest determines the date.
pub fn http_date(text: &[u8]) -> Option<Timestamp> {
    const PARSER: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);
    let preferred = PARSER.parse_timestamp(text).ok();
    preferred.or_else(|| {
        let mut formats = DATES.iter();
        let mut parsed = formats.find_map(|format| strtime::parse(format, text).ok())?;
        parsed.set_weekday(None);
        let date = parsed.to_datetime().ok().filter(|date| 0 <= date.year())?;
        // The last two days of the year 9999, which servers use for "never", are later
        // than the maximum `Timestamp`.
        let zoned = date.to_zoned(TimeZone::UTC);
        Some(zoned.map_or(Timestamp::MAX, |date| date.timestamp()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(*name, value.parse().unwrap());
        }
        fields
    }

    // Ours: a host with a slow clock means a pause of the same length.
    #[test]
    fn a_date_is_measured_from_an_earlier_date_of_the_response() {
        let until = "Sun, 06 Nov 1994 07:55:00 GMT";
        for (date, age, seconds) in [
            ("Sun, 06 Nov 1994 07:50:00 GMT", "x-age", Some(300)),
            // A cached response, no clock, and a fast clock.
            ("Sun, 06 Nov 1994 07:50:00 GMT", "age", None),
            ("Thu, 01 Jan 1970 00:00:00 GMT", "x-age", None),
            ("Sun, 06 Nov 1994 09:00:00 GMT", "x-age", None),
            ("yesterday", "x-age", None),
        ] {
            let fields = fields(&[("date", date), (age, "600"), ("retry-after", until)]);
            let pause = retry_after(&fields, now());
            assert_eq!(pause.map(|pause| pause.as_secs()), seconds, "{date}");
        }
    }

    fn now() -> Timestamp {
        "1994-11-06T08:00:00Z".parse().unwrap()
    }

    /// Seconds from [`now`] to the latest possible date.
    const NEVER: u64 = 252_618_098_400;

    // RFC 9110, section 10.2.3.
    #[test]
    fn a_pause_is_asked_for_in_seconds_or_until_a_date() {
        for (value, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(49 * 60 + 37)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(49 * 60 + 37)),
            ("Sun Nov  6 08:49:37 1994", Some(49 * 60 + 37)),
            ("Sun, 06 Nov 1994 07:49:37 GMT", None),
            ("99999999999999999999", Some(u64::from(u32::MAX))),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::from(u32::MAX))),
            ("Thu, 30 Dec 9999 21:00:00 GMT", Some(252_618_094_800)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(NEVER)),
            ("Fri Dec 31 23:59:59 9999", Some(NEVER)),
            // A wrong weekday, and a leap second.
            ("Mon, 06 Nov 1994 08:49:37 GMT", Some(49 * 60 + 37)),
            ("Monday, 06-Nov-94 08:49:37 GMT", Some(49 * 60 + 37)),
            ("Mon Nov  6 08:49:37 1994", Some(49 * 60 + 37)),
            ("Sun, 06 Nov 1994 08:59:60 GMT", Some(3599)),
            ("Sun Nov  6 08:49:37 -9999", None),
            ("Fri, 31 Feb 2100 08:49:37 GMT", None),
            ("", None),
            ("soon", None),
            ("-1", None),
        ] {
            let asked_for = retry_after(&fields(&[("retry-after", value)]), now());
            assert_eq!(asked_for.map(|time| time.as_secs()), seconds, "{value}");
        }
    }

    // Ours: too long a pause hurts no site. RFC 9110, section 5.3, does not say which of
    // several counts where only one is allowed.
    #[test]
    fn the_longest_of_several_pauses_counts() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (values, seconds) in [
            (["5", "300"], Some(300)),
            (["300", "5"], Some(300)),
            (["soon", "300"], Some(300)),
            (["300", "soon"], Some(300)),
            (["5", date], Some(49 * 60 + 37)),
            (["soon", "later"], None),
        ] {
            let lines = values.map(|value| ("retry-after", value));
            let asked_for = retry_after(&fields(&lines), now());
            assert_eq!(asked_for.map(|time| time.as_secs()), seconds, "{values:?}");
        }
    }
}
