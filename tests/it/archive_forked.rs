//! Two copies of one record, of which the archive has one, and a lag that is told while
//! nothing can be shipped. All ours; docs/archive.md.

use crate::kit::archived::{ArchivedNode, shipping};
use crate::kit::client::get;
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::metric;
use crate::kit::postgres::Postgres;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::until;

async fn origin() -> Origin {
    Script::robots("User-agent: *\nDisallow: /no\n")
        .start()
        .await
}

fn config(origin: &Origin, postgres: &Postgres) -> Config {
    shipping(resolve("o.test", origin.address()), &postgres.url())
}

/// Has the record of a place grow by `count` decisions.
async fn go_on(place: Place, count: usize) -> Place {
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

// Ours: the disk of a node was copied to another machine, and both go on.
#[tokio::test]
async fn a_copied_record_puts_nothing_among_the_entries_of_the_other() {
    let (origin, postgres) = (origin().await, Postgres::start().await);
    let first = Place::with(&config(&origin, &postgres).set("fleet.node = \"first\""));
    let first = go_on(first, 3).await;
    let second = first.copied();
    second.configure(&config(&origin, &postgres).set("fleet.node = \"second\""));
    let first = go_on(first, 3).await;
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
    let node = ArchivedNode::of(&postgres, &first).await;
    node.assert_whole().await;
    let names = postgres.sql("SELECT name FROM node").await;
    assert_eq!(names, ["first"]);

    // A new record is welcome.
    second.remove_record();
    let second = go_on(second, 1).await;
    assert_eq!(ship(&second).await.code, Some(0));
    ArchivedNode::of(&postgres, &second)
        .await
        .assert_whole()
        .await;
}

// Ours: the snapshot of a virtual machine was taken up again.
#[tokio::test]
async fn a_record_that_was_put_back_ships_nothing() {
    let (origin, postgres) = (origin().await, Postgres::start().await);
    let place = go_on(Place::with(&config(&origin, &postgres)), 2).await;
    let older = place.copied();
    older.configure(&config(&origin, &postgres));
    let place = go_on(place, 10).await;
    assert_eq!(ship(&place).await.code, Some(0));
    // Its numbers end before those that have arrived, or it has others for them.
    assert_refused(&ship(&older).await);
    let older = go_on(older, 30).await;
    assert_refused(&ship(&older).await);
    ArchivedNode::of(&postgres, &place)
        .await
        .assert_whole()
        .await;
}

// Ours: the lag is counted when the metrics are asked for, not when shipping is tried
// again.
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
    // The entries of four refusals are there when they are answered; at the second
    // scrape they are older, however long the pause between two attempts is.
    let lag = metric(&proxy, "politesse_archive_lag_entries").await;
    assert!(4.0 <= lag, "{lag}");
    until("older entries", async || {
        let age = metric(&proxy, "politesse_archive_lag_seconds").await;
        (2.0 <= age).then_some(())
    })
    .await;
    lag_of(&proxy, 8.0).await;
    // The next process does not know how much has arrived.
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
