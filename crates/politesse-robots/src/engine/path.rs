//! The part of a URL that rules are compared with.

use memchr::{memchr, memchr3};

/// What follows the authority of an absolute URL, without its fragment: path
/// and query, bytes as they are (RFC 9309, section 2.2.2). What has no
/// authority is taken for the path itself.
///
/// It finds the place and checks nothing: a URL that could not be sent is for
/// its parser to refuse.
#[must_use]
pub fn path_of(url: &str) -> &str {
    let rest = match authority(url) {
        Some(authority) => {
            let path = memchr3(b'/', b'?', b'#', authority.as_bytes());
            path.and_then(|path| authority.get(path..))
                .unwrap_or_default()
        }
        None => url,
    };
    let fragment = memchr(b'#', rest.as_bytes());
    fragment.and_then(|end| rest.get(..end)).unwrap_or(rest)
}

/// What follows the scheme and the two slashes, if there is one.
fn authority(url: &str) -> Option<&str> {
    // Nearly all have one of these two.
    let rest = url.strip_prefix("http").and_then(|rest| {
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        rest.strip_prefix("://")
    });
    rest.or_else(|| {
        let (scheme, rest) = url.split_once("://")?;
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        scheme.bytes().all(is_scheme).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::path_of;

    // RFC 3986, section 3.
    #[test]
    fn path_is_what_follows_the_authority() {
        for (url, path) in [
            ("https://h.test/a/b?c=d#e", "/a/b?c=d"),
            ("https://h.test:8443/", "/"),
            ("https://h.test", ""),
            ("https://h.test?q", "?q"),
            ("https://h.test#f", ""),
            ("ftp+x://h.test/a", "/a"),
            ("/a?u=http://x/#y", "/a?u=http://x/"),
            ("", ""),
            ("https://[::1]/a", "/a"),
        ] {
            assert_eq!(path_of(url), path, "{url}");
        }
    }
}
