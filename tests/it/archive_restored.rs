//! Records that were put back from a backup, and what the archive has of several nodes at
//! once. All ours; docs/archive.md.

use politesse_base::clock;

use crate::archive_months::{Archive, done, ship, write};
use crate::kit::archive_fleet::lines;
use crate::kit::proxy::Place;

/// Decisions whose entries are more than a part of 8,192 numbers.
const MANY: usize = 4500;

/// Puts a backup in the place of the record, which is lost.
async fn restore(place: &Place, backup: &str) {
    std::fs::remove_file(place.path("audit.db")).unwrap();
    done(&place.run(&["audit", "restore", backup]).await);
}

/// Returns the number of decisions at a host that the archive has.
async fn count(archive: &Archive, host: &str) -> usize {
    let list = ["list", "--json", "--limit", "0", "--host", host];
    lines(&archive.ask(&list).await).len()
}

#[tokio::test]
async fn a_restored_node_goes_on_and_what_it_has_lost_stays_in_the_archive() {
    let archive = Archive::empty().await;
    let north = &archive.north;
    write(north, "http://first.test/", &[clock::now(); 100]).await;
    done(&north.run(&["audit", "backup", "copy.db"]).await);
    write(north, "http://second.test/", &[clock::now(); MANY]).await;
    ship(north).await;
    restore(north, "copy.db").await;
    write(north, "http://third.test/", &[clock::now(); MANY]).await;
    ship(north).await;
    for (host, wanted) in [
        ("first.test", 100),
        ("second.test", MANY),
        ("third.test", MANY),
    ] {
        assert_eq!(count(&archive, host).await, wanted, "{host}");
    }
    let again = done(&north.run(&["audit", "ship", "--once"]).await);
    assert!(again.starts_with("all entries have arrived"), "{again}");
}

#[tokio::test]
async fn backups_that_end_earlier_and_earlier_are_gone_on_with() {
    let archive = Archive::empty().await;
    let north = &archive.north;
    for backup in ["early.db", "late.db"] {
        write(north, "http://first.test/", &[clock::now(); 100]).await;
        done(&north.run(&["audit", "backup", backup]).await);
    }
    let mut wanted = 200;
    for backup in ["late.db", "late.db", "early.db"] {
        write(north, "http://first.test/", &[clock::now(); 10]).await;
        ship(north).await;
        restore(north, backup).await;
        write(north, "http://first.test/", &[clock::now(); 3]).await;
        ship(north).await;
        wanted += 13;
        assert_eq!(count(&archive, "first.test").await, wanted, "{backup}");
    }
}

#[tokio::test]
async fn numbers_that_jump_are_shipped_and_a_new_record_stands_beside_the_old_one() {
    let archive = Archive::empty().await;
    let north = &archive.north;
    write(north, "http://first.test/", &[clock::now(); 10]).await;
    done(&north.run(&["audit", "backup", "copy.db"]).await);
    write(north, "http://second.test/", &[clock::now(); 10]).await;
    ship(north).await;
    // All of the folder, as with a disk: which numbers were given is not known, so the
    // restored record skips many.
    std::fs::remove_file(north.path("record")).unwrap();
    restore(north, "copy.db").await;
    write(north, "http://third.test/", &[clock::now(); 30]).await;
    ship(north).await;
    north.remove_record();
    write(north, "http://third.test/", &[clock::now(); 30]).await;
    ship(north).await;
    for (host, wanted) in [("first.test", 10), ("second.test", 10), ("third.test", 60)] {
        assert_eq!(count(&archive, host).await, wanted, "{host}");
    }
    let records = "SELECT count(DISTINCT record) FROM node WHERE name = 'north'";
    assert_eq!(archive.postgres.number(records).await, 2);
}

#[tokio::test]
async fn nodes_keep_their_number_and_take_none_at_each_connection() {
    let archive = Archive::empty().await;
    for place in [&archive.north, &archive.south] {
        write(place, "http://first.test/", &[clock::now()]).await;
        for _ in 0..3 {
            ship(place).await;
        }
    }
    let nodes = "SELECT id, name FROM node ORDER BY id";
    assert_eq!(archive.postgres.sql(nodes).await, ["1|north", "2|south"]);
    // Another name is that of the same node.
    let named = ["audit", "ship", "--once", "--set", "fleet.node=\"east\""];
    done(&archive.south.run(&named).await);
    assert_eq!(archive.postgres.sql(nodes).await, ["1|north", "2|east"]);
}

#[tokio::test]
async fn two_nodes_whose_redactions_arrive_at_once_do_not_wait_for_each_other() {
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
            let mut redact = vec!["audit", "redact", "--why", "asked for", "--yes", "--seq"];
            redact.extend(numbers.iter().map(String::as_str));
            done(&place.run(&redact).await);
            // Texts that both nodes have.
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
