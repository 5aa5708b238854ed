//! Frame of every HTML document, and the styles that they share.
//!
//! Does not know what a document is about, nor whether its style stands in it or beside
//! it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Style of every document: colours, type and focus. Like the other sheets, it
/// holds no text from outside, and no character that is markup in HTML.
pub const BASE_STYLE: &str = include_str!("base.css");
/// Style of tables, figures and charts, on the screen, on a phone and on paper, in
/// addition to [`BASE_STYLE`].
pub const DATA_STYLE: &str = include_str!("data.css");

/// An HTML document without its body.
pub struct Document<'a> {
    /// Title. Text from outside in it has been made inert.
    pub title: &'a str,
    /// Theme that the reader chose; `None` for that of the system.
    pub theme: Option<&'a str>,
    /// Elements of the head besides those that every document has: its style.
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
                    // A page that was saved and put on a server is for nobody's index.
                    meta name="robots" content="noindex";
                    title { (self.title) }
                    (self.head)
                }
                body { (body) }
            }
        }
    }
}

/// Makes the element with `sheets`, for a document in one file.
pub fn inline_style(sheets: &[&str]) -> Markup {
    html! {
        style { @for sheet in sheets { (PreEscaped(sheet)) } }
    }
}
