//! What nginx serves for a path, told the slow way: the strict origin that the
//! proxy's readings are held against.
//!
//! After `ngx_http_parse_complex_uri` of nginx 1.22 with `merge_slashes` on, as
//! it is by default. It shares no line with the proxy, and
//! `tests/it/real_servers.rs` holds it against the real one.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "shared by path; not everyone who includes this asks everything"
)]

/// A byte of a path once decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Byte {
    /// Byte that may separate or be a dot.
    Bare(u8),
    /// Byte that came of `%25`, `%23` or `%3F`, and is part of a name.
    Name(u8),
}

/// Returns the name of the file that is served for a target in origin form,
/// decoded, from the document root; `None` where nginx answers 400.
pub fn file(target: &str) -> Option<Vec<u8>> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let bytes = decoded(path.as_bytes())?;
    let mut segments = bytes.split(|byte| *byte == Byte::Bare(b'/'));
    // In front of the first slash there is nothing.
    if segments.next() != Some(&[]) {
        return None;
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut is_folder = false;
    for segment in segments {
        is_folder = true;
        match segment {
            [] | [Byte::Bare(b'.')] => {}
            [Byte::Bare(b'.'), Byte::Bare(b'.')] => {
                names.pop()?;
            }
            name => {
                names.push(name.iter().copied().map(Byte::value).collect());
                is_folder = false;
            }
        }
    }
    let mut file = vec![b'/'];
    file.extend(names.join(&b'/'));
    if is_folder && !names.is_empty() {
        file.push(b'/');
    }
    Some(file)
}

impl Byte {
    fn value(self) -> u8 {
        match self {
            Self::Bare(byte) | Self::Name(byte) => byte,
        }
    }
}

fn decoded(path: &[u8]) -> Option<Vec<Byte>> {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < path.len() {
        if path[at] != b'%' {
            bytes.push(Byte::Bare(path[at]));
            at += 1;
            continue;
        }
        let digits = path.get(at + 1..at + 3)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(match u8::from_str_radix(digits, 16).ok()? {
            0 => return None,
            byte @ (b'%' | b'#' | b'?') => Byte::Name(byte),
            byte => Byte::Bare(byte),
        });
        at += 3;
    }
    Some(bytes)
}

/// Returns the plain URL path of a file: what its owner would write in
/// robots.txt.
///
/// Brackets stay as they are, as the URL Standard has them in paths, although
/// RFC 3986, section 3.3, would have them encoded: escaped here, the `%` of
/// `Disallow: *%` would match in a name that nobody asked for in that form. A
/// rule that escapes a bracket is compared in both forms. All other bytes that
/// are escaped here are escaped in a path as sent before it is compared, or were
/// escapes there.
pub fn plain_path(file: &[u8]) -> String {
    let mut path = String::new();
    for &byte in file {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/[]".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}
