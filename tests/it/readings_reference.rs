//! Readings of a URL checked against a model of nginx: if the proxy allows a URL,
//! robots.txt allows the file that nginx would serve for it by its plain name.
//!
//! `tests/reference` models nginx and robots.txt, and shares no code with the proxy.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use politesse_decision::decide::{
    Inquiry, Policy, Readings, Ruling, Unauthorized, Verdict, ruling,
};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use politesse_robots::reading::{of_servers, without_dot_segments};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::{nginx, reference};

/// Returns FooBot's inquiry about `path`, and a snapshot of `robots`.
pub(crate) fn asked(robots: &str, path: &str) -> (Inquiry, Snapshot) {
    let target: Target = format!("http://h.test{path}").parse().unwrap();
    let file = RobotsFile::new(Bytes::from(robots.to_owned()));
    let snapshot = Snapshot {
        url: target.origin.robots_txt().to_string(),
        hops: Vec::new(),
        key: CacheKey::new(target.origin.clone(), None),
        status: Some(200),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result: AccessResult::Successful(Arc::new(file)),
        stale: None,
        tdm: None,
    };
    let inquiry = Inquiry {
        crawler: Crawler::parse("FooBot/1.0"),
        target,
        method: "GET".into(),
    };
    (inquiry, snapshot)
}

/// Returns the proxy's ruling on `path` with this level of readings.
fn ruling_at(robots: &str, path: &str, readings: Readings) -> Ruling {
    let (inquiry, snapshot) = asked(robots, path);
    let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = readings);
    ruling(&inquiry, &snapshot, &policy, Timestamp::UNIX_EPOCH)
}

fn allows(robots: &str, path: &str) -> bool {
    ruling_at(robots, path, Readings::Server).verdict == Verdict::Allow
}

/// Generates rules about few names, so that they often match the generated paths.
fn robots() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "/a", "/b", "/a/b", "/", "*", "a", "=", ";", "%3F", "%25", "\\", "%C3%A9", "%", "]", "%5D",
    ]);
    let end = prop::sample::select(vec!["", "", "", "$", "?", "?q", "/"]);
    let rule = ("(Allow|Disallow|Disallow)", vec(part, 0..3), end)
        .prop_map(|(kind, parts, end)| format!("{kind}: /{}{end}\n", parts.concat()));
    vec(rule, 1..5).prop_map(|rules| format!("User-agent: *\n{}", rules.concat()))
}

/// Generates paths with many of the spellings that servers normalise differently.
fn path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "/", "/", "/", "a", "b", "a", "..", "/..", "/../", "/./", "//", ".", "%2e", "%2E%2e",
        "%2F", "%2f", "%5c", "\\", ";", ";x", "%3B", "%3b", "%61", "%2561", "%252f", "%252e", "=",
        "%3D", "%3F", "%23", "%25", "%20", "%C3%A9", "%c3%a9", "é", "%00", "%", "%2", "?", "?q",
        "#", "]", "%5D", "%5b",
    ]);
    vec(part, 0..9).prop_map(|parts| {
        let path = format!("/{}", parts.concat());
        path.split('#').next().unwrap_or_default().to_owned()
    })
}

/// Generates a file and a spelling of its path: bytes may be escaped, slashes repeated,
/// and detours added.
fn spelled() -> impl Strategy<Value = (String, String)> {
    let name = prop::sample::select(vec!["a", "b", "ab", "a=b", "a;b", "a b", "é", "a%b", "a]"]);
    let dots = ["/./", "/x/../", "/%2e/", "/x%2f..%2f", "/x//..//"];
    let slash = prop::sample::select([&["/", "//", "%2F"][..], &dots].concat());
    let escapes = prop::bool::weighted(0.3);
    vec((slash, name, vec(escapes, 4)), 1..4).prop_map(|parts| {
        let mut file = String::new();
        let mut spelling = String::new();
        // A request target begins with an unescaped slash.
        if parts[0].0.starts_with('%') {
            spelling.push('/');
        }
        for (slash, name, escapes) in parts {
            file = format!("{file}/{name}");
            spelling.push_str(slash);
            for (byte, escape) in name.bytes().zip(escapes.into_iter().chain([true])) {
                if escape || !byte.is_ascii_alphanumeric() {
                    spelling.push_str(&format!("%{byte:02x}"));
                } else {
                    spelling.push(char::from(byte));
                }
            }
        }
        (nginx::plain_path(file.as_bytes()), spelling)
    })
}

/// Asserts `property` for 4000 cases, which are the same in each run.
fn for_all<S: Strategy>(strategy: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, b"one URL, every reading of server");
    TestRunner::new_with_rng(config, seed)
        .run(strategy, property)
        .unwrap();
}

