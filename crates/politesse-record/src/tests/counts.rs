//! Events of the proxy itself, and the count of sent requests that some of them
//! state.

use std::sync::atomic::Ordering;

use serde_json::{Value as Json, json};

use super::events::entered;
use super::faults::crash;
use super::numbers::{BREAK_EVENTS, FILES};
use super::*;
use crate::events::ProcessEventKind;
use crate::events::ProcessEventKind::{Configuration, Heartbeat, Started, Stopped};
use crate::leaf::RecordId;
use politesse_decision::decide::EnforcementMode;

/// Verifies a record that is still open. Its last event, which no head covers yet,
/// is ignored.
fn verify(kit: &Kit) -> (Verification, Vec<String>) {
    let (mut sums, mut found) = super::verify(kit);
    let all = found.len();
    found.retain(|finding| !finding.contains("no head covers these entries"));
    sums.mismatches -= (all - found.len()) as u64;
    (sums, found)
}

impl Kit {
    /// Writes an event of the proxy itself; it is on disk when this returns.
    async fn happened(&self, kind: ProcessEventKind) {
        self.log
            .record_process_event(ProcessEvent::now(kind, Json::Null));
        self.log.probe().await.unwrap();
    }

    /// Counts requests like the upstream does when it sends one.
    fn send(&self, requests: u64) {
        self.metrics.upstream_sent.inc_by(requests);
    }

    /// Makes a whole exchange, whose request is sent `sent` times: two entries.
    async fn exchange(&self, sent: u32) {
        let (_, ending) = self.log.record(record("/a")).await.unwrap();
        self.send(sent.into());
        ending.complete(sent_times(sent));
    }

    /// Verifies that the record has no mismatches, and returns the other findings.
    fn assert_no_alarm(&self) -> Vec<String> {
        let (sums, found) = verify(self);
        assert_eq!((sums.mismatches, sums.missing), (0, 0), "{found:?}");
        assert_eq!(sums.unrecorded, 0);
        found
    }

    /// Gives the event `seq` another count, and a matching leaf.
    fn forge_count(&self, seq: u64, sent: u64) {
        let id: String = Connection::open(self.path())
            .unwrap()
            .query_row("SELECT id FROM record", [], |row| row.get(0))
            .unwrap();
        let mut events = self.all_events().into_iter();
        let mut row = events.find(|event| event.seq == seq).unwrap();
        row.sent = Some(sent);
        let connection = Connection::open(self.path()).unwrap();
        let deleted = connection.execute("DELETE FROM event WHERE seq = ?", [seq as i64]);
        assert_eq!(deleted.unwrap(), 1);
        row.write(&connection, RecordId::parse(&id)).unwrap();
    }
}

fn sent_times(sent: u32) -> ExchangeEnd {
    ExchangeEnd { sent, ..done(200) }
}

// Ours: a difference that the count cannot decide is not a finding.
#[tokio::test]
async fn exchanges_in_progress_at_a_heartbeat_are_not_findings() {
    let kit = Kit::new(64);
    kit.happened(Started).await;
    // One request was not sent at all, the other twice.
    kit.exchange(0).await;
    kit.exchange(2).await;
    let (_, sent_before) = kit.log.record(record("/b")).await.unwrap();
    let (_, sent_after) = kit.log.record(record("/c")).await.unwrap();
    let (_, never_sent) = kit.log.record(record("/d")).await.unwrap();
    kit.send(1);
    kit.happened(Heartbeat).await;
    kit.assert_no_alarm();
    sent_before.complete(sent_times(1));
    kit.send(2);
    sent_after.complete(sent_times(2));
    drop(never_sent);
    kit.happened(Heartbeat).await;
    kit.happened(Stopped).await;
    assert_eq!(kit.assert_no_alarm(), Vec::<String>::new());
    let counts = kit.all_events().into_iter().map(|event| event.sent);
    assert!(counts.eq([Some(5), Some(5), Some(3), Some(0)]));
}

// Ours: this fault lies between the upstream and the record, where no type can
// prevent it.
#[tokio::test]
async fn a_request_that_is_not_on_record_is_found_between_two_counts() {
    let kit = Kit::new(64);
    kit.happened(Started).await;
    kit.exchange(1).await;
    kit.happened(Heartbeat).await;
    kit.send(3);
    kit.exchange(1).await;
    kit.happened(Heartbeat).await;
    kit.exchange(1).await;
    kit.happened(Stopped).await;
    let (sums, found) = verify(&kit);
    assert_eq!(found, ["4 to 7: requests sent and not on record: 3"]);
    assert_eq!((sums.mismatches, sums.unrecorded), (1, 3));
    // The next process starts its count at 0.
    kit.metrics
        .upstream_sent
        .inner()
        .store(0, Ordering::Relaxed);
    kit.happened(Started).await;
    kit.exchange(1).await;
    kit.happened(Stopped).await;
    assert_eq!(verify(&kit).1.len(), 1);
}

// Ours: an exchange in progress may be the one that was counted. Once it has ended,
// it is known that it was not.
#[tokio::test]
async fn a_request_that_an_open_exchange_may_explain_is_found_once_it_has_ended() {
    let kit = Kit::new(64);
    kit.happened(Started).await;
    kit.exchange(1).await;
    kit.happened(Heartbeat).await;
    let (_, open) = kit.log.record(record("/b")).await.unwrap();
    kit.send(1);
    kit.happened(Heartbeat).await;
    kit.assert_no_alarm();
    kit.exchange(1).await;
    open.complete(sent_times(0));
    kit.happened(Heartbeat).await;
    kit.happened(Stopped).await;
    let found = verify(&kit).1;
    // The request was sent before the second heartbeat, whose count included it.
    assert_eq!(found, ["4 to 6: requests sent and not on record: 1"]);
}

