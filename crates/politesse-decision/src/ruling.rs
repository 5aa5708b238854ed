//! Ruling: the verdict of robots.txt and the operator's overrides on an inquiry,
//! with the rule that it rests on.
//!
//! RFC 9309, section 2.2, and for the purposes of a crawler
//! draft-ietf-aipref-attach-05, section 3.1. Does not know decisions: `decide`
//! turns a ruling into one.

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
    /// Reason. If an override allows the URL, the reason that it set aside.
    pub reason: Reason,
    /// Rule that decided, if one matched.
    pub rule: Option<RuleCited>,
    /// Line number of the agent line that makes the rule bind the crawler.
    pub agent_line: Option<u32>,
    /// Agents of the group of the rule, or of all groups that bind; `["*"]` for the
    /// group of all crawlers.
    pub group: Vec<String>,
    /// Candidate token whose group binds.
    pub token: Option<ProductToken>,
    /// Reading of the path that was refused, if it is not the path as sent. If servers
    /// treat the path as sent like the path in the rule, the path in the rule's spelling.
    pub reading: Option<String>,
    /// Pace records of the groups that bind.
    pub pace_records: Option<Arc<PaceRecords>>,
    /// Override that reversed the verdict of robots.txt.
    pub overriding: Option<Box<Override>>,
    /// Denials of the crawler's declared purposes by the preferences of robots.txt or
    /// of the TDM file.
    pub denials: Vec<PurposeDenial>,
}

/// Rule as evidence: its line number and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCited {
    /// Line in robots.txt, from 1; `None` if a TDM file states it.
    pub line: Option<u32>,
    /// The line as written. For a TDM file, the reservation and its location.
    pub text: String,
}

impl RuleCited {
    /// Maximum length of the cited part of a line, in bytes. Each decision record
    /// contains its rule, and the record keeps the whole file as well.
    pub const BYTES_MAX: usize = 20 * 1024;

    fn new(line: Option<u32>, text: &str) -> Self {
        // Slicing inside a character would panic.
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
        // RFC 9309, section 2.2.2: the file itself is always allowed, because a
        // crawler that may not read the rules cannot obey them. The request still
        // keeps the pace that the site asks for.
        if inquiry.reads_robots_txt() && terms.dialect.exempts_robots_txt() {
            let by_rules = rule_on_path(ROBOTS_TXT, &inquiry.crawler, snapshot, terms);
            return Self {
                pace_records: by_rules.pace_records,
                ..Self::without_rule(Verdict::Allow, Reason::RobotsTxt)
            };
        }
        let mut readings = rule_on_readings(inquiry, snapshot, terms);
        let counts = readings.iter().position(Self::disallows).unwrap_or(0);
        // After the readings are ruled on: an override that allows must cover every
        // reading that refuses.
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
            pace_records: None,
            overriding: None,
            denials: Vec::new(),
        }
    }

    /// Returns the `Crawl-delay` of the groups that bind, in seconds.
    pub fn crawl_delay(&self) -> Option<f64> {
        let pause = self.pace_records.as_ref()?.crawl_delay?;
        Some(pause.as_secs_f64())
    }

    /// Reports whether an override allows the request although robots.txt disallows it.
    pub fn is_overridden(&self) -> bool {
        self.overriding.is_some() && self.verdict == Verdict::Allow
    }

    fn disallows(&self) -> bool {
        self.verdict == Verdict::Disallow
    }

    /// Adds the denials of the purposes for `path`, as `snapshot` states them, to a ruling
    /// that allows. Disallows if the denials suffice under `terms`.
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
            // Both describe the rule that allows, which no longer decides.
            agent_line: None,
            reading: None,
            denials,
            ..self
        }
    }

    /// Applies an override that matches. An override that agrees with robots.txt
    /// changes nothing: the rule of robots.txt is the better reason to give.
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
                pace_records: self.pace_records,
                reading,
                overriding,
                ..Self::without_rule(Verdict::Disallow, Reason::Override)
            },
            // A robots.txt never yields `Later`.
            (_, Verdict::Later)
            | (Action::Allow { .. }, Verdict::Allow)
            | (Action::Deny { .. }, Verdict::Disallow) => self,
        }
    }
}

/// Rules on each reading of the path, starting with the path as sent. Stops at the
/// first disallowed reading, unless the policy has overrides, which may concern the
/// remaining readings.
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
    // The path as sent comes first: if several readings are refused, the reason
    // given is the one that the standard requires.
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

