//! Agreement between the engines, and between ours and the naive reference of the tests.
//!
//! Every question is derived from the rules of the file. Differences between engines are
//! counted by their reasons, all of which are known.

use std::collections::BTreeMap;

use politesse_robots::crawler::Crawler;
use politesse_robots::{NoteKind, RobotsTxt, path_of, whole_lines};

use crate::engines::{self, Asked, ENGINES};
use crate::files::{self, AGENT, Case};
use crate::reference;

/// Maximum number of URLs for a file.
const URLS: usize = 14;

/// Returns the files of the folder that `POLITESSE_CORPUS` names, or generated ones.
pub(crate) fn corpus() -> Vec<Case> {
    let Some(folder) = std::env::var_os("POLITESSE_CORPUS") else {
        return files::corpus();
    };
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder of robots.txt files")
        .map(|entry| entry.expect("a file").path())
        .collect();
    paths.sort();
    let cases = paths.iter().map(|path| {
        let body = std::fs::read(path).expect("a file");
        let urls = urls(&body);
        Case {
            name: path.display().to_string(),
            body,
            urls,
        }
    });
    cases.collect()
}

/// Returns URLs that the rules of a file concern, and some that they do not.
fn urls(body: &[u8]) -> Vec<String> {
    let robots = RobotsTxt::parse(body);
    let binding = robots.binding(&Crawler::parse(AGENT));
    let all: Vec<String> = binding
        .rules()
        .map(|rule| rule.text().into_owned())
        .collect();
    let step = (all.len() / (URLS - 3)).max(1);
    let value = |text: &String| Some(text.split_once(':')?.1.trim().to_owned());
    let values = all.iter().step_by(step).filter_map(value);
    let mut paths: Vec<String> = values
        .filter(|value| value.starts_with('/') || value.starts_with('*'))
        .map(|value| {
            let path = value
                .replace('*', "x")
                .replace('$', "")
                .replace(['#', '\\', '^'], "");
            format!("/{}", path.trim_start_matches('/'))
        })
        .take(URLS - 3)
        .collect();
    for path in [
        "/",
        "/index.html",
        "/news/2026/11/a-title.html?page=2&sort=price",
    ] {
        paths.push(path.to_owned());
    }
    let urls = paths
        .iter()
        .map(|path| format!("https://www.example.com{path}"));
    urls.filter(|url| url::Url::parse(url).is_ok()).collect()
}

pub(crate) fn report(corpus: &[Case]) {
    with_reference(corpus);
    let mut differences = BTreeMap::new();
    let mut decisions = 0;
    for case in corpus {
        let engines = ENGINES.iter().filter(|engine| !engine.reads_anew);
        let mut readies: Vec<_> = engines
            .map(|engine| (engine.name, (engine.ready)(&case.body)))
            .collect();
        for url in case.urls.iter().map(|url| Asked::new(url)) {
            decisions += 1;
            let answers = readies
                .iter_mut()
                .map(|(name, ready)| (*name, ready.as_mut().map(|ready| ready.allows(&url))));
            let answers: Vec<_> = answers.collect();
            for (name, _) in answers.iter().filter(|(_, answer)| *answer != answers[0].1) {
                let why = why(case, &url.url);
                *differences.entry((*name, why)).or_insert(0) += 1;
                if why == UNKNOWN {
                    println!("  {name} differs on {}, {}", case.name, url.url);
                }
            }
        }
    }
    println!("\nagreement in {decisions} decisions; answered otherwise than by us:");
    for ((name, why), count) in &differences {
        println!("  {name}: {count}, {why}");
    }
    assert!(differences.keys().all(|(_, why)| *why != UNKNOWN));
}

const UNKNOWN: &str = "for an unknown reason";

/// Returns the known reason why another engine answers differently.
fn why(case: &Case, url: &str) -> &'static str {
    let robots = RobotsTxt::parse(&case.body);
    let binding = robots.binding(engines::crawler());
    let judgement = binding.judge(path_of(url));
    let rule = judgement.rule().map(|rule| rule.text().into_owned());
    let rule = rule.unwrap_or_default();
    let noted = |kind| robots.notes().any(|note| note.kind == kind);
    if matches!(&*case.body, [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) {
        "UTF-16 is not read there (RFC 9309, section 2.2.2: MAY)"
    } else if binding.rules().any(|rule| rule.text().ends_with('\u{a0}')) {
        "a no-break space after a path is no part of it there, nor of an Allow (2.2: WS)"
    } else if url.contains('{') {
        "braces are escaped on one side only there (2.2.2)"
    } else if rule.contains('%') && url.contains('?') {
        "an escape in a query is the byte here, refusing more (2.2.2, the table)"
    } else if noted(NoteKind::JoinsGroup) {
        "another record ends a list of agents there (2.2.4: MUST NOT interfere)"
    } else if noted(NoteKind::OutsideGroup) {
        "rules outside a group bind everybody there (2.2.2: SHOULD ignore)"
    } else if noted(NoteKind::NeverMatches) {
        "a path without a slash gets one there (2.2: it begins with one)"
    } else if binding.rules().any(|rule| rule.text().contains(": *")) {
        "a slash is put before a leading * there (5.1: *.gif$)"
    } else {
        UNKNOWN
    }
}

/// Compares verdict and line with the naive reference.
fn with_reference(corpus: &[Case]) {
    let (mut decisions, mut differing) = (0, 0);
    for case in corpus {
        let body = whole_lines(&case.body, RobotsTxt::BYTES_MIN);
        let binding = RobotsTxt::parse(body).binding(&Crawler::parse(AGENT));
        for url in &case.urls {
            let path = path_of(url);
            let judgement = binding.judge(path);
            let found = (judgement.allows(), judgement.rule().map(|rule| rule.line()));
            let wanted = reference::decide(reference::Dialect::Rfc9309, body, AGENT, path);
            decisions += 1;
            if found != (wanted.allow, wanted.line) {
                differing += 1;
                println!("  {} {url}: {found:?}, reference {wanted:?}", case.name);
            }
        }
    }
    println!("\nnaive reference: {differing} of {decisions} decisions differ");
}
