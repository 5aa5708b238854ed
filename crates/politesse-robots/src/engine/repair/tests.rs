//! Repairs only refuse more: a path that a file disallows without repairs is also disallowed
//! with them. The tests damage the files of the cases in the ways in which people do. If
//! `POLITESSE_CORPUS` names a folder, they also use the real files in it.

use std::fmt::Write as _;

use super::super::marks::plain;
use super::*;
use crate::crawler::Crawler;
use crate::engine::{Binding, Dialect, RecordKind, RobotsTxt};
use crate::file_source::FileSource;

/// Generator of the same pseudorandom numbers in each run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let rolled = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        rolled as usize % sides.max(1)
    }

    fn one_of<'a, T: ?Sized>(&mut self, several: &[&'a T]) -> &'a T {
        several[self.roll(several.len())]
    }
}

/// Characters that get into a line unnoticed.
const MARKS: &[&[u8]] = &[
    "\u{a0}".as_bytes(),
    b"\xA0",
    "\u{200b}".as_bytes(),
    "\u{feff}".as_bytes(),
    "\u{3000}".as_bytes(),
    "\u{200e} ".as_bytes(),
    "\u{ef}\u{bb}\u{bf}".as_bytes(),
    "\u{2011}".as_bytes(),
    "\u{e9}".as_bytes(),
    b"\xE9",
    b" ",
    b"%2F",
    b"%3A",
    b"*",
];

/// Returns `file` with some lines damaged.
fn damaged(file: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = file
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(lines.len());
        let line = std::mem::take(&mut lines[at]);
        lines[at] = damaged_line(&line, dice);
        let is_agent = lines[at]
            .get(..4)
            .is_some_and(|key| key.eq_ignore_ascii_case(b"user"));
        if is_agent && at + 1 < lines.len() && dice.roll(3) == 0 {
            let next = lines.remove(at + 1);
            lines[at] = [lines[at].trim_ascii_end(), b" ", &next[..]].concat();
        }
    }
    lines.join(&b'\n')
}

fn damaged_line(line: &[u8], dice: &mut Dice) -> Vec<u8> {
    let text = |from: &str, to: &str| {
        String::from_utf8_lossy(line)
            .replacen(from, to, 1)
            .into_bytes()
    };
    match dice.roll(8) {
        0 => text(":", "\u{ff1a}"),
        1 => text("-", "\u{2010}"),
        2 => text(
            "*",
            dice.one_of(&["*.*", "\"*\"", "*;", "**", "* Disallow: /"]),
        ),
        3 => text(": /", ": http://h.example/"),
        4 => [dice.one_of(MARKS), line].concat(),
        5 => [line, dice.one_of(MARKS)].concat(),
        6 => text(
            ": ",
            &format!(": {}", String::from_utf8_lossy(dice.one_of(MARKS))),
        ),
        _ => {
            let (before, after) = line.split_at(dice.roll(line.len() + 1));
            [before, dice.one_of(MARKS), after].concat()
        }
    }
}

/// Returns crawlers that the file names, and one that it does not.
fn crawlers(robots: &RobotsTxt, dice: &mut Dice) -> Vec<Crawler> {
    let agents = robots
        .records()
        .filter(|record| record.kind == RecordKind::UserAgent);
    let mut names: Vec<String> = agents.map(|record| record.value.into_owned()).collect();
    while 5 < names.len() {
        names.swap_remove(dice.roll(names.len()));
    }
    let plain: Vec<String> = names.iter().map(|name| plain(name.as_bytes())).collect();
    names.extend(plain);
    names.push("ExampleBot".to_owned());
    names.iter().map(|name| Crawler::parse(name)).collect()
}

