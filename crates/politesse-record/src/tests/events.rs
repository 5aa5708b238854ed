//! Events, and back-offs that are taken over by the next process.

use jiff::SignedDuration;

use super::*;
use politesse_base::metrics::ResultLabel;
use politesse_decision::back_off::{BackOffChange, BackOffEvent, ReleaseOrder, SavedBackOff};

fn at() -> Timestamp {
    "2126-11-21T10:00:00.5Z".parse().unwrap()
}

/// Returns the event that `host` asked for less, for `seconds`.
pub(super) fn entered(host: &str, seconds: i64) -> BackOffEvent {
    BackOffEvent {
        at: at(),
        host: host.parse().unwrap(),
        change: BackOffChange::Entered,
        status: Some(429),
        until: at() + SignedDuration::from_secs(seconds),
        incidents: 3,
        release: None,
    }
}

/// Returns the event that `host` may be asked again.
pub(super) fn left(host: &str, seconds: i64) -> BackOffEvent {
    let entered = entered(host, seconds);
    BackOffEvent {
        at: entered.until,
        change: BackOffChange::Left,
        status: None,
        ..entered
    }
}

impl Kit {
    /// Records an event; it is on disk when this returns.
    pub(super) async fn note(&self, event: BackOffEvent) {
        self.log.record_event(event);
        self.log.probe().await.unwrap();
    }

    fn events(&self, filter: &EventFilter) -> Vec<EventRow> {
        self.reader().events(filter, 0).unwrap()
    }

    pub(super) fn all_events(&self) -> Vec<EventRow> {
        self.events(&EventFilter::default())
    }

    fn noted(&self, result: &'static str) -> u64 {
        let label = ResultLabel { result };
        self.metrics.audit_events.get_or_create(&label).get()
    }
}

/// Returns a log of one whole back-off, and the start of another.
async fn three() -> Kit {
    let kit = Kit::new(16);
    for event in [
        entered("o.test", 90),
        left("o.test", 90),
        entered("[::1]", 7200),
    ] {
        kit.note(event).await;
    }
    kit
}

