//! Searches by time, whatever the clock did.

use jiff::SignedDuration;

use super::*;

/// Returns a record decided at `at`.
fn record_at(at: Timestamp) -> Record {
    record_of(&decide(&inquiry("/a"), &robots(), &policy(), at))
}

fn seconds(start: Timestamp, seconds: i64) -> Timestamp {
    start + SignedDuration::from_secs(seconds)
}

/// Asserts that every range of times finds exactly the rows with such times.
fn assert_found_by_time(reader: &AuditReader) {
    let all = reader.list(&DecisionFilter::default(), 0).unwrap();
    let mut times: Vec<_> = all.iter().map(|row| row.at).collect();
    times.sort_unstable();
    times.dedup();
    let step = times.len().div_ceil(24).max(1);
    let bounds: Vec<_> = times.iter().step_by(step).copied().collect();
    for from in bounds.iter().copied().map(Some).chain([None]) {
        for until in bounds.iter().copied().map(Some).chain([None]) {
            let filter = DecisionFilter {
                from,
                until,
                ..DecisionFilter::default()
            };
            let is_wanted = |row: &&StoredRecord| {
                from.is_none_or(|from| from <= row.at) && until.is_none_or(|until| row.at < until)
            };
            let wanted = all.iter().filter(is_wanted).map(|row| row.seq);
            let found = reader.list(&filter, 0).unwrap();
            let found = found.iter().map(|row| row.seq);
            assert!(found.eq(wanted), "from {from:?} until {until:?}");
        }
    }
}

async fn write(kit: &Kit, times: impl IntoIterator<Item = Timestamp>) {
    for at in times {
        let (_, ending) = kit.log.record(record_at(at)).await.unwrap();
        drop(ending);
    }
    kit.log.probe().await.unwrap();
}

fn runs(kit: &Kit) -> Vec<i64> {
    let connection = Connection::open(kit.path()).unwrap();
    let mut statement = connection
        .prepare("SELECT seq FROM clock_step ORDER BY seq")
        .unwrap();
    let runs = statement.query_map([], |row| row.get(0)).unwrap();
    runs.collect::<Result<_, _>>().unwrap()
}

// Ours: a clock that is set back begins a run, and no row is missed.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_time_after_the_clock_was_set_back() {
    let kit = Kit::new(4096);
    let start = now();
    // The clock is an hour ahead, is set back, is a day ahead, and is set back
    // again.
    let ahead = (0..50).map(|n| seconds(start, 3600 + n));
    let right = (0..50).map(|n| seconds(start, 100 + n * 60));
    let a_day_ahead = (0..50).map(|n| seconds(start, 86_400 + n));
    let again = (0..50).map(|n| seconds(start, 3200 + n * 60));
    write(&kit, ahead.chain(right).chain(a_day_ahead).chain(again)).await;
    // Every second number belongs to an ending.
    assert_eq!(runs(&kit), [1, 101, 301]);
    assert_found_by_time(&kit.reader());
}

// Ours: concurrent requests may get their numbers in a different order than their
// times.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_time_if_concurrent_requests_are_out_of_order() {
    let kit = Kit::new(4096);
    let start = now();
    // At most 10 s out of order, so there is a single run.
    let jittered = (0..400).map(|n: i64| seconds(start, n * 3 / 2 - n * 7919 % 10));
    write(&kit, jittered).await;
    assert_eq!(runs(&kit), [1]);
    assert_found_by_time(&kit.reader());
}

// Ours: the clock is set back a little at each restart.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_time_after_many_restarts() {
    let mut kit = Kit::new(4096);
    let start = now();
    for restart in 0..12 {
        let began = seconds(start, 1000 - restart * 9);
        write(&kit, (0..8).map(|n| seconds(began, n))).await;
        kit = Kit::reopened(kit.closed().await, 4096);
    }
    assert_found_by_time(&kit.reader());
}

// Ours: a decision that could not be written begins no run.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_time_after_a_failed_write() {
    let kit = Kit::new(4096);
    let start = now();
    write(&kit, [start]).await;
    kit.sql(BREAK);
    let earlier = record_at(seconds(start, -600));
    kit.log.record(earlier).await.unwrap_err();
    kit.sql("DROP TRIGGER broken");
    write(&kit, [seconds(start, -500), seconds(start, -499)]).await;
    assert_eq!(runs(&kit), [1, 3]);
    assert_found_by_time(&kit.reader());
}

// Ours: someone deleted the first run, so the rows before the next one are read one
// by one.
#[tokio::test(flavor = "multi_thread")]
async fn rows_before_the_first_run_are_found_by_time() {
    let kit = Kit::new(4096);
    let start = now();
    write(&kit, (0..40).map(|n| seconds(start, n * 7919 % 6000))).await;
    kit.sql("DELETE FROM clock_step WHERE seq < 40");
    assert_found_by_time(&kit.reader());
}

// Ours: a search must finish even with huge gaps, and with numbers that no version
// issues.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_by_time_finishes_even_with_impossible_numbers() {
    let kit = Kit::new(4096);
    let start = now();
    write(&kit, (0..20).map(|n| seconds(start, n * 60))).await;
    kit.sql(
        "UPDATE decision SET seq = seq + 4000000000000000000 WHERE 10 < seq;
         UPDATE decision SET seq = -9223372036854775807 WHERE seq = 1;
         INSERT INTO clock_step VALUES (-9223372036854775807), (-3), (9223372036854775806);",
    );
    assert_found_by_time(&kit.reader());
}

// Ours: a manipulated search by time does not go unnoticed.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_run_is_found() {
    let kit = Kit::new(4096);
    let start = now();
    let ahead = (0..20).map(|n| seconds(start, 3600 + n));
    write(&kit, ahead.chain((0..20).map(|n| seconds(start, n)))).await;
    assert_eq!(findings(&kit), Vec::<String>::new());
    kit.sql("DELETE FROM clock_step WHERE seq = 41");
    let found = findings(&kit);
    assert_eq!(found.len(), 20, "{found:?}");
    assert!(found[0].starts_with("41: the row is earlier than one before it"));
}

fn findings(kit: &Kit) -> Vec<String> {
    let mut found = Vec::new();
    let report = |finding| found.push(finding);
    verify::verify(&kit.reader(), &DecisionFilter::default(), report).unwrap();
    found
}
