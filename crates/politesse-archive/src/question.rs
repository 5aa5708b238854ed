//! Question to the archive: a filter of decisions, with its conditions in the SQL of
//! PostgreSQL, by which the indexes are used.
//!
//! Means what `audit::filter` means in a record; `tests/it/archive_asked.rs` compares the
//! two. Does not know what is asked of the decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_postgres::types::ToSql;

use super::failure::ArchiveFailure;
use super::nodes::{ArchiveNode, nodes_of};
use super::session::ArchiveSession;
use politesse_record::class_counts::{ClassColumns, class_sql};
use politesse_record::filter::{DecisionFilter, RulePattern, UrlPattern, normal_host};

/// Columns of a decision `d` from which its class follows.
pub(super) const CLASS_COLUMNS: ClassColumns = ClassColumns {
    verdict: "d.verdict",
    reason: "d.reason",
    error: "d.error",
    status: "d.status",
    sent: "d.sent",
};

/// Path of a rule, as the index of rules has it.
const RULE_PATH: &str = r"regexp_replace(d.rule, '^([^:]*:|[^:\s]*\s)\s*', '')";

/// Name of a rule whose path is `?`: all before it, but for the colon.
const RULE_NAME: &str =
    r#"lower(btrim(left(d.rule, length(d.rule) - length(?)), E' \t:') COLLATE "C")"#;

/// Conditions in SQL about a decision `d`, with the values of their places.
#[derive(Debug, Default)]
pub(super) struct ArchiveConditions {
    sql: Vec<String>,
    values: Vec<Box<dyn ToSql + Send + Sync>>,
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

    fn add_url(&mut self, url: &UrlPattern) {
        // The index has beginnings: the condition on these chooses it.
        let text = url.text().to_owned();
        if !url.is_prefix() {
            self.add("left(d.url, 400) = left(?, 400) AND d.url = ?", text);
            return;
        }
        // No URL has the last character there is, so all that begin so are before it.
        self.add(
            "left(d.url, 400) >= left(?, 400) AND left(d.url, 400) < left(?, 400) || U&'\\+10FFFF' \
             AND starts_with(d.url, ?)",
            text,
        );
    }

    fn add_rule(&mut self, rule: &RulePattern) {
        let path = rule.path().to_owned();
        let by_index = format!("d.rule IS NOT NULL AND left({RULE_PATH}, 400) = left(?, 400)");
        self.add(&format!("{by_index} AND {RULE_PATH} = ?"), path.clone());
        if let Some(name) = rule.name() {
            let name = self.place(name.to_ascii_lowercase());
            self.add(&format!("{RULE_NAME} = {name}"), path);
        }
    }
}

/// Filter, with the nodes of the archive.
#[derive(Debug, Clone)]
pub struct ArchiveQuestion {
    filter: DecisionFilter,
    /// All nodes, by their number.
    pub(super) nodes: Arc<BTreeMap<i32, ArchiveNode>>,
    /// Numbers of the nodes that are asked about; `None` if all are.
    chosen_nodes: Option<Vec<i32>>,
}

impl ArchiveQuestion {
    /// Looks up the nodes that the filter names.
    pub(super) async fn new(
        session: &ArchiveSession,
        filter: &DecisionFilter,
    ) -> Result<Self, ArchiveFailure> {
        let nodes = nodes_of(session).await?;
        let name = filter.node.as_deref();
        let chosen = name.map(|name| ArchiveNode::named(&nodes, name));
        Ok(Self {
            chosen_nodes: chosen.transpose()?,
            nodes: Arc::new(nodes),
            filter: filter.clone(),
        })
    }

    /// Makes the conditions about a decision `d`.
    pub(super) fn conditions(&self) -> ArchiveConditions {
        let mut conditions = ArchiveConditions::default();
        let filter = &self.filter;
        if let Some(from) = filter.from {
            conditions.add("d.time >= ?", SystemTime::from(from));
        }
        if let Some(until) = filter.until {
            conditions.add("d.time < ?", SystemTime::from(until));
        }
        if let Some(nodes) = &self.chosen_nodes {
            conditions.add("d.node = ANY(?)", nodes.clone());
        }
        if let Some(host) = &filter.host {
            conditions.add("d.host = ?", normal_host(host));
        }
        if let Some(url) = &filter.url {
            conditions.add_url(url);
        }
        if let Some(rule) = &filter.rule {
            conditions.add_rule(rule);
        }
        match filter.stored_crawler() {
            None => {}
            Some("") => conditions.add_placed("d.crawler IS NULL".to_owned()),
            // By the letters that product tokens have, whatever the language of the server.
            Some(crawler) => conditions.add(
                "left(lower(d.crawler COLLATE \"C\"), 400) = left(?, 400) \
                 AND lower(d.crawler COLLATE \"C\") = ?",
                crawler.to_ascii_lowercase(),
            ),
        }
        if let Some(text) = &filter.search {
            conditions.add("strpos(lower(d.url), ?) > 0", text.to_ascii_lowercase());
        }
        if let Some(client) = filter.stored_client() {
            conditions.add("? IN (d.client, d.credential)", client);
        }
        if let Some(status) = filter.status {
            conditions.add("d.status >= ?", i32::from(status.first));
            conditions.add("d.status <= ?", i32::from(status.last));
        }
        if let Some(classes) = filter.class_words() {
            let class = class_sql(&CLASS_COLUMNS);
            conditions.add(&format!("strpos(?, ',' || {class} || ',') > 0"), classes);
        }
        if let Some(statement) = &filter.preference {
            let stated = serde_json::json!([{ "statement": statement }]);
            conditions.add("d.denials @> CAST(? AS text)::jsonb", stated.to_string());
        }
        for (column, word) in [
            ("label", &filter.label),
            ("method", &filter.method),
            ("verdict", &filter.verdict),
            ("reason", &filter.reason),
            ("effect", &filter.effect),
        ] {
            if let Some(word) = word {
                conditions.add(&format!("d.{column} = ?"), word.clone());
            }
        }
        conditions
    }
}
