//! Decision record: the evidence of one decision, as one row of the audit record.
//!
//! Invariant 2 (ARCHITECTURE.md): a decision record names the inquiry, the snapshot
//! and the policy. From these, [`again`](super::again) must reach the same answer
//! offline, even years later. Does not know how rows are stored.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::label::CrawlLabel;
use super::preferences::PreferenceTerms;
use super::reason::words;
use super::snapshot::{AccessResult, Snapshot};
use crate::decide::{Decision, Evidence, Ruling};
use politesse_directives::denials::PurposeDenial;
use politesse_robots::crawler::{Crawler, ProductToken};

words! {
    /// Effect of a decision on its request.
    Effect {
        /// The decision was enforced.
        Enforced = "enforced",
        /// The decision disallows, but report mode forwarded the request.
        Reported = "reported",
        /// An override allowed a request that robots.txt disallows.
        Overridden = "overridden",
        /// The request was answered from the cached copy of /robots.txt; nothing was sent.
        Cached = "cached",
    }
}

impl Effect {
    /// Returns the effect that follows from `evidence` alone.
    pub fn of(evidence: &Evidence) -> Self {
        if evidence.ruling.is_overridden() {
            Self::Overridden
        } else if evidence.is_reported() {
            Self::Reported
        } else {
            Self::Enforced
        }
    }

    /// Returns the effect with this word if it sets the verdict of robots.txt aside:
    /// `Reported` or `Overridden`.
    pub fn exception(word: &str) -> Option<Self> {
        [Self::Reported, Self::Overridden]
            .into_iter()
            .find(|effect| effect.as_str() == word)
    }
}

/// Decision to be recorded.
#[derive(Debug, Clone)]
pub struct Record {
    /// Address that the request came from.
    pub client: IpAddr,
    /// Name that the client has proved with a credential.
    pub credential: Option<Arc<str>>,
    /// Label of the crawl.
    pub label: Option<CrawlLabel>,
    /// Time that the request waited for the decision.
    pub waited: Duration,
    /// Effect of the decision.
    pub effect: Effect,
    /// Input and result of the decision.
    pub evidence: Arc<Evidence>,
}

impl Record {
    /// Creates the decision record of `decision`. The request came from `client` and has
    /// waited for `waited`.
    pub fn of(decision: &Decision, client: IpAddr, waited: Duration) -> Self {
        Self {
            client,
            credential: None,
            label: None,
            waited,
            effect: Effect::of(decision.evidence()),
            evidence: Arc::clone(decision.evidence()),
        }
    }
}

/// Directives that a response stated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Directives and preferences in force for the crawler, as in the annotation field.
    pub directives: String,
    /// Statements that the directives follow from, as written: a JSON array of objects
    /// with `by` and `said`. Absent if there were none.
    pub said: Option<String>,
    /// Denials of the crawler's purposes by the directives and the preferences.
    pub denials: Vec<StoredDenial>,
}

/// End of an exchange, which completes its decision record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeEnd {
    /// Status that the crawler got, if it got a response.
    pub status: Option<u16>,
    /// Number of times that the request was handed to a connection, and so the most
    /// times that the origin can have seen it.
    pub sent: u32,
    /// Directives of the origin's response, if there was one.
    pub seen: Option<Seen>,
    /// Number of bytes of the body passed on.
    pub bytes: u64,
    /// Error that ended the exchange: a word of RFC 9209, section 2.3, or one of ours
    /// (docs/reference/reasons.md).
    pub error: Option<&'static str>,
}

