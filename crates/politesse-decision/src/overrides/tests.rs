//! Overrides of the operator (docs/configuration.md). All expectations are ours.

use super::*;

const NOW: &str = "2027-01-01T00:00:00Z";

/// Parses an override from JSON with the keys of the configuration.
fn entry(json: &str) -> Override {
    serde_json::from_str(json).unwrap()
}

/// Returns the index of the reading of a request that an override with `keys`
/// matches.
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

/// One test per row: whether a deny with `keys` matches a URL requested by `agent`.
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
    an_origin_matches_itself: r#""origin": "https://h.test""# on ("A", "https://h.test", "/") is true;
    an_origin_is_normalised: r#""origin": "HTTPS://H.test.:443""# on ("A", "https://h.test", "/") is true;
    another_scheme_is_another_origin: r#""origin": "https://h.test""# on ("A", "http://h.test", "/") is false;
    another_port_is_another_origin: r#""origin": "https://h.test:8443""# on ("A", "https://h.test", "/") is false;
    a_star_matches_every_subdomain: r#""origin": "*.h.test""# on ("A", "http://a.b.h.test:81", "/") is true;
    a_star_does_not_match_the_domain_itself: r#""origin": "*.h.test""# on ("A", "https://h.test", "/") is false;
    a_star_needs_a_dot_before_the_domain: r#""origin": "*.h.test""# on ("A", "https://ah.test", "/") is false;
    an_agent_matches_in_any_case: r#""origin": "https://h.test", "agent": "foobot""# on ("FooBot/1", "https://h.test", "/") is true;
    an_agent_matches_any_candidate_token: r#""origin": "https://h.test", "agent": "FooBot""# on ("FooBot-News/1 (FooBot; +http://f.test)", "https://h.test", "/") is true;
    an_agent_does_not_match_another_crawler: r#""origin": "https://h.test", "agent": "FooBot""# on ("BarBot", "https://h.test", "/") is false;
    an_agent_does_not_match_a_crawler_without_a_name: r#""origin": "https://h.test", "agent": "FooBot""# on ("", "https://h.test", "/") is false;
    a_path_is_a_pattern: r#""origin": "https://h.test", "path": "/a*.pdf$""# on ("A", "https://h.test", "/abc.pdf") is true;
    a_dollar_anchors_a_path_at_its_end: r#""origin": "https://h.test", "path": "/a*.pdf$""# on ("A", "https://h.test", "/abc.pdf?x") is false;
    a_path_is_compared_in_canonical_form: r#""origin": "https://h.test", "path": "/%61""# on ("A", "https://h.test", "/abc") is true;
    a_deny_matches_an_escaped_byte_of_the_query: r#""origin": "https://h.test", "path": "/?u=a:b""# on ("A", "https://h.test", "/?u=a%3Ab") is true;
    a_deny_matches_the_decoded_form_of_its_escape: r#""origin": "https://h.test", "path": "/Special%3A""# on ("A", "https://h.test", "/Special:Random") is true;
    a_deny_matches_the_escaped_form_of_its_byte: r#""origin": "https://h.test", "path": "/a:b$""# on ("A", "https://h.test", "/a%3ab") is true;
    a_deny_matches_a_decoded_slash_after_a_star: r#""origin": "https://h.test", "path": "*%2Fx""# on ("A", "https://h.test", "/x") is true;
    an_escaped_question_mark_does_not_match_a_query: r#""origin": "https://h.test", "path": "/a%3Fb""# on ("A", "https://h.test", "/a?b") is false;
    an_escaped_star_is_no_wildcard: r#""origin": "https://h.test", "path": "/%2A/b""# on ("A", "https://h.test", "/a/b") is false;
    an_override_holds_until_its_end: r#""origin": "https://h.test", "until": "2027-01-01T00:00:00.000001Z""# on ("A", "https://h.test", "/") is true;
    an_override_no_longer_holds_at_its_end: r#""origin": "https://h.test", "until": "2027-01-01T00:00:00Z""# on ("A", "https://h.test", "/") is false;
}

/// One test per row: the index of the reading that an override of `/open` matches. Each
/// reading has a flag: whether robots.txt disallows it.
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
    a_deny_matches_the_path_as_sent: "deny" of [("/open/a", false), ("/b", false)] => Some(0);
    a_deny_matches_another_reading: "deny" of [("/b/../open", false), ("/open", false)] => Some(1);
    a_deny_must_match_at_least_one_reading: "deny" of [("/b", true), ("/c", true)] => None;
    an_allow_matches_the_path_as_sent: "allow" of [("/open/a", true)] => Some(0);
    an_allow_need_not_match_a_reading_that_is_allowed: "allow" of [("/open/../b", true), ("/b", false)] => Some(0);
    an_allow_must_match_every_disallowed_reading: "allow" of [("/open/../b", true), ("/b", true)] => None;
    an_allow_must_match_the_path_as_sent: "allow" of [("/b/../open", true), ("/open", true)] => None;
}

#[test]
fn an_allow_does_not_match_an_escaped_byte_of_the_query() {
    let keys = r#""origin": "https://h.test", "path": "/?u=a:b", "action": "allow", "until": "2028-01-01T00:00:00Z""#;
    let fits = |path| fits(keys, "A", "https://h.test", &[(path, true)]);
    assert_eq!(fits("/?u=a:b"), Some(0));
    assert_eq!(fits("/?u=a%3Ab"), None);
}

#[test]
fn an_allow_does_not_match_an_escaped_byte_of_the_path() {
    let keys = r#""origin": "https://h.test", "path": "/a:b", "action": "allow", "until": "2028-01-01T00:00:00Z""#;
    let fits = |path| fits(keys, "A", "https://h.test", &[(path, true)]);
    assert_eq!(fits("/a:b"), Some(0));
    assert_eq!(fits("/a%3Ab"), None);
}

#[test]
fn the_first_matching_override_in_force_applies() {
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
fn an_override_survives_a_round_trip_through_json() {
    for json in [
        r#"{"origin":"https://h.test:8443","agent":"FooBot","path":"/open/*","action":"allow","reason":"contract 114","until":"2027-01-31T00:00:00.123456789Z"}"#,
        r#"{"origin":"*.h.test","action":"deny","reason":"x"}"#,
    ] {
        assert_eq!(serde_json::to_string(&entry(json)).unwrap(), json);
    }
}

#[test]
fn invalid_json_names_the_wrong_part() {
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

// An allow for one reading of a path does not set aside a deny for another reading.
#[test]
fn an_earlier_allow_does_not_hide_a_deny_of_another_reading() {
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
