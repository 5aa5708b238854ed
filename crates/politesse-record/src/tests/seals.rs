//! Heads of the record: when they are made, what they cover, and the findings about
//! a record that was altered after them.

use std::fs;
use std::iter;

use jiff::SignedDuration;
use serde_json::Value as Json;
use tokio::time::advance;

use super::damage::add_lost_range;
use super::events::entered;
use super::faults::crash;
use super::numbers::FILES;
use super::*;
use crate::columns::{TableRow as _, signed};
use crate::error::WriteError;
use crate::events::ProcessEventKind;
use crate::head::RecordHead;
use crate::leaf::RecordId;
use crate::merkle::{PlacedLeaf, chosen_ranges, leaf_hash};
use crate::note::{NoteKey, NoteSigner, SignedNote};
use crate::pages::{SqlConditions, TableScan};
use crate::parts::part_of;
use crate::record_id::read_id;
use crate::seal_check::{OutsideHead, SealEvidence};
use crate::seal_key::open_key;
use crate::sequence::write_last;
use crate::store::AuditStore;
use crate::tree_rows::{SEALS, StoredSeal, TreeReader};
use politesse_base::metrics::ResultLabel;

/// Files of an open record, including its key.
const ALL_FILES: [&str; 4] = ["audit.db", "audit.db-wal", "record", "seal.key"];

/// Returns options with which a head is made after `entries` entries.
pub(super) fn sealed_every(folder: &Path, entries: usize) -> Options {
    let mut options = options(folder, 64);
    options.seal.entries = NonZeroUsize::new(entries).unwrap();
    options
}

/// Returns a log in which a head is made after `entries` entries.
fn kit_with_heads(entries: usize) -> Kit {
    let folder = tempfile::tempdir().unwrap();
    let options = sealed_every(folder.path(), entries);
    Kit::with(folder, &options)
}

impl Kit {
    /// Records `count` decisions one at a time, each ended immediately.
    async fn record_slowly(&self, count: usize) {
        for _ in 0..count {
            let (_, ending) = self.log.record(record("/a")).await.unwrap();
            ending.complete(done(200));
            self.log.probe().await.unwrap();
        }
    }

    /// Waits until the writer has made its heads.
    async fn settled(&self) {
        // The work that follows one answer is complete before the next answer.
        self.log.probe().await.unwrap();
        self.log.probe().await.unwrap();
    }

    fn heads(&self) -> Vec<StoredSeal> {
        heads_of(&Connection::open(self.path()).unwrap())
    }

    fn sizes(&self) -> Vec<i64> {
        self.heads().iter().map(|head| head.size).collect()
    }

    fn verified(&self, evidence: &SealEvidence) -> (Verification, Vec<String>) {
        let mut found = Vec::new();
        let (reader, all) = (self.reader(), DecisionFilter::default());
        let report = |finding| found.push(finding);
        let sums = verify::verify_with(&reader, &all, evidence, report).unwrap();
        (sums, found)
    }

    fn count_of_heads(&self, result: &'static str) -> u64 {
        let label = ResultLabel { result };
        self.metrics.audit_seals.get_or_create(&label).get()
    }
}

pub(super) fn heads_of(connection: &Connection) -> Vec<StoredSeal> {
    let ranges = iter::once(i64::MIN..i64::MAX).collect();
    let mut scan = TableScan::new(connection, SEALS, SqlConditions::default(), ranges);
    let mut heads = Vec::new();
    while let Some(page) = scan.next_page(StoredSeal::read).unwrap() {
        heads.extend(page);
    }
    heads
}

pub(super) fn head(seal: &StoredSeal) -> RecordHead {
    let note: SignedNote = seal.note.parse().unwrap();
    note.text().parse().unwrap()
}

pub(super) fn outside(seal: &StoredSeal) -> SealEvidence {
    SealEvidence {
        keys: Vec::new(),
        heads: vec![OutsideHead {
            name: "head".to_owned(),
            note: seal.note.parse().unwrap(),
        }],
    }
}

