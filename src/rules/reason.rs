//! Why a decision says what it says.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// The site asks for a pause (`Crawl-delay`).
    CrawlDelay,
    /// The site asks for a rate (`Request-rate`).
    RequestRate,
    /// The site, or the operator, names other hours.
    VisitTime,
    /// The site asked for less (429, 503).
    #[serde(rename = "backoff")]
    BackOff,
    /// The operator's own limit.
    Ceiling,
    /// Too many wait already.
    QueueFull,
    /// More is under way than can be looked after.
    Overload,
}

impl Reason {
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
