//! Effect of a changed robots.txt: the newest URLs on record of its origin, each decided by
//! the answer before and by the new one.
//!
//! Crawler, operator's policy and time are those of the recorded request, so that nothing
//! but the answer differs (invariant 2, ARCHITECTURE.md). Does not know where the answers
//! come from.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::Direction;
use super::reader::AuditReader;
use super::robots_changes::RobotsChange;
use politesse_base::clock;
use politesse_decision::again::{
    EvidenceCache, Undecidable, WITHHELD, restore_snapshot, ruling_by,
};
use politesse_decision::decide::Verdict;
use politesse_decision::record::{RecordedSnapshot, StoredRecord};
use politesse_decision::snapshot::{AnswerChange, CacheKey, Snapshot};
use politesse_robots::Dialect;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Target;

/// Crawlers that are counted apart: each may have sent any number of names.
const CRAWLERS_MAX: usize = 100;

/// Decisions looked at for each URL that is wanted: a crawl may ask for few URLs again and
/// again.
const DECISIONS_PER_URL: usize = 10;

/// Bounds of an effect.
#[derive(Debug, Clone, Copy)]
pub struct EffectBounds {
    /// URLs at most; a URL that several crawlers asked for counts for each.
    pub urls: usize,
    /// URLs that are named of each kind.
    pub examples: usize,
    /// Time at which the search ends with what it has.
    pub deadline: Instant,
}

/// Effect of a change on the newest URLs on record.
#[derive(Debug, Clone, Default)]
pub struct ChangeEffect {
    /// Effect on the URLs of each crawler, by its name; without one, of those that have
    /// none. At most [`CRAWLERS_MAX`].
    pub crawlers: BTreeMap<Option<String>, EffectCounts>,
    /// Effect on all of them.
    pub all: EffectCounts,
    /// First URLs that the new answer disallows and the one before allowed.
    pub newly_disallowed: Vec<CrawlerUrl>,
    /// First URLs that the new answer allows and the one before disallowed.
    pub newly_allowed: Vec<CrawlerUrl>,
    /// Decisions left out: what they were about is not on record, or cannot be decided again.
    pub left_out: u64,
    /// Whether the search ended before it had found as many URLs as were wanted.
    pub is_cut: bool,
}

/// Number of URLs by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EffectCounts {
    /// All URLs.
    pub urls: u64,
    /// URLs that both answers disallow.
    pub still_disallowed: u64,
    /// URLs that only the new answer disallows.
    pub newly_disallowed: u64,
    /// URLs that only the answer before disallowed.
    pub newly_allowed: u64,
}

/// URL that a crawler asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CrawlerUrl {
    /// First name of the crawler; absent if it has none.
    pub crawler: Option<String>,
    /// The URL.
    pub url: String,
}

/// Difference that a change makes to one URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UrlEffect {
    StillAllowed,
    StillDisallowed,
    NewlyDisallowed,
    NewlyAllowed,
}

impl RobotsChange {
    /// Restores the two answers; `None` if a file is not on record, or was altered.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn answers(&self, reader: &AuditReader) -> Result<Option<AnswerChange>, AuditError> {
        let before = restore(reader, &self.before)?;
        let after = restore(reader, &self.after)?;
        let answers = before.zip(after);
        Ok(answers.map(|(before, after)| AnswerChange { before, after }))
    }
}

fn restore(
    reader: &AuditReader,
    stored: &RecordedSnapshot,
) -> Result<Option<Arc<Snapshot>>, AuditError> {
    let body = match stored.sha256 {
        Some(sha256) => reader.body(sha256)?.map(Bytes::from),
        None => None,
    };
    // Somebody may have changed it into what is no origin.
    let Ok(target) = stored.origin.parse::<Target>() else {
        return Ok(None);
    };
    let token = stored.token.as_ref();
    let key = CacheKey::new(
        target.origin.clone(),
        token.and_then(|token| ProductToken::new(token).ok()),
    );
    let restored = restore_snapshot(stored, target.origin, body, Dialect::default());
    Ok(restored.ok().map(|snapshot| {
        Arc::new(Snapshot {
            key,
            ..Snapshot::clone(&snapshot)
        })
    }))
}

