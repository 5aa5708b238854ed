//! Records of a robots.txt as data, and notes for its author. A record is a line with a name
//! and a value (RFC 9309, section 2.2.4).
//!
//! That section leaves records other than agents and rules to the crawler, as long as they
//! do not interfere. This module reports their line and group; they never change a verdict.
//! Stores nothing: each call parses the text again. Does not make judgements.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr2};

use super::dialect::{DamagedLines, RecordEnd, RuleForms, Traits};
use super::lines::RuleKind;
use super::lines::{LineField, LineKey, Separator, Spelling, TextLine, TextLines, lossy};
use super::marks::{colons, plain, without_end_marks};
use super::parsed_file::ParsedFile;
use super::repair::{DamagedLine, is_url};
use super::repaired_binding::MeantName;
use super::token::{Token, TokenKind, is_blank};
use crate::crawler;
use crate::pace::{RequestRate, VisitTime};

/// Line of a robots.txt with a name and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsRecord<'a> {
    /// Number of the line, from 1.
    pub line: u32,
    /// Kind of the record.
    pub kind: RecordKind,
    /// Name, as written.
    pub name: Cow<'a, str>,
    /// Value, as written, without comment and outer whitespace.
    pub value: Cow<'a, str>,
    /// Number of the group that contains the line, from 0; `None` outside all groups. For
    /// records about the whole site, such as Sitemap, the group has no meaning.
    pub group: Option<usize>,
}

/// Kind of a record, from any specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// User-agent (RFC 9309, section 2.2.1).
    UserAgent,
    /// Allow or Disallow (section 2.2.2).
    Rule(RuleKind),
    /// Crawl-delay: seconds between two requests. [`seconds`] reads it.
    CrawlDelay,
    /// Request-rate (Conner, 1996). [`RequestRate`] reads it.
    RequestRate,
    /// Visit-time (Conner, 1996). [`VisitTime`] reads it.
    VisitTime,
    /// Robot-version (Conner, 1996): the specification that the record follows. Has no
    /// effect, as agreed on the mailing list that discussed it.
    RobotVersion,
    /// Comment (Conner, 1996): a message to the operator of the crawler.
    Comment,
    /// Sitemap: an absolute URL.
    Sitemap,
    /// Host: the name that the site prefers (Yandex).
    Host,
    /// Clean-param: query parameters that do not affect the content (Yandex).
    CleanParam,
    /// Content-Signal (contentsignals.org).
    ContentSignal,
    /// Content-Usage (IETF AIPREF).
    ContentUsage,
    /// License: the URL of a licence (RSL).
    License,
    /// Noindex: reported in a note, never in force.
    Noindex,
    /// An unknown name.
    Unknown,
}

const NAMES: [(&str, RecordKind); 11] = [
    ("robot-version", RecordKind::RobotVersion),
    ("comment", RecordKind::Comment),
    ("sitemap", RecordKind::Sitemap),
    ("site-map", RecordKind::Sitemap),
    ("host", RecordKind::Host),
    ("clean-param", RecordKind::CleanParam),
    ("content-signal", RecordKind::ContentSignal),
    ("content-usage", RecordKind::ContentUsage),
    ("license", RecordKind::License),
    ("licence", RecordKind::License),
    ("noindex", RecordKind::Noindex),
];

const MISSPELT: [&str; 2] = ["site-map", "licence"];

/// Hint for the author of a robots.txt about a line. Has no effect on verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Number of the line, from 1.
    pub line: u32,
    /// Subject of the note.
    pub kind: NoteKind,
}

