//! Tables of reports, and wording that reports share.
//!
//! Does not know what a report is about.

use maud::{Markup, html};

use super::words::{code, counted, number};

/// Maximum number of rows of a table; the others are counted.
pub const ROWS_MAX: usize = 25;

/// Table of the first of some rows, each made from a value of type `T`.
pub struct ReportTable<'a, T> {
    /// Rows to show, at most [`ROWS_MAX`].
    rows: Vec<&'a T>,
    /// Number of rows left out.
    left_out: u64,
    /// Noun for one row.
    noun: &'a str,
    columns: Vec<Column<'a, T>>,
}

/// Column of a table.
struct Column<'a, T> {
    /// Text of its head.
    title: &'a str,
    /// CSS class of its cells.
    class: Option<&'static str>,
    /// Makes the cell of a row.
    cell: Box<dyn Fn(&T) -> Markup + 'a>,
}

impl<'a, T> ReportTable<'a, T> {
    /// Begins a table without columns. `noun` is the kind of thing in a row.
    pub fn of(rows: impl ExactSizeIterator<Item = &'a T>, noun: &'a str) -> Self {
        Self {
            left_out: rows.len().saturating_sub(ROWS_MAX) as u64,
            rows: rows.take(ROWS_MAX).collect(),
            noun,
            columns: Vec::new(),
        }
    }

    /// Adds a column of text.
    pub fn text(self, title: &'a str, cell: impl Fn(&T) -> Markup + 'a) -> Self {
        self.with(title, None, cell)
    }

    /// Adds a column of times, which do not wrap.
    pub fn time(self, title: &'a str, cell: impl Fn(&T) -> Markup + 'a) -> Self {
        self.with(title, Some("t"), cell)
    }

    /// Adds a column of amounts, aligned to the right.
    pub fn amount(self, title: &'a str, amount: impl Fn(&T) -> String + 'a) -> Self {
        self.with(title, Some("n"), move |row| html! { (amount(row)) })
    }

    /// Adds a column of counts.
    pub fn count(self, title: &'a str, count: impl Fn(&T) -> u64 + 'a) -> Self {
        self.amount(title, move |row| number(count(row)))
    }

    fn with(
        mut self,
        title: &'a str,
        class: Option<&'static str>,
        cell: impl Fn(&T) -> Markup + 'a,
    ) -> Self {
        self.columns.push(Column {
            title,
            class,
            cell: Box::new(cell),
        });
        self
    }

    /// Lays out the table, with the number of rows left out.
    pub fn html(&self) -> Markup {
        let columns = &self.columns;
        html! {
            // On a phone each row is a card, headed by its first cell.
            table class="cards" {
                thead {
                    tr {
                        @for column in columns {
                            th scope="col" class=[column.class] { (column.title) }
                        }
                    }
                }
                tbody {
                    @for row in &self.rows {
                        tr {
                            @for (at, column) in columns.iter().enumerate() {
                                @let cell = (column.cell)(row);
                                @if at == 0 { th scope="row" class=[column.class] { (cell) } }
                                @else { td class=[column.class] data-label=(column.title) { (cell) } }
                            }
                        }
                    }
                }
            }
            @if 0 < self.left_out { p class="small" { "and " (counted(self.left_out, self.noun)) " more." } }
        }
    }
}

/// Shows the line of a robots.txt that decided, or the reason if none did.
pub fn deciding_line(line: Option<u32>, rule: Option<&str>, reason: &str) -> Markup {
    html! {
        @match rule {
            Some(text) => { @if let Some(line) = line { (line) ": " } (code(text)) }
            None => (reason_words(reason)),
        }
    }
}

/// Explains the word for a reason to readers who do not know robots.txt.
pub fn reason_words(word: &str) -> &'static str {
    match word {
        "unreachable" => "The robots.txt could not be read",
        "restricted" => "The website withholds its robots.txt (status 401 or 403)",
        "undecided" => "The rules of the robots.txt take too long to evaluate",
        "override" => "Our operator does not want it fetched",
        "egress" => "An address or port that our crawlers may not connect to",
        "identity" => "A client used the name of another of our crawlers",
        "rule" => "A rule of the robots.txt",
        "preference" => "The website does not want its pages used for the purpose of the crawler",
        _ => "Another reason",
    }
}

/// Explains the terms of a report: those of all reports, with `own` in between.
pub fn glossary(own: &[(&str, &str)]) -> Markup {
    html! {
        h2 { "Words" }
        dl class="terms" {
            dt { "crawler" }
            dd { "a program that fetches pages of the web by itself" }
            @for (word, meaning) in own { dt { (word) } dd { (meaning) } }
            dt { "SHA-256" }
            dd { "a number computed from data, which changes if anything in the data changes" }
        }
    }
}
