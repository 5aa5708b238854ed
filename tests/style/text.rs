//! Limits on the text of comments and the size of files.

use crate::sources::{self, SourceFile, assert_few};

/// Percentage of doc comments that may begin with a pronoun, which needs the neighbouring
/// text to be understood.
const PRONOUNS_PERCENT_MAX: usize = 5;

/// Most lines of code for each comment that gives a reason.
const LINES_PER_COMMENT_MAX: usize = 50;

const SMALL_FILE_LINES: usize = 60;
const SMALL_FILES_MAX: usize = 15;

const PRONOUNS: [&str; 16] = [
    "It", "Its", "Such", "That", "The same", "Their", "These", "They", "This", "Those", "What",
    "Whatever", "Where", "Who", "Whom", "Whose",
];

/// Beginnings of citations of documents that are not in this repository.
const PAPERS: [&str; 5] = [
    "Contract,",
    "Decisions,",
    "Issue ",
    "Deliver ",
    "architecture, section",
];

fn places(files: &[SourceFile], wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(&file.lines) {
            if wrong(line.trim()) {
                places.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    places
}

/// Returns the first lines of all doc comments of items.
fn doc_beginnings(files: &[SourceFile]) -> Vec<String> {
    let mut beginnings = Vec::new();
    for file in files {
        let mut before = "";
        for (number, line) in (1..).zip(&file.lines) {
            let line = line.trim();
            if line.starts_with("/// ") && !before.starts_with("///") {
                beginnings.push(format!("{}:{number}: {line}", file.path));
            }
            before = line;
        }
    }
    beginnings
}

fn begins_with_a_pronoun(beginning: &str) -> bool {
    let text = beginning.split_once("/// ").unwrap().1;
    PRONOUNS.iter().any(|word| {
        text.strip_prefix(word)
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    })
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let beginnings = doc_beginnings(&sources::all());
    let all = beginnings.len();
    let wrong: Vec<String> = beginnings
        .into_iter()
        .filter(|text| begins_with_a_pronoun(text))
        .collect();
    assert_few(&wrong, all * PRONOUNS_PERCENT_MAX / 100);
}

#[test]
fn code_has_a_comment_with_a_reason_every_fifty_lines() {
    let mut code = 0;
    let mut comments = 0;
    for file in &sources::all() {
        let mut before = "";
        for line in file.lines.iter().map(|line| line.trim()) {
            if line.starts_with("//") {
                let reason = !line.starts_with("///") && !line.starts_with("//!");
                comments += usize::from(reason && !before.starts_with("//"));
            } else if !line.is_empty() {
                code += 1;
            }
            before = line;
        }
    }
    assert!(
        code <= comments * LINES_PER_COMMENT_MAX,
        "{comments} comments in {code} lines of code"
    );
}

#[test]
fn byte_is_the_word_for_eight_bits() {
    let is_octet = |line: &str| {
        line.to_lowercase()
            .replace("octet-stream", "")
            .contains("octet")
    };
    // std names the bytes of an address `octets()`.
    let files = sources::all();
    let places = places(&files, |line| is_octet(&line.replace(".octets()", "")));
    assert_few(&places, 0);
}

#[test]
fn comments_cite_only_documents_of_the_repository() {
    let files = sources::all();
    let places = places(&files, |line| {
        line.starts_with("//") && PAPERS.iter().any(|paper| line.contains(paper))
    });
    assert_few(&places, 0);
}

#[test]
fn few_files_are_too_small_for_a_subject() {
    let files = sources::all();
    let small: Vec<String> = files
        .iter()
        // The root of a crate lists its modules.
        .filter(|file| !file.path.ends_with("src/lib.rs"))
        .filter(|file| file.lines.len() < SMALL_FILE_LINES)
        .map(|file| format!("{} ({})", file.path, file.lines.len()))
        .collect();
    assert_few(&small, SMALL_FILES_MAX);
}
