//! Files of the record that are deleted, replaced, truncated or kept from being
//! checkpointed, in operation and between two starts.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt};

use rusqlite::OpenFlags;

use super::super::sequence::UNKNOWN_NUMBERS;
use super::*;

/// Small limit that a test reaches soon.
const SMALL_WAL: u64 = 1 << 20;

impl Kit {
    /// Records and completes `count` decisions.
    async fn record_many(&self, count: usize) {
        for _ in 0..count {
            let (_, ending) = self.log.record(record("/a")).await.unwrap();
            ending.complete(done(200));
        }
        self.log.probe().await.unwrap();
    }

    /// Returns the reason why a decision is not recorded.
    async fn refusal(&self) -> String {
        match self.log.record(record("/b")).await {
            Err(AuditError::Write(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Reports whether the start found that committed entries were missing.
    async fn has_lost_entries(&self) -> bool {
        self.log.probe().await.unwrap();
        let mut events = self.all_events().into_iter();
        events.any(|event| event.kind == "entries_lost")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.path().with_file_name(name)
    }

    fn marker(&self) -> serde_json::Value {
        marker(self.folder.path())
    }
}

fn marker(folder: &Path) -> serde_json::Value {
    let text = fs::read(file(folder).with_file_name("record")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Opens the record in `folder` like a start does.
fn start(folder: &Path) -> Result<AuditLog, AuditError> {
    start_with(&options(folder, 16))
}

fn start_with(options: &Options) -> Result<AuditLog, AuditError> {
    AuditLog::open(options, Arc::new(Metrics::default()), &TaskTracker::new())
}

fn shortfall(folder: &Path) -> String {
    match start(folder) {
        Err(error @ AuditError::Incomplete { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Defines one test per row: a change to the files of a record of three decisions,
/// and part of the error.
macro_rules! fault {
    ($($name:ident: $act:expr => $said:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
                let kit = Kit::new(64);
                kit.record_many(3).await;
                let act: fn(&Path) = $act;
                act(kit.path().parent().unwrap());
                let Err(AuditError::Write(error)) = kit.log.probe().await else {
                    panic!("the probe found nothing");
                };
                assert!(error.to_string().contains($said), "{error}");
                assert!(kit.refusal().await.contains($said));
                // Files that no longer belong to the record must not be changed
                // when it is closed.
                let before = listing(kit.folder.path());
                let folder = kit.closed().await;
                assert_eq!(listing(folder.path()), before);
        }
    )*};
}

/// Returns the files below `folder` with their lengths, except the marker.
fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(listing(&entry.path()));
        } else if entry.file_name() != "record" && !is_made_by_reading(&entry.path()) {
            found.push((entry.path(), entry.metadata().unwrap().len()));
        }
    }
    found.sort();
    found
}

/// Reports whether SQLite made the file for a reader: an index, or an empty WAL.
fn is_made_by_reading(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with("-shm") || name.ends_with("-wal") && fs::metadata(path).unwrap().len() == 0
}

fn remove(folder: &Path, name: &str) {
    fs::remove_file(folder.join(name)).unwrap();
}

fn replace_by_copy(folder: &Path, name: &str) {
    fs::copy(folder.join(name), folder.join("x")).unwrap();
    fs::rename(folder.join("x"), folder.join(name)).unwrap();
}

fn cut(folder: &Path, name: &str) {
    let file = fs::OpenOptions::new().write(true).open(folder.join(name));
    file.unwrap().set_len(100).unwrap();
}

// Ours.
fault! {
    a_removed_database_is_noticed: |folder| remove(folder, "audit.db") => "audit.db was deleted";
    a_removed_wal_is_noticed: |folder| remove(folder, "audit.db-wal") => "audit.db-wal was deleted";
    a_removed_index_is_noticed: |folder| remove(folder, "audit.db-shm") => "audit.db-shm was deleted";
    a_database_replaced_by_its_copy_is_noticed: |folder| replace_by_copy(folder, "audit.db")
        => "audit.db was replaced";
    a_wal_replaced_by_its_copy_is_noticed: |folder| replace_by_copy(folder, "audit.db-wal")
        => "audit.db-wal was replaced";
    a_database_that_was_cut_is_noticed: |folder| cut(folder, "audit.db") => "audit.db was cut to 100";
    a_wal_that_was_cut_is_noticed: |folder| cut(folder, "audit.db-wal") => "audit.db-wal was cut to 100";
    a_folder_that_was_moved_is_noticed: |folder| fs::rename(folder, folder.with_file_name("x")).unwrap()
        => "audit.db was deleted or moved";
    a_folder_in_place_of_another_is_noticed: |folder| {
        fs::rename(folder, folder.with_file_name("x")).unwrap();
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("audit.db"), "another").unwrap();
    } => "audit.db was replaced";
}

// Ours: readers and the next start would follow the link to another record.
#[tokio::test]
async fn a_link_to_the_database_that_leads_elsewhere_is_noticed() {
    let folder = TempDir::new().unwrap();
    for name in ["one", "two"] {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let link = folder.path().join("data");
    std::os::unix::fs::symlink("one", &link).unwrap();
    let kit = Kit::reopened(folder, 64);
    kit.record_many(1).await;
    let lead_to = |name: &str| {
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(name, &link).unwrap();
    };
    lead_to("two");
    assert!(kit.refusal().await.contains("audit.db was deleted"));
    fs::write(link.join("audit.db"), "another").unwrap();
    assert!(kit.refusal().await.contains("audit.db was replaced"));
    lead_to("one");
    kit.record_many(1).await;
}

// Ours: "database is locked" does not help the operator.
#[tokio::test]
async fn a_lock_held_by_another_program_is_named_in_the_error() {
    let kit = Kit::new(64);
    let other = Connection::open(kit.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let said = kit.refusal().await;
    assert!(said.contains("another program has locked"), "{said}");
    drop(other);
    kit.record_many(1).await;
}

// Ours: without its marker, it is unknown whether the record is complete.
#[tokio::test]
async fn an_invalid_marker_prevents_the_record_from_being_opened() {
    let kit = Kit::new(64);
    kit.record_many(1).await;
    let folder = kit.closed().await;
    let path = file(folder.path()).with_file_name("record");
    let is_refused = || {
        let Err(AuditError::Marker(named)) = start(folder.path()) else {
            panic!("it was opened");
        };
        assert_eq!(
            named,
            path.parent()
                .unwrap()
                .canonicalize()
                .unwrap()
                .join("record")
        );
    };
    for text in ["", "{", "[]", "{\"record\": 1}"] {
        fs::write(&path, text).unwrap();
        is_refused();
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    is_refused();
    fs::remove_dir(&path).unwrap();
    let status = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(status.unwrap().success());
    is_refused();
    fs::remove_file(&path).unwrap();
    start(folder.path()).unwrap();
}

#[tokio::test]
async fn a_record_continues_when_its_files_are_back() {
    let kit = Kit::new(64);
    kit.record_many(3).await;
    let folder = kit.path().parent().unwrap().to_owned();
    let away = folder.with_file_name("x");
    let (_, ending) = kit.log.record(record("/open")).await.unwrap();
    fs::rename(&folder, &away).unwrap();
    kit.refusal().await;
    // The exchange ends in the meantime, and its ending is written later.
    ending.complete(done(200));
    kit.refusal().await;
    fs::rename(&away, &folder).unwrap();
    kit.record_many(2).await;
    let rows = kit.rows();
    assert_eq!(rows.len(), 6);
    assert_eq!(verify(&kit).0.missing, 0);
    assert!(rows.iter().all(|row| row.status == Some(200)));
}

// Checkpoints by another process are not faults, whether or not they empty the WAL.
#[tokio::test]
async fn a_checkpoint_by_another_process_is_not_a_fault() {
    let kit = Kit::new(64);
    for mode in ["PASSIVE", "FULL", "RESTART", "TRUNCATE", "TRUNCATE"] {
        kit.record_many(20).await;
        let other = Connection::open(kit.path()).unwrap();
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        let busy: i64 = other.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(busy, 0, "{mode}");
        kit.record_many(20).await;
    }
    assert_eq!(kit.rows().len(), 200);
    let kit = Kit::reopened(kit.closed().await, 16);
    assert_eq!(verify(&kit).0.missing, 0);
}

/// Defines one test per row: a change to the files of a record of three decisions
/// after its proxy has stopped, and part of the error of the next start.
macro_rules! loss {
    ($($name:ident: $act:expr => $said:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let kit = Kit::new(64);
            kit.record_many(3).await;
            let folder = kit.closed().await;
            let data = file(folder.path());
            let act: fn(&Path) = $act;
            act(data.parent().unwrap());
            let before = listing(folder.path());
            let said = shortfall(folder.path());
            assert!(said.contains("had at least 6 entries"), "{said}");
            assert!(said.contains($said), "{said}");
            assert!(said.contains("--new-record"), "{said}");
            assert_eq!(listing(folder.path()), before, "evidence was changed");
            begin_anew(folder).await;
        }
    )*};
}

/// Asserts that a new record begins in `folder` with an event, and that the remains
/// of the previous one are left untouched.
async fn begin_anew(folder: TempDir) {
    let mut options = options(folder.path(), 16);
    options.new_record = true;
    let left = fs::read(&options.path).unwrap_or_default();
    let kit = Kit::with(folder, &options);
    kit.record_many(2).await;
    let (verification, found) = verify(&kit);
    assert_eq!((verification.decided, found), (2, Vec::new()));
    let events = kit.reader().events(&EventFilter::default(), 0).unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].entries_before(), Some(6));
    let aside = listing(kit.folder.path()).into_iter().find(|(path, _)| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("audit.db.before-") && name.ends_with('Z')
    });
    assert_eq!(
        aside
            .map(|(path, _)| fs::read(path).unwrap())
            .unwrap_or_default(),
        left
    );
    // The next start needs no option, and with the option does not begin another
    // record.
    let folder = kit.closed().await;
    let id = marker(folder.path())["record"].clone();
    let kit = Kit::with(folder, &options);
    assert_eq!((kit.rows().len(), &kit.marker()["record"]), (2, &id));
}

// Ours.
loss! {
    a_start_without_the_database_says_what_is_missing: |folder| remove(folder, "audit.db")
        => "there is no audit.db";
    a_start_with_an_emptied_database_says_what_is_missing: |folder| fs::write(folder.join("audit.db"), "").unwrap()
        => "there is no audit.db";
    a_start_with_a_cut_database_says_that_it_is_damaged: |folder| {
        fs::OpenOptions::new().write(true).open(folder.join("audit.db")).unwrap().set_len(20_000).unwrap();
    } => "it is damaged";
    a_start_with_another_file_says_that_it_is_damaged: |folder| {
        fs::write(folder.join("audit.db"), [b'x'; 8192]).unwrap();
    } => "it is damaged";
    a_start_with_fewer_decisions_says_so: |folder| {
        let sql = "DELETE FROM decision WHERE seq = 5; UPDATE sequence SET last = 4;";
        Connection::open(folder.join("audit.db")).unwrap().execute_batch(sql).unwrap();
    } => "it ends at 4";
    a_start_with_changed_numbers_says_so: |folder| {
        let sql = "UPDATE sequence SET digest = x'00'";
        Connection::open(folder.join("audit.db")).unwrap().execute_batch(sql).unwrap();
    } => "its highest number is not as it was written";
    a_start_with_a_gap_says_so: |folder| {
        let sql = "DELETE FROM decision WHERE seq = 3; DELETE FROM ending WHERE decision = 3;";
        Connection::open(folder.join("audit.db")).unwrap().execute_batch(sql).unwrap();
    } => "entries 3 to 4 are gone";
    a_start_with_decisions_that_lack_their_evidence_says_so: |folder| {
        let sql = "DELETE FROM client";
        Connection::open(folder.join("audit.db")).unwrap().execute_batch(sql).unwrap();
    } => "evidence of entry 1 is gone";
    a_start_with_another_record_says_so: |folder| {
        let sql = "UPDATE record SET id = 'other'";
        Connection::open(folder.join("audit.db")).unwrap().execute_batch(sql).unwrap();
    } => "it is another record (other)";
    a_start_with_a_record_that_has_lost_its_id_says_so: |folder| {
        Connection::open(folder.join("audit.db")).unwrap().execute_batch("DELETE FROM record").unwrap();
    } => "it is another record, without an id";
}

// Ours: the number in an altered row could be arbitrarily high.
#[tokio::test]
async fn without_a_marker_altered_numbers_are_not_continued() {
    let kit = Kit::new(64);
    kit.record_many(2).await;
    let folder = kit.closed().await;
    fs::remove_file(file(folder.path()).with_file_name("record")).unwrap();
    let sql = format!("UPDATE sequence SET last = {}", i64::MAX);
    let database = Connection::open(file(folder.path())).unwrap();
    assert_eq!(database.execute(&sql, []).unwrap(), 1);
    drop(database);
    let kit = Kit::reopened(folder, 64);
    kit.record_many(1).await;
    let kit = Kit::reopened(kit.closed().await, 64);
    let last = u64::try_from(UNKNOWN_NUMBERS).unwrap();
    let mut numbers: Vec<u64> = kit.rows().iter().map(|row| row.seq).collect();
    numbers.sort_unstable();
    assert_eq!(numbers.len(), 3);
    assert!(last < numbers[2] && numbers[2] < 2 * last, "{numbers:?}");
}

#[tokio::test]
async fn a_second_database_in_the_folder_is_refused() {
    let kit = Kit::new(16);
    kit.record_many(1).await;
    let folder = kit.closed().await;
    let mut options = options(folder.path(), 16);
    options.path.set_file_name("other.db");
    let said = start_with(&options).unwrap_err().to_string();
    assert!(said.contains("audit.db had at least 2 entries"), "{said}");
    assert!(said.contains("there is no other.db"), "{said}");
}

#[tokio::test]
async fn a_database_that_was_renamed_or_compacted_is_the_same_record() {
    let kit = Kit::new(16);
    kit.record_many(600).await;
    kit.sql("DELETE FROM decision WHERE seq < 500");
    let folder = kit.closed().await;
    let before = marker(folder.path());
    let (path, other) = (
        file(folder.path()),
        file(folder.path()).with_file_name("other.db"),
    );
    Connection::open(&path)
        .unwrap()
        .execute_batch("VACUUM")
        .unwrap();
    assert!(fs::metadata(&path).unwrap().len() < before["bytes"].as_u64().unwrap());
    fs::rename(&path, &other).unwrap();
    let mut options = options(folder.path(), 16);
    options.path = other;
    let kit = Kit::with(folder, &options);
    assert_eq!(kit.marker()["record"], before["record"]);
    assert_eq!(kit.marker()["last"], 1200);
    assert_eq!(kit.marker()["database"], "other.db");
}

// Acknowledged entries that are missing are noticed, although they were never in
// the database itself.
#[tokio::test]
async fn decisions_that_were_only_in_a_removed_wal_are_missed_at_the_next_start() {
    let kit = Kit::new(16);
    kit.record_many(5).await;
    assert_eq!(kit.marker()["last"], 0);
    remove(kit.path().parent().unwrap(), "audit.db-wal");
    kit.refusal().await;
    assert_eq!(kit.marker()["last"], 10);
    let folder = kit.closed().await;
    let said = shortfall(folder.path());
    assert!(said.contains("at least 10 entries"), "{said}");
    assert!(said.contains("it ends at 0"), "{said}");
}

// An old copy of the database beside a newer WAL.
#[tokio::test]
async fn a_copy_from_before_a_checkpoint_is_found_to_be_damaged() {
    let kit = Kit::new(64);
    kit.record_many(3).await;
    let copy = fs::read(kit.path()).unwrap();
    while kit.marker()["last"] == 0 {
        kit.record_many(100).await;
    }
    kit.record_many(10).await;
    remove(kit.path().parent().unwrap(), "audit.db");
    fs::write(kit.path(), copy).unwrap();
    kit.refusal().await;
    let said = shortfall(kit.closed().await.path());
    assert!(said.contains("it is damaged"), "{said}");
}

// An old copy of the database, with so few rows after the checkpoint that every
// page is sound.
#[tokio::test]
async fn entries_between_a_copy_and_a_newer_wal_are_missed_by_verify_and_by_the_start() {
    let kit = Kit::new(64);
    kit.record_many(3).await;
    let copy = fs::read(kit.path()).unwrap();
    while kit.marker()["last"] == 0 {
        kit.record_many(1).await;
    }
    kit.record_many(1).await;
    let folder = crash(&kit, &["audit.db-wal", "record"]);
    fs::write(file(folder.path()), copy).unwrap();
    let reader = AuditReader::open(&file(folder.path())).unwrap();
    let mut found = Vec::new();
    let report = |finding| found.push(finding);
    // A leaf page that a table got after the copy is beyond the end of the copy.
    match verify::verify(&reader, &DecisionFilter::default(), report) {
        Ok(sums) => {
            assert_ne!(sums.missing, 0);
            assert!(
                found.iter().any(|finding| finding.contains("no such row")),
                "{found:?}"
            );
        }
        Err(AuditError::Read(error)) => assert!(error.to_string().contains("malformed")),
        Err(error) => panic!("{error}"),
    }
    drop(reader);
    let said = shortfall(folder.path());
    assert!(said.contains("it is damaged"), "{said}");
}

// Ours: a number that may belong to the ending of an early decision is not taken
// for missing.
#[tokio::test]
async fn a_start_finds_the_endings_of_exchanges_that_outlast_many_others() {
    let kit = Kit::new(64);
    let (_, ending) = kit.log.record(record("/long")).await.unwrap();
    kit.record_many(400).await;
    ending.complete(done(200));
    kit.log.probe().await.unwrap();
    let kit = Kit::reopened(kit.closed().await, 64);
    assert_eq!(kit.marker()["last"], 802);
    // The same number is reported once its ending is really missing.
    kit.sql("DELETE FROM ending WHERE decision = 1");
    let said = shortfall(kit.closed().await.path());
    assert!(said.contains("entries 802 to 802 are gone"), "{said}");
}

/// Copies the files of an open record, as a crash would leave them.
pub(super) fn crash(kit: &Kit, names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path());
    fs::create_dir(data.parent().unwrap()).unwrap();
    for name in names {
        fs::copy(kit.beside(name), data.with_file_name(name)).unwrap();
    }
    folder
}

// A crash may come between a checkpoint and its marker, or before both.
#[tokio::test]
async fn the_marker_is_never_ahead_of_the_database() {
    let kit = Kit::new(64);
    let mut checkpoints = 0;
    while checkpoints < 3 {
        let before = kit.marker();
        kit.record_many(200).await;
        let now = kit.marker();
        if before["last"] == now["last"] {
            continue;
        }
        checkpoints += 1;
        // Without the WAL: everything that the marker states is in the database
        // itself.
        Kit::reopened(crash(&kit, &["audit.db", "record"]), 16);
        // With the previous marker: a crash between checkpoint and marker.
        let folder = crash(&kit, &["audit.db", "audit.db-wal"]);
        fs::write(
            file(folder.path()).with_file_name("record"),
            before.to_string(),
        )
        .unwrap();
        let late = Kit::reopened(folder, 16);
        assert_eq!(
            late.marker()["last"].as_u64(),
            Some(2 * late.rows().len() as u64)
        );
        assert_eq!(late.marker()["record"], now["record"]);
    }
}

/// Changes one byte in the frame `number`, from 0, of the WAL in `folder`.
fn flip_in_log(folder: &Path, number: u64) {
    let path = file(folder).with_file_name("audit.db-wal");
    let log = fs::OpenOptions::new().read(true).write(true).open(path);
    let (log, mut byte) = (log.unwrap(), [0]);
    let at = 32 + number * (24 + 4096) + 100;
    log.read_exact_at(&mut byte, at).unwrap();
    log.write_all_at(&[!byte[0]], at).unwrap();
}

// Ours: SQLite stops at a damaged frame without an error.
#[tokio::test]
async fn a_damaged_frame_after_a_crash_is_reported_with_the_entries_it_hides() {
    let kit = Kit::new(64);
    for _ in 0..20 {
        kit.record_many(1).await;
    }
    let whole = crash(&kit, &["audit.db", "audit.db-wal", "record"]);
    assert!(!Kit::reopened(whole, 16).has_lost_entries().await);
    for names in [
        &["audit.db", "audit.db-wal", "record"][..],
        // As after a power failure: the part of the marker that was not synced is
        // lost.
        &["audit.db", "audit.db-wal"],
    ] {
        let folder = crash(&kit, names);
        flip_in_log(folder.path(), 40);
        if names.contains(&"record") {
            let reader = AuditReader::open(&file(folder.path())).unwrap();
            let open = DecisionFilter::default();
            let missing = verify::verify(&reader, &open, drop).unwrap().missing;
            assert_ne!(missing, 0, "verify alone finds it before the start");
            let partial = reader.check_complete();
            assert!(matches!(partial, Err(AuditError::Partial { .. })));
            let copy = folder.path().join("copy.db");
            let backup = backup::back_up(&file(folder.path()), &copy);
            assert!(matches!(backup, Err(AuditError::Partial { .. })) && !copy.exists());
        }
        let again = Kit::reopened(folder, 16);
        assert!(again.has_lost_entries().await, "{names:?}");
        let (sums, found) = verify(&again);
        // Each of the 20 commits had two entries, and some are left. An unreadable
        // commit is assumed to have the maximum size.
        assert!((1..40).contains(&sums.lost), "{sums:?}");
        assert!(sums.lost < sums.skipped, "{sums:?}");
        assert_eq!(found, Vec::<String>::new());
        // No number is issued twice.
        let (receipt, _ending) = again.log.record(record("/next")).await.unwrap();
        assert!(40 < receipt.seq(), "{receipt:?}");
    }
}

#[tokio::test]
async fn a_record_starts_even_after_a_crash_in_its_first_moments() {
    let kit = Kit::new(64);
    // Before the marker was written, and while it was being written.
    for (marker, text) in [(None, ""), (Some("record.new"), "{\"rec")] {
        let folder = crash(&kit, &["audit.db", "audit.db-wal"]);
        if let Some(name) = marker {
            fs::write(file(folder.path()).with_file_name(name), text).unwrap();
        }
        let again = Kit::reopened(folder, 16);
        assert_eq!(again.marker(), kit.marker());
    }
    // Before the database was written.
    let folder = crash(&kit, &[]);
    fs::write(file(folder.path()), "").unwrap();
    Kit::reopened(folder, 16).record_many(1).await;
}

// A crash after the new database was created, and before its marker was.
#[tokio::test]
async fn a_crash_while_a_record_begins_anew_leaves_the_old_marker() {
    let (old, new) = (Kit::new(16), Kit::new(16));
    old.record_many(3).await;
    let old = old.closed().await;
    let folder = crash(&new, &["audit.db", "audit.db-wal"]);
    let name = file(folder.path()).with_file_name("record");
    fs::copy(file(old.path()).with_file_name("record"), name).unwrap();
    assert!(shortfall(folder.path()).contains("another record"));
    begin_anew(folder).await;
}

#[tokio::test]
async fn verify_finds_a_changed_id_and_missing_decisions_that_the_marker_knows() {
    let kit = Kit::new(16);
    kit.record_many(3).await;
    let folder = kit.closed().await;
    let found = |sql: &str| {
        Connection::open(file(folder.path()))
            .unwrap()
            .execute_batch(sql)
            .unwrap();
        let reader = AuditReader::open(&file(folder.path())).unwrap();
        let mut found = Vec::new();
        let report = |finding| found.push(finding);
        verify::verify(&reader, &DecisionFilter::default(), report).unwrap();
        found
    };
    let gone = "DELETE FROM decision WHERE seq = 5; DELETE FROM ending WHERE decision = 5;
                UPDATE sequence SET last = 4;";
    let number = "the record's highest number is not as it was written";
    assert_eq!(found(gone), [number, "5 to 6: no such rows"]);
    let changed = "UPDATE record SET begun_us = 0";
    assert_eq!(
        found(changed)[0],
        "the record's id is not as it was written"
    );
    // Without the id, rows cannot be distinguished from those of another record.
    let found = found("DELETE FROM record");
    assert_eq!(found[0], "the record's id is not as it was written");
    assert!(found[2].contains("is that of another record"), "{found:?}");
    assert!(found[3].starts_with("1: the row is not"), "{found:?}");
}

/// Returns a kit whose WAL is limited to [`SMALL_WAL`] bytes.
fn small_wal() -> Kit {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), 64);
    options.wal_max = SMALL_WAL;
    Kit::with(folder, &options)
}

/// Returns a reader that does not end its transaction.
fn reader_that_stays(path: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reader = Connection::open_with_flags(path, flags).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let count = "SELECT count(*) FROM decision";
    reader
        .query_row(count, [], |row| row.get::<_, i64>(0))
        .unwrap();
    reader
}

#[tokio::test]
async fn a_long_read_stops_the_record_at_the_limit_until_it_ends() {
    let kit = small_wal();
    kit.record_many(1).await;
    let reader = reader_that_stays(&kit.path());
    let mut recorded = 1;
    let refusal = loop {
        match kit.log.record(record("/a")).await {
            Ok((_, ending)) => ending.complete(done(200)),
            Err(AuditError::Write(error)) => break error,
            Err(error) => panic!("{error}"),
        }
        recorded += 1;
        assert!(recorded < 10_000, "no bound");
    };
    assert!(
        matches!(&*refusal, WriteError::Wal(WalFull::Reader { .. })),
        "{refusal}"
    );
    let wal = fs::metadata(kit.beside("audit.db-wal")).unwrap().len();
    assert!(wal < SMALL_WAL + 100_000, "{wal}");
    assert!(SMALL_WAL as i64 <= kit.metrics.audit_wal_bytes.get());
    assert!(matches!(kit.log.probe().await, Err(AuditError::Write(_))));
    drop(reader);
    // Immediately, and without a restart.
    kit.record_many(1).await;
    let wal = kit.metrics.audit_wal_bytes.get();
    assert!(wal < SMALL_WAL as i64 / 4, "{wal}");
    let rows = kit.rows();
    assert_eq!(rows.len(), recorded + 1);
    assert!(rows.iter().all(|row| row.status == Some(200)));
}

#[tokio::test]
async fn short_reads_do_not_stop_the_record() {
    let kit = small_wal();
    for _ in 0..30 {
        let reader = reader_that_stays(&kit.path());
        // Few enough that the limit is not reached even if each entry has its own
        // commit, of some five pages.
        kit.record_many(10).await;
        drop(reader);
        kit.record_many(30).await;
    }
    assert_eq!(kit.rows().len(), 1200);
}

#[tokio::test]
async fn the_wal_is_restarted_long_before_its_limit() {
    let kit = small_wal();
    kit.record_many(500).await;
    let wal = fs::metadata(kit.beside("audit.db-wal")).unwrap().len();
    assert!(wal < SMALL_WAL / 2, "{wal}");
    assert_ne!(kit.marker()["last"], 0);
}

/// Defines one test per row: permissions of a path, and whether the record is
/// opened.
macro_rules! permissions {
    ($($name:ident: $path:literal $mode:literal => $opens:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let kit = Kit::new(16);
            let path = kit.path().parent().unwrap().join($path);
            let folder = kit.closed().await;
            fs::set_permissions(&path, fs::Permissions::from_mode($mode)).unwrap();
            match start(folder.path()) {
                Ok(_) => assert!($opens),
                Err(AuditError::Writable { path: named, mode }) => {
                    assert!(!$opens);
                    assert_eq!((named, mode), (path.canonicalize().unwrap(), $mode & 0o777));
                }
                Err(error) => panic!("{error}"),
            }
        }
    )*};
}