/// Decides the newest URLs on record that `change` is for, by both answers.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn change_effect(
    reader: &AuditReader,
    change: &AnswerChange,
    bounds: &EffectBounds,
) -> Result<ChangeEffect, AuditError> {
    let filter = DecisionFilter {
        host: Some(change.after.key.origin.host().to_string()),
        ..DecisionFilter::default()
    };
    let mut rows = reader.decision_reader();
    let mut scan = reader
        .narrow_scan(DECISIONS, &filter)?
        .until(Some(bounds.deadline))
        .in_direction(Direction::NewestFirst);
    let mut run = EffectRun::new(change);
    let most = bounds.urls.saturating_mul(DECISIONS_PER_URL);
    let mut seen = 0;
    while let Some(page) = scan.next_page(|row| rows.record(row))? {
        for record in &page {
            seen += 1;
            // A page may bring more than are wanted.
            if run.urls.len() < bounds.urls {
                run.add(record, bounds.examples);
            }
        }
        if bounds.urls <= run.urls.len() {
            break;
        }
        if most <= seen || bounds.deadline <= clock::instant() {
            run.effect.is_cut = scan.ahead().is_some();
            break;
        }
    }
    Ok(run.effect)
}

/// URLs that were decided so far.
struct EffectRun {
    origin: String,
    change: AnswerChange,
    evidence: EvidenceCache,
    urls: HashSet<CrawlerUrl>,
    effect: ChangeEffect,
}

impl EffectRun {
    fn new(change: &AnswerChange) -> Self {
        // What `/.well-known/tdmrep.json` says is no part of the change.
        let without_tdm = |snapshot: &Arc<Snapshot>| {
            Arc::new(Snapshot {
                tdm: None,
                ..Snapshot::clone(snapshot)
            })
        };
        Self {
            origin: change.after.key.origin.to_string(),
            change: AnswerChange {
                before: without_tdm(&change.before),
                after: without_tdm(&change.after),
            },
            evidence: EvidenceCache::default(),
            urls: HashSet::new(),
            effect: ChangeEffect::default(),
        }
    }

    /// Adds the URL of `record`, unless the change is not for it, or it was added before.
    fn add(&mut self, record: &StoredRecord, examples: usize) {
        if !self.is_for(record) {
            return;
        }
        // No rule can be held against a query string that is not on record.
        if record.is_redacted() || record.url.contains(WITHHELD) {
            self.effect.left_out += 1;
            return;
        }
        let url = CrawlerUrl {
            crawler: record.crawler.candidates.first().cloned(),
            url: record.url.clone(),
        };
        if self.urls.contains(&url) {
            return;
        }
        // The newest decision about a URL counts: its policy is nearest to that of now.
        match self.decide(record) {
            Ok(effect) => self.count(&url, effect, examples),
            Err(_) => self.effect.left_out += 1,
        }
        self.urls.insert(url);
    }

    /// Reports whether `record` rests on an answer for the same origin and product token.
    fn is_for(&self, record: &StoredRecord) -> bool {
        record.snapshot.as_ref().is_some_and(|snapshot| {
            // A site may answer each crawler in its own way.
            let has_token = match (&snapshot.token, &self.change.after.key.token) {
                (Some(one), Some(other)) => one.eq_ignore_ascii_case(other.as_str()),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            has_token && snapshot.origin == self.origin
        })
    }

    fn decide(&mut self, record: &StoredRecord) -> Result<UrlEffect, Undecidable> {
        let AnswerChange { before, after } = &mut self.change;
        let before = ruling_by(record, before, &mut self.evidence)?.verdict;
        let after = ruling_by(record, after, &mut self.evidence)?.verdict;
        // No verdict but these two: a ruling has no delay.
        let (was, is) = (Verdict::Disallow == before, Verdict::Disallow == after);
        Ok(match (was, is) {
            (false, false) => UrlEffect::StillAllowed,
            (true, true) => UrlEffect::StillDisallowed,
            (false, true) => UrlEffect::NewlyDisallowed,
            (true, false) => UrlEffect::NewlyAllowed,
        })
    }

    fn count(&mut self, url: &CrawlerUrl, effect: UrlEffect, examples: usize) {
        let found = &mut self.effect;
        found.all.add(effect);
        // Those beyond the bound are still counted among all.
        let is_known = found.crawlers.contains_key(&url.crawler);
        if is_known || found.crawlers.len() < CRAWLERS_MAX {
            let counts = found.crawlers.entry(url.crawler.clone()).or_default();
            counts.add(effect);
        }
        let named = match effect {
            UrlEffect::NewlyDisallowed => &mut found.newly_disallowed,
            UrlEffect::NewlyAllowed => &mut found.newly_allowed,
            UrlEffect::StillAllowed | UrlEffect::StillDisallowed => return,
        };
        if named.len() < examples {
            named.push(url.clone());
        }
    }
}

impl EffectCounts {
    fn add(&mut self, effect: UrlEffect) {
        self.urls += 1;
        match effect {
            UrlEffect::StillAllowed => {}
            UrlEffect::StillDisallowed => self.still_disallowed += 1,
            UrlEffect::NewlyDisallowed => self.newly_disallowed += 1,
            UrlEffect::NewlyAllowed => self.newly_allowed += 1,
        }
    }
}
