//! Annotation: the directives in force for one crawler, and how complete they
//! are.
//!
//! A listed directive is in force. If the annotation is complete, a directive that is
//! not listed is absent; otherwise it is unknown. Does not know how an annotation is
//! written (`annotation_field`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sfv::{Key, TokenRef, token_ref};

use super::denials::{self, PurposeDenial};
use super::directive_set::{Directive, DirectiveSet};
use super::preferences::{Preference, Preferences};
use super::purpose::PurposeSet;
use super::quotations::Quotations;

/// Directives in force for one crawler, and how complete they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Tokens of the crawler as keys of the field, `None` for a token that is not a
    /// valid key. Empty if the crawler is not identified.
    pub(super) tokens: Vec<Option<Key>>,
    /// Directives, and how complete they are.
    pub(super) known: SavedDirectives,
    /// Statements about uses of the content, each once.
    pub(super) preferences: Vec<Preference>,
    /// Time at which the directives were sent, if a 304 confirmed them.
    pub(super) from: Option<Timestamp>,
    /// Statements of the response as written.
    pub(super) quotations: Quotations,
}

/// Directives of one response for a crawler with certain tokens. Stored, so that they
/// can be repeated when a 304 does not send the response again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedDirectives {
    pub(super) directives: CrawlerDirectives,
    /// How much of the response was read.
    pub(super) state: AnnotationState,
    /// Time at which the response arrived.
    pub(super) at: Timestamp,
}

/// State of an annotation: how much of the response was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnnotationState {
    /// Everything that counts was read: a directive not listed is absent.
    Complete,
    /// Only a part was read: what is listed is in force, the rest is unknown.
    Partial(PartialReason),
    /// An internal failure: nothing can be relied on.
    Unknown,
}

/// Reason why only part of a response was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartialReason {
    /// The head of the page is longer than the scan limit.
    HeadLimit,
    /// The head of the page did not arrive in time.
    Time,
    /// The body has a content coding that is not decoded.
    Coding,
    /// The body has a character encoding that is not decoded.
    Charset,
    /// The body could not be decoded to its end.
    Corrupt,
    /// Decoding the body needs a larger window than is allowed.
    Window,
    /// The method has no response body (HEAD).
    Method,
    /// The body was not sent again (304).
    NotModified,
    /// The body is a part of the page without the whole head (206).
    Range,
    /// More or longer fields were sent than are read.
    FieldLimit,
    /// Two field lines seem to have been joined in transit.
    Joined,
    /// No memory was left to buffer the page.
    Memory,
    /// The annotation is longer than a field may be.
    FieldCap,
}

/// Directives for one crawler, grouped by which crawlers they bind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CrawlerDirectives {
    /// Directives that bind the crawler.
    pub(super) own: DirectiveSet,
    /// Directives that bind every crawler.
    pub(super) general: DirectiveSet,
    /// Directives after the head, where they do not count.
    pub(super) outside: DirectiveSet,
    /// Statements about uses of the content, except those of robots.txt.
    pub(super) preferences: Preferences,
}

impl CrawlerDirectives {
    /// Adds the directives of another response. Its preferences replace the present
    /// ones.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.own.add_all(&other.own);
        self.general.add_all(&other.general);
        self.outside.add_all(&other.outside);
        self.preferences = other.preferences.clone();
    }
}

impl SavedDirectives {
    /// Returns how much of the response was read.
    pub fn state(&self) -> AnnotationState {
        self.state
    }

    /// Returns approximately how many bytes of memory the directives take.
    pub fn bytes(&self) -> usize {
        let CrawlerDirectives {
            own,
            general,
            outside,
            preferences,
        } = &self.directives;
        let count = own.len() + general.len() + outside.len();
        // A node of a B-tree is about half full.
        size_of::<Self>() + count * 2 * size_of::<Directive>() + preferences.bytes()
    }
}

impl Annotation {
    /// Returns the directives in force as text (`max-snippet:20`), sorted.
    pub fn directives(&self) -> Vec<String> {
        let own = self.known.directives.own.iter();
        own.map(Directive::to_string).collect()
    }

    /// Returns the statements about uses of the content, sorted by name.
    pub fn preferences(&self) -> &[Preference] {
        &self.preferences
    }

    /// Returns the denials of `purposes` by the preferences and the directives in
    /// force for the crawler.
    pub fn denials(&self, purposes: PurposeSet) -> Vec<PurposeDenial> {
        let own = &self.known.directives.own;
        let is_agent = |agent: &str| self.tokens.iter().flatten().any(|it| it.as_str() == agent);
        let mut denials = denials::by_preferences(&self.preferences, purposes);
        denials.extend(denials::by_directives(own.iter(), purposes, is_agent));
        denials
    }

    /// Returns how much of the response was read.
    pub fn state(&self) -> AnnotationState {
        self.known.state
    }

    /// Returns the reason why the state is not complete, as the word used in the field;
    /// `None` if it is complete.
    pub fn why(&self) -> Option<&'static str> {
        self.known.state.why_word()
    }

    /// Returns the statements of the response as they were written.
    pub fn quotations(&self) -> &Quotations {
        &self.quotations
    }

    /// Returns the part that can be repeated for a 304.
    pub fn into_known(self) -> SavedDirectives {
        self.known
    }
}

impl AnnotationState {
    /// Returns the word for the reason why the state is not complete; `None` if it is
    /// complete.
    pub fn why_word(self) -> Option<&'static str> {
        self.why().map(TokenRef::as_str)
    }

    /// Returns the word for the state in the field and in the batch output.
    pub fn as_str(self) -> &'static str {
        self.name().as_str()
    }

    pub(super) fn name(self) -> &'static TokenRef {
        match self {
            Self::Complete => const { token_ref("complete") },
            Self::Partial(_) => const { token_ref("partial") },
            Self::Unknown => const { token_ref("unknown") },
        }
    }

    pub(super) fn why(self) -> Option<&'static TokenRef> {
        match self {
            Self::Complete => None,
            Self::Partial(why) => Some(why.name()),
            Self::Unknown => Some(const { token_ref("internal") }),
        }
    }
}

impl PartialReason {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::HeadLimit,
        Self::Time,
        Self::Coding,
        Self::Charset,
        Self::Corrupt,
        Self::Window,
        Self::Method,
        Self::NotModified,
        Self::Range,
        Self::FieldLimit,
        Self::Joined,
        Self::Memory,
        Self::FieldCap,
    ];

    pub(super) fn name(self) -> &'static TokenRef {
        match self {
            Self::HeadLimit => const { token_ref("head-limit") },
            Self::Time => const { token_ref("time") },
            Self::Coding => const { token_ref("coding") },
            Self::Charset => const { token_ref("charset") },
            Self::Corrupt => const { token_ref("corrupt") },
            Self::Window => const { token_ref("window") },
            Self::Method => const { token_ref("method") },
            Self::NotModified => const { token_ref("not-modified") },
            Self::Range => const { token_ref("range") },
            Self::FieldLimit => const { token_ref("field-limit") },
            Self::Joined => const { token_ref("joined") },
            Self::Memory => const { token_ref("memory") },
            Self::FieldCap => const { token_ref("field-cap") },
        }
    }
}
