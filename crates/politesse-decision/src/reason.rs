//! Verdict and reason of a decision, with their words in decision records,
//! metrics and answers.
//!
//! Programs read these words, so none is ever changed. Does not know how a
//! decision comes by them.

use std::fmt;

use politesse_robots::{Judgement, PauseRecord};
use serde::{Deserialize, Serialize};

/// Defines enums whose variants have a word each, the same one in decision
/// records, metrics and answers.
macro_rules! words {
    ($(
        $(#[$about:meta])+
        $Enum:ident { $($(#[$doc:meta])+ $Variant:ident = $word:literal,)+ }
    )+) => {$(
        $(#[$about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $Enum {
            $($(#[$doc])+ #[serde(rename = $word)] $Variant,)+
        }

        impl $Enum {
            /// Every value, in the order of the table.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$Variant),+];

            /// Returns its word in decision records, metrics and answers.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word,)+
                }
            }
        }

        impl fmt::Display for $Enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}
pub(super) use words;

words! {
    /// Verdict of a decision.
    Verdict {
        /// The URL may be fetched.
        Allow = "allow",
        /// The URL may not be fetched.
        Disallow = "disallow",
        /// The URL may be fetched, but not now: nothing was sent.
        Later = "later",
    }

    /// Reason of a verdict.
    Reason {
        /// A rule matched.
        Rule = "rule",
        /// There are rules for this crawler, and none matches.
        NoRule = "no_rule",
        /// No group is for this crawler, nor for everyone.
        NoGroup = "no_group",
        /// GET and HEAD of the file itself are always allowed (RFC 9309, section 2.2.2).
        RobotsTxt = "robots_txt",
        /// There is no robots.txt: a status from 400 to 499.
        Unavailable = "unavailable",
        /// A 401 or 403, where the operator counts that as a refusal.
        Restricted = "restricted",
        /// The rules are unknown: the robots.txt could not be fetched.
        Unreachable = "unreachable",
        /// A bound was met while deciding: the file is made to be slow.
        Undecided = "undecided",
        /// The operator denies it.
        Override = "override",
        /// The address may not be dialled.
        Egress = "egress",
        /// The operator pins a name in `User-Agent` to other clients.
        Identity = "identity",
        /// The site asks for a pause between two requests.
        CrawlDelay = "crawl_delay",
        /// The site asks for so many documents in so long.
        RequestRate = "request_rate",
        /// The site, or the operator, has it visited at other times of the day.
        VisitTime = "visit_time",
        /// The site answered with 429 or 503.
        BackOff = "backoff",
        /// The operator has no more sent in so long, or at a time.
        Ceiling = "ceiling",
        /// Too many requests wait.
        QueueFull = "queue_full",
        /// The proxy has more to do than it can.
        Overload = "overload",
    }
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
