//! Counts of judged requests, by host, crawler and rule: plain data for the report.
//!
//! Does not know the formats of the report.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::outcome::{JudgedRequest, PastVerdict, UnknownReason};
use super::purposes::PurposeCounts;
use politesse_decision::decide::{RuleCited, Ruling};
use politesse_pages::page::words::counted;

/// Approximate limit on the memory for groups, in bytes. Requests of further groups are
/// counted only in the totals.
const GROUP_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of a group, without its texts.
const GROUP_BYTES: usize = 160;
/// Maximum length in bytes of a rule's text; longer rules are cut.
const RULE_BYTES_MAX: usize = 512;
/// Maximum number of disallowed requests kept as samples.
const SAMPLES_MAX: usize = 10;
/// Maximum number of unreadable parts that are listed.
const UNREAD_PARTS_MAX: usize = 20;
/// Maximum number of hours counted separately, more than 20 years: an archive may state
/// any time.
const HOURS_MAX: usize = 200_000;
/// Seconds in an hour.
const HOUR_SECONDS: i64 = 3600;
/// Age at which a robots.txt should be fetched again (RFC 9309, section 2.4).
const ROBOTS_AGE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// Requests by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VerdictCounts {
    pub(crate) allowed: u64,
    pub(crate) disallowed: u64,
    pub(crate) unknown: u64,
}

impl VerdictCounts {
    /// Returns the number of requests with any verdict.
    pub(crate) fn all(self) -> u64 {
        self.allowed + self.disallowed + self.unknown
    }

    fn add(&mut self, verdict: PastVerdict, requests: u64) {
        *match verdict {
            PastVerdict::Allow => &mut self.allowed,
            PastVerdict::Disallow => &mut self.disallowed,
            PastVerdict::Unknown => &mut self.unknown,
        } += requests;
    }
}

/// Values that the requests of a group share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JudgedGroup {
    /// Host; `None` if the URL is not a website's.
    pub(crate) host: Option<String>,
    /// Crawlers that the requests were judged for; empty if the crawler is unknown.
    pub(crate) crawlers: Vec<CrawlerVerdict>,
    /// Verdict that counts: that of the decisive crawler.
    pub(crate) verdict: PastVerdict,
    /// Word of the reason.
    pub(crate) reason: &'static str,
    /// Deciding rule, if there is one.
    pub(crate) rule: Option<RuleLine>,
}

/// Verdict for one crawler.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CrawlerVerdict {
    /// Product token of the crawler; `*` if it has none.
    pub(crate) name: String,
    /// The verdict.
    pub(crate) verdict: PastVerdict,
}

/// Line of a robots.txt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleLine {
    /// Number of the line, counted from 1.
    pub(crate) line: u32,
    /// Text of the rule, at most [`RULE_BYTES_MAX`] bytes and `…`.
    pub(crate) text: String,
}

impl JudgedGroup {
    fn of(judged: &JudgedRequest) -> Self {
        let decisive = &judged.decisive;
        let verdicts = judged.outcomes().filter_map(|outcome| {
            Some(CrawlerVerdict {
                name: outcome.crawler_name()?,
                verdict: outcome.verdict(),
            })
        });
        Self {
            host: judged
                .target
                .as_ref()
                .map(|target| target.origin.host().to_string()),
            crawlers: verdicts.collect(),
            verdict: decisive.verdict(),
            reason: decisive.reason(),
            rule: decisive
                .ruling()
                .and_then(|ruling| ruling.rule.as_ref())
                .and_then(RuleLine::of),
        }
    }

