//! Decisions: each test passes data in and checks the verdict.

mod later;
mod preferences;
mod withholding;

use bytes::Bytes;
use jiff::Timestamp;

use super::*;
use crate::access::{Cause, NoConnection};
use crate::record::{Effect, StoredRuling};
use crate::snapshot::{AccessResult, CacheKey};
use politesse_robots::Dialect;
use politesse_robots::crawler::ProductToken;

fn inquiry(agent: &str, url: &str) -> Arc<Inquiry> {
    Arc::new(Inquiry {
        crawler: Crawler::parse(agent),
        target: url.parse().unwrap(),
        method: "GET".into(),
    })
}

fn snapshot(status: u16, result: AccessResult) -> Arc<Snapshot> {
    let origin: Target = "http://h.test/".parse().unwrap();
    Arc::new(Snapshot {
        url: origin.origin.robots_txt().to_string(),
        hops: Vec::new(),
        key: CacheKey::new(origin.origin, None),
        status: Some(status),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result,
        stale: None,
        tdm: None,
    })
}

fn file(text: &'static str) -> Arc<Snapshot> {
    let copy = RobotsFile::new(Bytes::from_static(text.as_bytes()));
    snapshot(200, AccessResult::Successful(Arc::new(copy)))
}

fn decided(snapshot: &Arc<Snapshot>, path: &str) -> Decision {
    let policy = Arc::new(Policy::new(Unauthorized::Allow));
    let url = format!("http://h.test{path}");
    decide(&inquiry("FooBot/2.1", &url), snapshot, &policy, now())
}

fn now() -> Timestamp {
    "2027-01-01T00:00:00.000000999Z".parse().unwrap()
}

fn said(decision: &Decision) -> (Verdict, Reason) {
    (decision.ruling().verdict, decision.ruling().reason)
}

// RFC 9309, section 2.2.2.
#[test]
fn a_ruling_cites_the_rule_its_line_group_and_token() {
    let snapshot = file("User-agent: foobot\nAllow: /a\nDisallow: /a/b # no\n");
    let decision = decided(&snapshot, "/a/b/c");
    let ruling = decision.ruling();
    assert_eq!(said(&decision), (Verdict::Disallow, Reason::Rule));
    let rule = ruling.rule.as_ref().unwrap();
    assert_eq!((rule.line, rule.text.as_str()), (Some(3), "Disallow: /a/b"));
    assert_eq!(ruling.group, ["foobot"]);
    assert_eq!(ruling.token.as_ref().unwrap().as_str(), "FooBot");
}

// RFC 9309, sections 2.2.1 and 2.2.2.
#[test]
fn without_a_matching_rule_the_reason_is_no_rule_or_no_group() {
    assert_eq!(
        said(&decided(&file("User-agent: *\nDisallow: /x\n"), "/a")),
        (Verdict::Allow, Reason::NoRule)
    );
    assert_eq!(
        said(&decided(&file("User-agent: o\nDisallow: /\n"), "/a")),
        (Verdict::Allow, Reason::NoGroup)
    );
}

// RFC 9309, section 2.2.2: "The /robots.txt URI is implicitly allowed". Only these
// exact bytes.
#[test]
fn only_the_exact_path_of_robots_txt_is_always_allowed() {
    let snapshot = file("User-agent: *\nDisallow: /\n");
    assert_eq!(
        said(&decided(&snapshot, "/robots.txt")),
        (Verdict::Allow, Reason::RobotsTxt)
    );
    for path in [
        "/robots.txt?x",
        "//robots.txt",
        "/ROBOTS.TXT",
        "/robots.txt/../private",
        "/a/../robots.txt",
    ] {
        assert_eq!(
            said(&decided(&snapshot, path)),
            (Verdict::Disallow, Reason::Rule),
            "{path}"
        );
    }
}

// Ours: RFC 9309, section 2.2.2, does not mention methods.
#[test]
fn a_method_that_does_not_read_robots_txt_is_judged_by_its_rules() {
    let named = file("User-agent: *\nDisallow: /robots.txt\n");
    let open = file("User-agent: *\nDisallow: /x\n");
    for readings in [Readings::Sent, Readings::Dots, Readings::Server] {
        let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = readings);
        let policy = Arc::new(policy);
        let said_of = |method: &str, snapshot| {
            let inquiry = Inquiry {
                method: method.to_owned(),
                ..Inquiry::clone(&inquiry("FooBot/2.1", "http://h.test/robots.txt"))
            };
            said(&decide(&Arc::new(inquiry), snapshot, &policy, now()))
        };
        for method in ["GET", "HEAD"] {
            assert_eq!(said_of(method, &named), (Verdict::Allow, Reason::RobotsTxt));
        }
        for method in ["POST", "PUT", "OPTIONS", "get"] {
            assert_eq!(said_of(method, &named), (Verdict::Disallow, Reason::Rule));
            assert_eq!(said_of(method, &open), (Verdict::Allow, Reason::NoRule));
        }
    }
}

