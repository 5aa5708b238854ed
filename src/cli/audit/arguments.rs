//! Arguments that select decisions and events: times, hosts, URLs and rules as users
//! type them.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use http::Method;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::cli::output::Usage;
use crate::config::duration;
use politesse_base::clock;
use politesse_decision::class::DecisionClass;
use politesse_decision::decide::Reason;
use politesse_decision::label::CrawlLabel;
use politesse_decision::record::StoredRecord;
use politesse_directives::denials::statement_texts;
use politesse_record::filter::{DecisionFilter, EventFilter, RulePattern, StatusRange, UrlPattern};
use politesse_record::robots_history::RobotsOwner;
use politesse_robots::origin::{Host, Target};

/// Explanation of the filters, for `--help`.
pub(super) const FILTERS_HELP: &str = "\
Several filters select the rows that meet all of them. Times are UTC: RFC 3339
(2026-11-22T10:00:00Z), a day or minute (2026-11-22, 2026-11-22T10:00), or how long
ago (90s, 15m, 1h, 7d). --until is exclusive: --from 2026-11-22 --until 2026-11-23 is
one day.

--url takes a whole URL, or its beginning followed by *; the path is compared byte by
byte as it was sent, and a * elsewhere has no special meaning. --rule takes a rule as
the list shows it, \"Disallow: /private\", or only its path, /private: the whole path is
compared as written, so \"Disallow: /\" does not match longer rules.";

/// Conditions for decisions. A decision must meet all of them.
#[derive(Debug, Args)]
pub(crate) struct DecisionArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// The URL, or its beginning followed by *.
    #[arg(long)]
    url: Option<UrlPattern>,
    /// A part of the URL including its host, in any case.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// The deciding rule, as written, or only its path.
    #[arg(long)]
    rule: Option<RulePattern>,
    /// The crawler's token, in any case; * for crawlers without one.
    #[arg(long, value_name = "TOKEN")]
    crawler: Option<String>,
    /// The label of the crawl (`run --label`).
    #[arg(long, value_name = "LABEL")]
    label: Option<CrawlLabel>,
    /// The client: its address, or the name of its credential.
    #[arg(long, value_name = "ADDRESS|NAME")]
    client: Option<String>,
    /// The method, such as GET.
    #[arg(long)]
    method: Option<Method>,
    /// The status of the answer, such as 404, or a class, such as 4xx.
    #[arg(long)]
    status: Option<StatusRange>,
    /// The class of the decision, as the dashboard counts it; several are separated by
    /// commas.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(
        DecisionClass::ALL.map(DecisionClass::as_str),
    ).try_map(|word| DecisionClass::of_word(&word).ok_or("not a class")))]
    class: Vec<DecisionClass>,
    /// A statement that denies a purpose of the crawler, such as train-ai=n or noai.
    #[arg(long, value_name = "STATEMENT", value_parser = statement_texts())]
    preference: Option<String>,
    /// The verdict; `later` means put off, with nothing sent.
    #[arg(long, value_parser = ["allow", "disallow", "later"])]
    verdict: Option<String>,
    /// The reason's word, such as `rule` or `unreachable`.
    #[arg(long, value_parser = Reason::ALL.map(Reason::as_str))]
    reason: Option<String>,
    /// The effect of the verdict; `reported` means that enforcing it would refuse the
    /// request.
    #[arg(long, value_parser = ["enforced", "reported", "overridden", "cached"])]
    effect: Option<String>,
}

/// Conditions for both decisions and events.
#[derive(Debug, Args)]
pub(super) struct CommonArguments {
    /// At or after: a time, a day, or how long ago (1h).
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Before: a time, a day, or how long ago (1h).
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Name of the host only, for all of its ports.
    #[arg(long, value_parser = host)]
    host: Option<String>,
}

/// Conditions for events.
#[derive(Debug, Args)]
pub(crate) struct EventArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// The word for the event, as listed, such as `heartbeat`.
    #[arg(long)]
    kind: Option<String>,
}

impl CommonArguments {
    /// Refuses times that end before they begin, because they would match no row.
    fn check(&self) -> Result<(), Usage> {
        match (self.from, self.until) {
            (Some(from), Some(until)) if until <= from => Err(Usage::Arguments(format!(
                "--until ({until:.0}) is not after --from ({from:.0})"
            ))),
            _ => Ok(()),
        }
    }
}

impl TryFrom<&CommonArguments> for DecisionFilter {
    type Error = Usage;

    fn try_from(which: &CommonArguments) -> Result<Self, Usage> {
        which.check()?;
        Ok(Self {
            from: which.from,
            until: which.until,
            host: which.host.clone(),
            ..Self::default()
        })
    }
}

impl TryFrom<&EventArguments> for EventFilter {
    type Error = Usage;

    fn try_from(which: &EventArguments) -> Result<Self, Usage> {
        which.common.check()?;
        Ok(Self {
            from: which.common.from,
            until: which.common.until,
            host: which.common.host.clone(),
            kind: which.kind.clone(),
        })
    }
}

impl TryFrom<&DecisionArguments> for DecisionFilter {
    type Error = Usage;