// Ours: docs/decisions/023-seals.md.
#[tokio::test]
async fn a_head_is_made_after_seal_entries_and_at_a_clean_stop() {
    let kit = kit_with_heads(4);
    kit.record_slowly(5).await;
    kit.settled().await;
    assert_eq!(kit.sizes(), [4, 8]);
    assert_eq!(
        (kit.count_of_heads("made"), kit.metrics.audit_unsealed.get()),
        (2, 2)
    );
    let sealed_at = kit.metrics.audit_last_seal_timestamp_seconds.get();
    assert!((0..60).contains(&(clock::now().as_second() - sealed_at)));
    let id = kit.reader().record_name().unwrap();
    let options = sealed_every(kit.folder.path(), 4);
    let kit = Kit::with(kit.closed().await, &options);
    let heads = kit.heads();
    assert_eq!(kit.sizes(), [4, 8, 10]);
    for pair in heads.windows(2) {
        let previous = Digest::of(pair[0].note.as_bytes());
        assert_eq!(head(&pair[1]).previous, Some(previous));
    }
    assert_eq!(head(&heads[0]).previous, None);
    for seal in &heads {
        let key: NoteKey = seal.vkey.parse().unwrap();
        assert_eq!(
            seal.note.parse::<SignedNote>().unwrap().verify(&key),
            Ok(())
        );
        assert_eq!((key.name(), &head(seal).origin), (&*id, &id));
    }
    let (sums, found) = kit.verified(&SealEvidence::default());
    assert_eq!(
        (sums.seals.heads, sums.seals.sealed, found),
        (3, 10, vec![])
    );
    // There are no new entries, so nothing is signed.
    let kit = Kit::with(kit.closed().await, &options);
    assert_eq!(kit.sizes(), [4, 8, 10]);
    kit.record_slowly(1).await;
    let kit = Kit::with(kit.closed().await, &options);
    assert_eq!(kit.sizes(), [4, 8, 10, 12]);
    assert_eq!(
        kit.verified(&SealEvidence::default()).1,
        Vec::<String>::new()
    );
}

// Ours: no entry waits for its head for longer than `audit.seal_interval`.
#[tokio::test(start_paused = true)]
async fn a_head_is_made_seal_interval_after_the_first_uncovered_entry() {
    let kit = Kit::new(64);
    advance(Duration::from_secs(3600)).await;
    kit.record_slowly(1).await;
    advance(Duration::from_secs(599)).await;
    kit.settled().await;
    assert!(kit.sizes().is_empty());
    advance(Duration::from_secs(1)).await;
    kit.settled().await;
    assert_eq!(kit.sizes(), [2]);
    advance(Duration::from_secs(3600)).await;
    kit.settled().await;
    assert_eq!(kit.sizes(), [2]);
}

// Ours: the writer wakes to make a head although no entry arrives.
#[tokio::test]
async fn a_head_is_made_even_if_no_entry_follows() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), 64);
    options.seal.interval = Duration::from_millis(50);
    let kit = Kit::with(folder, &options);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    drop(ending);
    while kit.sizes().last() != Some(&2) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_tree_is_rebuilt_from_the_file_after_a_crash() {
    let kit = kit_with_heads(4);
    kit.record_slowly(3).await;
    kit.log.record_event(entered("o.test", 90));
    kit.settled().await;
    assert_eq!(kit.sizes(), [4]);
    let crashed = crash(&kit, &ALL_FILES);
    let options = sealed_every(crashed.path(), 4);
    let again = Kit::with(crashed, &options);
    again.record_slowly(1).await;
    again.settled().await;
    assert_eq!(again.sizes(), [4, 8]);
    let (sums, found) = again.verified(&outside(&again.heads()[0]));
    assert_eq!(
        (sums.seals.sealed, sums.seals.outside, found),
        (8, 1, vec![])
    );
}

