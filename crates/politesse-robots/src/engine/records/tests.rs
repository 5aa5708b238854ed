//! Records other than agents and rules: they are reported and have no effect.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::crawler::Crawler;
use crate::engine::{Dialect, Judgement, RobotsTxt};
use crate::pace::{RequestRate, VisitTime};

/// File with every kind of record at least once.
const EVERY_KIND: &str = "\
Sitemap: http://h.test/s.xml
Host : h.test
# nothing

User-agent: foobot
Robot-version: 2.0
Comment: ask first # not this
Crawl-delay: 1.5
Request-rate: 1/5 0600-0845
Visit-time:\t0600-0845
Disallow: /a
Clean-param: s&t /b

Content-Signal: search=yes, ai-train=no
Content-Usage: /c train-ai=n
User-agent: *
ALLOW: /
License: http://h.test/l.xml
Noindex: /d
LLM-Policy: /p
sitemap: /t
";

/// Returns line, kind, group and value of each record of a text.
fn told(text: &str, dialect: Dialect) -> Vec<(u32, RecordKind, Option<usize>, String)> {
    let robots = RobotsTxt::in_dialect(text.to_owned(), dialect);
    let told = robots.records().map(|record| {
        let value = record.value.into_owned();
        (record.line, record.kind, record.group, value)
    });
    told.collect()
}

// RFC 9309, section 2.2.4.
#[test]
fn every_kind_is_reported_with_its_line_group_and_value() {
    use RecordKind::*;
    let (first, second) = (Some(0), Some(1));
    let expected = [
        (1, Sitemap, None, "http://h.test/s.xml"),
        (2, Host, None, "h.test"),
        (5, UserAgent, first, "foobot"),
        (6, RobotVersion, first, "2.0"),
        (7, Comment, first, "ask first"),
        (8, CrawlDelay, first, "1.5"),
        (9, RequestRate, first, "1/5 0600-0845"),
        (10, VisitTime, first, "0600-0845"),
        (11, Rule(RuleKind::Disallow), first, "/a"),
        (12, CleanParam, first, "s&t /b"),
        (14, ContentSignal, first, "search=yes, ai-train=no"),
        (15, ContentUsage, first, "/c train-ai=n"),
        (16, UserAgent, second, "*"),
        (17, Rule(RuleKind::Allow), second, "/"),
        (18, License, second, "http://h.test/l.xml"),
        (19, Noindex, second, "/d"),
        (20, Unknown, second, "/p"),
        (21, Sitemap, second, "/t"),
    ];
    let expected = expected.map(|(line, kind, group, value)| (line, kind, group, value.to_owned()));
    assert_eq!(told(EVERY_KIND, Dialect::Rfc9309), expected);
}

// The consensus of 1994: a blank line ends a record.
#[test]
fn in_1994_a_record_after_a_blank_line_is_in_no_group() {
    let groups = told(EVERY_KIND, Dialect::Consensus1994).into_iter();
    let behind = groups.filter(|(line, ..)| (12..=15).contains(line));
    let groups: Vec<_> = behind.map(|(_, _, group, _)| group).collect();
    assert_eq!(groups, [Some(0), None, None]);
}

// Ours: names are recognised in any case.
#[test]
fn names_are_reported_as_written() {
    let robots = RobotsTxt::parse(b"SITEMAP: /s\nSite-Map: /t\nlicence: /l\nX-Y: z\nclean-Param:");
    let names: Vec<_> = robots
        .records()
        .map(|record| (record.name.into_owned(), record.kind))
        .collect();
    let expected = [
        ("SITEMAP", RecordKind::Sitemap),
        ("Site-Map", RecordKind::Sitemap),
        ("licence", RecordKind::License),
        ("X-Y", RecordKind::Unknown),
        ("clean-Param", RecordKind::CleanParam),
    ];
    assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
}

