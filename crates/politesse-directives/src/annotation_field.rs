//! Field value of an annotation.
//!
//! A dictionary (RFC 9651) with a member for each of the crawler's tokens, or `*` if
//! the crawler is not identified. The member's value is an inner list of the
//! directives. Does not know how directives are found.

use sfv::{
    Date, DictSerializer, InnerListSerializer, Integer, KeyRef, RefBareItem, StringRef, TokenRef,
    key_ref,
};

use super::annotation::{Annotation, AnnotationState, PartialReason};
use super::directive_set::{Directive, DirectiveSet};
use super::preferences::{Preference, PreferenceValue};
use super::vocabulary::DirectiveValue;

/// Options for writing an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldFormat {
    /// Tokens of the crawler to use as keys.
    pub keys: TokenKeys,
    /// Whether the directives for every crawler have their own key, `*`.
    pub general: GeneralKey,
    /// Whether preferences are listed.
    pub preferences: PreferenceListing,
    /// Longest value, in bytes.
    pub bytes_max: usize,
    /// Sequence number of the decision in the record. Written where `*` stands for a
    /// crawler whose token cannot be a key.
    pub audit: Option<u64>,
}

/// Tokens of a crawler to use as keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKeys {
    /// The first token.
    First,
    /// All tokens: the operator configured the crawler under each of them.
    All,
}

/// Presence of the key `*` next to the crawler's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneralKey {
    /// Always present.
    Beside,
    /// Present only if the crawler cannot have a key of its own.
    Needed,
}

/// Presence of preferences in the list of directives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreferenceListing {
    /// Listed.
    Yes,
    /// Left out.
    No,
}

impl Default for FieldFormat {
    /// Returns the format with the first token only and without preferences.
    fn default() -> Self {
        Self {
            keys: TokenKeys::First,
            general: GeneralKey::Needed,
            preferences: PreferenceListing::No,
            bytes_max: Annotation::VALUE_MAX,
            audit: None,
        }
    }
}

impl Annotation {
    /// Longest field value, in bytes. The proxy's audit record does not use this limit:
    /// the vocabulary and the number of licences bound it.
    pub const VALUE_MAX: usize = 4096;

    /// Returns the value of the annotation field, in ASCII.
    ///
    /// Its keys are the crawler's tokens in lower case, each with all directives that
    /// bind the crawler. The key is `*` if the crawler is not identified or none of its
    /// tokens is a valid key (`_bot`). If the value exceeds the limit, the least
    /// important parts are omitted first; a value that lacks directives is `partial`.
    pub fn header_value(&self, format: &FieldFormat) -> String {
        let written = |omission| {
            let writer = FieldWriter {
                annotation: self,
                format,
                omission,
            };
            writer.value()
        };
        let omissions = [Omission::Nothing, Omission::Sources, Omission::Duplicates];
        let mut values = omissions.into_iter().map(written);
        let short = values.find(|value| value.len() <= format.bytes_max);
        short.unwrap_or_else(|| written(Omission::Rest))
    }
}

/// Parts omitted from a value that would be too long.
// The order of the variants is the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Omission {
    Nothing,
    /// Sources of the directives.
    Sources,
    /// Also all values of a name except the first.
    Duplicates,
    /// Everything except the directives under one key.
    Rest,
}

/// Writes one value.
struct FieldWriter<'a> {
    annotation: &'a Annotation,
    format: &'a FieldFormat,
    omission: Omission,
}

/// Entry of an inner list.
struct FieldEntry<'a> {
    name: &'a TokenRef,
    value: Option<RefBareItem<'a>>,
    sources: Vec<&'static str>,
}

/// Size of a value with few directives, in bytes.
const VALUE_BYTES: usize = 128;

/// Key for crawlers that are not identified.
const EVERYONE: &KeyRef = key_ref("*");

/// Key for directives that do not count.
const OUTSIDE: &KeyRef = key_ref("outside");