// Ours: the dialect `google` does not exempt /robots.txt from the rules.
#[test]
fn without_an_exemption_robots_txt_is_judged_like_any_path() {
    let dialect = Dialect::Google;
    let bytes = b"User-agent: *\nDisallow: /robots.txt\n";
    let copy = RobotsFile::read(Bytes::from_static(bytes), dialect);
    let snapshot = snapshot(200, AccessResult::Successful(Arc::new(copy)));
    let policy = Arc::new(Policy::new(Unauthorized::Allow).in_dialect(dialect));
    for path in ["/robots.txt", "//robots.txt"] {
        let asked = inquiry("FooBot/2.1", &format!("http://h.test{path}"));
        let decision = decide(&asked, &snapshot, &policy, now());
        assert_eq!(said(&decision), (Verdict::Disallow, Reason::Rule), "{path}");
    }
}

// Ours: a forwarded request for robots.txt waits its turn like a request for a page.
#[test]
fn pace_records_apply_to_robots_txt_itself() {
    let snapshot = file("User-agent: foobot\nCrawl-delay: 30\nDisallow: /\n");
    let decision = decided(&snapshot, "/robots.txt");
    assert_eq!(said(&decision), (Verdict::Allow, Reason::RobotsTxt));
    assert_eq!(decision.ruling().crawl_delay(), Some(30.0));
}

// Ours: the exemption is for the bytes as sent.
#[test]
fn another_spelling_of_robots_txt_is_judged_by_the_rules() {
    let named = file("User-agent: *\nDisallow: /robots.txt\n");
    assert_eq!(said(&decided(&named, "/robots.txt")).1, Reason::RobotsTxt);
    let open = file("User-agent: *\nDisallow: /\nAllow: /a/\n");
    for (robots, path) in [(named, "//robots.txt"), (open, "/a/../robots.txt")] {
        let decision = decided(&robots, path);
        assert_eq!(said(&decision), (Verdict::Disallow, Reason::Rule), "{path}");
        assert_eq!(decision.ruling().reading.as_deref(), Some("/robots.txt"));
    }
}

// RFC 9309, sections 2.3.1.3 and 2.3.1.4. Invariant 4 (ARCHITECTURE.md).
#[test]
fn an_unreachable_file_disallows_and_a_missing_file_allows() {
    let unreachable = snapshot(503, AccessResult::Unreachable(Cause::Status));
    assert_eq!(
        said(&decided(&unreachable, "/a")),
        (Verdict::Disallow, Reason::Unreachable)
    );
    let unavailable = snapshot(404, AccessResult::Unavailable);
    assert_eq!(
        said(&decided(&unavailable, "/a")),
        (Verdict::Allow, Reason::Unavailable)
    );
}

// The draft of 1996, section 3.1, if the operator configures it.
#[test]
fn a_401_or_403_refuses_if_configured() {
    let policy = Arc::new(Policy::new(Unauthorized::Refuse));
    for (status, verdict) in [
        (401, Verdict::Disallow),
        (403, Verdict::Disallow),
        (404, Verdict::Allow),
    ] {
        let snapshot = snapshot(status, AccessResult::Unavailable);
        let decision = decide(
            &inquiry("FooBot", "http://h.test/a"),
            &snapshot,
            &policy,
            now(),
        );
        assert_eq!(decision.ruling().verdict, verdict, "{status}");
    }
}

// RFC 3986, section 5.2.4: servers resolve the path to /private.
#[test]
fn a_disallowed_reading_refuses_and_is_recorded() {
    let snapshot = file("User-agent: *\nDisallow: /private\n");
    let decision = decided(&snapshot, "/a/%2e%2e/private?x");
    assert_eq!(said(&decision), (Verdict::Disallow, Reason::Rule));
    assert_eq!(decision.ruling().reading.as_deref(), Some("/private?x"));
    let sent = Arc::new(Policy::new(Unauthorized::Allow).as_sent());
    let asked = inquiry("FooBot", "http://h.test/a/%2e%2e/private");
    assert_eq!(
        said(&decide(&asked, &snapshot, &sent, now())),
        (Verdict::Allow, Reason::NoRule)
    );
}

