//! RFC 9309 point by point, where no connection is needed. Each point has a test that
//! cites its section.
//!
//! Points about fetching are tested in `robots.rs`, `unreachable.rs` and
//! `crates/politesse-robots-cache`.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use politesse_decision::access::Cause;
use politesse_decision::decide::{Inquiry, Policy, Reason, Ruling, Unauthorized, Verdict, decide};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use politesse_robots::{Dialect, Judgement, NoteKind, RobotsTxt, RuleKind, whole_lines};

use Said::{Allow, Disallow, NoGroup, NoRule, RobotsItself};

use crate::kit::client::get;
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;

/// Verdict of a file on a path, with the line of the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Allow(u32),
    Disallow(u32),
    NoRule,
    NoGroup,
    RobotsItself,
    Undecided,
}

impl Said {
    fn by_judgement(judgement: &Judgement<'_>) -> Self {
        let said = match judgement {
            Judgement::Rule(rule) => match rule.kind() {
                RuleKind::Allow => Allow(rule.line()),
                RuleKind::Disallow => Disallow(rule.line()),
            },
            Judgement::NoRule => NoRule,
            Judgement::NoGroup => NoGroup,
            Judgement::RobotsTxt => RobotsItself,
            Judgement::Undecided => Self::Undecided,
        };
        let refuses = matches!(said, Disallow(_) | Self::Undecided);
        assert_eq!(judgement.allows(), !refuses);
        said
    }

    /// Converts a ruling; `None` if the file was not consulted.
    fn by_ruling(ruling: &Ruling) -> Option<Self> {
        let line = ruling.rule.as_ref().and_then(|rule| rule.line);
        Some(match (ruling.reason, ruling.verdict, line) {
            (Reason::Rule, Verdict::Allow, Some(line)) => Allow(line),
            (Reason::Rule, Verdict::Disallow, Some(line)) => Disallow(line),
            (Reason::NoRule, Verdict::Allow, None) => NoRule,
            (Reason::NoGroup, Verdict::Allow, None) => NoGroup,
            (Reason::RobotsTxt, Verdict::Allow, None) => RobotsItself,
            (Reason::Undecided, Verdict::Disallow, None) => Self::Undecided,
            _ => return None,
        })
    }
}

/// Returns the verdict of `file` on `path` for `agent`, asked through every interface,
/// which must agree.
pub(crate) fn said(dialect: Dialect, file: &[u8], agent: &str, path: &str) -> Said {
    let robots = RobotsTxt::in_dialect(file.to_vec(), dialect);
    let said = Said::by_judgement(&robots.binding(&Crawler::parse(agent)).judge(path));
    let copy = RobotsFile::read(Bytes::copy_from_slice(file), dialect);
    let result = AccessResult::Successful(Arc::new(copy));
    let ruling = ruling((dialect, 200, result), agent, path);
    assert_eq!(Said::by_ruling(&ruling), Some(said), "{dialect} {path}");
    if dialect == Dialect::Rfc9309 {
        assert_eq!(RobotsTxt::parse(file), robots);
    }
    said
}

/// Returns the ruling on a path as sent, years after robots.txt was fetched with this
/// result.
pub(crate) fn ruling(
    (dialect, status, result): (Dialect, u16, AccessResult),
    agent: &str,
    path: &str,
) -> Ruling {
    let target: Target = format!("http://h.test{path}").parse().unwrap();
    let inquiry = Inquiry {
        crawler: Crawler::parse(agent),
        target: target.clone(),
        method: "GET".into(),
    };
    let snapshot = Snapshot {
        url: target.origin.robots_txt().to_string(),
        hops: Vec::new(),
        key: CacheKey::new(target.origin, None),
        status: Some(status),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result,
        stale: None,
        tdm: None,
    };
    let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.dialect = dialect);
    let years_later = Timestamp::from_second(1_800_000_000).unwrap();
    let policy = Arc::new(policy.as_sent());
    decide(
        &Arc::new(inquiry),
        &Arc::new(snapshot),
        &policy,
        years_later,
    )
    .ruling()
    .clone()
}

