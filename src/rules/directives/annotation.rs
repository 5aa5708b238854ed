//! The field that tells a crawler which directives are in force.
//!
//! Its value is a dictionary (RFC 9651) of one member: the crawler's token, the
//! directives that bind it, and how far that can be relied upon. Listed means
//! in force; not listed and complete means absent; anything else is not known.

use std::collections::BTreeSet;

use sfv::{
    Date, DictSerializer, InnerListSerializer, Integer, KeyRef, RefBareItem, StringRef, TokenRef,
    key_ref, token_ref,
};

use super::vocabulary::Value;
use super::{Directive, DirectiveSet};

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

/// Where a directive was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The field `Robots-Tag`.
    RobotsTag,
    /// The field `X-Robots-Tag`.
    XRobotsTag,
    /// A `<meta>` element.
    Meta,
}

/// The directives in force for one crawler, and how far they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    pub(super) token: Option<String>,
    pub(super) directives: DirectiveSet,
    pub(super) state: State,
}

/// Whether the field says where each directive was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provenance {
    Shown,
    Dropped,
}

impl Annotation {
    /// No field value is longer, in octets.
    pub const VALUE_MAX: usize = 4096;

    /// The value of the annotation field, in ASCII.
    ///
    /// Its key is the crawler's first product token in lower case; `*` if the
    /// crawler is not identified, or its token cannot be a key (`_bot`).
    pub fn header_value(&self) -> String {
        let whole = self.serialized(Provenance::Shown);
        if whole.len() <= Self::VALUE_MAX {
            return whole;
        }
        let short = self.serialized(Provenance::Dropped);
        if short.len() <= Self::VALUE_MAX {
            return short;
        }
        // Only the token can be so long: the vocabulary is not.
        let general = Self {
            token: None,
            directives: self.directives.clone(),
            state: State::Partial(Why::FieldCap),
        };
        general.serialized(Provenance::Dropped)
    }

    /// The directives in force as text (`max-snippet:20`), sorted.
    pub fn directives(&self) -> Vec<String> {
        self.directives.iter().map(Directive::to_string).collect()
    }

    /// How much of the response was looked at.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the state is not complete, as the field has it; nothing if it is.
    pub fn why(&self) -> Option<&'static str> {
        self.state.why().map(TokenRef::as_str)
    }

    fn serialized(&self, provenance: Provenance) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        let token = token.to_ascii_lowercase();
        let key = KeyRef::from_str(&token).unwrap_or(const { key_ref("*") });
        let mut field = DictSerializer::new();
        let mut list = field.inner_list(key);
        for directive in self.directives.iter() {
            write(&mut list, directive, provenance);
        }
        let state = list
            .finish()
            .parameter(const { key_ref("state") }, self.state.name());
        if let Some(why) = self.state.why() {
            let _: &mut String = state.parameter(const { key_ref("why") }, why).finish();
        }
        field.finish().unwrap_or_default()
    }
}

fn write(list: &mut InnerListSerializer<'_>, directive: &Directive, provenance: Provenance) {
    let mut item = list.bare_item(directive.restriction.name);
    if let Some(value) = item_value(directive.restriction.value) {
        item = item.parameter(const { key_ref("value") }, value);
    }
    if provenance == Provenance::Shown {
        let letters = letters(&directive.sources);
        let key = const { key_ref("src") };
        if let Ok(token) = TokenRef::from_str(&letters) {
            item.parameter(key, token);
        } else if let Ok(string) = StringRef::from_str(&letters) {
            item.parameter(key, string);
        }
    }
}

/// The letters of the sources: `x`, or `x m`.
fn letters(sources: &BTreeSet<Source>) -> String {
    let letters: Vec<&str> = sources.iter().map(|source| source.letter()).collect();
    letters.join(" ")
}

fn item_value(value: Value) -> Option<RefBareItem<'static>> {
    match value {
        Value::Stated => None,
        Value::Limit(limit) => {
            let limit = Integer::try_from(limit).unwrap_or(Integer::MAX);
            Some(RefBareItem::Integer(limit))
        }
        Value::Preview(size) => Some(RefBareItem::Token(size.name())),
        Value::Until(instant) => {
            let seconds = Integer::try_from(instant.as_second());
            let date = Date::from_unix_seconds(seconds.unwrap_or(Integer::MAX));
            Some(RefBareItem::Date(date))
        }
    }
}

impl Source {
    fn letter(self) -> &'static str {
        match self {
            Self::RobotsTag => "r",
            Self::XRobotsTag => "x",
            Self::Meta => "m",
        }
    }
}

impl State {
    /// The word for it in the field and in the batch output.
    pub fn as_str(self) -> &'static str {
        self.name().as_str()
    }

    fn name(self) -> &'static TokenRef {
        match self {
            Self::Complete => const { token_ref("complete") },
            Self::Partial(_) => const { token_ref("partial") },
            Self::Unknown => const { token_ref("unknown") },
        }
    }

    fn why(self) -> Option<&'static TokenRef> {
        match self {
            Self::Complete => None,
            Self::Partial(why) => Some(why.name()),
            Self::Unknown => Some(const { token_ref("internal") }),
        }
    }
}

impl Why {
    fn name(self) -> &'static TokenRef {
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{Gathering, Meta, Reading};
    use super::*;

    fn annotation(tokens: &[&str], fields: &[&str]) -> Annotation {
        let mut gathering = Gathering::new(Reading {
            tokens,
            now: Timestamp::UNIX_EPOCH,
            field_limit: 32 * 1024,
        });
        for value in fields {
            gathering.field("X-Robots-Tag", value.as_bytes());
        }
        gathering.meta(&Meta {
            name: "robots".into(),
            content: "noindex".into(),
        });
        gathering.annotation()
    }

    // The grammar of the field is ours, on top of RFC 9651.
    #[test]
    fn the_value_is_a_dictionary_of_the_crawler() {
        let fields = ["max-snippet:20, noindex, max-image-preview:none"];
        let value = annotation(&["ExampleBot"], &fields).header_value();
        assert_eq!(
            value,
            "examplebot=(max-image-preview;value=none;src=x max-snippet;value=20;src=x \
             noindex;src=\"x m\");state=complete"
        );
    }

    #[test]
    fn a_date_is_a_date() {
        let fields = ["unavailable_after: 2100-01-01"];
        let value = annotation(&[], &fields).header_value();
        assert!(value.contains("unavailable_after;value=@4102444800;src=x"));
    }

    #[test]
    fn a_token_that_cannot_be_a_key_gives_way() {
        for token in ["_bot", "", "ünderbot", "-x"] {
            let value = annotation(&[token], &[]).header_value();
            assert_eq!(value, "*=(noindex;src=m);state=complete", "{token}");
        }
    }

    #[test]
    fn a_token_beyond_the_cap_gives_way_and_says_so() {
        let token = "a".repeat(Annotation::VALUE_MAX);
        let value = annotation(&[&token], &[]).header_value();
        assert_eq!(value, "*=(noindex);state=partial;why=field-cap");
    }

    #[test]
    fn sources_give_way_before_the_token() {
        let token = "a".repeat(Annotation::VALUE_MAX - 30);
        let value = annotation(&[&token], &[]).header_value();
        assert!(value.ends_with("=(noindex);state=complete"));
    }
}