/// Decision record as read back from the store. Records share the values that the
/// store keeps only once.
#[derive(Debug, Clone)]
pub struct StoredRecord {
    /// Node that made the decision, if the records of several nodes are read together.
    pub node: Option<Arc<str>>,
    /// Number of the row, from 1.
    pub seq: u64,
    /// Time of the decision.
    pub at: Timestamp,
    /// The client.
    pub client: Arc<StoredClient>,
    /// The crawler.
    pub crawler: Arc<StoredCrawler>,
    /// The method.
    pub method: Arc<str>,
    /// The URL.
    pub url: String,
    /// The ruling, as words and values.
    pub ruling: Arc<StoredRuling>,
    /// Reading of the path that was refused, if it is not the path as sent.
    pub reading: Option<String>,
    /// Snapshot of the origin; absent if the decision did not need robots.txt.
    pub snapshot: Option<Arc<RecordedSnapshot>>,
    /// Policy of the operator.
    pub policy: Arc<StoredPolicy>,
    /// Time that the request waited, in milliseconds.
    pub wait_ms: u64,
    /// Status of the response to the client.
    pub status: Option<u16>,
    /// Number of times that the request was handed to a connection; absent while
    /// the exchange has not ended.
    pub sent: Option<u64>,
    /// Directives of the origin's response.
    pub directives: Option<Arc<Seen>>,
    /// Number of bytes of the body passed on.
    pub bytes: Option<u64>,
    /// Error that ended the exchange.
    pub error: Option<Arc<str>>,
}

impl StoredRecord {
    /// Builds the record of a decision that is not recorded, with the values that its row
    /// would have at the time of the decision. Number and client are empty.
    pub fn unrecorded(evidence: &Evidence) -> Self {
        let (inquiry, ruling) = (&evidence.inquiry, &evidence.ruling);
        let crawler = &inquiry.crawler;
        let names = StoredCrawler::names_of(crawler).map(str::to_owned);
        let user_agent = crawler.user_agent().map(str::to_owned);
        let snapshot = evidence.snapshot.as_deref();
        Self {
            node: None,
            seq: 0,
            at: evidence.at,
            client: Arc::default(),
            crawler: Arc::new(StoredCrawler::new(names.collect(), user_agent)),
            method: inquiry.method.as_str().into(),
            url: inquiry.target.to_string(),
            ruling: Arc::new(StoredRuling::of(evidence)),
            reading: ruling.reading.clone(),
            snapshot: snapshot.map(|snapshot| Arc::new(RecordedSnapshot::of(snapshot))),
            policy: Arc::new(StoredPolicy::new(evidence.policy.json())),
            wait_ms: 0,
            status: None,
            sent: None,
            directives: None,
            bytes: None,
            error: None,
        }
    }

    /// Placeholder for a redacted URL and for a redacted client address. It parses as
    /// neither.
    pub const REDACTED: &str = "(redacted)";

    /// Returns the placeholder for a redacted client.
    pub fn redacted_client() -> Arc<StoredClient> {
        Arc::new(StoredClient {
            address: Self::REDACTED.to_owned(),
            ..StoredClient::default()
        })
    }

    /// Returns the denials of the crawler's purposes by robots.txt and by the response.
    /// Each statement appears once for each purpose.
    pub fn denials(&self) -> Vec<StoredDenial> {
        let mut denials = self.ruling.denials.clone();
        let stated = self.directives.as_deref();
        denials.extend(stated.map_or(&[][..], |seen| &seen.denials).iter().cloned());
        let mut known = BTreeSet::new();
        denials.retain(|denial| known.insert((denial.purpose.clone(), denial.statement.clone())));
        denials
    }

    /// Reports whether client and URL were redacted.
    pub fn is_redacted(&self) -> bool {
        self.url == Self::REDACTED
    }
}

/// Client as read back from the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredClient {
    /// Address that the request came from.
    pub address: String,
    /// Name that the client has proved with a credential.
    pub credential: Option<String>,
}

/// Crawler as read back from the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredCrawler {
    /// The candidate tokens, in order.
    pub candidates: Vec<String>,
    /// Names in the User-Agent of a crawler with a credential that the operator has not
    /// listed for it.
    pub unlisted: Vec<String>,
    /// The User-Agent that the request sent.
    pub user_agent: Option<String>,
    /// Label of the crawl.
    pub label: Option<String>,
}

impl StoredCrawler {
    /// Separates the candidates from the unlisted names in the stored list. No product
    /// token is empty, so the empty text is free for this.
    const SEPARATOR: &str = "";

