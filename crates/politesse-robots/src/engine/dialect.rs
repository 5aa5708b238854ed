//! The dialects of robots.txt, as data to one reader and one matcher.
//!
//! RFC 9309 is one of several texts that files have been written and crawlers
//! built by. What they disagree on is a row of [`Traits`] each; no other module
//! asks which dialect it is, only for the trait it needs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// By which text a robots.txt is read (`robots.dialect`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// RFC 9309, of 2022.
    #[default]
    #[serde(rename = "rfc9309")]
    Rfc9309,
    /// draft-koster-rep-00, of 2019, from which the RFC grew.
    #[serde(rename = "draft-2019")]
    Draft2019,
    /// The Internet-Draft of 1996, which brought `Allow`.
    #[serde(rename = "1996")]
    Draft1996,
    /// The consensus of 1994, which has `Disallow` alone.
    #[serde(rename = "1994")]
    Consensus1994,
    /// Sean Conner's extended standard, version 2.0, of 1996.
    #[serde(rename = "conner-2.0")]
    Conner,
    /// RFC 9309 as google/robotstxt answers it.
    #[serde(rename = "google")]
    Google,
}

/// A name that is no dialect's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no dialect; rfc9309, draft-2019, 1996, 1994, conner-2.0 or google is wanted")]
pub struct UnknownDialect(String);

/// The points on which the texts disagree, and what one of them says.
#[derive(Debug)]
pub(super) struct Traits {
    pub(super) lines: LineForm,
    pub(super) utf16: Utf16,
    pub(super) binds: AgentMatch,
    pub(super) records: RecordEnd,
    pub(super) own: GroupChoice,
    pub(super) everyone: GroupChoice,
    pub(super) order: Precedence,
    pub(super) allow: AllowLines,
    pub(super) syntax: PatternSyntax,
    pub(super) escapes: Escapes,
    pub(super) unauthorized: UnauthorizedMeaning,
    pub(super) robots_txt: RobotsTxtItself,
    pub(super) query: QueryForms,
    pub(super) forms: RuleForms,
    pub(super) damage: DamagedLines,
    pub(super) index_pages: IndexPages,
}

/// Form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineForm {
    /// As RFC 9309, section 2.2, has it.
    Whole,
    /// As robots.cc reads it: cut after 16,663 bytes and at a NUL, names by
    /// their beginning, all ASCII white space trimmed.
    Cut,
}

/// When a file that begins like UTF-16 is read as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Utf16 {
    /// If there is an agent line in it then. Otherwise it is read as bytes: a
    /// stray byte order mark must not take every rule out of a file.
    WithAgent,
    /// Always.
    AsItBegins,
}

/// When an agent line means a product token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentMatch {
    /// The value equals the token, or goes on with what cannot belong to a name.
    Token,
    /// The letters, `-` and `_` of the value up to the first other byte equal the token.
    Letters,
    /// The value is part of the token.
    Part,
}

/// Line that ends a record in the sense of 1994, which RFC 9309 calls a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordEnd {
    /// An agent line after a rule.
    EndAtAgent,
    /// An agent line after a rule, or a blank line.
    EndAtBlank,
}

/// Which of several groups that fit are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupChoice {
    Merged,
    First,
}

/// Which of several rules that match counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// The longest, an allow before a disallow.
    Longest,
    /// The first in the file.
    FirstInFile,
    /// One that names the URL outright, an allow before a disallow; else the
    /// first in the file.
    Explicit,
}

/// Whether there are `Allow` lines at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowLines {
    Heeded,
    Ignored,
}

/// Syntax of a path in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternSyntax {
    /// `*`, and `$` at the end.
    Pattern,
    /// Nothing: it is a beginning.
    Beginning,
    /// `*`, `?`, `[set]` and `\`; without them, one whole path.
    Glob,
}

/// Rule by which escapes of the two sides are made comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Both in the canonical form of RFC 9309, section 2.2.2.
    Canonical,
    /// The rule's bytes above ASCII escaped, nothing decoded, the path as it
    /// is.
    RuleSide,
    /// Both decoded, but for `%2F`.
    Decoded,
    /// Both decoded, but for `%2F`; a byte that was an escape in the rule is no
    /// wildcard.
    DecodedInGlob,
}

/// Meaning of a 401 or 403 for robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnauthorizedMeaning {
    Allows,
    Refuses,
}

/// Whether rules speak of /robots.txt itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RobotsTxtItself {
    Exempt,
    Ruled,
}

/// Whether a Disallow matches a query in either form, its reserved bytes
/// escaped or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryForms {
    EitherForm,
    AsWritten,
}

/// Whether a Disallow is compared in further forms, which its author may have
/// meant: without invisible marks at its end, and, as servers read paths, with
/// the escapes of its reserved bytes decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleForms {
    Further,
    AsWritten,
}

