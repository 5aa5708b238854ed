//! What a removal of months leaves beside redactions, and after a node has lost its record
//! and put another one in its place. All ours; docs/archive.md.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use politesse::clock;
use serde_json::Value;

use crate::archive_months::{Archive, PastRecord, done, end, fetch_again, old, record, snapshot};
use crate::kit::proxy::Place;
use crate::kit::run;

/// Number of the decision that ended after all others, and remains.
const REMAINS: &str = "15";

/// Numbers of a decision that goes, and of one behind the removal.
const OTHERS: [&str; 2] = ["16", "8200"];

async fn redact_and_ship(archive: &Archive, numbers: &[&str]) {
    let redact = ["audit", "redact", "--why", "asked for", "--yes", "--seq"];
    done(&archive.north.run(&[&redact, numbers].concat()).await);
    ship(&archive.north).await;
}

async fn ship(place: &Place) {
    done(&place.run(&["audit", "ship", "--once"]).await);
}

/// Ships decisions of now, by whose key a removal is signed.
async fn ship_some(place: &Place) {
    write(place, "http://new.test/", &[clock::now(); 5]).await;
    ship(place).await;
}

/// Holds that nothing is found in the archive. Returns what is told of its first node.
async fn verified(archive: &Archive) -> Value {
    let found = archive.verified().await.remove(0);
    assert_eq!(found["findings"], Value::Array(Vec::new()), "{found}");
    found
}

/// Adds decisions of a time to the record of a node.
async fn write(place: &Place, host: &str, times: &[Timestamp]) {
    let record = PastRecord::open(place);
    let snapshot = snapshot(host);
    for (number, at) in times.iter().enumerate() {
        let ending = record.decision(&snapshot, number, *at).await;
        end(ending, (number % 2) as u32);
    }
    record.close().await;
}

/// Puts a backup in the place of the record, which is lost.
async fn restore(place: &Place, backup: &str) {
    std::fs::remove_file(place.path("audit.db")).unwrap();
    done(&place.run(&["audit", "restore", backup]).await);
}

#[test]
fn a_decision_that_remains_is_redacted_before_and_after_a_removal() {
    run(async {
        for is_before in [true, false] {
            let archive = Archive::shipped().await;
            redact_and_ship(&archive, &OTHERS).await;
            if is_before {
                redact_and_ship(&archive, &[REMAINS]).await;
            }
            archive.prune().await;
            if !is_before {
                redact_and_ship(&archive, &[REMAINS]).await;
            }
            let found = verified(&archive).await;
            // That which is gone is none of them.
            assert_eq!(found["redacted"], 2, "{found}");
            assert_eq!(found["removed"][0]["last"], 8192, "{found}");
            let paths = "SELECT path FROM decision WHERE log = 1 AND seq = 15";
            assert_eq!(archive.postgres.sql(paths).await, [""]);
            // So is a record that is made of it again.
            let fetch = ["--node", "north", "fetch", "-o", "again"];
            assert_eq!(archive.ask(&fetch).await.code, Some(0));
            let mut keys = String::new();
            for place in [&archive.north, &archive.south] {
                keys.push_str(&done(&place.run(&["audit", "key"]).await));
            }
            std::fs::write(archive.south.path("keys.txt"), &keys).unwrap();
            let store = "audit.store=\"sqlite:again/audit.db\"";
            let verify = ["--set", store, "audit", "verify", "--key", "keys.txt"];
            done(&archive.south.run(&verify).await);
        }
    });
}

#[test]
fn a_redaction_may_take_longer_than_a_shipment() {
    run(async {
        let archive = Archive::shipped().await;
        let redact = [
            "audit",
            "redact",
            "--why",
            "asked for",
            "--yes",
            "--seq",
            REMAINS,
        ];
        done(&archive.north.run(&redact).await);
        // As a search through many decisions would.
        let slow = "BEGIN; SELECT leaf FROM decision WHERE log = 1 AND seq = 15 FOR UPDATE;
                    SELECT pg_sleep(3); COMMIT";
        let limit = "audit.archive_timeout=\"1s\"";
        let ship = ["--set", limit, "audit", "ship", "--once"];
        let shipping = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            archive.north.run(&ship).await
        };
        let (_, shipped) = tokio::join!(archive.postgres.sql(slow), shipping);
        done(&shipped);
        let path = "SELECT path FROM decision WHERE log = 1 AND seq = 15";
        assert_eq!(archive.postgres.sql(path).await, [""]);
    });
}

