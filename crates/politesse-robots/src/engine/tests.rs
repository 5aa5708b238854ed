//! What a robots.txt says, read as a whole. Single patterns are tested in
//! `pattern.rs`, more files in the cases of the integration tests.

use super::*;
use crate::crawler::{Crawler, ProductToken};

/// The example of RFC 9309, section 5.1.
const SIMPLE: &str = "\
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
";

/// The example of RFC 9309, section 5.2.
const LONGEST: &str = "\
User-Agent: foobot
Allow: /example/page/
Disallow: /example/page/disallowed.gif
";

/// Returns the line of the rule that counts.
fn line(robots: &RobotsTxt, agent: &str, path: &str) -> Option<u32> {
    let binding = robots.binding(&Crawler::parse(agent));
    let judgement = binding.judge(path);
    let rule = judgement.rule();
    assert_eq!(rule, binding.competing(path).first());
    rule.map(Rule::line)
}

/// One test a row: `FILE, "agent", "path" => line;`
macro_rules! counting {
    ($($name:ident: $file:expr, $agent:literal, $path:literal => $line:expr;)*) => {$(
        #[test]
        fn $name() {
            let file: &[u8] = $file.as_ref();
            assert_eq!(line(&RobotsTxt::parse(file), $agent, $path), $line);
        }
    )*};
}

// RFC 9309, section 5.1.
counting! {
    anyone_is_bound_by_the_group_of_everyone: SIMPLE, "AnyBot", "/x.gif" => Some(2);
    anyone_may_fetch_publications: SIMPLE, "AnyBot", "/publications/" => Some(4);
    foobot_is_kept_to_two_pages: SIMPLE, "FooBot", "/x" => Some(7);
    foobot_may_fetch_a_page: SIMPLE, "FooBot", "/example/page.html" => Some(8);
    barbot_shares_a_group: SIMPLE, "barbot", "/example/page.html" => Some(13);
    bazbot_shares_a_group: SIMPLE, "bazbot", "/example/page.html" => Some(13);
    quxbot_has_an_empty_group: SIMPLE, "quxbot", "/example/page.html" => None;
}

// RFC 9309, section 5.2, with erratum 7124.
counting! {
    longest_match_counts: LONGEST, "foobot", "/example/page/disallowed.gif" => Some(3);
    shorter_match_counts_elsewhere: LONGEST, "foobot", "/example/page/x.gif" => Some(2);
}

// RFC 9309, section 2.2.2: the most bytes, then allow; then, ours, the first.
counting! {
    allow_counts_on_a_tie: "User-agent: *\nDisallow: /a\nAllow: /a", "B", "/a" => Some(3);
    first_of_equals_counts: "User-agent: *\nDisallow: /a\nDisallow: /a", "B", "/a" => Some(2);
    empty_pattern_decides_nothing: "User-agent: *\nDisallow: /\nAllow:", "B", "/a" => Some(2);
    disallow_counts_in_the_folded_query: "User-agent: *\nDisallow: /?u=/", "B", "/?u=%2F" => Some(2);
    allow_does_not: "User-agent: *\nDisallow: /\nAllow: /?u=/", "B", "/?u=%2F" => Some(2);
}

// RFC 9309, section 2.2.1.
counting! {
    groups_of_one_name_are_merged: "User-agent: b\nDisallow: /a\n\nUser-agent: B\nDisallow: /b", "B", "/b" => Some(5);
    groups_of_everyone_are_merged: "User-agent: *\nDisallow: /a\n\nUser-agent: *\nDisallow: /b", "B", "/b" => Some(5);
    own_group_replaces_that_of_everyone: "User-agent: *\nDisallow: /\n\nUser-agent: b\nAllow: /x", "B", "/y" => None;
    second_candidate_binds_if_the_first_has_no_group: "User-agent: b\nDisallow: /", "B-News/1 (B; +http://b.example)", "/" => Some(2);
    first_candidate_binds: "User-agent: b\nDisallow: /\n\nUser-agent: B-News\n", "B-News/1 (B; +http://b.example)", "/" => None;
    nobody_in_particular_is_bound_by_everyone: "User-agent: *\nDisallow: /", "Mozilla/5.0", "/" => Some(2);
}

