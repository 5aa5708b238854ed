//! What a server may take a path for, other than what it says.
//!
//! `/a/../private` is served as `/private` by every common server, so a rule
//! for `/private` must refuse it (RFC 3986, section 5.2.4). Whether a reading
//! counts is the policy's to say; what is sent is always the octets received.

/// `path_and_query` without its dot segments, `%2e` counting as a dot; `None`
/// if it has none. The query is carried along.
///
/// RFC 3986, sections 5.2.4 and 6.2.2.2; `..` at the root stays at the root.
pub fn without_dot_segments(path_and_query: &str) -> Option<String> {
    let end = path_and_query.find('?').unwrap_or(path_and_query.len());
    let (path, query) = path_and_query.split_at(end);
    let path = path.strip_prefix('/')?;
    if !path.split('/').any(|segment| dots(segment) > 0) {
        return None;
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let dots = dots(segment);
        if dots == 0 {
            kept.push(segment);
            continue;
        }
        if dots == 2 {
            kept.pop();
        }
        // A dot segment at the end leaves the slash before it.
        if segments.peek().is_none() {
            kept.push("");
        }
    }
    Some(format!("/{}{query}", kept.join("/")))
}

/// 1 for `.`, 2 for `..`, however escaped; else 0.
fn dots(segment: &str) -> usize {
    let mut rest = segment;
    let mut count = 0;
    while !rest.is_empty() {
        let escaped = rest.get(..3).filter(|dot| dot.eq_ignore_ascii_case("%2e"));
        let Some(after) = rest.strip_prefix('.').or(escaped.map(|_| &rest[3..])) else {
            return 0;
        };
        rest = after;
        count += 1;
    }
    if count <= 2 { count } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::without_dot_segments as read;

    // RFC 3986, section 5.2.4, and the spellings that servers take as well.
    #[test]
    fn dot_segments_are_removed_however_written() {
        for (path, reading) in [
            ("/a/../private", "/private"),
            ("/a/%2e%2E/private", "/private"),
            ("/a/.%2e/private/x?q=../y", "/private/x?q=../y"),
            ("/./private", "/private"),
            ("/../private", "/private"),
            ("/a/b/c/./../../g", "/a/g"),
            ("/private/.", "/private/"),
            ("/private/x/..", "/private/"),
            ("/..", "/"),
            ("/a//../b", "/a/b"),
        ] {
            assert_eq!(read(path).as_deref(), Some(reading), "{path}");
        }
    }

    #[test]
    fn a_path_without_dot_segments_has_no_other_reading() {
        for path in [
            "/",
            "/a",
            "/a/...",
            "/a/.b/c..",
            "/a?/../b",
            "/é/%2",
            "/%2e%",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
    }
}
