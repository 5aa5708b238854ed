//! English that reads as translated: phrases that say in a roundabout way who does what.

use std::fs;
use std::path::PathBuf;

use crate::sources::{assert_few, top};

/// Phrases for which there is nearly always a shorter one.
const PHRASES: [&str; 10] = [
    "at will",
    "be had",
    "by which",
    "for want of",
    "goes on",
    "is none",
    "is told",
    "nobody",
    "so many",
    "whoever",
];

/// A few stand where no other word is as plain.
const PHRASES_MAX: usize = 80;

const FOLDERS: [&str; 9] = [
    "benches", "certs", "contrib", "crates", "docs", "examples", "fuzz", "src", "tests",
];

/// Returns the paths of all Rust sources and Markdown pages, tests among them.
fn files() -> Vec<PathBuf> {
    let top = top();
    let mut folders: Vec<_> = FOLDERS.iter().map(|name| top.join(name)).collect();
    let beside = fs::read_dir(&top)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = beside.filter(|path| path.is_file()).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("target") => {}
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.retain(|path| {
        path.extension()
            .is_some_and(|kind| kind == "rs" || kind == "md")
    });
    assert!(files.len() > 500, "the sources were not found");
    files
}

/// Returns the comments of a Rust source as one line: a phrase may be broken anywhere.
fn comments(source: &str) -> String {
    let comment = |line: &str| {
        let (_, text) = line.split_once("// ").or_else(|| line.split_once("//! "))?;
        Some(text.to_owned())
    };
    let lines = source.lines().filter_map(comment);
    lines.collect::<Vec<_>>().join(" ")
}

fn count_words(text: &str, phrase: &str) -> usize {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.to_lowercase();
    let is_letter = |part: Option<char>| part.is_some_and(char::is_alphanumeric);
    let places = text.match_indices(phrase).filter(|(at, _)| {
        let (before, after) = (&text[..*at], &text[at + phrase.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    });
    places.count()
}

#[test]
fn prose_says_who_does_what() {
    let mut found = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).unwrap();
        let is_rust = path.extension().is_some_and(|kind| kind == "rs");
        let prose = if is_rust { comments(&text) } else { text };
        for phrase in PHRASES {
            let count = count_words(&prose, phrase);
            found.extend((0..count).map(|_| format!("{}: {phrase}", path.display())));
        }
    }
    assert_few(&found, PHRASES_MAX);
}

#[test]
fn a_phrase_is_found_across_lines_and_not_inside_words() {
    let source = "let a = 1; // It is\n/// none of ours.\ncode(\"nobody\");\n";
    assert_eq!(count_words(&comments(source), "is none"), 1);
    assert_eq!(count_words(&comments(source), "nobody"), 0);
    assert_eq!(count_words("This nonentity; is none.", "is none"), 1);
}
