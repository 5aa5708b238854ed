//! Kinds of keys that are lists of tables: `crawler` and `robots.override`.
//!
//! How entries are applied is not known here.

use std::borrow::Cow;
use std::fmt;

use ipnet::IpNet;
use jiff::Timestamp;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kinds::{Choice, Fault, Kind, List, Mistake, Text, ValuePart, WAIT};
use super::network::CLIENTS;
use super::problem::nearest;
use super::values::name_text;
use crate::decision::inquiry::Identity;
use crate::decision::overrides::{Action, Origins, Override, Paths};
use politesse_robots::crawler::ProductToken;

/// A name that robots.txt files may speak of a crawler by.
///
/// A token with a version could never be named by an agent line (RFC 9309,
/// section 2.2.1), and it is what people write by mistake.
const TOKEN: Text<ProductToken> = Text {
    wanted: "a product token such as \"FooBot\", without version, `/`, `*` and `#`",
    parse: |text| {
        let token = ProductToken::new(text).ok()?;
        (!text.contains(['/', '*', '#'])).then_some(token)
    },
};

/// Part of a User-Agent by which a crawler is known.
const USER_AGENT_PART: Text<String> = Text {
    wanted: "a part of a User-Agent, 1 to 512 bytes",
    parse: |text| {
        let right = (1..=512).contains(&text.len()) && !text.contains(char::is_control);
        right.then(|| text.to_owned())
    },
};

/// Origins of an override.
const ORIGIN: Text<Origins> = Text {
    wanted: "an origin such as \"https://site.example\" or \"http://site.example:8080\", \
             or every name below one, \"*.site.example\",",
    parse: |text| text.parse().ok(),
};

/// Paths of an override.
const PATHS: Text<Paths> = Text {
    wanted: "a pattern as in robots.txt, which begins with `/` or `*`,",
    parse: Paths::new,
};

/// Reason of an override, in one line.
pub(super) const REASON: Text<String> = Text {
    wanted: "a reason in one line of 1 to 256 bytes, such as \"contract 114\",",
    parse: |text| {
        let right = (1..=256).contains(&text.len())
            && !text.trim().is_empty()
            && !text.contains(char::is_control);
        right.then(|| text.trim().to_owned())
    },
};

/// Action of an override.
const ACTION: Choice<ActionWord> =
    Choice(&[("allow", ActionWord::Allow), ("deny", ActionWord::Deny)]);

/// An action without its end.
#[derive(Clone, Copy)]
enum ActionWord {
    Allow,
    Deny,
}

/// One value, or a list of some.
struct OneOrMore<K>(List<K>);

impl<K: Kind> Kind for OneOrMore<K> {
    type Value = Vec<K::Value>;

    fn wanted(&self) -> String {
        format!("{}, or {}", self.0.of.wanted(), self.0.wanted())
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        if written.get_ref().is_array() {
            self.0.read(written)
        } else {
            self.0.of.read(written).map(|value| vec![value])
        }
    }
}

/// Date and time: a TOML date-time, or a string of that form (RFC 3339), with its
/// offset, since noon on this machine is another time elsewhere.
struct DateTime;

impl Kind for DateTime {
    type Value = Timestamp;

    fn wanted(&self) -> String {
        "a date and time with its offset, such as 2027-01-31T00:00:00Z,".to_owned()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Timestamp, Vec<Fault>> {
        let value = written.get_ref();
        let time = value.as_datetime().map(ToString::to_string);
        let text = time.or_else(|| value.as_str().map(str::to_owned));
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| vec![Fault::whole(written, self.wanted())])
    }
}

/// A table that is read key by key, with its faults so far.
pub(super) struct Fields<'a> {
    written: &'a Spanned<DeValue<'a>>,
    table: &'a DeTable<'a>,
    faults: Vec<Fault>,
}

