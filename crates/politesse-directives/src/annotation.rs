//! The field that tells a crawler which directives are in force.
//!
//! Its value is a dictionary (RFC 9651): the crawler's token, the directives
//! that bind it, and how far that can be relied upon. Listed means in force;
//! not listed and complete means absent; anything else is not known. How it is
//! written is known in `field`.

use jiff::Timestamp;
use sfv::{TokenRef, token_ref};

use super::quotations::Quotations;
use super::set::{Directive, DirectiveSet};
use crate::preferences::{Preference, Preferences};

/// How much of the response was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All of it that counts: a directive not listed is absent.
    Complete,
    /// Not all, and why: what is listed is in force, the rest is not known.
    Partial(Why),
    /// A failure of ours, so nothing can be relied upon.
    Unknown,
}

/// Why a response was not looked at whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The head of the page is longer than what is scanned of it.
    HeadLimit,
    /// The head of the page did not come in time.
    Time,
    /// The body has a content coding that is not decoded.
    Coding,
    /// The body has a character encoding that is not decoded.
    Charset,
    /// The body could not be decoded to its end.
    Corrupt,
    /// Decoding the body takes a larger window than is allowed.
    Window,
    /// The method has no response body (HEAD).
    Method,
    /// The body was not sent again (304).
    NotModified,
    /// The body is a part that does not hold the whole head (206).
    Range,
    /// There were more or longer fields than are read.
    FieldLimit,
    /// Two field lines seem to have been joined on the way.
    Joined,
    /// No memory was left to hold the page.
    Memory,
    /// The annotation is longer than a field may get.
    FieldCap,
}

/// The directives in force for one crawler, and how far they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The tokens the crawler goes by; none if it is not identified.
    pub(super) tokens: Vec<String>,
    pub(super) known: Known,
    /// What is said about uses of the content, each once.
    pub(super) preferences: Vec<Preference>,
    /// Since when it is known, if it is repeated.
    pub(super) from: Option<Timestamp>,
    pub(super) quotations: Quotations,
}

/// What one response said, for a crawler of certain tokens: kept, so that it
/// can be repeated where the response is not sent again (304).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub(super) said: Said,
    pub(super) state: State,
    /// When the response came.
    pub(super) at: Timestamp,
}

impl Known {
    /// How much of the response was looked at.
    pub fn state(&self) -> State {
        self.state
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let sets = [&self.said.own, &self.said.general, &self.said.outside];
        let directives: usize = sets.into_iter().map(DirectiveSet::len).sum();
        size_of::<Self>() + directives * 2 * size_of::<Directive>() + self.said.preferences.bytes()
    }
}

/// What has been said to a crawler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// All that binds it.
    pub(super) own: DirectiveSet,
    /// What everyone is told.
    pub(super) general: DirectiveSet,
    /// What stands behind the head, where it does not count.
    pub(super) outside: DirectiveSet,
    /// What is said about uses of the content.
    pub(super) preferences: Preferences,
}

impl Annotation {
    /// The directives in force as text (`max-snippet:20`), sorted.
    pub fn directives(&self) -> Vec<String> {
        let own = self.known.said.own.iter();
        own.map(Directive::to_string).collect()
    }

    /// What is said about uses of the content, sorted by name.
    pub fn preferences(&self) -> &[Preference] {
        &self.preferences
    }

    /// How much of the response was looked at.
    pub fn state(&self) -> State {
        self.known.state
    }

    /// Why the state is not complete, as the field has it; nothing if it is.
    pub fn why(&self) -> Option<&'static str> {
        self.known.state.why_word()
    }

    /// What the response said, as it was written.
    pub fn quotations(&self) -> &Quotations {
        &self.quotations
    }

    /// What can be repeated of it.
    pub fn known(&self) -> &Known {
        &self.known
    }
}

impl State {
    /// The word for why it is not complete; nothing if it is.
    pub fn why_word(self) -> Option<&'static str> {
        self.why().map(TokenRef::as_str)
    }

    /// The word for it in the field and in the batch output.
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

impl Why {
    /// All there are.
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
