//! Overrides of the operator (docs/configuration.md). All of it is ours.

use super::*;

const NOW: &str = "2027-01-01T00:00:00Z";

/// Returns an override from its JSON, which has the keys of the configuration.
fn entry(json: &str) -> Override {
    serde_json::from_str(json).unwrap()
}

/// Returns the index of the reading by which an override of `keys` fits a
/// request.
fn fits(keys: &str, agent: &str, origin: &str, paths: &[(&str, bool)]) -> Option<usize> {
    let entry = entry(&format!("{{ \"reason\": \"x\", {keys} }}"));
    let (scheme, authority) = origin.split_once("://").unwrap();
    let asked = OverrideQuery {
        origin: &Origin::new(scheme.parse().unwrap(), authority).unwrap(),
        crawler: &Crawler::parse(agent),
        readings: paths
            .iter()
            .map(|&(path, disallowed)| JudgedPath {
                path: CanonicalPath::new(path),
                disallowed,
            })
            .collect(),
        at: NOW.parse().unwrap(),
    };
    first(&[entry], &asked).map(|(_, reading)| reading)
}

/// One test a row: whether a deny of `keys` fits a URL asked for by `agent`.
macro_rules! denying {
    ($($name:ident: $keys:literal on ($agent:literal, $origin:literal, $path:literal) is $fits:literal;)*) => {$(
        #[test]
        fn $name() {
            let keys = concat!("\"action\": \"deny\", ", $keys);
            assert_eq!(fits(keys, $agent, $origin, &[($path, false)]).is_some(), $fits);
        }
    )*};
}

denying! {
    an_origin_is_itself: r#""origin": "https://h.test""# on ("A", "https://h.test", "/") is true;
    an_origin_is_written_in_any_form: r#""origin": "HTTPS://H.test.:443""# on ("A", "https://h.test", "/") is true;
    another_scheme_is_another_origin: r#""origin": "https://h.test""# on ("A", "http://h.test", "/") is false;
    another_port_is_another_origin: r#""origin": "https://h.test:8443""# on ("A", "https://h.test", "/") is false;
    a_star_is_every_name_below: r#""origin": "*.h.test""# on ("A", "http://a.b.h.test:81", "/") is true;
    a_star_is_not_the_name_itself: r#""origin": "*.h.test""# on ("A", "https://h.test", "/") is false;
    a_star_ends_at_a_dot: r#""origin": "*.h.test""# on ("A", "https://ah.test", "/") is false;
    an_agent_is_meant_in_any_case: r#""origin": "https://h.test", "agent": "foobot""# on ("FooBot/1", "https://h.test", "/") is true;
    any_candidate_is_the_agent: r#""origin": "https://h.test", "agent": "FooBot""# on ("FooBot-News/1 (FooBot; +http://f.test)", "https://h.test", "/") is true;
    another_agent_is_not_meant: r#""origin": "https://h.test", "agent": "FooBot""# on ("BarBot", "https://h.test", "/") is false;
    who_has_no_name_is_no_agent: r#""origin": "https://h.test", "agent": "FooBot""# on ("", "https://h.test", "/") is false;
    a_path_is_a_pattern: r#""origin": "https://h.test", "path": "/a*.pdf$""# on ("A", "https://h.test", "/abc.pdf") is true;
    a_path_is_anchored: r#""origin": "https://h.test", "path": "/a*.pdf$""# on ("A", "https://h.test", "/abc.pdf?x") is false;
    a_path_is_compared_in_canonical_form: r#""origin": "https://h.test", "path": "/%61""# on ("A", "https://h.test", "/abc") is true;
    a_doubtful_query_is_denied: r#""origin": "https://h.test", "path": "/?u=a:b""# on ("A", "https://h.test", "/?u=a%3Ab") is true;
    a_doubtful_path_is_denied: r#""origin": "https://h.test", "path": "/Special%3A""# on ("A", "https://h.test", "/Special:Random") is true;
    a_doubtful_path_is_denied_either_way: r#""origin": "https://h.test", "path": "/a:b$""# on ("A", "https://h.test", "/a%3ab") is true;
    a_doubtful_path_is_denied_behind_a_star: r#""origin": "https://h.test", "path": "*%2Fx""# on ("A", "https://h.test", "/x") is true;
    an_escaped_mark_is_no_query: r#""origin": "https://h.test", "path": "/a%3Fb""# on ("A", "https://h.test", "/a?b") is false;
    an_escaped_star_stays_a_star: r#""origin": "https://h.test", "path": "/%2A/b""# on ("A", "https://h.test", "/a/b") is false;
    an_end_in_the_future_counts: r#""origin": "https://h.test", "until": "2027-01-01T00:00:00.000001Z""# on ("A", "https://h.test", "/") is true;
    at_its_end_it_is_over: r#""origin": "https://h.test", "until": "2027-01-01T00:00:00Z""# on ("A", "https://h.test", "/") is false;
}

/// One test a row: by which reading an override of `/open` fits, each reading
/// with whether robots.txt disallows it.
macro_rules! reading {
    ($($name:ident: $action:literal of $paths:expr => $fits:expr;)*) => {$(
        #[test]
        fn $name() {
            let keys = format!(
                r#""origin": "https://h.test", "path": "/open", "until": "2028-01-01T00:00:00Z", "action": "{}""#,
                $action,
            );
            assert_eq!(fits(&keys, "A", "https://h.test", &$paths), $fits);
        }
    )*};
}

