//! For how long a response says it may be used.
//!
//! RFC 9111, sections 4.2.1 and 5.3, as far as RFC 9309, section 2.4, leads to
//! it. What bounds the answer is the cache's to say.

use std::time::Duration;

use http::HeaderMap;
use http::header::{CACHE_CONTROL, DATE, EXPIRES, HeaderName};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// The lifetime by `Cache-Control`, else by `Expires`; `None` if neither says
/// anything. What forbids storing counts as no time at all.
pub(super) fn lifetime(fields: &HeaderMap, now: Timestamp) -> Option<Duration> {
    max_age(fields).or_else(|| expires(fields, now))
}

/// The lifetime by `Cache-Control` alone. An unreadable `max-age` is none.
pub(super) fn max_age(fields: &HeaderMap) -> Option<Duration> {
    let mut age = None;
    for value in fields.get_all(CACHE_CONTROL) {
        for directive in value.as_bytes().split(|&octet| octet == b',') {
            let directive = directive.trim_ascii();
            if directive.eq_ignore_ascii_case(b"no-store") {
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
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    std::str::from_utf8(text).map_or(0, |digits| digits.parse().unwrap_or(u64::from(u32::MAX)))
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

fn date(fields: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    const PARSER: DateTimeParser = DateTimeParser::new();
    PARSER.parse_timestamp(fields.get(name)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[(&'static str, &str)]) -> Option<u64> {
        let now = "1994-11-06T08:00:00Z".parse().unwrap();
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(*name, value.parse().unwrap());
        }
        lifetime(&fields, now).map(|time| time.as_secs())
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
    }
}
