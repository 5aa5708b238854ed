//! Checks that any bytes in User-Agent give a limited number of candidates. A
//! robots.txt can name each of them, and none is `*` or a name that every browser
//! sends.
//!
//! Each line of an input is one field value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use politesse_robots::crawler::{Crawler, ProductToken};

/// Most candidates: the engine looks at 64 names, and each gives at most four. These
/// are its first word and the whole name, both with and without a version.
const CANDIDATES_MAX: usize = 4 * 64;

/// Names that must not be candidates: `*`, and some of those that every browser sends.
#[rustfmt::skip]
const GENERIC: &[&str] = &[
    "*", "Mozilla", "compatible", "AppleWebKit", "KHTML", "like", "Gecko", "Chrome",
    "Chromium", "Safari", "Version", "Mobile", "Firefox", "Edge", "Edg", "OPR", "MSIE",
    "Trident", "Windows", "Linux", "X11", "Android", "Macintosh", "iPhone", "CPU", "U", "rv",
];

fuzz_target!(|input: &[u8]| {
    let values: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
    let crawler = Crawler::from_user_agent(values.iter().copied());
    let candidates = crawler.candidates();
    assert!(candidates.len() <= CANDIDATES_MAX, "{candidates:?}");
    for (at, token) in candidates.iter().enumerate() {
        holds_for(token);
        assert!(!candidates[..at].contains(token), "{token} twice");
    }
    // A User-Agent that was cut is refused before anything is recorded.
    if !crawler.is_cut() {
        let said = crawler.user_agent().map(str::to_owned);
        assert_eq!(Crawler::restore(candidates.to_vec(), said), crawler);
    }
    if let ([value], Ok(text)) = (&values[..], str::from_utf8(input)) {
        assert_eq!(Crawler::parse(text), Crawler::from_user_agent([*value]));
    }
});

/// Checks the properties that every candidate has.
fn holds_for(token: &ProductToken) {
    let text = token.as_str();
    assert_eq!(ProductToken::new(text).as_ref(), Ok(token));
    let is_generic = |name: &&str| name.eq_ignore_ascii_case(text);
    assert!(!GENERIC.iter().any(is_generic), "{token}");
    assert!(token.is_named_by(text));
    assert!(token.is_named_by(&text.to_ascii_uppercase()));
    // If a name has several words or contains `*`, an agent line with a version means
    // only its beginning.
    if !text.contains([' ', '\t', '*']) {
        assert!(token.is_named_by(&format!("{text}/1.0")), "{token}/1.0");
    }
    assert!(!token.is_named_by("*"));
    assert!(!token.is_named_by(""));
}
