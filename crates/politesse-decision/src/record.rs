//! Decision record: the evidence of one decision as the audit record stores it
//! in a row.
//!
//! Invariant 2 (ARCHITECTURE.md): a decision record names the inquiry, the
//! snapshot and the policy, so that [`again`](super::again) must come to the same
//! answer, years later and offline. Does not know how rows are stored.

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
        /// The decision disallows, and in report mode the request was forwarded.
        Reported = "reported",
        /// An override allowed what robots.txt disallows.
        Overridden = "overridden",
        /// The answer was our copy of /robots.txt; nothing was sent.
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

    /// Returns the effect with this word, if it is one by which the verdict of
    /// robots.txt was set aside.
    pub fn exception(word: &str) -> Option<Self> {
        [Self::Reported, Self::Overridden]
            .into_iter()
            .find(|effect| effect.as_str() == word)
    }
}

/// Decision that is about to be recorded.
#[derive(Debug, Clone)]
pub struct Record {
    /// Address that the request came from.
    pub client: IpAddr,
    /// Name that the client has proved by a credential.
    pub credential: Option<Arc<str>>,
    /// Label of the crawl.
    pub label: Option<CrawlLabel>,
    /// Time that the request waited for the decision.
    pub waited: Duration,
    /// Effect of the decision.
    pub effect: Effect,
    /// The decision, and what it was made from.
    pub evidence: Arc<Evidence>,
}

impl Record {
    /// Creates the decision record of `decision` for a request from `client`
    /// that has waited for `waited`.
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
    /// Directives in force for the crawler, as in the annotation field, with the
    /// preferences.
    pub directives: String,
    /// Statements that they follow from, as written: a JSON array of objects with
    /// `by` and `said`. Absent if there were none.
    pub said: Option<String>,
    /// Denials of the crawler's purposes by the directives and the preferences.
    pub denials: Vec<StoredDenial>,
}

/// End of an exchange, which completes its decision record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeEnd {
    /// The status the crawler was answered with, if any.
    pub status: Option<u16>,
    /// Number of times that the request was handed to a connection: the origin may
    /// have seen it as often.
    pub sent: u32,
    /// Directives of the origin's response, if there was one.
    pub seen: Option<Seen>,
    /// Bytes of the body passed on.
    pub bytes: u64,
    /// Error that ended it: a word of RFC 9209, section 2.3, or ours
    /// (docs/reference/reasons.md).
    pub error: Option<&'static str>,
}

/// Record as read back from the store. Records share the values that the store
/// keeps once.
#[derive(Debug, Clone)]
pub struct StoredRecord {
    /// Node that made the decision, where records of several are read together.
    pub node: Option<Arc<str>>,
    /// Number of the row, from 1.
    pub seq: u64,
    /// When the decision was made.
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
    /// Reading of the path that was refused, if not the one sent.
    pub reading: Option<String>,
    /// Snapshot of the origin; absent if it was not asked.
    pub snapshot: Option<Arc<RecordedSnapshot>>,
    /// Policy of the operator.
    pub policy: Arc<StoredPolicy>,
    /// Milliseconds the request waited.
    pub wait_ms: u64,
    /// The status answered with.
    pub status: Option<u16>,
    /// Number of times that the request was handed to a connection; absent while
    /// the exchange has not ended.
    pub sent: Option<u64>,
    /// Directives of the origin's response.
    pub directives: Option<Arc<Seen>>,
    /// Bytes of body passed on.
    pub bytes: Option<u64>,
    /// Error that ended the exchange.
    pub error: Option<Arc<str>>,
}

impl StoredRecord {
    /// Makes the record of a decision that is not recorded. Its values are those that a
    /// row would have at the time of the decision; number and client are empty.
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

    /// Stands for a URL, and for the address of a client, that were redacted. It is
    /// neither.
    pub const REDACTED: &str = "(redacted)";

    /// Makes the client of a decision whose client was redacted.
    pub fn redacted_client() -> Arc<StoredClient> {
        Arc::new(StoredClient {
            address: Self::REDACTED.to_owned(),
            ..StoredClient::default()
        })
    }

    /// Returns the denials of the crawler's purposes, by robots.txt and by the response,
    /// each statement once for each purpose.
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

/// A client as read back from the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredClient {
    /// The address that it asked from.
    pub address: String,
    /// Name that it has proved by a credential.
    pub credential: Option<String>,
}

/// A crawler as read back from the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredCrawler {
    /// The candidate tokens, in order.
    pub candidates: Vec<String>,
    /// Names in the User-Agent that are not listed for a crawler that has proved
    /// who it is.
    pub unlisted: Vec<String>,
    /// The User-Agent they came from.
    pub user_agent: Option<String>,
    /// Label of the crawl.
    pub label: Option<String>,
}

