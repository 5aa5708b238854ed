//! Filters that select decisions and events, and the SQL for them.
//!
//! Does not know how filters are written on a command line, or how rows are read.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::LazyLock;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use thiserror::Error;

use super::class_counts::{ClassColumns, class_sql};
use super::order::TimeRange;
use super::pages::SqlConditions;
use super::parts::{PartFilter, PartKey};
use politesse_decision::class::DecisionClass;
use politesse_decision::reason::Verdict;
use politesse_decision::record::{StoredRecord, StoredRuling};
use politesse_robots::origin::{Host, InvalidTarget, Origin, Target};

/// Finds the rulings that match the values of [`DecisionFilter::conditions`].
const RULINGS: &str = "
SELECT id FROM ruling
WHERE (?1 IS NULL OR coalesce(crawler, '') = ?1 COLLATE NOCASE)
AND (?2 IS NULL OR instr(rule, ?2) > 0) AND (?3 IS NULL OR verdict = ?3)
AND (?4 IS NULL OR reason = ?4) AND (?5 IS NULL OR effect = ?5)";

/// Condition that a decision `d` belongs to one of the classes in
/// [`DecisionFilter::class_words`].
static CLASS_IS: LazyLock<String> = LazyLock::new(|| {
    let class = class_sql(&ClassColumns {
        verdict: "r.verdict",
        reason: "r.reason",
        error: "t.text",
        status: "x.status",
        sent: "x.sent",
    });
    format!(
        "(SELECT instr(?, ',' || {class} || ',') FROM ruling AS r LEFT JOIN ending AS x ON x.decision = d.seq \
         LEFT JOIN term AS t ON t.id = x.error WHERE r.id = d.ruling) > 0"
    )
});

/// Filter that selects the decisions matching all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecisionFilter {
    /// Earliest time of the decision, inclusive.
    pub from: Option<Timestamp>,
    /// Latest time of the decision, exclusive.
    pub until: Option<Timestamp>,
    /// Host of the URL, without a port.
    pub host: Option<String>,
    /// URL, or prefix of a URL.
    pub url: Option<UrlPattern>,
    /// Part of the URL, including its host; ASCII case is ignored.
    pub search: Option<String>,
    /// Rule that decided.
    pub rule: Option<RulePattern>,
    /// Token of the crawler that was applied, in any case; `*` for decisions
    /// without a token.
    pub crawler: Option<String>,
    /// Label of the crawl.
    pub label: Option<String>,
    /// Client: its address, or the name it has proved with a credential.
    pub client: Option<String>,
    /// Method of the request, such as `GET`.
    pub method: Option<String>,
    /// Status of the answer. A decision has none before its exchange ends.
    pub status: Option<StatusRange>,
    /// Classes of which the decision has one; empty for any. The class may change
    /// until the exchange ends.
    pub classes: Vec<DecisionClass>,
    /// Statement that denies a purpose of the crawler (`train-ai=n`).
    pub preference: Option<String>,
    /// Verdict, as a word.
    pub verdict: Option<String>,
    /// Reason, as a word.
    pub reason: Option<String>,
    /// Effect, as a word.
    pub effect: Option<String>,
    /// Node, by its name or the id of its record. Used where the records of several
    /// nodes are read together; a single record has one node and ignores it.
    pub node: Option<String>,
}

impl DecisionFilter {
    /// Returns the filter for all decisions about one URL.
    pub fn of_url(target: &Target) -> Self {
        Self {
            url: Some(UrlPattern::exact(target)),
            ..Self::default()
        }
    }

