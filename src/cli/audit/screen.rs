//! The width of the terminal that results are shown on, and cutting text to it.

use std::io::{IsTerminal as _, stdout};

use rustix::termios::tcgetwinsize;

/// The columns of a terminal that does not tell how many it has.
const USUAL_COLUMNS: usize = 80;

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    /// The columns of the terminal; `None` where nothing is to be cut.
    pub(super) columns: Option<usize>,
}

impl Screen {
    /// The terminal on stdout, if there is one.
    pub(super) fn of_stdout() -> Self {
        let stdout = stdout();
        let columns = stdout.is_terminal().then(|| {
            let size = tcgetwinsize(&stdout).ok();
            let columns = size.map_or(0, |size| usize::from(size.ws_col));
            if columns == 0 { USUAL_COLUMNS } else { columns }
        });
        Self { columns }
    }

    /// How much of the width is left behind `used` columns, and `least` where
    /// that is less: a row on a narrow terminal wraps.
    pub(super) fn left(self, used: usize, least: usize) -> Option<usize> {
        let left = self.columns?.saturating_sub(used);
        Some(left.max(least))
    }
}

/// The first `columns` letters of `text`, the last of them an ellipsis if there
/// are more; all of it without a bound.
pub(super) fn cut(text: &str, columns: Option<usize>) -> String {
    match columns {
        Some(columns) if columns < text.chars().count() => {
            let head: String = text.chars().take(columns.saturating_sub(1)).collect();
            format!("{head}…")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn text_is_cut_to_what_is_left_and_never_without_a_terminal() {
        let screen = Screen { columns: Some(30) };
        assert_eq!(
            cut("https://site.example/a", screen.left(20, 8)),
            "https://s…"
        );
        assert_eq!(
            cut("https://site.example/a", screen.left(29, 8)),
            "https:/…"
        );
        assert_eq!(cut("abc", Some(3)), "abc");
        let file = Screen { columns: None };
        assert_eq!(
            cut("https://site.example/a", file.left(20, 8)),
            "https://site.example/a"
        );
    }
}
