//! Kinds of keys that are lists of tables: `crawler`, `robots.override` and
//! `upstream.tls`.
//!
//! Does not know how the entries are applied.

use jiff::Timestamp;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kinds::{Choice, Flag, Kind, List, OneOrMore, Text, WAIT};
use super::network::{CLIENTS, PATH};
use super::problem::{Fault, Mistake, ValuePart, nearest};
use super::values::name_text;
use politesse_decision::digest::Digest;
use politesse_decision::inquiry::{Identity, Requisites};
use politesse_decision::label::CrawlLabel;
use politesse_decision::overrides::{Action, Origins, Override, Paths};
use politesse_decision::preferences::PreferenceMode;
use politesse_decision::tls_exception::{TlsException, TlsTerms, TlsVersion};
use politesse_directives::{CrawlPurpose, PurposeSet};
use politesse_robots::crawler::ProductToken;
use politesse_robots::host_pattern::HostPattern;

/// A name that robots.txt files may use for a crawler.
///
/// Tokens with a version are rejected: an agent line could never match them (RFC 9309,
/// section 2.2.1), and they are a common mistake.
const TOKEN: Text<ProductToken> = Text {
    wanted: "a product token such as \"FooBot\", without version, `/`, `*` and `#`",
    parse: |text| {
        let token = ProductToken::new(text).ok()?;
        (!text.contains(['/', '*', '#'])).then_some(token)
    },
};

/// Part of a User-Agent that identifies a crawler.
const USER_AGENT_PART: Text<String> = Text {
    wanted: "a part of a User-Agent, 1 to 512 bytes",
    parse: |text| {
        let right = (1..=512).contains(&text.len()) && !text.contains(char::is_control);
        right.then(|| text.to_owned())
    },
};

/// Purpose of a crawler.
const PURPOSES: List<Text<CrawlPurpose>> = List {
    of: Text {
        wanted: "\"train-ai\", \"search\", \"ai-input\", \"archive\" or \"images\"",
        parse: |text| text.parse().ok(),
    },
    len: 1..=CrawlPurpose::ALL.len(),
};

/// Treatment of requests whose purposes are denied.
pub(super) const PREFERENCE_MODE: Choice<PreferenceMode> = Choice(&[
    ("off", PreferenceMode::Off),
    ("report", PreferenceMode::Report),
    ("refuse", PreferenceMode::Refuse),
]);

/// Label of a crawl.
const LABEL: Text<CrawlLabel> = Text {
    wanted: "a label of 1 to 64 letters, digits, `.`, `_` and `-`",
    parse: |text| text.parse().ok(),
};

/// Digest of the token that authenticates a crawler.
const CREDENTIAL: Text<Digest> = Text {
    wanted: "\"sha256:\" and 64 hexadecimal digits, as `politesse crawler add` makes it,",
    parse: |text| text.strip_prefix("sha256:")?.parse().ok(),
};

/// Origins that an override applies to.
const ORIGIN: Text<Origins> = Text {
    wanted: "an origin such as \"https://site.example\" or \"http://site.example:8080\", \
             or every name below one, \"*.site.example\",",
    parse: |text| text.parse().ok(),
};

/// Paths that an override applies to.
const PATHS: Text<Paths> = Text {
    wanted: "a pattern as in robots.txt, which begins with `/` or `*`,",
    parse: Paths::new,
};

/// Reason for an entry, in one line.
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

/// Action without its end time.
#[derive(Clone, Copy)]
enum ActionWord {
    Allow,
    Deny,
}

/// Date and time, as a TOML date-time or as a string of that form (RFC 3339). The
/// offset is required, because noon on this machine is another time elsewhere.
struct DateTime;

impl Kind for DateTime {
    type Value = Timestamp;

    fn wanted(&self) -> String {
        "a date and time with its offset, such as 2027-01-31T00:00:00Z,".to_owned()
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<Timestamp> {
        let time = value.as_datetime().map(ToString::to_string);
        let text = time.or_else(|| value.as_str().map(str::to_owned));
        text?.parse().ok()
    }
}

/// A table whose keys each have their own kind.
pub(super) struct Table<T> {
    /// Describes the valid tables.
    pub(super) wanted: fn() -> String,
    /// Reads all keys that the table may have. `None` if a required one is missing or
    /// wrong, or if the table is wrong as a whole.
    pub(super) read: fn(&mut Fields<'_>) -> Option<T>,
}

impl<T> Kind for Table<T> {
    type Value = T;

    fn wanted(&self) -> String {
        (self.wanted)()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<T, Vec<Fault>> {
        let wrong = || vec![Fault::whole(written, self.wanted())];
        let mut fields = Fields {
            written,
            table: written.get_ref().as_table().ok_or_else(wrong)?,
            names: Vec::new(),
            faults: Vec::new(),
        };
        let value = (self.read)(&mut fields);
        let mut faults = fields.unknown();
        faults.append(&mut fields.faults);
        match value {
            Some(value) if faults.is_empty() => Ok(value),
            None if faults.is_empty() => Err(wrong()),
            _ => Err(faults),
        }
    }
}

/// A table that is read key by key, with the faults found so far.
pub(super) struct Fields<'a> {
    written: &'a Spanned<DeValue<'a>>,
    table: &'a DeTable<'a>,
    /// Names that were read. All others are unknown.
    names: Vec<&'static str>,
    faults: Vec<Fault>,
}

impl Fields<'_> {
    /// Reads the value of an optional key. `None` if the key is absent, or if its value
    /// is wrong, which is stored as a fault.
    pub(super) fn optional<K: Kind>(&mut self, name: &'static str, kind: &K) -> Option<K::Value> {
        self.names.push(name);
        let part = |fault: Fault| fault.within(ValuePart::Name(name.to_owned()));
        let read = kind.read(self.table.get(name)?);
        read.map_err(|found| self.faults.extend(found.into_iter().map(part)))
            .ok()
    }

