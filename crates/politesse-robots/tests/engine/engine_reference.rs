//! Tests of the engine against the naive reference (`tests/reference`), on the cases and on
//! generated files, in every dialect.

use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::{Origin, Scheme};
use politesse_robots::{Dialect, FileSource, Judgement, RecordKind, RobotsTxt, whole_lines};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::cases::{body, cases, text};
use crate::reference;
use crate::reference_cases::path;

/// Returns the answer of the engine in the form of the reference.
fn answer(robots: &RobotsTxt, agent: &str, path: &str) -> reference::Verdict {
    let token = ProductToken::new(agent).into_iter().collect();
    let binding = robots.binding(&Crawler::restore(token, None));
    let judgement = binding.judge(path);
    reference::Verdict {
        allow: judgement.allows(),
        line: judgement.rule().map(|rule| rule.line()),
        bound: binding.is_bound(),
    }
}

fn named(dialect: reference::Dialect) -> Dialect {
    dialect.name().parse().unwrap()
}

/// Describes the difference between engine and reference, if there is one. An empty path
/// decides nothing in either, but google/robotstxt names its line anyway.
fn difference(
    (dialect, body): (reference::Dialect, &[u8]),
    (agent, path): (&str, &str),
) -> Option<String> {
    let robots = RobotsTxt::in_dialect(body.to_vec(), named(dialect));
    let found = answer(&robots, agent, path);
    let mut wanted = reference::decide(dialect, body, agent, path);
    let names_empty = dialect == reference::Dialect::Google && wanted.allow && found.line.is_none();
    if names_empty || path == "/robots.txt" {
        wanted.line = found.line;
    }
    (found != wanted).then(|| {
        let body = String::from_utf8_lossy(body);
        format!("{dialect:?}, {agent:?} asks for {path:?}\nengine {found:?}\nreference {wanted:?}\n{body}")
    })
}

fn token() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a",
        "A-b",
        "ab",
        "a2",
        "a.b",
        "Foo",
        "foo-bar",
        "x_y",
        "a b",
        "00",
        "j",
        "J\u{e4}",
        "j\u{e4}-a",
        "J\u{e4}-b",
    ])
    .prop_map(str::to_owned)
}

/// Generates paths in which characters with a meaning to rules are frequent.
fn path_like() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "/",
        "/",
        "a",
        "b",
        "ab",
        "A",
        "*",
        "$",
        "?",
        "=",
        "&",
        ".",
        "%",
        "%2F",
        "%2f",
        "%61",
        "%3D",
        "%3d",
        "%26",
        "%3F",
        "%2A",
        "%24",
        "%25",
        "%7E",
        "~",
        "%41",
        "%zz",
        "\u{e9}",
        "%C3%A9",
        "%c3%a9",
        "[ab]",
        "[!a]",
        "\\",
        "%5B",
        ":",
        "%3A",
        "index.html",
        "robots.txt",
        "\u{a0}",
        "\u{200b}",
        "\u{200e}",
        "%C2%A0",
    ]);
    vec(part, 0..9).prop_map(|parts| parts.concat())
}

fn line() -> impl Strategy<Value = String> {
    let rule = (
        prop::sample::select(vec![
            "Disallow: ",
            "Disallow:",
            "Allow: ",
            "disallow : ",
            "DISALOW: ",
            "Disallow ",
            "Disallow-x: ",
            "Allow-x:",
            "allowed: ",
        ]),
        prop::sample::select(vec!["/", "/", "/", "*", ""]),
        path_like(),
    )
        .prop_map(|(key, first, rest)| format!("{key}{first}{rest}"));
    let agent = (
        prop::sample::select(vec![
            "User-agent: ",
            "useragent:",
            "User-agent ",
            "User agent: ",
        ]),
        prop_oneof![
            3 => Just("*".to_owned()),
            6 => token(),
            1 => token().prop_map(|token| format!("{token}/1.0")),
            1 => token().prop_map(|token| format!("{token}*")),
            1 => token().prop_map(|token| format!("{token}\u{b4}")),
            1 => Just(String::new()),
            1 => Just("* x".to_owned()),
        ],
    )
        .prop_map(|(key, value)| format!("{key}{value}"));
    let other = prop::sample::select(vec![
        "",
        "",
        " ",
        "# x",
        " # x",
        "Sitemap: /x",
        "Crawl-delay: 3",
        "x",
        "x y z",
        "Foo: bar",
        "Disallow",
        "\u{0}",
        "Disallow: /a\u{0}b",
    ])
    .prop_map(str::to_owned);
    prop_oneof![6 => rule, 3 => agent, 2 => other]
}

