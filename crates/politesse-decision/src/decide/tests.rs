//! Data in, verdict out.

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
fn the_rule_and_its_line_are_named() {
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
fn without_a_rule_the_reason_says_which_is_missing() {
    assert_eq!(
        said(&decided(&file("User-agent: *\nDisallow: /x\n"), "/a")),
        (Verdict::Allow, Reason::NoRule)
    );
    assert_eq!(
        said(&decided(&file("User-agent: o\nDisallow: /\n"), "/a")),
        (Verdict::Allow, Reason::NoGroup)
    );
}

// RFC 9309, section 2.2.2: "The /robots.txt URI is implicitly allowed"; these
// bytes and no others.
#[test]
fn robots_txt_itself_is_allowed_and_nothing_that_looks_like_it() {
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

// Ours: RFC 9309, section 2.2.2, knows no methods.
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

// Ours: in the dialect `google` rules are compared as written.
#[test]
fn a_reading_of_robots_txt_is_judged_as_it_is_where_nothing_is_exempt() {
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

// Ours: what is forwarded for it waits its turn as a page does.
#[test]
fn the_pace_that_is_asked_for_is_that_of_robots_txt_too() {
    let snapshot = file("User-agent: foobot\nCrawl-delay: 30\nDisallow: /\n");
    let decision = decided(&snapshot, "/robots.txt");
    assert_eq!(said(&decision), (Verdict::Allow, Reason::RobotsTxt));
    assert_eq!(decision.ruling().crawl_delay(), Some(30.0));
}

// Ours: the exemption is for the bytes as sent.
#[test]
fn a_spelling_that_is_read_as_robots_txt_is_judged_by_its_rules() {
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
fn not_knowing_means_no_and_no_file_means_yes() {
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

// The draft of 1996, section 3.1, where the operator asks for it.
#[test]
fn a_401_or_403_refuses_where_configured() {
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

// RFC 3986, section 5.2.4: what servers serve as /private is /private.
#[test]
fn a_disallowed_reading_refuses_and_is_named() {
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
fn a_permit_wants_the_receipt_for_its_own_decision() {
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

// Ours: docs/decisions/021-decision-digest.md, read by a second implementation.
#[test]
fn the_digest_is_over_the_documented_encoding() {
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
fn only_a_whole_copy_that_came_as_a_200_answers_for_the_origin() {
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

// Policies stored before there were candidates, overrides and the readings of
// servers.
#[test]
fn a_policy_of_an_earlier_version_is_restored_with_its_digest() {
    let json = r#"{"unauthorized":"allow","readings":"dots"}"#;
    let policy = Policy::restore(json).unwrap();
    assert_eq!(policy.json(), json);
    assert_eq!(policy.terms().revision, Revision::FIRST);
    let changed = policy.with(|terms| terms.readings = Readings::Server);
    assert_eq!(changed.terms().revision, Revision::FIRST);
}

// A change of the engine must not look like a change of the record.
#[test]
fn a_policy_names_the_revision_of_the_engine_and_its_digest_follows() {
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

/// One test a row: what is said of a path by each level, where /private is
/// disallowed, and the reading that is named.
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

// Ours: old decision records are decided again by `dots`.
levels! {
    as_sent_dots_are_bytes: "/a/../private" by Sent is (Verdict::Allow, None);
    as_sent_slashes_are_bytes: "//private" by Sent is (Verdict::Allow, None);
    as_sent_escapes_are_still_the_bytes: "/%70rivate" by Sent is (Verdict::Disallow, None);
    dots_are_read_by_dots: "/a/../private" by Dots is (Verdict::Disallow, Some("/private"));
    dots_knows_no_merged_slashes: "//private" by Dots is (Verdict::Allow, None);
    dots_knows_no_empty_query: "/a/../x?" by Dots is (Verdict::Allow, None);
    servers_read_dots: "/a/../private" by Server is (Verdict::Disallow, Some("/private"));
    servers_merge_slashes: "//private" by Server is (Verdict::Disallow, Some("/private"));
    servers_cut_parameters: "/a/..;/private?x" by Server is (Verdict::Disallow, Some("/private?x"));
    servers_never_decode_twice: "/%2570rivate" by Server is (Verdict::Allow, None);
    what_is_refused_as_sent_names_no_reading: "/private//x" by Server is (Verdict::Disallow, None);
    a_reading_that_is_allowed_is_not_named: "//public" by Server is (Verdict::Allow, None);
}

/// One test a row: what a rule says of a path by each level.
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

// Ours: servers take a reserved byte of a path and its escape for one.
forms! {
    an_escape_in_a_rule_is_its_byte_to_servers: "Disallow: /Special%3ARandom" on "/Special:Random" by Server is Disallow;
    not_as_sent: "Disallow: /Special%3ARandom" on "/Special:Random" by Sent is Allow;
    not_by_dots: "Disallow: /Special%3ARandom" on "/Special:Random" by Dots is Allow;
    a_byte_in_a_rule_is_its_escape_to_servers: "Disallow: /Special:Random" on "/Special%3ARandom" by Server is Disallow;
    an_escape_in_lower_case_is_one: "Disallow: /Special%3aRandom" on "/Special:Random" by Server is Disallow;
    both_may_be_mixed: "Disallow: /a%3Ab,c%3Dd" on "/a:b%2Cc=d" by Server is Disallow;
    a_wildcard_stays_one: "Disallow: /*%3ARandom" on "/wiki/Special:Random" by Server is Disallow;
    an_escaped_wildcard_is_none: "Disallow: /a%2Ab" on "/axb" by Server is Allow;
    an_escaped_end_is_none: "Disallow: /a%24" on "/a" by Server is Allow;
    an_end_stays_one: "Disallow: /a%3A$" on "/a:b" by Server is Allow;
    an_end_is_found: "Disallow: /a%3A$" on "/a:" by Server is Disallow;
    an_escaped_slash_is_a_slash_to_servers: "Disallow: /a%2Fb" on "/a/b" by Server is Disallow;
    an_escaped_question_mark_begins_no_query: "Disallow: /a%3Fb" on "/a?b" by Server is Allow;
    a_question_mark_in_a_name_is_no_query: "Disallow: /*?" on "/who%3F" by Server is Allow;
    an_escaped_slash_beside_a_wildcard_is_no_slash: "Disallow: /*%2F*" on "/css/site.css" by Server is Allow;
    an_escaped_slash_beside_a_wildcard_is_one_that_is_sent_so: "Disallow: /*%2F*" on "/css%2fsite.css" by Server is Disallow;
    other_escapes_beside_a_wildcard_are_decoded: "Disallow: /*%2Fa%3Ab" on "/x%2Fa:b" by Server is Disallow;
    a_percent_sign_is_not_decoded: "Disallow: /a%253Ab" on "/a:b" by Server is Allow;
    path_and_query_are_both_tried: "Disallow: /a%3Ab?c=%3D" on "/a:b?c==" by Server is Disallow;
    a_name_with_a_question_mark_is_found_with_its_query: "Disallow: /a%3Ab%3F*=%3F" on "/a:b%3F?c=?" by Server is Disallow;
    an_allow_is_tried_as_written: "Disallow: /\nAllow: /Special%3ARandom" on "/Special:Random" by Server is Disallow;
    a_longer_allow_counts_before_it: "Disallow: /a%3Ab\nAllow: /a:b/cccc" on "/a:b/cccc" by Server is Allow;
    a_form_counts_by_its_length_as_written: "Disallow: /a%3Ab\nAllow: /a:b/" on "/a:b/c" by Server is Disallow;
    every_reading_is_tried: "Disallow: /Special%3ARandom" on "/x/../Special:Random" by Server is Disallow;
    marks_are_taken_off_before: "Disallow: /a%3Ab\u{a0}" on "/a:b" by Server is Disallow;
    marks_are_taken_off_as_sent: "Disallow: /a\u{a0}" on "/a" by Sent is Disallow;
}

// Ours: the rule that refuses is named, and the spelling of the path that it means.
#[test]
fn a_form_of_a_rule_that_servers_read_is_evidence_by_its_line() {
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

// Ours: as they were, since other parsers read them so.
#[test]
fn other_dialects_compare_the_written_path_alone() {
    let rules = "User-agent: *\nDisallow: /Special%3ARandom\n";
    for dialect in Dialect::ALL {
        let copy = RobotsFile::read(Bytes::from(rules), dialect);
        let robots = snapshot(200, AccessResult::Successful(Arc::new(copy)));
        let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.dialect = dialect);
        let asked = inquiry("FooBot", "http://h.test/Special:Random");
        let decision = decide(&asked, &robots, &Arc::new(policy), now());
        // Those of 1994 and 1996 decode both sides.
        let decodes = [Dialect::Draft1996, Dialect::Consensus1994, Dialect::Conner];
        let refuses = dialect == Dialect::Rfc9309 || decodes.contains(&dialect);
        let disallowed = decision.ruling().verdict == Verdict::Disallow;
        assert_eq!(disallowed, refuses, "{dialect}");
    }
}

// Ours: an Allow that only another reading meets opens nothing.
#[test]
fn an_allow_of_another_reading_opens_nothing() {
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

/// Returns a policy of `overrides`, each with the keys of the configuration.
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

/// One test a row: what a crawler of several names is told of /x, by which
/// line and as whom, where all of its candidates count.
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
    one_candidate_that_is_disallowed_is_enough:
        "User-agent: FooBot-News\nAllow: /\nUser-agent: FooBot\nDisallow: /x\n"
        says (Verdict::Disallow, Some(4), Some("FooBot"));
    the_first_candidate_that_is_disallowed_is_named:
        "User-agent: FooBot\nDisallow: /\nUser-agent: FooBot-News\nDisallow: /x\n"
        says (Verdict::Disallow, Some(4), Some("FooBot-News"));
    all_that_are_allowed_are_allowed:
        "User-agent: FooBot\nAllow: /\nUser-agent: FooBot-News\nAllow: /x\n"
        says (Verdict::Allow, Some(4), Some("FooBot-News"));
    a_candidate_without_a_group_asks_for_nothing:
        "User-agent: FooBot\nAllow: /\nUser-agent: *\nDisallow: /\n"
        says (Verdict::Allow, Some(2), Some("FooBot"));
    without_any_group_everyone_s_binds:
        "User-agent: BarBot\nAllow: /\nUser-agent: *\nDisallow: /\n"
        says (Verdict::Disallow, Some(4), None);
    without_everyone_s_group_nothing_binds:
        "User-agent: BarBot\nDisallow: /\n"
        says (Verdict::Allow, None, None);
}

// Ours: the default.
#[test]
fn the_first_candidate_with_a_group_is_bound_alone() {
    let robots = file("User-agent: FooBot-News\nAllow: /\nUser-agent: FooBot\nDisallow: /x\n");
    let policy = laid_down(Candidates::First, &[]);
    let asked = inquiry("FooBot-News/1 (FooBot; +http://f.test)", "http://h.test/x");
    let decision = decide(&asked, &robots, &policy, now());
    assert_eq!(said(&decision), (Verdict::Allow, Reason::Rule));
}

#[test]
fn of_all_candidates_the_longest_delay_counts() {
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

/// Returns what is decided of a path under `overrides`, and kept of it.
fn kept(overrides: &[&str], snapshot: &Arc<Snapshot>, path: &str) -> (StoredRuling, Effect) {
    let policy = laid_down(Candidates::First, overrides);
    let asked = inquiry("FooBot/2.1", &format!("http://h.test{path}"));
    let decision = decide(&asked, snapshot, &policy, now());
    let evidence = decision.evidence();
    (StoredRuling::of(evidence), Effect::of(evidence))
}

/// One test a row: verdict, reason, line and effect of a path where robots.txt
/// disallows /open and /private.
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
    an_allow_sets_the_rule_aside_and_names_it: [OPEN], "/open/a" says ("allow", "rule", Some(2), "overridden");
    an_allow_of_what_is_allowed_changes_nothing: [ANYTHING], "/x" says ("allow", "no_rule", None, "enforced");
    a_deny_is_its_own_reason: [CLOSED], "/closed/a" says ("disallow", "override", None, "enforced");
    a_deny_of_what_is_disallowed_changes_nothing:
        [r#"{"origin":"http://h.test","action":"deny","reason":"x"}"#], "/private"
        says ("disallow", "rule", Some(3), "enforced");
    the_first_that_fits_is_the_one: [ANYTHING, CLOSED], "/closed" says ("allow", "no_rule", None, "enforced");
    what_does_not_fit_changes_nothing: [OPEN, CLOSED], "/private" says ("disallow", "rule", Some(3), "enforced");
    robots_txt_is_never_denied:
        [r#"{"origin":"http://h.test","action":"deny","reason":"x"}"#], "/robots.txt"
        says ("allow", "robots_txt", None, "enforced");
    a_denied_reading_refuses: [CLOSED], "/x/../closed" says ("disallow", "override", None, "enforced");
    an_allowed_path_does_not_open_another_reading:
        [OPEN], "/open/../private" says ("disallow", "rule", Some(2), "enforced");
    an_allowed_path_does_not_open_a_reading_of_servers:
        [OPEN], "/open/..;/private" says ("disallow", "rule", Some(2), "enforced");
    a_deny_fits_the_reading_of_a_server: [CLOSED], "/x/..%2f/closed" says ("disallow", "override", None, "enforced");
    a_deny_fits_behind_what_is_disallowed: [CLOSED], "//private/closed" says ("disallow", "rule", Some(3), "enforced");
    an_allow_for_all_readings_of_servers_opens_them: [ANYTHING], "/x/..;/private" says ("allow", "rule", Some(3), "overridden");
    an_allow_for_all_readings_opens_them: [ANYTHING], "/x/../private" says ("allow", "rule", Some(3), "overridden");
}

#[test]
fn an_override_cites_itself_and_the_reading_it_denies() {
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

// Ours: an override may stand in for a robots.txt that is not to be had.
#[test]
fn an_allow_holds_where_robots_txt_is_not_to_be_had() {
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

// Ours: what may not be dialled stays so.
#[test]
fn no_override_lifts_an_egress_denial() {
    let policy = laid_down(Candidates::First, &[ANYTHING]);
    let asked = inquiry("FooBot", "http://h.test/a");
    let decision = Decision::denied(asked, &policy, now(), "denied".to_owned());
    assert_eq!(said(&decision), (Verdict::Disallow, Reason::Egress));
}

// Invariant 2 (ARCHITECTURE.md): what is kept in microseconds decides again as
// it was decided.
#[test]
fn an_end_within_the_microsecond_of_a_decision_is_seen_alike_twice() {
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

// Ours: nobody asked for what a robots.txt redirects to.
#[test]
fn no_override_allows_what_a_redirect_leads_to() {
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

/// Returns what a receipt for a decision in report mode comes to, and what the
/// record says was done.
fn reported(decision: Decision) -> (bool, Effect) {
    let effect = Effect::of(decision.evidence());
    let receipt = Receipt::issue(1, decision.evidence());
    (decision.into_permit(&receipt).is_ok(), effect)
}

/// One test a row: whether report mode forwards, and what the record says.
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
    what_a_rule_disallows_is_reported:
        file("User-agent: *\nDisallow: /private\n"), "/private/x" says (true, Effect::Reported);
    another_reading_that_is_disallowed_is_reported:
        file("User-agent: *\nDisallow: /private\n"), "/a/../private" says (true, Effect::Reported);
    what_is_allowed_is_as_ever:
        file("User-agent: *\nDisallow: /private\n"), "/a" says (true, Effect::Enforced);
    what_an_override_opens_is_overridden:
        file("User-agent: *\nDisallow: /\n"), "/open/a" says (true, Effect::Overridden);
    what_the_operator_denies_is_reported:
        file("User-agent: *\n"), "/closed" says (true, Effect::Reported);
    what_is_restricted_is_reported:
        snapshot(403, AccessResult::Unavailable), "/a" says (true, Effect::Reported);
    what_is_unreachable_is_reported:
        unreachable(Cause::Timeout), "/a" says (true, Effect::Reported);
    without_a_connection_there_is_nothing_to_report:
        unreachable(Cause::NoConnection(NoConnection::Refused)), "/a" says (false, Effect::Enforced);
}

// Ours: never forwarded.
#[test]
fn egress_is_enforced_in_report_mode() {
    let policy =
        Policy::new(Unauthorized::Allow).with(|terms| terms.mode = EnforcementMode::Report);
    let asked = inquiry("FooBot/2.1", "http://h.test/a");
    let denied = Decision::denied(asked, &Arc::new(policy), now(), "denied".to_owned());
    assert_eq!(reported(denied), (false, Effect::Enforced));
}

// Invariant 2 (ARCHITECTURE.md): what was done follows from the policy.
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
