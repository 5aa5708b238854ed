//! Complete files: each test parses a robots.txt and checks judgements. Tests of single
//! patterns are in `pattern.rs`; the cases of the integration tests have more files.

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

/// Returns the line of the deciding rule.
fn line(robots: &RobotsTxt, agent: &str, path: &str) -> Option<u32> {
    let binding = robots.binding(&Crawler::parse(agent));
    let judgement = binding.judge(path);
    let rule = judgement.rule();
    assert_eq!(rule, binding.competing(path).first());
    rule.map(Rule::line)
}

/// One test per row: `FILE, "agent", "path" => line;`
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
    the_star_group_binds_a_crawler_without_a_group: SIMPLE, "AnyBot", "/x.gif" => Some(2);
    the_star_group_may_allow: SIMPLE, "AnyBot", "/publications/" => Some(4);
    foobot_is_limited_to_two_pages: SIMPLE, "FooBot", "/x" => Some(7);
    foobot_may_fetch_a_page: SIMPLE, "FooBot", "/example/page.html" => Some(8);
    barbot_shares_a_group: SIMPLE, "barbot", "/example/page.html" => Some(13);
    bazbot_shares_a_group: SIMPLE, "bazbot", "/example/page.html" => Some(13);
    quxbot_has_an_empty_group: SIMPLE, "quxbot", "/example/page.html" => None;
}

// RFC 9309, section 5.2, with erratum 7124.
counting! {
    the_longest_match_decides: LONGEST, "foobot", "/example/page/disallowed.gif" => Some(3);
    a_shorter_match_decides_elsewhere: LONGEST, "foobot", "/example/page/x.gif" => Some(2);
}

// RFC 9309, section 2.2.2: the most bytes, then allow; then, ours, the first.
counting! {
    an_allow_decides_on_a_tie: "User-agent: *\nDisallow: /a\nAllow: /a", "B", "/a" => Some(3);
    the_first_of_equal_rules_decides: "User-agent: *\nDisallow: /a\nDisallow: /a", "B", "/a" => Some(2);
    an_empty_pattern_decides_nothing: "User-agent: *\nDisallow: /\nAllow:", "B", "/a" => Some(2);
    a_disallow_matches_a_folded_query: "User-agent: *\nDisallow: /?u=/", "B", "/?u=%2F" => Some(2);
    an_allow_does_not_match_a_folded_query: "User-agent: *\nDisallow: /\nAllow: /?u=/", "B", "/?u=%2F" => Some(2);
}

// RFC 9309, section 2.2.1.
counting! {
    groups_for_one_name_are_merged: "User-agent: b\nDisallow: /a\n\nUser-agent: B\nDisallow: /b", "B", "/b" => Some(5);
    star_groups_are_merged: "User-agent: *\nDisallow: /a\n\nUser-agent: *\nDisallow: /b", "B", "/b" => Some(5);
    a_group_of_its_own_replaces_the_star_group: "User-agent: *\nDisallow: /\n\nUser-agent: b\nAllow: /x", "B", "/y" => None;
    the_second_candidate_binds_if_the_first_has_no_group: "User-agent: b\nDisallow: /", "B-News/1 (B; +http://b.example)", "/" => Some(2);
    the_first_candidate_with_a_group_binds: "User-agent: b\nDisallow: /\n\nUser-agent: B-News\n", "B-News/1 (B; +http://b.example)", "/" => None;
    the_star_group_binds_a_crawler_without_a_name: "User-agent: *\nDisallow: /", "Mozilla/5.0", "/" => Some(2);
}