    /// Lists the names of `crawler` in the stored order: the candidates, then a separator
    /// and the unlisted names if there are any.
    pub fn names_of(crawler: &Crawler) -> impl Iterator<Item = &str> {
        let unlisted = crawler.unlisted();
        let separator = (!unlisted.is_empty()).then_some(Self::SEPARATOR);
        let candidates = crawler.candidates().iter().map(ProductToken::as_str);
        let behind = unlisted.iter().map(ProductToken::as_str);
        candidates.chain(separator).chain(behind)
    }

    /// Creates the crawler, without a label, from stored names in the order of
    /// [`StoredCrawler::names_of`].
    pub fn new(mut names: Vec<String>, user_agent: Option<String>) -> Self {
        let separator = names.iter().position(|name| name == Self::SEPARATOR);
        let mut behind = separator.map(|at| names.split_off(at));
        Self {
            candidates: names,
            unlisted: behind
                .as_mut()
                .map_or_else(Vec::new, |names| names.split_off(1)),
            user_agent,
            label: None,
        }
    }
}

/// Policy as read back from the store.
#[derive(Debug, Clone)]
pub struct StoredPolicy {
    /// JSON of the policy.
    pub json: String,
    /// SHA-256 of `json`.
    pub sha256: Digest,
    /// Purposes of the crawler that the policy is for, and the treatment if they are
    /// denied; `None` if none are declared, or if the JSON is no policy.
    pub preferences: Option<PreferenceTerms>,
}

/// Part of a policy's JSON that states the purposes.
#[derive(Deserialize)]
struct DeclaredPurposes {
    preferences: Option<PreferenceTerms>,
}

impl StoredPolicy {
    /// Creates the stored policy from its JSON.
    pub fn new(json: &str) -> Self {
        let declared = serde_json::from_str::<DeclaredPurposes>(json).ok();
        Self {
            sha256: Digest::of(json.as_bytes()),
            json: json.to_owned(),
            preferences: declared.and_then(|declared| declared.preferences),
        }
    }
}

/// Ruling as stored. A repeated decision must reproduce it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredRuling {
    /// `allow`, `disallow` or `later`.
    pub verdict: String,
    /// Word of the reason.
    pub reason: String,
    /// Word of the effect.
    pub effect: String,
    /// Line of the rule, from 1.
    pub line: Option<u32>,
    /// Text of the rule.
    pub rule: Option<String>,
    /// Agents of the group.
    pub group: Vec<String>,
    /// Token whose group binds, otherwise the first candidate.
    pub crawler: Option<String>,
    /// Denials of the crawler's purposes that were known before the request.
    pub denials: Vec<StoredDenial>,
}

/// Denial of a purpose, as stored and as shown in rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDenial {
    /// Denied purpose (`train-ai`).
    pub purpose: String,
    /// Statement that denies the purpose (`tdm-reservation=1`).
    pub statement: String,
    /// Letters of the places that state the denial, as in the annotation (`src`).
    pub src: String,
    /// Line of robots.txt that states the denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl From<&PurposeDenial> for StoredDenial {
    fn from(denial: &PurposeDenial) -> Self {
        Self {
            purpose: denial.purpose.to_string(),
            statement: denial.statement.to_string(),
            src: denial.sources.clone(),
            line: denial.line,
        }
    }
}

impl StoredRuling {
    /// Creates the stored form of a decision's ruling, with the effect that
    /// follows from the evidence alone.
    pub fn of(evidence: &Evidence) -> Self {
        let ruling = &evidence.ruling;
        Self {
            verdict: ruling.verdict.as_str().to_owned(),
            reason: ruling.reason.as_str().to_owned(),
            effect: Effect::of(evidence).as_str().to_owned(),
            line: ruling.rule.as_ref().and_then(|rule| rule.line),
            rule: ruling.rule.as_ref().map(|rule| rule.text.clone()),
            group: ruling.group.clone(),
            crawler: bound_token(evidence).map(ToString::to_string),
            denials: ruling.denials.iter().map(StoredDenial::from).collect(),
        }
    }