// Invariants 1 and 3 (ARCHITECTURE.md).
#[test]
fn a_permit_requires_the_receipt_for_its_own_decision() {
    let snapshot = file("User-agent: *\nDisallow: /private\n");
    let allowed = decided(&snapshot, "/a");
    let foreign = Receipt::issue(7, decided(&snapshot, "/b").evidence());
    assert!(matches!(
        allowed.into_permit(&foreign),
        Err(NoPermit::ForeignReceipt { .. })
    ));
    let allowed = decided(&snapshot, "/a");
    let receipt = Receipt::issue(7, allowed.evidence());
    assert_eq!(
        allowed
            .into_permit(&receipt)
            .unwrap()
            .target()
            .path_and_query(),
        "/a"
    );
    let refused = decided(&snapshot, "/private");
    let receipt = Receipt::issue(8, refused.evidence());
    assert!(matches!(
        refused.into_permit(&receipt),
        Err(NoPermit::Refused(Refusal { seq: 8, .. }))
    ));
}

// Ours: docs/decisions/021-decision-digest.md. The test implements the encoding anew.
#[test]
fn the_digest_covers_the_documented_encoding() {
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    let some = |bytes: &[u8]| [&[1], bytes].concat();
    let number = |value: i64| value.to_be_bytes().to_vec();
    let robots = "User-agent: *\nAllow: /a\nDisallow: /\n";
    let policy = Policy::new(Unauthorized::Allow).digest();
    let at = number(now().as_microsecond());
    let rest = |file: Vec<u8>| {
        [
            some(&number(0)),
            file,
            policy.as_bytes().to_vec(),
            at.clone(),
        ]
    };
    let with_file = rest(some(Digest::of(robots.as_bytes()).as_bytes())).concat();
    let rows = [
        (
            decided(&file(robots), "/a/é?b"),
            [
                text("http://h.test/a/é?b"),
                some(&text("FooBot")),
                [text("allow"), text("rule"), some(&number(2))].concat(),
                with_file,
            ],
        ),
        (
            decided(&snapshot(404, AccessResult::Unavailable), "/"),
            [
                text("http://h.test/"),
                some(&text("FooBot")),
                [text("allow"), text("unavailable"), vec![0]].concat(),
                rest(vec![0]).concat(),
            ],
        ),
    ];
    for (decision, parts) in rows {
        let bytes = [text("GET"), parts.concat()].concat();
        assert_eq!(decision.digest(), Digest::of(&bytes));
    }
}

#[test]
fn only_a_complete_copy_from_a_direct_200_answers_for_the_origin() {
    let whole = decided(&file("User-agent: *\n"), "/robots.txt");
    assert!(whole.own_copy().is_some());
    assert!(decided(&file("User-agent: *\n"), "/a").own_copy().is_none());
    let mut copy = RobotsFile::new(Bytes::from_static(b"User-agent: *\n"));
    copy.whole = false;
    let cut = snapshot(200, AccessResult::Successful(Arc::new(copy)));
    assert!(decided(&cut, "/robots.txt").own_copy().is_none());
    let mut moved = Arc::into_inner(file("User-agent: *\n")).unwrap();
    moved.hops = vec!["http://h.test/robots.txt".to_owned()];
    let moved = decided(&Arc::new(moved), "/robots.txt");
    assert!(moved.own_copy().is_none());
    let missing = snapshot(404, AccessResult::Unavailable);
    assert!(decided(&missing, "/robots.txt").own_copy().is_none());
}

#[test]
fn a_policy_is_restored_from_its_json() {
    let policy = Policy::new(Unauthorized::Refuse);
    assert_eq!(
        Policy::restore(policy.json()).unwrap().digest(),
        policy.digest()
    );
    assert_ne!(policy.as_sent().digest(), policy.digest());
    assert!(Policy::restore("{}").is_err());
}

// Ours: policies stored before candidates, overrides and the readings of servers
// existed.
#[test]
fn a_policy_of_an_earlier_version_is_restored_with_its_digest() {
    let json = r#"{"unauthorized":"allow","readings":"dots"}"#;
    let policy = Policy::restore(json).unwrap();
    assert_eq!(policy.json(), json);
    assert_eq!(policy.terms().revision, Revision::FIRST);
    let changed = policy.with(|terms| terms.readings = Readings::Server);
    assert_eq!(changed.terms().revision, Revision::FIRST);
}

// Ours: a change of the engine must not look like tampering with the record.
#[test]
fn the_digest_of_a_policy_covers_the_revision_of_the_engine() {
    let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = Readings::Dots);
    assert_eq!(
        policy.json(),
        r#"{"revision":4,"unauthorized":"allow","readings":"dots"}"#
    );
    assert_eq!(policy.terms().revision, Revision::CURRENT);
    let earlier = Policy::restore(r#"{"unauthorized":"allow","readings":"dots"}"#).unwrap();
    assert_ne!(policy.digest(), earlier.digest());
    assert_eq!(Revision::CURRENT.to_string(), "4");
}