/// Generates damaged lines, and some that only look damaged.
fn damaged_line() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "\u{feff}User-agent: ",
        "User\u{2011}agent:",
        "User-agent\u{ff1a} ",
        "\u{ef}\u{bb}\u{bf}\u{feff}User-agent: ",
        "User\u{a0}agent: ",
        "\u{200b}Disallow: /",
        "Disallow\u{ff1a}/",
        "Dis\u{200d}allow\u{a0}: ",
        "\u{200b}Allow: /",
        "Disallow: \u{a0}/",
        "Disallow: \u{3000}",
        "Disallow: https://h.example/",
        "User-agent: ",
        "\u{200b}Sitemap: ",
        "\u{200b}Disallow /",
    ]);
    let value = prop::sample::select(vec![
        "*",
        "*.*",
        "\"*\"",
        "**",
        "\u{201c}*\u{201d}",
        "*a*",
        "a",
        "A\u{2010}b",
        "a\u{200b}b",
        "Foo\u{a0}",
        "a Disallow: /",
        "* Disallow: /b",
        "*\u{a0}Disallow\u{ff1a} /a",
        "a: DISALOW : /%2F",
        "a Disallow:",
        "a Allow: /",
        "aDisallow: /",
        "a\u{e9}b*",
        "",
    ]);
    (key, value, path_like()).prop_map(|(key, value, path)| {
        let rest = if key.contains('/') {
            path
        } else {
            value.to_owned()
        };
        format!("{key}{rest}")
    })
}

fn damaged_file() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![2 => damaged_line(), 1 => line()];
    let encode = prop::sample::select(vec![utf8 as fn(&str) -> Vec<u8>, utf8, latin1]);
    (vec(line, 0..10), encode).prop_map(|(lines, encode)| encode(&lines.join("\n")))
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let end = prop::sample::select(vec!["\n", "\n", "\r\n", "\r", " # c\n", " \n"]);
    let mark = prop::sample::select(vec![&b""[..], b"", b"", b"\xEF\xBB\xBF", b"\xEF\xBB"]);
    let encode = prop::sample::select(vec![utf8 as fn(&str) -> Vec<u8>, utf8, latin1]);
    (mark, vec((line(), end), 0..14), encode).prop_map(|(mark, lines, encode)| {
        let lines = lines.iter().map(|(line, end)| format!("{line}{end}"));
        [mark, &encode(&lines.collect::<String>())].concat()
    })
}

fn utf8(text: &str) -> Vec<u8> {
    text.into()
}

/// Encodes a text in ISO-8859-1, as old files are.
fn latin1(text: &str) -> Vec<u8> {
    let bytes = text
        .chars()
        .map(|letter| u8::try_from(letter).unwrap_or(b'?'));
    bytes.collect()
}

/// Generates two files in a row, with or without a byte order mark before them. The first
/// may be in UTF-16.
fn marked_file() -> impl Strategy<Value = Vec<u8>> {
    let mark = prop::sample::select(vec![&b"\xFF\xFE"[..], b"\xFE\xFF", b""]);
    let unit: fn(u16) -> [u8; 2] = u16::to_le_bytes;
    let unit = prop::sample::select(vec![None, Some(unit), Some(u16::to_be_bytes)]);
    (mark, unit, file(), file()).prop_map(|(mark, unit, file, bytes)| {
        let units = String::from_utf8_lossy(&file)
            .encode_utf16()
            .collect::<Vec<_>>();
        let file = match unit {
            Some(unit) => units.into_iter().flat_map(unit).collect(),
            None => file,
        };
        [mark, &file, &bytes].concat()
    })
}