/// Returns paths that the rules concern, as written and as meant.
fn paths(robots: &RobotsTxt, dice: &mut Dice) -> Vec<String> {
    let rules = robots
        .records()
        .filter(|record| matches!(record.kind, RecordKind::Rule(_)));
    let mut values: Vec<String> = rules.map(|record| record.value.into_owned()).collect();
    while 10 < values.len() {
        values.swap_remove(dice.roll(values.len()));
    }
    let mut paths = vec!["/".to_owned(), "/a/b?c=d".to_owned()];
    for value in values {
        let path = value
            .replace('*', dice.one_of(&["", "x", "/"]))
            .replace('$', "");
        let plain = plain(path.as_bytes());
        for path in [path, plain] {
            let path = path.trim_start_matches("http://h.example").to_owned();
            let decoded = path.replace("%3A", ":").replace("%2F", "/");
            paths.extend([path, decoded].map(|path| format!("/{}", path.trim_start_matches('/'))));
        }
    }
    paths
}

/// Judges all paths for all crawlers of one file, with and without repairs. Returns the
/// number of judgements, and adds those that a repair allows to `broken`.
fn ask(file: &[u8], dice: &mut Dice, broken: &mut String) -> usize {
    let site = Origin::new(Scheme::Https, "h.example").unwrap();
    let old = RobotsTxt::unrepaired(file.to_vec());
    let new = RobotsTxt::from_source(
        file.to_vec(),
        Dialect::Rfc9309,
        FileSource::new(&site, None),
    );
    let (crawlers, paths) = (crawlers(&new, dice), paths(&new, dice));
    let mut asked = 0;
    for crawler in &crawlers {
        let standard = [&old, &new].map(|robots| robots.binding(crawler));
        let served = standard.clone().map(Binding::as_served);
        let delays = standard.each_ref().map(Binding::crawl_delay);
        let is_slower = delays[0].unwrap_or(0.0) <= delays[1].unwrap_or(0.0);
        let all = [&old, &new].map(|robots| robots.bindings(crawler));
        for path in &paths {
            asked += 1;
            let [strict, repaired] = standard
                .each_ref()
                .map(|binding| binding.judge(path).allows());
            let [strict_all, repaired_all] = all
                .each_ref()
                .map(|bindings| bindings.iter().all(|binding| binding.judge(path).allows()));
            let [strict_served, repaired_served] = served
                .each_ref()
                .map(|binding| binding.judge(path).allows());
            let holds = (!repaired || strict)
                && (!repaired_all || strict_all)
                && (!repaired_served || strict_served);
            if !holds || !is_slower {
                let text = String::from_utf8_lossy(file);
                writeln!(broken, "{crawler:?} on {path} in\n{text}").unwrap();
            }
        }
    }
    asked
}

fn files() -> Vec<Vec<u8>> {
    let cases = include_str!("../../../cases/robots.jsonl").lines();
    let case = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let cases = cases
        .map(case)
        .map(|case| case["robots"].as_str().unwrap().into());
    let mut files: Vec<Vec<u8>> = cases.collect();
    if let Some(folder) = std::env::var_os("POLITESSE_CORPUS") {
        let folder = std::fs::read_dir(folder).unwrap();
        let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        files.extend(paths.into_iter().map(|path| std::fs::read(path).unwrap()));
    }
    files
}

/// Makes at least `questions` judgements on files that are damaged anew in each round.
fn ask_all(questions: usize) {
    let files = files();
    let mut dice = Dice(0x5EED);
    let (mut asked, mut broken) = (0, String::new());
    while asked < questions && broken.is_empty() {
        for file in &files {
            let damaged = damaged(file, &mut dice);
            asked += ask(file, &mut dice, &mut broken) + ask(&damaged, &mut dice, &mut broken);
            if questions <= asked || !broken.is_empty() {
                break;
            }
        }
    }
    assert!(broken.is_empty(), "{broken}");
}

// Ours: docs/decisions/007-doubt-refuses.md.
#[test]
fn repairs_never_allow_a_refused_path() {
    ask_all(100_000);
}

// Ours: docs/decisions/007-doubt-refuses.md. The same with more files.
#[test]
#[ignore = "it takes minutes; tests/full.sh runs it"]
fn repairs_never_allow_a_refused_path_in_ten_million_judgements() {
    ask_all(10_000_000);
}
