//! What a decision says and why, as values: verdict, reason, the rule with what
//! it stands under, and what the site asks for.
//!
//! How they are come by is `decision`'s.

use std::sync::Arc;

use super::overrides::{Action, Override};
use politesse_robots::PaceRecords;
use politesse_robots::crawler::ProductToken;
use politesse_robots::{Judgement, Rule};

pub use super::reason::{Reason, Verdict};

/// The answer of [`crate::decision::decide::decide`], with what it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// Allow, disallow or later.
    pub verdict: Verdict,
    /// Why; of leave that an override gave, the reason that it set aside.
    pub reason: Reason,
    /// The rule that counts, if one matched.
    pub rule: Option<RuleCited>,
    /// The agent line by which it binds.
    pub agent_line: Option<u32>,
    /// The agents of its group, or of the groups that bind; `["*"]` for the
    /// group of everyone.
    pub group: Vec<String>,
    /// The candidate that was bound.
    pub token: Option<ProductToken>,
    /// The reading of the path that was refused, if not the one sent.
    pub reading: Option<String>,
    /// What the groups that bind ask for; absent if nothing.
    pub asked: Option<Arc<PaceRecords>>,
    /// The override that turned the verdict of robots.txt.
    pub overriding: Option<Box<Override>>,
}

/// A rule as evidence: where it stands and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCited {
    /// Its line in robots.txt, from 1.
    pub line: u32,
    /// The line as written.
    pub text: String,
}

impl RuleCited {
    /// How many bytes of a line are cited; a record is kept of each decision,
    /// and its robots.txt beside it, whole.
    pub const BYTES_MAX: usize = 20 * 1024;
}

impl From<&Rule<'_>> for RuleCited {
    fn from(rule: &Rule<'_>) -> Self {
        let text = rule.text();
        let end = text.floor_char_boundary(Self::BYTES_MAX);
        let cut = if end < text.len() { "…" } else { "" };
        Self {
            line: rule.line(),
            text: format!("{}{cut}", &text[..end]),
        }
    }
}

impl Ruling {
    /// A ruling that rests on no rule.
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
        }
    }

    /// Seconds that the groups that bind ask for between two requests.
    pub fn crawl_delay(&self) -> Option<f64> {
        let pause = self.asked.as_ref()?.crawl_delay?;
        Some(pause.as_secs_f64())
    }

    /// Whether it allows what robots.txt disallows.
    pub fn is_overridden(&self) -> bool {
        self.overriding.is_some() && self.verdict == Verdict::Allow
    }

    /// What becomes of it by an override that fits. One that says the same
    /// changes nothing: what robots.txt says is the better reason.
    pub(super) fn overridden_by(self, entry: &Override, reading: Option<String>) -> Self {
        let overriding = Some(Box::new(entry.clone()));
        match (entry.action, self.verdict) {
            // It is no verdict of a robots.txt.
            (_, Verdict::Later) => self,
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
            (Action::Allow { .. }, Verdict::Allow) | (Action::Deny { .. }, Verdict::Disallow) => {
                self
            }
        }
    }
}

impl From<&Judgement<'_>> for Reason {
    fn from(judgement: &Judgement<'_>) -> Self {
        match judgement {
            Judgement::Rule(_) => Self::Rule,
            Judgement::NoRule => Self::NoRule,
            Judgement::NoGroup => Self::NoGroup,
            Judgement::RobotsTxt => Self::RobotsTxt,
            Judgement::Undecided => Self::Undecided,
        }
    }
}