#[test]
fn a_removal_takes_what_a_restored_node_had_lost() {
    run(async {
        let archive = Archive::empty().await;
        let north = &archive.north;
        write(north, "http://first.test/", &[old(); 100]).await;
        done(&north.run(&["audit", "backup", "copy.db"]).await);
        write(north, "http://lost.test/", &[old(); 4500]).await;
        ship(north).await;
        restore(north, "copy.db").await;
        write(north, "http://third.test/", &[clock::now(); 4500]).await;
        ship(north).await;
        assert_eq!(verified(&archive).await["superseded"]["count"], 9000);
        ship_some(&archive.south).await;
        archive.prune().await;
        let found = verified(&archive).await;
        // The numbers that the restored record has passed over go with them.
        assert_eq!(found["superseded"], Value::Null, "{found}");
        assert!(
            9200 < found["removed"][0]["last"].as_i64().unwrap(),
            "{found}"
        );
        let lost = "SELECT count(*) FROM decision WHERE log = 1 AND seq <= 9200";
        assert_eq!(archive.postgres.number(lost).await, 0);
        write(north, "http://third.test/", &[clock::now()]).await;
        ship(north).await;
        verified(&archive).await;
    });
}

#[test]
fn a_node_goes_on_with_a_record_that_was_made_again_after_a_removal() {
    run(async {
        let archive = Archive::shipped().await;
        let north = &archive.north;
        done(&north.run(&["audit", "backup", "whole.db"]).await);
        archive.prune().await;
        fetch_again(north).await;
        for backup in ["again/audit.db", "whole.db"] {
            restore(north, backup).await;
            write(north, "http://third.test/", &[clock::now(); 3]).await;
            ship(north).await;
            let found = verified(&archive).await;
            assert_eq!(found["removed"][0]["last"], 8192, "{backup}: {found}");
            assert!(archive.prune().await.contains("nothing to remove"));
        }
    });
}

#[test]
fn backups_that_end_earlier_and_earlier_are_gone_on_with() {
    run(async {
        let archive = Archive::empty().await;
        let north = &archive.north;
        for backup in ["early.db", "late.db"] {
            write(north, "http://first.test/", &[clock::now(); 100]).await;
            done(&north.run(&["audit", "backup", backup]).await);
        }
        for backup in ["late.db", "late.db", "early.db"] {
            write(north, "http://lost.test/", &[clock::now(); 10]).await;
            ship(north).await;
            restore(north, backup).await;
            write(north, "http://third.test/", &[clock::now(); 3]).await;
            ship(north).await;
            verified(&archive).await;
        }
    });
}

#[test]
fn a_backup_that_ends_within_what_was_removed_is_not_shipped_but_told() {
    run(async {
        let archive = Archive::empty().await;
        let north = &archive.north;
        write(north, "http://first.test/", &[old(); 100]).await;
        done(&north.run(&["audit", "backup", "copy.db"]).await);
        write(north, "http://lost.test/", &[old(); 4500]).await;
        ship(north).await;
        ship_some(&archive.south).await;
        archive.prune().await;
        restore(north, "copy.db").await;
        write(north, "http://third.test/", &[clock::now(); 3]).await;
        let refused = north.run(&["audit", "ship", "--once"]).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let said = "has lost those from 201: stop this proxy";
        assert!(refused.stderr.contains(said), "{refused:?}");
        verified(&archive).await;
        // As the message says.
        fetch_again(north).await;
        restore(north, "again/audit.db").await;
        write(north, "http://third.test/", &[clock::now(); 3]).await;
        ship(north).await;
        assert_eq!(verified(&archive).await["removed"][0]["last"], 8192);
    });
}

#[test]
fn months_go_though_nothing_has_stayed_of_those_before() {
    run(async {
        let archive = Archive::empty().await;
        for days in [120, 60, 0] {
            // More than a part each.
            let at = old() - SignedDuration::from_hours(24 * days);
            write(&archive.north, "http://old.test/", &[at; 4500]).await;
        }
        ship_some(&archive.north).await;
        ship_some(&archive.south).await;
        archive.prune().await;
        let found = verified(&archive).await;
        assert_eq!(found["removed"][2]["last"], 24_576, "{found}");
        let hosts = "SELECT count(*) FROM origin WHERE host = 'old.test'";
        let left = archive.postgres.number(hosts).await;
        // Those of the part that is not over stay.
        assert_eq!(left, 1);
    });
}

#[test]
fn a_record_that_was_pruned_before_is_shipped_with_what_remains() {
    run(async {
        let archive = Archive::empty().await;
        record(&archive.north).await;
        let alone = ["--set", "audit.archive=\"none\"", "audit", "prune"];
        let prune = [&alone[..], &["--before", "30d", "--why", "test", "--yes"]].concat();
        done(&archive.north.run(&prune).await);
        ship(&archive.north).await;
        let found = verified(&archive).await;
        assert_eq!(found["removed"][0]["last"], 8192, "{found}");
        let remains = "SELECT count(*) FROM decision WHERE log = 1 AND seq = 15";
        assert_eq!(archive.postgres.number(remains).await, 1);
    });
}
