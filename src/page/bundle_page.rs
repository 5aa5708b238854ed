//! Report of a bundle, for people who know nothing of robots.txt.
//!
//! The same facts always give the same page, with the same date: a verification makes
//! the page again and compares it. Does not know how the facts are counted.

use maud::{Markup, html};

use crate::audit::bundle::{BundleCounts, BundleName, BundleReport, BundleTable};
use crate::page::charts::ChartPart;
use crate::page::over_time::{HourCounts, over_time};
use crate::page::words::{code, counted, foreign, minute, number, percent, shown};
use crate::page::{Figure, PageFrame, figures, page, robots_box};

/// Characters of the title's host.
const HOST_MAX: usize = 80;

/// Parts of the bars of the chart over time, in the order of [`parts`].
const PARTS: [ChartPart; 4] = [
    ChartPart {
        name: "allowed",
        class: "sent",
    },
    ChartPart {
        name: "let through by the operator",
        class: "reported",
    },
    ChartPart {
        name: "put off",
        class: "later",
    },
    ChartPart {
        name: "refused",
        class: "refused",
    },
];

/// Makes the page, in ASCII: a bundle has no other text of ours.
pub(crate) fn bundle_page(report: &BundleReport) -> String {
    let title = match &report.host {
        Some(host) => format!("Decisions about {}", shown(host, HOST_MAX)),
        None => "Decisions about requests of crawlers".to_owned(),
    };
    let when = match report.times {
        Some([first, last]) => format!("{} to {} (UTC)", minute(first), minute(last)),
        None => String::new(),
    };
    let frame = PageFrame {
        title: &title,
        when: &when,
        // Version and date are those of the bundle, not those of this run: a verification
        // must get the same page.
        program: &report.program,
        made_at: report.head.time,
        source: html! { "the record " (code(&report.record)) },
    };
    in_ascii(&page(&frame, &sections(report)).into_string())
}

fn in_ascii(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    // References mean the same in every encoding that a reader may take the page for.
    for letter in page.chars() {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            text.push_str(&format!("&#{};", u32::from(letter)));
        }
    }
    text
}

fn sections(report: &BundleReport) -> Markup {
    let counts = &report.counts;
    let hours = report.hours.iter().map(|(hour, counts)| HourCounts {
        hour: *hour,
        counts: parts(counts).to_vec(),
    });
    html! {
        p class="lead" {
            "A crawler asks a program, politesse, for each page. It reads the robots.txt of the \
             website and lets the request pass, refuses it, or puts it off to a later time. Each \
             decision is on record before anything is sent. This page counts the "
            (counted(counts.requests, "decision")) " of the bundle that it is a part of."
        }
        (figures(&[
            Figure { class: "", count: counts.requests, text: "requests by crawlers" },
            Figure { class: "sent", count: counts.allowed(), text: "allowed" },
            Figure { class: "refused", count: counts.refused, text: "refused, and not sent" },
            Figure { class: "later", count: counts.later, text: "put off, to ask again later" },
        ]))
        @if 0 < counts.set_aside {
            p {
                (counted(counts.set_aside, "request")) " let through although the rules said no: \
                 the operator had set them aside."
            }
        }
        @if 0 < report.errors {
            p { (counted(report.errors, "exchange")) " ended with an error." }
        }
        (robots_box())
        (over_time(&PARTS, &hours.collect::<Vec<_>>()))
        h2 { "Who asked" }
        p { "Crawlers by the name that a robots.txt would call them." }
        (names("Name", &report.crawlers))
        h2 { "Which websites were asked" }
        (names("Website", &report.sites))
        (rules(report))
        (how_to_check(report))
    }
}

/// Returns the counts of the parts of a bar.
fn parts(counts: &BundleCounts) -> [u64; 4] {
    [
        counts.allowed(),
        counts.set_aside,
        counts.later,
        counts.refused,
    ]
}

fn names(title: &str, table: &BundleTable<BundleName>) -> Markup {
    html! {
        table {
            thead { tr {
                th { (title) } th class="n" { "Requests" } th class="n" { "Refused" }
                th class="n" { "Put off" }
            } }
            tbody {
                @for BundleName { name, counts } in &table.rows {
                    tr {
                        td { (foreign(name)) }
                        td class="n" { (number(counts.requests)) }
                        td class="n" { (number(counts.refused)) }
                        td class="n" { (number(counts.later)) }
                    }
                }
            }
        }
        (left_out(table, "name"))
    }
}

