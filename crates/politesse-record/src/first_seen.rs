//! Hosts and crawlers that appeared on record for the first time after a given
//! time.
//!
//! Dictionary rows are numbered in the order in which their values were first
//! recorded. New names are therefore the last rows, and a binary search with a few
//! queries finds the border, without reading all decisions. Does not know which
//! names the caller shows.

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::time::Instant;

use super::columns::signed;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::Direction;
use super::reader::{AuditReader, DECISION_NUMBERS};
use politesse_base::clock;

/// Dictionary of names.
struct NameTable {
    /// Query for the names, the newest first; its parameter is the limit.
    select: &'static str,
    /// Maximum number of names examined.
    most: usize,
}

/// Hosts, by their first origin.
const HOSTS: NameTable = NameTable {
    select: "
SELECT host FROM origin AS o
WHERE NOT EXISTS (SELECT 1 FROM origin AS e WHERE e.host = o.host AND e.id < o.id)
ORDER BY id DESC LIMIT ?",
    most: 5_000,
};

/// Crawlers, by their first ruling. The limit is low, because each search for a
/// crawler reads all roll-ups.
const CRAWLERS: NameTable = NameTable {
    select: "
SELECT crawler, min(id) AS first FROM ruling WHERE crawler IS NOT NULL
GROUP BY crawler COLLATE NOCASE ORDER BY first DESC LIMIT ?",
    most: 200,
};

/// Names that appeared for the first time, the newest first.
#[derive(Debug, Clone, Default)]
pub struct FirstSeen {
    /// The names.
    pub names: Vec<String>,
    /// Whether there may be more.
    pub is_cut: bool,
}

/// Limits of the search.
#[derive(Debug, Clone, Copy)]
pub struct FirstSeenBounds {
    /// Time from which on a name is new.
    pub from: Timestamp,
    /// Time at which the search stops and returns its results so far.
    pub deadline: Instant,
}

/// Returns the hosts without a decision before `bounds.from`.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn new_hosts(reader: &AuditReader, bounds: &FirstSeenBounds) -> Result<FirstSeen, AuditError> {
    let filter = |host: &str| DecisionFilter {
        host: Some(host.to_owned()),
        ..DecisionFilter::default()
    };
    newest(reader, bounds, &HOSTS, filter)
}

/// Returns the crawlers without a decision before `bounds.from`, by the token that
/// was applied.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn new_crawlers(
    reader: &AuditReader,
    bounds: &FirstSeenBounds,
) -> Result<FirstSeen, AuditError> {
    let filter = |token: &str| DecisionFilter {
        crawler: Some(token.to_owned()),
        ..DecisionFilter::default()
    };
    newest(reader, bounds, &CRAWLERS, filter)
}

impl NameTable {
    /// Reads the names, up to one more than the maximum, to tell whether there are
    /// others.
    fn read(&self, connection: &Connection) -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare_cached(self.select)?;
        let found = statement.query_map([signed(self.most as u64 + 1)], |row| row.get(0))?;
        found.collect()
    }
}

/// Returns the names in `table` without a decision before `bounds.from`. `filter`
/// returns the filter for the decisions of a name.
fn newest(
    reader: &AuditReader,
    bounds: &FirstSeenBounds,
    table: &NameTable,
    filter: impl Fn(&str) -> DecisionFilter,
) -> Result<FirstSeen, AuditError> {
    let mut names = table.read(&reader.connection)?;
    let (mut new, mut old, mut is_cut) = (0, names.len(), false);
    while new < old {
        let middle = new.midpoint(old);
        let Some(name) = names.get(middle) else {
            break;
        };
        // Checked before each search, because a search starts by reading all
        // roll-ups, which no deadline interrupts.
        if bounds.deadline <= clock::instant() {
            is_cut = true;
            break;
        }
        match has_earlier(reader, filter(name), bounds)? {
            Some(false) => new = middle + 1,
            Some(true) => old = middle,
            None => {
                is_cut = true;
                break;
            }
        }
    }
    // If more names than the maximum are new, there may be even more.
    is_cut |= table.most < new;
    names.truncate(new.min(table.most));
    Ok(FirstSeen { names, is_cut })
}

/// Reports whether a decision before `bounds.from` matches `filter`; `None` if the
/// deadline passed first.
fn has_earlier(
    reader: &AuditReader,
    filter: DecisionFilter,
    bounds: &FirstSeenBounds,
) -> Result<Option<bool>, AuditError> {
    let earlier = DecisionFilter {
        until: Some(bounds.from),
        ..filter
    };
    // The newest decisions come first, because an old name usually has one shortly
    // before.
    let mut scan = reader
        .narrow_scan(DECISION_NUMBERS, &earlier)?
        .until(Some(bounds.deadline))
        .in_direction(Direction::NewestFirst);
    while let Some(page) = scan.next_page(|_| Ok(()))? {
        if !page.is_empty() {
            return Ok(Some(true));
        }
        if scan.is_late() {
            return Ok(None);
        }
    }
    Ok(Some(false))
}
