//! Pages for people, in HTML without scripts, links and pictures: reports, the frame
//! around them, charts, and formatted text and numbers.
//!
//! Does not know which command or request a page is for.

pub mod charts;
pub mod document;
pub mod line_diff;
pub mod over_time;
pub mod report;
pub mod tables;
pub mod words;

use jiff::Timestamp;
use maud::{Markup, html};

use self::document::{BASE_STYLE, DATA_STYLE, Document, inline_style};
use self::words::{minute, number};

/// Content Security Policy of a page: it may load nothing. Even text that got past the
/// escaping could do nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Frame of a page.
#[derive(Debug)]
pub struct PageFrame<'a> {
    /// Title. External text in it has passed through [`words::shown`].
    pub title: &'a str,
    /// Time span that the page covers.
    pub when: &'a str,
    /// Time at which the page was made.
    pub made_at: Timestamp,
    /// Source that the page was made from.
    pub source: Markup,
}

/// Lays out a page in one file.
pub fn page(frame: &PageFrame<'_>, body: &Markup) -> Markup {
    let document = Document {
        title: frame.title,
        theme: None,
        head: html! {
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            // The page may be put on a server: other sites must not learn its address.
            meta name="referrer" content="no-referrer";
            (inline_style(&[BASE_STYLE, DATA_STYLE]))
        },
    };
    document.html(&html! {
        main {
            h1 { bdi { (frame.title) } }
            p class="small" { (frame.when) }
            (body)
            p class="small" {
                "Made by politesse " (env!("CARGO_PKG_VERSION")) " on "
                (minute(frame.made_at)) " UTC from " (frame.source) "."
            }
        }
    })
}

/// A large number and its label.
pub struct Figure {
    /// CSS class for its colour.
    pub class: &'static str,
    /// The number.
    pub count: u64,
    /// The label.
    pub text: &'static str,
}

/// Shows the most important numbers.
pub fn figures(figures: &[Figure]) -> Markup {
    html! {
        ul class="figures" {
            @for figure in figures {
                li class=(figure.class) { b { (number(figure.count)) } span { (figure.text) } }
            }
        }
    }
}

/// Explains to a newcomer what a robots.txt is.
pub fn robots_box() -> Markup {
    html! {
        div class="box" {
            p {
                b { "What is a robots.txt? " }
                "A short text file on a website. In it the owner says which addresses programs \
                 that read the web by themselves, called crawlers, may fetch. The line "
                code { "Disallow: /private" }
                " asks them to leave alone all addresses that begin with /private. The lines "
                code { "User-agent:" }
                " above it say which crawlers are meant, " code { "*" } " all that are not \
                 named. The rules are an internet standard, RFC 9309."
            }
        }
    }
}
