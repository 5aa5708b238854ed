//! Queries of pages to the archive (`audit.archive`), within the time limit of a page.
//!
//! Does not know the pages.

#[cfg(feature = "postgres")]
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

#[cfg(feature = "postgres")]
use bytes::Bytes;
use thiserror::Error;
#[cfg(feature = "postgres")]
use tokio::time::timeout;

use politesse_archive::Options;
#[cfg(feature = "postgres")]
use politesse_archive::failure::ArchiveFailure;
use politesse_archive::place::ArchivePlace;
#[cfg(feature = "postgres")]
use politesse_archive::pool::ArchivePool;
#[cfg(feature = "postgres")]
use politesse_archive::reader::ArchiveBounds;
use politesse_decision::record::StoredRecord;
use politesse_pages::explain::Explanation;
#[cfg(feature = "postgres")]
use politesse_pages::explain::RowContext;
use politesse_record::Direction;
use politesse_record::filter::DecisionFilter;
use politesse_record::overview::{OverviewFacts, OverviewTimes};
use politesse_record::stats::DecisionTotal;
#[cfg(feature = "postgres")]
use politesse_record::stats::StatOrder;

/// Longest time for a response of the archive, as for any query of a page.
#[cfg(feature = "postgres")]
const TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum number of decisions counted for a list: two hundred pages.
#[cfg(feature = "postgres")]
const COUNTED_MAX: u32 = 10_000;
/// Longest time for that count.
#[cfg(feature = "postgres")]
const COUNT_TIME: Duration = Duration::from_secs(1);

/// Queries the archive, if there is one.
#[derive(Debug, Clone, Default)]
pub struct ArchiveAsker {
    #[cfg(feature = "postgres")]
    pool: Option<Arc<ArchivePool>>,
}

/// Query for a page of decisions.
#[cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "without archives nothing reads it")
)]
#[derive(Debug, Clone)]
pub(super) struct RowsQuestion {
    /// Decisions to list.
    pub(super) filter: DecisionFilter,
    /// Order of the decisions.
    pub(super) direction: Direction,
    /// Place of the last decision of the page before; `None` for the first page.
    pub(super) after: Option<ArchivePlace>,
    /// Maximum number of rows.
    pub(super) rows: usize,
}

/// Decisions of one page.
#[derive(Debug, Default)]
pub(super) struct ArchiveRows {
    /// The decisions.
    pub(super) records: Vec<StoredRecord>,
    /// [`RowsQuestion::after`] of the next page; `None` on the last page.
    pub(super) next: Option<ArchivePlace>,
}

/// Reason why the archive returned no result.
#[derive(Debug, Error)]
pub(super) enum NoAnswer {
    /// No archive is configured.
    #[error("this proxy has no archive: audit.archive names one")]
    NoArchive,
    /// The archive has no such node: the request has to be changed.
    #[cfg(feature = "postgres")]
    #[error("{0}")]
    NoNode(String),
    /// The archive is unreachable, too slow, or reports an error.
    #[cfg(feature = "postgres")]
    #[error("{0}")]
    Failed(String),
}

#[cfg(feature = "postgres")]
impl From<ArchiveFailure> for NoAnswer {
    fn from(error: ArchiveFailure) -> Self {
        let cause = std::error::Error::source(&error);
        let because = cause.map_or(String::new(), |cause| format!(": {cause}"));
        if let ArchiveFailure::NoNode { .. } = &error {
            return Self::NoNode(error.to_string());
        }
        // The limit differs from the one for shipping, which the error text names.
        if let ArchiveFailure::Timeout(_) = &error {
            let seconds = TIME_MAX.as_secs();
            return Self::Failed(format!(
                "the archive did not answer within {seconds} seconds"
            ));
        }
        Self::Failed(format!("{error}{because}"))
    }
}

#[cfg(feature = "postgres")]
impl ArchiveAsker {
    /// Makes the asker for the archive in `options`. Connects to nothing yet.
    pub fn new(options: &Options) -> Self {
        // An unreachable archive must not keep the proxy from starting.
        let pool = ArchivePool::new(options.clone(), TIME_MAX);
        Self {
            pool: options.address.is_some().then(|| Arc::new(pool)),
        }
    }

    /// Reports whether an archive is configured.
    pub(super) fn has_archive(&self) -> bool {
        self.pool.is_some()
    }

    fn pool(&self) -> Result<&ArchivePool, NoAnswer> {
        self.pool.as_deref().ok_or(NoAnswer::NoArchive)
    }

