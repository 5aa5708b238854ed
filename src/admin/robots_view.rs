//! A robots.txt on a page: its lines with numbers that can be linked to, and marks at
//! some of them.
//!
//! Does not know what a mark says.

use maud::{Markup, html};
use politesse_robots::RobotsTxt;

use crate::page::words::{number, shown};

/// Lines that are shown. A file of 500 KiB may have more of them, and a browser would
/// take seconds for it.
const LINES_MAX: usize = 5_000;
/// Characters of a line that are shown.
const LINE_MAX: usize = 2_000;

/// Mark at a line.
pub(super) struct LineMark {
    pub(super) line: u32,
    pub(super) note: Markup,
}

/// Shows the lines of a file.
pub(super) fn robots_lines(robots: &RobotsTxt, marks: &[LineMark]) -> Markup {
    let count = robots.numbered_lines().count();
    html! {
        @if LINES_MAX < count {
            p class="small" {
                "The first " (number(LINES_MAX as u64)) " lines of " (number(count as u64)) "."
            }
        }
        // A region that scrolls can be reached by keyboard (WCAG 2.2, 2.1.1).
        div class="file" tabindex="0" role="region" aria-label="robots.txt" {
            table {
                caption { (number(count as u64)) " lines" }
                thead {
                    tr { th scope="col" class="n" { "line" } th scope="col" { "text" } }
                }
                tbody {
                    @for (at, text) in robots.numbered_lines().take(LINES_MAX) {
                        @let mark = marks.iter().find(|mark| mark.line == at);
                        tr id=(format!("L{at}")) class=[mark.map(|_| "decided")] {
                            th scope="row" class="n" { a href=(format!("#L{at}")) { (at) } }
                            td {
                                code { bdi { (shown(&text, LINE_MAX)) } }
                                @if let Some(mark) = mark { " " (mark.note) }
                            }
                        }
                    }
                }
            }
        }
    }
}
