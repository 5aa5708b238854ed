//! Text of crawler names: how bytes become characters, and which characters and words a
//! name consists of.
//!
//! RFC 9309, section 2.2, limits product tokens to ASCII letters, `-` and `_`, but names
//! in use have other characters, too. Does not know where names occur, or which crawler
//! a name denotes.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;

/// Decodes a name in a User-Agent or on an agent line as UTF-8. Invalid bytes are decoded
/// as Windows-1252, which includes the ISO-8859-1 of old fields and files (RFC 9110,
/// section 5.5).
///
/// Replacing invalid bytes with U+FFFD would make different names equal. Only the five
/// bytes that Windows-1252 leaves undefined become U+FFFD, because a name must not contain
/// control characters.
#[must_use]
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(2 * bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let (letters, _) = WINDOWS_1252.decode_without_bom_handling(chunk.invalid());
        let letters = letters.chars().map(|letter| {
            let is_open = letter.is_control();
            if is_open {
                char::REPLACEMENT_CHARACTER
            } else {
                letter
            }
        });
        text.extend(letters);
    }
    Cow::Owned(text)
}

/// Reports whether a product token may contain this letter by RFC 9309, section 2.2
/// (`identifier`).
pub(super) fn is_identifier(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '-' || letter == '_'
}

/// Reports whether names of one word contain this letter in practice: `MJ12bot`,
/// `archive.org_bot`.
pub(super) fn is_name_letter(letter: char) -> bool {
    is_identifier(letter) || letter.is_ascii_digit() || letter == '.'
}

/// Reports whether this is a letter outside ASCII, or a part of one. Quotes, dashes and
/// spaces outside ASCII are not letters.
///
/// A name must not be cut before such a letter: `Jävla-Foobot` and `Jävla-Fanbot` would
/// both become the crawler `J`.
pub(super) fn is_letter_outside_ascii(letter: char) -> bool {
    let is_combining_mark = matches!(letter, '\u{300}'..='\u{36F}');
    // Stands for a letter that could not be decoded.
    let is_replaced = letter == char::REPLACEMENT_CHARACTER;
    !letter.is_ascii() && (letter.is_alphanumeric() || is_combining_mark || is_replaced)
}

/// Returns the beginning of `text` up to the first character for which `belongs` is false;
/// `None` if that character is a letter outside ASCII.
pub(super) fn leading_run(text: &str, belongs: fn(char) -> bool) -> Option<&str> {
    let end = text.find(|letter| !belongs(letter)).unwrap_or(text.len());
    let (run, rest) = text.split_at(end);
    (!rest.starts_with(is_letter_outside_ascii)).then_some(run)
}

/// Returns the name before a version that follows `-` or `_` in place of a slash: `larbin`
/// in `larbin_2.6.3`, `FooBot` in `FooBot-v2`. Returns `None` if there is no version, or no
/// letter before it. A number without `-` or `_` is part of the name (`Agent1`).
pub(super) fn without_version(name: &str) -> Option<&str> {
    let is_version = |letter: char| letter.is_ascii_digit() || letter == '.';
    let before = name.trim_end_matches(is_version);
    if !name[before.len()..].starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let before = before
        .strip_suffix(['v', 'V'])
        .filter(|before| before.ends_with(['-', '_']))
        .unwrap_or(before);
    let bare = before.trim_end_matches(['-', '_']);
    let is_name = bare.len() < before.len() && bare.contains(char::is_alphabetic);
    is_name.then_some(bare)
}

/// Reports whether a word consists only of digits. Such a word can be a name: `008/0.83`.
pub(super) fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reports whether a word cannot name a crawler, because it has no letter or browsers send
/// it.
pub(super) fn is_generic(name: &str) -> bool {
    // In `rv:109.0`, the version follows a colon.
    let name = name.split(':').next().unwrap_or(name);
    !name.contains(char::is_alphabetic) || is_one_of(name, GENERIC)
}

/// Reports whether a word is the name of a library.
pub(super) fn is_library(name: &str) -> bool {
    is_one_of(name, LIBRARIES)
}

fn is_one_of(word: &str, list: &[&str]) -> bool {
    list.iter().any(|name| name.eq_ignore_ascii_case(word))
}

