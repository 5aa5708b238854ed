//! Shipper: follows a record, and ships what is new to the archive.
//!
//! It reads as any reader does, a window at a time; neither a request nor the writer waits
//! for it. After a failure it continues over a new connection, from the number that the
//! archive has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{ArchiveAccess, ArchiveConnection};
use super::failure::ArchiveFailure;
use super::schema;
use super::shipment::ShippedNode;
use super::{ArrivalListener, ShippedRecord};
use politesse_base::metrics::Metrics;
use politesse_decision::digest::Digest;
use politesse_record::AuditError;
use politesse_record::entry_window::EntryWindow;
use politesse_record::reader::AuditReader;

/// Time from one look for new entries to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Has each commit last: entries that have arrived may be removed on the node. A server
/// may be set up to say so before they are on its disk; whatever else it is set up to
/// wait for stays.
const COMMITS_LAST: &str = "SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'";

const FIND_FILES: &str = "SELECT sha256 FROM robots WHERE sha256 = ANY($1)";

const ADD_FILE: &str = "
INSERT INTO robots (sha256, body) VALUES ($1, $2) ON CONFLICT DO NOTHING";

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
    /// Text of the failure that was logged last; none while all is well.
    trouble: Option<String>,
}

/// Connection, with what is known of the record on both sides.
#[derive(Debug)]
struct ShippingLink {
    connection: ArchiveConnection,
    reader: AuditReader,
    node: ShippedNode,
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

    /// Ships all that is not there yet. Returns the number of the last entry; `None` if
    /// nothing was shipped.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]. What was shipped before stays.
    pub async fn ship_pending(&mut self) -> Result<Option<i64>, ArchiveFailure> {
        let mut shipped = None;
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
                Ok((link, Some(last))) => {
                    self.link = Some(link);
                    shipped = Some(last);
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
    /// copy of the record. Nothing may be shipped after that, and nothing removed here.
    async fn connect(&mut self) -> Result<ShippingLink, ArchiveFailure> {
        let path = self.record.path.clone();
        // The record first: without one there is nothing to connect for.
        let opened = spawn_blocking(move || {
            let reader = AuditReader::open(&path)?;
            let description = reader.description()?;
            Ok::<_, AuditError>((reader, description))
        });
        let (reader, description) = joined(opened.await)?;
        let record = description.ok_or(ArchiveFailure::NoRecord)?;
        let mut connection = self.connector.connect().await?;
        let client = &mut connection.client;
        schema::make(&self.connector, client).await?;
        client.execute(COMMITS_LAST, &[]).await?;
        let node = ShippedNode::find(client, &record, &self.record.node).await?;
        let compared = spawn_blocking(move || {
            let strange = reader.strange_entry(&node.end);
            (reader, strange)
        });
        let (reader, strange) = joined(compared.await);
        if let Some(seq) = strange? {
            return Err(ArchiveFailure::Forked { seq });
        }
        node.set_name(client, &self.record.node).await?;
        (self.arrival.0)(node.end.last);
        Ok(ShippingLink {
            connection,
            reader,
            node,
        })
    }

    /// Ships the next window. Returns its last number; `None` if there is nothing to ship.
    async fn ship_window(
        &mut self,
        link: ShippingLink,
    ) -> Result<(ShippingLink, Option<i64>), ArchiveFailure> {
        let ShippingLink {
            connection,
            reader,
            node,
        } = link;
        let limit = self.connector.timeout;
        let read = spawn_blocking(move || {
            let window = reader.window_after(node.end.last);
            (reader, window)
        });
        let (reader, window) = joined(timeout(limit, read).await?);
        let link = ShippingLink {
            connection,
            reader,
            node,
        };
        let Some(window) = window? else {
            return Ok((link, None));
        };
        let (mut link, files) = ship_files(link, &window, limit).await?;
        let client = &mut link.connection.client;
        timeout(limit, link.node.ship(client, &window, &files)).await??;
        (self.arrival.0)(window.last);
        let numbers = u64::try_from(window.last - node.end.last).unwrap_or_default();
        self.metrics.archive_shipped.inc_by(numbers);
        Ok((link, Some(window.last)))
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

/// Ships the robots.txt bodies of a window that the archive does not have. Returns the
/// digests of all of them. Each order may take `limit`.
///
/// Each is written by itself: all of a window may be too many for one transaction. One
/// that the record does not have either is left out.
async fn ship_files(
    mut link: ShippingLink,
    window: &EntryWindow,
    limit: Duration,
) -> Result<(ShippingLink, Vec<String>), ArchiveFailure> {
    let snapshots = window
        .decisions
        .iter()
        .filter_map(|row| row.snapshot.as_ref());
    let digests: BTreeSet<_> = snapshots.filter_map(|snapshot| snapshot.sha256).collect();
    let mut files: Vec<String> = digests.iter().map(ToString::to_string).collect();
    let client = &link.connection.client;
    let rows = timeout(limit, client.query(FIND_FILES, &[&files])).await??;
    let there: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    for digest in digests {
        let name = digest.to_string();
        if there.contains(&name) {
            continue;
        }
        let ShippingLink { reader, .. } = link;
        let read = spawn_blocking(move || {
            let body = reader.body(digest);
            (reader, body)
        });
        let (reader, body) = joined(read.await);
        link = ShippingLink { reader, ..link };
        match body? {
            Some(body) if Digest::of(&body) == digest => {
                let client = &link.connection.client;
                timeout(limit, client.execute(ADD_FILE, &[&name, &body])).await??;
            }
            Some(_) | None => files.retain(|file| *file != name),
        }
    }
    Ok((link, files))
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