// RFC 9309, sections 2.2 and 2.3.1.5.
counting! {
    line_ends_may_be_mixed: "User-agent: *\r\rDisallow: /a\r\nDisallow: /b\nDisallow: /c", "B", "/b" => Some(4);
    a_byte_order_mark_is_not_part_of_the_key: "\u{feff}User-agent: *\nDisallow: /", "B", "/" => Some(2);
    half_a_byte_order_mark_is_not_part_of_the_key: b"\xEF\xBBUser-agent: *\nDisallow: /", "B", "/" => Some(2);
    a_colon_may_be_missing: "User-agent *\nDisallow /a", "B", "/a" => Some(2);
    three_words_without_a_colon_are_no_rule: "User-agent: *\nDisallow /a b", "B", "/a" => None;
    a_rule_outside_a_group_has_no_effect: "Disallow: /\nUser-agent: *", "B", "/" => None;
    another_record_does_not_end_the_agents: "User-agent: *\nSitemap: /s\nCrawl-delay: 9\nUser-agent: c\nDisallow: /", "B", "/" => Some(5);
    a_rule_ends_the_agents: "User-agent: *\nDisallow:\nUser-agent: c\nDisallow: /", "B", "/" => None;
    a_key_must_match_completely: "User-agent: *\nDisallow-AI: /", "B", "/" => None;
}