// Ours: completed parts are read by their roots, and lost numbers have the leaf of
// their range.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_many_parts_is_sealed_across_starts_and_crashes() {
    let kit = Kit::new(4096);
    let decision = decision("/a");
    let mut open = Vec::new();
    for _ in 0..9_000 {
        let (_, ending) = kit.log.record(record_of(&decision)).await.unwrap();
        open.push(ending);
        if 300 < open.len() {
            open.swap_remove(0).complete(done(200));
        }
    }
    drop(open);
    kit.log.probe().await.unwrap();
    let folder = crash(&kit, &ALL_FILES);
    let lost = 65_536 - last_of(&kit);
    add_lost_range(&file(folder.path()), lost);
    let crashed = Kit::reopened(folder, 4096);
    assert_eq!(verify(&crashed).0.skipped, count(lost));
    crashed.record_slowly(1).await;
    let kit = Kit::reopened(crashed.closed().await, 4096);
    let (sums, found) = kit.verified(&outside(&kit.heads()[0]));
    assert_eq!((found, sums.seals.outside), (vec![], 1));
    let reader = kit.reader();
    let (rows, newest) = (reader.tree(), head(kit.heads().last().unwrap()).tree);
    assert_eq!(sums.seals.sealed, newest.size);
    let last_part = i64::try_from(newest.size / 8192).unwrap() - 1;
    assert!(rows.subtree(last_part).unwrap().is_some());
    // Proofs are computed from the rows.
    let leaf = |number: u64| {
        let number = signed(number);
        rows.part(part_of(number)).unwrap().get(number)
    };
    let chosen = [0, 5, 8191, 8192, 17_000, newest.size - 1];
    let placed: Vec<_> = chosen
        .iter()
        .map(|index| PlacedLeaf {
            index: *index,
            hash: leaf_hash(leaf(index + 1).unwrap().as_bytes()),
        })
        .collect();
    let proof = rows.roots(&chosen_ranges(&chosen, newest.size)).unwrap();
    assert!(newest.includes_all(&placed, &proof.unwrap()));
    kit.sql("DELETE FROM lost_range");
    assert_eq!(
        rows.roots(&chosen_ranges(&[], newest.size))
            .unwrap()
            .map(|roots| roots.len()),
        Some(1)
    );
    assert_eq!(leaf(newest.size - 3), None);
    let lost = newest.size - 4..newest.size;
    assert_eq!(rows.roots(std::slice::from_ref(&lost)).unwrap(), None);
}

// Ours: a head covers exactly what is in the file, whatever the outcome of a
// commit.
#[tokio::test]
async fn the_tree_omits_a_failed_batch_and_includes_a_disowned_one() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), 64);
    let mut store = AuditStore::open(&options, &Metrics::default()).unwrap();
    let (path, away) = (file(folder.path()), folder.path().join("away"));
    let record = record("/a");
    store
        .write(|transaction| transaction.write_decision(1, &record))
        .unwrap();
    let failed = store.write(|transaction| {
        transaction.write_decision(2, &record)?;
        Err(rusqlite::Error::InvalidQuery)
    });
    assert!(matches!(failed, Err(WriteError::Sqlite(_))));
    let disowned = store.write(|transaction| {
        transaction.write_decision(2, &record)?;
        fs::rename(&path, &away).unwrap();
        Ok(())
    });
    assert!(matches!(disowned, Err(WriteError::FilesAfterCommit(_))));
    assert!(store.seal().is_err());
    fs::rename(&away, &path).unwrap();
    let note: SignedNote = store.seal().unwrap().unwrap().parse().unwrap();
    let head: RecordHead = note.text().parse().unwrap();
    assert_eq!(head.tree.size, 2);
    assert_eq!(store.seal().unwrap(), None);
    store.close();
    let kit = Kit::reopened(folder, 64);
    let (sums, found) = kit.verified(&SealEvidence::default());
    assert_eq!((sums.seals.sealed, found), (2, vec![]));
}

#[tokio::test]
async fn a_head_that_cannot_be_written_stops_no_request_and_is_made_later() {
    let kit = kit_with_heads(4);
    kit.sql(
        "CREATE TRIGGER broken_seal BEFORE INSERT ON seal
         BEGIN SELECT RAISE(ABORT, 'disk full'); END;",
    );
    kit.record_slowly(3).await;
    kit.settled().await;
    assert!(kit.sizes().is_empty());
    assert!(0 < kit.count_of_heads("failed"));
    kit.sql("DROP TRIGGER broken_seal");
    let folder = kit.closed().await;
    let heads = heads_of(&Connection::open(file(folder.path())).unwrap());
    assert!(heads.iter().map(|head| head.size).eq([6]));
}

