//! Source that a command of `audit` queries: the record of this configuration, or the
//! archive with the records of all nodes.
//!
//! Both return the same rows for the same filter; rows of the archive name their node.
//! Does not know how rows are shown.

use std::borrow::Cow;
use std::ops::ControlFlow;

use bytes::Bytes;

#[cfg(feature = "postgres")]
use super::archive_source::{ArchiveEnds, ArchiveSource};
use super::arguments::DecisionSubject;
use super::listing::{node_layout, record_layout};
use super::rows::{RowForm, RowLayout};
use crate::cli::output::print_notice;
use politesse_decision::record::StoredRecord;
use politesse_pages::explain::{Explanation, RowContext};
use politesse_record::Direction;
use politesse_record::events::EventRow;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::{AuditReader, DecisionWithBody};
use politesse_record::removals::RemovalNote;
use politesse_record::stats::{StatGroup, StatQuestion, stats};

/// Source of decisions.
pub(super) enum DecisionSource {
    /// A record, with its id.
    Record {
        reader: Box<AuditReader>,
        id: String,
    },
    /// An archive.
    #[cfg(feature = "postgres")]
    Archive(Box<ArchiveSource>),
}

/// End of the decisions that a command has already shown.
pub(super) enum SourceEnd {
    /// Number of the last decision in the record.
    Record(u64),
    /// Last decisions of each node in the archive.
    #[cfg(feature = "postgres")]
    Archive(ArchiveEnds),
}

impl SourceEnd {
    /// Reports whether a decision is not after this end.
    pub(super) fn includes(&self, record: &StoredRecord) -> bool {
        match self {
            Self::Record(last) => record.seq <= *last,
            #[cfg(feature = "postgres")]
            Self::Archive(ends) => ends.include(record),
        }
    }
}

impl DecisionSource {
    /// Makes the source of a record.
    pub(super) fn of_record(reader: AuditReader) -> anyhow::Result<Self> {
        Ok(Self::Record {
            id: reader.record_id()?,
            reader: Box::new(reader),
        })
    }

    /// Reports whether the source contains decisions of several nodes.
    pub(super) fn has_nodes(&self) -> bool {
        !matches!(self, Self::Record { .. })
    }

    /// Returns the reader of the record and its id; `None` for an archive.
    pub(super) fn record(&self) -> Option<(&AuditReader, &str)> {
        match self {
            Self::Record { reader, id } => Some((reader, id)),
            #[cfg(feature = "postgres")]
            Self::Archive(_) => None,
        }
    }

    /// Returns the layout of the decisions.
    pub(super) fn layout(&self) -> RowLayout {
        match self.has_nodes() {
            true => node_layout(),
            false => record_layout(),
        }
    }

