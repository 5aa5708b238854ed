//! Statements on uses (`Content-Usage`, `Content-Signal`), and how they add up.
//!
//! `Content-Usage` is a dictionary of RFC 9651 (draft-ietf-aipref-vocab-08, section 6).
//! `Content-Signal` (contentsignals.org; `search=yes, ai-train=no, use=reference`) has
//! no grammar, and packages write it in their own ways (`allow` for `yes`, quotes,
//! spaces), so the text on both sides of every `=` is read. Unknown names and values
//! are ignored.
//!
//! A use that any statement disallows is disallowed (section 5.1). `search` is the same
//! use in both vocabularies. Does not know fields or robots.txt.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sfv::{BareItem, Dictionary, Item, ListEntry, Parser, TokenRef, token_ref};

use super::preference::{Carrier, Preference, PreferenceValue};

/// Uses with a statement, each with its strictest level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UseStatements(BTreeMap<&'static TokenRef, UseEntry>);

/// Strictest level of a use, and the carriers that state it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UseEntry {
    level: UseLevel,
    carriers: BTreeSet<Carrier>,
    /// First line of robots.txt that states this level.
    line: Option<u32>,
}

/// Place of a statement: its carrier and, in robots.txt, its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatementPlace {
    carrier: Carrier,
    /// Number of the line, from 1; `None` outside robots.txt.
    line: Option<u32>,
}

/// Degree to which a use is allowed, the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UseLevel {
    /// Not allowed.
    No,
    /// Allowed.
    Yes,
    /// `use=immediate`: to answer the current request.
    Immediate,
    /// `use=reference`: to be found and quoted.
    Reference,
    /// `use=full`: any use.
    Full,
}

/// Labels of `Content-Usage` in revision 08 (section 6.1); earlier revisions had
/// others.
const LABELS: [&TokenRef; 2] = [token_ref("train-ai"), token_ref("search")];

/// Names in `Content-Signal` whose value is yes or no.
const SIGNALS: [&TokenRef; 3] = [
    token_ref("search"),
    token_ref("ai-input"),
    token_ref("ai-train"),
];

/// Name in `Content-Signal` for the extent of any use, since July 2026.
const USE: &TokenRef = token_ref("use");

/// Joins the lines of a field into the single value that they form (RFC 9651, section
/// 4.2). Empty lines are skipped.
pub(super) fn joined<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Cow<'a, [u8]> {
    let mut filled = lines.filter(|line| !line.trim_ascii().is_empty());
    let first = Cow::Borrowed(filled.next().unwrap_or_default());
    filled.fold(first, |mut whole, line| {
        whole.to_mut().extend_from_slice(b", ");
        whole.to_mut().extend_from_slice(line);
        whole
    })
}

impl UseStatements {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the value of a `Content-Usage`. An invalid dictionary states nothing. If a
    /// label occurs twice, the last one counts; parameters are ignored (section 6.5).
    pub(super) fn add_usage(&mut self, dictionary: &[u8], place: StatementPlace) {
        if dictionary.is_empty() {
            return;
        }
        // A dictionary with a mistake is discarded as a whole (RFC 9651, section 4.2).
        let parsed = Parser::new(dictionary).parse::<Dictionary>();
        let members = parsed.unwrap_or_default();
        for label in LABELS {
            if let Some(level) = members.get(label.as_str()).and_then(usage_level) {
                self.add(label, level, place);
            }
        }
    }

    /// Adds the value of a `Content-Signal`.
    pub(super) fn add_signals(&mut self, value: &[u8], place: StatementPlace) {
        let mut sides = value.split(|byte| *byte == b'=');
        let mut left = sides.next().unwrap_or_default();
        for right in sides {
            let name = words(left).next_back().unwrap_or_default();
            let word = words(right).next().unwrap_or_default();
            if let Some((signal, level)) = signal(name, word) {
                self.add(signal, level, place);
            }
            left = right;
        }
    }

    /// Returns the preferences, sorted by name.
    pub(super) fn settle(self) -> impl Iterator<Item = Preference> {
        self.0.into_iter().map(|(name, entry)| Preference {
            name,
            value: PreferenceValue::Token(entry.level.word()),
            carriers: entry.carriers,
            line: entry.line,
        })
    }

    /// Adds a statement. Of two levels the stricter stays, with its carriers.
    fn add(&mut self, name: &'static TokenRef, level: UseLevel, place: StatementPlace) {
        let new = UseEntry {
            level,
            carriers: BTreeSet::from([place.carrier]),
            line: place.line,
        };
        let Some(entry) = self.0.get_mut(name) else {
            self.0.insert(name, new);
            return;
        };
        // A weaker statement no longer counts, so its carriers and line are dropped.
        if level < entry.level {
            *entry = new;
        } else if level == entry.level {
            entry.carriers.insert(place.carrier);
            entry.line = [entry.line, place.line].into_iter().flatten().min();
        }
    }
}

impl StatementPlace {
    /// A statement in a field of the response.
    pub(super) const FIELD: Self = Self {
        carrier: Carrier::Field,
        line: None,
    };

    /// Returns the place of a statement in line `line` of robots.txt.
    pub(super) fn robots_line(line: u32) -> Self {
        Self {
            carrier: Carrier::RobotsTxt,
            line: Some(line),
        }
    }
}

impl UseLevel {
    /// Returns the word used in the annotation, the same for both vocabularies.
    fn word(self) -> &'static TokenRef {
        match self {
            Self::No => const { token_ref("n") },
            Self::Yes => const { token_ref("y") },
            Self::Immediate => const { token_ref("immediate") },
            Self::Reference => const { token_ref("reference") },
            Self::Full => const { token_ref("full") },
        }
    }
}

/// Reads the value of a label: the token `y` or `n`. Everything else is unknown
/// (draft-ietf-aipref-vocab-08, section 6.2).
fn usage_level(value: &ListEntry) -> Option<UseLevel> {
    let ListEntry::Item(Item {
        bare_item: BareItem::Token(word),
        ..
    }) = value
    else {
        return None;
    };
    match word.as_str() {
        "y" => Some(UseLevel::Yes),
        "n" => Some(UseLevel::No),
        _ => None,
    }
}

/// Reads one `name=word` of a `Content-Signal`, in any case.
fn signal(name: &[u8], word: &[u8]) -> Option<(&'static TokenRef, UseLevel)> {
    const ANSWERS: [(&str, UseLevel); 6] = [
        ("yes", UseLevel::Yes),
        ("y", UseLevel::Yes),
        ("allow", UseLevel::Yes),
        ("no", UseLevel::No),
        ("n", UseLevel::No),
        ("disallow", UseLevel::No),
    ];
    const EXTENTS: [(&str, UseLevel); 3] = [
        ("immediate", UseLevel::Immediate),
        ("reference", UseLevel::Reference),
        ("full", UseLevel::Full),
    ];
    let is = |known: &&TokenRef| name.eq_ignore_ascii_case(known.as_str().as_bytes());
    let (signal, levels) = if is(&USE) {
        (USE, &EXTENTS[..])
    } else {
        (SIGNALS.into_iter().find(is)?, &ANSWERS[..])
    };
    let mut levels = levels.iter();
    let level = levels.find(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes()));
    level.map(|(_, level)| (signal, *level))
}

/// Splits a text into words of letters, digits, `-` and `_`.
fn words(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let words = text.split(move |byte| !is_word(*byte));
    words.filter(|word| !word.is_empty())
}
