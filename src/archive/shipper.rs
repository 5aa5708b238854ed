//! Shipper: follows a record, and ships what is new to the archive.
//!
//! It reads as any reader does, a window at a time, and keeps nobody from anything:
//! neither a request nor the writer waits for it. What breaks is tried again over a new
//! connection, from the number that the archive has.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{ArchiveAccess, ArchiveConnection};
use super::failure::ArchiveFailure;
use super::shipment;
use super::shipped_node::ShippedNode;
use super::{ArrivalListener, ShippedRecord, fleet_head, schema};
use crate::audit::AuditError;
use crate::audit::copy_end::MissingEntries;
use crate::audit::entry_tables::SEAL_ENTRIES;
use crate::audit::entry_window::RecordDescription;
use crate::audit::head::key_name;
use crate::audit::note::NoteSigner;
use crate::audit::reader::AuditReader;
use crate::audit::seal_key::{key_path, read_key};
use crate::clock;
use crate::metrics::Metrics;

/// Time from one look for new entries to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Has each commit last: entries that have arrived may be removed on the node. A server
/// may be set up to say so before they are on its disk; whatever else it is set up to
/// wait for stays.
const COMMITS_LAST: &str = "SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'";

/// Pause after a failure, which doubles with each up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Longest time for which a stop waits for the last entries to arrive.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// Shipper of one record.
#[derive(Debug)]
pub struct Shipper {
    connector: ArchiveAccess,
    record: ShippedRecord,
    arrival: ArrivalListener,
    metrics: Arc<Metrics>,
    link: Option<ShippingLink>,
    /// Number up to which all entries are known to have arrived.
    arrived: i64,
    /// Text of the failure that was logged last; none while all is well.
    trouble: Option<String>,
}

/// Connection, with what is known of the record on both sides.
#[derive(Debug)]
struct ShippingLink {
    connection: ArchiveConnection,
    reader: AuditReader,
    node: ShippedNode,
    /// Key for fleet heads; `None` if this process may not read it.
    signer: Option<NoteSigner>,
}

/// Record that is open to be read, with the key of its heads.
#[derive(Debug)]
pub struct KeyedRecord {
    /// Reader of the record.
    pub reader: AuditReader,
    /// Description of the record.
    pub description: RecordDescription,
    /// Key that signs as the record, if this process may read it.
    pub signer: Result<NoteSigner, AuditError>,
}

impl KeyedRecord {
    /// Opens `record`.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure::Record`], [`ArchiveFailure::NoRecord`].
    pub fn of(record: &ShippedRecord) -> Result<Self, ArchiveFailure> {
        let reader = AuditReader::open(&record.path)?;
        let description = reader.description()?.ok_or(ArchiveFailure::NoRecord)?;
        // The key lies beside the file itself, whatever link leads to it.
        let real = record.path.canonicalize();
        let path = real.as_ref().unwrap_or(&record.path);
        let folder = path.parent().unwrap_or(path);
        let key = key_path(record.seal_key.as_deref(), folder);
        Ok(Self {
            signer: read_key(&key, &key_name(&description.id)),
            reader,
            description,
        })
    }
}

