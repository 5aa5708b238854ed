//! Shipper: follows a node's record, and ships new entries to the archive.
//!
//! The shipper reads a window of entries at a time, like any other reader; neither
//! requests nor the record's writer wait for it. After a failure it reconnects, and
//! continues after the last entry that the archive has. `shipment` defines the terms, and
//! ships a window.

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

/// Interval at which new entries are looked for.
const EVERY: Duration = Duration::from_secs(1);

/// Makes the server confirm commits only when they are on disk. The node may remove
/// entries once they have arrived, and a server can be configured to confirm earlier
/// (`off`). Stricter settings are left alone.
const DURABLE_COMMITS: &str = "SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'";

const FIND_BODIES: &str = "SELECT sha256 FROM robots WHERE sha256 = ANY($1)";

const ADD_BODY: &str = "
INSERT INTO robots (sha256, body) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// Pause after the first failure. It doubles with each further one, up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Longest time that a stop waits for the last entries to arrive.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// Shipper of one record.
#[derive(Debug)]
pub struct Shipper {
    connector: ArchiveAccess,
    record: ShippedRecord,
    /// Called with the number of the last entry that has arrived.
    arrival: ArrivalListener,
    metrics: Arc<Metrics>,
    /// `None` before the first connection and after a failure.
    link: Option<ShippingLink>,
    /// Text of the last logged failure; `None` while shipping works.
    trouble: Option<String>,
}

/// Connection to the archive, the record to ship from, and the progress.
#[derive(Debug)]
struct ShippingLink {
    connection: ArchiveConnection,
    reader: AuditReader,
    node: ShippedNode,
}

impl Shipper {
    /// Creates a shipper that is not connected yet.
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

    /// Ships existing and new entries until `stop`. Failures are logged and retried.
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

    /// Ships the last entries of a closed record, for a few seconds at most. The next
    /// process ships the rest.
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

    /// Ships all pending entries. Returns the number of the last one; `None` if nothing
    /// was shipped.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]. Entries shipped before the failure remain shipped.
    pub async fn ship_pending(&mut self) -> Result<Option<i64>, ArchiveFailure> {
        let mut shipped = None;
        loop {
            // Taken out, so that any failure drops the connection.
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
                // The loop reconnects, which reads the end of the archive again.
                Err(ArchiveFailure::Overtaken) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Connects, and determines how much of the record has arrived.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::Forked`] if the archived entries are from
    /// another copy of the record. In that case nothing may be shipped, and nothing
    /// removed here.
    async fn connect(&mut self) -> Result<ShippingLink, ArchiveFailure> {
        let path = self.record.path.clone();
        // The record is opened first, because without entries there is nothing to ship,
        // and no need to connect.
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
        client.execute(DURABLE_COMMITS, &[]).await?;
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

    /// Ships the next window. Returns its last number; `None` if there is nothing to
    /// ship.
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
        let (mut link, body_digests) = ship_bodies(link, &window, limit).await?;
        let client = &mut link.connection.client;
        timeout(limit, link.node.ship(client, &window, &body_digests)).await??;
        (self.arrival.0)(window.last);
        // `node` is a copy made before the shipment, so its end is the previous one.
        let numbers = u64::try_from(window.last - node.end.last).unwrap_or_default();
        self.metrics.archive_shipped.inc_by(numbers);
        Ok((link, Some(window.last)))
    }

    /// Counts a failure, and logs it unless it has the same text as the previous one; `None`
    /// logs the recovery after a failure.
    fn report(&mut self, failure: Option<ArchiveFailure>) {
        let Some(error) = failure else {
            if self.trouble.take().is_some() {
                tracing::info!("entries of the record are shipped to the archive again");
            }
            return;
        };
        // A record without entries has nothing to ship, which is not a failure.
        if matches!(error, ArchiveFailure::NoRecord) {
            return;
        }
        self.metrics.archive_errors.inc();
        let cause = text_of(&error);
        if self.trouble.as_ref() != Some(&cause) {
            tracing::warn!(
                error = cause,
                "entries of the record are not shipped to the archive; trying again"
            );
            self.trouble = Some(cause);
        }
    }
}

/// Ships the robots.txt bodies of a window that are missing from the archive. Returns the
/// digests of all bodies that it then contains. Each query may take `limit`.
///
/// Each body is written separately, because those of a window may be too large for one
/// transaction. A body that the record lacks as well, or
/// that is damaged there, is left out.
async fn ship_bodies(
    mut link: ShippingLink,
    window: &EntryWindow,
    limit: Duration,
) -> Result<(ShippingLink, Vec<String>), ArchiveFailure> {
    let snapshots = window
        .decisions
        .iter()
        .filter_map(|row| row.snapshot.as_ref());
    let digests: BTreeSet<_> = snapshots.filter_map(|snapshot| snapshot.sha256).collect();
    let mut body_digests: Vec<String> = digests.iter().map(ToString::to_string).collect();
    let client = &link.connection.client;
    let rows = timeout(limit, client.query(FIND_BODIES, &[&body_digests])).await??;
    let stored: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    for digest in digests {
        let name = digest.to_string();
        if stored.contains(&name) {
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
                timeout(limit, client.execute(ADD_BODY, &[&name, &body])).await??;
            }
            Some(_) | None => body_digests.retain(|digest| *digest != name),
        }
    }
    Ok((link, body_digests))
}

/// Joins the texts of an error and its causes with colons.
fn text_of(error: &ArchiveFailure) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the result of a blocking task.
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> T {
    match result {
        Ok(found) => found,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is ending, and the result is no longer needed.
        Err(_) => unreachable!("a thread that reads the record is never cancelled"),
    }
}