/// One test per row: the verdict on a path at each level of readings, and the reading that
/// the ruling names. robots.txt disallows /private.
macro_rules! levels {
    ($($name:ident: $path:literal by $level:ident is $expected:expr;)*) => {$(
        #[test]
        fn $name() {
            let robots = file("User-agent: *\nDisallow: /private\n");
            let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = Readings::$level);
            let asked = inquiry("FooBot", &format!("http://h.test{}", $path));
            let decision = decide(&asked, &robots, &Arc::new(policy), now());
            let reading = decision.ruling().reading.as_deref();
            let expected: (Verdict, Option<&str>) = $expected;
            assert_eq!((decision.ruling().verdict, reading), expected);
        }
    )*};
}

// Ours: old decision records are decided again with `dots`.
levels! {
    sent_does_not_resolve_dot_segments: "/a/../private" by Sent is (Verdict::Allow, None);
    sent_does_not_merge_slashes: "//private" by Sent is (Verdict::Allow, None);
    sent_decodes_escapes_of_unreserved_bytes: "/%70rivate" by Sent is (Verdict::Disallow, None);
    dots_resolves_dot_segments: "/a/../private" by Dots is (Verdict::Disallow, Some("/private"));
    dots_does_not_merge_slashes: "//private" by Dots is (Verdict::Allow, None);
    dots_allows_an_empty_query: "/a/../x?" by Dots is (Verdict::Allow, None);
    servers_resolve_dot_segments: "/a/../private" by Server is (Verdict::Disallow, Some("/private"));
    servers_merge_slashes: "//private" by Server is (Verdict::Disallow, Some("/private"));
    servers_cut_parameters: "/a/..;/private?x" by Server is (Verdict::Disallow, Some("/private?x"));
    servers_never_decode_twice: "/%2570rivate" by Server is (Verdict::Allow, None);
    a_path_refused_as_sent_names_no_reading: "/private//x" by Server is (Verdict::Disallow, None);
    a_reading_that_is_allowed_is_not_named: "//public" by Server is (Verdict::Allow, None);
}

/// One test per row: the verdict of a rule on a path at each level of readings.
macro_rules! forms {
    ($($name:ident: $rules:literal on $path:literal by $level:ident is $expected:ident;)*) => {$(
        #[test]
        fn $name() {
            let robots = file(concat!("User-agent: *\n", $rules, "\n"));
            let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = Readings::$level);
            let asked = inquiry("FooBot", concat!("http://h.test", $path));
            let decision = decide(&asked, &robots, &Arc::new(policy), now());
            assert_eq!(decision.ruling().verdict, Verdict::$expected);
        }
    )*};
}

// Ours: servers treat a reserved byte of a path and its escape alike.
forms! {
    server_decodes_an_escape_in_a_rule: "Disallow: /Special%3ARandom" on "/Special:Random" by Server is Disallow;
    sent_does_not_decode_an_escape_in_a_rule: "Disallow: /Special%3ARandom" on "/Special:Random" by Sent is Allow;
    dots_does_not_decode_an_escape_in_a_rule: "Disallow: /Special%3ARandom" on "/Special:Random" by Dots is Allow;
    server_matches_a_byte_in_a_rule_with_its_escape: "Disallow: /Special:Random" on "/Special%3ARandom" by Server is Disallow;
    a_lower_case_escape_is_decoded: "Disallow: /Special%3aRandom" on "/Special:Random" by Server is Disallow;
    a_rule_may_mix_bytes_and_escapes: "Disallow: /a%3Ab,c%3Dd" on "/a:b%2Cc=d" by Server is Disallow;
    a_wildcard_remains_a_wildcard: "Disallow: /*%3ARandom" on "/wiki/Special:Random" by Server is Disallow;
    an_escaped_star_is_no_wildcard: "Disallow: /a%2Ab" on "/axb" by Server is Allow;
    an_escaped_dollar_is_no_anchor: "Disallow: /a%24" on "/a" by Server is Allow;
    an_anchor_remains_an_anchor: "Disallow: /a%3A$" on "/a:b" by Server is Allow;
    an_anchored_rule_matches_at_the_end: "Disallow: /a%3A$" on "/a:" by Server is Disallow;
    server_decodes_an_escaped_slash: "Disallow: /a%2Fb" on "/a/b" by Server is Disallow;
    an_escaped_question_mark_does_not_begin_a_query: "Disallow: /a%3Fb" on "/a?b" by Server is Allow;
    an_escaped_question_mark_in_a_path_is_no_query: "Disallow: /*?" on "/who%3F" by Server is Allow;
    an_escaped_slash_beside_a_wildcard_does_not_match_a_slash: "Disallow: /*%2F*" on "/css/site.css" by Server is Allow;
    an_escaped_slash_beside_a_wildcard_matches_an_escaped_slash: "Disallow: /*%2F*" on "/css%2fsite.css" by Server is Disallow;
    other_escapes_beside_a_wildcard_are_decoded: "Disallow: /*%2Fa%3Ab" on "/x%2Fa:b" by Server is Disallow;
    a_percent_sign_is_not_decoded: "Disallow: /a%253Ab" on "/a:b" by Server is Allow;
    path_and_query_are_both_decoded: "Disallow: /a%3Ab?c=%3D" on "/a:b?c==" by Server is Disallow;
    a_path_with_an_escaped_question_mark_matches_with_its_query: "Disallow: /a%3Ab%3F*=%3F" on "/a:b%3F?c=?" by Server is Disallow;
    an_allow_matches_only_as_written: "Disallow: /\nAllow: /Special%3ARandom" on "/Special:Random" by Server is Disallow;
    a_longer_allow_beats_a_decoded_disallow: "Disallow: /a%3Ab\nAllow: /a:b/cccc" on "/a:b/cccc" by Server is Allow;
    a_decoded_disallow_has_the_length_of_its_written_form: "Disallow: /a%3Ab\nAllow: /a:b/" on "/a:b/c" by Server is Disallow;
    other_readings_match_a_decoded_disallow: "Disallow: /Special%3ARandom" on "/x/../Special:Random" by Server is Disallow;
    a_trailing_no_break_space_is_removed_before_decoding: "Disallow: /a%3Ab\u{a0}" on "/a:b" by Server is Disallow;
    sent_removes_a_trailing_no_break_space: "Disallow: /a\u{a0}" on "/a" by Sent is Disallow;
}

