//! Frame of every HTML document, and the shared styles.
//!
//! Does not know the subject of a document, or whether its style is inline or in a
//! separate file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Style of every document: colours, type and focus. Like the other sheets, it contains
/// no external text and no character that is HTML markup.
pub const BASE_STYLE: &str = include_str!("base.css");
/// Style of tables, figures and charts on screens, phones and paper, in addition to
/// [`BASE_STYLE`].
pub const DATA_STYLE: &str = include_str!("data.css");

/// An HTML document without its body.
pub struct Document<'a> {
    /// Title. External text in it has been made inert.
    pub title: &'a str,
    /// Theme that the reader chose; `None` for the system's theme.
    pub theme: Option<&'a str>,
    /// Additional elements of the head, such as its style.
    pub head: Markup,
}

impl Document<'_> {
    /// Lays out the document around `body`.
    pub fn html(&self, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-theme=[self.theme] {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width,initial-scale=1";
                    // If a saved page is put on a server, it must not be indexed.
                    meta name="robots" content="noindex";
                    title { (self.title) }
                    (self.head)
                }
                body { (body) }
            }
        }
    }
}

/// Makes the `style` element with `sheets`, for a document in one file.
pub fn inline_style(sheets: &[&str]) -> Markup {
    html! {
        style { @for sheet in sheets { (PreEscaped(sheet)) } }
    }
}