// Ours: a head never vouches for an altered or incomplete record.
#[tokio::test]
async fn an_altered_record_is_not_sealed_any_further() {
    for change in [
        "UPDATE decision SET leaf = zeroblob(32) WHERE seq = 1",
        "DELETE FROM ending WHERE decision = 3",
        "UPDATE seal SET note = 'x'",
        "UPDATE seal SET size = 3",
    ] {
        let kit = kit_with_heads(100);
        kit.record_slowly(3).await;
        let folder = kit.closed().await;
        Connection::open(file(folder.path()))
            .unwrap()
            .execute_batch(change)
            .unwrap();
        // Without its marker, because entries missing near the end would otherwise
        // prevent the start.
        fs::remove_file(folder.path().join("data/record")).unwrap();
        let options = sealed_every(folder.path(), 2);
        let kit = Kit::with(folder, &options);
        kit.record_slowly(3).await;
        assert!(
            !kit.verified(&SealEvidence::default()).1.is_empty(),
            "{change}"
        );
        let folder = kit.closed().await;
        let heads = heads_of(&Connection::open(file(folder.path())).unwrap());
        assert_eq!(heads.len(), 1, "{change}");
    }
}

/// Returns an open record with heads of 4, 8 and 10 entries.
async fn three_heads() -> Kit {
    let kit = kit_with_heads(4);
    kit.record_slowly(5).await;
    kit.settled().await;
    let options = sealed_every(kit.folder.path(), 1000);
    Kit::with(kit.closed().await, &options)
}

/// Changes the leaf of decision 5, and with it its hash in the tree, as an attacker
/// without the key can.
const OTHER_LEAF: &str = "UPDATE decision SET leaf = zeroblob(32) WHERE seq = 5;";

#[tokio::test]
async fn a_finding_about_a_head_names_the_head_and_the_place() {
    let root = "5 to 8: these entries are not those of the head of 8 entries";
    let size_4 = "the head of 4 entries in the table seal";
    for (change, wanted) in [
        (OTHER_LEAF, root),
        (
            "DELETE FROM seal WHERE size = 4",
            "the head of 8 entries in the table seal is not chained",
        ),
        (
            "UPDATE seal SET note = 'x' WHERE size = 4",
            &format!("{size_4} is damaged"),
        ),
        (
            "UPDATE seal SET size = 5 WHERE size = 4",
            "the head of 5 entries in the table seal is damaged",
        ),
        (
            "UPDATE seal SET note = replace(note, 'time 2', 'time 1') WHERE size = 4",
            &format!("{size_4} is not signed"),
        ),
        (
            "UPDATE seal SET vkey = (SELECT vkey FROM seal WHERE size = 8) || 'A' WHERE size = 4",
            &format!("{size_4} is not signed"),
        ),
        (
            "UPDATE seal SET note = replace(note, 'politesse/', 'politesse/0') WHERE size = 4",
            &format!("{size_4} is that of another record, politesse/0"),
        ),
        (
            "INSERT INTO subtree VALUES (0, zeroblob(32))",
            "the table subtree has roots of entries",
        ),
        (
            "DELETE FROM decision; DELETE FROM ending; DELETE FROM sequence",
            "1 to 10: no such rows",
        ),
    ] {
        let kit = three_heads().await;
        kit.sql(change);
        // The row itself is also found, by its leaf.
        let found = kit.verified(&SealEvidence::default()).1;
        let is_found = found.iter().any(|finding| finding.starts_with(wanted));
        assert!(is_found, "{change}: {found:?}");
    }
}

/// Signs the head of `size` entries again with the date `time`, as someone who has
/// the key can.
fn redate(kit: &Kit, size: i64, time: Timestamp) {
    let connection = Connection::open(kit.path()).unwrap();
    let name = kit.reader().record_name().unwrap();
    let signer = open_key(&kit.folder.path().join("seal.key"), &name).unwrap();
    let seal = kit.heads().into_iter().find(|seal| seal.size == size);
    let mut dated = head(&seal.unwrap());
    dated.time = time;
    let note = signer.sign(&dated.text()).to_string();
    let sql = "UPDATE seal SET note = ? WHERE size = ?";
    connection.execute(sql, (note, size)).unwrap();
}

// Ours: docs/proving.md.
#[tokio::test]
async fn a_head_must_be_dated_after_the_previous_one_and_soon_after_its_entries() {
    let kit = three_heads().await;
    let now = clock::now();
    redate(&kit, 10, now - SignedDuration::from_mins(2));
    let is_early = || {
        let found = kit.verified(&SealEvidence::default()).1;
        let early = |finding: &String| finding.ends_with("earlier than the head before it");
        found.iter().any(early)
    };
    assert!(is_early());
    // The clock was set back in between.
    kit.sql("INSERT INTO clock_step VALUES (9)");
    assert!(!is_early());

    let kit = kit_with_heads(1000);
    let started = ProcessEvent::now(ProcessEventKind::Started, Json::Null);
    kit.log.record_process_event(started);
    let options = sealed_every(kit.folder.path(), 1000);
    let kit = Kit::with(kit.closed().await, &options);
    for (hours, count) in [(47, 0), (49, 1)] {
        redate(&kit, 1, now + SignedDuration::from_hours(hours));
        let found = kit.verified(&SealEvidence::default()).1;
        let late = |finding: &String| finding.contains("more than two days after the newest");
        assert_eq!(
            found.iter().filter(|finding| late(finding)).count(),
            count,
            "{found:?}"
        );
    }
}

