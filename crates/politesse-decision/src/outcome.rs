//! Outcome of a recorded request for its crawler: answered, or the reason why not. Also
//! the class in which the end of its exchange is counted.
//!
//! Does not know which other requests were made for the same URL.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::reason::{Reason, words};
use super::record::StoredRecord;

words! {
    /// Outcome of a request for its crawler.
    Outcome {
        /// The site answered. Redirects and pages that do not exist count as answers.
        Answered = "answered",
        /// Refused by a rule, by the operator, or because robots.txt was unreachable.
        Refused = "refused",
        /// Refused because a preference of the site denies the purposes of the crawler.
        Preference = "preference",
        /// Fetched, and withheld from the crawler because of what the response states.
        Withheld = "withheld",
        /// Put off, by the proxy or by the site (429, 503).
        PutOff = "put_off",
        /// Refused by the site, although robots.txt allows it: 401, 402, 403, 451 or a
        /// bot challenge.
        RefusedBySite = "refused_by_site",
        /// Failed with an error: there was no connection to the site, the site answered
        /// 5xx, or the client left before the end.
        Error = "error",
    }
}

impl Outcome {
    /// Returns the outcome of a recorded request.
    pub fn of(record: &StoredRecord) -> Self {
        let ruling = &record.ruling;
        // In report mode a refused request was sent anyway.
        let is_enforced = ruling.effect == "enforced";
        match ruling.verdict.as_str() {
            "disallow" if is_enforced && ruling.reason == Reason::Preference.as_str() => {
                Self::Preference
            }
            "disallow" if is_enforced => Self::Refused,
            "later" if is_enforced => Self::PutOff,
            _ => Self::of_exchange(record),
        }
    }

    fn of_exchange(record: &StoredRecord) -> Self {
        match EndingClass::of_record(record) {
            EndingClass::Withheld => return Self::Withheld,
            EndingClass::RefusedBySite => return Self::RefusedBySite,
            EndingClass::PutOffBySite => return Self::PutOff,
            EndingClass::Failed | EndingClass::Complete => {}
        }
        match (record.status, record.error.as_deref()) {
            (Some(503), Some(EndingClass::LOST_TURN)) => Self::Error,
            // Put off by the proxy: nothing was sent.
            (Some(429 | 503), _) => Self::PutOff,
            (Some(status), None) if status < 500 => Self::Answered,
            // An exchange has no ending if the proxy stopped during it.
            _ => Self::Error,
        }
    }
}

/// Class in which the end of an exchange is counted. Each exchange has one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndingClass {
    /// The response was passed on. Any status counts that no other class covers.
    Complete,
    /// The exchange ended with an error.
    Failed,
    /// The response was fetched and withheld from the client.
    Withheld,
    /// The site refused the request: it answered 401, 402, 403 or 451, or with a bot
    /// challenge, whether or not the client read the body.
    RefusedBySite,
    /// The site put the request off: it answered 429 or 503, whether or not the client
    /// read the body.
    PutOffBySite,
}

impl EndingClass {
    /// Error term of an exchange whose response was withheld from the client.
    pub const WITHHELD: &str = "withheld";
    /// Error term of an exchange that the site answered with a bot challenge.
    pub const BOT_CHALLENGE: &str = "bot_challenge";
    /// Error term of an exchange that the proxy itself answered with 503 because the
    /// request lost its turn.
    pub const LOST_TURN: &str = "proxy_internal_error";

    /// Returns the class of an exchange that ended with this status and error term, and
    /// whose request was sent `sent` times.
    pub fn of(status: Option<u16>, error: Option<&str>, sent: u64) -> Self {
        match (status, error) {
            (_, Some(Self::WITHHELD)) => Self::Withheld,
            (_, Some(Self::BOT_CHALLENGE)) => Self::RefusedBySite,
            // The proxy answers 403 as well, but only to requests that it does not send.
            (Some(401 | 402 | 403 | 451), _) if 0 < sent => Self::RefusedBySite,
            (Some(503), Some(Self::LOST_TURN)) => Self::Failed,
            (Some(429 | 503), _) if 0 < sent => Self::PutOffBySite,
            (_, Some(_)) => Self::Failed,
            (_, None) => Self::Complete,
        }
    }

