//! How an annotation is written as a field value.
//!
//! A dictionary (RFC 9651): a member for each of the crawler's tokens, or `*`
//! for one that is not identified, with the directives as an inner list.

use sfv::{
    Date, DictSerializer, InnerListSerializer, Integer, Key, KeyRef, RefBareItem, StringRef,
    TokenRef, key_ref,
};

use super::annotation::{Annotation, State, Why};
use super::set::{Directive, DirectiveSet};
use super::vocabulary::Value;
use crate::preferences::{self, Preference};

/// What of an annotation is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form<'a> {
    /// Which of the crawler's tokens are keys.
    pub keys: Keys,
    /// Whether what everyone is told has a key of its own, `*`.
    pub general: General,
    /// Whether preferences are listed.
    pub preferences: Listed,
    /// How long the value may get, in bytes.
    pub bytes_max: usize,
    /// The record of the decision, named where `*` stands for a crawler whose
    /// token cannot be a key.
    pub audit: Option<&'a str>,
}

/// Which of a crawler's tokens are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// The first.
    First,
    /// All: the operator said that it goes by each.
    All,
}

/// Whether `*` stands beside the crawler's own key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum General {
    /// It does.
    Beside,
    /// Only where no key of its own can.
    Needed,
}

/// Whether something is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// How much gives way to the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    Nothing,
    /// Where each directive was said.
    Sources,
    /// All values of a name but the first, too.
    Duplicates,
    /// All but the directives under one key, which say so.
    Rest,
}

/// The key of those who are not identified.
const EVERYONE: &KeyRef = key_ref("*");

/// The key of what does not count.
const OUTSIDE: &KeyRef = key_ref("outside");

impl Default for Form<'_> {
    /// The first token alone, without preferences.
    fn default() -> Self {
        Self {
            keys: Keys::First,
            general: General::Needed,
            preferences: Listed::No,
            bytes_max: Annotation::VALUE_MAX,
            audit: None,
        }
    }
}

impl Annotation {
    /// No field value is longer, in bytes. (What is kept for the record has
    /// bounds of its own: the vocabulary, and the number of licences.)
    pub const VALUE_MAX: usize = 4096;

    /// The value of the annotation field, in ASCII.
    ///
    /// Its keys are the crawler's tokens in lower case, each with all that
    /// binds the crawler; `*` if the crawler is not identified, or no token of
    /// it can be a key (`_bot`). Over the cap, what says least gives way first;
    /// what is lost of the directives themselves makes it `partial`.
    pub fn header_value(&self, form: &Form<'_>) -> String {
        let cuts = [Cut::Nothing, Cut::Sources, Cut::Duplicates];
        let mut values = cuts.into_iter().map(|cut| self.written(form, cut));
        let short = values.find(|value| value.len() <= form.bytes_max);
        short.unwrap_or_else(|| self.written(form, Cut::Rest))
    }

    fn written(&self, form: &Form<'_>, cut: Cut) -> String {
        let mut keys = self.keys(form.keys);
        if cut == Cut::Rest {
            keys.truncate(1);
            keys.retain(|key| key.as_str().len() <= Self::VALUE_MAX / 4);
        }
        let is_nameless = keys.is_empty();
        let mut field = DictSerializer::new();
        for key in &keys {
            self.write_member(&mut field, key, (form, cut, None));
        }
        let beside = form.general == General::Beside && cut < Cut::Rest;
        if is_nameless {
            let audit = form.audit.filter(|_| !self.tokens.is_empty());
            self.write_member(&mut field, EVERYONE, (form, cut, audit));
        } else if beside {
            self.write_set(&mut field, (EVERYONE, &self.known.said.general), cut);
        }
        // A crawler of that name must not find what is not in force.
        if cut < Cut::Rest && keys.iter().all(|key| key.as_str() != OUTSIDE.as_str()) {
            self.write_outside(&mut field, cut);
        }
        field.finish().unwrap_or_default()
    }