// RFC 9309, sections 2.2 and 2.3.1.5.
counting! {
    line_ends_may_be_mixed: "User-agent: *\r\rDisallow: /a\r\nDisallow: /b\nDisallow: /c", "B", "/b" => Some(4);
    byte_order_mark_is_no_part_of_the_key: "\u{feff}User-agent: *\nDisallow: /", "B", "/" => Some(2);
    half_a_byte_order_mark_neither: b"\xEF\xBBUser-agent: *\nDisallow: /", "B", "/" => Some(2);
    colon_may_be_lost: "User-agent *\nDisallow /a", "B", "/a" => Some(2);
    three_words_are_no_rule: "User-agent: *\nDisallow /a b", "B", "/a" => None;
    rule_outside_a_group_binds_nobody: "Disallow: /\nUser-agent: *", "B", "/" => None;
    other_record_does_not_end_the_agents: "User-agent: *\nSitemap: /s\nCrawl-delay: 9\nUser-agent: c\nDisallow: /", "B", "/" => Some(5);
    rule_ends_the_agents: "User-agent: *\nDisallow:\nUser-agent: c\nDisallow: /", "B", "/" => None;
    key_is_compared_whole: "User-agent: *\nDisallow-AI: /", "B", "/" => None;
}

// RFC 9309, section 2.2.2: implementers may bridge encodings.
#[test]
fn utf16_is_bridged() {
    let text = "User-agent: *\nDisallow: /ツ";
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for file in [
        little.clone(),
        big.clone(),
        [b"\xFF\xFE", &*little].concat(),
        [b"\xFE\xFF", &*big].concat(),
    ] {
        assert_eq!(line(&RobotsTxt::parse(&file), "B", "/ツ"), Some(2));
    }
}

/// Files that begin like UTF-16 and have no agent line in it.
fn marked() -> [Vec<u8>; 5] {
    let text = b"User-agent: *\nDisallow: /a\n";
    let sitemap = "Sitemap: /s\n".encode_utf16();
    let sitemap: Vec<u8> = sitemap.flat_map(u16::to_le_bytes).collect();
    [
        [b"\xFF\xFE", &text[..]].concat(),
        [b"\xFE\xFF", &text[..]].concat(),
        [b"\xFF\xFE", &sitemap[..], b"\n", text].concat(),
        [&sitemap[..], b"\n", text].concat(),
        [b"\xFF\xFE\xEF\xBB\xBF", &text[..]].concat(),
    ]
}

// Ours: a stray mark must not allow everything.
#[test]
fn a_file_that_is_no_utf16_is_read_as_bytes() {
    for file in marked() {
        let robots = RobotsTxt::parse(&file);
        assert!(line(&robots, "B", "/a").is_some(), "{file:?}");
        assert!(!robots.text().starts_with('\u{fffd}'), "{file:?}");
    }
    assert_eq!(line(&RobotsTxt::parse(&marked()[0]), "B", "/a"), Some(2));
}

// Ours: as before, since stored decisions and other parsers read them so.
#[test]
fn other_dialects_read_what_begins_like_utf16_as_before() {
    for dialect in Dialect::ALL.into_iter().skip(1) {
        for (at, file) in marked().into_iter().enumerate() {
            let robots = RobotsTxt::in_dialect(file, dialect);
            // google/robotstxt knows no UTF-16, and loses the first line alone.
            let is_read = dialect == Dialect::Google && (2..4).contains(&at);
            assert_eq!(line(&robots, "B", "/a").is_some(), is_read, "{dialect}");
        }
    }
}

// RFC 9309, section 2.5; ours: it is cut as it is read.
#[test]
fn a_larger_file_that_is_no_utf16_is_cut_at_a_line_end_of_bytes() {
    for file in marked() {
        let longer = [&file[..], b"Disallow: /bc"].concat();
        let kept = whole_lines(&longer, longer.len() - 1);
        assert_eq!(kept, file);
        assert!(line(&RobotsTxt::parse(kept), "B", "/a").is_some());
        assert_eq!(line(&RobotsTxt::parse(kept), "B", "/b"), None);
    }
}

