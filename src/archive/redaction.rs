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

/// Decisions of a range that are not redacted, with what their commitments are over.
const FIND: &str = "
SELECT d.seq, d.time_us, d.salt, c.sha256, o.sha256, convert_to(d.path, 'UTF8'), d.reading,
       d.client, d.origin
FROM decision AS d JOIN client AS c ON c.id = d.client JOIN origin AS o ON o.id = d.origin
WHERE d.log = $1 AND $2 <= d.seq AND d.seq <= $3 AND length(d.salt) = 16";

const REDACT: &str = "
UPDATE decision SET salt = $4, client = 0, origin = 0, path = '', reading = NULL
WHERE log = $1 AND seq = $2 AND time_us = $3";

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
    for [first, last] in ranges {
        let bounds: [&(dyn ToSql + Sync); 3] = [&log, first, last];
        for row in transaction.query(FIND, &bounds).await? {
            let salt = commitment_of(&row);
            let (seq, time_us): (i64, i64) = (row.get(0), row.get(1));
            let values: [&(dyn ToSql + Sync); 4] = [&log, &seq, &time_us, &salt];
            transaction.execute(REDACT, &values).await?;
            clients.push(row.get(7));
            origins.push(row.get(8));
        }
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