// Ours: the ruling cites the rule that refuses, and the path in the rule's spelling.
#[test]
fn a_rule_matched_in_decoded_form_is_cited_as_written() {
    let robots = file("User-agent: *\nDisallow: /Special%3ARandom\n");
    let decision = decided(&robots, "/Special:Random");
    let ruling = decision.ruling();
    assert_eq!(
        (ruling.reason, ruling.reading.as_deref()),
        (Reason::Rule, Some("/Special%3ARandom"))
    );
    let rule = ruling.rule.as_ref().unwrap();
    assert_eq!(
        (rule.line, &*rule.text),
        (Some(2), "Disallow: /Special%3ARandom")
    );
}

// Ours: the other dialects follow the parsers that they imitate.
#[test]
fn other_dialects_compare_the_written_path_alone() {
    let rules = "User-agent: *\nDisallow: /Special%3ARandom\n";
    for dialect in Dialect::ALL {
        let copy = RobotsFile::read(Bytes::from(rules), dialect);
        let robots = snapshot(200, AccessResult::Successful(Arc::new(copy)));
        let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.dialect = dialect);
        let asked = inquiry("FooBot", "http://h.test/Special:Random");
        let decision = decide(&asked, &robots, &Arc::new(policy), now());
        // The dialects of 1994 and 1996 decode both sides.
        let decodes = [Dialect::Draft1996, Dialect::Consensus1994, Dialect::Conner];
        let refuses = dialect == Dialect::Rfc9309 || decodes.contains(&dialect);
        let disallowed = decision.ruling().verdict == Verdict::Disallow;
        assert_eq!(disallowed, refuses, "{dialect}");
    }
}

// Ours: the path as sent must be allowed, too.
#[test]
fn an_allow_that_matches_only_another_reading_allows_nothing() {
    let robots = file("User-agent: *\nDisallow: /\nAllow: /public\n");
    for path in [
        "//public",
        "/x/../public",
        "/;/public",
        "/public/..;/x",
        "/x%2F..%2Fpublic",
    ] {
        assert_eq!(
            said(&decided(&robots, path)),
            (Verdict::Disallow, Reason::Rule),
            "{path}"
        );
    }
    for path in [
        "/public//a",
        "/public/a;b",
        "/public/x/../a",
        "/public/%2fa?",
    ] {
        assert_eq!(
            decided(&robots, path).ruling().verdict,
            Verdict::Allow,
            "{path}"
        );
    }
}

#[test]
fn candidates_and_overrides_are_part_of_the_policy() {
    let policy = laid_down(Candidates::All, &[OPEN]);
    let again = Policy::restore(policy.json()).unwrap();
    assert_eq!(again.digest(), policy.digest());
    assert_eq!(again.terms().overrides, policy.terms().overrides);
    assert_eq!(again.terms().candidates, Candidates::All);
    let wrong = policy.json().replace("2028-01-01", "soon");
    assert!(Policy::restore(&wrong).is_err());
}