/// Reports whether robots.txt allows a file by its plain name and query. Spellings in
/// the rules are read as the server reads them.
fn is_open(robots: &str, path_and_query: &str) -> bool {
    reference::decide_as_served(robots.as_bytes(), "FooBot", path_and_query).allow
}

#[test]
fn a_file_served_for_an_allowed_url_is_allowed_by_its_plain_name() {
    for_all(&(robots(), path()), |(robots, path)| {
        let Some(file) = nginx::file(&path) else {
            return Ok(());
        };
        if allows(&robots, &path) {
            let query = path.find('?').map_or("", |at| &path[at..]);
            let plain = nginx::plain_path(&file);
            let whole = format!("{plain}{query}");
            prop_assert!(is_open(&robots, &whole), "{path} is {whole}\n{robots}");
            let is_open = query != "?" || is_open(&robots, &plain);
            prop_assert!(is_open, "{path} is {plain}\n{robots}");
        }
        Ok(())
    });
}

#[test]
fn every_spelling_of_a_disallowed_file_is_refused() {
    for_all(&(robots(), spelled()), |(robots, (file, spelling))| {
        let served = nginx::file(&spelling).map(|served| nginx::plain_path(&served));
        prop_assert_eq!(served.as_ref(), Some(&file), "{}", spelling);
        let is_kept = is_open(&robots, &file) || !allows(&robots, &spelling);
        prop_assert!(is_kept, "{spelling} is {file}\n{robots}");
        Ok(())
    });
}

// Ours: readings change the path only, never the origin.
#[test]
fn a_reading_is_a_path_of_the_same_origin() {
    for_all(&path(), |path| {
        for reading in of_servers(&path) {
            prop_assert!(reading.starts_with('/'));
            let target: Target = format!("http://h.test{reading}").parse().unwrap();
            prop_assert_eq!(target.origin.authority(), "h.test");
            prop_assert_eq!(target.path_and_query(), reading);
        }
        Ok(())
    });
}

// RFC 3986, section 5.2.4: after one pass no dot segments are left. Other readings may
// change again: one server reads `//./%3B` as `//;`, which another reads as `//`.
#[test]
fn no_reading_has_dot_segments_left() {
    for_all(&path(), |path| {
        let resolved = without_dot_segments(&path);
        let again = resolved.as_deref().and_then(without_dot_segments);
        prop_assert_eq!(again, None, "{}", path);
        prop_assert!(resolved.is_none_or(|resolved| resolved.starts_with('/')));
        // For a path with an empty query, one reading is the path as sent.
        let as_sent = path.strip_suffix('?');
        let readings = of_servers(&path).into_iter();
        for reading in readings.filter(|reading| Some(reading.as_str()) != as_sent) {
            prop_assert_eq!(without_dot_segments(&reading), None, "{}", path);
        }
        Ok(())
    });
}

// Ours: an escaped unreserved byte gets the same verdict as the plain one.
#[test]
fn escaping_a_letter_does_not_change_the_verdict() {
    let cases = (robots(), path(), any::<prop::sample::Index>());
    for_all(&cases, |(robots, path, index)| {
        let bytes = path.as_bytes();
        // After a percent sign a letter may be part of an escape.
        let is_free = |at: &usize| !bytes[at.saturating_sub(2)..*at].contains(&b'%');
        let letters = path.match_indices(['a', 'b', 'q']).map(|(at, _)| at);
        let letters: Vec<usize> = letters.filter(is_free).collect();
        if letters.is_empty() {
            return Ok(());
        }
        let at = letters[index.index(letters.len())];
        let escaped = format!("{}%{:02X}{}", &path[..at], bytes[at], &path[at + 1..]);
        let verdicts = [&path, &escaped].map(|path| allows(&robots, path));
        prop_assert_eq!(verdicts[0], verdicts[1], "{} {}", path, escaped);
        Ok(())
    });
}

// Ours: each level refuses every URL that the level before it refuses.
#[test]
fn a_higher_level_of_readings_never_allows_more() {
    for_all(&(robots(), path()), |(robots, path)| {
        let levels = [Readings::Sent, Readings::Dots, Readings::Server];
        let verdicts = levels.map(|level| ruling_at(&robots, &path, level).verdict);
        for pair in verdicts.windows(2) {
            let is_monotone = pair[0] == Verdict::Allow || pair[1] == Verdict::Disallow;
            prop_assert!(is_monotone, "{path} {verdicts:?}");
        }
        Ok(())
    });
}
