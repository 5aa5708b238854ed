//! Steps that servers take from the path of a request to a file.
//!
//! Each step is a function from a path without its query to another path, or `None` if it
//! changes nothing. All steps take linear time. Does not know which servers take which
//! steps, or in which order.

use memchr::memchr_iter;

/// Step of a reading. Returns the new path, or `None` if nothing changes.
pub(super) type ReadingStep = fn(&str) -> Option<String>;

/// Removes dot segments, in which `%2e` counts as a dot (RFC 3986, sections 5.2.4 and
/// 6.2.2.2). `..` at the root stays at the root.
pub(super) fn without_dots(path: &str) -> Option<String> {
    let segments = path.strip_prefix('/')?;
    if !follows_slash(path, b".%") || segments.split('/').all(|segment| dots(segment) == 0) {
        return None;
    }
    let mut out = String::with_capacity(path.len());
    let mut last = 0;
    for segment in segments.split('/') {
        last = dots(segment);
        if last == 0 {
            out.push('/');
            out.push_str(segment);
        }
        if last == 2 {
            out.truncate(out.rfind('/').unwrap_or(0));
        }
    }
    // A dot segment at the end leaves a trailing slash.
    if 0 < last {
        out.push('/');
    }
    Some(out)
}

/// Reports whether one of `bytes` directly follows a slash in `path`.
pub(super) fn follows_slash(path: &str, bytes: &[u8]) -> bool {
    let next = |at: usize| path.as_bytes().get(at + 1);
    memchr_iter(b'/', path.as_bytes()).any(|at| next(at).is_some_and(|next| bytes.contains(next)))
}

/// Returns 1 for `.` and 2 for `..`, escaped or not; otherwise 0.
fn dots(segment: &str) -> usize {
    let mut rest = segment.as_bytes();
    let mut count = 0;
    while count < 3 && !rest.is_empty() {
        rest = match rest {
            [b'.', after @ ..] | [b'%', b'2', b'e' | b'E', after @ ..] => after,
            _ => return 0,
        };
        count += 1;
    }
    if count < 3 { count } else { 0 }
}

/// Decodes the escapes of a path once. Bytes that a path cannot contain literally stay
/// escaped, most importantly `%25`, `%3F` and `%23`. A `%` that does not begin an escape
/// becomes `%25`.
pub(super) fn decoded(path: &str) -> Option<String> {
    if !path.contains('%') {
        return None;
    }
    let mut rest = path;
    let mut out = String::with_capacity(path.len());
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        match escaped_byte(after.as_bytes()) {
            Some(byte) if stands_for_itself(byte) => {
                out.push(char::from(byte));
                rest = &after[2..];
            }
            Some(_) => {
                out.push('%');
                rest = after;
            }
            None => {
                out.push_str("%25");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    (out != path).then_some(out)
}

/// Returns the byte that the two hexadecimal digits at the beginning of `tail` encode.
pub(super) fn escaped_byte(tail: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = digit(tail.first()?)? * 16 + digit(tail.get(1)?)?;
    u8::try_from(value).ok()
}

/// Reports whether a path may contain `byte` literally, with the same meaning as its escape
/// (RFC 3986, section 3.3; also the brackets, which servers accept).
pub(super) fn stands_for_itself(byte: u8) -> bool {
    const MARKS: &[u8] = b"-._~!$&'()*+,;=:@/[]";
    byte.is_ascii_alphanumeric() || MARKS.contains(&byte)
}

/// Merges each run of slashes into one.
pub(super) fn merged(path: &str) -> Option<String> {
    if !follows_slash(path, b"/") {
        return None;
    }
    let mut out = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        out.push('/');
        out.push_str(segment);
    }
    if path.ends_with('/') {
        out.push('/');
    }
    Some(out)
}

/// Replaces all backslashes, escaped or not, with slashes.
pub(super) fn separators(path: &str) -> Option<String> {
    let is_escaped = |at: usize| escaped_byte(&path.as_bytes()[at + 1..]) == Some(b'\\');
    let escaped = memchr_iter(b'%', path.as_bytes()).any(is_escaped);
    let plain = backslashes(path);
    if !escaped {
        return plain;
    }
    let path = plain.unwrap_or_else(|| path.to_owned());
    Some(path.replace("%5C", "/").replace("%5c", "/"))
}

/// Replaces backslashes that are not escaped with slashes (URL Standard, "path state").
pub(super) fn backslashes(path: &str) -> Option<String> {
    path.contains('\\').then(|| path.replace('\\', "/"))
}

/// Removes the parameters of each segment (RFC 3986, section 3.3).
pub(super) fn without_parameters(path: &str) -> Option<String> {
    if !path.contains(';') {
        return None;
    }
    let mut out = String::with_capacity(path.len());
    for segment in path.split_inclusive('/') {
        let (name, parameters) = segment.split_once(';').unwrap_or((segment, ""));
        out.push_str(name);
        if parameters.ends_with('/') {
            out.push('/');
        }
    }
    Some(out)
}

/// Removes the host that the URL Standard reads after two or more slashes at the beginning
/// ("special authority ignore slashes state").
pub(super) fn without_host(path: &str) -> Option<String> {
    let rest = path.strip_prefix("//")?;
    Some(from_slash(rest.trim_start_matches('/')))
}

/// Removes the authority that RFC 3986, section 4.2, reads after two slashes at the
/// beginning.
pub(super) fn without_first_name(path: &str) -> Option<String> {
    path.strip_prefix("//").map(from_slash)
}

fn from_slash(rest: &str) -> String {
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    path.to_owned()
}
