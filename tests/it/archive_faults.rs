//! What befalls the archive, the way to it and the shippers: no entry is lost, none is
//! there twice, and the proxy goes on. All ours; docs/archive.md.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::kit::archived::{ArchivedNode, shipping};
use crate::kit::client::{Crawler, get};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::metric;
use crate::kit::postgres::Postgres;
use crate::kit::program::politesse;
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::{run_within, until};

const MINUTES: Duration = Duration::from_secs(180);

pub(crate) async fn origin() -> Origin {
    Script::robots("User-agent: *\nDisallow: /no\n")
        .start()
        .await
}

pub(crate) fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).set("audit.seal_entries = 500")
}

/// Asks for so many pages, of which every second is refused.
pub(crate) async fn crawl(proxy: SocketAddr, count: usize) {
    let mut crawler = Crawler::to(proxy).await;
    for page in 0..count {
        let folder = ["no", "open"][page % 2];
        let url = format!("http://o.test/{folder}/{page}");
        crawler.get(&url, "o.test").await;
    }
}

/// Returns the record of a proxy that has stopped, of `count` requests.
pub(crate) async fn recorded(origin: &Origin, count: usize) -> Place {
    let proxy = config(origin).start().await;
    crawl(proxy.address(), count).await;
    proxy.stop().await
}

/// Ships all that the record has.
pub(crate) async fn ship_once(place: &Place, postgres: &Postgres) {
    let url = postgres.url();
    let outcome = place.run(&["audit", "ship", "--once", "--to", &url]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

// Ours.
#[test]
fn an_archive_that_is_killed_again_and_again_has_every_entry_once() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let mut postgres = Postgres::start().await;
        let proxy = shipping(config(&origin), &postgres.url()).start().await;
        for kill in 1..4 {
            let crawling = tokio::spawn(crawl(proxy.address(), 600));
            sleep(Duration::from_millis(300 * kill)).await;
            postgres.kill();
            crawling.await.unwrap();
            assert_eq!(get(&proxy, "http://o.test/no").await.status(), 403);
            until("a failure", async || {
                let failures = metric(&proxy, "politesse_archive_errors_total").await;
                (0.0 < failures).then_some(())
            })
            .await;
            postgres.restart().await;
            ArchivedNode::of(&postgres, proxy.place())
                .await
                .arrival()
                .await;
        }
        // Each trouble is told once, and that it is over.
        proxy.logged("are shipped to the archive again").await;
        let place = proxy.stop().await;
        ArchivedNode::of(&postgres, &place)
            .await
            .assert_whole()
            .await;
    });
}

// Ours.
#[test]
fn connections_that_are_cut_lose_nothing_and_write_nothing_twice() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let place = recorded(&origin, 6000).await;
        let postgres = Postgres::start().await;
        let mut cuts = 0;
        loop {
            let url = postgres.url();
            let mut ship = politesse(place.folder());
            ship.args(["audit", "ship", "--once", "--to", &url]);
            let mut ship = ship
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Sooner or later, up to a time that one window takes.
            sleep(Duration::from_millis(60 + 37 * cuts % 300)).await;
            let mut has_cut = postgres.cut().await != 0;
            // On a busy machine the first one may not have connected by then.
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
        ArchivedNode::of(&postgres, &place)
            .await
            .assert_whole()
            .await;
    });
}

// Ours.
#[test]
fn a_shipper_that_is_killed_loses_nothing_and_writes_nothing_twice() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let place = recorded(&origin, 6000).await;
        let postgres = Postgres::start().await;
        let mut time = Duration::from_millis(50);
        loop {
            let url = postgres.url();
            let mut ship = politesse(place.folder());
            ship.args(["audit", "ship", "--once", "--to", &url]);
            let mut ship = ship.stdout(Stdio::null()).spawn().unwrap();
            if let Ok(ended) = timeout(time, ship.wait()).await {
                assert!(ended.unwrap().success());
                break;
            }
            ship.kill().await.unwrap();
            time += Duration::from_millis(40);
        }
        ArchivedNode::of(&postgres, &place)
            .await
            .assert_whole()
            .await;
    });
}

// Ours: a server whose commits are not on its disk yet when it says that they are.
#[test]
fn what_has_arrived_outlasts_a_server_that_commits_without_waiting() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let place = recorded(&origin, 20).await;
        let settings = ["synchronous_commit=off", "wal_writer_delay=10s"];
        let mut postgres = Postgres::with(&settings).await;
        ship_once(&place, &postgres).await;
        postgres.kill();
        postgres.restart().await;
        ArchivedNode::of(&postgres, &place)
            .await
            .assert_whole()
            .await;
    });
}

// Ours: the proxy ships, and two commands do.
#[test]
fn shippers_of_one_record_write_no_entry_twice() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let place = recorded(&origin, 5000).await;
        let postgres = Postgres::start().await;
        place.configure(&shipping(config(&origin), &postgres.url()));
        let proxy = place.start().await;
        let (first, second, ()) = tokio::join!(
            proxy.place().run(&["audit", "ship", "--once"]),
            proxy.place().run(&["audit", "ship", "--once"]),
            crawl(proxy.address(), 500),
        );
        assert_eq!(
            (first.code, second.code),
            (Some(0), Some(0)),
            "{first:?} {second:?}"
        );
        let place = proxy.stop().await;
        ArchivedNode::of(&postgres, &place)
            .await
            .assert_whole()
            .await;
    });
}

// Ours.
#[tokio::test]
async fn an_archive_is_reached_over_tls_and_with_a_password() {
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
    fs::write(place.path("auth"), "writer:secret\n").unwrap();
    fs::set_permissions(place.path("auth"), Permissions::from_mode(0o600)).unwrap();
    let proxy = place.start().await;
    crawl(proxy.address(), 2).await;
    let place = proxy.stop().await;
    let outcome = place.run(&["audit", "ship", "--once"]).await;
    let said = format!("all entries have arrived in {url} already\n");
    assert_eq!(outcome.stdout, said, "{outcome:?}");
}
