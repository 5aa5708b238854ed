//! Shipping of the audit record to the archive (`audit.archive`) while the proxy runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::parts::{SharedParts, node_name};
use crate::config::Settings;
use politesse_archive::connection::ArchiveAccess;
use politesse_archive::shipper::Shipper;
use politesse_archive::{ArrivalListener, ShippedRecord};
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_record::AuditError;
use politesse_record::reader::AuditReader;

/// Gauges of the entries that the archive does not have yet, updated when the metrics
/// are read.
#[derive(Debug, Clone)]
pub(super) struct ArchiveLag {
    record: PathBuf,
    /// Number of the last entry up to which all have arrived; 0 until the archive has
    /// answered.
    arrived: Arc<AtomicI64>,
    metrics: Arc<Metrics>,
}

impl ArchiveLag {
    /// Sets the gauges. Blocks while the record is read from disk.
    pub(super) fn show(&self) {
        // An unreadable record raises an alarm of its own.
        self.try_show().unwrap_or_default();
    }

    fn try_show(&self) -> Result<(), AuditError> {
        // Counted each time: while shipping fails, the lag still grows.
        let arrived = self.arrived.load(Ordering::Acquire);
        let missing = AuditReader::open(&self.record)?.missing_entries(arrived)?;
        let now = clock::now().as_microsecond();
        let age_us = missing.oldest_us.map_or(0, |oldest| now - oldest);
        self.metrics.archive_lag_entries.set(missing.count);
        let seconds = &self.metrics.archive_lag_seconds;
        seconds.set((age_us / 1_000_000).max(0));
        Ok(())
    }
}

/// Shipping task of a running proxy.
#[derive(Debug)]
pub(super) struct ArchiveShipping {
    lag: ArchiveLag,
    stop: CancellationToken,
    task: AbortOnDropHandle<Shipper>,
}

impl ArchiveShipping {
    /// Begins to ship the record, if `settings` name an archive. The task connects
    /// later, so an archive that is down does not stop the proxy from starting.
    ///
    /// # Errors
    ///
    /// Credentials or certificates cannot be read, or the machine's name is no valid
    /// node name.
    pub(super) fn start(settings: &Settings, shared: &SharedParts) -> anyhow::Result<Option<Self>> {
        if settings.archive.address.is_none() {
            return Ok(None);
        }
        let connector = ArchiveAccess::new(&settings.archive).context("audit.archive")?;
        let record = shipped_record(settings)?;
        let log = Arc::clone(&shared.audit);
        let lag = ArchiveLag {
            record: record.path.clone(),
            arrived: Arc::default(),
            metrics: Arc::clone(&shared.metrics),
        };
        let arrived = Arc::clone(&lag.arrived);
        let arrival = ArrivalListener(Box::new(move |number| {
            arrived.store(number, Ordering::Release);
            log.set_arrived(number);
        }));
        let shipper = Shipper::new(connector, record, arrival, Arc::clone(&shared.metrics));
        let stop = CancellationToken::new();
        let running = shipper.run(stop.clone());
        Ok(Some(Self {
            lag,
            stop,
            task: AbortOnDropHandle::new(tokio::spawn(running)),
        }))
    }

    /// Returns the gauges of the entries that have not arrived.
    pub(super) fn lag(&self) -> ArchiveLag {
        self.lag.clone()
    }

    /// Ships the last entries. To be called once the record is closed.
    pub(super) async fn finish(self) {
        self.stop.cancel();
        if let Ok(shipper) = self.task.await {
            shipper.finish().await;
        }
    }
}

/// Returns the record of `settings`, with its name in the archive.
///
/// # Errors
///
/// The machine's name is no valid node name.
pub(crate) fn shipped_record(settings: &Settings) -> anyhow::Result<ShippedRecord> {
    Ok(ShippedRecord {
        path: settings.audit.path.clone(),
        node: node_name(&settings.archive.node)?,
    })
}
