//! Page about judged requests, for readers who know nothing about robots.txt.
//!
//! Does not know how requests are judged.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use anyhow::Context as _;
use aws_lc_rs::digest::{Context, SHA256};
use maud::{Markup, html};

use super::counts::{CountedKey, JudgeCounts, RuleLine, VerdictCounts, unknown_sentence};
use super::outcome::PastVerdict;
use super::purposes::PurposeCounts;
use crate::cli::audit::export::write_new_file;
use crate::cli::output::print_notice;
use crate::config::argument_without_secrets;
use politesse_base::clock;
use politesse_base::inert::{inert, shell_quoted};
use politesse_decision::digest::Digest;
use politesse_pages::page::charts::ChartPart;
use politesse_pages::page::over_time::{ChartRange, HourCounts, over_time};
use politesse_pages::page::tables::{ReportTable, deciding_line, glossary};
use politesse_pages::page::words::{code, counted, foreign, minute, percent};
use politesse_pages::page::{Figure, PageFrame, figures, page, robots_box};

/// Number of bytes of a file that are read at a time.
const READ_BYTES: usize = 1 << 16;

/// Parts of the bars in the chart over time.
const PARTS: [ChartPart; 3] = [
    ChartPart {
        name: "allowed",
        class: "sent",
    },
    ChartPart {
        name: "unknown",
        class: "unreachable",
    },
    ChartPart {
        name: "disallowed",
        class: "refused",
    },
];

/// Glossary entries that other reports do not have.
const WORDS: [(&str, &str); 2] = [
    (
        "disallowed",
        "a line of the robots.txt asks that crawler not to fetch the address; or the file could \
         not be read at that time, which counts as no",
    ),
    (
        "unknown",
        "there is no copy of the robots.txt from before the request, or the crawler is not named",
    ),
];

/// Writes the page about `counts` to the new file `path`, with the SHA-256 of each of
/// `files`.
///
/// # Errors
///
/// Any error of reading `files` or of writing `path`.
pub(super) fn write_page(
    counts: &JudgeCounts,
    files: &[String],
    path: &Path,
) -> anyhow::Result<()> {
    let hashed: Result<Vec<_>, _> = files.iter().map(|name| JudgedFile::of(name)).collect();
    let sources = hashed?;
    let command: Vec<_> = std::env::args_os()
        .skip(1)
        .map(|text| shell_quoted(&argument_without_secrets(&text.to_string_lossy())))
        .collect();
    let page = document(&JudgePage {
        counts,
        files: &sources,
        command: &command.join(" "),
    });
    let text = page.into_string();
    write_new_file(path, |mut file| Ok(file.write_all(text.as_bytes())?))?;
    let name = path.display();
    print_notice(&format!("{name}: {} requests", counts.totals.all()));
    Ok(())
}

/// A file whose requests were judged.
#[derive(Debug)]
struct JudgedFile {
    name: String,
    /// SHA-256; `None` for standard input, which can be read only once.
    sha256: Option<Digest>,
}

impl JudgedFile {
    fn of(name: &str) -> anyhow::Result<Self> {
        let sha256 = match name {
            "-" => None,
            name => Some(sha256_of(Path::new(name)).with_context(|| inert(name))?),
        };
        Ok(Self {
            name: name.to_owned(),
            sha256,
        })
    }
}

fn sha256_of(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut context = Context::new(&SHA256);
    // An archive may be larger than the memory.
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => context.update(buffer.get(..length).unwrap_or_default()),
        }
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    Ok(bytes.into())
}

/// Data for the page.
struct JudgePage<'a> {
    counts: &'a JudgeCounts,
    files: &'a [JudgedFile],
    /// Arguments of the program that made the page.
    command: &'a str,
}

/// Builds the whole document.
fn document(data: &JudgePage<'_>) -> Markup {
    let counts = data.counts;
    let when = match (counts.from, counts.until) {
        (Some(from), Some(until)) => format!("{} to {} (UTC)", minute(from), minute(until)),
        _ => "At an unknown time".to_owned(),
    };
    let frame = PageFrame {
        title: "What a past crawl asked for",
        when: &when,
        made_at: clock::now(),
        source: html! { (counted(data.files.len() as u64, "file")) },
    };
    let body = html! {
        (brief(data))
        (robots_box())
        (requests_over_time(counts))
        h2 { "Who asked" }
        p { "Crawlers by the name that a robots.txt would call them." }
        (verdict_table("Name", &counts.by_crawler()))
        h2 { "Which websites were asked" }
        (verdict_table("Website", &counts.by(|group| group.host.clone())))
        (disallowed(counts))
        (denied_pages(&counts.purposes))
        (unknown(counts))
        (how_to_check(data))
        (glossary(&WORDS))
    };
    page(&frame, &body)
}