    /// Returns the names of the crawlers with this verdict, separated by commas; `None`
    /// if the crawler is unknown.
    pub(crate) fn crawler_names(&self) -> Option<String> {
        let same = self.crawlers.iter().filter(|it| it.verdict == self.verdict);
        let names: Vec<_> = same.map(|it| it.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Returns the approximate memory of the group, in bytes.
    fn bytes(&self) -> usize {
        let host = self.host.as_ref().map_or(0, String::len);
        let rule = self.rule.as_ref().map_or(0, |rule| rule.text.len());
        let crawlers = self.crawlers.iter();
        let names = crawlers.map(|it| size_of_val(it) + it.name.len());
        GROUP_BYTES + host + rule + names.sum::<usize>()
    }
}

impl RuleLine {
    /// Returns the cited line; `None` if the statement is in another file.
    fn of(rule: &RuleCited) -> Option<Self> {
        // A rule may be as long as its file, and each host has its own.
        let end = rule.text.floor_char_boundary(RULE_BYTES_MAX);
        let cut = if end < rule.text.len() { "…" } else { "" };
        Some(Self {
            line: rule.line?,
            text: format!("{}{cut}", &rule.text[..end]),
        })
    }
}

/// Part of a file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadPart {
    /// Path of the file.
    pub(crate) file: String,
    /// Place in the file: byte offset in an archive, line number in a log.
    pub(crate) place: u64,
    /// Text of the error.
    pub(crate) cause: String,
}

/// Disallowed request, as an example.
#[derive(Debug, Clone)]
pub(crate) struct DisallowedSample {
    /// URL as in the file.
    pub(crate) url: String,
    /// Time of the request, if known.
    pub(crate) at: Option<Timestamp>,
    /// Group of the request, with the deciding rule.
    pub(crate) group: JudgedGroup,
}

/// All counts.
#[derive(Debug, Default)]
pub(crate) struct JudgeCounts {
    /// Number of files that were read.
    pub(crate) files: usize,
    /// Names of the crawlers that each request was judged for (`--agents`); empty if it
    /// was judged for the crawler that made it.
    pub(crate) agents: Vec<String>,
    /// All requests.
    pub(crate) totals: VerdictCounts,
    /// Requests that robots.txt disallowed and the operator allows (`robots.override`);
    /// the totals count them as allowed.
    pub(crate) overridden: u64,
    /// Time of the first request, among those with a time.
    pub(crate) from: Option<Timestamp>,
    /// Time of the last request, among those with a time.
    pub(crate) until: Option<Timestamp>,
    /// Requests by hour since 1970, among those with a time.
    pub(crate) hours: BTreeMap<i64, VerdictCounts>,
    /// Requests judged by a robots.txt that was fetched more than 24 hours before.
    pub(crate) old_robots: u64,
    /// Number of requests by group.
    pub(crate) groups: BTreeMap<JudgedGroup, u64>,
    /// Approximate memory of `groups`, in bytes.
    group_bytes: usize,
    /// Requests whose groups exceeded the memory limit.
    pub(crate) ungrouped: VerdictCounts,
    /// First disallowed requests.
    pub(crate) samples: Vec<DisallowedSample>,
    /// Pages denied for purposes.
    pub(crate) purposes: PurposeCounts,
    /// Number of parts that could not be read: damaged records, malformed lines, and rests
    /// of unreadable files.
    pub(crate) unread: u64,
    /// First of these parts.
    pub(crate) unread_parts: Vec<UnreadPart>,
}

impl JudgeCounts {
    /// Adds a request.
    pub(super) fn add(&mut self, judged: &JudgedRequest) {
        let verdict = judged.verdict();
        self.totals.add(verdict, 1);
        self.purposes.add(judged);
        let ruling = judged.decisive.ruling();
        self.overridden += u64::from(ruling.is_some_and(Ruling::is_overridden));
        let at = judged.request.at;
        // `None` is less than any time, so it must not take part in the minimum.
        self.from = [self.from, at].into_iter().flatten().min();
        self.until = self.until.max(at);
        if let Some(at) = at {
            let hour = at.as_second().div_euclid(HOUR_SECONDS);
            if self.hours.len() < HOURS_MAX || self.hours.contains_key(&hour) {
                self.hours.entry(hour).or_default().add(verdict, 1);
            }
        }
        let robots_at = judged
            .decisive
            .result
            .as_ref()
            .ok()
            .and_then(|judged| judged.robots_at);
        if let (Some(robots_at), Some(at)) = (robots_at, at) {
            self.old_robots += u64::from(ROBOTS_AGE_MAX < at.duration_since(robots_at));
        }
        let group = JudgedGroup::of(judged);
        if verdict == PastVerdict::Disallow && self.samples.len() < SAMPLES_MAX {
            self.samples.push(DisallowedSample {
                url: judged.request.url.clone(),
                at,
                group: group.clone(),
            });
        }
        // Looked up first, because nearly every request belongs to a known group.
        if let Some(requests) = self.groups.get_mut(&group) {
            *requests += 1;
            return;
        }
        let bytes = group.bytes();
        if GROUP_BYTES_MAX < self.group_bytes + bytes {
            self.ungrouped.add(verdict, 1);
            return;
        }
        self.group_bytes += bytes;
        self.groups.insert(group, 1);
    }