    /// Reports whether the filter selects every decision.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the conditions in SQL. One more condition, which SQL cannot express,
    /// is checked by [`DecisionFilter::admits`].
    pub(super) fn conditions(&self) -> SqlConditions {
        let rule = self.rule.as_ref().map(|rule| rule.path.clone());
        let mut conditions = SqlConditions::default();
        conditions.add("d.time_us >= ?", micros(self.from));
        conditions.add("d.time_us < ?", micros(self.until));
        // A redacted decision keeps the origin of its snapshot. If it has no
        // snapshot, it belongs to no host.
        conditions.add(
            "(SELECT host FROM origin WHERE id = d.origin) = ?",
            self.host.as_deref().map(normal_host),
        );
        if let Some(url) = &self.url {
            conditions.add(url.condition(), Some(url.text().to_owned()));
        }
        // A redacted decision may keep its origin, which must not match as part of
        // its URL.
        conditions.add(
            "d.client != 0 \
             AND instr(lower((SELECT origin FROM origin WHERE id = d.origin) || d.path), ?) > 0",
            self.search.as_deref().map(str::to_ascii_lowercase),
        );
        conditions.add(
            "(SELECT coalesce(crawler, '') FROM ruling WHERE id = d.ruling) = ? COLLATE NOCASE",
            self.stored_crawler().map(str::to_owned),
        );
        conditions.add(
            "d.crawler IN (SELECT id FROM crawler WHERE label = ?)",
            self.label.clone(),
        );
        conditions.add(
            "d.client IN (SELECT id FROM client WHERE ? IN (address, credential))",
            self.stored_client(),
        );
        conditions.add(
            "d.method IN (SELECT id FROM term WHERE text = ?)",
            self.method.clone(),
        );
        conditions.add(&CLASS_IS, self.class_words());
        let (first, last) = self.status.map(|it| (it.first, it.last)).unzip();
        conditions.add(
            "(SELECT status FROM ending WHERE decision = d.seq) >= ?",
            first,
        );
        conditions.add(
            "(SELECT status FROM ending WHERE decision = d.seq) <= ?",
            last,
        );
        conditions.add(
            "(SELECT instr(coalesce(r.denials, '') || coalesce(s.denials, ''), ?) \
             FROM ruling AS r LEFT JOIN ending AS x ON x.decision = d.seq \
             LEFT JOIN directives AS s ON s.id = x.directives WHERE r.id = d.ruling) > 0",
            // Matches the JSON form in which denials are stored.
            self.preference
                .as_ref()
                .map(|text| format!("\"statement\":{text:?},")),
        );
        conditions.add(
            "(SELECT instr(rule, ?) FROM ruling WHERE id = d.ruling) > 0",
            rule,
        );
        self.add_words(&mut conditions);
        conditions
    }

    /// Adds the conditions on verdict, reason and effect.
    fn add_words(&self, conditions: &mut SqlConditions) {
        for (column, word) in [
            (
                "(SELECT verdict FROM ruling WHERE id = d.ruling) = ?",
                &self.verdict,
            ),
            (
                "(SELECT reason FROM ruling WHERE id = d.ruling) = ?",
                &self.reason,
            ),
            (
                "(SELECT effect FROM ruling WHERE id = d.ruling) = ?",
                &self.effect,
            ),
        ] {
            conditions.add(column, word.clone());
        }
    }

    /// Returns the words of the classes, with a comma before and after each; `None`
    /// if any class matches.
    pub fn class_words(&self) -> Option<String> {
        let words = self.classes.iter().map(|class| format!("{class},"));
        (!self.classes.is_empty()).then(|| format!(",{}", words.collect::<String>()))
    }

    /// Returns the crawler in its stored form: empty for `*`, because the column is
    /// null.
    pub fn stored_crawler(&self) -> Option<&str> {
        let crawler = self.crawler.as_deref();
        crawler.map(|token| if token == "*" { "" } else { token })
    }

    /// Returns the client in its stored form: addresses in their shortest notation.
    pub fn stored_client(&self) -> Option<String> {
        let client = self.client.as_deref()?;
        let address = client.parse().map(|address: IpAddr| address.to_string());
        Some(address.unwrap_or_else(|_| client.to_owned()))
    }

    /// Reports whether roll-ups cannot answer the filter, so that decisions must be
    /// counted row by row.
    pub(super) fn is_by_row(&self) -> bool {
        let texts = [
            &self.label,
            &self.preference,
            &self.client,
            &self.method,
            &self.search,
        ];
        texts.iter().any(|text| text.is_some())
            || self.url.is_some()
            || self.status.is_some()
            || !self.classes.is_empty()
    }

    /// Returns the parts of the record that may have rows of the host, the verdict
    /// and the rulings.
    pub(super) fn parts(&self, connection: &Connection) -> rusqlite::Result<PartFilter> {
        let rulings = self.rulings(connection)?;
        let has_none = rulings.as_ref().is_some_and(BTreeSet::is_empty);
        let mut parts = PartFilter::new(connection, rulings)?;
        if has_none {
            // A condition without keys matches nothing and reads no roll-up.
            parts.add(Vec::new());
        }
        let of_url = self.url.as_ref().and_then(UrlPattern::host);
        if let Some(origins) = self.origins(connection)? {
            parts.add(origins.into_iter().map(PartKey::of_origin).collect());
        }
        if let Some(host) = of_url {
            let origins = origins_of(connection, host)?.into_iter();
            parts.add(origins.map(PartKey::of_origin).collect());
        }
        let mut of_classes = self.classes.iter().map(|class| class.verdict());
        let first = of_classes.next().flatten();
        let of_class = first.filter(|_| of_classes.all(|verdict| verdict == first));
        let verdicts = [self.verdict.as_deref(), of_class.map(Verdict::as_str)];
        for verdict in verdicts.into_iter().flatten() {
            parts.add(PartKey::of_verdict(verdict).into_iter().collect());
        }
        Ok(parts)
    }