    /// Passes the decisions that meet `filter` to `visit` until it breaks. A pass over
    /// the whole record fails if not all entries could be read.
    pub(super) fn visit(
        &self,
        filter: &DecisionFilter,
        direction: Direction,
        mut visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Record { reader, .. } => {
                // After an early stop, or with a filter, there is nothing to compare.
                let mut is_whole = filter.is_open();
                reader.visit_decisions(filter, direction, |record| {
                    let flow = visit(record);
                    is_whole &= flow.is_continue();
                    flow
                })?;
                if is_whole {
                    reader.check_complete()?;
                }
                Ok(())
            }
            #[cfg(feature = "postgres")]
            Self::Archive(archive) => archive.visit(filter, direction, visit),
        }
    }

    /// Prints to stderr what was removed or redacted in the times of `filter`, if
    /// anything was and the output is for users.
    pub(super) fn tell_removals(
        &self,
        filter: &DecisionFilter,
        form: RowForm,
    ) -> anyhow::Result<()> {
        if form != RowForm::Columns {
            return Ok(());
        }
        let notes = self.removals(filter)?;
        if let Some(latest) = notes.first() {
            print_notice(&format!(
                "removals and redactions that may concern this time: {}; the latest: {latest}",
                notes.len()
            ));
        }
        Ok(())
    }

    /// Finds what was removed or redacted in the times of `filter`, the latest first.
    /// Nothing is known about removals of an archive.
    pub(super) fn removals(&self, filter: &DecisionFilter) -> anyhow::Result<Vec<RemovalNote>> {
        let removals = self.record().map(|(reader, _)| reader.removals(filter));
        Ok(removals.transpose()?.unwrap_or_default())
    }

    /// Finds the event that `subject` names by its number.
    pub(super) fn event(&self, subject: &DecisionSubject) -> anyhow::Result<Option<EventRow>> {
        match (self.record(), subject) {
            (Some((reader, _)), DecisionSubject::Number(name)) => Ok(reader.event(name.seq)?),
            _ => Ok(None),
        }
    }

    /// Counts the decisions that meet `filter`.
    pub(super) fn count(&self, filter: &DecisionFilter) -> anyhow::Result<u64> {
        match self {
            Self::Record { reader, .. } => Ok(reader.count(filter)?),
            #[cfg(feature = "postgres")]
            Self::Archive(archive) => archive.count(filter),
        }
    }

    /// Finds the place after the newest decision.
    pub(super) fn end(&self) -> anyhow::Result<SourceEnd> {
        match self {
            Self::Record { reader, .. } => {
                let range = reader.seq_range()?;
                Ok(SourceEnd::Record(range.map_or(0, |range| range.last)))
            }
            #[cfg(feature = "postgres")]
            Self::Archive(archive) => Ok(SourceEnd::Archive(archive.ends()?)),
        }
    }

    /// Passes the decisions after `end` that meet `filter` to `visit` until it breaks,
    /// and moves `end` after them.
    pub(super) fn visit_after(
        &self,
        end: &mut SourceEnd,
        filter: &DecisionFilter,
        visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        match (self, end) {
            (Self::Record { reader, .. }, SourceEnd::Record(last)) => {
                *last = reader.visit_decisions_after(*last, filter, visit)?;
            }
            #[cfg(feature = "postgres")]
            (Self::Archive(archive), SourceEnd::Archive(ends)) => {
                archive.visit_after(ends, filter, visit)?;
            }
            // An end always comes from the same source.
            #[cfg(feature = "postgres")]
            _ => {}
        }
        Ok(())
    }

    /// Explains the decision that `subject` names; `None` if it is not found.
    pub(super) fn explain(&self, subject: &DecisionSubject) -> anyhow::Result<Option<Explanation>> {
        let target = match subject {
            DecisionSubject::Url(target) => target,
            DecisionSubject::Number(name) => {
                return match self {
                    Self::Record { reader, .. } => {
                        let found = reader.decision(name.seq, None)?;
                        Ok(found.map(explained))
                    }
                    #[cfg(feature = "postgres")]
                    Self::Archive(archive) => archive.explain(name),
                };
            }
        };
        let mut newest = None;
        let filter = DecisionFilter::of_url(target);
        self.visit(&filter, Direction::NewestFirst, |record| {
            newest = Some(record);
            ControlFlow::Break(())
        })?;
        newest.map_or(Ok(None), |record| self.explain_row(&record))
    }

    /// Explains a decision that was found.
    pub(super) fn explain_row(&self, record: &StoredRecord) -> anyhow::Result<Option<Explanation>> {
        self.explain(&DecisionSubject::of(record))
    }

    /// Counts the selected decisions by their keys.
    pub(super) fn stats(&self, question: &StatQuestion<'_>) -> anyhow::Result<Vec<StatGroup>> {
        match self {
            Self::Record { reader, .. } => {
                let StatQuestion {
                    filter,
                    keys,
                    order,
                } = *question;
                let groups = stats(reader, filter, keys, order)?;
                if filter.is_open() {
                    reader.check_complete()?;
                }
                Ok(groups)
            }
            #[cfg(feature = "postgres")]
            Self::Archive(archive) => archive.stats(question),
        }
    }

    /// Returns the id of the record that contains a decision.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "a record has one id")
    )]
    pub(super) fn record_id(&self, record: &StoredRecord) -> Cow<'_, str> {
        match self {
            Self::Record { id, .. } => Cow::Borrowed(id),
            #[cfg(feature = "postgres")]
            Self::Archive(archive) => archive.record_id(record),
        }
    }
}

/// Explains a decision of the record.
fn explained(found: DecisionWithBody) -> Explanation {
    let context = RowContext {
        is_as_written: Some(found.is_as_written),
        others: found.others,
    };
    Explanation::of_row(found.record, found.body.map(Bytes::from), context)
}