/// Returns a record of one process with two exchanges, numbers 2 to 5.
async fn two_exchanges() -> Kit {
    let kit = Kit::new(64);
    kit.happened(Started).await;
    kit.exchange(1).await;
    kit.exchange(1).await;
    kit.happened(Stopped).await;
    assert_eq!(kit.assert_no_alarm(), Vec::<String>::new());
    kit
}

#[tokio::test]
async fn a_count_that_was_changed_by_hand_is_found() {
    let kit = two_exchanges().await;
    kit.sql("UPDATE event SET sent = 3 WHERE seq = 6");
    let altered = "event 6: the row is not as it was written";
    let unrecorded = "1 to 6: requests sent and not on record: 1";
    assert_eq!(verify(&kit).1, [altered, unrecorded]);
    // A matching hash must not hide the change.
    for (sent, finding) in [
        (3, unrecorded),
        (1, "1 to 6: requests on record as sent and not counted: 1"),
    ] {
        kit.forge_count(6, sent);
        assert_eq!(verify(&kit).1, [finding]);
    }
    kit.sql("UPDATE event SET detail = '{}' WHERE seq = 6");
    assert_eq!(verify(&kit).1[0], altered);
}

#[tokio::test]
async fn a_deleted_decision_is_noticed_by_the_count() {
    let kit = two_exchanges().await;
    kit.sql("DELETE FROM decision WHERE seq = 2; DELETE FROM ending WHERE decision = 2");
    let (sums, found) = verify(&kit);
    let unrecorded = "1 to 6: requests sent and not on record: 1";
    assert!(found.iter().any(|found| found == unrecorded), "{found:?}");
    assert_eq!((sums.unrecorded, sums.missing), (1, 2));
}

#[tokio::test]
async fn a_refused_request_that_was_sent_is_found() {
    let kit = Kit::new(64);
    let (_, ending) = kit.log.record(record("/private/a")).await.unwrap();
    ending.complete(sent_times(1));
    kit.log.probe().await.unwrap();
    assert_eq!(verify(&kit).1, ["1: refused, and on record as sent"]);
}

// Ours: report mode sends what it disallows.
#[tokio::test]
async fn reported_requests_are_counted_like_allowed_ones() {
    let kit = Kit::new(64);
    let reporting = Arc::new((*policy()).clone().with(|terms| {
        terms.mode = EnforcementMode::Report;
    }));
    let decision = || decide(&inquiry("/private/a"), &robots(), &reporting, now());
    kit.happened(Started).await;
    let (_, ending) = kit.log.record(record_of(&decision())).await.unwrap();
    kit.send(1);
    ending.complete(sent_times(1));
    // One exchange is in progress.
    let (_, _open) = kit.log.record(record_of(&decision())).await.unwrap();
    kit.send(1);
    kit.happened(Heartbeat).await;
    assert_eq!(kit.assert_no_alarm(), Vec::<String>::new());
    kit.send(2);
    kit.happened(Heartbeat).await;
    assert_eq!(verify(&kit).0.unrecorded, 1);
}

// Ours: a crash takes the count with it. That is reported, but is not a mismatch.
#[tokio::test]
async fn after_a_crash_the_last_count_is_reported_as_unknown() {
    let kit = Kit::new(64);
    kit.happened(Started).await;
    kit.exchange(1).await;
    kit.happened(Heartbeat).await;
    kit.exchange(1).await;
    let (_, _open) = kit.log.record(record("/b")).await.unwrap();
    kit.send(1);
    kit.log.probe().await.unwrap();
    let again = Kit::reopened(crash(&kit, &FILES), 64);
    assert_eq!(again.assert_no_alarm(), Vec::<String>::new());
    again.happened(Started).await;
    again.exchange(1).await;
    again.happened(Stopped).await;
    let found = again.assert_no_alarm();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("after 4: the process ended without a word"));
    assert_eq!(verify(&again).0.unknown_ends, 1);
}

// Ours: without its start event, the count of a process could not be checked.
#[tokio::test]
async fn events_of_the_proxy_are_retried_until_they_are_written() {
    let kit = Kit::new(64);
    kit.sql(BREAK_EVENTS);
    kit.log
        .record_process_event(ProcessEvent::now(Started, json!({ "version": "1" })));
    kit.log.record_event(entered("o.test", 90));
    assert!(kit.log.probe().await.is_err());
    kit.sql("DROP TRIGGER broken_event");
    kit.happened(Configuration).await;
    let events = kit.all_events();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["configuration", "started"]);
    let started = events[1].json();
    assert_eq!(
        (&started["kind"], &started["sent"], &started["detail"]),
        (&json!("started"), &json!(0), &json!({ "version": "1" }))
    );
    assert_eq!((&events[0].sent, &events[0].detail), (&None, &None));
    kit.assert_no_alarm();
}

// Ours: a removal is stated once for each search.
#[tokio::test]
async fn the_removal_of_saved_state_is_an_event() {
    let kit = Kit::new(64);
    kit.sql(
        "INSERT INTO back_off (host, until_us, incidents, since_us, digest)
         VALUES ('a.test', 1, 1, 1, x''), ('b.test', 2, 1, 1, x'')",
    );
    kit.log.probe().await.unwrap();
    kit.log.probe().await.unwrap();
    let events = kit.all_events();
    assert_eq!(events.len(), 1);
    let event = events[0].json();
    assert_eq!(event["kind"], "pruned");
    assert_eq!(event["detail"], json!({ "robots": 0, "back_offs": 2 }));
    kit.assert_no_alarm();
}
