//! Ruling: what robots.txt and the operator's overrides say of an inquiry, and
//! by which rule.
//!
//! RFC 9309, section 2.2, and for the purposes of a crawler
//! draft-ietf-aipref-attach-05, section 3.1. Does not know what becomes of a
//! ruling: `decide` turns it into a decision.

use std::sync::Arc;

use jiff::Timestamp;
use politesse_directives::denials::PurposeDenial;

use super::inquiry::Inquiry;
use super::overrides::{self, Action, Override, OverrideQuery};
use super::policy::{Candidates, PolicyTerms, Readings};
use super::preferences::PreferenceTerms;
use super::snapshot::{AccessResult, Snapshot};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::ROBOTS_TXT;
use politesse_robots::{Binding, CanonicalPath, Dialect, PaceRecords, Rule, reading};

pub use super::reason::{Reason, Verdict};

/// Verdict on an inquiry, with the rule that it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// Allow, disallow or later.
    pub verdict: Verdict,
    /// Reason; where an override allows, the reason that it set aside.
    pub reason: Reason,
    /// Rule that counts, if one matched.
    pub rule: Option<RuleCited>,
    /// Agent line by which the rule binds.
    pub agent_line: Option<u32>,
    /// Agents of its group, or of the groups that bind; `["*"]` for the group of
    /// all crawlers.
    pub group: Vec<String>,
    /// Candidate token that was bound.
    pub token: Option<ProductToken>,
    /// Reading of the path that was refused, if not the one sent. Where servers take
    /// the path of the rule for the one sent, it is that path.
    pub reading: Option<String>,
    /// Pace records of the groups that bind.
    pub asked: Option<Arc<PaceRecords>>,
    /// Override that turned the verdict of robots.txt.
    pub overriding: Option<Box<Override>>,
    /// Denials of the purposes that are declared for the crawler, by the preferences
    /// of robots.txt.
    pub denials: Vec<PurposeDenial>,
}

/// Rule as evidence: where it stands and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCited {
    /// Line in robots.txt, from 1; `None` if a TDM file states it.
    pub line: Option<u32>,
    /// The line as written; of a TDM file the reservation and its location.
    pub text: String,
}

impl RuleCited {
    /// Longest part of a line that is cited, in bytes. Each decision is recorded
    /// with its rule, and the whole file stands beside it.
    pub const BYTES_MAX: usize = 20 * 1024;

    fn new(line: Option<u32>, text: &str) -> Self {
        // A slice that ends inside a character would panic.
        let end = text.floor_char_boundary(Self::BYTES_MAX);
        let cut = if end < text.len() { "…" } else { "" };
        Self {
            line,
            text: format!("{}{cut}", &text[..end]),
        }
    }
}

impl From<&Rule<'_>> for RuleCited {
    fn from(rule: &Rule<'_>) -> Self {
        Self::new(Some(rule.line()), &rule.text())
    }
}

impl Ruling {
    /// Rules on an inquiry by `terms` at the time `at`.
    pub(super) fn of(
        inquiry: &Inquiry,
        snapshot: &Snapshot,
        terms: &PolicyTerms,
        at: Timestamp,
    ) -> Self {
        // RFC 9309, section 2.2.2: the file itself is always allowed. A crawler
        // that may not read the rules cannot obey them. What is sent for it keeps
        // the site's pace all the same.
        if inquiry.reads_robots_txt() && terms.dialect.exempts_robots_txt() {
            let by_rules = rule_on_path(ROBOTS_TXT, &inquiry.crawler, snapshot, terms);
            return Self {
                asked: by_rules.asked,
                ..Self::without_rule(Verdict::Allow, Reason::RobotsTxt)
            };
        }
        let mut readings = rule_on_readings(inquiry, snapshot, terms);
        let counts = readings.iter().position(Self::disallows).unwrap_or(0);
        // Readings that refuse are known by now: an override that allows must
        // cover every one of them.
        let overriding = find_override(inquiry, &readings, terms, at);
        let ruling = readings.swap_remove(counts);
        match overriding {
            Some((entry, reading)) => ruling.overridden_by(entry, reading),
            None => ruling,
        }
    }

    pub(super) fn without_rule(verdict: Verdict, reason: Reason) -> Self {
        Self {
            verdict,
            reason,
            rule: None,
            agent_line: None,
            group: Vec::new(),
            token: None,
            reading: None,
            asked: None,
            overriding: None,
            denials: Vec::new(),
        }
    }

    /// Returns the seconds between two requests that the groups that bind ask
    /// for.
    pub fn crawl_delay(&self) -> Option<f64> {
        let pause = self.asked.as_ref()?.crawl_delay?;
        Some(pause.as_secs_f64())
    }

