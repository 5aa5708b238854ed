//! One sequence of numbers for decisions, endings and events, and what a crash
//! makes of it.

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::advance;

use super::events::{entered, left};
use super::faults::crash;
use super::*;
use crate::audit::error::WriteError;
use crate::audit::store::AuditStore;
use crate::audit::transaction::EndingNumbers;

/// Files of a record that is open.
pub(super) const FILES: [&str; 3] = ["audit.db", "audit.db-wal", "record"];

/// Makes no event be written.
pub(super) const BREAK_EVENTS: &str = "CREATE TRIGGER broken_event BEFORE INSERT ON event
    BEGIN SELECT RAISE(ABORT, 'disk full'); END;";

impl Kit {
    /// Records a decision, whose exchange ends at once. Returns its number.
    async fn record_one(&self, path: &str) -> u64 {
        let (receipt, ending) = self.log.record(record(path)).await.unwrap();
        ending.complete(done(200));
        receipt.seq()
    }

    /// Holds that each number has an entry but for `lost` ones.
    fn assert_gapless(&self, lost: u64) {
        let (sums, mut found) = verify(self);
        // Of these tests: it stands for a disk that fails.
        found.retain(|finding| !finding.starts_with("trigger broken_event"));
        assert_eq!(found, Vec::<String>::new());
        assert_eq!((sums.missing, sums.lost), (0, lost));
    }
}

#[tokio::test]
async fn decisions_endings_and_events_share_one_sequence() {
    for durability in [Durability::Commit, Durability::Queue] {
        let kit = Kit::new(durability, 64);
        assert_eq!(kit.record_one("/a").await, 1);
        kit.note(entered("o.test", 90)).await;
        // Two exchanges at once, the first ends last.
        let (first, first_ending) = kit.log.record(record("/b")).await.unwrap();
        let (second, second_ending) = kit.log.record(record("/c")).await.unwrap();
        second_ending.complete(done(200));
        kit.note(left("o.test", 90)).await;
        first_ending.complete(done(200));
        assert_eq!((first.seq(), second.seq()), (4, 5));
        assert_eq!(kit.record_one("/d").await, 9);
        kit.log.probe().await.unwrap();
        let events = kit.all_events();
        assert!(events.iter().map(|event| event.seq).eq([7, 3]));
        assert_eq!(sequence(&kit).last, 10);
        kit.assert_gapless(0);
    }
}

// Ours: no number told to a client is given twice.
#[tokio::test]
async fn numbers_that_a_crash_took_are_lost_and_not_given_again() {
    let kit = Kit::new(Durability::Queue, 64);
    assert_eq!(kit.record_one("/a").await, 1);
    kit.log.probe().await.unwrap();
    let lock = Connection::open(kit.path()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (told, _ending) = kit.log.record(record("/b")).await.unwrap();
    assert_eq!(told.seq(), 3);
    let reserved = sequence(&kit).reserved;
    let again = Kit::reopened(crash(&kit, &FILES), Durability::Queue, 64);
    assert_eq!(again.rows().len(), 1);
    again.assert_gapless(u64::try_from(reserved).unwrap() - 2);
    let next = again.record_one("/c").await;
    assert_eq!(next, u64::try_from(reserved).unwrap() + 1);
    again.log.probe().await.unwrap();
    // A second crash, in which nothing was told.
    let third = Kit::reopened(crash(&again, &FILES), Durability::Commit, 64);
    assert!(next + 1 < third.record_one("/d").await);
    third.log.probe().await.unwrap();
    let (sums, found) = verify(&third);
    assert_eq!((sums.decided, sums.missing, found), (3, 0, Vec::new()));
}

// Ours: no number is given twice, though its commit was not acknowledged.
#[tokio::test]
async fn numbers_written_to_files_that_came_back_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), Durability::Queue, 64);
    let mut store = AuditStore::open(&options, &Metrics::default()).unwrap();
    let (path, away) = (file(folder.path()), folder.path().join("away"));
    let record = record("/a");
    let written = store.write(|transaction| {
        transaction.write_decision(1, &record)?;
        let numbers = EndingNumbers {
            decision: 1,
            seq: 2,
        };
        transaction.write_ending(numbers, &done(200))?;
        std::fs::rename(&path, &away).unwrap();
        Ok(())
    });
    assert!(matches!(written, Err(WriteError::FilesAfterCommit(_))));
    std::fs::rename(&away, &path).unwrap();
    store.release_numbers();
    store.close();
    let kit = Kit::reopened(folder, Durability::Queue, 64);
    assert_eq!(kit.record_one("/b").await, 3);
    kit.log.probe().await.unwrap();
    kit.assert_gapless(0);
}

