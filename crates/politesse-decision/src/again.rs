//! Deciding again from a decision record.
//!
//! Invariant 2 (ARCHITECTURE.md): the answer must be the same, years later and
//! offline. What many records share (crawler, policy, parsed robots.txt) is
//! restored once. Does not know how rows are stored.

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

/// Crawlers and policies, and snapshots, that an [`EvidenceCache`] remembers.
const REMEMBERED_MAX: usize = 16_384;

/// Bytes of the robots.txt files that an [`EvidenceCache`] remembers. Parsed they
/// take a small multiple of that.
const BODY_BYTES_MAX: usize = 32 << 20;

/// Stands in a stored URL in the place of its query string, where that is not on
/// record; an HMAC of it may come next. No URL that is sent has a `#` (RFC 9112,
/// section 3.2).
pub const WITHHELD: &str = "?#";

/// Result of making a recorded decision again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// Deciding again gives the same answer.
    Same,
    /// The decision is the same, but not whether its response was withheld: the text says
    /// what does not follow from what the response states.
    OtherEnding(&'static str),
    /// Another answer, by the revision that decided the row: the row or its
    /// evidence has changed.
    Differs(Box<StoredRuling>),
    /// Another answer, but the row was decided by another revision of the
    /// engine, so that it may well be the answer of then.
    OfRevision {
        /// The revision that decided the row.
        decided_by: Revision,
        /// The answer of this one.
        now: Box<StoredRuling>,
    },
    /// Another answer, by rules that may ask for the query string, which is not on
    /// record.
    QueryWithheld,
    /// The decision rests on no snapshot (`egress`, `identity`); its form is right.
    FormOnly,
}

/// Reason why a recorded decision cannot be made again: the store was changed
/// by another hand, or written by a later version.
#[derive(Debug, Error)]
pub enum Undecidable {
    /// What it was about was redacted.
    #[error("its client and URL were redacted")]
    Redacted,
    /// The URL is none.
    #[error("its url cannot be read")]
    Url(#[from] InvalidTarget),
    /// The policy is none.
    #[error("its policy cannot be read")]
    Policy(#[from] serde_json::Error),
    /// A word or value that no version writes.
    #[error("its {field} is {value:?}, which is not known")]
    Value {
        /// The column.
        field: &'static str,
        /// Value in the column.
        value: String,
    },
    /// The body of robots.txt is not in the store.
    #[error("the body {0} of its robots.txt is missing")]
    BodyMissing(Digest),
    /// The body of robots.txt is not the one that was decided by.
    #[error("the body kept as {0} has another digest")]
    BodyChanged(Digest),
}

/// Makes a recorded decision again from what is stored: the values of the
/// record, and the body of robots.txt that its snapshot names, unless `cache` has
/// it parsed.
///
/// # Errors
///
/// [`Undecidable`], with what keeps it from being decided.
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
        // Equal answers need no excuse, whatever revision decided the row.
        _ if is_recorded(record, evidence) => {
            let given = given_again(record, evidence);
            // An override of a query may have allowed the URL.
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

/// Makes a recorded decision again; `None` if it rests on no snapshot.
///
/// Where its query string is not on record, another one stands for it: no rule without a
/// `?`, a wildcard or an escape tells it from that. It may also have been empty, which many
/// servers cannot tell from none.
///
/// # Errors
///
/// [`Undecidable`], with what keeps it from being decided.
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

/// Decides again about `url`, which is that of the record as far as it is known.
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
    // Before the snapshot is looked for: a row without one must have a policy
    // that can be read, too.
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
        // No wait and no explanation: neither is part of the ruling that is
        // compared.
        Some(reason) => decision.later(Delay::of_host(reason, DelayEnd::After(Duration::ZERO))),
        None => decision,
    }))
}

