//! Verdict and reason of a decision, with their words in records, metrics and
//! answers.
//!
//! Programs read these words, so none is ever changed. Does not know how a
//! decision comes by them.

use std::fmt;

use politesse_robots::{Judgement, PauseRecord};
use serde::{Deserialize, Serialize};

/// Verdict of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The URL may be fetched.
    Allow,
    /// The URL may not be fetched.
    Disallow,
    /// The URL may be fetched, but not now: nothing was sent.
    Later,
}

impl Verdict {
    /// Returns its word in records, metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Disallow => "disallow",
            Self::Later => "later",
        }
    }
}

/// Reason of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A rule matched.
    Rule,
    /// There are rules for this crawler, and none matches.
    NoRule,
    /// No group is for this crawler, nor for everyone.
    NoGroup,
    /// The file itself is always allowed (RFC 9309, section 2.2.2).
    RobotsTxt,
    /// There is no robots.txt: a status from 400 to 499.
    Unavailable,
    /// A 401 or 403, where the operator counts that as a refusal.
    Restricted,
    /// The rules are unknown: the robots.txt could not be fetched.
    Unreachable,
    /// A bound was met while deciding: the file is made to be slow.
    Undecided,
    /// The operator denies it.
    Override,
    /// The address may not be dialled.
    Egress,
    /// The site asks for a pause between two requests.
    CrawlDelay,
    /// The site asks for so many documents in so long.
    RequestRate,
    /// The site, or the operator, has it visited at other times of the day.
    VisitTime,
    /// The site answered with 429 or 503.
    // Records and metrics have this word, so it stays; `snake_case` would make
    // `back_off` of the variant.
    #[serde(rename = "backoff")]
    BackOff,
    /// The operator has no more sent in so long, or at a time.
    Ceiling,
    /// Too many requests wait.
    QueueFull,
    /// The proxy has more to do than it can.
    Overload,
}

impl From<PauseRecord> for Reason {
    fn from(record: PauseRecord) -> Self {
        match record {
            PauseRecord::CrawlDelay => Self::CrawlDelay,
            PauseRecord::RequestRate => Self::RequestRate,
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

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 17] = [
        Self::Rule,
        Self::NoRule,
        Self::NoGroup,
        Self::RobotsTxt,
        Self::Unavailable,
        Self::Restricted,
        Self::Unreachable,
        Self::Undecided,
        Self::Override,
        Self::Egress,
        Self::CrawlDelay,
        Self::RequestRate,
        Self::VisitTime,
        Self::BackOff,
        Self::Ceiling,
        Self::QueueFull,
        Self::Overload,
    ];

    /// Reasons for which a request is delayed. They say when, not whether.
    pub const OF_PACE: [Self; 7] = [
        Self::CrawlDelay,
        Self::RequestRate,
        Self::VisitTime,
        Self::BackOff,
        Self::Ceiling,
        Self::QueueFull,
        Self::Overload,
    ];

    /// Returns its word in records, metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::NoRule => "no_rule",
            Self::NoGroup => "no_group",
            Self::RobotsTxt => "robots_txt",
            Self::Unavailable => "unavailable",
            Self::Restricted => "restricted",
            Self::Unreachable => "unreachable",
            Self::Undecided => "undecided",
            Self::Override => "override",
            Self::Egress => "egress",
            Self::CrawlDelay => "crawl_delay",
            Self::RequestRate => "request_rate",
            Self::VisitTime => "visit_time",
            Self::BackOff => "backoff",
            Self::Ceiling => "ceiling",
            Self::QueueFull => "queue_full",
            Self::Overload => "overload",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: programs read these words.
    #[test]
    fn reasons_of_pace_have_the_words_of_the_contract() {
        let words = Reason::OF_PACE.map(Reason::as_str);
        let contract = [
            "crawl_delay",
            "request_rate",
            "visit_time",
            "backoff",
            "ceiling",
            "queue_full",
            "overload",
        ];
        assert_eq!(words, contract);
        for reason in Reason::ALL {
            let json = serde_json::to_value(reason).unwrap();
            assert_eq!(json, reason.as_str());
        }
    }
}