// RFC 9309, section 2.2: only space and tab are blanks; ours, that what cannot
// be seen was not meant.
counting! {
    no_break_space_is_taken_off: "User-agent: *\nDisallow: /a\u{a0}", "B", "/ab" => Some(2);
    zero_width_space_is_taken_off: "User-agent: *\nDisallow: /a\u{200b}", "B", "/a" => Some(2);
    direction_marks_are_taken_off: "User-agent: *\nDisallow: /a \u{200e}\u{200f}", "B", "/a" => Some(2);
    a_mark_is_taken_off_behind_a_wildcard: "User-agent: *\nDisallow: /a*c\u{a0}", "B", "/abc" => Some(2);
    a_mark_is_taken_off_behind_an_end: "User-agent: *\nDisallow: /a$\u{a0}", "B", "/a" => Some(2);
    an_end_behind_the_mark_stays: "User-agent: *\nDisallow: /a$\u{a0}", "B", "/ab" => None;
    the_written_path_is_tried_as_well: "User-agent: *\nDisallow: /a$\u{a0}", "B", "/a%24%C2%A0" => Some(2);
    a_mark_is_taken_off_in_the_folded_query: "User-agent: *\nDisallow: /?u=%3A\u{a0}", "B", "/?u=:" => Some(2);
    a_mark_within_a_path_stays: "User-agent: *\nDisallow: /a\u{a0}b", "B", "/a" => None;
    an_allow_is_tried_as_written: "User-agent: *\nDisallow: /\nAllow: /a\u{a0}", "B", "/a" => Some(2);
    a_rule_counts_by_its_length_as_written: "User-agent: *\nAllow: /ab/cd\nDisallow: /a\u{a0}", "B", "/ab/cd" => Some(3);
    a_path_of_marks_decides_nothing: "User-agent: *\nDisallow: \u{a0}", "B", "/a" => None;
    a_path_of_marks_behind_a_slash_is_everything: "User-agent: *\nDisallow: /\u{200b}", "B", "/a" => Some(2);
}

// Ours: an agent line that ends in marks is still that of everyone.
counting! {
    a_mark_behind_the_star_is_taken_off: "User-agent: *\u{a0}\nDisallow: /a", "B", "/a" => Some(2);
    marks_behind_the_star_are_taken_off: "User-agent: * \u{200b}\u{200e}\nDisallow: /a", "B", "/a" => Some(2);
    a_star_that_goes_on_is_nobody: "User-agent: *\u{a0}B\nDisallow: /a", "B", "/a" => None;
}

#[test]
fn marks_of_older_encodings_are_taken_off() {
    let robots = RobotsTxt::parse(b"User-agent: *\xA0\nDisallow: /a\xA0\nDisallow: /b\xE0");
    assert_eq!(line(&robots, "B", "/a"), Some(2));
    assert_eq!(line(&robots, "B", "/b"), None);
}

// Ours: stored decisions and other parsers read them as written.
#[test]
fn other_dialects_compare_a_path_with_its_marks() {
    let file = "User-agent: *\nDisallow: /a\u{a0}\nDisallow: /b\u{200e}";
    for dialect in Dialect::ALL {
        let robots = RobotsTxt::in_dialect(file, dialect);
        let is_found = ["/a", "/b"].map(|path| line(&robots, "B", path).is_some());
        assert_eq!(is_found, [dialect == Dialect::Rfc9309; 2], "{dialect}");
        let notes = robots
            .notes()
            .filter(|note| note.kind == NoteKind::EndsInvisibly);
        let notes: Vec<u32> = notes.map(|note| note.line).collect();
        let noted: &[u32] = if dialect == Dialect::Rfc9309 {
            &[2, 3]
        } else {
            &[]
        };
        assert_eq!(notes, noted, "{dialect}");
    }
}

// Ours: a verdict names its evidence.
#[test]
fn binding_names_token_and_group() {
    let robots = RobotsTxt::parse(
        b"User-agent: Foo/1\nUser-agent: Bar\n  Disallow : /a # why\n\nUser-agent: foo\nDisallow: /b",
    );
    let binding = robots.binding(&Crawler::parse("FOO"));
    assert_eq!(binding.token().map(ProductToken::as_str), Some("FOO"));
    let [first, last] = ["/a", "/b"].map(|path| *binding.judge(path).rule().unwrap());
    assert_eq!(first.text(), "Disallow : /a");
    assert_eq!(binding.names_of(&first), ["foo/1", "bar"]);
    assert_eq!(binding.agent_line(&first), Some(1));
    assert_eq!(binding.names_of(&last), ["foo"]);
    assert_eq!(binding.agent_line(&last), Some(5));
    assert_eq!(binding.names(), ["foo/1", "bar", "foo"]);
}