// Ours: who waits for no commit waits for no disk, and a power failure takes a
// second at most, never a number.
#[tokio::test(start_paused = true)]
async fn commits_that_nobody_waits_for_are_synced_once_a_second() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let open = |folder: &TempDir, durability| {
        let options = options(folder.path(), durability, 64);
        AuditStore::open(&options, &Metrics::default()).unwrap()
    };
    let write = |store: &mut AuditStore, seq| {
        let record = record("/a");
        let written = store.write(|transaction| transaction.write_decision(seq, &record));
        written.unwrap();
        store.is_unsynced()
    };
    let mut store = open(&folders[0], Durability::Queue);
    assert!(write(&mut store, 1));
    advance(Duration::from_millis(999)).await;
    assert!(!store.is_sync_due() && write(&mut store, 2));
    advance(Duration::from_millis(1)).await;
    assert!(store.is_sync_due() && !write(&mut store, 3));
    assert!(write(&mut store, 40_000));
    // The next one reserves numbers, which may be told when it returns.
    let reserved = store.sequence().reserved;
    assert!(!write(&mut store, 40_001));
    assert!(reserved < store.sequence().reserved);
    store.close();
    assert!(!write(&mut open(&folders[1], Durability::Commit), 1));
}

#[tokio::test]
async fn a_crash_without_reserved_numbers_loses_none() {
    let kit = Kit::new(Durability::Commit, 64);
    kit.record_one("/a").await;
    kit.log.probe().await.unwrap();
    let again = Kit::reopened(crash(&kit, &FILES), Durability::Commit, 64);
    assert_eq!(again.record_one("/b").await, 3);
    again.log.probe().await.unwrap();
    again.assert_gapless(0);
}

#[tokio::test]
async fn a_clean_end_gives_reserved_numbers_back() {
    let mut kit = Kit::new(Durability::Queue, 64);
    for seq in [1, 3, 5] {
        assert_eq!(kit.record_one("/a").await, seq);
        kit.log.probe().await.unwrap();
        assert!(60_000 < sequence(&kit).reserved);
        kit = Kit::reopened(kit.closed().await, Durability::Queue, 64);
    }
    let folder = kit.closed().await;
    let connection = Connection::open(file(folder.path())).unwrap();
    let sequence = Sequence::read(&connection).unwrap().unwrap();
    assert_eq!((sequence.last, sequence.reserved), (6, 6));
    Kit::reopened(folder, Durability::Commit, 64).assert_gapless(0);
}

// Ours: the reservation is extended in time.
#[tokio::test]
async fn more_numbers_than_a_block_are_given() {
    let kit = Kit::new(Durability::Queue, 4096);
    let decision = decision("/a");
    let mut last = 0;
    for _ in 0..34_000 {
        let (receipt, ending) = kit.log.record(record_of(&decision)).await.unwrap();
        drop(ending);
        assert_eq!(receipt.seq(), last + 1);
        last = receipt.seq() + 1;
    }
    assert!(65_536 < last);
    kit.log.probe().await.unwrap();
    assert!(u64::try_from(sequence(&kit).reserved).unwrap() > last);
    kit.assert_gapless(0);
}

// Ours: what no decision rests on keeps none out, and is told apart from a row
// that somebody took away.
#[tokio::test]
async fn the_number_of_an_event_that_is_given_up_is_noted_as_lost() {
    let kit = Kit::new(Durability::Queue, 64);
    kit.sql(BREAK_EVENTS);
    for _ in 0..3 {
        kit.log.record_event(entered("o.test", 90));
    }
    assert_eq!(kit.record_one("/a").await, 4);
    kit.log.probe().await.unwrap();
    kit.assert_gapless(3);
    // Decisions fail as well: the numbers are noted when something can be written.
    kit.sql(BREAK);
    kit.log.record_event(entered("o.test", 90));
    assert!(kit.log.probe().await.is_err());
    assert!(kit.log.record(record("/b")).await.is_err());
    kit.sql("DROP TRIGGER broken; DROP TRIGGER broken_event");
    assert_eq!(kit.record_one("/c").await, 7);
    kit.log.probe().await.unwrap();
    kit.assert_gapless(4);
}

