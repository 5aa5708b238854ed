//! Texts of a bundle for people: the facts of a report that is counted from its rows,
//! and what one does to check it.
//!
//! Both follow from the rest of the bundle alone, so a verification makes them again
//! and compares: another text is another version of the form. Does not know how rows
//! are read, nor how the report is laid out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::form::BundleHeader;
use crate::audit::head::RecordHead;
use crate::decision::record::StoredRecord;
use politesse_robots::origin::path_of;

/// Rows of each table of the report.
const ROWS_MAX: usize = 25;

/// Bytes of the longest origin: `https://`, a name, a port.
const ORIGIN_BYTES_MAX: usize = 8 + 255 + 6;

/// Hours that are counted apart, of 15 years: a bundle of a stranger may state any time.
const HOURS_MAX: usize = 1 << 17;

/// Microseconds of an hour.
const HOUR_US: i64 = 3_600_000_000;

/// Explanation that stands in each bundle.
pub(super) const INSTRUCTIONS: &str = "\
This archive has decisions of politesse, a proxy that reads robots.txt for crawlers,
and the proof that they are on its record as they stand here.

HOW TO CHECK IT

1. Get the public key of the record from somebody you trust, on another way than this
   archive. Who runs the proxy prints it with: politesse audit key
   The key in key.txt tells you nothing by itself: whoever changes the archive can
   sign it anew with a key of his own and put that one in.
2. With politesse, on any machine:
     politesse audit verify BUNDLE.zip --key KEY
   Exit codes: 0 all is proved, 1 something does not fit, 3 all fits and nobody has
   said whose key it is (without --key).
3. Without politesse, with Python alone (docs/verify_bundle.py of its sources):
     python3 verify_bundle.py BUNDLE.zip KEY

WHAT IS IN IT

report.html   the numbers, for people; counted from rows.jsonl
rows.jsonl    the decisions, and the values that they share, a line each
robots/       each robots.txt that a decision rests on, under its SHA-256
proof.txt     hashes that lead from the rows to the head (RFC 9162, section 2.1)
head.txt      the head: how many entries the record had, the root over all of them,
              when; signed with Ed25519 (C2SP signed-note, tlog-checkpoint)
key.txt       the public key that the head says it is signed by

WHAT IS PROVED

Each row is an entry of the record that the head was signed for, and so is all that it
refers to: who asked for what and when, which rule of which robots.txt decided, what
the answer was. politesse also decides each one again from the robots.txt in the
archive. Not proved: that no other decision was made in that time. Whoever holds the
record and an exported head shows that with: politesse audit verify --head FILE
";

/// Maker of the report for people of its facts: text in ASCII, the same each time.
pub type ReportMaker<'a> = &'a dyn Fn(&BundleReport) -> String;

/// Facts of the report of a bundle.
#[derive(Debug, Clone)]
pub struct BundleReport {
    /// Id of the record.
    pub record: String,
    /// Version of the program that made it.
    pub program: String,
    /// Site that was asked for, if it is one.
    pub host: Option<String>,
    /// Head that the rows lead to.
    pub head: RecordHead,
    /// Counts of all decisions.
    pub counts: BundleCounts,
    /// Exchanges that ended with an error.
    pub errors: u64,
    /// Time of the first and of the last decision; none if there is no decision.
    pub times: Option<[Timestamp; 2]>,
    /// Counts by hour since 1970, the earliest first.
    pub hours: Vec<(i64, BundleCounts)>,
    /// Origins with most requests.
    pub sites: BundleTable<BundleName>,
    /// Crawlers with most requests.
    pub crawlers: BundleTable<BundleName>,
    /// Rules by which most was refused.
    pub rules: BundleTable<BundleRule>,
}

/// Decisions by what became of the request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BundleCounts {
    /// Requests that were decided, whatever became of them.
    pub requests: u64,
    /// Refused, and not sent.
    pub refused: u64,
    /// Put off.
    pub later: u64,
    /// Let through although the rules said no.
    pub set_aside: u64,
}

