//! Counts of the requests on one listener, for the summary of `politesse run`.
//!
//! Does not know how the counts are transferred or printed.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use politesse_decision::decide::{Evidence, Reason, RuleCited, Verdict};
use politesse_decision::outcome::EndingClass;
use politesse_decision::record::Effect;
use politesse_robots::origin::Target;

/// Maximum number of reasons counted separately. A crawler that follows every link of a
/// large site encounters thousands of rules.
const REASONS_MAX: usize = 1000;
/// Maximum number of reasons in [`Totals`], which is for people. The audit record has all
/// of them.
const REASONS_SHOWN: usize = 10;

/// Maximum number of characters kept of a rule, because an origin may write rules of any
/// length.
const RULE_CHARS_MAX: usize = 200;

/// Maximum number of delayed URLs that are tracked. Further ones are not counted.
const URLS_MAX: usize = 100_000;

/// Counts of one listener, updated by its connections.
#[derive(Debug, Default)]
pub struct Tally(Mutex<TallyCounts>);

/// Counts behind the lock of a [`Tally`].
#[derive(Debug, Default)]
struct TallyCounts {
    /// Totals without those that [`Tally::totals`] computes from the other fields.
    totals: Totals,
    /// Number of requests by treatment and reason.
    reasons: HashMap<(TallyAction, String), u64>,
    /// Hashes of the URLs whose last answer was 429.
    put_off: HashSet<u64>,
}

/// Counts of one listener, in the form that is transferred and printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Accepted connections.
    pub connections: u64,
    /// TLS handshakes that failed, nearly always because the client does not trust the
    /// certificate authority.
    pub handshakes_failed: u64,
    /// Allowed requests.
    pub allowed: u64,
    /// Requests refused by a rule, an override or `egress`.
    pub refused: u64,
    /// Requests forwarded in report mode that would otherwise have been refused.
    pub reported: u64,
    /// Allowed requests whose response was withheld from the command.
    pub withheld: u64,
    /// Sent requests that the site refused.
    pub refused_by_site: u64,
    /// Requests delayed by pacing, and not sent.
    pub put_off: u64,
    /// URLs whose last answer was 429 from proxy or origin, at most 100,000.
    pub urls_put_off: u64,
    /// Total waiting time of all requests, in milliseconds.
    pub wait_ms: u64,
    /// Longest waiting time of a single request, in milliseconds.
    pub longest_wait_ms: u64,
    /// Most frequent reasons why requests were not simply allowed.
    pub reasons: Vec<ReasonCount>,
    /// Number of reasons that are not listed.
    pub further_reasons: u64,
}

/// Number of requests treated in one way for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Treatment of the requests.
    pub action: TallyAction,
    /// The rule and its position, or the reason word. The text comes from an origin, so
    /// it may contain any character.
    pub reason: String,
    /// Number of requests.
    pub count: u64,
}

/// Treatment of a request that was not simply allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TallyAction {
    /// Answered with 429 or 503, and not sent.
    PutOff,
    /// Refused.
    Refuse,
    /// Forwarded in report mode although it would otherwise have been refused.
    Report,
}

impl Totals {
    /// Returns the number of requests that were decided.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.allowed + self.refused + self.reported + self.put_off
    }
}

impl Tally {
    /// Counts an accepted connection.
    pub fn add_connection(&self) {
        self.lock().totals.connections += 1;
    }

    /// Counts a failed TLS handshake.
    pub fn add_failed_handshake(&self) {
        self.lock().totals.handshakes_failed += 1;
    }

    /// Counts a recorded decision with its effect, and the time that its request waited.
    pub fn add(&self, evidence: &Evidence, effect: Effect, waited: Duration) {
        let wait_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let mut counts = self.lock();
        let totals = &mut counts.totals;
        totals.wait_ms = totals.wait_ms.saturating_add(wait_ms);
        totals.longest_wait_ms = totals.longest_wait_ms.max(wait_ms);
        let (count, action) = match (evidence.ruling.verdict, effect) {
            (Verdict::Allow, _) => {
                totals.allowed += 1;
                return;
            }
            (Verdict::Later, _) => (&mut totals.put_off, TallyAction::PutOff),
            (Verdict::Disallow, Effect::Reported) => (&mut totals.reported, TallyAction::Report),
            (Verdict::Disallow, Effect::Enforced | Effect::Overridden | Effect::Cached) => {
                (&mut totals.refused, TallyAction::Refuse)
            }
        };
        *count += 1;
        counts.add_reason(action, reason(evidence));
    }

    /// Counts the ending of a request for `target`, and tracks whether its answer was a
    /// 429.
    pub fn add_answer(&self, target: &Target, status: Option<u16>, class: EndingClass) {
        let text = target.to_string();
        let mut counts = self.lock();
        match class {
            EndingClass::Withheld => counts.totals.withheld += 1,
            EndingClass::RefusedBySite => counts.totals.refused_by_site += 1,
            EndingClass::PutOffBySite | EndingClass::Failed | EndingClass::Complete => {}
        }
        let url = counts.put_off.hasher().hash_one(text);
        if status != Some(StatusCode::TOO_MANY_REQUESTS.as_u16()) {
            counts.put_off.remove(&url);
        } else if counts.put_off.len() < URLS_MAX {
            counts.put_off.insert(url);
        }
    }