#[tokio::test]
async fn an_event_that_repeats_another_uses_up_no_entry() {
    for (durability, lost) in [(Durability::Commit, 0), (Durability::Queue, 1)] {
        let kit = Kit::new(durability, 64);
        kit.note(left("o.test", 90)).await;
        kit.note(left("o.test", 95)).await;
        kit.record_one("/a").await;
        kit.log.probe().await.unwrap();
        assert_eq!(kit.all_events().len(), 1);
        kit.assert_gapless(lost);
    }
}

// Ours: a dictionary row is written in the transaction that first uses it, and a
// rollback forgets it.
#[tokio::test]
async fn what_a_failed_transaction_has_written_is_written_again() {
    let kit = Kit::new(Durability::Commit, 64);
    kit.record_one("/a").await;
    kit.sql(BREAK);
    let other = |path: &str| {
        let inquiry = Arc::new(Inquiry {
            crawler: Crawler::parse("OtherBot/1"),
            target: format!("http://p.test{path}").parse().unwrap(),
            method: "PUT".to_owned(),
        });
        let policy = Arc::new(Policy::new(Unauthorized::Refuse));
        let missing = snapshot(AccessResult::Unavailable, Some(410));
        record_of(&decide(&inquiry, &missing, &policy, now()))
    };
    kit.log.record(other("/a")).await.unwrap_err();
    kit.sql("DROP TRIGGER broken");
    let (receipt, ending) = kit.log.record(other("/b")).await.unwrap();
    ending.complete(done(200));
    assert_eq!(receipt.seq(), 3);
    kit.log.probe().await.unwrap();
    kit.assert_gapless(0);
    let row = &kit.rows()[0];
    assert_eq!((row.url.as_str(), &*row.method), ("http://p.test/b", "PUT"));
    assert_eq!(row.crawler.candidates, ["OtherBot"]);
}

// Ours: for people with a shell of SQLite.
#[tokio::test]
async fn the_view_joins_what_a_row_refers_to() {
    let kit = one_of_each().await;
    let connection = Connection::open(kit.path()).unwrap();
    let sql = "SELECT url || ' ' || user_agent || ' ' || verdict || ' ' || method || ' ' ||
                 client || ' ' || status || ' ' || directives || ' ' || host
               FROM audit_log WHERE seq = 3";
    let text: String = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(
        text,
        "http://o.test/private/x FooBot/2.1 disallow GET 127.0.0.1 200 \
         foobot=(noindex;src=x);state=complete o.test"
    );
}

// Ours: what a proxy writes meanwhile is not taken for missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_verified_while_it_is_written() {
    for durability in [Durability::Commit, Durability::Queue] {
        let kit = Kit::new(durability, 64);
        let log = Arc::clone(&kit.log);
        let writing = tokio::spawn(async move {
            for number in 0..600 {
                let (_, ending) = log.record(record("/a")).await.unwrap();
                log.record_event(entered("o.test", 90 + number));
                let (_, second) = log.record(record("/private/x")).await.unwrap();
                drop(ending);
                drop(second);
            }
        });
        while !writing.is_finished() {
            kit.assert_gapless(0);
        }
        writing.await.unwrap();
        kit.log.probe().await.unwrap();
        kit.assert_gapless(0);
    }
}

// Ours: an ending of decision 0 could be written once, and then no other, nor a probe.
#[test]
fn a_decision_for_which_no_number_is_left_has_no_ending() {
    let numbers = NumberRange {
        next: 1,
        reserved: 0,
        block: 64,
    };
    let (queue, receiver) = EntryQueue::new(QueueMode::Queue(numbers), 8, Gauge::default());
    let slot = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let ending = RecordEnding::new(queue.clone(), slot());
    let decision = WriterTask::Record {
        record: record("/a"),
        seq: ending.seq.clone(),
        ack: None,
    };
    let sent = queue.send(decision, slot());
    assert!(matches!(sent, Err(AuditError::Full)), "{sent:?}");
    drop(ending);
    let mut batch = Vec::new();
    assert!(receiver.receive(&mut batch, None));
    assert!(batch.iter().all(|entry| !entry.task.has_row()));
}