// RFC 9309, section 2.2.2: implementers may bridge encodings.
#[test]
fn utf16_is_decoded() {
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

/// Returns files that begin like UTF-16, but have no agent line in UTF-16.
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

// Ours: a stray byte order mark must not allow everything.
#[test]
fn a_file_without_an_agent_line_in_utf16_is_read_as_bytes() {
    for file in marked() {
        let robots = RobotsTxt::parse(&file);
        assert!(line(&robots, "B", "/a").is_some(), "{file:?}");
        assert!(!robots.text().starts_with('\u{fffd}'), "{file:?}");
    }
    assert_eq!(line(&RobotsTxt::parse(&marked()[0]), "B", "/a"), Some(2));
}

// Ours: the other dialects follow stored decisions and the parsers that they imitate.
#[test]
fn other_dialects_always_decode_a_file_that_begins_like_utf16() {
    for dialect in Dialect::ALL.into_iter().skip(1) {
        for (at, file) in marked().into_iter().enumerate() {
            let robots = RobotsTxt::in_dialect(file, dialect);
            // google/robotstxt does not decode UTF-16, and loses only the first line.
            let is_read = dialect == Dialect::Google && (2..4).contains(&at);
            assert_eq!(line(&robots, "B", "/a").is_some(), is_read, "{dialect}");
        }
    }
}

// RFC 9309, section 2.5; ours: a file is cut in the encoding in which it is read.
#[test]
fn a_larger_file_read_as_bytes_is_cut_at_a_line_end_of_bytes() {
    for file in marked() {
        let longer = [&file[..], b"Disallow: /bc"].concat();
        let kept = whole_lines(&longer, longer.len() - 1);
        assert_eq!(kept, file);
        assert!(line(&RobotsTxt::parse(kept), "B", "/a").is_some());
        assert_eq!(line(&RobotsTxt::parse(kept), "B", "/b"), None);
    }
}

// RFC 9309, section 2.2: only space and tab are blanks. Ours: authors do not intend
// invisible marks.
counting! {
    a_no_break_space_is_removed: "User-agent: *\nDisallow: /a\u{a0}", "B", "/ab" => Some(2);
    a_zero_width_space_is_removed: "User-agent: *\nDisallow: /a\u{200b}", "B", "/a" => Some(2);
    direction_marks_are_removed: "User-agent: *\nDisallow: /a \u{200e}\u{200f}", "B", "/a" => Some(2);
    a_mark_after_a_wildcard_pattern_is_removed: "User-agent: *\nDisallow: /a*c\u{a0}", "B", "/abc" => Some(2);
    a_mark_after_an_anchor_is_removed: "User-agent: *\nDisallow: /a$\u{a0}", "B", "/a" => Some(2);
    an_anchor_before_a_mark_remains: "User-agent: *\nDisallow: /a$\u{a0}", "B", "/ab" => None;
    the_written_path_matches_as_well: "User-agent: *\nDisallow: /a$\u{a0}", "B", "/a%24%C2%A0" => Some(2);
    a_mark_in_a_folded_query_is_removed: "User-agent: *\nDisallow: /?u=%3A\u{a0}", "B", "/?u=:" => Some(2);
    a_path_is_not_cut_at_a_mark: "User-agent: *\nDisallow: /a\u{a0}b", "B", "/a" => None;
    an_allow_keeps_its_marks: "User-agent: *\nDisallow: /\nAllow: /a\u{a0}", "B", "/a" => Some(2);
    a_rule_has_the_length_of_its_written_form: "User-agent: *\nAllow: /ab/cd\nDisallow: /a\u{a0}", "B", "/ab/cd" => Some(3);
    a_path_of_marks_decides_nothing: "User-agent: *\nDisallow: \u{a0}", "B", "/a" => None;
    a_slash_and_marks_disallow_everything: "User-agent: *\nDisallow: /\u{200b}", "B", "/a" => Some(2);
}

// Ours: an agent line of `*` and marks still stands for all crawlers.
counting! {
    a_mark_after_the_star_is_removed: "User-agent: *\u{a0}\nDisallow: /a", "B", "/a" => Some(2);
    several_marks_after_the_star_are_removed: "User-agent: * \u{200b}\u{200e}\nDisallow: /a", "B", "/a" => Some(2);
    a_star_and_a_name_name_no_crawler: "User-agent: *\u{a0}B\nDisallow: /a", "B", "/a" => None;
}

#[test]
fn a_no_break_space_in_iso_8859_1_is_removed() {
    let robots = RobotsTxt::parse(b"User-agent: *\xA0\nDisallow: /a\xA0\nDisallow: /b\xE0");
    assert_eq!(line(&robots, "B", "/a"), Some(2));
    assert_eq!(line(&robots, "B", "/b"), None);
}

// Ours: the other dialects follow stored decisions and the parsers that they imitate.
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

// Ours: a verdict needs evidence.
#[test]
fn a_binding_names_token_groups_and_agent_lines() {
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

// Ours: a repaired group may bind by another token than the other groups.
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
fn the_star_group_is_named_by_a_star() {
    let robots = RobotsTxt::parse(b"User-agent: Foo\nUser-agent: * all\nDisallow: /a");
    let binding = robots.binding(&Crawler::parse("Bar"));
    assert_eq!(binding.token(), None);
    let rule = *binding.judge("/a").rule().unwrap();
    assert_eq!(binding.names_of(&rule), ["*"]);
    assert_eq!(binding.agent_line(&rule), Some(2));
    assert_eq!(binding.names(), ["*"]);
}

// RFC 9309, section 2.2.1: neither a group for the crawler nor one for `*`.
#[test]
fn without_a_matching_group_nothing_binds() {
    let robots = RobotsTxt::parse(b"User-agent: Foo\nDisallow: /");
    let binding = robots.binding(&Crawler::parse("Bar"));
    assert!(!binding.is_bound());
    assert_eq!(binding.judge("/"), Judgement::NoGroup);
    assert!(binding.names().is_empty());
}

// Ours: RFC 9309 does not define Crawl-delay.
#[test]
fn the_longest_crawl_delay_of_several_groups_applies() {
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

// Ours: notes let the author see how each line is read.
#[test]
fn unusual_lines_have_notes() {
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

// RFC 9309, section 2.5; ours: an incomplete line is dropped.
#[test]
fn a_larger_file_is_cut_at_a_line_end() {
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

// Ours: every prefix of a file, with each value of its last byte.
#[test]
fn any_bytes_can_be_parsed_and_judged() {
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

// Ours: an undecided judgement refuses.
#[test]
fn a_hostile_file_is_undecided_after_a_bounded_time() {
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

// Ours: the hot path of the proxy. Holds even if the path has to be rewritten.
#[test]
fn a_judgement_allocates_nothing() {
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

// Ours: with a box for each literal, a rule took a hundred times its length.
#[test]
fn the_memory_of_a_folded_rule_with_wildcards_is_a_small_multiple_of_its_length() {
    let file = format!("User-agent: *\nDisallow: /%3F{}\n", "*a".repeat(10_000));
    let robots = RobotsTxt::parse(file.as_bytes());
    let binding = robots.binding(&Crawler::parse("B")).as_served();
    let _ = binding.judge("/a%3A?a=%2F");
    let times = robots.memory() / file.len();
    // The written form once, and each of the two folded forms twice.
    assert_eq!(times, 5);
}

// Ours: the limit of the cache relies on the estimate.
#[test]
fn the_weight_estimates_the_memory_of_a_file_in_use() {
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

// Ours: in UTF-16, one byte of a letter may equal a line end.
#[test]
fn a_larger_file_in_utf16_is_cut_at_a_line_end() {
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
            // Without a complete agent line, the file is read as bytes.
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

// Ours: many hosts without a robots.txt serve a web page.
#[test]
fn a_web_page_has_a_note() {
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

// Invariant 2 (ARCHITECTURE.md): cached bindings for another spelling change nothing.
#[test]
fn a_binding_has_the_spelling_of_the_requesting_crawler() {
    let robots = RobotsTxt::parse(b"User-agent: foobot\nDisallow: /");
    for agent in ["foobot", "FooBot", "FOOBOT", "foobot"] {
        let binding = robots.binding(&Crawler::parse(agent));
        assert_eq!(binding.token().map(ProductToken::as_str), Some(agent));
    }
}

// RFC 9309, section 2.2.1; ours: invalid UTF-8 is decoded alike on both sides.
#[test]
fn a_name_that_is_not_utf8_binds() {
    let robots = RobotsTxt::parse(b"User-agent: \xC9toile\nDisallow: /");
    let crawler = Crawler::from_user_agent([&b"\xC9toile/1.0"[..]]);
    assert!(!robots.binding(&crawler).judge("/").allows());
}

// Ours: a file with many escapes must not exhaust the budget.
#[test]
fn many_rules_with_escapes_are_decided_on_a_long_query() {
    let rules = (0..60).map(|n| format!("Disallow: /*?*filter%5Bname{n}%5D=\n"));
    let file = format!("User-agent: *\n{}", rules.collect::<String>());
    let binding = RobotsTxt::parse(file.as_bytes()).binding(&Crawler::parse("B"));
    let query = "colour=%23ff0000&".repeat(100);
    assert_eq!(binding.judge(&format!("/?{query}")), Judgement::NoRule);
    let judgement = binding.judge(&format!("/?{query}filter[name59]=x"));
    assert_eq!(judgement.rule().map(Rule::line), Some(61));
}

// Ours: robots.cc does this anywhere in a pattern.
#[test]
fn in_the_google_dialect_an_allowed_index_page_allows_its_folder() {
    let file = "User-agent: *\nDisallow: /\nAllow: *foo/index.html\nDisallow: /foo/bar";
    let robots = RobotsTxt::in_dialect(file.as_bytes(), Dialect::Google);
    let binding = robots.binding(&Crawler::parse("B"));
    assert!(binding.judge("/foo/").allows());
    assert!(!binding.judge("/foo/x").allows());
}

// Ours: every decision record contains the names.
#[test]
fn the_number_and_length_of_names_are_bounded() {
    let agents: String = (0..1000)
        .map(|n| format!("User-agent: {}{n}\n", "a".repeat(300)))
        .collect();
    let robots = RobotsTxt::parse(format!("{agents}User-agent: b\nDisallow: /").as_bytes());
    let names = robots.binding(&Crawler::parse("b")).names();
    assert_eq!(names.len(), 2, "the others differ only after the cut");
    let agents: String = (0..5000).map(|n| format!("User-agent: a{n}\n")).collect();
    let robots = RobotsTxt::parse(format!("{agents}User-agent: b\nDisallow: /").as_bytes());
    let binding = robots.binding(&Crawler::parse("b"));
    assert_eq!(binding.names().len(), Binding::NAMES_MAX);
    assert_eq!(
        binding.agent_line(binding.judge("/").rule().unwrap()),
        Some(5001)
    );
}