    fn try_from(which: &DecisionArguments) -> Result<Self, Usage> {
        which.common.check()?;
        Ok(Self {
            from: which.common.from,
            until: which.common.until,
            host: which.common.host.clone(),
            url: which.url.clone(),
            search: which.search.clone(),
            rule: which.rule.clone(),
            crawler: which.crawler.clone(),
            label: which.label.as_ref().map(ToString::to_string),
            client: which.client.clone(),
            method: which.method.as_ref().map(ToString::to_string),
            status: which.status,
            classes: which.class.clone(),
            preference: which.preference.clone(),
            verdict: which.verdict.clone(),
            reason: which.reason.clone(),
            effect: which.effect.clone(),
            ..Self::default()
        })
    }
}

/// Reads a time: RFC 3339, a date with or without a time of day in UTC, or how long
/// ago.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    if let Some(ago) = duration(text) {
        let then = clock::now().checked_sub(ago);
        return then.map_err(|_| "that is too long ago".to_owned());
    }
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let utc = |time: DateTime| time.to_zoned(TimeZone::UTC).ok();
    let time = text.parse().ok().and_then(utc);
    time.map(|time| time.timestamp()).ok_or_else(|| {
        "a time is wanted: 2026-11-22T10:00:00Z, 2026-11-22 (UTC), or how long ago: 1h, 7d"
            .to_owned()
    })
}

/// Reads a host name or an address.
pub(super) fn host(text: &str) -> Result<String, String> {
    if text.contains("://") {
        return Err(format!(
            "only the name of a host is wanted, as in site.example; for the URLs of an origin \
             use --url '{}/*'",
            text.trim_end_matches(['/', '*'])
        ));
    }
    if text.contains('*') {
        return Err(
            "the name of one host is wanted, as in site.example; patterns are not taken".to_owned(),
        );
    }
    if let Some((name, port)) = text.rsplit_once(':')
        && !name.contains(':')
        && !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(format!(
            "a host without a port is wanted, as in {name}; for one port use \
             --url 'http://{text}/*'"
        ));
    }
    text.parse::<Host>()
        .or_else(|_| format!("[{text}]").parse())
        .map(|host| host.to_string())
        .map_err(|error| format!("{error}; an example is site.example"))
}

/// Reads the owner of a robots.txt: a host, or one of its origins.
pub(super) fn robots_owner(text: &str) -> Result<RobotsOwner, String> {
    if text.contains("://") && !text.contains('*') {
        let target: Target = text.parse().map_err(|error| format!("{error}"))?;
        return Ok(RobotsOwner::Origin(target.origin));
    }
    if text.contains('/') {
        return Err("a host or an origin is wanted, as in site.example or \
                    https://site.example:8443"
            .to_owned());
    }
    host(text).map(RobotsOwner::Host)
}

/// A decision as named on the command line.
#[derive(Debug, Clone)]
pub(crate) enum DecisionSubject {
    /// Number of the decision.
    Number(DecisionName),
    /// URL: the newest decision about it.
    Url(Target),
}

/// Number of a decision at its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecisionName {
    /// Name of the node, or id of its record; absent if there is only one record.
    pub(crate) node: Option<String>,
    pub(crate) seq: u64,
}

impl fmt::Display for DecisionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}/{}", self.seq),
            None => self.seq.fmt(f),
        }
    }
}

impl DecisionSubject {
    /// Makes the name of a stored decision.
    pub(super) fn of(record: &StoredRecord) -> Self {
        Self::Number(DecisionName {
            node: record.node.as_deref().map(str::to_owned),
            seq: record.seq,
        })
    }
}

impl FromStr for DecisionSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (node, number) = match text.rsplit_once('/') {
            Some((node, number)) => (Some(node.to_owned()), number),
            None => (None, text),
        };
        let is_url = text.contains("://");
        if let Ok(seq) = number.parse()
            && !is_url
        {
            return Ok(Self::Number(DecisionName { node, seq }));
        }
        let wanted = "the number of a decision or a whole URL is wanted, as in 17 or \
                      https://site.example/a";
        if !text.contains("://") {
            return Err(wanted.to_owned());
        }
        let target = text.parse().map(Self::Url);
        target.map_err(|error| format!("{error}; {wanted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: RFC 3339, a date, or how long ago, as `--help` documents.
    #[test]
    fn a_time_is_rfc_3339_or_a_day_in_utc_or_how_long_ago() {
        for (text, wanted) in [
            ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00Z"),
            ("2026-11-22T10:00:00+01:00", "2026-11-22T09:00:00Z"),
            ("2026-11-22", "2026-11-22T00:00:00Z"),
            ("2026-11-22T10:00", "2026-11-22T10:00:00Z"),
            ("2026-11-22 10:00:01", "2026-11-22T10:00:01Z"),
        ] {
            assert_eq!(time(text).unwrap().to_string(), wanted, "{text}");
        }
        let ago = clock::now().duration_since(time("1h").unwrap());
        assert!((3590..3660).contains(&ago.as_secs()), "{ago:?}");
        for text in ["yesterday", "1", "h", "2026-13-01", "", "10:00"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    // Ours: a mistake is reported, not answered with zero rows.
    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_else() {
        for (text, wanted) in [
            ("Site.Example.", "site.example"),
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(host(text).unwrap(), wanted);
        }
        for (text, told) in [
            ("https://site.example", "--url 'https://site.example/*'"),
            ("https://site.example/*", "--url 'https://site.example/*'"),
            ("*.site.example", "patterns"),
            ("site.example:8443", "without a port"),
            ("site.example/a", "neither a name"),
            ("", "neither a name"),
        ] {
            let error = host(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
