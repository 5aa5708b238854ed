//! robots.txt file: parsing, and all queries about its content.
//!
//! RFC 9309, section 2. Does not know how the file was fetched, or what applies if it
//! could not be fetched.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::binding::Binding;
use super::binding_cache::BindingCache;
use super::canonical;
use super::dialect::{Dialect, LineForm};
use super::explain::JoinedAgents;
use super::lines::{self, TextLines, lossy, whole_lines};
use super::parsed_file::ParsedFile;
use super::records::{Note, NoteKind, RecordKind, RecordReader, RobotsRecord};
use super::repaired_binding::AgentNames;
use super::token::{TEXT_MAX, Token};
use super::usage_lines::{UsageLine, UsageLines};
use crate::crawler::{Crawler, ProductToken};
use crate::file_source::FileSource;

/// First bytes of ZIP, gzip and PNG files, which are not text even if some lines look like
/// records: a ZIP archive may contain an uncompressed robots.txt.
const NO_TEXT: [&[u8]; 3] = [b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG"];

/// Divisor for control characters: a text may have one in this many characters. Random
/// bytes have one in ten.
const CONTROL_SHARE: usize = 32;

/// Parsed robots.txt.
pub struct RobotsTxt {
    file: Arc<ParsedFile>,
    bindings: BindingCache,
    pub(super) usage: UsageLines,
    /// First line that was not parsed, if the file was too long.
    cut: Option<u32>,
}

impl RobotsTxt {
    /// Minimum number of bytes that a parser must read (RFC 9309, section 2.5: 500 KiB).
    pub const BYTES_MIN: usize = 512_000;

    /// Parses a file, up to [`RobotsTxt::BYTES_MIN`]. Never fails: an unreadable line
    /// becomes a note (RFC 9309, section 2.3.1.5).
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        Self::within_limit(body, Dialect::default(), FileSource::default())
    }

    /// Parses a file as [`RobotsTxt::parse`] does, in `dialect`.
    pub(super) fn within_limit(body: &[u8], dialect: Dialect, source: FileSource) -> Self {
        // Cut at a line end, because half a rule matches more paths than the whole.
        let kept = whole_lines(body, Self::BYTES_MIN);
        let mut robots = Self::read(Bytes::copy_from_slice(kept), dialect, source);
        if kept.len() < body.len() {
            robots.cut_here();
        }
        robots
    }

    /// Reports whether a body is text in UTF-8, UTF-16 or another encoding based on bytes. An
    /// empty body is text. A body without an agent line is not text if many of its
    /// characters are control characters.
    ///
    /// Treating a binary body as an empty file would allow everything, although the body
    /// may contain the rules of the site in an unknown form.
    #[must_use]
    pub fn is_text(body: &[u8]) -> bool {
        if NO_TEXT.iter().any(|start| body.starts_with(start)) {
            return false;
        }
        // No early exit, so that the compiler can vectorise the loop.
        let is_odd = |byte: u8| (byte < b' ') & !is_usual_control(byte);
        if !body.iter().fold(false, |found, &byte| found | is_odd(byte)) {
            return true;
        }
        let robots = Self::parse(body);
        // Some servers pad a file with NULs, so a file with an agent line counts as text.
        // Other lines are no proof: br stores a short file literally, except for the first
        // line. An agent line that needs a repair is no proof either.
        if robots.file.groups().next().is_some() {
            return true;
        }
        let text = robots.text();
        let is_control = |letter: &char| letter.is_ascii() && is_odd(*letter as u8);
        text.chars().filter(is_control).count() * CONTROL_SHARE <= text.chars().count()
    }

    /// Parses a complete file in `dialect`. Shares `body` instead of copying it.
    ///
    /// If the file is longer than 32 MiB, the rest is not parsed, and a note says so.
    #[must_use]
    pub fn in_dialect(body: impl Into<Bytes>, dialect: Dialect) -> Self {
        Self::read(body.into(), dialect, FileSource::default())
    }

    /// Parses a file as [`RobotsTxt::in_dialect`] does. With the origin, a Disallow with an
    /// absolute URL of the site also matches the path of that URL. With the charset, a
    /// Disallow that is not UTF-8 is also decoded by that charset.
    #[must_use]
    pub fn from_source(body: impl Into<Bytes>, dialect: Dialect, source: FileSource) -> Self {
        Self::read(body.into(), dialect, source)
    }

    fn read(body: Bytes, dialect: Dialect, source: FileSource) -> Self {
        let (text, is_cut) = decoded_text(body, dialect);
        let mut robots = Self::of_file(ParsedFile::new(text, dialect, source));
        if is_cut {
            robots.cut_here();
        }
        robots
    }

    fn of_file(file: ParsedFile) -> Self {
        Self {
            file: Arc::new(file),
            bindings: BindingCache::default(),
            usage: UsageLines::default(),
            cut: None,
        }
    }

    /// Parses a file by RFC 9309 without repairing any line.
    #[cfg(test)]
    pub(super) fn unrepaired(body: impl Into<Bytes>) -> Self {
        let dialect = Dialect::Rfc9309;
        let (text, _) = decoded_text(body.into(), dialect);
        Self::of_file(ParsedFile::by_traits(
            text,
            dialect,
            &super::dialect::UNREPAIRED,
        ))
    }

    /// Records that the file continued after the end of the text.
    pub fn cut_here(&mut self) {
        let lines = TextLines::of(&self.file.text).count();
        self.cut = Some(u32::try_from(lines + 1).unwrap_or(u32::MAX));
    }

    /// Returns the file as text, with invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        lossy(&self.file.text)
    }

    /// Returns every record of the file, in order.
    pub fn records(&self) -> impl Iterator<Item = RobotsRecord<'_>> {
        RecordReader::of(&self.file).flat_map(|line| line.record.into_iter().chain(line.rule))
    }

    /// Returns the URLs of all sitemaps, as written. A Sitemap line may be anywhere in the
    /// file and belongs to no group (sitemaps.org).
    pub fn sitemaps(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.values_of(RecordKind::Sitemap)
    }

    /// Returns the host name that the site prefers, from the first `Host` line (Yandex).
    /// Verdicts do not depend on it.
    #[must_use]
    pub fn host(&self) -> Option<Cow<'_, str>> {
        self.values_of(RecordKind::Host).next()
    }

    fn values_of(&self, kind: RecordKind) -> impl Iterator<Item = Cow<'_, str>> {
        let records = self.records().filter(move |record| record.kind == kind);
        let values = records.map(|record| record.value);
        values.filter(|value| !value.is_empty())
    }

    /// Returns the notes on unusual lines, in file order.
    pub fn notes(&self) -> impl Iterator<Item = Note> {
        let read = RecordReader::of(&self.file)
            .flat_map(|line| line.notes)
            .flatten();
        let cut = self.cut.map(|line| Note {
            line,
            kind: NoteKind::CutAtLimit,
        });
        read.chain(cut)
    }

    /// Returns the estimated memory, in bytes, that the file uses in addition to its text
    /// once it is bound to one or two crawlers. Lets callers limit the number of files that
    /// they keep.
    #[must_use]
    pub fn weight(&self) -> usize {
        const RULE: usize = 96;
        // Overhead for paths that are compared in two forms.
        const FORMS: usize = 256;
        size_of::<Self>()
            + FORMS
            + self.file.tokens.len() * (size_of::<Token>() + RULE)
            + canonical::bytes_if_rewritten(&self.file.text)
    }

    /// Returns the memory, in bytes, that the file uses in addition to its text, including
    /// cached bindings.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of::<ParsedFile>()
            + size_of_val(&*self.file.tokens)
            + self.bindings.memory()
            + self.usage.memory()
    }

    /// Returns the origin and charset of the file, as far as they were given to
    /// [`RobotsTxt::from_source`].
    #[must_use]
    pub fn source(&self) -> &FileSource {
        &self.file.source
    }

    /// Returns the dialect of the file.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.file.dialect
    }

    /// Returns the groups that bind `crawler` (RFC 9309, section 2.2.1): all groups for the
    /// first candidate that has any; otherwise all groups for `*`; otherwise none.
    ///
    /// The first call for a crawler takes about as long as parsing the file. The latest
    /// results are cached.
    #[must_use]
    pub fn binding(&self, crawler: &Crawler) -> Binding {
        // Very few files have an agent line with a complete User-Agent.
        let user_agent = crawler
            .shared_user_agent()
            .filter(|_| self.file.has_user_agents);
        self.bindings
            .binding(crawler.shared_candidates(), user_agent, || {
                self.bind(AgentNames {
                    candidates: crawler.candidates(),
                    user_agent: user_agent.map(|agent| &**agent),
                })
            })
    }

    /// Returns a binding for each candidate that has groups of its own. If no candidate has
    /// any, returns the binding of the groups for `*`.
    #[must_use]
    pub fn bindings(&self, crawler: &Crawler) -> Vec<Binding> {
        let mut bindings = self.own_groups(crawler.candidates());
        // Repaired lines bind in addition, and a line with a complete User-Agent names
        // no candidate.
        if bindings.is_empty() || self.file.may_bind_more(crawler.user_agent()) {
            bindings.push(self.binding(crawler));
        }
        bindings
    }

    /// Returns a binding for each unlisted name of the crawler ([`Crawler::unlisted`]) that
    /// has groups of its own. Names without groups are left out: the groups for `*` bind
    /// only crawlers that no group names.
    #[must_use]
    pub fn unlisted_bindings(&self, crawler: &Crawler) -> Vec<Binding> {
        self.own_groups(crawler.unlisted())
    }

    fn own_groups(&self, tokens: &[ProductToken]) -> Vec<Binding> {
        let own = |token: &ProductToken| {
            let alone: Arc<[_]> = [token.clone()].into();
            let names = AgentNames {
                candidates: &alone,
                user_agent: None,
            };
            self.bindings
                .binding(&alone, None, || self.bind(names))
                .own()
        };
        tokens.iter().filter_map(own).collect()
    }

    fn bind(&self, names: AgentNames<'_>) -> Binding {
        Binding::new(&self.file, names, |groups| self.bindings.rules(groups))
    }

    /// Returns the usage lines that bind `crawler`, in file order: those in the groups that
    /// [`RobotsTxt::binding`] finds for it, and those outside all groups.
    ///
    /// The first call scans the text; after that, a file without such lines costs nothing.
    /// Only the first 512 usage lines count, and only the first 64 KiB of them.
    #[must_use]
    pub fn usage_lines(&self, crawler: &Crawler) -> Vec<UsageLine<'_>> {
        self.usage.binding(&self.file, || {
            let binding = self.binding(crawler);
            Arc::clone(binding.shared_rules())
        })
    }

    /// Returns the agent lines that joined the group that contains `rule`, a line number.
    /// The author of the rule may not have intended it for all of these agents.
    #[must_use]
    pub fn joined(&self, rule: u32) -> Vec<JoinedAgents> {
        let group = self.records().find(|record| record.line == rule);
        let Some(group) = group.and_then(|record| record.group) else {
            return Vec::new();
        };
        let joins: Vec<u32> = self
            .notes()
            .filter(|note| note.kind == NoteKind::JoinsGroup)
            .map(|note| note.line)
            .collect();
        let mut joined = Vec::new();
        let mut above = None;
        for agent in self
            .records()
            .filter(|record| record.group == Some(group) && record.kind == RecordKind::UserAgent)
        {
            if let Some(above) = above.filter(|_| joins.binary_search(&agent.line).is_ok()) {
                joined.push(JoinedAgents {
                    line: agent.line,
                    above,
                });
            }
            above = Some(agent.line);
        }
        joined
    }

    /// Returns all lines, uncut, with their numbers. Invalid UTF-8 is replaced.
    pub fn numbered_lines(&self) -> impl Iterator<Item = (u32, Cow<'_, str>)> {
        TextLines::of(&self.file.text).map(|line| (line.number, lossy(line.bytes)))
    }

    /// Returns line `number`, counted from 1, as written but without byte order mark,
    /// comment and outer whitespace. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn line(&self, number: u32) -> Option<Cow<'_, str>> {
        let line = TextLines::of(&self.file.text).find(|line| line.number == number)?;
        Some(lossy(self.file.traits().lines.content(line.bytes)))
    }
}

