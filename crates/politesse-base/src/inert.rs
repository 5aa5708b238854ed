//! Escaping of text from origins and crawlers, so that printing it cannot control the
//! terminal.
//!
//! Escape sequences could hide or forge a line; Unicode Technical Report 36 lists the
//! characters that change text direction. Every command of the program prints such text
//! through this module. Does not know the layout of any output.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Serializer, Value};

/// Replaces the control and direction-changing characters of `text` with escapes
/// (`\u{1b}`) that people can read.
pub fn inert(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if controls_terminal(letter) {
                letter.escape_unicode().to_string()
            } else {
                letter.to_string()
            }
        })
        .collect()
}

/// Quotes `text` as a single shell word, for command lines that people copy. Without
/// quoting, a quotation mark in a URL could begin a command.
pub fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes `text` as [`shell_word`] does, unless it consists only of letters, digits and
/// `/._-`, which have no special meaning to a shell.
pub fn shell_quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        shell_word(text)
    }
}

/// Appends `value` to `line` as JSON. Control and direction-changing characters become
/// JSON escapes, so that a program still reads the original text.
///
/// # Errors
///
/// [`serde_json::Error`] if JSON cannot represent `value`, such as a map whose keys are
/// not text.
pub fn append_json(line: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(line, InertFormatter))
}

/// Builds a line of CSV (RFC 4180, section 2) that is safe in spreadsheets and terminals.
///
/// A field that a spreadsheet would read as a formula gets a leading apostrophe, which
/// marks it as text. Control and direction-changing characters, including line ends, are
/// escaped as by [`inert`].
pub fn csv_line<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let fields: Vec<_> = fields.into_iter().map(csv_field).collect();
    format!("{}\r\n", fields.join(","))
}

/// Builds a line of CSV from the members of `row` that `columns` names. A dot in a column
/// separates the names of nested members.
pub fn csv_row(row: &Value, columns: &[&str]) -> String {
    let cells: Vec<_> = columns.iter().map(|name| cell(row, name)).collect();
    csv_line(cells.iter().map(String::as_str))
}

/// Returns the text of the CSV cell for the member `name`; empty if it has no value.
fn cell(row: &Value, name: &str) -> String {
    let found = name.split('.').try_fold(row, |value, name| value.get(name));
    match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn csv_field(text: &str) -> String {
    // Includes the full-width forms, which East Asian spreadsheets treat alike.
    let begins_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']);
    let mark = if begins_formula { "'" } else { "" };
    let field = format!("{mark}{}", inert(text));
    if field.contains([',', '"']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

/// Reports whether a terminal may act on `letter` instead of displaying it.
fn controls_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Compact JSON in which every character that controls a terminal is escaped.
struct InertFormatter;

impl Formatter for InertFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Fast path: nearly all text is plain ASCII.
        if fragment.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(controls_terminal) {
            let (before, after) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let mut letters = after.chars();
            // Each of these characters is below U+10000, so one `\uXXXX` is
            // enough (RFC 8259, section 7).
            let letter = letters.next().map_or(0, u32::from);
            write!(writer, "\\u{letter:04x}")?;
            rest = letters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: text from an origin must not control the terminal.
    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(inert("a\u{1b}[2Jb\u{202e}c é"), "a\\u{1b}[2Jb\\u{202e}c é");
    }

    // POSIX, Shell Command Language, 2.2.2: only a single quotation mark ends
    // single-quoted text.
    #[test]
    fn quoted_text_cannot_end_its_shell_word() {
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("x';reboot;'"), r"'x'\'';reboot;'\'''");
    }

    // RFC 4180, section 2; ours for formulas and control characters.
    #[test]
    fn a_csv_field_never_begins_a_formula_or_a_line() {
        for (field, wanted) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"a\"", "\"say \"\"a\"\"\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@a", "'@a"),
            ("\tx", "'\\u{9}x"),
            ("\r=x", "'\\u{d}=x"),
            ("＝1", "'＝1"),
            ("=a,\"b\"", "\"'=a,\"\"b\"\"\""),
            ("a\n=b", "a\\u{a}=b"),
            ("\u{1b}[2J\u{202e}", "\\u{1b}[2J\\u{202e}"),
        ] {
            let line = csv_line(["1", field, "2"]);
            assert_eq!(line, format!("1,{wanted},2\r\n"), "{field:?}");
        }
    }

    // Ours; RFC 8259, section 7, for the escapes.
    #[test]
    fn escaped_json_parses_to_the_original_text() {
        let text = "a\u{1b}[2J\"\u{7f}\u{9b}b\u{202e}c é \u{feff}\n";
        let mut line = Vec::new();
        append_json(&mut line, &[text]).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, r#"["a\u001b[2J\"\u007f\u009bb\u202ec é \ufeff\n"]"#);
        assert_eq!(serde_json::from_str::<Vec<String>>(&line).unwrap(), [text]);
    }
}