    /// Returns the effect if it sets the verdict of robots.txt aside: `Reported` or
    /// `Overridden`.
    pub fn exception(&self) -> Option<Effect> {
        Effect::exception(&self.effect)
    }

    /// Reports whether this is the stored form of the ruling in `evidence`.
    ///
    /// Does not distinguish `Enforced` from `Cached`: the evidence does not tell whether
    /// the copy of robots.txt answered the request.
    pub fn is_of(&self, evidence: &Evidence) -> bool {
        let Ruling {
            verdict,
            reason,
            rule,
            group,
            denials,
            ..
        } = &evidence.ruling;
        let (line, text) = (self.line, self.rule.as_deref());
        let exception = Some(Effect::of(evidence)).filter(|effect| *effect != Effect::Enforced);
        self.verdict == verdict.as_str()
            && self.reason == reason.as_str()
            && line == rule.as_ref().and_then(|rule| rule.line)
            && text == rule.as_ref().map(|rule| rule.text.as_str())
            && self.group == *group
            && self.crawler.as_deref() == bound_token(evidence).map(ProductToken::as_str)
            && self.exception() == exception
            && denials
                .iter()
                .map(StoredDenial::from)
                .eq(self.denials.iter().cloned())
    }
}

/// Returns the token whose group binds, otherwise the first candidate.
pub fn bound_token(evidence: &Evidence) -> Option<&ProductToken> {
    let bound = evidence.ruling.token.as_ref();
    bound.or_else(|| evidence.inquiry.crawler.token())
}

/// Snapshot of a decision record, as read back from the store. The body is stored
/// separately under its digest.
#[derive(Debug, Clone)]
pub struct RecordedSnapshot {
    /// Origin whose robots.txt this is.
    pub origin: String,
    /// Product token that the file was fetched for.
    pub token: Option<String>,
    /// URL that was requested last.
    pub url: String,
    /// URLs whose redirects led to `url`, in order.
    pub hops: Vec<String>,
    /// Status that ended the fetch.
    pub status: Option<u16>,
    /// Time of the answer.
    pub fetched_at: Timestamp,
    /// Time at which the snapshot expired.
    pub expires_at: Timestamp,
    /// `successful`, `unavailable` or `unreachable`.
    pub result: String,
    /// Word of the cause if robots.txt was unreachable, including when an earlier file
    /// was used in its place.
    pub cause: Option<String>,
    /// SHA-256 of the body, if successful.
    pub sha256: Option<Digest>,
    /// Charset that the response declares, if it is not UTF-8.
    pub charset: Option<String>,
    /// Answer for the TDM file, as JSON, if it was requested.
    pub tdm: Option<String>,
}

impl RecordedSnapshot {
    /// Creates the recorded form of `snapshot`.
    pub fn of(snapshot: &Snapshot) -> Self {
        let file = snapshot.file();
        let charset = file.and_then(|file| file.robots.source().charset);
        Self {
            origin: snapshot.key.origin.to_string(),
            token: snapshot.key.token.as_ref().map(ToString::to_string),
            url: snapshot.url.clone(),
            hops: snapshot.hops.clone(),
            status: snapshot.status,
            fetched_at: snapshot.fetched_at,
            expires_at: snapshot.expires_at,
            result: result_word(&snapshot.result).to_owned(),
            cause: snapshot.cause().map(|cause| cause.as_str().to_owned()),
            sha256: file.map(|file| file.digest),
            charset: charset.map(|charset| charset.to_string()),
            tdm: snapshot.tdm.as_ref().map(|tdm| tdm.json()),
        }
    }
}

/// Returns the word for an access result in the store.
pub fn result_word(result: &AccessResult) -> &'static str {
    match result {
        AccessResult::Successful(_) => "successful",
        AccessResult::Unavailable => "unavailable",
        AccessResult::Unreachable(_) => "unreachable",
    }
}
