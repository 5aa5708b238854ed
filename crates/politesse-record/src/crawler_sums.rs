//! Crawlers of a time range: the outcome of the requests of each, the groups of
//! robots.txt that applied to it, and the reasons why it was put off.
//!
//! Does not know how they are laid out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::slice::from_mut;
use std::sync::Arc;

use rusqlite::Connection;

use super::counting::{SumsApart, SumsByReference, count_decisions};
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::reader::AuditReader;
use super::stats::{DecisionSums, KeyTexts};
use politesse_decision::record::{StoredCrawler, StoredRuling};

/// Maximum number of groups listed for a crawler, most requests first.
const GROUPS_MAX: usize = 20;

/// Maximum number of User-Agents listed for a crawler.
const USER_AGENTS_MAX: usize = 5;

/// Finds the newest User-Agents. Only the last are read, because a crawler may
/// change its User-Agent with each request.
const USER_AGENTS: &str = "
SELECT candidates, user_agent FROM crawler WHERE user_agent IS NOT NULL
ORDER BY id DESC LIMIT 2000";

/// Crawlers of a time range.
#[derive(Debug, Clone)]
pub struct CrawlersSeen {
    /// Crawlers with most requests, in that order, always including those without a
    /// name.
    pub first: Vec<CrawlerSums>,
    /// Number of all crawlers.
    pub total: usize,
}

/// Decisions about one crawler.
#[derive(Debug, Clone, Default)]
pub struct CrawlerSums {
    /// Token that was applied; `None` for requests whose User-Agent has none.
    pub name: Option<Arc<str>>,
    /// Sums of all its decisions.
    pub sums: DecisionSums,
    /// Requests by the group that applied.
    pub groups: Vec<GroupCount>,
    /// Requests that were put off, by reason.
    pub put_off: BTreeMap<String, u64>,
    /// User-Agents with this token among the newest on record, the newest first.
    pub user_agents: Vec<String>,
}

/// Requests that a group of robots.txt applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCount {
    /// Agents of the group as written in the files; empty if no group applied to
    /// the crawler, or no robots.txt was consulted.
    pub agents: Vec<String>,
    /// Requests.
    pub requests: u64,
}

/// Sums the decisions that match `filter` by crawler, for the `rows` crawlers with
/// most requests.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn crawler_sums(
    reader: &AuditReader,
    filter: &DecisionFilter,
    rows: usize,
) -> Result<CrawlersSeen, AuditError> {
    let mut by_ruling = SumsByReference::new(SumsApart::NONE);
    count_decisions(reader, filter, from_mut(&mut by_ruling))?;
    let mut texts = KeyTexts::new(&reader.connection);
    let mut crawlers: HashMap<Option<String>, CrawlerCounts> = HashMap::new();
    for (references, entries) in by_ruling.iter() {
        let ruling = texts.ruling(references.ruling)?;
        // Product tokens are compared without regard to case (RFC 9309, section
        // 2.2.1).
        let name = ruling
            .crawler
            .as_ref()
            .map(|name| name.to_ascii_lowercase());
        let sums = DecisionSums::ruled(entries, &ruling);
        crawlers.entry(name).or_default().add(&ruling, &sums);
    }
    let total = crawlers.len();
    let mut first: Vec<_> = crawlers.into_values().map(CrawlerSums::from).collect();
    // Crawlers with equal counts are sorted by name, so that equal queries have
    // equal answers.
    first.sort_by(|one, other| {
        let by_requests = other.sums.requests.cmp(&one.sums.requests);
        by_requests.then_with(|| one.name.cmp(&other.name))
    });
    // Requests without a name are always shown, even if there are few.
    if let Some(nameless) = first
        .iter()
        .skip(rows)
        .position(|entry| entry.name.is_none())
    {
        first.swap(rows.saturating_sub(1), rows + nameless);
    }
    first.truncate(rows);
    add_user_agents(&reader.connection, &mut first)?;
    Ok(CrawlersSeen { first, total })
}

fn add_user_agents(connection: &Connection, crawlers: &mut [CrawlerSums]) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(USER_AGENTS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let names: String = row.get(0)?;
        // An altered value may not be a list.
        let list = serde_json::from_str(&names).unwrap_or_default();
        let seen = StoredCrawler::new(list, row.get(1)?);
        for crawler in &mut *crawlers {
            let is_it = match &crawler.name {
                Some(name) => seen
                    .candidates
                    .iter()
                    .any(|other| other.eq_ignore_ascii_case(name)),
                None => seen.candidates.is_empty(),
            };
            let agents = &mut crawler.user_agents;
            // A crawler has one row for each label, so a User-Agent may occur
            // several times.
            let seen = seen.user_agent.iter().find(|agent| !agents.contains(agent));
            if is_it && agents.len() < USER_AGENTS_MAX {
                agents.extend(seen.cloned());
            }
        }
    }
    Ok(())
}

/// Counts of one crawler while they are gathered.
#[derive(Debug, Default)]
struct CrawlerCounts {
    crawler: CrawlerSums,
    groups: HashMap<Vec<String>, u64>,
}

impl CrawlerCounts {
    fn add(&mut self, ruling: &StoredRuling, sums: &DecisionSums) {
        let crawler = &mut self.crawler;
        if crawler.name.is_none() {
            crawler.name = ruling.crawler.as_deref().map(Arc::from);
        }
        crawler.sums.add(sums);
        if 0 < sums.later {
            let put_off = crawler.put_off.entry(ruling.reason.clone()).or_default();
            *put_off = put_off.saturating_add(sums.later);
        }
        let group = self.groups.entry(ruling.group.clone()).or_default();
        *group = group.saturating_add(sums.requests);
    }
}

impl From<CrawlerCounts> for CrawlerSums {
    fn from(counts: CrawlerCounts) -> Self {
        let counted = counts.groups.into_iter();
        let mut groups: Vec<_> = counted
            .map(|(agents, requests)| GroupCount { agents, requests })
            .collect();
        groups.sort_by_cached_key(|group| (Reverse(group.requests), group.agents.clone()));
        // Limited, because sites may give the group of a crawler many lists of
        // names.
        groups.truncate(GROUPS_MAX);
        Self {
            groups,
            ..counts.crawler
        }
    }
}
