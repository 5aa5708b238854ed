//! What a server may take a path for, other than what it says.
//!
//! `/a/../private` is served as `/private` by every common server, `//private`
//! and `/a/..%2fprivate` by most, so a rule for `/private` must refuse them
//! (RFC 3986, section 5.2.4; the rest by what servers do). A server takes a few
//! steps from the bytes it gets to the file it serves; each way here is a list
//! of such steps. Together they are at least what ordinary servers read, so
//! that a path which none of them makes a disallowed one is safe to ask for.
//!
//! Nobody decodes twice: `%2570` is never `p`. Whether a reading counts is the
//! policy's to say; what is sent is always the bytes received.

mod steps;

use std::borrow::Cow;

use memchr::memchr3_iter;

use self::steps::{
    ReadingStep, backslashes, decoded, escaped_byte, follows_slash, merged, separators,
    stands_for_itself, without_dots, without_first_name, without_host, without_parameters,
};

/// Content of a path that makes a server's way of reading differ from the plainer
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holding {
    /// Any byte that makes a path other than plain.
    Anything,
    /// A semicolon, escaped or not.
    Parameters,
    /// A backslash, escaped or not.
    Backslash,
    /// Two slashes at its beginning, or a backslash that may be one of them.
    Host,
}
use Holding::{Anything, Backslash, Host, Parameters};

/// The ways that ordinary servers take, the plainest first: the reading that is
/// named in a refusal is the first that is disallowed.
///
/// There is a fixed number of them and each is linear in the path, so that a
/// path made to be read in many ways costs no more than so many plain ones.
#[rustfmt::skip]
const WAYS: &[(Holding, &[ReadingStep])] = &[
    // RFC 3986, section 5.2.4.
    (Anything, &[without_dots]),
    // nginx, Apache, lighttpd, CPython; some without decoding (HAProxy), some
    // where merging is off, some (older Apache) once the dots are gone.
    (Anything, &[decoded, merged, without_dots]),
    (Anything, &[merged, without_dots]),
    (Anything, &[decoded, without_dots]),
    (Anything, &[decoded, without_dots, merged]),
    // IIS.
    (Backslash, &[decoded, separators, merged, without_dots]),
    // Servlet containers, which cut parameters off before anything else (Jetty
    // and Tomcat); frameworks that decode first; and nginx in front of them.
    (Parameters, &[without_parameters, without_dots]),
    (Parameters, &[without_parameters, decoded, merged, without_dots]),
    (Parameters, &[without_parameters, decoded, separators, merged, without_dots]),
    (Parameters, &[decoded, without_parameters, merged, without_dots]),
    (Parameters, &[decoded, merged, without_dots, without_parameters, merged, without_dots]),
    // The same after what writes a path anew by the URL Standard.
    (Backslash, &[backslashes, without_parameters, decoded, merged, without_dots]),
    // Programs that resolve the path against their own address, by the URL
    // Standard (`new URL(path, base)`) or by RFC 3986, section 4.2; what decodes
    // what is left; and nginx in front of them.
    (Host, &[backslashes, without_host, without_dots]),
    (Host, &[backslashes, without_first_name, without_dots]),
    (Host, &[without_first_name, decoded, merged, without_dots]),
    (Anything, &[backslashes, without_host, without_dots, decoded, separators, merged, without_dots]),
    (Host, &[decoded, separators, without_host, without_dots]),
    // The first of them on Unix: a backslash that was escaped is part of a name.
    (Backslash, &[backslashes, without_host, without_dots, decoded, merged, without_dots]),
];

/// Returns the readings that ordinary servers take of a path, other than the
/// one sent; none stands there twice. The query is carried along.
///
/// Of a plain path, which nearly all are, there is none, and nothing is
/// allocated.
pub fn of_servers(path_and_query: &str) -> Vec<String> {
    let (path, query) = split(path_and_query);
    let mut readings = Vec::new();
    if query == "?" {
        // Many programs cannot tell an empty query from none.
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

/// `path_and_query` without its dot segments, `%2e` counting as a dot; `None`
/// if it has none. The query is carried along.
///
/// RFC 3986, sections 5.2.4 and 6.2.2.2; `..` at the root stays at the root.
pub fn without_dot_segments(path_and_query: &str) -> Option<String> {
    let (path, query) = split(path_and_query);
    Some(without_dots(path)? + query)
}

fn split(path_and_query: &str) -> (&str, &str) {
    let end = path_and_query.find('?').unwrap_or(path_and_query.len());
    path_and_query.split_at(end)
}

/// Lists what `path` holds; [`Anything`] stands for the rest.
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

/// Applies `steps` to `path`; borrowed if it stays as it is.
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

/// Reports whether every server reads `path` as it is. What the canonical form
/// of robots.txt decodes anyway (RFC 9309, section 2.2.2) makes no other
/// reading.
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

/// Letters, digits and the marks that are never written otherwise in canonical
/// form.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~')
}

#[cfg(test)]
mod tests;
