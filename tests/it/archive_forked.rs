//! Copied records, of which the archive accepts only one, and the lag reported while
//! nothing can be shipped. All ours; docs/archive.md.

use crate::archive_faults::{arrival, assert_archived, origin};
use crate::kit::archived::shipping;
use crate::kit::assert_contains;
use crate::kit::client::get;
use crate::kit::origin::Origin;
use crate::kit::paced::{metric, until_metric};
use crate::kit::postgres::Postgres;
use crate::kit::proxy::{Config, Place, Proxy, resolve};

const LAG: &str = "politesse_archive_lag_entries";

fn config(origin: &Origin, postgres: &Postgres) -> Config {
    shipping(resolve("o.test", origin.address()), &postgres.url())
}

/// Adds `count` decisions to the record of a place.
async fn add_decisions(place: Place, count: usize) -> Place {
    let proxy = place.start().await;
    ask(&proxy, count).await;
    proxy.stop().await
}

async fn ask(proxy: &Proxy, count: usize) {
    for _ in 0..count {
        assert_eq!(get(proxy, "http://o.test/no").await.status(), 403);
    }
}

async fn assert_not_shipped(place: &Place) {
    let refused = place.audit_code(1, "ship --once").await;
    for said in ["another entry", "audit.store", "a new record begins"] {
        assert_contains(&refused.stderr, said);
    }
}

// Ours: a node's disk was copied to another machine, and both nodes keep recording.
#[tokio::test]
async fn a_copied_record_ships_nothing_into_the_original_in_the_archive() {
    let (origin, postgres) = (origin().await, Postgres::start().await);
    let first = Place::with(&config(&origin, &postgres).set("fleet.node = \"first\""));
    let first = add_decisions(first, 3).await;
    let second = first.copied();
    second.configure(&config(&origin, &postgres).set("fleet.node = \"second\""));
    let first = add_decisions(first, 3).await;
    first.audit("ship --once").await;

    let proxy = second.start().await;
    ask(&proxy, 5).await;
    until_metric(&proxy, LAG, |entries| 10.0 <= entries).await;
    let elsewhere = "a copy of its folder is in use elsewhere";
    proxy.logged(elsewhere).await;
    let second = proxy.stop().await;
    assert_not_shipped(&second).await;
    assert_archived(&postgres, &first).await;
    let names = postgres.sql("SELECT name FROM node").await;
    assert_eq!(names, ["first"]);

    // A new record is accepted.
    second.remove_record();
    let second = add_decisions(second, 1).await;
    second.audit("ship --once").await;
    assert_archived(&postgres, &second).await;
}

// Ours: a virtual machine was reset to a snapshot.
#[tokio::test]
async fn a_record_reset_to_an_older_state_ships_nothing() {
    let (origin, postgres) = (origin().await, Postgres::start().await);
    let place = add_decisions(Place::with(&config(&origin, &postgres)), 2).await;
    let older = place.copied();
    older.configure(&config(&origin, &postgres));
    let place = add_decisions(place, 10).await;
    place.audit("ship --once").await;
    // Its numbers end before those in the archive, or have other entries.
    assert_not_shipped(&older).await;
    let older = add_decisions(older, 30).await;
    assert_not_shipped(&older).await;
    assert_archived(&postgres, &place).await;
}

// Ours: the lag is computed at each scrape, not at each attempt to ship.
#[tokio::test]
async fn the_lag_grows_while_the_archive_does_not_answer() {
    let (origin, mut postgres) = (origin().await, Postgres::start().await);
    let proxy = config(&origin, &postgres).start().await;
    ask(&proxy, 2).await;
    arrival(&postgres, proxy.place()).await;
    postgres.kill();
    ask(&proxy, 4).await;
    // A refusal is recorded before it is answered, so the first scrape counts all four.
    // The second shows a greater age, regardless of the pause between two attempts.
    let lag = metric(&proxy, LAG).await;
    assert!(4.0 <= lag, "{lag}");
    let age = "politesse_archive_lag_seconds";
    until_metric(&proxy, age, |seconds| 2.0 <= seconds).await;
    until_metric(&proxy, LAG, |entries| 8.0 <= entries).await;
    // The next process does not know yet how much has arrived.
    let proxy = proxy.stop().await.start().await;
    until_metric(&proxy, LAG, |entries| 12.0 <= entries).await;
    postgres.restart().await;
    until_metric(&proxy, LAG, |entries| entries == 0.0).await;
    proxy.stop().await;
}
