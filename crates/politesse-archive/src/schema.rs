//! Tables of the archive: creates them when the first node ships, and checks their version
//! and their columns.

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::connection::ArchiveAccess;
use super::failure::ArchiveFailure;

/// Version of the tables.
const VERSION: i32 = 6;

const TABLES: &str = include_str!("schema.sql");

/// Advisory lock for creating the tables: a number that other programs are unlikely to
/// use.
const SCHEMA_LOCK: i64 = 0x706f_6c69_7465;

// `to_regclass` is unsuitable: within a transaction it caches that the table did not
// exist, even after waiting for the lock under which another node created it.
const FIND_TABLES: &str = "SELECT EXISTS (SELECT FROM pg_class
  WHERE relname = 'archive' AND relkind = 'r' AND pg_table_is_visible(oid))";

/// Finds a schema with an archive outside this user's search path or privileges.
const FIND_ELSEWHERE: &str = "
SELECT n.nspname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = 'archive' AND EXISTS (SELECT FROM pg_class AS h
  WHERE h.relname = 'robots' AND h.relnamespace = c.relnamespace)
ORDER BY 1 LIMIT 1";

/// Finds the first of the given columns, each with table and type, that is missing.
const FIND_MISSING: &str = "
SELECT w.name, w.of_table, w.type
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (of_table, name, type, place)
WHERE NOT EXISTS (SELECT FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
  WHERE c.relname = w.of_table AND c.relkind IN ('r', 'p') AND pg_table_is_visible(c.oid)
  AND a.attname = w.name AND NOT a.attisdropped AND a.atttypid = w.type::regtype)
ORDER BY w.place LIMIT 1";

/// Table that contains the version.
const VERSION_TABLE: &str = "archive";

/// Creates the tables unless they exist.
///
/// # Errors
///
/// [`ArchiveFailure`]: the errors of [`check`], and [`ArchiveFailure::Encoding`].
pub(super) async fn make(
    access: &ArchiveAccess,
    client: &mut Client,
) -> Result<(), ArchiveFailure> {
    // Checked first, because a user who may not create tables can still ship to existing
    // ones.
    let is_made: bool = client.query_one(FIND_TABLES, &[]).await?.get(0);
    if !is_made {
        check_encoding(access, client).await?;
        let transaction = client.transaction().await?;
        let lock = "SELECT pg_advisory_xact_lock($1)";
        transaction.execute(lock, &[&SCHEMA_LOCK]).await?;
        // Another node may have created them in the meantime.
        let is_made: bool = transaction.query_one(FIND_TABLES, &[]).await?.get(0);
        if !is_made {
            transaction.batch_execute(TABLES).await?;
            let first = "INSERT INTO archive (version) VALUES ($1)";
            transaction.execute(first, &[&VERSION]).await?;
        }
        transaction.commit().await?;
    }
    check(access, client).await
}

/// Checks, before anything is created, that the database can store every text of a
/// record.
async fn check_encoding(access: &ArchiveAccess, client: &Client) -> Result<(), ArchiveFailure> {
    let sql = "SELECT current_setting('server_encoding')";
    let encoding: String = client.query_one(sql, &[]).await?.get(0);
    match encoding.as_str() {
        "UTF8" => Ok(()),
        _ => Err(ArchiveFailure::Encoding {
            address: access.address.clone(),
            encoding,
        }),
    }
}

/// Checks that the tables are those that this program expects.
///
/// # Errors
///
/// [`ArchiveFailure`]: [`Empty`](ArchiveFailure::Empty),
/// [`Hidden`](ArchiveFailure::Hidden), [`ForeignTable`](ArchiveFailure::ForeignTable),
/// [`Version`](ArchiveFailure::Version), or the error of a query.
pub async fn check(access: &ArchiveAccess, client: &Client) -> Result<(), ArchiveFailure> {
    let address = access.address.clone();
    let is_made: bool = client.query_one(FIND_TABLES, &[]).await?.get(0);
    if !is_made {
        let elsewhere = client.query_opt(FIND_ELSEWHERE, &[]).await?;
        return Err(match elsewhere.map(|row| row.get(0)) {
            Some(schema) => ArchiveFailure::Hidden { address, schema },
            None => ArchiveFailure::Empty(address),
        });
    }
    // The version is checked first, because other versions may have other columns.
    let (of_version, of_others): (Vec<_>, Vec<_>) =
        made_columns().partition(|column| column.table == VERSION_TABLE);
    check_columns(client, &of_version).await?;
    let rows = client.query("SELECT version FROM archive", &[]).await?;
    let [row] = rows.as_slice() else {
        return Err(ArchiveFailure::ForeignTable {
            table: VERSION_TABLE.to_owned(),
            fault: format!("has {} rows in place of one", rows.len()),
        });
    };
    let found: i32 = row.get(0);
    if found != VERSION {
        return Err(ArchiveFailure::Version {
            address,
            found,
            known: VERSION,
        });
    }
    check_columns(client, &of_others).await
}

/// Checks that the tables have `columns` with the expected types, on which all readers
/// rely.
async fn check_columns(client: &Client, columns: &[MadeColumn]) -> Result<(), ArchiveFailure> {
    let list = |part: fn(&MadeColumn) -> &'static str| columns.iter().map(part).collect();
    let tables: Vec<&str> = list(|column| column.table);
    let names: Vec<&str> = list(|column| column.name);
    let types: Vec<&str> = list(|column| column.type_name);
    let values: [&(dyn ToSql + Sync); 3] = [&tables, &names, &types];
    let missing = client.query_opt(FIND_MISSING, &values).await?;
    missing.map_or(Ok(()), |row| {
        let [name, table, type_name]: [String; 3] = [0, 1, 2].map(|place| row.get(place));
        Err(ArchiveFailure::ForeignTable {
            table,
            fault: format!("has no column {name} of the type {type_name}"),
        })
    })
}

/// Column of a table that this program creates.
struct MadeColumn {
    table: &'static str,
    name: &'static str,
    /// PostgreSQL type, as in `schema.sql`.
    type_name: &'static str,
}

/// Parses the columns that [`TABLES`] creates, one per line.
fn made_columns() -> impl Iterator<Item = MadeColumn> {
    let tables = TABLES.split("CREATE TABLE ").skip(1);
    tables.flat_map(|text| {
        let (table, definition) = text.split_once(" (\n").unwrap_or_default();
        let lines = definition.lines().take_while(|line| !line.starts_with(')'));
        lines.filter_map(move |line| {
            let mut words = line.trim().trim_end_matches(',').split(' ');
            let (name, type_name) = (words.next()?, words.next()?);
            // Skips the key and comments.
            (!["PRIMARY", "--"].contains(&name)).then_some(MadeColumn {
                table,
                name,
                type_name,
            })
        })
    })
}

/// Returns the column names of a table.
#[cfg(test)]
pub(super) fn columns(table: &str) -> Vec<&'static str> {
    let of_table = made_columns().filter(|column| column.table == table);
    of_table.map(|column| column.name).collect()
}
