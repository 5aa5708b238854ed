//! The table of keys as people read it: the commented default file, and the
//! values in force with where each was written.
//!
//! Both are TOML that can be read again.

use super::sources::{Layers, Section};

/// How wide a comment of the default file gets.
const COLUMNS: usize = 80;

/// What stands above the first section of the default file.
const HEAD: &str = "\
# Every key of politesse, with its default, what it is for and what it may be.
#
# This file may be left out, and so may any key in it. A key is overridden by the
# environment (POLITESSE_UPSTREAM__CONNECT_TIMEOUT=5s), that by the command line
# (--set upstream.connect_timeout=5s). Durations are written 250ms, 10s, 5m, 2h,
# 30d; sizes 512B, 64KiB, 1MiB. A path is relative to the folder of this file; but
# ca_cert, ca_key, store and token_file of a file in ~/.config/politesse are
# relative to ~/.local/state/politesse.
";

/// The commented default file.
pub(super) fn default_file(sections: &[Section]) -> String {
    let mut file = HEAD.to_owned();
    for section in sections {
        file.push('\n');
        push_comments(&mut file, section.about);
        if !section.is_root() {
            file.push_str(&format!("[{}]\n", section.name));
        }
        for key in section.keys {
            file.push('\n');
            push_comments(&mut file, key.doc);
            push_wrapped(&mut file, &(key.wanted)());
            file.push_str(&format!("{} = {}\n", key.name, key.default));
        }
    }
    file
}

/// Each line of a doc comment, which begins with its blank, as a comment.
fn push_comments(file: &mut String, lines: &[&str]) {
    for line in lines {
        file.push_str(&format!("#{line}\n"));
    }
}

/// `wanted` as a sentence in as many comment lines as it takes.
fn push_wrapped(file: &mut String, wanted: &str) {
    let mut line = "# Value:".to_owned();
    for word in wanted.split(' ') {
        if COLUMNS <= line.len() + word.len() {
            file.push_str(&line);
            file.push('\n');
            line = "#  ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    file.push_str(&line);
    file.push_str(".\n");
}

/// Every key with the value in force and, as a comment, where it was written.
pub(super) fn effective(sections: &[Section], layers: &Layers<'_>) -> String {
    let mut text = String::new();
    for (index, section) in sections.iter().enumerate() {
        if 0 < index {
            text.push('\n');
        }
        if !section.is_root() {
            text.push_str(&format!("[{}]\n", section.name));
        }
        for key in section.keys {
            if let Some((value, place)) = layers.shown(section.name, key.name) {
                text.push_str(&format!("{} = {value}  # {place}\n", key.name));
            }
        }
    }
    text
}