    /// Reports whether an override allows what robots.txt disallows.
    pub fn is_overridden(&self) -> bool {
        self.overriding.is_some() && self.verdict == Verdict::Allow
    }

    fn disallows(&self) -> bool {
        self.verdict == Verdict::Disallow
    }

    /// Adds denials of the purposes by the preferences of `snapshot` for `path` to a
    /// ruling that allows, and disallows if they suffice.
    fn with_denials(
        self,
        denials: Vec<PurposeDenial>,
        terms: &PreferenceTerms,
        snapshot: &Snapshot,
        path: &str,
    ) -> Self {
        if !terms.disallows(&denials) {
            return Self { denials, ..self };
        }
        Self {
            verdict: Verdict::Disallow,
            reason: Reason::Preference,
            rule: cited(&denials, snapshot, path),
            // Both were those of the rule that allows.
            agent_line: None,
            reading: None,
            denials,
            ..self
        }
    }

    /// Applies an override that fits. One that says the same as robots.txt
    /// changes nothing, since robots.txt is the better reason.
    fn overridden_by(self, entry: &Override, reading: Option<String>) -> Self {
        let overriding = Some(Box::new(entry.clone()));
        match (entry.action, self.verdict) {
            (Action::Allow { .. }, Verdict::Disallow) => Self {
                verdict: Verdict::Allow,
                overriding,
                ..self
            },
            (Action::Deny { .. }, Verdict::Allow) => Self {
                token: self.token,
                asked: self.asked,
                reading,
                overriding,
                ..Self::without_rule(Verdict::Disallow, Reason::Override)
            },
            // `Later` is no verdict of a robots.txt.
            (_, Verdict::Later)
            | (Action::Allow { .. }, Verdict::Allow)
            | (Action::Deny { .. }, Verdict::Disallow) => self,
        }
    }
}

/// Rules on each reading of the path, the one sent first. Stops at the first
/// that is disallowed, unless an override may be about those after it.
fn rule_on_readings(inquiry: &Inquiry, snapshot: &Snapshot, terms: &PolicyTerms) -> Vec<Ruling> {
    let rule_on = |path: &str| {
        let judged = judged_path(path, terms.dialect);
        let by_rules = rule_on_path(judged, &inquiry.crawler, snapshot, terms);
        match &terms.preferences {
            Some(preferences) if by_rules.verdict == Verdict::Allow => {
                let denials = preferences.denials(snapshot, &inquiry.crawler, judged);
                by_rules.with_denials(denials, preferences, snapshot, judged)
            }
            _ => by_rules,
        }
    };
    let sent = inquiry.target.path_and_query();
    // The path as sent comes first, so that of several refusals the one by the
    // standard is given as the reason.
    let mut rulings = vec![rule_on(sent)];
    for reading in other_readings(sent, terms.readings) {
        if rulings.last().is_some_and(Ruling::disallows) && terms.overrides.is_empty() {
            break;
        }
        let ruling = rule_on(&reading);
        rulings.push(Ruling {
            reading: Some(reading),
            ..ruling
        });
    }
    rulings
}

/// Returns the statement to cite for denials of a path: the first line of robots.txt,
/// else the rule of the TDM file.
fn cited(denials: &[PurposeDenial], snapshot: &Snapshot, path: &str) -> Option<RuleCited> {
    if let Some(line) = denials.iter().find_map(|denial| denial.line) {
        let text = snapshot.file()?.robots.line(line)?;
        return Some(RuleCited::new(Some(line), &text));
    }
    let stated = denials.iter().find(|denial| denial.is_by_tdm_file())?;
    let location = snapshot.tdm.as_ref()?.result.binding(path);
    let place = location.map_or_else(String::new, |rule| format!(" for {}", rule.location));
    let text = format!("{}{place} (tdmrep.json)", stated.statement);
    Some(RuleCited::new(None, &text))
}

/// Returns the path by which the rules judge a reading. The engine exempts the
/// bytes `/robots.txt` from all rules. A request that does not read the file
/// ([`Inquiry::reads_robots_txt`]), but another spelling of it or by another
/// method, is judged in a form that means the same.
pub fn judged_path(reading: &str, dialect: Dialect) -> &str {
    if reading == ROBOTS_TXT && dialect.exempts_robots_txt() {
        "/robots%2Etxt"
    } else {
        reading
    }
}

/// Returns the readings of a path that are judged beside the one sent.
pub(super) fn other_readings(path: &str, readings: Readings) -> Vec<String> {
    match readings {
        Readings::Sent => Vec::new(),
        Readings::Dots => reading::without_dot_segments(path).into_iter().collect(),
        Readings::Server => reading::of_servers(path),
    }
}

