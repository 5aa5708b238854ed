//! Verdict and reason of a decision: their words in decision records, metrics
//! and answers, and their texts for people.
//!
//! Programs read these words, so they never change. Does not know how a decision
//! arrives at its verdict.

use std::fmt;

use politesse_robots::{Judgement, PauseRecord};
use serde::{Deserialize, Serialize};

/// Defines enums in which each variant has one word, used alike in decision
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
            /// All values, in declaration order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$Variant),+];

            /// Returns the word used in decision records, metrics and answers.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word,)+
                }
            }

            /// Returns the value for a word of a record; `None` if the word is unknown, as
            /// one written by another version may be.
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == word)
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
        /// There are rules for this crawler, but none matches.
        NoRule = "no_rule",
        /// There is no group for this crawler, and none for all crawlers (`*`).
        NoGroup = "no_group",
        /// Robots.txt allows the URL, but denies the purposes of the crawler.
        Preference = "preference",
        /// GET and HEAD of the file itself are always allowed (RFC 9309, section 2.2.2).
        RobotsTxt = "robots_txt",
        /// There is no robots.txt: its status was from 400 to 499.
        Unavailable = "unavailable",
        /// The status of robots.txt was 401 or 403, which the operator or the dialect
        /// counts as a refusal.
        Restricted = "restricted",
        /// The rules are unknown: the robots.txt could not be fetched.
        Unreachable = "unreachable",
        /// Matching reached its limit: the file is built to be slow to match.
        Undecided = "undecided",
        /// An override of the operator denies the URL.
        Override = "override",
        /// `egress` prohibits connections to the address.
        Egress = "egress",
        /// The operator reserves a name in `User-Agent` for other clients.
        Identity = "identity",
        /// The site asks for a pause between two requests.
        CrawlDelay = "crawl_delay",
        /// The site limits the number of documents fetched in a period.
        RequestRate = "request_rate",
        /// The site or the operator limits visits to other hours of the day.
        VisitTime = "visit_time",
        /// The site answered with 429 or 503.
        BackOff = "backoff",
        /// The operator's limit on the rate, or on requests in flight, is reached.
        Ceiling = "ceiling",
        /// Too many requests are waiting.
        QueueFull = "queue_full",
        /// The proxy is overloaded.
        Overload = "overload",
        /// The client has used up the requests that the operator allows it in a period.
        Quota = "quota",
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
    /// Reasons for delaying a request. They affect when it starts, never whether it may.
    pub const OF_PACE: [Self; 8] = [
        Self::CrawlDelay,
        Self::RequestRate,
        Self::VisitTime,
        Self::BackOff,
        Self::Ceiling,
        Self::QueueFull,
        Self::Overload,
        Self::Quota,
    ];

    /// Returns a sentence that explains the reason to people, without a full stop.
    pub fn meaning(self) -> &'static str {
        self.texts().0
    }

    /// Returns the title of an answer that refuses or delays a request for this reason.
    pub fn title(self) -> &'static str {
        self.texts().1
    }

    /// Returns meaning and title.
    fn texts(self) -> (&'static str, &'static str) {
        const REFUSED: &str = "Refused by robots.txt";
        const BY_OPERATOR: &str = "Refused by the operator";
        const PAUSES: &str = "Not so fast: the site asks for pauses";
        match self {
            Self::Rule => ("a rule of robots.txt matched", REFUSED),
            Self::NoRule => ("no rule for this crawler matched", REFUSED),
            Self::NoGroup => (
                "robots.txt has no group for this crawler, nor for everyone",
                REFUSED,
            ),
            Self::Preference => (
                "robots.txt allows the URL, but not for the purposes of this crawler",
                "Refused for the purpose of the crawler",
            ),
            Self::RobotsTxt => ("/robots.txt itself is always allowed", REFUSED),
            Self::Unavailable => (
                "the site has no robots.txt (a status from 400 to 499)",
                REFUSED,
            ),
            Self::Restricted => (
                "401 or 403 for robots.txt counts as a refusal here",
                REFUSED,
            ),
            Self::Unreachable => (
                "robots.txt could not be fetched, so its rules are unknown",
                "Refused while robots.txt is unreachable",
            ),
            Self::Undecided => (
                "robots.txt is made so that matching would take too long",
                "Refused, since its robots.txt takes too long to judge",
            ),
            Self::Override => ("the operator denies it (robots.override)", BY_OPERATOR),
            Self::Egress => (
                "the address or port may not be dialled (egress)",
                "The address may not be dialled",
            ),
            Self::Identity => (
                "a name in User-Agent is pinned to other clients (crawler, client)",
                BY_OPERATOR,
            ),
            Self::CrawlDelay => ("the site asks for a pause between requests", PAUSES),
            Self::RequestRate => ("the site asks for fewer requests in a time", PAUSES),
            Self::VisitTime => (
                "the site, or the operator, wants visits at other hours",
                "Not at this time of the day",
            ),
            Self::BackOff => (
                "the site answered with 429 or 503 and is left alone for a while",
                "The site is left alone for a while",
            ),
            Self::Ceiling => (
                "the operator's limit of requests is reached",
                "Not so fast: the operator sets a limit",
            ),
            Self::QueueFull => (
                "too many requests wait already, most of them of this client or crawler",
                "Too many requests wait already",
            ),
            Self::Overload => (
                "the proxy has too much to do",
                "The proxy has too much to do",
            ),
            Self::Quota => (
                "the client has used up its quota of requests (proxy.per_client.rate)",
                "Not so fast: the operator sets a limit",
            ),
        }
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
            "quota",
        ];
        assert_eq!(words, contract);
        for reason in Reason::ALL {
            let json = serde_json::to_value(reason).unwrap();
            assert_eq!(json, reason.as_str());
            assert_eq!(Reason::of_word(reason.as_str()), Some(reason));
        }
    }
}