/// Subject of a [`Note`]. `Display` gives a phrase that describes the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKind {
    /// A line without name, colon and value.
    NotARecord,
    /// A web page in place of a robots.txt.
    Html,
    /// An unknown name (RFC 9309, section 2.2.4).
    UnknownRecord,
    /// A misspelt name that was understood.
    Misspelt,
    /// A line of two words, read as name and value.
    WithoutColon,
    /// An agent line without a value.
    NamesNobody,
    /// A line that needs a group, but has no agent line above it (RFC 9309, section 2.2.2).
    OutsideGroup,
    /// A pattern that begins with neither `/` nor `*`.
    NeverMatches,
    /// A path that ends with an invisible mark, such as a no-break space.
    EndsInvisibly,
    /// A path with invisible marks at its beginning or inside it.
    HoldsMarks,
    /// A path that is not UTF-8.
    OtherCharset,
    /// An absolute URL of the site in place of a path.
    UrlOfSite,
    /// A record name that was understood in spite of invisible marks, or of a character
    /// that looks like a colon or hyphen.
    MarkedName,
    /// A product token with invisible marks, or with a character that looks like a hyphen.
    MarkedToken,
    /// An agent line with `*` and punctuation.
    EveryoneInPunctuation,
    /// An agent line that also contains a Disallow.
    RuleOnAgentLine,
    /// An agent line with a complete User-Agent.
    WholeUserAgent,
    /// An agent line that shares the rules below with the agents above, because only a rule
    /// ends their list (RFC 9309, section 2.2.4). If one of them is `*`, rules meant for one
    /// crawler bind all.
    JoinsGroup,
    /// A `noindex` line, which is never in force.
    Noindex,
    /// A Crawl-delay with a unit, a comma or invisible marks, which was understood.
    DelayAsMeant,
    /// A Crawl-delay that is not a number of seconds, and has no effect.
    InvalidCrawlDelay,
    /// A malformed Request-rate, which has no effect.
    InvalidRequestRate,
    /// A malformed Visit-time, which has no effect.
    InvalidVisitTime,
    /// The first line beyond the limit. It and the following lines were not read.
    CutAtLimit,
}

/// Position of the next line in a group (RFC 9309, section 2.1).
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupPlace {
    /// No agent line so far.
    Outside,
    /// After an agent line.
    Agents,
    /// After agent lines and another line, which seems to end their list but does not (RFC
    /// 9309, section 2.2.4).
    Gap,
    /// After a rule: the next agent line begins a group.
    Rules,
}

/// Iterator over the lines of a file, with the records and notes of each.
pub(super) struct RecordReader<'a> {
    lines: TextLines<'a>,
    traits: &'static Traits,
    file: &'a ParsedFile,
    place: GroupPlace,
    groups: usize,
    /// Whether every line so far was blank or a comment.
    is_at_start: bool,
}

/// Records and notes of one line.
pub(super) struct ReadLine<'a> {
    pub(super) record: Option<RobotsRecord<'a>>,
    /// Disallow on an agent line.
    pub(super) rule: Option<RobotsRecord<'a>>,
    /// Notes on the line, at most two.
    pub(super) notes: [Option<Note>; 2],
}

impl<'a> RecordReader<'a> {
    pub(super) fn of(file: &'a ParsedFile) -> Self {
        Self {
            lines: TextLines::of(&file.text),
            traits: file.traits(),
            file,
            place: GroupPlace::Outside,
            groups: 0,
            is_at_start: true,
        }
    }