    /// Sums the disallowed requests by rule. Equal rules of two hosts are counted
    /// separately.
    pub(crate) fn by_rule(&self) -> Vec<CountedKey<DisallowingRule>> {
        self.by(|group| {
            let is_disallowed = group.verdict == PastVerdict::Disallow;
            is_disallowed.then(|| DisallowingRule {
                host: group.host.clone(),
                rule: group.rule.clone(),
                reason: group.reason,
                agents: match self.agents.as_slice() {
                    [] => None,
                    _ => group.crawler_names(),
                },
            })
        })
    }

    /// Sums each crawler's requests by the verdict for it.
    pub(crate) fn by_crawler(&self) -> Vec<CountedKey<String>> {
        self.sum(|group| {
            let verdicts = group.crawlers.iter();
            verdicts.map(|it| (it.name.clone(), it.verdict)).collect()
        })
    }

    /// Returns sentences on the limits of the counts: old robots.txt files, requests in
    /// no table, parts of files that could not be read.
    pub(crate) fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if 0 < self.old_robots {
            limits.push(format!(
                "{} were judged by a robots.txt that was fetched more than 24 hours before. The \
                 website may have changed it since.",
                counted(self.old_robots, "request")
            ));
        }
        if 0 < self.ungrouped.all() {
            limits.push(format!(
                "{} are only in the totals, and in no table, because there are too many websites \
                 and rules.",
                counted(self.ungrouped.all(), "request")
            ));
        }
        limits.extend(self.purposes.limits());
        if 0 < self.unread {
            let parts = counted(self.unread, "part");
            limits.push(format!("{parts} of the files could not be read:"));
        }
        for UnreadPart { file, place, cause } in &self.unread_parts {
            limits.push(format!("{file} at {place}: {cause}"));
        }
        limits
    }

    /// Adds a part of a file that could not be read.
    pub(super) fn add_unread(&mut self, part: UnreadPart) {
        self.unread += 1;
        if self.unread_parts.len() < UNREAD_PARTS_MAX {
            self.unread_parts.push(part);
        }
    }

    /// Sums the requests by the value that `key` returns for a group; the values with
    /// the most disallowed requests come first.
    pub(crate) fn by<K: Ord>(&self, key: impl Fn(&JudgedGroup) -> Option<K>) -> Vec<CountedKey<K>> {
        self.sum(|group| {
            key(group)
                .map(|key| (key, group.verdict))
                .into_iter()
                .collect()
        })
    }

    /// Sums the requests by each value, with the verdicts that `keys` returns for a
    /// group.
    fn sum<K: Ord>(
        &self,
        keys: impl Fn(&JudgedGroup) -> Vec<(K, PastVerdict)>,
    ) -> Vec<CountedKey<K>> {
        let mut sums: BTreeMap<K, VerdictCounts> = BTreeMap::new();
        for (group, requests) in &self.groups {
            for (key, verdict) in keys(group) {
                sums.entry(key).or_default().add(verdict, *requests);
            }
        }
        let mut rows: Vec<_> = sums
            .into_iter()
            .map(|(key, counts)| CountedKey { key, counts })
            .collect();
        // A stable sort: rows with equal counts stay in the order of their keys.
        rows.sort_by_key(|row| {
            let VerdictCounts { disallowed, .. } = row.counts;
            std::cmp::Reverse((disallowed, row.counts.all()))
        });
        rows
    }
}

/// Rule of a host that disallowed requests, or the reason if there is no such rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DisallowingRule {
    /// Host; `None` if the URL is not a website's.
    pub(crate) host: Option<String>,
    /// Line of its robots.txt, if a rule decided.
    pub(crate) rule: Option<RuleLine>,
    /// Word of the reason.
    pub(crate) reason: &'static str,
    /// Names of the crawlers that it disallows, if requests were judged for several.
    pub(crate) agents: Option<String>,
}

/// Counts of the requests that share a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountedKey<K> {
    /// The value.
    pub(crate) key: K,
    /// Requests that share it.
    pub(crate) counts: VerdictCounts,
}