    /// Returns the class of the exchange of `record`; `Complete` if it has not ended yet.
    pub fn of_record(record: &StoredRecord) -> Self {
        let sent = record.sent.unwrap_or_default();
        Self::of(record.status, record.error.as_deref(), sent)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::record::{StoredPolicy, StoredRuling};

    fn record(verdict: &str, effect: &str) -> StoredRecord {
        StoredRecord {
            node: None,
            seq: 1,
            at: Timestamp::UNIX_EPOCH,
            client: Arc::default(),
            crawler: Arc::default(),
            method: "GET".into(),
            url: "http://site.test/".to_owned(),
            ruling: Arc::new(StoredRuling {
                verdict: verdict.to_owned(),
                effect: effect.to_owned(),
                ..StoredRuling::default()
            }),
            reading: None,
            snapshot: None,
            policy: Arc::new(StoredPolicy::new("")),
            wait_ms: 0,
            status: None,
            sent: Some(u64::from(verdict == "allow" || effect == "reported")),
            directives: None,
            bytes: None,
            error: None,
        }
    }

    #[test]
    fn a_refusal_by_a_preference_has_its_own_outcome() {
        let row = record("disallow", "enforced");
        let ruling = StoredRuling {
            reason: "preference".to_owned(),
            ..StoredRuling::clone(&row.ruling)
        };
        let ruling = Arc::new(ruling);
        assert_eq!(
            Outcome::of(&StoredRecord { ruling, ..row }),
            Outcome::Preference
        );
    }

    macro_rules! outcomes {
        ($($name:ident: $verdict:literal $effect:literal $status:expr, $error:expr => $outcome:ident;)+) => {
            $(
                #[test]
                fn $name() {
                    let row = StoredRecord {
                        status: $status,
                        error: $error.map(Arc::from),
                        ..record($verdict, $effect)
                    };
                    assert_eq!(Outcome::of(&row), Outcome::$outcome);
                }
            )+
        };
    }

    const NO_ERROR: Option<&str> = None;

    // Ours: which pages a crawl did not get, and why (docs/asking.md).
    outcomes! {
        a_page_is_answered: "allow" "enforced" Some(200), NO_ERROR => Answered;
        a_redirect_is_an_answer: "allow" "enforced" Some(301), NO_ERROR => Answered;
        an_unchanged_page_is_an_answer: "allow" "enforced" Some(304), NO_ERROR => Answered;
        a_page_that_does_not_exist_is_an_answer: "allow" "enforced" Some(404), NO_ERROR => Answered;
        a_copy_of_robots_txt_is_an_answer: "allow" "cached" Some(200), NO_ERROR => Answered;
        an_override_is_an_answer: "allow" "overridden" Some(200), NO_ERROR => Answered;
        a_rule_refuses: "disallow" "enforced" Some(403), Some("http_request_denied") => Refused;
        report_mode_forwards_what_a_rule_refuses: "disallow" "reported" Some(200), NO_ERROR => Answered;
        a_full_queue_puts_off: "later" "enforced" Some(429), Some("http_request_denied") => PutOff;
        report_mode_forwards_what_it_would_put_off: "later" "reported" Some(200), NO_ERROR => Answered;
        a_429_of_the_site_puts_off: "allow" "enforced" Some(429), NO_ERROR => PutOff;
        a_503_of_the_site_puts_off: "allow" "enforced" Some(503), NO_ERROR => PutOff;
        a_retry_that_was_given_up_is_put_off: "allow" "enforced" Some(429), Some("retried") => PutOff;
        a_lost_turn_is_an_error: "allow" "enforced" Some(503), Some("proxy_internal_error") => Error;
        a_login_is_a_refusal_of_the_site: "allow" "enforced" Some(401), NO_ERROR => RefusedBySite;
        a_price_is_a_refusal_of_the_site: "allow" "enforced" Some(402), NO_ERROR => RefusedBySite;
        a_403_of_the_site_is_its_refusal: "allow" "enforced" Some(403), NO_ERROR => RefusedBySite;
        legal_reasons_are_a_refusal_of_the_site: "allow" "enforced" Some(451), NO_ERROR => RefusedBySite;
        a_refusal_counts_even_if_the_client_does_not_read_it: "allow" "enforced" Some(403), Some("client_gone") => RefusedBySite;
        report_mode_forwards_what_the_site_refuses: "disallow" "reported" Some(403), NO_ERROR => RefusedBySite;
        a_challenge_is_a_refusal_of_the_site: "allow" "enforced" Some(202), Some("bot_challenge") => RefusedBySite;
        a_challenge_with_503_puts_nothing_off: "allow" "enforced" Some(503), Some("bot_challenge") => RefusedBySite;
        a_withheld_page_is_no_refusal_of_the_site: "allow" "enforced" Some(403), Some("withheld") => Withheld;
        a_broken_site_is_an_error: "allow" "enforced" Some(500), NO_ERROR => Error;
        a_refused_connection_is_an_error: "allow" "enforced" Some(502), Some("connection_refused") => Error;
        a_body_that_is_cut_is_an_error: "allow" "enforced" Some(200), Some("http_response_incomplete") => Error;
        a_client_that_leaves_is_an_error: "allow" "enforced" None, Some("client_gone") => Error;
        an_exchange_without_an_end_is_an_error: "allow" "enforced" None, NO_ERROR => Error;
    }
}