impl BundleCounts {
    fn of(decision: &StoredRecord) -> Self {
        let ruling = &decision.ruling;
        let is_acted_on = ruling.exception().is_none();
        Self {
            requests: 1,
            refused: u64::from(ruling.verdict == "disallow" && is_acted_on),
            later: u64::from(ruling.verdict == "later" && is_acted_on),
            set_aside: u64::from(!is_acted_on),
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.later += other.later;
        self.set_aside += other.set_aside;
    }

    /// Returns how many requests were allowed by the rules.
    pub fn allowed(&self) -> u64 {
        self.requests - self.refused - self.later - self.set_aside
    }
}

/// Table of a report: its first rows.
#[derive(Debug, Clone)]
pub struct BundleTable<T> {
    /// Rows, those with most requests first.
    pub rows: Vec<T>,
    /// Rows that there are, those that are left out included.
    pub all: usize,
}

/// Site or crawler.
#[derive(Debug, Clone)]
pub struct BundleName {
    /// Name; it may hold anything.
    pub name: String,
    /// Counts of its decisions.
    pub counts: BundleCounts,
}

/// Rule of a site.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BundleRule {
    /// Origin.
    pub site: String,
    /// Text of the line.
    pub rule: String,
    /// Number of the line.
    pub line: u32,
    /// Requests that it refused.
    pub refused: u64,
}

/// Rule of a site, as it is counted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SiteRule {
    site: String,
    rule: String,
    line: u32,
}

/// Decisions of a bundle, counted.
#[derive(Debug, Default)]
pub(super) struct BundleSummary {
    pub(super) decisions: u64,
    counts: BundleCounts,
    errors: u64,
    times: Option<[Timestamp; 2]>,
    hours: BTreeMap<i64, BundleCounts>,
    sites: BTreeMap<String, BundleCounts>,
    crawlers: BTreeMap<String, BundleCounts>,
    rules: BTreeMap<SiteRule, u64>,
}

impl BundleSummary {
    /// Counts a decision.
    pub(super) fn add(&mut self, decision: &StoredRecord) {
        let ruling = &decision.ruling;
        let counts = BundleCounts::of(decision);
        self.decisions += 1;
        self.counts.add(&counts);
        self.errors += u64::from(decision.error.is_some());
        let [first, last] = self.times.unwrap_or([decision.at; 2]);
        self.times = Some([first.min(decision.at), last.max(decision.at)]);
        let hour = decision.at.as_microsecond().div_euclid(HOUR_US);
        if self.hours.len() < HOURS_MAX || self.hours.contains_key(&hour) {
            self.hours.entry(hour).or_default().add(&counts);
        }
        // Cheaper than reading the URL, of which nothing else is wanted.
        let url = decision.url.as_str();
        let origin = url.strip_suffix(path_of(url)).unwrap_or(url);
        // No origin is longer. In a bundle of a stranger anything may be.
        let (site, _) = origin.split_at(origin.floor_char_boundary(ORIGIN_BYTES_MAX));
        count(&mut self.sites, site, &counts);
        let crawler = ruling.crawler.as_deref().unwrap_or("*");
        count(&mut self.crawlers, crawler, &counts);
        if let (1, Some(line), Some(rule)) = (counts.refused, ruling.line, &ruling.rule) {
            let rule = SiteRule {
                site: site.to_owned(),
                rule: rule.clone(),
                line,
            };
            *self.rules.entry(rule).or_default() += 1;
        }
    }

    /// Makes the facts of the report.
    pub(super) fn report(&self, header: &BundleHeader, head: &RecordHead) -> BundleReport {
        let rules = self.rules.iter().map(|(rule, refused)| BundleRule {
            site: rule.site.clone(),
            rule: rule.rule.clone(),
            line: rule.line,
            refused: *refused,
        });
        BundleReport {
            record: header.record.clone(),
            program: header.program.clone(),
            host: header.host.clone(),
            head: head.clone(),
            counts: self.counts,
            errors: self.errors,
            times: self.times,
            hours: self
                .hours
                .iter()
                .map(|(at, counts)| (*at, *counts))
                .collect(),
            sites: names(&self.sites),
            crawlers: names(&self.crawlers),
            rules: table(rules, |rule| rule.refused),
        }
    }
}

fn count(tallies: &mut BTreeMap<String, BundleCounts>, key: &str, counts: &BundleCounts) {
    // Nearly all are known, and `entry` would copy the key each time.
    match tallies.get_mut(key) {
        Some(tally) => tally.add(counts),
        None => {
            tallies.insert(key.to_owned(), *counts);
        }
    }
}

fn names(tallies: &BTreeMap<String, BundleCounts>) -> BundleTable<BundleName> {
    let rows = tallies.iter().map(|(name, counts)| BundleName {
        name: name.clone(),
        counts: *counts,
    });
    table(rows, |row| row.counts.requests)
}

fn table<T>(rows: impl Iterator<Item = T>, count: impl Fn(&T) -> u64) -> BundleTable<T> {
    let mut rows: Vec<_> = rows.collect();
    // Stable: those with as many stay in the order of their names, so that the report
    // is the same whoever makes it.
    rows.sort_by_key(|row| Reverse(count(row)));
    let all = rows.len();
    rows.truncate(ROWS_MAX);
    BundleTable { rows, all }
}
