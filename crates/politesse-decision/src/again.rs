//! Repeats decisions from their decision records.
//!
//! Invariant 2 (ARCHITECTURE.md): the answer must be the same offline, even years later.
//! Values that many records share (crawler, policy, parsed robots.txt) are restored only
//! once. Does not know how rows are stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use super::access::Cause;
use super::delay::{Delay, DelayEnd};
use super::digest::Digest;
use super::record::{
    RecordedSnapshot, StoredCrawler, StoredDenial, StoredPolicy, StoredRecord, StoredRuling,
};
use super::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use super::tdm::TdmSnapshot;
use super::withholding::{Withholding, stated_denials};
use crate::decide::{
    Decision, Evidence, Inquiry, Policy, Reason, Revision, Ruling, Verdict, decide, ruling,
};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::{InvalidTarget, Origin};
use politesse_robots::{Dialect, FileSource};

/// Maximum number of crawlers, of policies and of snapshots in an [`EvidenceCache`].
const REMEMBERED_MAX: usize = 16_384;

/// Maximum total size of the robots.txt files in an [`EvidenceCache`], in bytes. Parsed
/// files take a small multiple of that.
const BODY_BYTES_MAX: usize = 32 << 20;

/// Replaces the query string in a stored URL if query strings are not recorded. An HMAC
/// of the query string may follow. Unambiguous, because no URL in a request has a `#`
/// (RFC 9112, section 3.2).
pub const WITHHELD: &str = "?#";

/// Result of repeating a recorded decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// The answer is the same.
    Same,
    /// The decision is the same, but the record of withholding or giving the response does
    /// not follow from the statements of the response. The text explains the difference.
    OtherEnding(&'static str),
    /// The answer differs although the revision of the engine is the same: the row or its
    /// evidence was changed.
    Differs(Box<StoredRuling>),
    /// The answer differs, but another revision of the engine decided the row. The
    /// recorded answer may have been right for that revision.
    OfRevision {
        /// The revision that decided the row.
        decided_by: Revision,
        /// The answer of the current revision.
        now: Box<StoredRuling>,
    },
    /// The answer differs, but rules or overrides may depend on the query string, which
    /// was not recorded.
    QueryWithheld,
    /// The decision rests on no snapshot (`egress`, `identity`), so only the form of the
    /// row was checked; it is valid.
    FormOnly,
}