// Ours: docs/proving.md.
#[tokio::test]
async fn entries_that_a_clean_stop_left_unsealed_are_found() {
    let kit = kit_with_heads(1000);
    kit.record_slowly(2).await;
    let stopped = ProcessEvent::now(ProcessEventKind::Stopped, Json::Null);
    kit.log.record_process_event(stopped);
    let options = sealed_every(kit.folder.path(), 1000);
    let kit = Kit::with(kit.closed().await, &options);
    assert_eq!(
        kit.verified(&SealEvidence::default()).1,
        Vec::<String>::new()
    );
    kit.sql("DELETE FROM seal");
    fs::remove_file(kit.path().with_file_name("record")).unwrap();
    let (sums, found) = kit.verified(&SealEvidence::default());
    let tail = "1 to 5: no head covers these entries, although the proxy seals all entries when \
                it stops";
    assert!(found.contains(&tail.to_owned()), "{found:?}");
    assert_eq!((sums.unsealed(), sums.seals.entries), (5, 5));
}

// Ours: a fault in one part does not affect findings about other parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_finding_about_a_part_names_its_numbers() {
    let kit = Kit::new(4096);
    kit.record_all(iter::repeat_n(record("/a"), 8_300)).await;
    let kit = Kit::reopened(kit.closed().await, 4096);
    let part = "8193 to 16384: these entries, or their row in the table subtree, are not";
    for (change, wanted, sealed) in [
        (
            "UPDATE subtree SET hash = zeroblob(32) WHERE part = 1",
            part,
            16_600,
        ),
        (
            "UPDATE subtree SET hash = 1 || hash WHERE part = 1",
            "8193 to 16384: the table",
            16_600,
        ),
        (
            "DELETE FROM subtree WHERE part = 1",
            "8193 to 16384: the table subtree has no root",
            16_600,
        ),
        (
            "UPDATE event SET leaf = zeroblob(32); UPDATE decision SET leaf = zeroblob(32) WHERE seq = 8201",
            part,
            16_600,
        ),
        (
            "INSERT INTO subtree VALUES (2, zeroblob(32))",
            "the table subtree has roots of entries",
            16_600,
        ),
        (
            "UPDATE decision SET leaf = zeroblob(32) WHERE seq = (SELECT max(seq) FROM decision)",
            "1 to 16600: these entries",
            0,
        ),
    ] {
        kit.sql(&format!(
            "CREATE TABLE saved AS SELECT * FROM subtree;
             CREATE TABLE leaves AS SELECT seq, leaf FROM decision; PRAGMA ignore_check_constraints = 1; {}",
            change.replace("1 || hash", "CAST(1 || hash AS BLOB)"),
        ));
        let (sums, found) = kit.verified(&SealEvidence::default());
        let is_found = found.iter().any(|finding| finding.starts_with(wanted));
        assert!(
            is_found && sums.seals.sealed == sealed,
            "{change}: {found:?} {sums:?}"
        );
        kit.sql(
            "DELETE FROM subtree; INSERT INTO subtree SELECT * FROM saved; DROP TABLE saved;
             UPDATE decision SET leaf = (SELECT leaf FROM leaves AS l WHERE l.seq = decision.seq);
             DROP TABLE leaves;",
        );
        assert_eq!(
            kit.verified(&SealEvidence::default()).1,
            Vec::<String>::new()
        );
    }
}

