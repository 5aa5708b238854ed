//! A robots.txt on a page: its lines, numbered and linkable, with marks at some of
//! them; and the lines that differ from another file.
//!
//! Does not know what a mark says.

use std::collections::{BTreeSet, HashMap};

use maud::{Markup, html};
use politesse_robots::RobotsTxt;

use politesse_pages::page::words::{number, shown};

/// Number of lines shown from the beginning. A file of 500 KiB may have more, and a
/// browser would take seconds to show them.
const LINES_MAX: u32 = 5_000;
/// Lines shown around a mark beyond that, and the maximum number of such marks.
const AROUND: u32 = 3;
const LATE_MARKS_MAX: usize = 200;
/// Maximum number of characters shown of a line.
const LINE_MAX: usize = 2_000;

/// Mark at a line.
pub(super) struct LineMark {
    /// Number of the line, counted from 1.
    pub(super) line: u32,
    /// Text of the mark, in HTML.
    pub(super) note: Markup,
}

/// Shows the first lines of a file, and those around marks.
pub(super) fn robots_lines(robots: &RobotsTxt, marks: &[LineMark]) -> Markup {
    let count = robots.numbered_lines().count();
    let is_long = usize::try_from(LINES_MAX).is_ok_and(|max| max < count);
    let late = marks.iter().filter(|mark| LINES_MAX < mark.line);
    let around: BTreeSet<u32> = late
        .take(LATE_MARKS_MAX)
        .flat_map(|mark| mark.line.saturating_sub(AROUND)..=mark.line.saturating_add(AROUND))
        .collect();
    // The first mark of a line counts. A map, because a hostile file has a mark at each
    // line.
    let mut by_line: HashMap<u32, &LineMark> = HashMap::new();
    for mark in marks {
        by_line.entry(mark.line).or_insert(mark);
    }
    let lines = robots.numbered_lines();
    let shown = lines.filter(|(at, _)| *at <= LINES_MAX || around.contains(at));
    html! {
        @if is_long {
            p class="small" {
                "The first " (number(LINES_MAX.into())) " lines of " (number(count as u64))
                @if !around.is_empty() { ", and those around a mark" } "."
            }
        }
        // A scrollable region must be reachable by keyboard (WCAG 2.2, 2.1.1).
        div class="file" tabindex="0" role="region" aria-label="robots.txt" {
            table {
                caption { (number(count as u64)) " lines" }
                thead {
                    tr { th scope="col" class="n" { "line" } th scope="col" { "text" } }
                }
                tbody {
                    @for (at, text) in shown {
                        @let is_behind_gap = LINES_MAX < at && !around.contains(&(at - 1));
                        @if is_behind_gap && at != LINES_MAX + 1 {
                            tr { th scope="row" class="n" { "…" } td { "lines left out" } }
                        }
                        (line(at, &text, by_line.get(&at).copied(), ""))
                    }
                }
            }
        }
    }
}

/// Shows the line that decided and the lines around it. `page` is the address of the
/// page with the whole file.
pub(super) fn robots_excerpt(robots: &RobotsTxt, decided: u32, page: &str) -> Markup {
    let mark = LineMark {
        line: decided,
        note: html! { b { "◀ decided" } },
    };
    let around = decided.saturating_sub(AROUND)..=decided.saturating_add(AROUND);
    let lines = robots.numbered_lines();
    html! {
        // Not a landmark, because one page may show several.
        div class="file" tabindex="0" role="group" aria-label="robots.txt" {
            table {
                caption { "robots.txt, around the line that decided" }
                tbody {
                    @for (at, text) in lines.filter(|(at, _)| around.contains(at)) {
                        (line(at, &text, (at == decided).then_some(&mark), page))
                    }
                }
            }
        }
    }
}

/// Shows a line. `page` is the address of the page with the line targets; empty on that
/// page itself.
fn line(at: u32, text: &str, mark: Option<&LineMark>, page: &str) -> Markup {
    // One page may show several excerpts, and ids must be unique.
    let id = page.is_empty().then(|| format!("L{at}"));
    html! {
        tr id=[id] class=[mark.map(|_| "decided")] {
            th scope="row" class="n" { a href=(format!("{page}#L{at}")) { (at) } }
            td {
                code { bdi { (shown(text, LINE_MAX)) } }
                @if let Some(mark) = mark { " " (mark.note) }
            }
        }
    }
}

/// Shows a line of a diff with its sign besides its colour (WCAG 2.2, 1.4.1).
pub(super) fn diff_line(line: &str) -> Markup {
    let class = match line.as_bytes().first() {
        Some(b'+') => Some("ins"),
        Some(b'-') => Some("del"),
        _ => None,
    };
    html! { span class=[class] { bdi { (shown(line, LINE_MAX)) } } "\n" }
}
