//! Hosts of a time range, for a page: the outcome of the requests to each, its
//! back-offs, the newest copy of its robots.txt, and the usual pause between
//! requests.
//!
//! Does not know how they are laid out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::slice::from_mut;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};
use tokio::time::Instant;

use super::columns::column;
use super::counting::{SumsApart, SumsByReference, count_until};
use super::error::AuditError;
use super::filter::{DecisionFilter, EventFilter};
use super::order::Direction;
use super::reader::AuditReader;
use super::report::origins_of;
use super::speed::{ENTERED, PauseCounts, SENT, SentRow};
use super::stats::{DecisionSums, KeyTexts};
use politesse_base::clock;
use politesse_decision::digest::Digest;

/// Number of requests per host for which pauses are measured; the newest are used.
const PAUSES_MAX: usize = 100;

/// Maximum duration of the search for these requests. Without it, hosts that are
/// seldom asked would cause every decision to be read.
const PAUSES_TIME: Duration = Duration::from_millis(200);

/// Finds the newest answer among those that decisions rest on and the one saved for
/// the next process, which may not have decided anything yet.
const NEWEST_COPY: &str = "
SELECT * FROM (
  SELECT fetched_us, result, status, token, body FROM snapshot
  WHERE origin = ?1 ORDER BY fetched_us DESC LIMIT 1)
UNION ALL SELECT * FROM (
  SELECT fetched_us, result, status, token, body FROM kept
  WHERE origin = ?1 ORDER BY fetched_us DESC LIMIT 1)
ORDER BY 1 DESC LIMIT 1";

/// Order of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRanking {
    /// Most requests first.
    Requests,
    /// Most refusals first, including requests that report mode let through.
    Refused,
    /// Most back-offs first.
    BackOffs,
    /// Oldest robots.txt first; hosts without a copy last.
    Robots,
    /// By name.
    Name,
}

impl HostRanking {
    /// All orders.
    pub const ALL: [Self; 5] = [
        Self::Requests,
        Self::Refused,
        Self::BackOffs,
        Self::Robots,
        Self::Name,
    ];

    /// Returns the order as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Refused => "refused",
            Self::BackOffs => "back_offs",
            Self::Robots => "robots",
            Self::Name => "name",
        }
    }
}

/// Query for a page of hosts.
#[derive(Debug, Clone)]
pub struct HostsQuestion {
    /// Time from which on decisions are counted.
    pub from: Timestamp,
    /// Substring of the host name; empty for all hosts.
    pub search: String,
    /// Order.
    pub order: HostRanking,
    /// Number of the page, from 1. A number after the last page selects the last
    /// page.
    pub page: usize,
    /// Number of rows per page.
    pub rows: usize,
    /// Time at which counting stops and returns its results so far.
    pub deadline: Instant,
}

/// Page of hosts.
#[derive(Debug)]
pub struct HostsSeen {
    /// Hosts of the page.
    pub hosts: Vec<ListedHost>,
    /// Number of the page, from 1.
    pub page: usize,
    /// Number of hosts on all pages.
    pub total: usize,
    /// Whether the deadline passed before everything was counted.
    pub is_cut: bool,
}

/// Host in the list.
#[derive(Debug, Default)]
pub struct ListedHost {
    /// Host name or address.
    pub host: Arc<str>,
    /// Sums of the decisions about the host.
    pub sums: DecisionSums,
    /// Number of back-offs that began in the time range.
    pub back_offs: u64,
    /// Newest copy of the robots.txt, of any origin and for any crawler.
    pub robots: Option<RobotsCopy>,
    /// Usual pause between the newest requests in the time range, in microseconds;
    /// `None` if fewer than two were found.
    pub usual_pause_us: Option<u64>,
}

/// Copy of a robots.txt.
#[derive(Debug, Clone)]
pub struct RobotsCopy {
    /// Time of the fetch.
    pub fetched_at: Timestamp,
    /// Result, as a word.
    pub result: String,
    /// Status of the answer.
    pub status: Option<u16>,
    /// Token of the crawler that it was fetched for; `None` if it serves all
    /// crawlers.
    pub token: Option<String>,
    /// Digest of the file, if the answer had one.
    pub sha256: Option<Digest>,
}

/// Lists the hosts that were asked. Counts by roll-ups where possible.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn host_list(reader: &AuditReader, question: &HostsQuestion) -> Result<HostsSeen, AuditError> {
    let filter = DecisionFilter {
        from: Some(question.from),
        ..DecisionFilter::default()
    };
    let (mut hosts, mut is_cut) = counted_hosts(reader, &filter, question)?;
    if question.order == HostRanking::Robots {
        is_cut |= add_copies(&reader.connection, &mut hosts, Some(question.deadline))?;
    }
    sort(&mut hosts, question.order);
    let (rows, total) = (question.rows.max(1), hosts.len());
    let page = question.page.clamp(1, total.div_ceil(rows).max(1));
    let first = (page - 1) * rows;
    let mut listed: Vec<_> = hosts.into_iter().skip(first).take(rows).collect();
    // Looked up only for the rows of the page. There may be a hundred thousand
    // hosts, and each takes several queries.
    add_copies(&reader.connection, &mut listed, None)?;
    add_pauses(reader, &filter, &mut listed)?;
    Ok(HostsSeen {
        hosts: listed,
        page,
        total,
        is_cut,
    })
}

