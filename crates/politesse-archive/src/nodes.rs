//! Nodes of the archive: whose records it has, and how each is called.
//!
//! Does not know what the records say.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::failure::ArchiveFailure;
use super::session::ArchiveSession;

/// Node whose record is in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveNode {
    /// Id of its record.
    pub record: String,
    /// Name of the node; the id of the record, where two records have one name.
    pub label: Arc<str>,
    /// Name of the node, which an earlier record of it may have, too.
    pub name: String,
    /// Highest number up to which everything has arrived.
    pub last: i64,
}

impl ArchiveNode {
    /// Finds the nodes that are called `name`: by the name, or by the id of the record.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure::NoNode`].
    pub(super) fn named(
        nodes: &BTreeMap<i32, Self>,
        name: &str,
    ) -> Result<Vec<i32>, ArchiveFailure> {
        let is_called = |node: &Self| node.name == name || node.record == name;
        let called = nodes.iter().filter(|(_, node)| is_called(node));
        let found: Vec<i32> = called.map(|(number, _)| *number).collect();
        if found.is_empty() {
            return Err(ArchiveFailure::NoNode {
                name: name.to_owned(),
                known: nodes.values().map(|node| node.label.to_string()).collect(),
            });
        }
        Ok(found)
    }
}

/// Reads all nodes, by their number.
pub(super) async fn nodes_of(
    session: &ArchiveSession,
) -> Result<BTreeMap<i32, ArchiveNode>, ArchiveFailure> {
    let sql = "SELECT id, record, name, last FROM node ORDER BY id";
    let rows = session.query(sql, &[]).await?;
    let names: Vec<String> = rows.iter().map(|row| row.get(2)).collect();
    let node = |at: usize, row: &tokio_postgres::Row| {
        let (record, name): (String, String) = (row.get(1), row.get(2));
        let mut others = names.iter().enumerate().filter(|(place, _)| *place != at);
        // A node whose record was begun anew: a name would be that of both.
        let label = match others.any(|(_, other)| *other == name) {
            true => record.as_str().into(),
            false => name.as_str().into(),
        };
        ArchiveNode {
            record,
            label,
            name,
            last: row.get(3),
        }
    };
    let rows = rows.iter().enumerate();
    Ok(rows.map(|(at, row)| (row.get(0), node(at, row))).collect())
}