// Conner, 1996.
#[test]
fn rates_and_times_can_be_parsed_from_records() {
    let robots = RobotsTxt::parse(
        b"User-agent: *\nrequest-rate: 10/60\t0600-0845 # by day\nVisit-time : 2200 - 0600\n",
    );
    let value = |kind| {
        let mut records = robots.records();
        records.find(|record| record.kind == kind).unwrap().value
    };
    let day = VisitTime::parse("0600-0845").unwrap();
    let rate = RequestRate::parse(&value(RecordKind::RequestRate)).unwrap();
    assert_eq!(
        (rate.documents, rate.seconds, rate.during),
        (10, 60, Some(day))
    );
    let night = VisitTime::parse(&value(RecordKind::VisitTime)).unwrap();
    assert_eq!((night.from, night.to), (22 * 60, 6 * 60));
}

/// Lines of generated files, chosen so that an additional line could make a difference.
const LINES: [&str; 12] = [
    "User-agent: foobot",
    "User-agent: *",
    "User-agent: barbot",
    "Disallow: /",
    "Disallow: /a",
    "Allow: /a/b",
    "Allow: /*b$",
    "Disallow:",
    "Crawl-delay: 7",
    "Disallow /a b",
    "# x",
    "",
];

/// Records of every kind except agents and rules.
const OTHERS: [&str; 17] = [
    "Crawl-delay: 1",
    "Crawl-delay: soon",
    "Request-rate: 1/5",
    "Visit-time: 0600-0845",
    "Robot-version: 1.0",
    "Robot-version: 2.0",
    "Comment: Disallow: /",
    "Sitemap: http://h.test/s.xml",
    "Site-map /s",
    "Host: h.test",
    "Clean-param: s /a",
    "Content-Signal: /a ai-train=no",
    "Content-Usage: /a train-ai=n",
    "License: http://h.test/l.xml",
    "Noindex: /",
    "Unknown: *",
    "Disallow-AI: /",
];

/// Judges `path` for `agent`. Returns whether it is allowed, the line of the rule, and
/// whether no group binds.
fn said(lines: &[&str], agent: &str, path: &str) -> (bool, Option<u32>, bool) {
    let robots = RobotsTxt::parse(lines.join("\n").as_bytes());
    let binding = robots.binding(&Crawler::parse(agent));
    let judgement = binding.judge(path);
    let line = judgement.rule().map(|rule| rule.line());
    (judgement.allows(), line, judgement == Judgement::NoGroup)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    // RFC 9309, section 2.2.4: other records must not interfere.
    #[test]
    fn other_records_change_no_verdict_at_any_position(
        lines in vec(prop::sample::select(&LINES), 0..12),
        other in prop::sample::select(&OTHERS),
        place in any::<prop::sample::Index>(),
    ) {
        let place = place.index(lines.len() + 1);
        let mut longer = lines.clone();
        longer.insert(place, other);
        for agent in ["FooBot", "BarBot", "BazBot"] {
            for path in ["/", "/a", "/a/b", "/cb"] {
                let (allows, line, unbound) = said(&lines, agent, path);
                let line = line.map(|line| line + u32::from(place < line as usize));
                prop_assert_eq!(said(&longer, agent, path), (allows, line, unbound));
            }
        }
    }

    // RFC 9309, section 2.2.4: each is reported, and other records stay as they were.
    #[test]
    fn other_records_are_reported_and_change_no_other_record(
        lines in vec(prop::sample::select(&LINES), 0..12),
        other in prop::sample::select(&OTHERS),
        place in any::<prop::sample::Index>(),
    ) {
        let place = place.index(lines.len() + 1);
        let mut expected = told(&lines.join("\n"), Dialect::Rfc9309);
        for (line, ..) in &mut expected {
            *line += u32::from(place < *line as usize);
        }
        let mut longer = lines;
        longer.insert(place, other);
        let mut found = told(&longer.join("\n"), Dialect::Rfc9309);
        let at = found.iter().position(|(line, ..)| *line as usize == place + 1).unwrap();
        found.remove(at);
        prop_assert_eq!(found, expected);
    }
}