// Ours: where repaired lines bind beside others, each rule is told with its own.
#[test]
fn a_rule_of_a_repaired_group_names_the_token_of_that_group() {
    let file = "\u{200b}User-agent: One\nDisallow: /private\n\nUser-agent: Two\nDisallow: /zz\n";
    let robots = RobotsTxt::parse(file.as_bytes());
    let binding = robots.binding(&Crawler::parse("One/1 Two/1"));
    for (path, token) in [("/private", "One"), ("/zz", "Two")] {
        let rule = *binding.judge(path).rule().unwrap();
        let bound = binding.token_of(&rule).map(ProductToken::as_str);
        assert_eq!(bound, Some(token), "{path}");
    }
}

// Ours.
#[test]
fn everyone_is_named_by_a_star() {
    let robots = RobotsTxt::parse(b"User-agent: Foo\nUser-agent: * all\nDisallow: /a");
    let binding = robots.binding(&Crawler::parse("Bar"));
    assert_eq!(binding.token(), None);
    let rule = *binding.judge("/a").rule().unwrap();
    assert_eq!(binding.names_of(&rule), ["*"]);
    assert_eq!(binding.agent_line(&rule), Some(2));
    assert_eq!(binding.names(), ["*"]);
}

// RFC 9309, section 2.2.1: neither an own group nor one of everyone.
#[test]
fn nothing_binds_who_is_not_named() {
    let robots = RobotsTxt::parse(b"User-agent: Foo\nDisallow: /");
    let binding = robots.binding(&Crawler::parse("Bar"));
    assert!(!binding.is_bound());
    assert_eq!(binding.judge("/"), Judgement::NoGroup);
    assert!(binding.names().is_empty());
}

// Ours: RFC 9309 does not define Crawl-delay.
#[test]
fn longest_crawl_delay_of_the_bound_groups_counts() {
    let robots = RobotsTxt::parse(
        b"Crawl-delay: 99\nUser-agent: a\nCrawl-delay: 0.5\nDisallow: /\nCrawl-delay: 2\n\
          User-agent: a\nCrawl-delay: -7\nCrawl-delay: nan\nCrawl-delay:\nDisallow:\n\
          User-agent: *\nCrawl-delay: 60",
    );
    let delay = |agent| robots.binding(&Crawler::parse(agent)).crawl_delay();
    assert_eq!(delay("a"), Some(2.0));
    assert_eq!(delay("b"), Some(60.0));
    assert_eq!(
        RobotsTxt::parse(b"")
            .binding(&Crawler::parse("a"))
            .crawl_delay(),
        None
    );
}

// Ours: whoever wrote the file can see what became of each line.
#[test]
fn odd_lines_are_noted() {
    use NoteKind::*;
    let robots = RobotsTxt::parse(
        b"Disallow: /x\nUser-agent: *\nCrawl-delay: soon\nUser-agent: b\ndissallow: c\n\
          Noindex: /d\nColour: e\n<b>\nUser-agent:\nSitemap: http://h.example/s\n\
          User-agent: f\nRequest-rate: 1 per 5\nRequest-rate: 1/5\n\
          Visit-time: 06:00-08:45\nVisit-time: 0600 - 0845",
    );
    let notes: Vec<_> = robots.notes().map(|note| (note.line, note.kind)).collect();
    let expected = [
        (1, OutsideGroup),
        (3, InvalidCrawlDelay),
        (4, JoinsGroup),
        (5, Misspelt),
        (5, NeverMatches),
        (6, Noindex),
        (7, UnknownRecord),
        (8, NotARecord),
        (9, NamesNobody),
        (11, JoinsGroup),
        (12, InvalidRequestRate),
        (14, InvalidVisitTime),
    ];
    assert_eq!(notes, expected);
}

// RFC 9309, section 2.5; ours, that a cut line is dropped.
#[test]
fn larger_file_is_cut_at_a_line_end() {
    let body = b"ab\r\ncd\nef";
    let kept: Vec<&[u8]> = (0..=10).map(|max| whole_lines(body, max)).collect();
    let expected: [&[u8]; 11] = [
        b"",
        b"",
        b"ab",
        b"ab\r",
        b"ab\r\n",
        b"ab\r\n",
        b"ab\r\ncd",
        b"ab\r\ncd\n",
        b"ab\r\ncd\n",
        body,
        body,
    ];
    assert_eq!(kept, expected);
}

