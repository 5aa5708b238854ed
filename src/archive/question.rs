//! Question to the archive: a filter of decisions, with its conditions in the SQL of
//! PostgreSQL, by which the indexes are used.
//!
//! Means what `audit::filter` means in a record; `tests/it/archive_asked.rs` holds the
//! two together. Does not know what is asked of the decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::types::ToSql;

use super::failure::ArchiveFailure;
use super::nodes::{ArchiveNode, nodes_of};
use super::session::ArchiveSession;
use crate::audit::filter::{DecisionFilter, normal_host};
use crate::decision::record::StoredRuling;

/// Rulings that are named one by one. Of more, PostgreSQL finds them by their words.
const RULINGS_NAMED_MAX: usize = 4096;

/// Rulings that a rule may have. It stands in as many lines and groups as there are
/// files that have it.
const RULINGS_MAX: usize = 100_000;

/// Value of a condition.
pub(super) type SqlValue = Box<dyn ToSql + Send + Sync>;

/// Conditions in SQL about a decision `d`, with the values of their places.
#[derive(Debug, Default)]
pub(super) struct ArchiveConditions {
    sql: Vec<String>,
    pub(super) values: Vec<SqlValue>,
}

impl ArchiveConditions {
    /// Adds a condition, in which `?` stands for the value.
    pub(super) fn add(&mut self, sql: &str, value: impl ToSql + Send + Sync + 'static) {
        let place = self.place(value);
        self.sql.push(sql.replace('?', &place));
    }

    /// Adds a value; returns its place.
    pub(super) fn place(&mut self, value: impl ToSql + Send + Sync + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// Adds a condition whose values have their places.
    pub(super) fn add_placed(&mut self, sql: String) {
        self.sql.push(sql);
    }

    /// Writes all of them; `true` if there are none.
    pub(super) fn sql(&self) -> String {
        match self.sql.is_empty() {
            true => "true".to_owned(),
            false => self.sql.join(" AND "),
        }
    }

    /// Returns the values as the client takes them.
    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let values = self.values.iter();
        values
            .map(|value| &**value as &(dyn ToSql + Sync))
            .collect()
    }
}

/// Filter with what the archive has of it: nodes, origins, rulings.
#[derive(Debug, Clone)]
pub struct ArchiveQuestion {
    pub(super) filter: DecisionFilter,
    /// All nodes, by their number.
    pub(super) nodes: Arc<BTreeMap<i32, ArchiveNode>>,
    /// Numbers of the nodes that are asked about; `None` if all are.
    logs: Option<Vec<i32>>,
    /// Rows of the origins that may be chosen; `None` if all may be.
    origins: Option<Vec<i64>>,
    /// Rows of the rulings that are chosen; `None` if their words choose them, if
    /// anything does.
    rulings: Option<Vec<i64>>,
}

impl ArchiveQuestion {
    /// Looks up what the filter names.
    pub(super) async fn new(
        session: &ArchiveSession,
        filter: &DecisionFilter,
    ) -> Result<Self, ArchiveFailure> {
        let nodes = nodes_of(session).await?;
        let logs = match &filter.node {
            Some(node) => Some(ArchiveNode::named(&nodes, node)?),
            None => None,
        };
        let url_host = filter.url.as_ref().and_then(|url| url.host());
        let host = filter.host.as_deref().map(normal_host);
        Ok(Self {
            logs,
            origins: match (host, url_host) {
                (None, None) => None,
                (None, Some(host)) => Some(origins_of(session, &[host]).await?),
                // No URL is of two hosts.
                (Some(host), Some(other)) if host != other => Some(Vec::new()),
                (Some(host), _) => Some(origins_of(session, &[&host]).await?),
            },
            rulings: rulings_of(session, filter).await?,
            nodes: Arc::new(nodes),
            filter: filter.clone(),
        })
    }

