//! Months taken away: partitions are dropped, in one transaction with the signed rows
//! that say which entries of which node are gone.
//!
//! What stays of a month (the beginning of a part that is not over, decisions that ended
//! later) is put into a new partition. Shipments wait meanwhile, and so does whoever
//! reads. Does not know how far entries go, nor how that is proved (`removal`).

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};

use super::connection::{ArchiveAccess, ArchiveConnection};
use super::failure::ArchiveFailure;
use super::month::Month;
use super::removal::NodeRemoval;
use super::schema;
use crate::audit::entry_tables::{ENTRY_TABLES, value_tables};
use crate::audit::note::NoteKey;
use crate::audit::removal_proof::StoredPath;

/// Keeps shipments out: none refers to a partition or a value that is going.
const LOCK: &str = "SELECT removals FROM archive FOR UPDATE";

/// Has all shipments look anew which partitions and values there are.
const COUNT_REMOVAL: &str = "UPDATE archive SET removals = removals + 1";

const NEWEST: &str = "SELECT coalesce(max(last), 0) FROM removal WHERE log = $1";

const ADD: &str = "
INSERT INTO removal (log, last, time_us, note, vkey) VALUES ($1, $2, $3, $4, $5)";

const ADD_HEAD_PATHS: &str = "
UPDATE seal AS s SET path = w.path FROM unnest($2::bigint[], $3::bytea[]) AS w (size, path)
WHERE s.log = $1 AND s.size = w.size";

const KEEP_PATHS: &str = "DELETE FROM leaf_path WHERE log = $1 AND seq <> ALL($2)";

const ADD_PATHS: &str = "
INSERT INTO leaf_path (log, seq, path)
SELECT $1, w.seq, w.path FROM unnest($2::bigint[], $3::bytea[]) AS w (seq, path)";

const REMOVE_EVENTS: &str = "
DELETE FROM event AS e WHERE e.log = $1 AND e.seq <= $2
AND NOT EXISTS (SELECT FROM leaf_path AS p WHERE p.log = e.log AND p.seq = e.seq)";

const REMOVE_LOST: &str = "DELETE FROM lost_range WHERE log = $1 AND last <= $2";

/// Files of robots.txt that no snapshot has any more.
const REMOVE_FILES: &str = "
DELETE FROM body AS b WHERE NOT EXISTS (SELECT FROM snapshot AS s WHERE s.body = b.sha256)";

/// Column by which rows of a table of entries go: that of the decision.
const PARTITIONED: [[&str; 2]; 2] = [["decision", "seq"], ["ending", "decision"]];

/// Archive from which months are taken away.
#[derive(Debug)]
pub struct MonthDrop {
    access: ArchiveAccess,
    connection: ArchiveConnection,
    /// Public key by which removals are signed.
    key: NoteKey,
}

impl MonthDrop {
    /// Connects, for removals that `key` signs. To be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn open(access: ArchiveAccess, key: NoteKey) -> Result<Self, ArchiveFailure> {
        let connection = access.connect().await?;
        timeout(access.timeout, schema::check(&access, &connection.client)).await??;
        Ok(Self {
            access,
            connection,
            key,
        })
    }

    /// Drops the partitions of `months`, and keeps the entries in them that `removals`
    /// leave. Writes the row and the proofs of each removal in the same transaction.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::Busy`]. Nothing is gone then.
    pub async fn remove(
        &mut self,
        months: &[Month],
        removals: &[NodeRemoval],
    ) -> Result<(), ArchiveFailure> {
        let key = self.key.to_string();
        let transaction = begin(&mut self.connection.client, self.access.timeout).await?;
        // First of all the paths, by which it is known what stays.
        for removal in removals {
            note(&transaction, removal, &key).await?;
        }
        mark(&transaction, removals).await?;
        for month in months {
            for [table, column] in PARTITIONED {
                replace(&transaction, *month, [table, column]).await?;
            }
        }
        transaction.execute(COUNT_REMOVAL, &[]).await?;
        Ok(transaction.commit().await?)
    }

    /// Takes away the values that no entry refers to any more, a dictionary at a time.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]. Those that are left go with the next removal then.
    pub async fn remove_unused_values(&mut self) -> Result<(), ArchiveFailure> {
        let dictionaries = value_tables().map(|table| unused_values(table.name));
        // Files after the snapshots that had them.
        for order in dictionaries.chain([REMOVE_FILES.to_owned()]) {
            // Each reads all decisions that are left. Between two of them shipments, which
            // wait meanwhile, are made.
            let transaction = begin(&mut self.connection.client, self.access.timeout).await?;
            if 0 < transaction.execute(&order, &[]).await? {
                transaction.execute(COUNT_REMOVAL, &[]).await?;
            }
            transaction.commit().await?;
        }
        Ok(())
    }
}

/// Begins a transaction during which nothing is shipped.
async fn begin(client: &mut Client, wait: Duration) -> Result<Transaction<'_>, ArchiveFailure> {
    let transaction = client.transaction().await?;
    // Whoever waits behind this transaction waits no longer than for one that reads.
    let limit = format!("SET LOCAL lock_timeout = {}", wait.as_millis());
    transaction.batch_execute(&limit).await?;
    transaction.query_one(LOCK, &[]).await?;
    Ok(transaction)
}

