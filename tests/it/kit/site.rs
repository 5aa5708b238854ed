//! A small web to crawl: pages that link to each other and to pages that
//! robots.txt disallows.

use super::origin::Script;
use super::page::Page;

/// Pages that may be fetched, beside the first.
pub(crate) const OPEN: usize = 200;
/// Pages that may not, each linked to from an open one.
pub(crate) const DISALLOWED: usize = 50;

/// The site; its first page is `/`.
pub(crate) fn site() -> Script {
    let robots = "User-agent: *\nDisallow: /private/\nDisallow: /*.cgi$\n";
    let mut script = Script::robots(robots).page("/", page(0));
    for number in 1..=OPEN {
        script = script.page(&format!("/page/{number}"), page(number));
    }
    script
}

/// Whether the site's robots.txt disallows `target`.
pub(crate) fn is_disallowed(target: &str) -> bool {
    target.starts_with("/private/") || target.ends_with(".cgi")
}

/// A page that links to the next, to one further on, and, every fourth one, to
/// one that is disallowed.
fn page(number: usize) -> Page {
    let mut links = Vec::new();
    links.push(format!("/page/{}", number % OPEN + 1));
    links.push(format!("/page/{}", number * 2 % OPEN + 1));
    let forbidden = number / 4;
    match number % 8 {
        3 => links.push(format!("/private/{forbidden}")),
        7 => links.push(format!("/run/{forbidden}.cgi")),
        _ => {}
    }
    let anchors: String = links
        .iter()
        .map(|link| format!("<a href=\"{link}\">{link}</a>\n"))
        .collect();
    Page::html(&format!(
        "<!doctype html><title>{number}</title>\n{anchors}"
    ))
}