#[tokio::test]
async fn events_are_listed_the_newest_first() {
    let kit = three().await;
    let events = kit.all_events();
    let said: Vec<_> = events
        .iter()
        .map(|event| {
            (
                event.seq,
                event.kind.as_str(),
                event.host.as_str(),
                event.status,
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            (3, "backoff_entered", "[::1]", Some(429)),
            (2, "backoff_left", "o.test", None),
            (1, "backoff_entered", "o.test", Some(429)),
        ]
    );
    assert_eq!(
        events[2].json(),
        serde_json::json!({
            "seq": 1,
            "time": "2126-11-21T10:00:00.5Z",
            "host": "o.test",
            "kind": "backoff_entered",
            "status": 429,
            "until": "2126-11-21T10:01:30.5Z",
            "incidents": 3,
        })
    );
    assert_eq!(
        kit.reader()
            .events(&EventFilter::default(), 1)
            .unwrap()
            .len(),
        1
    );
    assert_eq!((kit.noted("written"), kit.noted("lost")), (3, 0));
}

// Ours: a process that starts while a back-off is saved, for up to a day, cannot
// know that its end is already on record.
#[tokio::test]
async fn the_end_of_a_back_off_is_recorded_only_once() {
    let kit = Kit::new(16);
    for event in [
        entered("o.test", 90),
        left("o.test", 90),
        left("o.test", 95),
        left("p.test", 95),
        entered("o.test", 99),
        left("o.test", 99),
    ] {
        kit.note(event).await;
    }
    let events = kit.all_events();
    let said = events
        .iter()
        .map(|event| (event.kind.as_str(), event.host.as_str()));
    assert_eq!(
        said.collect::<Vec<_>>(),
        [
            ("backoff_left", "o.test"),
            ("backoff_entered", "o.test"),
            ("backoff_left", "p.test"),
            ("backoff_left", "o.test"),
            ("backoff_entered", "o.test"),
        ]
    );
}

#[tokio::test]
async fn a_filter_narrows_the_events() {
    let kit = three().await;
    let seqs = |filter: EventFilter| -> Vec<u64> {
        kit.events(&filter).iter().map(|event| event.seq).collect()
    };
    let later = Some(at() + SignedDuration::from_secs(90));
    let of = |host: &str| EventFilter {
        host: Some(host.to_owned()),
        ..EventFilter::default()
    };
    assert_eq!(seqs(of("O.TEST.")), [2, 1]);
    assert_eq!(seqs(of("::1")), [3]);
    assert_eq!(seqs(of("p.test")), [0; 0]);
    assert_eq!(
        seqs(EventFilter {
            from: later,
            ..EventFilter::default()
        }),
        [2]
    );
    assert_eq!(
        seqs(EventFilter {
            until: later,
            ..EventFilter::default()
        }),
        [3, 1]
    );
    assert_eq!(
        seqs(EventFilter {
            until: later,
            ..of("o.test")
        }),
        [1]
    );
}

// Ours: a restart does not end a back-off.
#[tokio::test]
async fn a_long_back_off_is_known_to_the_next_process() {
    let kit = three().await;
    let kit = Kit::reopened(kit.closed().await, 16);
    let mut kept = kit.log.saved_back_offs();
    kept.sort_by_key(|kept| kept.until);
    let of = |host: &str, seconds: i64| SavedBackOff {
        host: host.parse().unwrap(),
        until: at() + SignedDuration::from_secs(seconds),
        incidents: 3,
        quiet_since: at() + SignedDuration::from_secs(seconds),
    };
    assert_eq!(kept, [of("o.test", 90), of("[::1]", 7200)]);
}

// Ours: the order is on record with its reason, and the next process does not
// restore the back-off.
#[tokio::test]
async fn an_operator_can_end_a_back_off_on_record() {
    let kit = Kit::new(16);
    kit.note(entered("o.test", 7200)).await;
    let order = ReleaseOrder {
        by: "admin token from 127.0.0.1".to_owned(),
        reason: "one bad URL".to_owned(),
    };
    kit.note(BackOffEvent {
        change: BackOffChange::Released,
        status: None,
        release: Some(order),
        ..entered("o.test", 0)
    })
    .await;
    assert!(kit.log.saved_back_offs().is_empty());
    let all = kit.all_events();
    let json = all[0].json();
    assert_eq!(json["kind"], "backoff_released");
    assert_eq!(json["actor"], "admin token from 127.0.0.1");
    assert_eq!(json["reason"], "one bad URL");
    let sums = verify::verify(&kit.reader(), &DecisionFilter::default(), |_| {}).unwrap();
    assert_eq!((sums.events, sums.mismatches), (2, 0));
    kit.sql("UPDATE event SET reason = 'another' WHERE kind = 'backoff_released'");
    let sums = verify::verify(&kit.reader(), &DecisionFilter::default(), |_| {}).unwrap();
    assert_eq!(sums.mismatches, 1);
}

#[tokio::test]
async fn only_the_last_back_off_of_a_host_is_saved() {
    let kit = three().await;
    let last = BackOffEvent {
        incidents: 4,
        ..entered("o.test", 120)
    };
    kit.note(last).await;
    let back_offs = kit.log.saved_back_offs();
    let mine = back_offs
        .iter()
        .find(|kept| kept.host.to_string() == "o.test");
    assert_eq!((back_offs.len(), mine.unwrap().incidents), (2, 4));
    kit.note(entered("o.test", 60)).await;
    let back_offs = kit.log.saved_back_offs();
    assert_eq!(back_offs.len(), 1);
    assert_eq!(back_offs[0].host.to_string(), "[::1]");
}

// Invariant 8 (ARCHITECTURE.md): the table holds only hosts that asked for less
// within the last day.
#[tokio::test]
async fn a_back_off_is_removed_a_day_after_its_end() {
    let kit = Kit::new(16);
    for (host, hours) in [("c.test", 1), ("b.test", -23), ("a.test", -25)] {
        let until = clock::now() + SignedDuration::from_hours(hours);
        let at = until - SignedDuration::from_hours(1);
        let event = entered(host, 0);
        kit.note(BackOffEvent { at, until, ..event }).await;
    }
    let kit = Kit::reopened(kit.closed().await, 16);
    assert_eq!(kit.log.saved_back_offs().len(), 3);
    kit.log.probe().await.unwrap();
    kit.log.probe().await.unwrap();
    let kept = kit.log.saved_back_offs();
    let hosts: Vec<_> = kept.iter().map(|kept| kept.host.to_string()).collect();
    assert_eq!(hosts, ["b.test", "c.test"]);
    // The removal is an event, too.
    assert_eq!(kit.all_events().len(), 4);
}

#[test]
fn back_offs_are_removed_in_steps() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = AuditStore::open(&options(folder.path(), 16), &Metrics::default()).unwrap();
    let all = (0..5).map(|n| entered(&format!("d{n}.test"), 3600 + n));
    store
        .write(|batch| {
            all.zip(1..)
                .try_for_each(|(event, seq)| batch.write_event(seq, &event))
        })
        .unwrap();
    let before = at() + SignedDuration::from_secs(3604);
    let pruned = || store.prune(store::PRUNE_BACK_OFFS, before, 3).unwrap();
    assert_eq!([pruned(), pruned(), pruned()], [3, 1, 0]);
}