    /// Reads a page of decisions.
    pub(super) async fn rows(&self, question: &RowsQuestion) -> Result<ArchiveRows, NoAnswer> {
        let pool = self.pool()?;
        let found = pool.within(async {
            let reader = pool.lend().await?;
            let asked = reader.question(&question.filter).await?;
            let bounds = ArchiveBounds {
                direction: question.direction,
                after: question.after,
                rows: question.rows,
            };
            let page = reader.page(&asked, &bounds).await?;
            reader.give_back();
            Ok(page)
        });
        let page = found.await?;
        Ok(ArchiveRows {
            records: page.records,
            next: page.next,
        })
    }

    /// Counts the decisions that meet `filter`, up to [`COUNTED_MAX`].
    pub(super) async fn total(&self, filter: &DecisionFilter) -> Result<DecisionTotal, NoAnswer> {
        let pool = self.pool()?;
        let count = pool.within(async {
            let reader = pool.lend().await?;
            let asked = reader.question(filter).await?;
            let total = reader.total(&asked, COUNTED_MAX).await?;
            reader.give_back();
            Ok(total)
        });
        // A filter that few decisions meet makes the archive read all of them. The list
        // is then shown without a total instead of late.
        let counted = timeout(COUNT_TIME, count).await;
        Ok(counted.map_err(|_| NoAnswer::Failed("the count took too long".to_owned()))??)
    }

    /// Explains the decision `seq` of `node`; `None` if there is no such decision.
    pub(super) async fn decision(
        &self,
        node: &str,
        seq: u64,
    ) -> Result<Option<Explanation>, NoAnswer> {
        let pool = self.pool()?;
        let found = pool.within(async {
            let reader = pool.lend().await?;
            let places = reader.places_of(Some(node), seq).await?;
            // Two records may share a name. Rows carry the record's id, so that a link
            // names one.
            let Some(place) = places.first() else {
                reader.give_back();
                return Ok(None);
            };
            let found = reader.decision(*place).await?;
            let mut others = None;
            if let Some(found) = &found
                && let Ok(target) = found.record.url.parse()
            {
                let all = reader.question(&DecisionFilter::of_url(&target)).await?;
                others = Some(reader.count(&all).await?.saturating_sub(1));
            }
            reader.give_back();
            Ok(found.map(|found| (found, others)))
        });
        let Some((found, others)) = found.await? else {
            return Ok(None);
        };
        // Deciding again takes processor time, which the proxy needs as well.
        let explaining = tokio::task::spawn_blocking(move || {
            let context = RowContext {
                others,
                ..RowContext::default()
            };
            Explanation::of_row(found.record, found.body.map(Bytes::from), context)
        });
        let explanation = explaining.await;
        explanation
            .map(Some)
            .map_err(|error| NoAnswer::Failed(error.to_string()))
    }

    /// Gathers the facts about the decisions in `times`.
    pub(super) async fn overview(
        &self,
        times: OverviewTimes,
        rows: usize,
    ) -> Result<OverviewFacts, NoAnswer> {
        let pool = self.pool()?;
        let found = pool.within(async {
            let reader = pool.lend().await?;
            let earlier = reader.question(&times.filter_before()).await?;
            let before = reader.stats(&earlier, &[], StatOrder::Requests).await?;
            let asked = reader.question(&times.filter()).await?;
            let facts = reader.overview(&asked, rows).await?;
            reader.give_back();
            Ok(OverviewFacts {
                before: before.first().map(|all| all.sums).unwrap_or_default(),
                ..facts
            })
        });
        Ok(found.await?)
    }
}

#[cfg(not(feature = "postgres"))]
impl ArchiveAsker {
    /// Makes an asker without an archive.
    pub fn new(_: &Options) -> Self {
        Self::default()
    }

    /// Reports `false`: there is no archive.
    pub(super) fn has_archive(&self) -> bool {
        false
    }

    /// Fails: without the feature there is no archive to read.
    pub(super) async fn rows(&self, _: &RowsQuestion) -> Result<ArchiveRows, NoAnswer> {
        Err(NoAnswer::NoArchive)
    }

    /// Fails: without the feature there is no archive to count in.
    pub(super) async fn total(&self, _: &DecisionFilter) -> Result<DecisionTotal, NoAnswer> {
        Err(NoAnswer::NoArchive)
    }

    /// Fails: without the feature there is no archive to read.
    pub(super) async fn decision(&self, _: &str, _: u64) -> Result<Option<Explanation>, NoAnswer> {
        Err(NoAnswer::NoArchive)
    }

    /// Fails: without the feature there is no archive to read.
    pub(super) async fn overview(
        &self,
        _: OverviewTimes,
        _: usize,
    ) -> Result<OverviewFacts, NoAnswer> {
        Err(NoAnswer::NoArchive)
    }
}
