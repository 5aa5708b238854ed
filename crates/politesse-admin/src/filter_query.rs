//! Query strings of pages about decisions: the conditions and the position in the list.
//!
//! The conditions are named like the options of `audit list`. Does not know how
//! decisions are shown.

use std::time::Duration;

use axum::http::Method;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use thiserror::Error;

use super::api;
use politesse_archive::place::ArchivePlace;
use politesse_base::clock;
use politesse_decision::class::DecisionClass;
use politesse_decision::decide::Reason;
use politesse_decision::label::CrawlLabel;
use politesse_directives::denials::statement_texts;
use politesse_record::filter::{
    DecisionFilter, InvalidRulePattern, InvalidStatus, InvalidUrlPattern,
};
use politesse_record::host_list::HostRanking;

/// Words of the condition `verdict`.
pub(super) const VERDICTS: [&str; 3] = ["allow", "disallow", "later"];
/// Time spans, in hours up to now, that can be chosen.
pub(super) const SPANS: [u16; 4] = [1, 24, 7 * 24, 30 * 24];
/// Words of the condition `effect`.
pub(super) const EFFECTS: [&str; 4] = ["enforced", "reported", "overridden", "cached"];

/// Names of the conditions, in the order of the form.
const NAMES: [&str; 17] = [
    "from",
    "until",
    "host",
    "crawler",
    "label",
    "client",
    "method",
    "status",
    "class",
    "preference",
    "verdict",
    "reason",
    "effect",
    "url",
    "search",
    "rule",
    "node",
];

/// Maximum number of rows that a program can request at once.
pub(super) const ROWS_MAX: usize = 1000;

/// Longest value, in bytes: the longest URL that the proxy accepts fits.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of bytes of a search text: the time of a search grows with this
/// length times the length of each URL.
const SEARCH_BYTES_MAX: usize = 256;

/// Reason why a filter is invalid.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub(super) enum InvalidFilter {
    /// The parameter does not exist.
    #[error("{0} cannot be asked for")]
    Unknown(String),
    /// The parameter does not accept this value.
    #[error("{name}: {why}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// Description of a valid value, as a clause.
        why: String,
    },
}

/// Records that a page is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RecordScope {
    /// The record of this node.
    #[default]
    Node,
    /// The records of all nodes, as the archive has them.
    Archive,
}

impl RecordScope {
    /// Reads the parameter `of` of any page.
    pub(super) fn of(query: &str) -> Self {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        match pairs.any(|(name, value)| name == "of" && value == ARCHIVE) {
            true => Self::Archive,
            false => Self::Node,
        }
    }
}

/// Values of the parameter `of` for the archive and for the record of the node.
const ARCHIVE: &str = "archive";
const NODE: &str = "node";

/// Checks the parameters whose values the OpenAPI document lists, in the query of any
/// path.
///
/// # Errors
///
/// [`InvalidFilter::Value`] for a value that is not listed, such as an empty one.
pub(super) fn check_listed(query: &str) -> Result<(), InvalidFilter> {
    let spans = SPANS.map(|hours| hours.to_string());
    let reasons = Reason::ALL.map(Reason::as_str);
    let listed: [(&'static str, Vec<&str>); 6] = [
        ("hours", spans.iter().map(String::as_str).collect()),
        ("of", vec![NODE, ARCHIVE]),
        ("sort", HostRanking::ALL.map(HostRanking::as_str).to_vec()),
        ("verdict", VERDICTS.to_vec()),
        ("reason", reasons.to_vec()),
        ("effect", EFFECTS.to_vec()),
    ];
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let known = listed.iter().find(|(known, _)| *known == name);
        if let Some((name, words)) = known.filter(|(_, words)| !words.contains(&&*value)) {
            let why = format!("one of {} is wanted", words.join(", "));
            return Err(InvalidFilter::Value { name, why });
        }
    }
    Ok(())
}

/// Conditions and position in the address of a page of decisions.
#[derive(Debug, Clone, Default)]
pub(super) struct DecisionQuery {
    values: Vec<QueryValue>,
    /// Records to query.
    pub(super) scope: RecordScope,
    /// Number below which decisions of the node are shown.
    pub(super) before: Option<u64>,
    /// Place after which the page of the archive's decisions starts.
    pub(super) after_place: Option<ArchivePlace>,
    /// Number above which decisions are streamed.
    pub(super) after: Option<u64>,
    /// Number of the page, counted from 1, as given by the link to it.
    pub(super) page: Option<u64>,
    /// Rows of a page, from 1 to [`ROWS_MAX`].
    pub(super) limit: Option<usize>,
    /// Last mistake in a name, or in `before`, `after` or `limit`.
    /// [`DecisionQuery::filter`] checks the values of the conditions.
    mistake: Option<InvalidFilter>,
}