/// Returns the verdict of RFC 9309 on `path` for FooBot.
fn verdict_for_foobot(file: &[u8], path: &str) -> Said {
    said(Dialect::Rfc9309, file, "FooBot", path)
}

/// Generates a test for each row: a file, and its verdicts on paths for FooBot.
macro_rules! files {
    ($($name:ident: $file:expr $(, $path:literal $said:expr)+;)*) => {$(
        #[test]
        fn $name() {
            let file: &[u8] = $file.as_ref();
            $(assert_eq!(verdict_for_foobot(file, $path), $said, "{}", $path);)+
        }
    )*};
}

/// Returns the lines of `file` that have a note of this kind.
fn noted(file: &RobotsTxt, kind: NoteKind) -> Vec<u32> {
    let notes = file.notes().filter(|note| note.kind == kind);
    notes.map(|note| note.line).collect()
}

// RFC 9309, section 2.1.
files! {
    agent_line_after_a_rule_begins_a_group:
        "User-agent: foobot\nDisallow: /a\nUser-agent: barbot\nDisallow: /b", "/a" Disallow(2), "/b" NoRule;
    agent_lines_in_a_row_share_the_rules_below:
        "User-agent: foobot\nUser-agent: barbot\nDisallow: /a", "/a" Disallow(3);
    blank_lines_and_comments_end_no_group:
        "User-agent: foobot\n\n#\nDisallow: /a\n \n# x\nDisallow: /b", "/a" Disallow(4), "/b" Disallow(7);
}

// RFC 9309, section 2.1.
files! {
    empty_last_group_allows_everything: "User-agent: *\nDisallow: /\n\nUser-agent: foobot\n", "/a" NoRule;
    agents_of_an_empty_last_group_are_all_allowed:
        "User-agent: *\nDisallow: /\n\nUser-agent: foobot\nUser-agent: barbot", "/a" NoRule;
}

// RFC 9309, section 2.2.
files! {
    field_names_are_case_insensitive: "USER-AGENT: foobot\ndISaLLOW: /a", "/a" Disallow(2);
    blanks_around_name_colon_and_value_are_ignored:
        " \tUser-agent \t:\t foobot \t\n\t Disallow\t:/a\t", "/a" Disallow(2);
    comment_ends_with_its_line:
        "User-agent: foobot # Disallow: /c\nDisallow: /a#b\nDisallow: /b",
        "/a" Disallow(2), "/b" Disallow(3), "/c" NoRule;
    only_the_first_colon_separates: "User-agent: foobot\nDisallow: /a:b", "/a:b" Disallow(2), "/a" NoRule;
    every_kind_of_line_end_ends_a_line_and_counts_once:
        "User-agent: foobot\r\nDisallow: /a\rDisallow: /b\n\rDisallow: /c\r\r\nDisallow: /d",
        "/a" Disallow(2), "/b" Disallow(3), "/c" Disallow(5), "/d" Disallow(7);
    last_line_needs_no_end: "User-agent: foobot\nDisallow: /a", "/a" Disallow(2);
}

// RFC 9309, section 2.2.
#[test]
fn files_with_different_line_ends_have_the_same_meaning() {
    let lines = ["User-agent: foobot", "Disallow: /a", "", "Allow: /a/b"];
    for end in ["\n", "\r", "\r\n"] {
        let file = lines.join(end).into_bytes();
        assert_eq!(verdict_for_foobot(&file, "/a"), Disallow(2), "{end:?}");
        assert_eq!(verdict_for_foobot(&file, "/a/b"), Allow(4), "{end:?}");
    }
}

// RFC 9309, sections 2.2 and 5.1.
files! {
    pattern_may_begin_with_a_star: "User-agent: *\nDisallow: *.gif$",
        "/x/y.gif" Disallow(2), "/y.gifs" NoRule;
    pattern_without_a_slash_matches_nothing:
        "User-agent: *\nDisallow: a\nDisallow: http://h.test/b\nDisallow: ?",
        "/a" NoRule, "/b" NoRule, "/?" NoRule;
}