    /// Reads the value of a required key.
    pub(super) fn required<K: Kind>(&mut self, name: &'static str, kind: &K) -> Option<K::Value> {
        // Only for an absent key: a wrong value has a fault of its own.
        if !self.table.contains_key(name) {
            let wanted = format!("`{name}` in it, {}", kind.wanted());
            self.faults.push(Fault::whole(self.written, wanted));
        }
        self.optional(name, kind)
    }

    /// Returns a fault for each name that was not read.
    fn unknown(&self) -> Vec<Fault> {
        let names = self.table.keys().map(|name| (name.span(), name.get_ref()));
        let unknown = names.filter(|(_, name)| !self.names.contains(&name.as_ref()));
        let faults = unknown.map(|(span, name)| Fault {
            span,
            path: vec![ValuePart::Name(name_text(name))],
            mistake: Mistake::UnknownKey {
                near: nearest(self.names.iter().map(ToString::to_string), name),
            },
        });
        faults.collect()
    }
}

/// Handling of the files that pages embed: whether they wait for their own turn.
const TURNS_OF_FILES: Choice<Requisites> =
    Choice(&[("turn", Requisites::Turn), ("follow", Requisites::Follow)]);

/// An entry of `crawler`.
pub(super) const CRAWLER: Table<Identity> = Table {
    wanted: || {
        "a table with `token`, a product token or a list of some; optional keys: \
         `credential`, `user_agent`, `client`, a network or a list of some, \
         `max_wait`, `label`, `purpose`, one or a list of some, `preferences`, and \
         `requisites`, \"turn\" or \"follow\""
            .to_owned()
    },
    read: |fields| {
        let tokens = OneOrMore(List {
            of: TOKEN,
            len: 1..=16,
        });
        let networks = OneOrMore(List {
            of: CLIENTS,
            len: 1..=1024,
        });
        let tokens = fields.required("token", &tokens);
        let credential = fields.optional("credential", &CREDENTIAL);
        let user_agent = fields.optional("user_agent", &USER_AGENT_PART);
        let clients = fields.optional("client", &networks);
        let max_wait = fields.optional("max_wait", &WAIT);
        let label = fields.optional("label", &LABEL);
        let purposes = fields.optional("purpose", &OneOrMore(PURPOSES));
        let enforce = fields.optional("preferences", &PREFERENCE_MODE);
        let requisites = fields.optional("requisites", &TURNS_OF_FILES);
        Some(Identity {
            tokens: tokens?,
            user_agent,
            clients: clients.map(|networks| networks.concat()),
            credential,
            max_wait,
            label,
            purposes: PurposeSet::of(&purposes.unwrap_or_default()),
            enforce,
            requisites: requisites.unwrap_or_default(),
        })
    },
};

/// An entry of `robots.override`.
pub(super) const OVERRIDE: Table<Override> = Table {
    wanted: || {
        "a table with `origin`, `action` (\"allow\" or \"deny\") and `reason`, with \
         allow also `until`; optional keys: `agent` and `path`"
            .to_owned()
    },
    read: |fields| {
        let origin = fields.required("origin", &ORIGIN);
        let agent = fields.optional("agent", &TOKEN);
        let path = fields.optional("path", &PATHS);
        let says = fields.required("action", &ACTION);
        let reason = fields.required("reason", &REASON);
        // A forgotten permission would last for ever, so an allow needs an end. A deny
        // can only refuse too much.
        let until = match says {
            Some(ActionWord::Allow) => fields.required("until", &DateTime),
            Some(ActionWord::Deny) | None => fields.optional("until", &DateTime),
        };
        let action = match says? {
            ActionWord::Allow => Action::Allow { until: until? },
            ActionWord::Deny => Action::Deny { until },
        };
        Some(Override {
            origin: origin?,
            agent,
            path,
            action,
            reason: reason?,
        })
    },
};

/// Hosts of a TLS exception.
const HOSTS: Text<HostPattern> = Text {
    wanted: "a host such as \"site.example\", or every name below one, \"*.site.example\",",
    parse: |text| {
        // A port or a scheme would look like a limit of the exception, which has none.
        let is_origin = text.contains("://");
        text.parse().ok().filter(|_| !is_origin)
    },
};

/// Minimum TLS version for a host.
const VERSION: Text<TlsVersion> = Text {
    wanted: "\"1.2\" or \"1.3\", as no earlier version can be spoken,",
    parse: |text| match text {
        "1.2" => Some(TlsVersion::V12),
        "1.3" => Some(TlsVersion::V13),
        _ => None,
    },
};

/// An entry of `upstream.tls`.
pub(super) const TLS_EXCEPTION: Table<TlsException> = Table {
    wanted: || {
        "a table with `host` and `reason`, and with `min_version`, either \
         `verify = false` or `roots`, or both"
            .to_owned()
    },
    read: |fields| {
        let host = fields.required("host", &HOSTS);
        let verify = fields.optional("verify", &Flag).unwrap_or(true);
        let roots = fields.optional("roots", &PATH);
        let min_version = fields.optional("min_version", &VERSION);
        let reason = fields.required("reason", &REASON);
        let is_meant = match verify {
            // An exception that changes nothing is a mistake.
            true => roots.is_some() || min_version.is_some(),
            // Roots are a mistake too if nothing is verified with them.
            false => roots.is_none(),
        };
        let exception = TlsException {
            host: host?,
            terms: TlsTerms {
                verify,
                roots,
                min_version,
            },
            reason: reason?,
        };
        is_meant.then_some(exception)
    },
};