/// Names of browsers, their engines and their systems in User-Agents.
#[rustfmt::skip]
const GENERIC: &[&str] = &[
    "Mozilla", "compatible", "AppleWebKit", "WebKit", "KHTML", "like", "Gecko",
    "Chrome", "Chromium", "CriOS", "Safari", "Version", "Mobile", "Firefox",
    "FxiOS", "Edge", "Edg", "EdgA", "EdgiOS", "OPR", "Opera", "Presto", "Vivaldi",
    "SamsungBrowser", "YaBrowser", "UCBrowser", "MSIE", "Trident", "Windows", "NT",
    "Win64", "WOW64", "x64", "x86_64", "i686", "Linux", "X11", "Ubuntu", "Android",
    "Macintosh", "Mac", "Intel", "PPC", "OS", "X", "CPU", "iPhone", "iPad", "iPod",
    "CrOS", "U", "rv", "Build", "wv", "Tablet", "Touch", "FreeBSD", "OpenBSD",
    "SunOS", "Fedora", "Debian", "Konqueror", "Epiphany", "SeaMonkey", "Iceweasel",
    "PaleMoon", "Waterfox", "Maxthon", "Brave", "Whale", "Silk", "GSA", "Ddg",
    "MiuiBrowser", "HuaweiBrowser", "QQBrowser", "MQQBrowser",
];

/// Libraries used to write crawlers. As the name of a crawler they are the last choice, but
/// robots.txt files do address them.
#[rustfmt::skip]
const LIBRARIES: &[&str] = &[
    "python-requests", "python-urllib", "python-urllib3", "Python", "CPython", "PyPy",
    "urllib3", "aiohttp", "httpx", "python-httpx", "Scrapy", "curl", "libcurl",
    "PycURL", "GuzzleHttp", "PHP", "Wget", "Wget2", "Go-http-client", "Java",
    "Java-http-client", "Apache-HttpClient", "Jakarta", "Jersey", "okhttp", "Dalvik",
    "libwww-perl", "LWP", "Perl", "Ruby", "Faraday", "Mechanize", "node", "Node.js",
    "node-fetch", "undici", "axios", "got", "superagent", "reqwest", "hyper", "ureq",
    "OpenSSL", "LibreSSL", "GnuTLS", "zlib", "brotli", "nghttp2", "HeadlessChrome",
    "PhantomJS", "Puppeteer", "Playwright", "Selenium", "HTTPie", "PostmanRuntime",
    "Dart", "CFNetwork", "Darwin", "http.rb", "rest-client", "Typhoeus", "Guzzle",
    "RestSharp", "Symfony",
    // Libraries that curl lists after its own name (`curl --version`).
    "NSS", "BoringSSL", "AWS-LC", "mbedTLS", "wolfSSL", "rustls-ffi", "Schannel",
    "SecureTransport", "WinIDN", "AppleIDN", "c-ares", "libidn", "libidn2", "libpsl",
    "libssh", "libssh2", "librtmp", "libgsasl", "nghttp3", "ngtcp2", "quiche", "zstd",
    "libzstd", "OpenLDAP", "GSS",
];

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9110, section 5.5; ours for Windows-1252.
    #[test]
    fn invalid_utf8_is_decoded_as_windows_1252() {
        for (bytes, text) in [
            (&b"J\xE4vla"[..], "Jävla"),
            ("Jävla".as_bytes(), "Jävla"),
            (b"\x93Foo\x94", "“Foo”"),
            ("ä\u{80}".as_bytes(), "ä\u{80}"),
            (b"\xC3\xA4\xE4\x81", "ää\u{FFFD}"),
        ] {
            assert_eq!(decode(bytes), text);
        }
    }

    // Ours.
    #[test]
    fn a_version_may_follow_a_hyphen_or_an_underscore() {
        for (name, bare) in [
            ("grub-client-1.4.3", "grub-client"),
            ("larbin_2.6.3", "larbin"),
            ("FooBot-v2", "FooBot"),
            ("Foo--1.", "Foo"),
            ("MJ12-1.0", "MJ12"),
        ] {
            assert_eq!(without_version(name), Some(bare), "{name}");
        }
        for name in [
            "", "Foo", "Agent1", "Foo.1.0", "Foo1.0", "Foo-v", "Foo-dev1", "Foo-.5", "10_15_7",
            "-1.0", "MJ12bot", "Foo-3d",
        ] {
            assert_eq!(without_version(name), None, "{name}");
        }
    }
}