/// Returns the text of a body in UTF-8, and whether it was cut because it was too long.
fn decoded_text(body: Bytes, dialect: Dialect) -> (Bytes, bool) {
    let mut text = match dialect.traits().lines {
        LineForm::Whole => lines::decoded(body, dialect.traits().utf16),
        LineForm::Cut => lines::without_mark(body),
    };
    let kept = whole_lines(&text, TEXT_MAX).len();
    let is_cut = kept < text.len();
    text.truncate(kept);
    (text, is_cut)
}

impl PartialEq for RobotsTxt {
    fn eq(&self, other: &Self) -> bool {
        let parts = |robots: &Self| (robots.file.dialect, robots.cut);
        (&self.file.text, &self.file.source, parts(self))
            == (&other.file.text, &other.file.source, parts(other))
    }
}

impl fmt::Debug for RobotsTxt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RobotsTxt")
            .field("dialect", &self.file.dialect)
            .field("bytes", &self.file.text.len())
            .finish_non_exhaustive()
    }
}

/// Reports whether a control character is common in text: tab, line ends, the escape of
/// ISO-2022-JP, and the end-of-file mark of DOS.
fn is_usual_control(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | b'\x1A' | b'\x1B')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf_16(text: &str) -> Vec<u8> {
        let units = "\u{FEFF}".encode_utf16().chain(text.encode_utf16());
        units.flat_map(u16::to_le_bytes).collect()
    }

    fn utf_32(text: &str) -> Vec<u8> {
        let letters = "\u{FEFF}".chars().chain(text.chars());
        letters
            .flat_map(|letter| u32::from(letter).to_le_bytes())
            .collect()
    }

    const RULES: &str = "User-agent: *\nDisallow: /\n";

    // Ours.
    #[test]
    fn text_may_have_any_encoding_and_some_control_characters() {
        let padded = [RULES.as_bytes(), &[0; 4096]].concat();
        let page = format!("<html>{}\u{1}</html>", "Not found. ".repeat(9));
        for body in [
            b"".as_slice(),
            RULES.as_bytes(),
            &utf_16(RULES),
            &padded,
            page.as_bytes(),
            b"\xCD\xE5\xF2\x0D\x0A\x1A",
            b"\x1B$B8+$D\x1B(B",
        ] {
            assert!(RobotsTxt::is_text(body), "{body:?}");
        }
    }

    // Ours: such a body may contain rules in an unknown form.
    #[test]
    fn a_body_with_control_characters_and_no_agent_line_is_not_text() {
        let zip = [b"PK\x03\x04\n".as_slice(), RULES.as_bytes()].concat();
        let big_endian: Vec<u8> = RULES.bytes().flat_map(|byte| [0, 0, 0, byte]).collect();
        for body in [
            zip.as_slice(),
            &utf_32(RULES),
            &big_endian,
            b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR",
            b"\x1F\x8B\x08",
            b"\0\0\0\0",
            // `RULES` compressed with br.
            b"\x0B\x0C\x80User-agent: *\nDisallow: /\n\x03",
            // The agent line needs a repair. Reading the file would refuse less.
            b"\xA0User-agent: x\n\0\n",
        ] {
            assert!(!RobotsTxt::is_text(body), "{body:?}");
        }
    }
}
