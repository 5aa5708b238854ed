//! Question to the archive: a filter of decisions, translated to PostgreSQL conditions
//! that can use the indexes.
//!
//! Selects the same decisions as `politesse_record::filter` does in a node's record;
//! `tests/it/archive_asked.rs` compares the two. Does not know which facts about the
//! decisions are queried.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_postgres::types::ToSql;

use super::failure::ArchiveFailure;
use super::nodes::{ArchiveNode, nodes_of};
use super::session::ArchiveSession;
use politesse_record::class_counts::{ClassColumns, class_sql};
use politesse_record::filter::{DecisionFilter, RulePattern, UrlPattern, normal_host};

/// Columns of a decision `d` that determine its class.
pub(super) const CLASS_COLUMNS: ClassColumns = ClassColumns {
    verdict: "d.verdict",
    reason: "d.reason",
    error: "d.error",
    status: "d.status",
    sent: "d.sent",
};

/// SQL expression for the path of a rule. Must equal the expression of the index
/// `decision_rule`, or PostgreSQL cannot use that index.
const RULE_PATH: &str = r"regexp_replace(d.rule, '^([^:]*:|[^:\s]*\s)\s*', '')";

/// SQL expression for the name of a rule (`disallow`) whose path is `?`: the text before
/// the path, without the colon.
const RULE_NAME: &str =
    r#"lower(btrim(left(d.rule, length(d.rule) - length(?)), E' \t:') COLLATE "C")"#;

/// SQL conditions on a decision `d`, with the values of their placeholders.
#[derive(Debug, Default)]
pub(super) struct ArchiveConditions {
    sql: Vec<String>,
    values: Vec<Box<dyn ToSql + Send + Sync>>,
}

impl ArchiveConditions {
    /// Adds a condition in which `?` stands for the value.
    pub(super) fn add(&mut self, sql: &str, value: impl ToSql + Send + Sync + 'static) {
        let placeholder = self.bind(value);
        self.sql.push(sql.replace('?', &placeholder));
    }

    /// Adds a value, and returns its placeholder (`$1` and so on).
    pub(super) fn bind(&mut self, value: impl ToSql + Send + Sync + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// Adds a condition that needs no value, or contains placeholders returned by
    /// [`ArchiveConditions::bind`].
    pub(super) fn add_bound(&mut self, sql: String) {
        self.sql.push(sql);
    }

    /// Joins all conditions with AND; the SQL `true` if there are none.
    pub(super) fn sql(&self) -> String {
        match self.sql.is_empty() {
            true => "true".to_owned(),
            false => self.sql.join(" AND "),
        }
    }

    /// Returns the values in the form that the client expects.
    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let values = self.values.iter();
        values
            .map(|value| &**value as &(dyn ToSql + Sync))
            .collect()
    }

    /// Adds the condition that the URL is `url`, or begins with it.
    fn add_url(&mut self, url: &UrlPattern) {
        // The index contains the first 400 characters of each URL, so PostgreSQL uses it
        // for a condition on these only.
        let text = url.text().to_owned();
        if !url.is_prefix() {
            self.add("left(d.url, 400) = left(?, 400) AND d.url = ?", text);
            return;
        }
        // No URL contains the last code point, so all URLs with this prefix sort before
        // it.
        self.add(
            "left(d.url, 400) >= left(?, 400) AND left(d.url, 400) < left(?, 400) || U&'\\+10FFFF' \
             AND starts_with(d.url, ?)",
            text,
        );
    }

    /// Adds the condition that the deciding rule has this path and, if given, this name.
    fn add_rule(&mut self, rule: &RulePattern) {
        let path = rule.path().to_owned();
        let by_index = format!("d.rule IS NOT NULL AND left({RULE_PATH}, 400) = left(?, 400)");
        self.add(&format!("{by_index} AND {RULE_PATH} = ?"), path.clone());
        if let Some(name) = rule.name() {
            let name = self.bind(name.to_ascii_lowercase());
            self.add(&format!("{RULE_NAME} = {name}"), path);
        }
    }
}

/// Filter whose node has been looked up in the archive.
#[derive(Debug, Clone)]
pub struct ArchiveQuestion {
    filter: DecisionFilter,
    /// All nodes of the archive, by number.
    pub(super) nodes: Arc<BTreeMap<i32, ArchiveNode>>,
    /// Numbers of the nodes that the filter names; `None` if it names none, so that all
    /// are selected.
    chosen_nodes: Option<Vec<i32>>,
}

impl ArchiveQuestion {
    /// Looks up the nodes that the filter names.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::NoNode`] if there is no such node.
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

    /// Builds the conditions on a decision `d`.
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
            Some("") => conditions.add_bound("d.crawler IS NULL".to_owned()),
            // Only ASCII letters are folded, regardless of the server's locale.
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
