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

/// What the page may load: nothing. So text that got past the escapes could do
/// nothing, either.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Frame of a page.
#[derive(Debug)]
pub struct PageFrame<'a> {
    /// Title. Text from outside in it has passed through [`words::shown`].
    pub title: &'a str,
    /// Time that the page is about.
    pub when: &'a str,
    /// Time at which it was made.
    pub made_at: Timestamp,
    /// What it was made from.
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

/// A large number with what it counts.
pub struct Figure {
    /// Class of its colour.
    pub class: &'static str,
    /// The number.
    pub count: u64,
    /// What it counts.
    pub text: &'static str,
}

/// Shows the numbers that matter most.
pub fn figures(figures: &[Figure]) -> Markup {
    html! {
        ul class="figures" {
            @for figure in figures {
                li class=(figure.class) { b { (number(figure.count)) } span { (figure.text) } }
            }
        }
    }
}

/// Explains what a robots.txt is, for someone who has never seen one.
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
