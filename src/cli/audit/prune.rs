//! `audit prune`: removes old entries, by the proxy that runs or in its place.

use std::sync::Arc;

use clap::Args;
use http::Method;
use jiff::Timestamp;
use tokio_util::task::TaskTracker;

use super::arguments::time;
use crate::audit::reader::AuditReader;
use crate::audit::{AuditError, AuditLog, Options, PrunedNumbers};
use crate::cli::admin_api::{ApiError, ApiRequest, ask, escape};
use crate::cli::output::{Exit, print};
use crate::cli::process::runtime;
use crate::clock;
use crate::config::Settings;
use crate::metrics::Metrics;

/// Arguments of `audit prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// What is from before goes: a time, a day, or how long ago (400d).
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    before: Timestamp,
    /// Removes; without it the entries are only told.
    #[arg(long)]
    yes: bool,
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
        return print(
            "there is nothing to remove: entries go by parts of 8,192, each when all of it is older\n",
        );
    }
    print(&match asked.yes {
        true => format!("entries {first} to {last} are removed\n"),
        false => format!("entries {first} to {last} would be removed; --yes removes them\n"),
    })
}

/// Removes the entries, by the proxy that runs or in its place.
fn removed(before: Timestamp, settings: &Settings) -> anyhow::Result<PrunedNumbers> {
    let stopped = runtime()?.block_on(prune_stopped(&settings.audit, before));
    match stopped {
        Err(AuditError::Locked(_)) => prune_running(settings, before),
        stopped => Ok(stopped?),
    }
}

/// Removes entries of a record to which no proxy writes, all of them before it
/// returns.
async fn prune_stopped(options: &Options, before: Timestamp) -> Result<PrunedNumbers, AuditError> {
    let tracker = TaskTracker::new();
    let log = AuditLog::open(options, Arc::new(Metrics::default()), &tracker)?;
    // Closed in any case: else the lock would last as long as this process.
    let removal = async {
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
