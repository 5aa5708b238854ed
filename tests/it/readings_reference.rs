//! The readings against a strict origin: whatever nginx would serve for a URL
//! that the proxy allows, robots.txt allows by its plain name as well.
//!
//! `tests/reference` says what nginx serves and what a
//! robots.txt means, and shares no line with the proxy.

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

/// Returns what the proxy says of a path at a level.
fn said(robots: &str, path: &str, readings: Readings) -> Ruling {
    let target: Target = format!("http://h.test{path}").parse().unwrap();
    let snapshot = Snapshot {
        url: target.origin.robots_txt().to_string(),
        hops: Vec::new(),
        key: CacheKey::new(target.origin.clone(), None),
        status: Some(200),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result: AccessResult::Successful(Arc::new(RobotsFile::new(Bytes::from(robots.to_owned())))),
        stale: None,
        tdm: None,
    };
    let inquiry = Inquiry {
        crawler: Crawler::parse("FooBot/1.0"),
        target,
        method: "GET".into(),
    };
    let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = readings);
    ruling(&inquiry, &snapshot, &policy, Timestamp::UNIX_EPOCH)
}

fn allows(robots: &str, path: &str) -> bool {
    said(robots, path, Readings::Server).verdict == Verdict::Allow
}

/// Rules about few names, so that paths meet them.
fn robots() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "/a", "/b", "/a/b", "/", "*", "a", "=", ";", "%3F", "%25", "\\", "%C3%A9", "%", "]", "%5D",
    ]);
    let end = prop::sample::select(vec!["", "", "", "$", "?", "?q", "/"]);
    let rule = ("(Allow|Disallow|Disallow)", vec(part, 0..3), end)
        .prop_map(|(kind, parts, end)| format!("{kind}: /{}{end}\n", parts.concat()));
    vec(rule, 1..5).prop_map(|rules| format!("User-agent: *\n{}", rules.concat()))
}

/// Paths in which everything that servers read otherwise is frequent.
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

/// Returns a file and a spelling of it: every byte may be escaped, every slash
/// be several, and detours be made.
fn spelled() -> impl Strategy<Value = (String, String)> {
    let name = prop::sample::select(vec!["a", "b", "ab", "a=b", "a;b", "a b", "é", "a%b", "a]"]);
    let slash = prop::sample::select(vec![
        "/",
        "//",
        "%2F",
        "/./",
        "/x/../",
        "/%2e/",
        "/x%2f..%2f",
        "/x//..//",
    ]);
    let escapes = prop::bool::weighted(0.3);
    vec((slash, name, vec(escapes, 4)), 1..4).prop_map(|parts| {
        let mut file = String::new();
        let mut spelling = String::new();
        // A target begins with a slash that is not escaped.
        if parts
            .first()
            .is_some_and(|(slash, ..)| slash.starts_with('%'))
        {
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

/// Holds `property` for so many cases, the same ones each time.
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

/// Returns what robots.txt says of a file by its plain name and the query, if
/// any: the server takes every spelling of the name for it, that of a rule as
/// well.
fn is_open(robots: &str, path_and_query: &str) -> bool {
    reference::decide_as_served(robots.as_bytes(), "FooBot", path_and_query).allow
}

#[test]
fn what_nginx_serves_for_an_allowed_url_is_allowed_by_its_plain_name() {
    for_all(&(robots(), path()), |(robots, path)| {
        let Some(file) = nginx::file(&path) else {
            return Ok(());
        };
        if allows(&robots, &path) {
            let query = path.find('?').map_or("", |at| &path[at..]);
            let plain = nginx::plain_path(&file);
            prop_assert!(
                is_open(&robots, &format!("{plain}{query}")),
                "{path} is {plain}{query}\n{robots}"
            );
            prop_assert!(
                query != "?" || is_open(&robots, &plain),
                "{path} is {plain}\n{robots}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_spelling_of_a_disallowed_file_is_refused() {
    for_all(&(robots(), spelled()), |(robots, (file, spelling))| {
        let served = nginx::file(&spelling).map(|served| nginx::plain_path(&served));
        prop_assert_eq!(served.as_ref(), Some(&file), "{}", spelling);
        prop_assert!(
            is_open(&robots, &file) || !allows(&robots, &spelling),
            "{spelling} is {file}\n{robots}"
        );
        Ok(())
    });
}

// Ours: the origin is fixed.
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

// Ours: idempotent, as far as dot segments go. Of all readings that does not
// hold: `//./%3B` is `//;` to one server, which is `//` to another.
#[test]
fn dot_segments_are_gone_when_they_were_taken_out_once() {
    for_all(&path(), |path| {
        let resolved = without_dot_segments(&path);
        let again = resolved.as_deref().and_then(without_dot_segments);
        prop_assert_eq!(again, None, "{}", path);
        // Of a path with an empty query the path as sent is a reading, too.
        let as_sent = path.strip_suffix('?');
        let readings = of_servers(&path).into_iter();
        for reading in readings.filter(|reading| Some(reading.as_str()) != as_sent) {
            prop_assert_eq!(without_dot_segments(&reading), None, "{}", path);
        }
        Ok(())
    });
}

// Ours: re-encoding an unreserved byte never allows more.
#[test]
fn escaping_a_letter_never_allows_more() {
    for_all(
        &(robots(), path(), any::<prop::sample::Index>()),
        |(robots, path, index)| {
            let letters: Vec<usize> = path
                .match_indices(['a', 'b', 'q'])
                .map(|(at, _)| at)
                .collect();
            // After a percent sign a letter may be part of an escape.
            let is_free = |at: &usize| !path.as_bytes()[at.saturating_sub(2)..*at].contains(&b'%');
            let letters: Vec<usize> = letters.into_iter().filter(is_free).collect();
            if letters.is_empty() {
                return Ok(());
            }
            let at = letters[index.index(letters.len())];
            let escaped = format!(
                "{}%{:02X}{}",
                &path[..at],
                path.as_bytes()[at],
                &path[at + 1..]
            );
            prop_assert_eq!(
                allows(&robots, &path),
                allows(&robots, &escaped),
                "{} {}",
                path,
                escaped
            );
            Ok(())
        },
    );
}

// Ours: each level refuses what the one before it does.
#[test]
fn a_higher_level_never_allows_more() {
    for_all(&(robots(), path()), |(robots, path)| {
        let levels = [Readings::Sent, Readings::Dots, Readings::Server];
        let verdicts = levels.map(|level| said(&robots, &path, level).verdict);
        for pair in verdicts.windows(2) {
            prop_assert!(
                pair[0] == Verdict::Allow || pair[1] == Verdict::Disallow,
                "{path} {verdicts:?}"
            );
        }
        Ok(())
    });
}
