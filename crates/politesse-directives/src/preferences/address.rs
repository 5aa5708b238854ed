//! A URL as somebody wrote it to one that can stand in the annotation.
//!
//! The annotation is ASCII (RFC 9651, section 3.3.3), and RSL 1.0 wants no
//! escaping in robots.txt: what is not ASCII is escaped here, as RFC 3987,
//! section 3.1, has it. Nothing is resolved or looked up.

use std::fmt::Write as _;

/// The longest URL that is kept.
pub(super) const BYTES_MAX: usize = 2048;

/// A reference, absolute or relative; `None` if it is empty, too long, or holds
/// a control character.
pub(super) fn reference(written: &[u8]) -> Option<String> {
    let written = written.trim_ascii();
    if written.is_empty() || BYTES_MAX < written.len() {
        return None;
    }
    let mut url = String::with_capacity(written.len());
    for &byte in written {
        match byte {
            b'!'..=b'~' => url.push(char::from(byte)),
            b' ' | 0x80.. => write!(url, "%{byte:02X}").ok()?,
            0..b' ' | 0x7F => return None,
        }
    }
    (url.len() <= BYTES_MAX).then_some(url)
}

/// A URL of the web that needs nothing else to be resolved.
pub(super) fn absolute(written: &[u8]) -> Option<String> {
    let url = reference(written)?;
    let (scheme, rest) = url.split_once("://")?;
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let has_host = !rest.starts_with(['/', '?', '#']) && !rest.is_empty();
    (is_web && has_host).then_some(url)
}
