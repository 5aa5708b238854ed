//! Records restored from a backup, and several nodes that ship at the same time. All
//! ours; docs/archive.md.

use politesse_base::clock;

use crate::archive_months::{Archive, ship, write};
use crate::kit::proxy::Place;

/// Number of decisions whose entries fill more than one part of 8,192 numbers.
const MANY: usize = 4500;

/// Replaces the record, which is lost, by a backup.
async fn restore(place: &Place, backup: &str) {
    std::fs::remove_file(place.path("audit.db")).unwrap();
    place.audit(&format!("restore {backup}")).await;
}

/// Asserts that the archive has this number of decisions for each host.
async fn assert_counts(archive: &Archive, expected: &[(&str, usize)]) {
    for (host, count) in expected {
        let list = format!("list --json --limit 0 --host {host}");
        let found = archive.ask(&list).await.json_lines().len();
        assert_eq!(found, *count, "{host}");
    }
}

#[tokio::test]
async fn the_archive_keeps_entries_that_a_restored_node_lost() {
    let archive = Archive::empty().await;
    let north = &archive.north;
    write(north, "http://first.test/", &[clock::now(); 100]).await;
    north.audit("backup copy.db").await;
    write(north, "http://second.test/", &[clock::now(); MANY]).await;
    ship(north).await;
    restore(north, "copy.db").await;
    write(north, "http://third.test/", &[clock::now(); MANY]).await;
    ship(north).await;
    let expected = [
        ("first.test", 100),
        ("second.test", MANY),
        ("third.test", MANY),
    ];
    assert_counts(&archive, &expected).await;
    let again = north.audit("ship --once").await.stdout;
    assert!(again.starts_with("all entries have arrived"), "{again}");
}

#[tokio::test]
async fn a_node_restored_from_ever_older_backups_still_ships() {
    let archive = Archive::empty().await;
    let north = &archive.north;
    for backup in ["early.db", "late.db"] {
        write(north, "http://first.test/", &[clock::now(); 100]).await;
        north.audit(&format!("backup {backup}")).await;
    }
    let mut wanted = 200;
    for backup in ["late.db", "late.db", "early.db"] {
        write(north, "http://first.test/", &[clock::now(); 10]).await;
        ship(north).await;
        restore(north, backup).await;
        write(north, "http://first.test/", &[clock::now(); 3]).await;
        ship(north).await;
        wanted += 13;
        assert_counts(&archive, &[("first.test", wanted)]).await;
    }
}

#[tokio::test]
async fn skipped_numbers_and_a_new_record_are_shipped() {
    let archive = Archive::empty().await;
    let north = &archive.north;
    write(north, "http://first.test/", &[clock::now(); 10]).await;
    north.audit("backup copy.db").await;
    write(north, "http://second.test/", &[clock::now(); 10]).await;
    ship(north).await;
    // The whole folder was lost, as with a disk. The restored record does not know which
    // numbers were used, so it skips many.
    std::fs::remove_file(north.path("record")).unwrap();
    restore(north, "copy.db").await;
    write(north, "http://third.test/", &[clock::now(); 30]).await;
    ship(north).await;
    north.remove_record();
    write(north, "http://third.test/", &[clock::now(); 30]).await;
    ship(north).await;
    let expected = [("first.test", 10), ("second.test", 10), ("third.test", 60)];
    assert_counts(&archive, &expected).await;
    let records = "SELECT count(DISTINCT record) FROM node WHERE name = 'north'";
    assert_eq!(archive.postgres.number(records).await, 2);
}

#[tokio::test]
async fn a_node_keeps_its_id_across_connections_and_a_new_name() {
    let archive = Archive::empty().await;
    for place in [&archive.north, &archive.south] {
        write(place, "http://first.test/", &[clock::now()]).await;
        for _ in 0..3 {
            ship(place).await;
        }
    }
    let nodes = "SELECT id, name FROM node ORDER BY id";
    assert_eq!(archive.postgres.sql(nodes).await, ["1|north", "2|south"]);
    // A new name applies to the same node.
    let renamed = "ship --once --set fleet.node=\"east\"";
    archive.south.audit(renamed).await;
    assert_eq!(archive.postgres.sql(nodes).await, ["1|north", "2|east"]);
}

#[tokio::test]
async fn concurrent_redactions_of_two_nodes_cause_no_deadlock() {
    let archive = Archive::empty().await;
    let places = [&archive.north, &archive.south];
    for place in places {
        write(place, "http://first.test/", &[clock::now(); 60]).await;
        ship(place).await;
    }
    for round in 0..6 {
        for place in places {
            let numbers: Vec<_> = (0..10)
                .map(|at| (1 + round * 20 + at * 2).to_string())
                .collect();
            let redact = format!("redact --why 'asked for' --yes --seq {}", numbers.join(" "));
            place.audit(&redact).await;
            // Both nodes ship the same robots.txt texts.
            write(place, &format!("http://{round}.test/"), &[clock::now(); 10]).await;
        }
        tokio::join!(ship(places[0]), ship(places[1]));
    }
    let ended = "SELECT sum(deadlocks) FROM pg_stat_database";
    assert_eq!(archive.postgres.number(ended).await, 0);
    for node in [1, 2] {
        let redacted = format!("SELECT count(*) FROM decision WHERE node = {node} AND url IS NULL");
        assert_eq!(archive.postgres.number(&redacted).await, 60);
    }
}
