//! Groups of lines, and the groups that bind a crawler.
//!
//! RFC 9309, sections 2.1 and 2.2.1. The old specifications call a group a *record*.

use super::Dialect;
use super::lines::{self, Line, Rule, is_blank};
use super::meant;
use super::pattern::without_marks;

/// Group: user-agent lines and the rules after them.
#[derive(Debug, Default)]
struct Group {
    /// Values of the user-agent lines.
    agents: Vec<Vec<u8>>,
    /// Rules, in the order of the file.
    rules: Vec<Rule>,
    /// Whether one of its lines was damaged.
    is_damaged: bool,
}

/// Rules that bind a crawler.
#[derive(Debug, Default)]
pub(super) struct Binding {
    /// Whether a group binds the crawler. The group may have no rules.
    pub(super) is_bound: bool,
    /// The rules, in the order of the file.
    pub(super) rules: Vec<Rule>,
}

impl Binding {
    /// Returns the rules that bind the crawler with the product token `agent`: those of its
    /// own groups; otherwise those of the groups for `*`; otherwise none (RFC 9309, section
    /// 2.2.1).
    pub(super) fn of(dialect: Dialect, body: &[u8], agent: &str) -> Self {
        let groups = groups(dialect, body);
        let with = |fits: &dyn Fn(&[u8]) -> bool| -> Vec<&Group> {
            let with = groups.iter();
            with.filter(|group| group.agents.iter().any(|value| fits(value)))
                .collect()
        };
        let own = with(&|value| names(dialect, value, agent));
        let of_all = with(&|value| is_everyone(dialect, value));
        match dialect {
            Dialect::Rfc9309 | Dialect::Google => Self::merged(&own).or(Self::merged(&of_all)),
            // draft-koster-rep-00, section 2.2.1: the matching groups are
            // combined, but of those with `*` only "the first" is obeyed.
            Dialect::Draft2019 => Self::merged(&own).or(Self::first(&of_all)),
            // 1996, section 3.2.1; 1994: only the first matching record.
            Dialect::Draft1996 | Dialect::Koster1994 | Dialect::Conner2 => {
                Self::first(&own).or(Self::first(&of_all))
            }
        }
        .unwrap_or_default()
    }

    /// Returns the rules that bind the crawler by RFC 9309 if damaged lines are repaired:
    /// those of its own groups, otherwise those of the groups for `*`. Of the repaired
    /// file, only groups with a damaged line count.
    pub(super) fn as_meant(body: &[u8], agent: &str) -> Self {
        let dialect = Dialect::Rfc9309;
        let lines = lines::read(dialect, body).into_iter();
        let mut groups = grouped(dialect, lines.map(|line| (line, false)));
        let meant = grouped(dialect, meant::read(dialect, body).into_iter());
        groups.extend(meant.into_iter().filter(|group| group.is_damaged));
        let with = |fits: &dyn Fn(&[u8]) -> bool| {
            let with = groups.iter();
            let with = with.filter(|group| group.agents.iter().any(|value| fits(value)));
            Self::merged(&with.collect::<Vec<_>>())
        };
        let is_named = |value: &[u8]| names(dialect, value, agent) || meant::names(value, agent);
        let own = with(&is_named);
        let of_all = with(&|value| is_everyone(dialect, value) || meant::is_everyone(value));
        own.or(of_all).unwrap_or_default()
    }

    /// Returns the binding by the first group; `None` without groups.
    fn first(groups: &[&Group]) -> Option<Self> {
        Self::merged(&groups[..groups.len().min(1)])
    }

    /// Returns the binding by all groups together; `None` without groups.
    fn merged(groups: &[&Group]) -> Option<Self> {
        if groups.is_empty() {
            return None;
        }
        let rules = groups.iter().flat_map(|group| group.rules.clone());
        let rules = rules.collect();
        Some(Self {
            is_bound: true,
            rules,
        })
    }
}

/// Returns the groups of a file.
///
/// A group begins with a user-agent line and ends at the first user-agent line after a rule
/// (RFC 9309, section 2.1). In the old specifications, a blank line ends it, too (1994, "The
/// Format"; 1996, section 3.2). A rule outside a group has no effect (RFC 9309, section
/// 2.2.2).
fn groups(dialect: Dialect, body: &[u8]) -> Vec<Group> {
    let lines = lines::read(dialect, body).into_iter();
    grouped(dialect, lines.map(|line| (line, false)))
}

