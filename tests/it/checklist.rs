//! Points of RFC 9309 that need no connection, and that no case in
//! `crates/politesse-robots/cases` states: notes, limits, and unusual bytes.
//!
//! Those cases cite the section of each other point. Points about fetching are tested in
//! `robots.rs`, `unreachable.rs` and `crates/politesse-robots-cache`.

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

// RFC 9309, section 2.2.
files! {
    every_kind_of_line_end_ends_a_line_and_counts_once:
        "User-agent: foobot\r\nDisallow: /a\rDisallow: /b\n\rDisallow: /c\r\r\nDisallow: /d",
        "/a" Disallow(2), "/b" Disallow(3), "/c" Disallow(5), "/d" Disallow(7);
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

// RFC 9309, sections 2.2.2, 2.2.3 and 2.2.4.
files! {
    allow_matches_a_query_as_written: "User-agent: *\nDisallow: /\nAllow: /r?u=:",
        "/r?u=%3A" Disallow(2), "/r?u=:" Allow(3);
    star_in_a_path_is_literal: "User-agent: *\nDisallow: /abc", "/a*c" NoRule;
    record_names_are_compared_whole: "User-agent: *\nDisallow-AI: /a\nDisallows: /b",
        "/a" NoRule, "/b" NoRule;
    misspelt_allow_allows_nothing:
        "User-agent: *\nDisallow: /\nallowed: /a\nalow: /a\nallow-all: /a\nAlllow: /a", "/a" Disallow(2);
}

// RFC 9309, section 2.2.4: crawlers may accept misspelt records.
#[test]
fn misspelt_disallow_and_agent_lines_are_understood_and_noted() {
    let of_rules = "dissallow dissalow disalow diasllow disallaw Disallowed".split(' ');
    let rules = of_rules.map(|name| (format!("User-agent: *\n{name}: /a"), 2));
    let of_agents = ["useragent", "User agent"].into_iter();
    let agents = of_agents.map(|name| (format!("Disallow:\n{name}: foobot\nDisallow: /a"), 3));
    for (file, line) in rules.chain(agents) {
        let said = verdict_for_foobot(file.as_bytes(), "/a");
        assert_eq!(said, Disallow(line), "{file}");
        let robots = RobotsTxt::parse(file.as_bytes());
        assert_eq!(noted(&robots, NoteKind::Misspelt), [2], "{file}");
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
            for (place, malformed) in insertions(lines.len()) {
                let mut longer = lines.to_vec();
                longer.insert(place, malformed);
                let found = said(Dialect::Rfc9309, &longer.join(&b'\n'), agent, path);
                let what = format!("{agent} {path} {place} {}", malformed.escape_ascii());
                assert_eq!(found, shifted(expected, place), "{what}");
            }
        }
    }
}

/// Pairs each malformed line with each position in a file of `lines` lines.
fn insertions(lines: usize) -> impl Iterator<Item = (usize, &'static [u8])> {
    (0..=lines).flat_map(|place| MALFORMED.map(|line| (place, line)))
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
    one_byte_of_a_byte_order_mark_is_ignored: b"\xEFUser-agent: *\nDisallow: /a", "/a" Disallow(2);
    invalid_utf8_in_a_pattern_is_compared_by_bytes: b"User-agent: *\nDisallow: /\xFFa",
        "/%FFa" Disallow(2), "/%FEa" NoRule;
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

fn number_of_last_line(file: &[u8]) -> u32 {
    let ends = file.iter().filter(|byte| **byte == b'\n');
    u32::try_from(1 + ends.count()).unwrap()
}

// RFC 9309, section 2.5: at least 500 KiB must be parsed. Ours: the start of a cut line is
// not a rule, because it would match more than the whole line.
#[test]
fn whole_lines_within_the_size_limit_count_and_a_cut_is_noted() {
    assert_eq!(RobotsTxt::BYTES_MIN, 500 * 1024);
    let rules = "Disallow: /a\nAllow: /abc\nDisallow: /b";
    for over in 0.."\nDisallow: /b".len() {
        let bytes = RobotsTxt::BYTES_MIN + over - rules.len();
        let file = filled(bytes, rules);
        let last = number_of_last_line(&file);
        let (of_last_line, notes) = match over {
            0 => (Disallow(last), vec![]),
            _ => (NoRule, vec![last]),
        };
        let robots = RobotsTxt::parse(&file);
        let binding = robots.binding(&Crawler::parse("FooBot"));
        let verdict = |path: &str| Said::by_judgement(&binding.judge(path));
        let expected = [Disallow(last - 2), Allow(last - 1), of_last_line];
        assert_eq!(["/a", "/abc", "/b"].map(verdict), expected, "{over}");
        assert_eq!(noted(&robots, NoteKind::CutAtLimit), notes, "{over}");
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

// Ours: memory is bounded by a multiple of the length, which the caller limits.
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
        let verdict = |path: &str| verdict_for_foobot(file.as_bytes(), path);
        assert_eq!(verdict(&pattern[..bytes]), NoRule);
        assert_eq!(verdict(&pattern), Disallow(2));
        assert_eq!(verdict(&format!("{pattern}b")), Allow(3));
    }
}

// RFC 9309, section 3: bytes out of bounds.
files! {
    nul_in_a_name_makes_a_different_name:
        b"User-agent: foobot\0\nDisallow: /\nUser-agent: foobot\nDis\0allow: /\nDisallow: /a",
        "/a" Disallow(5);
    dots_in_a_pattern_are_literal: "User-agent: *\nDisallow: /a/../b",
        "/a/../b" Disallow(2), "/b" NoRule, "/a" NoRule;
}