fn brief(data: &JudgePage<'_>) -> Markup {
    let VerdictCounts {
        allowed,
        disallowed,
        unknown,
    } = data.counts.totals;
    let all = data.counts.totals.all();
    html! {
        p class="lead" {
            "A crawl that is over made " (counted(all, "request")) ". Each was checked against the \
             robots.txt that the website had at that time, where there is a copy of it. \
             Nothing was fetched for this page, and the files of the crawl were not changed."
        }
        @if !data.counts.agents.is_empty() {
            p {
                "Each was judged as if these crawlers had made it, and counts as disallowed if it \
                 was for any of them: " (foreign(&data.counts.agents.join(", "))) "."
            }
        }
        (figures(&[
            Figure { class: "", count: all, text: "requests by crawlers" },
            Figure {
                class: "sent",
                count: allowed.saturating_sub(data.counts.overridden),
                text: "allowed by robots.txt",
            },
            Figure { class: "refused", count: disallowed, text: "disallowed by robots.txt" },
            Figure { class: "unreachable", count: unknown, text: "unknown" },
        ]))
        @if 0 < data.counts.overridden {
            p {
                (counted(data.counts.overridden, "request")) " more, counted as allowed below, \
                 the robots.txt disallowed, and the operator allows (robots.override)."
            }
        }
    }
}

fn requests_over_time(counts: &JudgeCounts) -> Markup {
    let hours = counts.hours.iter().map(|(hour, counts)| HourCounts {
        hour: *hour,
        counts: vec![counts.allowed, counts.unknown, counts.disallowed],
    });
    let timed: u64 = counts.hours.values().map(|hour| hour.all()).sum();
    let untimed = counts.totals.all().saturating_sub(timed);
    html! {
        (over_time(&PARTS, &hours.collect::<Vec<_>>(), ChartRange::default()))
        @if 0 < untimed {
            p class="small" { (counted(untimed, "request")) " without a time not included." }
        }
    }
}

fn verdict_table(title: &str, rows: &[CountedKey<String>]) -> Markup {
    ReportTable::of(rows.iter(), "name")
        .text(title, |row| foreign(&row.key))
        .count("Allowed", |row| row.counts.allowed)
        .count("Disallowed", |row| row.counts.disallowed)
        .count("Not known", |row| row.counts.unknown)
        .html()
}

fn disallowed(counts: &JudgeCounts) -> Markup {
    let totals = counts.totals;
    html! {
        h2 { "What was disallowed, and by whose rule" }
        // Stated even if the count is 0: readers might think that the page leaves it
        // out.
        @if totals.disallowed == 0 {
            p {
                "No request is known to have been disallowed"
                @if 0 < counts.overridden { ", except those that the operator allows" }
                "."
            }
        } @else {
            p {
                (counted(totals.disallowed, "request")) " (" (percent(totals.disallowed, totals.all()))
                " of all) " @if totals.disallowed == 1 { "was" } @else { "were" }
                " disallowed when made. The line is from the robots.txt of that time."
            }
            (rule_table(counts))
            p { "The first of them:" }
            (samples(counts))
        }
    }
}

fn rule_table(counts: &JudgeCounts) -> Markup {
    let rules = counts.by_rule();
    ReportTable::of(rules.iter(), "rule")
        .text("Website", |row| {
            foreign(row.key.host.as_deref().unwrap_or("–"))
        })
        .text("Line of its robots.txt", |row| {
            html! {
                (cause(row.key.rule.as_ref(), row.key.reason))
                @if let Some(names) = &row.key.agents { " (" (foreign(names)) ")" }
            }
        })
        .count("Disallowed", |row| row.counts.disallowed)
        .html()
}

fn samples(counts: &JudgeCounts) -> Markup {
    ReportTable::of(counts.samples.iter(), "request")
        .time("When", |sample| {
            html! { (sample.at.map_or("–".to_owned(), minute)) }
        })
        .text("Crawler", |sample| {
            foreign(sample.group.crawler_names().as_deref().unwrap_or("–"))
        })
        .text("Address, and what disallows it", |sample| {
            html! {
                (foreign(&sample.url)) br;
                (cause(sample.group.rule.as_ref(), sample.group.reason))
            }
        })
        .html()
}

/// Shows the rule that disallows, or the reason if there is no such rule.
fn cause(rule: Option<&RuleLine>, reason: &str) -> Markup {
    deciding_line(
        rule.map(|rule| rule.line),
        rule.map(|rule| &*rule.text),
        reason,
    )
}