// RFC 9309, section 2.2.
#[test]
fn pattern_without_a_slash_is_noted() {
    let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: a\nDisallow: *b\nAllow:\n");
    assert_eq!(noted(&robots, NoteKind::NeverMatches), [2]);
}

// RFC 9309, section 2.2.
files! {
    empty_pattern_matches_nothing: "User-agent: *\nDisallow: /a\nAllow:\nDisallow:",
        "/a" Disallow(2), "/b" NoRule;
    empty_pattern_is_a_rule_and_ends_the_list_of_agents:
        "User-agent: foobot\nDisallow:\nUser-agent: barbot\nDisallow: /", "/a" NoRule;
}

// RFC 9309, section 2.2.1.
files! {
    agent_name_ends_before_the_first_invalid_character: "User-agent: foobot/2.0 (x)\nDisallow: /a",
        "/a" Disallow(2);
    longer_agent_name_is_a_different_crawler: "User-agent: foobot-news\nDisallow: /", "/a" NoGroup;
    part_of_the_agent_name_is_a_different_crawler: "User-agent: foo\nUser-agent: bot\nDisallow: /", "/a" NoGroup;
}

// RFC 9309, section 2.2.1.
files! {
    product_tokens_are_case_insensitive: "User-agent: FOObot\nDisallow: /a", "/a" Disallow(2);
}

// RFC 9309, section 2.2.1.
files! {
    all_groups_that_name_the_crawler_are_combined:
        "User-agent: foobot\nDisallow: /a\n\nUser-agent: barbot\nDisallow: /\n\nUser-agent: FooBot\nAllow: /a/b",
        "/a" Disallow(2), "/a/b" Allow(8), "/c" NoRule;
    own_group_replaces_the_group_for_everyone:
        "User-agent: *\nDisallow: /\n\nUser-agent: foobot\nDisallow: /a", "/b" NoRule;
}

// RFC 9309, section 2.2.1.
files! {
    all_groups_for_everyone_bind_an_unnamed_crawler:
        "User-agent: *\nDisallow: /a\n\nUser-agent: barbot\nDisallow: /\n\nUser-agent: *\nDisallow: /b",
        "/a" Disallow(2), "/b" Disallow(8), "/c" NoRule;
}

// RFC 9309, section 2.2.1.
files! {
    crawler_without_a_group_is_allowed_everything: "User-agent: barbot\nDisallow: /", "/a" NoGroup;
    empty_file_allows_everything: "", "/a" NoGroup;
}

// RFC 9309, section 2.2.2.
files! {
    match_begins_at_the_first_byte: "User-agent: *\nDisallow: /a", "/ab" Disallow(2), "/b/a" NoRule;
    both_kinds_of_rule_are_matched_with_path_and_query:
        "User-agent: *\nDisallow: /a?b\nAllow: /a?b=1",
        "/a?b" Disallow(2), "/a?b=1" Allow(3), "/a?c&b" NoRule;
}

// RFC 9309, section 2.2.2.
files! {
    paths_are_case_sensitive: "User-agent: *\nDisallow: /a", "/A" NoRule;
}

// RFC 9309, section 2.2.2.
files! {
    longest_rule_wins_in_any_order:
        "User-agent: *\nAllow: /a/b\nDisallow: /a\nDisallow: /a/b/c",
        "/a" Disallow(3), "/a/b" Allow(2), "/a/b/c" Disallow(4);
    rule_length_counts_bytes_beyond_ascii_as_encoded: "User-agent: *\nDisallow: /\u{e9}\nAllow: /*****", "/%C3%A9" Disallow(2);
    rule_length_counts_unreserved_escapes_as_decoded: "User-agent: *\nDisallow: /%61%62\nAllow: /ab*", "/ab" Allow(3);
    rule_length_counts_the_pattern_and_not_the_match:
        "User-agent: *\nDisallow: /a*\nAllow: /abc", "/abcdefgh" Allow(3);
}

// RFC 9309, section 2.2.2.
files! {
    allow_wins_among_rules_of_equal_length: "User-agent: *\nAllow: /a\nDisallow: /a\nAllow: /%61", "/a" Allow(2);
}

