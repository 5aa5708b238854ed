//! Target of a robots.txt redirect.
//!
//! RFC 9110, section 10.2.2; references are resolved as in RFC 3986, section 5.2.2. Host
//! names are not mapped as browsers do, because that could turn one host into another.
//! Does not know whether a redirect may be followed.

use http::HeaderMap;
use http::header::LOCATION;

use politesse_robots::origin::Target;
use politesse_robots::reading::without_dot_segments;

/// Length limit of a reference: RFC 9110, section 4.1, recommends that every recipient
/// support this length. The limit matters because a snapshot stores the URLs of its
/// redirects.
const REFERENCE_BYTES_MAX: usize = 8000;

/// Returns the URL of the only `Location` in `fields`, resolved against `base`; `None` if
/// there is not exactly one, or if its URL cannot be requested.
pub fn redirect_target(base: &Target, fields: &HeaderMap) -> Option<Target> {
    let mut values = fields.get_all(LOCATION).iter();
    // Of two fields, different recipients could follow different ones.
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    if REFERENCE_BYTES_MAX < value.len() {
        return None;
    }
    let reference = std::str::from_utf8(value.as_bytes()).ok()?.trim();
    // Unescaped non-ASCII letters would be sent as they are, and many servers refuse
    // them.
    let escaped: String = reference.chars().map(escaped).collect();
    resolve(base, &escaped)
}

/// Escapes a character of a reference for use in a request: one outside ASCII becomes the
/// percent-encoding of its bytes (RFC 3987, section 3.1).
fn escaped(letter: char) -> String {
    if letter.is_ascii() {
        return letter.to_string();
    }
    let bytes = letter.encode_utf8(&mut [0; 4]).to_owned().into_bytes();
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

fn resolve(base: &Target, reference: &str) -> Option<Target> {
    // The fragment is not part of a request target (RFC 9110, section 7.1).
    let reference = reference.split('#').next()?;
    // A scheme ends with a colon that comes before any character that begins another part
    // (RFC 3986, section 3.1).
    let end = reference.find([':', '/', '?']);
    if end.is_some_and(|end| reference[end..].starts_with(':')) {
        return plain(reference.parse().ok()?);
    }
    if reference.starts_with("//") {
        let scheme = base.origin.scheme().as_str();
        return plain(format!("{scheme}:{reference}").parse().ok()?);
    }
    let path = match reference.as_bytes().first() {
        None => base.path_and_query().to_owned(),
        Some(b'/') => reference.to_owned(),
        Some(b'?') => format!("{}{reference}", path_of(base)),
        Some(_) => format!("{}{reference}", folder_of(base)),
    };
    plain(Target::new(base.origin.clone(), &path).ok()?)
}

/// Removes the dot segments of a URL.
fn plain(target: Target) -> Option<Target> {
    match without_dot_segments(target.path_and_query()) {
        Some(path) => Target::new(target.origin, &path).ok(),
        None => Some(target),
    }
}

fn path_of(target: &Target) -> &str {
    target
        .path_and_query()
        .split('?')
        .next()
        .unwrap_or_default()
}

/// Returns the path up to its last slash (RFC 3986, section 5.2.3).
fn folder_of(target: &Target) -> &str {
    let path = path_of(target);
    let end = path.rfind('/').map_or(0, |slash| slash + 1);
    path.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn from(base: &str, reference: &str) -> Option<String> {
        let mut fields = HeaderMap::new();
        fields.append(
            LOCATION,
            HeaderValue::from_bytes(reference.as_bytes()).unwrap(),
        );
        redirect_target(&base.parse().unwrap(), &fields).map(|target| target.to_string())
    }

    // Ours: RFC 9110, section 4.1, recommends 8,000 bytes.
    #[test]
    fn a_long_reference_leads_nowhere() {
        for (bytes, leads) in [(8000, true), (8001, false)] {
            let mut fields = HeaderMap::new();
            let value = format!("/{}", "x".repeat(bytes - 1));
            fields.append(LOCATION, value.parse().unwrap());
            let found = redirect_target(&"http://a/".parse().unwrap(), &fields);
            assert_eq!(found.is_some(), leads, "{bytes}");
        }
    }

    // RFC 3986, section 5.4.
    #[test]
    fn references_are_resolved_against_the_base() {
        for (reference, url) in [
            ("http://g/x", "http://g/x"),
            ("https://g", "https://g/"),
            ("//g", "http://g/"),
            ("/g", "http://a/g"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("g#s", "http://a/b/c/g"),
            ("", "http://a/b/c/d;p?q"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            // RFC 3987, section 3.1.
            (
                "/r\u{f6}bots.txt?\u{20ac}",
                "http://a/r%C3%B6bots.txt?%E2%82%AC",
            ),
        ] {
            let found = from("http://a/b/c/d;p?q", reference);
            assert_eq!(found.as_deref(), Some(url), "{reference}");
        }
    }

    #[test]
    fn a_target_that_cannot_be_requested_leads_nowhere() {
        for reference in [
            "ftp://g/",
            "mailto:a@b",
            "http:g",
            "http://u@g/",
            "/a b",
            "//",
            "javascript:1",
        ] {
            assert_eq!(from("http://a/robots.txt", reference), None, "{reference}");
        }
    }

    #[test]
    fn two_locations_lead_nowhere() {
        let base: Target = "http://a/".parse().unwrap();
        let mut fields = HeaderMap::new();
        assert_eq!(redirect_target(&base, &fields), None);
        fields.append(LOCATION, HeaderValue::from_static("/x"));
        assert!(redirect_target(&base, &fields).is_some());
        fields.append(LOCATION, HeaderValue::from_static("/y"));
        assert_eq!(redirect_target(&base, &fields), None);
    }
}
