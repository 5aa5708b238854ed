//! Session of a reader with the archive: read-only queries, each with a time limit.
//!
//! Does not know the queries.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{ArchiveAccess, ArchiveConnection};
use super::failure::ArchiveFailure;
use super::schema;

/// Additional time to receive the error of a query that the server has cancelled.
const GRACE: Duration = Duration::from_secs(1);

/// Read-only connection.
#[derive(Debug)]
pub(super) struct ArchiveSession {
    connection: ArchiveConnection,
    query_timeout: Duration,
}

impl ArchiveSession {
    /// Connects. `query_timeout` limits each later query. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`] if the archive cannot be reached, or has no tables of this
    /// version.
    pub(super) async fn open(
        access: &ArchiveAccess,
        query_timeout: Duration,
    ) -> Result<Self, ArchiveFailure> {
        let connection = access.connect().await?;
        schema::check(access, &connection.client).await?;
        // The client also measures the time, but without `statement_timeout` the server
        // would continue queries whose client has given up.
        let limits = format!(
            "SET default_transaction_read_only = on; SET statement_timeout = {}",
            query_timeout.as_millis()
        );
        timeout(query_timeout, connection.client.batch_execute(&limits)).await??;
        Ok(Self {
            connection,
            query_timeout,
        })
    }

    /// Reports whether the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        self.connection.client.is_closed()
    }

    /// Runs a query.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], including [`ArchiveFailure::Timeout`].
    pub(super) async fn query(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, ArchiveFailure> {
        let asked = self.connection.client.query(sql, values);
        Ok(timeout(self.query_timeout + GRACE, asked).await??)
    }
}