// RFC 9309, section 2.2.2.
files! {
    repeated_rules_change_nothing:
        "User-agent: *\nDisallow: /a\nDisallow: /a\nAllow: /a/b\nDisallow: /a\nAllow: /a/b",
        "/a" Disallow(2), "/a/b" Allow(4);
}

// RFC 9309, section 2.2.2.
files! {
    path_that_no_rule_matches_is_allowed: "User-agent: *\nDisallow: /a", "/b" NoRule, "/" NoRule;
}

// RFC 9309, section 2.2.2.
files! {
    robots_txt_itself_is_allowed_and_no_other_path:
        "User-agent: *\nDisallow: /",
        "/robots.txt" RobotsItself, "/robots.txt?x" Disallow(2), "/x/robots.txt" Disallow(2);
}

// RFC 9309, section 2.2.2, with RFC 3986, section 2.
files! {
    bytes_beyond_ascii_equal_their_escapes:
        "User-agent: *\nDisallow: /\u{30c4}\nDisallow: /%C3%A9",
        "/%E3%83%84" Disallow(2), "/%e3%83%84" Disallow(2), "/\u{30c4}" Disallow(2), "/\u{e9}" Disallow(3);
    escapes_of_unreserved_bytes_are_decoded_on_both_sides:
        "User-agent: *\nDisallow: /%7Ea\nDisallow: /~b", "/~a" Disallow(2), "/%7eb" Disallow(3);
    escaped_slash_differs_from_a_slash: "User-agent: *\nDisallow: /a%2Fb\nDisallow: /c/d",
        "/a/b" NoRule, "/a%2fb" Disallow(2), "/c%2Fd" NoRule;
    escapes_are_decoded_once: "User-agent: *\nDisallow: /%2561",
        "/%2561" Disallow(2), "/%61" NoRule, "/a" NoRule;
}

// RFC 9309, section 2.2.2, the table's second row.
files! {
    disallow_matches_a_query_in_either_form:
        "User-agent: *\nDisallow: /r?u=https://x.y\nDisallow: /s?u=https%3A%2F%2Fx.y",
        "/r?u=https%3A%2F%2Fx.y" Disallow(2), "/s?u=https://x.y" Disallow(3);
    allow_matches_a_query_as_written: "User-agent: *\nDisallow: /\nAllow: /r?u=:",
        "/r?u=%3A" Disallow(2), "/r?u=:" Allow(3);
    reserved_byte_of_a_path_differs_from_its_escape: "User-agent: *\nDisallow: /a%3Db", "/a=b" NoRule;
}

// RFC 9309, section 2.2.2.
files! {
    rule_outside_a_group_is_ignored: "Disallow: /\nUser-agent: foobot\nDisallow: /a",
        "/a" Disallow(3), "/b" NoRule;
    rule_below_a_commented_agent_line_is_ignored: "#User-agent: foobot\nDisallow: /", "/a" NoGroup;
}

// RFC 9309, section 2.2.3.
files! {
    number_sign_begins_a_comment_inside_a_pattern: "User-agent: *\nDisallow: /a#b", "/a" Disallow(2);
    dollar_ends_a_pattern: "User-agent: *\nDisallow: /a$", "/a" Disallow(2), "/ab" NoRule, "/a?b" NoRule;
    dollar_inside_a_pattern_is_literal: "User-agent: *\nDisallow: /a$b", "/a$b" Disallow(2), "/a" NoRule;
    star_matches_any_number_of_bytes: "User-agent: *\nDisallow: /a*c$",
        "/ac" Disallow(2), "/a/b?b/c" Disallow(2), "/acb" NoRule;
}

// RFC 9309, section 2.2.3.
files! {
    escaped_star_is_literal: "User-agent: *\nDisallow: /a%2Ab",
        "/a*b" Disallow(2), "/a%2ab" Disallow(2), "/axb" NoRule;
    escaped_dollar_is_literal: "User-agent: *\nDisallow: /a%24", "/a$" Disallow(2), "/a" NoRule;
    star_in_a_path_is_literal: "User-agent: *\nDisallow: /abc", "/a*c" NoRule;
}

