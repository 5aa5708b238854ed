//! Effect of a changed robots.txt: the newest recorded URLs of its origin, each
//! decided with the old and the new answer.
//!
//! Crawler, operator's policy and time are those of the recorded request, so that
//! only the answer differs (invariant 2, ARCHITECTURE.md). Does not know where the
//! answers come from.

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

/// Maximum number of crawlers counted separately, because each may have sent any
/// number of names.
const CRAWLERS_MAX: usize = 100;

/// Decisions read per wanted URL, because a crawl may ask for the same few URLs
/// again and again.
const DECISIONS_PER_URL: usize = 10;

/// Limits of the search.
#[derive(Debug, Clone, Copy)]
pub struct EffectBounds {
    /// Maximum number of URLs; a URL counts once for each crawler that asked for
    /// it.
    pub urls: usize,
    /// Maximum number of example URLs of each kind.
    pub examples: usize,
    /// Time at which the search stops and returns its results so far.
    pub deadline: Instant,
}

/// Effect of a change on the newest URLs on record.
#[derive(Debug, Clone, Default)]
pub struct ChangeEffect {
    /// Effect on the URLs of each crawler, by its name; `None` for crawlers without
    /// a name. At most `CRAWLERS_MAX` crawlers.
    pub crawlers: BTreeMap<Option<String>, EffectCounts>,
    /// Effect on the URLs of all crawlers.
    pub all: EffectCounts,
    /// First URLs that only the new answer disallows.
    pub newly_disallowed: Vec<CrawlerUrl>,
    /// First URLs that only the old answer disallowed.
    pub newly_allowed: Vec<CrawlerUrl>,
    /// Decisions left out because their URL is not on record or they cannot be
    /// decided again.
    pub left_out: u64,
    /// Whether the search stopped before it had found the wanted number of URLs.
    pub is_cut: bool,
}

/// Numbers of URLs by effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EffectCounts {
    /// All URLs.
    pub urls: u64,
    /// URLs that both answers disallow.
    pub still_disallowed: u64,
    /// URLs that only the new answer disallows.
    pub newly_disallowed: u64,
    /// URLs that only the old answer disallowed.
    pub newly_allowed: u64,
}

/// URL and the crawler that asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CrawlerUrl {
    /// First name of the crawler; `None` if it has none.
    pub crawler: Option<String>,
    /// The URL.
    pub url: String,
}

/// Effect of a change on one URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UrlEffect {
    StillAllowed,
    StillDisallowed,
    NewlyDisallowed,
    NewlyAllowed,
}

impl RobotsChange {
    /// Restores the old and the new answer; `None` if a file is not on record, or
    /// was altered.
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
    // The row may have been altered into an invalid origin.
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

/// Decides the newest recorded URLs that `change` applies to, with both answers.
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
            // A page may hold more decisions than are wanted.
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

/// Search in progress, with the URLs decided so far.
struct EffectRun {
    origin: String,
    change: AnswerChange,
    evidence: EvidenceCache,
    urls: HashSet<CrawlerUrl>,
    effect: ChangeEffect,
}

impl EffectRun {
    fn new(change: &AnswerChange) -> Self {
        // A change concerns robots.txt only, so `/.well-known/tdmrep.json` must not
        // affect it.
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

    /// Counts the URL of `record`, unless the change does not apply to it or the
    /// URL was counted before.
    fn add(&mut self, record: &StoredRecord, examples: usize) {
        if !self.is_for(record) {
            return;
        }
        // Rules cannot be matched against a query string that is not on record.
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
        // Only the newest decision about a URL counts, because its policy is
        // closest to the current one.
        match self.decide(record) {
            Ok(effect) => self.count(&url, effect, examples),
            Err(_) => self.effect.left_out += 1,
        }
        self.urls.insert(url);
    }

    /// Reports whether `record` rests on an answer for the origin and product token
    /// of the change.
    fn is_for(&self, record: &StoredRecord) -> bool {
        record.snapshot.as_ref().is_some_and(|snapshot| {
            // Tokens must match, because a site may answer each crawler
            // differently.
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
        // A ruling has no delay, so there are only these two verdicts.
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
        // Crawlers beyond the limit are still counted in the total.
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