#[derive(Debug, Clone)]
struct QueryValue {
    name: &'static str,
    value: String,
}

impl DecisionQuery {
    /// Reads a query string, without its `?`.
    ///
    /// Parameters with an empty value are ignored, because a form sends its empty
    /// fields. So are values longer than 64 KiB. Mistakes are kept for
    /// [`DecisionQuery::filter`].
    pub(super) fn parse(query: &str) -> Self {
        let mut parsed = Self {
            scope: RecordScope::of(query),
            ..Self::default()
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            if value.is_empty() || VALUE_BYTES_MAX < value.len() {
                continue;
            }
            match NAMES.into_iter().find(|known| *known == name) {
                Some(known) => parsed.set(known, value),
                None => match &*name {
                    "of" if [ARCHIVE, NODE].contains(&value) => {}
                    "before" if parsed.scope == RecordScope::Archive => parsed.set_place(value),
                    "before" => parsed.before = parsed.number("before", value),
                    "after" => parsed.after = parsed.number("after", value),
                    // Tells the reader the position and selects nothing.
                    "page" => parsed.page = value.parse().ok(),
                    "limit" => parsed.set_limit(value),
                    // The export reads this parameter itself.
                    "form" => {}
                    _ => parsed.mistake = Some(InvalidFilter::Unknown(name.into_owned())),
                },
            }
        }
        parsed
    }

    fn number(&mut self, name: &'static str, value: &str) -> Option<u64> {
        let number = value.parse().ok();
        if number.is_none() {
            // Without the error the response would be the first page, and a program
            // that reads page after page would never stop.
            self.mistake = Some(InvalidFilter::Value {
                name,
                why: "the number of a decision is wanted".to_owned(),
            });
        }
        number
    }

    fn set_place(&mut self, value: &str) {
        self.after_place = value.parse().ok();
        if self.after_place.is_none() {
            self.mistake = Some(InvalidFilter::Value {
                name: "before",
                why: "the `next` of a page of the archive is wanted".to_owned(),
            });
        }
    }

    fn set_limit(&mut self, value: &str) {
        let limit = value.parse().ok();
        self.limit = limit.filter(|limit| (1..=ROWS_MAX).contains(limit));
        if self.limit.is_none() {
            self.mistake = Some(InvalidFilter::Value {
                name: "limit",
                why: format!("a number from 1 to {ROWS_MAX} is wanted"),
            });
        }
    }

    fn set(&mut self, name: &'static str, value: &str) {
        // If a condition occurs twice, the last value counts.
        self.values.retain(|entry| entry.name != name);
        self.values.push(QueryValue {
            name,
            value: value.to_owned(),
        });
    }

    /// Adds the condition `name`, or replaces its value.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    /// Adds the condition that the decision refuses, in any refusing class.
    pub(super) fn refused(self) -> Self {
        let classes = DecisionClass::REFUSED.map(DecisionClass::as_str);
        self.with("class", &classes.join(","))
    }