// Ours.
permissions! {
    a_database_that_others_may_write_is_refused: "audit.db" 0o602 => false;
    a_database_that_the_group_may_write_is_refused: "audit.db" 0o660 => false;
    a_database_that_others_may_read_is_opened: "audit.db" 0o644 => true;
    a_folder_that_others_may_write_is_refused: "." 0o777 => false;
    a_folder_that_the_group_may_write_is_refused: "." 0o770 => false;
    a_folder_that_others_may_write_is_refused_though_it_is_sticky: "." 0o1777 => false;
    a_folder_that_others_may_read_is_opened: "." 0o755 => true;
    a_marker_that_others_may_write_is_refused: "record" 0o622 => false;
}

// Ours: endings are retried even if no decision can be sent, because they hold its
// places.
#[tokio::test]
async fn a_full_queue_is_written_when_the_disk_works_again() {
    let kit = Kit::new(2);
    kit.sql(BREAK_ENDINGS);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    drop(ending);
    while kit.metrics.audit_failures.get() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = kit.log.record(record("/b")).await;
    assert!(matches!(refused, Err(AuditError::Full)));
    kit.sql("DROP TRIGGER broken_ending");
    timeout(Duration::from_secs(5), async {
        while kit.rows()[0].error.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    drop(kit.log.record(record("/b")).await.unwrap());
}

/// Makes another program return all free pages; the shorter database is then in the
/// WAL.
fn give_pages_back(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let no_checkpoint = "PRAGMA wal_autocheckpoint = 0";
    connection.execute_batch(no_checkpoint).unwrap();
    let mut vacuum = connection.prepare("PRAGMA incremental_vacuum").unwrap();
    let mut pages = vacuum.query([]).unwrap();
    while pages.next().unwrap().is_some() {}
}

// Ours: returned pages shorten the file, which must not count as truncation.
#[tokio::test]
async fn a_checkpoint_that_makes_room_may_shorten_the_database() {
    let kit = small_wal();
    kit.record_many(1).await;
    // Free pages, more than the record would keep.
    kit.sql(
        "PRAGMA wal_autocheckpoint = 0; CREATE TABLE large (bytes BLOB);
         INSERT INTO large VALUES (zeroblob(8000000)); DROP TABLE large;
         PRAGMA wal_checkpoint(TRUNCATE);",
    );
    kit.record_many(1).await;
    let reader = reader_that_stays(&kit.path());
    give_pages_back(&kit.path());
    while kit.log.record(record("/a")).await.is_ok() {}
    let before = fs::metadata(kit.path()).unwrap().len();
    drop(reader);
    kit.record_many(2).await;
    let after = fs::metadata(kit.path()).unwrap().len();
    assert!(after + 4_000_000 < before, "{before} {after}");
}