/// Rules on a recorded request by another snapshot, at the time of the request. The file of
/// `snapshot` is read by the dialect of the recorded policy, if it was read by another.
///
/// # Errors
///
/// [`Undecidable`], with what keeps it from being decided.
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
    // Kept: the file would be read again for each request.
    *snapshot = Snapshot::read_by(Arc::clone(snapshot), policy.terms().dialect);
    Ok(ruling(&inquiry, snapshot, &policy, record.at))
}

/// Restores a snapshot as decisions about `origin` rest on it, its file read by
/// `dialect`.
///
/// # Errors
///
/// [`Undecidable`], with what is missing or is not known.
pub fn restore_snapshot(
    stored: &RecordedSnapshot,
    origin: Origin,
    body: Option<Bytes>,
    dialect: Dialect,
) -> Result<Arc<Snapshot>, Undecidable> {
    Ok(Arc::new(Snapshot {
        result: restore_result(stored, body, dialect, &origin)?,
        // Verdicts do not depend on the crawlers that a file counts for, only on its body.
        key: CacheKey::new(origin, None),
        url: stored.url.clone(),
        hops: stored.hops.clone(),
        status: stored.status,
        fetched_at: stored.fetched_at,
        expires_at: stored.expires_at,
        // The cause of an unreachable origin is part of its access result.
        stale: match stored.result.as_str() {
            "successful" => restore_cause(stored)?,
            _ => None,
        },
        tdm: stored.tdm.as_deref().map(restore_tdm).transpose()?,
    }))
}

/// Reports whether a decision is that of the record.
fn is_recorded(record: &StoredRecord, evidence: &Evidence) -> bool {
    let (recorded, now) = (
        record.reading.as_deref(),
        evidence.ruling.reading.as_deref(),
    );
    let is_same_reading = match recorded.and_then(|reading| reading.split_once(WITHHELD)) {
        // The query string is carried along.
        Some((path, _)) => now
            .and_then(|now| now.split_once('?'))
            .is_some_and(|now| now.0 == path),
        None => recorded == now,
    };
    is_same_reading && record.ruling.is_of(evidence)
}

/// Decides again whether the response was withheld, by what the record has of it.
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

/// Reports whether a decision about a URL may be another one for another query
/// string: rules without a `?`, a wildcard or an escape are about the path alone.
fn may_rest_on_query(evidence: &Evidence) -> bool {
    let snapshot = evidence.snapshot.as_deref();
    let body = snapshot.and_then(Snapshot::file).map(|file| &file.body);
    let is_such_rule = |line: &[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
        // An agent line may hold a Disallow, behind a second colon.
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

/// Checks the form of a decision record without a snapshot. Only refusals for an
/// address or a name are decided without asking the origin.
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

/// Returns the reason of a delay. The pace of that hour is not stored; that the
/// request was let through, and by which rule, must follow again.
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
            // The body was stored as it was cut, so it is read as a whole file:
            // rules behind the cut decided nothing.
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

/// Evidence that was restored and may be met again.
///
/// An entry is found by the address of its stored form. It holds that form, so
/// that no other value gets the address.
#[derive(Debug, Default)]
pub struct EvidenceCache {
    crawlers: HashMap<usize, RestoredPart<Arc<StoredCrawler>, Crawler>>,
    policies: HashMap<usize, RestoredPart<Arc<StoredPolicy>, Arc<Policy>>>,
    snapshots: HashMap<SnapshotKey, RestoredPart<SnapshotPair, Arc<Snapshot>>>,
    body_bytes: usize,
}

#[derive(Debug)]
struct RestoredPart<S, R> {
    /// Never read: keeps the address from being used again.
    _stored: S,
    restored: R,
}

/// A snapshot, and the policy whose dialect its file is read by.
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
    /// Returns the digest of the body that is needed to decide `record` again;
    /// `None` if there is none, or if it was parsed before.
    pub fn wanted_body(&self, record: &StoredRecord) -> Option<Digest> {
        // Else a body would be read for each redacted decision, and never remembered.
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
        // All at once: rows of one time rest on the same snapshots, and those of
        // another time on others.
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

/// Returns the restored form of `stored`, made by `restore` if it is new.
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