/// Returns a policy with `overrides`, each in JSON with the keys of the configuration.
fn laid_down(candidates: Candidates, overrides: &[&str]) -> Arc<Policy> {
    let overrides = overrides.iter().map(|json| serde_json::from_str(json));
    let overrides = overrides.collect::<Result<_, _>>().unwrap();
    let policy = Policy::new(Unauthorized::Refuse);
    Arc::new(
        policy
            .with(|terms| terms.candidates = candidates)
            .with(|terms| terms.overrides = overrides),
    )
}

/// One test per row: verdict, line and token for /x and a crawler with several names,
/// under `Candidates::All`.
macro_rules! all_candidates {
    ($($name:ident: $robots:literal says $expected:expr;)*) => {$(
        #[test]
        fn $name() {
            let policy = laid_down(Candidates::All, &[]);
            let asked = inquiry("FooBot-News/1 (FooBot; +http://f.test)", "http://h.test/x");
            let decision = decide(&asked, &file($robots), &policy, now());
            let ruling = decision.ruling();
            let line = ruling.rule.as_ref().and_then(|rule| rule.line);
            let token = ruling.token.as_ref().map(ProductToken::as_str);
            assert_eq!((ruling.verdict, line, token), $expected);
        }
    )*};
}

// Ours.
all_candidates! {
    one_disallowed_candidate_is_enough:
        "User-agent: FooBot-News\nAllow: /\nUser-agent: FooBot\nDisallow: /x\n"
        says (Verdict::Disallow, Some(4), Some("FooBot"));
    the_first_disallowed_candidate_is_cited:
        "User-agent: FooBot\nDisallow: /\nUser-agent: FooBot-News\nDisallow: /x\n"
        says (Verdict::Disallow, Some(4), Some("FooBot-News"));
    the_url_is_allowed_if_all_candidates_are:
        "User-agent: FooBot\nAllow: /\nUser-agent: FooBot-News\nAllow: /x\n"
        says (Verdict::Allow, Some(4), Some("FooBot-News"));
    a_candidate_without_a_group_is_ignored:
        "User-agent: FooBot\nAllow: /\nUser-agent: *\nDisallow: /\n"
        says (Verdict::Allow, Some(2), Some("FooBot"));
    without_a_group_of_its_own_the_star_group_binds:
        "User-agent: BarBot\nAllow: /\nUser-agent: *\nDisallow: /\n"
        says (Verdict::Disallow, Some(4), None);
    without_any_matching_group_nothing_binds:
        "User-agent: BarBot\nDisallow: /\n"
        says (Verdict::Allow, None, None);
}

// Ours: the default.
#[test]
fn by_default_only_the_first_candidate_with_a_group_binds() {
    let robots = file("User-agent: FooBot-News\nAllow: /\nUser-agent: FooBot\nDisallow: /x\n");
    let policy = laid_down(Candidates::First, &[]);
    let asked = inquiry("FooBot-News/1 (FooBot; +http://f.test)", "http://h.test/x");
    let decision = decide(&asked, &robots, &policy, now());
    assert_eq!(said(&decision), (Verdict::Allow, Reason::Rule));
}

#[test]
fn the_longest_crawl_delay_of_all_candidates_applies() {
    let robots = file(
        "User-agent: FooBot-News\nCrawl-delay: 1\nDisallow: /x\n\
         User-agent: FooBot\nCrawl-delay: 9\nAllow: /\n",
    );
    let policy = laid_down(Candidates::All, &[]);
    let asked = inquiry("FooBot-News/1 (FooBot; +http://f.test)", "http://h.test/x");
    let decision = decide(&asked, &robots, &policy, now());
    assert_eq!(said(&decision), (Verdict::Disallow, Reason::Rule));
    assert_eq!(decision.ruling().crawl_delay(), Some(9.0));
}

const OPEN: &str = r#"{"origin":"http://h.test","path":"/open","action":"allow","reason":"contract 114","until":"2028-01-01T00:00:00Z"}"#;
const ANYTHING: &str =
    r#"{"origin":"http://h.test","action":"allow","reason":"ours","until":"2028-01-01T00:00:00Z"}"#;
const CLOSED: &str =
    r#"{"origin":"http://h.test","path":"/closed","action":"deny","reason":"asked by mail"}"#;

/// Decides on a path under `overrides`, and returns the stored ruling and effect.
fn kept(overrides: &[&str], snapshot: &Arc<Snapshot>, path: &str) -> (StoredRuling, Effect) {
    let policy = laid_down(Candidates::First, overrides);
    let asked = inquiry("FooBot/2.1", &format!("http://h.test{path}"));
    let decision = decide(&asked, snapshot, &policy, now());
    let evidence = decision.evidence();
    (StoredRuling::of(evidence), Effect::of(evidence))
}

