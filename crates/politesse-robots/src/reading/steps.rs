//! The steps that servers take from a path as sent to a file.
//!
//! Each is a function from a path without its query to another, `None` where
//! it changes nothing; all of them are linear. Who takes which, and in which
//! order, is not known here.

use memchr::memchr_iter;

/// A step: the path after it, or `None` if it is the same.
pub(super) type ReadingStep = fn(&str) -> Option<String>;

/// Returns the path without its dot segments, `%2e` counting as a dot (RFC
/// 3986, sections 5.2.4 and 6.2.2.2); `..` at the root stays at the root.
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
    // A dot segment at the end leaves the slash before it.
    if 0 < last {
        out.push('/');
    }
    Some(out)
}

/// Reports whether one of `bytes` stands after a slash of `path`.
pub(super) fn follows_slash(path: &str, bytes: &[u8]) -> bool {
    let next = |at: usize| path.as_bytes().get(at + 1);
    memchr_iter(b'/', path.as_bytes()).any(|at| next(at).is_some_and(|next| bytes.contains(next)))
}

/// 1 for `.`, 2 for `..`, however escaped; else 0.
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

/// Returns the path with its escapes decoded, once. What would not stand for
/// itself stays escaped, `%25`, `%3F` and `%23` above all; a `%` that begins no
/// escape is one.
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

/// Returns the byte whose two hexadecimal digits `tail` begins with.
pub(super) fn escaped_byte(tail: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = digit(tail.first()?)? * 16 + digit(tail.get(1)?)?;
    u8::try_from(value).ok()
}

/// Reports whether a path may hold `byte` as it is, meaning no more than its
/// escape (RFC 3986, section 3.3; the brackets that servers take as well).
pub(super) fn stands_for_itself(byte: u8) -> bool {
    const MARKS: &[u8] = b"-._~!$&'()*+,;=:@/[]";
    byte.is_ascii_alphanumeric() || MARKS.contains(&byte)
}

/// Returns the path with runs of slashes merged into one.
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

/// Returns the path with slashes for its backslashes, escaped or not.
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

/// Returns the path with slashes for the backslashes that are not escaped (URL
/// Standard, "path state").
pub(super) fn backslashes(path: &str) -> Option<String> {
    path.contains('\\').then(|| path.replace('\\', "/"))
}

/// Returns the path with parameters cut from its segments (RFC 3986, section
/// 3.3).
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

/// Returns the path without the host that the URL Standard reads where it
/// begins with several slashes, however many ("special authority ignore slashes
/// state").
pub(super) fn without_host(path: &str) -> Option<String> {
    let rest = path.strip_prefix("//")?;
    Some(from_slash(rest.trim_start_matches('/')))
}

/// Returns the path without the authority that RFC 3986, section 4.2, reads
/// after its first two slashes.
pub(super) fn without_first_name(path: &str) -> Option<String> {
    path.strip_prefix("//").map(from_slash)
}

fn from_slash(rest: &str) -> String {
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    path.to_owned()
}