    fn read(&mut self, line: TextLine<'a>) -> ReadLine<'a> {
        let content = self.traits.lines.content(line.bytes);
        if content.is_empty() {
            if self.traits.records == RecordEnd::EndAtBlank && is_blank(line.bytes) {
                self.place = GroupPlace::Outside;
            }
            return ReadLine::nothing();
        }
        let number = line.number;
        let note = |kind| Some(Note { line: number, kind });
        // Many sites answer every URL with a web page. Its first line gets the note
        // `Html`.
        let is_html = std::mem::take(&mut self.is_at_start) && content.starts_with(b"<");
        if !is_html && let Some(damaged) = DamagedLine::of(line, self.traits) {
            return self.repaired(line, &damaged);
        }
        let field = self.traits.lines.field(content).filter(|_| !is_html);
        let Some(field) = field else {
            self.pass();
            let html = is_html.then_some(NoteKind::Html);
            return ReadLine {
                notes: [note(html.unwrap_or(NoteKind::NotARecord)), None],
                ..ReadLine::nothing()
            };
        };
        let (kind, spelling) = self.kind(field.name);
        let written = match (kind, field.separator, spelling) {
            (RecordKind::Unknown, ..) => NoteKind::UnknownRecord,
            (_, Separator::Blank, _) => NoteKind::WithoutColon,
            (_, _, Spelling::Wrong) => NoteKind::Misspelt,
            (_, _, Spelling::Right) => return self.placed(line, kind, field, None),
        };
        self.placed(line, kind, field, note(written))
    }

    /// Reads the records of a repaired line.
    fn repaired(&mut self, line: TextLine<'a>, damaged: &DamagedLine) -> ReadLine<'a> {
        let content = self.traits.lines.content(line.bytes);
        let colon = colons(content).next().unwrap_or(0..0);
        let name = content.get(..colon.start).unwrap_or_default();
        let field = |token: Token, name| LineField {
            name,
            value: self.file.value(token),
            separator: Separator::Colon,
        };
        let (agent, rule) = (damaged.record, damaged.rule);
        let record = field(agent, name);
        let rule = rule.map(|rule| field(rule, b"Disallow"));
        let note = Some(Note {
            line: line.number,
            kind: match rule {
                Some(_) => NoteKind::RuleOnAgentLine,
                None => NoteKind::MarkedName,
            },
        });
        let read = self.placed(line, agent.kind().into(), record, note);
        let rule = rule.and_then(|rule| {
            let disallow = RecordKind::Rule(RuleKind::Disallow);
            self.placed(line, disallow, rule, None).record
        });
        ReadLine { rule, ..read }
    }

    fn placed(
        &mut self,
        line: TextLine<'a>,
        kind: RecordKind,
        field: LineField<'a>,
        written: Option<Note>,
    ) -> ReadLine<'a> {
        let note = |kind| Note {
            line: line.number,
            kind,
        };
        let odd = self.oddity(kind, field.value).map(note);
        let agent = (kind == RecordKind::UserAgent).then(|| self.odd_agent(field.value));
        if kind == RecordKind::UserAgent {
            self.agent();
        } else if matches!(kind, RecordKind::Rule(_)) && self.place != GroupPlace::Outside {
            self.place = GroupPlace::Rules;
        } else {
            self.pass();
        }
        ReadLine {
            record: Some(RobotsRecord {
                line: line.number,
                kind,
                name: lossy(field.name),
                value: lossy(field.value),
                group: self.group(),
            }),
            rule: None,
            notes: [written.or_else(|| agent.flatten().map(note)), odd],
        }
    }

    fn kind(&self, name: &[u8]) -> (RecordKind, Spelling) {
        if let Some((key, spelling)) = self.traits.lines.key(name) {
            let kind = match key {
                LineKey::Agent => RecordKind::UserAgent,
                LineKey::Rule(kind) => RecordKind::Rule(kind),
                LineKey::CrawlDelay => RecordKind::CrawlDelay,
                LineKey::RequestRate => RecordKind::RequestRate,
                LineKey::VisitTime => RecordKind::VisitTime,
            };
            return (kind, spelling);
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let known = NAMES.iter().find(|(known, _)| is(known));
        let spelling = if MISSPELT.into_iter().any(is) {
            Spelling::Wrong
        } else {
            Spelling::Right
        };
        (
            known.map_or(RecordKind::Unknown, |(_, kind)| *kind),
            spelling,
        )
    }

    /// Returns the note on a record and its position, if there is one.
    fn oddity(&self, kind: RecordKind, value: &[u8]) -> Option<NoteKind> {
        let is_rule = matches!(kind, RecordKind::Rule(_));
        if kind == RecordKind::UserAgent {
            let joins = (self.place == GroupPlace::Gap).then_some(NoteKind::JoinsGroup);
            return if value.is_empty() {
                Some(NoteKind::NamesNobody)
            } else {
                joins
            };
        }
        if (is_rule || kind.is_of_pace()) && self.place == GroupPlace::Outside {
            return Some(NoteKind::OutsideGroup);
        }
        if let RecordKind::Rule(rule) = kind {
            return self.odd_path(rule, value);
        }
        if kind == RecordKind::Noindex {
            return Some(NoteKind::Noindex);
        }
        let is_delay = kind == RecordKind::CrawlDelay && seconds(value).is_none();
        if is_delay && self.traits.seconds_as_meant(value).is_some() {
            return Some(NoteKind::DelayAsMeant);
        }
        invalid_pace(kind, value)
    }

    /// Returns the note on the path of a rule, if there is one.
    fn odd_path(&self, rule: RuleKind, value: &[u8]) -> Option<NoteKind> {
        let begins = |form: &[u8]| matches!(form, [b'/' | b'*', ..]);
        let forms = self
            .traits
            .further_forms(rule.into(), value, &self.file.source);
        if !value.is_empty() && !begins(value) && !forms.iter().any(|form| begins(form)) {
            return Some(NoteKind::NeverMatches);
        }
        if self.traits.forms == RuleForms::Further && without_end_marks(value).is_some() {
            return Some(NoteKind::EndsInvisibly);
        }
        if forms.is_empty() {
            None
        } else if is_url(value) {
            Some(NoteKind::UrlOfSite)
        } else if str::from_utf8(value).is_err() {
            Some(NoteKind::OtherCharset)
        } else {
            Some(NoteKind::HoldsMarks)
        }
    }

    /// Returns the note on an additional meaning of an agent line, if it has one.
    fn odd_agent(&self, value: &[u8]) -> Option<NoteKind> {
        let traits = self.traits;
        if traits.damage == DamagedLines::AsWritten {
            return None;
        }
        let is_header = memchr2(b'/', b'(', value).is_some() && memchr(b' ', value).is_some();
        if MeantName::of(value).is_everyone(traits) && !traits.is_everyone(value) {
            Some(NoteKind::EveryoneInPunctuation)
        } else if plain(value) != crawler::decode(value) {
            Some(NoteKind::MarkedToken)
        } else {
            is_header.then_some(NoteKind::WholeUserAgent)
        }
    }

    fn agent(&mut self) {
        if matches!(self.place, GroupPlace::Outside | GroupPlace::Rules) {
            self.groups += 1;
        }
        self.place = GroupPlace::Agents;
    }

    /// Passes a line that is neither an agent line nor a rule.
    fn pass(&mut self) {
        if self.place == GroupPlace::Agents {
            self.place = GroupPlace::Gap;
        }
    }

    fn group(&self) -> Option<usize> {
        match self.place {
            GroupPlace::Outside => None,
            GroupPlace::Agents | GroupPlace::Gap | GroupPlace::Rules => self.groups.checked_sub(1),
        }
    }
}

impl<'a> Iterator for RecordReader<'a> {
    type Item = ReadLine<'a>;

    fn next(&mut self) -> Option<ReadLine<'a>> {
        let line = self.lines.next()?;
        Some(self.read(line))
    }
}

impl ReadLine<'_> {
    fn nothing() -> Self {
        Self {
            record: None,
            rule: None,
            notes: [None, None],
        }
    }
}