    /// Returns the current totals.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let counts = self.lock();
        let mut reasons: Vec<_> = counts.reasons.iter().collect();
        // Reasons with equal counts are sorted by text, so that two runs over the same
        // site print the same lines.
        reasons.sort_by_key(|&(key, count)| (Reverse(*count), key));
        let most_frequent = reasons.iter().take(REASONS_SHOWN);
        Totals {
            reasons: most_frequent
                .map(|((action, reason), count)| ReasonCount {
                    action: *action,
                    reason: reason.clone(),
                    count: **count,
                })
                .collect(),
            urls_put_off: counts.put_off.len() as u64,
            further_reasons: reasons.len().saturating_sub(REASONS_SHOWN) as u64,
            ..counts.totals.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, TallyCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TallyCounts {
    /// Counts a request under its treatment and reason.
    fn add_reason(&mut self, action: TallyAction, reason: String) {
        let mut key = (action, reason);
        // A reason without a line of its own is added to the last one, so that the total
        // stays correct.
        if REASONS_MAX <= self.reasons.len() && !self.reasons.contains_key(&key) {
            "other rules".clone_into(&mut key.1);
        }
        *self.reasons.entry(key).or_default() += 1;
    }
}

/// Returns the reason why a request was refused or delayed. The text is the same for all
/// requests refused by one rule.
fn reason(evidence: &Evidence) -> String {
    let ruling = &evidence.ruling;
    let word = ruling.reason.as_str();
    // A delay depends on the moment, not on a line of a file.
    if ruling.verdict == Verdict::Later {
        return word.to_owned();
    }
    let robots = evidence.snapshot.as_ref().map(|snapshot| &snapshot.url);
    match (&ruling.rule, robots) {
        (Some(RuleCited { line, text }), Some(robots)) => match line {
            Some(line) => format!("{} (line {line} of {robots})", shortened(text)),
            None => shortened(text),
        },
        (_, Some(robots)) if ruling.reason != Reason::Override => format!("{word} ({robots})"),
        _ => word.to_owned(),
    }
}

/// Returns the first [`RULE_CHARS_MAX`] characters of a rule, with `…` if that is not all.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(RULE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a crawler that meets a new rule with every request must not fill the memory
    // of the proxy.
    #[test]
    fn the_number_of_reasons_is_bounded() {
        let tally = Tally::default();
        for number in 0..3000 {
            let reason = format!("Disallow: /{number}");
            tally.lock().add_reason(TallyAction::Refuse, reason);
        }
        assert!(tally.lock().reasons.len() <= REASONS_MAX + 1);
        let totals = tally.totals();
        assert_eq!(totals.reasons.len(), REASONS_SHOWN);
        assert_eq!(totals.reasons[0].reason, "other rules");
        assert_eq!(totals.reasons[0].count, 2000);
        assert_eq!(totals.further_reasons, 991);
    }

    // Ours: a URL that was later fetched successfully does not count as delayed.
    #[test]
    fn the_last_answer_decides_whether_a_url_counts_as_put_off() {
        let tally = Tally::default();
        let url = |path: &str| format!("http://h.test{path}").parse::<Target>().unwrap();
        for (path, status) in [
            ("/a", 429),
            ("/b", 429),
            ("/b", 429),
            ("/a", 200),
            ("/c", 503),
            ("/d", 200),
            ("/d", 429),
        ] {
            tally.add_answer(&url(path), Some(status), EndingClass::Complete);
        }
        assert_eq!(tally.totals().urls_put_off, 2);
    }

    // Ours: an origin may write a rule of 20 KiB, of characters that take six bytes each
    // in the JSON sent to the other process.
    #[test]
    fn totals_fit_in_a_message_even_with_long_rules() {
        let tally = Tally::default();
        let rule = "\u{1}".repeat(20 * 1024);
        for number in 0..50 {
            let reason = format!("{} (line {number})", shortened(&rule));
            tally.lock().add_reason(TallyAction::Refuse, reason);
        }
        let message = serde_json::to_vec(&tally.totals()).unwrap();
        assert!(message.len() < 32 * 1024, "{}", message.len());
        assert_eq!(shortened("Disallow: /ä"), "Disallow: /ä");
    }

    // Ours: two runs over the same site print the same lines.
    #[test]
    fn reasons_with_equal_counts_have_a_fixed_order() {
        let tally = Tally::default();
        for reason in ["Disallow: /b", "Disallow: /a", "Disallow: /c"] {
            tally
                .lock()
                .add_reason(TallyAction::Refuse, reason.to_owned());
        }
        let shown = tally.totals().reasons;
        let shown: Vec<_> = shown.iter().map(|one| one.reason.as_str()).collect();
        assert_eq!(shown, ["Disallow: /a", "Disallow: /b", "Disallow: /c"]);
    }
}