// Ours: with an exported head, nothing in the folder has to be trusted.
#[tokio::test]
async fn an_exported_head_reveals_changes_cuts_and_replacement() {
    let kit = three_heads().await;
    let [_, second, third] = <[StoredSeal; 3]>::try_from(kit.heads()).unwrap();
    let evidence = outside(&second);
    assert_eq!(kit.verified(&evidence).0.seals.outside, 1);
    // The end was cut off, with all its traces.
    let folder = crash(&kit, &FILES);
    fs::remove_file(folder.path().join("data/record")).unwrap();
    let cut = Connection::open(file(folder.path())).unwrap();
    cut.execute_batch(
        "DELETE FROM decision WHERE 5 <= seq; DELETE FROM ending WHERE 5 <= decision;
         DELETE FROM seal WHERE 4 < size;",
    )
    .unwrap();
    let id = RecordId::parse(&read_id(&cut).unwrap().unwrap());
    write_last(&cut, id, 4).unwrap();
    let shorter = Kit::reopened(folder, 16);
    let (sums, found) = shorter.verified(&SealEvidence::default());
    assert_eq!((sums.mismatches + sums.missing, found), (0, vec![]));
    let found = shorter.verified(&evidence).1;
    assert_eq!(found[0], "5 to 8: no such rows");
    assert!(
        found[1].starts_with("head (head of 8 entries): the record ends at 4"),
        "{found:?}"
    );
    // An entry before the head was changed, and the heads of the table are gone.
    kit.sql(&format!("{OTHER_LEAF} DELETE FROM seal"));
    let found = kit.verified(&evidence).1;
    let changed = "head (head of 8 entries): the first 8 entries are not those";
    assert!(
        found.iter().any(|finding| finding.starts_with(changed)),
        "{found:?}"
    );
    // An entry before the head is missing.
    kit.sql("DELETE FROM decision WHERE seq = 1");
    let found = kit.verified(&evidence).1;
    let missing = "head (head of 8 entries): entries up to 8 are missing";
    assert!(
        found.iter().any(|finding| finding.starts_with(missing)),
        "{found:?}"
    );
    // A different record.
    let other = three_heads().await;
    let found = other.verified(&outside(&third)).1;
    assert!(
        found[0].starts_with("head (head of 10 entries): is that of another record"),
        "{found:?}"
    );
}

#[tokio::test]
async fn heads_are_checked_against_keys_from_outside() {
    let kit = three_heads().await;
    let name = kit.reader().record_name().unwrap();
    let own: NoteKey = kit.heads()[0].vkey.parse().unwrap();
    let other = NoteSigner::from_pkcs8(&name, &NoteSigner::generate().unwrap()).unwrap();
    let exported = outside(&kit.heads()[0]);
    let with_key = |key: &NoteKey| {
        let evidence = SealEvidence {
            keys: vec![key.clone()],
            ..exported.clone()
        };
        kit.verified(&evidence).1
    };
    assert_eq!(with_key(&own), Vec::<String>::new());
    let found = with_key(other.key());
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(
        found
            .iter()
            .all(|finding| finding.ends_with("is not signed by a key that --key names"))
    );
    // If someone with access to the folder signs the head with another key and
    // removes the marker, the record looks valid by itself.
    fs::remove_file(kit.path().with_file_name("record")).unwrap();
    let forged = head(&kit.heads()[0]);
    let note = other.sign(&forged.text());
    kit.sql(&format!(
        "DELETE FROM seal; INSERT INTO seal VALUES (4, '{note}', '{}', NULL)",
        other.key()
    ));
    assert_eq!(
        kit.verified(&SealEvidence::default()).1,
        Vec::<String>::new()
    );
    // The exported head is still valid; only the forged one is reported.
    let found = "the head of 4 entries in the table seal is not signed by a key that --key names";
    assert_eq!(with_key(&own), [found]);
}

#[tokio::test]
async fn the_key_is_created_once_and_readable_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;

    let kit = kit_with_heads(2);
    let path = kit.path().with_file_name("seal.key");
    let made = fs::read(&path).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let kit = Kit::reopened(kit.closed().await, 16);
    assert_eq!(fs::read(&path).unwrap(), made);
    let folder = kit.closed().await;
    let start = |options: &Options| {
        let opened = AuditLog::open(options, Arc::new(Metrics::default()), &TaskTracker::new());
        opened.map(drop).unwrap_err()
    };
    let mut own = options(folder.path(), 16);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(start(&own), AuditError::Writable { .. }));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "no key").unwrap();
    assert!(matches!(start(&own), AuditError::SealKey(..)));
    own.seal.key = Some(folder.path().join("keys/own.key"));
    let kit = Kit::with(folder, &own);
    assert!(kit.folder.path().join("keys/own.key").exists());
    kit.record_slowly(1).await;
    let rows = TreeReader::new(&Connection::open(kit.path()).unwrap()).newest_seal();
    assert_eq!(rows.unwrap(), None);
}