/// Returns the sentence for the reason of an unknown verdict.
pub(crate) fn unknown_sentence(reason: &str) -> &'static str {
    let causes = UnknownReason::ALL.into_iter();
    let mut named = causes.filter(|cause| cause.as_str() == reason);
    named.next().map_or("", UnknownReason::sentence)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use politesse_robots::crawler::Crawler;

    use super::super::outcome::{CrawlerOutcome, JudgedRuling};
    use super::super::past_request::{PastAgent, PastRequest};
    use super::*;
    use politesse_decision::access::Cause;
    use politesse_decision::decide::{Inquiry, Policy, Unauthorized, ruling};
    use politesse_decision::snapshot::{CacheKey, Snapshot};

    const NOON: &str = "2026-01-02T12:00:00Z";

    /// Returns a request at noon, judged by an unreachable robots.txt fetched at
    /// `robots_at`, or without a robots.txt if that is `None`.
    fn judged(url: &str, robots_at: Option<&str>) -> JudgedRequest {
        let target: politesse_robots::origin::Target = url.parse().unwrap();
        let crawler = Crawler::from_user_agent([&b"Foo"[..]]);
        let key = CacheKey::new(target.origin.clone(), None);
        let noon: Timestamp = NOON.parse().unwrap();
        let snapshot = Snapshot::unreachable(key, Cause::Status, noon);
        let inquiry = Inquiry {
            crawler: crawler.clone(),
            target: target.clone(),
            method: "GET".to_owned(),
        };
        let policy = Policy::new(Unauthorized::Allow);
        let outcome = robots_at.map(|at| JudgedRuling {
            ruling: ruling(&inquiry, &snapshot, &policy, noon),
            snapshot: Arc::new(snapshot),
            robots_at: at.parse().ok(),
        });
        JudgedRequest {
            request: PastRequest {
                file: 0,
                place: 0,
                at: Some(noon),
                url: url.to_owned(),
                agent: PastAgent::Named("Foo".to_owned()),
                status: None,
                is_tunnel: false,
                statements: None,
            },
            target: Some(target),
            decisive: CrawlerOutcome {
                crawler: Some(crawler),
                result: outcome.ok_or(UnknownReason::NoRobots),
                denials: Vec::new(),
            },
            others: Vec::new(),
        }
    }

    // RFC 9309, section 2.4: more than 24 hours.
    #[test]
    fn requests_judged_by_an_old_robots_txt_are_counted() {
        let mut counts = JudgeCounts::default();
        for (robots_at, old) in [
            ("2026-01-02T12:00:00Z", 0),
            ("2026-01-01T12:00:00Z", 0),
            ("2026-01-01T11:59:59Z", 1),
        ] {
            counts.add(&judged("http://h.test/", Some(robots_at)));
            assert_eq!(counts.old_robots, old, "{robots_at}");
        }
    }

    // Ours: most disallowed first, with all counts of each value.
    #[test]
    fn groups_are_summed_by_the_given_key() {
        let mut counts = JudgeCounts::default();
        counts.add(&judged("http://a.test/", None));
        counts.add(&judged("http://b.test/1", Some(NOON)));
        counts.add(&judged("http://b.test/2", Some(NOON)));
        counts.add(&judged("http://b.test/robots.txt", Some(NOON)));
        let hosts = counts.by(|group| group.host.clone());
        let hosts: Vec<_> = hosts
            .iter()
            .map(|row| (&*row.key, row.counts.disallowed, row.counts.all()))
            .collect();
        assert_eq!(hosts, [("b.test", 2, 3), ("a.test", 0, 1)]);
        assert_eq!(counts.totals.all(), 4);
        assert_eq!(counts.samples.len(), 2);
        let hours: Vec<_> = counts.hours.values().map(|hour| hour.all()).collect();
        assert_eq!(hours, [4]);
    }

    // Ours: memory does not grow with the number of hosts in an archive.
    #[test]
    fn groups_beyond_the_limit_are_only_in_the_totals() {
        let mut counts = JudgeCounts::default();
        counts.add(&judged("http://a.test/", Some(NOON)));
        counts.group_bytes = GROUP_BYTES_MAX;
        counts.add(&judged("http://a.test/", Some(NOON)));
        counts.add(&judged("http://b.test/", Some(NOON)));
        assert_eq!(counts.groups.values().sum::<u64>(), 2);
        assert_eq!(counts.ungrouped.disallowed, 1);
        assert_eq!(counts.totals.disallowed, 3);
        for number in 0..100 {
            let part = UnreadPart {
                file: String::new(),
                place: number,
                cause: String::new(),
            };
            counts.add_unread(part);
        }
        let kept = counts.unread_parts.len();
        assert_eq!((counts.unread, kept), (100, UNREAD_PARTS_MAX));
    }
}
