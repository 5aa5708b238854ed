//! For how long a response says it may be used.
//!
//! RFC 9111, sections 4.2.1 and 5.3, as far as RFC 9309, section 2.4, leads to
//! it. What bounds the answer is the cache's to say.

use std::time::Duration;

use http::HeaderMap;
use http::header::{AGE, CACHE_CONTROL, DATE, EXPIRES, HeaderName, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// The preferred format, that of RFC 850, with two digits for the year, and that
/// of C's asctime.
const DATES: [&str; 3] = [
    "%a, %d %b %Y %H:%M:%S GMT",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a %b %e %H:%M:%S %Y",
];

/// The lifetime that is left by `Cache-Control`, else by `Expires`; `None` if
/// neither says anything. What forbids storing, or use without asking, counts
/// as no time at all.
pub fn lifetime(fields: &HeaderMap, now: Timestamp) -> Option<Duration> {
    cache_control(fields)
        .or_else(|| expires(fields, now))
        .map(|lifetime| lifetime.saturating_sub(age(fields)))
}

/// The same by `Cache-Control` alone.
pub fn max_age(fields: &HeaderMap) -> Option<Duration> {
    cache_control(fields).map(|lifetime| lifetime.saturating_sub(age(fields)))
}

/// How long a response asks to be left alone (RFC 9110, section 10.2.3). Of
/// several fields, as where a proxy on the way adds its own, the longest counts.
pub fn retry_after(fields: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let values = fields.get_all(RETRY_AFTER).iter();
    let pauses = values.filter_map(|value| pause(value.as_bytes().trim_ascii(), now));
    pauses.max()
}

/// The time that one value of `Retry-After` names.
fn pause(value: &[u8], now: Timestamp) -> Option<Duration> {
    if is_number(value) {
        return Some(Duration::from_secs(seconds_of(value)));
    }
    let until = date_of(value)?;
    Duration::try_from(until.duration_since(now)).ok()
}

/// How long a cache on the way has held it (RFC 9111, section 5.1).
fn age(fields: &HeaderMap) -> Duration {
    let seconds = fields
        .get(AGE)
        .map(|value| seconds_of(value.as_bytes().trim_ascii()));
    Duration::from_secs(seconds.unwrap_or_default())
}

/// The first `max-age` counts (RFC 9111, section 4.2.1), and an unreadable one
/// is none. `s-maxage` is for caches that serve many, and not read.
fn cache_control(fields: &HeaderMap) -> Option<Duration> {
    let mut age = None;
    for value in fields.get_all(CACHE_CONTROL) {
        for directive in value.as_bytes().split(|&byte| byte == b',') {
            let directive = directive.trim_ascii();
            let forbids = [b"no-store".as_slice(), b"no-cache"];
            if forbids
                .iter()
                .any(|name| directive.eq_ignore_ascii_case(name))
            {
                return Some(Duration::ZERO);
            }
            if let Some(seconds) = argument(directive, b"max-age=") {
                age = age.or(Some(Duration::from_secs(seconds_of(seconds))));
            }
        }
    }
    age
}

fn argument<'a>(directive: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, argument) = directive.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(argument)
}

/// RFC 9111, section 1.2.2: more than fits counts as the most there is.
fn seconds_of(text: &[u8]) -> u64 {
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

/// By `Expires`, counted from `Date` so that wrong clocks do not matter. An
/// unreadable one, such as `0`, has passed.
fn expires(fields: &HeaderMap, now: Timestamp) -> Option<Duration> {
    if !fields.contains_key(EXPIRES) {
        return None;
    }
    let from = date(fields, &DATE).unwrap_or(now);
    let left = date(fields, &EXPIRES).map(|until| until.duration_since(from));
    let left = left.and_then(|left| Duration::try_from(left).ok());
    Some(left.unwrap_or_default())
}

/// The date in a field.
fn date(fields: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    date_of(fields.get(name)?.as_bytes().trim_ascii())
}

/// A date in any of the three formats that count (RFC 9110, section 5.6.7). A
/// weekday that does not belong to it is not looked at: when is said without.
fn date_of(text: &[u8]) -> Option<Timestamp> {
    const PARSER: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);
    let preferred = PARSER.parse_timestamp(text).ok();
    preferred.or_else(|| {
        let mut formats = DATES.iter();
        let mut date = formats.find_map(|format| strtime::parse(format, text).ok())?;
        date.set_weekday(None);
        let date = date.to_datetime().ok().filter(|date| 0 <= date.year())?;
        // The last two days of the year 9999, which is written for "never", are
        // later than any `Timestamp`.
        let date = date.to_zoned(TimeZone::UTC);
        Some(date.map_or(Timestamp::MAX, |date| date.timestamp()))
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

    fn now() -> Timestamp {
        "1994-11-06T08:00:00Z".parse().unwrap()
    }

    fn said(lines: &[(&'static str, &str)]) -> Option<u64> {
        lifetime(&fields(lines), now()).map(|time| time.as_secs())
    }

    // RFC 9111, sections 4.2.3, 5.1 and 5.2.2.4: what a cache on the way has
    // used up is gone.
    #[test]
    fn the_age_counts_towards_the_lifetime() {
        let hour = ("cache-control", "max-age=3600");
        assert_eq!(said(&[hour, ("age", "600")]), Some(3000));
        assert_eq!(said(&[hour, ("age", "7200")]), Some(0));
        assert_eq!(said(&[hour, ("age", "old")]), Some(3600));
        assert_eq!(said(&[("age", "600")]), None);
        assert_eq!(said(&[("cache-control", "no-cache, max-age=60")]), Some(0));
        let twice = ("cache-control", "max-age=60, max-age=90");
        assert_eq!(said(&[twice]), Some(60));
    }

    /// To the end of all dates, from [`now`].
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
            // No weekday of that day, and a leap second.
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

    // Issue 6, purpose: no site is hurt. RFC 9110, section 5.3, leaves open which
    // of several counts where there should be one.
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

    // RFC 9111, sections 5.2.2 and 5.3.
    #[test]
    fn cache_control_and_expires_are_read() {
        let expires = ("expires", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[("cache-control", "public, Max-Age=60")]), Some(60));
        assert_eq!(said(&[("cache-control", "max-age=\"60\"")]), Some(60));
        assert_eq!(said(&[("cache-control", "max-age=60"), expires]), Some(60));
        assert_eq!(said(&[("cache-control", "max-age=60, no-store")]), Some(0));
        assert_eq!(said(&[("cache-control", "max-age=soon")]), Some(0));
        assert_eq!(
            said(&[("cache-control", "max-age=99999999999999999999")]),
            Some(u64::from(u32::MAX))
        );
        assert_eq!(said(&[expires]), Some(49 * 60 + 37));
        assert_eq!(
            said(&[expires, ("date", "Sun, 06 Nov 1994 08:49:07 GMT")]),
            Some(30)
        );
        assert_eq!(
            said(&[expires, ("date", "Sun, 06 Nov 1994 09:49:07 GMT")]),
            Some(0)
        );
        assert_eq!(said(&[("expires", "0")]), Some(0));
        let never = ("expires", "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(said(&[never]), Some(NEVER));
        // RFC 9110, section 5.6.7: the obsolete formats are accepted.
        let rfc850 = ("expires", "Sunday, 06-Nov-94 08:49:37 GMT");
        let asctime = ("date", "Sun Nov  6 08:49:07 1994");
        assert_eq!(said(&[rfc850]), Some(49 * 60 + 37));
        assert_eq!(said(&[rfc850, asctime]), Some(30));
    }
}
