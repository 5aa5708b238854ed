//! Lifetime that a response states for itself.
//!
//! RFC 9111, sections 4.2.1 and 5.3, referenced by RFC 9309, section 2.4. `options`
//! decides how far a stated lifetime is used.

use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, DATE, EXPIRES, HeaderName};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;

use politesse_net::retry_after::{delta_seconds, http_date};

const MAX_AGE: &[u8] = b"max-age=";

/// Returns the remaining lifetime by `Cache-Control`, else by `Expires`; `None` if the
/// response has neither.
///
/// `no-store` and `no-cache` count as a lifetime of zero. The cache applies its limits to
/// them as to any short lifetime.
pub(super) fn stated_lifetime(fields: &HeaderMap, now: Timestamp) -> Option<Duration> {
    cache_control(fields)
        .or_else(|| expires(fields, now))
        .map(|lifetime| lifetime.saturating_sub(age(fields)))
}

/// Returns the remaining lifetime by `Cache-Control` alone.
pub(super) fn stated_max_age(fields: &HeaderMap) -> Option<Duration> {
    cache_control(fields).map(|lifetime| lifetime.saturating_sub(age(fields)))
}

/// Returns the time that the response spent in caches on the way (RFC 9111, section 5.1).
fn age(fields: &HeaderMap) -> Duration {
    let value = fields.get(AGE).map(HeaderValue::as_bytes);
    let seconds = value.map(|value| delta_seconds(value.trim_ascii()));
    Duration::from_secs(seconds.unwrap_or_default())
}

/// Reads `Cache-Control`. The first `max-age` counts (RFC 9111, section 4.2.1), and an
/// unreadable one is zero. `s-maxage` is for shared caches and is ignored.
fn cache_control(fields: &HeaderMap) -> Option<Duration> {
    let mut age = None;
    for value in fields.get_all(CACHE_CONTROL) {
        for directive in value.as_bytes().split(|&byte| byte == b',') {
            let directive = directive.trim_ascii();
            if directive.eq_ignore_ascii_case(b"no-store")
                || directive.eq_ignore_ascii_case(b"no-cache")
            {
                // These directives forbid reuse, regardless of the rest of the field.
                return Some(Duration::ZERO);
            }
            if let Some((name, seconds)) = directive.split_at_checked(MAX_AGE.len())
                && name.eq_ignore_ascii_case(MAX_AGE)
            {
                age = age.or(Some(Duration::from_secs(delta_seconds(seconds))));
            }
        }
    }
    age
}

/// Reads `Expires`, relative to `Date`, so that a wrong server clock does not matter. An
/// unreadable value such as `0` counts as expired.
fn expires(fields: &HeaderMap, now: Timestamp) -> Option<Duration> {
    if !fields.contains_key(EXPIRES) {
        return None;
    }
    let from = date(fields, &DATE).unwrap_or(now);
    let left = date(fields, &EXPIRES)
        .and_then(|until| Duration::try_from(until.duration_since(from)).ok());
    Some(left.unwrap_or_default())
}

fn date(fields: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    http_date(fields.get(name)?.as_bytes().trim_ascii())
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
        stated_lifetime(&fields(lines), now()).map(|time| time.as_secs())
    }

    /// Seconds from [`now`] to the latest possible date.
    const NEVER: u64 = 252_618_098_400;

    // RFC 9111, sections 4.2.3, 5.1 and 5.2.2.4: the time spent in caches on the way
    // counts.
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