/// Returns the statement to cite for the denials of a path: the first line of robots.txt
/// that denies, otherwise the rule of the TDM file.
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

/// Returns the path that the rules judge for a reading.
///
/// The engine exempts the bytes `/robots.txt` from all rules. A request for another
/// spelling of that path, or with a method other than GET and HEAD, does not read the
/// file ([`Inquiry::reads_robots_txt`]). It is judged by an equivalent spelling that the
/// engine does not exempt.
pub fn judged_path(reading: &str, dialect: Dialect) -> &str {
    if reading == ROBOTS_TXT && dialect.exempts_robots_txt() {
        "/robots%2Etxt"
    } else {
        reading
    }
}

/// Returns the readings of a path that are judged in addition to the path as sent.
pub(super) fn other_readings(path: &str, readings: Readings) -> Vec<String> {
    match readings {
        Readings::Sent => Vec::new(),
        Readings::Dots => reading::without_dot_segments(path).into_iter().collect(),
        Readings::Server => reading::of_servers(path),
    }
}

/// Returns the override that applies, with the reading that it matches if that is not
/// the path as sent.
fn find_override<'a>(
    inquiry: &Inquiry,
    readings: &[Ruling],
    terms: &'a PolicyTerms,
    at: Timestamp,
) -> Option<(&'a Override, Option<String>)> {
    // Most policies have no overrides, and computing canonical paths takes time.
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

/// Returns the reading that the ruling at index `at` is about. Returns `None` for the
/// first ruling: it is about the path as sent, even if its `reading` names the spelling
/// of a rule.
fn path_read(at: usize, ruling: &Ruling) -> Option<&str> {
    ruling.reading.as_deref().filter(|_| 0 < at)
}

fn rule_on_path(path: &str, crawler: &Crawler, snapshot: &Snapshot, terms: &PolicyTerms) -> Ruling {
    let is_unauthorized = matches!(snapshot.status, Some(401 | 403));
    match &snapshot.result {
        AccessResult::Successful(file) => {
            // Served forms are added after binding: they change how rules match,
            // not which group binds.
            let with_forms = |binding| with_served_forms(binding, terms.readings);
            let mut bindings = match terms.candidates {
                Candidates::First if crawler.unlisted().is_empty() => {
                    return judge(&with_forms(file.robots.binding(crawler)), path);
                }
                Candidates::First => vec![file.robots.binding(crawler)],
                Candidates::All => file.robots.bindings(crawler),
            };
            // A crawler that has proved its name must not gain access by sending
            // another one: the groups of both names must allow.
            bindings.extend(file.robots.unlisted_bindings(crawler));
            let bindings = bindings.into_iter().map(with_forms);
            judge_all(&bindings.collect::<Vec<_>>(), path)
        }
        // RFC 9309, section 2.3.1.3, allows access after any 4xx; the draft of 1996,
        // section 3.1, restricts it after 401 and 403.
        AccessResult::Unavailable if is_unauthorized && terms.refuses_unauthorized() => {
            Ruling::without_rule(Verdict::Disallow, Reason::Restricted)
        }
        AccessResult::Unavailable => Ruling::without_rule(Verdict::Allow, Reason::Unavailable),
        AccessResult::Unreachable(_) => {
            Ruling::without_rule(Verdict::Disallow, Reason::Unreachable)
        }
    }
}

/// Adds the forms of rules that servers read, if `readings` is `Server`.
pub fn with_served_forms(binding: Binding, readings: Readings) -> Binding {
    match readings {
        Readings::Sent | Readings::Dots => binding,
        Readings::Server => binding.as_served(),
    }
}

/// Rules by the groups of every candidate. The first binding that disallows decides,
/// otherwise the first binding. The pace records of all bindings apply.
fn judge_all(bindings: &[Binding], path: &str) -> Ruling {
    // Pace records bind even if the rules of their group do not decide: each group
    // asks for its pace independently of its rules.
    let pace_records = PaceRecords::all(bindings.iter().filter_map(Binding::pace));
    let disallows = |binding: &&Binding| !binding.judge(path).allows();
    let counts = bindings.iter().find(disallows).or(bindings.first());
    let ruling = match counts {
        Some(binding) => judge(binding, path),
        // Unreachable: there is always the binding of the group of all crawlers,
        // even if that has no rules.
        None => Ruling::without_rule(Verdict::Disallow, Reason::Undecided),
    };
    Ruling {
        pace_records,
        ..ruling
    }
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
        pace_records: binding.pace().cloned(),
        ..Ruling::without_rule(verdict, Reason::from(&judgement))
    }
}
