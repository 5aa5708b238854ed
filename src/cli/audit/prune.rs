//! `audit prune`: removes old entries, through the running proxy or in its place.

#[cfg(feature = "postgres")]
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use super::arguments::time;
use super::order::{BY_COMMAND, ask_running, carry_out, reason, reason_of_user};
use crate::cli::output::{Exit, print};
use crate::config::{Settings, duration};
#[cfg(feature = "postgres")]
use crate::serve::archive::shipped_record;
#[cfg(feature = "postgres")]
use politesse_archive::ArrivalListener;
#[cfg(feature = "postgres")]
use politesse_archive::connection::ArchiveAccess;
#[cfg(feature = "postgres")]
use politesse_archive::shipper::Shipper;
use politesse_base::clock;
#[cfg(feature = "postgres")]
use politesse_base::metrics::Metrics;
#[cfg(feature = "postgres")]
use politesse_record::AuditLog;
use politesse_record::reader::AuditReader;
use politesse_record::{PruneRequest, PrunedNumbers};

/// Arguments of `audit prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// Removes entries from before: a time, a day, or how long ago (400d).
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    pub(super) before: Timestamp,
    /// Reason, which stays on record with your user name.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(super) why: String,
    /// Also removes entries that are younger than audit.retention.
    #[arg(long)]
    even_younger: bool,
    /// Removes the entries; otherwise they are only listed.
    #[arg(long)]
    pub(super) yes: bool,
}

/// Reads a time. A future time is a mistake, because it would remove everything.
fn past_time(text: &str) -> Result<Timestamp, String> {
    match time(text)? {
        before if clock::now() < before => Err("a time in the past is wanted".to_owned()),
        before => Ok(before),
    }
}

/// Returns the longer of this command's `audit.retention` and that of the proxy that
/// ran last, which is on record: a setting of one command must not make entries old.
fn retention_of(settings: &Settings) -> Option<Duration> {
    let reader = AuditReader::open(&settings.audit.path);
    // Reading errors are reported when entries are removed.
    let recorded = reader.and_then(|reader| reader.configuration());
    let of_proxy = recorded.ok().flatten().and_then(|recorded| {
        let table: toml::Table = recorded.text.parse().ok()?;
        duration(table.get("audit")?.get("retention")?.as_str()?)
    });
    settings.audit.retention.max(of_proxy)
}

/// Removes the entries before a time, or shows which would be removed.
pub(super) fn prune(asked: &PruneArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let mut settings = settings.clone();
    settings.audit.retention = retention_of(&settings);
    let settings = &settings;
    let request = PruneRequest {
        before: asked.before,
        is_even_younger: asked.even_younger,
        reason: reason_of_user(&asked.why),
    };
    let numbers = match asked.yes {
        true => removed(&request, settings)?,
        false => {
            AuditReader::open(&settings.audit.path)?.prunable(&request, settings.audit.retention)?
        }
    };
    let PrunedNumbers { first, last } = numbers;
    if last < first {
        let waits = match settings.audit.waits_for_archive {
            true => ", and all of it has arrived in the archive (audit.archive)",
            false => "",
        };
        return print(&format!(
            "there is nothing to remove: entries are removed in parts of 8,192, once all of a part is \
             older{waits}\n"
        ));
    }
    print(&match asked.yes {
        true => format!("entries {first} to {last} are removed\n"),
        false => format!("entries {first} to {last} would be removed; --yes removes them\n"),
    })
}

/// Removes the entries, through the running proxy, which continues after this returns,
/// or in its place.
fn removed(request: &PruneRequest, settings: &Settings) -> anyhow::Result<PrunedNumbers> {
    carry_out(
        settings,
        async |log| {
            #[cfg(feature = "postgres")]
            ship_first(settings, log).await?;
            Ok(log.prune(request.clone(), BY_COMMAND.to_owned()).await?)
        },
        || ask_running(settings, "prune", request),
    )
}

/// Ships entries that have not arrived in the archive; otherwise they could not be
/// removed.
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