    /// Makes the conditions about a decision `d`.
    pub(super) fn conditions(&self) -> ArchiveConditions {
        let mut conditions = ArchiveConditions::default();
        if let Some(from) = self.filter.from {
            conditions.add("d.time_us >= ?", from.as_microsecond());
        }
        if let Some(until) = self.filter.until {
            conditions.add("d.time_us < ?", until.as_microsecond());
        }
        if let Some(logs) = &self.logs {
            conditions.add("d.log = ANY(?)", logs.clone());
        }
        if let Some(origins) = &self.origins {
            conditions.add("d.origin = ANY(?)", origins.clone());
        }
        if let Some(url) = &self.filter.url {
            let sql = match url.is_prefix() {
                true => "starts_with((SELECT origin FROM origin WHERE id = d.origin) || d.path, ?)",
                false => "(SELECT origin FROM origin WHERE id = d.origin) || d.path = ?",
            };
            conditions.add(sql, url.text().to_owned());
        }
        match &self.rulings {
            Some(rulings) => conditions.add("d.ruling = ANY(?)", rulings.clone()),
            None => {
                let words = ruling_words(&self.filter, &mut conditions);
                if let Some(words) = words {
                    let sql = format!("d.ruling IN (SELECT r.id FROM ruling AS r WHERE {words})");
                    conditions.add_placed(sql);
                }
            }
        }
        conditions
    }
}

/// Writes the conditions about a ruling `r` but for its rule; `None` if there are none.
fn ruling_words(filter: &DecisionFilter, conditions: &mut ArchiveConditions) -> Option<String> {
    let mut words = Vec::new();
    if let Some(crawler) = filter.stored_crawler() {
        let place = conditions.place(crawler.to_ascii_lowercase());
        // By the letters that product tokens have, whatever the language of the server.
        words.push(format!(
            "lower(coalesce(r.crawler, '') COLLATE \"C\") = {place}"
        ));
    }
    for (column, word) in [
        ("verdict", &filter.verdict),
        ("reason", &filter.reason),
        ("effect", &filter.effect),
    ] {
        if let Some(word) = word {
            let place = conditions.place(word.clone());
            words.push(format!("r.{column} = {place}"));
        }
    }
    (!words.is_empty()).then(|| words.join(" AND "))
}

/// Finds the rulings that the filter chooses; `None` if it chooses all, or too many to
/// name them.
async fn rulings_of(
    session: &ArchiveSession,
    filter: &DecisionFilter,
) -> Result<Option<Vec<i64>>, ArchiveFailure> {
    let mut conditions = ArchiveConditions::default();
    let words = ruling_words(filter, &mut conditions);
    if words.is_none() && filter.rule.is_none() {
        return Ok(None);
    }
    let mut sql = format!(
        "SELECT r.id, r.rule FROM ruling AS r WHERE {}",
        words.as_deref().unwrap_or("true")
    );
    let Some(rule) = &filter.rule else {
        sql.push_str(&format!(" LIMIT {}", RULINGS_NAMED_MAX + 1));
        let rows = session.query(&sql, &conditions.parameters()).await?;
        let is_named = rows.len() <= RULINGS_NAMED_MAX;
        return Ok(is_named.then(|| rows.iter().map(|row| row.get(0)).collect()));
    };
    let place = conditions.place(rule.path().as_bytes().to_vec());
    sql.push_str(&format!(" AND position({place} in r.rule) > 0"));
    let rows = session.query(&sql, &conditions.parameters()).await?;
    // SQL compares the path alone; what a rule is otherwise is known here.
    let is_chosen = |bytes: Option<Vec<u8>>| {
        let ruling = StoredRuling {
            rule: bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            ..StoredRuling::default()
        };
        let by_rule = DecisionFilter {
            rule: filter.rule.clone(),
            ..DecisionFilter::default()
        };
        by_rule.admits_ruling(&ruling)
    };
    let chosen = rows.iter().filter(|row| is_chosen(row.get(1)));
    let rulings: Vec<i64> = chosen.map(|row| row.get(0)).collect();
    match rulings.len() {
        0..=RULINGS_MAX => Ok(Some(rulings)),
        _ => Err(ArchiveFailure::TooManyRulings(RULINGS_MAX)),
    }
}

/// Finds the rows of the origins at `hosts`.
pub(super) async fn origins_of(
    session: &ArchiveSession,
    hosts: &[&str],
) -> Result<Vec<i64>, ArchiveFailure> {
    let sql = "SELECT id FROM origin WHERE host = ANY($1) ORDER BY id";
    let rows = session.query(sql, &[&hosts]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
