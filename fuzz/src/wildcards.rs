//! Generator of questions about files with hundreds of wildcard rules that begin alike
//! and share most of their bytes.
//!
//! Where many rules begin alike, the engine tries only those with three consecutive
//! bytes that occur in the path (`grams.rs`). Here the file is made of a few words, and
//! the path of the same words. Most rules are therefore worth trying, the path has more
//! different triples of bytes than the engine remembers, and a few rules match.

use arbitrary::{Result, Unstructured};

use crate::grammar::fitting;
use crate::question::Question;
use crate::reference::Dialect;

/// Most rules of a file.
const RULES_MAX: usize = 400;

/// Most words of a path.
const PATH_WORDS_MAX: usize = 60;

/// Letters of words. The fewer a file uses, the more bytes its words share.
const LETTERS: &[&str] = &[
    "a", "b", "a", "b", "c", "d", ".", "/", "?", "=", "%3D", "%3d", "&", "%26", "-", "%61", "~",
    "%2F", "%",
];

/// Pieces too short to have three consecutive bytes.
const SHORT: &[&str] = &["a", "b", "ab", "/", "?", ".", "=", "$", ""];

/// Returns a question, and the dialect to ask it in: a dialect with wildcards, mostly
/// that of RFC 9309.
///
/// # Errors
///
/// If no more values can be drawn from `bytes`.
pub fn question(bytes: &mut Unstructured<'_>) -> Result<(Dialect, Question)> {
    let dialect = *bytes.choose(&[
        Dialect::Rfc9309,
        Dialect::Rfc9309,
        Dialect::Rfc9309,
        Dialect::Rfc9309,
        Dialect::Google,
        Dialect::Conner2,
    ])?;
    let words = words(bytes)?;
    let mut body = "User-agent: *\n".to_owned();
    let mut values = Vec::new();
    for _ in 0..bytes.int_in_range(7..=RULES_MAX)? {
        if bytes.is_empty() {
            break;
        }
        let value = value(bytes, &words)?;
        let key = bytes.choose(&["Disallow", "Allow"])?;
        body.push_str(&format!("{key}: {value}\n"));
        values.push(value);
    }
    let question = Question {
        body: body.into_bytes(),
        agent: "a".to_owned(),
        path: path(bytes, &words, &values)?,
    };
    Ok((dialect, question))
}

/// Returns the words that the file and the path are made of.
fn words(bytes: &mut Unstructured<'_>) -> Result<Vec<String>> {
    let letters = bytes.int_in_range(1..=LETTERS.len())?;
    let mut words = Vec::new();
    for _ in 0..bytes.int_in_range(1..=12)? {
        let mut word = String::new();
        for _ in 0..bytes.int_in_range(1..=7)? {
            word.push_str(bytes.choose(&LETTERS[..letters])?);
        }
        words.push(word);
    }
    Ok(words)
}

/// Returns the path of a rule: one of a few beginnings, followed by wildcards and
/// words.
fn value(bytes: &mut Unstructured<'_>, words: &[String]) -> Result<String> {
    let mut value = (*bytes.choose(&["/", "/", "/", "*", "/a", "/a/b"])?).to_owned();
    for _ in 0..bytes.int_in_range(1..=4)? {
        value.push('*');
        let piece = match bytes.int_in_range(0..=7)? {
            0 => bytes.choose(SHORT)?,
            1 => {
                value.push_str(bytes.choose(words)?);
                bytes.choose(words)?.as_str()
            }
            _ => bytes.choose(words)?.as_str(),
        };
        value.push_str(piece);
    }
    value.push_str(bytes.choose(&["", "", "", "$", "*", "*$"])?);
    Ok(value)
}

/// Returns a path: a fixed beginning or one that a rule is likely to match, followed by
/// words.
fn path(bytes: &mut Unstructured<'_>, words: &[String], values: &[String]) -> Result<String> {
    let mut path = match values.is_empty() || bytes.arbitrary()? {
        true => (*bytes.choose(&["/", "/a", "/a/b", "/x"])?).to_owned(),
        false => fitting(bytes.choose(values)?, bytes)?,
    };
    for _ in 0..bytes.int_in_range(0..=PATH_WORDS_MAX)? {
        if bytes.is_empty() {
            break;
        }
        path.push_str(bytes.choose(words)?);
    }
    Ok(path)
}