impl<'a> Fields<'a> {
    /// Begins with the table of a `kind` that has these `names`. Other names are
    /// faults.
    pub(super) fn of(
        written: &'a Spanned<DeValue<'a>>,
        kind: &impl Kind,
        names: &[&str],
    ) -> Result<Self, Vec<Fault>> {
        let Some(table) = written.get_ref().as_table() else {
            return Err(vec![Fault::whole(written, kind.wanted())]);
        };
        let strangers = table
            .keys()
            .filter(|name| !names.contains(&name.get_ref().as_ref()));
        let unknown = |name: &Spanned<Cow<'_, str>>| Fault {
            span: name.span(),
            path: vec![ValuePart::Name(name_text(name.get_ref()))],
            mistake: Mistake::Unknown {
                near: nearest(names.iter().map(ToString::to_string), name.get_ref()),
            },
        };
        Ok(Self {
            written,
            table,
            faults: strangers.map(unknown).collect(),
        })
    }

    /// Reads the value of a key that may be absent. `None` as well if the value is
    /// wrong, which [`Fields::finish`] reports.
    pub(super) fn optional<K: Kind>(&mut self, name: &str, kind: &K) -> Option<K::Value> {
        let part = |fault: Fault| fault.within(ValuePart::Name(name.to_owned()));
        match kind.read(self.table.get(name)?) {
            Ok(value) => Some(value),
            Err(found) => {
                self.faults.extend(found.into_iter().map(part));
                None
            }
        }
    }

    /// Reads the value of a key that must be there.
    pub(super) fn required<K: Kind>(&mut self, name: &str, kind: &K) -> Option<K::Value> {
        // Only a key that is absent: one with a wrong value has a fault of its
        // own.
        if !self.table.contains_key(name) {
            self.lacks(format_args!("`{name}` in it, {}", kind.wanted()));
        }
        self.optional(name, kind)
    }

    /// Adds the fault that `what` is missing.
    fn lacks(&mut self, what: fmt::Arguments<'_>) {
        self.faults
            .push(Fault::whole(self.written, what.to_string()));
    }

    /// Returns `read` if there were no faults.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, Vec<Fault>> {
        match read {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => Err(self.faults),
        }
    }
}

/// An entry of `crawler`.
pub(super) struct CrawlerTable;

impl CrawlerTable {
    const NAMES: &[&str] = &["token", "user_agent", "client", "max_wait"];
}

impl Kind for CrawlerTable {
    type Value = Identity;

    fn wanted(&self) -> String {
        "a table with `token`, a product token or a list of some, and at will \
         `user_agent`, `client`, a network or a list of some, and `max_wait`"
            .to_owned()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Identity, Vec<Fault>> {
        let tokens = OneOrMore(List {
            of: TOKEN,
            len: 1..=16,
        });
        let networks = OneOrMore(List {
            of: CLIENTS,
            len: 1..=1024,
        });
        let mut fields = Fields::of(written, self, Self::NAMES)?;
        let tokens = fields.required("token", &tokens);
        let user_agent = fields.optional("user_agent", &USER_AGENT_PART);
        let clients: Option<Vec<Vec<IpNet>>> = fields.optional("client", &networks);
        let max_wait = fields.optional("max_wait", &WAIT);
        fields.finish(tokens.map(|tokens| Identity {
            tokens,
            user_agent,
            clients: clients.map(|networks| networks.concat()),
            max_wait,
        }))
    }
}

/// An entry of `robots.override`.
pub(super) struct OverrideTable;

impl OverrideTable {
    const NAMES: &[&str] = &["origin", "agent", "path", "action", "reason", "until"];
}

impl Kind for OverrideTable {
    type Value = Override;

    fn wanted(&self) -> String {
        "a table with `origin`, `action` (\"allow\" or \"deny\") and `reason`, with \
         allow also `until`, and at will `agent` and `path`"
            .to_owned()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Override, Vec<Fault>> {
        let mut fields = Fields::of(written, self, Self::NAMES)?;
        let origin = fields.required("origin", &ORIGIN);
        let agent = fields.optional("agent", &TOKEN);
        let path = fields.optional("path", &PATHS);
        let says = fields.required("action", &ACTION);
        let reason = fields.required("reason", &REASON);
        // Leave that never ends is soon forgotten, so an allow needs an end; a
        // deny can only refuse too much.
        let until = match says {
            Some(ActionWord::Allow) => fields.required("until", &DateTime),
            Some(ActionWord::Deny) | None => fields.optional("until", &DateTime),
        };
        // Where a part is missing its fault has been noted already.
        let action = match (says, until) {
            (Some(ActionWord::Allow), Some(until)) => Some(Action::Allow { until }),
            (Some(ActionWord::Deny), until) => Some(Action::Deny { until }),
            (Some(ActionWord::Allow), None) | (None, _) => None,
        };
        let read = || {
            Some(Override {
                origin: origin?,
                agent,
                path,
                action: action?,
                reason: reason?,
            })
        };
        fields.finish(read())
    }
}