impl StoredCrawler {
    /// Stands in the list of names between the candidates and the unlisted ones;
    /// no product token is empty.
    const SEPARATOR: &str = "";

    /// Lists the names of `crawler` as the store keeps them.
    pub fn names_of(crawler: &Crawler) -> impl Iterator<Item = &str> {
        let unlisted = crawler.unlisted();
        let separator = (!unlisted.is_empty()).then_some(Self::SEPARATOR);
        let candidates = crawler.candidates().iter().map(ProductToken::as_str);
        let behind = unlisted.iter().map(ProductToken::as_str);
        candidates.chain(separator).chain(behind)
    }

    /// Creates the crawler of the names in the store, in the order of
    /// [`StoredCrawler::names_of`]. It has no label.
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

/// A policy as read back from the store.
#[derive(Debug, Clone)]
pub struct StoredPolicy {
    /// JSON of the policy.
    pub json: String,
    /// The digest of that.
    pub sha256: Digest,
    /// Purposes of the crawler that it is for, and what follows if they are denied; `None`
    /// if none are declared, or the JSON is no policy.
    pub preferences: Option<PreferenceTerms>,
}

/// Part of a policy's JSON.
#[derive(Deserialize)]
struct DeclaredPurposes {
    preferences: Option<PreferenceTerms>,
}

impl StoredPolicy {
    /// Creates the policy with this JSON.
    pub fn new(json: &str) -> Self {
        let declared = serde_json::from_str::<DeclaredPurposes>(json).ok();
        Self {
            sha256: Digest::of(json.as_bytes()),
            json: json.to_owned(),
            preferences: declared.and_then(|declared| declared.preferences),
        }
    }
}

/// Ruling as the store keeps it. Deciding again must reproduce it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredRuling {
    /// `allow`, `disallow` or `later`.
    pub verdict: String,
    /// The reason's word.
    pub reason: String,
    /// The effect's word.
    pub effect: String,
    /// The rule's line.
    pub line: Option<u32>,
    /// The rule's text.
    pub rule: Option<String>,
    /// The group's agents.
    pub group: Vec<String>,
    /// The token that was bound, else the first candidate.
    pub crawler: Option<String>,
    /// Denials of the crawler's purposes that were known before the request.
    pub denials: Vec<StoredDenial>,
}

/// Denial of a purpose as the store keeps it, and rows show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDenial {
    /// Purpose that is denied (`train-ai`).
    pub purpose: String,
    /// Statement that denies it (`tdm-reservation=1`).
    pub statement: String,
    /// Letters of the places that state it, as in the annotation (`src`).
    pub src: String,
    /// Line of robots.txt that states it.
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

    /// Returns the effect by which the verdict of robots.txt was set aside, if
    /// it was: `Reported` or `Overridden`.
    pub fn exception(&self) -> Option<Effect> {
        Effect::exception(&self.effect)
    }

    /// Reports whether this is the stored form of the ruling in `evidence`. An
    /// effect that sets nothing aside does not count: that a copy of robots.txt
    /// answered does not follow from the evidence.
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

/// Returns the token that was bound, else the first candidate.
pub fn bound_token(evidence: &Evidence) -> Option<&ProductToken> {
    let bound = evidence.ruling.token.as_ref();
    bound.or_else(|| evidence.inquiry.crawler.token())
}

/// Snapshot of a decision record, as read back from the store. Its body is
/// stored apart, by digest.
#[derive(Debug, Clone)]
pub struct RecordedSnapshot {
    /// The origin it is of.
    pub origin: String,
    /// The token it was fetched for.
    pub token: Option<String>,
    /// URL that was requested last.
    pub url: String,
    /// The URLs whose redirects led there, in order.
    pub hops: Vec<String>,
    /// The status that ended the fetch.
    pub status: Option<u16>,
    /// When the answer was there.
    pub fetched_at: Timestamp,
    /// From when on it might not be used.
    pub expires_at: Timestamp,
    /// `successful`, `unavailable` or `unreachable`.
    pub result: String,
    /// Word of the cause, if the origin was unreachable, whether there was an
    /// earlier file or not.
    pub cause: Option<String>,
    /// The SHA-256 of the body, if successful.
    pub sha256: Option<Digest>,
    /// Charset that the response declares, if it is not UTF-8.
    pub charset: Option<String>,
    /// Answer about the TDM file, as JSON, if that was asked for.
    pub tdm: Option<String>,
}

impl RecordedSnapshot {
    /// Makes the recorded form of `snapshot`.
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