    /// Removes the condition `name`.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.values.retain(|entry| entry.name != name);
        self
    }

    /// Returns the conditions with their names.
    pub(super) fn conditions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let entries = self.values.iter();
        entries.map(|entry| (entry.name, entry.value.as_str()))
    }

    /// Makes the query read other records.
    pub(super) fn in_scope(self, scope: RecordScope) -> Self {
        Self { scope, ..self }
    }

    /// Returns the value of a condition, as written.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().find(|entry| entry.name == name);
        found.map(|entry| entry.value.as_str())
    }

    /// Reports whether the query has a condition.
    pub(super) fn is_narrow(&self) -> bool {
        !self.values.is_empty()
    }

    /// Makes the address of `path` with all conditions, but without the position.
    pub(super) fn behind(&self, path: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if self.scope == RecordScope::Archive {
            query.append_pair("of", ARCHIVE);
        }
        for entry in &self.values {
            query.append_pair(entry.name, &entry.value);
        }
        match query.finish() {
            empty if empty.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }

    /// Makes the address of `path` with all conditions and one more parameter.
    pub(super) fn behind_with(&self, path: &str, name: &str, value: &str) -> String {
        let target = self.behind(path);
        let mark = if target.contains('?') { '&' } else { '?' };
        let pair = form_urlencoded::Serializer::new(String::new())
            .append_pair(name, value)
            .finish();
        format!("{target}{mark}{pair}")
    }

    /// Makes the filter from all conditions.
    ///
    /// # Errors
    ///
    /// [`InvalidFilter`] for an unknown parameter or an invalid value.
    pub(super) fn filter(&self) -> Result<DecisionFilter, InvalidFilter> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.scope == RecordScope::Node && self.value("node").is_some() {
            return Err(InvalidFilter::Value {
                name: "node",
                why: "it goes with of=archive: the record is that of one node".to_owned(),
            });
        }
        let word = |name, words: &[&str]| match self.value(name) {
            Some(value) if !words.contains(&value) => Err(InvalidFilter::Value {
                name,
                why: format!("one of {} is wanted", words.join(", ")),
            }),
            value => Ok(value.map(str::to_owned)),
        };
        Ok(DecisionFilter {
            from: self.read("from", time)?,
            until: self.read("until", time)?,
            host: self.read("host", |text| {
                let host = api::host(text).map(|host| host.to_string());
                host.map_err(|error| error.to_string())
            })?,
            url: self.read("url", |text| {
                let url = text.parse();
                url.map_err(|error: InvalidUrlPattern| error.to_string())
            })?,
            search: self.read("search", |text| match text.len() {
                ..=SEARCH_BYTES_MAX => Ok(text.to_owned()),
                _ => Err(format!("at most {SEARCH_BYTES_MAX} bytes are wanted")),
            })?,
            rule: self.read("rule", |text| {
                let rule = text.parse();
                rule.map_err(|error: InvalidRulePattern| error.to_string())
            })?,
            crawler: self.value("crawler").map(str::to_owned),
            label: self.read("label", |text| {
                let label = text.parse::<CrawlLabel>();
                label.map(String::from).map_err(|error| error.to_string())
            })?,
            client: self.value("client").map(str::to_owned),
            method: self.read("method", |text| {
                let method = text.parse::<Method>();
                let wanted = |_| "a method is wanted, as in GET".to_owned();
                method.map(|method| method.to_string()).map_err(wanted)
            })?,
            status: self.read("status", |text| {
                let status = text.parse();
                status.map_err(|error: InvalidStatus| error.to_string())
            })?,
            classes: self.read("class", DecisionClass::list)?.unwrap_or_default(),
            preference: word("preference", &statement_texts())?,
            verdict: word("verdict", &VERDICTS)?,
            reason: word("reason", &Reason::ALL.map(Reason::as_str))?,
            effect: word("effect", &EFFECTS)?,
            node: self.value("node").map(str::to_owned),
        })
    }

    fn read<T>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, InvalidFilter> {
        let value = self.value(name).map(read).transpose();
        value.map_err(|why| InvalidFilter::Value { name, why })
    }
}

/// Reads a time: RFC 3339; a date with or without a time of day, in UTC; or an age
/// (`90s`, `15m`, `1h`, `7d`). The error describes these forms.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let wanted =
        "a time is wanted: 2026-11-22T10:00:00Z, 2026-11-22 (UTC), or how long ago: 1h, 7d";
    if let Some(ago) = ago(text) {
        return clock::now().checked_sub(ago).map_err(|_| wanted.to_owned());
    }
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let civil: Option<DateTime> = text.parse().ok();
    let utc = civil.and_then(|time| time.to_zoned(TimeZone::UTC).ok());
    utc.map(|time| time.timestamp())
        .ok_or_else(|| wanted.to_owned())
}

/// Reads a whole number of seconds, minutes, hours or days.
fn ago(text: &str) -> Option<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let parts = units.into_iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(seconds)
    });
    parts.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_query_survives_being_written_and_parsed() {
        let query = DecisionQuery::default()
            .with("rule", "Disallow: /a?b=c&d#%25")
            .with("host", "o.test");
        let address = query.behind_with("/decisions", "before", "7");
        let (_, text) = address.split_once('?').unwrap();
        let again = DecisionQuery::parse(text);
        assert_eq!(again.value("rule"), query.value("rule"));
        assert_eq!(again.before, Some(7));
        assert_eq!(again.filter(), query.filter());
        assert!(!address.contains([' ', '"', '<', '#']), "{address}");
        assert_eq!(DecisionQuery::default().behind("/decisions"), "/decisions");
    }

    // Ours: an empty list would hide the mistake.
    #[test]
    fn invalid_values_are_refused() {
        for query in [
            "from=yesterday",
            "host=a.test:80",
            "url=/a",
            "rule=private",
            "verdict=no",
            "reason=x",
            "effect=x",
            "hosts=a.test",
            "status=4x",
            "status=ok",
            "method=G%20T",
            "before=last",
            "before=-1",
            "after=x",
            "limit=0",
            "limit=1001",
            "limit=all",
            "of=all",
            "node=eu-1",
            "of=archive&before=17",
        ] {
            assert!(DecisionQuery::parse(query).filter().is_err(), "{query}");
        }
        for query in [
            "",
            "from=&host=",
            "from=1h&until=2026-11-22",
            "crawler=*&url=http://a.test/*",
            "status=4xx&method=GET&client=::1",
            "before=0&limit=1",
            "before=&limit=1000",
            "of=archive&before=1.2.3&node=eu-1",
            "of=node",
        ] {
            assert!(DecisionQuery::parse(query).filter().is_ok(), "{query}");
        }
    }
}