impl From<TokenKind> for RecordKind {
    fn from(kind: TokenKind) -> Self {
        match kind {
            TokenKind::Agent => Self::UserAgent,
            TokenKind::Allow => Self::Rule(RuleKind::Allow),
            TokenKind::Disallow => Self::Rule(RuleKind::Disallow),
            TokenKind::CrawlDelay => Self::CrawlDelay,
            TokenKind::RequestRate => Self::RequestRate,
            TokenKind::VisitTime => Self::VisitTime,
            TokenKind::Blank => Self::Unknown,
        }
    }
}

impl RecordKind {
    /// Reports whether the record is a pace record: it limits when a crawler may visit, not
    /// where.
    #[must_use]
    pub fn is_of_pace(self) -> bool {
        matches!(self, Self::CrawlDelay | Self::RequestRate | Self::VisitTime)
    }
}

/// Returns the note on an invalid value of a pace record, which has no effect.
fn invalid_pace(kind: RecordKind, value: &[u8]) -> Option<NoteKind> {
    let text = || lossy(value);
    let (is_read, note) = if kind == RecordKind::CrawlDelay {
        (seconds(value).is_some(), NoteKind::InvalidCrawlDelay)
    } else if kind == RecordKind::RequestRate {
        let rate = RequestRate::parse(&text());
        (rate.is_some(), NoteKind::InvalidRequestRate)
    } else if kind == RecordKind::VisitTime {
        let time = VisitTime::parse(&text());
        (time.is_some(), NoteKind::InvalidVisitTime)
    } else {
        return None;
    };
    (!is_read).then_some(note)
}

