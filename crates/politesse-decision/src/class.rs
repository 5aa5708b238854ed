//! Class of a decision: the single outcome that pages count for a request.
//!
//! Each decision is counted in exactly one class. Report mode does not change the class:
//! a request that it let through is counted under its verdict. Does not know the names
//! and colours that pages give to the classes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::outcome::EndingClass;
use super::reason::{Reason, Verdict, words};
use super::record::StoredRecord;

words! {
    /// Class of a decision.
    DecisionClass {
        /// Sent and answered, or answered from the cached copy of robots.txt.
        Sent = "sent",
        /// Refused by robots.txt.
        Rule = "rule",
        /// Refused by the operator: an override, `egress` or `identity`.
        Operator = "operator",
        /// Refused because a preference of the site denies the purposes of the crawler.
        Preference = "preference",
        /// Fetched, and withheld from the crawler because of what the response states.
        Withheld = "withheld",
        /// Refused because robots.txt could not be fetched although its host answers.
        Unreachable = "unreachable",
        /// Put off by the proxy or by the site (429, 503).
        PutOff = "put_off",
        /// Refused by the site: 401, 402, 403, 451 or a bot challenge.
        RefusedBySite = "refused_by_site",
        /// Failed with an error, such as a host name that does not exist.
        Error = "error",
    }
}

impl DecisionClass {
    /// Returns the class that follows from the words of verdict and reason; `None` if the
    /// class depends on how the exchange ended.
    ///
    /// A caller must replace `Unreachable` with `Error` if the exchange ended with an
    /// error: there was no connection to the host.
    pub fn of_words(verdict: &str, reason: &str) -> Option<Self> {
        if verdict == Verdict::Later.as_str() {
            return Some(Self::PutOff);
        }
        // An unknown reason comes from another version. It refuses all the same.
        let refusal = Reason::of_word(reason).map_or(Self::Rule, Self::of_refusal);
        (verdict == Verdict::Disallow.as_str()).then_some(refusal)
    }

    /// Classes of refusals before a request: by robots.txt, the operator or a preference.
    pub const REFUSED: [Self; 4] = [
        Self::Rule,
        Self::Operator,
        Self::Preference,
        Self::Unreachable,
    ];

    /// Returns the class of a recorded decision. An exchange that has not ended yet counts
    /// as if it ended without an error.
    pub fn of_record(record: &StoredRecord) -> Self {
        let ruling = &record.ruling;
        match Self::of_words(&ruling.verdict, &ruling.reason) {
            Some(Self::Unreachable) if record.error.is_some() => Self::Error,
            Some(class) => class,
            None => match EndingClass::of_record(record) {
                EndingClass::Complete => Self::Sent,
                EndingClass::Failed => Self::Error,
                EndingClass::Withheld => Self::Withheld,
                EndingClass::RefusedBySite => Self::RefusedBySite,
                EndingClass::PutOffBySite => Self::PutOff,
            },
        }
    }

    /// Parses a comma-separated list of class words.
    ///
    /// # Errors
    ///
    /// A message that lists the valid words, if a word is not a class.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let words = || Self::ALL.map(Self::as_str).join(", ");
        let found: Option<Vec<_>> = text.split(',').map(Self::of_word).collect();
        found.ok_or_else(|| format!("one of {} is wanted, or several with commas", words()))
    }

    /// Returns the verdict of all decisions in the class; `None` if their verdicts differ.
    pub fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Rule | Self::Operator | Self::Preference | Self::Unreachable => {
                Some(Verdict::Disallow)
            }
            Self::Sent | Self::Withheld | Self::RefusedBySite => Some(Verdict::Allow),
            Self::PutOff | Self::Error => None,
        }
    }

    /// Returns the class of refusals for `reason`.
    pub fn of_refusal(reason: Reason) -> Self {
        match reason {
            Reason::Override | Reason::Egress | Reason::Identity => Self::Operator,
            Reason::Preference => Self::Preference,
            Reason::Unreachable => Self::Unreachable,
            Reason::Rule
            | Reason::NoRule
            | Reason::NoGroup
            | Reason::RobotsTxt
            | Reason::Unavailable
            | Reason::Restricted
            | Reason::Undecided => Self::Rule,
            // Reasons of pace delay a request and never refuse one.
            Reason::CrawlDelay
            | Reason::RequestRate
            | Reason::VisitTime
            | Reason::BackOff
            | Reason::Ceiling
            | Reason::QueueFull
            | Reason::Overload
            | Reason::Quota => Self::PutOff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_class_follows_from_verdict_and_reason() {
        use DecisionClass::{Operator, Preference, PutOff, Rule, Unreachable};
        for (verdict, reason, class) in [
            ("allow", "rule", None),
            ("disallow", "rule", Some(Rule)),
            ("disallow", "restricted", Some(Rule)),
            ("disallow", "undecided", Some(Rule)),
            ("disallow", "override", Some(Operator)),
            ("disallow", "egress", Some(Operator)),
            ("disallow", "identity", Some(Operator)),
            ("disallow", "preference", Some(Preference)),
            ("disallow", "unreachable", Some(Unreachable)),
            ("disallow", "of another version", Some(Rule)),
            ("later", "backoff", Some(PutOff)),
        ] {
            let found = DecisionClass::of_words(verdict, reason);
            assert_eq!(found, class, "{verdict} {reason}");
        }
    }
}
