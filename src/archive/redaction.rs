//! Redaction in the archive: what a node takes away from a decision goes here as well,
//! with the event that says so.
//!
//! The commitment is computed from what the archive has, as the node computed it, so
//! that leaves and proofs hold on both sides (docs/decisions/026-redaction.md).

use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};

use super::failure::ArchiveFailure;
use crate::audit::{PersonalValues, read_digest};
use crate::decision::digest::{CanonicalBytes, Digest};

/// Ranges that are looked for at a time. Most are of one decision.
const RANGES: usize = 256;

/// Decisions of some ranges that are not redacted, with what their commitments are over.
const FIND: &str = "
SELECT d.seq, d.time_us, d.salt, c.sha256, o.sha256, convert_to(d.path, 'UTF8'), d.reading,
       d.client, d.origin
FROM unnest($2::bigint[], $3::bigint[]) AS r (first, last)
JOIN decision AS d ON d.log = $1 AND r.first <= d.seq AND d.seq <= r.last
JOIN client AS c ON c.id = d.client JOIN origin AS o ON o.id = d.origin
WHERE length(d.salt) = 16";

const REDACT: &str = "
UPDATE decision AS d SET salt = u.salt, client = 0, path = '', reading = NULL,
  origin = CASE (SELECT s.origin FROM snapshot AS s WHERE s.id = d.snapshot)
    WHEN (SELECT o.origin FROM origin AS o WHERE o.id = d.origin) THEN d.origin ELSE 0 END
FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS u (seq, time_us, salt)
WHERE d.log = $1 AND d.seq = u.seq AND d.time_us = u.time_us";

/// Has all other shipments forget which values there are.
const BEGIN_REMOVAL: &str = "UPDATE archive SET removals = removals + 1";

const REMOVE_CLIENTS: &str = "
DELETE FROM client AS c WHERE c.id = ANY($1)
AND NOT EXISTS (SELECT 1 FROM decision AS d WHERE d.client = c.id)";

const REMOVE_ORIGINS: &str = "
DELETE FROM origin AS o WHERE o.id = ANY($1)
AND NOT EXISTS (SELECT 1 FROM decision AS d WHERE d.origin = o.id)";

/// Redacts the decisions of node `log` whose numbers are in `ranges`, and removes the
/// values that nothing else refers to. Returns whether any were redacted.
///
/// # Errors
///
/// [`ArchiveFailure`].
pub(super) async fn apply(
    transaction: &Transaction<'_>,
    log: i32,
    ranges: &[[i64; 2]],
) -> Result<bool, ArchiveFailure> {
    let (mut clients, mut origins) = (Vec::<i64>::new(), Vec::<i64>::new());
    for ranges in ranges.chunks(RANGES) {
        let firsts: Vec<i64> = ranges.iter().map(|[first, _]| *first).collect();
        let lasts: Vec<i64> = ranges.iter().map(|[_, last]| *last).collect();
        let bounds: [&(dyn ToSql + Sync); 3] = [&log, &firsts, &lasts];
        let rows = transaction.query(FIND, &bounds).await?;
        let numbers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let times: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
        let salts: Vec<Vec<u8>> = rows.iter().map(commitment_of).collect();
        let values: [&(dyn ToSql + Sync); 4] = [&log, &numbers, &times, &salts];
        transaction.execute(REDACT, &values).await?;
        clients.extend(rows.iter().map(|row| row.get::<_, i64>(7)));
        origins.extend(rows.iter().map(|row| row.get::<_, i64>(8)));
    }
    if clients.is_empty() {
        return Ok(false);
    }
    transaction.execute(BEGIN_REMOVAL, &[]).await?;
    transaction.execute(REMOVE_CLIENTS, &[&clients]).await?;
    transaction.execute(REMOVE_ORIGINS, &[&origins]).await?;
    Ok(true)
}

/// Computes the commitment to what a row of [`FIND`] has. A digest that is none, which
/// nobody writes, is that of nothing: such a row does not verify, here nor there.
fn commitment_of(row: &Row) -> Vec<u8> {
    let sha256 = |place: usize| read_digest(row.get(place)).unwrap_or(Digest::from([0; 32]));
    let values = PersonalValues {
        salt: row.get(2),
        client: sha256(3),
        origin: sha256(4),
        path: row.get(5),
        reading: row.get(6),
    };
    let commitment = values.commitment(&mut CanonicalBytes::default());
    commitment.as_bytes().to_vec()
}