/// Returns the groups of lines. Each line comes with a flag: whether it was damaged.
fn grouped(dialect: Dialect, lines: impl Iterator<Item = (Line, bool)>) -> Vec<Group> {
    let mut done = Vec::new();
    let mut open: Option<Group> = None;
    for (line, is_damaged) in lines {
        match line {
            Line::Agent(value) => {
                if open.as_ref().is_some_and(|group| !group.rules.is_empty()) {
                    done.extend(open.take());
                }
                let group = open.get_or_insert_default();
                group.agents.push(value);
                group.is_damaged |= is_damaged;
            }
            Line::Rule(rule) => open.iter_mut().for_each(|group| {
                group.rules.push(rule.clone());
                group.is_damaged |= is_damaged;
            }),
            Line::Blank if ends_at_blank_lines(dialect) => done.extend(open.take()),
            Line::Blank | Line::Other => {}
        }
    }
    done.extend(open);
    done
}

fn ends_at_blank_lines(dialect: Dialect) -> bool {
    matches!(
        dialect,
        Dialect::Draft1996 | Dialect::Koster1994 | Dialect::Conner2
    )
}

/// Reports whether the value of a user-agent line stands for all crawlers: `*`, or `*` and
/// more words, as Google reads it. In RFC 9309, invisible marks may follow.
fn is_everyone(dialect: Dialect, value: &[u8]) -> bool {
    let visible = if dialect == Dialect::Rfc9309 {
        &without_marks(value)
    } else {
        value
    };
    match visible {
        [b'*'] => true,
        [b'*', next, ..] => is_blank(*next),
        _ => false,
    }
}

/// Reports whether the value of a user-agent line names the crawler.
fn names(dialect: Dialect, value: &[u8], token: &str) -> bool {
    if is_everyone(dialect, value) || token.is_empty() {
        return false;
    }
    let value = text(value);
    match dialect {
        Dialect::Koster1994 | Dialect::Conner2 => is_part_of(&value, token),
        Dialect::Rfc9309 | Dialect::Draft2019 | Dialect::Draft1996 | Dialect::Google => {
            equals(&value, token)
        }
    }
}

/// Reports whether a value names `token`, ignoring case (RFC 9309, section 2.2.1, and 1996,
/// section 3.2.1).
///
/// Other text may follow the name. It begins with a character that a product token cannot
/// contain (Google's reading), except a letter outside ASCII; or it is a version, words or
/// `*`, if the name itself contains such characters (`MJ12bot/1.0`).
pub(super) fn equals(value: &str, token: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || "_-".contains(letter);
    let letters = until(value, |letter| !is_letter(letter));
    let next = value[letters.len()..].chars().next();
    let goes_on = next.is_some_and(|next| !next.is_ascii() && is_part_of_letter(next));
    let google = if goes_on { value } else { letters };
    let readings = [
        value,
        google,
        until(value, |letter| "/ \t*".contains(letter)),
    ];
    readings.iter().any(|name| name.eq_ignore_ascii_case(token))
}

/// Reports whether a character is a letter or digit of any script, an accent, or a
/// replacement for bytes that could not be decoded.
fn is_part_of_letter(letter: char) -> bool {
    letter.is_alphabetic()
        || letter.is_numeric()
        || ('\u{300}'..'\u{370}').contains(&letter)
        || letter == '\u{FFFD}'
}

/// Reports whether a value names `token` by the consensus of 1994, `User-agent`: "A case
/// insensitive substring match of the name without version information is recommended."
/// Blanks before the version do not belong to the name.
fn is_part_of(value: &str, token: &str) -> bool {
    let without_version = until(value, |letter| letter == '/');
    let name = without_version.trim_end_matches([' ', '\t']);
    let token = token.to_ascii_lowercase();
    [value, name]
        .iter()
        .any(|name| !name.is_empty() && token.contains(&name.to_ascii_lowercase()))
}

/// Returns the text before the first character for which `ends` is true.
fn until(text: &str, ends: impl Fn(char) -> bool) -> &str {
    text.split(ends).next().unwrap_or_default()
}

/// Decodes a name as UTF-8. Invalid bytes are decoded as Windows-1252.
pub(super) fn text(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while !bytes.is_empty() {
        let valid = match str::from_utf8(bytes) {
            Ok(all) => all,
            Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        text.push_str(valid);
        bytes = &bytes[valid.len()..];
        if let [byte, rest @ ..] = bytes {
            text.push(match byte {
                0x80..0xA0 => WINDOWS_1252[usize::from(byte - 0x80)],
                _ => char::from(*byte),
            });
            bytes = rest;
        }
    }
    text
}

/// Characters 0x80 to 0x9F of Windows-1252, which differ from ISO-8859-1.
#[rustfmt::skip]
const WINDOWS_1252: [char; 32] = [
    '€', '\u{FFFD}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{FFFD}', 'Ž', '\u{FFFD}',
    '\u{FFFD}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{FFFD}', 'ž', 'Ÿ',
];
