//! Checks that, for an allowed URL, robots.txt also allows the file that nginx serves
//! under its plain name. A reading keeps the origin, escaping a letter does not change
//! the verdict, and the number of readings is bounded.
//!
//! The first line of an input is a path, the rest a robots.txt.

#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use libfuzzer_sys::{Corpus, fuzz_target};
use politesse_robots::crawler::Crawler;
use politesse_decision::decide::{
    Inquiry, Policy, Readings, Reason, Ruling, Unauthorized, Verdict, ruling,
};
use politesse_robots::origin::Target;
use politesse_robots::reading::of_servers;
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_fuzz::nginx;
use politesse_fuzz::reference;

/// Most readings of a path.
const READINGS_MAX: usize = 40;

fuzz_target!(|input: &[u8]| -> Corpus {
    let at = input
        .iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(input.len());
    let (path, robots) = input.split_at(at);
    let Some(target) = target(path) else {
        return Corpus::Reject;
    };
    let robots = robots.get(1..).unwrap_or_default();
    let path = target.path_and_query().to_owned();
    readings_are_paths(&path);
    let server = said(robots, &target, Readings::Server);
    if server.verdict == Verdict::Allow {
        is_allowed_by_its_plain_name(robots, &path);
        let sent = said(robots, &target, Readings::Sent);
        assert_eq!(sent.verdict, Verdict::Allow, "{path}: more than as sent");
    }
    // The exemption of robots.txt itself does not cover escaped forms of its path.
    let decided = server.reason != Reason::Undecided && server.reason != Reason::RobotsTxt;
    if let Some(escaped) = with_an_escape(&path).filter(|_| decided) {
        let target = self::target(escaped.as_bytes()).unwrap();
        let other = said(robots, &target, Readings::Server);
        let agree = other.verdict == server.verdict || other.reason == Reason::Undecided;
        assert!(agree, "{path} and {escaped}");
    }
    Corpus::Keep
});

fn target(path: &[u8]) -> Option<Target> {
    let path = std::str::from_utf8(path).ok()?;
    let is_path = path.starts_with('/') && !path.contains('#');
    format!("http://h.test{path}")
        .parse()
        .ok()
        .filter(|_| is_path)
}

fn readings_are_paths(path: &str) {
    let readings = of_servers(path);
    assert!(readings.len() <= READINGS_MAX, "{path}: {readings:?}");
    for (at, reading) in readings.iter().enumerate() {
        let target = target(reading.as_bytes()).expect("a reading is a path");
        assert_eq!(target.origin.to_string(), "http://h.test");
        assert!(
            reading != path && !readings[..at].contains(reading),
            "{path}: {readings:?}"
        );
    }
}

fn is_allowed_by_its_plain_name(robots: &[u8], path: &str) {
    let Some(file) = nginx::file(path) else {
        return;
    };
    let query = path.find('?').map_or("", |at| &path[at..]);
    // The plain name has no `%` that the path as sent lacks when it is compared. With
    // one, `Disallow: *%` would match the plain name alone.
    let plain = nginx::plain_path(&file);
    for name in [format!("{plain}{query}"), plain] {
        if name.contains('?') || query.len() < 2 {
            let verdict = reference::decide_as_served(robots, "FooBot", &name);
            assert!(verdict.allow, "{path} is served as {name}");
        }
    }
}

/// Returns the path with one more escape: of the first letter that is not part of one.
fn with_an_escape(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let is_free = |at: &usize| {
        bytes[*at].is_ascii_alphabetic() && !bytes[at.saturating_sub(2)..*at].contains(&b'%')
    };
    let at = (0..bytes.len()).find(is_free)?;
    Some(format!(
        "{}%{:02x}{}",
        &path[..at],
        bytes[at],
        &path[at + 1..]
    ))
}

fn said(robots: &[u8], target: &Target, readings: Readings) -> Ruling {
    let copy = RobotsFile::new(Bytes::copy_from_slice(robots));
    let snapshot = Snapshot {
        url: target.origin.robots_txt().to_string(),
        hops: Vec::new(),
        key: CacheKey::new(target.origin.clone(), None),
        status: Some(200),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result: AccessResult::Successful(Arc::new(copy)),
        stale: None,
        tdm: None,
    };
    let inquiry = Inquiry {
        crawler: Crawler::parse("FooBot/1.0"),
        target: target.clone(),
        method: "GET".to_owned(),
    };
    let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = readings);
    ruling(&inquiry, &snapshot, &policy, Timestamp::UNIX_EPOCH)
}
