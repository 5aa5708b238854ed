//! Denials: the purposes that statements of a site deny, with the statements.
//!
//! One table lists each statement that denies a purpose, with its source. A statement
//! without a row, such as one that allows, denies nothing; nor does an RSL licence,
//! whose terms are in a document that is not fetched here. Does not know how statements
//! are read or add up.
//!
//! ```
//! use politesse_directives::denials::{self, DenialRule};
//! use politesse_directives::preferences::Preferences;
//! use politesse_directives::{CrawlPurpose, PurposeSet};
//!
//! let mut preferences = Preferences::default();
//! preferences.add_tdm_reservation("1");
//! let purposes = PurposeSet::of(&[CrawlPurpose::TrainAi, CrawlPurpose::Search]);
//! let denials = denials::by_preferences(&preferences.settle(), purposes);
//! assert_eq!(denials.len(), 1);
//! assert_eq!(denials[0].purpose, CrawlPurpose::TrainAi);
//! assert_eq!(denials[0].statement.to_string(), "tdm-reservation=1");
//! assert!(!DenialRule::Every.is_met(purposes, &denials));
//! assert!(DenialRule::Any.is_met(purposes, &denials));
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::directive_set::Directive;
use super::preferences::{Carrier, Preference, PreferenceValue};
use super::purpose::{CrawlPurpose, PurposeSet};

/// Statement that denies purposes: a row of [`DENYING_STATEMENTS`].
#[derive(Debug, PartialEq, Eq)]
pub struct DenyingStatement {
    /// Kind of the statement.
    pub kind: StatementKind,
    /// The statement as people write it (`train-ai=n`, `noindex`).
    pub text: &'static str,
    /// Name in the annotation (`train-ai`).
    pub name: &'static str,
    /// Value in the annotation (`n`); empty for a directive.
    pub value: &'static str,
    /// Product tokens, in lower case, of the crawlers to which the row applies; empty
    /// if it applies to all.
    pub agents: &'static [&'static str],
    /// Purposes that the statement denies.
    pub denies: PurposeSet,
    /// Document that gives the statement this meaning.
    pub source: &'static str,
}

/// Kind of a statement that denies purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// A robots directive of a response (`noindex`).
    Directive,
    /// A preference about uses of the content (`train-ai=n`).
    Preference,
}

/// Denial of one purpose by one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurposeDenial {
    /// Purpose that is denied.
    pub purpose: CrawlPurpose,
    /// Statement that denies it.
    pub statement: &'static DenyingStatement,
    /// Letters for the places of the statement, as in the annotation (`src`): `x m`.
    pub sources: String,
    /// Line of robots.txt, counted from 1, with the statement.
    pub line: Option<u32>,
}

/// Number of a crawler's purposes that must be denied for the crawler to be denied
/// (`preferences.any`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DenialRule {
    /// Every declared purpose.
    #[default]
    Every,
    /// Any declared purpose.
    Any,
}

/// Makes the rows of the table. One row:
/// `Kind "name" = "value" for [agents] denies [purposes] by "source";`
macro_rules! statements {
    ($($kind:ident $name:literal $(= $value:literal)? $(for [$($agent:literal),+])?
        denies [$($purpose:ident),+] by $source:literal;)+) => {
        &[$(DenyingStatement {
            kind: StatementKind::$kind,
            text: concat!($name $(, "=", $value)?),
            name: $name,
            value: concat!($($value)?),
            agents: &[$($($agent),+)?],
            denies: PurposeSet::of(&[$(CrawlPurpose::$purpose),+]),
            source: $source,
        },)+]
    };
}