/// One test per row: verdict, reason, line and effect for a path. robots.txt disallows
/// /open and /private.
macro_rules! overriding {
    ($($name:ident: $overrides:expr, $path:literal says $expected:expr;)*) => {$(
        #[test]
        fn $name() {
            let robots = file("User-agent: *\nDisallow: /open\nDisallow: /private\n");
            let (ruling, effect) = kept(&$overrides, &robots, $path);
            let expected: (&str, &str, Option<u32>, &str) = $expected;
            assert_eq!(
                (&*ruling.verdict, &*ruling.reason, ruling.line, effect.as_str()),
                expected,
            );
        }
    )*};
}

// Ours.
overriding! {
    an_allow_sets_the_rule_aside_and_cites_it: [OPEN], "/open/a" says ("allow", "rule", Some(2), "overridden");
    an_allow_of_an_allowed_path_changes_nothing: [ANYTHING], "/x" says ("allow", "no_rule", None, "enforced");
    a_deny_has_the_reason_override: [CLOSED], "/closed/a" says ("disallow", "override", None, "enforced");
    a_deny_of_a_disallowed_path_changes_nothing:
        [r#"{"origin":"http://h.test","action":"deny","reason":"x"}"#], "/private"
        says ("disallow", "rule", Some(3), "enforced");
    the_first_matching_override_applies: [ANYTHING, CLOSED], "/closed" says ("allow", "no_rule", None, "enforced");
    an_override_that_does_not_match_changes_nothing: [OPEN, CLOSED], "/private" says ("disallow", "rule", Some(3), "enforced");
    robots_txt_is_never_denied:
        [r#"{"origin":"http://h.test","action":"deny","reason":"x"}"#], "/robots.txt"
        says ("allow", "robots_txt", None, "enforced");
    a_denied_reading_refuses: [CLOSED], "/x/../closed" says ("disallow", "override", None, "enforced");
    an_allowed_path_does_not_open_another_reading:
        [OPEN], "/open/../private" says ("disallow", "rule", Some(2), "enforced");
    an_allowed_path_does_not_open_a_reading_of_servers:
        [OPEN], "/open/..;/private" says ("disallow", "rule", Some(2), "enforced");
    a_deny_matches_a_reading_of_servers: [CLOSED], "/x/..%2f/closed" says ("disallow", "override", None, "enforced");
    a_deny_of_a_path_disallowed_in_another_reading_changes_nothing: [CLOSED], "//private/closed" says ("disallow", "rule", Some(3), "enforced");
    an_allow_of_all_readings_of_servers_allows_the_path: [ANYTHING], "/x/..;/private" says ("allow", "rule", Some(3), "overridden");
    an_allow_of_all_readings_allows_the_path: [ANYTHING], "/x/../private" says ("allow", "rule", Some(3), "overridden");
}

#[test]
fn a_denying_override_cites_itself_and_the_denied_reading() {
    let robots = file("User-agent: foobot\nAllow: /\n");
    let policy = laid_down(Candidates::First, &[CLOSED]);
    let asked = inquiry("FooBot/2.1", "http://h.test/x/../closed");
    let decision = decide(&asked, &robots, &policy, now());
    let ruling = decision.ruling();
    assert_eq!(ruling.reading.as_deref(), Some("/closed"));
    assert_eq!((&ruling.rule, &ruling.group), (&None, &Vec::new()));
    assert_eq!(
        ruling.token.as_ref().map(ProductToken::as_str),
        Some("FooBot")
    );
    assert_eq!(ruling.overriding.as_ref().unwrap().reason, "asked by mail");
}

// Ours: an override also applies while robots.txt is unreachable.
#[test]
fn an_override_applies_without_a_robots_txt() {
    let no_connection = AccessResult::Unreachable(Cause::NoConnection(NoConnection::Refused));
    for (status, result, reason) in [
        (503, AccessResult::Unreachable(Cause::Status), "unreachable"),
        (0, no_connection, "unreachable"),
        (403, AccessResult::Unavailable, "restricted"),
    ] {
        let (ruling, effect) = kept(&[ANYTHING], &snapshot(status, result), "/x");
        assert_eq!((&*ruling.verdict, &*ruling.reason), ("allow", reason));
        assert_eq!(effect, Effect::Overridden);
    }
    let unavailable = snapshot(404, AccessResult::Unavailable);
    let (ruling, _) = kept(&[CLOSED], &unavailable, "/closed");
    assert_eq!(ruling.reason, "override");
}

// Ours: `egress` comes before overrides.
#[test]
fn no_override_lifts_an_egress_denial() {
    let policy = laid_down(Candidates::First, &[ANYTHING]);
    let asked = inquiry("FooBot", "http://h.test/a");
    let decision = Decision::denied(asked, &policy, now(), "denied".to_owned());
    assert_eq!(said(&decision), (Verdict::Disallow, Reason::Egress));
}

// Invariant 2 (ARCHITECTURE.md): a decision repeated from a time in microseconds has the
// same result.
#[test]
fn an_override_that_ends_within_the_microsecond_decides_alike_twice() {
    let ending = ANYTHING.replace("2028-01-01T00:00:00Z", "2027-01-01T00:00:00.0000005Z");
    let policy = laid_down(Candidates::First, &[&ending]);
    let robots = file("User-agent: *\nDisallow: /\n");
    let asked = inquiry("FooBot", "http://h.test/a");
    let once = decide(&asked, &robots, &policy, now());
    let kept = Timestamp::from_microsecond(once.evidence().at.as_microsecond()).unwrap();
    assert_eq!(kept, once.evidence().at);
    let again = decide(&asked, &robots, &policy, kept);
    assert_eq!(once.ruling(), again.ruling());
}

// Ours: no crawler has asked for the page that a robots.txt redirects to.
#[test]
fn no_override_allows_the_target_of_a_redirect() {
    let policy = laid_down(Candidates::All, &[OPEN, CLOSED]).for_redirects();
    let left: Vec<_> = policy
        .terms()
        .overrides
        .iter()
        .map(|entry| &*entry.reason)
        .collect();
    assert_eq!(left, ["asked by mail"]);
    assert_eq!(policy.terms().candidates, Candidates::All);
}

/// Returns whether a decision yields a permit, and the recorded effect.
fn reported(decision: Decision) -> (bool, Effect) {
    let effect = Effect::of(decision.evidence());
    let receipt = Receipt::issue(1, decision.evidence());
    (decision.into_permit(&receipt).is_ok(), effect)
}

/// One test per row: whether report mode forwards the request, and the recorded effect.
macro_rules! reporting {
    ($($name:ident: $snapshot:expr, $path:literal says $expected:expr;)*) => {$(
        #[test]
        fn $name() {
            let policy = laid_down(Candidates::First, &[OPEN, CLOSED]);
            let policy = Policy::clone(&policy).with(|terms| terms.mode = EnforcementMode::Report);
            let asked = inquiry("FooBot/2.1", &format!("http://h.test{}", $path));
            let decision = decide(&asked, &$snapshot, &Arc::new(policy), now());
            assert_eq!(reported(decision), $expected);
        }
    )*};
}

fn unreachable(cause: Cause) -> Arc<Snapshot> {
    let mut snapshot = snapshot(503, AccessResult::Unreachable(cause));
    Arc::get_mut(&mut snapshot).unwrap().status = None;
    snapshot
}

// Ours.
reporting! {
    a_path_disallowed_by_a_rule_is_reported:
        file("User-agent: *\nDisallow: /private\n"), "/private/x" says (true, Effect::Reported);
    a_disallowed_reading_is_reported:
        file("User-agent: *\nDisallow: /private\n"), "/a/../private" says (true, Effect::Reported);
    an_allowed_path_is_enforced:
        file("User-agent: *\nDisallow: /private\n"), "/a" says (true, Effect::Enforced);
    a_path_allowed_by_an_override_is_overridden:
        file("User-agent: *\nDisallow: /\n"), "/open/a" says (true, Effect::Overridden);
    a_path_denied_by_the_operator_is_reported:
        file("User-agent: *\n"), "/closed" says (true, Effect::Reported);
    a_restricted_origin_is_reported:
        snapshot(403, AccessResult::Unavailable), "/a" says (true, Effect::Reported);
    an_unreachable_robots_txt_is_reported:
        unreachable(Cause::Timeout), "/a" says (true, Effect::Reported);
    a_host_without_a_connection_is_not_reported:
        unreachable(Cause::NoConnection(NoConnection::Refused)), "/a" says (false, Effect::Enforced);
}

// Ours: report mode never forwards to a prohibited address.
#[test]
fn egress_is_enforced_in_report_mode() {
    let policy =
        Policy::new(Unauthorized::Allow).with(|terms| terms.mode = EnforcementMode::Report);
    let asked = inquiry("FooBot/2.1", "http://h.test/a");
    let denied = Decision::denied(asked, &Arc::new(policy), now(), "denied".to_owned());
    assert_eq!(reported(denied), (false, Effect::Enforced));
}

// Invariant 2 (ARCHITECTURE.md): the effect must follow from the policy on record.
#[test]
fn the_mode_is_part_of_the_policy() {
    let policy = Policy::new(Unauthorized::Allow);
    let reporting = policy
        .clone()
        .with(|terms| terms.mode = EnforcementMode::Report);
    assert_ne!(reporting.digest(), policy.digest());
    let restored = Policy::restore(reporting.json()).unwrap();
    assert_eq!(restored.terms().mode, EnforcementMode::Report);
    assert_eq!(
        reporting.for_redirects().terms().mode,
        EnforcementMode::Enforce
    );
}