// Ours: a deleted root does not invalidate the heads after it, even if the range of
// lost numbers is longer than a part.
#[tokio::test]
async fn a_part_of_lost_numbers_without_its_root_invalidates_no_head() {
    let kit = Kit::new(64);
    kit.record_slowly(1).await;
    let folder = crash(&kit, &ALL_FILES);
    add_lost_range(&file(folder.path()), 50_000);
    let mut options = options(folder.path(), 64);
    options.seal.entries = NonZeroUsize::new(4).unwrap();
    let again = Kit::with(folder, &options);
    again.record_slowly(4).await;
    again.settled().await;
    let newest = outside(again.heads().last().unwrap());
    again.sql("DELETE FROM subtree WHERE part = 3");
    let (sums, found) = again.verified(&newest);
    assert_eq!((sums.seals.outside, found.len()), (1, 1), "{found:?}");
}

/// Returns a closed record of eight entries with two heads. The heads that match
/// `condition` are removed, and so are all roots of parts.
async fn with_removed_heads(condition: &str) -> TempDir {
    let kit = kit_with_heads(4);
    kit.record_slowly(4).await;
    let folder = kit.closed().await;
    let connection = Connection::open(file(folder.path())).unwrap();
    let sql = format!("DELETE FROM seal WHERE {condition}; DELETE FROM subtree;");
    connection.execute_batch(&sql).unwrap();
    folder
}

// Ours: the marker remembers heads that were deleted from the table.
#[tokio::test]
async fn a_start_does_not_seal_over_removed_heads() {
    for (condition, found) in [("1", 0), ("size = 8", 4)] {
        let folder = with_removed_heads(condition).await;
        let options = sealed_every(folder.path(), 4);
        let kit = Kit::with(folder, &options);
        let fault = kit.log.seal_fault().unwrap();
        let wanted = format!("was of 8 entries, and the newest that is left is of {found}");
        assert!(fault.ends_with(&wanted), "{fault}");
        kit.record_slowly(4).await;
        kit.settled().await;
        let sizes: &[i64] = if found == 0 { &[] } else { &[4] };
        assert_eq!(kit.sizes(), sizes, "nothing is signed");
        let (sums, findings) = kit.verified(&SealEvidence::default());
        assert!(0 < sums.mismatches, "{findings:?}");
        assert!(
            findings[0].starts_with("the head of 8 entries"),
            "{findings:?}"
        );
        // The fault persists at the next start.
        let kit = Kit::with(kit.closed().await, &options);
        assert_eq!(kit.log.seal_fault(), Some(fault));
    }
}

// Ours: only an explicit order, recorded as an event, resumes sealing.
#[tokio::test]
async fn the_loss_of_heads_can_be_accepted_on_record() {
    let folder = with_removed_heads("1").await;
    let mut options = sealed_every(folder.path(), 4);
    options.accept_lost_heads = true;
    let kit = Kit::with(folder, &options);
    assert_eq!(kit.log.seal_fault(), None);
    kit.record_slowly(4).await;
    let folder = kit.closed().await;
    options.accept_lost_heads = false;
    let kit = Kit::with(folder, &options);
    assert_eq!(kit.log.seal_fault(), None, "it was accepted once for all");
    let (sums, findings) = kit.verified(&SealEvidence::default());
    assert_eq!(sums.mismatches, 0, "{findings:?}");
    let told = "event 9: heads were lost before, and the record was sealed without them: \
                {\"known\":8,\"found\":0}";
    assert_eq!(findings, [told]);
}

// Ours: a crash between a head and the marker is not a removal.
#[tokio::test]
async fn a_marker_older_than_the_heads_is_not_a_fault() {
    let kit = kit_with_heads(4);
    kit.record_slowly(2).await;
    kit.settled().await;
    let marker = kit.folder.path().join("data/record");
    let before = fs::read(&marker).unwrap();
    kit.record_slowly(2).await;
    let folder = kit.closed().await;
    assert_ne!(fs::read(&marker).unwrap(), before);
    fs::write(&marker, before).unwrap();
    let options = sealed_every(folder.path(), 4);
    assert_eq!(Kit::with(folder, &options).log.seal_fault(), None);
}