// Ours: every prefix of a file, and any byte in place of another, is read.
#[test]
fn any_bytes_are_read() {
    let body = b"\xEF\xBB\xBFUser-agent: *\r\nDisallow: /a%6*$\xE3\nCrawl-delay 1.";
    for end in 0..body.len() {
        for byte in 0..=255 {
            let mut body = body[..=end].to_vec();
            body[end] = byte;
            let robots = RobotsTxt::parse(&body);
            let binding = robots.binding(&Crawler::from_user_agent([&*body]));
            assert_eq!(binding.judge("/").rule(), binding.competing("/").first());
        }
    }
}

// Ours: what would take too long is given up, and what is given up is refused.
#[test]
fn file_made_to_be_slow_is_given_up() {
    let letter = |digit: usize| char::from(b"abcdefgh"[digit % 8]);
    let rules = (0..15_000).map(|n| {
        let letters = (0..6).map(|place| format!("*{}", letter(n >> (3 * place))));
        format!("Disallow: /{}*0\n", letters.collect::<String>())
    });
    let file = format!("User-agent: *\n{}", rules.collect::<String>());
    let robots = RobotsTxt::parse(file.as_bytes());
    let binding = robots.binding(&Crawler::parse("B"));
    let judgement = binding.judge(&format!("/{}", "abcdefgh".repeat(250)));
    assert_eq!(judgement, Judgement::Undecided);
    assert!(!judgement.allows());
    assert_eq!(binding.judge("/short"), Judgement::NoRule);
}

// Ours: the hot path of the proxy. A path that has to be rewritten, too.
#[test]
fn judgement_allocates_nothing() {
    let file = "User-agent: *\nDisallow: /a/*?x=%2F\nDisallow: /*.gif$\nAllow: /%7Eb\n";
    let robots = RobotsTxt::parse(file.as_bytes());
    let binding = robots.binding(&Crawler::parse("B"));
    let paths = [
        "/",
        "/a/b?x=%2f",
        "/~b/c.gif",
        "/%7eb",
        "?x=/",
        "/\u{e9}.gif",
    ];
    let judge = || paths.map(|path| binding.judge(path).allows());
    let allowed = judge();
    let info = allocation_counter::measure(|| assert_eq!(judge(), allowed));
    assert_eq!(info.count_total, 0);
}

// Ours: each literal in boxes of its own took a hundred times its length.
#[test]
fn a_rule_made_of_wildcards_takes_a_few_times_its_length_when_folded() {
    let file = format!("User-agent: *\nDisallow: /%3F{}\n", "*a".repeat(10_000));
    let robots = RobotsTxt::parse(file.as_bytes());
    let binding = robots.binding(&Crawler::parse("B")).as_served();
    let _ = binding.judge("/a%3A?a=%2F");
    let times = robots.memory() / file.len();
    // As written, and each of both folded forms twice.
    assert_eq!(times, 5);
}

// Ours: the bound on what is kept rests on it.
#[test]
fn weight_is_about_the_memory_of_a_file_in_use() {
    let rule = |path: &str| format!("User-agent: *\nDisallow: /{path}\n");
    let many: String = (0..2000)
        .map(|n| format!("Disallow: /*/{n}/a$\n"))
        .collect();
    for file in [
        rule("a"),
        rule(&"\u{e9}".repeat(50_000)),
        rule(&" a".repeat(50_000)),
        rule(&format!("%3A{}", "*a".repeat(50_000))),
        rule("a") + &many,
    ] {
        let robots = RobotsTxt::parse(file.as_bytes());
        let binding = robots.binding(&Crawler::parse("B"));
        let _ = binding.judge("/?a=%2F");
        let _ = binding.as_served().judge("/a%3Ab");
        let (weight, memory) = (robots.weight(), robots.memory());
        assert!(
            memory <= 2 * weight && weight <= 8 * memory,
            "{weight} {memory}"
        );
    }
}

