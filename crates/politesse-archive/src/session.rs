//! Session of a reader with the archive: queries that only read, each with a time limit.
//!
//! Does not know what is asked.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{ArchiveAccess, ArchiveConnection};
use super::failure::ArchiveFailure;
use super::schema;

/// Time for the answer to a query that the server has given up.
const GRACE: Duration = Duration::from_secs(1);

/// Connection by which nothing is written.
#[derive(Debug)]
pub(super) struct ArchiveSession {
    connection: ArchiveConnection,
    longest: Duration,
}

impl ArchiveSession {
    /// Connects, to ask queries that take at most `longest` each. To be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]: the archive cannot be reached, or has no tables of this version.
    pub(super) async fn open(
        access: &ArchiveAccess,
        longest: Duration,
    ) -> Result<Self, ArchiveFailure> {
        let connection = access.connect().await?;
        schema::check(access, &connection.client).await?;
        // The server ends a query that takes longer even if nobody waits for it any more.
        let limits = format!(
            "SET default_transaction_read_only = on; SET statement_timeout = {}",
            longest.as_millis()
        );
        timeout(longest, connection.client.batch_execute(&limits)).await??;
        Ok(Self {
            connection,
            longest,
        })
    }

    /// Reports whether the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        self.connection.client.is_closed()
    }

    /// Asks a query.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], [`ArchiveFailure::Timeout`].
    pub(super) async fn query(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, ArchiveFailure> {
        let asked = self.connection.client.query(sql, values);
        Ok(timeout(self.longest + GRACE, asked).await??)
    }
}