/// Every statement that denies a purpose.
pub static DENYING_STATEMENTS: &[DenyingStatement] = statements! {
    // Both vocabularies have `search`, with the same meaning.
    Preference "search" = "n" denies [Search]
        by "draft-ietf-aipref-vocab-08; contentsignals.org";
    Preference "train-ai" = "n" denies [TrainAi] by "draft-ietf-aipref-vocab-08";
    Preference "ai-train" = "n" denies [TrainAi] by "contentsignals.org";
    Preference "ai-input" = "n" denies [AiInput] by "contentsignals.org";
    // The content is not stored, and not used again after the answer at hand.
    Preference "use" = "immediate" denies [TrainAi, Search, Archive, Images]
        by "Content Signals: use (Cloudflare, July 2026)";
    // The content is indexed, quoted and linked to, but not reproduced.
    Preference "use" = "reference" denies [TrainAi, Archive]
        by "Content Signals: use (Cloudflare, July 2026)";
    // Mining is any automated analysis that generates information, except search and
    // archives. Whether a model that answers with the content mines it is disputed; in
    // doubt it does (docs/decisions/007-doubt-refuses.md).
    Preference "tdm-reservation" = "1" denies [TrainAi, AiInput]
        by "TDMRep (May 2024); Directive (EU) 2019/790, articles 2(2) and 4(3)";
    // `none` is read as `noindex, nofollow`.
    Directive "noindex" denies [Search] by "draft-illyes-repext-03";
    Directive "noarchive" denies [Archive] by "Google, Bing and others";
    Directive "noarchive" for ["bingbot", "msnbot"] denies [TrainAi, AiInput]
        by "Bing Webmaster Blog (September 2023)";
    Directive "noarchive" for ["amazonbot"] denies [TrainAi]
        by "developer.amazon.com/amazonbot (June 2026)";
    Directive "noai" denies [TrainAi, AiInput] by "DeviantArt (November 2022)";
    Directive "noimageai" denies [TrainAi, AiInput, Images]
        by "DeviantArt (November 2022)";
    Directive "noml" denies [TrainAi, AiInput] by "Mojeek (2023)";
    Directive "disallowaitraining" denies [TrainAi] by "draft-canel-robots-ai-control-00";
    Directive "noimageindex" denies [Images] by "Google";
};

/// Returns the text of every statement that denies a purpose, each once.
pub fn statement_texts() -> Vec<&'static str> {
    let mut texts: Vec<_> = DENYING_STATEMENTS.iter().map(|row| row.text).collect();
    // Rows with the same text are adjacent.
    texts.dedup();
    texts
}

/// Statement used for a TDM file that could not be read and may reserve the page
/// (`preferences.unknown`).
static UNKNOWN_RESERVATION: DenyingStatement = DenyingStatement {
    kind: StatementKind::Preference,
    name: TDM_RESERVATION,
    text: "tdm-reservation=unknown",
    value: "unknown",
    agents: &[],
    denies: PurposeSet::ALL,
    source: "docs/preferences.md",
};

const TDM_RESERVATION: &str = "tdm-reservation";

/// Returns the purposes among `purposes` that a TDM file could deny.
pub fn reservable(purposes: PurposeSet) -> PurposeSet {
    let rows = || rows(StatementKind::Preference, TDM_RESERVATION);
    let is_denied = |purpose: &CrawlPurpose| rows().any(|row| row.denies.contains(*purpose));
    purposes.iter().filter(is_denied).collect()
}

/// Returns the denials of `purposes` by a TDM file with unknown content.
pub fn by_unknown_reservation(purposes: PurposeSet) -> Vec<PurposeDenial> {
    let sources = Carrier::TdmFile.letter().as_str();
    let denials = UNKNOWN_RESERVATION.denials(reservable(purposes), sources, None);
    denials.collect()
}

/// Returns the denials of `purposes` by preferences.
pub fn by_preferences(preferences: &[Preference], purposes: PurposeSet) -> Vec<PurposeDenial> {
    let mut denials = Vec::new();
    for preference in preferences {
        let value = match &preference.value {
            PreferenceValue::Token(word) => word.as_str(),
            PreferenceValue::Integer(1) => "1",
            PreferenceValue::Integer(_) | PreferenceValue::Text(_) => continue,
        };
        let rows = rows(StatementKind::Preference, preference.name.as_str());
        for row in rows.filter(|row| row.value == value) {
            let letters = preference.carriers.iter().map(|it| it.letter().as_str());
            let sources = letters.collect::<Vec<_>>().join(" ");
            denials.extend(row.denials(purposes, &sources, preference.line));
        }
    }
    denials
}

/// Returns the denials of `purposes` by directives. `is_agent` reports whether the
/// crawler has the given product token, in lower case.
pub(super) fn by_directives<'a>(
    directives: impl Iterator<Item = &'a Directive>,
    purposes: PurposeSet,
    is_agent: impl Fn(&str) -> bool,
) -> Vec<PurposeDenial> {
    let mut denials = Vec::new();
    for directive in directives {
        let rows = rows(StatementKind::Directive, directive.name());
        for row in rows.filter(|row| row.is_for(&is_agent)) {
            let letters = directive.sources().map(|it| it.letter());
            let sources = letters.collect::<Vec<_>>().join(" ");
            denials.extend(row.denials(purposes, &sources, None));
        }
    }
    denials
}