impl Shipper {
    /// Makes a shipper that is not connected yet.
    #[must_use]
    pub fn new(
        connector: ArchiveAccess,
        record: ShippedRecord,
        arrival: ArrivalListener,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            connector,
            record,
            arrival,
            metrics,
            link: None,
            arrived: 0,
            trouble: None,
        }
    }

    /// Ships what is there and what comes, until `stop`. Failures are logged, and tried
    /// again.
    pub async fn run(mut self, stop: CancellationToken) -> Self {
        let mut pause = FIRST_PAUSE;
        loop {
            let shipped = tokio::select! {
                shipped = self.ship_pending() => shipped,
                () = stop.cancelled() => return self,
            };
            let wait = match shipped {
                Ok(_) => {
                    pause = FIRST_PAUSE;
                    EVERY
                }
                Err(_) => {
                    pause = LONGEST_PAUSE.min(pause * 2);
                    pause / 2
                }
            };
            if shipped.is_err() {
                self.show_lag_of_failure().await;
            }
            self.report(shipped.err());
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => return self,
            }
        }
    }

    /// Ships the last entries of a record that is closed, for some seconds at most: what
    /// has not arrived by then is shipped by the next process.
    pub async fn finish(mut self) {
        let shipped = timeout(FINISH_MAX, self.ship_pending()).await;
        let failure = shipped
            .map_err(ArchiveFailure::from)
            .and_then(|shipped| shipped)
            .err();
        if let Some(error) = failure {
            let cause = text_of(&error);
            tracing::warn!(
                error = cause,
                "the last entries have not arrived in the archive: they are shipped after the next start"
            );
        }
    }

    /// Ships all that is not there yet. Returns how many numbers that were.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]. What was shipped before stays.
    pub async fn ship_pending(&mut self) -> Result<u64, ArchiveFailure> {
        let mut shipped = 0;
        loop {
            // Taken out, so that whatever fails leaves no connection behind.
            let link = match self.link.take() {
                Some(link) => link,
                None => timeout(self.connector.timeout, self.connect()).await??,
            };
            match self.ship_window(link).await {
                Ok((link, None)) => {
                    self.link = Some(link);
                    return Ok(shipped);
                }
                Ok((link, Some(numbers))) => {
                    self.link = Some(link);
                    shipped += numbers;
                }
                // The number that the archive has is read anew.
                Err(ArchiveFailure::Overtaken) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Connects, and finds out how much of the record has arrived.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::Forked`] if what has arrived is of another
    /// copy of the record. Nothing may be shipped behind that, and nothing removed here.
    async fn connect(&mut self) -> Result<ShippingLink, ArchiveFailure> {
        let shipped = self.record.clone();
        let opened = spawn_blocking(move || KeyedRecord::of(&shipped));
        // The record first: without one there is nothing to connect for.
        let KeyedRecord {
            reader,
            description: record,
            signer,
        } = joined(opened.await)?;
        let mut connection = self.connector.connect().await?;
        let client = &mut connection.client;
        schema::make(&self.connector, client).await?;
        client.execute(COMMITS_LAST, &[]).await?;
        let node = ShippedNode::find(client, &record, &self.record.node).await?;
        let end = node.end(client).await?;
        let compared = spawn_blocking(move || {
            let strange = reader.strange_entry(&end);
            (reader, strange)
        });
        let (reader, strange) = joined(compared.await);
        if let Some(seq) = strange? {
            return Err(ArchiveFailure::Forked { seq });
        }
        node.set_name(client, &self.record.node).await?;
        self.note_arrival(node.position.last);
        Ok(ShippingLink {
            connection,
            reader,
            node,
            // A copy of the record may be shipped where its key is not.
            signer: signer.ok(),
        })
    }

    /// Takes in that all entries up to `number` have arrived.
    fn note_arrival(&mut self, number: i64) {
        self.arrived = number;
        (self.arrival.0)(number);
    }

    /// Ships the next window. Returns how many numbers it had; `None` if there is nothing
    /// to ship. One with heads alone has none.
    async fn ship_window(
        &mut self,
        link: ShippingLink,
    ) -> Result<(ShippingLink, Option<u64>), ArchiveFailure> {
        let ShippingLink {
            mut connection,
            reader,
            mut node,
            signer,
        } = link;
        let limit = self.connector.timeout;
        let (position, known) = (node.position, Arc::clone(&node.known));
        let read = spawn_blocking(move || {
            let window = reader.window(position, &known);
            let missing = reader.missing_entries(position.last);
            (reader, window, missing)
        });
        let (reader, window, missing) = joined(timeout(limit, read).await?);
        let window = window?;
        // As of before the window: what is being shipped has not arrived.
        self.show_lag(missing?);
        if let Some(unsound) = window.unsound {
            return Err(ArchiveFailure::Unsound {
                dictionary: unsound.dictionary,
                id: unsound.id,
            });
        }
        let mut numbers = None;
        if !window.is_empty(position) {
            let has_heads = window
                .rows
                .get(SEAL_ENTRIES.name)
                .is_some_and(|rows| !rows.is_empty());
            let count = u64::try_from(window.last - position.last).unwrap_or_default();
            let client = &mut connection.client;
            shipment::ship(client, &mut node, window, limit).await?;
            self.note_arrival(node.position.last);
            self.metrics.archive_shipped.inc_by(count);
            numbers = Some(count);
            if let Some(signer) = signer.as_ref().filter(|_| has_heads) {
                timeout(limit, fleet_head::make(client, signer)).await??;
            }
        }
        let link = ShippingLink {
            connection,
            reader,
            node,
            signer,
        };
        Ok((link, numbers))
    }

    fn show_lag(&self, missing: MissingEntries) {
        self.metrics.archive_lag_entries.set(missing.count);
        let now_us = clock::now().as_microsecond();
        let age = missing.oldest_us.map_or(0, |oldest| now_us - oldest);
        self.metrics
            .archive_lag_seconds
            .set((age / 1_000_000).max(0));
    }

    /// Shows how much has not arrived while nothing can be shipped: that is when it
    /// grows.
    async fn show_lag_of_failure(&mut self) {
        let (path, arrived) = (self.record.path.clone(), self.arrived);
        let read = spawn_blocking(move || AuditReader::open(&path)?.missing_entries(arrived));
        // A record that cannot be read is the failure that is reported.
        if let Ok(missing) = joined(read.await) {
            self.show_lag(missing);
        }
    }

    /// Logs a failure once for each reason, and that all is well again.
    fn report(&mut self, failure: Option<ArchiveFailure>) {
        let Some(error) = failure else {
            if self.trouble.take().is_some() {
                tracing::info!("entries of the record are shipped to the archive again");
            }
            return;
        };
        // A record without an entry yet is none that could be shipped.
        if matches!(error, ArchiveFailure::NoRecord) {
            return;
        }
        self.metrics.archive_errors.inc();
        let cause = text_of(&error);
        if self.trouble.as_ref() != Some(&cause) {
            tracing::warn!(
                error = cause,
                "entries of the record are not shipped to the archive; it is tried again"
            );
            self.trouble = Some(cause);
        }
    }
}

/// Returns the text of an error with those of its causes.
fn text_of(error: &ArchiveFailure) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns what a thread has found.
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> T {
    match result {
        Ok(found) => found,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends: nobody looks at the result any more.
        Err(_) => unreachable!("a thread that reads the record is never cancelled"),
    }
}