// Ours: in UTF-16 a byte of a letter may look like a line end.
#[test]
fn larger_file_in_utf16_is_cut_at_a_line_end() {
    let text = "User-agent: *\nDisallow: /\nAllow: /\u{a05}\u{d05}private\n";
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for file in [
        [b"\xFE\xFF", &*big].concat(),
        [b"\xFF\xFE", &*little].concat(),
    ] {
        for max in 0..file.len() {
            let robots =
                RobotsTxt::in_dialect(whole_lines(&file, max).to_vec(), Dialect::default());
            // Where no agent line is whole, the file is read as bytes.
            let known = robots
                .records()
                .filter(|record| record.kind != RecordKind::Unknown);
            let whole: Vec<_> = known.map(|record| record.value.into_owned()).collect();
            assert!(
                ["*", "/"].map(String::from).starts_with(&whole),
                "{max} {whole:?}"
            );
        }
    }
}

// Ours: what a host serves in place of a robots.txt it does not have.
#[test]
fn web_page_is_noted_as_one() {
    for page in [
        "<!DOCTYPE html>\n<html><head>",
        "\n <html lang=\"en\">",
        "<!DOCTYPE html PUBLIC \"-//W3C//DTD\" \"http://www.w3.org/TR\">",
    ] {
        let robots = RobotsTxt::parse(page.as_bytes());
        let first = robots.notes().next().map(|note| note.kind);
        assert_eq!(first, Some(NoteKind::Html), "{page}");
    }
}

// Invariant 2 (ARCHITECTURE.md): what was asked before by another spelling
// changes nothing.
#[test]
fn binding_has_the_spelling_of_who_asks() {
    let robots = RobotsTxt::parse(b"User-agent: foobot\nDisallow: /");
    for agent in ["foobot", "FooBot", "FOOBOT", "foobot"] {
        let binding = robots.binding(&Crawler::parse(agent));
        assert_eq!(binding.token().map(ProductToken::as_str), Some(agent));
    }
}

// RFC 9309, section 2.2.1; ours, that bytes which are no UTF-8 are replaced on
// both sides.
#[test]
fn name_with_odd_bytes_binds() {
    let robots = RobotsTxt::parse(b"User-agent: \xC9toile\nDisallow: /");
    let crawler = Crawler::from_user_agent([&b"\xC9toile/1.0"[..]]);
    assert!(!robots.binding(&crawler).judge("/").allows());
}

// Ours: a file with many escapes is no reason to give up.
#[test]
fn rules_with_escapes_are_judged_on_long_queries() {
    let rules = (0..60).map(|n| format!("Disallow: /*?*filter%5Bname{n}%5D=\n"));
    let file = format!("User-agent: *\n{}", rules.collect::<String>());
    let binding = RobotsTxt::parse(file.as_bytes()).binding(&Crawler::parse("B"));
    let query = "colour=%23ff0000&".repeat(100);
    assert_eq!(binding.judge(&format!("/?{query}")), Judgement::NoRule);
    let judgement = binding.judge(&format!("/?{query}filter[name59]=x"));
    assert_eq!(judgement.rule().map(Rule::line), Some(61));
}

// Ours: robots.cc takes an index page for its folder, wherever it is.
#[test]
fn index_page_stands_for_its_folder_as_google_has_it() {
    let file = "User-agent: *\nDisallow: /\nAllow: *foo/index.html\nDisallow: /foo/bar";
    let robots = RobotsTxt::in_dialect(file.as_bytes(), Dialect::Google);
    let binding = robots.binding(&Crawler::parse("B"));
    assert!(binding.judge("/foo/").allows());
    assert!(!binding.judge("/foo/x").allows());
}

// Ours: a record is kept of each decision.
#[test]
fn names_that_are_told_are_bounded() {
    let agents: String = (0..1000)
        .map(|n| format!("User-agent: {}{n}\n", "a".repeat(300)))
        .collect();
    let robots = RobotsTxt::parse(format!("{agents}User-agent: b\nDisallow: /").as_bytes());
    let names = robots.binding(&Crawler::parse("b")).names();
    assert_eq!(names.len(), 2, "the others differ beyond what is told");
    let agents: String = (0..5000).map(|n| format!("User-agent: a{n}\n")).collect();
    let robots = RobotsTxt::parse(format!("{agents}User-agent: b\nDisallow: /").as_bytes());
    let binding = robots.binding(&Crawler::parse("b"));
    assert_eq!(binding.names().len(), Binding::NAMES_MAX);
    assert_eq!(
        binding.agent_line(binding.judge("/").rule().unwrap()),
        Some(5001)
    );
}
