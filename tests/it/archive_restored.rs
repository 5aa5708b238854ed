//! Records that lost entries which the archive has, and what it makes of those of several
//! nodes at once. All ours; docs/archive.md.

use politesse::clock;
use serde_json::Value;

use crate::archive_months::{PastRecord, done, end, fetch_again, old, snapshot};
use crate::kit::archive_fleet::lines;
use crate::kit::postgres::Postgres;
use crate::kit::proxy::{Config, Place};
use crate::kit::run;

/// Decisions whose entries are more than a part of 8,192 numbers.
const MANY: usize = 4500;

async fn write(place: &Place, host: &str, count: usize) {
    let record = PastRecord::open(place);
    let snapshot = snapshot(host);
    for number in 0..count {
        let ending = record.decision(&snapshot, number, clock::now()).await;
        end(ending, (number % 2) as u32);
    }
    record.close().await;
}

/// Node whose record was backed up with a few decisions, and has many in the archive.
async fn backed_up() -> (Postgres, Place) {
    let postgres = Postgres::start().await;
    let config = Config::default()
        .set("fleet.node = \"north\"")
        .set(&format!("audit.archive = \"{}\"", postgres.url()));
    let place = Place::with(&config);
    write(&place, "http://first.test/", 100).await;
    done(&place.run(&["audit", "backup", "copy.db"]).await);
    write(&place, "http://second.test/", MANY).await;
    done(&place.run(&["audit", "ship", "--once"]).await);
    (postgres, place)
}

async fn verified(place: &Place) -> Value {
    lines(&place.run(&["audit", "--archive", "verify", "--json"]).await).remove(0)
}

#[test]
fn entries_that_a_restored_node_has_lost_stay_in_the_archive_and_are_told() {
    run(async {
        let (postgres, place) = backed_up().await;
        assert_eq!(verified(&place).await["superseded"], Value::Null);
        std::fs::remove_file(place.path("audit.db")).unwrap();
        done(&place.run(&["audit", "restore", "copy.db"]).await);
        write(&place, "http://third.test/", MANY).await;
        done(&place.run(&["audit", "ship", "--once"]).await);
        let found = verified(&place).await;
        assert_eq!(found["findings"], Value::Array(Vec::new()), "{found}");
        assert_eq!(found["superseded"]["count"], 2 * MANY, "{found}");
        assert_eq!(found["superseded"]["first"], 201, "{found}");
        assert_eq!(found["decided"], 100 + MANY, "{found}");
        let own = lines(&place.run(&["audit", "verify", "--json"]).await).remove(0);
        for name in ["decided", "missing", "lost", "heads", "sealed"] {
            assert_eq!(found[name], own[name], "{name}");
        }
        let said = done(&place.run(&["audit", "--archive", "verify"]).await);
        let text = "9000 entries from 201 to 9200 had arrived before the node lost them";
        assert!(said.contains(text), "{said}");
        let list = [
            "audit",
            "--archive",
            "list",
            "--host",
            "second.test",
            "--json",
        ];
        let list = [&list[..], &["--limit", "0"]].concat();
        assert_eq!(lines(&place.run(&list).await).len(), MANY);
        // Whatever else is lost is a finding.
        postgres.sql("DELETE FROM lost_range").await;
        let missing = place.run(&["audit", "--archive", "verify"]).await;
        assert_eq!(missing.code, Some(1), "{missing:?}");
    });
}

#[test]
fn a_record_that_the_archive_has_is_put_in_the_place_of_a_lost_one() {
    run(async {
        let (_postgres, place) = backed_up().await;
        fetch_again(&place).await;
        // All of the folder, as with a disk.
        for name in ["audit.db", "record"] {
            std::fs::remove_file(place.path(name)).unwrap();
        }
        done(&place.run(&["audit", "restore", "again/audit.db"]).await);
        write(&place, "http://third.test/", 3).await;
        done(&place.run(&["audit", "ship", "--once"]).await);
        let found = verified(&place).await;
        assert_eq!(found["findings"], Value::Array(Vec::new()), "{found}");
        assert_eq!(found["decided"], 100 + MANY + 3, "{found}");
        assert_eq!(found["superseded"], Value::Null, "{found}");
    });
}

#[test]
fn nodes_keep_their_number_and_take_none_at_each_connection() {
    run(async {
        let (postgres, place) = backed_up().await;
        for _ in 0..3 {
            done(&place.run(&["audit", "ship", "--once"]).await);
        }
        let place = Place::with(
            &Config::default()
                .set("fleet.node = \"south\"")
                .set(&format!("audit.archive = \"{}\"", postgres.url())),
        );
        let record = PastRecord::open(&place);
        end(
            record
                .decision(&snapshot("http://first.test/"), 1, old())
                .await,
            1,
        );
        record.close().await;
        done(&place.run(&["audit", "ship", "--once"]).await);
        let nodes = postgres
            .sql("SELECT log, name FROM node ORDER BY log")
            .await;
        assert_eq!(nodes, ["1|north", "2|south"]);
        // Another name is that of the same node.
        let named = ["audit", "ship", "--once", "--set", "fleet.node=\"east\""];
        done(&place.run(&named).await);
        let nodes = postgres
            .sql("SELECT log, name FROM node ORDER BY log")
            .await;
        assert_eq!(nodes, ["1|north", "2|east"]);
    });
}

#[test]
fn two_nodes_whose_redactions_arrive_at_once_do_not_wait_for_each_other() {
    run(async {
        let postgres = Postgres::start().await;
        let mut places = Vec::new();
        for name in ["north", "south"] {
            let config = Config::default()
                .set(&format!("fleet.node = \"{name}\""))
                .set(&format!("audit.archive = \"{}\"", postgres.url()));
            let place = Place::with(&config);
            write(&place, "http://first.test/", 60).await;
            done(&place.run(&["audit", "ship", "--once"]).await);
            places.push(place);
        }
        for round in 0..6 {
            for place in &places {
                let numbers: Vec<_> = (0..10)
                    .map(|at| (1 + round * 20 + at * 2).to_string())
                    .collect();
                let mut redact = vec!["audit", "redact", "--why", "asked for", "--yes", "--seq"];
                redact.extend(numbers.iter().map(String::as_str));
                done(&place.run(&redact).await);
                // Values that only these decisions have, and that both nodes have.
                write(place, &format!("http://{round}.test/"), 10).await;
            }
            let ship = ["audit", "ship", "--once"];
            let (one, other) = tokio::join!(places[0].run(&ship), places[1].run(&ship));
            done(&one);
            done(&other);
        }
        let ended = "SELECT sum(deadlocks) FROM pg_stat_database";
        assert_eq!(postgres.number(ended).await, 0);
        let found = places[0]
            .run(&["audit", "--archive", "verify", "--json"])
            .await;
        for node in &lines(&found)[..2] {
            assert_eq!(node["redacted"], 60, "{node}");
        }
    });
}