// RFC 9309, section 2.2.4. The last row follows from the RFC's grammar: a delay does not
// end a list of agents.
files! {
    other_records_end_no_group:
        "User-agent: foobot\nSitemap: /s\nDisallow: /a\nCrawl-delay: 9\nX: y\nDisallow: /b",
        "/a" Disallow(3), "/b" Disallow(6);
    record_names_are_compared_whole: "User-agent: *\nDisallow-AI: /a\nDisallows: /b",
        "/a" NoRule, "/b" NoRule;
    misspelt_allow_allows_nothing:
        "User-agent: *\nDisallow: /\nallowed: /a\nalow: /a\nallow-all: /a\nAlllow: /a", "/a" Disallow(2);
    delay_between_agent_lines_joins_their_groups:
        "User-agent: *\nCrawl-delay: 9\nUser-agent: barbot\nDisallow: /", "/a" Disallow(4);
}

// RFC 9309, section 2.2.4.
#[test]
fn agents_joined_across_another_record_are_noted() {
    let robots =
        RobotsTxt::parse(b"User-agent: *\nCrawl-delay: 9\nUser-agent: barbot\nDisallow: /");
    assert_eq!(noted(&robots, NoteKind::JoinsGroup), [3]);
}

// RFC 9309, section 2.2.4: crawlers may accept misspelt records.
#[test]
fn misspelt_disallow_and_agent_lines_are_understood_and_noted() {
    let names = [
        "dissallow",
        "dissalow",
        "disalow",
        "diasllow",
        "disallaw",
        "Disallowed",
    ];
    for name in names {
        let file = format!("User-agent: *\n{name}: /a");
        assert_eq!(
            verdict_for_foobot(file.as_bytes(), "/a"),
            Disallow(2),
            "{name}"
        );
        let robots = RobotsTxt::parse(file.as_bytes());
        assert_eq!(noted(&robots, NoteKind::Misspelt), [2]);
    }
    for name in ["useragent", "User agent"] {
        let file = format!("Disallow:\n{name}: foobot\nDisallow: /a");
        assert_eq!(
            verdict_for_foobot(file.as_bytes(), "/a"),
            Disallow(3),
            "{name}"
        );
        let robots = RobotsTxt::parse(file.as_bytes());
        assert_eq!(noted(&robots, NoteKind::Misspelt), [2]);
    }
}

// RFC 9309, section 2.2.4.
#[test]
fn lines_of_two_words_are_read_as_if_with_a_colon() {
    let file = b"User-agent foobot\nDisallow\t/a # x\nDisallow /b c";
    assert_eq!(verdict_for_foobot(file, "/a"), Disallow(2));
    assert_eq!(verdict_for_foobot(file, "/b"), NoRule);
    let robots = RobotsTxt::parse(file);
    assert_eq!(noted(&robots, NoteKind::WithoutColon), [1, 2]);
    assert_eq!(noted(&robots, NoteKind::NotARecord), [3]);
}

/// Malformed lines, as found in real files.
const MALFORMED: [&[u8]; 14] = [
    b"Disallow",
    b"Disallow /a b",
    b"Disallow; /",
    b"Allow /a b c",
    b"User-agent",
    b": /",
    b":",
    b"/",
    b"*",
    b"<p>Disallow: /</p>",
    b"Dis\0allow: /",
    b"\0\x01\xFF\xFE",
    b"All\xC3: /",
    b"\x0B",
];

// RFC 9309, section 2.3.1.5.
#[test]
fn malformed_line_ends_no_group_and_changes_no_verdict() {
    let lines: [&[u8]; 8] = [
        b"User-agent: foobot",
        b"User-agent: barbot",
        b"Disallow: /a",
        b"Allow: /a/b$",
        b"",
        b"User-agent: *",
        b"Disallow: /*c",
        b"Allow: /c",
    ];
    let before = lines.join(&b'\n');
    for agent in ["FooBot", "BarBot", "BazBot"] {
        for path in ["/", "/a", "/a/b", "/a/bc", "/c", "/dc"] {
            let expected = said(Dialect::Rfc9309, &before, agent, path);
            for (place, malformed) in insertions(&lines) {
                let file = with_line(&lines, place, malformed);
                let found = said(Dialect::Rfc9309, &file, agent, path);
                let text = String::from_utf8_lossy(malformed);
                assert_eq!(
                    found,
                    shifted(expected, place),
                    "{agent} {path} {place} {text}"
                );
            }
        }
    }
}