/// Generates files with enough wildcard rules for an index of grams.
fn wild_file() -> impl Strategy<Value = Vec<u8>> {
    let rule = (
        prop::sample::select(vec!["Disallow: /", "Allow: /", "Disallow: /a"]),
        "[ab]{0,2}",
        vec("[*][ab./?=]{1,5}", 1..4),
        prop::sample::select(vec!["", "", "$", "*"]),
    );
    let rule =
        rule.prop_map(|(key, head, tail, end)| format!("{key}{head}{}{end}\n", tail.concat()));
    vec(rule, 7..60).prop_map(|rules| format!("User-agent: *\n{}", rules.concat()).into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    // Ours: one parser and one matcher serve all dialects.
    #[test]
    fn the_engine_agrees_with_the_reference(file in file(), agent in token(), path in path_like()) {
        for dialect in reference::Dialect::ALL {
            let difference = difference((dialect, &file), (&agent, &format!("/{path}")));
            prop_assert!(difference.is_none(), "{}", difference.unwrap_or_default());
        }
    }

    // Ours: repairs only refuse more.
    #[test]
    fn the_engine_agrees_with_the_reference_on_damaged_files(file in damaged_file(), agent in token(), path in path_like()) {
        for dialect in reference::Dialect::ALL {
            let difference = difference((dialect, &file), (&agent, &format!("/{path}")));
            prop_assert!(difference.is_none(), "{}", difference.unwrap_or_default());
        }
    }

    // Ours: a Disallow may contain a URL of the site.
    #[test]
    fn the_engine_agrees_with_the_reference_on_urls_of_the_site(
        host in prop::sample::select(vec!["h.example", "h.example:443", "h.example:8443", "H.example:80", "www.h.example", "h.example?", ""]),
        scheme in prop::sample::select(vec!["https", "HTTP", "ftp"]),
        lines in vec(line(), 0..3),
        path in path_like(),
    ) {
        let site = Origin::new(Scheme::Https, "h.example:8443").unwrap();
        let file = format!("User-agent: *\n{}\nDisallow: {scheme}://{host}/{path}", lines.join("\n"));
        let path = format!("/{}", path.replace('*', "x"));
        let robots = RobotsTxt::from_source(file.clone(), Dialect::Rfc9309, FileSource::new(&site, None));
        let found = answer(&robots, "a", &path);
        let mut wanted = reference::decide_at("https://h.example:8443", file.as_bytes(), "a", &path);
        wanted.line = wanted.line.filter(|_| path != "/robots.txt");
        prop_assert_eq!(found, wanted, "{} {}", path, file);
    }

    // Ours: a Disallow is also compared the way servers read paths.
    #[test]
    fn the_engine_agrees_with_the_reference_on_served_forms(file in prop_oneof![file(), damaged_file()], agent in token(), path in path_like()) {
        let path = format!("/{path}");
        let robots = RobotsTxt::in_dialect(file.clone(), Dialect::Rfc9309);
        let token = ProductToken::new(&agent).into_iter().collect();
        let binding = robots.binding(&Crawler::restore(token, None)).as_served();
        let judgement = binding.judge(&path);
        let wanted = reference::decide_as_served(&file, &agent, &path);
        let found = (judgement.allows(), judgement.rule().map(|rule| rule.line()));
        prop_assert_eq!(found, (wanted.allow, wanted.line), "{} {}", path, robots.text());
        if path != "/robots.txt" {
            let competing = binding.competing(&path);
            prop_assert_eq!(judgement.rule(), competing.first(), "{} {}", path, robots.text());
        }
    }

    // RFC 9309, section 2.2.2, for encodings; ours for the detection of UTF-16.
    #[test]
    fn the_engine_agrees_with_the_reference_on_files_that_begin_like_utf16(file in marked_file(), agent in token(), path in path_like()) {
        for dialect in [reference::Dialect::Rfc9309, reference::Dialect::Draft2019] {
            let difference = difference((dialect, &file), (&agent, &format!("/{path}")));
            prop_assert!(difference.is_none(), "{}", difference.unwrap_or_default());
        }
    }

    // RFC 9309, section 2.5: a cut file has the first records of the whole.
    #[test]
    fn a_file_that_begins_like_utf16_is_cut_in_the_encoding_in_which_it_is_read(file in marked_file(), max in any::<prop::sample::Index>()) {
        let kept = whole_lines(&file, max.index(file.len() + 1));
        let [kept, whole] = [kept, &file[..]].map(|file| RobotsTxt::in_dialect(file.to_vec(), Dialect::Rfc9309));
        let agents = |robots: &RobotsTxt| robots.records().any(|record| record.kind == RecordKind::UserAgent);
        // A file whose agent lines were all cut off may be read in another encoding.
        if agents(&kept) {
            let kept: Vec<_> = kept.records().collect();
            let whole: Vec<_> = whole.records().collect();
            prop_assert!(whole.starts_with(&kept), "{:?} {:?}", kept, whole);
        }
    }

    // RFC 9309, section 2.2.3.
    #[test]
    fn the_engine_agrees_with_the_reference_on_many_wildcard_rules(file in wild_file(), path in "[ab./?=%]{0,24}") {
        let asked = ("a", &*format!("/{path}"));
        let difference = difference((reference::Dialect::Rfc9309, &file), asked);
        prop_assert!(difference.is_none(), "{}", difference.unwrap_or_default());
    }

    // Ours: no line is lost.
    #[test]
    fn every_line_with_content_has_a_record_or_a_note(file in prop_oneof![file(), damaged_file()]) {
        let robots = RobotsTxt::in_dialect(file, Dialect::Rfc9309);
        let mut told: Vec<u32> = robots.records().map(|record| record.line).collect();
        told.extend(robots.notes().map(|note| note.line));
        let text = robots.text();
        let lines = text.replace("\r\n", "\n").replace('\r', "\n");
        for (number, line) in (1_u32..).zip(lines.split('\n')) {
            let content = line.split('#').next().unwrap().trim_matches([' ', '\t']);
            prop_assert_eq!(content.is_empty(), !told.contains(&number), "line {}: {}", number, line);
        }
    }

    // Ours: the slow search of explanations must agree with the index.
    #[test]
    fn the_deciding_rule_is_the_first_of_the_competing_rules(file in prop_oneof![file(), damaged_file()], path in path_like()) {
        for dialect in Dialect::ALL {
            let robots = RobotsTxt::in_dialect(file.clone(), dialect);
            let binding = robots.binding(&Crawler::parse("a"));
            let path = format!("/{path}");
            let judgement = binding.judge(&path);
            let competing = binding.competing(&path);
            match judgement {
                Judgement::Rule(rule) => prop_assert_eq!(Some(&rule), competing.first()),
                Judgement::RobotsTxt => {}
                Judgement::NoRule | Judgement::NoGroup | Judgement::Undecided => prop_assert!(competing.is_empty(), "{:?} {:?} {}", dialect, competing, robots.text()),
            }
        }
    }
}

#[test]
fn the_engine_meets_every_dialect_case() {
    let mut broken = Vec::new();
    for case in &cases(include_str!("../../cases/dialects.jsonl")) {
        let dialect = reference::Dialect::named(text(case, "dialect")).unwrap();
        let robots = RobotsTxt::in_dialect(body(case), named(dialect));
        let path = path(dialect, text(case, "url"));
        let found = answer(&robots, text(case, "agent"), &path);
        let names_empty = dialect == reference::Dialect::Google && found.allow;
        let line_differs =
            serde_json::json!(found.line) != case["line"] && !(names_empty && found.line.is_none());
        if case["expect"] != found.allow || line_differs {
            broken.push(format!("{}: {found:?}", text(case, "id")));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
