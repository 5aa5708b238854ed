//! A robots.txt: who it speaks to, and which of its rules counts for a path.
//!
//! RFC 9309, sections 2.1 and 2.2, and the texts before it ([`Dialect`]).
//! [`RobotsTxt::binding`] finds the groups that bind a crawler (section 2.2.1),
//! [`Binding::judge`] the rule among theirs that counts (section 2.2.2). Every
//! rule keeps its line, so that a verdict can name it.
//!
//! ```
//! use politesse_robots::crawler::Crawler;
//! use politesse_robots::{Judgement, RobotsTxt};
//!
//! let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /private\n");
//! let binding = robots.binding(&Crawler::parse("ExampleBot/1.0"));
//! let Judgement::Rule(rule) = binding.judge("/private/page") else { panic!() };
//! assert_eq!((rule.line(), &*rule.text()), (2, "Disallow: /private"));
//! assert!(binding.judge("/public").allows());
//! ```
//!
//! One file is a [`RobotsTxt`], the files of many origins are [`RulesByOrigin`],
//! and a path pattern of your own is a [`Pattern`]. [`Binding::judge`] wants the
//! path with its query as they are sent; [`path_of`] finds them in a URL. What
//! cannot be decided in time ([`Judgement::Undecided`]) is not allowed.
//! `examples/robots.rs` shows all of it.
//!
//! Not known here: how the file was got, and what follows when it was not.

mod binding;
mod bound;
mod builder;
mod canonical;
mod dialect;
mod draft;
mod end_marks;
mod explain;
mod folded;
mod grams;
mod index;
mod lines;
mod pace_records;
mod path;
mod pattern;
mod rank;
mod records;
mod rules;
mod rules_by_origin;
mod served;
mod shape;
#[cfg(test)]
mod tests;
mod token;
mod usage_lines;
mod wild;
mod wildcard;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use self::binding::{Binding, Judgement, Rule};
use self::bound::Bound;
use self::dialect::LineForm;
pub use self::dialect::{Dialect, UnknownDialect};
pub use self::explain::{Joined, Outranked};
pub use self::lines::whole_lines;
pub use self::pace_records::{PaceRecord, PaceScope};
pub use self::path::path_of;
pub use self::pattern::{CanonicalPath, Pattern};
use self::records::Reader;
pub use self::records::{Note, NoteKind, Record, RecordKind, seconds};
pub use self::rules_by_origin::RulesByOrigin;
pub use self::served::ServedPattern;
use self::token::{File, TEXT_MAX, Token};
use self::usage_lines::UsageLines;
pub use self::usage_lines::{UsageKind, UsageLine, UsageScope};
use crate::pace::{RequestRate, VisitTime};

/// A robots.txt as read.
pub struct RobotsTxt {
    file: Arc<File>,
    bound: Bound,
    usage: UsageLines,
    /// The first line that was not read, if the file was too long.
    cut: Option<u32>,
}

/// What a rule says of the paths it matches. The order is that of precedence:
/// of two rules as specific as each other, allow counts (RFC 9309, section
/// 2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// They may be fetched.
    Allow,
    /// They may not.
    Disallow,
}

impl RobotsTxt {
    /// How much of a file has to be read at least, in bytes (RFC 9309, section
    /// 2.5: 500 KiB).
    pub const BYTES_MIN: usize = 512_000;

    /// Reads a file, up to [`RobotsTxt::BYTES_MIN`]. Never fails: what cannot be
    /// read becomes a note (RFC 9309, section 2.3.1.5).
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        Self::within_limit(body, Dialect::default())
    }

    /// The same, by the text that `dialect` names.
    fn within_limit(body: &[u8], dialect: Dialect) -> Self {
        let kept = whole_lines(body, Self::BYTES_MIN);
        let mut robots = Self::in_dialect(Bytes::copy_from_slice(kept), dialect);
        if kept.len() < body.len() {
            robots.cut_here();
        }
        robots
    }

    /// Reads a file by the text that `dialect` names, all of it, and shares
    /// `body` instead of copying it.
    ///
    /// Where it is longer than 32 MiB, what is beyond is not read, and noted.
    #[must_use]
    pub fn in_dialect(body: impl Into<Bytes>, dialect: Dialect) -> Self {
        let mut text = match dialect.traits().lines {
            LineForm::Whole => lines::decoded(body.into(), dialect.traits().utf16),
            LineForm::Cut => lines::without_mark(body.into()),
        };
        let kept = whole_lines(&text, TEXT_MAX).len();
        let is_cut = kept < text.len();
        text.truncate(kept);
        let mut robots = Self {
            file: Arc::new(File::new(text, dialect)),
            bound: Bound::default(),
            usage: UsageLines::default(),
            cut: None,
        };
        if is_cut {
            robots.cut_here();
        }
        robots
    }

    /// Notes that the file went on where the text ends.
    pub fn cut_here(&mut self) {
        let lines = lines::Lines::of(&self.file.text).count();
        self.cut = Some(u32::try_from(lines + 1).unwrap_or(u32::MAX));
    }

    /// The file as text, invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        lines::lossy(&self.file.text)
    }

    /// Every record of the file, in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        Reader::of(self).filter_map(|line| line.record)
    }

    /// What was odd, in file order.
    pub fn notes(&self) -> impl Iterator<Item = Note> {
        let read = Reader::of(self).flat_map(|line| line.notes).flatten();
        let cut = self.cut.map(|line| Note {
            line,
            kind: NoteKind::CutAtLimit,
        });
        read.chain(cut)
    }

    /// About what it takes beside its bytes, in bytes, once it is in use for
    /// a crawler or two: for who bounds how many files are kept.
    #[must_use]
    pub fn weight(&self) -> usize {
        const RULE: usize = 96;
        // What is kept of each file for paths that are tried in two forms.
        const FORMS: usize = 256;
        size_of::<Self>()
            + FORMS
            + self.file.tokens.len() * (size_of::<Token>() + RULE)
            + canonical::bytes_if_rewritten(&self.file.text)
    }

    /// The memory that it takes beside its bytes, in bytes, with the
    /// bindings that it keeps.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of::<File>()
            + size_of_val(&*self.file.tokens)
            + self.bound.memory()
            + self.usage.memory()
    }
}

impl PartialEq for RobotsTxt {
    fn eq(&self, other: &Self) -> bool {
        (&self.file.text, self.file.dialect, self.cut)
            == (&other.file.text, other.file.dialect, other.cut)
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

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Disallow => "disallow",
        })
    }
}
