//! Checks that any bytes can be read as a robots.txt in every dialect: nothing panics,
//! every line is a record, a note or empty, and a judgement stays within its time
//! limit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use politesse_fuzz::time::{BYTES_MAX, within_bound};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::{
    Binding, Dialect, Judgement, RecordKind, RequestRate, RobotsTxt, VisitTime, whole_lines,
};

/// Files of up to this many bytes are read in every dialect, longer ones in a single
/// one.
const SHORT: usize = 2048;

/// Number of crawlers and of paths taken from a file.
const ASKED: usize = 4;

/// Most rules of a binding for which the competing ones are checked, because the engine
/// tries each of them by itself.
const COMPETING_MAX: usize = 64;

/// Longest line in bytes of which google/robotstxt drops nothing.
const LINE_MAX: usize = 16_663;

fuzz_target!(|input: &[u8]| {
    if BYTES_MAX < input.len() {
        return;
    }
    cut(input);
    for dialect in Dialect::ALL {
        let turn = Dialect::ALL[input.len() % Dialect::ALL.len()];
        if input.len() <= SHORT || dialect == turn {
            read(input, dialect);
        }
    }
});

/// Checks that a file that is cut at a limit (RFC 9309, section 2.5) keeps whole lines.
fn cut(input: &[u8]) {
    let max = input.first().map_or(0, |&byte| usize::from(byte));
    let kept = whole_lines(input, max);
    assert!(kept.len() <= max && input.starts_with(kept));
    // The bytes that are kept may change whether the file counts as UTF-16.
    if input.starts_with(b"\xFF\xFE") || input.starts_with(b"\xFE\xFF") || begins_in_pairs(input) {
        return;
    }
    let [kept, whole] =
        [kept, input].map(|text| RobotsTxt::in_dialect(text.to_vec(), Dialect::Rfc9309));
    let records: Vec<_> = whole.records().collect();
    assert!(records.starts_with(&kept.records().collect::<Vec<_>>()));
}

/// Reports whether the input may be UTF-16 without a byte order mark.
fn begins_in_pairs(input: &[u8]) -> bool {
    input.iter().take(4).any(|&byte| byte == 0)
}

fn read(input: &[u8], dialect: Dialect) {
    let robots = RobotsTxt::in_dialect(input.to_vec(), dialect);
    every_line_is_told(&robots);
    let mut crawlers = vec![Crawler::parse("a")];
    let mut paths = ["", "/", "/robots.txt", "?a=%3D", "/a%2Fb?x=%3d*$\u{e9}"]
        .map(str::to_owned)
        .to_vec();
    for record in robots.records() {
        let _ = (
            RequestRate::parse(&record.value),
            VisitTime::parse(&record.value),
        );
        if record.kind == RecordKind::UserAgent && crawlers.len() <= ASKED {
            let token = ProductToken::new(&record.value).ok();
            crawlers.push(Crawler::restore(token.into_iter().collect(), None));
        } else if matches!(record.kind, RecordKind::Rule(_)) && paths.len() <= 5 + ASKED {
            paths.push(record.value.into_owned());
        }
    }
    for crawler in &crawlers {
        for path in &paths {
            within_bound(|| {
                let robots = RobotsTxt::in_dialect(input.to_vec(), dialect);
                robots.binding(crawler).judge(path).allows()
            });
        }
        for binding in robots.bindings(crawler) {
            for path in &paths {
                judge(&binding, path);
            }
        }
    }
}

/// Checks that every line that is not empty gives a record or a note, and that empty
/// lines give none.
fn every_line_is_told(robots: &RobotsTxt) {
    let text = robots.text().replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let mut told = vec![0; lines.len()];
    let mut count = |line: u32| {
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        told[line - 1] += 1;
    };
    robots.records().for_each(|record| count(record.line));
    robots.notes().for_each(|note| count(note.line));
    for (line, told) in lines.into_iter().zip(told) {
        assert!(told <= 4, "{told} of {line:?}");
        if line.len() <= LINE_MAX {
            assert_eq!(is_empty(line, robots.dialect()), told == 0, "{line:?}");
        }
    }
}

/// Reports whether a line has nothing but blanks before its comment.
fn is_empty(line: &str, dialect: Dialect) -> bool {
    let is_google = dialect == Dialect::Google;
    let ends = |letter: char| letter == '#' || (is_google && letter == '\0');
    let is_blank = |letter: char| match letter {
        ' ' | '\t' => true,
        '\u{b}' | '\u{c}' => is_google,
        _ => false,
    };
    let end = line.find(ends).unwrap_or(line.len());
    line[..end].chars().all(is_blank)
}

/// Checks the properties that every judgement has.
fn judge(binding: &Binding, path: &str) {
    let judgement = binding.judge(path);
    assert_eq!(judgement, binding.judge(path));
    if let Judgement::Rule(rule) = &judgement {
        assert!(binding.rules().any(|own| own == *rule), "{rule:?}");
        let agent = binding.agent_line(rule);
        assert!(agent.is_some_and(|line| line <= rule.line()), "{rule:?}");
        assert!(!binding.names_of(rule).is_empty());
        assert!(0 < rule.length(), "{rule:?}");
    }
    let rules = binding.rules().take(COMPETING_MAX + 1).count();
    if rules <= COMPETING_MAX && path != "/robots.txt" {
        let competing = binding.competing(path);
        assert_eq!(judgement.rule(), competing.first(), "{path:?}");
    }
    let delay = binding.crawl_delay();
    assert!(delay.is_none_or(|seconds| seconds.is_finite() && 0.0 <= seconds));
    assert!(binding.is_bound() || binding.names().is_empty());
}