/// Writes the row of a removal and the proofs that stay, and takes away what is in no
/// partition.
async fn note(
    transaction: &Transaction<'_>,
    removal: &NodeRemoval,
    key: &str,
) -> Result<(), ArchiveFailure> {
    let NodeRemoval { end, .. } = removal;
    let log = &end.node.log;
    let newest: i64 = transaction.query_one(NEWEST, &[log]).await?.get(0);
    // Another removal came first: what was proved is no longer what there is.
    if newest + 1 != end.first {
        return Err(ArchiveFailure::Overtaken);
    }
    let values: [&(dyn ToSql + Sync); 5] = [log, &end.last, &removal.time_us, &removal.note, &key];
    transaction.execute(ADD, &values).await?;
    add_paths(transaction, ADD_HEAD_PATHS, *log, &removal.heads).await?;
    transaction
        .execute(KEEP_PATHS, &[log, &removal.remaining])
        .await?;
    add_paths(transaction, ADD_PATHS, *log, &removal.entries).await?;
    transaction
        .execute(REMOVE_EVENTS, &[log, &end.last])
        .await?;
    transaction.execute(REMOVE_LOST, &[log, &end.last]).await?;
    Ok(())
}

async fn add_paths(
    transaction: &Transaction<'_>,
    sql: &str,
    log: i32,
    paths: &[StoredPath],
) -> Result<(), ArchiveFailure> {
    let numbers: Vec<i64> = paths.iter().map(|path| path.number).collect();
    let bytes: Vec<&[u8]> = paths.iter().map(|path| path.bytes.as_slice()).collect();
    transaction.execute(sql, &[&log, &numbers, &bytes]).await?;
    Ok(())
}

/// Makes the table `going` with the last number of each node that goes.
async fn mark(
    transaction: &Transaction<'_>,
    removals: &[NodeRemoval],
) -> Result<(), ArchiveFailure> {
    let make = "CREATE TEMPORARY TABLE going (log int, last bigint) ON COMMIT DROP";
    transaction.batch_execute(make).await?;
    let logs: Vec<i32> = removals.iter().map(|one| one.end.node.log).collect();
    let lasts: Vec<i64> = removals.iter().map(|one| one.end.last).collect();
    let fill = "INSERT INTO going SELECT * FROM unnest($1::int[], $2::bigint[])";
    transaction.execute(fill, &[&logs, &lasts]).await?;
    Ok(())
}

/// Drops the partition of a month, and makes it again with what stays, if anything does.
async fn replace(
    transaction: &Transaction<'_>,
    month: Month,
    [table, column]: [&str; 2],
) -> Result<(), ArchiveFailure> {
    let partition = format!("{table}_{}", month.name());
    // Of a month before, nothing may have stayed.
    let is_there = "SELECT to_regclass($1::text) IS NOT NULL";
    let found = transaction.query_one(is_there, &[&partition]).await?;
    if !found.get::<_, bool>(0) {
        return Ok(());
    }
    let goes = format!(
        "EXISTS (SELECT FROM going AS g WHERE g.log = t.log AND t.{column} <= g.last)
         AND NOT EXISTS (SELECT FROM leaf_path AS p WHERE p.log = t.log AND p.seq = t.{column})"
    );
    let any = format!("SELECT EXISTS (SELECT FROM {partition} AS t WHERE {goes})");
    // A partition of which nothing goes need not be written again.
    if !transaction.query_one(&any, &[]).await?.get::<_, bool>(0) {
        return Ok(());
    }
    // Not DELETE: that would leave the room of the rows to a VACUUM.
    let set_aside = format!(
        "CREATE TEMPORARY TABLE staying ON COMMIT DROP AS
         SELECT t.* FROM {partition} AS t WHERE NOT ({goes})"
    );
    transaction.batch_execute(&set_aside).await?;
    let drop = format!("DROP TABLE {partition}");
    transaction.batch_execute(&drop).await?;
    let count = transaction.query_one("SELECT count(*) FROM staying", &[]);
    if 0 < count.await?.get::<_, i64>(0) {
        transaction.batch_execute(&month.partitions()).await?;
        let put_back = format!("INSERT INTO {table} SELECT * FROM staying");
        transaction.execute(&put_back, &[]).await?;
    }
    transaction.batch_execute("DROP TABLE staying").await?;
    Ok(())
}

/// Makes the order that removes the values of a dictionary that no entry refers to.
fn unused_values(dictionary: &str) -> String {
    let mut sql = format!("DELETE FROM {dictionary} AS v WHERE true");
    for table in ENTRY_TABLES {
        let columns = table.columns.iter();
        for column in columns.filter(|column| column.dictionary == Some(dictionary)) {
            let (table, name) = (table.name, column.name);
            // Grouped first: few values are used by very many entries.
            sql.push_str(&format!(
                " AND NOT EXISTS (SELECT FROM (SELECT DISTINCT {name} AS id FROM {table}) AS u
                 WHERE u.id = v.id)"
            ));
        }
    }
    sql
}