/// Reason why a recorded decision cannot be repeated: the row was redacted, the store was
/// tampered with, or a later version wrote it.
#[derive(Debug, Error)]
pub enum Undecidable {
    /// Client and URL were redacted.
    #[error("its client and URL were redacted")]
    Redacted,
    /// The URL is malformed.
    #[error("its url cannot be read")]
    Url(#[from] InvalidTarget),
    /// The policy is malformed.
    #[error("its policy cannot be read")]
    Policy(#[from] serde_json::Error),
    /// A word or value that this version does not know.
    #[error("its {field} is {value:?}, which is not known")]
    Value {
        /// Column of the store.
        field: &'static str,
        /// Value in the column.
        value: String,
    },
    /// The body of robots.txt is not in the store.
    #[error("the body {0} of its robots.txt is missing")]
    BodyMissing(Digest),
    /// The stored body of robots.txt does not match its digest.
    #[error("the body kept as {0} has another digest")]
    BodyChanged(Digest),
}

/// Repeats a recorded decision from stored values: those of the record, and the `body` of
/// robots.txt that its snapshot names. `body` may be `None` if `cache` holds it parsed.
///
/// # Errors
///
/// [`Undecidable`] with the reason why the decision cannot be repeated.
pub fn decide_again(
    record: &StoredRecord,
    body: Option<Bytes>,
    cache: &mut EvidenceCache,
) -> Result<Again, Undecidable> {
    let Some(decision) = decision_again(record, body, cache)? else {
        return form_only(record);
    };
    let evidence = decision.evidence();
    let now = || Box::new(StoredRuling::of(evidence));
    Ok(match evidence.policy.terms().revision {
        // Equal answers are right, even if another revision decided the row.
        _ if is_recorded(record, evidence) => {
            let given = given_again(record, evidence);
            // An override that matches the query string may have allowed the URL.
            let is_excused = matches!(given, Again::OtherEnding(_))
                && record.url.contains(WITHHELD)
                && !evidence.policy.terms().overrides.is_empty();
            if is_excused {
                Again::QueryWithheld
            } else {
                given
            }
        }
        _ if record.url.contains(WITHHELD) && may_rest_on_query(evidence) => Again::QueryWithheld,
        Revision::CURRENT => Again::Differs(now()),
        decided_by => Again::OfRevision {
            decided_by,
            now: now(),
        },
    })
}

/// Repeats a recorded decision; `None` if it rests on no snapshot.
///
/// If the query string was not recorded, another one replaces it: only rules with a `?`, a
/// wildcard or an escape can distinguish the two. The empty query string is tried as well,
/// because many servers treat it like no query string.
///
/// # Errors
///
/// [`Undecidable`] with the reason why the decision cannot be repeated.
pub fn decision_again(
    record: &StoredRecord,
    body: Option<Bytes>,
    cache: &mut EvidenceCache,
) -> Result<Option<Decision>, Undecidable> {
    let Some((path, _)) = record.url.split_once(WITHHELD) else {
        return decision_about(&record.url, record, body, cache);
    };
    let decision = decision_about(&format!("{path}?0"), record, body.clone(), cache)?;
    let is_same = |decision: &Decision| is_recorded(record, decision.evidence());
    if decision.as_ref().is_none_or(is_same) {
        return Ok(decision);
    }
    let of_empty = decision_about(&format!("{path}?"), record, body, cache)?;
    Ok(of_empty.filter(is_same).or(decision))
}

/// Repeats the decision of a record for `url`: the recorded URL, or one with a
/// substitute query string.
fn decision_about(
    url: &str,
    record: &StoredRecord,
    body: Option<Bytes>,
    cache: &mut EvidenceCache,
) -> Result<Option<Decision>, Undecidable> {
    if record.is_redacted() {
        return Err(Undecidable::Redacted);
    }
    let target = url.parse()?;
    // Before the check for a snapshot: a row without one must also have a
    // valid policy.
    let policy = cache.policy(&record.policy)?;
    let Some(stored) = &record.snapshot else {
        return Ok(None);
    };
    let inquiry = Arc::new(Inquiry {
        crawler: cache.crawler(&record.crawler)?,
        target,
        method: record.method.to_string(),
    });
    let pair = SnapshotPair {
        snapshot: Arc::clone(stored),
        policy: Arc::clone(&record.policy),
    };
    let snapshot = match cache.snapshot(&pair) {
        Some(snapshot) => snapshot,
        None => {
            let bytes = body.as_ref().map_or(0, Bytes::len);
            let origin = inquiry.target.origin.clone();
            let snapshot = restore_snapshot(stored, origin, body, policy.terms().dialect)?;
            cache.remember_snapshot(pair, &snapshot, bytes);
            snapshot
        }
    };
    let decision = decide(&inquiry, &snapshot, &policy, record.at);
    Ok(Some(match delay_reason(&record.ruling)? {
        // Wait and explanation can be left empty: neither is part of the ruling
        // that is compared.
        Some(reason) => decision.later(Delay::of_host(reason, DelayEnd::After(Duration::ZERO))),
        None => decision,
    }))
}

/// Rules on a recorded request by another snapshot, as of the time of the request. Parses
/// the file of `snapshot` in the dialect of the recorded policy, if it is in another.
///
/// # Errors
///
/// [`Undecidable`] with the reason why the request cannot be ruled on.
pub fn ruling_by(
    record: &StoredRecord,
    snapshot: &mut Arc<Snapshot>,
    cache: &mut EvidenceCache,
) -> Result<Ruling, Undecidable> {
    let policy = cache.policy(&record.policy)?;
    let inquiry = Inquiry {
        crawler: cache.crawler(&record.crawler)?,
        target: record.url.parse()?,
        method: record.method.to_string(),
    };
    // Stored back, so that the file is not parsed again for each request.
    *snapshot = Snapshot::read_by(Arc::clone(snapshot), policy.terms().dialect);
    Ok(ruling(&inquiry, snapshot, &policy, record.at))
}

/// Restores the snapshot for decisions about `origin`, with its file parsed in `dialect`.
///
/// # Errors
///
/// [`Undecidable`] with the value that is missing or unknown.
pub fn restore_snapshot(
    stored: &RecordedSnapshot,
    origin: Origin,
    body: Option<Bytes>,
    dialect: Dialect,
) -> Result<Arc<Snapshot>, Undecidable> {
    Ok(Arc::new(Snapshot {
        result: restore_result(stored, body, dialect, &origin)?,
        // Token and sender are not needed: verdicts depend only on the body of the file.
        key: CacheKey::new(origin, None),
        url: stored.url.clone(),
        hops: stored.hops.clone(),
        status: stored.status,
        fetched_at: stored.fetched_at,
        expires_at: stored.expires_at,
        // For an unreachable origin, the access result already contains the cause.
        stale: match stored.result.as_str() {
            "successful" => restore_cause(stored)?,
            _ => None,
        },
        tdm: stored.tdm.as_deref().map(restore_tdm).transpose()?,
    }))
}

/// Reports whether a repeated decision equals the recorded one.
fn is_recorded(record: &StoredRecord, evidence: &Evidence) -> bool {
    let (recorded, now) = (
        record.reading.as_deref(),
        evidence.ruling.reading.as_deref(),
    );
    let is_same_reading = match recorded.and_then(|reading| reading.split_once(WITHHELD)) {
        // Readings keep the query string, so only the paths are compared.
        Some((path, _)) => now
            .and_then(|now| now.split_once('?'))
            .is_some_and(|now| now.0 == path),
        None => recorded == now,
    };
    is_same_reading && record.ruling.is_of(evidence)
}

/// Repeats the decision whether to withhold the response, from its recorded directives.
fn given_again(record: &StoredRecord, evidence: &Evidence) -> Again {
    let is_withheld = record.error.as_deref() == Some(Withholding::ERROR);
    let mut is_due = false;
    if let (Some(status), Some(seen)) = (record.status, record.directives.as_deref()) {
        let stated = stated_denials(evidence, &seen.directives);
        let denials = stated.denials.iter().map(StoredDenial::from);
        if !denials.eq(seen.denials.iter().cloned()) {
            return Again::OtherEnding("its directives deny other purposes than the row says");
        }
        let withholding = Withholding::of(evidence, status, stated);
        is_due = withholding.is_some_and(|withholding| !withholding.is_reported);
    }
    match (is_withheld, is_due) {
        (true, false) => Again::OtherEnding(
            "its response was withheld, but nothing that it states denies the purposes of the \
             crawler",
        ),
        (false, true) => Again::OtherEnding(
            "its response was given, although what it states denies the purposes of the crawler",
        ),
        (true, true) | (false, false) => Again::Same,
    }
}

/// Reports whether a decision may depend on the query string. Rules without a `?`, a
/// wildcard or an escape depend on the path alone.
fn may_rest_on_query(evidence: &Evidence) -> bool {
    let snapshot = evidence.snapshot.as_deref();
    let body = snapshot.and_then(Snapshot::file).map(|file| &file.body);
    let is_such_rule = |line: &[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
        // An agent line may contain a Disallow after a second colon.
        let is_agent = name.trim_ascii().eq_ignore_ascii_case(b"user-agent")
            && line.iter().filter(|byte| **byte == b':').count() < 2;
        !is_agent && line.iter().any(|byte| matches!(byte, b'?' | b'*' | b'%'))
    };
    let has_such_rule = body.is_some_and(|body| {
        body.split(|byte| matches!(byte, b'\n' | b'\r'))
            .any(is_such_rule)
    });
    has_such_rule || !evidence.policy.terms().overrides.is_empty()
}

/// Checks the form of a decision record without a snapshot. Only refusals by `egress` and
/// `identity` are decided without a snapshot.
fn form_only(record: &StoredRecord) -> Result<Again, Undecidable> {
    let ruling = &record.ruling;
    let mut reasons = [Reason::Egress, Reason::Identity].into_iter();
    if !reasons.any(|reason| reason.as_str() == ruling.reason) {
        return Err(unknown("reason", &ruling.reason));
    }
    if ruling.verdict != Verdict::Disallow.as_str() {
        return Err(unknown("verdict", &ruling.verdict));
    }
    if let Some(effect) = ruling.exception() {
        return Err(unknown("effect", effect.as_str()));
    }
    Ok(Again::FormOnly)
}

/// Returns the recorded reason of a delay. The reason is taken from the record, because
/// the state of the pace at that time is not stored. The ruling that let the request
/// through is still repeated.
fn delay_reason(ruling: &StoredRuling) -> Result<Option<Reason>, Undecidable> {
    if ruling.verdict != Verdict::Later.as_str() {
        return Ok(None);
    }
    let mut reasons = Reason::OF_PACE.into_iter();
    let known = reasons.find(|reason| reason.as_str() == ruling.reason);
    known
        .map(Some)
        .ok_or_else(|| unknown("reason", &ruling.reason))
}

fn tokens(candidates: &[String]) -> Result<Vec<ProductToken>, Undecidable> {
    candidates
        .iter()
        .map(|token| ProductToken::new(token).map_err(|_| unknown("candidates", token)))
        .collect()
}

fn restore_result(
    stored: &RecordedSnapshot,
    body: Option<Bytes>,
    dialect: Dialect,
    origin: &Origin,
) -> Result<AccessResult, Undecidable> {
    match (stored.result.as_str(), stored.sha256) {
        ("successful", Some(digest)) => {
            let body = body.ok_or(Undecidable::BodyMissing(digest))?;
            // The body was stored after it was cut, so it is parsed as a complete
            // file: rules after the cut had no effect on the decision.
            let source = restore_source(stored, origin)?;
            let copy = RobotsFile::from_source(body, dialect, source);
            if copy.digest != digest {
                return Err(Undecidable::BodyChanged(digest));
            }
            Ok(AccessResult::Successful(Arc::new(copy)))
        }
        ("unavailable", _) => Ok(AccessResult::Unavailable),
        ("unreachable", _) => restore_cause(stored)?
            .map(AccessResult::Unreachable)
            .ok_or_else(|| unknown("result", &stored.result)),
        (result, _) => Err(unknown("result", result)),
    }
}

fn restore_source(stored: &RecordedSnapshot, origin: &Origin) -> Result<FileSource, Undecidable> {
    let read = |label: &String| label.parse().map_err(|_| unknown("charset", label));
    Ok(FileSource {
        origin: Some(origin.clone()),
        charset: stored.charset.as_ref().map(read).transpose()?,
    })
}

fn restore_tdm(text: &str) -> Result<Arc<TdmSnapshot>, Undecidable> {
    let read = serde_json::from_str(text).map_err(|_| unknown("tdm", text))?;
    Ok(Arc::new(read))
}

fn restore_cause(stored: &RecordedSnapshot) -> Result<Option<Cause>, Undecidable> {
    let read = |cause: &String| cause.parse().map_err(|_| unknown("cause", cause));
    stored.cause.as_ref().map(read).transpose()
}

fn unknown(field: &'static str, value: &str) -> Undecidable {
    Undecidable::Value {
        field,
        value: value.to_owned(),
    }
}

/// Cache of restored evidence.
///
/// The key of an entry is the address of its stored form. The entry keeps that form
/// alive, so that no other value can get the same address.
#[derive(Debug, Default)]
pub struct EvidenceCache {
    crawlers: HashMap<usize, RestoredPart<Arc<StoredCrawler>, Crawler>>,
    policies: HashMap<usize, RestoredPart<Arc<StoredPolicy>, Arc<Policy>>>,
    snapshots: HashMap<SnapshotKey, RestoredPart<SnapshotPair, Arc<Snapshot>>>,
    body_bytes: usize,
}

#[derive(Debug)]
struct RestoredPart<S, R> {
    /// Never read: prevents reuse of the address.
    _stored: S,
    restored: R,
}

/// Snapshot, with the policy that sets the dialect of its file.
#[derive(Debug)]
struct SnapshotPair {
    snapshot: Arc<RecordedSnapshot>,
    policy: Arc<StoredPolicy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SnapshotKey {
    snapshot: usize,
    policy: usize,
}

impl SnapshotPair {
    fn key(&self) -> SnapshotKey {
        SnapshotKey {
            snapshot: Arc::as_ptr(&self.snapshot).addr(),
            policy: Arc::as_ptr(&self.policy).addr(),
        }
    }
}

impl EvidenceCache {
    /// Returns the digest of the body that is needed to repeat the decision of `record`;
    /// `None` if no body is needed, or if the cache holds it parsed.
    pub fn wanted_body(&self, record: &StoredRecord) -> Option<Digest> {
        // A redacted decision cannot be repeated, so its body would be loaded in vain.
        if record.is_redacted() {
            return None;
        }
        let stored = record.snapshot.as_ref()?;
        let key = SnapshotKey {
            snapshot: Arc::as_ptr(stored).addr(),
            policy: Arc::as_ptr(&record.policy).addr(),
        };
        stored.sha256.filter(|_| !self.snapshots.contains_key(&key))
    }

    fn crawler(&mut self, stored: &Arc<StoredCrawler>) -> Result<Crawler, Undecidable> {
        remember(&mut self.crawlers, stored, |stored| {
            let candidates = tokens(&stored.candidates)?;
            let crawler = Crawler::restore(candidates, stored.user_agent.clone());
            Ok(crawler.with_unlisted(tokens(&stored.unlisted)?))
        })
    }

    fn policy(&mut self, stored: &Arc<StoredPolicy>) -> Result<Arc<Policy>, Undecidable> {
        remember(&mut self.policies, stored, |stored| {
            Ok(Arc::new(Policy::restore(&stored.json)?))
        })
    }

    fn snapshot(&self, pair: &SnapshotPair) -> Option<Arc<Snapshot>> {
        let found = self.snapshots.get(&pair.key())?;
        Some(Arc::clone(&found.restored))
    }

    fn remember_snapshot(&mut self, pair: SnapshotPair, snapshot: &Arc<Snapshot>, bytes: usize) {
        self.body_bytes += bytes;
        // Drops everything at once: rows of one period share snapshots, and later
        // rows use others.
        if REMEMBERED_MAX <= self.snapshots.len() || BODY_BYTES_MAX < self.body_bytes {
            self.snapshots.clear();
            self.body_bytes = bytes;
        }
        let key = pair.key();
        let part = RestoredPart {
            restored: Arc::clone(snapshot),
            _stored: pair,
        };
        self.snapshots.insert(key, part);
    }
}

/// Returns the restored form of `stored`. Calls `restore` if the cache does not have it.
fn remember<S, R: Clone>(
    known: &mut HashMap<usize, RestoredPart<Arc<S>, R>>,
    stored: &Arc<S>,
    restore: impl FnOnce(&S) -> Result<R, Undecidable>,
) -> Result<R, Undecidable> {
    let address = Arc::as_ptr(stored).addr();
    if let Some(found) = known.get(&address) {
        return Ok(found.restored.clone());
    }
    let restored = restore(stored)?;
    if REMEMBERED_MAX <= known.len() {
        known.clear();
    }
    let part = RestoredPart {
        _stored: Arc::clone(stored),
        restored: restored.clone(),
    };
    known.insert(address, part);
    Ok(restored)
}
