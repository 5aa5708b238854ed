//! Archive as the source of a command: puts one question after the other, and waits for
//! each answer.
//!
//! Does not know the SQL of a question.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Runtime;

use super::arguments::DecisionName;
use crate::cli::output::Usage;
use politesse_archive::failure::ArchiveFailure;
use politesse_archive::nodes::ArchiveNode;
use politesse_archive::reader::{ArchiveBounds, FleetArchiveReader};
use politesse_decision::record::StoredRecord;
use politesse_pages::explain::{Explanation, RowContext};
use politesse_record::Direction;
use politesse_record::filter::DecisionFilter;
use politesse_record::stats::{StatGroup, StatQuestion};

/// Rows per page: the first page is small, so that it appears at once; later pages are
/// large enough to hide the network latency.
const FIRST_ROWS: usize = 64;
const ROWS_MAX: usize = 2048;

/// Archive that a command queries.
pub(super) struct ArchiveSource {
    runtime: Runtime,
    reader: FleetArchiveReader,
    /// Nodes at the start of the command, by their number.
    nodes: BTreeMap<i32, ArchiveNode>,
    /// Node to query; absent for all nodes.
    node: Option<String>,
}

/// How far the record of each node had arrived, by the number and the label of the
/// node.
pub(super) struct ArchiveEnds {
    by_number: BTreeMap<i32, i64>,
    by_label: BTreeMap<Arc<str>, i64>,
}

impl ArchiveEnds {
    /// Reports whether a decision had arrived.
    pub(super) fn include(&self, record: &StoredRecord) -> bool {
        let label = record.node.as_ref();
        let last = label.and_then(|label| self.by_label.get(label));
        last.is_some_and(|last| record.seq <= last.cast_unsigned())
    }
}

impl ArchiveSource {
    /// Makes the source of a connected archive.
    pub(super) fn new(
        runtime: Runtime,
        reader: FleetArchiveReader,
        node: Option<String>,
    ) -> anyhow::Result<Self> {
        let nodes = runtime.block_on(reader.nodes())?;
        Ok(Self {
            runtime,
            reader,
            nodes,
            node,
        })
    }

    /// Reports whether all nodes are queried.
    pub(super) fn is_of_all_nodes(&self) -> bool {
        self.node.is_none()
    }

    /// Puts a question to the archive, and waits for the answer.
    pub(super) fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&FleetArchiveReader) -> Result<T, ArchiveFailure>,
    ) -> anyhow::Result<T> {
        self.wait(question(&self.reader))
    }

    /// Waits for an operation of the archive.
    pub(super) fn wait<T>(
        &self,
        question: impl Future<Output = Result<T, ArchiveFailure>>,
    ) -> anyhow::Result<T> {
        self.runtime.block_on(question).map_err(|error| {
            // The user's input is wrong, not the archive.
            if let ArchiveFailure::NoNode { .. } = &error {
                return Usage::Arguments(error.to_string()).into();
            }
            error.into()
        })
    }

    /// Returns the filter with the queried node.
    fn filter(&self, filter: &DecisionFilter) -> DecisionFilter {
        DecisionFilter {
            node: self.node.clone(),
            ..filter.clone()
        }
    }

    /// Passes the decisions that meet `filter` to `visit` until it breaks.
    pub(super) fn visit(
        &self,
        filter: &DecisionFilter,
        direction: Direction,
        mut visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        let question = self.wait(self.reader.question(&self.filter(filter)))?;
        let mut bounds = ArchiveBounds {
            direction,
            after: None,
            rows: FIRST_ROWS,
        };
        loop {
            let page = self.wait(self.reader.page(&question, &bounds))?;
            if page.records.into_iter().try_for_each(&mut visit).is_break() {
                return Ok(());
            }
            bounds.after = page.next;
            // A caller that continues after the first page usually wants many rows.
            bounds.rows = ROWS_MAX;
            if bounds.after.is_none() {
                return Ok(());
            }
        }
    }

    /// Counts the decisions that meet `filter`.
    pub(super) fn count(&self, filter: &DecisionFilter) -> anyhow::Result<u64> {
        let question = self.wait(self.reader.question(&self.filter(filter)))?;
        self.wait(self.reader.count(&question))
    }

    /// Finds how far the record of each node has arrived.
    pub(super) fn ends(&self) -> anyhow::Result<ArchiveEnds> {
        let nodes = self.wait(self.reader.nodes())?;
        let by_label = nodes.values();
        Ok(ArchiveEnds {
            by_label: by_label
                .map(|node| (Arc::clone(&node.label), node.last))
                .collect(),
            by_number: nodes
                .into_iter()
                .map(|(number, node)| (number, node.last))
                .collect(),
        })
    }

    /// Passes the decisions after `ends` that meet `filter` to `visit` until it breaks.
    pub(super) fn visit_after(
        &self,
        ends: &mut ArchiveEnds,
        filter: &DecisionFilter,
        visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        let question = self.wait(self.reader.question(&self.filter(filter)))?;
        let arrived = self.wait(self.reader.arrived(&question, &mut ends.by_number))?;
        // The visitor keeps its own error.
        let _ = arrived.into_iter().try_for_each(visit);
        Ok(())
    }

    /// Explains the decision that `name` names; `None` if it is not found.
    pub(super) fn explain(&self, name: &DecisionName) -> anyhow::Result<Option<Explanation>> {
        // A name may include the node; --node is for names without one.
        let node = name.node.as_deref().or(self.node.as_deref());
        let places = self.wait(self.reader.places_of(node, name.seq))?;
        let (1, Some(place)) = (places.len(), places.first()) else {
            return match places.len() {
                0 => Ok(None),
                _ => Err(self.ambiguous(name.seq)?),
            };
        };
        if node.is_none() {
            // Even a single match: tomorrow another node may have that number.
            return Err(self.ambiguous(name.seq)?);
        }
        let Some(found) = self.wait(self.reader.decision(*place))? else {
            return Ok(None);
        };
        let mut context = RowContext::default();
        if let Ok(target) = found.record.url.parse() {
            let all = self.count(&DecisionFilter::of_url(&target))?;
            context.others = Some(all.saturating_sub(1));
        }
        let body = found.body.map(Bytes::from);
        Ok(Some(Explanation::of_row(found.record, body, context)))
    }

    /// Makes the error for a number that several decisions have.
    fn ambiguous(&self, seq: u64) -> anyhow::Result<anyhow::Error> {
        let places = self.wait(self.reader.places_of(None, seq))?;
        let nodes = self.wait(self.reader.nodes())?;
        let labels = places.iter().filter_map(|place| nodes.get(&place.node));
        let names: Vec<_> = labels.map(|node| format!("{}/{seq}", node.label)).collect();
        let text = format!(
            "each node has numbers of its own: ask for one of {}",
            names.join(", ")
        );
        Ok(Usage::Arguments(text).into())
    }

    /// Counts the selected decisions by their keys.
    pub(super) fn stats(&self, question: &StatQuestion<'_>) -> anyhow::Result<Vec<StatGroup>> {
        let filter = self.filter(question.filter);
        let asked = self.wait(self.reader.question(&filter))?;
        self.wait(self.reader.stats(&asked, question.keys, question.order))
    }

    /// Returns the id of the record that contains a decision.
    pub(super) fn record_id(&self, record: &StoredRecord) -> Cow<'_, str> {
        let is_own = |node: &&ArchiveNode| Some(&node.label) == record.node.as_ref();
        let node = self.nodes.values().find(is_own);
        node.map_or(Cow::Borrowed(""), |node| Cow::Borrowed(&node.record))
    }
}