impl FieldWriter<'_> {
    fn value(&self) -> String {
        let directives = &self.annotation.known.directives;
        let keys = self.keys();
        // The usual size up front, so that the buffer does not grow step by step.
        let mut text = String::with_capacity(VALUE_BYTES);
        let mut field = DictSerializer::with_buffer(&mut text);
        for key in &keys {
            self.write_member(field.inner_list(key), self.own_entries(), None);
        }
        if keys.is_empty() {
            let is_identified = !self.annotation.tokens.is_empty();
            let audit = self.format.audit.filter(|_| is_identified);
            self.write_member(field.inner_list(EVERYONE), self.own_entries(), audit);
        } else if self.format.general == GeneralKey::Beside && !self.omits_rest() {
            let entries = entries(&directives.general);
            self.write_member(field.inner_list(EVERYONE), entries, None);
        }
        // A crawler named `outside` must not find directives under its name that are
        // not in force.
        let is_outside_free = keys.iter().all(|key| key.as_str() != OUTSIDE.as_str());
        if is_outside_free && !self.omits_rest() && !directives.outside.is_empty() {
            let mut list = field.inner_list(OUTSIDE);
            self.write_entries(&mut list, entries(&directives.outside));
        }
        // An error only means that there was no member, and then the text is empty.
        let _ = field.finish();
        text
    }

    fn omits_rest(&self) -> bool {
        self.omission == Omission::Rest
    }

    /// Returns the tokens that can be keys, each once.
    fn keys(&self) -> Vec<&KeyRef> {
        let tokens = &self.annotation.tokens;
        let count = match self.format.keys {
            TokenKeys::First => 1,
            TokenKeys::All => tokens.len(),
        };
        let mut keys: Vec<&KeyRef> = Vec::with_capacity(count);
        for key in tokens.iter().take(count).flatten() {
            if !keys.contains(&key.as_ref()) {
                keys.push(key);
            }
        }
        if self.omits_rest() {
            keys.truncate(1);
            // The directives need the room more than the name of the crawler does.
            keys.retain(|key| key.as_str().len() <= Annotation::VALUE_MAX / 4);
        }
        keys
    }

    /// Returns the entries for everything that binds the crawler, sorted by name.
    fn own_entries(&self) -> Vec<FieldEntry<'_>> {
        let mut entries = entries(&self.annotation.known.directives.own);
        if self.format.preferences == PreferenceListing::Yes && !self.omits_rest() {
            let preferences = self.annotation.preferences.iter();
            entries.extend(preferences.map(FieldEntry::of_preference));
        }
        entries.sort_by_key(|entry| entry.name.as_str());
        // Only licences share a name; one is enough to show that terms exist.
        if Omission::Duplicates <= self.omission {
            entries.dedup_by_key(|entry| entry.name);
        }
        entries
    }

    fn write_member(
        &self,
        mut list: InnerListSerializer<'_>,
        entries: Vec<FieldEntry<'_>>,
        audit: Option<u64>,
    ) {
        self.write_entries(&mut list, entries);
        let mut state = self.annotation.known.state;
        if self.omits_rest() && state == AnnotationState::Complete {
            state = AnnotationState::Partial(PartialReason::FieldCap);
        }
        let mut member = list
            .finish()
            .parameter(const { key_ref("state") }, state.name());
        if let Some(why) = state.why() {
            member = member.parameter(const { key_ref("why") }, why);
        }
        if let Some(from) = self.annotation.from {
            let from = date(from.as_second());
            member = member.parameter(const { key_ref("from") }, from);
        }
        if let Some(seq) = audit {
            let digits = seq.to_string();
            if let Ok(text) = StringRef::from_str(&digits) {
                member = member.parameter(const { key_ref("audit") }, text);
            }
        }
        let _: &mut String = member.finish();
    }

    fn write_entries(&self, list: &mut InnerListSerializer<'_>, entries: Vec<FieldEntry<'_>>) {
        for entry in entries {
            let mut item = list.bare_item(entry.name);
            if let Some(value) = entry.value {
                item = item.parameter(const { key_ref("value") }, value);
            }
            if Omission::Sources <= self.omission {
                continue;
            }
            let letters = entry.sources.join(" ");
            let key = const { key_ref("src") };
            // A token cannot contain a space, so several letters are written as a
            // string.
            if let Ok(token) = TokenRef::from_str(&letters) {
                item.parameter(key, token);
            } else if let Ok(string) = StringRef::from_str(&letters) {
                item.parameter(key, string);
            }
        }
    }
}

fn entries(directives: &DirectiveSet) -> Vec<FieldEntry<'_>> {
    directives.iter().map(FieldEntry::of).collect()
}

impl<'a> FieldEntry<'a> {
    fn of(directive: &'a Directive) -> Self {
        Self {
            name: directive.restriction.name,
            value: directive_value(directive.restriction.value),
            sources: directive.sources().map(|source| source.letter()).collect(),
        }
    }

    fn of_preference(preference: &'a Preference) -> Self {
        let carriers = preference.carriers.iter();
        Self {
            name: preference.name,
            value: preference_value(&preference.value),
            sources: carriers.map(|carrier| carrier.letter().as_str()).collect(),
        }
    }
}

fn directive_value(value: DirectiveValue) -> Option<RefBareItem<'static>> {
    match value {
        DirectiveValue::Stated => None,
        DirectiveValue::Limit(limit) => {
            let limit = Integer::try_from(limit).unwrap_or(Integer::MAX);
            Some(RefBareItem::Integer(limit))
        }
        DirectiveValue::Preview(size) => Some(RefBareItem::Token(size.name())),
        DirectiveValue::Until(instant) => Some(RefBareItem::Date(date(instant.as_second()))),
    }
}

fn preference_value(value: &PreferenceValue) -> Option<RefBareItem<'_>> {
    match value {
        PreferenceValue::Token(token) => Some(RefBareItem::Token(token)),
        PreferenceValue::Integer(number) => Some(RefBareItem::Integer((*number).into())),
        PreferenceValue::Text(text) => StringRef::from_str(text).ok().map(RefBareItem::String),
    }
}

