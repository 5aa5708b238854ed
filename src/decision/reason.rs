//! The words of a decision: what it says, and why. They are the contract's.
//!
//! How a decision comes by them is `decision`'s, and `pace`'s where it is about
//! when.

use std::fmt;

use politesse_robots::PauseRecord;
use serde::{Deserialize, Serialize};

/// What a decision says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The URL may be fetched.
    Allow,
    /// It may not.
    Disallow,
    /// It may, but not now: nothing was sent.
    Later,
}

impl Verdict {
    /// The word for it in records, metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Disallow => "disallow",
            Self::Later => "later",
        }
    }
}

/// Why a decision says what it says; the words are those of the contract.
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
    /// It could not be found out.
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

impl Reason {
    /// Those that a request is put off for: they say when, not whether.
    pub const OF_PACE: [Self; 7] = [
        Self::CrawlDelay,
        Self::RequestRate,
        Self::VisitTime,
        Self::BackOff,
        Self::Ceiling,
        Self::QueueFull,
        Self::Overload,
    ];

    /// The word for it in records, metrics and answers.
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

    // Contract, section 3.
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
        for reason in Reason::OF_PACE {
            let json = serde_json::to_value(reason).unwrap();
            assert_eq!(json, reason.as_str());
        }
    }
}