    /// The tokens that can be keys, each once.
    fn keys(&self, which: Keys) -> Vec<Key> {
        let count = match which {
            Keys::First => 1,
            Keys::All => self.tokens.len(),
        };
        let mut keys: Vec<Key> = Vec::with_capacity(count);
        for token in self.tokens.iter().take(count) {
            let Ok(key) = Key::from_string(token.to_ascii_lowercase()) else {
                continue;
            };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Writes all that binds the crawler under one of its keys.
    fn write_member(
        &self,
        field: &mut DictSerializer<String>,
        key: &KeyRef,
        (form, cut, audit): (&Form<'_>, Cut, Option<&str>),
    ) {
        let listed = form.preferences == Listed::Yes && cut < Cut::Rest;
        let preferences = if listed { &self.preferences[..] } else { &[] };
        let mut items: Vec<Item<'_>> = self.known.said.own.iter().map(Item::of).collect();
        items.extend(preferences.iter().map(Item::of_preference));
        items.sort_by_key(|item| item.name.as_str());
        if Cut::Duplicates <= cut {
            items.dedup_by_key(|item| item.name);
        }
        let mut list = field.inner_list(key);
        for item in items {
            item.write(&mut list, cut);
        }
        self.write_state(list, (cut, audit));
    }

    fn write_set(
        &self,
        field: &mut DictSerializer<String>,
        (key, set): (&KeyRef, &DirectiveSet),
        cut: Cut,
    ) {
        let mut list = field.inner_list(key);
        for directive in set.iter() {
            Item::of(directive).write(&mut list, cut);
        }
        self.write_state(list, (cut, None));
    }

    fn write_outside(&self, field: &mut DictSerializer<String>, cut: Cut) {
        let outside = &self.known.said.outside;
        if outside.is_empty() {
            return;
        }
        let mut list = field.inner_list(OUTSIDE);
        for directive in outside.iter() {
            Item::of(directive).write(&mut list, cut);
        }
    }

    fn write_state(&self, list: InnerListSerializer<'_>, (cut, audit): (Cut, Option<&str>)) {
        let state = match (self.known.state, cut) {
            (State::Complete, Cut::Rest) => State::Partial(Why::FieldCap),
            (state, _) => state,
        };
        let mut member = list
            .finish()
            .parameter(const { key_ref("state") }, state.name());
        if let Some(why) = state.why() {
            member = member.parameter(const { key_ref("why") }, why);
        }
        if let Some(from) = self.from {
            let from = date(from.as_second());
            member = member.parameter(const { key_ref("from") }, from);
        }
        if let Some(audit) = audit.and_then(|audit| StringRef::from_str(audit).ok()) {
            member = member.parameter(const { key_ref("audit") }, audit);
        }
        let _: &mut String = member.finish();
    }
}

/// An entry of the inner list.
struct Item<'a> {
    name: &'a TokenRef,
    value: Option<RefBareItem<'a>>,
    sources: Vec<&'static str>,
}

impl<'a> Item<'a> {
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

    fn write(self, list: &mut InnerListSerializer<'_>, cut: Cut) {
        let mut item = list.bare_item(self.name);
        if let Some(value) = self.value {
            item = item.parameter(const { key_ref("value") }, value);
        }
        if cut < Cut::Sources {
            let letters = self.sources.join(" ");
            let key = const { key_ref("src") };
            if let Ok(token) = TokenRef::from_str(&letters) {
                item.parameter(key, token);
            } else if let Ok(string) = StringRef::from_str(&letters) {
                item.parameter(key, string);
            }
        }
    }
}

fn directive_value(value: Value) -> Option<RefBareItem<'static>> {
    match value {
        Value::Stated => None,
        Value::Limit(limit) => {
            let limit = Integer::try_from(limit).unwrap_or(Integer::MAX);
            Some(RefBareItem::Integer(limit))
        }
        Value::Preview(size) => Some(RefBareItem::Token(size.name())),
        Value::Until(instant) => Some(RefBareItem::Date(date(instant.as_second()))),
    }
}

fn preference_value(value: &preferences::Value) -> Option<RefBareItem<'_>> {
    match value {
        preferences::Value::Token(token) => Some(RefBareItem::Token(token)),
        preferences::Value::Integer(number) => Some(RefBareItem::Integer((*number).into())),
        preferences::Value::Text(text) => StringRef::from_str(text).ok().map(RefBareItem::String),
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
    use super::super::{Gathering, Limits, Meta, Reading};
    use super::*;

    fn annotation(tokens: &[&str], fields: &[&str]) -> Annotation {
        let mut gathering = Gathering::new(Reading {
            tokens,
            now: Timestamp::UNIX_EPOCH,
            robots: None,
            limits: Limits::default(),
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
        let value = annotation(&["ExampleBot"], &fields).header_value(&Form::default());
        assert_eq!(
            value,
            "examplebot=(max-image-preview;value=none;src=x max-snippet;value=20;src=x \
             noindex;src=\"x m\");state=complete"
        );
    }

    #[test]
    fn a_date_is_a_date() {
        let fields = ["unavailable_after: 2100-01-01"];
        let value = annotation(&[], &fields).header_value(&Form::default());
        assert!(value.contains("unavailable_after;value=@4102444800;src=x"));
    }

    #[test]
    fn a_token_that_cannot_be_a_key_gives_way() {
        for token in ["_bot", "", "ünderbot", "-x"] {
            let value = annotation(&[token], &[]).header_value(&Form::default());
            assert_eq!(value, "*=(noindex;src=m);state=complete", "{token}");
        }
    }

    #[test]
    fn a_token_beyond_the_cap_gives_way_and_says_so() {
        let token = "a".repeat(Annotation::VALUE_MAX);
        let value = annotation(&[&token], &[]).header_value(&Form::default());
        assert_eq!(value, "*=(noindex);state=partial;why=field-cap");
    }

    #[test]
    fn sources_give_way_before_the_token() {
        let token = "a".repeat(Annotation::VALUE_MAX - 30);
        let value = annotation(&[&token], &[]).header_value(&Form::default());
        assert!(value.ends_with("=(noindex);state=complete"));
    }

    // Directives.md, section 4.2: several configured tokens, several keys.
    #[test]
    fn a_crawler_of_several_names_is_told_under_each() {
        let form = Form {
            keys: Keys::All,
            ..Form::default()
        };
        let tokens = ["MSNBot", "_x", "BingBot", "msnbot"];
        let value = annotation(&tokens, &["bingbot: noai"]).header_value(&form);
        let said = "(noai;src=x noindex;src=m);state=complete";
        assert_eq!(value, format!("msnbot={said}, bingbot={said}"));
    }

    // Directives.md, section 4.2: `directives.emit_general`.
    #[test]
    fn what_everyone_is_told_may_stand_beside() {
        let form = Form {
            general: General::Beside,
            ..Form::default()
        };
        let value = annotation(&["A"], &["a: noai"]).header_value(&form);
        assert_eq!(
            value,
            "a=(noai;src=x noindex;src=m);state=complete, *=(noindex;src=m);state=complete"
        );
        let value = annotation(&[], &[]).header_value(&form);
        assert_eq!(value, "*=(noindex;src=m);state=complete");
    }

    // Directives.md, section 4.2: a token that cannot be a key.
    #[test]
    fn the_record_is_named_where_the_token_cannot_be() {
        let form = Form {
            audit: Some("17"),
            ..Form::default()
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
    fn a_crawler_called_outside_is_not_told_what_does_not_count() {
        let mut annotation = annotation(&["Outside"], &[]);
        annotation.known.said.outside = annotation.known.said.own.clone();
        let value = annotation.header_value(&Form::default());
        assert_eq!(value, "outside=(noindex;src=m);state=complete");
    }

    // Directives.md, section 4.2: legacy scripts may use `grep -w`.
    #[test]
    fn no_word_about_the_state_is_a_directive() {
        for why in Why::ALL {
            let mut annotation = annotation(&[], &[]);
            annotation.known.said = Default::default();
            annotation.known.state = State::Partial(why);
            let value = annotation.header_value(&Form::default());
            let mut words = value.split(|letter: char| !letter.is_ascii_alphanumeric());
            assert!(words.all(|word| lookup(word).is_none()), "{value}");
        }
    }
}