fn date(seconds: i64) -> Date {
    let seconds = Integer::try_from(seconds);
    Date::from_unix_seconds(seconds.unwrap_or(Integer::MAX))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::vocabulary::lookup;
    use super::super::{AnnotationContext, DirectiveCollector, DirectiveLimits, Meta};
    use super::*;

    fn annotation(tokens: &[&str], fields: &[&str]) -> Annotation {
        let mut collector = DirectiveCollector::new(AnnotationContext {
            tokens,
            now: Timestamp::UNIX_EPOCH,
            robots: None,
            limits: DirectiveLimits::default(),
        });
        for value in fields {
            collector.add_field("X-Robots-Tag", value.as_bytes());
        }
        collector.add_meta(&Meta {
            name: "robots".into(),
            content: "noindex".into(),
        });
        collector.annotation()
    }

    // The grammar of the field is ours, on top of RFC 9651.
    #[test]
    fn the_value_is_a_dictionary_keyed_by_the_crawler() {
        let fields = ["max-snippet:20, noindex, max-image-preview:none"];
        let value = annotation(&["ExampleBot"], &fields).header_value(&FieldFormat::default());
        assert_eq!(
            value,
            "examplebot=(max-image-preview;value=none;src=x max-snippet;value=20;src=x \
             noindex;src=\"x m\");state=complete"
        );
    }

    #[test]
    fn a_date_is_written_as_a_structured_date() {
        let fields = ["unavailable_after: 2100-01-01"];
        let value = annotation(&[], &fields).header_value(&FieldFormat::default());
        assert!(value.contains("unavailable_after;value=@4102444800;src=x"));
    }

    #[test]
    fn a_token_that_cannot_be_a_key_is_replaced_by_the_wildcard() {
        for token in ["_bot", "", "ünderbot", "-x"] {
            let value = annotation(&[token], &[]).header_value(&FieldFormat::default());
            assert_eq!(value, "*=(noindex;src=m);state=complete", "{token}");
        }
    }

    #[test]
    fn a_token_beyond_the_limit_makes_the_value_partial() {
        let token = "a".repeat(Annotation::VALUE_MAX);
        let value = annotation(&[&token], &[]).header_value(&FieldFormat::default());
        assert_eq!(value, "*=(noindex);state=partial;why=field-cap");
    }

    #[test]
    fn sources_are_omitted_before_the_token() {
        let token = "a".repeat(Annotation::VALUE_MAX - 30);
        let value = annotation(&[&token], &[]).header_value(&FieldFormat::default());
        assert!(value.ends_with("=(noindex);state=complete"));
    }

    // Ours: a crawler with several configured tokens has several keys.
    #[test]
    fn a_crawler_with_several_tokens_has_a_key_for_each() {
        let form = FieldFormat {
            keys: TokenKeys::All,
            ..FieldFormat::default()
        };
        let tokens = ["MSNBot", "_x", "BingBot", "msnbot"];
        let value = annotation(&tokens, &["bingbot: noai"]).header_value(&form);
        let said = "(noai;src=x noindex;src=m);state=complete";
        assert_eq!(value, format!("msnbot={said}, bingbot={said}"));
    }

    // Ours: `directives.emit_general`.
    #[test]
    fn general_directives_may_have_their_own_key() {
        let form = FieldFormat {
            general: GeneralKey::Beside,
            ..FieldFormat::default()
        };
        let value = annotation(&["A"], &["a: noai"]).header_value(&form);
        assert_eq!(
            value,
            "a=(noai;src=x noindex;src=m);state=complete, *=(noindex;src=m);state=complete"
        );
        let value = annotation(&[], &[]).header_value(&form);
        assert_eq!(value, "*=(noindex;src=m);state=complete");
    }

    // Ours: a token that cannot be a key.
    #[test]
    fn the_decision_is_cited_if_the_token_cannot_be_a_key() {
        let form = FieldFormat {
            audit: Some(17),
            ..FieldFormat::default()
        };
        let value = annotation(&["_a"], &["_a: noai"]).header_value(&form);
        assert_eq!(
            value,
            "*=(noai;src=x noindex;src=m);state=complete;audit=\"17\""
        );
        let value = annotation(&["a"], &[]).header_value(&form);
        assert_eq!(value, "a=(noindex;src=m);state=complete");
        let value = annotation(&[], &[]).header_value(&form);
        assert_eq!(value, "*=(noindex;src=m);state=complete");
    }

    #[test]
    fn a_crawler_named_outside_gets_no_directives_from_outside_the_head() {
        let mut annotation = annotation(&["Outside"], &[]);
        annotation.known.directives.outside = annotation.known.directives.own.clone();
        let value = annotation.header_value(&FieldFormat::default());
        assert_eq!(value, "outside=(noindex;src=m);state=complete");
    }

    // Ours: legacy scripts may use `grep -w`.
    #[test]
    fn no_state_or_reason_word_is_a_directive() {
        for why in PartialReason::ALL {
            let mut annotation = annotation(&[], &[]);
            annotation.known.directives = Default::default();
            annotation.known.state = AnnotationState::Partial(why);
            let value = annotation.header_value(&FieldFormat::default());
            let mut words = value.split(|letter: char| !letter.is_ascii_alphanumeric());
            assert!(words.all(|word| lookup(word).is_none()), "{value}");
        }
    }
}
