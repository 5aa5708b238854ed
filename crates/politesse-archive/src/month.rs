//! Monthly partitions of the archive, and their removal: all partitions of a month are
//! dropped in one transaction.
//!
//! Does not know which months to remove.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use tokio::time::timeout;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::connection::{ArchiveAccess, ArchiveConnection};
use super::failure::ArchiveFailure;
use super::schema;
use politesse_record::OrderReason;

/// Tables partitioned by month. All transactions lock them in this order, which rules out
/// deadlocks.
pub(super) const PARTITIONED: [&str; 2] = [DECISIONS, "event"];

/// Table of decisions.
pub(super) const DECISIONS: &str = "decision";

/// Removes robots.txt bodies and policies that no decision refers to any more. The lock
/// comes first, so that no shipment relies on a body that is about to be removed.
const REMOVE_UNUSED: &str = "
LOCK TABLE robots, policy;
DELETE FROM robots AS r
  WHERE NOT EXISTS (SELECT FROM decision AS d WHERE d.robots_sha256 = r.sha256);
DELETE FROM policy AS p WHERE NOT EXISTS (SELECT FROM decision AS d WHERE d.policy = p.sha256)";

/// Month (UTC), represented by its first day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(Date);

impl Month {
    /// Returns the month that contains `time`.
    pub fn of(time: Timestamp) -> Self {
        Self(time.to_zoned(TimeZone::UTC).date().first_of_month())
    }

    /// Returns the name of this month's partition of `table`.
    pub(super) fn partition(self, table: &str) -> String {
        format!("{table}_{}", self.0.strftime("%Y_%m"))
    }

    /// Returns the SQL statement that creates this month's partition of `table`.
    pub(super) fn create(self, table: &str) -> String {
        // The partition of the last representable month has no upper limit.
        let end = self.0.checked_add(1.month());
        let until = end.map_or("MAXVALUE".to_owned(), |end| format!("'{end} 00:00Z'"));
        format!(
            "CREATE TABLE {} PARTITION OF {table} FOR VALUES FROM ('{} 00:00Z') TO ({until})",
            self.partition(table),
            self.0,
        )
    }

    /// Returns the month whose partition of `table` is called `name`, if any.
    pub(super) fn named(table: &str, name: &str) -> Option<Self> {
        let (year, month) = name
            .strip_prefix(table)?
            .strip_prefix('_')?
            .split_once('_')?;
        let found = Date::new(year.parse().ok()?, month.parse().ok()?, 1).ok()?;
        (Self(found).partition(table) == name).then_some(Self(found))
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m"))
    }
}

/// Connection to the archive that removes months.
#[derive(Debug)]
pub struct MonthDrop {
    access: ArchiveAccess,
    connection: ArchiveConnection,
}

impl MonthDrop {
    /// Connects. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn open(access: ArchiveAccess) -> Result<Self, ArchiveFailure> {
        let connection = access.connect().await?;
        timeout(access.timeout, schema::check(&access, &connection.client)).await??;
        Ok(Self { access, connection })
    }

    /// Drops the partitions of a month, and records who ordered it and why.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], including [`ArchiveFailure::Busy`]. In that case nothing was
    /// removed.
    pub async fn drop_month(
        &mut self,
        month: Month,
        order: &OrderReason,
    ) -> Result<(), ArchiveFailure> {
        let transaction = self.begin().await?;
        for table in PARTITIONED {
            let sql = format!("DROP TABLE IF EXISTS {}", month.partition(table));
            transaction.batch_execute(&sql).await?;
        }
        let user = order.user.as_ref();
        let uid = user.map(|user| i64::from(user.uid));
        let name = user.and_then(|user| user.name.as_deref());
        let sudo_user = user.and_then(|user| user.sudo_user.as_deref());
        let sql = "INSERT INTO removal VALUES (now(), $1, $2, $3, $4, $5)";
        let values: [&(dyn ToSql + Sync); 5] =
            [&month.to_string(), &uid, &name, &sudo_user, &order.why];
        transaction.execute(sql, &values).await?;
        Ok(transaction.commit().await?)
    }

    /// Removes the robots.txt bodies and policies that no decision refers to any more.
    /// Shipments wait in the meantime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], including [`ArchiveFailure::Busy`]. In that case they are
    /// removed with the next month.
    pub async fn remove_unused(&mut self) -> Result<(), ArchiveFailure> {
        let transaction = self.begin().await?;
        transaction.batch_execute(REMOVE_UNUSED).await?;
        Ok(transaction.commit().await?)
    }

    async fn begin(&mut self) -> Result<Transaction<'_>, ArchiveFailure> {
        let transaction = self.connection.client.transaction().await?;
        // While this transaction waits for a lock on a table, all later ones queue after
        // it. The limit is long enough for the query of a reader to end.
        let limit = format!(
            "SET LOCAL lock_timeout = {}",
            self.access.timeout.as_millis()
        );
        transaction.batch_execute(&limit).await?;
        Ok(transaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours, docs/archive.md.
    #[test]
    fn a_time_is_in_the_partition_of_its_month() {
        for (time, name, range) in [
            (
                "2026-11-30T23:59:59.999999Z",
                "decision_2026_11",
                "('2026-11-01 00:00Z') TO ('2026-12-01 00:00Z')",
            ),
            (
                "2026-12-31T00:00:00Z",
                "decision_2026_12",
                "('2026-12-01 00:00Z') TO ('2027-01-01 00:00Z')",
            ),
            (
                "9999-12-30T00:00:00Z",
                "decision_9999_12",
                "('9999-12-01 00:00Z') TO (MAXVALUE)",
            ),
        ] {
            let month = Month::of(time.parse().unwrap());
            assert_eq!(month.partition("decision"), name);
            assert_eq!(Month::named("decision", name), Some(month));
            assert!(
                month.create("decision").ends_with(range),
                "{}",
                month.create("decision")
            );
        }
        for other in [
            "",
            "decision",
            "decision_2026_13",
            "decision_2026_1",
            "event_2026_01",
        ] {
            assert_eq!(Month::named("decision", other), None, "{other}");
        }
    }
}