/// Statements of a recorded annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationDenials {
    /// Denials of the purposes.
    pub denials: Vec<PurposeDenial>,
    /// Word for why the response was not read in full (`why` of the annotation), if it was
    /// not.
    pub unread_cause: Option<String>,
}

/// Reads the denials of `purposes` from a recorded annotation field, which contains all
/// preferences. `is_agent` reports whether the crawler has the given product token, in
/// lower case. An invalid value denies nothing and counts as not read in full.
pub fn by_annotation(
    value: &str,
    purposes: PurposeSet,
    is_agent: impl Fn(&str) -> bool,
) -> AnnotationDenials {
    let unreadable = || AnnotationDenials {
        denials: Vec::new(),
        unread_cause: Some("internal".to_owned()),
    };
    let Ok(members) = Parser::new(value).parse::<Dictionary>() else {
        return unreadable();
    };
    // The member for the crawler comes first: its own key, or `*`.
    let Some(ListEntry::InnerList(own)) = members.values().next() else {
        return unreadable();
    };
    let mut denials = Vec::new();
    for item in &own.items {
        let name = item.bare_item.as_token().map_or("", |name| name.as_str());
        let stated = match item.params.get("value") {
            Some(BareItem::Token(word)) => word.as_str(),
            Some(BareItem::Integer(number)) if i64::from(*number) == 1 => "1",
            _ => "",
        };
        let sources = item.params.get("src").and_then(text_of).unwrap_or_default();
        let rows = DENYING_STATEMENTS.iter();
        for row in rows.filter(|row| row.name == name && row.value == stated) {
            if row.is_for(&is_agent) {
                denials.extend(row.denials(purposes, sources, None));
            }
        }
    }
    AnnotationDenials {
        denials,
        unread_cause: own.params.get("why").and_then(text_of).map(str::to_owned),
    }
}

/// Returns the text of a parameter that is a token or a string.
fn text_of(value: &BareItem) -> Option<&str> {
    let string = value.as_string().map(|text| text.as_str());
    string.or_else(|| value.as_token().map(|word| word.as_str()))
}

fn rows(kind: StatementKind, name: &str) -> impl Iterator<Item = &'static DenyingStatement> {
    let rows = DENYING_STATEMENTS.iter();
    rows.filter(move |row| row.kind == kind && row.name == name)
}

impl DenyingStatement {
    /// Reports whether the row applies to a crawler; `is_agent` recognises its product
    /// tokens.
    fn is_for(&self, is_agent: impl Fn(&str) -> bool) -> bool {
        self.agents.is_empty() || self.agents.iter().any(|agent| is_agent(agent))
    }

    fn denials(
        &'static self,
        purposes: PurposeSet,
        sources: &str,
        line: Option<u32>,
    ) -> impl Iterator<Item = PurposeDenial> {
        let denied = purposes.iter().filter(|it| self.denies.contains(*it));
        denied.map(move |purpose| PurposeDenial {
            purpose,
            statement: self,
            sources: sources.to_owned(),
            line,
        })
    }
}

impl PurposeDenial {
    /// Reports whether the origin's TDM file makes the denying statement.
    pub fn is_by_tdm_file(&self) -> bool {
        self.sources.contains(Carrier::TdmFile.letter().as_str())
    }
}

impl DenialRule {
    /// Reports whether a crawler with these purposes is denied. A crawler without a
    /// purpose never is.
    pub fn is_met(self, purposes: PurposeSet, denials: &[PurposeDenial]) -> bool {
        let is_denied = |purpose| denials.iter().any(|denial| denial.purpose == purpose);
        match self {
            Self::Every => !purposes.is_empty() && purposes.iter().all(is_denied),
            Self::Any => purposes.iter().any(is_denied),
        }
    }
}

/// Writes the purpose and the statement that denies it:
/// `train-ai (train-ai=n, line 3)`.
impl fmt::Display for PurposeDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.purpose, self.statement)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if self.is_by_tdm_file() {
            f.write_str(", tdmrep.json")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for DenyingStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}