/// Pairs each malformed line with each position in a file of `lines`.
fn insertions(lines: &[&[u8]]) -> impl Iterator<Item = (usize, &'static [u8])> {
    let places = 0..=lines.len();
    places.flat_map(|place| MALFORMED.map(|line| (place, line)))
}

fn with_line(lines: &[&[u8]], place: usize, line: &[u8]) -> Vec<u8> {
    let mut lines = lines.to_vec();
    lines.insert(place, line);
    lines.join(&b'\n')
}

/// Returns `said` for a file with one more line inserted after its first `place` lines.
fn shifted(said: Said, place: usize) -> Said {
    let moved = |line: u32| line + u32::from(place < line as usize);
    match said {
        Allow(line) => Allow(moved(line)),
        Disallow(line) => Disallow(moved(line)),
        NoRule | NoGroup | RobotsItself | Said::Undecided => said,
    }
}

// RFC 9309, sections 2.2.2 and 2.3: files are UTF-8; other encodings may be accepted.
files! {
    byte_order_mark_is_ignored: b"\xEF\xBB\xBFUser-agent: *\nDisallow: /a",
        "/a" Disallow(2);
    two_bytes_of_a_byte_order_mark_are_ignored: b"\xEF\xBBUser-agent: *\nDisallow: /a", "/a" Disallow(2);
    one_byte_of_a_byte_order_mark_is_ignored: b"\xEFUser-agent: *\nDisallow: /a", "/a" Disallow(2);
}

/// Encodes `text` as UTF-16, with `bytes` to order the bytes of a unit.
fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

// RFC 9309, section 2.2.2.
#[test]
fn files_in_utf16_are_read_in_either_order_with_and_without_a_mark() {
    let text = "User-agent: *\r\nDisallow: /a\rDisallow: /\u{30c4}\u{1f600}\n";
    let (little, big) = (utf16(text, u16::to_le_bytes), utf16(text, u16::to_be_bytes));
    let marked = [
        [b"\xFF\xFE", &*little].concat(),
        [b"\xFE\xFF", &*big].concat(),
    ];
    for file in marked.into_iter().chain([little, big]) {
        assert_eq!(verdict_for_foobot(&file, "/a"), Disallow(2));
        assert_eq!(
            verdict_for_foobot(&file, "/%E3%83%84%F0%9F%98%80"),
            Disallow(3)
        );
        // An odd byte, and an unpaired surrogate.
        let broken = [&*file, b"\xD8\xD8\x00"].concat();
        assert_eq!(verdict_for_foobot(&broken, "/a"), Disallow(2));
    }
}

// RFC 9309, section 2.3.
#[test]
fn robots_txt_is_at_the_root_of_scheme_host_and_port() {
    for (url, robots) in [
        ("http://h.test/a/b?c", "http://h.test/robots.txt"),
        ("https://h.test/", "https://h.test/robots.txt"),
        ("http://h.test:8080/", "http://h.test:8080/robots.txt"),
    ] {
        let target: Target = url.parse().unwrap();
        assert_eq!(target.origin.robots_txt().to_string(), robots);
    }
}

// RFC 9309, section 2.3, requires text/plain, but section 2.3.1.1 requires that parseable
// rules are followed.
#[tokio::test]
async fn rules_bind_with_any_media_type() {
    let rules = "<html>\nUser-agent: *\nDisallow: /private\n</html>\n";
    for page in [
        Page::html(rules),
        Page::typed("image/png", rules.as_bytes()),
        Page::typed("", rules.as_bytes()),
    ] {
        let (_origin, proxy) = site(Script::robots_page(page), &[]).await;
        assert_eq!(get(&proxy, "http://o.test/private").await.status(), 403);
        assert_eq!(get(&proxy, "http://o.test/open").await.status(), 200);
    }
}