/// Parses the value of a Crawl-delay, in seconds with or without a fraction.
#[must_use]
pub fn seconds(value: &[u8]) -> Option<f64> {
    let text = str::from_utf8(value).ok()?;
    // `parse` would also accept signs, exponents and `nan`.
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if !text.bytes().all(is_part) {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    // Digits without an exponent can still overflow to infinity.
    Some(seconds.min(f64::MAX))
}

impl Traits {
    /// Parses a delay in a form that people write: with a unit (`10s`, `10 seconds`), with a
    /// decimal comma (`0,5`), or with invisible marks.
    pub(super) fn seconds_as_meant(&self, value: &[u8]) -> Option<f64> {
        const UNITS: [&str; 5] = ["s", "sec", "secs", "second", "seconds"];
        if self.damage == DamagedLines::AsWritten {
            return None;
        }
        let plain = plain(value).to_ascii_lowercase();
        let end = plain.find(|letter: char| letter.is_ascii_alphabetic());
        let (number, unit) = plain.split_at(end.unwrap_or(plain.len()));
        let is_known = unit.is_empty() || UNITS.contains(&unit.trim_end_matches('.'));
        let number = number.trim_end_matches([' ', '\t']).replacen(',', ".", 1);
        seconds(number.as_bytes()).filter(|_| is_known)
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotARecord => "not a record: a name, a colon and a value are wanted",
            Self::Html => "a web page, not a robots.txt",
            Self::UnknownRecord => "a record that means nothing here",
            Self::Misspelt => "a misspelt record, understood all the same",
            Self::WithoutColon => "a record without a colon, understood all the same",
            Self::NamesNobody => "an agent line that names nobody",
            Self::OutsideGroup => "no agent line above it, so it binds nobody",
            Self::NeverMatches => "a path that begins with neither / nor *, so it matches nothing",
            Self::EndsInvisibly => {
                "a path that ends in an invisible mark; a Disallow is also tried without it"
            }
            Self::HoldsMarks => {
                "a path with invisible marks; a Disallow is also tried without them"
            }
            Self::OtherCharset => {
                "a path that is not UTF-8; a Disallow is also tried in the charset that the response \
                 declares, or else in Windows-1252"
            }
            Self::UrlOfSite => "a whole URL of this site; a Disallow is also tried as its path",
            Self::MarkedName => {
                "invisible marks before the colon, or a colon or hyphen that only looks like one; read \
                 as if typed plainly, to refuse more"
            }
            Self::MarkedToken => {
                "a crawler name with invisible marks, or with a hyphen that only looks like one; the \
                 plain name is bound as well"
            }
            Self::EveryoneInPunctuation => "an agent line that is read as *, for every crawler",
            Self::RuleOnAgentLine => {
                "a User-agent line with a Disallow on it; also read as two lines, to refuse more"
            }
            Self::WholeUserAgent => {
                "a whole User-Agent header; it also binds the crawler that sends exactly this"
            }
            Self::DelayAsMeant => "a delay that is not a plain number; still read as seconds",
            Self::JoinsGroup => {
                "the agents above share the rules below: the line between is not a rule"
            }
            Self::Noindex => "noindex in robots.txt is not in force",
            Self::InvalidCrawlDelay => "a delay that is not a number of seconds",
            Self::InvalidRequestRate => "a rate that is not written as 1/10s or 1/10s 0600-0845",
            Self::InvalidVisitTime => "a time of the day that is not written as 0600-0845",
            Self::CutAtLimit => "the file is longer than is read: from here on nothing counts",
        })
    }
}

#[cfg(test)]
mod tests;