/// Returns the override that counts, with the reading that it fits by if that is
/// not the path as sent.
fn find_override<'a>(
    inquiry: &Inquiry,
    readings: &[Ruling],
    terms: &'a PolicyTerms,
    at: Timestamp,
) -> Option<(&'a Override, Option<String>)> {
    // Most policies have none, and canonical paths cost time.
    if terms.overrides.is_empty() {
        return None;
    }
    let sent = inquiry.target.path_and_query();
    let query = OverrideQuery {
        origin: &inquiry.target.origin,
        crawler: &inquiry.crawler,
        readings: readings
            .iter()
            .enumerate()
            .map(|(at, ruling)| overrides::JudgedPath {
                path: CanonicalPath::new(path_read(at, ruling).unwrap_or(sent)),
                disallowed: ruling.disallows(),
            })
            .collect(),
        at,
    };
    let (entry, index) = overrides::first(&terms.overrides, &query)?;
    let reading = path_read(index, readings.get(index)?);
    Some((entry, reading.map(str::to_owned)))
}

/// Returns the reading that the ruling at this place is about; `None` for the
/// first, which is about the path as sent, even if a rule refuses that by another
/// spelling.
fn path_read(at: usize, ruling: &Ruling) -> Option<&str> {
    ruling.reading.as_deref().filter(|_| 0 < at)
}

fn rule_on_path(path: &str, crawler: &Crawler, snapshot: &Snapshot, terms: &PolicyTerms) -> Ruling {
    let is_unauthorized = matches!(snapshot.status, Some(401 | 403));
    match &snapshot.result {
        AccessResult::Successful(file) => {
            // Forms are added after binding: they change how rules match, not
            // which group binds.
            let with_forms = |binding| with_served_forms(binding, terms.readings);
            let mut bindings = match terms.candidates {
                Candidates::First if crawler.unlisted().is_empty() => {
                    return judge(&with_forms(file.robots.binding(crawler)), path);
                }
                Candidates::First => vec![file.robots.binding(crawler)],
                Candidates::All => file.robots.bindings(crawler),
            };
            // A crawler that has proved its name may not go by another one to be
            // allowed more: the groups of both must allow.
            bindings.extend(file.robots.unlisted_bindings(crawler));
            let bindings = bindings.into_iter().map(with_forms);
            judge_all(&bindings.collect::<Vec<_>>(), path)
        }
        // RFC 9309, section 2.3.1.3, allows on any 4xx; the draft of 1996,
        // section 3.1, restricts on 401 and 403.
        AccessResult::Unavailable if is_unauthorized && terms.refuses_unauthorized() => {
            Ruling::without_rule(Verdict::Disallow, Reason::Restricted)
        }
        AccessResult::Unavailable => Ruling::without_rule(Verdict::Allow, Reason::Unavailable),
        AccessResult::Unreachable(_) => {
            Ruling::without_rule(Verdict::Disallow, Reason::Unreachable)
        }
    }
}

/// Adds the forms of rules that servers read, where readings are judged so.
pub fn with_served_forms(binding: Binding, readings: Readings) -> Binding {
    match readings {
        Readings::Sent | Readings::Dots => binding,
        Readings::Server => binding.as_served(),
    }
}

/// Rules by the groups of every candidate: the first that disallows counts, else
/// the first. The pace records of all of them count.
fn judge_all(bindings: &[Binding], path: &str) -> Ruling {
    // Pace of all groups, also of those whose rules do not count: each of them
    // asks for it.
    let asked = PaceRecords::all(bindings.iter().filter_map(Binding::pace));
    let disallows = |binding: &&Binding| !binding.judge(path).allows();
    let counts = bindings.iter().find(disallows).or(bindings.first());
    let ruling = match counts {
        Some(binding) => judge(binding, path),
        // There is always a binding, that of the group of all crawlers, even if
        // it holds no rule.
        None => Ruling::without_rule(Verdict::Disallow, Reason::Undecided),
    };
    Ruling { asked, ..ruling }
}

fn judge(binding: &Binding, path: &str) -> Ruling {
    let judgement = binding.judge(path);
    let rule = judgement.rule();
    let verdict = if judgement.allows() {
        Verdict::Allow
    } else {
        Verdict::Disallow
    };
    Ruling {
        rule: rule.map(RuleCited::from),
        reading: rule.and_then(|rule| rule.spelling_as_served(path)),
        agent_line: rule.and_then(|rule| binding.agent_line(rule)),
        group: rule.map_or_else(|| binding.names(), |rule| binding.names_of(rule)),
        token: rule
            .map_or_else(|| binding.token(), |rule| binding.token_of(rule))
            .cloned(),
        asked: binding.pace().cloned(),
        ..Ruling::without_rule(verdict, Reason::from(&judgement))
    }
}