// RFC 9309, section 2.3.1.4, allows a crawler to treat an origin as without rules after a
// month of being unreachable. Ours: it stays refused.
#[test]
fn origin_unreachable_for_years_is_refused() {
    let unreachable = AccessResult::Unreachable(Cause::Timeout);
    let ruling = ruling((Dialect::Rfc9309, 0, unreachable), "FooBot", "/a");
    assert_eq!(ruling.verdict, Verdict::Disallow);
    assert_eq!(ruling.reason, Reason::Unreachable);
}

// RFC 9309, section 2.3.1.5.
files! {
    rules_between_garbage_lines_count: b"\x00\xFF\nUser-agent: *\n\xF0\x9F: \x80\nDisallow: /a\n=====\nAllow: /a/b",
        "/a" Disallow(4), "/a/b" Allow(6);
    rules_between_html_lines_count: "<html>\n<body>\nUser-agent: *\nDisallow: /a\n</body></html>", "/a" Disallow(4);
    invalid_utf8_in_a_pattern_is_compared_by_bytes: b"User-agent: *\nDisallow: /\xFFa",
        "/%FFa" Disallow(2), "/%FEa" NoRule;
}

// RFC 9309, section 2.3.1.5.
#[test]
fn web_page_as_robots_txt_is_noted_and_allows_everything() {
    let page = b"<html>\n<title>404: not found</title>\n<p>User-agent: *<br>Disallow: /</p>";
    assert_eq!(verdict_for_foobot(page, "/a"), NoGroup);
    assert_eq!(noted(&RobotsTxt::parse(page), NoteKind::Html), [1]);
}

/// Returns a file with `lines` after `bytes` bytes of an agent line and comments.
fn filled(bytes: usize, lines: &str) -> Vec<u8> {
    let agent = "User-agent: *\n";
    let left = bytes - agent.len();
    let filler = format!("{}\n", "#".repeat(99));
    let rest = left % filler.len();
    let first = format!("{}\n", "#".repeat(rest.max(1) - 1));
    let first = if rest == 0 { "" } else { &first };
    let filler = filler.repeat(left / 100);
    format!("{agent}{first}{filler}{lines}").into_bytes()
}

// RFC 9309, section 2.5: at least 500 KiB must be parsed.
#[test]
fn line_that_ends_at_the_size_limit_counts() {
    let line = "Disallow: /a";
    let file = filled(RobotsTxt::BYTES_MIN - line.len(), line);
    assert_eq!(file.len(), 500 * 1024);
    let last = 1 + u32::try_from(file.iter().filter(|byte| **byte == b'\n').count()).unwrap();
    assert_eq!(verdict_for_foobot(&file, "/a"), Disallow(last));
    assert_eq!(
        noted(&RobotsTxt::parse(&file), NoteKind::CutAtLimit),
        [0; 0]
    );
}

// RFC 9309, section 2.5. Ours: the start of a cut line is not a rule, because it would
// match more than the whole line.
#[test]
fn oversized_file_is_cut_at_a_whole_line_and_noted() {
    let rules = "Disallow: /a\nAllow: /abc\nDisallow: /b";
    for over in 1.."\nDisallow: /b".len() {
        let bytes = RobotsTxt::BYTES_MIN + over - rules.len();
        let file = filled(bytes, rules);
        let robots = RobotsTxt::parse(&file);
        let binding = robots.binding(&Crawler::parse("FooBot"));
        let judged = ["/a", "/abc", "/b"].map(|path| binding.judge(path).allows());
        assert_eq!(judged, [false, true, true], "{over}");
        let last = 1 + file.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(
            noted(&robots, NoteKind::CutAtLimit),
            [u32::try_from(last).unwrap()]
        );
    }
}

