//! Copied records, of which the archive accepts only one, and the lag reported while
//! nothing can be shipped. All ours; docs/archive.md.

use crate::archive_faults::{assert_archived, origin};
use crate::kit::archived::{ArchivedNode, shipping};
use crate::kit::client::get;
use crate::kit::origin::Origin;
use crate::kit::paced::metric;
use crate::kit::postgres::Postgres;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::until;

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

async fn ship(place: &Place) -> Outcome {
    place.run(&["audit", "ship", "--once"]).await
}

fn assert_refused(outcome: &Outcome) {
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for said in ["another entry", "audit.store", "a new record begins"] {
        assert!(outcome.stderr.contains(said), "{outcome:?}");
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
    assert_eq!(ship(&first).await.code, Some(0));

    let proxy = second.start().await;
    ask(&proxy, 5).await;
    until("lag", async || {
        let lag = metric(&proxy, "politesse_archive_lag_entries").await;
        (10.0 <= lag).then_some(())
    })
    .await;
    proxy
        .logged("a copy of its folder is in use elsewhere")
        .await;
    let second = proxy.stop().await;
    assert_refused(&ship(&second).await);
    assert_archived(&postgres, &first).await;
    let names = postgres.sql("SELECT name FROM node").await;
    assert_eq!(names, ["first"]);

    // A new record is accepted.
    second.remove_record();
    let second = add_decisions(second, 1).await;
    assert_eq!(ship(&second).await.code, Some(0));
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
    assert_eq!(ship(&place).await.code, Some(0));
    // Its numbers end before those in the archive, or have other entries.
    assert_refused(&ship(&older).await);
    let older = add_decisions(older, 30).await;
    assert_refused(&ship(&older).await);
    assert_archived(&postgres, &place).await;
}

// Ours: the lag is computed at each scrape, not at each attempt to ship.
#[tokio::test]
async fn the_lag_grows_while_the_archive_does_not_answer() {
    let (origin, mut postgres) = (origin().await, Postgres::start().await);
    let proxy = config(&origin, &postgres).start().await;
    ask(&proxy, 2).await;
    ArchivedNode::of(&postgres, proxy.place())
        .await
        .arrival()
        .await;
    let lag_of = async |proxy: &Proxy, least: f64| {
        until("lag", async || {
            let lag = metric(proxy, "politesse_archive_lag_entries").await;
            (least <= lag).then_some(())
        })
        .await;
    };
    postgres.kill();
    ask(&proxy, 4).await;
    // A refusal is recorded before it is answered, so the first scrape counts all four.
    // The second shows a greater age, regardless of the pause between two attempts.
    let lag = metric(&proxy, "politesse_archive_lag_entries").await;
    assert!(4.0 <= lag, "{lag}");
    until("older entries", async || {
        let age = metric(&proxy, "politesse_archive_lag_seconds").await;
        (2.0 <= age).then_some(())
    })
    .await;
    lag_of(&proxy, 8.0).await;
    // The next process does not know yet how much has arrived.
    let proxy = proxy.stop().await.start().await;
    lag_of(&proxy, 12.0).await;
    postgres.restart().await;
    until("end of the lag", async || {
        let lag = metric(&proxy, "politesse_archive_lag_entries").await;
        (lag == 0.0).then_some(())
    })
    .await;
    proxy.stop().await;
}
