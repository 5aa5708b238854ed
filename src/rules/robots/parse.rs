//! The octets of a robots.txt to groups, rules and notes.
//!
//! RFC 9309, sections 2.1, 2.2 and 2.3.1.5. Reading never fails: a line that
//! cannot be read becomes a note, and the lines around it count all the same.
//! Which group binds and which rule wins is not known here.

use std::borrow::Cow;
use std::iter;

use super::{Agent, DelayLine, Group, Note, NoteKind, Pattern, RobotsTxt, Rule, RuleKind};

/// Reads a whole file.
pub(super) fn read(body: &[u8]) -> RobotsTxt {
    let text = decoded(body);
    let mut reader = Reader::default();
    for (number, line) in (1..).zip(lines(&text)) {
        reader.take(&Line {
            number,
            content: content(line),
        });
    }
    reader.robots
}

/// A line's number, from 1, and the part of it that means something.
struct Line<'a> {
    number: u32,
    content: &'a [u8],
}

/// What the lines before have led to.
#[derive(Default)]
struct Reader {
    robots: RobotsTxt,
    place: Place,
}

/// Where in a group the next line stands (RFC 9309, section 2.1).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// No agent line so far.
    #[default]
    Outside,
    /// Behind an agent line.
    Agents,
    /// Behind agent lines and another record, which does not end their list
    /// (RFC 9309, section 2.2.4) although it looks like it.
    Gap,
    /// Behind a rule: the next agent line begins a group.
    Rules,
}

impl Reader {
    fn take(&mut self, line: &Line<'_>) {
        if line.content.is_empty() {
            return;
        }
        let Some((name, value)) = record(line.content) else {
            return self.other(line, NoteKind::NotARecord);
        };
        let key = Key::named(name);
        if MISSPELT.iter().any(|(spelling, _)| is(name, spelling)) {
            self.note(line, NoteKind::Misspelt);
        }
        match key {
            Some(Key::UserAgent) => self.agent(line, value),
            Some(Key::Rule(kind)) => self.rule(line, (kind, value)),
            Some(Key::CrawlDelay) => self.crawl_delay(line, value),
            Some(Key::Sitemap) => {
                self.robots.sitemaps.push(lossy(value));
                self.pass();
            }
            Some(Key::Noindex) => self.other(line, NoteKind::Noindex),
            None => self.other(line, NoteKind::UnknownRecord),
        }
    }

    fn agent(&mut self, line: &Line<'_>, value: &[u8]) {
        if value.is_empty() {
            self.note(line, NoteKind::NamesNobody);
        }
        match self.place {
            Place::Outside | Place::Rules => self.robots.groups.push(Group::default()),
            Place::Gap => self.note(line, NoteKind::JoinsGroup),
            Place::Agents => {}
        }
        self.place = Place::Agents;
        if let Some(group) = self.robots.groups.last_mut() {
            group.agents.push(Agent {
                name: lossy(value),
                line: line.number,
            });
        }
    }

    fn rule(&mut self, line: &Line<'_>, (kind, value): (RuleKind, &[u8])) {
        let Some(group) = self.robots.groups.last_mut() else {
            return self.note(line, NoteKind::OutsideGroup);
        };
        self.place = Place::Rules;
        let Some(pattern) = Pattern::new(value) else {
            return;
        };
        group.rules.push(Rule {
            kind,
            line: line.number,
            text: lossy(line.content),
            pattern,
        });
        if !value.starts_with(b"/") && !value.starts_with(b"*") {
            self.note(line, NoteKind::NeverMatches);
        }
    }

    fn crawl_delay(&mut self, line: &Line<'_>, value: &[u8]) {
        self.pass();
        let Some(group) = self.robots.groups.last_mut() else {
            return self.note(line, NoteKind::OutsideGroup);
        };
        match seconds(value) {
            Some(seconds) => group.crawl_delays.push(DelayLine {
                seconds,
                line: line.number,
            }),
            None => self.note(line, NoteKind::InvalidCrawlDelay),
        }
    }

    fn other(&mut self, line: &Line<'_>, kind: NoteKind) {
        self.note(line, kind);
        self.pass();
    }

    /// Goes past a line that is neither agent nor rule.
    fn pass(&mut self) {
        if self.place == Place::Agents {
            self.place = Place::Gap;
        }
    }

    fn note(&mut self, line: &Line<'_>, kind: NoteKind) {
        self.robots.notes.push(Note {
            line: line.number,
            kind,
        });
    }
}

/// The records that mean something here.
#[derive(Clone, Copy)]
enum Key {
    UserAgent,
    Rule(RuleKind),
    CrawlDelay,
    Sitemap,
    Noindex,
}

const KEYS: [(&str, Key); 6] = [
    ("user-agent", Key::UserAgent),
    ("disallow", Key::Rule(RuleKind::Disallow)),
    ("allow", Key::Rule(RuleKind::Allow)),
    ("crawl-delay", Key::CrawlDelay),
    ("sitemap", Key::Sitemap),
    ("noindex", Key::Noindex),
];

