//! Dialects of robots.txt, as data for one parser and one matcher.
//!
//! Authors of files and of crawlers have followed several specifications, of which RFC 9309
//! is the latest. Each point on which they disagree is a field of [`Traits`]. Other modules
//! do not know which dialect applies; they use only the trait that they need.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Specification that a robots.txt follows (`robots.dialect`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// RFC 9309, of 2022.
    #[default]
    #[serde(rename = "rfc9309")]
    Rfc9309,
    /// draft-koster-rep-00, of 2019, the draft that became the RFC.
    #[serde(rename = "draft-2019")]
    Draft2019,
    /// The Internet-Draft of 1996, which introduced `Allow`.
    #[serde(rename = "1996")]
    Draft1996,
    /// The consensus of 1994, which has only `Disallow`.
    #[serde(rename = "1994")]
    Consensus1994,
    /// Sean Conner's extended standard, version 2.0, of 1996.
    #[serde(rename = "conner-2.0")]
    Conner,
    /// RFC 9309 as implemented by google/robotstxt.
    #[serde(rename = "google")]
    Google,
}

/// Error: no dialect has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no dialect; rfc9309, draft-2019, 1996, 1994, conner-2.0 or google is wanted")]
pub struct UnknownDialect(String);

/// Points on which the specifications disagree, with the choice of one of them.
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
    /// The form of RFC 9309, section 2.2.
    Whole,
    /// The form of robots.cc: lines are cut after 16,663 bytes and at a NUL, only the
    /// beginning of a name is compared, and all ASCII whitespace is trimmed.
    Cut,
}

/// Condition for decoding a file that begins like UTF-16 as UTF-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Utf16 {
    /// If the decoded text has an agent line. Otherwise the file is read as bytes, so that a
    /// stray byte order mark does not hide all rules.
    WithAgent,
    /// Always.
    AsItBegins,
}

/// Condition for an agent line to name a product token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentMatch {
    /// The value equals the token, or begins with it and continues with a character that
    /// cannot be part of a name.
    Token,
    /// The longest prefix of the value of letters, `-` and `_` equals the token.
    Letters,
    /// The value is a substring of the token.
    Part,
}

/// Line that ends a record, which RFC 9309 calls a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordEnd {
    /// An agent line after a rule.
    EndAtAgent,
    /// An agent line after a rule, or a blank line.
    EndAtBlank,
}

/// Choice between several groups that name the same crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupChoice {
    Merged,
    First,
}

/// Choice of the deciding rule between several that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// The longest rule; if equally long, an allow before a disallow.
    Longest,
    /// The first rule in the file.
    FirstInFile,
    /// A rule that names the exact URL, an allow before a disallow; otherwise the first rule
    /// in the file.
    Explicit,
}

/// Treatment of `Allow` lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowLines {
    Heeded,
    Ignored,
}

/// Syntax of a path in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternSyntax {
    /// A pattern with the wildcard `*`, and `$` at the end.
    Pattern,
    /// A literal prefix.
    Beginning,
    /// A shell glob with `*`, `?`, `[set]` and `\`; without these, one exact path.
    Glob,
}

/// Normalisation of escapes before a rule and a path are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Both in the canonical form of RFC 9309, section 2.2.2.
    Canonical,
    /// Bytes above ASCII escaped in the rule, nothing decoded, the path unchanged.
    RuleSide,
    /// Both decoded, except `%2F`.
    Decoded,
    /// Both decoded, except `%2F`. An escaped byte in the rule is never a wildcard.
    DecodedInGlob,
}

/// Meaning of a 401 or 403 for robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnauthorizedMeaning {
    Allows,
    Refuses,
}

/// Whether rules apply to /robots.txt itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RobotsTxtItself {
    Exempt,
    Ruled,
}

/// Whether a Disallow matches reserved bytes in a query both escaped and unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryForms {
    EitherForm,
    AsWritten,
}

/// Whether a Disallow is compared in further forms that its author may have meant: without
/// invisible marks at its end, and with the escapes of its reserved bytes decoded, as
/// servers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleForms {
    Further,
    AsWritten,
}

/// Whether damaged lines are repaired. A repair can only refuse more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DamagedLines {
    Repaired,
    AsWritten,
}

/// Meaning of an Allow for `/x/index.html`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexPages {
    AsWritten,
    /// The rule also allows the folder `/x/` itself.
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

/// RFC 9309 without repairs: the baseline that repairs may only make stricter.
#[cfg(test)]
pub(super) const UNREPAIRED: Traits = Traits {
    damage: DamagedLines::AsWritten,
    ..RFC9309
};

impl Dialect {
    /// All dialects, the default first.
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

    /// Reports whether a 401 or 403 for robots.txt refuses the whole origin, as the
    /// specifications before 2019 recommend.
    #[must_use]
    pub fn refuses_unauthorized(self) -> bool {
        self.traits().unauthorized == UnauthorizedMeaning::Refuses
    }

    /// Reports whether /robots.txt itself is always allowed, regardless of the rules (RFC
    /// 9309, section 2.2.2).
    #[must_use]
    pub fn exempts_robots_txt(self) -> bool {
        self.traits().robots_txt == RobotsTxtItself::Exempt
    }

    // One table for each specification, so that other modules read a field and never
    // match on the dialect.
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
            // Names of these two dialects in public test cases.
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