/// Returns bodies of about `bytes` bytes that an origin could send as robots.txt.
fn arbitrary_bodies(bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut state = 0x9309_2022_u32;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    let noise = (0..bytes / 4).flat_map(|_| random()).collect();
    let repeated = |text: &[u8]| text.repeat(bytes / text.len());
    vec![
        ("noise", noise),
        ("line ends", repeated(b"\n\r\r")),
        ("stars", repeated(b"*")),
        ("NULs", repeated(b"\0")),
        ("UTF-16", [b"\xFF\xFE", &*repeated(b"\n\0*\0")].concat()),
        (
            "one rule",
            [b"User-agent: *\nDisallow: /", &*repeated(b"a")].concat(),
        ),
        (
            "rules",
            repeated(b"User-agent: *\nAllow:/\nDisallow:*a*b*c$\n"),
        ),
    ]
}

// RFC 9309, sections 2.3.1.5, 2.5 and 3. Bytes after `RobotsTxt::BYTES_MIN` are not read.
#[test]
fn ten_mebibytes_of_anything_are_read_up_to_the_limit() {
    for (what, body) in arbitrary_bodies(10 << 20) {
        let robots = RobotsTxt::parse(&body);
        let kept = whole_lines(&body, RobotsTxt::BYTES_MIN);
        assert!(kept.len() <= RobotsTxt::BYTES_MIN, "{what}");
        let whole = RobotsTxt::in_dialect(kept.to_vec(), Dialect::Rfc9309);
        assert_eq!(robots.text(), whole.text(), "{what}");
        // A parsed line takes less memory than its text.
        assert!(robots.memory() <= 2 * RobotsTxt::BYTES_MIN, "{what}");
        assert_eq!(noted(&robots, NoteKind::CutAtLimit).len(), 1, "{what}");
        let binding = robots.binding(&Crawler::parse("FooBot"));
        assert!(binding.judge("/").allows(), "{what}");
    }
}

// Ours: a caller that reads a file in a dialect sets its size limit. Memory is bounded by
// a multiple of the file's length.
#[test]
fn memory_for_any_file_is_bounded_in_every_dialect() {
    for (what, body) in arbitrary_bodies(1 << 20) {
        let body = Bytes::from(body);
        for dialect in Dialect::ALL {
            let robots = RobotsTxt::in_dialect(body.clone(), dialect);
            let binding = robots.binding(&Crawler::parse("FooBot"));
            assert!(binding.judge("/").allows(), "{what} {dialect}");
            assert!(robots.memory() <= 16 * body.len(), "{what} {dialect}");
            assert_eq!(noted(&robots, NoteKind::CutAtLimit), [0; 0]);
        }
    }
}

// RFC 9309, section 2.5. Ours: a long line is not cut into a rule that matches more.
#[test]
fn long_lines_are_kept_whole() {
    for bytes in [20_000, 250_000] {
        let pattern = format!("/{}", "a".repeat(bytes));
        let file = format!("User-agent: *\nDisallow: {pattern}\nAllow: {pattern}b");
        let shorter = &pattern[..bytes];
        assert_eq!(verdict_for_foobot(file.as_bytes(), shorter), NoRule);
        assert_eq!(verdict_for_foobot(file.as_bytes(), &pattern), Disallow(2));
        assert_eq!(
            verdict_for_foobot(file.as_bytes(), &format!("{pattern}b")),
            Allow(3)
        );
    }
}

// RFC 9309, section 3: bytes out of bounds.
files! {
    nul_in_a_pattern_matches_only_itself: b"User-agent: *\nDisallow: /a\0b\nAllow: /c\0",
        "/a%00b" Disallow(2), "/a" NoRule, "/c" NoRule;
    control_in_a_pattern_matches_only_itself: b"User-agent: *\nDisallow: /a\x01\nDisallow: /b\x0Bc",
        "/a%01" Disallow(2), "/a" NoRule, "/b" NoRule;
    nul_in_a_name_makes_a_different_name:
        b"User-agent: foobot\0\nDisallow: /\nUser-agent: foobot\nDis\0allow: /\nDisallow: /a",
        "/a" Disallow(5);
    dots_in_a_pattern_are_literal: "User-agent: *\nDisallow: /a/../b",
        "/a/../b" Disallow(2), "/b" NoRule, "/a" NoRule;
}
