//! Nodes of the archive, one for each record (audit log) that was shipped: a node whose
//! record was started anew appears twice, under the same name.
//!
//! Nodes are numbered within the archive. Does not know the contents of the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::failure::ArchiveFailure;
use super::session::ArchiveSession;

/// Node whose record is in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveNode {
    /// Id of its record.
    pub record: String,
    /// Display name: the name of the node, or the id of the record if two records share
    /// the name.
    pub label: Arc<str>,
    /// Name of the node. An earlier record of the same node may share it.
    pub name: String,
    /// Number up to which all entries have arrived.
    pub last: i64,
}

impl ArchiveNode {
    /// Returns the numbers of the nodes with this name or record id.
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

/// Reads all nodes, by number.
pub(super) async fn nodes_of(
    session: &ArchiveSession,
) -> Result<BTreeMap<i32, ArchiveNode>, ArchiveFailure> {
    let sql = "SELECT id, record, name, last FROM node ORDER BY id";
    let rows = session.query(sql, &[]).await?;
    let names: Vec<String> = rows.iter().map(|row| row.get(2)).collect();
    let node = |at: usize, row: &tokio_postgres::Row| {
        let (record, name): (String, String) = (row.get(1), row.get(2));
        let mut others = names.iter().enumerate().filter(|(other, _)| *other != at);
        // If the record of a node was started anew, both records share the name.
        let label = match others.any(|(_, other_name)| *other_name == name) {
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
