//! Failures of the archive, of its connections and of shipping processes: no entry is
//! lost or stored twice, and the proxy keeps serving. All ours; docs/archive.md.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::time::sleep;

use crate::kit::archived::{ArchivedNode, shipping};
use crate::kit::client::{Crawler, get};
use crate::kit::fleet::write_private;
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::until_metric;
use crate::kit::postgres::Postgres;
use crate::kit::program::politesse;
use crate::kit::proxy::{Config, Place, resolve};

pub(crate) async fn origin() -> Origin {
    Script::robots("User-agent: *\nDisallow: /no\n")
        .start()
        .await
}

pub(crate) fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).set("audit.seal_entries = 500")
}

/// Requests `count` pages, of which the proxy refuses every second one.
pub(crate) async fn crawl(proxy: SocketAddr, count: usize) {
    let mut crawler = Crawler::to(proxy).await;
    for page in 0..count {
        let folder = ["no", "open"][page % 2];
        let url = format!("http://o.test/{folder}/{page}");
        crawler.get(&url, "o.test").await;
    }
}

/// Records `count` requests, and returns the folder after the proxy has stopped.
pub(crate) async fn recorded(count: usize) -> Place {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    crawl(proxy.address(), count).await;
    proxy.stop().await
}

/// Ships all entries of the record.
pub(crate) async fn ship_once(place: &Place, postgres: &Postgres) {
    let ship = format!("ship --once --to {}", postgres.url());
    place.audit(&ship).await;
}

/// Asserts that the archive has the whole record of `place`.
pub(crate) async fn assert_archived(postgres: &Postgres, place: &Place) {
    let node = ArchivedNode::of(postgres, place).await;
    node.assert_whole().await;
}

/// Waits until the archive has every entry that the record of `place` has now.
pub(crate) async fn arrival(postgres: &Postgres, place: &Place) {
    ArchivedNode::of(postgres, place).await.arrival().await;
}

#[tokio::test]
async fn an_archive_killed_repeatedly_has_every_entry_once() {
    let origin = origin().await;
    let mut postgres = Postgres::start().await;
    let proxy = shipping(config(&origin), &postgres.url()).start().await;
    for kill in 1..4 {
        let crawling = tokio::spawn(crawl(proxy.address(), 600));
        // Scripted fault: the moment of the kill varies.
        sleep(Duration::from_millis(300 * kill)).await;
        postgres.kill();
        crawling.await.unwrap();
        assert_eq!(get(&proxy, "http://o.test/no").await.status(), 403);
        let failures = "politesse_archive_errors_total";
        until_metric(&proxy, failures, |count| 0.0 < count).await;
        postgres.restart().await;
        arrival(&postgres, proxy.place()).await;
    }
    // The log reports each failure once, and the recovery.
    proxy.logged("are shipped to the archive again").await;
    let place = proxy.stop().await;
    assert_archived(&postgres, &place).await;
}

// Ours. For the server, a killed shipper is a cut connection too.
#[tokio::test]
async fn cut_connections_lose_no_entry_and_write_none_twice() {
    let place = recorded(6000).await;
    let postgres = Postgres::start().await;
    let mut cuts = 0;
    loop {
        let mut ship = politesse(place.folder());
        ship.args(["audit", "ship", "--once", "--to", &postgres.url()]);
        ship.stdout(Stdio::null()).stderr(Stdio::null());
        let mut ship = ship.spawn().unwrap();
        // Scripted fault: the moment of the cut varies, up to the time that shipping
        // one window takes.
        sleep(Duration::from_millis(60 + 37 * cuts % 300)).await;
        let mut has_cut = postgres.cut().await != 0;
        // On a busy machine the first attempt may not be connected by then.
        while cuts == 0 && !has_cut && ship.try_wait().unwrap().is_none() {
            has_cut = postgres.cut().await != 0;
        }
        if ship.wait().await.unwrap().success() {
            break;
        }
        assert!(has_cut);
        cuts += 1;
    }
    println!("{cuts} connections were cut");
    assert_ne!(cuts, 0);
    assert_archived(&postgres, &place).await;
}

// Ours: such a server reports a commit before it is on disk.
#[tokio::test]
async fn shipped_entries_survive_a_server_with_asynchronous_commits() {
    let place = recorded(20).await;
    let settings = ["synchronous_commit=off", "wal_writer_delay=10s"];
    let mut postgres = Postgres::with(&settings).await;
    ship_once(&place, &postgres).await;
    postgres.kill();
    postgres.restart().await;
    assert_archived(&postgres, &place).await;
}

// Ours: the proxy and two commands ship the same record at the same time.
#[tokio::test]
async fn concurrent_shippers_of_one_record_write_no_entry_twice() {
    let origin = origin().await;
    let place = recorded(5000).await;
    let postgres = Postgres::start().await;
    place.configure(&shipping(config(&origin), &postgres.url()));
    let proxy = place.start().await;
    tokio::join!(
        proxy.place().audit("ship --once"),
        proxy.place().audit("ship --once"),
        crawl(proxy.address(), 500),
    );
    let place = proxy.stop().await;
    assert_archived(&postgres, &place).await;
}

#[tokio::test]
async fn an_archive_can_require_tls_and_a_password() {
    let origin = origin().await;
    let postgres = Postgres::start().await;
    postgres
        .sql("CREATE ROLE writer LOGIN PASSWORD 'secret'")
        .await;
    postgres.sql("CREATE DATABASE own OWNER writer").await;
    let url = postgres.tls_url().replace("/politesse", "/own");
    let config = shipping(config(&origin), &url)
        .set("audit.archive_ca = \"roots.pem\"")
        .set("audit.archive_auth = \"auth\"");
    let place = Place::with(&config);
    write_private(&place, "auth", "writer:secret\n");
    let proxy = place.start().await;
    crawl(proxy.address(), 2).await;
    let place = proxy.stop().await;
    let said = format!("all entries have arrived in {url} already\n");
    assert_eq!(place.audit("ship --once").await.stdout, said);
}
