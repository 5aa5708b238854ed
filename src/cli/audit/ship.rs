//! `audit ship`: sends the entries of a record to the archive.

use std::sync::Arc;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::cli::output::{Exit, print};
use crate::cli::process::runtime;
use crate::config::Settings;
use crate::serve::archive::shipped_record;
use politesse_archive::ArrivalListener;
use politesse_archive::address::ArchiveAddress;
use politesse_archive::connection::ArchiveAccess;
use politesse_archive::shipper::Shipper;
use politesse_base::metrics::Metrics;

/// Arguments of `audit ship`.
#[derive(Debug, Args)]
pub(crate) struct ShipArguments {
    /// The archive to use instead of audit.archive; audit.archive_auth and
    /// audit.archive_ca still apply.
    #[arg(long, value_name = "URL")]
    to: Option<ArchiveAddress>,
    /// Ends once all entries present now have arrived.
    #[arg(long)]
    once: bool,
}

/// Ships the record of `settings`.
pub(super) fn ship(asked: &ShipArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let mut options = settings.archive.clone();
    options.address = asked.to.clone().or(options.address);
    let access = ArchiveAccess::new(&options)?;
    let address = access.address.clone();
    // A running proxy has its own shipper, which learns what has arrived.
    let arrival = ArrivalListener(Box::new(|_| {}));
    let record = shipped_record(settings)?;
    let shipper = Shipper::new(access, record, arrival, Arc::new(Metrics::default()));
    match asked.once {
        true => ship_once(shipper, &address),
        false => follow(shipper),
    }
}

/// Ships the entries present now.
fn ship_once(mut shipper: Shipper, address: &ArchiveAddress) -> anyhow::Result<Exit> {
    let shipped = runtime()?.block_on(shipper.ship_pending())?;
    print(&match shipped {
        None => format!("all entries have arrived in {address} already\n"),
        Some(last) => format!("entries up to {last} have arrived in {address}\n"),
    })
}

/// Ships entries as they are written, until a signal ends the process. An unfinished
/// shipment then has no effect.
fn follow(shipper: Shipper) -> anyhow::Result<Exit> {
    runtime()?.block_on(shipper.run(CancellationToken::new()));
    Ok(Exit::Done)
}