/// Whether lines that a person has damaged are read as they were meant, where
/// that only refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DamagedLines {
    Repaired,
    AsWritten,
}

/// Further meaning of an Allow for `/x/index.html`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexPages {
    AsWritten,
    /// The folder `/x/` itself may be fetched, too.
    AllowFolder,
}

const RFC9309: Traits = Traits {
    lines: LineForm::Whole,
    utf16: Utf16::WithAgent,
    binds: AgentMatch::Token,
    records: RecordEnd::EndAtAgent,
    own: GroupChoice::Merged,
    everyone: GroupChoice::Merged,
    order: Precedence::Longest,
    allow: AllowLines::Heeded,
    syntax: PatternSyntax::Pattern,
    escapes: Escapes::Canonical,
    unauthorized: UnauthorizedMeaning::Allows,
    robots_txt: RobotsTxtItself::Exempt,
    query: QueryForms::EitherForm,
    forms: RuleForms::Further,
    damage: DamagedLines::Repaired,
    index_pages: IndexPages::AsWritten,
};

const DRAFT_2019: Traits = Traits {
    utf16: Utf16::AsItBegins,
    everyone: GroupChoice::First,
    forms: RuleForms::AsWritten,
    damage: DamagedLines::AsWritten,
    ..RFC9309
};

const DRAFT_1996: Traits = Traits {
    utf16: Utf16::AsItBegins,
    records: RecordEnd::EndAtBlank,
    own: GroupChoice::First,
    everyone: GroupChoice::First,
    order: Precedence::FirstInFile,
    syntax: PatternSyntax::Beginning,
    escapes: Escapes::Decoded,
    unauthorized: UnauthorizedMeaning::Refuses,
    query: QueryForms::AsWritten,
    forms: RuleForms::AsWritten,
    damage: DamagedLines::AsWritten,
    ..RFC9309
};

const CONSENSUS_1994: Traits = Traits {
    binds: AgentMatch::Part,
    allow: AllowLines::Ignored,
    ..DRAFT_1996
};

const CONNER: Traits = Traits {
    binds: AgentMatch::Part,
    order: Precedence::Explicit,
    syntax: PatternSyntax::Glob,
    escapes: Escapes::DecodedInGlob,
    ..DRAFT_1996
};

const GOOGLE: Traits = Traits {
    lines: LineForm::Cut,
    binds: AgentMatch::Letters,
    escapes: Escapes::RuleSide,
    robots_txt: RobotsTxtItself::Ruled,
    query: QueryForms::AsWritten,
    forms: RuleForms::AsWritten,
    damage: DamagedLines::AsWritten,
    index_pages: IndexPages::AllowFolder,
    ..RFC9309
};

/// RFC 9309 without repairs: what these may only add to.
#[cfg(test)]
pub(super) const UNREPAIRED: Traits = Traits {
    damage: DamagedLines::AsWritten,
    ..RFC9309
};

impl Dialect {
    /// All of them, the default first.
    pub const ALL: [Self; 6] = [
        Self::Rfc9309,
        Self::Draft2019,
        Self::Draft1996,
        Self::Consensus1994,
        Self::Conner,
        Self::Google,
    ];

    /// Returns the name of the dialect in configuration and commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rfc9309 => "rfc9309",
            Self::Draft2019 => "draft-2019",
            Self::Draft1996 => "1996",
            Self::Consensus1994 => "1994",
            Self::Conner => "conner-2.0",
            Self::Google => "google",
        }
    }

    /// Reports whether a 401 or 403 for robots.txt closes the whole origin, as
    /// the texts before 2019 recommend.
    #[must_use]
    pub fn refuses_unauthorized(self) -> bool {
        self.traits().unauthorized == UnauthorizedMeaning::Refuses
    }

    /// Reports whether /robots.txt itself is allowed whatever the rules say
    /// (RFC 9309, section 2.2.2).
    #[must_use]
    pub fn exempts_robots_txt(self) -> bool {
        self.traits().robots_txt == RobotsTxtItself::Exempt
    }

    // One table for each text, so that a question to the engine is a field of it
    // and never a match on the dialect.
    pub(super) fn traits(self) -> &'static Traits {
        match self {
            Self::Rfc9309 => &RFC9309,
            Self::Draft2019 => &DRAFT_2019,
            Self::Draft1996 => &DRAFT_1996,
            Self::Consensus1994 => &CONSENSUS_1994,
            Self::Conner => &CONNER,
            Self::Google => &GOOGLE,
        }
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        match name {
            // What the test cases that others share call these two.
            "draft-00" => Ok(Self::Draft2019),
            "v2.0" => Ok(Self::Conner),
            _ => Self::ALL
                .into_iter()
                .find(|dialect| dialect.as_str() == name)
                .ok_or_else(|| UnknownDialect(name.to_owned())),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