reading! {
    a_deny_fits_by_the_path_as_sent: "deny" of [("/open/a", false), ("/b", false)] => Some(0);
    a_deny_fits_by_another_reading: "deny" of [("/b/../open", false), ("/open", false)] => Some(1);
    a_deny_needs_one_reading: "deny" of [("/b", true), ("/c", true)] => None;
    an_allow_fits_the_path_as_sent: "allow" of [("/open/a", true)] => Some(0);
    an_allow_does_not_mind_a_reading_that_is_allowed: "allow" of [("/open/../b", true), ("/b", false)] => Some(0);
    an_allow_needs_every_reading_that_is_disallowed: "allow" of [("/open/../b", true), ("/b", true)] => None;
    an_allow_needs_the_path_as_sent: "allow" of [("/b/../open", true), ("/open", true)] => None;
}

#[test]
fn a_doubtful_query_is_not_allowed() {
    let keys = r#""origin": "https://h.test", "path": "/?u=a:b", "action": "allow", "until": "2028-01-01T00:00:00Z""#;
    let fits = |path| fits(keys, "A", "https://h.test", &[(path, true)]);
    assert_eq!(fits("/?u=a:b"), Some(0));
    assert_eq!(fits("/?u=a%3Ab"), None);
}

#[test]
fn a_doubtful_path_is_not_allowed() {
    let keys = r#""origin": "https://h.test", "path": "/a:b", "action": "allow", "until": "2028-01-01T00:00:00Z""#;
    let fits = |path| fits(keys, "A", "https://h.test", &[(path, true)]);
    assert_eq!(fits("/a:b"), Some(0));
    assert_eq!(fits("/a%3Ab"), None);
}

#[test]
fn the_first_that_fits_and_has_not_ended_counts() {
    let list = [
        r#"{"origin":"https://h.test","action":"deny","reason":"1","until":"2026-01-01T00:00:00Z"}"#,
        r#"{"origin":"https://i.test","action":"deny","reason":"2"}"#,
        r#"{"origin":"https://h.test","action":"deny","reason":"3"}"#,
        r#"{"origin":"https://h.test","action":"deny","reason":"4"}"#,
    ]
    .map(entry);
    let asked = OverrideQuery {
        origin: &Origin::new(politesse_robots::origin::Scheme::Https, "h.test").unwrap(),
        crawler: &Crawler::parse("A"),
        readings: vec![JudgedPath {
            path: CanonicalPath::new("/"),
            disallowed: false,
        }],
        at: NOW.parse().unwrap(),
    };
    assert_eq!(first(&list, &asked).unwrap().0.reason, "3");
}

#[test]
fn json_is_read_as_it_was_written() {
    for json in [
        r#"{"origin":"https://h.test:8443","agent":"FooBot","path":"/open/*","action":"allow","reason":"contract 114","until":"2027-01-31T00:00:00.123456789Z"}"#,
        r#"{"origin":"*.h.test","action":"deny","reason":"x"}"#,
    ] {
        assert_eq!(serde_json::to_string(&entry(json)).unwrap(), json);
    }
}

#[test]
fn json_that_is_no_override_is_refused() {
    for (changed, told) in [
        (r#""origin":"h.test","action":"deny""#, "origin"),
        (r#""origin":"https://h.test/","action":"deny""#, "origin"),
        (r#""origin":"*.10.0.0.1","action":"deny""#, "origin"),
        (r#""origin":"https://*.h.test","action":"deny""#, "origin"),
        (
            r#""origin":"https://h.test","action":"allow""#,
            "without an end",
        ),
        (r#""origin":"https://h.test","action":"defer""#, "defer"),
        (
            r#""origin":"https://h.test","action":"deny","agent":"*""#,
            "agent",
        ),
        (
            r#""origin":"https://h.test","action":"deny","path":"a""#,
            "path",
        ),
        (
            r#""origin":"https://h.test","action":"deny","path":"""#,
            "path",
        ),
        (
            r#""origin":"https://h.test","action":"deny","until":"soon""#,
            "end",
        ),
    ] {
        let json = format!("{{\"reason\":\"x\",{changed}}}");
        let error = serde_json::from_str::<Override>(&json).unwrap_err();
        assert!(error.to_string().contains(told), "{json}: {error}");
    }
}

// An allow for one reading of a path does not cover what a deny says of another.
#[test]
fn earlier_allow_does_not_hide_a_deny_of_another_reading() {
    let entries = [
        entry(
            r#"{ "origin": "https://h.test", "path": "/open/*", "action": "allow",
                "until": "2030-01-01T00:00:00Z", "reason": "x" }"#,
        ),
        entry(
            r#"{ "origin": "https://h.test", "path": "/private", "action": "deny",
                "reason": "y" }"#,
        ),
    ];
    let first_for = |paths: &[&str]| {
        let readings = paths.iter().map(|path| JudgedPath {
            path: CanonicalPath::new(path),
            disallowed: false,
        });
        let asked = OverrideQuery {
            origin: &Origin::new("https".parse().unwrap(), "h.test").unwrap(),
            crawler: &Crawler::parse("A"),
            readings: readings.collect(),
            at: NOW.parse().unwrap(),
        };
        first(&entries, &asked).map(|(entry, index)| (entry.action.as_str(), index))
    };
    assert_eq!(
        first_for(&["/open/../private", "/private"]),
        Some(("deny", 1))
    );
    assert_eq!(first_for(&["/open/a/../b", "/open/b"]), Some(("allow", 0)));
    assert_eq!(first_for(&["/private"]), Some(("deny", 0)));
}