/// Defines one test per row: a change by hand, and the findings.
macro_rules! found {
    ($($name:ident: $sql:literal is [$($said:literal),*] missing $missing:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let kit = three().await;
            let (untouched, found) = verify(&kit);
            assert_eq!((untouched.events, untouched.back_offs), (3, 2));
            assert_eq!((untouched.mismatches, untouched.missing, found.len()), (0, 0, 0));
            kit.sql($sql);
            let (verification, found) = verify(&kit);
            let said: &[&str] = &[$($said),*];
            assert_eq!(found, said);
            assert_eq!(verification.missing, $missing);
        }
    )*};
}

// Ours: a row that was changed without its digest is found.
found! {
    a_changed_time_is_found:
        "UPDATE event SET time_us = time_us + 1 WHERE seq = 1"
        is ["event 1: the row is not as it was written"] missing 0;
    a_changed_host_is_found:
        "UPDATE event SET host = 'p.test' WHERE seq = 2"
        is ["event 2: the row is not as it was written"] missing 0;
    a_changed_kind_is_found:
        "UPDATE event SET kind = 'backoff_left' WHERE seq = 3"
        is ["event 3: the row is not as it was written"] missing 0;
    a_changed_status_is_found:
        "UPDATE event SET status = 503 WHERE seq = 1"
        is ["event 1: the row is not as it was written"] missing 0;
    a_changed_end_is_found:
        "UPDATE event SET until_us = 0 WHERE seq = 1"
        is ["event 1: the row is not as it was written"] missing 0;
    a_changed_count_is_found:
        "UPDATE event SET incidents = 1 WHERE seq = 1"
        is ["event 1: the row is not as it was written"] missing 0;
    an_event_that_was_deleted_is_missed:
        "DELETE FROM event WHERE seq = 1"
        is ["1: no such row"] missing 1;
    events_that_were_deleted_at_the_end_are_missed:
        "DELETE FROM event WHERE 1 < seq"
        is ["2 to 3: no such rows"] missing 2;
    a_changed_back_off_is_found:
        "UPDATE back_off SET until_us = 0 WHERE host = 'o.test'"
        is ["o.test: the back-off kept is not as it was written"] missing 0;
}

// Ours: an altered row is not relied on.
#[tokio::test]
async fn a_back_off_that_was_changed_by_hand_counts_as_absent() {
    for change in [
        "host = 'p.test'",
        "host = CAST(x'ff' AS TEXT)",
        "until_us = until_us + 1",
        "incidents = 9",
        "since_us = 0",
        "digest = x''",
    ] {
        let kit = three().await;
        kit.sql(&format!(
            "UPDATE back_off SET {change} WHERE host = 'o.test'"
        ));
        assert_eq!(kit.log.saved_back_offs().len(), 1, "{change}");
    }
}

// Invariant 8 (ARCHITECTURE.md).
#[tokio::test]
async fn events_that_find_no_place_are_lost_and_counted() {
    let kit = Kit::new(2);
    // The queue of decisions is full, which must not affect events.
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    let lock = Connection::open(kit.path()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..EVENTS_WAITING_MAX + 3 {
        kit.log.record_event(entered("o.test", 90));
    }
    assert_eq!((kit.noted("written"), kit.noted("lost")), (0, 3));
    lock.execute_batch("COMMIT").unwrap();
    drop(ending);
    kit.log.probe().await.unwrap();
    let most = u64::try_from(EVENTS_WAITING_MAX).unwrap();
    assert_eq!((kit.noted("written"), kit.noted("lost")), (most, 3));
    assert_eq!(kit.all_events().len(), EVENTS_WAITING_MAX);
}

// Ours: entries that no decision rests on must not prevent one from being written.
#[tokio::test]
async fn an_event_that_cannot_be_written_is_counted_and_does_not_stop_decisions() {
    let kit = Kit::new(16);
    kit.sql(
        "CREATE TRIGGER broken_event BEFORE INSERT ON event
         BEGIN SELECT RAISE(ABORT, 'disk full'); END;",
    );
    kit.log.record_event(entered("o.test", 90));
    let (receipt, _ending) = kit.log.record(record("/a")).await.unwrap();
    assert_eq!(receipt.seq(), 1);
    assert_eq!((kit.noted("written"), kit.noted("lost")), (0, 1));
    kit.sql("DROP TRIGGER broken_event");
    kit.note(entered("o.test", 90)).await;
    assert_eq!(kit.all_events()[0].seq, 2);
}

#[tokio::test]
async fn a_closed_log_has_written_its_events_and_takes_no_more() {
    let kit = Kit::new(16);
    kit.log.record_event(entered("o.test", 90));
    let (log, metrics) = (Arc::clone(&kit.log), Arc::clone(&kit.metrics));
    let kit = Kit::reopened(kit.closed().await, 16);
    log.record_event(entered("o.test", 90));
    assert_eq!(kit.all_events().len(), 1);
    let lost = ResultLabel { result: "lost" };
    assert_eq!(metrics.audit_events.get_or_create(&lost).get(), 1);
}
