//! Text answers of `directives`, for page authors who want to see which directives are
//! in force and where each is stated.
//!
//! Does not know how the annotation is made.

use super::page::{ActiveDirective, PageBody, PageReport};
use politesse_base::clock;
use politesse_base::inert::inert;
use politesse_directives::preferences::Preference;
use politesse_robots::crawler::ProductToken;

/// Returns lines with the directives in force, whether the list is complete, and the
/// field.
pub(super) fn sentences(page: &PageReport<'_>) -> String {
    let value = page.annotation.header_value(&page.form);
    let directives = page.active_directives();
    let mut lines = vec![heading(page, &directives)];
    lines.extend(
        directives
            .iter()
            .map(|directive| format!("  {}", active(directive))),
    );
    lines.push(format!("  {}", state(page)));
    lines.extend(page.annotation.preferences().iter().map(preferred));
    lines.push(format!("  {}", names(page)));
    lines.push(format!("  {}", body(&page.body)));
    lines.push(format!("{}: {value}", page.field));
    let lines = lines.iter().map(|line| inert(line) + "\n");
    lines.collect()
}

fn heading(page: &PageReport<'_>, directives: &[ActiveDirective]) -> String {
    let token = page.crawler.token().map(ProductToken::as_str);
    let who = token.unwrap_or("everyone");
    match directives {
        [] if page.annotation.why().is_none() => format!("for {who}: nothing is in force"),
        [] => format!("for {who}: nothing is known to be in force"),
        [_] => format!("for {who}: 1 directive is in force"),
        _ => format!("for {who}: {} directives are in force", directives.len()),
    }
}

fn active(directive: &ActiveDirective) -> String {
    let places: Vec<&str> = directive
        .sources
        .iter()
        .map(|letter| place(letter))
        .collect();
    let sources = match places.as_slice() {
        [] => String::new(),
        _ => format!(", said in {}", places.join(" and ")),
    };
    let date = match directive.date {
        // unavailable_after means noindex from its date on.
        Some(date) if date <= clock::now() => ", which has come: noindex",
        _ => "",
    };
    format!("{}{date}{sources}", directive.directive)
}

/// Returns the line for a preference about a use, which is not a directive.
fn preferred(preference: &Preference) -> String {
    let carriers = preference.carriers.iter();
    let places: Vec<&str> = carriers.map(|it| place(it.letter().as_str())).collect();
    format!(
        "  preferred: {preference}, said in {}",
        places.join(" and ")
    )
}

/// Returns the name of the place that a letter of `src` stands for.
fn place(letter: &str) -> &str {
    match letter {
        "r" => "Robots-Tag",
        "x" => "X-Robots-Tag",
        "m" => "<meta>",
        "u" => "robots.txt",
        "f" => "tdmrep.json",
        "h" => "a field",
        // A letter from a later version is printed unchanged.
        other => other,
    }
}

fn state(page: &PageReport<'_>) -> String {
    match page.annotation.why() {
        None => "complete: what is not listed is not in force".to_owned(),
        Some(why) => format!(
            "{}, {why}: {}. What is listed is in force; whether anything else is, is not known: \
             treat it as a page you could not read",
            page.annotation.state().as_str(),
            because(why)
        ),
    }
}

/// Explains a word of `why`.
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

fn names(page: &PageReport<'_>) -> String {
    let candidates = page.crawler.candidates().iter();
    let names: Vec<&str> = candidates.map(ProductToken::as_str).collect();
    match (names.is_empty(), page.crawler.user_agent()) {
        (false, _) => format!("names: {}", names.join(", ")),
        (true, Some(said)) => format!("names: none to be found in {said:?}"),
        (true, None) => {
            "names: none given, so that only the directives for everyone count".to_owned()
        }
    }
}

fn body(body: &PageBody) -> String {
    match body {
        PageBody::Absent => "body: none given, so that only the fields were read".to_owned(),
        PageBody::Read(0) | PageBody::Other(0) => "body: nothing of it was looked at".to_owned(),
        PageBody::Read(bytes) => format!("body: {bytes} bytes of it were looked at"),
        PageBody::Other(bytes) => format!(
            "body: not HTML by its first {bytes} bytes, so no <meta> was looked for; with \
             --content-type text/html it is"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use politesse_directives::{AnnotationState, PartialReason};

    const CHAPTER: &str = include_str!("../../../docs/annotation.md");

    // docs/annotation.md has one row per word.
    #[test]
    fn every_documented_reason_is_explained_in_words() {
        let (_, table) = CHAPTER.split_once("\n| `state` | `why` |").unwrap();
        let rows = table.lines().skip(2);
        let whys: Vec<&str> = rows
            .take_while(|row| row.starts_with('|'))
            .filter_map(|row| row.split('|').nth(2))
            .map(|cell| cell.trim().trim_matches('`'))
            .filter(|why| !why.is_empty())
            .collect();
        // All reasons for a partial annotation, and `internal`.
        let known = PartialReason::ALL.map(|why| AnnotationState::Partial(why).why_word());
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
