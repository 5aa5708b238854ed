//! Tables of the archive: made by the first node that ships to it, and their version.

use tokio_postgres::Client;

use super::connection::ArchiveAccess;
use super::failure::ArchiveFailure;

/// Version of the tables.
const VERSION: i32 = 2;

const TABLES: &str = include_str!("schema.sql");

/// Lock under which tables are made: any number that no other program uses.
const SCHEMA_LOCK: i64 = 0x706f_6c69_7465;

// Not `to_regclass`: within a transaction that remembers for longer that there was none,
// also behind the lock that another node has made them under.
const FIND_TABLES: &str = "SELECT EXISTS (SELECT FROM pg_class
  WHERE relname = 'archive' AND relkind = 'r' AND pg_table_is_visible(oid))";

/// Makes the tables if there are none.
///
/// # Errors
///
/// [`ArchiveFailure::Denied`], [`ArchiveFailure::Version`], [`ArchiveFailure::Encoding`],
/// [`ArchiveFailure::Query`].
pub(super) async fn make(
    connector: &ArchiveAccess,
    client: &mut Client,
) -> Result<(), ArchiveFailure> {
    let failed = |error| connector.query_error(error);
    // A user who may not make tables can ship to those that are there.
    let is_made: bool = client.query_one(FIND_TABLES, &[]).await?.get(0);
    if !is_made {
        check_encoding(connector, client).await?;
        let transaction = client.transaction().await?;
        let lock = "SELECT pg_advisory_xact_lock($1)";
        transaction.execute(lock, &[&SCHEMA_LOCK]).await?;
        // Another node may have made them meanwhile.
        let is_made: bool = transaction.query_one(FIND_TABLES, &[]).await?.get(0);
        if !is_made {
            transaction.batch_execute(TABLES).await.map_err(failed)?;
            let first = "INSERT INTO archive (version, removals) VALUES ($1, 0)";
            transaction
                .execute(first, &[&VERSION])
                .await
                .map_err(failed)?;
        }
        transaction.commit().await?;
    }
    check(connector, client).await
}

/// Looks whether the database can have all that a record has, before anything is in it.
async fn check_encoding(connector: &ArchiveAccess, client: &Client) -> Result<(), ArchiveFailure> {
    let sql = "SELECT current_setting('server_encoding')";
    let encoding: String = client.query_one(sql, &[]).await?.get(0);
    match encoding.as_str() {
        "UTF8" => Ok(()),
        _ => Err(ArchiveFailure::Encoding {
            address: connector.address.clone(),
            encoding,
        }),
    }
}

/// Looks whether the tables are those that this program knows.
///
/// # Errors
///
/// [`ArchiveFailure::Empty`], [`ArchiveFailure::Version`], [`ArchiveFailure::Query`].
pub async fn check(connector: &ArchiveAccess, client: &Client) -> Result<(), ArchiveFailure> {
    let address = || connector.address.clone();
    let is_made: bool = client.query_one(FIND_TABLES, &[]).await?.get(0);
    if !is_made {
        return Err(ArchiveFailure::Empty(address()));
    }
    let failed = |error| connector.query_error(error);
    let row = client.query_one("SELECT version FROM archive", &[]);
    let found: i32 = row.await.map_err(failed)?.get(0);
    if found == VERSION {
        return Ok(());
    }
    Err(ArchiveFailure::Version {
        address: address(),
        found,
        known: VERSION,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry_tables::{ENTRY_TABLES, value_tables};

    /// Returns the columns of a table.
    fn columns(table: &str) -> Vec<&'static str> {
        let (_, definition) = TABLES
            .split_once(&format!("CREATE TABLE {table} (\n"))
            .unwrap();
        let (definition, _) = definition.split_once("\n)").unwrap();
        let names = definition
            .lines()
            .map(|line| line.trim().split(' ').next().unwrap());
        let is_column = |name: &&str| !["PRIMARY", "--"].contains(name);
        names.filter(is_column).collect()
    }

    // Ours, docs/archive.md: the same rows as those of the record.
    #[test]
    fn the_tables_have_the_columns_of_the_record() {
        for table in ENTRY_TABLES {
            let wanted = table.columns.iter().map(|column| column.name);
            let wanted: Vec<_> = ["log"].into_iter().chain(wanted).collect();
            assert_eq!(columns(table.name), wanted, "{}", table.name);
        }
        for table in value_tables() {
            let wanted: Vec<_> = ["id"].iter().chain(table.columns).copied().collect();
            assert_eq!(columns(table.name), wanted, "{}", table.name);
        }
    }
}