fn denied_pages(counts: &PurposeCounts) -> Markup {
    let rows = counts.by_pages();
    let table = ReportTable::of(rows.iter(), "statement")
        .text("Website", |(denial, _)| foreign(&denial.host))
        .text("Purpose", |(denial, _)| code(denial.purpose.as_str()))
        .text("Denied by", |(denial, _)| {
            html! { (code(&denial.statement)) " (" (denial.places) ")" }
        })
        .count("Pages", |(_, pages)| *pages);
    let samples = ReportTable::of(counts.samples.iter(), "page")
        .time("When", |sample| {
            html! { (sample.at.map_or("–".to_owned(), minute)) }
        })
        .text("Address, and what denies it", |sample| {
            html! { (foreign(&sample.url)) br; (sample.denials) }
        });
    html! {
        @if !counts.purposes.is_empty() {
            h2 { "What pages were denied for" }
            p {
                "Websites state what their pages may be used for, in robots.txt and with each \
                 page. " (counts.denied) " of " (counted(counts.pages, "page")) " "
                @if counts.denied == 1 { "was" } @else { "were" }
                " denied for " (counts.names()) "."
            }
            (table.html())
            @if !counts.samples.is_empty() { p { "The first of them:" } (samples.html()) }
        }
    }
}

fn unknown(counts: &JudgeCounts) -> Markup {
    // One sentence per cause, because the remedies differ.
    let causes = counts.by(|group| (group.verdict == PastVerdict::Unknown).then_some(group.reason));
    let table = ReportTable::of(causes.iter(), "cause")
        .text("Why", |row| html! { (unknown_sentence(row.key)) })
        .count("Requests", |row| row.counts.unknown);
    let limits = counts.limits();
    html! {
        h2 { "What could not be known" }
        @if causes.is_empty() && limits.is_empty() {
            p { "The robots.txt is known for every request." }
        }
        @if !causes.is_empty() {
            (table.html())
        }
        @if !limits.is_empty() { ul { @for limit in &limits { li { bdi { (inert(limit)) } } } } }
    }
}

fn how_to_check(data: &JudgePage<'_>) -> Markup {
    let table = ReportTable::of(data.files.iter(), "file")
        .text("File", |file| foreign(&file.name))
        .text("SHA-256", |file| match file.sha256 {
            Some(sha256) => code(&sha256.to_string()),
            None => html! { "read from standard input, and not kept" },
        });
    html! {
        h2 { "How to check this" }
        p {
            "The page is made only from these files. Anyone who has them gets the same numbers \
             with the command below; the SHA-256 of a file differs if the file was changed."
        }
        (table.html())
        pre { "politesse " bdi { (inert(data.command)) } }
        p {
            "Whether the files are complete and unchanged since the crawl, only their keeper can \
             say. To list the requests, use the same command with "
            code { "--requests --verdict disallow" } " in place of " code { "--html" } "."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::{CrawlerVerdict, DisallowedSample, JudgedGroup, UnreadPart};
    use super::*;

    // Ours: names of crawlers, sites and files are shown as text and nothing else.
    #[test]
    fn text_from_outside_is_inert_on_the_page() {
        let hostile = "<script>alert(1)</script>\u{1b}[2J\u{202e}\"'&";
        let group = |verdict, reason| JudgedGroup {
            host: Some(hostile.to_owned()),
            crawlers: vec![CrawlerVerdict {
                name: hostile.to_owned(),
                verdict,
            }],
            verdict,
            reason,
            rule: Some(RuleLine {
                line: 2,
                text: hostile.to_owned(),
            }),
        };
        let mut counts = JudgeCounts::default();
        counts.totals.disallowed = 2;
        counts.totals.unknown = 1;
        counts
            .groups
            .insert(group(PastVerdict::Disallow, "rule"), 2);
        counts
            .groups
            .insert(group(PastVerdict::Unknown, "no_robots"), 1);
        counts.samples.push(DisallowedSample {
            url: hostile.to_owned(),
            at: None,
            group: group(PastVerdict::Disallow, "rule"),
        });
        counts.unread = 1;
        counts.unread_parts.push(UnreadPart {
            file: hostile.to_owned(),
            place: 7,
            cause: hostile.to_owned(),
        });
        let files = [JudgedFile {
            name: hostile.to_owned(),
            sha256: None,
        }];
        let page = document(&JudgePage {
            counts: &counts,
            files: &files,
            command: hostile,
        });
        let page = page.0;
        assert!(!page.contains("<script"), "{page}");
        assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page}");
        for told in [
            "66.7 % of all",
            "there is no robots.txt of the origin",
            "3 requests without a time",
            "2: <code>",
            "1 part of the files could not be read",
        ] {
            assert!(page.contains(told), "{told}: {page}");
        }
    }
}
