//! Texts of a bundle for people: a report that is counted from its rows, and what
//! one does to check it.
//!
//! Both follow from the rest of the bundle alone, so a verification makes them again
//! and compares: another text is another version of the form. Texts are ASCII; what crawlers and sites wrote is escaped. Does not
//! know how rows are read.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::form::BundleHeader;
use crate::audit::head::RecordHead;
use crate::decision::record::StoredRecord;
use politesse_robots::origin::path_of;

/// Lines of each table of the report.
const LINES_MAX: usize = 40;

/// Bytes of the longest origin: `https://`, a name, a port.
const ORIGIN_BYTES_MAX: usize = 8 + 255 + 6;

/// Characters of a value that are shown in a table.
const VALUE_MAX: usize = 120;

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

report.txt    the numbers, for people; counted from rows.jsonl
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

/// Counts of decisions.
#[derive(Debug, Default, Clone, Copy)]
struct RefusalTally {
    requests: u64,
    refused: u64,
}

impl RefusalTally {
    fn add(&mut self, is_refused: bool) {
        self.requests += 1;
        self.refused += u64::from(is_refused);
    }
}

/// Rule of a site.
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
    refused: u64,
    later: u64,
    set_aside: u64,
    errors: u64,
    /// First and last number, and times.
    numbers: Option<[u64; 2]>,
    times: Option<[Timestamp; 2]>,
    sites: BTreeMap<String, RefusalTally>,
    crawlers: BTreeMap<String, RefusalTally>,
    rules: BTreeMap<SiteRule, u64>,
}

impl BundleSummary {
    /// Counts a decision.
    pub(super) fn add(&mut self, decision: &StoredRecord) {
        let ruling = &decision.ruling;
        let is_acted_on = ruling.exception().is_none();
        let is_refused = ruling.verdict == "disallow" && is_acted_on;
        self.decisions += 1;
        self.refused += u64::from(is_refused);
        self.later += u64::from(ruling.verdict == "later" && is_acted_on);
        self.set_aside += u64::from(!is_acted_on);
        self.errors += u64::from(decision.error.is_some());
        let [first, last] = self.numbers.unwrap_or([decision.seq; 2]);
        self.numbers = Some([first.min(decision.seq), last.max(decision.seq)]);
        let [first, last] = self.times.unwrap_or([decision.at; 2]);
        self.times = Some([first.min(decision.at), last.max(decision.at)]);
        // Cheaper than reading the URL, of which nothing else is wanted.
        let url = decision.url.as_str();
        let origin = url.strip_suffix(path_of(url)).unwrap_or(url);
        // No origin is longer. In a bundle of a stranger anything may be.
        let (site, _) = origin.split_at(origin.floor_char_boundary(ORIGIN_BYTES_MAX));
        count(&mut self.sites, site, is_refused);
        let crawler = ruling.crawler.as_deref().unwrap_or("*");
        count(&mut self.crawlers, crawler, is_refused);
        if let (true, Some(line), Some(rule)) = (is_refused, ruling.line, &ruling.rule) {
            let rule = SiteRule {
                site: site.to_owned(),
                rule: rule.clone(),
                line,
            };
            *self.rules.entry(rule).or_default() += 1;
        }
    }

    /// Makes the report.
    pub(super) fn report(&self, header: &BundleHeader, head: &RecordHead) -> String {
        let asked = |value: &Option<String>| shown(value.as_deref().unwrap_or("any"));
        let [first, last] = self.numbers.unwrap_or_default();
        let times = self.times.map(|times| times.map(|at| at.to_string()));
        let [begin, end] = times.unwrap_or_default();
        let mut text = format!(
            "DECISIONS OF A PROXY THAT READS ROBOTS.TXT FOR CRAWLERS\n\n\
             record       {}, by politesse {}\n\
             head         {} entries, signed {}\n\
             asked for    from {}, until {}, site {}\n\
             decisions    {}, numbers {first} to {last}\n\
             times        {begin} to {end}\n\n\
             A crawler asks this proxy for each page. The proxy reads the rules that the site has\n\
             published for crawlers (its robots.txt) and lets the request pass, refuses it, or\n\
             puts it off to a later time. Each decision is on record before anything is sent.\n\n",
            shown(&header.record),
            shown(&header.program),
            head.tree.size,
            head.time,
            asked(&header.from),
            asked(&header.until),
            asked(&header.host),
            self.decisions,
        );
        let passed = self.decisions - self.refused - self.later - self.set_aside;
        for (number, what) in [
            (passed, "allowed"),
            (self.refused, "refused"),
            (self.later, "put off"),
            (
                self.set_aside,
                "let through although the rules said no: the operator had set them aside",
            ),
            (self.errors, "of these ended with an error"),
        ] {
            text.push_str(&format!("{number:>12}  {what}\n"));
        }
        add_table(&mut text, "SITES", &self.sites);
        add_table(
            &mut text,
            "CRAWLERS, as they call themselves",
            &self.crawlers,
        );
        self.add_rules(&mut text);
        text
    }

    fn add_rules(&self, text: &mut String) {
        let mut rules: Vec<_> = self.rules.iter().collect();
        // Of rules that refused as much the first by name, so that the text is the same
        // whoever makes it.
        rules.sort_by_key(|(_, refused)| Reverse(**refused));
        let all = rules.len();
        rules.truncate(LINES_MAX);
        text.push_str(&format!(
            "\nRULES BY WHICH MOST WAS REFUSED ({} of {all})\n     refused  line  rule, site\n",
            rules.len()
        ));
        for (SiteRule { site, rule, line }, refused) in rules {
            let (site, rule) = (shown(site), shown(rule));
            text.push_str(&format!("{refused:>12}  {line:>4}  {rule}  {site}\n"));
        }
    }
}

fn count(tallies: &mut BTreeMap<String, RefusalTally>, key: &str, is_refused: bool) {
    // Nearly all are known, and `entry` would copy the key each time.
    match tallies.get_mut(key) {
        Some(tally) => tally.add(is_refused),
        None => {
            let mut tally = RefusalTally::default();
            tally.add(is_refused);
            tallies.insert(key.to_owned(), tally);
        }
    }
}

fn add_table(text: &mut String, title: &str, tallies: &BTreeMap<String, RefusalTally>) {
    let mut rows: Vec<_> = tallies.iter().collect();
    // The sort is stable, so those with as many stay in the order of their names.
    rows.sort_by_key(|(_, tally)| Reverse(tally.requests));
    rows.truncate(LINES_MAX);
    text.push_str(&format!(
        "\n{title} ({} of {})\n    requests       refused\n",
        rows.len(),
        tallies.len()
    ));
    for (name, RefusalTally { requests, refused }) in rows {
        let name = shown(name);
        text.push_str(&format!("{requests:>12}  {refused:>12}  {name}\n"));
    }
}

/// Writes a text that somebody else wrote so that it is inert, and not too long for
/// a line.
fn shown(text: &str) -> String {
    let escaped = text.chars().flat_map(|letter| match letter {
        ' '..='~' => vec![letter],
        _ => letter.escape_unicode().collect(),
    });
    escaped.take(VALUE_MAX).collect()
}