    /// Returns the row ids of the host's origins, in ascending order; `None` for
    /// any host.
    pub(super) fn origins(&self, connection: &Connection) -> rusqlite::Result<Option<Vec<i64>>> {
        let host = self.host.as_deref().map(normal_host);
        host.map(|host| origins_of(connection, &host)).transpose()
    }

    /// Returns the row ids of the rulings that may match; `None` for all. The
    /// verdict is not looked up here, because the summary of parts has it.
    fn rulings(&self, connection: &Connection) -> rusqlite::Result<Option<BTreeSet<i64>>> {
        let rule = self.rule.as_ref().map(RulePattern::path);
        let crawler = self.stored_crawler();
        if (crawler, rule, &self.reason, &self.effect) == (None, None, &None, &None) {
            return Ok(None);
        }
        let values = params![crawler, rule, self.verdict, self.reason, self.effect];
        let mut statement = connection.prepare_cached(RULINGS)?;
        let found = statement.query_map(values, |row| row.get(0))?;
        found.collect::<rusqlite::Result<_>>().map(Some)
    }

    /// Reports whether `ruling` matches all conditions on rulings, both those in
    /// SQL and that of `DecisionFilter::admits`.
    pub fn admits_ruling(&self, ruling: &StoredRuling) -> bool {
        let token = ruling.crawler.as_deref().unwrap_or("*");
        let is_word = |wanted: &Option<String>, word: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == word)
        };
        self.admits_rule(ruling.rule.as_deref())
            && self
                .crawler
                .as_ref()
                .is_none_or(|wanted| wanted.eq_ignore_ascii_case(token))
            && is_word(&self.verdict, &ruling.verdict)
            && is_word(&self.reason, &ruling.reason)
            && is_word(&self.effect, &ruling.effect)
    }

    /// Reports whether `record`, which matches the conditions in SQL, also matches
    /// the rest.
    pub(super) fn admits(&self, record: &StoredRecord) -> bool {
        self.admits_rule(record.ruling.rule.as_deref())
    }

    /// Reports whether `rule` is the wanted rule, if one is wanted.
    fn admits_rule(&self, rule: Option<&str>) -> bool {
        let rule = rule.unwrap_or_default();
        self.rule.as_ref().is_none_or(|wanted| wanted.is(rule))
    }

    pub(super) fn times(&self) -> TimeRange {
        TimeRange {
            from: self.from,
            until: self.until,
        }
    }
}

/// Returns the row ids of the origins at `host`, in ascending order.
fn origins_of(connection: &Connection, host: &str) -> rusqlite::Result<Vec<i64>> {
    let sql = "SELECT id FROM origin WHERE host = ? ORDER BY id";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([host], |row| row.get(0))?.collect()
}

/// Filter that selects the events matching all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Earliest time of the event, inclusive.
    pub from: Option<Timestamp>,
    /// Latest time of the event, exclusive.
    pub until: Option<Timestamp>,
    /// Host, without a port.
    pub host: Option<String>,
    /// Kind of the event, as a word.
    pub kind: Option<String>,
}

impl EventFilter {
    /// Returns the conditions in SQL.
    pub(super) fn conditions(&self) -> SqlConditions {
        let mut conditions = SqlConditions::default();
        conditions.add("time_us >= ?", micros(self.from));
        conditions.add("time_us < ?", micros(self.until));
        conditions.add("host = ?", self.host.as_deref().map(normal_host));
        conditions.add("kind = ?", self.kind.clone());
        conditions
    }
}

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_microsecond)
}

/// Normalizes a host to its stored form: lower case, no final dot, an IPv6 address
/// in brackets.
pub fn normal_host(text: &str) -> String {
    let host = text
        .parse::<Host>()
        .or_else(|_| format!("[{text}]").parse());
    host.map_or_else(|_| text.to_ascii_lowercase(), |host| host.to_string())
}