/// Spellings whose meaning is beyond doubt (RFC 9309, section 2.2.4: lenient).
/// There are none for `allow`: a guess must not allow.
const MISSPELT: [(&str, Key); 9] = [
    ("useragent", Key::UserAgent),
    ("user agent", Key::UserAgent),
    ("dissallow", Key::Rule(RuleKind::Disallow)),
    ("dissalow", Key::Rule(RuleKind::Disallow)),
    ("disalow", Key::Rule(RuleKind::Disallow)),
    ("diasllow", Key::Rule(RuleKind::Disallow)),
    ("disallaw", Key::Rule(RuleKind::Disallow)),
    ("disallowed", Key::Rule(RuleKind::Disallow)),
    ("site-map", Key::Sitemap),
];

impl Key {
    /// Names are compared ignoring case (RFC 9309, section 2.2) and whole:
    /// `Disallow-AI` is another record.
    fn named(name: &[u8]) -> Option<Self> {
        let mut known = KEYS.iter().chain(&MISSPELT);
        let (_, key) = known.find(|(spelling, _)| is(name, spelling))?;
        Some(*key)
    }
}

fn is(name: &[u8], spelling: &str) -> bool {
    name.eq_ignore_ascii_case(spelling.as_bytes())
}

/// The name and the value of a record. A line of exactly two words passes for
/// one that lost its colon.
fn record(content: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(colon) = content.iter().position(|&octet| octet == b':') {
        let (name, value) = content.split_at(colon);
        return Some((trimmed(name), trimmed(value.get(1..)?)));
    }
    let mut words = content
        .split(|octet| is_blank(*octet))
        .filter(|word| !word.is_empty());
    let (name, value) = (words.next()?, words.next()?);
    words.next().is_none().then_some((name, value))
}

/// Seconds, with or without a fraction.
fn seconds(value: &[u8]) -> Option<f64> {
    let text = str::from_utf8(value).ok()?;
    // `parse` would take signs, exponents and `nan` as well.
    if !text
        .bytes()
        .all(|octet| octet.is_ascii_digit() || octet == b'.')
    {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    Some(seconds.min(f64::MAX))
}

/// The part of a line that means something: no comment, no blanks around it.
fn content(line: &[u8]) -> &[u8] {
    let code = line.split(|&octet| octet == b'#').next();
    trimmed(code.unwrap_or_default())
}

fn trimmed(text: &[u8]) -> &[u8] {
    let Some(start) = text.iter().position(|&octet| !is_blank(octet)) else {
        return &[];
    };
    let end = text.iter().rposition(|&octet| !is_blank(octet));
    end.and_then(|end| text.get(start..=end))
        .unwrap_or_default()
}

/// `WS` of RFC 9309, section 2.2.
fn is_blank(octet: u8) -> bool {
    octet == b' ' || octet == b'\t'
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// The lines of a file, however they end (`NL` of RFC 9309, section 2.2: CR,
/// LF or both).
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.iter().position(|octet| matches!(octet, b'\r' | b'\n'));
        let (line, tail) = rest.split_at(end.unwrap_or(rest.len()));
        rest = tail
            .strip_prefix(b"\r\n")
            .or(tail.get(1..))
            .unwrap_or_default();
        Some(line)
    })
}

/// The file as UTF-8, without a byte order mark: one in UTF-16 is bridged
/// (RFC 9309, section 2.2.2), other octets are left as they are.
fn decoded(body: &[u8]) -> Cow<'_, [u8]> {
    match body {
        [0xFF, 0xFE, text @ ..] => from_utf16(text, u16::from_le_bytes),
        [0xFE, 0xFF, text @ ..] => from_utf16(text, u16::from_be_bytes),
        [1..=0x7F, 0, 1..=0x7F, 0, ..] => from_utf16(body, u16::from_le_bytes),
        [0, 1..=0x7F, 0, 1..=0x7F, ..] => from_utf16(body, u16::from_be_bytes),
        _ => Cow::Borrowed(without_mark(body)),
    }
}

fn from_utf16(text: &[u8], unit: fn([u8; 2]) -> u16) -> Cow<'_, [u8]> {
    let (pairs, _) = text.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    let decoded: String = char::decode_utf16(units)
        .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    Cow::Owned(decoded.into_bytes())
}

/// Some editors begin the file with a byte order mark, and some tools lose a
/// part of it. Left in place it becomes part of the first key, and the whole
/// first group is lost.
fn without_mark(body: &[u8]) -> &[u8] {
    let mark = iter::zip(body, [0xEF, 0xBB, 0xBF]);
    let present = mark.take_while(|(octet, expected)| **octet == *expected);
    body.get(present.count()..).unwrap_or_default()
}
