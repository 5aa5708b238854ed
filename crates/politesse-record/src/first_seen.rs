//! Hosts and crawlers that came on record for the first time since a moment.
//!
//! Rows of a dictionary are numbered in the order in which their values came on record.
//! So the new ones are the last, and the border is found by a few searches in place of a
//! pass over all decisions. Does not know which values the caller shows.

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::time::Instant;

use super::columns::signed;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::Direction;
use super::reader::{AuditReader, DECISION_NUMBERS};
use politesse_base::clock;

/// Names in a dictionary.
struct NameTable {
    /// Query for the names, the newest first, with their number at most.
    select: &'static str,
    /// Names that are looked at.
    most: usize,
}

/// Hosts by their first origin.
const HOSTS: NameTable = NameTable {
    select: "
SELECT host FROM origin AS o
WHERE NOT EXISTS (SELECT 1 FROM origin AS e WHERE e.host = o.host AND e.id < o.id)
ORDER BY id DESC LIMIT ?",
    most: 5_000,
};

/// Crawlers by their first ruling. Few: each search for one looks at all roll-ups.
const CRAWLERS: NameTable = NameTable {
    select: "
SELECT crawler, min(id) AS first FROM ruling WHERE crawler IS NOT NULL
GROUP BY crawler COLLATE NOCASE ORDER BY first DESC LIMIT ?",
    most: 200,
};

/// Names that came on record for the first time, the newest first.
#[derive(Debug, Clone, Default)]
pub struct FirstSeen {
    /// The names.
    pub names: Vec<String>,
    /// Whether there may be more of them.
    pub is_cut: bool,
}

/// Moment since which names are new, and the time for finding them.
#[derive(Debug, Clone, Copy)]
pub struct FirstSeenBounds {
    /// Earliest decision about a name that is new.
    pub from: Timestamp,
    /// Time at which the search ends with what it has.
    pub deadline: Instant,
}

/// Finds the hosts without a decision before `bounds.from`.
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

/// Finds the crawlers without a decision before `bounds.from`, by the token that was bound.
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
    /// Reads the names, and one more than are looked at: it tells whether there are others.
    fn read(&self, connection: &Connection) -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare_cached(self.select)?;
        let found = statement.query_map([signed(self.most as u64 + 1)], |row| row.get(0))?;
        found.collect()
    }
}

/// Returns the names in `table` without a decision before `bounds.from`. `filter` chooses
/// the decisions of a name.
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
        // Each search begins with a look at all roll-ups, which no deadline ends.
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
    // Then the name beyond the bound is new as well.
    is_cut |= table.most < new;
    names.truncate(new.min(table.most));
    Ok(FirstSeen { names, is_cut })
}

/// Reports whether a decision before `bounds.from` meets `filter`; `None` if that is not
/// known in time.
fn has_earlier(
    reader: &AuditReader,
    filter: DecisionFilter,
    bounds: &FirstSeenBounds,
) -> Result<Option<bool>, AuditError> {
    let earlier = DecisionFilter {
        until: Some(bounds.from),
        ..filter
    };
    // The newest first: a name that is not new mostly has one shortly before.
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