/// Pattern for one URL, or for all URLs with a prefix: `https://site.example/a*`.
///
/// Scheme and host are compared in their stored form, the path byte by byte as it
/// was sent. A `*` at the end makes the pattern a prefix; elsewhere it is an
/// ordinary character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPattern {
    /// URL, or its prefix.
    text: String,
    is_prefix: bool,
    /// Host, if the pattern has a complete one.
    host: Option<String>,
}

/// Error of a text that is not a URL pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidUrlPattern {
    /// The text has no scheme, so it is not clear which URLs are meant.
    #[error(
        "a whole URL is wanted, as in https://site.example/a, or its beginning and a *, as in \
         https://site.example/a*"
    )]
    NotWhole,
    /// The text is not a URL that could be requested.
    #[error("no such URL can be asked for: {0}")]
    Target(#[from] InvalidTarget),
}

impl UrlPattern {
    /// Returns the pattern that matches only `target`.
    pub fn exact(target: &Target) -> Self {
        Self {
            text: target.to_string(),
            is_prefix: false,
            host: Some(target.origin.host().to_string()),
        }
    }

    /// Returns the SQL condition that the URL of a decision `d` matches. Its
    /// parameter is [`UrlPattern::text`].
    pub(super) fn condition(&self) -> &'static str {
        // `GLOB` cannot be used: SQLite limits patterns to 50,000 bytes, and URLs
        // may be longer.
        match self.is_prefix {
            true => "instr((SELECT origin FROM origin WHERE id = d.origin) || d.path, ?) = 1",
            false => "(SELECT origin FROM origin WHERE id = d.origin) || d.path = ?",
        }
    }

    /// Returns the URL, or its prefix.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reports whether the pattern is a prefix.
    pub fn is_prefix(&self) -> bool {
        self.is_prefix
    }

    /// Returns the host, if the pattern has a complete one.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

impl FromStr for UrlPattern {
    type Err = InvalidUrlPattern;

    fn from_str(text: &str) -> Result<Self, InvalidUrlPattern> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidUrlPattern::NotWhole)?;
        let Some(beginning) = rest.strip_suffix('*') else {
            return Ok(Self::exact(&text.parse()?));
        };
        let scheme = scheme.parse()?;
        if let Some(end) = beginning.find(['/', '?']) {
            let (authority, path) = beginning.split_at(end);
            let target = Target::new(Origin::new(scheme, authority)?, path)?;
            return Ok(Self {
                is_prefix: true,
                ..Self::exact(&target)
            });
        }
        Ok(Self {
            // Without a path, the host itself may be incomplete (`https://site*`).
            text: format!("{}://{}", scheme.as_str(), beginning.to_ascii_lowercase()),
            is_prefix: true,
            host: None,
        })
    }
}

/// Single status (`404`), or all statuses of a class (`4xx`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// Lowest status.
    pub first: u16,
    /// Highest status.
    pub last: u16,
}

/// Error of a text that is neither a status nor a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a status is wanted, as in 404, or a class, as in 4xx")]
pub struct InvalidStatus;

impl FromStr for StatusRange {
    type Err = InvalidStatus;

    fn from_str(text: &str) -> Result<Self, InvalidStatus> {
        // Upper case is accepted too, because RFC 9110 writes classes as 4XX.
        let class = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"));
        let (first, count) = match class {
            Some(class) => (class.parse::<u8>().map(|class| u16::from(class) * 100), 100),
            None => (text.parse(), 1),
        };
        match first {
            // RFC 9110, section 15: a status has three digits.
            Ok(first @ 100..=999) => Ok(Self {
                first,
                last: first + count - 1,
            }),
            _ => Err(InvalidStatus),
        }
    }
}

/// Pattern for a rule of a robots.txt: the rule as written (`Disallow: /private`),
/// or only its path (`/private`), which matches every rule with that path.
///
/// The whole path is compared, byte by byte. The case of the name, and blanks
/// around the colon, are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePattern {
    name: Option<String>,
    path: String,
}

/// Error of a text that is neither a rule nor a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a rule is wanted as `audit list` shows it, as in \"Disallow: /private\", or its path alone, \
     as in /private"
)]
pub struct InvalidRulePattern;

impl RulePattern {
    /// Returns the path, which every matching rule contains.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name of the rule, if the pattern has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn is(&self, rule: &str) -> bool {
        let Some((name, path)) = split_rule(rule) else {
            return false;
        };
        let is_named = |wanted: &String| wanted.eq_ignore_ascii_case(name);
        self.path == path && self.name.as_ref().is_none_or(is_named)
    }
}

