//! One sequence of numbers for decisions, endings and events, and its state after a
//! crash.

use super::events::{entered, left};
use super::faults::crash;
use super::*;
use crate::error::WriteError;
use crate::store::AuditStore;
use crate::transaction::EndingNumbers;

/// Files of an open record.
pub(super) const FILES: [&str; 3] = ["audit.db", "audit.db-wal", "record"];

/// Makes every insert of an event fail.
pub(super) const BREAK_EVENTS: &str = "CREATE TRIGGER broken_event BEFORE INSERT ON event
    BEGIN SELECT RAISE(ABORT, 'disk full'); END;";

impl Kit {
    /// Records a decision whose exchange ends immediately. Returns its number.
    async fn record_one(&self, path: &str) -> u64 {
        let (receipt, ending) = self.log.record(record(path)).await.unwrap();
        ending.complete(done(200));
        receipt.seq()
    }

    /// Asserts that each number has an entry, except `skipped` ones.
    fn assert_gapless(&self, skipped: u64) {
        let (sums, mut found) = verify(self);
        // The trigger is part of these tests: it simulates a failing disk.
        found.retain(|finding| !finding.starts_with("trigger broken_event"));
        assert_eq!(found, Vec::<String>::new());
        assert_eq!((sums.missing, sums.skipped), (0, skipped));
    }
}

#[tokio::test]
async fn decisions_endings_and_events_share_one_sequence() {
    let kit = Kit::new(64);
    assert_eq!(kit.record_one("/a").await, 1);
    kit.note(entered("o.test", 90)).await;
    // Two exchanges run at once, and the first one ends last.
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
    assert_eq!(last_of(&kit), 10);
    kit.assert_gapless(0);
}

// Ours: no number is issued twice, even if its commit was not acknowledged.
#[tokio::test]
async fn numbers_written_to_files_that_came_back_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), 64);
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
    store.close();
    let kit = Kit::reopened(folder, 64);
    assert_eq!(kit.record_one("/b").await, 3);
    kit.log.probe().await.unwrap();
    kit.assert_gapless(0);
}

// Ours: a number is issued by the commit, so a crash uses up none.
#[tokio::test]
async fn a_crash_loses_no_number() {
    let kit = Kit::new(64);
    kit.record_one("/a").await;
    kit.log.probe().await.unwrap();
    let lock = Connection::open(kit.path()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = timeout(Duration::from_millis(20), kit.log.record(record("/b")));
    assert!(waiting.await.is_err());
    let again = Kit::reopened(crash(&kit, &FILES), 64);
    assert_eq!(again.rows().len(), 1);
    assert_eq!(again.record_one("/c").await, 3);
    again.log.probe().await.unwrap();
    again.assert_gapless(0);
}

// Ours: entries that no decision rests on must not prevent one from being written,
// or leave a gap.
#[tokio::test]
async fn an_event_that_is_given_up_uses_up_no_number() {
    let kit = Kit::new(64);
    kit.sql(BREAK_EVENTS);
    for _ in 0..3 {
        kit.log.record_event(entered("o.test", 90));
    }
    assert_eq!(kit.record_one("/a").await, 1);
    kit.log.probe().await.unwrap();
    kit.assert_gapless(0);
    // Decisions fail as well.
    kit.sql(BREAK);
    kit.log.record_event(entered("o.test", 90));
    assert!(kit.log.probe().await.is_err());
    assert!(kit.log.record(record("/b")).await.is_err());
    kit.sql("DROP TRIGGER broken; DROP TRIGGER broken_event");
    assert_eq!(kit.record_one("/c").await, 3);
    kit.log.probe().await.unwrap();
    kit.assert_gapless(0);
}

#[tokio::test]
async fn an_event_that_repeats_another_uses_up_no_entry() {
    let kit = Kit::new(64);
    kit.note(left("o.test", 90)).await;
    kit.note(left("o.test", 95)).await;
    kit.record_one("/a").await;
    kit.log.probe().await.unwrap();
    assert_eq!(kit.all_events().len(), 1);
    kit.assert_gapless(0);
}

// Ours: a dictionary row is written in the transaction that first uses it, and
// forgotten after a rollback.
#[tokio::test]
async fn dictionary_rows_of_a_failed_transaction_are_written_again() {
    let kit = Kit::new(64);
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

// Ours: the view is for people who use the SQLite shell.
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

// Ours: entries that a proxy is writing are not reported as missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_verified_while_it_is_written() {
    let kit = Kit::new(64);
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
