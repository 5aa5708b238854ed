//! `audit prune`: removes old entries, by the proxy that runs or in its place.

use std::sync::Arc;

use clap::Args;
use http::Method;
use jiff::Timestamp;
use tokio_util::task::TaskTracker;

use super::arguments::time;
#[cfg(feature = "postgres")]
use crate::archive::ArrivalListener;
#[cfg(feature = "postgres")]
use crate::archive::connection::ArchiveAccess;
#[cfg(feature = "postgres")]
use crate::archive::shipper::Shipper;
use crate::audit::reader::AuditReader;
use crate::audit::{AuditError, AuditLog, PrunedNumbers, check_in_use};
use crate::cli::admin_api::{ApiError, ApiRequest, ask, escape};
use crate::cli::output::{Exit, print};
use crate::cli::process::runtime;
use crate::clock;
use crate::config::Settings;
#[cfg(feature = "postgres")]
use crate::metrics::Metrics;
#[cfg(feature = "postgres")]
use crate::serve::archive::shipped_record;

/// Arguments of `audit prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// What is from before goes: a time, a day, or how long ago (400d).
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    pub(super) before: Timestamp,
    /// Removes; without it the entries are only told.
    #[arg(long)]
    pub(super) yes: bool,
}

/// Reads a time. One that is to come would remove all that there is: it is a slip.
fn past_time(text: &str) -> Result<Timestamp, String> {
    match time(text)? {
        before if clock::now() < before => Err("a time in the past is wanted".to_owned()),
        before => Ok(before),
    }
}

/// Removes the entries from before a time, or tells which would be removed.
pub(super) fn prune(asked: &PruneArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let numbers = match asked.yes {
        true => removed(asked.before, settings)?,
        false => AuditReader::open(&settings.audit.path)?.prunable(asked.before)?,
    };
    let PrunedNumbers { first, last } = numbers;
    if last < first {
        let waits = match settings.audit.waits_for_archive {
            true => ", and all of it has arrived in the archive (audit.archive)",
            false => "",
        };
        return print(&format!(
            "there is nothing to remove: entries go by parts of 8,192, each when all of it is older{waits}\n"
        ));
    }
    print(&match asked.yes {
        true => format!("entries {first} to {last} are removed\n"),
        false => format!("entries {first} to {last} would be removed; --yes removes them\n"),
    })
}

/// Removes the entries, by the proxy that runs or in its place.
fn removed(before: Timestamp, settings: &Settings) -> anyhow::Result<PrunedNumbers> {
    let stopped = runtime()?.block_on(prune_stopped(settings, before));
    match stopped {
        Err(error) if matches!(error.downcast_ref(), Some(AuditError::Locked(_))) => {
            check_in_use(&settings.audit.path)?;
            prune_running(settings, before)
        }
        stopped => stopped,
    }
}

/// Removes entries of a record to which no proxy writes, all of them before it
/// returns.
async fn prune_stopped(settings: &Settings, before: Timestamp) -> anyhow::Result<PrunedNumbers> {
    let tracker = TaskTracker::new();
    let log = Arc::new(AuditLog::open_for_command(&settings.audit, &tracker)?);
    // Closed in any case: else the lock would last as long as this process.
    let removal = async {
        #[cfg(feature = "postgres")]
        ship_first(settings, &log).await?;
        let numbers = log.prune(before, "command".to_owned()).await?;
        log.settled().await?;
        Ok(numbers)
    };
    let pruned = removal.await;
    log.close();
    tracker.close();
    tracker.wait().await;
    pruned
}

/// Ships what has not arrived in the archive, without which it could not be removed.
#[cfg(feature = "postgres")]
async fn ship_first(settings: &Settings, log: &Arc<AuditLog>) -> anyhow::Result<()> {
    if settings.archive.address.is_none() {
        return Ok(());
    }
    let access = ArchiveAccess::new(&settings.archive)?;
    let log = Arc::clone(log);
    let arrival = ArrivalListener(Box::new(move |number| log.set_arrived(number)));
    let record = shipped_record(settings)?;
    let mut shipper = Shipper::new(access, record, arrival, Arc::new(Metrics::default()));
    shipper.ship_pending().await?;
    Ok(())
}

/// Has the proxy that runs remove entries, which goes on after this returns.
fn prune_running(settings: &Settings, before: Timestamp) -> anyhow::Result<PrunedNumbers> {
    let request = ApiRequest {
        method: Method::POST,
        target: format!("/api/v1/audit/prune?before={}", escape(&before.to_string())),
    };
    let answer = ask(settings, &request)?;
    let foreign = |error| ApiError::Foreign(settings.admin.listen, error);
    Ok(serde_json::from_slice(&answer).map_err(foreign)?)
}
