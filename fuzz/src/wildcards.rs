//! Questions about files with hundreds of wildcards in rules that begin alike
//! and share most of their octets.
//!
//! Where many rules hang at one place, the engine tries those of which three
//! octets in a row occur in the path (`grams.rs`). A file is made of a few words
//! here, and the path of the same words, so that most rules are worth trying,
//! more such threes occur than are remembered, and a few rules match.

use arbitrary::{Result, Unstructured};

use crate::grammar::fitting;
use crate::question::Question;
use crate::reference::Dialect;

/// The most rules of a file.
const RULES_MAX: usize = 400;

/// The most words of a path.
const PATH_WORDS_MAX: usize = 60;

/// What words are made of: the fewer, the more they share.
const LETTERS: &[&str] = &[
    "a", "b", "a", "b", "c", "d", ".", "/", "?", "=", "%3D", "%3d", "&", "%26", "-", "%61", "~",
    "%2F", "%",
];

/// Pieces in which no three octets are left.
const SHORT: &[&str] = &["a", "b", "ab", "/", "?", ".", "=", "$", ""];

/// A question, and the dialect to ask it in: mostly that of RFC 9309, always
/// one that has wildcards.
///
/// # Errors
///
/// If `octets` cannot be drawn from any more.
pub fn question(octets: &mut Unstructured<'_>) -> Result<(Dialect, Question)> {
    let dialect = *octets.choose(&[
        Dialect::Rfc9309,
        Dialect::Rfc9309,
        Dialect::Rfc9309,
        Dialect::Rfc9309,
        Dialect::Google,
        Dialect::Conner2,
    ])?;
    let words = words(octets)?;
    let mut body = "User-agent: *\n".to_owned();
    let mut values = Vec::new();
    for _ in 0..octets.int_in_range(7..=RULES_MAX)? {
        if octets.is_empty() {
            break;
        }
        let value = value(octets, &words)?;
        let key = octets.choose(&["Disallow", "Allow"])?;
        body.push_str(&format!("{key}: {value}\n"));
        values.push(value);
    }
    let question = Question {
        body: body.into_bytes(),
        agent: "a".to_owned(),
        path: path(octets, (&words, &values))?,
    };
    Ok((dialect, question))
}

/// What the file and the path are made of.
fn words(octets: &mut Unstructured<'_>) -> Result<Vec<String>> {
    let letters = octets.int_in_range(1..=LETTERS.len())?;
    let mut words = Vec::new();
    for _ in 0..octets.int_in_range(1..=12)? {
        let mut word = String::new();
        for _ in 0..octets.int_in_range(1..=7)? {
            word.push_str(octets.choose(&LETTERS[..letters])?);
        }
        words.push(word);
    }
    Ok(words)
}

/// The path of a rule: one of a few beginnings, then wildcards and words.
fn value(octets: &mut Unstructured<'_>, words: &[String]) -> Result<String> {
    let mut value = (*octets.choose(&["/", "/", "/", "*", "/a", "/a/b"])?).to_owned();
    for _ in 0..octets.int_in_range(1..=4)? {
        value.push('*');
        let piece = match octets.int_in_range(0..=7)? {
            0 => octets.choose(SHORT)?,
            1 => {
                value.push_str(octets.choose(words)?);
                octets.choose(words)?.as_str()
            }
            _ => octets.choose(words)?.as_str(),
        };
        value.push_str(piece);
    }
    value.push_str(octets.choose(&["", "", "", "$", "*", "*$"])?);
    Ok(value)
}

/// Words in a row, or what one of the rules is likely to match.
fn path(octets: &mut Unstructured<'_>, (words, values): (&[String], &[String])) -> Result<String> {
    let mut path = match values.is_empty() || octets.arbitrary()? {
        true => (*octets.choose(&["/", "/a", "/a/b", "/x"])?).to_owned(),
        false => fitting(octets.choose(values)?, octets)?,
    };
    for _ in 0..octets.int_in_range(0..=PATH_WORDS_MAX)? {
        if octets.is_empty() {
            break;
        }
        path.push_str(octets.choose(words)?);
    }
    Ok(path)
}
