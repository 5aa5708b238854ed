//! What a person gets to know of a page: its author, who wants to see what
//! crawlers are told and where that was said.

use super::said::{Said, said};
use super::{Body, Found};
use crate::cli::inert::inert;
use crate::clock;
use politesse_directives::preferences::Preference;
use politesse_robots::crawler::ProductToken;

/// Tells the directives in force, how far that is all, and the field.
pub(super) fn sentences(found: &Found<'_>) -> String {
    let value = found.annotation.header_value(&found.form);
    let listed = said(&found.directives());
    let mut lines = vec![heading(found, &listed)];
    lines.extend(listed.iter().map(|said| format!("  {}", told(said))));
    lines.push(format!("  {}", state(found)));
    lines.extend(found.annotation.preferences().iter().map(preferred));
    lines.push(format!("  {}", names(found)));
    lines.push(format!("  {}", body(&found.body)));
    lines.push(format!("{}: {value}", found.field));
    let lines = lines.iter().map(|line| inert(line) + "\n");
    lines.collect()
}

fn heading(found: &Found<'_>, listed: &[Said]) -> String {
    let who = found.crawler.token().map(ProductToken::as_str);
    let who = who.unwrap_or("everyone");
    match listed {
        [] if found.annotation.why().is_none() => format!("for {who}: nothing is in force"),
        [] => format!("for {who}: nothing is known to be in force"),
        [_] => format!("for {who}: 1 directive is in force"),
        _ => format!("for {who}: {} directives are in force", listed.len()),
    }
}

fn told(said: &Said) -> String {
    let places: Vec<&str> = said.sources.iter().map(|letter| place(letter)).collect();
    let places = match places.as_slice() {
        [] => String::new(),
        _ => format!(", said in {}", places.join(" and ")),
    };
    let date = match said.date {
        Some(date) if date <= clock::now() => ", which has come: noindex",
        _ => "",
    };
    format!("{}{date}{places}", said.directive)
}

/// A preference about a use, which is no directive.
fn preferred(preference: &Preference) -> String {
    let carriers = preference.carriers.iter();
    let places: Vec<&str> = carriers.map(|it| place(it.letter().as_str())).collect();
    format!(
        "  preferred: {preference}, said in {}",
        places.join(" and ")
    )
}

/// What a letter of `src` stands for.
fn place(letter: &str) -> &str {
    match letter {
        "r" => "Robots-Tag",
        "x" => "X-Robots-Tag",
        "m" => "<meta>",
        "u" => "robots.txt",
        "h" => "a field",
        other => other,
    }
}

fn state(found: &Found<'_>) -> String {
    match found.annotation.why() {
        None => "complete: what is not listed is not in force".to_owned(),
        Some(why) => format!(
            "{}, {why}: {}. What is listed is in force; whether anything else is, is not known: \
             treat it as a page you could not read",
            found.annotation.state().as_str(),
            because(why)
        ),
    }
}

/// What a word of `why` means.
fn because(why: &str) -> &str {
    match why {
        "head-limit" => "the head of the page is longer than what is read of it",
        "time" => "the head of the page did not come in time",
        "coding" => "the body has a content coding that is not decoded",
        "charset" => "the body has a character encoding that is not decoded",
        "corrupt" => "the body cannot be decoded to its end",
        "window" => "decoding the body takes a larger window than is allowed",
        "method" => "the answer to HEAD has no body",
        "not-modified" => "a 304 does not bring the page again",
        "range" => "the body is a part that does not hold the whole head",
        "field-limit" => "the fields are longer, or more, than what is read of them",
        "joined" => "several field lines seem to have been joined on the way",
        "memory" => "no memory was left to hold the page",
        "field-cap" => "the field would be too long",
        "internal" => "a failure of ours",
        other => other,
    }
}

fn names(found: &Found<'_>) -> String {
    let names = found.crawler.candidates().iter().map(ProductToken::as_str);
    let names: Vec<&str> = names.collect();
    match (names.is_empty(), found.crawler.user_agent()) {
        (false, _) => format!("names: {}", names.join(", ")),
        (true, Some(said)) => format!("names: none to be found in {said:?}"),
        (true, None) => "names: none given, so that only what everyone is told counts".to_owned(),
    }
}

fn body(body: &Body) -> String {
    match body {
        Body::Absent => "body: none given, so that only the fields were read".to_owned(),
        Body::Read(0) | Body::Other(0) => "body: nothing of it was looked at".to_owned(),
        Body::Read(bytes) => format!("body: {bytes} bytes of it were looked at"),
        Body::Other(bytes) => format!(
            "body: not HTML by its first {bytes} bytes, so no <meta> was looked for; with \
             --content-type text/html it is"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use politesse_directives::{State, Why};

    const CHAPTER: &str = include_str!("../../../docs/annotation.md");

    // docs/annotation.md has a row for each word.
    #[test]
    fn every_reason_that_is_documented_is_told_in_words() {
        let (_, table) = CHAPTER.split_once("\n| `state` | `why` |").unwrap();
        let rows = table.lines().skip(2);
        let whys: Vec<&str> = rows
            .take_while(|row| row.starts_with('|'))
            .filter_map(|row| row.split('|').nth(2))
            .map(|cell| cell.trim().trim_matches('`'))
            .filter(|why| !why.is_empty())
            .collect();
        // Those that are, and `internal`.
        let known = Why::ALL.map(|why| State::Partial(why).why_word());
        let known = known.into_iter().flatten().chain(["internal"]);
        assert_eq!(
            whys.iter().copied().collect::<BTreeSet<_>>(),
            known.collect()
        );
        for why in whys {
            assert_ne!(because(why), why);
        }
    }
}