/// Counts decisions and back-offs by host. Returns the hosts, and whether the
/// deadline passed before all decisions were counted.
fn counted_hosts(
    reader: &AuditReader,
    filter: &DecisionFilter,
    question: &HostsQuestion,
) -> Result<(Vec<ListedHost>, bool), AuditError> {
    let mut by_origin = SumsByReference::by_outcome(SumsApart::ORIGINS, &reader.connection)?;
    let deadline = Some(question.deadline);
    let is_cut = count_until(reader, filter, from_mut(&mut by_origin), deadline)?;
    // The record stores hosts in lower case.
    let search = question.search.to_ascii_lowercase();
    let mut texts = KeyTexts::new(&reader.connection);
    let mut hosts: HashMap<Arc<str>, ListedHost> = HashMap::new();
    for (references, entries) in by_origin.iter() {
        // Redacted decisions without an origin belong to no host.
        let host = texts.host(references.origin)?;
        if references.origin == 0 || !host.contains(&search) {
            continue;
        }
        let ruling = texts.ruling(references.ruling)?;
        let listed = hosts
            .entry(Arc::clone(&host))
            .or_insert_with(|| ListedHost {
                host,
                ..ListedHost::default()
            });
        listed.sums.add(&DecisionSums::ruled(entries, &ruling));
    }
    let back_offs = EventFilter {
        from: filter.from,
        kind: Some(ENTERED.to_owned()),
        ..EventFilter::default()
    };
    reader.visit_events(&back_offs, |event| {
        if let Some(listed) = hosts.get_mut(&*event.host) {
            listed.back_offs += 1;
        }
        ControlFlow::Continue(())
    })?;
    Ok((hosts.into_values().collect(), is_cut))
}

fn sort(hosts: &mut [ListedHost], order: HostRanking) {
    let rank = |host: &ListedHost| match order {
        HostRanking::Requests => Reverse(host.sums.requests),
        HostRanking::Refused => Reverse(host.sums.classes.refused()),
        HostRanking::BackOffs => Reverse(host.back_offs),
        HostRanking::Robots | HostRanking::Name => Reverse(0),
    };
    let age = |host: &ListedHost| match &host.robots {
        _ if order != HostRanking::Robots => Timestamp::MIN,
        Some(copy) => copy.fetched_at,
        None => Timestamp::MAX,
    };
    // Hosts with equal ranks are sorted by name, so that equal queries have equal
    // answers.
    hosts.sort_by(|one, other| {
        let by_rank = (rank(one), age(one)).cmp(&(rank(other), age(other)));
        by_rank.then_with(|| one.host.cmp(&other.host))
    });
}

/// Looks up the newest copies for hosts that have none yet, until `deadline`.
/// Returns whether the deadline passed before all were looked up.
fn add_copies(
    connection: &Connection,
    hosts: &mut [ListedHost],
    deadline: Option<Instant>,
) -> rusqlite::Result<bool> {
    for listed in hosts.iter_mut().filter(|host| host.robots.is_none()) {
        if deadline.is_some_and(|end| end <= clock::instant()) {
            return Ok(true);
        }
        for origin in origins_of(connection, &listed.host)?.into_values() {
            let copy = newest_copy(connection, &origin)?;
            let known = listed.robots.take();
            listed.robots = known
                .into_iter()
                .chain(copy)
                .max_by_key(|copy| copy.fetched_at);
        }
    }
    Ok(false)
}

fn newest_copy(connection: &Connection, origin: &str) -> rusqlite::Result<Option<RobotsCopy>> {
    let mut statement = connection.prepare_cached(NEWEST_COPY)?;
    let found = statement.query_row([origin], |row| {
        let scope: Option<String> = column(row, 3)?;
        // A saved scope has further lines: entry and sender.
        let token = scope.as_deref().and_then(|scope| scope.lines().next());
        Ok(RobotsCopy {
            fetched_at: column(row, 0)?,
            result: column(row, 1)?,
            status: column(row, 2)?,
            token: token.filter(|token| !token.is_empty()).map(str::to_owned),
            sha256: column(row, 4)?,
        })
    });
    found.optional()
}

/// Measures the pauses between the newest requests sent to `hosts`.
fn add_pauses(
    reader: &AuditReader,
    filter: &DecisionFilter,
    hosts: &mut [ListedHost],
) -> Result<(), AuditError> {
    let mut by_origin: HashMap<i64, usize> = HashMap::new();
    for (at, listed) in hosts.iter().enumerate() {
        let origins = origins_of(&reader.connection, &listed.host)?;
        by_origin.extend(origins.into_keys().map(|origin| (origin, at)));
    }
    let mut sent: BTreeMap<usize, Vec<SentRow>> = BTreeMap::new();
    let mut full = 0;
    let mut scan = reader
        .narrow_scan(SENT, filter)?
        .until(Some(clock::instant() + PAUSES_TIME))
        .in_direction(Direction::NewestFirst);
    while let Some(page) = scan.next_page(SentRow::read)? {
        for row in page.into_iter().filter(|row| 0 < row.sent) {
            let Some(at) = by_origin.get(&row.origin) else {
                continue;
            };
            let rows = sent.entry(*at).or_default();
            if rows.len() < PAUSES_MAX {
                rows.push(row);
                full += usize::from(rows.len() == PAUSES_MAX);
            }
        }
        if scan.is_late() || full == hosts.len() {
            break;
        }
    }
    for (at, rows) in sent {
        // Rows were read with the newest first, but pauses are counted in
        // chronological order.
        let mut pauses = PauseCounts::default();
        rows.iter()
            .rev()
            .for_each(|row| pauses.add(row.at, row.sent));
        if let Some(listed) = hosts.get_mut(at) {
            listed.usual_pause_us = pauses.median_us();
        }
    }
    Ok(())
}