impl FromStr for RulePattern {
    type Err = InvalidRulePattern;

    fn from_str(text: &str) -> Result<Self, InvalidRulePattern> {
        let text = text.trim();
        if text.starts_with(['/', '*']) {
            return Ok(Self {
                name: None,
                path: text.to_owned(),
            });
        }
        let (name, path) = split_rule(text).ok_or(InvalidRulePattern)?;
        Ok(Self {
            name: Some(name.to_owned()),
            path: path.to_owned(),
        })
    }
}

/// Returns a key that is equal for all rules matched by one [`RulePattern`] with a
/// name.
pub(super) fn rule_key(rule: &str) -> String {
    match split_rule(rule) {
        Some((name, path)) => format!("{}:{path}", name.to_ascii_lowercase()),
        None => rule.to_owned(),
    }
}

/// Splits a rule into its name and its path. Some files omit the colon.
fn split_rule(rule: &str) -> Option<(&str, &str)> {
    let parts = rule
        .split_once(':')
        .or_else(|| rule.split_once([' ', '\t']));
    parts.map(|(name, path)| (name.trim(), path.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> UrlPattern {
        text.parse().unwrap()
    }

    // Ours; RFC 9110, section 4.2.3: these are one URL.
    #[test]
    fn a_url_is_compared_in_its_normal_form() {
        for text in [
            "http://h.test/a",
            "HTTP://H.test:80/a",
            "http://h.test./a#f",
        ] {
            assert_eq!(pattern(text), pattern("http://h.test/a"), "{text}");
        }
        let prefix = pattern("HTTPS://H.test:443/A*");
        assert_eq!(
            (&*prefix.text, prefix.is_prefix),
            ("https://h.test/A", true)
        );
        assert_eq!(prefix.host.as_deref(), Some("h.test"));
    }

    // Ours.
    #[test]
    fn only_a_star_at_the_end_stands_for_a_rest() {
        for (text, beginning, host) in [
            ("http://h.test/a[1]*?b", None, Some("h.test")),
            (
                "http://h.test/*?*",
                Some("http://h.test/*?"),
                Some("h.test"),
            ),
            ("http://h.te*", Some("http://h.te"), None),
        ] {
            let pattern = pattern(text);
            assert_eq!(pattern.is_prefix, beginning.is_some(), "{text}");
            assert_eq!(pattern.text, beginning.unwrap_or(text));
            assert_eq!(pattern.host.as_deref(), host);
        }
    }

    // Ours: a mistake is reported, instead of giving an empty result.
    #[test]
    fn a_malformed_url_pattern_is_refused() {
        for text in ["/a", "h.test/a", "*", "h*", ""] {
            assert_eq!(text.parse::<UrlPattern>(), Err(InvalidUrlPattern::NotWhole));
        }
        for text in ["ftp://h.test/*", "http://u@h.test/", "http://h.test:x/*"] {
            assert!(matches!(
                text.parse::<UrlPattern>(),
                Err(InvalidUrlPattern::Target(_))
            ));
        }
    }

    // Ours: `--status`.
    #[test]
    fn a_status_is_a_number_or_a_class() {
        let range = |text: &str| text.parse().map(|it: StatusRange| (it.first, it.last));
        assert_eq!(range("404"), Ok((404, 404)));
        assert_eq!(range("4xx"), Ok((400, 499)));
        for text in ["", "4x", "40x", "xx", "0xx", "10xx", "99", "1000", "ok"] {
            assert_eq!(range(text), Err(InvalidStatus), "{text}");
        }
    }

    // Ours: `--rule`.
    #[test]
    fn a_rule_is_compared_whole_but_for_case_of_its_name_and_blanks() {
        let rule: RulePattern = "disallow:/a".parse().unwrap();
        assert!(rule.is("Disallow: /a") && rule.is("DISALLOW :  /a"));
        assert!(!rule.is("Disallow: /a/b") && !rule.is("Disallow: /A") && !rule.is("Allow: /a"));
        let path: RulePattern = "/a".parse().unwrap();
        assert!(path.is("Disallow: /a") && path.is("Allow: /a") && path.is("Disallow /a"));
        assert!(!path.is("Disallow: /a*") && !path.is(""));
        assert_eq!("private".parse::<RulePattern>(), Err(InvalidRulePattern));
    }
}
