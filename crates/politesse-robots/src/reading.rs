//! Readings of a path: the other paths that a server may resolve it to.
//!
//! Every common server serves `/private` for `/a/../private`, and most do so for
//! `//private` and `/a/..%2fprivate`. So a rule for `/private` must refuse these as well
//! (RFC 3986, section 5.2.4; the others by observation of servers). A server takes a few
//! steps from the bytes of a request to the file that it serves, and each way in this
//! module is a list of such steps. Together, the ways cover at least the readings of
//! common servers. So a path is safe to request if none of its readings is disallowed.
//!
//! No server decodes twice: `%2570` is never `p`. Does not know which readings count (the
//! policy decides that), and never changes the bytes that are sent.

mod steps;

use std::borrow::Cow;

use memchr::memchr3_iter;

use self::steps::{
    ReadingStep, backslashes, decoded, escaped_byte, follows_slash, merged, separators,
    stands_for_itself, without_dots, without_first_name, without_host, without_parameters,
};

/// Content that a path must have for a way of reading to yield something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holding {
    /// Any byte that makes a path not plain.
    Anything,
    /// A semicolon, escaped or not.
    Parameters,
    /// A backslash, escaped or not.
    Backslash,
    /// Two slashes at the beginning, or a backslash, which may stand for one of them.
    Host,
}
use Holding::{Anything, Backslash, Host, Parameters};

/// Ways of reading of common servers, the simplest first. Order matters, because a refusal
/// names the first reading that is disallowed.
///
/// The number of ways is fixed and each takes linear time, so the work for a hostile path
/// is bounded.
#[rustfmt::skip]
const WAYS: &[(Holding, &[ReadingStep])] = &[
    // RFC 3986, section 5.2.4.
    (Anything, &[without_dots]),
    // nginx, Apache, lighttpd, CPython. Some do not decode (HAProxy), some have
    // merging turned off, and some (older Apache) merge after removing dots.
    (Anything, &[decoded, merged, without_dots]),
    (Anything, &[merged, without_dots]),
    (Anything, &[decoded, without_dots]),
    (Anything, &[decoded, without_dots, merged]),
    // IIS.
    (Backslash, &[decoded, separators, merged, without_dots]),
    // Servlet containers, which remove parameters before anything else (Jetty
    // and Tomcat); frameworks that decode first; and nginx in front of either.
    (Parameters, &[without_parameters, without_dots]),
    (Parameters, &[without_parameters, decoded, merged, without_dots]),
    (Parameters, &[without_parameters, decoded, separators, merged, without_dots]),
    (Parameters, &[decoded, without_parameters, merged, without_dots]),
    (Parameters, &[decoded, merged, without_dots, without_parameters, merged, without_dots]),
    // The same, after a program that rewrites the path by the URL Standard.
    (Backslash, &[backslashes, without_parameters, decoded, merged, without_dots]),
    // Programs that resolve the path against their own address, by the URL
    // Standard (`new URL(path, base)`) or by RFC 3986, section 4.2; programs
    // that decode the result; and nginx in front of them.
    (Host, &[backslashes, without_host, without_dots]),
    (Host, &[backslashes, without_first_name, without_dots]),
    (Host, &[without_first_name, decoded, merged, without_dots]),
    (Anything, &[backslashes, without_host, without_dots, decoded, separators, merged, without_dots]),
    (Host, &[decoded, separators, without_host, without_dots]),
    // The first of these on Unix, where an escaped backslash is part of a name.
    (Backslash, &[backslashes, without_host, without_dots, decoded, merged, without_dots]),
];

/// Returns the other paths that common servers may read `path_and_query` as, without the
/// path as sent and without duplicates. Each reading keeps the query.
///
/// For a plain path without an empty query, as nearly all are, the list is empty and
/// nothing is allocated.
pub fn of_servers(path_and_query: &str) -> Vec<String> {
    let (path, query) = split(path_and_query);
    let mut readings = Vec::new();
    if query == "?" {
        // Many programs treat an empty query like no query.
        readings.push(path.to_owned());
    }
    if is_plain(path) {
        return readings;
    }
    let held = holdings(path);
    for (_, steps) in WAYS.iter().filter(|(holding, _)| held.contains(holding)) {
        let Cow::Owned(reading) = taken(steps, path) else {
            continue;
        };
        if query == "?" {
            push_new(&mut readings, &reading, path_and_query);
        }
        push_new(&mut readings, &(reading + query), path_and_query);
    }
    readings
}

/// Removes the dot segments of `path_and_query`, in which `%2e` counts as a dot; `None` if
/// there are none. The query is kept.
///
/// RFC 3986, sections 5.2.4 and 6.2.2.2. `..` at the root stays at the root.
pub fn without_dot_segments(path_and_query: &str) -> Option<String> {
    let (path, query) = split(path_and_query);
    Some(without_dots(path)? + query)
}

fn split(path_and_query: &str) -> (&str, &str) {
    let end = path_and_query.find('?').unwrap_or(path_and_query.len());
    path_and_query.split_at(end)
}

/// Lists the content of `path` that ways depend on. [`Anything`] fills the places of absent
/// content.
fn holdings(path: &str) -> [Holding; 4] {
    let path = decoded(path).map_or(Cow::Borrowed(path), Cow::Owned);
    let when = |holding, holds| if holds { holding } else { Anything };
    let backslash = path.contains('\\') || path.contains("%5C") || path.contains("%5c");
    [
        Anything,
        when(Parameters, path.contains(';')),
        when(Backslash, backslash),
        when(Host, backslash || path.starts_with("//")),
    ]
}

/// Applies `steps` to `path`. The result is borrowed if nothing changes.
fn taken<'a>(steps: &[ReadingStep], path: &'a str) -> Cow<'a, str> {
    steps.iter().fold(Cow::Borrowed(path), |path, step| {
        step(&path).map_or(path, Cow::Owned)
    })
}

fn push_new(readings: &mut Vec<String>, reading: &str, sent: &str) {
    if reading != sent && readings.iter().all(|known| known != reading) {
        readings.push(reading.to_owned());
    }
}

/// Reports whether every server reads `path` as it is. Escapes that the canonical form of
/// robots.txt decodes anyway (RFC 9309, section 2.2.2) do not count as another reading.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let is_odd = |at: usize| match &bytes[at..] {
        [b'%', tail @ ..] => escaped_byte(tail).is_none_or(|byte| {
            byte == b'.' || byte == b'\\' || stands_for_itself(byte) && !is_name(byte)
        }),
        _ => true,
    };
    !memchr3_iter(b'%', b';', b'\\', bytes).any(is_odd) && !follows_slash(path, b"/.")
}

/// Reports whether `byte` is a letter, a digit or a mark that the canonical form never
/// escapes.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~')
}

#[cfg(test)]
mod tests;
