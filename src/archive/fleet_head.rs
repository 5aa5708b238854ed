//! Fleet heads: one signed head over the newest heads of all nodes, so that an auditor
//! keeps one text in place of one for each node.
//!
//! A member is a line: id of the record, size, root in Base64. The lines, in the order
//! of the ids, are the leaves of a tree (RFC 9162, section 2.1.1). The node whose new
//! head was shipped last signs its root, with the key of its own heads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tokio_postgres::{Client, Row};

use super::failure::ArchiveFailure;
use crate::audit::head::RecordHead;
use crate::audit::merkle::{CompactRange, TreeHead, leaf_hash};
use crate::audit::note::{NoteSigner, SignedNote};
use crate::clock;
use crate::decision::digest::Digest;

/// Newest heads of all nodes, in the order of the ids of their records.
const NEWEST: &str = "
SELECT n.id, s.note FROM node AS n
JOIN LATERAL (SELECT note FROM seal WHERE log = n.log ORDER BY size DESC LIMIT 1) AS s ON true
ORDER BY n.id";

const LAST: &str = "SELECT members, note FROM fleet_head ORDER BY n DESC LIMIT 1";

/// Has two nodes make their heads one after the other: each names the one before.
const LOCK: &str = "LOCK TABLE fleet_head IN SHARE ROW EXCLUSIVE MODE";

const INSERT: &str = "INSERT INTO fleet_head (members, note, vkey) VALUES ($1, $2, $3)";

/// Makes a fleet head signed by `signer`, if a node has a newer head than the last one
/// says. Returns whether one was made.
///
/// # Errors
///
/// [`ArchiveFailure`].
pub(super) async fn make(client: &mut Client, signer: &NoteSigner) -> Result<bool, ArchiveFailure> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(LOCK).await?;
    let heads = transaction.query(NEWEST, &[]).await?;
    let members: Vec<String> = heads.iter().filter_map(member).collect();
    let text = lines(&members);
    let last = transaction.query_opt(LAST, &[]).await?;
    let before = last.map(|row| (row.get::<_, String>(0), row.get::<_, String>(1)));
    // A head that says nothing new would only make the chain longer.
    let is_known = before.as_ref().is_some_and(|(known, _)| *known == text);
    if is_known || members.is_empty() {
        return Ok(false);
    }
    let previous = before.map(|(_, note)| Digest::of(note.as_bytes()));
    let head = head_text(&members, clock::now(), previous);
    let note = signer.sign(&head).to_string();
    let key = signer.key().to_string();
    transaction.execute(INSERT, &[&text, &note, &key]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Makes the text that is signed about `members`.
pub(super) fn head_text(members: &[String], time: Timestamp, previous: Option<Digest>) -> String {
    let mut tree = CompactRange::default();
    for member in members {
        tree.push(leaf_hash(member.as_bytes()));
    }
    let head = RecordHead {
        origin: FLEET_ORIGIN.to_owned(),
        tree: TreeHead {
            size: tree.size(),
            root: tree.root(),
        },
        time,
        previous,
    };
    head.text()
}

/// First line of a fleet head.
pub(super) const FLEET_ORIGIN: &str = "politesse/fleet";

/// Returns the line of a node with its newest head; `None` if that is none.
fn member(row: &Row) -> Option<String> {
    let (id, note): (String, String) = (row.get(0), row.get(1));
    member_line(&id, &note)
}

/// Makes the line of the record `id` whose newest head is `note`; `None` if that is no
/// head.
pub(super) fn member_line(id: &str, note: &str) -> Option<String> {
    let note: SignedNote = note.parse().ok()?;
    let head: RecordHead = note.text().parse().ok()?;
    let root = STANDARD.encode(head.tree.root.as_bytes());
    Some(format!("{id} {} {root}", head.tree.size))
}

fn lines(members: &[String]) -> String {
    members.iter().map(|member| format!("{member}\n")).collect()
}
