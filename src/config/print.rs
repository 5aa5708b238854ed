//! Configuration as text: the commented default file, the reference of keys, the values
//! in force with their sources, and digests of the values.
//!
//! The file and the values are TOML that can be read back. Does not know what a value
//! means.

use std::collections::BTreeMap;

use super::keys::SECTIONS;
use super::layers::{Key, Layers};
use politesse_admin::ShownKey;
use politesse_decision::digest::Digest;

/// Width of comments in the default file.
const COLUMNS: usize = 80;

/// Maximum number of characters of a value on a page.
const SHOWN_VALUE_MAX: usize = 4000;

/// Maximum bytes of a configuration in the record. A table of names may be longer.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Text above the first section of the default file.
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

/// Writes a configuration file that changes nothing: every key with its default,
/// purpose, unit and bounds.
#[must_use]
pub fn default_file() -> String {
    let mut file = HEAD.to_owned();
    for section in SECTIONS {
        file.push('\n');
        push_comments(&mut file, section.about);
        if !section.is_root() {
            file.push_str(&format!("[{}]\n", section.name));
        }
        for key in section.keys {
            file.push('\n');
            push_comments(&mut file, key.doc);
            // Kind and bounds come from the code that checks them, so that the file
            // cannot contradict it.
            push_wrapped(&mut file, &(key.wanted)());
            file.push_str(&format!("{} = {}\n", key.name, key.default));
        }
    }
    file
}

/// Appends each line of a doc comment as a comment. The lines start with a blank.
fn push_comments(file: &mut String, lines: &[&str]) {
    for line in lines {
        file.push_str(&format!("#{line}\n"));
    }
}

/// Appends `wanted` as a sentence, wrapped over as many comment lines as it needs.
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

/// Writes the reference of keys as Markdown, one chapter per section.
#[must_use]
pub fn reference() -> String {
    let mut text = "\
# Keys

Every key of the configuration with its default, as `politesse config default`
prints them. A value in a table or list is written as in TOML.
"
    .to_owned();
    for section in SECTIONS {
        let title = if section.is_root() {
            "Outside every table".to_owned()
        } else {
            format!("`[{}]`", section.name)
        };
        text.push_str(&format!("\n## {title}\n\n{}\n", paragraph(section.about)));
        for key in section.keys {
            let name = key.path();
            let (about, wanted) = (paragraph(key.doc), (key.wanted)());
            let default = key.default;
            text.push_str(&format!(
                "\n### `{name}`\n\n{about}\n\n- Value: {wanted}.\n- Default: `{default}`\n"
            ));
        }
    }
    text
}

/// Joins the lines of a doc comment.
fn paragraph(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
    // Outside of code, Markdown would read `<meta>` as a tag.
    lines.join("\n").replace('<', "\\<")
}

/// Writes every key with the value in force, and its source as a comment.
pub(super) fn effective(layers: &Layers<'_>) -> String {
    in_sections(|key| {
        let (value, place) = layers.shown(&key.path())?;
        Some(format!("{value}  # {place}"))
    })
}

/// Writes every key with the value in force, and `…` in place of each secret. A text
/// longer than [`TEXT_BYTES_MAX`] is cut and ends with a note.
pub(super) fn without_secrets(layers: &Layers<'_>) -> String {
    let mut text = in_sections(|key| layers.shown_without_secrets(&key.path()));
    if TEXT_BYTES_MAX < text.len() {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("\n# cut: the configuration is longer than is recorded\n");
    }
    text
}

/// Writes every key with the text that `shown` returns, below the name of its section.
fn in_sections(shown: impl Fn(&Key) -> Option<String>) -> String {
    let mut text = String::new();
    for (index, section) in SECTIONS.iter().enumerate() {
        if 0 < index {
            text.push('\n');
        }
        if !section.is_root() {
            text.push_str(&format!("[{}]\n", section.name));
        }
        for key in section.keys {
            if let Some(value) = shown(key) {
                text.push_str(&format!("{} = {value}\n", key.name));
            }
        }
    }
    text
}

/// Lists every key with the value in force, without secrets, and its source.
pub(super) fn shown_keys(layers: &Layers<'_>) -> Vec<ShownKey> {
    let keys = SECTIONS.iter().flat_map(|section| section.keys);
    let shown = keys.filter_map(|key| {
        let path = key.path();
        let (whole, place) = layers.shown(&path)?;
        // Secrets are removed before cutting, because half of a secret would not be
        // recognised.
        let mut value = layers.shown_without_secrets(&path)?;
        // A table of names may have a million entries.
        if let Some((end, _)) = value.char_indices().nth(SHOWN_VALUE_MAX) {
            value.truncate(end);
        }
        Some(ShownKey {
            table: key.section,
            name: key.name,
            is_partial: value != whole,
            value,
            source: place.source(),
            place: place.to_string(),
            entry_places: layers
                .entry_places(&path)
                .iter()
                .map(ToString::to_string)
                .collect(),
        })
    });
    shown.collect()
}

/// Values in force of all keys, as TOML, for comparing configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<String, String>);

impl Values {
    /// Collects the values of `layers`, which must all have been read.
    pub(super) fn of(layers: &Layers<'_>) -> Self {
        let keys = SECTIONS.iter().flat_map(|section| section.keys);
        let values = keys.filter_map(|key| {
            let (value, _) = layers.shown(&key.path())?;
            Some((key.path(), value))
        });
        Self(values.collect())
    }

    /// Returns the value of one key, such as `pace.profile`, as TOML.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the keys whose values differ from those in `other`, in alphabetical
    /// order.
    #[must_use]
    pub fn changed_from(&self, other: &Self) -> Vec<&str> {
        let is_changed = |(key, value): &(&String, &String)| other.0.get(*key) != Some(*value);
        let changed = self.0.iter().filter(is_changed);
        changed.map(|(key, _)| key.as_str()).collect()
    }

    /// Returns the SHA-256 of each key's value.
    #[must_use]
    pub fn digests(&self) -> BTreeMap<String, String> {
        let keys = self.0.iter();
        let digests = keys.map(|(key, value)| {
            // Digests, not values: a value may be a path or a contact, and `politesse
            // run` only needs to name the keys that differ.
            let digest = Digest::of(value.as_bytes()).to_string();
            (key.clone(), digest)
        });
        digests.collect()
    }

    /// Returns the SHA-256 of all values, as lines `key = value` in alphabetical order.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest_of(|_| true)
    }

    /// Returns the SHA-256 of some keys' values, in the same form as
    /// [`Values::digest`].
    #[must_use]
    pub fn digest_of(&self, is_meant: impl Fn(&str) -> bool) -> Digest {
        let meant = self.0.iter().filter(|(key, _)| is_meant(key));
        let lines = meant.map(|(key, value)| format!("{key} = {value}\n"));
        // A BTreeMap is sorted, so equal values have equal digests in every process.
        Digest::of(lines.collect::<String>().as_bytes())
    }
}
