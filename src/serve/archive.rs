//! Shipping of the record to the archive (`audit.archive`) while the proxy runs.

use std::sync::Arc;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::parts::{SharedParts, node_name};
use crate::archive::connection::ArchiveAccess;
use crate::archive::shipper::Shipper;
use crate::archive::{ArrivalListener, ShippedRecord};
use crate::config::Settings;

/// Shipping that is under way.
#[derive(Debug)]
pub(super) struct ArchiveShipping {
    stop: CancellationToken,
    task: AbortOnDropHandle<Shipper>,
}

impl ArchiveShipping {
    /// Begins to ship the record, if `settings` name an archive. Whether that can be
    /// reached is found out by the task.
    ///
    /// # Errors
    ///
    /// Credentials or certificates that cannot be read, or a machine whose name cannot be that
    /// of a node.
    pub(super) fn start(settings: &Settings, shared: &SharedParts) -> anyhow::Result<Option<Self>> {
        if settings.archive.address.is_none() {
            return Ok(None);
        }
        let connector = ArchiveAccess::new(&settings.archive).context("audit.archive")?;
        let record = shipped_record(settings)?;
        let log = Arc::clone(&shared.audit);
        let arrival = ArrivalListener(Box::new(move |number| log.set_arrived(number)));
        let shipper = Shipper::new(connector, record, arrival, Arc::clone(&shared.metrics));
        let stop = CancellationToken::new();
        let running = shipper.run(stop.clone());
        Ok(Some(Self {
            stop,
            task: AbortOnDropHandle::new(tokio::spawn(running)),
        }))
    }

    /// Ships the last entries, once the record is closed.
    pub(super) async fn finish(self) {
        self.stop.cancel();
        if let Ok(shipper) = self.task.await {
            shipper.finish().await;
        }
    }
}

/// Returns the record of `settings`, as it is named in the archive.
///
/// # Errors
///
/// A machine whose name cannot be that of a node.
pub(crate) fn shipped_record(settings: &Settings) -> anyhow::Result<ShippedRecord> {
    Ok(ShippedRecord {
        path: settings.audit.path.clone(),
        seal_key: settings.audit.seal.key.clone(),
        node: node_name(&settings.archive.node)?,
    })
}