/// Says how many rows a table leaves out.
fn left_out<T>(table: &BundleTable<T>, what: &str) -> Markup {
    let left = (table.all - table.rows.len()) as u64;
    html! {
        @if 0 < left { p class="small" { "and " (counted(left, what)) " more." } }
    }
}

fn rules(report: &BundleReport) -> Markup {
    let refused = report.counts.refused;
    html! {
        h2 { "What was refused, and by whose rule" }
        @if report.rules.rows.is_empty() {
            p { "No request was refused by a rule of a robots.txt." }
        } @else {
            p {
                (counted(refused, "request")) " (" (percent(refused, report.counts.requests))
                " of all) " @if refused == 1 { "was" } @else { "were" } " refused. The line is \
                 that of the file as it was then, which is in the bundle."
            }
            table {
                thead { tr {
                    th { "Website" } th { "Line of its robots.txt" } th class="n" { "Refused" }
                } }
                tbody {
                    @for rule in &report.rules.rows {
                        tr {
                            td { (foreign(&rule.site)) }
                            td { (rule.line) ": " (code(&rule.rule)) }
                            td class="n" { (number(rule.refused)) }
                        }
                    }
                }
            }
            (left_out(&report.rules, "rule"))
        }
    }
}

fn how_to_check(report: &BundleReport) -> Markup {
    let head = &report.head;
    html! {
        h2 { "How to check this" }
        p {
            "The bundle has each decision, the robots.txt that it rests on, and the proof that \
             both are on the record as they stand here, under a head of "
            (counted(head.tree.size, "entry")) " that was signed on " (minute(head.time))
            " UTC. With the public key of the record, which you get on another way than the \
             bundle, this makes each decision once more and this page, too, and compares:"
        }
        pre { "politesse audit verify BUNDLE.zip --key KEY" }
        p {
            "Not proved is that there was no other decision in that time. README.txt in the bundle \
             says more."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::bundle::BundleRule;
    use crate::decision::digest::Digest;

    const HEAD: &str = "politesse/00000000000000000000000000000001\n3\n\
        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\ntime 2026-01-02T10:00:00Z\nprevious \
        0000000000000000000000000000000000000000000000000000000000000000\n";

    // Ours: what crawlers and sites wrote is text, and the same facts give the same page.
    #[test]
    fn the_report_of_a_bundle_is_inert_ascii() {
        let hostile = "<script>alert(1)</script>\u{1b}[2J\u{202e}\u{e9}\"'&";
        let counts = BundleCounts {
            requests: 3,
            refused: 2,
            ..BundleCounts::default()
        };
        let names = || BundleTable {
            rows: vec![BundleName {
                name: hostile.to_owned(),
                counts,
            }],
            all: 3,
        };
        let report = BundleReport {
            record: hostile.to_owned(),
            program: hostile.to_owned(),
            host: Some(hostile.to_owned()),
            head: HEAD.parse().unwrap(),
            counts,
            errors: 1,
            times: None,
            hours: vec![(490_000, counts)],
            sites: names(),
            crawlers: names(),
            rules: BundleTable {
                rows: vec![BundleRule {
                    site: hostile.to_owned(),
                    rule: hostile.to_owned(),
                    line: 2,
                    refused: 2,
                }],
                all: 1,
            },
        };
        let page = bundle_page(&report);
        let is_text = |letter: char| letter == '\n' || letter.is_ascii_graphic() || letter == ' ';
        assert!(page.chars().all(is_text), "{page}");
        assert!(!page.contains("<script"), "{page}");
        for told in [
            "and 2 names more",
            "66 % of all",
            "2: <code>",
            "&#233;",
            "2026-01-02 10:00",
        ] {
            assert!(page.contains(told), "{told}: {page}");
        }
        // With another page, bundles made before could not be verified any more. A change
        // of the page needs a new version of the format (`audit::bundle`).
        let digest = Digest::of(page.as_bytes()).to_string();
        assert_eq!(
            digest,
            "d27f58d1480c122daaae94ae7853afe725d1d6587dcd77b722d726c1b652ef96"
        );
    }
}
